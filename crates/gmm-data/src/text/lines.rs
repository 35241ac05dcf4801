//! Splits text into numbered lines, and lines into fields.

use std::borrow::Cow;
use std::io::{BufRead, ErrorKind};

use memchr::{memchr, memchr_iter, memchr2};

use super::Separator;
use crate::error::Fault;
use crate::{Location, Problem, memory};

/// Yields the non-blank lines, without their line ends, and their line numbers. A line ends in LF, CR LF or CR. Leading
/// lines that begin with `#` are comments, as in the header that NumPy's `savetxt` writes, and are not yielded; but a
/// row may begin with an Excel error value such as `#N/A`.
///
/// The csv crate is not used: it counts records rather than lines if some lines are blank, and an error must name the
/// line. A table of numbers needs few of its features.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Number of lines read so far, which is the last line's number, counted from 1.
    read: u64,
    /// The last comment above the first line that is not a comment.
    comment: Option<Vec<u8>>,
    /// Whether a line that is not a comment was found.
    begun: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), read: 0, comment: None, begun: false }
    }

    /// The reader, at the start of the next line.
    pub(super) const fn reader(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Counts lines that were read from [`reader`](Self::reader).
    pub(super) const fn count(&mut self, lines: u64) {
        self.read += lines;
    }

    /// Returns the next non-blank line and the number of the line on which it starts. A quoted field may span line
    /// breaks. A quote that is never closed is an error, since it would swallow the rest of the file.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, Fault> {
        loop {
            self.buffer.clear();
            if self.append()? == 0 {
                return Ok(None);
            }
            if self.read == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
            if !self.begun && is_comment(&self.buffer) {
                // Quotes in a comment have no meaning.
                self.comment = Some(std::mem::take(&mut self.buffer));
                continue;
            }
            let start = self.read;
            let at_start = |fault: Fault| {
                let place = Location { line: Some(start), ..Location::default() };
                Fault { place: Box::new(place), problem: fault.problem }
            };
            let mut quotes = quotes(&self.buffer);
            let quoted = quotes > 0;
            while quotes % 2 == 1 {
                let from = self.buffer.len();
                if self.append().map_err(at_start)? == 0 {
                    return Err(at_start(Problem::Text("a quote that opens here never closes".to_owned()).into()));
                }
                quotes += self::quotes(&self.buffer[from..]);
            }
            if quoted {
                // A field that contains doubled quotes will be copied.
                memory::check("a line with quotes", self.buffer.len() as u128).map_err(|e| at_start(e.into()))?;
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

    /// As [`next`](Self::next), but returns an owned line.
    pub(super) fn next_owned(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        let Some((line, _)) = self.next()? else { return Ok(None) };
        Ok(Some((line, std::mem::take(&mut self.buffer))))
    }

    /// The last comment above the first line, without its `#`. Valid once that line has been read.
    pub(super) fn comment(&self) -> Option<&[u8]> {
        let text = self.comment.as_deref()?.trim_ascii_end();
        Some(text[text.iter().take_while(|&&b| b == b'#').count()..].trim_ascii())
    }

    /// Appends everything up to and including the next line end to the buffer. Returns the number of bytes appended.
    fn append(&mut self) -> Result<usize, Fault> {
        let before = self.buffer.len();
        let mut returned = false;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // The decoders below this reader report truncated compressed or UTF-16 data this way.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Err(Problem::Corrupt(e.to_string()).into()),
                Err(e) => return Err(e.into()),
            };
            // A line feed directly after a carriage return belongs to the same line end.
            let (take, done) = if returned {
                (usize::from(available.first() == Some(&b'\n')), true)
            } else {
                match memchr2(b'\n', b'\r', available) {
                    Some(at) => {
                        returned = available[at] == b'\r';
                        let pair = returned && available.get(at + 1) == Some(&b'\n');
                        // The buffer may end between the two bytes of the pair.
                        (at + 1 + usize::from(pair), !returned || at + 1 < available.len())
                    }
                    None => (available.len(), available.is_empty()),
                }
            };
            memory::reserve(&mut self.buffer, take, "a line of text")?;
            self.buffer.extend_from_slice(&available[..take]);
            self.reader.consume(take);
            if done {
                break;
            }
        }
        let n = self.buffer.len() - before;
        self.read += u64::from(n > 0);
        Ok(n)
    }
}

fn quotes(bytes: &[u8]) -> usize {
    memchr_iter(b'"', bytes).count()
}

/// Whether a line above the first row is a comment. Excel's error values, which a first cell may contain, are not.
pub(super) fn is_comment(line: &[u8]) -> bool {
    const ERRORS: [&[u8]; 8] = [b"#N/A", b"#NA", b"#DIV/0!", b"#VALUE!", b"#REF!", b"#NUM!", b"#NAME?", b"#NULL!"];
    let cell = |error: &&[u8]| {
        let rest = line.strip_prefix(*error);
        rest.is_some_and(|rest| {
            rest.first().is_none_or(|b| matches!(b, b',' | b';' | b'\t' | b' ' | b'|' | b'\r' | b'\n'))
        })
    };
    line.starts_with(b"#") && !ERRORS.iter().any(cell)
}

/// One field, without its quotes and the blanks around it.
pub(super) struct Field<'a> {
    text: Cow<'a, [u8]>,
    pub(super) quoted: bool,
}

impl Field<'_> {
    /// The field as a value: blanks at the ends inside quotes are trimmed.
    pub(super) fn value(&self) -> &[u8] {
        if self.quoted { self.text.trim_ascii() } else { &self.text }
    }

    /// The field as a name: blanks inside quotes are kept.
    pub(super) fn name(&self) -> &[u8] {
        &self.text
    }
}

/// The fields of one line.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
    /// Whether the line contains any quote. Most lines do not, and are split by a plain search.
    quotes: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn new(line: &'a [u8], separator: Separator) -> Self {
        let line = if separator == Separator::Blanks { line.trim_ascii() } else { line };
        Self { rest: Some(line), separator, quotes: memchr(b'"', line).is_some() }
    }

    /// Number of fields.
    pub(super) fn number(self) -> usize {
        match (self.rest, self.separator) {
            // A line may have millions of fields. Without quotes, counting the separators is enough.
            (Some(rest), Separator::Byte(s)) if !self.quotes => memchr_iter(s, rest).count() + 1,
            _ => self.count(),
        }
    }

    /// Splits at the first separator at or after `from`, and returns the part before it.
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
            // A tab is white space but may be the separator, in which case it must not be trimmed.
            let skipped = rest.len() - trimmed.len();
            let clean = self.separator != Separator::Byte(b'\t') || !rest[..skipped].contains(&b'\t');
            if clean && trimmed.first() == Some(&b'"') {
                return Some(self.quoted(trimmed));
            }
        }
        let field = self.split(rest, 0);
        Some(Field { text: Cow::Borrowed(field.trim_ascii()), quoted: false })
    }
}

impl<'a> Fields<'a> {
    /// Parses a field that starts with a quote, up to the closing quote; a doubled quote stands for one.
    fn quoted(&mut self, rest: &'a [u8]) -> Field<'a> {
        let (mut at, mut doubled) = (1, false);
        while let Some(next) = memchr(b'"', &rest[at..]) {
            at += next + 1;
            if rest.get(at) != Some(&b'"') {
                break;
            }
            (at, doubled) = (at + 1, true);
        }
        // The closing quote is the byte before `at`; the line may also end without one.
        let closed = at > 1 && rest[at - 1] == b'"';
        let (inner, after) = if closed { (&rest[1..at - 1], at) } else { (&rest[1..], rest.len()) };
        // Text between the closing quote and the separator is kept as part of the field, so that it is not lost.
        let more = self.split(rest, after)[after..].trim_ascii_end();
        if !doubled && more.is_empty() {
            return Field { text: Cow::Borrowed(inner), quoted: true };
        }
        let mut text = Vec::with_capacity(inner.len() + more.len());
        let mut last = 0;
        for quote in memchr_iter(b'"', inner).skip(1).step_by(2) {
            text.extend_from_slice(&inner[last..quote]);
            last = quote + 1;
        }
        text.extend_from_slice(&inner[last..]);
        text.extend_from_slice(more);
        Field { text: Cow::Owned(text), quoted: true }
    }
}
