//! Exponentials of the log joint densities of a chunk of rows, and their factors.
//!
//! A warp takes 32 rows, as two operands of sixteen, so that each coefficient that it reads is used twice. Components
//! come in pieces; the exponentials of a piece are about the largest density of the row so far, and the factor of row
//! and piece sets that right, normalises and has the row's weight: exponential times factor is the responsibility. So
//! exponentials are written once, rounded to `T`, and nothing of size `n×k` is read again here.

use super::super::features::{GROUP, each};
use super::super::pass::derive;
use super::super::state::stopped;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::layout::{TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};

kernels! {
    /// Any grid in `x`; a block takes a tile of 128 rows at a time.
    Densities<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(ceil(n/128)*128,)`: squared norms of the rows, where they are a feature; else null.
        norms: *const f64,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`].
        derive: u32,
        /// [`Place::steps`](super::Place::steps).
        steps: u32,
        /// [`Place::groups`](super::Place::groups), a multiple of the groups that a warp takes at a time.
        groups: u32,
        /// [`Place::classes`](super::Place::classes), a multiple of 4.
        classes: u32,
        /// [`Place::coefficients`](super::Place::coefficients): of the log joint densities; 16-byte aligned.
        coefficients: *const f64,
        /// `(8*groups,)`: constants of the log joint densities; −∞ past the last component.
        constants: *const f64,
        /// [`Large::exponentials`](super::Large::exponentials), written: for each sixteen rows, in the order of the sums' columns.
        exponentials: *mut T,
        /// [`Large::factors`](super::Large::factors), written: for each tile, piece by piece, 128 rows.
        factors: *mut f64,
        /// [`likelihoods`](super::likelihoods), written: Σ w ln p(x) of each sixteen rows.
        likelihoods: *mut f64,
    }
    /// Products of entries, up to 32 components at a time.
    full_narrow => densities_full_narrow_f32, densities_full_narrow_f64, body::<T, Products, 4>, shared_bytes;
    /// Products of entries, up to 64 components at a time.
    full_wide => densities_full_wide_f32, densities_full_wide_f64, body::<T, Products, 8>, shared_bytes;
    /// Columns, up to 32 components at a time.
    linear_narrow => densities_linear_narrow_f32, densities_linear_narrow_f64, body::<T, Columns, 4>, shared_bytes;
    /// Columns, up to 64 components at a time.
    linear_wide => densities_linear_wide_f32, densities_linear_wide_f64, body::<T, Columns, 8>, shared_bytes;
}

/// Shared memory: each thread keeps, of four rows, the largest density and the sum, which registers have no room for.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const SHARED_BYTES: u64 = 2 * 4 * THREADS as u64 * 8;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &Densities<T>) -> u64 {
    SHARED_BYTES
}

/// A row's number that waits in shared memory between two pieces; each thread has its own.
#[derive(Clone, Copy)]
struct Waiting(Shared<f64>);

impl Waiting {
    #[inline(always)]
    fn at(which: u32) -> Self {
        Self(Shared::at((which * 4 * THREADS + thread::thread_idx_x()) * 8))
    }

    #[inline(always)]
    fn get(self, r: usize) -> f64 {
        self.0.load(r as u32 * THREADS)
    }

    #[inline(always)]
    fn set(self, r: usize, v: f64) {
        self.0.store(r as u32 * THREADS, v);
    }
}

/// Rows of a warp.
const ROWS: u32 = 2 * GROUP;

/// What is less than every density, and finite, so that a difference to −∞ is a number.
const LOWEST: f64 = -1e300;

/// Four of the rows of a warp: those of a lane, `g`, `g+8`, `g+16`, `g+24`.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    /// Entry `j` of the first is at `128 j`.
    x: *const T,
    /// Of the first, where norms are a feature.
    norm: *const f64,
    d: u32,
    derive: u32,
    classes: u32,
    steps: u32,
}

impl<T: Real> Rows<T> {
    /// Entry `j` of each; 0 where there is none.
    #[inline(always)]
    unsafe fn entry(self, j: u32) -> [f64; 4] {
        let mut out = [0.0; 4];
        if j < self.d {
            // SAFETY: `j < d`, and the tile is filled up past the last row.
            each(4, |i| {
                out[i] = unsafe { device::load(self.x, (j * TILE_ROWS + 8 * i as u32) as u64) }.to_f64();
            });
        }
        out
    }
}

/// Left operands of two times sixteen rows: sixteen features of each.
type Left = [[f64; 8]; 2];

/// Puts feature `quarter` of a lane into its operands.
#[inline(always)]
fn put(left: &mut Left, quarter: usize, rows: [f64; 4]) {
    each(4, |i| left[i / 2][2 * quarter + i % 2] = rows[i]);
}

/// Features with rows down and features across.
pub trait Across {
    /// Calls `f(step, operands)` for every step.
    ///
    /// # Safety
    /// The rows are there.
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, f: impl FnMut(u32, Left));
}

/// Columns as they are, and what is derived from them.
pub struct Columns;

impl Across for Columns {
    #[inline(always)]
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, mut f: impl FnMut(u32, Left)) {
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
            f(step, left);
            step += 1;
        }
    }
}

/// Products of entries: see [`Full`](super::super::features::Full). A step has entries `first..first+4` of a lane's class
/// times one partner, so the entries are read once for all partners.
pub struct Products;

impl Across for Products {
    #[inline(always)]
    unsafe fn across<T: Real>(x: Rows<T>, lane: u32, mut f: impl FnMut(u32, Left)) {
        let (c, class) = (x.classes, lane % 4);
        let used = x.d.div_ceil(4);
        let mut first = 0;
        while first < used {
            let mut u = [[0.0; 4]; 4];
            // SAFETY: the caller's promise, here and below.
            each(4, |i| u[i] = unsafe { x.entry(4 * (first + i as u32) + class) });
            let mut half = 0;
            while half < 2 {
                let turned = (class + 1 + half) % 4;
                let mut m = 0;
                while m <= c {
                    // For `m ≤ i`, and in half 0 for all.
                    let mut below = [1.0; 4];
                    if m < c && (half == 0 || m < first + 4) {
                        below = unsafe { x.entry(4 * m + turned) };
                    }
                    let mut above = below;
                    if half == 1 && m > first {
                        above = unsafe { x.entry(4 * (m - 1) + class) };
                    }
                    let mut left = [[0.0; 8]; 2];
                    each(4, |i| {
                        let by = if m > first + i as u32 { above } else { below };
                        let mut rows = u[i];
                        each(4, |row| rows[row] *= by[row]);
                        put(&mut left, i, rows);
                    });
                    f(((half * (c + 1) + m) * c + first) / 4, left);
                    m += 1;
                    // Partners that no row has.
                    if half == 0 && m == used {
                        m = c;
                    }
                    if half == 1 && m > used {
                        m = c + 1;
                    }
                }
                half += 1;
            }
            first += 4;
        }
    }
}

/// The kernel: `G` groups of components at a time.
///
/// # Safety
/// As the fields of [`Densities`] say.
#[inline(always)]
pub unsafe fn body<T: Real, F: Across, const G: usize>(a: Densities<T>) {
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        // SAFETY: a tile of the chunk's.
        unsafe { rows_of_warp::<T, F, G>(&a, tile, me * ROWS, lane) };
        tile += thread::grid_dim_x() as u64;
    }
}

#[inline(always)]
unsafe fn rows_of_warp<T: Real, F: Across, const G: usize>(a: &Densities<T>, tile: u64, first: u32, lane: u32) {
    let (g, t) = (lane / 4, lane % 4);
    let pieces = a.groups / G as u32;
    let row = tile * TILE_ROWS as u64 + (first + g) as u64;
    let rows = Rows {
        x: a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + (first + g) as u64) as usize),
        norm: a.norms.wrapping_add(row as usize),
        d: a.d,
        derive: a.derive,
        classes: a.classes,
        steps: a.steps,
    };
    // Sixteen rows of a component are neighbours, as are the components of a group and the groups.
    let sixteen = tile * (TILE_ROWS / GROUP) as u64 + (first / GROUP) as u64;
    let exponentials = a.exponentials.wrapping_add((sixteen * (128 * a.groups) as u64 + g as u64) as usize);
    let columns = [super::column(2 * t), super::column(2 * t + 1)];
    let own = Exponentials { to: exponentials, groups: a.groups, columns };
    let factors = a.factors.wrapping_add((tile * (TILE_ROWS * pieces) as u64 + (first + g) as u64) as usize);

    let (top, sum) = (Waiting::at(0), Waiting::at(1));
    each(4, |r| {
        top.set(r, LOWEST);
        sum.set(r, 0.0);
    });
    let mut piece = 0;
    while piece < pieces {
        let group = piece * G as u32;
        let mut joint = [[[0.0; 4]; G]; 2];
        each(G, |i| {
            let at = a.constants.wrapping_add((8 * (group + i as u32) + 2 * t) as usize);
            // SAFETY: two constants of a group.
            let (even, odd) = unsafe { (device::load(at, 0), device::load(at, 1)) };
            joint[0][i] = [even, odd, even, odd];
            joint[1][i] = joint[0][i];
        });
        let coefficients = a.coefficients.wrapping_add((128 * group + 2 * lane) as usize);
        // SAFETY: the rows are the chunk's; steps and groups are the coefficients'.
        unsafe {
            F::across(rows, lane, |step, left| {
                let tile = coefficients.wrapping_add((step as u64 * (128 * a.groups) as u64) as usize);
                each(G, |i| {
                    let at = tile.wrapping_add(128 * i);
                    let ([p, q], [r, s]) = (two(at), two(at.wrapping_add(64)));
                    mma::f64_16x8x16(&mut joint[0][i], left[0], [p, q, r, s]);
                    mma::f64_16x8x16(&mut joint[1][i], left[1], [p, q, r, s]);
                });
            });
        }
        // Written out: a closure of that size stays a call.
        // SAFETY: the lane's rows; `piece` is one of the pieces.
        unsafe {
            own.settle(0, group, &joint, top, sum);
            own.settle(1, group, &joint, top, sum);
            own.settle(2, group, &joint, top, sum);
            own.settle(3, group, &joint, top, sum);
        }
        // A lane finishes the pieces that it keeps here.
        if piece % 4 == t {
            // SAFETY: rows of the tile.
            each(4, |r| unsafe { device::store(factors, (piece * TILE_ROWS + 8 * r as u32) as u64, top.get(r)) });
        }
        piece += 1;
    }

    let mut likelihood = [0.0; 2];
    each(4, |r| {
        let (top, sum) = (top.get(r), sum.get(r));
        // SAFETY: `row` is below `n` where it is read.
        let weight = unsafe { row_weight(a, row + 8 * r as u64) };
        if weight > 0.0 {
            likelihood[r / 2] += weight * (top + ln_f64(sum));
        }
        // Not a number where a density is: it shows in the sums.
        let share = weight / sum;
        let mut piece = t;
        while piece < pieces {
            let at = (piece * TILE_ROWS + 8 * r as u32) as u64;
            // SAFETY: what this lane wrote above.
            unsafe {
                let below = device::load(factors.cast_const(), at) - top;
                device::store(factors, at, Real::exp(below) * share);
            }
            piece += 4;
        }
    });
    each(2, |i| {
        let mut v = likelihood[i];
        each(3, |by| v += warp::shuffle_xor(v, 4 << by));
        if lane == 0 {
            // SAFETY: sixteen rows of the tile.
            unsafe { device::store(a.likelihoods, sixteen + i as u64, v) };
        }
    });
}

/// Two numbers, 16-byte aligned.
#[inline(always)]
unsafe fn two(p: *const f64) -> [f64; 2] {
    // SAFETY: the caller's promise.
    unsafe { device::words::global_load_u64x2(p.cast()) }.map(f64::from_bits)
}

/// Where a lane leaves its exponentials.
#[derive(Clone, Copy)]
struct Exponentials<T> {
    /// Of its first row.
    to: *mut T,
    groups: u32,
    /// Of its two components of each group.
    columns: [u32; 2],
}

impl<T: Real> Exponentials<T> {
    /// Exponentials of one of four rows, for the groups of a piece that starts with `group`.
    #[inline(always)]
    unsafe fn settle<const G: usize>(
        self,
        r: usize,
        group: u32,
        joint: &[[[f64; 4]; G]; 2],
        top: Waiting,
        sum: Waiting,
    ) {
        let of = |i: usize, odd: usize| joint[r / 2][i][2 * (r % 2) + odd];
        let before = top.get(r);
        let mut most = before;
        each(G, |i| most = larger(larger(most, of(i, 0)), of(i, 1)));
        let most = quad(most, larger);
        let mut new = 0.0;
        let start = (r / 2 * 128) as u64 * self.groups as u64 + (128 * group + 8 * (r as u32 % 2)) as u64;
        each(G, |i| {
            each(2, |odd| {
                let e = T::from_f64(of(i, odd) - most).exp();
                new += e.to_f64();
                let at = start + (128 * i as u32 + 16 * self.columns[odd]) as u64;
                // SAFETY: each lane has rows and components of its own.
                unsafe { device::store(self.to, at, e) };
            });
        });
        sum.set(r, sum.get(r) * Real::exp(before - most) + quad(new, core::ops::Add::add));
        top.set(r, most);
    }
}

/// A row's weight; 0 past the last.
#[inline(always)]
unsafe fn row_weight<T: Real>(a: &Densities<T>, row: u64) -> f64 {
    if row >= a.n {
        0.0
    } else if a.row_weights.is_null() {
        1.0
    } else {
        // SAFETY: `row < n`.
        unsafe { device::load(a.row_weights, row) }
    }
}

/// A reduction over the four lanes that share a row.
#[inline(always)]
fn quad(v: f64, with: impl Fn(f64, f64) -> f64) -> f64 {
    let v = with(v, warp::shuffle_xor(v, 1));
    with(v, warp::shuffle_xor(v, 2))
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

const _: () = assert!(THREADS / WARP * ROWS == TILE_ROWS);
