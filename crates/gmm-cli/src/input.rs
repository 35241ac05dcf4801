//! Reads rows and models, and checks that their columns match.

mod storage;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use gmm_data::{FileError, FilePart, JoinedTable, ModelFile, Problem, ReadOptions, Storage, Table};
use gmm_host::evaluate::check_names;
use gmm_host::{Engine, Opened, Work, noise};
use gmm_model::{DataError, Dataset, Precision, shown};

use crate::args::EngineArgs;
use crate::exit::Failure;
use crate::measured::MeasuredArgs;
use crate::missing::{self, Missing};
use crate::opening::{self, Opening};
use crate::output::{Console, is_stdio};
use crate::table_args::Source;
use storage::{bytes_of, gather, holes, plan};

/// Reads the rows. If `weights` names a column, it becomes the row weights and is removed from the data.
///
/// # Errors
/// Errors if the file, its columns or its values are invalid; includes the position and the column name if known.
pub(crate) fn rows(source: Source<'_>, weights: Option<&str>, console: &Console) -> anyhow::Result<Dataset> {
    Ok(rows_with(source, (weights, None), None, console)?.0)
}

/// The known component of each row, or `None`.
pub(crate) type Labels = Vec<Option<usize>>;

/// Rows, and the values of a column that was removed from them.
pub(crate) type RowsBy = (Dataset, Option<Vec<f64>>);

/// As [`rows`]. If `labels` names a column, it becomes the known component of each row and is removed from the data; a
/// negative number means that the component is not known.
///
/// # Errors
/// As [`rows`]; [`Failure::BadData`] if a label is not a whole number.
pub(crate) fn labelled_rows(
    source: Source<'_>,
    weights: Option<&str>,
    labels: Option<&str>,
    console: &Console,
) -> anyhow::Result<(Dataset, Option<Labels>)> {
    let (data, values) = rows_with(source, (weights, labels), None, console)?;
    let Some(values) = values else { return Ok((data, None)) };
    let label = |(row, &value): (usize, &f64)| match value {
        v if v.fract() != 0.0 || !v.is_finite() => {
            let column = shown(labels.unwrap_or_default()).into_owned();
            let why = "it must be a component, a whole number from 0, or -1 if it is not known";
            let place = source.display();
            Err(Failure::BadData(format!("{place}, column '{column}': the label of row {row} is {value}: {why}")))
        }
        v if v < 0.0 => Ok(None),
        v => Ok(Some(v as usize)),
    };
    Ok((data, Some(values.iter().enumerate().map(label).collect::<Result<_, _>>()?)))
}

/// As [`rows`], with the values of the column `labels`. If no columns are selected and the table has all columns of `known` and
/// others, only those of `known` are used.
pub(crate) fn rows_with(
    source: Source<'_>,
    (weights, labels): (Option<&str>, Option<&str>),
    known: Option<&[String]>,
    console: &Console,
) -> anyhow::Result<RowsBy> {
    let started = Instant::now();
    let (files, options) = (source.files()?, source.options());
    // Before the rows take any of it.
    let limit = gmm_data::memory_limit(source.memory());
    let mut options = ReadOptions { last: weights.or(labels).map(str::to_owned), ..options };
    // Of two columns beside the rows, one is read as the last, and the other is taken out afterwards.
    let second = weights.and(labels);
    let errors = source.measured.map_or_else(Vec::new, MeasuredArgs::columns);
    let taken = || second.map(str::to_owned).into_iter().chain(errors.iter().cloned());
    if let Some(columns) = &mut options.columns {
        source.measured.map_or(Ok(()), |measured| measured.check_selected(columns))?;
        // A selection by exclusions only keeps all other columns.
        if columns.iter().any(|word| !word.trim_start().starts_with('!')) {
            columns.extend(taken());
        }
    }
    let is_view = source.measured.is_some_and(MeasuredArgs::are_views);
    let joined = match known.filter(|_| options.columns.is_none() && !is_view) {
        None => gmm_data::read_tables(&files, &options).map_err(|error| source.missing.explain(error))?,
        Some(known) => {
            let all: Vec<String> = known.iter().cloned().chain(taken()).collect();
            read_known(&files, &all, &options).map_err(|error| match error.downcast::<FileError>() {
                Ok(error) => source.missing.explain(error).into(),
                Err(other) => other,
            })?
        }
    };
    let mut later_parts = joined.later_parts();
    let JoinedTable { mut table, parts } = joined;
    warn(&table, console);
    let name = source.display();
    let mut row_weights = None;
    if weights.is_some() {
        let (rest, column) = table.split_last(source.memory()).map_err(|problem| in_table(&name, problem))?;
        (table, row_weights) = (rest, Some(column));
    }
    let mut row_labels = None;
    if let Some(second) = second {
        row_labels = Some(table.take_column(second).map_err(|error| in_table(&name, Problem::Column(error)))?);
    } else if labels.is_some() {
        let (rest, column) = table.split_last(source.memory()).map_err(|problem| in_table(&name, problem))?;
        (table, row_labels) = (rest, Some(column));
    }
    let has_intervals = source.measured.is_some_and(MeasuredArgs::have_intervals);
    if source.missing == Missing::Drop {
        if has_intervals {
            let why = "--missing drop would leave out rows with an open end of --interval: use --missing em";
            return Err(Failure::Usage(why.to_owned()).into());
        }
        let n = table.n_rows();
        let dropped = missing::drop_rows(&mut table, &mut later_parts, [&mut row_weights, &mut row_labels])?;
        if dropped > 0 {
            console.tell(&format!("{dropped} of {n} rows have missing values, and were left out"));
        }
    }
    let taken = match source.measured {
        Some(measured) => measured.split(&mut table, &name)?,
        None => None,
    };
    let (names, storage) = (table.names.clone(), table.storage);
    let data = match source.missing {
        Missing::Em => table.into_dataset_with_holes(),
        _ if has_intervals => table.into_dataset_with_holes(),
        _ => table.into_dataset(),
    };
    let data = data.map_err(|e| placed(e, &name, &parts, names.as_deref(), source.missing))?;
    let data = match row_weights {
        Some(values) => data.with_weights(values).map_err(|e| {
            let (error, part) = gmm_data::placed(&parts, e);
            let file = part.map_or(&name, |part| &part.path);
            anyhow::Error::new(error).context(format!("{file}, column '{}'", shown(weights.unwrap_or_default())))
        })?,
        None => data,
    };
    let data = match source.measured {
        Some(measured) => measured.attach(data, (names.as_deref(), taken), &name, source.missing)?,
        None => data,
    };
    if data.has_missing() {
        console.note(|| holes(&data));
    }
    console.note(|| {
        let (n, d) = (data.n_rows(), data.n_features());
        let elapsed = started.elapsed();
        format!("read {n} rows × {d} columns ({}) from {name} in {elapsed:.1?}", data.rows().precision())
    });
    console.note(|| plan(&data, storage, (limit, source.memory())));
    let data = data.with_parts(later_parts);
    // An engine's own copy counts too. Without --memory the engines decide about rows that are not in memory yet; rows that
    // a reader put there are not held twice.
    let held = if storage == Storage::Memory { bytes_of(&data) } else { 0 };
    let has_room = source.memory().is_none_or(|limit| held + bytes_of(&data) <= limit.into());
    let may_copy = has_room && storage != Storage::TemporaryFile && held <= MOST_HELD_TWICE;
    let data = if may_copy { data } else { data.kept_in_place() };
    let left = source.memory().map(|limit| limit.saturating_sub(u64::try_from(held).unwrap_or(limit)));
    let present = data.present_rows().filter(|_| left.is_some() || storage != Storage::Memory);
    let data = match present.map(|rows| gather(rows, left)).transpose()? {
        Some(present) => data.with_present_rows(present),
        None => data,
    };
    Ok((data, row_labels))
}

/// Bytes of rows of which an engine may hold a copy in its own layout besides. A copy makes a pass of the CPU engine some
/// percent faster, which pays after about twenty passes.
const MOST_HELD_TWICE: u128 = 32 << 20;

/// An error about the columns of a table, or the room for it.
fn in_table(name: &str, problem: Problem) -> anyhow::Error {
    match problem {
        Problem::Column(error) => Failure::BadData(format!("{name}: {error}")).into(),
        problem => FileError { path: name.to_owned(), place: Box::default(), problem }.into(),
    }
}

/// Prints the warnings of a table's reader.
pub(crate) fn warn(table: &Table, console: &Console) {
    table.warnings.iter().for_each(|warning| console.warn(&warning.to_string()));
}

/// Reads files as one table. If it has more columns than `known`, selects those of `known` and `options.last`.
fn read_known(files: &[PathBuf], known: &[String], options: &ReadOptions) -> anyhow::Result<JoinedTable> {
    match gmm_data::read_tables(files, options) {
        Ok(JoinedTable { table, parts }) => {
            let Some(names) = table.names.as_deref() else { return Ok(JoinedTable { table, parts }) };
            let last = options.last.as_ref().and_then(|_| names.last());
            let once = |name: &String| names.iter().filter(|found| *found == name).count() == 1;
            let chosen: Vec<String> = known.iter().filter(|name| Some(*name) != last).chain(last).cloned().collect();
            let is_wider = names.len() > chosen.len() && chosen.iter().all(once);
            if !is_wider {
                return Ok(JoinedTable { table, parts });
            }
            let name = parts.first().map_or_else(String::new, |part| part.path.clone());
            let table = table.select_within(&chosen, options.memory).map_err(|problem| in_table(&name, problem))?;
            Ok(JoinedTable { table, parts })
        }
        // Another column than the known ones may hold text, or be in some files only: read again without it. A pipe
        // cannot be read twice.
        Err(error) if files.iter().all(|path| path.is_file()) => {
            let only = ReadOptions { columns: Some(known.to_vec()), ..options.clone() };
            gmm_data::read_tables(files, &only).map_err(|_| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Adds the file and the column's name to an error about a value, and makes its row that within the file.
fn placed(
    error: DataError,
    name: &str,
    parts: &[FilePart],
    names: Option<&[String]>,
    missing: Missing,
) -> anyhow::Error {
    let (error, part) = gmm_data::placed(parts, error);
    let file = part.map_or(name, |part| &part.path);
    let place = match (&error, names) {
        (DataError::NotFinite { column, .. }, Some(names)) => format!("{file}, column '{}'", shown(&names[*column])),
        _ => file.to_owned(),
    };
    match missing.refused(&error, &place) {
        Some(failure) => failure.into(),
        None => anyhow::Error::new(error).context(place),
    }
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
    source: Source<'_>,
    weights: Option<&str>,
    console: &Console,
) -> anyhow::Result<(ModelFile, Dataset)> {
    let model = model_beside(path, source)?;
    let (data, _) = rows_of(&model, source, (weights, None), console)?;
    Ok((model, data))
}

/// As [`model`], where the rows come from another input.
///
/// # Errors
/// As [`model`], and if both are standard input.
pub(crate) fn model_beside(path: &Path, source: Source<'_>) -> anyhow::Result<ModelFile> {
    if is_stdio(path) && source.is_stdin() {
        return Err(Failure::Usage("model and rows cannot both come from standard input".to_owned()).into());
    }
    model(path)
}

/// The rows, which count as much as they are not noise of the model: see [`noise::discounted`].
pub(crate) fn discounted(
    engine: &dyn Engine,
    model: &ModelFile,
    data: Dataset,
    precision: Precision,
) -> anyhow::Result<Dataset> {
    match &model.noise {
        None => Ok(data),
        Some(noise) => Ok(noise::discounted(engine, &model.mixture, noise, data, precision)?),
    }
}

/// The rows to evaluate a model on, and the values of the column `by`, which are removed from them. `others` are the
/// columns of weights and `by`.
pub(crate) fn rows_of(
    model: &ModelFile,
    source: Source<'_>,
    others: (Option<&str>, Option<&str>),
    console: &Console,
) -> anyhow::Result<RowsBy> {
    let (data, values) = rows_with(source, others, model.feature_names.as_deref(), console)?;
    check_columns(model, &data).with_context(|| source.display())?;
    Ok((data, values))
}

/// The columns `wanted` of the model, in that order, of rows that may have others. Columns are matched by name where both
/// have names. Else the rows have the model's columns, or exactly the wanted ones.
///
/// # Errors
/// As [`rows`]; and if a column is missing, or the number of columns fits neither.
pub(crate) fn rows_of_columns(
    model: &ModelFile,
    wanted: &[usize],
    source: Source<'_>,
    console: &Console,
) -> anyhow::Result<Dataset> {
    let known = model.feature_names.as_ref().map(|names| wanted.iter().map(|&j| names[j].clone()).collect::<Vec<_>>());
    let (data, _) = rows_with(source, (None, None), known.as_deref(), console)?;
    let indices: Vec<usize> = match (known, data.names()) {
        (Some(known), Some(names)) => {
            let find = |name: &String| names.iter().position(|found| found == name).ok_or_else(|| name.clone());
            known.iter().map(find).collect::<Result<_, _>>().map_err(|missing| {
                let (name, names) = (source.display(), names.join(", "));
                Failure::BadData(format!("{name}: no column '{}': there are {}", shown(&missing), shown(&names)))
            })?
        }
        _ if data.n_features() == model.mixture.n_features() => wanted.to_vec(),
        _ if data.n_features() == wanted.len() => (0..wanted.len()).collect(),
        _ => {
            let (found, all, needed) = (data.n_features(), model.mixture.n_features(), wanted.len());
            let name = source.display();
            let why = format!("{name} has {found} columns: the model has {all}, and {needed} of them are needed");
            return Err(Failure::BadData(why).into());
        }
    };
    if indices.iter().copied().eq(0..data.n_features()) {
        return Ok(data);
    }
    Ok(Dataset::new(data.rows().select_columns(&indices))?)
}

/// The name of a model's column, or its index.
pub(crate) fn column_name(model: &ModelFile, column: usize) -> String {
    model.feature_names.as_ref().map_or_else(|| column.to_string(), |names| names[column].clone())
}

/// As [`model_and_rows`], with the engine for one pass over the rows.
///
/// # Errors
/// As [`model_and_rows`], and if the device is not available.
pub(crate) fn model_rows_and_engine(
    (path, source): (&Path, Source<'_>),
    weights: Option<&str>,
    engine: &EngineArgs,
    console: &Console,
) -> anyhow::Result<(ModelFile, Dataset, Opened)> {
    let (model, (data, _), opened) = model_rows_by_and_engine((path, source), (weights, None), engine, console)?;
    Ok((model, data, opened))
}

/// As [`model_rows_and_engine`], with the values of a column that is removed from the rows; see [`rows_of`].
///
/// # Errors
/// As [`model_rows_and_engine`].
pub(crate) fn model_rows_by_and_engine(
    (path, source): (&Path, Source<'_>),
    others: (Option<&str>, Option<&str>),
    engine: &EngineArgs,
    console: &Console,
) -> anyhow::Result<(ModelFile, RowsBy, Opened)> {
    let model = model_beside(path, source)?;
    let engine = &source.measured.map_or_else(|| engine.clone(), |measured| measured.engine(engine));
    let (kind, k) = (model.mixture.covariance_type(), model.mixture.n_components());
    let work = move |shape, precision| Work::passes(shape, precision, kind, k, 1.0);
    let opening = Opening::begin(engine, source.memory(), &source.files()?, &work);
    let (data, values) = rows_of(&model, source, others, console)?;
    let opened = opening.finish(&work(data.rows().dim(), data.rows().precision()), console)?;
    opening::note_rows(&opened, &data, engine.precision(), console)?;
    Ok((model, (data, values), opened))
}

/// The inputs of a command that reads a model and rows.
pub(crate) fn with_model<'a>(files: &'a [PathBuf], model: &'a Path) -> Vec<&'a Path> {
    files.iter().map(PathBuf::as_path).chain([model]).collect()
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
