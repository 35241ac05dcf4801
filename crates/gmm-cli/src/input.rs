//! Reads rows and models, and checks that their columns match.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use gmm_data::{ModelFile, ReadOptions, Table};
use gmm_host::evaluate::check_names;
use gmm_host::{Opened, Work};
use gmm_model::{DataError, Dataset, shown};

use crate::args::{EngineArgs, InputArgs};
use crate::exit::Failure;
use crate::opening::Opening;
use crate::output::{Console, is_stdio};

/// Reads the rows. If `weights` names a column, it becomes the row weights and is removed from the data.
///
/// # Errors
/// Errors if the file, its columns or its values are invalid; includes the position and the column name if known.
pub(crate) fn rows(args: &InputArgs, weights: Option<&str>, console: &Console) -> anyhow::Result<Dataset> {
    rows_with(args, weights, None, console)
}

/// As [`rows`]. If no columns are selected and the table has all columns of `known` and others, only those of `known`
/// are used.
fn rows_with(
    args: &InputArgs,
    weights: Option<&str>,
    known: Option<&[String]>,
    console: &Console,
) -> anyhow::Result<Dataset> {
    let started = Instant::now();
    let options = ReadOptions { last: weights.map(str::to_owned), ..args.options() };
    let mut table = match known.filter(|_| options.columns.is_none()) {
        None => gmm_data::read_table(&args.input, &options)?,
        Some(known) => read_known(&args.input, known, &options)?,
    };
    warn(&table, console);
    let name = display(&args.input);
    let row_weights = match weights {
        Some(_) => Some(table.take_last().map_err(|e| Failure::BadData(format!("{name}: {e}")))?),
        None => None,
    };
    let names = table.names.clone();
    let data = table.into_dataset().map_err(|e| placed(e, &name, names.as_deref()))?;
    let data = match row_weights {
        Some(values) => data
            .with_weights(values)
            .with_context(|| format!("{name}, column '{}'", shown(weights.unwrap_or_default())))?,
        None => data,
    };
    console.note(|| {
        let (n, d) = (data.n_rows(), data.n_features());
        format!("read {n} rows × {d} columns ({}) from {name} in {:.1?}", data.rows().precision(), started.elapsed())
    });
    Ok(data)
}

/// Prints the warnings of a table's reader.
pub(crate) fn warn(table: &Table, console: &Console) {
    table.warnings.iter().for_each(|warning| console.warn(&warning.to_string()));
}

/// Reads a table. If it has more columns than `known`, selects those of `known` and `options.last`.
fn read_known(path: &Path, known: &[String], options: &ReadOptions) -> anyhow::Result<Table> {
    match gmm_data::read_table(path, options) {
        Ok(table) => {
            let Some(names) = table.names.as_deref() else { return Ok(table) };
            let last = options.last.as_ref().and_then(|_| names.last());
            let once = |name: &String| names.iter().filter(|found| *found == name).count() == 1;
            let chosen: Vec<String> = known.iter().filter(|name| Some(*name) != last).chain(last).cloned().collect();
            let is_wider = names.len() > chosen.len() && chosen.iter().all(once);
            Ok(if is_wider { table.select(&chosen)? } else { table })
        }
        // Another column than the known ones may hold text: read again without it. A pipe cannot be read twice.
        Err(error) if path.is_file() => {
            let only = ReadOptions { columns: Some(known.to_vec()), ..options.clone() };
            gmm_data::read_table(path, &only).map_err(|_| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Adds the file and the column's name to an error about a value.
fn placed(error: DataError, file: &str, names: Option<&[String]>) -> anyhow::Error {
    let place = match (&error, names) {
        (DataError::NotFinite { column, .. }, Some(names)) => format!("{file}, column '{}'", shown(&names[*column])),
        _ => file.to_owned(),
    };
    anyhow::Error::new(error).context(place)
}

/// Reads a model; `-` is standard input.
///
/// # Errors
/// Errors if the file cannot be read or a field is invalid, with the name of the field.
pub(crate) fn model(path: &Path) -> anyhow::Result<ModelFile> {
    if !is_stdio(path) {
        return Ok(gmm_data::read_model(path)?);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("<stdin>")?;
    Ok(gmm_data::read_model_bytes(&bytes, "<stdin>")?)
}

/// Reads a model and the rows to evaluate it on. If the table has more columns than the model, those with the model's
/// names are used.
///
/// # Errors
/// As [`model`] and [`rows`]; and if the number or names of the columns differ.
pub(crate) fn model_and_rows(
    path: &Path,
    args: &InputArgs,
    weights: Option<&str>,
    console: &Console,
) -> anyhow::Result<(ModelFile, Dataset)> {
    let model = model_beside(path, args)?;
    let data = rows_of(&model, args, weights, console)?;
    Ok((model, data))
}

/// As [`model`], where the rows come from another input.
fn model_beside(path: &Path, args: &InputArgs) -> anyhow::Result<ModelFile> {
    if is_stdio(path) && is_stdio(&args.input) {
        return Err(Failure::Usage("model and rows cannot both come from standard input".to_owned()).into());
    }
    model(path)
}

/// The rows to evaluate a model on.
fn rows_of(model: &ModelFile, args: &InputArgs, weights: Option<&str>, console: &Console) -> anyhow::Result<Dataset> {
    let data = rows_with(args, weights, model.feature_names.as_deref(), console)?;
    check_columns(model, &data).with_context(|| display(&args.input))?;
    Ok(data)
}

/// As [`model_and_rows`], with the engine for one pass over the rows.
///
/// # Errors
/// As [`model_and_rows`], and if the device is not available.
pub(crate) fn model_rows_and_engine(
    (path, args): (&Path, &InputArgs),
    weights: Option<&str>,
    engine: &EngineArgs,
    console: &Console,
) -> anyhow::Result<(ModelFile, Dataset, Opened)> {
    let model = model_beside(path, args)?;
    let (kind, k) = (model.mixture.covariance_type(), model.mixture.n_components());
    let work = move |shape, precision| Work::passes(shape, precision, kind, k, 1.0);
    let opening = Opening::begin(engine, &args.input, &work);
    let data = rows_of(&model, args, weights, console)?;
    let opened = opening.finish(&work(data.rows().dim(), data.rows().precision()), console)?;
    Ok((model, data, opened))
}

/// Checks that rows and model have the same columns.
///
/// # Errors
/// Errors with both numbers of columns, or with the first name that differs.
pub(crate) fn check_columns(model: &ModelFile, data: &Dataset) -> Result<(), gmm_host::Error> {
    let (found, expected) = (data.n_features(), model.mixture.n_features());
    if found != expected {
        return Err(gmm_host::Error::Features { found, expected });
    }
    check_names(data.names(), model.feature_names.as_deref())
}

/// A path as printed in messages.
pub(crate) fn display(path: &Path) -> String {
    if is_stdio(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}
