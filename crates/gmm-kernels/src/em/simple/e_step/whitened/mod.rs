//! Full and tied covariances of up to 32 columns on the tensor cores in `f64`, for rows whose differences from a mean lose
//! nothing that matters if they are taken last: `y = M(x − μ) = M x − M μ`, with `M` the inverse of the factor.
//!
//! A warp has 32 rows, which it holds in registers, converted once. For each component it multiplies them by the tiles of 8×8
//! entries of `M` at and below the diagonal (with a tied covariance only once), starting from `−M μ`. A lane then has
//! two entries of every eight of its four rows. For four components at a time the four lanes of a row exchange sums of squares
//! so that each ends with one component's distances, and takes logarithms and exponentials of a quarter of the components.

mod ends;

use self::ends::{Slots, end_rows, of_quad};
use super::{EStep, SUM_BYTES, Totals};
use crate::device::{self, Shared, WARP, block_sum, mma, thread, warp};
use crate::each::each;
use crate::layout::{TILE_ROWS, tiles};
use crate::{Real, THREADS};

/// Most columns.
pub const MOST_COLUMNS: u32 = 32;

/// Components that the lanes of a row share.
const TOGETHER: u32 = 4;

/// Components after which the logarithms of densities no longer fit into shared memory.
const MOST_IN_SHARED: u32 = 64;

/// Positions in the numbers of a mixture, for [`EStep::whitening`]: for each component (or once, for a tied covariance) the
/// tiles of `M`, then for each component `−M μ`, `8 ceil(d/8)` numbers, then for each component the log scale. Components are
/// padded to a multiple of four, whose scales are −∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whitening {
    /// Groups of eight columns.
    steps: u32,
    /// Components, padded.
    padded: u32,
    factors: u32,
}

impl Whitening {
    /// The layout for `k` components of `d` columns.
    #[inline(always)]
    pub const fn of(k: u32, d: u32, is_tied: bool) -> Self {
        let padded = k.div_ceil(TOGETHER) * TOGETHER;
        Self { steps: d.div_ceil(8), padded, factors: if is_tied { 1 } else { padded } }
    }

    /// From one factor to the next.
    #[inline(always)]
    pub const fn stride(self) -> u64 {
        64 * (self.steps * (self.steps + 1) / 2) as u64
    }

    /// Position of entry `(i, j)`, `j ≤ i`, of the factor of component `c`. A tile's entries are ordered as the lanes of a
    /// product read them.
    #[inline(always)]
    pub const fn entry(self, c: u32, i: u32, j: u32) -> u64 {
        let (q, s) = (i / 8, j / 8);
        let lane = i % 8 * 4 + j % 4;
        c as u64 * self.stride() + ((q * (q + 1) / 2 + s) * 64 + j % 8 / 4 * WARP + lane) as u64
    }

    /// Position of entry `i` of `−M μ` of component `c`.
    #[inline(always)]
    pub const fn offset(self, c: u32, i: u32) -> u64 {
        self.factors as u64 * self.stride() + c as u64 * (8 * self.steps) as u64 + i as u64
    }

    /// Position of the log scale of component `c`.
    #[inline(always)]
    pub const fn scale(self, c: u32) -> u64 {
        self.offset(self.padded, 0) + c as u64
    }

    /// Number of numbers.
    pub const fn count(self) -> u64 {
        self.scale(self.padded)
    }

    /// Whether there is one factor for all components.
    pub const fn is_tied(self) -> bool {
        self.factors < self.padded
    }

    /// Components, padded to a multiple of four.
    pub const fn padded(self) -> u32 {
        self.padded
    }
}

/// Whether the logarithms of densities are in shared memory.
#[inline(always)]
const fn in_shared(k: u32) -> bool {
    k <= MOST_IN_SHARED
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn shared_bytes<T: Real>(a: &EStep<T>) -> u64 {
    let each = u64::from(a.k.div_ceil(TOGETHER) * 4 * THREADS * T::BYTES);
    u64::from(SUM_BYTES) + if in_shared(a.k) { each } else { 0 }
}

/// A lane's entries of its four rows, converted: for each group of eight columns the operand of the first 16 rows, then of the
/// others.
type Rows<const S: usize> = [[[f64; 4]; 2]; S];

/// Products of a group of eight entries: of the first 16 rows, then of the others.
type Products = [[f64; 4]; 2];

/// Loads rows `first + 8r` in columns `8s + t` and `8s + t + 4`; 0 past the last column.
#[inline(always)]
unsafe fn load<T: Real, const S: usize>(a: &EStep<T>, tile: u64, first: u32, t: u32) -> [T; 8 * MOST_STEPS] {
    let x = a.x.wrapping_add((tile * (TILE_ROWS as u64 * a.d as u64) + first as u64) as usize);
    let mut raw = [T::ZERO; 8 * MOST_STEPS];
    each(8 * S, |i| {
        let j = (i / 8 * 8 + i / 4 % 2 * 4) as u32 + t;
        if j < a.d {
            // SAFETY: `j < d`, and tiles are padded to 128 rows.
            raw[i] = unsafe { device::load(x, (j * TILE_ROWS + 8 * (i as u32 % 4)) as u64) };
        }
    });
    raw
}

const MOST_STEPS: usize = MOST_COLUMNS as usize / 8;

/// `M x` of a group of eight entries, added to `out`.
#[inline(always)]
unsafe fn multiply<const S: usize>(factor: *const f64, q: usize, x: &Rows<S>, out: &mut Products) {
    each(q + 1, |s| {
        let at = ((q * (q + 1) / 2 + s) * 64) as u64;
        // SAFETY: the caller passes a factor with this tile.
        let b = unsafe { [device::load(factor, at), device::load(factor, at + WARP as u64)] };
        mma::f64_16x8x8(&mut out[0], x[s][0], b);
        mma::f64_16x8x8(&mut out[1], x[s][1], b);
    });
}

/// Body of the kernels: `S` groups of eight columns, the last of which may be part of one.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
unsafe fn body<T: Real, const S: usize, const TIED: bool>(a: EStep<T>) {
    let lane = warp::lane_id();
    let (g, t) = (lane / 4, lane % 4);
    let first = thread::thread_idx_x() / WARP * WARP + g;
    let layout = Whitening { steps: S as u32, ..Whitening::of(a.k, a.d, TIED) };
    let mut totals = Totals { log_likelihood: 0.0, entropy: 0.0, weight: 0.0 };
    let all = tiles(a.n);
    let mut tile = thread::block_idx_x() as u64;
    let clamp = |tile: u64| if tile < all { tile } else { all - 1 };
    // The next tile is loaded while one is computed with, if there are registers for both.
    let is_ahead = T::BYTES == 4 && S <= 2;
    // SAFETY: the tile is clamped to the last one.
    let mut raw = unsafe { load::<T, S>(&a, clamp(tile), first, t) };
    while tile < all {
        let mut x = [[[0.0; 4]; 2]; S];
        each(8 * S, |i| x[i / 8][i / 2 % 2][i / 4 % 2 * 2 + i % 2] = raw[i].to_f64());
        let next = tile + thread::grid_dim_x() as u64;
        // SAFETY: the caller upholds `# Safety`; tiles are clamped or below `all`.
        unsafe {
            if is_ahead {
                raw = load::<T, S>(&a, clamp(next), first, t);
            }
            let r = a.responsibilities.wrapping_add((tile * TILE_ROWS as u64 * a.k as u64) as usize);
            let slots = Slots { in_shared: in_shared(a.k), r, first, t, k: a.k };
            let mut top = [f64::NEG_INFINITY; 4];
            let mut shared = [[[0.0; 4]; 2]; S];
            if TIED {
                each(S, |q| multiply(a.whitening.wrapping_add(lane as usize), q, &x, &mut shared[q]));
            }
            let mut group = 0;
            while group * TOGETHER < a.k {
                let mut squares = [[0.0; 4]; TOGETHER as usize];
                each(TOGETHER as usize, |i| {
                    let c = group * TOGETHER + i as u32;
                    if S > 2 {
                        // So that the loads of several components do not take more registers than there are.
                        warp::sync_warp();
                    }
                    squares[i] = distances::<T, S, TIED>(&a, layout, c, &x, &shared);
                });
                let squares = one_of_four(squares, t);
                let scale = device::load(a.whitening, layout.scale(group * TOGETHER + t));
                let mut joint = [T::ZERO; 4];
                each(4, |i| {
                    // NaN is a difference of infinities: squares of the row overflow, so its density is 0.
                    let distance = if squares[i] >= 0.0 { squares[i] } else { f64::INFINITY };
                    let exact = scale - 0.5 * distance;
                    joint[i] = T::from_f64(exact);
                    // A logarithm beyond the range of `T` counts as −∞.
                    let counts = joint[i] > T::NEG_INFINITY && exact > top[i];
                    top[i] = if counts { exact } else { top[i] };
                });
                slots.put(group, joint);
                group += 1;
            }
            end_rows(&a, tile, slots, of_quad(top, larger), &mut totals);
        }
        tile = next;
        if !is_ahead {
            // SAFETY: the tile is clamped to the last one.
            raw = unsafe { load::<T, S>(&a, clamp(tile), first, t) };
        }
    }
    let scratch = Shared::at(0);
    let sums = [totals.log_likelihood, totals.entropy, totals.weight].map(|v| block_sum(v, scratch));
    if thread::thread_idx_x() == 0 {
        each(3, |i| {
            // SAFETY: `partials` has three elements per block.
            unsafe { device::store(a.partials, thread::block_idx_x() as u64 * 3 + i as u64, sums[i]) };
        });
    }
}

/// This lane's part of the squared distances of its four rows from component `c`.
#[inline(always)]
unsafe fn distances<T: Real, const S: usize, const TIED: bool>(
    a: &EStep<T>,
    layout: Whitening,
    c: u32,
    x: &Rows<S>,
    shared: &[Products; S],
) -> [f64; 4] {
    let lane = warp::lane_id();
    let factor = a.whitening.wrapping_add((layout.entry(c, 0, 0) + lane as u64) as usize);
    let mut squares = [0.0; 4];
    each(S, |q| {
        let at = layout.offset(c, 8 * q as u32 + 2 * (lane % 4));
        // SAFETY: the caller passes `c` below the padded `k`; the offsets are padded to whole groups of eight.
        let offsets = unsafe { [device::load(a.whitening, at), device::load(a.whitening, at + 1)] };
        let mut y = [[0.0; 4]; 2];
        each(8, |i| y[i / 4][i % 4] = if TIED { offsets[i % 2] + shared[q][i / 4][i % 4] } else { offsets[i % 2] });
        if !TIED {
            // SAFETY: the factor of component `c` has the tiles of this group.
            unsafe { multiply(factor, q, x, &mut y) };
        }
        each(8, |i| squares[i / 2] = y[i / 4][i % 4].fma(y[i / 4][i % 4], squares[i / 2]));
    });
    squares
}

/// Adds the four lanes' parts of four components; lane `t` of them gets the sums of component `t`.
#[inline(always)]
fn one_of_four(parts: [[f64; 4]; 4], t: u32) -> [f64; 4] {
    let (mut half, mut out) = ([[0.0; 4]; 2], [0.0; 4]);
    each(8, |e| {
        let (pair, i) = (e / 4, e % 4);
        let (even, odd) = (parts[2 * pair][i], parts[2 * pair + 1][i]);
        let (kept, sent) = if t.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        half[pair][i] = kept + warp::shuffle_xor(sent, 1);
    });
    each(4, |i| {
        let (kept, sent) = if t < 2 { (half[0][i], half[1][i]) } else { (half[1][i], half[0][i]) };
        out[i] = kept + warp::shuffle_xor(sent, 2);
    });
    out
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

macro_rules! bodies {
    ($($name:ident: $steps:literal, $is_tied:literal;)*) => {$(
        /// Body of the kernel of this name.
        ///
        /// # Safety
        /// The buffers in `a` are as the fields of [`EStep`] document.
        #[inline(always)]
        pub unsafe fn $name<T: Real>(a: EStep<T>) {
            // SAFETY: the caller upholds `# Safety`.
            unsafe { body::<T, $steps, $is_tied>(a) };
        }
    )*};
}

bodies! {
    full_1: 1, false;
    full_2: 2, false;
    full_3: 3, false;
    full_4: 4, false;
    tied_1: 1, true;
    tied_2: 2, true;
    tied_3: 3, true;
    tied_4: 4, true;
}
