//! Diagonal covariances: a block owns 16 components by 16 columns.
//!
//! A tile of 128 rows is staged once as `x` and once as `r`. A thread owns one component and two columns and loops over
//! all rows, so nothing is added across threads. It adds 32 rows in `T`, then adds that sum in `f64`.

use crate::Real;
use crate::device::{self, Shared, thread};
use crate::em::simple::moments::{
    SIDE, Sums, entry, means, partial, responsibility, split, stage, staged_bytes, stride,
};
use crate::layout::{Kind, TILE_ROWS, first_at, second_at};

/// Columns per thread, and threads per component.
const OWN: u32 = 2;
pub(crate) const PER_COMPONENT: u32 = SIDE / OWN;

/// Rows added in `T` before the sum is converted to `f64`.
const RUN: u32 = 32;

/// Bytes of shared memory: two staged tiles.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: Real>(_: &Sums<T>) -> u64 {
    u64::from(2 * staged_bytes::<T>())
}

/// A thread's sums: Σ r, and Σ r z and Σ r z² of its columns.
#[derive(Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) weight: f64,
    pub(crate) first: [f64; OWN as usize],
    pub(crate) second: [f64; OWN as usize],
}

/// This thread's component and first column, given the first of its block.
#[inline(always)]
pub(crate) fn place(components: u32, columns: u32) -> (u32, u32) {
    let t = thread::thread_idx_x();
    (components + t / PER_COMPONENT, columns + t % PER_COMPONENT * OWN)
}

/// Moments over this block's split of the rows, for components from `components` and columns from `columns`.
#[inline(always)]
pub(crate) unsafe fn sweep<T: Real>(a: &Sums<T>, components: u32, columns: u32) -> Moments {
    let (rows, shares) = (Shared::<T>::at(0), Shared::<T>::at(staged_bytes::<T>()));
    let (c, j) = place(components, columns);
    // SAFETY: `means` reads nothing past the last column or component.
    let (high, low) = unsafe { means::<T, { OWN as usize }>(a, c, j) };
    let mut sum = Moments { weight: 0.0, first: [0.0; OWN as usize], second: [0.0; OWN as usize] };
    let (mut tile, end) = split(a.n);
    while tile < end {
        // SAFETY: `entry` reads nothing past the last column; the tile is one of the chunk's.
        let x = |q| unsafe { entry(a, tile, columns + q) };
        // SAFETY: `responsibility` reads nothing past the last row or component.
        let r = |q| unsafe { responsibility(a, tile, components + q) };
        stage(rows, |q| [x(q), x(q + 1), x(q + 2), x(q + 3)]);
        stage(shares, |q| [r(q), r(q + 1), r(q + 2), r(q + 3)]);
        thread::sync_threads();
        let mut row = 0;
        while row < TILE_ROWS {
            let mut weight = T::ZERO;
            let (mut first, mut second) = ([T::ZERO; OWN as usize], [T::ZERO; OWN as usize]);
            let end = row + RUN;
            while row < end {
                let r = shares.load(row * stride::<T>() + (c - components));
                let mut v = 0;
                while v < OWN as usize {
                    let z = rows.load(row * stride::<T>() + (j - columns) + v as u32) - high[v] - low[v];
                    let rz = r * z;
                    first[v] += rz;
                    second[v] = rz.fma(z, second[v]);
                    v += 1;
                }
                weight += r;
                row += 1;
            }
            sum.weight += weight.to_f64();
            let mut v = 0;
            while v < OWN as usize {
                sum.first[v] += first[v].to_f64();
                sum.second[v] += second[v].to_f64();
                v += 1;
            }
        }
        thread::sync_threads();
        tile += 1;
    }
    sum
}

/// Writes Σ r z of this thread's columns, and Σ r if they include column 0.
#[inline(always)]
pub(crate) unsafe fn flush_first<T: Real>(a: &Sums<T>, kind: Kind, c: u32, j: u32, of: &Moments) {
    let out = partial(a, kind);
    // SAFETY: `c < k` and columns are below `d`; only this thread writes them.
    unsafe {
        let mut v = 0;
        while v < OWN {
            if c < a.k && j + v < a.d {
                device::store(out, first_at(a.k) + c as u64 * a.d as u64 + (j + v) as u64, of.first[v as usize]);
            }
            v += 1;
        }
        if c < a.k && j == 0 {
            device::store(out, c as u64, of.weight);
        }
    }
}

/// Body of the kernel: block `x` has components from `16*(x / p)` and columns from `16*(x % p)`, `p = ceil(d/16)`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: Sums<T>) {
    // At least 1, so that no division can panic: a panic would need a call.
    let p = a.d.div_ceil(SIDE).max(1);
    let (components, columns) = (thread::block_idx_x() / p * SIDE, thread::block_idx_x() % p * SIDE);
    let (c, j) = place(components, columns);
    // SAFETY: the caller upholds `# Safety`; `c < k` and `j + v < d` at each store.
    unsafe {
        let sum = sweep(&a, components, columns);
        flush_first(&a, Kind::Diag, c, j, &sum);
        let mut v = 0;
        while v < OWN {
            if c < a.k && j + v < a.d {
                let at = second_at(a.k, a.d) + c as u64 * a.d as u64 + (j + v) as u64;
                device::store(partial(&a, Kind::Diag), at, sum.second[v as usize]);
            }
            v += 1;
        }
    }
}
