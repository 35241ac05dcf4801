//! A block's shared memory, with a record of the last accesses to each word.

use std::cell::Cell;

use super::block::Thread;

/// Stands for several threads, or for threads of several warps.
const MANY: u32 = u32::MAX;

/// The thread that accessed a word, and the numbers of the barriers passed before the access.
#[derive(Clone, Copy)]
struct Touch {
    epoch: u32,
    warp_epoch: u32,
    warp: u32,
    thread: u32,
}

impl Touch {
    const NEVER: Self = Self { epoch: u32::MAX, warp_epoch: 0, warp: 0, thread: 0 };

    fn now(by: &Thread<'_>) -> Self {
        let warp = by.warp();
        let warp_epoch = by.block.warp_epochs[warp as usize].get();
        Self { epoch: by.block.epoch.get(), warp_epoch, warp, thread: by.index }
    }

    /// Whether no barrier orders `self` before `now`.
    fn races(self, now: Self) -> bool {
        let apart = self.warp == now.warp && self.warp_epoch < now.warp_epoch;
        self.epoch == now.epoch && self.thread != now.thread && !apart
    }

    fn name(self) -> String {
        if self.thread == MANY { "several threads".to_owned() } else { format!("thread {}", self.thread) }
    }
}

#[derive(Clone, Copy)]
struct Word {
    bits: u32,
    read: Touch,
    written: Touch,
    /// Whether a copy to this word is in flight.
    coming: bool,
}

pub(super) struct SharedMemory {
    words: Vec<Cell<Word>>,
}

impl SharedMemory {
    /// Memory filled with all ones, which is NaN as `f32` and as `f64`.
    pub(super) fn poisoned(bytes: u32) -> Self {
        let word = Word { bits: u32::MAX, read: Touch::NEVER, written: Touch::NEVER, coming: false };
        Self { words: vec![Cell::new(word); bytes as usize / 4] }
    }

    fn at(&self, offset: u32, n: usize, by: &Thread<'_>, what: &str) -> &[Cell<Word>] {
        let whole = || format!("block {:?}, thread {}: {what} of {} bytes at {offset}", by.block.at, by.index, 4 * n);
        assert!((offset as usize).is_multiple_of(4 * n), "{} of shared memory is misaligned", whole());
        let first = offset as usize / 4;
        let end = 4 * self.words.len();
        self.words.get(first..first + n).unwrap_or_else(|| panic!("{} passes the end of shared memory, {end}", whole()))
    }

    pub(super) fn load<const N: usize>(&self, offset: u32, by: &Thread<'_>) -> [u32; N] {
        let now = Touch::now(by);
        let cells = self.at(offset, N, by, "load");
        std::array::from_fn(|i| {
            let mut word = cells[i].get();
            Self::check_arrived(word, "reads", offset, by);
            if word.written.epoch == u32::MAX {
                panic!("block {:?}, thread {}: shared word at {offset} read before written", by.block.at, by.index);
            }
            if word.written.races(now) {
                let other = word.written.name();
                panic!(
                    "block {:?}: {other} writes and thread {} reads shared word {offset} with no barrier between",
                    by.block.at, by.index
                );
            }
            // Readers between the same barriers merge: a later write must be ordered after all of them. An earlier
            // reader of the same warp is dropped if a warp barrier orders it before this one.
            let before = word.read.warp == now.warp && word.read.warp_epoch < now.warp_epoch;
            word.read = if word.read.epoch != now.epoch || word.read.thread == now.thread || before {
                now
            } else {
                let warp = if word.read.warp == now.warp { now.warp } else { MANY };
                Touch { warp, thread: MANY, ..now }
            };
            cells[i].set(word);
            word.bits
        })
    }

    pub(super) fn store<const N: usize>(&self, offset: u32, values: [u32; N], by: &Thread<'_>) {
        self.write::<N>(offset, by, "store", |i, word| word.bits = values[i]);
    }

    /// Marks words as the target of a copy: no thread may access them until they [arrive](Self::arrive).
    pub(super) fn expect<const N: usize>(&self, offset: u32, by: &Thread<'_>) {
        self.write::<N>(offset, by, "copy", |_, word| word.coming = true);
    }

    /// Completes a copy. The words are visible to the thread that waited, and to other threads after a barrier.
    pub(super) fn arrive(&self, offset: u32, values: &[u32], by: &Thread<'_>) {
        let written = Touch::now(by);
        for (cell, &bits) in self.at(offset, values.len(), by, "copy").iter().zip(values) {
            cell.set(Word { bits, written, coming: false, ..cell.get() });
        }
    }

    fn check_arrived(word: Word, does: &str, offset: u32, by: &Thread<'_>) {
        assert!(
            !word.coming,
            "block {:?}: thread {} {does} shared word {offset} while a copy to it is in flight",
            by.block.at, by.index
        );
    }

    fn write<const N: usize>(&self, offset: u32, by: &Thread<'_>, what: &str, write: impl Fn(usize, &mut Word)) {
        let now = Touch::now(by);
        for (i, cell) in self.at(offset, N, by, what).iter().enumerate() {
            let mut word = cell.get();
            Self::check_arrived(word, "writes", offset, by);
            for (other, does) in [(word.written, "writes"), (word.read, "reads")] {
                if other.races(now) {
                    let other = other.name();
                    panic!(
                        "block {:?}: {other} {does} and thread {} writes shared word {offset} with no barrier between",
                        by.block.at, by.index
                    );
                }
            }
            write(i, &mut word);
            word.written = now;
            cell.set(word);
        }
    }
}
