//! Tensors of the Open Inference Protocol: JSON and the binary tensor data extension, read and written.
//!
//! <https://github.com/kserve/open-inference-protocol>, and for the extension
//! <https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>.

mod elements;
mod read;
mod write;

pub(crate) use elements::Elements;
pub(crate) use read::{Numbers, Request, Tensor, checked, parse};
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
