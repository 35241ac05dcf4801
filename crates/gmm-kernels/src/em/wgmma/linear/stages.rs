//! A pipeline through shared memory: pieces of one size, copied by the whole block two pieces before they are used.
//!
//! Half of a block's warpgroups work one piece behind the others, so that one half runs products while the other does
//! everything else. So the piece before the current one stays in shared memory too.

use crate::device::mma::stores_before_products;
use crate::device::{copies, thread};

/// Number of buffers: two in use, two in flight.
pub(crate) const SLOTS: u32 = 4;

/// Buffers in shared memory, used in turn.
pub(crate) struct Stages {
    offset: u32,
    bytes: u32,
    /// Index of the buffer that is taken next.
    place: u32,
}

impl Stages {
    /// Starts the copies of the first two pieces; `send` gets the byte offset of a buffer.
    #[inline(always)]
    pub(crate) fn start(offset: u32, bytes: u32, mut send: impl FnMut(u32)) -> Self {
        send(offset);
        copies::end_group();
        send(offset + bytes);
        copies::end_group();
        Self { offset, bytes, place: 0 }
    }

    /// Returns the byte offset of the next piece, which stays valid until the second `take` after this. `send` starts
    /// the copy of the piece after the next, if any.
    #[inline(always)]
    pub(crate) fn take(&mut self, send: impl FnOnce(u32)) -> u32 {
        // After this barrier, no thread reads the piece before the previous one.
        meet();
        let at = self.offset + self.place * self.bytes;
        send(self.offset + (self.place + 2) % SLOTS * self.bytes);
        copies::end_group();
        self.place = (self.place + 1) % SLOTS;
        at
    }
}

/// Waits for all copies except the last group, and makes all threads' copies visible to the block.
#[inline(always)]
pub(crate) fn meet() {
    copies::arrive_but::<1>();
    stores_before_products();
    thread::sync_threads();
}

/// Starts the copy of `bytes` contiguous bytes, a multiple of 16, by a block of `threads` threads.
///
/// # Safety
/// The bytes are in a live allocation, 16-byte aligned, and no thread writes them during this launch.
#[inline(always)]
pub(crate) unsafe fn send(to: u32, from: *const u32, bytes: u32, threads: u32) {
    let mut i = thread::thread_idx_x();
    while i < bytes / 16 {
        // SAFETY: `i < bytes / 16`, so these 16 bytes are among those of `# Safety`.
        unsafe { copies::send(to + 16 * i, from.wrapping_add(4 * i as usize).cast()) };
        i += threads;
    }
}
