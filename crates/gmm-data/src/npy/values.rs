//! Reads the values of an npy file, converting them on the fly.

use std::io::Read;

use half::f16;

use super::header::{Header, Kind};
use crate::error::Fault;
use crate::memory;

/// Values in the file's order: `f32` for `f2` and `f4`, `f64` for all other types.
pub(super) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Values {
    /// Size in memory, in bytes.
    pub(super) fn bytes(&self) -> u128 {
        match self {
            Self::F32(values) => size_of_val(&values[..]) as u128,
            Self::F64(values) => size_of_val(&values[..]) as u128,
        }
    }
}

/// Bytes converted at a time; a multiple of every type's size.
const BLOCK: usize = 1 << 18;

/// What is known about a file's length, in bytes, before it is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// The length of a regular file.
    Known(u64),
    /// The length in an archive's directory, which may be wrong.
    Promised(u64),
    Unknown,
}

/// The part of a file after its header.
pub(super) struct Source<'a, R> {
    reader: R,
    header: &'a Header,
    known: bool,
}

impl<'a, R: Read> Source<'a, R> {
    /// Checks the header against the length.
    pub(super) fn new(reader: R, header: &'a Header, length: Length) -> Result<Self, Fault> {
        if let Length::Known(len) | Length::Promised(len) = length {
            let bytes = header.count as u64 * header.kind.size() as u64;
            let end = header.offset.saturating_add(bytes);
            if len < end {
                let why = format!(
                    "the header promises {bytes} bytes of values, the file has {}",
                    len.saturating_sub(header.offset)
                );
                return Err(Fault::corrupt(len, why));
            }
            if len > end {
                return Err(Fault::corrupt(end, format!("{} bytes after the last value", len - end)));
            }
        }
        Ok(Self { reader, header, known: matches!(length, Length::Known(_)) })
    }

    /// Reads all values, in the file's order.
    pub(super) fn read(&mut self) -> Result<Values, Fault> {
        let capacity = if self.known { self.header.count } else { 0 };
        let bytes = self.bytes();
        // Memory is checked once the first block has been read: a stream that ends earlier is reported as truncated,
        // however much its header claims.
        let check = |first: usize| if first == 0 { memory::check(WHAT, bytes) } else { Ok(()) };
        if self.single() {
            let mut out: Vec<f32> = reserve(capacity)?;
            self.blocks(|first, block| {
                check(first)?;
                push(&mut out, block)
            })?;
            Ok(Values::F32(out))
        } else {
            let mut out: Vec<f64> = reserve(capacity)?;
            self.blocks(|first, block| {
                check(first)?;
                push(&mut out, block)
            })?;
            Ok(Values::F64(out))
        }
    }

    /// Reads all values of an `(n, d)` array in Fortran order into row-major order. Only for files of known length.
    pub(super) fn read_transposed(&mut self, n: usize, d: usize) -> Result<Values, Fault> {
        fn place<T: Copy>(out: &mut [T], first: usize, block: &[T], n: usize, d: usize) {
            let (mut row, mut column) = (first % n, first / n);
            for &value in block {
                out[row * d + column] = value;
                row += 1;
                if row == n {
                    (row, column) = (0, column + 1);
                }
            }
        }
        if self.single() {
            let mut out: Vec<f32> = reserve(n * d)?;
            out.resize(n * d, 0.0);
            self.blocks(|first, block| {
                place(&mut out, first, block, n, d);
                Ok(())
            })?;
            Ok(Values::F32(out))
        } else {
            let mut out: Vec<f64> = reserve(n * d)?;
            out.resize(n * d, 0.0);
            self.blocks(|first, block| {
                place(&mut out, first, block, n, d);
                Ok(())
            })?;
            Ok(Values::F64(out))
        }
    }

    /// Size of the converted values in memory, in bytes.
    const fn bytes(&self) -> u128 {
        self.header.count as u128 * if self.single() { 4 } else { 8 }
    }

    const fn single(&self) -> bool {
        matches!(self.header.kind, Kind::F2 | Kind::F4)
    }

    /// Calls `each` for every block, with the index of its first value and its values.
    fn blocks<T: Number>(&mut self, mut each: impl FnMut(usize, &[T]) -> Result<(), Fault>) -> Result<(), Fault> {
        let size = self.header.kind.size();
        let mut bytes = Vec::with_capacity(BLOCK);
        let mut values = Vec::with_capacity(BLOCK / size);
        let mut first = 0;
        while first < self.header.count {
            let count = (self.header.count - first).min(BLOCK / size);
            bytes.clear();
            self.reader.by_ref().take((count * size) as u64).read_to_end(&mut bytes)?;
            if bytes.len() < count * size {
                let end = self.header.offset + (first * size + bytes.len()) as u64;
                let why = format!("the file ends after {} of {} values", first + bytes.len() / size, self.header.count);
                return Err(Fault::corrupt(end, why));
            }
            values.clear();
            T::decode(&bytes, self.header.kind, self.header.big_endian, &mut values);
            each(first, &values)?;
            first += count;
        }
        let mut extra = [0];
        if !self.known && self.reader.read(&mut extra)? != 0 {
            let end = self.header.offset + (self.header.count * size) as u64;
            return Err(Fault::corrupt(end, "bytes after the last value"));
        }
        Ok(())
    }
}

fn reserve<T>(count: usize) -> Result<Vec<T>, Fault> {
    let mut out = Vec::new();
    memory::reserve(&mut out, count, WHAT)?;
    Ok(out)
}

/// Appends a block. Memory is reserved for the values read, never for the number that a header claims.
fn push<T: Copy>(out: &mut Vec<T>, block: &[T]) -> Result<(), Fault> {
    memory::reserve(out, block.len(), WHAT)?;
    out.extend_from_slice(block);
    Ok(())
}

/// The purpose of the memory, for error messages.
const WHAT: &str = "the array";

/// A type to which values are converted.
trait Number: Sized {
    /// Decodes `bytes` as values of type `kind` and appends them to `out`.
    fn decode(bytes: &[u8], kind: Kind, big_endian: bool, out: &mut Vec<Self>);
}

/// Appends values of one type, converted by `$to`.
macro_rules! each {
    ($bytes:ident, $big:ident, $out:ident, $type:ty, $to:expr) => {{
        let (chunks, _) = $bytes.as_chunks::<{ size_of::<$type>() }>();
        if $big {
            $out.extend(chunks.iter().map(|&b| $to(<$type>::from_be_bytes(b))));
        } else {
            $out.extend(chunks.iter().map(|&b| $to(<$type>::from_le_bytes(b))));
        }
    }};
}

impl Number for f32 {
    fn decode(bytes: &[u8], kind: Kind, big: bool, out: &mut Vec<Self>) {
        match kind {
            Kind::F2 => each!(bytes, big, out, f16, f16::to_f32),
            Kind::F4 => each!(bytes, big, out, f32, |v| v),
            _ => unreachable!("other types become f64"),
        }
    }
}

impl Number for f64 {
    fn decode(bytes: &[u8], kind: Kind, big: bool, out: &mut Vec<Self>) {
        match kind {
            Kind::F2 | Kind::F4 => unreachable!("these become f32"),
            Kind::F8 => each!(bytes, big, out, f64, |v| v),
            Kind::I1 => each!(bytes, big, out, i8, Self::from),
            Kind::I2 => each!(bytes, big, out, i16, Self::from),
            Kind::I4 => each!(bytes, big, out, i32, Self::from),
            // As NumPy converts: rounded to nearest if 53 bits are not enough.
            Kind::I8 => each!(bytes, big, out, i64, |v| v as Self),
            Kind::U1 => each!(bytes, big, out, u8, Self::from),
            Kind::U2 => each!(bytes, big, out, u16, Self::from),
            Kind::U4 => each!(bytes, big, out, u32, Self::from),
            Kind::U8 => each!(bytes, big, out, u64, |v| v as Self),
            Kind::Bool => out.extend(bytes.iter().map(|&b| Self::from(u8::from(b != 0)))),
        }
    }
}
