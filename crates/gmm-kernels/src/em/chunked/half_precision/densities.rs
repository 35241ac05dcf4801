//! Exponentials of the log joint densities of a chunk of rows, and their factors: see
//! [`double_precision`](crate::em::chunked::double_precision).
//!
//! A block processes a tile of 128 rows, a warp 32 of them, as operands in shared memory. Coefficients are streamed
//! through a [`Ring`](ring::Ring), so that the block loads each once for all its rows.
//!
//! Columns: a log joint density is a constant plus the product of features and coefficients. Full covariances: with `W`
//! the inverse of the covariance's Cholesky factor, compute `Wx − Wμ`. Of the eight tiles of rows of `W` that are
//! processed at a time, those above the diagonal are skipped. A log density is a constant less half the squared norm of
//! `W(x − μ)`.

use crate::device::ring;
use crate::device::{Shared, WARP, thread, warp};
use crate::em::chunked::half_precision::operand::{Right, add_products, rights};
use crate::em::chunked::half_precision::order::Full;
use crate::em::chunked::half_precision::rows::{ROWS, Rows, pair};
use crate::em::chunked::half_precision::softmax::{Joint, SoFar};
use crate::em::features::each;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiles};
use crate::{Real, THREADS};

kernels! {
    /// Any grid size in `x`; a block processes a tile of 128 rows at a time.
    Densities {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms of the rows if they are a feature; else null.
        norms: *const f32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`](crate::em::features::derive).
        derive: u32,
        /// [`HalfPrecision::steps`](crate::em::chunked::half_precision::HalfPrecision::steps).
        steps: u32,
        /// [`FeatureLayout::groups`](crate::em::layout::FeatureLayout::groups), a multiple of the groups processed at a
        /// time.
        groups: u32,
        /// `(d+1,)`: scales of columns and norms; powers of two.
        scales: *const f32,
        /// [`HalfPrecision::operands`](crate::em::chunked::half_precision::HalfPrecision::operands) words, 16-byte
        /// aligned.
        operands: *const u32,
        /// [`HalfPrecision::offsets`](crate::em::chunked::half_precision::HalfPrecision::offsets) elements: `−Wμ`,
        /// scaled like `W`; or null.
        offsets: *const f32,
        /// `(8*groups, 2)`, 16-byte aligned: constant of the log joint density, −∞ past the last component; and the
        /// multiplier of the product, or of the squared norm.
        scalars: *const f32,
        /// [`HalfPrecision::exponentials`](crate::em::chunked::half_precision::HalfPrecision::exponentials) words,
        /// written.
        exponentials: *mut u32,
        /// [`DoublePrecision::factors`](crate::em::chunked::double_precision::DoublePrecision::factors) elements,
        /// written: for each tile and piece, 128 rows.
        factors: *mut f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements, written: Σ ln p(x) of each
        /// sixteen rows.
        likelihoods: *mut f64,
    }
    /// Columns, up to 16 components.
    chunked_split_fp16_densities_linear_few => linear::<2, false>, shared_linear::<2, false>;
    /// Columns, up to 32 components at a time.
    chunked_split_fp16_densities_linear_narrow => linear::<4, false>, shared_linear::<4, false>;
    /// Columns, up to 64 components at a time.
    chunked_split_fp16_densities_linear_wide => linear::<8, false>, shared_linear::<8, false>;
    /// Full covariances of up to 16 columns, up to 16 components.
    chunked_split_fp16_densities_full_2_few => full::<2, 4, 2, 1, false>, shared_full::<2, false>;
    /// Full covariances of up to 16 columns, 32 components at a time.
    chunked_split_fp16_densities_full_2_narrow => full::<2, 4, 4, 1, false>, shared_full::<4, false>;
    /// Full covariances of up to 16 columns, 64 components at a time.
    chunked_split_fp16_densities_full_2_wide => full::<2, 4, 8, 1, false>, shared_full::<8, false>;
    /// Full covariances of up to 32 columns, up to 16 components.
    chunked_split_fp16_densities_full_4_few => full::<4, 2, 2, 1, false>, shared_full::<2, false>;
    /// Full covariances of up to 32 columns, 32 components at a time.
    chunked_split_fp16_densities_full_4_narrow => full::<4, 2, 4, 1, false>, shared_full::<4, false>;
    /// Full covariances of up to 32 columns, 64 components at a time.
    chunked_split_fp16_densities_full_4_wide => full::<4, 2, 8, 1, false>, shared_full::<8, false>;
    /// Full covariances of more columns, up to 16 components.
    chunked_split_fp16_densities_full_8_few => full::<8, 1, 2, 0, false>, shared_full::<2, false>;
    /// Full covariances of more columns, 32 components at a time.
    chunked_split_fp16_densities_full_8_narrow => full::<8, 1, 4, 0, false>, shared_full::<4, false>;
    /// Full covariances of more columns, 64 components at a time.
    chunked_split_fp16_densities_full_8_wide => full::<8, 1, 8, 0, false>, shared_full::<8, false>;
    /// Hi parts only: columns, up to 32 components at a time.
    chunked_fp16_densities_linear_narrow => linear::<4, true>, shared_linear::<4, true>;
    /// Hi parts only: columns, up to 64 components at a time.
    chunked_fp16_densities_linear_wide => linear::<8, true>, shared_linear::<8, true>;
    /// Hi parts only: full covariances of up to 16 columns, 32 components at a time.
    chunked_fp16_densities_full_2_narrow => full::<2, 4, 4, 1, true>, shared_full::<4, true>;
    /// Hi parts only: full covariances of up to 16 columns, 64 components at a time.
    chunked_fp16_densities_full_2_wide => full::<2, 4, 8, 1, true>, shared_full::<8, true>;
    /// Hi parts only: full covariances of up to 32 columns, 32 components at a time.
    chunked_fp16_densities_full_4_narrow => full::<4, 2, 4, 1, true>, shared_full::<4, true>;
    /// Hi parts only: full covariances of up to 32 columns, 64 components at a time.
    chunked_fp16_densities_full_4_wide => full::<4, 2, 8, 1, true>, shared_full::<8, true>;
    /// Hi parts only: full covariances of more columns, 32 components at a time.
    chunked_fp16_densities_full_8_narrow => full::<8, 1, 4, 0, true>, shared_full::<4, true>;
    /// Hi parts only: full covariances of more columns, 64 components at a time.
    chunked_fp16_densities_full_8_wide => full::<8, 1, 8, 0, true>, shared_full::<8, true>;
}

const WARPS: u32 = THREADS / WARP;

/// Ring for columns: steps are long, so the next operands must be prefetched early.
type Wide = ring::Ring<2, 0, 1>;
/// Ring for full covariances, which leave less room; those of more than 32 columns leave least.
type Narrow<const LATER: u32> = ring::Ring<1, 8, LATER>;

/// Additional prefetches in flight if a component has `tiles` tiles of eight rows at a time.
const fn later(tiles: usize) -> u32 {
    if tiles < 8 { 1 } else { 0 }
}

/// Bytes of the ring for full covariances of `steps` steps.
#[cfg(not(target_arch = "nvptx64"))]
const fn narrow_bytes(steps: u32) -> u32 {
    if steps <= 2 { Narrow::<{ later(4) }>::BYTES } else { Narrow::<{ later(8) }>::BYTES }
}

/// Elements from one component's densities to the next: four more than the rows, against bank conflicts.
const STRIDE: u32 = ROWS + 4;

/// Bytes of a warp's densities of a piece; full covariances compute them component by component.
const fn joint_bytes(groups: u32) -> u32 {
    4 * 8 * groups * STRIDE
}

/// Bytes of shared memory: the ring, then each warp's rows, then their densities.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len<const ONE: bool>(full: bool, derive: u32, steps: u32, groups: u32) -> u64 {
    let (ring, joint) = if full { (narrow_bytes(steps), joint_bytes(groups)) } else { (Wide::BYTES, 0) };
    (ring + WARPS * (Rows::<ONE>::bytes(steps, derive) + joint)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_linear<const G: usize, const ONE: bool>(a: &Densities) -> u64 {
    shared_len::<ONE>(false, a.derive, a.steps, G as u32)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_full<const G: usize, const ONE: bool>(a: &Densities) -> u64 {
    shared_len::<ONE>(true, a.derive, a.steps, G as u32)
}

/// Operands per unit of the stream.
const fn in_unit(one: bool) -> u32 {
    if one { 2 } else { 1 }
}

/// `N` operands from index `first` on of those taken from the ring.
#[inline(always)]
fn operands<const ONE: bool, const N: usize>(place: u32, first: u32, lane: u32) -> [Right; N] {
    rights::<ONE, N>(first, |unit| Shared::<f32>::at(place + unit * ring::OPERAND + 16 * lane).load4(0))
}

/// Constants and multipliers of a lane's two components of a group.
#[inline(always)]
unsafe fn scalars(a: &Densities, group: u32, t: u32) -> [f32; 4] {
    // SAFETY: `group < groups`.
    unsafe { f32::global_load4(a.scalars.wrapping_add((16 * group + 4 * t) as usize)) }
}

/// Body of the kernel for columns: `G` groups of components at a time; with `ONE`, hi parts only.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Densities`] document.
#[inline(always)]
unsafe fn linear<const G: usize, const ONE: bool>(a: Densities) {
    // SAFETY: `state` is null or a loop's state, as `Densities` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let pieces = a.groups / G as u32;
    let all = a.steps * a.groups / in_unit(ONE);
    // SAFETY: `operands` has `all` units, padded to what the ring copies at a time.
    let mut ring = unsafe { Wide::start(0, a.operands, all) };
    let rows = Rows::<ONE>::at(Wide::BYTES + me * Rows::<ONE>::bytes(a.steps, a.derive), &a, lane);
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        // SAFETY: `tile < tiles(n)`.
        unsafe { rows.stage(&a, tile, me * ROWS) };
        rows.expect(&a, tile + thread::grid_dim_x() as u64, me * ROWS);
        let mut so_far = SoFar::<false>::start(tile);
        let mut piece = 0;
        while piece < pieces {
            let mut joint: Joint<G> = [[[0.0; 4]; G]; 2];
            let mut step = 0;
            while step < a.steps {
                let place = ring.take(G as u32 / in_unit(ONE));
                let left = rows.left_or_squares(step);
                each(G / 4, |four| {
                    let right = operands::<ONE, 4>(place, 4 * four as u32, lane);
                    add_products::<ONE, 4, G>(&mut joint, (0, 4 * four), &left, &right);
                });
                if G < 4 {
                    let right = operands::<ONE, 2>(place, 0, lane);
                    add_products::<ONE, 2, G>(&mut joint, (0, 0), &left, &right);
                }
                step += 1;
            }
            each(G, |i| {
                // SAFETY: the group is below `groups`.
                let [c, m, d, n] = unsafe { scalars(&a, piece * G as u32 + i as u32, lane % 4) };
                each(2, |s| {
                    let [p, q, r, t] = joint[s][i];
                    joint[s][i] = [Real::fma(m, p, c), Real::fma(n, q, d), Real::fma(m, r, c), Real::fma(n, t, d)];
                });
            });
            // SAFETY: each lane has its own rows, and `piece < pieces`.
            unsafe { so_far.add::<G, ONE>(&a, piece, &joint) };
            piece += 1;
        }
        ring.rewind(all);
        // SAFETY: all pieces were added, and only this warp writes these rows.
        unsafe { so_far.finish(&a, pieces) };
        tile += thread::grid_dim_x() as u64;
    }
    ring.end();
}

/// Body of the kernel for full covariances: each component has `NT` tiles of eight rows at a time, `C` components make
/// eight tiles; `G` groups of components per piece; with `ONE`, hi parts only.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Densities`] document.
#[inline(always)]
unsafe fn full<const NT: usize, const C: usize, const G: usize, const LATER: u32, const ONE: bool>(a: Densities) {
    const { assert!(NT * C == 8 && LATER == later(NT)) };
    // SAFETY: `state` is null or a loop's state, as `Densities` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let pieces = a.groups / G as u32;
    let order = Full::of(a.d);
    let all = order.all(8 * a.groups) / in_unit(ONE);
    // SAFETY: `operands` has `all` units, padded to what the ring copies at a time.
    let mut ring = unsafe { Narrow::<LATER>::start(0, a.operands, all) };
    let own = Narrow::<LATER>::BYTES + me * (Rows::<ONE>::bytes(a.steps, a.derive) + joint_bytes(G as u32));
    let rows = Rows::<ONE>::at(own + joint_bytes(G as u32), &a, lane);
    let waiting = own;
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        // SAFETY: `tile < tiles(n)`.
        unsafe { rows.stage(&a, tile, me * ROWS) };
        rows.expect(&a, tile + thread::grid_dim_x() as u64, me * ROWS);
        let mut so_far = SoFar::<true>::start(tile);
        let mut piece = 0;
        while piece < pieces {
            let mut some = 0;
            while some < 8 * G as u32 {
                let first = piece * 8 * G as u32 + some;
                // SAFETY: `first + C` is at most `8*groups`, so these components have offsets and operands.
                let norms = unsafe { norms::<NT, C, LATER, ONE>(&a, order, &mut ring, &rows, first) };
                leave_norms(&norms, waiting, some);
                some += C as u32;
            }
            warp::sync_warp();
            // SAFETY: `piece < pieces`, so its groups exist.
            let joint = unsafe { joint_of_norms::<G>(&a, piece, waiting) };
            // The next piece overwrites what this one reads.
            warp::sync_warp();
            // SAFETY: each lane has its own rows, and `piece < pieces`.
            unsafe { so_far.add::<G, ONE>(&a, piece, &joint) };
            piece += 1;
        }
        ring.rewind(all);
        // SAFETY: all pieces were added, and only this warp writes these rows.
        unsafe { so_far.finish(&a, pieces) };
        tile += thread::grid_dim_x() as u64;
    }
    ring.end();
}

/// A lane's part of the squared norms of its four rows, for `C` components from `first` on.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Densities`] document.
#[inline(always)]
unsafe fn norms<const NT: usize, const C: usize, const LATER: u32, const ONE: bool>(
    a: &Densities,
    order: Full,
    ring: &mut Narrow<LATER>,
    rows: &Rows<ONE>,
    first: u32,
) -> [[f32; 4]; C] {
    let lane = warp::lane_id();
    let mut norms = [[0.0; 4]; C];
    let mut block = 0;
    while block < order.blocks() {
        let mut w = [[[0.0; 4]; 8]; 2];
        each(8, |v| {
            let component = first + (v / NT) as u32;
            let at = component * order.rows() + 64 * block + 8 * (v % NT) as u32 + 2 * (lane % 4);
            // SAFETY: `at` is a row of a component's padded factor, so it is within `offsets`.
            let [even, odd] = unsafe { pair(a.offsets, at as u64) };
            w[0][v] = [even, odd, even, odd];
            w[1][v] = w[0][v];
        });
        let mut add = |step: u32, w: &mut [[[f32; 4]; 8]; 2]| {
            // Known at compile time for the single block of 17 to 32 columns, so that the first step has no branch.
            let from = if C == 2 && step == 0 { 0 } else { order.first(block, step) };
            let end = if C == 2 { NT as u32 } else { order.end(block) };
            let place = ring.take(C as u32 * (end - from) / in_unit(ONE));
            let left = rows.left(step);
            each(4, |pair| {
                let tile = (2 * pair % NT) as u32;
                if tile >= from && tile < end {
                    let at = (2 * pair / NT) as u32 * (end - from) + (tile - from);
                    let right = operands::<ONE, 2>(place, at, lane);
                    add_products::<ONE, 2, 8>(w, (0, 2 * pair), &left, &right);
                }
            });
        };
        let mut step = 0;
        // The first step is separate, so that accumulators need no initialisation; only if registers suffice.
        if C <= 2 {
            add(0, &mut w);
            step = 1;
        }
        while step < order.steps(block) {
            add(step, &mut w);
            step += 1;
        }
        each(8, |v| {
            each(4, |r| {
                let [p, q] = [w[r / 2][v][r % 2 * 2], w[r / 2][v][r % 2 * 2 + 1]];
                norms[v / NT][r] = Real::fma(q, q, Real::fma(p, p, norms[v / NT][r]));
            });
        });
        block += 1;
    }
    norms
}

/// Adds up the four lanes' parts for `C` components from index `some` of the piece on, and stores them for
/// [`joint_of_norms`].
#[inline(always)]
fn leave_norms<const C: usize>(norms: &[[f32; 4]; C], waiting: u32, some: u32) {
    let lane = warp::lane_id();
    let (g, t) = (lane / 4, lane % 4);
    each(C, |c| {
        let mut mine = 0.0;
        each(4, |r| {
            let mut v: f32 = norms[c][r];
            v += warp::shuffle_xor(v, 1);
            v += warp::shuffle_xor(v, 2);
            if r as u32 == t {
                mine = v;
            }
        });
        let row = 16 * (t / 2) + 2 * g + t % 2;
        Shared::<f32>::at(waiting).store((some + c as u32) * STRIDE + row, mine);
    });
}

/// Log joint densities of a piece, from the stored norms.
///
/// # Safety
/// `piece` is below the number of pieces.
#[inline(always)]
unsafe fn joint_of_norms<const G: usize>(a: &Densities, piece: u32, waiting: u32) -> Joint<G> {
    let lane = warp::lane_id();
    let (g, t) = (lane / 4, lane % 4);
    let mut joint: Joint<G> = [[[0.0; 4]; G]; 2];
    each(G, |i| {
        // SAFETY: the group is one of the piece's.
        let [c, m, d, n] = unsafe { scalars(a, piece * G as u32 + i as u32, t) };
        each(2, |s| {
            each(2, |which| {
                let at = (8 * i as u32 + 2 * t + which as u32) * STRIDE + 16 * s as u32 + 2 * g;
                let both = Shared::<f64>::at(waiting + 4 * at).load(0).to_bits();
                let [even, odd] = [both as u32, (both >> 32) as u32].map(f32::from_bits);
                let (constant, by) = if which == 0 { (c, m) } else { (d, n) };
                joint[s][i][which] = Real::fma(by, even, constant);
                joint[s][i][2 + which] = Real::fma(by, odd, constant);
            });
        });
    });
    joint
}

const _: () = assert!(WARPS * ROWS == TILE_ROWS);
