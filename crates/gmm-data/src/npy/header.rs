//! The header of an npy file: a magic word, a version, and a Python dictionary written as text.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. It is parsed here rather than by
//! ndarray-npy, so that every error can name the byte offset and the unsupported type.

use std::io::Read;

use super::grid::Grid;
use crate::Problem;
use crate::error::{Fault, one_line};

/// The parsed header.
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: Vec<usize>,
    /// Number of values: the product of the shape.
    pub(super) count: usize,
    /// Byte offset of the first value.
    pub(super) offset: u64,
}

/// The supported types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F2,
    F4,
    F8,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    Bool,
}

impl Kind {
    pub(super) const fn size(self) -> usize {
        match self {
            Self::I1 | Self::U1 | Self::Bool => 1,
            Self::F2 | Self::I2 | Self::U2 => 2,
            Self::F4 | Self::I4 | Self::U4 => 4,
            Self::F8 | Self::I8 | Self::U8 => 8,
        }
    }
}

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header in bytes. NumPy writes less than 10 kB, and by default reads no more; the structured types that need
/// long headers are not supported.
const LONGEST: usize = 1 << 20;

impl Header {
    /// Reads and checks the header, leaving the reader at the first value.
    pub(super) fn read(reader: &mut impl Read) -> Result<Self, Fault> {
        let start = take(reader, 8, 0)?;
        if &start[..6] != MAGIC {
            return Err(Fault::corrupt(0, "no npy header"));
        }
        let (len, offset) = match start[6] {
            1 => (u32::from(u16::from_le_bytes(take(reader, 2, 8)?.try_into().expect("two bytes"))), 10),
            2 | 3 => (u32::from_le_bytes(take(reader, 4, 8)?.try_into().expect("four bytes")), 12),
            version => return Err(Fault::corrupt(6, format!("npy version {version} is not known"))),
        };
        if len as usize > LONGEST {
            return Err(Fault::corrupt(8, format!("a header of {len} bytes is not plausible")));
        }
        let text = take(reader, len as usize, offset)?;
        Self::parse(&text, offset)
    }

    /// Checks that the file of `len` bytes has the promised values and no more.
    pub(super) fn check_length(&self, len: u64) -> Result<(), Fault> {
        let bytes = self.count as u64 * self.kind.size() as u64;
        let end = self.offset.saturating_add(bytes);
        if len < end {
            let found = len.saturating_sub(self.offset);
            let why = format!("the header promises {bytes} bytes of values, the file has {found}");
            return Err(Fault::corrupt(len, why));
        }
        if len > end {
            return Err(Fault::corrupt(end, format!("{} bytes after the last value", len - end)));
        }
        Ok(())
    }

    /// `(n, d)` of a two-dimensional array.
    pub(super) fn shape_of_rows(&self) -> Result<(usize, usize), Problem> {
        match self.shape[..] {
            [n] => Err(Problem::OneDimensional { n }),
            [n, d] => Ok((n, d)),
            _ => Err(Problem::Dimensions { shape: self.shape.clone() }),
        }
    }

    /// The `(n, d)` array and the columns to read.
    pub(super) const fn grid<'a>(&self, (n, d): (usize, usize), columns: Option<&'a [usize]>) -> Grid<'a> {
        // The orders of a single row or column are the same.
        Grid { n, d, fortran: self.fortran && n > 1 && d > 1, columns }
    }

    /// Whether the values are read as `f32`.
    pub(super) const fn is_single(&self) -> bool {
        matches!(self.kind, Kind::F2 | Kind::F4)
    }

    /// The problem of a file that has only `bytes` bytes of values.
    pub(super) fn ends_after(&self, bytes: u64) -> Fault {
        let why = format!("the file ends after {} of {} values", bytes / self.kind.size() as u64, self.count);
        Fault::corrupt(self.offset + bytes, why)
    }

    fn parse(text: &[u8], offset: u64) -> Result<Self, Fault> {
        let mut p = Parser { text, at: 0, offset };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        p.expect(b'{')?;
        while !p.eat(b'}') {
            let key = p.string()?;
            p.expect(b':')?;
            match &key[..] {
                b"descr" => descr = Some((p.place(), p.descr()?)),
                b"fortran_order" => fortran = Some(p.boolean()?),
                b"shape" => shape = Some(p.tuple()?),
                _ => return Err(p.wrong("unknown key in the header")),
            }
            if !p.eat(b',') {
                p.expect(b'}')?;
                break;
            }
        }
        let (Some((place, descr)), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err(Fault::corrupt(offset, "header lacks descr, fortran_order or shape"));
        };
        let (kind, big_endian) = kind(&descr).map_err(|problem| Fault::from(problem).offset(place))?;
        let count = shape
            .iter()
            .try_fold(1usize, |product, &n| product.checked_mul(n))
            .filter(|count| count.checked_mul(8).is_some_and(|bytes| bytes < isize::MAX as usize))
            .ok_or_else(|| Fault::corrupt(offset, format!("shape {shape:?} is too large")))?;
        Ok(Self { kind, big_endian, fortran, shape, count, offset: offset + text.len() as u64 })
    }
}

/// Returns the type that a `descr` names, and whether it is big-endian.
fn kind(descr: &str) -> Result<(Kind, bool), Problem> {
    let refuse = |why: &str| Err(Problem::Type { dtype: one_line(descr), why: why.to_owned() });
    let (order, code) = match descr.as_bytes().first() {
        Some(b'<' | b'>' | b'|' | b'=') => descr.split_at(1),
        _ => ("<", descr),
    };
    let kind = match code {
        "f2" => Kind::F2,
        "f4" => Kind::F4,
        "f8" => Kind::F8,
        "i1" => Kind::I1,
        "i2" => Kind::I2,
        "i4" => Kind::I4,
        "i8" => Kind::I8,
        "u1" => Kind::U1,
        "u2" => Kind::U2,
        "u4" => Kind::U4,
        "u8" => Kind::U8,
        "b1" => Kind::Bool,
        _ => {
            return match code.chars().next() {
                Some('O') => refuse("objects are stored as pickles, which are never loaded; save a.astype('float64')"),
                Some('c') => refuse("complex numbers have no order; save the real and imaginary parts as columns"),
                Some('S' | 'U' | 'a') => refuse("it is text; save numbers"),
                Some('M' | 'm') => refuse("it is a date or duration; save a.astype('float64')"),
                Some('V') => refuse("it is raw memory; save numbers"),
                Some('f') => refuse("float16, float32 and float64 are read; save a.astype('float64')"),
                _ => refuse("floats, integers and booleans are read"),
            };
        }
    };
    Ok((kind, order == ">"))
}

/// Reads exactly `len` bytes; the caller has bounded `len`.
fn take(reader: &mut impl Read, len: usize, offset: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::with_capacity(len);
    reader.by_ref().take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len {
        return Err(Fault::corrupt(offset + bytes.len() as u64, "the file ends inside the npy header"));
    }
    Ok(bytes)
}

/// A parser of the subset of Python literals that NumPy writes.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    offset: u64,
}

impl Parser<'_> {
    const fn place(&self) -> u64 {
        self.offset + self.at as u64
    }

    fn wrong(&self, why: &str) -> Fault {
        Fault::corrupt(self.place(), why)
    }

    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.eat(byte) { Ok(()) } else { Err(self.wrong(&format!("'{}' expected in the header", byte as char))) }
    }

    fn string(&mut self) -> Result<Vec<u8>, Fault> {
        let quote = self.peek().filter(|b| matches!(b, b'\'' | b'"')).ok_or_else(|| self.wrong("string expected"))?;
        let rest = &self.text[self.at + 1..];
        let len = rest.iter().position(|&b| b == quote).ok_or_else(|| self.wrong("string without end"))?;
        self.at += len + 2;
        Ok(rest[..len].to_vec())
    }

    /// Parses the type, a string. A list is the type of a record, which is not supported.
    fn descr(&mut self) -> Result<String, Fault> {
        if self.peek() == Some(b'[') {
            let dtype = one_line(&String::from_utf8_lossy(&self.text[self.at..]));
            let why = "it is a record; save its numeric fields as columns of one array".to_owned();
            return Err(Fault::from(Problem::Type { dtype, why }).offset(self.place()));
        }
        Ok(String::from_utf8_lossy(&self.string()?).into_owned())
    }

    fn boolean(&mut self) -> Result<bool, Fault> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.wrong("True or False expected in the header"))
    }

    fn tuple(&mut self) -> Result<Vec<usize>, Fault> {
        /// NumPy's own limit.
        const MOST: usize = 64;
        self.expect(b'(')?;
        let mut shape = Vec::new();
        while !self.eat(b')') {
            let mut value: Option<usize> = None;
            self.peek();
            while let Some(digit) = self.text.get(self.at).filter(|b| b.is_ascii_digit()) {
                let grown = value.unwrap_or(0).checked_mul(10).and_then(|v| v.checked_add((digit - b'0').into()));
                value = Some(grown.ok_or_else(|| self.wrong("shape is too large"))?);
                self.at += 1;
            }
            // Python 2 wrote long integers with a trailing L.
            self.eat(b'L');
            shape.push(value.ok_or_else(|| self.wrong("number expected in the shape"))?);
            if shape.len() > MOST {
                return Err(self.wrong("too many dimensions"));
            }
            if !self.eat(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }
}
