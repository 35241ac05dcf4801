//! Nearest centre of each row of a chunk, the first among equals: Lloyd's assignment step.

use crate::Real;
use crate::device::{self, thread};
use crate::each::each;
use crate::layout::{TILE_ROWS, tiles};

kernels! {
    /// One chunk of `n` rows; any number of blocks along `x`, which stride over its tiles.
    Nearest<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Centres.
        k: u32,
        /// Dimensions.
        d: u32,
        /// `(k, d)`: centres less the shift.
        centre_high: *const T,
        /// `(k, d)`: the rounding error of `centre_high`.
        centre_low: *const T,
        /// `(n, k)` tiled, or null, written: the row's weight at its centre, 0 elsewhere; the moments use it as
        /// responsibilities.
        responsibilities: *mut T,
        /// `(n,)`, or null, written: the nearest centre.
        labels: *mut u32,
    }
    /// The kernel.
    nearest => nearest_f32, nearest_f64, body, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &Nearest<T>) -> u64 {
    0
}

/// Body of [`nearest`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Nearest`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: Nearest<T>) {
    let (rows, lane) = (TILE_ROWS as u64, thread::thread_idx_x() as u64);
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        let row = tile * rows + lane;
        if row < a.n {
            // SAFETY: `row < n`, `c < k`, `j < d`; labels and responsibilities are written if they are not null.
            unsafe {
                let x = a.x.wrapping_add((tile * rows * a.d as u64 + lane) as usize);
                let (mut best, mut label) = (T::INFINITY, 0);
                let mut c = 0;
                while c < a.k {
                    let distance = squared_distance(x, a.d, a.centre_high, a.centre_low, c as u64 * a.d as u64);
                    if distance < best {
                        (best, label) = (distance, c);
                    }
                    c += 1;
                }
                if !a.labels.is_null() {
                    device::store(a.labels, row, label);
                }
                if !a.responsibilities.is_null() {
                    let weight = if a.row_weights.is_null() { 1.0 } else { device::load(a.row_weights, row) };
                    let r = a.responsibilities.wrapping_add((tile * rows * a.k as u64 + lane) as usize);
                    let mut c = 0;
                    while c < a.k {
                        let share = if c == label { T::from_f64(weight) } else { T::ZERO };
                        device::store(r, c as u64 * rows, share);
                        c += 1;
                    }
                }
            }
        }
        tile += thread::grid_dim_x() as u64;
    }
}

/// `|x − centre|²` for the row that starts at `x` in its tile and the centre that starts at `at`.
#[inline(always)]
pub(crate) unsafe fn squared_distance<T: Real>(x: *const T, d: u32, high: *const T, low: *const T, at: u64) -> T {
    // Columns read together, so that their latencies overlap.
    const AT_ONCE: u64 = 8;
    let (rows, d) = (TILE_ROWS as u64, d as u64);
    let mut sum = T::ZERO;
    let mut j = 0;
    while j + AT_ONCE <= d {
        let mut some = [T::ZERO; AT_ONCE as usize];
        // SAFETY: `j + i < d`.
        unsafe {
            each(AT_ONCE as usize, |i| some[i] = device::load(x, (j + i as u64) * rows));
            each(AT_ONCE as usize, |i| sum = add_square(some[i], high, low, at + j + i as u64, sum));
        }
        j += AT_ONCE;
    }
    while j < d {
        // SAFETY: `j < d`.
        sum = unsafe { add_square(device::load(x, j * rows), high, low, at + j, sum) };
        j += 1;
    }
    sum
}

/// `sum + (value − centre)²` for one column.
#[inline(always)]
unsafe fn add_square<T: Real>(value: T, high: *const T, low: *const T, at: u64, sum: T) -> T {
    // SAFETY: the caller passes the index of a coordinate of a centre.
    let z = unsafe { value - device::load(high, at) - device::load(low, at) };
    z.fma(z, sum)
}
