//! Inference by the Open Inference Protocol: from tensors to rows, and from results to tensors.

use std::sync::Arc;

use crate::app::App;
use crate::batch::{Batcher, Share};
use crate::model::Outputs;
use crate::products::{self, MatrixRequest};
use crate::registry::{Models, Served, Slot};
use crate::shared::Regions;
use crate::tensor::{Answer, Elements, Output, Request, Tensor, Values};
use crate::{Limits, Refusal};

/// The outputs of a model.
pub(crate) const MODEL_OUTPUTS: [&str; 5] = ["label", "responsibilities", "log_density", "outlier", "conditional_mean"];

/// The input of a model.
pub(crate) const ROWS: &str = "rows";

/// Numbers that are looked at together.
const AT_ONCE: usize = 1024;

/// Receives the outputs of an answer.
pub(crate) trait Sink {
    /// Adds an output of this shape. `output` is its index among those of the request.
    ///
    /// # Errors
    /// 400 if the place that the request has for it is too small.
    fn put(&mut self, name: &str, shape: &[usize], values: Values<'_>, output: usize) -> Result<(), Refusal>;
}

/// An answer over HTTP.
struct Http<'a> {
    answer: Answer,
    outputs: &'a [Output],
    regions: &'a Regions,
}

impl Sink for Http<'_> {
    fn put(&mut self, name: &str, shape: &[usize], values: Values<'_>, output: usize) -> Result<(), Refusal> {
        let Output { is_binary, place, .. } = &self.outputs[output];
        let Some(place) = place else {
            self.answer.put(name, shape, values, *is_binary);
            return Ok(());
        };
        self.regions.write(place, &values.bytes())?;
        self.answer.put_placed(name, shape, values, place);
        Ok(())
    }
}

/// Answers a request: the body, and the length of its JSON if bytes follow.
///
/// # Errors
/// 400 for tensors that the model does not have; 413 for too many rows; 429 if the queue is full.
pub(crate) async fn answer(slot: &Slot, mut request: Request, app: &App) -> Result<(Vec<u8>, Option<usize>), Refusal> {
    let served = slot.served();
    let outputs = default_outputs(&served, std::mem::take(&mut request.outputs), request.is_binary);
    let version = slot.source.version.to_string();
    let capacity = 256 + outputs.len() * 128;
    let answer = Answer::new(&slot.source.name, &version, request.id.as_deref(), capacity);
    let mut sink = Http { answer, outputs: &outputs, regions: &app.regions };
    let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
    infer(&served, request, &names, &app.models, &app.limits, &mut sink).await?;
    Ok(sink.answer.finish())
}

/// The outputs that are asked for; those that the model or the matrix usually gives if none is named.
fn default_outputs(served: &Served, asked: Vec<Output>, is_binary: bool) -> Vec<Output> {
    if !asked.is_empty() {
        return asked;
    }
    let output = |name: &str| Output { name: name.to_owned(), is_binary, place: None };
    default_names(served).into_iter().map(output).collect()
}

/// The outputs of an answer to a request that names none.
pub(crate) fn default_names(served: &Served) -> Vec<&'static str> {
    match served {
        Served::Model(batcher) => {
            let outlier = batcher.model.file.outliers.map(|_| "outlier");
            ["label", "responsibilities", "log_density"].into_iter().chain(outlier).collect()
        }
        Served::Matrix(_) => products::DEFAULT_OUTPUTS.to_vec(),
    }
}

/// Evaluates a request, and gives its outputs, in the order of `outputs`, to `sink`.
///
/// # Errors
/// As for [`answer`].
pub(crate) async fn infer(
    served: &Arc<Served>,
    request: Request,
    outputs: &[&str],
    models: &Models,
    limits: &Limits,
    sink: &mut (impl Sink + ?Sized),
) -> Result<(), Refusal> {
    match &**served {
        Served::Model(batcher) => {
            let wanted = wanted(batcher, outputs)?;
            let takes_missing = takes_missing(request.missing.as_deref())? || wanted.conditional_means;
            let (values, n) = rows(batcher, request.inputs, limits)?;
            // Densities tell whether rows were finite, so that most rows are read once only, by the engine.
            let tells = wanted.log_densities && !takes_missing && batcher.model.density_tells_finite();
            let later = if tells { values.in_body() } else { None };
            let has_missing = later.is_none() && has_missing(batcher, &values, takes_missing)?;
            let share = batcher.evaluate(values, has_missing, wanted).await;
            let tell = |(results, range): &Share| are_finite(&results.log_densities[range.clone()]);
            if let Some(values) = later.filter(|_| !share.as_ref().is_ok_and(tell)) {
                self::has_missing(batcher, &values, false)?;
            }
            put(batcher, &share?, n, outputs, sink)
        }
        Served::Matrix(matrix) => {
            let asked = MatrixRequest::of(matrix, request, models, limits)?;
            tokio::task::block_in_place(|| products::put(matrix, &asked, outputs, limits, sink))
        }
    }
}

/// Whether missing values are allowed by the word `missing` of a request, error or em.
///
/// # Errors
/// 400 for any other word.
pub(crate) fn takes_missing(word: Option<&str>) -> Result<bool, Refusal> {
    match word {
        None | Some("error") => Ok(false),
        Some("em") => Ok(true),
        Some(other) => {
            let other = gmm_model::shown(other);
            Err(Refusal::bad(format!("parameter 'missing' is '{other}': it must be error or em")))
        }
    }
}

/// Which results the outputs need.
fn wanted(batcher: &Batcher, outputs: &[&str]) -> Result<Outputs, Refusal> {
    let mut wanted = Outputs::default();
    for name in outputs {
        match *name {
            "label" => wanted.labels = true,
            "responsibilities" => wanted.responsibilities = true,
            "log_density" => wanted.log_densities = true,
            "outlier" if batcher.model.file.outliers.is_some() => wanted.log_densities = true,
            "outlier" => {
                let message = "the model has no threshold for 'outlier': add one with gmm outliers --save";
                return Err(Refusal::bad(message));
            }
            "conditional_mean" => wanted.conditional_means = true,
            other => return Err(no_output(other, &MODEL_OUTPUTS)),
        }
    }
    Ok(wanted)
}

pub(crate) fn no_output(name: &str, all: &[&str]) -> Refusal {
    Refusal::bad(format!("no output '{}': there are {}", gmm_model::shown(name), all.join(", ")))
}

pub(crate) fn one_input(name: &str, found: usize) -> Refusal {
    Refusal::bad(format!("{found} inputs: give one, '{name}'"))
}

pub(crate) fn wrong_shape(name: &str, shape: &[usize], d: usize) -> Refusal {
    let name = gmm_model::shown(name);
    Refusal::bad(format!("input '{name}' has shape {shape:?}: it must be [n, {d}], of n rows of {d} columns"))
}

/// `n` of the shape `[n, d]`, or 1 of `[d]`; n is at least 1.
pub(crate) fn two_sides(shape: &[usize], d: usize) -> Option<usize> {
    match *shape {
        [n, columns] if columns == d && n > 0 => Some(n),
        [columns] if columns == d => Some(1),
        _ => None,
    }
}

/// The rows of the input `rows`, or of one input for each column by name, where columns that are not given are missing.
fn rows(batcher: &Batcher, mut inputs: Vec<Tensor>, limits: &Limits) -> Result<(Elements, usize), Refusal> {
    let d = batcher.model.n_features();
    let names = batcher.model.file.feature_names.as_deref().unwrap_or_default();
    match inputs.as_mut_slice() {
        [only] if only.name == ROWS => {
            let n = two_sides(&only.shape, d).ok_or_else(|| wrong_shape(&only.name, &only.shape, d))?;
            limits.check_rows(n)?;
            Ok((std::mem::take(&mut only.values), n))
        }
        [] => Err(one_input(ROWS, 0)),
        all => {
            let (values, n) = by_name(all, names, limits)?;
            Ok((values.into(), n))
        }
    }
}

/// Whether all numbers are finite, without a branch for each.
fn are_finite(some: &[f64]) -> bool {
    some.iter().fold(true, |all, v| all & v.is_finite())
}

/// Whether values of the rows, `(n, d)`, are missing.
///
/// # Errors
/// 400 with the first value that is infinite, or missing without being allowed to.
fn has_missing(batcher: &Batcher, values: &[f64], takes_missing: bool) -> Result<bool, Refusal> {
    let d = batcher.model.n_features();
    let names = batcher.model.file.feature_names.as_deref().unwrap_or_default();
    let mut has_missing = false;
    // Most bodies have finite numbers only.
    let first = values.chunks(AT_ONCE).take_while(|some| are_finite(some)).count() * AT_ONCE;
    for (i, value) in values.iter().enumerate().skip(first) {
        if !value.is_finite() {
            if !value.is_nan() || !takes_missing {
                let advice =
                    "ask for conditional_mean, or set the parameter \"missing\": \"em\", if values may be missing";
                return Err(not_finite(*value, (i / d, i % d), names, advice));
            }
            has_missing = true;
        }
    }
    Ok(has_missing)
}

/// An error that names the row and the column; `advice` is for a value that is missing.
pub(crate) fn not_finite(value: f64, (row, column): (usize, usize), names: &[String], advice: &str) -> Refusal {
    let named = names.get(column).map_or_else(String::new, |name| format!(" ('{}')", gmm_model::shown(name)));
    let what = match value.is_nan() {
        true => format!("missing or NaN: {advice}"),
        false => format!("{value}: it must be finite"),
    };
    Refusal::bad(format!("row {row}, column {column}{named} is {what}"))
}

/// Rows of inputs that are columns of one shape, `[n]` or `[n, 1]`; NaN in columns that are not given.
fn by_name(inputs: &[Tensor], names: &[String], limits: &Limits) -> Result<(Vec<f64>, usize), Refusal> {
    let n = inputs[0].values.len();
    // First: a few columns of many rows become far more memory than the request had.
    limits.check_rows(n)?;
    let mut rows = vec![f64::NAN; n.saturating_mul(names.len())];
    let mut seen = vec![false; names.len()];
    for Tensor { name, shape, values } in inputs {
        let shown = gmm_model::shown(name);
        let Some(column) = names.iter().position(|own| own == name) else {
            let all = match names {
                [] => format!("there is '{ROWS}', and the model has no names of columns"),
                names => format!("there is '{ROWS}', or one input for each column: {}", names.join(", ")),
            };
            return Err(Refusal::bad(format!("no input '{shown}': {all}")));
        };
        if std::mem::replace(&mut seen[column], true) {
            return Err(Refusal::bad(format!("input '{shown}' is given twice")));
        }
        if !matches!(shape.as_slice(), [_] | [_, 1]) || values.len() != n || n == 0 {
            let message = format!("input '{shown}' has shape {shape:?}: columns must have one shape, [n] or [n, 1]");
            return Err(Refusal::bad(message));
        }
        values.iter().enumerate().for_each(|(row, value)| rows[row * names.len() + column] = *value);
    }
    Ok((rows, n))
}

/// Gives the results of `n` rows to the sink.
///
/// # Errors
/// Those of the sink.
fn put(
    batcher: &Batcher,
    (results, range): &Share,
    n: usize,
    outputs: &[&str],
    sink: &mut (impl Sink + ?Sized),
) -> Result<(), Refusal> {
    let (d, width) = (batcher.model.n_features(), batcher.model.width());
    for (i, name) in outputs.iter().enumerate() {
        match *name {
            "label" => sink.put(name, &[n], Values::I32(&results.labels[range.clone()]), i)?,
            "log_density" => sink.put(name, &[n], Values::F64(&results.log_densities[range.clone()]), i)?,
            "responsibilities" => {
                let own = &results.responsibilities[range.start * width..range.end * width];
                sink.put(name, &[n, width], Values::F64(own), i)?;
            }
            "conditional_mean" => {
                let own = &results.conditional_means[range.start * d..range.end * d];
                sink.put(name, &[n, d], Values::F64(own), i)?;
            }
            _ => {
                let threshold = batcher.model.file.outliers.as_ref();
                let is_outlier = |v: &f64| threshold.is_some_and(|threshold| threshold.is_outlier(*v));
                let own: Vec<bool> = results.log_densities[range.clone()].iter().map(is_outlier).collect();
                sink.put(name, &[n], Values::Bool(&own), i)?;
            }
        }
    }
    Ok(())
}
