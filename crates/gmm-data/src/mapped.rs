//! Values of a mapped file, as the owner of a matrix.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::{Pod, cast_slice, try_cast_slice};
use memmap2::Mmap;

/// A mapped file that holds values of type `T` at `bytes`, aligned.
pub(crate) struct MappedValues<T> {
    map: Mmap,
    bytes: Range<usize>,
    of: PhantomData<T>,
}

impl<T: Pod> MappedValues<T> {
    /// `None` if the file is shorter, or the values are not aligned.
    pub(crate) fn new(map: Mmap, bytes: Range<usize>) -> Option<Self> {
        try_cast_slice::<u8, T>(map.get(bytes.clone())?).ok()?;
        Some(Self { map, bytes, of: PhantomData })
    }
}

impl<T: Pod> AsRef<[T]> for MappedValues<T> {
    fn as_ref(&self) -> &[T] {
        cast_slice(&self.map[self.bytes.clone()])
    }
}
