//! Parses a block of whole lines that hold nothing but plain rows.

use memchr::{memchr, memchr_iter, memchr3};

use super::Separator;
use super::dialect::Dialect;
use super::number::{MOST, Notation, number};
use crate::{Decimal, Problem};

/// What is known about the rows of a table once its first lines have been read.
#[derive(Clone, Copy)]
pub(super) struct Layout<'a> {
    separator: Separator,
    notation: Notation,
    /// Number of fields per line.
    fields: usize,
    /// For each field, its column in the table if it is read; `None` if all fields are read, in order.
    slots: Option<&'a [Option<usize>]>,
    /// Number of columns that are read.
    d: usize,
    /// Whether a missing value is read as NaN.
    missing: bool,
}

impl<'a> Layout<'a> {
    /// Returns `None` if no block of such a table can be parsed here: if numbers have decimal commas, or the separator
    /// is part of numbers or white space other than a tab.
    pub(super) fn new(
        Dialect { separator, notation }: Dialect,
        fields: usize,
        slots: Option<&'a [Option<usize>]>,
        d: usize,
    ) -> Option<Self> {
        let point = matches!(notation, Notation::Open | Notation::Known(Decimal::Point));
        let clear = match separator {
            Separator::Byte(b'\t') | Separator::Blanks => true,
            Separator::Byte(b) => b.is_ascii_punctuation() && !b"\"+-.".contains(&b),
        };
        (point && clear && d > 0 && (slots.is_some() || d == fields)).then_some(Self {
            separator,
            notation,
            fields,
            slots,
            d,
            missing: false,
        })
    }

    /// The same layout, in which a missing value is read as NaN if `missing`.
    pub(super) const fn with_missing(self, missing: bool) -> Self {
        Self { missing, ..self }
    }

    /// Number of columns that are read.
    pub(super) const fn d(&self) -> usize {
        self.d
    }

    /// Parses a block into `values`, which has `d` elements for each of its [`rows`], in row-major order. Returns the
    /// number of lines, blank ones included.
    ///
    /// Returns `None` unless the block is plain, and then leaves anything in `values`. In a plain block, every line that
    /// is not empty is a row, with the right number of fields, and with numbers in all columns that are read; a field
    /// may be in quotes, but without quotes or line ends inside them; lines end in LF or CR LF, except that the last one
    /// may have no end. [`Lines`](super::lines::Lines) finds the same rows in it, since all its lines are complete: that
    /// no quote is open at its start follows from the blocks before it, if they are plain.
    pub(super) fn parse(&self, block: &[u8], values: &mut [f64]) -> Option<u64> {
        // A form feed is white space too, but does not separate fields.
        if self.separator == Separator::Blanks && memchr(b'\x0c', block).is_some() {
            return None;
        }
        let (mut rest, mut lines) = (block, 0);
        let mut rows = values.chunks_exact_mut(self.d);
        while !rest.is_empty() {
            rest = match rest {
                [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] => after,
                _ => self.line(rest, rows.next()?)?,
            };
            lines += 1;
        }
        rows.next().is_none().then_some(lines)
    }

    /// Parses the line at the start of `text` into `row`, and returns what follows it.
    fn line<'t>(&self, text: &'t [u8], row: &mut [f64]) -> Option<&'t [u8]> {
        let mut rest = text;
        if self.separator == Separator::Blanks {
            rest = after_blanks(rest);
        }
        match self.slots {
            None => {
                for (field, value) in row.iter_mut().enumerate() {
                    (*value, rest) = self.number(rest)?;
                    rest = self.end(rest, field)?;
                }
            }
            Some(slots) => {
                for (field, slot) in slots.iter().enumerate() {
                    match slot {
                        Some(slot) => (row[*slot], rest) = self.number(rest)?,
                        None => (_, rest) = self.field(rest)?,
                    }
                    rest = self.end(rest, field)?;
                }
            }
        }
        Some(rest)
    }

    /// Parses the field at the start of `text` as [`number`] does. Returns what follows it, from the field's end.
    #[inline]
    fn number<'t>(&self, text: &'t [u8]) -> Option<(f64, &'t [u8])> {
        if let Ok((value, len)) = fast_float2::parse_partial::<f64, _>(text)
            && text.get(len).is_none_or(|&b| self.ends(b))
            && value.is_finite()
            && len <= MOST
        {
            return Some((value, &text[len..]));
        }
        let (field, rest) = self.field(text)?;
        match number(field.trim_ascii(), self.notation) {
            Ok(value) => Some((value, rest)),
            Err(Problem::Missing) if self.missing => Some((f64::NAN, rest)),
            Err(_) => None,
        }
    }

    /// The field at the start of `text`, without its quotes, and what follows it.
    fn field<'t>(&self, text: &'t [u8]) -> Option<(&'t [u8], &'t [u8])> {
        if let [b'"', inner @ ..] = text {
            let end = memchr3(b'"', b'\n', b'\r', inner)?;
            let rest = inner[end..].strip_prefix(b"\"")?;
            return rest.first().is_none_or(|&b| self.ends(b)).then_some((&inner[..end], rest));
        }
        let end = match self.separator {
            Separator::Byte(separator) => memchr3(separator, b'\n', b'\r', text),
            Separator::Blanks => text.iter().position(|&b| self.ends(b)),
        };
        let (field, rest) = text.split_at(end.unwrap_or(text.len()));
        memchr(b'"', field).is_none().then_some((field, rest))
    }

    /// Whether a field ends before this byte.
    fn ends(&self, byte: u8) -> bool {
        let separates = match self.separator {
            Separator::Byte(separator) => byte == separator,
            Separator::Blanks => matches!(byte, b' ' | b'\t'),
        };
        separates || matches!(byte, b'\n' | b'\r')
    }

    /// Returns what follows the end of a field: its separator, or after the last field the line end.
    #[inline]
    fn end<'t>(&self, text: &'t [u8], field: usize) -> Option<&'t [u8]> {
        if self.separator == Separator::Blanks {
            let rest = after_blanks(text);
            if field + 1 < self.fields {
                let more = rest.len() < text.len() && !matches!(rest.first(), None | Some(b'\n' | b'\r'));
                return more.then_some(rest);
            }
            return line_end(rest);
        }
        if field + 1 < self.fields {
            return match text {
                [b, after @ ..] if Separator::Byte(*b) == self.separator => Some(after),
                _ => None,
            };
        }
        line_end(text)
    }
}

fn after_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|b| matches!(b, b' ' | b'\t')).count()..]
}

fn line_end(text: &[u8]) -> Option<&[u8]> {
    match text {
        [] => Some(text),
        [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] => Some(after),
        _ => None,
    }
}

/// Number of lines that are not empty. All of them are rows if the block is plain.
pub(super) fn rows(block: &[u8]) -> usize {
    let (mut start, mut rows) = (0, 0);
    for end in memchr_iter(b'\n', block) {
        rows += usize::from(!matches!(block[start..end], [] | [b'\r']));
        start = end + 1;
    }
    rows + usize::from(start < block.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMA: Dialect = Dialect { separator: Separator::Byte(b','), notation: Notation::Open };
    const BLANKS: Dialect = Dialect { separator: Separator::Blanks, notation: Notation::Open };

    fn parsed(layout: Layout<'_>, block: &str) -> Option<(u64, Vec<f64>)> {
        let mut values = vec![0.0; rows(block.as_bytes()) * layout.d];
        layout.parse(block.as_bytes(), &mut values).map(|lines| (lines, values))
    }

    #[test]
    fn plain_rows_are_parsed_and_their_lines_counted() {
        let layout = Layout::new(COMMA, 2, None, 2).unwrap();
        for (block, lines) in [
            ("1,2.5\n3,-4e2\n", 2),
            ("1,2.5\r\n3,-4e2", 2),
            ("\n1, 2.5 \n\r\n\t3 ,-4e2\n\n", 5),
            ("\"1\",\" 2.5\"\n3,\"-4e2\"", 2),
            ("+1.,2.50\n3.0,-400\r\n", 2),
        ] {
            assert_eq!(parsed(layout, block), Some((lines, vec![1.0, 2.5, 3.0, -400.0])), "{block:?}");
        }
        let layout = Layout::new(BLANKS, 2, None, 2).unwrap();
        for block in ["1 2.5\n3\t-4e2\n", "  1 \t 2.5  \r\n\t3 -4e2\t"] {
            assert_eq!(parsed(layout, block), Some((2, vec![1.0, 2.5, 3.0, -400.0])), "{block:?}");
        }
    }

    #[test]
    fn only_the_columns_that_are_read_must_hold_numbers() {
        let slots = [None, Some(1), None, Some(0)];
        let layout = Layout::new(COMMA, 4, Some(&slots), 2).unwrap();
        assert_eq!(parsed(layout, "a b,1,,2\né#,3,NA,4\r\n"), Some((2, vec![2.0, 1.0, 4.0, 3.0])));
        assert_eq!(parsed(layout, "\"a,b\",1,\"\",2\n\"\",3,,4\n"), Some((2, vec![2.0, 1.0, 4.0, 3.0])));
        for block in ["a\r2,1,,2\n", "\"a\rb\",1,,2\n", "a\"b\",1,,2\n", "\"a\"b,1,,2\n"] {
            assert_eq!(parsed(layout, block), None, "{block:?}");
        }
        let layout = Layout::new(BLANKS, 4, Some(&slots), 2).unwrap();
        assert_eq!(parsed(layout, "a 1 - 2\n é# 3 NA 4 \r\n"), Some((2, vec![2.0, 1.0, 4.0, 3.0])));
        for block in ["a 1 - \n", "a 1 \x0c 2\n", "a 1 - 2 5\n"] {
            assert_eq!(parsed(layout, block), None, "{block:?}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_other_reader() {
        let layout = Layout::new(COMMA, 2, None, 2).unwrap();
        for block in [
            "1,2\n3\n",
            "1,2\n3,4,5\n",
            "1,2,\n",
            "1,\n",
            "1,NA\n",
            "1,x\n",
            "1,2\r3,4\n",
            "1,2\r\r\n",
            "1,2\r",
            " \n1,2\n",
            "1,1e999\n",
            "1,2x\n",
            "1,1_000\n",
            "1,0x10\n",
            "1,1e\n",
            "1,.\n",
            "1,--1\n",
            "1 2,3\n",
            "1,2\u{a0}\n",
            "\"1\n2\",3\n",
            "1,\"2\n",
            "1,\"2",
            "\"1\" ,2\n",
            " \"1\",2\n",
            "\"1\"\"\",2\n",
            "1,2\"\n",
            "\"1\"2,3\n",
        ] {
            assert_eq!(parsed(layout, block), None, "{block:?}");
        }
        let long = format!("1,{}\n", "1".repeat(MOST + 1));
        assert_eq!(parsed(layout, &long), None);
        assert!(Layout::new(Dialect { notation: Notation::Known(Decimal::Comma), ..BLANKS }, 2, None, 2).is_none());
        for separator in *b"5e.-+\" \x0c\r\n\0" {
            let dialect = Dialect { separator: Separator::Byte(separator), ..COMMA };
            assert!(Layout::new(dialect, 2, None, 2).is_none(), "{separator}");
        }
    }

    #[test]
    fn missing_values_are_nan_where_that_is_asked_for() {
        for (dialect, blocks) in [
            (COMMA, ["1,\n,2\n", "1,NA\r\n\n\"\",2", "1, \nNULL,2\n"].as_slice()),
            (BLANKS, &["1 NA\n? 2\n", "1\tn/a \n \"\" 2"]),
        ] {
            let layout = Layout::new(dialect, 2, None, 2).unwrap();
            for block in blocks {
                assert_eq!(parsed(layout, block), None, "{block:?}");
                let (_, values) = parsed(layout.with_missing(true), block).unwrap();
                let is_nan: Vec<bool> = values.iter().map(|v| v.is_nan()).collect();
                assert_eq!(
                    (is_nan.as_slice(), values[0], values[3]),
                    ([false, true, true, false].as_slice(), 1.0, 2.0)
                );
            }
            for block in ["1,x\n", "1,2,\n", "1 2 NA\n", "1\n"] {
                assert_eq!(parsed(layout.with_missing(true), block), None, "{block:?}");
            }
        }
    }

    #[test]
    fn words_for_nan_and_infinity_are_numbers() {
        let layout = Layout::new(COMMA, 3, None, 3).unwrap();
        let (_, values) = parsed(layout, "nan,inf,-Infinity\n").unwrap();
        assert!(values[0].is_nan());
        assert_eq!(values[1..], [f64::INFINITY, f64::NEG_INFINITY]);
    }
}
