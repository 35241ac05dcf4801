//! A cache of what rows release: device buffers, pinned buffers, streams and events.
//!
//! A fit of small data takes some thirty of them, and allocating or freeing any one takes the driver longer than a pass
//! over such data. So they are cached, within the bounds below; the ones that have been idle longest are freed first.
//! All are freed when an allocation or a launch lacks memory, before that becomes an error, and with the device.
//!
//! Nothing on the device may still use what is put here. Rows wait for their stream before they release anything, and
//! [close](Pool::close) the pool if the wait fails. The context must be current whenever something is taken or put
//! back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::event::Event;
use cust::memory::{DeviceBuffer, LockedBuffer};
use cust::stream::Stream;

/// Longer blocks are as long as asked for.
const MOST_BLOCK: usize = 64 << 20;

/// Most idle bytes of device memory: this share of all of it, within these bounds.
const SHARE: usize = 64;
const BOUNDS: (usize, usize) = (64 << 20, 2 << 30);

/// Most idle bytes of pinned memory: less of it is needed, and all programs share it.
const MOST_PINNED: usize = 16 << 20;

/// Most idle streams.
const MOST_LANES: usize = 8;

/// A stream, and two events that time it.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) stream: Arc<Stream>,
    pub(crate) clock: Arc<(Event, Event)>,
}

/// Idle blocks with their sizes in bytes, the most recent one last.
struct Shelf<B> {
    blocks: Vec<(usize, B)>,
    bytes: usize,
    most: usize,
}

impl<B> Shelf<B> {
    const fn new(most: usize) -> Self {
        Self { blocks: Vec::new(), bytes: 0, most }
    }

    fn take(&mut self, bytes: usize) -> Option<B> {
        let at = self.blocks.iter().rposition(|(have, _)| *have == bytes)?;
        self.bytes -= bytes;
        Some(self.blocks.remove(at).1)
    }

    fn put(&mut self, bytes: usize, block: B) {
        // Of half at most, so that one block does not replace all others.
        if bytes > self.most / 2 {
            return;
        }
        self.blocks.push((bytes, block));
        self.bytes += bytes;
        while self.bytes > self.most {
            self.bytes -= self.blocks.remove(0).0;
        }
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.bytes = 0;
    }
}

struct Idle {
    device: Shelf<DeviceBuffer<u8>>,
    pinned: Shelf<LockedBuffer<u64>>,
    lanes: Vec<Lane>,
    closed: bool,
}

/// The cache of one device: see the module.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
}

/// Size in bytes of the block that is allocated for a request. There are few sizes, so that similar shapes reuse the
/// same blocks. It exceeds the request by at most an eighth, or by less than 256 bytes, the driver's granularity.
pub(crate) fn rounded(bytes: usize) -> usize {
    if bytes > MOST_BLOCK {
        return bytes;
    }
    bytes.next_multiple_of((bytes.next_power_of_two() / 16).max(256))
}

impl Pool {
    /// A cache for a device with `memory` bytes in all.
    pub(crate) fn new(memory: u64) -> Arc<Self> {
        let most = (memory as usize / SHARE).clamp(BOUNDS.0, BOUNDS.1);
        let (device, pinned) = (Shelf::new(most), Shelf::new(MOST_PINNED));
        let idle = Idle { device, pinned, lanes: Vec::new(), closed: false };
        Arc::new(Self { idle: Mutex::new(idle) })
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of exactly this many bytes.
    pub(crate) fn take_device(&self, bytes: usize) -> Option<DeviceBuffer<u8>> {
        self.idle().device.take(bytes)
    }

    /// Takes a block of exactly this many 8-byte words.
    pub(crate) fn take_pinned(&self, words: usize) -> Option<LockedBuffer<u64>> {
        self.idle().pinned.take(8 * words)
    }

    pub(crate) fn take_lane(&self) -> Option<Lane> {
        self.idle().lanes.pop()
    }

    pub(crate) fn leave_device(&self, block: DeviceBuffer<u8>) {
        let mut idle = self.idle();
        if !idle.closed {
            idle.device.put(block.len(), block);
        }
    }

    pub(crate) fn leave_pinned(&self, block: LockedBuffer<u64>) {
        let mut idle = self.idle();
        if !idle.closed {
            idle.pinned.put(8 * block.len(), block);
        }
    }

    pub(crate) fn leave_lane(&self, lane: Lane) {
        let mut idle = self.idle();
        if !idle.closed && idle.lanes.len() < MOST_LANES {
            idle.lanes.push(lane);
        }
    }

    /// Idle bytes of device memory.
    pub(crate) fn device_bytes(&self) -> usize {
        self.idle().device.bytes
    }

    /// Frees everything. Returns whether any memory was freed.
    pub(crate) fn drain(&self) -> bool {
        let mut idle = self.idle();
        let memory = idle.device.bytes + idle.pinned.bytes > 0;
        idle.device.clear();
        idle.pinned.clear();
        idle.lanes.clear();
        memory
    }

    /// Stops caching: the device may still use what is put back from now on.
    pub(crate) fn close(&self) {
        self.idle().closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_little_longer_than_asked_for_and_of_few_sizes() {
        for bytes in (1..3000).chain((1 << 20) - 999..(1 << 20) + 999).chain(MOST_BLOCK - 99..MOST_BLOCK + 99) {
            let block = rounded(bytes);
            assert!(block >= bytes && block <= (bytes + bytes / 8).max(bytes + 255), "{bytes}: {block}");
            assert_eq!(rounded(block), block, "{bytes}");
        }
        let mut sizes: Vec<usize> = (1 << 19..=1 << 20).step_by(64).map(rounded).collect();
        sizes.dedup();
        assert!(sizes.len() <= 9, "{sizes:?}");
    }

    #[test]
    fn a_shelf_is_bounded_and_drops_what_lay_longest() {
        let mut shelf = Shelf::new(4096);
        for i in 0..=8 {
            shelf.put(512, i);
        }
        shelf.put(2049, usize::MAX);
        assert_eq!((shelf.bytes, shelf.blocks.len(), shelf.blocks[0].1), (4096, 8, 1));
        assert_eq!(shelf.take(512), Some(8));
        assert_eq!((shelf.take(256), shelf.bytes), (None, 4096 - 512));
    }
}
