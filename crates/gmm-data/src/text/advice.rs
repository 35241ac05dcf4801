//! Advice for error messages about rows of a text table that cannot be read.

use super::dialect::{Dialect, Line};
use super::doubts::column_word;
use super::number::{Kind, Notation, is_missing, kind, number};
use super::thousands::Thousands;
use crate::error::visible;
use crate::{Decimal, Problem};

/// Observations about the sampled first rows.
pub(super) struct Sampled {
    /// For each field, whether it is empty in all sampled rows.
    gaps: Vec<bool>,
    /// Whether some number has the decimal sign that was detected or given.
    has_decimals: bool,
    /// Whether the user gave the decimal sign.
    given: bool,
}

impl Sampled {
    pub(super) fn new(rows: &[Line], dialect: Dialect, decimal: Option<Decimal>) -> Self {
        // A word such as NA in a single row is no evidence about its column.
        let is_gap = |field: &[u8]| field.is_empty() || (rows.len() > 1 && is_missing(field));
        let in_row = |(_, row): &Line| dialect.fields(row).map(|f| is_gap(f.value())).collect::<Vec<_>>();
        let in_both = |a: Vec<bool>, b: Vec<bool>| a.into_iter().zip(b).map(|(a, b)| a && b).collect();
        let gaps = rows.iter().map(in_row).reduce(in_both).unwrap_or_default();
        let mut fields = rows.iter().flat_map(|(_, row)| dialect.fields(row));
        let (sign, _) = signs(dialect.notation);
        let has_decimals =
            fields.any(|f| f.value().contains(&(sign as u8)) && kind(f.value(), dialect.notation) == Kind::Number);
        Self { gaps, has_decimals, given: decimal.is_some() }
    }

    /// Explains a missing value: if the column is empty in all sampled rows, and others of the `chosen` columns are
    /// not, the message says how to exclude the empty ones. `skipped` is the number of fields before the first column.
    pub(super) fn missing(&self, column: usize, skipped: usize, chosen: &[usize], names: Option<&[String]>) -> Problem {
        let all = self.gaps.get(skipped..).unwrap_or_default();
        let mut empty: Vec<usize> = chosen.iter().copied().filter(|&c| all.get(c) == Some(&true)).collect();
        empty.sort_unstable();
        if !empty.contains(&column) || empty.len() == chosen.len() {
            return Problem::Missing;
        }
        let number = empty.len();
        let (at_start, at_end) = (empty[number - 1] + 1 == number, empty[0] + number == all.len());
        let named = names.is_some_and(|names| empty.iter().any(|&c| !names[c].is_empty()));
        let separators = if number == 1 { "a separator" } else { "separators" };
        let (which, hint) = match (at_start, at_end, number) {
            (_, true, 1) => ("the last column is".to_owned(), "end"),
            (_, true, _) => (format!("the last {number} columns are"), "end"),
            (true, _, 1) => ("the first column is".to_owned(), "begin"),
            (true, ..) => (format!("the first {number} columns are"), "begin"),
            (_, _, 1) => ("this column is".to_owned(), ""),
            _ => (format!("{number} columns are"), ""),
        };
        let hint = match named || hint.is_empty() {
            true => String::new(),
            false => format!(" (does each line {hint} with {separators}?)"),
        };
        let them = if number == 1 { "it" } else { "them" };
        let words = excluded(&empty, names);
        Problem::Text(format!("{which} empty in all sampled rows{hint}: use --columns '{words}' to leave {them} out"))
    }

    /// Explains a line with too many or too few fields, if the difference is empty fields or names at one end.
    pub(super) fn ragged(&self, found: usize, expected: usize, names: Option<&[String]>) -> Problem {
        let differ = found.abs_diff(expected);
        let of_which = |place: &str| match differ {
            1 => format!("of which the {place} is empty"),
            _ => format!("of which the {place} {differ} are empty"),
        };
        let s = if differ == 1 { "" } else { "s" };
        let empty = |name: &String| name.is_empty();
        let names = names.unwrap_or_default();
        let ends = |at_start: usize, at_end: usize| match () {
            () if at_end >= differ => Some(("last", "end")),
            () if at_start >= differ => Some(("first", "start")),
            () => None,
        };
        let longer = || {
            let gaps = Some(&self.gaps).filter(|gaps| gaps.len() == found)?;
            ends(gaps.iter().take_while(|g| **g).count(), gaps.iter().rev().take_while(|g| **g).count())
        };
        let shorter =
            || ends(names.iter().take_while(|n| empty(n)).count(), names.iter().rev().take_while(|n| empty(n)).count());
        let ends = if found > expected { longer() } else { shorter() };
        match ends {
            None => Problem::Ragged { found, expected },
            Some((which, end)) if found > expected => Problem::Text(format!(
                "{found} fields, {}, but the first line has {expected}: remove the separator{s} at the {end} of each line",
                of_which(which)
            )),
            Some((which, end)) => Problem::Text(format!(
                "{found} fields, but the first line has {expected}, {}: remove the separator{s} at its {end}",
                of_which(which)
            )),
        }
    }

    /// Explains a field that is a number in another notation. `decimals` is whether numbers with the decimal sign were
    /// read.
    pub(super) fn not_number(&self, text: String, notation: Notation, decimals: bool) -> Problem {
        let (sign, other) = signs(notation);
        let decimals = decimals || self.has_decimals;
        let shown = visible(&text);
        if let Some(thousands) = Thousands::of(&text) {
            let also = match self.given && !decimals && thousands.decimal == Some(other) {
                true => format!(", and use --decimal '{other}'"),
                false => String::new(),
            };
            let mark = thousands.mark();
            return Problem::Text(format!(
                "'{shown}' has {mark} as thousands separator: remove it from all numbers{also}"
            ));
        }
        let swapped: String = text.chars().map(|c| if c == other { sign } else { c }).collect();
        if !text.contains(other) || text.contains(sign) || number(swapped.as_bytes(), notation).is_err() {
            return Problem::NotNumber { text };
        }
        Problem::Text(if decimals {
            format!(
                "'{shown}' has the decimal sign '{other}', but other numbers have '{sign}': write all with the same sign, \
                 and remove thousands separators"
            )
        } else {
            format!(
                "'{shown}' is not a number with the decimal sign '{sign}': use --decimal '{other}' if all numbers have \
                 '{other}', and remove thousands separators"
            )
        })
    }
}

/// The decimal sign of a notation, and the other one.
const fn signs(notation: Notation) -> (char, char) {
    match notation {
        Notation::Known(Decimal::Comma) => (',', '.'),
        _ => ('.', ','),
    }
}

/// The words for `--columns` that exclude these columns, given in increasing order; adjacent columns become a range.
fn excluded(columns: &[usize], names: Option<&[String]>) -> String {
    /// Maximum number of words in a message, which must stay on one line.
    const MOST: usize = 8;
    let runs = columns.chunk_by(|a, b| a + 1 == *b);
    let word = |run: &[usize]| match run {
        [column] => format!("!{}", column_word(names, *column)),
        run => format!("!{}..{}", column_word(names, run[0]), column_word(names, run[run.len() - 1])),
    };
    let more = if runs.clone().count() > MOST { ",.." } else { "" };
    runs.take(MOST).map(word).collect::<Vec<_>>().join(",") + more
}
