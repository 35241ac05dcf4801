//! The computation of a mixture as a graph of standard operators.
//!
//! For rows `x_i`, `(d,)`, and the Cholesky factors `L_c` of the covariances, with `s` a median of the means:
//!
//! ```text
//! distance[i, c]  = |L_c⁻¹ (x_i − s) − L_c⁻¹ (μ_c − s)|²     by one matrix product for all components
//!                 = |L_c⁻¹ (x_i − μ_c)|²                     if a component is far from s
//! exponent[i, c]  = −½ distance[i, c] + constant_c           (N, k)
//! constant_c      = ln w_c − (d/2) ln 2π − ½ ln det Σ_c − largest
//! log_density[i]  = ln Σ_c exp(exponent[i, c]) + largest     (N,)
//! ```
//!
//! For variances in place of matrices the product is that of the squares and the rows about `s`, and for one matrix that of
//! the whitened rows with the whitened means. `largest` is the largest
//! constant: without it exponents are smaller, and so are their rounding errors and those of the responsibilities.
//!
//! In f32 an exponent of 16 is rounded by 1e-6, and a responsibility by a quarter of the difference of two. So a graph of f32
//! takes exponents in f64, and only what is left of them less the largest of the row in f32. For diag, spherical and tied
//! that is even faster, since the product form needs the digits of f64. For full covariances the products take twice as
//! long as in f32, where a whitened entry is rounded with the distance of its component from `s`: that alone is 1e-6.
//!
//! A square about the origin is never expanded into `x² − 2xμ + μ²`, whose terms cancel if the data are far from it: `s` is
//! subtracted first. So an offset of the data costs no precision.
//!
//! In arrays `(k, d, N)` rows are the last axis, so that the loops of a runtime are long; with d last they are slower.

use gmm_model::{Factors, Mixture, Noise, Precision, inverse_transposed};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis};

use super::builder::{Attribute, Builder, Value};
use super::messages::{DataType, GraphProto};
use crate::ModelFile;

/// The largest square of a centred mean over a standard deviation whose distances are expanded in f64: it costs three digits.
const MOST_SQUARE: f64 = 1024.0;

/// The graph of a model that has no posterior. The error says which number the precision cannot represent.
pub(super) fn graph(model: &ModelFile, precision: Precision) -> Result<GraphProto, String> {
    let (mixture, noise) = (&model.mixture, model.noise.as_ref());
    let mut builder = Builder::new("gaussian_mixture", precision);
    check_range(&builder, mixture)?;
    if precision == Precision::F32 {
        builder.precision = Precision::F64;
        let rows = builder.cast("X", "X_in_f64");
        let distances = distances(&mut builder, mixture, rows);
        joint(&mut builder, mixture, noise, distances)?;
        posterior_of_differences(&mut builder);
    } else {
        let distances = distances(&mut builder, mixture, "X");
        let prior = joint(&mut builder, mixture, noise, distances)?;
        posterior(&mut builder, &prior);
    }
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

/// Checks that means and factors are in the range of the builder's precision.
fn check_range(builder: &Builder, mixture: &Mixture) -> Result<(), String> {
    check(builder, "mean", mixture.means().iter().copied(), false)?;
    PrecisionFactors::new(mixture).check(builder)
}

/// Squared Mahalanobis distances of the rows to the means, `(N, k)`.
fn distances(builder: &mut Builder, mixture: &Mixture, rows: &str) -> &'static str {
    let factors = PrecisionFactors::new(mixture);
    let shift = shift(mixture);
    let centred = &mixture.means() - &shift;
    if !factors.is_near(&centred) {
        return of_differences(builder, mixture, factors, rows);
    }
    builder.reals("shift", &[shift.len()], shift);
    builder.apply("Sub", &[rows, "shift"], "shifted", &[]);
    match factors {
        PrecisionFactors::Matrices(all) if all.len_of(Axis(0)) > 1 => of_matrices(builder, &centred, &all),
        PrecisionFactors::Matrices(all) => {
            let factor = all.index_axis(Axis(0), 0);
            let means = centred.dot(&factor.t());
            match means.iter().all(|v| v * v <= MOST_SQUARE) {
                true => of_whitened(builder, &means, factor),
                false => of_matrix(builder, &means, factor),
            }
        }
        PrecisionFactors::Scales(all) => of_squares(builder, &centred, &all),
    }
}

/// Distances by one product of the shifted rows with the factors of all components, `(k, d, d)`.
fn of_matrices(builder: &mut Builder, centred: &Array2<f64>, factors: &Array3<f64>) -> &'static str {
    let (k, d) = centred.dim();
    let whitened = factors.outer_iter().zip(centred.outer_iter()).flat_map(|(factor, mean)| factor.dot(&mean));
    // The transposed factors side by side.
    let side_by_side = Array2::from_shape_fn((d, k * d), |(j, at)| factors[[at / d, at % d, j]]);
    builder.reals("precision_factors", &[d, k * d], side_by_side);
    builder.reals("offsets", &[k * d], whitened.map(|v| -v));
    builder.apply("Gemm", &["shifted", "precision_factors", "offsets"], "products", &[]);
    // 0 is the number of rows.
    builder.integers("by_component", &[3], &[0, k as i64, d as i64]);
    builder.apply("Reshape", &["products", "by_component"], "whitened", &[]);
    let over_columns = [("axes", Attribute::Ints(&[2])), ("keepdims", Attribute::Int(0))];
    builder.apply("ReduceSumSquare", &["whitened"], "distances", &over_columns)
}

/// Distances of the shifted rows times the factor of all components, `(d, d)`, to `means`, the centred means times that.
fn of_matrix(builder: &mut Builder, means: &Array2<f64>, factor: ArrayView2<'_, f64>) -> &'static str {
    let (k, d) = means.dim();
    builder.reals("precision_factors", &[d, d], factor.t().iter().copied());
    builder.apply("MatMul", &["shifted", "precision_factors"], "products", &[]);
    builder.apply("Transpose", &["products"], "columns", &[("perm", Attribute::Ints(&[1, 0]))]);
    builder.reals("offsets", &[k, d, 1], means.iter().copied());
    builder.apply("Sub", &["columns", "offsets"], "whitened", &[]);
    sums_of_squares(builder)
}

/// As [`of_matrix`] by two products, `|y|² − 2 y·m + |m|²` of the rows `y` and the means `m`.
fn of_whitened(builder: &mut Builder, means: &Array2<f64>, factor: ArrayView2<'_, f64>) -> &'static str {
    let (k, d) = means.dim();
    builder.reals("precision_factors", &[d, d], factor.t().iter().copied());
    builder.apply("MatMul", &["shifted", "precision_factors"], "whitened", &[]);
    builder.reals("minus_twice_means", &[d, k], means.t().iter().map(|v| -2.0 * v));
    builder.reals("offsets", &[k], means.outer_iter().map(|mean| mean.dot(&mean)));
    builder.apply("Gemm", &["whitened", "minus_twice_means", "offsets"], "products", &[]);
    let over_columns = [("axes", Attribute::Ints(&[1])), ("keepdims", Attribute::Int(1))];
    builder.apply("ReduceSumSquare", &["whitened"], "squares", &over_columns);
    builder.apply("Add", &["products", "squares"], "distances", &[])
}

/// Distances `Σ z²/σ² − 2 z μ/σ² + μ²/σ²` of the shifted rows `z`, by one product; `factors` are `1/σ`.
fn of_squares(builder: &mut Builder, centred: &Array2<f64>, factors: &Array2<f64>) -> &'static str {
    let (k, d) = centred.dim();
    let scale = |c: usize, j: usize| factors[[c, j % factors.ncols()]];
    let of = |(row, c): (usize, usize)| match row / d {
        0 => scale(c, row).powi(2),
        _ => -2.0 * centred[[c, row % d]] * scale(c, row % d).powi(2),
    };
    let offsets = (0..k).map(|c| (0..d).map(|j| (centred[[c, j]] * scale(c, j)).powi(2)).sum());
    builder.reals("precisions", &[2 * d, k], Array2::from_shape_fn((2 * d, k), of));
    builder.reals("offsets", &[k], offsets);
    builder.apply("Mul", &["shifted", "shifted"], "squares", &[]);
    builder.apply("Concat", &["squares", "shifted"], "features", &[("axis", Attribute::Int(1))]);
    builder.apply("Gemm", &["features", "precisions", "offsets"], "distances", &[])
}

/// Distances from the differences to each mean.
fn of_differences(builder: &mut Builder, mixture: &Mixture, factors: PrecisionFactors, rows: &str) -> &'static str {
    let (k, d) = mixture.means().dim();
    let means = mixture.means();
    let order = [("perm", Attribute::Ints(&[1, 0]))];
    builder.apply("Transpose", &[rows], "columns", &order);
    builder.reals("means", &[k, d, 1], means.iter().copied());
    let centred = builder.apply("Sub", &["columns", "means"], "difference", &[]);
    let (operator, shape, values) = match factors {
        PrecisionFactors::Matrices(all) => ("MatMul", all.shape().to_vec(), all.into_raw_vec_and_offset().0),
        PrecisionFactors::Scales(all) => ("Mul", [all.shape(), &[1]].concat(), all.into_raw_vec_and_offset().0),
    };
    builder.reals("precision_factors", &shape, values);
    builder.apply(operator, &["precision_factors", centred], "whitened", &[]);
    sums_of_squares(builder)
}

/// Distances from `whitened`, `(k, d, N)`.
fn sums_of_squares(builder: &mut Builder) -> &'static str {
    let over_columns = [("axes", Attribute::Ints(&[1])), ("keepdims", Attribute::Int(0))];
    builder.apply("ReduceSumSquare", &["whitened"], "distances_of_components", &over_columns);
    builder.apply("Transpose", &["distances_of_components"], "distances", &[("perm", Attribute::Ints(&[1, 0]))])
}

/// A median of the means in each column.
fn shift(mixture: &Mixture) -> Array1<f64> {
    let median = |column: ArrayView1<'_, f64>| {
        let mut all = column.to_vec();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    mixture.means().columns().into_iter().map(median).collect()
}

/// The inverses of the Cholesky factors of the covariances.
enum PrecisionFactors {
    /// `(k, d, d)`, or `(1, d, d)` if all components share one.
    Matrices(Array3<f64>),
    /// `(k, d)`, or `(k, 1)` if all columns share one.
    Scales(Array2<f64>),
}

impl PrecisionFactors {
    fn new(mixture: &Mixture) -> Self {
        let d = mixture.n_features();
        let matrices = |count: usize| {
            let all: Vec<f64> = (0..count).flat_map(|c| inverse(mixture, c)).collect();
            Self::Matrices(Array3::from_shape_vec((count, d, d), all).expect("d*d numbers each"))
        };
        match mixture.factors() {
            Factors::Full(all) => matrices(all.len()),
            Factors::Tied(_) => matrices(1),
            Factors::Diag(sd) => Self::Scales(sd.mapv(f64::recip)),
            Factors::Spherical(sd) => Self::Scales(sd.mapv(f64::recip).insert_axis(Axis(1))),
        }
    }

    /// Whether all components, with means `centred` about the shift, are so near to it that the rounding of a row there
    /// is small: that of a whitened entry grows with the distance, and that of a square with its square. Beyond it f64
    /// has digits to spare.
    fn is_near(&self, centred: &Array2<f64>) -> bool {
        match self {
            Self::Matrices(all) => centred.outer_iter().enumerate().all(|(c, mean)| {
                let factor = all.index_axis(Axis(0), c % all.len_of(Axis(0))).mapv(f64::abs);
                factor.dot(&mean.mapv(f64::abs)).iter().all(|&v| v <= MOST_SQUARE)
            }),
            Self::Scales(all) => {
                all.iter().all(|v| (v * v).is_normal()) && (centred * all).iter().all(|v| v * v <= MOST_SQUARE)
            }
        }
    }

    /// Checks the range of all factors. A scale that becomes zero or subnormal would lose its digits: of a matrix the
    /// scales are on the diagonal.
    fn check(&self, builder: &Builder) -> Result<(), String> {
        let what = "precision factor (the inverse of a standard deviation)";
        match self {
            Self::Matrices(all) => {
                check(builder, what, all.iter().copied(), false)?;
                let diagonals = all.outer_iter().flat_map(|one| one.diag().to_vec());
                check(builder, what, diagonals, true)
            }
            Self::Scales(all) => check(builder, what, all.iter().copied(), true),
        }
    }
}

/// The inverse of the Cholesky factor of the covariance of component `c`, `(d, d)` in row-major order: ONNX has no
/// operator that solves a triangular system.
fn inverse(mixture: &Mixture, c: usize) -> Array2<f64> {
    let transposed = inverse_transposed(mixture.factors().dense(c, mixture.n_features()).view());
    transposed.t().as_standard_layout().into_owned()
}

/// `ln(w_c p_c(x)) − largest`, `(N, k)`, with that of the noise in a further column. Returns the weights of the
/// columns.
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
    let finite = constants.iter().copied().filter(|v| *v != f64::NEG_INFINITY);
    check(builder, "log density at a mean", finite, false)?;
    let largest = constants.fold(f64::NEG_INFINITY, |most, &v| most.max(v));
    builder.reals("constants", &[constants.len()], constants.mapv(|v| v - largest));
    builder.reals("largest_constant", &[], [largest]);
    builder.reals("minus_half", &[], [-0.5]);
    builder.apply("Mul", &[distances, "minus_half"], "half_distances", &[]);
    builder.apply("Add", &["half_distances", "constants"], "exponents", &[]);
    Ok(prior)
}

/// As [`posterior`], from exponents in f64 to results in f32. No exponent underflows: the distances of rows of f32 are in the
/// range of f64.
fn posterior_of_differences(builder: &mut Builder) {
    let over_components = [("axes", Attribute::Ints(&[1])), ("keepdims", Attribute::Int(1))];
    builder.apply("ReduceMax", &["exponents"], "largest_exponent", &over_components);
    builder.apply("Sub", &["exponents", "largest_exponent"], "differences_in_f64", &[]);
    builder.precision = Precision::F32;
    let differences = builder.cast("differences_in_f64", "differences");
    builder.apply("Softmax", &[differences], "posterior", &[("axis", Attribute::Int(1))]);
    builder.apply("ReduceLogSumExp", &[differences], "log_sums", &over_components);
    builder.precision = Precision::F64;
    let log_sums = builder.cast("log_sums", "log_sums_in_f64");
    builder.apply("Sum", &[log_sums, "largest_exponent", "largest_constant"], "log_densities_in_f64", &[]);
    builder.precision = Precision::F32;
    let log_densities = builder.cast("log_densities_in_f64", "log_densities");
    builder.integers("axis_1", &[1], &[1]);
    builder.apply("Squeeze", &[log_densities, "axis_1"], "log_density", &[]);
}

/// Log densities, and the posterior of the components. If the densities of all components underflow, the posterior is
/// the prior, as in `gmm predict`.
fn posterior(builder: &mut Builder, prior: &[f64]) {
    let over_components = [("axes", Attribute::Ints(&[1])), ("keepdims", Attribute::Int(1))];
    builder.apply("ReduceLogSumExp", &["exponents"], "log_sums", &over_components);
    builder.integers("axis_1", &[1], &[1]);
    builder.apply("Squeeze", &["log_sums", "axis_1"], "log_sum", &[]);
    builder.apply("Add", &["log_sum", "largest_constant"], "log_density", &[]);
    builder.apply("Softmax", &["exponents"], "posterior_where_dense", &[("axis", Attribute::Int(1))]);
    builder.reals("prior", &[prior.len()], prior.iter().copied());
    builder.reals("minus_infinity", &[], [f64::NEG_INFINITY]);
    builder.apply("Equal", &["log_sums", "minus_infinity"], "underflows", &[]);
    builder.apply("Where", &["underflows", "prior", "posterior_where_dense"], "posterior", &[]);
}

/// Responsibilities and labels, of clusters if the model has them; returns the number of columns of the
/// responsibilities.
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
