//! A stream of operands that a whole block reads, on its way to shared memory while earlier ones are used.

use super::machine::{copies_arrive, copies_arrive_but, copies_end_group, copy_ahead};
use super::thread;
use crate::THREADS;
use crate::each::each;

/// Bytes of an operand: 16 of each lane.
pub const OPERAND: u32 = 512;

/// Some of a stream's operands, which goes from its end to its beginning, in shared memory: `8*T` are sent for at a time.
///
/// What is taken together lies together. Where it may not end where the ring ends, as it does if all that is taken divides
/// the ring, `MORE` is 8: so many operands of the ring's beginning lie behind its end once more.
///
/// Beside those that are waited for, `LATER` times as many are on their way.
pub struct Ring<const T: usize, const MORE: usize, const LATER: u32> {
    offset: u32,
    operands: *const u32,
    /// Times [`TOGETHER`](Self::TOGETHER) operands in the stream, and which of them is to be sent for next.
    turns: u32,
    next: u32,
    /// The place where that goes.
    to: u32,
    /// The place of the operand that is taken next.
    at: u32,
    /// Operands from there on that are there for all threads.
    there: u32,
}

impl<const T: usize, const MORE: usize, const LATER: u32> Ring<T, MORE, LATER> {
    /// Operands that are sent for at a time.
    pub const TOGETHER: u32 = 8 * T as u32;

    /// Operands that are there: what is in use, which if not all that is taken divides the ring is of two times, what is waited
    /// for next, and what is on its way besides.
    const PLACES: u32 = (if MORE == 0 { 2 } else { 3 } + LATER) * Self::TOGETHER;

    /// Bytes of a block.
    pub const BYTES: u32 = (Self::PLACES + MORE as u32) * OPERAND;

    /// Sends for the first operands of a stream of `count`, which is filled up to a multiple of
    /// [`TOGETHER`](Self::TOGETHER); all threads of the block do.
    ///
    /// # Safety
    /// The operands are a live allocation, 16-byte aligned, which nobody writes in this launch.
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
            // SAFETY: the promise made to `start`.
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

    /// Where the first of the `count` operands that follow is, in bytes, at most 8; the others follow it, and they stay until
    /// the next are taken. All threads of the block take the same.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> u32 {
        if self.there < count {
            // Not for those behind them: their way takes longer than the work on what is there.
            copies_arrive_but::<LATER>();
            // What each thread waited for is there for all; and what lay where the next go is read by none any more, since
            // nobody is further behind than what is in use.
            thread::sync_threads();
            self.send();
            self.there += Self::TOGETHER;
        }
        let at = self.offset + self.at * OPERAND;
        self.pass(count);
        at
    }

    /// Passes operands over that are there, or will be after those that are.
    #[inline(always)]
    fn pass(&mut self, count: u32) {
        self.there -= count;
        let at = self.at + count;
        self.at = if at >= Self::PLACES { at - Self::PLACES } else { at };
    }

    /// Passes over what fills the stream up after `count` operands.
    #[inline(always)]
    pub fn rewind(&mut self, count: u32) {
        self.pass((Self::TOGETHER - count % Self::TOGETHER) % Self::TOGETHER);
    }

    /// Waits for what is on its way and will not be used.
    #[inline(always)]
    pub fn end(self) {
        copies_arrive();
    }
}
