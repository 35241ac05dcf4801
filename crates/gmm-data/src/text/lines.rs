//! Lines with their numbers, and the fields of a line.

use std::borrow::Cow;
use std::io::{self, BufRead};

use crate::error::Fault;
use crate::{Place, Problem};

/// Yields the lines that are not blank, without their ends, and knows the number of each. Lines above all others that
/// begin with `#` are comments, as NumPy's `savetxt` writes its header, and are not yielded.
///
/// The csv crate counts records rather than lines where lines are blank, and an error must name the line; a table of
/// numbers needs little of what the crate can do.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Number of lines read so far, which is the number, from 1, of the last.
    read: u64,
    /// The last of the comments above the first line that is none, without its `#`.
    comment: Option<Vec<u8>>,
    /// Whether a line that is no comment was found.
    begun: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), read: 0, comment: None, begun: false }
    }

    /// The next line that is not blank, with the number of the line on which it starts. Inside quotes a line goes on
    /// over line breaks; a quote that never closes is an error, since it would swallow the rest of the file.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, Fault> {
        loop {
            self.buffer.clear();
            if self.append()? == 0 {
                return Ok(None);
            }
            if self.read == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
            if !self.begun && self.buffer.starts_with(b"#") {
                // A quote in a comment is no quote.
                self.comment = Some(self.buffer.trim_ascii_end().to_vec());
                continue;
            }
            let start = self.read;
            let mut open = odd_quotes(&self.buffer);
            while open {
                let from = self.buffer.len();
                if self.append()? == 0 {
                    let place = Place { line: Some(start), ..Place::default() };
                    let problem = Problem::Text("a quote that opens here never closes".to_owned());
                    return Err(Fault { place: Box::new(place), problem });
                }
                open ^= odd_quotes(&self.buffer[from..]);
            }
            while self.buffer.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
                self.buffer.pop();
            }
            if self.buffer.iter().any(|b| !b.is_ascii_whitespace()) {
                self.begun = true;
                return Ok(Some((start, &self.buffer)));
            }
        }
    }

    /// The last of the comments above the first line, without its `#`, once that line was read.
    pub(super) fn comment(&self) -> Option<&[u8]> {
        let text = self.comment.as_deref()?;
        Some(text[text.iter().take_while(|&&b| b == b'#').count()..].trim_ascii())
    }

    fn append(&mut self) -> io::Result<usize> {
        let n = self.reader.read_until(b'\n', &mut self.buffer)?;
        self.read += u64::from(n > 0);
        Ok(n)
    }
}

fn odd_quotes(bytes: &[u8]) -> bool {
    bytes.iter().filter(|&&b| b == b'"').count() % 2 == 1
}

/// What stands between two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// One byte.
    Byte(u8),
    /// Any run of blanks and tabs.
    Blanks,
}

/// One field, without its quotes and the blanks around it.
pub(super) struct Field<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) quoted: bool,
}

impl Field<'_> {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The fields of one line.
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
    /// Whether the line has any quote at all; most have none, and are then split by a plain search.
    quotes: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn new(line: &'a [u8], separator: Separator) -> Self {
        let line = if separator == Separator::Blanks { line.trim_ascii() } else { line };
        Self { rest: Some(line), separator, quotes: line.contains(&b'"') }
    }

    /// Splits off what comes before the next separator from `from` on.
    fn split(&mut self, rest: &'a [u8], from: usize) -> &'a [u8] {
        let is_separator = |&b: &u8| match self.separator {
            Separator::Byte(s) => b == s,
            Separator::Blanks => matches!(b, b' ' | b'\t'),
        };
        match rest[from..].iter().position(is_separator) {
            Some(at) => {
                let after = &rest[from + at + 1..];
                self.rest = Some(if self.separator == Separator::Blanks { after.trim_ascii_start() } else { after });
                &rest[..from + at]
            }
            None => {
                self.rest = None;
                rest
            }
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let rest = self.rest.take()?;
        if self.quotes {
            let trimmed = rest.trim_ascii_start();
            // A tab is white space and may be the separator: then there is nothing to trim over.
            let skipped = rest.len() - trimmed.len();
            let clean = self.separator != Separator::Byte(b'\t') || !rest[..skipped].contains(&b'\t');
            if clean && trimmed.first() == Some(&b'"') {
                return Some(self.quoted(trimmed));
            }
        }
        let field = self.split(rest, 0);
        Some(Field { bytes: Cow::Borrowed(field.trim_ascii()), quoted: false })
    }
}

impl<'a> Fields<'a> {
    /// A field that starts with a quote: up to the closing one, two quotes standing for one.
    fn quoted(&mut self, rest: &'a [u8]) -> Field<'a> {
        let mut text = Vec::new();
        let mut at = 1;
        while at < rest.len() {
            if rest[at] == b'"' {
                if rest.get(at + 1) != Some(&b'"') {
                    at += 1;
                    break;
                }
                at += 1;
            }
            text.push(rest[at]);
            at += 1;
        }
        let after = at.min(rest.len());
        // What stands between the closing quote and the separator belongs to the field, so that it is not lost.
        let whole = self.split(rest, after);
        text.extend_from_slice(whole[after..].trim_ascii_end());
        Field { bytes: Cow::Owned(text.trim_ascii().to_vec()), quoted: true }
    }
}
