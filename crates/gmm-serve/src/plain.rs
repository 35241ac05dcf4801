//! Plain JSON for people: `/score` for rows and a model, `/search` for rows and a matrix.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::batch::Batcher;
use crate::infer::{not_finite, takes_missing};
use crate::model::Outputs;
use crate::products::COUNT;
use crate::registry::{Models, Served};
use crate::tensor::{Numbers, number};
use crate::{Limits, Refusal};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoreRequest {
    model: Option<String>,
    version: Option<u64>,
    row: Option<Row>,
    rows: Option<Vec<Row>>,
    missing: Option<String>,
    #[serde(default)]
    conditionals: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchRequest {
    matrix: Option<String>,
    version: Option<u64>,
    row: Option<Numbers>,
    rows: Option<Vec<Numbers>>,
    count: Option<usize>,
}

/// A row: its values in order, or by name of column.
#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Values(Numbers),
    Named(Fields),
}

/// The fields of an object in their order, also if a name is given twice.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = map.next_entry()? {
                    all.push(field);
                }
                Ok(Fields(all))
            }
        }

        from.deserialize_map(All)
    }
}

fn read<'de, T: Deserialize<'de>>(body: &'de Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|e| Refusal::bad(format!("the request is not valid: {e}")))
}

/// One row or several, of which one key must be given.
fn one_or_more<T>(row: Option<T>, rows: Option<Vec<T>>) -> Result<Vec<T>, Refusal> {
    match (row, rows) {
        (Some(row), None) => Ok(vec![row]),
        (None, Some(rows)) if !rows.is_empty() => Ok(rows),
        _ => Err(Refusal::bad("give \"row\", or \"rows\" with at least one")),
    }
}

/// Answers `/score`: for each row the label, the log density, the responsibilities, whether it is an outlier if the model
/// has a threshold, and if values are missing the row with their conditional means. On request also the density of each
/// column given the others, of one row.
///
/// # Errors
/// 400 for a row that does not fit, or a missing value that the request does not allow; 404; 413; 429.
pub(crate) async fn score(models: &Models, body: &Bytes, limits: &Limits) -> Result<Vec<u8>, Refusal> {
    let request: ScoreRequest = read(body)?;
    let name = request.model.as_deref().map_or_else(|| models.only(false), Ok)?;
    let slot = models.find(name, request.version.map(|v| v.to_string()).as_deref())?;
    let served = slot.served();
    let Served::Model(batcher) = &*served else {
        return Err(Refusal::bad(format!("'{name}' is a matrix: see /search")));
    };
    let wants_conditionals = request.conditionals;
    if wants_conditionals && request.rows.is_some() {
        return Err(Refusal::bad("\"conditionals\" are of one \"row\""));
    }
    let takes_missing = takes_missing(request.missing.as_deref())?;
    let rows = one_or_more(request.row, request.rows)?;
    limits.check_rows(rows.len())?;
    let (mut values, mut has_missing) = (Vec::with_capacity(rows.len() * batcher.model.n_features()), false);
    for (i, row) in rows.into_iter().enumerate() {
        has_missing |= add_row(batcher, (i, row), takes_missing, &mut values)?;
    }
    let outputs = Outputs { labels: true, responsibilities: true, log_densities: true, conditional_means: has_missing };
    let given = if has_missing { values.clone() } else { Vec::new() };
    let conditionals = if wants_conditionals { conditionals(&served, &values).await? } else { Vec::new() };
    let (results, range) = batcher.evaluate(values.into(), has_missing, outputs).await?;
    let (d, width) = (batcher.model.n_features(), batcher.model.width());
    let mut out = Vec::with_capacity(64 + range.len() * (64 + 20 * width));
    out.extend_from_slice(b"{\"model\":");
    crate::tensor::text(&mut out, name);
    out.extend_from_slice(format!(",\"version\":\"{}\",\"rows\":", slot.source.version).as_bytes());
    let indices: Vec<usize> = range.clone().collect();
    crate::tensor::array(&mut out, &indices, |out, &row| {
        out.extend_from_slice(format!("{{\"label\":{},\"log_density\":", results.labels[row]).as_bytes());
        number(out, results.log_densities[row]);
        out.extend_from_slice(b",\"responsibilities\":");
        let own = &results.responsibilities[row * width..][..width];
        crate::tensor::array(out, own, |out, v| number(out, *v));
        if let Some(threshold) = &batcher.model.file.outliers {
            let is_outlier = threshold.is_outlier(results.log_densities[row]);
            out.extend_from_slice(format!(",\"outlier\":{is_outlier}").as_bytes());
        }
        let of_request = (row - range.start) * d;
        if given.get(of_request..of_request + d).is_some_and(|row| row.iter().any(|v| v.is_nan())) {
            out.extend_from_slice(b",\"conditional_mean\":");
            let own = &results.conditional_means[row * d..][..d];
            crate::tensor::array(out, own, |out, v| number(out, *v));
        }
        if wants_conditionals {
            out.extend_from_slice(b",\"conditionals\":");
            out.extend_from_slice(&conditionals);
        }
        out.push(b'}');
    });
    out.push(b'}');
    Ok(out)
}

/// Sets a flag when it is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The JSON of the conditional densities of a row, computed on a thread that stops soon after nobody waits any more: the
/// limit of time drops this future.
async fn conditionals(served: &Arc<Served>, row: &[f64]) -> Result<Vec<u8>, Refusal> {
    let stop = Stop(Arc::default());
    let (served, row, flag) = (served.clone(), row.to_vec(), stop.0.clone());
    let found = tokio::task::spawn_blocking(move || {
        let (Served::Model(batcher), mut out) = (&*served, Vec::new()) else {
            return Err(Refusal::fault("a matrix has no conditional densities"));
        };
        crate::conditional::write(&mut out, &batcher.model.file, &row, &flag).map(|()| out)
    });
    found.await.map_err(|_| Refusal::fault("the conditional densities failed: see the server's log"))?
}

/// Appends the values of row `i`; whether some are missing.
fn add_row(
    batcher: &Batcher,
    (i, row): (usize, Row),
    takes_missing: bool,
    values: &mut Vec<f64>,
) -> Result<bool, Refusal> {
    let d = batcher.model.n_features();
    let names = batcher.model.file.feature_names.as_deref().unwrap_or_default();
    let first = values.len();
    match row {
        Row::Values(Numbers(row)) if row.len() == d => values.extend(row),
        Row::Values(Numbers(row)) => {
            return Err(Refusal::bad(format!("row {i} has {} values, and the model {d} columns", row.len())));
        }
        Row::Named(Fields(row)) => {
            values.resize(first + d, f64::NAN);
            let mut given = vec![false; d];
            for (name, value) in row {
                let shown = gmm_model::shown(&name);
                let column = names.iter().position(|own| *own == name);
                let column = column.ok_or_else(|| match names {
                    [] => Refusal::bad(format!("row {i}: the model has no names of columns: give an array")),
                    all => Refusal::bad(format!("row {i}: no column '{shown}': there are {}", all.join(", "))),
                })?;
                if std::mem::replace(&mut given[column], true) {
                    return Err(Refusal::bad(format!("row {i}: column '{shown}' is given twice")));
                }
                values[first + column] = match value {
                    Value::Null => f64::NAN,
                    Value::Number(value) => value.as_f64().unwrap_or(f64::INFINITY),
                    _ => return Err(Refusal::bad(format!("row {i}, column '{shown}' is not a number"))),
                };
            }
        }
    }
    let row = &values[first..];
    match row.iter().position(|v| v.is_infinite() || v.is_nan() && !takes_missing) {
        Some(column) => {
            let advice = "give it, or set \"missing\": \"em\" if values may be missing";
            Err(not_finite(row[column], (i, column), names, advice))
        }
        None => Ok(row.iter().any(|v| v.is_nan())),
    }
}

/// Answers `/search`: for each row the rows of the matrix of largest inner product.
///
/// # Errors
/// 400 for a row that does not fit; 404; 413.
pub(crate) fn search(models: &Models, body: &Bytes, limits: &Limits) -> Result<Vec<u8>, Refusal> {
    let request: SearchRequest = read(body)?;
    let name = request.matrix.as_deref().map_or_else(|| models.only(true), Ok)?;
    let slot = models.find(name, request.version.map(|v| v.to_string()).as_deref())?;
    let served = slot.served();
    let Served::Matrix(matrix) = &*served else {
        return Err(Refusal::bad(format!("'{name}' is a model: see /score")));
    };
    let rows = one_or_more(request.row, request.rows)?;
    limits.check_rows(rows.len())?;
    let ((m, k), q) = (matrix.dim(), rows.len());
    if let Some(i) = rows.iter().position(|row| row.0.len() != k) {
        return Err(Refusal::bad(format!("row {i} has {} values, and the matrix {k} columns", rows[i].0.len())));
    }
    let count = request.count.unwrap_or(COUNT.min(m));
    limits.check_answer(q.saturating_mul(count))?;
    let questions = rows.into_iter().flat_map(|row| row.0).collect::<Vec<_>>().into();
    let best = tokio::task::block_in_place(|| matrix.best(&questions, q, count))?;
    let found = |i: usize| -> Vec<Value> {
        let own = i * count..(i + 1) * count;
        let pairs = best.indices[own.clone()].iter().zip(&best.values[own]);
        pairs.map(|(row, value)| json!({"row": row, "value": value})).collect()
    };
    let rows: Vec<Value> = (0..q).map(|i| found(i).into()).collect();
    let answer = json!({"matrix": name, "version": slot.source.version.to_string(), "rows": rows});
    Ok(answer.to_string().into_bytes())
}
