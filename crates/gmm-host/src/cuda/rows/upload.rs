//! Upload of rows: several threads copy them into one pinned chunk while the other goes to the device, which computes
//! `x − shift` in f64, rounds it once, and arranges rows in tiles ([`gmm_kernels::layout`]).

use std::ops::Range;

use cust::memory::bytemuck::Pod;
use cust::memory::{AsyncCopyDestination, DeviceCopy, DeviceSlice};
use gmm_kernels::layout::{TILE_ROWS, tiled_len};
use gmm_model::{Dataset, Matrix, Precision};
use rayon::prelude::*;

use crate::Error;
use crate::cuda::driver::buffers::{Slot, pin, pinned_empty};
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::{CHUNK_BYTES, send, send_each};
use crate::cuda::launch::Launcher;
use crate::cuda::number::Number;
use crate::cuda::rows::reach::LoadOptions;
use crate::hold::Real;

/// Rows per tile.
pub(crate) const TILE: usize = TILE_ROWS as usize;

/// Below this many numbers the calling thread copies alone: waking other threads takes about 10 µs.
const SMALL: usize = 1 << 16;

/// Copies numbers, with several threads if there are many.
pub(crate) fn copy<A: Pod + Send + Sync>(from: &[A], to: &mut [A]) {
    if to.len() < SMALL {
        return to.copy_from_slice(from);
    }
    to.par_chunks_mut(SMALL).zip(from.par_chunks(SMALL)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Copies the rows of each tile, of `d` columns, and zeros after them.
fn copy_tiles<A: Pod + Send + Sync>(rows: &[A], d: usize, tiles: &[Range<usize>], to: &mut [A]) {
    let least = (SMALL / (TILE * d)).max(1);
    to.par_chunks_mut(TILE * d).zip(tiles).with_min_len(least).for_each(|(to, tile)| {
        let (to, rest) = to.split_at_mut(tile.len() * d);
        to.copy_from_slice(&rows[tile.start * d..tile.end * d]);
        rest.fill(A::zeroed());
    });
}

/// As [`copy`] of whole rows, and notes how far they reach if `options` asks for it.
pub(crate) fn copy_rows<A: Real + Pod + Send>(from: &[A], to: &mut [A], options: LoadOptions<'_>) {
    match options.reach {
        Some(reach) => reach.copy(from, to),
        None => copy(from, to),
    }
}

/// Copies row weights, `(n,)`, to the device.
pub(crate) fn weights(gpu: &Gpu, queue: &Queue, weights: &[f64], to: &mut DeviceSlice<f64>) -> Result<(), Error> {
    send(gpu, queue, to, 1, |piece, chunk| chunk.copy_from_slice(&weights[piece]))
}

/// Copies all rows, `(n, d)` tiled, to the device as `x − shift`.
///
/// # Errors
/// [`Error::Memory`] for a piece of the rows on the device; [`Error::Device`].
pub(crate) fn rows<T: Number>(
    gpu: &Gpu,
    queue: &Queue,
    data: &Dataset,
    shift: &[f64],
    to: &DeviceSlice<T>,
    options: LoadOptions<'_>,
) -> Result<(), Error> {
    const WHAT: &str = "a piece of the data on the GPU";
    let mut host_shift = pinned_empty::<f64>();
    pin(gpu, &mut host_shift, shift.len())?;
    host_shift.as_mut_slice()[..shift.len()].copy_from_slice(shift);
    // Both outlive a failure: `send_each` waits for the stream before it returns.
    let on_device = Slot::taken(gpu, WHAT, shift.len())?;
    let number = if data.rows().precision() == Precision::F32 { 4 } else { 8 };
    let room = |bytes: usize| {
        let bytes = bytes
            .max(number * TILE * shift.len())
            .min(number * options.n_rows(data).next_multiple_of(TILE) * shift.len());
        Slot::<f64>::taken(gpu, WHAT, bytes.div_ceil(8))
    };
    let piece = match room(CHUNK_BYTES) {
        // One tile after another is slow, but leaves the memory to the rows.
        Err(Error::Memory { .. }) => room(0)?,
        piece => piece?,
    };
    queue.left();
    // SAFETY: the pinned buffer lives until the stream has been waited for.
    let copied =
        unsafe { on_device.first(shift.len()).async_copy_from(&host_shift.as_slice()[..shift.len()], &queue.stream) };
    gpu.check("a copy of a shift to the device", copied)?;
    let upload = Upload { gpu, queue, piece: &piece, shift: &on_device.first(shift.len()), to, options };
    match data.rows() {
        Matrix::F32(a) => upload.send(a.as_slice().expect("a Matrix is row-major"), Precision::F32),
        Matrix::F64(a) => upload.send(a.as_slice().expect("a Matrix is row-major"), Precision::F64),
    }
}

/// An upload: rows go through pinned memory and a piece of the original rows on the device, to tiles.
struct Upload<'a, T: Number> {
    gpu: &'a Gpu,
    queue: &'a Queue,
    /// Words of two `f32` or one `f64` each. The stream copies a piece only after the kernel that reads the one before.
    piece: &'a Slot<f64>,
    shift: &'a DeviceSlice<f64>,
    to: &'a DeviceSlice<T>,
    options: LoadOptions<'a>,
}

impl<T: Number> Upload<'_, T> {
    fn send<S: DeviceCopy + Real + Pod + Send>(&self, rows: &[S], precision: Precision) -> Result<(), Error> {
        let Self { gpu, queue, .. } = *self;
        let d = self.shift.len();
        let words = self.piece.first(self.piece.room());
        // SAFETY: the same bytes, viewed as the numbers of the rows.
        let numbers =
            unsafe { DeviceSlice::<S>::from_raw_parts(words.as_device_ptr().cast(), words.len() * 8 / size_of::<S>()) };
        let enqueue = |part: Range<usize>, chunk: &[S]| {
            // SAFETY: `send_each` keeps the chunk as it is until the copy has completed.
            let copied = unsafe { numbers.index(..chunk.len()).async_copy_from(chunk, &queue.stream) };
            gpu.check("a copy to the device", copied)?;
            let n = (part.len() / d) as u64;
            let out = self.to.index(part.start..).index(..tiled_len(n, d as u32) as usize);
            Launcher { gpu, queue }.hold((n, d as u32), precision, &words, self.shift, &out)
        };
        let len = self.options.tiles.map_or(rows.len(), |tiles| tiles.len() * TILE * d);
        let fill = |part: Range<usize>, chunk: &mut [S]| match self.options.tiles {
            Some(tiles) => copy_tiles(rows, d, &tiles[part.start / (TILE * d)..], chunk),
            None => copy_rows(&rows[part], chunk, self.options),
        };
        send_each(gpu, queue, (len, TILE * d, 8 * words.len()), fill, enqueue)
    }
}
