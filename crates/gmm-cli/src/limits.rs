//! Censored, rounded and truncated rows: their options, and what they become.

use anyhow::Context;
use clap::Args;
use gmm_data::Table;
use gmm_model::{Dataset, Matrix, Precision, RowArray, shown};
use ndarray::Array2;

use crate::exit::Failure;
use crate::missing::Missing;

/// The options of commands that take rows known only within limits.
#[derive(Args, Default)]
pub(crate) struct LimitArgs {
    /// Values of a column at or beyond a limit are known only to be there, as those of a detection limit: cd4=50..1500, ph=..9;
    /// once for each such column, by name or 0-based index among the columns that are used. The mixture is that of the true values, and the work is done on the CPU
    #[arg(long, value_name = "COLUMN=LOW..HIGH", value_parser = ColumnRange::new, help_heading = "Limits")]
    censored: Vec<ColumnRange>,
    /// Values of a column are rounded to multiples of a step [default: 1]: the true value is within half a step. Once for each
    /// such column
    #[arg(long, value_name = "COLUMN[=STEP]", value_parser = Rounded::new, help_heading = "Limits")]
    rounded: Vec<Rounded>,
    /// Truncated rows: none outside of the range of a column was recorded, and nobody knows how many there were: age=18..65;
    /// once for each such column. The mixture is that of all rows; densities are those of recorded ones
    #[arg(long, value_name = "COLUMN=LOW..HIGH", value_parser = ColumnRange::new, help_heading = "Limits")]
    recorded: Vec<ColumnRange>,
    /// A column has the lower end of an interval in each row, and another one, UPPER, its upper end: dose=dose_max. Equal ends
    /// are an exact value; an empty field is an open end, and two are a missing value. Once for each such column
    #[arg(long, value_name = "COLUMN=UPPER", value_parser = Interval::new, help_heading = "Limits")]
    interval: Vec<Interval>,
}

/// Two columns with the ends of intervals, by name. Without `--columns` the second may be an index into the file, and the first is then
/// an index among the columns that are left.
#[derive(Clone)]
struct Interval {
    column: String,
    upper: String,
}

impl Interval {
    fn new(text: &str) -> Result<Self, String> {
        match text.rsplit_once('=') {
            // The words of a selection of several columns.
            Some((_, upper)) if upper.starts_with('!') || upper.contains("..") || upper.contains(',') => {
                Err("UPPER must be one column".to_owned())
            }
            Some((column, upper)) if !column.is_empty() && !upper.is_empty() => {
                Ok(Self { column: column.to_owned(), upper: upper.to_owned() })
            }
            _ => Err("it must be COLUMN=UPPER, two columns".to_owned()),
        }
    }
}

/// A column, by name or 0-based index among those that are used, and a range of its values.
#[derive(Clone)]
struct ColumnRange {
    column: String,
    low: f64,
    high: f64,
}

impl ColumnRange {
    fn new(text: &str) -> Result<Self, String> {
        let form = || "it must be COLUMN=LOW..HIGH, COLUMN=LOW.. or COLUMN=..HIGH".to_owned();
        let (column, range) = text.rsplit_once('=').ok_or_else(form)?;
        let (low, high) = range.split_once("..").ok_or_else(form)?;
        let end = |text: &str, open: f64| match text.trim() {
            "" => Ok(open),
            text => text.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(form),
        };
        let (low, high) = (end(low, f64::NEG_INFINITY)?, end(high, f64::INFINITY)?);
        if low >= high || low == f64::NEG_INFINITY && high == f64::INFINITY {
            return Err("the range must have an end, and the lower end must be below the upper one".to_owned());
        }
        Ok(Self { column: column.to_owned(), low, high })
    }
}

/// A column whose values are rounded to multiples of a step.
#[derive(Clone)]
struct Rounded {
    column: String,
    step: f64,
}

impl Rounded {
    fn new(text: &str) -> Result<Self, String> {
        let Some((column, step)) = text.rsplit_once('=') else {
            return Ok(Self { column: text.to_owned(), step: 1.0 });
        };
        match step.trim().parse::<f64>() {
            Ok(step) if step > 0.0 && step.is_finite() => Ok(Self { column: column.to_owned(), step }),
            _ => Err("the step must be a number above 0".to_owned()),
        }
    }
}

/// A column of `d` by name or 0-based index.
fn position(word: &str, names: Option<&[String]>, d: usize) -> Option<usize> {
    let named = names.and_then(|names| names.iter().position(|name| name == word));
    named.or_else(|| word.parse().ok().filter(|index| *index < d))
}

impl LimitArgs {
    /// Whether one of the options is given.
    pub(crate) const fn are_given(&self) -> bool {
        !(self.censored.is_empty() && self.rounded.is_empty() && self.recorded.is_empty() && self.interval.is_empty())
    }

    /// Checks that no upper end is an index if columns are selected: it would count other columns in the file than in the
    /// selection. Nor may it be among those `selected`, which are the columns of the rows.
    ///
    /// # Errors
    /// [`Failure::Usage`] otherwise.
    pub(crate) fn check_selected(&self, selected: &[String]) -> Result<(), Failure> {
        for Interval { column, upper } in &self.interval {
            let why = match upper.parse::<usize>() {
                Ok(_) => "with --columns the upper ends must be named",
                Err(_) if selected.contains(upper) => {
                    "leave the column of the upper ends out of --columns, which names the columns of the rows"
                }
                Err(_) => continue,
            };
            return Err(Failure::Usage(format!("--interval {column}={upper}: {why}")));
        }
        Ok(())
    }

    /// Makes lower ends of −∞ the open ends that NaN are. `table` has the columns of the rows only.
    pub(crate) fn open_lower_ends(&self, table: &mut Table) {
        fn opened<T: Copy + Into<f64>>(rows: &RowArray<T>, columns: &[usize], nan: T) -> Option<RowArray<T>> {
            let is_open = |v: &T| (*v).into() == f64::NEG_INFINITY;
            if !columns.iter().any(|&j| rows.column(j).iter().any(is_open)) {
                return None;
            }
            let mut opened = rows.view().to_owned();
            for &j in columns {
                opened.column_mut(j).mapv_inplace(|v| if is_open(&v) { nan } else { v });
            }
            Some(opened.into())
        }
        let (d, names) = (table.n_columns(), table.names.as_deref());
        // A word that is no column is an error when the limits are attached.
        let columns: Vec<usize> =
            self.interval.iter().filter_map(|interval| position(&interval.column, names, d)).collect();
        let made = match &table.matrix {
            Matrix::F32(rows) => opened(rows, &columns, f32::NAN).map(Matrix::F32),
            Matrix::F64(rows) => opened(rows, &columns, f64::NAN).map(Matrix::F64),
        };
        if let Some(matrix) = made {
            table.matrix = matrix;
        }
    }

    /// The columns of the upper ends of intervals.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.interval.iter().map(|interval| interval.upper.clone()).collect()
    }

    /// The rows with their limits. `names` are those of the columns; `ends` are the values of [`columns`](Self::columns), a column
    /// each.
    ///
    /// # Errors
    /// Errors if a column does not exist or is given twice in one option, a row is outside of a truncation, or nothing is known
    /// of a value although `missing` values are not taken.
    pub(crate) fn attach(
        &self,
        data: Dataset,
        (names, ends): (Option<&[String]>, Option<Array2<f64>>),
        place: &str,
        missing: Missing,
    ) -> anyhow::Result<Dataset> {
        if !self.are_given() {
            return Ok(data);
        }
        let d = data.n_features();
        let mut used = Vec::new();
        let mut column = |option: &'static str, word: &str| {
            let found = position(word, names, d).ok_or_else(|| {
                let known = names.map_or_else(|| format!("0 to {}", d - 1), |names| names.join(", "));
                Failure::BadData(format!("{place}: --{option}: there is no column '{word}': there are {known}"))
            })?;
            if used.contains(&(option, found)) {
                return Err(Failure::Usage(format!("--{option}: column '{word}' is given twice")));
            }
            if option == "interval" && used.iter().any(|(_, other)| *other == found) {
                let why = "the ends of an interval are all that is known: leave --censored and --rounded out";
                return Err(Failure::Usage(format!("--interval: column '{word}': {why}")));
            }
            used.push((option, found));
            Ok(found)
        };
        // A value at a limit in the file is at the limit in the precision of the rows too.
        let rounded = |end: f64| match data.rows().precision() {
            Precision::F32 => f64::from(end as f32),
            Precision::F64 => end,
        };
        let values = data.rows().to_f64();
        let mut lower = values.mapv(|v| if v.is_nan() { f64::NEG_INFINITY } else { v });
        let mut upper = values.mapv(|v| if v.is_nan() { f64::INFINITY } else { v });
        for Rounded { column: word, step } in &self.rounded {
            let j = column("rounded", word)?;
            lower.column_mut(j).mapv_inplace(|v| v - 0.5 * step);
            upper.column_mut(j).mapv_inplace(|v| v + 0.5 * step);
        }
        for ColumnRange { column: word, low, high } in &self.censored {
            let j = column("censored", word)?;
            let (low, high) = (&rounded(*low), &rounded(*high));
            for (row, &value) in values.column(j).iter().enumerate() {
                if value <= *low {
                    (lower[[row, j]], upper[[row, j]]) = (f64::NEG_INFINITY, *low);
                } else if value >= *high {
                    (lower[[row, j]], upper[[row, j]]) = (*high, f64::INFINITY);
                }
            }
        }
        for (i, interval) in self.interval.iter().enumerate() {
            let j = column("interval", &interval.column)?;
            let ends = ends.as_ref().expect("the columns of upper ends are read");
            upper.column_mut(j).assign(&ends.column(i).mapv(|v| if v.is_nan() { f64::INFINITY } else { v }));
        }
        if missing != Missing::Em {
            let is_unknown = |((_, low), high): ((_, &f64), &f64)| *low == f64::NEG_INFINITY && *high == f64::INFINITY;
            let mut all = lower.indexed_iter().zip(&upper);
            if let Some((((row, column), _), _)) = all.find(|one| is_unknown(*one)) {
                // Only rows of intervals may have NaN so far.
                let named = names.map_or_else(|| column.to_string(), |names| format!("'{}'", shown(&names[column])));
                let of_column = |interval: &Interval| position(&interval.column, names, d) == Some(column);
                let why = match self.interval.iter().any(of_column) {
                    true => "both ends of the interval are open",
                    false => "the value is missing",
                };
                let advice = match missing {
                    Missing::Error => "--missing em uses the rest of the row",
                    _ => "leave the row out",
                };
                let what = format!("{place}: row {row} (counted from 0), column {named}: {why}: {advice}");
                return Err(Failure::BadData(what).into());
            }
        }
        let weights = data.weights().map(<[f64]>::to_vec);
        let mut limited = Dataset::with_censoring(lower, upper).with_context(|| place.to_owned())?;
        if let Some(weights) = weights {
            limited = limited.with_weights(weights)?;
        }
        if let Some(names) = data.names() {
            limited = limited.with_names(names.to_vec())?;
        }
        if self.recorded.is_empty() {
            return Ok(limited);
        }
        let (mut low, mut high) = (vec![f64::NEG_INFINITY; d], vec![f64::INFINITY; d]);
        for range in &self.recorded {
            let j = column("recorded", &range.column)?;
            (low[j], high[j]) = (rounded(range.low), rounded(range.high));
        }
        limited.with_truncation(low, high).with_context(|| place.to_owned())
    }
}
