//! Buffers that are taken from the device's [pool](super::pool), and return to it when they are dropped.

use std::marker::PhantomData;
use std::sync::Arc;

use cust::memory::bytemuck::{Pod, cast_slice, cast_slice_mut};
use cust::memory::{DeviceBuffer, DeviceCopy, DevicePointer, DeviceSlice, LockedBuffer};

use super::device::Gpu;
use super::pool::Pool;
use crate::Error;

/// A device buffer that grows: it is replaced if a longer one is needed.
pub(crate) struct Slot<A: DeviceCopy> {
    block: Option<(DeviceBuffer<u8>, Arc<Pool>)>,
    numbers: PhantomData<A>,
}

impl<A: DeviceCopy> Slot<A> {
    pub(crate) const fn empty() -> Self {
        Self { block: None, numbers: PhantomData }
    }

    /// Takes a buffer of `len` elements for the purpose `what`, which error messages name.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn taken(gpu: &Gpu, what: &'static str, len: usize) -> Result<Self, Error> {
        let mut slot = Self::empty();
        if len > 0 {
            let bytes = len.saturating_mul(size_of::<A>());
            slot.block = Some((gpu.take_memory(what, bytes)?, gpu.pool.clone()));
        }
        Ok(slot)
    }

    /// Allocated bytes.
    pub(crate) fn bytes(&self) -> u128 {
        self.block.as_ref().map_or(0, |(block, _)| block.len() as u128)
    }

    /// Capacity in elements.
    pub(crate) fn room(&self) -> usize {
        self.block.as_ref().map_or(0, |(block, _)| block.len() / size_of::<A>())
    }

    /// The first `len` elements.
    pub(crate) fn first(&self, len: usize) -> DeviceSlice<A> {
        assert!(len <= self.room(), "{len} of {} elements", self.room());
        let start = self.block.as_ref().map_or(DevicePointer::null(), |(block, _)| block.as_device_ptr().cast());
        // SAFETY: the range is within the block, which starts 256-byte aligned. `launch` explains why the block
        // outlives the slice.
        unsafe { DeviceSlice::from_raw_parts(start, len) }
    }

    /// Makes room for at least `len` elements. If the buffer is replaced, its content is lost.
    ///
    /// # Errors
    /// As for [`taken`](Self::taken).
    pub(crate) fn reserve(&mut self, gpu: &Gpu, len: usize) -> Result<(), Error> {
        if len > self.room() {
            // Frees the old block first: both may not fit.
            *self = Self::empty();
            *self = Self::taken(gpu, crate::cuda::rows::workspace::WHAT, len)?;
        }
        Ok(())
    }
}

impl<A: DeviceCopy> Drop for Slot<A> {
    fn drop(&mut self) {
        if let Some((block, pool)) = self.block.take() {
            pool.leave_device(block);
        }
    }
}

/// Pinned host memory: copies to and from it run asynchronously in the stream.
pub(crate) struct Pinned<A: Pod> {
    block: Option<(LockedBuffer<u64>, Arc<Pool>)>,
    len: usize,
    numbers: PhantomData<A>,
}

impl<A: Pod> Pinned<A> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// All elements. Their initial content is unspecified.
    pub(crate) fn as_slice(&self) -> &[A] {
        let words = self.block.as_ref().map_or(&[][..], |(block, _)| block.as_slice());
        &cast_slice(words)[..self.len]
    }

    /// The first `len` elements at their device address (unified addressing). For a few numbers that a kernel writes
    /// directly to host memory: they are valid after the stream has been waited for, without a copy.
    pub(crate) fn on_device(&self, len: usize) -> DeviceSlice<A>
    where
        A: DeviceCopy,
    {
        let start = &self.as_slice()[..len];
        // SAFETY: the range is within the block. `launch` explains why the block outlives the slice.
        unsafe { DeviceSlice::from_raw_parts(DevicePointer::from_raw(start.as_ptr() as u64), len) }
    }

    /// All elements, mutably.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [A] {
        let words = self.block.as_mut().map_or(&mut [][..], |(block, _)| block.as_mut_slice());
        &mut cast_slice_mut(words)[..self.len]
    }
}

impl<A: Pod> Drop for Pinned<A> {
    fn drop(&mut self) {
        if let Some((block, pool)) = self.block.take() {
            pool.leave_pinned(block);
        }
    }
}

pub(crate) const fn pinned_empty<A: Pod>() -> Pinned<A> {
    Pinned { block: None, len: 0, numbers: PhantomData }
}

/// Makes a pinned buffer at least `len` elements long. If it is replaced, its content is lost.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn pin<A: Pod>(gpu: &Gpu, buffer: &mut Pinned<A>, len: usize) -> Result<(), Error> {
    if len > buffer.len {
        *buffer = pinned_empty();
        let block = gpu.take_pinned(len.saturating_mul(size_of::<A>()))?;
        buffer.len = 8 * block.len() / size_of::<A>();
        buffer.block = Some((block, gpu.pool.clone()));
    }
    Ok(())
}
