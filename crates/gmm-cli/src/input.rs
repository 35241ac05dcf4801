//! Reading rows and models, and checking that they belong together.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use gmm_data::{ModelFile, ReadOptions, Table};
use gmm_host::evaluate::check_names;
use gmm_host::{Device, Opened};
use gmm_model::{DataError, Dataset, shown};

use crate::args::{EngineArgs, InputArgs};
use crate::exit::Failure;
use crate::output::{Console, is_stdio};

/// Reads the rows, with the column of row weights taken out where one is named.
///
/// # Errors
/// What is wrong with the file, its columns or its values; where it is known, with place and column name.
pub(crate) fn rows(args: &InputArgs, weights: Option<&str>, console: &Console) -> anyhow::Result<Dataset> {
    rows_with(args, weights, None, console)
}

/// [`rows`]; of a table that has all columns of `known` and others beside them, those of `known`, unless columns are chosen.
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

/// Shows what looked odd to the reader of a table.
pub(crate) fn warn(table: &Table, console: &Console) {
    table.warnings.iter().for_each(|warning| console.warn(&warning.to_string()));
}

/// A table, or of a wider one the columns of `known` and the one that is to be last.
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
        // A column beside the known ones may hold text. A pipe cannot be read twice.
        Err(error) if path.is_file() => {
            let only = ReadOptions { columns: Some(known.to_vec()), ..options.clone() };
            gmm_data::read_table(path, &only).map_err(|_| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Adds the file and the column's name to what is wrong with a value.
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
/// What is wrong with the file, and in which field.
pub(crate) fn model(path: &Path) -> anyhow::Result<ModelFile> {
    if !is_stdio(path) {
        return Ok(gmm_data::read_model(path)?);
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("<stdin>")?;
    Ok(gmm_data::read_model_bytes(&bytes, "<stdin>")?)
}

/// Reads a model and rows that it can be evaluated on: of a table with more columns than the model's those with its names.
///
/// # Errors
/// As [`model`] and [`rows`]; and where number or names of the columns differ.
pub(crate) fn model_and_rows(
    path: &Path,
    args: &InputArgs,
    weights: Option<&str>,
    console: &Console,
) -> anyhow::Result<(ModelFile, Dataset)> {
    if is_stdio(path) && is_stdio(&args.input) {
        return Err(Failure::Usage("model and rows cannot both come from standard input".to_owned()).into());
    }
    let model = model(path)?;
    let data = rows_with(args, weights, model.feature_names.as_deref(), console)?;
    check_columns(&model, &data).with_context(|| display(&args.input))?;
    Ok((model, data))
}

/// Whether rows and model have the same columns.
///
/// # Errors
/// Both numbers, or the first name that differs.
pub(crate) fn check_columns(model: &ModelFile, data: &Dataset) -> Result<(), gmm_host::Error> {
    let (found, expected) = (data.n_features(), model.mixture.n_features());
    if found != expected {
        return Err(gmm_host::Error::Features { found, expected });
    }
    check_names(data.names(), model.feature_names.as_deref())
}

/// Opens the engine that the options name.
///
/// # Errors
/// Where the device is not to be had.
pub(crate) fn engine(args: &EngineArgs, console: &Console) -> anyhow::Result<Opened> {
    Ok(told(args, args.device.open(args.threads)?, console))
}

/// Says with `-v` which engine it is.
fn told(args: &EngineArgs, opened: Opened, console: &Console) -> Opened {
    console.note(|| match args.device {
        Device::Auto => format!("engine {}; auto: {}", line(&opened), opened.reason),
        _ => format!("engine {}", line(&opened)),
    });
    opened
}

/// An engine in one line.
fn line(opened: &Opened) -> String {
    format!("{} ({})", opened.engine.name(), opened.engine.description())
}

/// An engine and its precision in one line, as a fit's record has it. Why there is no GPU is a long story on a machine that
/// never had one: `-v` and `gmm doctor` tell it.
pub(crate) fn describe(opened: &Opened, device: Device, precision: &str) -> String {
    let text = format!("{}, {precision}", line(opened));
    match device {
        Device::Auto if opened.engine.name() == "cpu" => format!("{text}; auto: no GPU can be used, see gmm doctor"),
        Device::Auto => format!("{text}; auto: {}", opened.reason),
        _ => text,
    }
}

/// A path in a message.
pub(crate) fn display(path: &Path) -> String {
    if is_stdio(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}
