//! Upload of rows: several threads convert them into one pinned chunk while the other is copied.
//!
//! The conversion computes `x − shift` in f64, rounds it once, and arranges rows in tiles ([`gmm_kernels::layout`]).

use cust::memory::DeviceSlice;
use cust::memory::bytemuck::Pod;
use gmm_kernels::layout::TILE_ROWS;
use gmm_model::{Dataset, Matrix};
use rayon::prelude::*;

use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::send;
use crate::cuda::number::Number;

/// Rows per tile.
pub(crate) const TILE: usize = TILE_ROWS as usize;

/// Below this many numbers the calling thread converts alone: waking other threads takes about 10 µs.
const SMALL: usize = 1 << 16;

/// Copies numbers, with several threads if there are many.
pub(crate) fn copy<A: Pod + Send + Sync>(from: &[A], to: &mut [A]) {
    if to.len() < SMALL {
        return to.copy_from_slice(from);
    }
    to.par_chunks_mut(SMALL).zip(from.par_chunks(SMALL)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Copies row weights, `(n,)`, to the device.
pub(crate) fn weights(gpu: &Gpu, queue: &Queue, weights: &[f64], to: &mut DeviceSlice<f64>) -> Result<(), Error> {
    send(gpu, queue, to, 1, |piece, chunk| chunk.copy_from_slice(&weights[piece]))
}

/// Copies all rows, `(n, d)` tiled, to the device as `x − shift`.
pub(crate) fn rows<T: Number>(
    gpu: &Gpu,
    queue: &Queue,
    data: &Dataset,
    shift: &[f64],
    to: &mut DeviceSlice<T>,
) -> Result<(), Error> {
    send(gpu, queue, to, TILE * shift.len(), |piece, chunk| match data.rows() {
        Matrix::F32(a) => convert(a.as_slice().expect("a Matrix is row-major"), shift, piece.start, chunk),
        Matrix::F64(a) => convert(a.as_slice().expect("a Matrix is row-major"), shift, piece.start, chunk),
    })
}

/// Writes the tiles of `chunk`, which begins at entry `start` of the tiled matrix.
fn convert<S: Copy + Into<f64> + Sync, T: Number>(rows: &[S], shift: &[f64], start: usize, chunk: &mut [T]) {
    let d = shift.len();
    let first = start / (TILE * d);
    let one = |(i, out): (usize, &mut [T])| {
        let row = (first + i) * TILE;
        tile(&rows[row * d..rows.len().min((row + TILE) * d)], shift, out);
    };
    if chunk.len() < SMALL {
        return chunk.chunks_exact_mut(TILE * d).enumerate().for_each(one);
    }
    // Small tiles are converted several per task, so that scheduling costs little.
    let at_least = (SMALL / (TILE * d)).max(1);
    chunk.par_chunks_exact_mut(TILE * d).enumerate().with_min_len(at_least).for_each(one);
}

/// Columns transposed at a time: this many f64 of a row are two cache lines.
const COLUMNS: usize = 16;

/// Writes one tile: up to 128 rows of `d` columns, minus the shift, transposed; missing rows are 0.
fn tile<S: Copy + Into<f64>, T: Number>(rows: &[S], shift: &[f64], out: &mut [T]) {
    let d = shift.len();
    let n = rows.len() / d;
    if n < TILE {
        out.fill(T::ZERO);
    }
    for from in (0..d).step_by(COLUMNS) {
        let columns = from..d.min(from + COLUMNS);
        for (row, values) in rows.chunks_exact(d).enumerate() {
            for column in columns.clone() {
                out[column * TILE + row] = T::from_f64(values[column].into() - shift[column]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_kernels::layout::tiled_index;

    fn check(n: usize, d: usize) {
        let rows: Vec<f64> = (0..n * d).map(|i| i as f64 + 0.5).collect();
        let shift: Vec<f64> = (0..d).map(|j| j as f64 * 3.0).collect();
        let len = gmm_kernels::layout::tiled_len(n as u64, d as u32) as usize;
        let mut whole = vec![f32::NAN; len];
        convert(&rows, &shift, 0, &mut whole);
        for i in 0..n {
            for j in 0..d {
                let at = tiled_index(i as u64, j as u32, d as u32) as usize;
                assert_eq!(whole[at], (rows[i * d + j] - shift[j]) as f32, "n={n} d={d} ({i}, {j})");
            }
        }
        assert!(whole.iter().all(|v| v.is_finite()), "rows past the data are 0");
        // Converting tile by tile gives the same result.
        let mut pieces = vec![f32::NAN; len];
        for (i, piece) in pieces.chunks_exact_mut(TILE * d).enumerate() {
            convert(&rows, &shift, i * TILE * d, piece);
        }
        assert_eq!(pieces, whole);
    }

    #[test]
    fn every_row_lands_in_its_tile() {
        for (n, d) in [(1, 1), (127, 3), (128, 17), (129, 5), (700, 33), (3000, 40)] {
            check(n, d);
        }
    }
}
