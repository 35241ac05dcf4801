//! Decodes text to UTF-8 as far as needed, and rejects files that are not text.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::error::Fault;
use crate::{Problem, content};

/// Number of leading bytes that are examined.
const START: u64 = 4096;

/// Returns a reader of the text in UTF-8, and a control character from its first bytes if they look binary (see
/// [`binary`]). UTF-16 is decoded. Other 8-bit encodings pass unchanged, because numbers look the same in them.
///
/// # Errors
/// If the first bytes are UTF-32, an archive, or not text.
pub(super) fn utf8<'a>(mut reader: impl BufRead + 'a) -> Result<(Box<dyn BufRead + 'a>, Option<u8>), Fault> {
    let mut start = Vec::new();
    reader.by_ref().take(START).read_to_end(&mut start)?;
    let big_endian = match start[..] {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            return Err(Problem::Text("text in UTF-32, which is not supported: save it as UTF-8".to_owned()).into());
        }
        [0xff, 0xfe, ..] => Some(false),
        [0xfe, 0xff, ..] => Some(true),
        // UTF-16 without a byte order mark: the first eight characters are ASCII, in two bytes each.
        _ => [false, true].into_iter().find(|&big_endian| {
            let zero = |(at, &b): (usize, &u8)| (b == 0) == ((at % 2 == 0) == big_endian);
            start.len() >= 4 && start.iter().take(16).enumerate().all(zero)
        }),
    };
    if big_endian.is_none() {
        no_text(&start)?;
    }
    let binary = binary(&start).filter(|_| big_endian.is_none());
    let whole = Cursor::new(start).chain(reader);
    let text: Box<dyn BufRead + 'a> = match big_endian {
        Some(big_endian) => Box::new(BufReader::with_capacity(
            1 << 16,
            Utf16 { reader: whole, big_endian, high: None, ready: Vec::new() },
        )),
        None => Box::new(whole),
    };
    Ok((text, binary))
}

/// Returns the first control character that does not occur in text, if the bytes are not UTF-8 either. A text table
/// rarely has both, but it may, so this only explains an error that occurs later.
fn binary(start: &[u8]) -> Option<u8> {
    // The last character may be truncated.
    let is_utf8 = std::str::from_utf8(start).map_or_else(|e| e.error_len().is_none(), |_| true);
    let control = |b: &&u8| b.is_ascii_control() && !matches!(b, b'\t'..=b'\r' | 0x1a | 0x1b);
    if is_utf8 { None } else { start.iter().find(control).copied() }
}

/// Errors if the first bytes are those of another kind of file, or contain a NUL byte outside quotes.
fn no_text(start: &[u8]) -> Result<(), Fault> {
    if let Some((_, what)) = content::of_bytes(start) {
        return Err(Problem::Text(format!("not a text table, but {what}")).into());
    }
    // A quoted name may contain a NUL byte.
    let mut quoted = false;
    let outside = |&b: &u8| {
        quoted ^= b == b'"';
        b == 0 && !quoted
    };
    match start.iter().position(outside) {
        Some(at) => {
            let why = "not text, since it has a NUL byte: is it a binary file, or UTF-16 without a byte order mark?";
            Err(Fault::from(Problem::Text(why.to_owned())).offset(at as u64))
        }
        None => Ok(()),
    }
}

/// Decodes bytes as UTF-8, or as Windows-1252 if they are not valid UTF-8.
pub(super) fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| windows_1252(bytes).into(), Cow::Borrowed)
}

/// Decodes Windows-1252, the usual encoding of text with Latin letters that is not UTF-8. Every byte is a character.
pub(super) fn windows_1252(bytes: &[u8]) -> String {
    /// The characters from 0x80 to 0x9f, where it differs from Latin-1. Unassigned bytes decode to C1 controls, as in
    /// browsers.
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', //
        '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    let high = |b: u8| HIGH.get(usize::from(b).wrapping_sub(0x80)).copied();
    bytes.iter().map(|&b| high(b).unwrap_or(char::from(b))).collect()
}

/// Decodes UTF-16 to UTF-8. Unpaired surrogates and NUL become U+FFFD.
struct Utf16<R> {
    reader: R,
    big_endian: bool,
    /// A high surrogate whose low surrogate has not been read yet.
    high: Option<u16>,
    /// Decoded bytes that have not been returned yet.
    ready: Vec<u8>,
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // A refill may yield only a high surrogate and thus no bytes, but returning 0 bytes would signal the end.
        while self.ready.is_empty() && !out.is_empty() && self.refill()? {}
        let n = self.ready.len().min(out.len());
        out[..n].copy_from_slice(&self.ready[..n]);
        self.ready.drain(..n);
        Ok(n)
    }
}

impl<R: Read> Utf16<R> {
    /// Decodes more input. Returns whether there was any.
    fn refill(&mut self) -> io::Result<bool> {
        // 2 bytes of UTF-16 become at most 3 bytes of UTF-8.
        let mut bytes = Vec::with_capacity(1 << 14);
        self.reader.by_ref().take(1 << 14).read_to_end(&mut bytes)?;
        if bytes.len() % 2 == 1 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "text in UTF-16 ends within a character"));
        }
        let unit = |pair: &[u8]| match self.big_endian {
            true => u16::from_be_bytes([pair[0], pair[1]]),
            false => u16::from_le_bytes([pair[0], pair[1]]),
        };
        let mut units: Vec<u16> = self.high.take().into_iter().chain(bytes.chunks_exact(2).map(unit)).collect();
        let ended = bytes.is_empty();
        if !ended && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            self.high = units.pop();
        }
        let mut room = [0; 4];
        for c in char::decode_utf16(units) {
            // Text with a NUL would be rejected when it is written and read again.
            let c = c.ok().filter(|&c| c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER);
            self.ready.extend_from_slice(c.encode_utf8(&mut room).as_bytes());
        }
        Ok(!ended)
    }
}
