//! Signs between groups of three digits, as in `1,234,567`.

use super::number::cut;
use crate::DataWarning;

/// The sign between thousands, and the decimal sign where there is one.
#[derive(Debug, PartialEq)]
pub(super) struct Thousands {
    pub(super) mark: char,
    pub(super) decimal: Option<char>,
}

/// Signs between thousands: of English, German, Swiss and French, and blanks of other widths.
const MARKS: [char; 9] = [',', '.', '\'', '’', ' ', '\u{a0}', '\u{202f}', '\u{2009}', '\u{2007}'];

impl Thousands {
    /// The signs of a number whose first sign can be no decimal sign: it comes twice, or before another sign.
    pub(super) fn of(text: &str) -> Option<Self> {
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let number = text.strip_prefix(['-', '+']).unwrap_or(text);
        MARKS.into_iter().find_map(|mark| {
            let (whole, fraction) = match number.rsplit_once(['.', ',']) {
                Some((whole, fraction)) if !number[whole.len()..].starts_with(mark) => (whole, Some(fraction)),
                _ => (number, None),
            };
            let mut groups = whole.split(mark);
            let first = groups.next().is_some_and(|group| matches!(group.len(), 1..=3) && digits(group));
            let others = groups.clone().count();
            let certain = others > 1 || (others == 1 && (fraction.is_some() || !matches!(mark, ',' | '.')));
            let grouped = first && certain && groups.all(|group| group.len() == 3 && digits(group));
            let decimal = fraction.and_then(|_| number[whole.len()..].chars().next());
            (grouped && fraction.is_none_or(digits)).then_some(Self { mark, decimal })
        })
    }

    /// The mark for a message: by name where it looks like a blank.
    pub(super) fn mark(&self) -> String {
        let name = match self.mark {
            '\u{a0}' => "a no-break space",
            '\u{202f}' => "a narrow no-break space",
            '\u{2009}' => "a thin space",
            '\u{2007}' => "a figure space",
            mark => return format!("'{mark}'"),
        };
        format!("U+{:04X}, {name},", u32::from(self.mark))
    }
}

/// Decimal commas of a table, as long as each of them could stand between thousands.
pub(super) struct Commas {
    /// The first of them, with its line.
    example: Option<(u64, String)>,
    /// Whether it is certain that commas are decimal signs.
    decimal: bool,
}

impl Commas {
    pub(super) const fn new(decimal: bool) -> Self {
        Self { example: None, decimal }
    }

    /// Takes note of a number that was read with a decimal comma, if it has one.
    pub(super) fn see(&mut self, line: u64, number: &[u8]) {
        if self.decimal || !number.contains(&b',') {
            return;
        }
        self.decimal = !is_ambiguous(number);
        if self.example.is_none() {
            self.example = Some((line, cut(number)));
        }
    }

    /// Says that the commas may be no decimal signs.
    pub(super) fn warning(&self) -> Option<DataWarning> {
        let (line, example) = self.example.as_ref().filter(|_| !self.decimal)?;
        Some(DataWarning::new(format!(
            "numbers such as '{example}' (line {line}) are read with a decimal comma, but all their commas could stand \
             between thousands: use --decimal , if they are decimal commas, else take them out of the numbers"
        )))
    }
}

/// Whether the comma of a number may stand between thousands: exactly three digits follow, and one to three, of which the
/// first is not 0, come before it.
pub(super) fn is_ambiguous(number: &[u8]) -> bool {
    let number = number.strip_prefix(b"-").or_else(|| number.strip_prefix(b"+")).unwrap_or(number);
    let Some(comma) = number.iter().position(|&b| b == b',') else { return false };
    let (whole, fraction) = (&number[..comma], &number[comma + 1..]);
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    matches!(whole, [b'1'..=b'9'] | [b'1'..=b'9', _] | [b'1'..=b'9', _, _])
        && fraction.len() == 3
        && digits(whole)
        && digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_between_thousands_are_told_from_decimal_signs() {
        for (text, mark, decimal) in [
            ("1,234,567", ',', None),
            ("-1,234.5", ',', Some('.')),
            ("1.234.567,8", '.', Some(',')),
            ("1.234,5", '.', Some(',')),
            ("12 345", ' ', None),
            ("1'234'567.25", '\'', Some('.')),
            ("1\u{a0}234,5", '\u{a0}', Some(',')),
            ("-12\u{202f}345\u{202f}678", '\u{202f}', None),
        ] {
            assert_eq!(Thousands::of(text), Some(Thousands { mark, decimal }), "{text}");
        }
        for text in ["1,234", "1.234", "1,23,456", "1234,567.8", "1,2345", "x,234,567", "1.2.3", ",", "", "1\u{a0}5"] {
            assert_eq!(Thousands::of(text), None, "{text}");
        }
    }

    #[test]
    fn a_comma_may_stand_between_thousands_where_three_digits_follow_and_no_zero_leads() {
        for text in ["1,000", "-12,500", "+999,999"] {
            assert!(is_ambiguous(text.as_bytes()), "{text}");
        }
        for text in ["0,125", "-0,125", "012,345", "1234,567", "1,5", "1,2345", ",125", "1,000e3", "1000", "1,00e"] {
            assert!(!is_ambiguous(text.as_bytes()), "{text}");
        }
    }
}
