//! Feature operands with data rows down and features across, for the densities.

use crate::device::{self, Shared, thread};
use crate::em::features::derive;
use crate::em::features::each;
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

/// One value per row for a lane's four rows, in shared memory; each thread has its own slots.
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

/// A lane's four rows of its warp: `g`, `g+8`, `g+16`, `g+24`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T> {
    /// Entry `j` of the first row is at `128 j`.
    pub(crate) x: *const T,
    /// Norm of the first row, if norms are a feature.
    pub(crate) norm: *const f64,
    pub(crate) d: u32,
    pub(crate) derive: u32,
    pub(crate) classes: u32,
    pub(crate) steps: u32,
}

impl<T: Real> Rows<T> {
    /// Entry `j` of each row; 0 past the last.
    #[inline(always)]
    unsafe fn entry(self, j: u32) -> [f64; 4] {
        let mut out = [0.0; 4];
        if j < self.d {
            each(4, |i| {
                // SAFETY: `j < d`, and the tile is padded past the last row.
                out[i] = unsafe { device::load(self.x, (j * TILE_ROWS + 8 * i as u32) as u64) }.to_f64();
            });
        }
        out
    }
}

/// Left operands of two groups of sixteen rows: sixteen features each.
pub(crate) type LeftOperand = [[f64; 8]; 2];

/// Stores feature `quarter` of a lane's four in its operands.
#[inline(always)]
fn put(left: &mut LeftOperand, quarter: usize, rows: [f64; 4]) {
    each(4, |i| left[i / 2][2 * quarter + i % 2] = rows[i]);
}

/// In place of a step: there is none.
pub(crate) const END: u32 = u32::MAX;

/// Features with data rows down and features across.
pub(crate) trait Across {
    /// Calls `f(step, next, operands)` for every step, from 0; `next` is the following step, or [`END`].
    ///
    /// # Safety
    /// `x` are rows of the chunk.
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, f: impl FnMut(u32, u32, LeftOperand));
}

/// The columns themselves, and columns derived from them.
pub(crate) struct Columns;

impl Across for Columns {
    #[inline(always)]
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, mut f: impl FnMut(u32, u32, LeftOperand)) {
        let mut step = 0;
        while step < x.steps {
            let mut left = [[0.0; 8]; 2];
            each(4, |quarter| {
                let feature = 16 * step + 4 * quarter as u32 + lane % 4;
                let square = x.derive == derive::SQUARES && feature >= 8 * x.steps;
                // SAFETY: `x` are rows of the chunk, as `# Safety` requires.
                let mut rows = unsafe { x.entry(if square { feature - 8 * x.steps } else { feature }) };
                if x.derive == derive::NORM && feature == x.d {
                    // SAFETY: `x.norm` is not null, since norms are a feature.
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
/// times one partner, so the entries are loaded once for all partners.
pub(crate) struct Products;

impl Across for Products {
    #[inline(always)]
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, mut f: impl FnMut(u32, u32, LeftOperand)) {
        let (c, class) = (x.classes, lane % 4);
        let used = x.d.div_ceil(4);
        let u = [Waiting::at(2), Waiting::at(3), Waiting::at(4), Waiting::at(5)];
        let step = |first: u32, half: u32, m: u32| ((half * (c + 1) + m) * c + first) / 4;
        let (mut first, mut half, mut m) = (0, 0, 0);
        while first < used {
            if half == 0 && m == 0 {
                each(4, |i| {
                    // SAFETY: `x` are rows of the chunk, as `# Safety` requires.
                    let rows = unsafe { x.entry(4 * (first + i as u32) + class) };
                    each(4, |row| u[i].set(row, rows[row]));
                });
            }
            // Factor for `m ≤ i`, and in half 0 for all `i`.
            let mut below = [1.0; 4];
            if m < c && (half == 0 || m < first + 4) {
                // SAFETY: `x` are rows of the chunk.
                below = unsafe { x.entry(4 * m + (class + 1 + half) % 4) };
            }
            let mut above = below;
            if half == 1 && m > first {
                // SAFETY: `x` are rows of the chunk.
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
            // Skips partners past the last entry.
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
