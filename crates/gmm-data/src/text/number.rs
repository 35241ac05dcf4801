//! Classifies and parses a field: number, missing value or text.

use super::encoding::decoded;
use crate::error::one_line;
use crate::{Decimal, Problem};

/// The kind of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Number,
    Missing,
    Text,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Notation {
    /// The decimal sign is known.
    Known(Decimal),
    /// The decimal sign is undecided, because all numbers so far are whole: a point is assumed until a comma is found.
    Open,
}

/// Parses a number. NaN and infinities are accepted; [`Dataset`](gmm_model::Dataset) rejects them later, with row and
/// column.
pub(super) fn number(field: &[u8], notation: Notation) -> Result<f64, Problem> {
    let parsed = match notation {
        Notation::Known(Decimal::Comma) => with_comma(field).or_else(|| without_point(field)),
        _ => plain(field),
    };
    match parsed {
        Some(value) if value.is_infinite() && field.iter().any(u8::is_ascii_digit) => {
            Err(Problem::Text(format!("'{}' is beyond float64's range of 1.8e308", cut(field))))
        }
        Some(value) => Ok(value),
        None if is_missing(field) => Err(Problem::Missing),
        None => Err(Problem::NotNumber { text: cut(field) }),
    }
}

/// Classifies a field whose numbers have this notation.
pub(super) fn kind(field: &[u8], notation: Notation) -> Kind {
    let number = match notation {
        Notation::Known(Decimal::Comma) => with_comma(field).or_else(|| without_point(field)).is_some(),
        _ => plain(field).is_some(),
    };
    match number {
        true => Kind::Number,
        false if is_missing(field) => Kind::Missing,
        false => Kind::Text,
    }
}

/// Maximum length of a number in bytes: more than any program writes, even an f64 with all its digits.
pub(super) const MOST: usize = 1100;

/// Parses a number with a decimal point, or a whole number.
pub(super) fn plain(field: &[u8]) -> Option<f64> {
    // A very long field would otherwise be parsed again and again.
    if field.len() > MOST {
        return None;
    }
    // It accepts a subset of what `parse` accepts, and rounds correctly, in less than half the time.
    match fast_float2::parse_partial::<f64, _>(field) {
        Ok((value, len)) if len == field.len() && value.is_finite() => Some(value),
        _ => std::str::from_utf8(field).ok()?.parse().ok(),
    }
}

fn without_point(field: &[u8]) -> Option<f64> {
    if field.contains(&b'.') { None } else { plain(field) }
}

/// Parses a number that contains a decimal comma.
pub(super) fn with_comma(field: &[u8]) -> Option<f64> {
    let comma = field.iter().position(|&b| b == b',')?;
    if field.len() > MOST || field.contains(&b'.') || !field.get(comma + 1).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let mut buffer = [0; MOST];
    let text = &mut buffer[..field.len()];
    text.copy_from_slice(field);
    text[comma] = b'.';
    plain(text)
}

/// Whether a field is one of the missing-value markers of R, pandas, SQL and Excel.
pub(super) fn is_missing(field: &[u8]) -> bool {
    matches!(
        field,
        b"" | b"NA" | b"N/A" | b"n/a" | b"NULL" | b"null" | b"None" | b"<NA>" | b"?" | b"#N/A" | b"#NA" | b"#N/A N/A"
    )
}

/// A field for a message, truncated.
pub(super) fn cut(field: &[u8]) -> String {
    let mut end = field.len().min(200);
    // Do not cut inside a UTF-8 character.
    while end > 0 && field.get(end).is_some_and(|b| b & 0xc0 == 0x80) {
        end -= 1;
    }
    one_line(&decoded(&field[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_comma_is_one_comma_and_no_point() {
        for (text, value) in [("1,5", 1.5), ("-,25", -0.25), ("1,5e-3", 1.5e-3), ("7", 7.0)] {
            assert_eq!(number(text.as_bytes(), Notation::Known(Decimal::Comma)).unwrap(), value, "{text}");
        }
        for text in ["1.5", "1.234,5", "1,234,5", "1,", ",", "a,5", ""] {
            assert!(number(text.as_bytes(), Notation::Known(Decimal::Comma)).is_err(), "{text}");
        }
        assert!(number(b"1,5", Notation::Known(Decimal::Point)).is_err());
        assert!(number(b"1,5", Notation::Open).is_err());
    }
}
