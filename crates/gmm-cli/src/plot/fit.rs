//! `gmm plot fit`: plots rows as points and components as ellipses.

use std::path::PathBuf;

use clap::Args;
use gmm_data::{ColumnError, ModelFile, find_columns};
use gmm_host::{CpuEngine, noise};
use gmm_model::Dataset;
use gmm_plot::{Fit, MOST_POINTS, NAMED, Picture, drawn, points_of};
use ndarray::Array2;

use super::OutputArgs;
use crate::args::{self, Words};
use crate::exit::Failure;
use crate::input;
use crate::output::Console;
use crate::table_args::InputArgs;

const EXAMPLES: &str = "\
One column is drawn as a density, two as a single panel, more as a grid of all pairs with each column's density. \
Points have the colour and marker of their most likely component. If there are many rows, a reproducible random subset \
is drawn. Histograms count all rows.

Examples:
  gmm plot fit model.json data/old_faithful.csv --units minutes -o fit.svg
  gmm plot fit model.json rows.npy --axes 0,3,7 --points 1000 -o fit.png
  gmm plot fit model.json rows.npy --axes 0 -o density.svg";

/// Default number of columns drawn: a grid of more is hard to read.
const COLUMNS: usize = 6;

/// Plot rows and a fitted mixture: ellipses over pairs of columns, or the density of one column
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FitArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Columns of the model to draw, by name or 0-based index [default: all, at most the first 6]
    #[arg(long, value_name = "A,B,..", value_parser = Words::new)]
    axes: Option<Words>,
    /// Units for the axis labels: one for all columns, or COLUMN=UNIT for each column that has one
    #[arg(long, value_name = "UNIT|A=UNIT,..", value_parser = Words::new)]
    units: Option<Words>,
    /// Maximum number of rows drawn as points [default: 3000, fewer in a grid]
    #[arg(long, value_name = "N", value_parser = points, allow_negative_numbers = true)]
    points: Option<usize>,
    /// Random seed for choosing the rows to draw if there are more
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    /// Column of row weights, used by the histograms
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &FitArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&input::with_model(&args.input.source().files()?, &args.model))?;
    let (model, data) = input::model_and_rows(&args.model, args.input.source(), args.weights.as_deref(), console)?;
    let d = model.mixture.n_features();
    let names = model.feature_names.as_deref().or(data.names());
    let columns = match &args.axes {
        Some(Words(wanted)) => {
            Some(find_columns(wanted, names, d).map_err(|e| Failure::BadData(format!("--axes: {e}")))?)
        }
        None => None,
    };
    let units = args.units.as_ref().map_or(&[][..], |Words(units)| units);
    let titles = titles(units, names, d).map_err(|e| Failure::Usage(format!("--units: {e}")))?;
    let names = if units.is_empty() { names } else { Some(titles.as_slice()) };
    let what = What { names, columns, points: args.points, seed: args.seed, source: args.input.source().caption() };
    args.output.write(&picture(&model, Some(&data), &what, console)?, console)
}

/// Options of a plot of a fit.
pub(crate) struct What<'a> {
    /// Names of all columns, if any.
    pub(crate) names: Option<&'a [String]>,
    /// Columns to draw; `None`: all, at most the first [`COLUMNS`].
    pub(crate) columns: Option<Vec<usize>>,
    /// Maximum number of points.
    pub(crate) points: Option<usize>,
    /// Seed for choosing the rows to draw.
    pub(crate) seed: u64,
    /// File of the rows, for the caption.
    pub(crate) source: String,
}

/// Draws rows and mixture, or the mixture alone.
///
/// # Errors
/// Errors if the drawn rows cannot be evaluated, or if there are too many columns.
pub(crate) fn picture(
    model: &ModelFile,
    data: Option<&Dataset>,
    what: &What<'_>,
    console: &Console,
) -> anyhow::Result<Picture> {
    let (mixture, noise) = (&model.mixture, model.noise.as_ref());
    let (n, d) = (data.map_or(0, Dataset::n_rows), mixture.n_features());
    let names = all_names(what.names, d);
    let columns = match &what.columns {
        Some(columns) => columns.clone(),
        None => (0..d.min(COLUMNS)).collect(),
    };
    if what.columns.is_none() && d > COLUMNS {
        console.warn(&format!(
            "only the first {COLUMNS} of {d} columns are drawn: choose others with gmm plot fit --axes A,B,.."
        ));
    }
    let most = what.points.unwrap_or_else(|| points_of(columns.len()));
    let rows = drawn(n, most, what.seed);
    let responsibilities = match data {
        Some(data) => {
            let points = Dataset::new(data.rows().select_rows(&rows))?;
            // For a few thousand rows, opening a GPU would take longer than this evaluation.
            noise::responsibilities(&CpuEngine::new(1)?, mixture, noise, &points, data.rows().precision())?
        }
        None => Array2::zeros((0, mixture.n_components() + usize::from(noise.is_some()))),
    };
    let mut note = what.source.clone();
    if data.is_some() {
        note += &format!(", {n} rows");
    }
    if rows.len() < n && columns.len() > 1 {
        note += &format!(", {} of them drawn (seed {})", rows.len(), what.seed);
    }
    if columns.len() > 1 && columns.len() < d {
        note += &format!(", {} of {d} columns", columns.len());
    }
    let few = mixture.n_components() <= NAMED;
    note += match columns.len() {
        1 if data.is_none() => "; density",
        1 if few => "; histogram, density, and weighted component densities",
        1 => "; histogram and density",
        _ if few => "; ellipses: 1 and 2 standard deviations",
        _ => "; ellipses: 1 and 2 standard deviations, too many to label",
    };
    let fit = Fit {
        mixture,
        noise,
        data,
        drawn: &rows,
        responsibilities: responsibilities.view(),
        columns: &columns,
        names: &names,
        note,
    };
    Ok(gmm_plot::fit(&fit)?)
}

/// The names of `d` columns, or their indices.
pub(crate) fn all_names(names: Option<&[String]>, d: usize) -> Vec<String> {
    names.map_or_else(|| (0..d).map(|j| format!("column {j}")).collect(), <[String]>::to_vec)
}

/// Names of all columns, followed by their units in parentheses.
fn titles(units: &[String], names: Option<&[String]>, d: usize) -> Result<Vec<String>, ColumnError> {
    let mut titles = all_names(names, d);
    for word in units {
        match word.rsplit_once('=') {
            Some((column, unit)) => {
                let column = find_columns(&[column], names, d)?[0];
                titles[column] += &format!(" ({unit})");
            }
            None => titles.iter_mut().for_each(|title| *title += &format!(" ({word})")),
        }
    }
    Ok(titles)
}

fn points(text: &str) -> Result<usize, String> {
    match args::at_least_one(text)? {
        n if n > MOST_POINTS => Err(format!("it must be at most {MOST_POINTS}: browsers cannot show a file with more")),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_by_name_before_index_and_each_once() {
        let names = ["b", "1", "a"].map(str::to_owned);
        let of = |wanted: &[&str]| find_columns(wanted, Some(&names), 3);
        assert_eq!(of(&["a", "b"]).unwrap(), [2, 0]);
        assert_eq!(of(&["1", "2"]).unwrap(), [1, 2]);
        assert!(of(&["c"]).unwrap_err().to_string().contains("no column 'c': there are b, 1, a"));
        assert!(of(&["a", "2"]).unwrap_err().to_string().contains("twice"));
        assert!(find_columns(&["3"], None, 3).is_err());
        let titles =
            |units: &[&str]| titles(&units.iter().map(|u| (*u).to_owned()).collect::<Vec<_>>(), Some(&names), 3);
        assert_eq!(titles(&["m"]).unwrap(), ["b (m)", "1 (m)", "a (m)"]);
        assert_eq!(titles(&["a=m/s", "0=kg"]).unwrap(), ["b (kg)", "1", "a (m/s)"]);
        assert!(titles(&["c=m"]).is_err());
    }
}
