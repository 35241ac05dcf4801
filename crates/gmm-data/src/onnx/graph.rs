//! The computation of a mixture as a graph of standard operators.
//!
//! For rows `X`, `(N, d)`, and the Cholesky factors `L_c` of the covariances:
//!
//! ```text
//! whitened[c, :, i] = L_c⁻¹ (x_i − μ_c)                      (k, d, N)
//! log_joint[i, c]   = −½ |whitened[c, :, i]|² + constant_c   (N, k)
//! constant_c        = ln w_c − (d/2) ln 2π − ½ ln det Σ_c
//! log_density[i]    = ln Σ_c exp(log_joint[i, c])            (N,)
//! ```
//!
//! The square of a difference is never expanded into `x² − 2xμ + μ²`, whose terms cancel if the data are far from the
//! origin. In f32 a mean is the sum of two f32 numbers: the first is subtracted without rounding from rows near it
//! (Sterbenz 1974), so that an offset of the data costs no precision.
//!
//! Rows are the last axis, so that the loops of a runtime are long; with d last they are slower.

use gmm_model::{Factors, Mixture, Noise, Precision, inverse_transposed};
use ndarray::{Array1, Array2, Array3};

use super::builder::{Attribute, Builder, Value};
use super::messages::{DataType, GraphProto};
use crate::ModelFile;

/// The graph of a model that has no posterior. The error says which number the precision cannot represent.
pub(super) fn graph(model: &ModelFile, precision: Precision) -> Result<GraphProto, String> {
    let (mixture, noise) = (&model.mixture, model.noise.as_ref());
    let mut builder = Builder::new("gaussian_mixture", precision);
    let distances = distances(&mut builder, mixture)?;
    let prior = joint(&mut builder, mixture, noise, distances)?;
    posterior(&mut builder, &prior);
    let columns = outputs(&mut builder, model);
    let value = |name, data_type, columns| Value { name, data_type, columns };
    let (real, d) = (builder.real(), mixture.n_features());
    Ok(builder.finish(
        value("X", real, Some(d)),
        &[
            value("label", DataType::Int64, None),
            value("responsibilities", real, Some(columns)),
            value("log_density", real, None),
        ],
    ))
}

/// Squared Mahalanobis distances of the rows to the means, `(N, k)`.
fn distances(builder: &mut Builder, mixture: &Mixture) -> Result<&'static str, String> {
    let (k, d) = mixture.means().dim();
    let means = mixture.means();
    check(builder, "mean", means.iter().copied(), false)?;
    let order = [("perm", Attribute::Ints(&[1, 0]))];
    builder.apply("Transpose", &["X"], "columns", &order);
    builder.reals("means", &[k, d, 1], means.iter().copied());
    let mut centred = builder.apply("Sub", &["columns", "means"], "difference", &[]);
    let rest = means.mapv(|v| v - f64::from(v as f32));
    if builder.precision == Precision::F32 && rest.iter().any(|&v| v != 0.0) {
        builder.reals("means_rest", &[k, d, 1], rest);
        centred = builder.apply("Sub", &[centred, "means_rest"], "centred", &[]);
    }
    let operator = factors(builder, mixture)?;
    builder.apply(operator, &["precision_factors", centred], "whitened", &[]);
    let over_columns = [("axes", Attribute::Ints(&[1])), ("keepdims", Attribute::Int(0))];
    builder.apply("ReduceSumSquare", &["whitened"], "distances_of_components", &over_columns);
    Ok(builder.apply("Transpose", &["distances_of_components"], "distances", &order))
}

/// Adds the factors of the precisions, in a shape that broadcasts to `(k, d, N)`, and returns the operator that applies
/// them to the centred rows.
fn factors(builder: &mut Builder, mixture: &Mixture) -> Result<&'static str, String> {
    let (k, d) = mixture.means().dim();
    let name = "precision_factors";
    let (operator, shape, values) = match mixture.factors() {
        Factors::Full(_) => {
            let mut all = Array3::<f64>::zeros((k, d, d));
            for (c, mut one) in all.outer_iter_mut().enumerate() {
                one.assign(&inverse(mixture, c));
            }
            ("MatMul", vec![k, d, d], all.into_raw_vec_and_offset().0)
        }
        Factors::Tied(_) => ("MatMul", vec![d, d], inverse(mixture, 0).into_raw_vec_and_offset().0),
        Factors::Diag(sd) => ("Mul", vec![k, d, 1], sd.iter().map(|s| 1.0 / s).collect()),
        Factors::Spherical(sd) => ("Mul", vec![k, 1, 1], sd.iter().map(|s| 1.0 / s).collect()),
    };
    let what = "precision factor (the inverse of a standard deviation)";
    check(builder, what, values.iter().copied(), false)?;
    // A scale that becomes zero or subnormal would lose its digits. Of a matrix the scales are on the diagonal.
    let is_matrix = operator == "MatMul";
    let scales = values.iter().enumerate().filter(|(i, _)| !is_matrix || (i % (d * d)) % (d + 1) == 0);
    check(builder, what, scales.map(|(_, &v)| v), true)?;
    builder.reals(name, &shape, values);
    Ok(operator)
}

/// The inverse of the Cholesky factor of the covariance of component `c`, `(d, d)` in row-major order: ONNX has no
/// operator that solves a triangular system.
fn inverse(mixture: &Mixture, c: usize) -> Array2<f64> {
    let transposed = inverse_transposed(mixture.factors().dense(c, mixture.n_features()).view());
    transposed.t().as_standard_layout().into_owned()
}

/// `ln(w_c p_c(x))`, `(N, k)`, with that of the noise in a further column. Returns the weights of the columns.
fn joint(
    builder: &mut Builder,
    mixture: &Mixture,
    noise: Option<&Noise>,
    distances: &'static str,
) -> Result<Vec<f64>, String> {
    let log_rest = noise.map_or(0.0, Noise::log_rest);
    let of = |c| log_rest + mixture.log_weight(c) + mixture.log_normalizer(c);
    let mut constants: Array1<f64> = (0..mixture.n_components()).map(of).collect();
    let mut prior = mixture.weights().to_vec();
    let mut distances = distances;
    if let Some(noise) = noise {
        // Noise has the same density everywhere, as if at distance 0 from every row.
        builder.integers("one_column", &[4], &[0, 0, 0, 1]);
        distances = builder.apply("Pad", &[distances, "one_column"], "distances_and_noise", &[]);
        constants = constants.into_iter().chain([noise.log_joint()]).collect();
        prior.iter_mut().for_each(|w| *w *= 1.0 - noise.weight);
        prior.push(noise.weight);
    }
    // A weight of 0 has the constant −∞, and a density of 0 in every row.
    check(builder, "log density at a mean", constants.iter().copied().filter(|v| *v != f64::NEG_INFINITY), false)?;
    builder.reals("constants", &[constants.len()], constants);
    builder.reals("minus_half", &[], [-0.5]);
    builder.apply("Mul", &[distances, "minus_half"], "exponents", &[]);
    builder.apply("Add", &["exponents", "constants"], "log_joint", &[]);
    Ok(prior)
}

/// Log densities, and the posterior of the components. If the densities of all components underflow, the posterior is the
/// prior, as in `gmm predict`.
fn posterior(builder: &mut Builder, prior: &[f64]) {
    let over_components = [("axes", Attribute::Ints(&[1])), ("keepdims", Attribute::Int(1))];
    builder.apply("ReduceLogSumExp", &["log_joint"], "log_densities", &over_components);
    builder.integers("axis_1", &[1], &[1]);
    builder.apply("Squeeze", &["log_densities", "axis_1"], "log_density", &[]);
    builder.apply("Softmax", &["log_joint"], "posterior_where_dense", &[("axis", Attribute::Int(1))]);
    builder.reals("prior", &[prior.len()], prior.iter().copied());
    builder.reals("minus_infinity", &[], [f64::NEG_INFINITY]);
    builder.apply("Equal", &["log_densities", "minus_infinity"], "underflows", &[]);
    builder.apply("Where", &["underflows", "prior", "posterior_where_dense"], "posterior", &[]);
}

/// Responsibilities and labels, of clusters if the model has them; returns the number of columns of the responsibilities.
fn outputs(builder: &mut Builder, model: &ModelFile) -> usize {
    let noise = usize::from(model.noise.is_some());
    let k = model.mixture.n_components();
    let groups = match &model.clusters {
        None => {
            builder.apply("Identity", &["posterior"], "responsibilities", &[]);
            k
        }
        Some(clusters) => {
            let groups = clusters.iter().max().map_or(0, |most| most + 1);
            let cluster_of = |c| clusters.get(c).copied().unwrap_or(groups);
            let is_in = Array2::from_shape_fn((k + noise, groups + noise), |(c, g)| f64::from(cluster_of(c) == g));
            builder.reals("cluster_of_component", &[k + noise, groups + noise], is_in);
            builder.apply("MatMul", &["posterior", "cluster_of_component"], "responsibilities", &[]);
            groups
        }
    };
    let largest = [("axis", Attribute::Int(1)), ("keepdims", Attribute::Int(0))];
    if model.noise.is_none() {
        builder.apply("ArgMax", &["responsibilities"], "label", &largest);
        return groups;
    }
    builder.apply("ArgMax", &["responsibilities"], "column", &largest);
    builder.integers("noise_column", &[], &[groups as i64]);
    builder.integers("noise_label", &[], &[-1]);
    builder.apply("Equal", &["column", "noise_column"], "is_noise", &[]);
    builder.apply("Where", &["is_noise", "noise_label", "column"], "label", &[]);
    groups + 1
}

/// Checks that numbers are finite in the builder's precision, and normal (so that they keep their digits) if required.
fn check(
    builder: &Builder,
    what: &str,
    values: impl IntoIterator<Item = f64>,
    must_be_normal: bool,
) -> Result<(), String> {
    let fits = |v: f64| match (builder.precision, must_be_normal) {
        (Precision::F32, true) => (v as f32).is_normal(),
        (Precision::F64, true) => v.is_normal(),
        (Precision::F32, false) => (v as f32).is_finite(),
        (Precision::F64, false) => v.is_finite(),
    };
    match (values.into_iter().find(|&v| !fits(v)), builder.precision) {
        (None, _) => Ok(()),
        (Some(v), Precision::F32) => Err(format!("the {what} {v:e} exceeds the range of f32: use precision f64")),
        (Some(v), Precision::F64) => Err(format!("the {what} {v:e} exceeds the range of f64: rescale the data")),
    }
}
