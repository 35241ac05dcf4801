//! Features with rows down and features across, as the densities take them.

use crate::device::{self, Shared, thread};
use crate::em::features::derive;
use crate::em::features::each;
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

/// A number of each of four rows that waits in shared memory; each thread has its own.
#[derive(Clone, Copy)]
pub(crate) struct Waiting(Shared<f64>);

impl Waiting {
    #[inline(always)]
    pub(crate) fn at(which: u32) -> Self {
        Self(Shared::at((which * 4 * THREADS + thread::thread_idx_x()) * 8))
    }

    #[inline(always)]
    pub(crate) fn get(self, r: usize) -> f64 {
        self.0.load(r as u32 * THREADS)
    }

    #[inline(always)]
    pub(crate) fn set(self, r: usize, v: f64) {
        self.0.store(r as u32 * THREADS, v);
    }
}

/// Four of the rows of a warp: those of a lane, `g`, `g+8`, `g+16`, `g+24`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T> {
    /// Entry `j` of the first is at `128 j`.
    pub(crate) x: *const T,
    /// Of the first, where norms are a feature.
    pub(crate) norm: *const f64,
    pub(crate) d: u32,
    pub(crate) derive: u32,
    pub(crate) classes: u32,
    pub(crate) steps: u32,
}

impl<T: Real> Rows<T> {
    /// Entry `j` of each; 0 where there is none.
    #[inline(always)]
    unsafe fn entry(self, j: u32) -> [f64; 4] {
        let mut out = [0.0; 4];
        if j < self.d {
            each(4, |i| {
                // SAFETY: `j < d`, and the tile is filled up past the last row.
                out[i] = unsafe { device::load(self.x, (j * TILE_ROWS + 8 * i as u32) as u64) }.to_f64();
            });
        }
        out
    }
}

/// Left operands of two times sixteen rows: sixteen features of each.
pub(crate) type Left = [[f64; 8]; 2];

/// Puts feature `quarter` of a lane into its operands.
#[inline(always)]
fn put(left: &mut Left, quarter: usize, rows: [f64; 4]) {
    each(4, |i| left[i / 2][2 * quarter + i % 2] = rows[i]);
}

/// No step follows.
pub(crate) const END: u32 = u32::MAX;

/// Features with rows down and features across.
pub(crate) trait Across {
    /// Calls `f(step, next, operands)` for every step, from 0; `next` is the step that follows, or [`END`].
    ///
    /// # Safety
    /// The rows are there.
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, f: impl FnMut(u32, u32, Left));
}

/// Columns as they are, and what is derived from them.
pub(crate) struct Columns;

impl Across for Columns {
    #[inline(always)]
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, mut f: impl FnMut(u32, u32, Left)) {
        let mut step = 0;
        while step < x.steps {
            let mut left = [[0.0; 8]; 2];
            each(4, |quarter| {
                let feature = 16 * step + 4 * quarter as u32 + lane % 4;
                let square = x.derive == derive::SQUARES && feature >= 8 * x.steps;
                // SAFETY: the caller's promise.
                let mut rows = unsafe { x.entry(if square { feature - 8 * x.steps } else { feature }) };
                if x.derive == derive::NORM && feature == x.d {
                    // SAFETY: norms are a feature, so they are there.
                    each(4, |i| rows[i] = unsafe { device::load(x.norm, 8 * i as u64) });
                }
                each(4, |i| rows[i] *= if square { rows[i] } else { 1.0 });
                put(&mut left, quarter, rows);
            });
            f(step, if step + 1 < x.steps { step + 1 } else { END }, left);
            step += 1;
        }
    }
}

/// Products of entries: see [`Full`](crate::em::features::Full). A step has entries `first..first+4` of a lane's class
/// times one partner, so the entries are read once for all partners.
pub(crate) struct Products;

impl Across for Products {
    #[inline(always)]
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, mut f: impl FnMut(u32, u32, Left)) {
        let (c, class) = (x.classes, lane % 4);
        let used = x.d.div_ceil(4);
        let u = [Waiting::at(2), Waiting::at(3), Waiting::at(4), Waiting::at(5)];
        let step = |first: u32, half: u32, m: u32| ((half * (c + 1) + m) * c + first) / 4;
        let (mut first, mut half, mut m) = (0, 0, 0);
        while first < used {
            if half == 0 && m == 0 {
                each(4, |i| {
                    // SAFETY: the caller's promise, here and below.
                    let rows = unsafe { x.entry(4 * (first + i as u32) + class) };
                    each(4, |row| u[i].set(row, rows[row]));
                });
            }
            // For `m ≤ i`, and in half 0 for all.
            let mut below = [1.0; 4];
            if m < c && (half == 0 || m < first + 4) {
                // SAFETY: as above.
                below = unsafe { x.entry(4 * m + (class + 1 + half) % 4) };
            }
            let mut above = below;
            if half == 1 && m > first {
                // SAFETY: as above.
                above = unsafe { x.entry(4 * (m - 1) + class) };
            }
            let mut left = [[0.0; 8]; 2];
            each(4, |i| {
                let mut rows = if m > first + i as u32 { above } else { below };
                each(4, |row| rows[row] *= u[i].get(row));
                put(&mut left, i, rows);
            });
            let here = step(first, half, m);
            m += 1;
            // Partners that no row has are passed over.
            if half == 0 && m == used {
                m = c;
            }
            if m > c || (half == 1 && m > used) {
                (half, m) = (half + 1, 0);
            }
            if half == 2 {
                (first, half) = (first + 4, 0);
            }
            f(here, if first < used { step(first, half, m) } else { END }, left);
        }
    }
}
