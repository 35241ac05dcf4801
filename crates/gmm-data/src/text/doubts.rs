//! Warnings about a table that was read: column names may have been read as a row, or a row index as a feature.

use gmm_model::Matrix;

use crate::DataWarning;
use crate::error::one_line;

/// What is known about a table apart from its values.
pub(super) struct Reading<'a> {
    /// Names of all columns, if they have any.
    pub(super) names: Option<&'a [String]>,
    /// Indices of the columns that were read.
    pub(super) chosen: &'a [usize],
    /// Whether the user selected columns, other than by exclusions only.
    pub(super) named: bool,
    /// Whether the first line was read as a row by detection, not by the user's choice.
    pub(super) guessed_row: bool,
}

impl Reading<'_> {
    /// Returns all warnings. Cost: reads at most [`ROWS`] rows, and the whole first column if it counts the rows.
    pub(super) fn warnings(&self, matrix: &Matrix) -> Vec<DataWarning> {
        [self.names_as_row(matrix), self.index_as_feature(matrix)].into_iter().flatten().map(DataWarning::new).collect()
    }

    /// Warns if the first row, all numbers, may be the column names.
    fn names_as_row(&self, matrix: &Matrix) -> Option<String> {
        let (n, d) = matrix.dim();
        if !self.guessed_row || n < 2 {
            return None;
        }
        let first: Vec<f64> = (0..d).map(|j| matrix.at(0, j)).collect();
        let below = |j: usize| (1..n.min(ROWS)).map(move |i| matrix.at(i, j));
        let counts = first.iter().zip(self.chosen).all(|(&v, &field)| v == field as f64);
        let rises = |row: usize| (1..d).all(|j| matrix.at(row, j) > matrix.at(row, j - 1));
        let falls = (1..d).all(|j| first[j] < first[j - 1]);
        let far = (0..d).filter(|&j| is_far(first[j], below(j))).count();
        let odd = if counts {
            let whole = (0..d).all(|j| below(j).all(|v| v.fract() == 0.0));
            // No warning for a grid of whole numbers, whose rows all increase, nor for a first row 0 or 0, 1 above
            // other whole numbers: these look like ordinary rows.
            let alike = whole && far == 0 && (d < 3 || rises(1));
            // For a single column below a 0, the other values must contain no whole number or be far from 0.
            let one = d > 1 || far == 1 || (n > 3 && below(0).all(|v| v.fract() != 0.0));
            !alike && one
        } else {
            d > 2 && n > 3 && (rises(0) || falls) && 2 * far > d
        };
        odd.then(|| {
            let mut shown: Vec<String> = first.iter().take(4).map(f64::to_string).collect();
            if d > 4 {
                shown.push("..".to_owned());
            }
            format!(
                "the first line ({}) is read as a row, but looks like column names: use --header yes if it holds \
                 names, --header no if it is a row",
                shown.join(", ")
            )
        })
    }

    /// Warns if the first column has no name or counts the rows.
    fn index_as_feature(&self, matrix: &Matrix) -> Option<String> {
        let (n, d) = matrix.dim();
        if self.named || d < 2 || self.chosen.first() != Some(&0) {
            return None;
        }
        let name = self.names.map(|names| names[0].as_str());
        let counts = |j: usize| {
            let start = matrix.at(0, j);
            // For nearly every column that does not count, this stops within the first few rows.
            (0..n).all(|i| matrix.at(i, j) == start + i as f64).then_some(start)
        };
        let start = counts(0).filter(|start| n > 2 && (*start == 0.0 || *start == 1.0));
        // If all columns count, the table is a grid.
        let start = start.filter(|_| (1..d).any(|j| counts(j).is_none()));
        let unnamed = name == Some("");
        let what = match start {
            Some(start) => format!("counts the rows from {start}"),
            None if unnamed => "has no name".to_owned(),
            None => return None,
        };
        let column = match name {
            Some("") | None => "the first column".to_owned(),
            Some(name) => format!("column '{}'", one_line(name)),
        };
        Some(format!(
            "{column} {what}: it looks like a row index, but is used as a feature; --columns '!{}' leaves it out",
            column_word(self.names, 0)
        ))
    }
}

/// The word that selects a column in `--columns`.
pub(super) fn column_word(names: Option<&[String]>, column: usize) -> String {
    let (names, index) = (names.unwrap_or_default(), column.to_string());
    match names.get(column).map(String::as_str) {
        None => index,
        Some("") if !names.iter().any(|name| name.trim() == index) => index,
        Some(name) if !name.is_empty() && !name.contains([',', '"', '\'', '!']) && name.trim() == name => {
            one_line(name)
        }
        Some(name) => format!("\"{}\"", one_line(&name.replace('"', "\"\""))),
    }
}

/// Maximum number of rows examined.
const ROWS: usize = 500;

/// Whether a value lies outside the range of the others by more than three times that range.
fn is_far(value: f64, others: impl Iterator<Item = f64>) -> bool {
    let (low, high) = others.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (v.min(low), v.max(high)));
    let margin = 3.0 * (high - low);
    value < low - margin || value > high + margin
}
