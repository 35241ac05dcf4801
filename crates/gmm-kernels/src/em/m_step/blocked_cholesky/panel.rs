//! Sweeps over a matrix in device memory, thirty-two columns at a time.
//!
//! `invert` sweeps one column at a time; this sweeps a *panel* of thirty-two. The panel's columns are copied to shared
//! memory and swept one after another. Then the effect of all thirty-two sweeps is subtracted from the rest of the
//! matrix, as one matrix product on the tensor cores. Last, the later sweeps of the panel are applied to its own
//! columns. With `w` a column just before its own sweep, and `p` its pivot, an entry `(i, j)` in none of the panel's
//! columns is reduced by Σ wᵢwⱼ/p. Column `m` becomes `wᵢ/p`, less Σ wᵢwₘ/p over the panel's columns after it.

use crate::Real;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::each::each;
use crate::em::m_step::blocked_cholesky::{STRIDE, WARPS, read_together, rows_of_warp, side};
use crate::em::m_step::{Component, OWN_THREADS};
use crate::math::reciprocal;

/// Columns of a panel.
const WIDTH: usize = WARP as usize;

/// Values of a panel that a lane loads before it uses any.
const ON_THEIR_WAY: usize = 8;

/// A panel in shared memory.
#[derive(Clone, Copy)]
struct Panel {
    /// Its first column.
    first: u32,
    /// Number of its columns.
    count: u32,
    /// `(side, STRIDE)`.
    at: Shared<f64>,
    /// `(WIDTH,)`: reciprocals of its pivots, 0 past the last.
    shares: Shared<f64>,
}

impl Panel {
    #[inline(always)]
    fn row(self, i: u32) -> Shared<f64> {
        self.at.skip(i * STRIDE)
    }

    /// Entry of column `m`, before its sweep, in the row of the panel's column `j`.
    #[inline(always)]
    fn own(self, j: usize, m: usize) -> f64 {
        self.row(self.first + j as u32).load(m as u32)
    }

    #[inline(always)]
    fn has(self, i: u32) -> bool {
        i >= self.first && i < self.first + WARP
    }
}

impl Component<'_> {
    /// As [`invert`](Self::invert), for a matrix in device memory.
    #[inline(always)]
    pub(crate) unsafe fn invert_by_panels(&self) {
        let (w, d) = (self.w, self.a.d);
        let mut first = 0;
        while first < d {
            let count = if d - first < WARP { d - first } else { WARP };
            let panel = Panel { first, count, at: w.a, shares: w.column[1] };
            // SAFETY: `k < a.k`, so `matrices` holds `wide_matrix(d)` elements for this component; the panel is within
            // them.
            unsafe {
                self.bring(panel);
                thread::sync_threads();
                if thread::thread_idx_x() < WARP {
                    self.sweep_own(panel);
                }
                thread::sync_threads();
                self.sweep_others(panel);
                thread::sync_threads();
                if !self.a.roots.is_null() {
                    self.store_roots(panel);
                }
                self.take_from_others(panel);
                thread::sync_threads();
                self.after_all(panel);
                thread::sync_threads();
                self.give_back(panel);
            }
            thread::sync_threads();
            first += WARP;
        }
    }

    /// Copies a panel's columns to shared memory, with zeros past the last row and column.
    #[inline(always)]
    unsafe fn bring(&self, panel: Panel) {
        let (d, matrix) = (self.a.d, self.matrix().cast_const());
        // Entries above the panel, by symmetry from its own rows.
        rows_of_warp(0, WARP, |m, lane| {
            // SAFETY: `i < first + m < d`, so the entry is in the lower triangle.
            let there = |i| unsafe { device::load(matrix, self.entry(panel.first + m, i)) };
            let read = |i| if m < panel.count { there(i) } else { 0.0 };
            read_together::<ON_THEIR_WAY>(lane, WARP, |i| i < panel.first, read, |i, v| panel.row(i).store(m, v));
        });
        let (me, m) = (thread::thread_idx_x() / WARP, warp::lane_id());
        let there = |i| {
            let j = panel.first + m;
            let (row, column) = if j <= i { (i, j) } else { (j, i) };
            // SAFETY: `column ≤ row < d`, so the entry is in the lower triangle.
            if row < d && m < panel.count { unsafe { device::load(matrix, self.entry(row, column)) } } else { 0.0 }
        };
        let store = |i, v| panel.row(i).store(m, v);
        read_together::<ON_THEIR_WAY>(panel.first + me, WARPS, |i| i < side(d), there, store);
    }

    /// Sweeps the panel's columns in the panel's own rows, and leaves each column as it was before its own sweep. One
    /// warp; each lane has a row.
    #[inline(always)]
    unsafe fn sweep_own(&self, panel: Panel) {
        let lane = warp::lane_id();
        let row = panel.row(panel.first + lane);
        let mut left = [0.0; WIDTH];
        each(WIDTH, |m| left[m] = row.load(m as u32));
        each(WIDTH, |m| {
            // Column `m` of all rows has been written.
            warp::sync_warp();
            let pivot = panel.own(m, m);
            let is_there = (m as u32) < panel.count;
            let share_of = if is_there { reciprocal(pivot) } else { 0.0 };
            if lane == 0 {
                panel.shares.store(m as u32, share_of);
                if is_there {
                    self.w.pivot.store(panel.first + m as u32, pivot);
                }
            }
            let by = -left[m] * share_of;
            each(WIDTH, |j| {
                if j > m {
                    let other = panel.own(j, m);
                    left[j] = if lane == m as u32 { other * share_of } else { Real::fma(by, other, left[j]) };
                    // The next step reads this.
                    if j == m + 1 {
                        row.store(j as u32, left[j]);
                    }
                }
            });
        });
    }

    /// Sweeps the panel's columns in all other rows, which are independent of each other.
    #[inline(always)]
    fn sweep_others(&self, panel: Panel) {
        // Unrolled by hand, as in `after_all`. All lanes iterate together.
        let (mut i, step) = (thread::thread_idx_x(), device::unknown(OWN_THREADS));
        while i < side(self.a.d) {
            if !panel.has(i) {
                let row = panel.row(i);
                let mut left = [0.0; WIDTH];
                each(WIDTH, |m| left[m] = row.load(m as u32));
                each(WIDTH, |m| {
                    // Stops the compiler from hoisting later loads above this point.
                    warp::sync_warp();
                    let by = -left[m] * panel.shares.load(m as u32);
                    each(WIDTH, |j| {
                        if j > m {
                            left[j] = Real::fma(by, panel.own(j, m), left[j]);
                        }
                    });
                });
                each(WIDTH, |m| row.store(m as u32, left[m]));
            }
            i += step;
        }
    }

    /// Stores rows of the inverse of the Cholesky factor, from the rows as they were before their own sweeps.
    #[inline(always)]
    fn store_roots(&self, panel: Panel) {
        rows_of_warp(0, panel.count, |m, lane| {
            let (i, by) = (panel.first + m, Real::sqrt(panel.shares.load(m)));
            let mut j = lane;
            while j <= i {
                self.store_root(i, j, if i == j { -1.0 } else { panel.row(j).load(m) }, by);
                j += WARP;
            }
        });
    }

    /// Subtracts the effect of the panel's sweeps from the rest of the matrix: a warp takes sixteen rows and several
    /// columns at a time, so that their loads from device memory overlap.
    #[inline(always)]
    unsafe fn take_from_others(&self, panel: Panel) {
        const STEPS: usize = WIDTH / 16;
        /// Groups of eight columns: together one panel's width, so that either all or none are the panel's own.
        const TILES: usize = WIDTH / 8;
        let (lane, d, matrix) = (warp::lane_id(), self.a.d, self.matrix());
        let (g, t, me) = (lane / 4, lane % 4, thread::thread_idx_x() / WARP);
        let mut shares = [0.0; 4 * STEPS];
        each(4 * STEPS, |q| shares[q] = -panel.shares.load(4 * q as u32 + t));
        let (blocks, mut turn) = (side(d) / 16, 0);
        while turn * WARPS < blocks {
            // The order of warps alternates, since later rows are longer.
            let block = turn * WARPS + if turn % 2 == 0 { me } else { WARPS - 1 - me };
            turn += 1;
            let first = 16 * block;
            if block >= blocks || panel.has(first) {
                continue;
            }
            let mut rows = [[0.0; 8]; STEPS];
            each(STEPS, |step| {
                each(8, |e| {
                    let (q, half) = (e / 2, e % 2);
                    rows[step][e] = panel.row(first + g + 8 * half as u32).load((16 * step + 4 * q) as u32 + t);
                });
            });
            let mut column = 0;
            while column < first + 16 {
                if !panel.has(column) {
                    // Nothing was written above the diagonal.
                    let place = |tile: usize, e: usize| {
                        let i = first + g + 8 * (e as u32 / 2);
                        let j = column + 8 * tile as u32 + 2 * t + e as u32 % 2;
                        (self.entry(i, j), j <= i && i < d)
                    };
                    let mut left = [[0.0; 4]; TILES];
                    each(4 * TILES, |e| {
                        let (at, there) = place(e / 4, e % 4);
                        if there {
                            // SAFETY: `j ≤ i < d`, so the entry is in the lower triangle.
                            left[e / 4][e % 4] = unsafe { device::load(matrix.cast_const(), at) };
                        }
                    });
                    // All lanes take part in the mma.
                    warp::sync_warp();
                    each(TILES, |tile| {
                        each(STEPS, |step| {
                            let mut others = [0.0; 4];
                            each(4, |q| {
                                let row = panel.row(column + 8 * tile as u32 + g);
                                others[q] = row.load((16 * step + 4 * q) as u32 + t) * shares[4 * step + q];
                            });
                            mma::f64_16x8x16(&mut left[tile], rows[step], others);
                        });
                    });
                    each(4 * TILES, |e| {
                        let (at, there) = place(e / 4, e % 4);
                        if there {
                            // SAFETY: `j ≤ i < d`; only this lane accesses the entry.
                            unsafe { device::store(matrix, at, left[e / 4][e % 4]) };
                        }
                    });
                }
                column += WARP;
            }
        }
    }

    /// Computes the panel's columns after all of its sweeps. Results go to the panel in shared memory, except for its
    /// own rows, which other threads still read: those go to the matrix.
    #[inline(always)]
    unsafe fn after_all(&self, panel: Panel) {
        let (d, matrix) = (self.a.d, self.matrix());
        // Unrolled by hand: the compiler does not inline a closure of this size. All lanes iterate together.
        let (mut i, step) = (thread::thread_idx_x(), device::unknown(OWN_THREADS));
        while i < side(d) {
            let (row, own) = (panel.row(i), i.wrapping_sub(panel.first));
            let mut left = [0.0; WIDTH];
            each(WIDTH, |m| {
                let m32 = m as u32;
                let share_of = panel.shares.load(m32);
                // One of the panel's own rows becomes `−1/p` in its sweep; earlier columns follow from that.
                left[m] = match panel.has(i) {
                    true if m32 < own => 0.0,
                    true if m32 == own => -share_of,
                    _ => row.load(m32) * share_of,
                };
            });
            // A column needs the old values of those after it. Storing each before the next keeps the compiler from
            // loading all of the panel's own rows in advance.
            each(WIDTH, |m| {
                let mut v = [left[m], 0.0];
                each(WIDTH, |j| {
                    if j > m {
                        v[j % 2] = Real::fma(-left[j], panel.own(m, j), v[j % 2]);
                    }
                });
                let v = v[0] + v[1];
                if !panel.has(i) {
                    row.store(m as u32, v);
                } else if m as u32 <= own && i < d {
                    // SAFETY: `m ≤ own` and `i < d`, so the entry is in the lower triangle; only this thread accesses
                    // it.
                    unsafe { device::store(matrix, self.entry(i, panel.first + m as u32), v) };
                }
            });
            i += step;
        }
    }

    /// Copies the results of [`after_all`](Self::after_all) from the panel to the matrix.
    #[inline(always)]
    unsafe fn give_back(&self, panel: Panel) {
        let (d, matrix) = (self.a.d, self.matrix());
        rows_of_warp(0, panel.count, |m, lane| {
            let mut i = lane;
            while i < panel.first {
                // SAFETY: `i < first + m < d`; only this lane accesses the entry.
                unsafe { device::store(matrix, self.entry(panel.first + m, i), panel.row(i).load(m)) };
                i += WARP;
            }
        });
        rows_of_warp(panel.first + WARP, d, |i, m| {
            // SAFETY: `first + m < i < d`, since a panel that is followed by rows is full; only this lane accesses the
            // entry.
            unsafe { device::store(matrix, self.entry(i, panel.first + m), panel.row(i).load(m)) };
        });
    }
}
