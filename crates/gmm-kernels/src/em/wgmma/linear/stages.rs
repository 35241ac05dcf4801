//! What passes by in shared memory: pieces of one length that a whole block sends for, two ahead of the one that is taken.
//!
//! Half of a block's warpgroups are a piece behind the others, so that these form products while those do everything else, and
//! the other way round: the piece before the one that is taken stays too.

use crate::device::mma::stores_before_products;
use crate::device::{copies, thread};

/// Places for pieces: two in use, two on their way.
pub(crate) const PLACES: u32 = 4;

/// Places in shared memory, taken in turns.
pub(crate) struct Stages {
    offset: u32,
    bytes: u32,
    /// Of what is taken next.
    place: u32,
}

impl Stages {
    /// Sends for the first two pieces: `send` is given a place in bytes.
    #[inline(always)]
    pub(crate) fn start(offset: u32, bytes: u32, mut send: impl FnMut(u32)) -> Self {
        send(offset);
        copies::end_group();
        send(offset + bytes);
        copies::end_group();
        Self { offset, bytes, place: 0 }
    }

    /// Where the next piece is, in bytes, until the second after it is taken; `send` sends for that, or for nothing.
    #[inline(always)]
    pub(crate) fn take(&mut self, send: impl FnOnce(u32)) -> u32 {
        copies::arrive_but::<1>();
        stores_before_products();
        // What each thread waited for is there for all, and of the last piece but one nobody reads any more.
        thread::sync_threads();
        let at = self.offset + self.place * self.bytes;
        send(self.offset + (self.place + 2) % PLACES * self.bytes);
        copies::end_group();
        self.place = (self.place + 1) % PLACES;
        at
    }
}

/// Sends for neighbouring bytes, a multiple of 16, by a block of so many threads.
///
/// # Safety
/// They lie in a live allocation, 16-byte aligned, and nobody writes them in this launch.
#[inline(always)]
pub(crate) unsafe fn send(to: u32, from: *const u32, bytes: u32, threads: u32) {
    let mut i = thread::thread_idx_x();
    while i < bytes / 16 {
        // SAFETY: the caller's promise.
        unsafe { copies::send(to + 16 * i, from.wrapping_add(4 * i as usize).cast()) };
        i += threads;
    }
}
