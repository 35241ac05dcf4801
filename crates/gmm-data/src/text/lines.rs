//! Lines with their numbers, and the fields of a line.

use std::borrow::Cow;
use std::io::{BufRead, ErrorKind};

use memchr::{memchr, memchr_iter, memchr2};

use super::Separator;
use crate::error::Fault;
use crate::{Place, Problem, memory};

/// Yields the lines that are not blank, without their ends, and knows the number of each. A line ends in LF, CR LF or CR.
/// Lines above all others that begin with `#` are comments, as NumPy's `savetxt` writes its header, and are not yielded;
/// but a row may begin with one of Excel's errors, such as `#N/A`.
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
            if !self.begun && is_comment(&self.buffer) {
                // A quote in a comment is no quote.
                self.comment = Some(std::mem::take(&mut self.buffer));
                continue;
            }
            let start = self.read;
            let at_start = |fault: Fault| {
                let place = Place { line: Some(start), ..Place::default() };
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
                // A field with quotes in it is copied.
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

    /// The next line as [`next`](Self::next) gives it, to keep.
    pub(super) fn next_owned(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        let Some((line, _)) = self.next()? else { return Ok(None) };
        Ok(Some((line, std::mem::take(&mut self.buffer))))
    }

    /// The last of the comments above the first line, without its `#`, once that line was read.
    pub(super) fn comment(&self) -> Option<&[u8]> {
        let text = self.comment.as_deref()?.trim_ascii_end();
        Some(text[text.iter().take_while(|&&b| b == b'#').count()..].trim_ascii())
    }

    /// Appends what comes before the next line end, and that; the number of bytes.
    fn append(&mut self) -> Result<usize, Fault> {
        let before = self.buffer.len();
        let mut returned = false;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // What is above this reader says so of compressed and of UTF-16 bytes.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Err(Problem::Corrupt(e.to_string()).into()),
                Err(e) => return Err(e.into()),
            };
            // What follows a carriage return belongs to the line end if it is a line feed.
            let (take, done) = if returned {
                (usize::from(available.first() == Some(&b'\n')), true)
            } else {
                match memchr2(b'\n', b'\r', available) {
                    Some(at) => {
                        returned = available[at] == b'\r';
                        let pair = returned && available.get(at + 1) == Some(&b'\n');
                        // The pair may be cut in two by the buffer's end.
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

/// Whether a line above the first row is a comment. Excel's errors, which a first cell may hold, are none.
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

/// One field, without its quotes and the blanks around them.
pub(super) struct Field<'a> {
    text: Cow<'a, [u8]>,
    pub(super) quoted: bool,
}

impl Field<'_> {
    /// The field as a value: blanks inside its quotes do not count.
    pub(super) fn value(&self) -> &[u8] {
        if self.quoted { self.text.trim_ascii() } else { &self.text }
    }

    /// The field as a name, with the blanks inside its quotes.
    pub(super) fn name(&self) -> &[u8] {
        &self.text
    }
}

/// The fields of one line.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
    /// Whether the line has any quote at all; most have none, and are then split by a plain search.
    quotes: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn new(line: &'a [u8], separator: Separator) -> Self {
        let line = if separator == Separator::Blanks { line.trim_ascii() } else { line };
        Self { rest: Some(line), separator, quotes: memchr(b'"', line).is_some() }
    }

    /// How many there are.
    pub(super) fn number(self) -> usize {
        match (self.rest, self.separator) {
            // A line may have millions: most have no quotes, and need no look at each.
            (Some(rest), Separator::Byte(s)) if !self.quotes => memchr_iter(s, rest).count() + 1,
            _ => self.count(),
        }
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
        Some(Field { text: Cow::Borrowed(field.trim_ascii()), quoted: false })
    }
}

impl<'a> Fields<'a> {
    /// A field that starts with a quote: up to the closing one, two quotes standing for one.
    fn quoted(&mut self, rest: &'a [u8]) -> Field<'a> {
        let (mut at, mut doubled) = (1, false);
        while let Some(next) = memchr(b'"', &rest[at..]) {
            at += next + 1;
            if rest.get(at) != Some(&b'"') {
                break;
            }
            (at, doubled) = (at + 1, true);
        }
        // A quote that closes is the byte before `at`; the line may end without one.
        let closed = at > 1 && rest[at - 1] == b'"';
        let (inner, after) = if closed { (&rest[1..at - 1], at) } else { (&rest[1..], rest.len()) };
        // What stands between the closing quote and the separator belongs to the field, so that it is not lost.
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
