//! Groups of rows, by the values of a column, and the models of groups.

use std::path::Path;

use anyhow::Context;
use gmm_data::{GroupLabel, GroupModels, ModelFile, ModelOrGroups};
use gmm_host::many::Grouping;
use gmm_model::{Dataset, shown};

use crate::exit::Failure;
use crate::output::{self, Console, is_stdio, paint};
use crate::table_args::Source;
use crate::{input, render};

/// Rows of a table in the order of their groups, and where they were.
pub(crate) struct GroupedRows {
    pub(crate) data: Dataset,
    pub(crate) grouping: Grouping<GroupLabel>,
}

/// Reads rows and groups them by the values of a column, numbers or text, which is removed from them. If the table has
/// other columns than those of `known` too, only those of `known` are used.
///
/// # Errors
/// As for [`input::rows`]; [`Failure::Usage`] if `--columns` has the column; and if a value is missing, or no number in a column
/// that begins with numbers.
pub(crate) fn rows_by(
    source: Source<'_>,
    column: &str,
    (weights, known): (Option<&str>, Option<&[String]>),
    console: &Console,
) -> anyhow::Result<GroupedRows> {
    let selected = source.options().columns.unwrap_or_default();
    if selected.iter().any(|word| word.trim() == column.trim()) {
        let column = shown(column);
        let why = format!(
            "--columns has the column of --by, '{column}', whose values are those of groups: leave it out there"
        );
        return Err(Failure::Usage(why).into());
    }
    let (data, labels) = match gmm_data::read_words(&source.files()?, column, &source.options())? {
        Some(words) => {
            let out = match &words.name {
                Some(name) => format!("\"{}\"", name.replace('"', "\"\"")),
                None => words.index.to_string(),
            };
            // Where the columns are known by name, only those are read.
            let source = if known.is_some() && words.name.is_some() { source } else { source.without(&out) };
            let (data, _) = input::rows_with(source, (weights, None), known, console)?;
            (data, words.values.into_iter().map(GroupLabel::Text).collect())
        }
        None => {
            let (data, values) = input::rows_with(source, (weights, Some(column)), known, console)?;
            (data, numbers(&values.unwrap_or_default(), column)?)
        }
    };
    if labels.len() != data.n_rows() {
        let (column, place) = (shown(column), source.display());
        let why = format!("{place}: {} rows, but {} values of column '{column}'", data.n_rows(), labels.len());
        return Err(Failure::BadData(why).into());
    }
    let grouping = Grouping::new(&labels);
    let data = grouping.sorted(data)?;
    Ok(GroupedRows { data, grouping })
}

/// Labels of a column of numbers.
///
/// # Errors
/// Errors with the first row that has none.
pub(crate) fn numbers(values: &[f64], column: &str) -> Result<Vec<GroupLabel>, Failure> {
    if let Some(row) = values.iter().position(|v| !v.is_finite()) {
        let column = shown(column);
        return Err(Failure::BadData(format!("column '{column}': row {row} has no number, so that it has no group")));
    }
    Ok(values.iter().map(|&value| GroupLabel::number(value)).collect())
}

/// Reads a file with a model or with the models of groups; `-` is standard input.
///
/// # Errors
/// As [`input::model`].
pub(crate) fn model_or_groups(path: &Path) -> anyhow::Result<ModelOrGroups> {
    let bytes = gmm_data::read_bytes(path)?;
    let name = if is_stdio(path) { "<stdin>".to_owned() } else { path.display().to_string() };
    Ok(gmm_data::read_model_or_groups(&bytes, &name)?)
}

/// The models of the groups of a column, for rows that come from another input.
///
/// # Errors
/// Errors if the file has one model, or those of columns.
pub(crate) fn models(path: &Path, source: Source<'_>) -> anyhow::Result<GroupModels> {
    if is_stdio(path) && source.is_stdin() {
        return Err(Failure::Usage("models and rows cannot both come from standard input".to_owned()).into());
    }
    let name = input::display(path);
    match model_or_groups(path)? {
        ModelOrGroups::Groups(models) if models.by.is_some() => Ok(models),
        ModelOrGroups::Groups(_) => {
            let why =
                format!("{name} has a model for each column, not for the values of one: gmm fit --by makes those");
            Err(Failure::BadData(why).into())
        }
        ModelOrGroups::Model(_) => {
            let why = format!("{name} has one model: --by needs those of gmm fit --by, or for score a --background");
            Err(Failure::Usage(why).into())
        }
    }
}

/// The model of each group of rows, in their order.
///
/// # Errors
/// Errors with the first group without a model, and why it has none.
pub(crate) fn models_of<'a>(
    models: &'a GroupModels,
    path: &Path,
    rows: &GroupedRows,
) -> anyhow::Result<Vec<&'a ModelFile>> {
    let of = |label: &GroupLabel| match models.get(label) {
        Some(Ok(model)) => {
            input::check_columns(model, &rows.data).with_context(|| format!("group {label}"))?;
            Ok(model)
        }
        Some(Err(why)) => {
            let name = input::display(path);
            Err(Failure::BadData(format!("{name} has no model for group {label}, whose fit failed: {why}")).into())
        }
        None => {
            let has: Vec<String> = models.groups.iter().take(10).map(|(group, _)| group.to_string()).collect();
            let more = if models.groups.len() > has.len() { ", .." } else { "" };
            let (name, has) = (input::display(path), has.join(", "));
            Err(Failure::BadData(format!("{name} has no model for group {label}: it has {has}{more}")).into())
        }
    };
    rows.grouping.labels().iter().map(of).collect()
}

/// The names of the columns that the models of groups were fitted to.
pub(crate) fn columns(models: &GroupModels) -> Option<&[String]> {
    models.groups.iter().find_map(|(_, model)| model.as_ref().ok())?.feature_names.as_deref()
}

/// A line for each group: its rows and its fit, or why it has none.
pub(crate) fn table(models: &GroupModels, colour: bool) -> String {
    let label = models.by.as_deref().unwrap_or("column");
    let labels: Vec<String> = models.groups.iter().map(|(group, _)| group.to_string()).collect();
    let width = labels.iter().map(|label| label.chars().count()).chain([shown(label).chars().count(), 5]).max();
    let width = width.unwrap_or(5);
    let heading = format!(
        "{:<width$}{:>10}{:>6}  {:<10}{:>16}{:>16}{:>12}",
        shown(label),
        "rows",
        "k",
        "covariance",
        "log-likelihood",
        "BIC",
        "iterations"
    );
    let mut out = format!("{}\n", paint(colour, "1", &heading));
    let mut unfinished = false;
    for (label, (_, model)) in labels.iter().zip(&models.groups) {
        out += &match model {
            Err(error) => format!("{label:<width$}  {}\n", shown(error)),
            Ok(ModelFile { mixture, fit, .. }) => {
                let (k, kind) = (mixture.n_components(), mixture.covariance_model());
                let (rows, ll, bic, iterations) = match fit {
                    None => Default::default(),
                    Some(fit) => {
                        unfinished |= !fit.converged;
                        let mark = if fit.converged { "" } else { " (!)" };
                        let iterations = format!("{}{mark}", fit.iterations);
                        (fit.n_rows.to_string(), render::fixed(fit.log_likelihood), render::fixed(fit.bic), iterations)
                    }
                };
                format!("{label:<width$}{rows:>10}{k:>6}  {kind:<10}{ll:>16}{bic:>16}{iterations:>12}\n")
            }
        };
    }
    if unfinished {
        out += "(!) not converged within --max-iter iterations\n";
    }
    out
}

/// Writes the models of groups as JSON, or to standard output if `path` is `-`.
///
/// # Errors
/// Errors from the system; the file appears whole or not at all.
pub(crate) fn write(path: &Path, models: &GroupModels) -> anyhow::Result<()> {
    if is_stdio(path) {
        return Ok(output::print(&gmm_data::group_models_to_json(models)?)?);
    }
    let _whole = output::hold(path);
    Ok(gmm_data::write_group_models(path, models)?)
}
