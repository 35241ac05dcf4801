//! Bytes into UTF-8, as far as that is needed, and words for what is no text at all.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::error::Fault;
use crate::{Problem, content};

/// Bytes that are looked at.
const START: u64 = 4096;

/// The same text as UTF-8, and what its first bytes have that no text has, if they have it. Other encodings of eight bits
/// pass as they are, since numbers look the same in them.
///
/// # Errors
/// Where the first bytes are those of UTF-32, of an archive, or of no text.
pub(super) fn utf8<'a>(mut reader: impl BufRead + 'a) -> Result<(Box<dyn BufRead + 'a>, Option<u8>), Fault> {
    let mut start = Vec::new();
    reader.by_ref().take(START).read_to_end(&mut start)?;
    let big_endian = match start[..] {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            return Err(Problem::Text("text in UTF-32, which is not read: save it as UTF-8".to_owned()).into());
        }
        [0xff, 0xfe, ..] => Some(false),
        [0xfe, 0xff, ..] => Some(true),
        // Without a mark: characters of ASCII in two bytes, the first eight of them.
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

/// The first control character that no text has, where the bytes are not UTF-8 either: both together are rare in text. A
/// table may still have them, so that this explains an error and is none.
fn binary(start: &[u8]) -> Option<u8> {
    // The last character may be cut.
    let is_utf8 = std::str::from_utf8(start).map_or_else(|e| e.error_len().is_none(), |_| true);
    let control = |b: &&u8| b.is_ascii_control() && !matches!(b, b'\t'..=b'\r' | 0x1a | 0x1b);
    if is_utf8 { None } else { start.iter().find(control).copied() }
}

/// Refuses what people take for a table and is none.
fn no_text(start: &[u8]) -> Result<(), Fault> {
    if let Some((_, what)) = content::of_bytes(start) {
        return Err(Problem::Text(format!("not a text table, but {what}")).into());
    }
    // A name in quotes may hold one.
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

/// Bytes as text: as Windows-1252 where they are not UTF-8.
pub(super) fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| windows_1252(bytes).into(), Cow::Borrowed)
}

/// Bytes in Windows-1252, which is what most files with Latin letters have that are not UTF-8. Every byte is a character.
pub(super) fn windows_1252(bytes: &[u8]) -> String {
    /// From 0x80 on, where it differs from Latin-1; bytes that stand for nothing are controls, as browsers have them.
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', //
        '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    let high = |b: u8| HIGH.get(usize::from(b).wrapping_sub(0x80)).copied();
    bytes.iter().map(|&b| high(b).unwrap_or(char::from(b))).collect()
}

/// Reads UTF-16 as UTF-8. A half of a pair and NUL become U+FFFD.
struct Utf16<R> {
    reader: R,
    big_endian: bool,
    /// The first half of a pair whose second is still to come.
    high: Option<u16>,
    /// Characters that the caller had no room for.
    ready: Vec<u8>,
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // What was read may be half a pair alone, and nothing given would mean the end.
        while self.ready.is_empty() && !out.is_empty() && self.refill()? {}
        let n = self.ready.len().min(out.len());
        out[..n].copy_from_slice(&self.ready[..n]);
        self.ready.drain(..n);
        Ok(n)
    }
}

impl<R: Read> Utf16<R> {
    /// Whether there was anything to read.
    fn refill(&mut self) -> io::Result<bool> {
        // At most 3 bytes of UTF-8 for 2 of these.
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
            // Text with a NUL in it would be refused once it is written and read again.
            let c = c.ok().filter(|&c| c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER);
            self.ready.extend_from_slice(c.encode_utf8(&mut room).as_bytes());
        }
        Ok(!ended)
    }
}
