//! A whole E-step and the sums of the M-step over `f32` rows of few columns: each warp has its own components.
//!
//! With two entries per row, matrix products have almost nothing to add up; the cost is one exponential and about
//! twenty operations per row and component. So all warps of a block process the same rows, two or four per lane, and
//! each warp its own components, whose sums stay in its registers:
//! 1. densities about the means, `2^(c − |W(x − μ)|²)`, with `c` relative to its largest value: no density exceeds 1,
//!    so the largest of a row need not be known. Rows far enough from all components to underflow are recomputed
//!    relative to their own maximum;
//! 2. the warps' parts of a row's sum are exchanged through shared memory, with one barrier for all these rows;
//! 3. moments about the means, from the same exponentials.
//!
//! `x − μ` uses `μ` as two numbers, so its error is relative to the difference itself. A lane adds at most `FLUSH`
//! times its rows in `f32`; longer sums are in `f64`, in a fixed order.

mod component;
mod exchange;
mod memory;
mod out;

use crate::Real;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::em::features::each;
use crate::em::lanes::{larger, row_weight};
use crate::em::layout::FeatureLayout;
use crate::em::small_d::component::{Sums, Terms, prepare};
use crate::em::small_d::exchange::exchange;
#[cfg(not(target_arch = "nvptx64"))]
pub use crate::em::small_d::memory::shared_bytes;
use crate::em::small_d::memory::{SHARES, TOP, ThreadShare, parameters, sums_len};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::small_d::memory::{shared, threads};
use crate::em::small_d::out::Out;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, packed_len};
use crate::math::{exp2_f32, log2_f32, reciprocal_f32};

kernels! {
    /// Any grid size in `x`; blocks of [`Partition::warps`] warps.
    SmallDPass {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass begins, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Components.
        k: u32,
        /// [`FeatureLayout::groups`] of the layout [`place`].
        groups: u32,
        /// Warps per block, [`Partition::warps`].
        warps: u32,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// Packed inverses of the Cholesky factors, `(k, d*(d+1)/2)`.
        roots: *const f64,
        /// `(8*groups,)`: log joint densities at the means; −∞ past the last component.
        constants: *const f64,
        /// `(blocks, FeatureLayout::sums)`, written.
        partials: *mut f64,
    }
    /// One column.
    small_d_1 => body::<1, 1, 12, 4>, shared::<1, 12, 4>, threads;
    /// Two columns, 7 components per warp.
    small_d_2_7 => body::<2, 3, 7, 4>, shared::<2, 7, 4>, threads;
    /// Two columns, 8 components per warp.
    small_d_2_8 => body::<2, 3, 8, 4>, shared::<2, 8, 4>, threads;
    /// Three columns.
    small_d_3 => body::<3, 6, 6, 2>, shared::<3, 6, 2>, threads;
}

/// Maximum warps per block: with 128 registers per thread they fill a multiprocessor.
const MOST_WARPS: u32 = 16;

/// Iterations, of [`Partition::rows`] rows per lane, after which `f32` sums are added to `f64` sums.
const FLUSH: u32 = 128;

/// Elements from one value of all lanes to the next in the transposition: one more than the lanes, against bank
/// conflicts.
const CROSSING: u32 = WARP + 1;

/// Below this, a row's sum of densities may be inaccurate because terms underflowed: 2⁻⁶⁰; the smallest normal `f32` is
/// 2⁻¹²⁶.
const LOW: f32 = f32::from_bits((127 - 60) << 23);

/// Split of a mixture's components among warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Columns.
    pub d: u32,
    /// Components per warp.
    pub each: u32,
    /// Rows per lane.
    pub rows: u32,
    /// Warps per block.
    pub warps: u32,
}

impl Partition {
    /// `None` if rows have too many columns, or the components need too many warps.
    pub fn of(k: u32, d: u32) -> Option<Self> {
        let (sizes, rows): (&[u32], u32) = match d {
            1 => (&[12], 4),
            2 => (&[8, 7], 4),
            3 => (&[6], 2),
            _ => return None,
        };
        let cuts = sizes.iter().map(|each| Self { d, each: *each, rows, warps: k.div_ceil(*each) });
        // Each of a multiprocessor's four schedulers gets every fourth warp, so the one with the most components
        // determines the time.
        cuts.filter(|cut| cut.warps <= MOST_WARPS).min_by_key(|cut| cut.warps.div_ceil(4) * cut.each)
    }

    /// Rows that a block processes at a time.
    pub const fn rows_of_block(self) -> u64 {
        (WARP * self.rows) as u64
    }
}

/// Layout of the sums.
pub const fn place(k: u32) -> FeatureLayout {
    FeatureLayout::full(1, k.div_ceil(8))
}

/// Returns the kernel of a partition.
///
/// # Panics
/// Panics if there is no kernel for it; [`Partition::of`] returns only partitions with one.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(cut: Partition) -> crate::Kernel<SmallDPass> {
    match (cut.d, cut.each) {
        (1, _) => small_d_1(),
        (2, 7) => small_d_2_7(),
        (2, _) => small_d_2_8(),
        (3, _) => small_d_3(),
        _ => panic!("{cut:?} is not there"),
    }
}

/// Loads a lane's rows from device memory; the tile is padded with zeros past the last row.
#[inline(always)]
unsafe fn fetch<const D: usize, const R: usize>(x: *const f32, some: u32, lane: u32) -> [[f32; D]; R] {
    let in_tile = TILE_ROWS / (R as u32 * WARP);
    let (tile, part) = (some / in_tile, some % in_tile);
    let from = x.wrapping_add((tile as u64 * (TILE_ROWS as u64 * D as u64)) as usize);
    let mut out = [[0.0; D]; R];
    each(R, |r| {
        each(D, |j| {
            let at = j as u32 * TILE_ROWS + (part * R as u32 + r as u32) * WARP + lane;
            // SAFETY: `some` is below `ceil(n / (32 R))`, so the tile is one of `x`'s, and `at` is within it.
            out[r][j] = unsafe { device::load(from, at as u64) };
        });
    });
    out
}

/// Parameters of component `c` of the warp whose parameters are at `own`.
#[inline(always)]
fn terms<const D: usize, const S: usize>(own: u32, c: usize) -> Terms<D, S> {
    Terms::<D, S>::load(parameters_of::<D>(own, c))
}

#[inline(always)]
fn parameters_of<const D: usize>(own: u32, c: usize) -> Shared<f32> {
    Shared::<f32>::at(own + 4 * c as u32 * parameters(D as u32))
}

/// Densities of a lane's rows for each of the warp's components, relative to 2^`about`; each row's sum over all
/// components; and the binary logarithm that the densities are relative to.
struct Densities<const C: usize, const R: usize> {
    e: [[f32; R]; C],
    total: [f32; R],
    about: [f32; R],
}

impl<const C: usize, const R: usize> Densities<C, R> {
    /// Computes them for the rows `x` in iteration `done`; `there` of the block's rows exist. All warps of the block
    /// call it.
    #[inline(always)]
    fn of<const D: usize, const S: usize>(x: &[[f32; D]; R], done: u32, warps: u32, there: u32) -> Self {
        let mine = ThreadShare::new::<D, C, R>();
        let mut e = [[0.0; R]; C];
        let mut sum = [0.0; R];
        each(C, |c| {
            let terms = terms::<D, S>(mine.parameters, c);
            each(R, |r| {
                e[c][r] = exp2_f32(terms.density(x[r]));
                sum[r] += e[c][r];
            });
        });
        let mut total = exchange(done, warps, sum, |a, b| a + b);
        let mine = ThreadShare::new::<D, C, R>();
        let mut about = [0.0; R];
        let mut low = false;
        each(R, |r| {
            // Negated, so that NaN counts as low.
            let enough = total[r] >= LOW;
            low |= r as u32 * WARP + mine.lane < there && !enough;
        });
        if warp::any(low) {
            // All warps see the same sums, so all take this branch together.
            let mut most = [f32::NEG_INFINITY; R];
            each(C, |c| {
                let terms = terms::<D, S>(mine.parameters, c);
                each(R, |r| most[r] = larger(most[r], terms.density(x[r])));
            });
            about = exchange(done + 1, warps, most, larger);
            sum = [0.0; R];
            let mine = ThreadShare::new::<D, C, R>();
            each(C, |c| {
                let terms = terms::<D, S>(mine.parameters, c);
                each(R, |r| {
                    e[c][r] = exp2_f32(terms.density(x[r]) - about[r]);
                    sum[r] += e[c][r];
                });
            });
            total = exchange(done, warps, sum, |a, b| a + b);
        }
        Self { e, total, about }
    }
}

/// Body of the kernel: `D` columns, `S` entries of a packed matrix, `C` components per warp, `R` rows per lane.
///
/// # Safety
/// The buffers in `a` are as the fields of [`SmallDPass`] document.
#[inline(always)]
unsafe fn body<const D: usize, const S: usize, const C: usize, const R: usize>(a: SmallDPass) {
    const { assert!(S as u64 == packed_len(D as u32) && parameters(D as u32) <= 16) };
    device::await_previous_grid();
    // SAFETY: `state` is null or a loop's state, as `SmallDPass` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    // SAFETY: the caller upholds `# Safety`: the buffers are as `SmallDPass` documents.
    unsafe { prepare::<D, S, C, R>(&a) };
    let mine = ThreadShare::new::<D, C, R>();
    let mut i = mine.lane;
    while i < C as u32 * sums_len(D as u32) {
        mine.totals.store(i, 0.0);
        i += WARP;
    }
    mine.likelihood.store(mine.lane, 0.0);
    warp::sync_warp();

    let mut sums = Sums::<D, S, C>::NOTHING;
    let rows = const { WARP as u64 * R as u64 };
    // No device holds enough rows to exceed 32 bits here.
    let all = a.n.div_ceil(rows) as u32;
    let mut now = thread::block_idx_x();
    let (mut done, mut turn) = (0, 0);
    let mut x = [[0.0; D]; R];
    if now < all {
        // SAFETY: `now < all`, so these rows exist.
        x = unsafe { fetch(a.x, now, mine.lane) };
    }
    while now < all {
        let first = device::unknown(now) as u64 * rows;
        // Number of the block's rows in this iteration.
        let there = if a.n - first < rows { (a.n - first) as u32 } else { rows as u32 };
        let Densities { e, total, about } = Densities::<C, R>::of::<D, S>(&x, done, a.warps, there);
        let mine = ThreadShare::new::<D, C, R>();
        let mut share = [0.0; R];
        let mut weight = [0.0; R];
        each(R, |r| {
            // SAFETY: `row_weights` is null or `(n,)`, as `SmallDPass` documents.
            weight[r] = unsafe { row_weight(a.row_weights, a.n, first + (r as u32 * WARP + mine.lane) as u64) };
            // NaN if a density is NaN: it reaches the sums, and the host repeats the pass on another path.
            share[r] = if weight[r] > 0.0 { weight[r] as f32 * reciprocal_f32(total[r]) } else { 0.0 };
        });
        // The warps take turns at adding the log-likelihood.
        if turn == mine.warp {
            let mut likelihood = mine.likelihood.load(mine.lane);
            let top = Shared::<f64>::at(TOP).load(0);
            each(R, |r| {
                let log = top + (about[r] + log2_f32(total[r])).to_f64();
                likelihood += if weight[r] > 0.0 { weight[r] * log } else { 0.0 };
            });
            mine.likelihood.store(mine.lane, likelihood);
        }
        turn = if turn + 1 == a.warps { 0 } else { turn + 1 };
        now += thread::grid_dim_x();
        let mut next = x;
        let mine = ThreadShare::new::<D, C, R>();
        each(C, |c| {
            if c == C / 2 && now < all {
                // Loaded when half of the exponentials no longer occupy registers.
                // SAFETY: `now < all`, so these rows exist.
                next = unsafe { fetch(a.x, now, mine.lane) };
            }
            let mean = parameters_of::<D>(mine.parameters, c).load4(0);
            each(R, |r| {
                let mut from = [0.0; D];
                each(D, |j| from[j] = x[r][j] - mean[j]);
                sums.add(c, e[c][r] * share[r], from);
            });
        });
        x = next;
        done += 1;
        if done.is_multiple_of(FLUSH) {
            sums.flush(ThreadShare::new::<D, C, R>());
        }
    }
    sums.flush(ThreadShare::new::<D, C, R>());
    // SAFETY: the caller upholds `# Safety`: the buffers are as `SmallDPass` documents.
    unsafe { store::<D, C, R>(&a) };
}

/// Writes the block's sums: each of a warp's first `C` lanes those of a component, and the first thread the
/// log-likelihood.
///
/// # Safety
/// The buffers in `a` are as the fields of [`SmallDPass`] document.
#[inline(always)]
unsafe fn store<const D: usize, const C: usize, const R: usize>(a: &SmallDPass) {
    let mine = ThreadShare::new::<D, C, R>();
    let mut likelihood = mine.likelihood.load(mine.lane) * core::f64::consts::LN_2;
    each(5, |by| likelihood += warp::shuffle_xor(likelihood, 1 << by));
    let likelihoods = Shared::<f64>::at(SHARES);
    thread::sync_threads();
    if mine.lane == 0 {
        likelihoods.store(mine.warp, likelihood);
    }
    let out = Out { a, place: FeatureLayout::full(1, a.groups) };
    // SAFETY: `partials` has `sums` elements for this block.
    unsafe { out.clear() };
    thread::sync_threads();
    let c = mine.warp * C as u32 + mine.lane;
    if mine.lane < C as u32 && c < a.k {
        // SAFETY: `partials` has `sums` elements for this block, and no other thread writes this component.
        unsafe { out.component::<D, C, R>(c) };
    }
    if mine.warp == 0 && mine.lane == 0 {
        let mut total = 0.0;
        let mut w = 0;
        while w < a.warps {
            total += likelihoods.load(w);
            w += 1;
        }
        // SAFETY: `partials` has `sums` elements for this block, and only this thread writes the log-likelihood.
        unsafe { out.put(out.place.log_likelihood(), total) };
    }
}
