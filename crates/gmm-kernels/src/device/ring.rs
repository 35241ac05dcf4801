//! A ring buffer in shared memory for a stream of operands that the whole block reads; later operands are in flight
//! while earlier ones are used.

use super::machine::{copies_arrive, copies_arrive_but, copies_end_group, copy_ahead};
use super::thread;
use crate::THREADS;
use crate::each::each;

/// Bytes of an operand: 16 per lane.
pub const OPERAND: u32 = 512;

/// A window of the operand stream in shared memory. The stream wraps around from its end to its beginning, and `8*T`
/// operands are copied at a time.
///
/// Operands that are taken together are contiguous. If every count that is taken divides the length of the ring, no
/// such group crosses the end of the ring, and `MORE` is 0. Otherwise `MORE` is 8: the first 8 operands of the ring are
/// stored again behind its end.
///
/// In addition to the batch that is waited for, `LATER` batches are in flight.
pub struct Ring<const T: usize, const MORE: usize, const LATER: u32> {
    offset: u32,
    operands: *const u32,
    /// Length of the stream in batches of [`TOGETHER`](Self::TOGETHER) operands, and the batch to copy next.
    turns: u32,
    next: u32,
    /// Ring slot where the next batch goes.
    to: u32,
    /// Ring slot of the operand that is taken next.
    at: u32,
    /// Number of operands from that slot on that are visible to all threads.
    there: u32,
}

impl<const T: usize, const MORE: usize, const LATER: u32> Ring<T, MORE, LATER> {
    /// Operands in a batch, which are copied together.
    pub const TOGETHER: u32 = 8 * T as u32;

    /// Operands in the ring: those in use (which span two batches if the counts taken do not divide the ring), the
    /// batch that is waited for next, and `LATER` batches in flight.
    const PLACES: u32 = (if MORE == 0 { 2 } else { 3 } + LATER) * Self::TOGETHER;

    /// Bytes of shared memory that a block needs.
    pub const BYTES: u32 = (Self::PLACES + MORE as u32) * OPERAND;

    /// Starts copying the first operands of a stream of `count` operands, which is padded to a multiple of
    /// [`TOGETHER`](Self::TOGETHER). All threads of the block must call this.
    ///
    /// # Safety
    /// The operands must lie in a live allocation, 16-byte aligned, and nothing may write them in this launch.
    #[inline(always)]
    pub unsafe fn start(offset: u32, operands: *const u32, count: u32) -> Self {
        let turns = count.div_ceil(Self::TOGETHER);
        let mut ring = Self { offset, operands, turns, next: 0, to: 0, at: 0, there: 0 };
        each(1 + LATER as usize, |_| ring.send());
        ring
    }

    #[inline(always)]
    fn send(&mut self) {
        let t = thread::thread_idx_x();
        let from = self.operands.wrapping_add((self.next as u64 * (Self::TOGETHER * OPERAND / 4) as u64) as usize);
        let (from, to) = (from.wrapping_add(4 * t as usize), self.offset + self.to * OPERAND + 16 * t);
        let copy = |i: usize, to: u32| {
            // SAFETY: the operands are live, aligned and constant as `start` requires, and `next < turns` stays within
            // them.
            unsafe { copy_ahead(to + i as u32 * 16 * THREADS, from.wrapping_add(i * 4 * THREADS as usize).cast()) };
        };
        each(2 * T, |i| copy(i, to));
        if MORE > 0 && self.to == 0 {
            each(2, |i| copy(i, to + Self::PLACES * OPERAND));
        }
        const { assert!(16 * THREADS * 2 == 8 * OPERAND && (MORE == 0 || MORE == 8)) };
        copies_end_group();
        self.next = if self.next + 1 == self.turns { 0 } else { self.next + 1 };
        self.to = if self.to + Self::TOGETHER == Self::PLACES { 0 } else { self.to + Self::TOGETHER };
    }

    /// Returns the byte position of the next `count` operands, at most 8. They are contiguous, and remain valid until
    /// the next call. All threads of the block must pass the same `count`.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> u32 {
        if self.there < count {
            // Leave the `LATER` later batches in flight: they take longer than the work on the current operands.
            copies_arrive_but::<LATER>();
            // After the barrier, the batch that each thread waited for is visible to all, and no thread still reads the
            // slots that the next batch overwrites: the slowest thread is still within the operands in use.
            thread::sync_threads();
            self.send();
            self.there += Self::TOGETHER;
        }
        let at = self.offset + self.at * OPERAND;
        self.pass(count);
        at
    }

    /// Advances past `count` operands.
    #[inline(always)]
    fn pass(&mut self, count: u32) {
        self.there -= count;
        let at = self.at + count;
        self.at = if at >= Self::PLACES { at - Self::PLACES } else { at };
    }

    /// Skips the padding after the `count` operands of the stream.
    #[inline(always)]
    pub fn rewind(&mut self, count: u32) {
        self.pass((Self::TOGETHER - count % Self::TOGETHER) % Self::TOGETHER);
    }

    /// Waits for copies that are in flight and will not be used.
    #[inline(always)]
    pub fn end(self) {
        copies_arrive();
    }
}
