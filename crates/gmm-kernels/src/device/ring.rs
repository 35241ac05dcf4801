//! A stream of operands that a whole block reads, on its way to shared memory while earlier parts are used.

use super::machine::{copies_arrive, copies_arrive_but_last, copies_end_group, copy_ahead};
use super::thread;
use crate::THREADS;

/// Bytes of an operand: 16 of each lane.
pub const OPERAND: u32 = 512;

/// Operands that a part of the stream has at most.
pub const MOST: u32 = 8;

/// Parts that are there at a time: one in use, two on their way.
const PARTS: u32 = 3;

/// Which part follows: where it starts and how many operands it has.
pub trait Stream {
    /// From the first part again after the last.
    fn next(&mut self) -> (u32, u32);
}

/// The parts of a [`Stream`] in shared memory, in turn.
pub struct Ring<S> {
    offset: u32,
    /// The part in use.
    turn: u32,
    operands: *const u32,
    stream: S,
}

impl<S: Stream> Ring<S> {
    /// Bytes of a block.
    pub const BYTES: u32 = PARTS * MOST * OPERAND;

    /// Sends for the first two parts; all threads of the block do.
    ///
    /// # Safety
    /// The operands are a live allocation, 16-byte aligned, which nobody writes in this launch; the stream stays in it,
    /// in parts of at most [`MOST`].
    #[inline(always)]
    pub unsafe fn start(offset: u32, operands: *const u32, stream: S) -> Self {
        let mut ring = Self { offset, turn: 0, operands, stream };
        // SAFETY: the caller's promise.
        unsafe {
            ring.send(0);
            ring.send(1);
        }
        ring
    }

    #[inline(always)]
    unsafe fn send(&mut self, slot: u32) {
        let (first, count) = self.stream.next();
        let from = self.operands.wrapping_add((first * (OPERAND / 4)) as usize);
        let to = self.offset + slot * (MOST * OPERAND);
        let mut i = thread::thread_idx_x();
        while i < count * (OPERAND / 16) {
            // SAFETY: the promise made to `start`.
            unsafe { copy_ahead(to + 16 * i, from.wrapping_add((4 * i) as usize).cast()) };
            i += THREADS;
        }
        copies_end_group();
    }

    /// Where the part that follows is; the one before is given up. All threads of the block do it together.
    #[inline(always)]
    pub fn advance(&mut self) -> u32 {
        copies_arrive_but_last();
        // What each thread waited for is there for all, and the part before the last is read by none any more.
        thread::sync_threads();
        let here = self.turn;
        let free = if here == 0 { PARTS - 1 } else { here - 1 };
        // SAFETY: the promise made to `start`.
        unsafe { self.send(free) };
        self.turn = if here + 1 == PARTS { 0 } else { here + 1 };
        self.offset + here * (MOST * OPERAND)
    }

    /// Waits for what is on its way and will not be used.
    #[inline(always)]
    pub fn end(self) {
        copies_arrive();
    }
}
