//! Two chunks of pinned host memory for all large transfers to and from a device: one is copied while the other is
//! written or read.

use std::ops::Range;

use cust::event::{Event, EventFlags};
use cust::memory::bytemuck::{Pod, cast_slice, cast_slice_mut};
use cust::memory::{AsyncCopyDestination, DeviceBuffer, DeviceCopy, DeviceSlice, LockedBuffer};

use super::device::Gpu;
use super::device_state::{Half, Staging};
use super::queue::Queue;
use crate::Error;

/// Bytes per chunk: long enough that a copy's latency is negligible, short enough to pin in a few milliseconds.
pub(crate) const CHUNK_BYTES: usize = 16 << 20;

impl Staging {
    fn new(gpu: &Gpu, words: usize) -> Result<Self, Error> {
        let half = || {
            // SAFETY: any bits are a valid `u64`, and each word is written before it is read.
            let chunk = unsafe { LockedBuffer::uninitialized(words) };
            let chunk = gpu.check("pinned host memory", chunk)?;
            let copied = gpu.check("an event", Event::new(EventFlags::DISABLE_TIMING))?;
            Ok::<_, Error>(Half { chunk, copied })
        };
        Ok(Self { halves: [half()?, half()?], words })
    }

    /// Takes the device's cached chunks if they are free and long enough; otherwise allocates new ones.
    fn take(gpu: &Gpu, words: usize) -> Result<Self, Error> {
        let kept = gpu.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match kept {
            Some(staging) if staging.words >= words => Ok(staging),
            _ => Self::new(gpu, words),
        }
    }

    /// Returns the chunks, which no copy uses any more, for the next transfer.
    fn give_back(self, gpu: &Gpu) {
        *gpu.staging.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(self);
    }
}

/// Splits `len` numbers of `T` into pieces of at most `bytes`, or of one unit. Each piece, except the last, is a whole
/// number of `unit`s.
fn pieces<T>(len: usize, unit: usize, bytes: usize) -> (usize, impl Iterator<Item = Range<usize>>) {
    let most = (bytes / size_of::<T>() / unit).max(1) * unit;
    let each = most.min(len);
    let ranges = (0..len.div_ceil(each.max(1))).map(move |i| i * each..len.min((i + 1) * each));
    (each, ranges)
}

impl Half {
    fn numbers<A: Pod>(&mut self, len: usize) -> &mut [A] {
        let words = &mut self.chunk.as_mut_slice()[..(len * size_of::<A>()).div_ceil(8)];
        &mut cast_slice_mut::<u64, A>(words)[..len]
    }
}

/// Copies numbers to the whole of `to`, in pieces of whole `unit`s. `fill` writes a piece while the previous one is
/// being copied.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn send<A: DeviceCopy + Pod>(
    gpu: &Gpu,
    queue: &Queue,
    to: &mut DeviceSlice<A>,
    unit: usize,
    fill: impl FnMut(Range<usize>, &mut [A]),
) -> Result<(), Error> {
    let copy = |piece, chunk: &[A]| {
        // SAFETY: `send_each` keeps the chunk as it is until the copy has completed.
        let copied = unsafe { to.index(piece).async_copy_from(chunk, &queue.stream) };
        gpu.check("a copy to the device", copied)
    };
    send_each(gpu, queue, (to.len(), unit, CHUNK_BYTES), fill, copy)
}

/// Sends `len` numbers to the device, in pieces of whole `unit`s of at most `bytes`, or of one unit: `fill` writes a piece to pinned memory, and `enqueue`
/// enqueues its copy on the stream of `queue`. A chunk of pinned memory is written again only when the stream has come
/// that far.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn send_each<A: DeviceCopy + Pod>(
    gpu: &Gpu,
    queue: &Queue,
    (len, unit, bytes): (usize, usize, usize),
    mut fill: impl FnMut(Range<usize>, &mut [A]),
    mut enqueue: impl FnMut(Range<usize>, &[A]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (each, pieces) = pieces::<A>(len, unit, bytes);
    with_halves::<A>(gpu, queue, each, |halves| {
        for (turn, piece) in pieces.enumerate() {
            let half = &mut halves[turn % 2];
            if turn >= 2 {
                gpu.check("waiting for a copy to the device", half.copied.synchronize())?;
            }
            let chunk = half.numbers::<A>(piece.len());
            fill(piece.clone(), chunk);
            enqueue(piece, chunk)?;
            gpu.check("a copy to the device", half.copied.record(&queue.stream))?;
        }
        queue.wait(gpu)
    })
}

/// Copies the whole of `from` to the host, in pieces. `take` reads a piece while the next one is being copied.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn receive<A: DeviceCopy + Pod>(
    gpu: &Gpu,
    queue: &Queue,
    from: &DeviceSlice<A>,
    mut take: impl FnMut(Range<usize>, &[A]),
) -> Result<(), Error> {
    let (each, pieces) = pieces::<A>(from.len(), 1, CHUNK_BYTES);
    with_halves::<A>(gpu, queue, each, |halves| {
        let mut before: Option<Range<usize>> = None;
        for (turn, piece) in pieces.enumerate() {
            let half = &mut halves[turn % 2];
            let chunk = half.numbers::<A>(piece.len());
            // SAFETY: the chunk is not read until `copied` has completed, and it lives until the stream has been waited
            // for.
            let copy = unsafe { from.index(piece.clone()).async_copy_to(chunk, &queue.stream) };
            gpu.check("a copy from the device", copy)?;
            gpu.check("a copy from the device", half.copied.record(&queue.stream))?;
            if let Some(before) = before.replace(piece) {
                halves[(turn + 1) % 2].arrived(gpu, queue, before, &mut take)?;
            }
        }
        let last = before.as_ref().map_or(0, |piece| piece.start / each % 2);
        before.map_or(Ok(()), |piece| halves[last].arrived(gpu, queue, piece, &mut take))
    })
}

impl Half {
    fn arrived<A: Pod>(
        &mut self,
        gpu: &Gpu,
        queue: &Queue,
        piece: Range<usize>,
        take: &mut impl FnMut(Range<usize>, &[A]),
    ) -> Result<(), Error> {
        queue.explain(gpu, self.copied.synchronize())?;
        let words = &self.chunk.as_slice()[..(piece.len() * size_of::<A>()).div_ceil(8)];
        let numbers = &cast_slice::<u64, A>(words)[..piece.len()];
        take(piece, numbers);
        Ok(())
    }
}

/// Runs `work` with two chunks of `each` numbers. They are reused or freed only when no copy uses them any more.
fn with_halves<A>(
    gpu: &Gpu,
    queue: &Queue,
    each: usize,
    work: impl FnOnce(&mut [Half; 2]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut staging = Staging::take(gpu, (each * size_of::<A>()).div_ceil(8).max(1))?;
    match work(&mut staging.halves) {
        Ok(()) => {
            staging.give_back(gpu);
            Ok(())
        }
        Err(error) => {
            // Enqueued copies may still use the chunks. A failure of this wait changes nothing.
            queue.recover();
            Err(error)
        }
    }
}

/// Transfer rates from host memory to a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UploadRates {
    /// Bytes per second from pinned memory, without other work.
    pub pinned: f64,
    /// Bytes per second from pageable memory, without other work.
    pub pageable: f64,
}

/// Measures copies of `bytes` bytes: the best of five for each kind of memory.
pub(crate) fn rates(gpu: &Gpu, bytes: usize) -> Result<UploadRates, Error> {
    gpu.enter()?;
    let queue = Queue::new(gpu)?;
    // SAFETY: the buffer is only copied to, and never read.
    let to = unsafe { DeviceBuffer::<u8>::uninitialized(bytes) };
    let mut to = gpu.check_memory("the measurement", bytes as u128, to)?;
    let pinned = gpu.check("pinned host memory", LockedBuffer::new(&1_u8, bytes))?;
    let pageable = vec![1_u8; bytes];
    let mut time = |from: &[u8]| {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let started = std::time::Instant::now();
            // SAFETY: the stream is waited for while `from` is still borrowed.
            let copy = unsafe { to.async_copy_from(from, &queue.stream) };
            gpu.check("a copy to the device", copy)?;
            queue.wait(gpu)?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok::<_, Error>(bytes as f64 / best)
    };
    Ok(UploadRates { pinned: time(&pinned)?, pageable: time(&pageable)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_tiles_and_cover_all() {
        for (len, unit) in [(128, 128), (128 * 13 * 5000, 128 * 13), ((CHUNK_BYTES + 1) * 2, CHUNK_BYTES + 1), (7, 1)] {
            let (each, ranges) = pieces::<f64>(len, unit, CHUNK_BYTES);
            let ranges: Vec<_> = ranges.collect();
            assert!(each == len || each.is_multiple_of(unit), "{len} {unit}");
            assert_eq!(ranges.first().map(|r| r.start), Some(0));
            assert_eq!(ranges.last().map(|r| r.end), Some(len));
            assert!(ranges.windows(2).all(|w| w[0].end == w[1].start));
        }
    }
}
