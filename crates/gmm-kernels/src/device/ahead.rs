//! Numbers on their way from global to shared memory while earlier ones are used.

use super::machine::{copies_arrive, copy_ahead};
use super::{Shared, thread};
use crate::{Real, THREADS};

/// Slots of 16 bytes, of which each thread has its own: no barrier is needed, and a register neither.
#[derive(Clone, Copy)]
pub struct Ahead {
    /// Of this thread's first slot.
    offset: u32,
}

/// Bytes of a block's slot.
const SLOT: u32 = 16 * THREADS;

impl Ahead {
    /// Bytes of a block for so many slots.
    pub const fn bytes(slots: u32) -> u32 {
        slots * SLOT
    }

    /// Slots that start so many bytes into the block's shared memory, a multiple of 16.
    #[inline(always)]
    pub fn at(offset: u32) -> Self {
        Self { offset: offset + 16 * thread::thread_idx_x() }
    }

    /// Slots that four numbers take.
    pub const fn slots_of_four<T: Real>() -> u32 {
        T::BYTES / 4
    }

    /// Sends for four numbers, into slots from `slot`; what was there has been read and used.
    ///
    /// # Safety
    /// They lie in a live allocation, 16-byte aligned, and nobody writes them in this launch.
    #[inline(always)]
    pub unsafe fn send<T: Real>(self, slot: u32, from: *const T) {
        // SAFETY: the caller's promise.
        unsafe {
            copy_ahead(self.offset + slot * SLOT, from.cast());
            if T::BYTES == 8 {
                copy_ahead(self.offset + (slot + 1) * SLOT, from.wrapping_add(2).cast());
            }
        }
    }

    /// Sends for two numbers, into `slot`.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline(always)]
    pub unsafe fn send2(self, slot: u32, from: *const f64) {
        // SAFETY: the caller's promise.
        unsafe { copy_ahead(self.offset + slot * SLOT, from.cast()) };
    }

    /// Sends for two numbers, to so many bytes into the block's shared memory, a multiple of 16, where all threads may
    /// read them: after [`arrive_shared`](Self::arrive_shared) in this thread and a barrier.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline(always)]
    pub unsafe fn send_shared(to: u32, from: *const f64) {
        // SAFETY: the caller's promise.
        unsafe { copy_ahead(to, from.cast()) };
    }

    /// Waits for all that this thread sent for.
    #[inline(always)]
    pub fn arrive_shared() {
        copies_arrive();
    }

    /// Waits for all that was sent for.
    #[inline(always)]
    pub fn arrive(self) {
        copies_arrive();
    }

    /// Four numbers that arrived.
    #[inline(always)]
    pub fn four<T: Real>(self, slot: u32) -> [T; 4] {
        let at = |slot: u32| self.offset + slot * SLOT;
        if T::BYTES == 8 {
            let ([a, b], [c, d]) = (Shared::at(at(slot)).load2(0), Shared::at(at(slot + 1)).load2(0));
            // `T` is `f64`: nothing is rounded.
            [a, b, c, d].map(T::from_f64)
        } else {
            Shared::at(at(slot)).load4(0)
        }
    }
}

/// Copies to anywhere in shared memory, which a block shares behind its barriers.
pub mod copies {
    use super::{copies_arrive, copy_ahead};
    use crate::device::machine::{copies_arrive_but, copies_end_group, copy_ahead_once};

    /// Sends for 16 bytes.
    ///
    /// # Safety
    /// They lie in a live allocation, 16-byte aligned as is their place, and nobody writes them in this launch.
    #[inline(always)]
    pub unsafe fn send(to: u32, from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { copy_ahead(to, from) };
    }

    /// Waits for all that this thread sent for.
    #[inline(always)]
    pub fn arrive() {
        copies_arrive();
    }

    /// As [`send`], for what a block reads once and no other block of the multiprocessor soon.
    ///
    /// # Safety
    /// As for [`send`].
    #[inline(always)]
    pub unsafe fn send_once(to: u32, from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { copy_ahead_once(to, from) };
    }

    /// Ends a group: what this thread sent for since the last.
    #[inline(always)]
    pub fn end_group() {
        copies_end_group();
    }

    /// Waits for this thread's groups but the `LATER` last.
    #[inline(always)]
    pub fn arrive_but<const LATER: u32>() {
        copies_arrive_but::<LATER>();
    }
}
