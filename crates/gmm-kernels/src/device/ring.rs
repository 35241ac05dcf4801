//! A stream of operands that a whole block reads, on its way to shared memory while earlier ones are used.

use super::machine::{copies_arrive, copy_ahead};
use super::thread;
use crate::THREADS;

/// Bytes of an operand: 16 of each lane.
pub const OPERAND: u32 = 512;

/// Operands that are sent for at a time.
pub const TOGETHER: u32 = 8;

/// Operands that are there: what is in use, what follows, and what is on its way.
const PLACES: u32 = 3 * TOGETHER;

/// Some of a stream's operands, which goes from its end to its beginning, in shared memory.
pub struct Ring {
    offset: u32,
    operands: *const u32,
    /// Times [`TOGETHER`] operands in the stream, and which of them is to be sent for next.
    turns: u32,
    next: u32,
    /// The place where that goes.
    to: u32,
    /// The place of the operand that is taken next.
    at: u32,
    /// Operands from there on that are there for all threads.
    there: u32,
}

impl Ring {
    /// Bytes of a block.
    pub const BYTES: u32 = PLACES * OPERAND;

    /// Sends for the first operands of `turns` times [`TOGETHER`]; all threads of the block do.
    ///
    /// # Safety
    /// The operands are a live allocation, 16-byte aligned, which nobody writes in this launch.
    #[inline(always)]
    pub unsafe fn start(offset: u32, operands: *const u32, turns: u32) -> Self {
        let mut ring = Self { offset, operands, turns, next: 0, to: 0, at: 0, there: 0 };
        ring.send();
        ring
    }

    #[inline(always)]
    fn send(&mut self) {
        let t = thread::thread_idx_x();
        let from = self.operands.wrapping_add((self.next as u64 * (TOGETHER * OPERAND / 4) as u64) as usize);
        let (from, to) = (from.wrapping_add(4 * t as usize), self.offset + self.to * OPERAND + 16 * t);
        macro_rules! copy {
            ($($i:literal)*) => {$(
                // SAFETY: the promise made to `start`.
                unsafe { copy_ahead(to + $i * 16 * THREADS, from.wrapping_add(($i * 4 * THREADS) as usize).cast()) };
            )*};
        }
        const { assert!(2 * 16 * THREADS == TOGETHER * OPERAND) };
        copy!(0 1);
        self.next = if self.next + 1 == self.turns { 0 } else { self.next + 1 };
        self.to = if self.to + TOGETHER == PLACES { 0 } else { self.to + TOGETHER };
    }

    /// The place of the first of the `count` operands that follow, at most [`TOGETHER`]; they stay until the next are
    /// taken. All threads of the block take the same.
    #[inline(always)]
    pub fn take(&mut self, count: u32) -> u32 {
        if self.there < count {
            copies_arrive();
            // What each thread waited for is there for all; and what lay where the next go is read by none any more, since
            // nobody is further behind than what is in use.
            thread::sync_threads();
            self.send();
            self.there += TOGETHER;
        }
        let at = self.at;
        self.pass(count);
        at
    }

    /// Passes operands over that are there, or will be after those that are.
    #[inline(always)]
    fn pass(&mut self, count: u32) {
        self.there -= count;
        let at = self.at + count;
        self.at = if at >= PLACES { at - PLACES } else { at };
    }

    /// Passes over what fills the stream up after `count` operands.
    #[inline(always)]
    pub fn rewind(&mut self, count: u32) {
        self.pass((TOGETHER - count % TOGETHER) % TOGETHER);
    }

    /// Where the `i`th operand from a place on is, in bytes.
    #[inline(always)]
    pub fn operand(&self, place: u32, i: u32) -> u32 {
        let at = place + i;
        self.offset + OPERAND * if at >= PLACES { at - PLACES } else { at }
    }

    /// Waits for what is on its way and will not be used.
    #[inline(always)]
    pub fn end(self) {
        copies_arrive();
    }
}
