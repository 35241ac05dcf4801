//! The list of a fit by mclust, as JSON: R's `jsonlite::toJSON(fit[c("modelName", "n", "d", "G", "loglik",
//! "parameters")], digits = NA)`, or its `parameters` alone.
//!
//! ```text
//! {"modelName": "VVV", "d": d, "G": k, "parameters": {
//!   "pro": (k,), "mean": (d, k), "Vinv": 1 / V, "variance": {"modelName": "VVV", "sigma": (d, d, k), ..}}}
//! ```
//!
//! A single number may be in brackets, as jsonlite writes it. With noise, `pro` has a further, last weight, and `Vinv`
//! is the density of the noise. For one column `mean` is `(k,)`, and `sigmasq` has the variances. What else `variance`
//! holds depends on the model (`?mclustVariance`); the writer adds what mclust's functions need.

use std::fmt::Write;

use gmm_model::{CovarianceType, Covariances, Mixture, Noise};
use ndarray::{Array, Array1, Array2, Array3, ArrayD, ArrayView, Axis, Dimension, IxDyn};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::parts::Fields;
use crate::error::{Fault, one_line};
use crate::{ModelFile, Problem};

/// mclust's names of models, and the kind that holds each exactly. The last is for all others: VVV, XXX, EEV, VEV, ..
const KINDS: [(&[&str], CovarianceType); 3] = [
    (&["E", "EII", "EEI", "EEE"], CovarianceType::Tied),
    (&["VII", "XII"], CovarianceType::Spherical),
    (&["VEI", "EVI", "VVI", "XXI"], CovarianceType::Diag),
];
const FULL: [&str; 10] = ["V", "X", "XXX", "VEE", "EVE", "VVE", "EEV", "VEV", "EVV", "VVV"];

/// Whether a JSON object is a fit of mclust, or the parameters of one.
pub(in super::super) fn is_list(fields: &Fields<'_>) -> bool {
    !fields.has("format") && (fields.has("parameters") || (fields.has("pro") && fields.has("variance")))
}

/// Reads a fit: weights, means, covariances and noise.
pub(in super::super) fn parse(fields: &Fields<'_>) -> Result<ModelFile, Fault> {
    let nested;
    let parameters = if fields.has("parameters") {
        nested = fields.object("parameters")?;
        &nested
    } else {
        fields
    };
    let variance = parameters.object("variance")?;
    let mean: ArrayD<f64> = array(parameters, "mean")?;
    let mean = match mean.ndim() {
        1 => mean.insert_axis(Axis(0)),
        _ => mean,
    };
    let Ok(mean) = mean.into_dimensionality::<ndarray::Ix2>() else {
        return Err(wrong("mean", "it must be a matrix, with a column per component".to_owned()));
    };
    let (d, k) = mean.dim();
    let mut weights: Vec<f64> = array(parameters, "pro")?.into_iter().collect();
    let volume = optional_number(parameters, "Vinv")?;
    let noise = match (weights.len(), volume) {
        (found, Some(density)) if found == k + 1 => {
            let weight = weights.pop().expect("k + 1 weights");
            weights.iter_mut().for_each(|w| *w /= 1.0 - weight);
            Some(Noise { weight, log_volume: -density.ln(), region: None })
        }
        (found, _) if found == k => None,
        (found, _) => return Err(wrong("pro", format!("{found} weights for the {k} columns of mean"))),
    };
    let sum: f64 = weights.iter().sum();
    if (sum - 1.0).abs() > 1e-6 && (sum - 1.0).abs() < 1e-3 {
        // jsonlite keeps four digits unless it is told otherwise.
        return Err(wrong("pro", format!("the weights sum to {sum}: write all digits with toJSON(.., digits = NA)")));
    }
    let name: String = one(&variance, "modelName")?;
    // The fit says some of it again.
    for of in [fields, &variance] {
        if of.has("modelName") && one::<String>(of, "modelName")? != name {
            return Err(wrong("modelName", format!("the variance is of model '{}'", one_line(&name))));
        }
        for (field, expected) in [("d", d), ("G", k)] {
            let found = if of.has(field) { optional_number(of, field)? } else { None };
            if let Some(found) = found.filter(|found| *found != expected as f64) {
                return Err(wrong(field, format!("{found}, but the means are of {expected}")));
            }
        }
    }
    let covariances = covariances(&variance, &name, (k, d))?;
    let mixture = Mixture::new(weights.into(), mean.t().to_owned(), covariances).map_err(Problem::from)?;
    let model = ModelFile { noise, ..ModelFile::from(mixture) };
    super::super::check_columns(&model)?;
    Ok(model)
}

fn covariances(variance: &Fields<'_>, name: &str, (k, d): (usize, usize)) -> Result<Covariances, Fault> {
    let kind = KINDS.iter().find(|(names, _)| names.contains(&name)).map(|&(_, kind)| kind);
    let kind = match kind {
        Some(kind) => kind,
        None if FULL.contains(&name) => CovarianceType::Full,
        None => return Err(wrong("modelName", format!("'{}' is no model of mclust", one_line(name)))),
    };
    if d == 1 || kind == CovarianceType::Spherical {
        let all = array(variance, "sigmasq")?;
        let expected = if kind == CovarianceType::Tied { 1 } else { k };
        let all = shaped(all, "sigmasq", &[expected])?;
        return Ok(match kind {
            CovarianceType::Spherical => Covariances::Spherical(all.into_iter().collect()),
            CovarianceType::Diag => Covariances::Diag(all.into_iter().collect::<Array1<_>>().insert_axis(Axis(1))),
            CovarianceType::Tied => Covariances::Tied(Array2::from_elem((1, 1), all[[0]])),
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, 1, 1), |(c, ..)| all[[c]])),
        });
    }
    let sigma = shaped(array(variance, "sigma")?, "sigma", &[d, d, k])?;
    let holds = |c: usize, i: usize, j: usize| match kind {
        CovarianceType::Tied => sigma[[i, j, c]] == sigma[[i, j, 0]],
        CovarianceType::Diag => i == j || sigma[[i, j, c]] == 0.0,
        _ => true,
    };
    if let Some(c) = (0..k).find(|&c| (0..d * d).any(|at| !holds(c, at / d, at % d))) {
        return Err(wrong("sigma", format!("that of component {c} is none of model '{}'", one_line(name))));
    }
    Ok(match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| sigma[[i, j, c]])),
        CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| sigma[[i, j, 0]])),
        _ => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| sigma[[j, j, c]])),
    })
}

/// The JSON text of a fit. R's `jsonlite::fromJSON` returns the list, whose `parameters` mclust's functions take.
pub(super) fn to_string(model: &ModelFile) -> String {
    let mixture = &model.mixture;
    let (k, d) = mixture.means().dim();
    let (name, fields) = variance(mixture);
    let rest = model.noise.as_ref().map_or(1.0, |noise| 1.0 - noise.weight);
    let noise = model.noise.iter().map(|noise| noise.weight);
    let weights: Array1<f64> = mixture.weights().iter().map(|w| w * rest).chain(noise).collect();
    let mut out = format!("{{\"modelName\": \"{name}\", \"d\": {d}, \"G\": {k},");
    if let Some(fit) = &model.fit {
        let _ = write!(out, " \"n\": {}, \"loglik\": {},", fit.n_rows, Value::from(fit.log_likelihood));
    }
    let mean = if d == 1 { nested(mixture.means().column(0)) } else { nested(mixture.means().t()) };
    let _ = write!(out, "\n\"parameters\": {{\n  \"pro\": {},\n  \"mean\": {mean},\n", nested(weights.view()));
    if let Some(noise) = &model.noise {
        let _ = writeln!(out, "  \"Vinv\": {},", Value::from((-noise.log_volume).exp()));
    }
    let _ = write!(out, "  \"variance\": {{\n    \"modelName\": \"{name}\", \"d\": {d}, \"G\": {k}");
    for (field, array) in fields {
        let text = if array.ndim() == 0 { Value::from(array[IxDyn(&[])]).to_string() } else { nested(array.view()) };
        let _ = write!(out, ",\n    \"{field}\": {text}");
    }
    out + "\n  }\n}}\n"
}

/// mclust's name of the model, and the fields of its `variance`.
fn variance(mixture: &Mixture) -> (&'static str, Vec<(&'static str, ArrayD<f64>)>) {
    let (k, d) = mixture.means().dim();
    let covariance = |c: usize, i: usize, j: usize| match mixture.covariances() {
        Covariances::Full(all) => all[[c, i, j]],
        Covariances::Tied(one) => one[[i, j]],
        Covariances::Diag(all) if i == j => all[[c, i]],
        Covariances::Spherical(all) if i == j => all[c],
        Covariances::Diag(_) | Covariances::Spherical(_) => 0.0,
    };
    let number = |v: f64| Array::from_elem(IxDyn(&[]), v);
    let per_component = |of: &dyn Fn(usize) -> f64| Array1::from_shape_fn(k, of).into_dyn();
    let first = |c: usize| covariance(c, 0, 0);
    let kind = mixture.covariance_type();
    if d == 1 {
        return match kind {
            CovarianceType::Tied => ("E", vec![("sigmasq", number(first(0)))]),
            _ => ("V", vec![("sigmasq", per_component(&first)), ("scale", per_component(&first))]),
        };
    }
    let sigma = Array3::from_shape_fn((d, d, k), |(i, j, c)| covariance(c, i, j)).into_dyn();
    let mut fields = vec![("sigma", sigma)];
    // The Cholesky factors of mclust are upper triangular.
    let upper = |c: usize| mixture.factors().dense(c, d).reversed_axes();
    let name = match kind {
        CovarianceType::Full => {
            let factors: Vec<Array2<f64>> = (0..k).map(upper).collect();
            fields.push(("cholsigma", Array3::from_shape_fn((d, d, k), |(i, j, c)| factors[c][[i, j]]).into_dyn()));
            "VVV"
        }
        CovarianceType::Tied => {
            let one = Array2::from_shape_fn((d, d), |(i, j)| covariance(0, i, j)).into_dyn();
            fields.extend([("Sigma", one), ("cholSigma", upper(0).into_dyn())]);
            "EEE"
        }
        CovarianceType::Diag => {
            // Volume: the geometric mean of the variances. Shape: the variances over it.
            let volume = |c: usize| ((0..d).map(|j| covariance(c, j, j).ln()).sum::<f64>() / d as f64).exp();
            let shape = Array2::from_shape_fn((d, k), |(j, c)| covariance(c, j, j) / volume(c));
            fields.extend([("scale", per_component(&volume)), ("shape", shape.into_dyn())]);
            "VVI"
        }
        CovarianceType::Spherical => {
            fields.extend([("sigmasq", per_component(&first)), ("scale", per_component(&first))]);
            "VII"
        }
    };
    (name, fields)
}

/// An array as nested lists, the last axis innermost.
fn nested<D: Dimension>(array: ArrayView<'_, f64, D>) -> String {
    fn of(array: ArrayView<'_, f64, IxDyn>) -> String {
        let items: Vec<String> = match array.ndim() {
            1 => array.iter().map(|v| Value::from(*v).to_string()).collect(),
            _ => array.axis_iter(Axis(0)).map(of).collect(),
        };
        format!("[{}]", items.join(", "))
    }
    of(array.into_dyn())
}

/// A field that may be a number, or nested lists of equal lengths, of up to three axes. A number has one axis.
fn array(fields: &Fields<'_>, name: &str) -> Result<ArrayD<f64>, Fault> {
    let raw = fields.raw(name)?.get().as_bytes();
    let depth = raw.iter().take_while(|b| **b == b'[' || b.is_ascii_whitespace()).filter(|b| **b == b'[').count();
    let (shape, values) = match depth {
        0 => (vec![1], vec![fields.get::<f64>(name)?]),
        1 => {
            let values: Vec<f64> = fields.get(name)?;
            (vec![values.len()], values)
        }
        2 => {
            let rows: Vec<Vec<f64>> = fields.get(name)?;
            (vec![rows.len(), length(&rows, name)?], rows.concat())
        }
        _ => {
            let all: Vec<Vec<Vec<f64>>> = fields.get(name)?;
            let (first, rows) = (length(&all, name)?, all.concat());
            (vec![all.len(), first, length(&rows, name)?], rows.concat())
        }
    };
    Ok(ArrayD::from_shape_vec(shape, values).expect("as many numbers as the lengths say"))
}

/// The length that all lists have.
fn length<T>(lists: &[Vec<T>], name: &str) -> Result<usize, Fault> {
    let len = lists.first().map_or(0, Vec::len);
    match lists.iter().all(|list| list.len() == len) {
        true => Ok(len),
        false => Err(wrong(name, "its lists have unequal lengths".to_owned())),
    }
}

fn shaped(array: ArrayD<f64>, name: &str, expected: &[usize]) -> Result<ArrayD<f64>, Fault> {
    match array.shape() == expected {
        true => Ok(array),
        false => Err(wrong(name, format!("shape {:?}, but mean requires {expected:?}", array.shape()))),
    }
}

/// A number that may be missing, in brackets, or an empty list or object: R's NULL.
fn optional_number(fields: &Fields<'_>, name: &str) -> Result<Option<f64>, Fault> {
    match fields.optional::<Value>(name)? {
        None => Ok(None),
        Some(Value::Object(none)) if none.is_empty() => Ok(None),
        Some(Value::Array(none)) if none.is_empty() => Ok(None),
        Some(_) => one(fields, name).map(Some),
    }
}

/// A single value, in brackets or not.
fn one<T: DeserializeOwned>(fields: &Fields<'_>, name: &str) -> Result<T, Fault> {
    if fields.raw(name)?.get().starts_with('[') {
        let mut all: Vec<T> = fields.get(name)?;
        return match (all.pop(), all.is_empty()) {
            (Some(value), true) => Ok(value),
            _ => Err(wrong(name, "it must be a single value".to_owned())),
        };
    }
    fields.get(name)
}

fn wrong(field: &str, why: String) -> Fault {
    Fault::field(field, Problem::Field(why))
}
