//! Missing values: the option `--missing`, and rows that are left out.

use clap::Args;
use gmm_data::{FileError, Problem, Table};
use gmm_model::{DataError, Dataset, Matrix};

use crate::exit::Failure;

/// What is done with missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Missing {
    /// They are an error, and the command has no option about them.
    #[default]
    Refused,
    /// They are an error, whose message names the option.
    Error,
    /// The rest of the row is used.
    Em,
    /// The row is left out.
    Drop,
}

impl std::str::FromStr for Missing {
    type Err = gmm_model::ModelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "error" => Ok(Self::Error),
            "em" => Ok(Self::Em),
            "drop" => Ok(Self::Drop),
            _ => Err(gmm_model::ModelError::UnknownWord {
                what: "--missing",
                word: text.to_owned(),
                choices: "error, em, drop",
            }),
        }
    }
}

/// The option of commands that can do without some values.
#[derive(Args)]
pub(crate) struct MissingArgs {
    /// Missing values (NaN; nulls; in text empty fields, NA, NULL, ?): em uses what is observed of each row, as EM for values
    /// missing at random; drop leaves such rows out; error refuses them
    #[arg(long, value_name = "error|em|drop", default_value = "error", hide_default_value = true,
          hide_possible_values = true, value_parser = crate::args::words::<Missing>(&["error", "em", "drop"]))]
    pub(crate) missing: Missing,
}

const HINT: &str = "--missing em uses the rest of the row, --missing drop leaves the row out";

impl Missing {
    /// Whether missing values are read as NaN.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Em | Self::Drop)
    }

    /// Names the option in the error of a reader about a missing value, if the command has it.
    pub(crate) fn explain(self, error: FileError) -> FileError {
        match error.problem {
            Problem::Missing if self == Self::Error => {
                FileError { problem: Problem::Text(format!("missing value: {HINT}")), ..error }
            }
            _ => error,
        }
    }

    /// The error about a NaN at a place, if the command has the option.
    pub(crate) fn refused(self, error: &DataError, place: &str) -> Option<Failure> {
        match error {
            DataError::NotFinite { row, column, value } if value.is_nan() && self == Self::Error => {
                Some(Failure::BadData(format!("{place}: row {row}, column {column} is NaN: {HINT}")))
            }
            _ => None,
        }
    }

    /// Errors if rows would be left out where each row has a line of output.
    pub(crate) fn refuse_drop(self, what: &str) -> Result<(), Failure> {
        if self != Self::Drop {
            return Ok(());
        }
        Err(Failure::Usage(format!("--missing drop would leave rows out of {what}: use --missing em")))
    }
}

/// Only the complete rows of rows with missing values, to be drawn; `None` if no value is missing.
///
/// # Errors
/// [`Failure::BadData`] if no row is complete.
pub(crate) fn complete_rows(data: &Dataset) -> anyhow::Result<Option<Dataset>> {
    if !data.has_missing() {
        return Ok(None);
    }
    let mut table = Table::new(data.rows().clone());
    let mut weights = data.weights().map(<[f64]>::to_vec);
    drop_rows(&mut table, &mut Vec::new(), [&mut weights, &mut None])?;
    let complete = table.into_dataset()?;
    Ok(Some(match weights {
        Some(weights) => complete.with_weights(weights)?,
        None => complete,
    }))
}

/// Removes the rows with missing values from a table, and their entries from `beside`, lists of one value per row. `later_parts`
/// are the first rows of the parts after the first. Returns the number of rows removed.
///
/// # Errors
/// [`Failure::BadData`] if no row is left.
pub(crate) fn drop_rows(
    table: &mut Table,
    later_parts: &mut Vec<usize>,
    beside: [&mut Option<Vec<f64>>; 2],
) -> Result<usize, Failure> {
    fn complete<T: Copy>(a: &gmm_model::RowArray<T>, is_nan: impl Fn(T) -> bool) -> Vec<usize> {
        (0..a.nrows()).filter(|&row| !a.row(row).iter().any(|&v| is_nan(v))).collect()
    }
    let kept = match &table.matrix {
        Matrix::F32(a) => complete(a, f32::is_nan),
        Matrix::F64(a) => complete(a, f64::is_nan),
    };
    let n = table.n_rows();
    if kept.is_empty() {
        return Err(Failure::BadData(format!("each of the {n} rows has a missing value: use --missing em")));
    }
    if kept.len() == n {
        return Ok(0);
    }
    table.matrix = table.matrix.select_rows(&kept);
    table.storage = gmm_data::Storage::Memory;
    for values in beside.into_iter().filter_map(Option::as_mut) {
        *values = kept.iter().map(|&row| values[row]).collect();
    }
    let moved = |start: usize| kept.partition_point(|&row| row < start);
    *later_parts = later_parts.iter().map(|&start| moved(start)).filter(|&at| at > 0 && at < kept.len()).collect();
    later_parts.dedup();
    Ok(n - kept.len())
}
