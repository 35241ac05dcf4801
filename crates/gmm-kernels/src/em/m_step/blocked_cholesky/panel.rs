//! Sweeps over a matrix in device memory, thirty-two columns at a time.
//!
//! What `invert` does a column at a time is done for thirty-two: a *panel* of columns comes to shared
//! memory, where they are swept one after another; the rest of the matrix then loses what thirty-two sweeps take from it, a
//! product of matrices on the tensor cores; and last the panel itself becomes what later sweeps of its own make of it.
//! With `w` what is left of a column when its turn comes, and `p` its pivot, an entry `(i, j)` that is in none of the panel's
//! columns loses Σ wᵢwⱼ/p. Of column `m` remains `wᵢ/p`, less Σ wᵢwₘ/p over the panel's columns after it.

use crate::Real;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::each::each;
use crate::em::m_step::blocked_cholesky::{STRIDE, WARPS, read_together, rows_of_warp, side};
use crate::em::m_step::{Component, OWN_THREADS};
use crate::math::reciprocal;

/// Columns of a panel.
const WIDTH: usize = WARP as usize;

/// Numbers of a panel that a lane reads together.
const ON_THEIR_WAY: usize = 8;

/// A panel in shared memory.
#[derive(Clone, Copy)]
struct Panel {
    /// Its first column.
    first: u32,
    /// How many it has.
    count: u32,
    /// `(side, STRIDE)`.
    at: Shared<f64>,
    /// `(WIDTH,)`: one over its pivots, 0 past the last.
    shares: Shared<f64>,
}

impl Panel {
    #[inline(always)]
    fn row(self, i: u32) -> Shared<f64> {
        self.at.skip(i * STRIDE)
    }

    /// What is left of column `m` in the row of column `j`.
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
    /// As [`invert`](Self::invert).
    #[inline(always)]
    pub(crate) unsafe fn invert_by_panels(&self) {
        let (w, d) = (self.w, self.a.d);
        let mut first = 0;
        while first < d {
            let count = if d - first < WARP { d - first } else { WARP };
            let panel = Panel { first, count, at: w.a, shares: w.column[1] };
            // SAFETY: the caller's promise.
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

    /// A panel's columns into shared memory, with zeros past the last row and column.
    #[inline(always)]
    unsafe fn bring(&self, panel: Panel) {
        let (d, matrix) = (self.a.d, self.matrix().cast_const());
        // Rows before it are columns of its own rows.
        rows_of_warp(0, WARP, |m, lane| {
            // SAFETY: `i < first + m < d`.
            let there = |i| unsafe { device::load(matrix, self.entry(panel.first + m, i)) };
            let read = |i| if m < panel.count { there(i) } else { 0.0 };
            read_together::<ON_THEIR_WAY>(lane, WARP, |i| i < panel.first, read, |i, v| panel.row(i).store(m, v));
        });
        let (me, m) = (thread::thread_idx_x() / WARP, warp::lane_id());
        let there = |i| {
            let j = panel.first + m;
            let (row, column) = if j <= i { (i, j) } else { (j, i) };
            // SAFETY: `column ≤ row < d`.
            if row < d && m < panel.count { unsafe { device::load(matrix, self.entry(row, column)) } } else { 0.0 }
        };
        let store = |i, v| panel.row(i).store(m, v);
        read_together::<ON_THEIR_WAY>(panel.first + me, WARPS, |i| i < side(d), there, store);
    }

    /// Sweeps of a panel's columns, in its own rows: of each column what is left of it when its turn comes stays. One warp, a
    /// lane has a row.
    #[inline(always)]
    unsafe fn sweep_own(&self, panel: Panel) {
        let lane = warp::lane_id();
        let row = panel.row(panel.first + lane);
        let mut left = [0.0; WIDTH];
        each(WIDTH, |m| left[m] = row.load(m as u32));
        each(WIDTH, |m| {
            // Column `m` of all rows is there.
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
                    // The next step waits for that.
                    if j == m + 1 {
                        row.store(j as u32, left[j]);
                    }
                }
            });
        });
    }

    /// The same in all other rows, which need nothing of each other.
    #[inline(always)]
    fn sweep_others(&self, panel: Panel) {
        // Written out, as below. All lanes go on together.
        let (mut i, step) = (thread::thread_idx_x(), device::unknown(OWN_THREADS));
        while i < side(self.a.d) {
            if !panel.has(i) {
                let row = panel.row(i);
                let mut left = [0.0; WIDTH];
                each(WIDTH, |m| left[m] = row.load(m as u32));
                each(WIDTH, |m| {
                    // Keeps what comes after from being read ahead.
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

    /// Rows of the inverse of the covariance's factor: how a row's entry depends on those before is what was left of them
    /// before its sweep.
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

    /// What the panel's sweeps take from the rest of the matrix: sixteen rows a warp, by some columns at a time, so that these
    /// wait for device memory together.
    #[inline(always)]
    unsafe fn take_from_others(&self, panel: Panel) {
        const STEPS: usize = WIDTH / 16;
        /// Groups of eight columns: together as many as a panel has, so that all or none are its own.
        const TILES: usize = WIDTH / 8;
        let (lane, d, matrix) = (warp::lane_id(), self.a.d, self.matrix());
        let (g, t, me) = (lane / 4, lane % 4, thread::thread_idx_x() / WARP);
        let mut shares = [0.0; 4 * STEPS];
        each(4 * STEPS, |q| shares[q] = -panel.shares.load(4 * q as u32 + t));
        let (blocks, mut turn) = (side(d) / 16, 0);
        while turn * WARPS < blocks {
            // To and fro, since later rows are longer.
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
                    // What is above the diagonal nobody wrote.
                    let place = |tile: usize, e: usize| {
                        let i = first + g + 8 * (e as u32 / 2);
                        let j = column + 8 * tile as u32 + 2 * t + e as u32 % 2;
                        (self.entry(i, j), j <= i && i < d)
                    };
                    let mut left = [[0.0; 4]; TILES];
                    each(4 * TILES, |e| {
                        let (at, there) = place(e / 4, e % 4);
                        if there {
                            // SAFETY: `j ≤ i < d`.
                            left[e / 4][e % 4] = unsafe { device::load(matrix.cast_const(), at) };
                        }
                    });
                    // The products are for all lanes.
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
                            // SAFETY: as above; nobody else has it.
                            unsafe { device::store(matrix, at, left[e / 4][e % 4]) };
                        }
                    });
                }
                column += WARP;
            }
        }
    }

    /// The panel's columns after all of its sweeps: to their rows of the panel, but those of its own rows, which others still
    /// read, to the matrix.
    #[inline(always)]
    unsafe fn after_all(&self, panel: Panel) {
        let (d, matrix) = (self.a.d, self.matrix());
        // Written out: a closure of that size stays a call. All lanes go on together.
        let (mut i, step) = (thread::thread_idx_x(), device::unknown(OWN_THREADS));
        while i < side(d) {
            let (row, own) = (panel.row(i), i.wrapping_sub(panel.first));
            let mut left = [0.0; WIDTH];
            each(WIDTH, |m| {
                let m32 = m as u32;
                let share_of = panel.shares.load(m32);
                // A row of the panel's own becomes `−1/p` with its sweep, and columns before it follow from that.
                left[m] = match panel.has(i) {
                    true if m32 < own => 0.0,
                    true if m32 == own => -share_of,
                    _ => row.load(m32) * share_of,
                };
            });
            // A column needs those after it as they were. It is stored before the next, which keeps the compiler from reading all
            // of the panel's own rows ahead.
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
                    // SAFETY: within the square; nobody else has it.
                    unsafe { device::store(matrix, self.entry(i, panel.first + m as u32), v) };
                }
            });
            i += step;
        }
    }

    /// What [`after_all`](Self::after_all) left in the panel, to the matrix.
    #[inline(always)]
    unsafe fn give_back(&self, panel: Panel) {
        let (d, matrix) = (self.a.d, self.matrix());
        rows_of_warp(0, panel.count, |m, lane| {
            let mut i = lane;
            while i < panel.first {
                // SAFETY: `i < first + m < d`; nobody else has it.
                unsafe { device::store(matrix, self.entry(panel.first + m, i), panel.row(i).load(m)) };
                i += WARP;
            }
        });
        rows_of_warp(panel.first + WARP, d, |i, m| {
            // SAFETY: `first + m < i < d`, since a panel that rows follow is full; nobody else has it.
            unsafe { device::store(matrix, self.entry(i, panel.first + m), panel.row(i).load(m)) };
        });
    }
}
