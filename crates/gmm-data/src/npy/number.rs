//! Decodes the values of an npy file.

use half::f16;
use ndarray::LinalgScalar;

use super::header::Kind;
use crate::store::Cell;

/// A type to which values are converted.
pub(super) trait Number: LinalgScalar + Cell {
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
