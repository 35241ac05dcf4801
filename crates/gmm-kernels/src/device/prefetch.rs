//! Asynchronous copies from global to shared memory (`cp.async`), in flight while earlier data are used.

use super::machine::{copies_arrive, copy_ahead};
use super::{Shared, thread};
use crate::{Real, THREADS};

/// Prefetch slots of 16 bytes, private to each thread, so that neither a barrier nor a staging register is needed.
#[derive(Clone, Copy)]
pub struct Prefetch {
    /// Byte offset of this thread's first slot.
    offset: u32,
}

/// Bytes that one slot takes for all threads of a block.
const SLOT: u32 = 16 * THREADS;

impl Prefetch {
    /// Bytes of shared memory that a block needs for `slots` slots.
    pub const fn bytes(slots: u32) -> u32 {
        slots * SLOT
    }

    /// Places the slots `offset` bytes into the block's shared memory; `offset` is a multiple of 16.
    #[inline(always)]
    pub fn at(offset: u32) -> Self {
        Self { offset: offset + 16 * thread::thread_idx_x() }
    }

    /// Number of slots that four numbers take.
    pub const fn slots_of_four<T: Real>() -> u32 {
        T::BYTES / 4
    }

    /// Starts copying four numbers into the slots from `slot` on. The slots' previous contents must have been read
    /// already.
    ///
    /// # Safety
    /// The numbers must lie in a live allocation, 16-byte aligned, and nothing may write them in this launch.
    #[inline(always)]
    pub unsafe fn send<T: Real>(self, slot: u32, from: *const T) {
        // SAFETY: the caller upholds `# Safety`: the four numbers at `from` are live, aligned and constant.
        unsafe {
            copy_ahead(self.offset + slot * SLOT, from.cast());
            if T::BYTES == 8 {
                copy_ahead(self.offset + (slot + 1) * SLOT, from.wrapping_add(2).cast());
            }
        }
    }

    /// Starts copying two numbers into `slot`.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline(always)]
    pub unsafe fn send2(self, slot: u32, from: *const f64) {
        // SAFETY: the caller upholds `# Safety`: the two numbers at `from` are live, aligned and constant.
        unsafe { copy_ahead(self.offset + slot * SLOT, from.cast()) };
    }

    /// Starts copying two numbers to byte `to` of the block's shared memory, a multiple of 16. Any thread may read them
    /// after [`arrive_shared`](Self::arrive_shared) in this thread and a barrier.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline(always)]
    pub unsafe fn send_shared(to: u32, from: *const f64) {
        // SAFETY: the caller upholds `# Safety`: the two numbers at `from` are live, aligned and constant.
        unsafe { copy_ahead(to, from.cast()) };
    }

    /// Waits for all copies that this thread started.
    #[inline(always)]
    pub fn arrive_shared() {
        copies_arrive();
    }

    /// Waits for all copies that this thread started.
    #[inline(always)]
    pub fn arrive(self) {
        copies_arrive();
    }

    /// Reads four numbers whose copy has completed.
    #[inline(always)]
    pub fn four<T: Real>(self, slot: u32) -> [T; 4] {
        let at = |slot: u32| self.offset + slot * SLOT;
        if T::BYTES == 8 {
            let ([a, b], [c, d]) = (Shared::at(at(slot)).load2(0), Shared::at(at(slot + 1)).load2(0));
            // `T` is `f64` here, so `from_f64` does not round.
            [a, b, c, d].map(T::from_f64)
        } else {
            Shared::at(at(slot)).load4(0)
        }
    }
}

/// Asynchronous copies to any place in shared memory; a barrier makes them visible to the block.
pub mod copies {
    use super::{copies_arrive, copy_ahead};
    use crate::device::machine::{copies_arrive_but, copies_end_group, copy_ahead_once};

    /// Starts copying 16 bytes.
    ///
    /// # Safety
    /// The bytes must lie in a live allocation, source and destination must be 16-byte aligned, and nothing may write
    /// the source in this launch.
    #[inline(always)]
    pub unsafe fn send(to: u32, from: *const u8) {
        // SAFETY: the caller upholds `# Safety`: the 16 bytes at `from` are live, aligned and constant.
        unsafe { copy_ahead(to, from) };
    }

    /// Waits for all copies that this thread started.
    #[inline(always)]
    pub fn arrive() {
        copies_arrive();
    }

    /// As [`send`], for data that the block reads once and that no other block of the multiprocessor needs soon.
    ///
    /// # Safety
    /// As for [`send`].
    #[inline(always)]
    pub unsafe fn send_once(to: u32, from: *const u8) {
        // SAFETY: the caller upholds `# Safety`: the 16 bytes at `from` are live, aligned and constant.
        unsafe { copy_ahead_once(to, from) };
    }

    /// Ends a group: the copies that this thread started since the previous group.
    #[inline(always)]
    pub fn end_group() {
        copies_end_group();
    }

    /// Waits for all of this thread's copy groups except the last `LATER`.
    #[inline(always)]
    pub fn arrive_but<const LATER: u32>() {
        copies_arrive_but::<LATER>();
    }
}
