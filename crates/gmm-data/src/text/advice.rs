//! What to try where a row of a text table cannot be read.

use super::dialect::{Dialect, Line};
use super::doubts::column_word;
use super::number::{Kind, Notation, kind, number};
use crate::{Decimal, Problem};

/// What the first rows show.
#[derive(Clone, Copy)]
pub(super) struct Sampled {
    /// Whether the last field of each is empty.
    last_is_empty: bool,
    /// Whether some number has the decimal sign that was found or given.
    has_decimals: bool,
}

impl Sampled {
    pub(super) fn new(rows: &[Line], dialect: Dialect) -> Self {
        let last_is_empty = |(_, row): &Line| dialect.fields(row).last().is_some_and(|field| field.value().is_empty());
        let mut fields = rows.iter().flat_map(|(_, row)| dialect.fields(row));
        let (sign, _) = signs(dialect.notation);
        Self {
            last_is_empty: !rows.is_empty() && rows.iter().all(last_is_empty),
            has_decimals: fields
                .any(|f| f.value().contains(&(sign as u8)) && kind(f.value(), dialect.notation) == Kind::Number),
        }
    }

    /// Of a missing value in the last column, that it has none at all.
    pub(super) fn missing(self, column: usize, names: Option<&[String]>) -> Problem {
        if !self.last_is_empty {
            return Problem::Missing;
        }
        let separator = match names {
            Some(names) if !names[column].is_empty() => "",
            _ => " (does each line end with a separator?)",
        };
        let word = column_word(names, column);
        Problem::Text(format!(
            "the last column is empty in all sampled rows{separator}: use --columns '!{word}' to leave it out"
        ))
    }

    /// Of a line with a field too many, that the last is empty.
    pub(super) fn ragged(self, found: usize, expected: usize) -> Problem {
        if !self.last_is_empty || found != expected + 1 {
            return Problem::Ragged { found, expected };
        }
        Problem::Text(format!(
            "{found} fields, of which the last is empty, where the first line has {expected}: remove the separator at the \
             end of each line"
        ))
    }

    /// Of a field that is a number in another notation, which. `decimals` is whether numbers with the decimal sign were read.
    pub(super) fn not_number(self, text: String, notation: Notation, decimals: bool) -> Problem {
        let (sign, other) = signs(notation);
        if let Some(mark) = thousands(&text) {
            return Problem::Text(format!("'{text}' has '{mark}' between its thousands: take that out of all numbers"));
        }
        let swapped: String = text.chars().map(|c| if c == other { sign } else { c }).collect();
        if !text.contains(other) || text.contains(sign) || number(swapped.as_bytes(), notation).is_err() {
            return Problem::NotNumber { text };
        }
        Problem::Text(if decimals || self.has_decimals {
            format!(
                "'{text}' has the decimal sign '{other}', but other numbers have '{sign}': write all with the same sign, and \
                 take out signs between thousands"
            )
        } else {
            format!(
                "'{text}' is not a number with the decimal sign '{sign}': write --decimal '{other}' if all numbers have \
                 '{other}', and take out signs between thousands"
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

/// The sign between groups of three digits, where it can be no decimal sign: it comes twice, or before another sign.
fn thousands(text: &str) -> Option<char> {
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    [',', '.', '\'', ' '].into_iter().find(|&mark| {
        let number = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = match number.rsplit_once(['.', ',']) {
            Some((whole, fraction)) if !number[whole.len()..].starts_with(mark) => (whole, Some(fraction)),
            _ => (number, None),
        };
        let mut groups = whole.split(mark);
        let first = groups.next().is_some_and(|group| matches!(group.len(), 1..=3) && digits(group));
        let others = groups.clone().count();
        let certain = others > 1 || (others == 1 && (fraction.is_some() || !matches!(mark, ',' | '.')));
        first && certain && groups.all(|group| group.len() == 3 && digits(group)) && fraction.is_none_or(digits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_between_thousands_are_told_from_decimal_signs() {
        for (text, mark) in [
            ("1,234,567", ','),
            ("-1,234.5", ','),
            ("1.234.567,8", '.'),
            ("1.234,5", '.'),
            ("12 345", ' '),
            ("1'234'567.25", '\''),
        ] {
            assert_eq!(thousands(text), Some(mark), "{text}");
        }
        for text in ["1,234", "1.234", "1,23,456", "1234,567.8", "1,2345", "x,234,567", "1.2.3", ",", ""] {
            assert_eq!(thousands(text), None, "{text}");
        }
    }
}
