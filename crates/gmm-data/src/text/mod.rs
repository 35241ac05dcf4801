//! Text tables: csv, tsv and similar formats.

mod advice;
mod block;
mod blocks;
mod dialect;
mod doubts;
mod encoding;
mod head;
mod lines;
mod number;
mod read;
#[cfg(test)]
mod tests;
mod thousands;
mod unread;
mod words;
mod write;

pub(crate) use read::read;
pub(crate) use words::read_words;
pub(crate) use write::{write_column, write_table};

/// The field separator of a text table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// One ASCII character.
    Byte(u8),
    /// Any run of blanks and tabs.
    Blanks,
}

impl std::str::FromStr for Separator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let byte = match text {
            "comma" => b',',
            "semicolon" => b';',
            "tab" | "\\t" => b'\t',
            "bar" | "pipe" => b'|',
            " " | "blank" | "blanks" | "space" | "spaces" => return Ok(Self::Blanks),
            _ => match text.as_bytes() {
                // Characters that are part of numbers, or have another meaning, cannot be separators.
                &[b] if b.is_ascii() && !b.is_ascii_alphanumeric() && !b"\"'.+-#\r\n\0".contains(&b) => b,
                _ => return Err("it must be one character, such as ',' ';' '|' or ':', but no letter, digit, quote or one of . + - #; or tab or blank".to_owned()),
            },
        };
        Ok(Self::Byte(byte))
    }
}

/// The decimal sign of the numbers in a text table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// `1.5`
    Point,
    /// `1,5`
    Comma,
}

impl std::str::FromStr for Decimal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "." | "point" => Ok(Self::Point),
            "," | "comma" => Ok(Self::Comma),
            _ => Err("it must be '.' or ','".to_owned()),
        }
    }
}
