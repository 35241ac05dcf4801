//! Thousands separators, as in `1,234,567`.

use super::number::cut;
use crate::DataWarning;

/// The thousands separator of a number, and its decimal sign if it has one.
#[derive(Debug, PartialEq)]
pub(super) struct Thousands {
    pub(super) mark: char,
    pub(super) decimal: Option<char>,
}

/// Thousands separators: English, German, Swiss and French, and spaces of other widths.
const MARKS: [char; 9] = [',', '.', '\'', '’', ' ', '\u{a0}', '\u{202f}', '\u{2009}', '\u{2007}'];

impl Thousands {
    /// Recognises a number with thousands separators. The first separator must be certain not to be a decimal sign: it
    /// is neither comma nor point, or it occurs twice, or another sign follows.
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

    /// The separator for a message: by name if it looks like a blank.
    pub(super) fn mark(&self) -> String {
        let name = match self.mark {
            '\u{a0}' => "a no-break space",
            '\u{202f}' => "a narrow no-break space",
            '\u{2009}' => "a thin space",
            '\u{2007}' => "a figure space",
            mark => return format!("'{mark}'"),
        };
        format!("U+{:04X} ({name})", u32::from(self.mark))
    }
}

/// Tracks whether the decimal commas of a table could all be thousands separators.
pub(super) struct Commas {
    /// The first number with such a comma, and its line.
    example: Option<(u64, String)>,
    /// Whether commas are certainly decimal signs.
    decimal: bool,
}

impl Commas {
    pub(super) const fn new(decimal: bool) -> Self {
        Self { example: None, decimal }
    }

    /// Records a number that was read with a decimal comma, if it contains one.
    pub(super) fn see(&mut self, line: u64, number: &[u8]) {
        if self.decimal || !number.contains(&b',') {
            return;
        }
        self.decimal = !is_ambiguous(number);
        if self.example.is_none() {
            self.example = Some((line, cut(number)));
        }
    }

    /// The warning that the commas may not be decimal signs, if that is possible.
    pub(super) fn warning(&self) -> Option<DataWarning> {
        let (line, example) = self.example.as_ref().filter(|_| !self.decimal)?;
        Some(DataWarning::new(format!(
            "numbers such as '{example}' (line {line}) are read with a decimal comma, but all their commas could be \
             thousands separators: use --decimal , if they are decimal commas, else remove them from the numbers"
        )))
    }
}

/// Whether the comma of a number may be a thousands separator: exactly three digits follow it, and one to three digits,
/// the first not 0, precede it.
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
