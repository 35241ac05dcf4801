//! The numbers of a tensor, which stay in the body of their request if they are there as they are used.

use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;

use super::Datatype;

/// Numbers in row-major order.
#[derive(Clone, Debug)]
pub(crate) enum Elements {
    Own(Vec<f64>),
    /// Numbers of this machine at an address that they may have.
    InBody(Bytes),
    /// As `InBody`, of `f32`, and the same numbers as `f64` once they are asked for.
    Singles(Bytes, OnceLock<Vec<f64>>),
}

impl Elements {
    /// The numbers of this type in little-endian bytes, without a copy if they are `f64` of this machine.
    pub(crate) fn decode(datatype: Datatype, bytes: Bytes) -> Self {
        let is_own = datatype == Datatype::F64 && cfg!(target_endian = "little");
        if is_own && bytemuck::try_cast_slice::<u8, f64>(&bytes).is_ok() {
            return Self::InBody(bytes);
        }
        let is_single = datatype == Datatype::F32 && cfg!(target_endian = "little");
        if is_single && bytemuck::try_cast_slice::<u8, f32>(&bytes).is_ok() {
            return Self::Singles(bytes, OnceLock::new());
        }
        Self::Own(datatype.decode(&bytes))
    }

    /// How many they are, which needs no conversion.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(values) => values.len(),
            Self::InBody(bytes) => bytes.len() / size_of::<f64>(),
            Self::Singles(bytes, _) => bytes.len() / size_of::<f32>(),
        }
    }

    /// The same numbers, if they are in the body.
    pub(crate) fn in_body(&self) -> Option<Self> {
        match self {
            Self::InBody(bytes) => Some(Self::InBody(bytes.clone())),
            Self::Own(_) | Self::Singles(..) => None,
        }
    }

    /// The numbers as `f32`, if they came as such, and what owns them.
    pub(crate) fn into_singles(self) -> Result<Singles, Self> {
        match self {
            Self::Singles(bytes, _) => Ok(Singles(bytes)),
            other => Err(other),
        }
    }

    /// The numbers as `f32`, if they came as such.
    pub(crate) fn singles(&self) -> Option<&[f32]> {
        match self {
            Self::Singles(bytes, _) => Some(bytemuck::cast_slice(bytes)),
            Self::Own(_) | Self::InBody(_) => None,
        }
    }
}

/// Numbers of type `f32` in the body of their request.
pub(crate) struct Singles(Bytes);

impl AsRef<[f32]> for Singles {
    fn as_ref(&self) -> &[f32] {
        // `decode` looked at the address.
        bytemuck::cast_slice(&self.0)
    }
}

impl Default for Elements {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl From<Vec<f64>> for Elements {
    fn from(values: Vec<f64>) -> Self {
        Self::Own(values)
    }
}

impl Deref for Elements {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        match self {
            Self::Own(values) => values,
            // Bytes do not move.
            Self::InBody(bytes) => bytemuck::cast_slice(bytes),
            Self::Singles(bytes, wide) => wide.get_or_init(|| Datatype::F32.decode(bytes)),
        }
    }
}

impl AsRef<[f64]> for Elements {
    fn as_ref(&self) -> &[f64] {
        self
    }
}

impl PartialEq for Elements {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_the_body_at_an_address_that_they_may_have() {
        let values: Vec<f64> = (0..9).map(f64::from).collect();
        let mut body = bytes::BytesMut::with_capacity(128);
        let at = body.as_ptr().align_offset(8);
        for shift in 0..8 {
            body.clear();
            body.resize(at + shift, 0);
            values.iter().for_each(|v| body.extend_from_slice(&v.to_le_bytes()));
            let bytes = Bytes::copy_from_slice(&body);
            let aligned = bytes.as_ptr().align_offset(8);
            let whole = bytes.slice(at + shift..);
            let found = Elements::decode(Datatype::F64, whole);
            let is_in_place = matches!(found, Elements::InBody(_));
            assert_eq!(is_in_place, (at + shift) % 8 == aligned && cfg!(target_endian = "little"));
            assert_eq!(*found, *values);
        }
        let singles = Bytes::from(values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect::<Vec<_>>());
        let found = Elements::decode(Datatype::F32, singles);
        assert!(found.len() == 9 && matches!(&found, Elements::Singles(_, wide) if wide.get().is_none()));
        assert_eq!(*found, *values);
        assert_eq!(found.singles().map(<[f32]>::len), Some(9));
    }
}
