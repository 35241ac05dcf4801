//! Tensors of the Open Inference Protocol: JSON and the binary tensor data extension, read and written.
//!
//! <https://github.com/kserve/open-inference-protocol>, and for the extension
//! <https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>.

mod elements;
mod read;
mod write;

pub(crate) use elements::Elements;
pub(crate) use read::{Numbers, Output, Request, Tensor, checked, parse};
pub(crate) use write::{Answer, Values, array, number, text};

/// Types of tensors that hold numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Datatype {
    const ALL: [(&'static str, Self); 11] = [
        ("BOOL", Self::Bool),
        ("UINT8", Self::U8),
        ("UINT16", Self::U16),
        ("UINT32", Self::U32),
        ("UINT64", Self::U64),
        ("INT8", Self::I8),
        ("INT16", Self::I16),
        ("INT32", Self::I32),
        ("INT64", Self::I64),
        ("FP32", Self::F32),
        ("FP64", Self::F64),
    ];

    /// The type of this name in the protocol.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, found)| *found)
    }

    /// Its name in the protocol.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::U8 => "UINT8",
            Self::U16 => "UINT16",
            Self::U32 => "UINT32",
            Self::U64 => "UINT64",
            Self::I8 => "INT8",
            Self::I16 => "INT16",
            Self::I32 => "INT32",
            Self::I64 => "INT64",
            Self::F32 => "FP32",
            Self::F64 => "FP64",
        }
    }

    /// Bytes of an element.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The first value that this type cannot hold, with its index. Every type may have NaN, a missing value; integers beyond
    /// 2⁵³ were rounded when they were read.
    pub(crate) fn unfit(self, values: &[f64]) -> Option<(usize, f64)> {
        let whole = |low: f64, high: f64| move |v: f64| v >= low && v <= high && v.fract() == 0.0;
        let first = |fits: &dyn Fn(f64) -> bool| values.iter().position(|&v| !v.is_nan() && !fits(v));
        let at = match self {
            Self::Bool => first(&whole(0.0, 1.0)),
            Self::U8 => first(&whole(0.0, u8::MAX.into())),
            Self::U16 => first(&whole(0.0, u16::MAX.into())),
            Self::U32 => first(&whole(0.0, u32::MAX.into())),
            Self::U64 => first(&whole(0.0, u64::MAX as f64)),
            Self::I8 => first(&whole(i8::MIN.into(), i8::MAX.into())),
            Self::I16 => first(&whole(i16::MIN.into(), i16::MAX.into())),
            Self::I32 => first(&whole(i32::MIN.into(), i32::MAX.into())),
            Self::I64 => first(&whole(i64::MIN as f64, i64::MAX as f64)),
            Self::F32 => first(&|v| (v as f32).is_finite()),
            Self::F64 => None,
        };
        at.map(|at| (at, values[at]))
    }

    /// The elements in little-endian bytes as `f64`; integers beyond 2⁵³ are rounded.
    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f64> {
        macro_rules! all {
            ($t:ty) => {
                bytes.as_chunks::<{ size_of::<$t>() }>().0.iter().map(|b| <$t>::from_le_bytes(*b) as f64).collect()
            };
        }
        match self {
            Self::Bool => bytes.iter().map(|b| f64::from(u8::from(*b != 0))).collect(),
            Self::U8 => all!(u8),
            Self::U16 => all!(u16),
            Self::U32 => all!(u32),
            Self::U64 => all!(u64),
            Self::I8 => all!(i8),
            Self::I16 => all!(i16),
            Self::I32 => all!(i32),
            Self::I64 => all!(i64),
            Self::F32 => all!(f32),
            Self::F64 => all!(f64),
        }
    }
}
