//! The JSON form of a model: human-readable, one row of numbers per line.

use std::fmt::Write;

use gmm_model::{CovarianceType, Covariances};
use ndarray::{ArrayView1, ArrayView2};
use serde_json::Value;

use super::exchange::mclust;
use super::factors::FactorsField;
use super::parts::{Fields, Numbers, assemble};
use super::posterior::PosteriorField;
use super::{MODEL_FORMAT, MODEL_VERSION, ModelFile};
use crate::Problem;
use crate::error::Fault;

pub(super) fn parse(bytes: &[u8]) -> Result<ModelFile, Fault> {
    let text =
        std::str::from_utf8(bytes).map_err(|e| Fault::corrupt(e.valid_up_to() as u64, "the text is not UTF-8"))?;
    let fields = Fields::split(text)?;
    if mclust::is_list(&fields) {
        return mclust::parse(&fields);
    }
    let fields = fields.of_format((MODEL_FORMAT, MODEL_VERSION))?;
    let covariances = match fields.kind()? {
        CovarianceType::Full => cube(&fields, "covariances")?,
        CovarianceType::Tied | CovarianceType::Diag => grid(&fields, "covariances")?,
        CovarianceType::Spherical => row(&fields, "covariances")?,
    };
    assemble(&fields, row(&fields, "weights")?, grid(&fields, "means")?, covariances)
}

fn row(fields: &Fields<'_>, name: &str) -> Result<Numbers, Fault> {
    let values: Vec<f64> = fields.get(name)?;
    Ok(Numbers { shape: vec![values.len()], values })
}

fn grid(fields: &Fields<'_>, name: &str) -> Result<Numbers, Fault> {
    let rows: Vec<Vec<f64>> = fields.get(name)?;
    let d = rows.first().map_or(0, Vec::len);
    if let Some((i, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != d) {
        let why = format!("row {i} has {} numbers, but the rows before have {d}", row.len());
        return Err(Fault::field(name, Problem::Field(why)));
    }
    Ok(Numbers { shape: vec![rows.len(), d], values: rows.concat() })
}

fn cube(fields: &Fields<'_>, name: &str) -> Result<Numbers, Fault> {
    let all: Vec<Vec<Vec<f64>>> = fields.get(name)?;
    let (d, e) = all.first().map_or((0, 0), |m| (m.len(), m.first().map_or(0, Vec::len)));
    if let Some(c) = all.iter().position(|m| m.len() != d || m.iter().any(|row| row.len() != e)) {
        let why = format!("component {c} is not a matrix of shape [{d}, {e}]");
        return Err(Fault::field(name, Problem::Field(why)));
    }
    Ok(Numbers { shape: vec![all.len(), d, e], values: all.concat().concat() })
}

/// The fields other than the arrays, in the order in which they are written.
pub(super) fn head(model: &ModelFile) -> Vec<(&'static str, Value)> {
    let mut head = vec![
        ("format", MODEL_FORMAT.into()),
        ("version", MODEL_VERSION.into()),
        ("covariance_type", model.mixture.covariance_type().name().into()),
        ("n_components", model.mixture.n_components().into()),
        ("n_features", model.mixture.n_features().into()),
        ("feature_names", model.feature_names.clone().into()),
    ];
    if let Some(storage) = &model.storage {
        head.push(("storage", serde_json::to_value(storage).expect("a plain structure")));
    }
    if !model.trace.is_empty() {
        head.push(("trace", model.trace.clone().into()));
    }
    if let Some(outliers) = &model.outliers {
        head.push(("outliers", serde_json::to_value(outliers).expect("a plain structure")));
    }
    if let Some(clusters) = &model.clusters {
        head.push(("clusters", clusters.clone().into()));
    }
    if let Some(posterior) = &model.posterior {
        head.push(("posterior", serde_json::to_value(PosteriorField::of(posterior)).expect("a plain structure")));
    }
    if let Some(noise) = &model.noise {
        head.push(("noise", serde_json::to_value(noise).expect("a plain structure")));
    }
    if let Some(factors) = model.mixture.loadings() {
        head.push(("factors", serde_json::to_value(FactorsField::of(factors)).expect("a plain structure")));
    }
    head
}

/// The summary of the fit, or null. JSON has no NaN or infinity: these are written as null too.
pub(super) fn fit(model: &ModelFile) -> Value {
    serde_json::to_value(&model.fit).expect("a plain structure")
}

pub(super) fn to_string(model: &ModelFile) -> String {
    let mut out = String::from("{\n");
    for (key, value) in head(model) {
        let _ = writeln!(out, "  \"{key}\": {value},");
    }
    let mixture = &model.mixture;
    let _ = writeln!(out, "  \"weights\": {},", numbers(mixture.weights()));
    let _ = writeln!(out, "  \"means\": {},", rows(mixture.means(), 2));
    let covariances = match mixture.covariances() {
        Covariances::Full(a) => {
            let each: Vec<_> = a.outer_iter().map(|m| format!("    {}", rows(m, 4))).collect();
            format!("[\n{}\n  ]", each.join(",\n"))
        }
        Covariances::Tied(a) | Covariances::Diag(a) => rows(a.view(), 2),
        Covariances::Spherical(a) => numbers(a.view()),
    };
    let _ = writeln!(out, "  \"covariances\": {covariances},");
    let fit = match fit(model) {
        Value::Object(fields) => {
            let each: Vec<_> = fields.iter().map(|(key, value)| format!("    \"{key}\": {value}")).collect();
            format!("{{\n{}\n  }}", each.join(",\n"))
        }
        other => other.to_string(),
    };
    let _ = writeln!(out, "  \"fit\": {fit}\n}}");
    out
}

fn rows(a: ArrayView2<'_, f64>, indent: usize) -> String {
    let each: Vec<_> = a.outer_iter().map(|row| format!("{:indent$}  {}", "", numbers(row))).collect();
    format!("[\n{}\n{:indent$}]", each.join(",\n"), "")
}

/// Formats a row of numbers on one line, each in the shortest form that reads back as the same bits.
fn numbers(row: ArrayView1<'_, f64>) -> String {
    let each: Vec<_> = row.iter().map(|v| Value::from(*v).to_string()).collect();
    format!("[{}]", each.join(", "))
}
