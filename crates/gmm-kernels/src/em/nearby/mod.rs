//! A pass over thousands of components that evaluates only those near a tile of rows.
//!
//! With many components nearly every responsibility is zero. Rows are put in an order in which neighbours belong to
//! neighbouring components, and every tile of 128 rows has a bounding box. A component is left out of a tile if its
//! log density is, anywhere in the box, below the log density of each of the tile's rows by more than [`FLOOR`]: its
//! share of any row is then less than 2⁻⁶⁰ of its weight.
//!
//! ```text
//! begin       nearby_encode       theta -> records: means, inverse factors, log normalisers
//!             nearby_seed         each row's best component, by a pass in f32 over all components; rows are sorted by it
//!             nearby_gather       rows in that order; boxes of the tiles
//! iteration   nearby_lists        for 4 tiles: a lower bound of the rows' densities, from their best components of the
//!                                 pass before; the components that may matter in their common box
//!             nearby_pass         for each tile, of that list:
//!                 list   <- components whose bound in the tile's box is high enough
//!                 total  <- sum_c exp(log p(x, c) - about)   one thread per row; also the best component, for the next pass
//!                 sums_c <- sum_x r_c(x) (1, z, z zᵀ)         z = x − mean; one thread per component, or several that share the rows
//!             nearby_sums         for 8 components: the sums of the blocks that met one of them, added
//!             nearby_pool         a tied covariance: the components' second moments about their next means, added
//! ```
//! `about` is the density at the best component of the pass before. Everything but the seeds is computed in `f64`, as
//! differences from the means; the exponential has the rows' precision. A component's sums in a tile are added by the same
//! threads in the same order each time. What is left out depends on the best components of the pass before, but always
//! lies below the bound: a loop that is resumed gives the same to rounding.
//!
//! A bound for a box: with a diagonal covariance, the density at the box's point nearest to the mean. With a full one,
//! a point `z` of the box nearly nearest in Mahalanobis distance gives the direction `u = Σ⁻¹ z`, and the distance
//! of the half-space `{x: u·x ≥ min over the box of u·x}` bounds that of the box, whatever `z` is.

mod component;
mod lists;
mod pass;
mod pool;
mod prepare;
mod sums;

pub(crate) use prepare::coordinate;

use crate::device::{Shared, WARP, anew, thread, warp};
use crate::em::m_step::has_matrix;
use crate::layout::{TILE_ROWS, packed_len};

kernels! {
    /// The kernels share their parameters. `(n, d)` arrays are tiled; rows are less the shift.
    Nearby {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that a pass begins, from 1.
        iteration: u32,
        /// Rows.
        n: u64,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// One of [`kind`](crate::em::m_step::kind). A tied covariance has the records and sums of full ones.
        kind: u32,
        /// Columns of a [`Size`].
        padded: u32,
        /// Size of a coordinate in bytes: 4 for `f32`, 8 for `f64`.
        number_bytes: u32,
        /// [`FeatureLayout::steps`](crate::em::layout::FeatureLayout::steps).
        steps: u32,
        /// [`FeatureLayout::groups`](crate::em::layout::FeatureLayout::groups).
        groups: u32,
        /// [`FeatureLayout::classes`](crate::em::layout::FeatureLayout::classes).
        classes: u32,
        /// `(n, d)`: rows in the caller's order.
        from: *const u8,
        /// `(n,)`: their weights; or null if every row has weight 1.
        from_weights: *const f64,
        /// `(n,)`: for each ordered row, its position in the caller's order.
        order: *const u32,
        /// `(n,)`: of each row in the caller's order, the best component; written by `nearby_seed` and by an evaluation. Null in
        /// `nearby_gather`: `best` stays.
        labels: *mut u32,
        /// `(n, d)`: the ordered rows; written by `nearby_gather`.
        x: *mut u8,
        /// `(n,)`: their weights, if rows have weights.
        row_weights: *mut f64,
        /// `(n,)`: of each ordered row, the best component.
        best: *mut u32,
        /// `(tiles, 2, d)`: the lowest and highest value of each column.
        boxes: *mut f64,
        /// `(k,)`: component weights.
        weights: *const f64,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// Packed covariances, or variances.
        covariances: *const f64,
        /// `(k, Size::record)`: log normaliser, log weight, mean, inverse factor.
        records: *mut f64,
        /// `(2*d + 1, k)`: means, reciprocal standard deviations of the columns, log normalisers.
        columns: *mut f64,
        /// `(groups of tiles, k)`: components that may matter in a group, ascending.
        lists: *mut u32,
        /// `(groups of tiles,)`: how many.
        counts: *mut u32,
        /// `(tiles,)`: a lower bound of the log densities of a tile's rows.
        lows: *mut f64,
        /// `(tiles,)`, written by a pass: components that it evaluated.
        listed: *mut u32,
        /// A pass takes one tile in this many: 1, or more for a look at the lengths of the lists.
        every: u32,
        /// Blocks of a pass.
        blocks: u32,
        /// `(blocks, FeatureLayout::sums)`: those of components that the block met, and its log-likelihood.
        partials: *mut f64,
        /// `(blocks, groups)`: 1 for each group of eight components of which the block met one, 0 for others.
        met: *mut u32,
        /// `(FeatureLayout::sums,)`, written by `nearby_sums`.
        sums: *mut f64,
        /// `(blocks, 2)`, written by an evaluation: each block's log-likelihood and entropy; or null, and a pass adds up sums.
        totals: *mut f64,
        /// `(n,)`, in the caller's order, written by an evaluation: log densities; or null.
        log_densities: *mut f64,
        /// Σ w.
        total_weight: f64,
        /// `(d*(d+1)/2,)`, written by `nearby_pool`: Σ r (x − mean)(x − mean)ᵀ of all components, about the next means.
        scatter: *mut f64,
    }
    /// Any number of blocks along `x`.
    nearby_encode => prepare::encode, no_shared;
    /// One block per tile.
    nearby_gather => prepare::gather, gather_shared;
    /// One block per group of [`TILES`] tiles.
    nearby_lists => lists::body, lists_shared;
    /// One block per group of eight components, and one more.
    nearby_sums => sums::body, sums_shared;
    /// One block per entry of a packed matrix.
    nearby_pool => pool::body, gather_shared;
    /// Best components, full covariances, up to two columns; any number of blocks.
    nearby_seed_full_2 => prepare::seed::<2, 3, true>, seed_shared;
    /// Up to three columns.
    nearby_seed_full_3 => prepare::seed::<3, 6, true>, seed_shared;
    /// Up to four columns.
    nearby_seed_full_4 => prepare::seed::<4, 10, true>, seed_shared;
    /// Up to six columns.
    nearby_seed_full_6 => prepare::seed::<6, 21, true>, seed_shared;
    /// Diagonal and spherical covariances, up to four columns.
    nearby_seed_diag_4 => prepare::seed::<4, 4, false>, seed_shared;
    /// Up to eight columns.
    nearby_seed_diag_8 => prepare::seed::<8, 8, false>, seed_shared;
    /// Up to twelve columns.
    nearby_seed_diag_12 => prepare::seed::<12, 12, false>, seed_shared;
    /// A pass, full covariances, up to two columns; any number of blocks.
    nearby_pass_full_2 => pass::body::<2, 3, true>, pass_shared;
    /// Up to three columns.
    nearby_pass_full_3 => pass::body::<3, 6, true>, pass_shared;
    /// Up to four columns.
    nearby_pass_full_4 => pass::body::<4, 10, true>, pass_shared;
    /// Up to six columns.
    nearby_pass_full_6 => pass::body::<6, 21, true>, pass_shared;
    /// Diagonal and spherical covariances, up to four columns.
    nearby_pass_diag_4 => pass::body::<4, 4, false>, pass_shared;
    /// Up to eight columns.
    nearby_pass_diag_8 => pass::body::<8, 8, false>, pass_shared;
    /// Up to twelve columns.
    nearby_pass_diag_12 => pass::body::<12, 12, false>, pass_shared;
}

/// A component is left out where its log density is below that of every row of a tile by this much: 60 ln 2.
pub const FLOOR: f64 = 60.0 * core::f64::consts::LN_2;

/// Tiles in a group.
pub const TILES: u32 = 4;

/// Components whose records are in shared memory at once.
const STAGED: u32 = 64;

/// Components of a tile whose numbers fit in shared memory. Longer lists stay those of the group.
const LISTED: u32 = 4096;

/// The instance of the kernels for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Whether covariances are full, or tied.
    pub is_full: bool,
    /// Columns that the instance computes; those past `d` are 0.
    pub columns: u32,
}

impl Size {
    /// All instances, the smallest of each kind first.
    pub const ALL: [Self; 7] = [
        Self { is_full: true, columns: 2 },
        Self { is_full: true, columns: 3 },
        Self { is_full: true, columns: 4 },
        Self { is_full: true, columns: 6 },
        Self { is_full: false, columns: 4 },
        Self { is_full: false, columns: 8 },
        Self { is_full: false, columns: 12 },
    ];

    /// The smallest instance for `d` columns; `None` if there is none.
    pub fn of(is_full: bool, d: u32) -> Option<Self> {
        let of_kind = |size: &&Self| size.is_full == is_full && size.columns >= d;
        Self::ALL.iter().find(of_kind).copied()
    }

    /// Numbers of a component's record.
    pub const fn record(self) -> u32 {
        record(self.columns, self.is_full)
    }

    /// The kernel that finds best components.
    ///
    /// # Panics
    /// Never for a size from [`of`](Self::of).
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn seed(self) -> crate::Kernel<Nearby> {
        match (self.is_full, self.columns) {
            (true, 2) => nearby_seed_full_2(),
            (true, 3) => nearby_seed_full_3(),
            (true, 4) => nearby_seed_full_4(),
            (true, 6) => nearby_seed_full_6(),
            (false, 4) => nearby_seed_diag_4(),
            (false, 8) => nearby_seed_diag_8(),
            (false, 12) => nearby_seed_diag_12(),
            _ => panic!("{self:?} is not there"),
        }
    }

    /// The kernel of a pass.
    ///
    /// # Panics
    /// Never for a size from [`of`](Self::of).
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn pass(self) -> crate::Kernel<Nearby> {
        match (self.is_full, self.columns) {
            (true, 2) => nearby_pass_full_2(),
            (true, 3) => nearby_pass_full_3(),
            (true, 4) => nearby_pass_full_4(),
            (true, 6) => nearby_pass_full_6(),
            (false, 4) => nearby_pass_diag_4(),
            (false, 8) => nearby_pass_diag_8(),
            (false, 12) => nearby_pass_diag_12(),
            _ => panic!("{self:?} is not there"),
        }
    }

    /// Bytes of shared memory of a pass.
    pub fn pass_bytes(self) -> u64 {
        u64::from(8 * PassMemory::of(self.columns, self.record()).end)
    }
}

/// Entries of an inverse factor.
#[inline(always)]
const fn roots(columns: u32, is_full: bool) -> u32 {
    if is_full { packed_len(columns) as u32 } else { columns }
}

/// Numbers of a record, an even number.
#[inline(always)]
const fn record(columns: u32, is_full: bool) -> u32 {
    (2 + columns + roots(columns, is_full)).next_multiple_of(2)
}

/// Where things lie in the shared memory of a pass, in `f64`.
#[derive(Clone, Copy)]
struct PassMemory {
    /// `(columns, 128)`: the tile's rows.
    rows: u32,
    /// `(128,)`: logarithms of the rows' densities.
    logs: u32,
    /// `(128,)`: weights of the rows.
    weights: u32,
    /// `(2, columns)`: the tile's box.
    edges: u32,
    /// Scratch of sums and counts.
    scratch: u32,
    /// `(STAGED, record)`.
    records: u32,
    /// `(LISTED,)`, `u32`.
    list: u32,
    end: u32,
}

impl PassMemory {
    #[inline(always)]
    const fn of(columns: u32, record: u32) -> Self {
        let logs = columns * TILE_ROWS;
        let weights = logs + TILE_ROWS;
        let edges = weights + TILE_ROWS;
        let scratch = edges + 2 * columns;
        let records = scratch + SCRATCH;
        let list = records + STAGED * record;
        Self { rows: 0, logs, weights, edges, scratch, records, list, end: list + LISTED / 2 }
    }
}

/// Numbers of scratch.
const SCRATCH: u32 = 8;

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Nearby) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn gather_shared(_: &Nearby) -> u64 {
    u64::from(8 * SCRATCH)
}

#[cfg(not(target_arch = "nvptx64"))]
fn lists_shared(a: &Nearby) -> u64 {
    u64::from(8 * (SCRATCH + 2 * a.d))
}

#[cfg(not(target_arch = "nvptx64"))]
fn sums_shared(a: &Nearby) -> u64 {
    u64::from(8 * SCRATCH + 4 * a.blocks)
}

#[cfg(not(target_arch = "nvptx64"))]
fn seed_shared(a: &Nearby) -> u64 {
    u64::from(4 * STAGED * record(a.padded, has_matrix(a.kind)))
}

#[cfg(not(target_arch = "nvptx64"))]
fn pass_shared(a: &Nearby) -> u64 {
    let record = record(a.padded, has_matrix(a.kind));
    u64::from(8 * PassMemory::of(a.padded, record).end)
}

/// Returns the smallest `value` of the block's 128 threads to each of them. It begins and ends with a barrier.
#[inline(always)]
fn block_least(value: f64, scratch: Shared<f64>) -> f64 {
    let smaller = |a: f64, b: f64| if b < a { b } else { a };
    let mut least = value;
    let mut step = WARP / 2;
    while step > 0 {
        least = smaller(least, warp::shuffle_xor(least, step));
        step /= 2;
    }
    thread::sync_threads();
    if warp::lane_id() == 0 {
        scratch.store(thread::thread_idx_x() / WARP, least);
    }
    thread::sync_threads();
    let mut w = 0;
    while w < TILE_ROWS / WARP {
        least = smaller(least, scratch.load(w));
        w += 1;
    }
    thread::sync_threads();
    least
}

/// Positions for the threads that `keep` something, in their order: this thread's, if it is one of them, and the number of
/// all. It begins and ends with a barrier.
#[inline(always)]
fn block_positions(keep: bool, scratch: Shared<f64>) -> (Option<u32>, u32) {
    let counts = scratch.as_f32();
    let own = warp::ballot(keep);
    let (lane, mine) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    thread::sync_threads();
    if lane == 0 {
        counts.store(mine, f32::from_bits(own.count_ones()));
    }
    thread::sync_threads();
    let (mut before, mut all) = ((own & ((1 << lane) - 1)).count_ones(), 0);
    let mut w = 0;
    while w < TILE_ROWS / WARP {
        let of_warp = counts.load(w).to_bits();
        if w < mine {
            before += of_warp;
        }
        all += of_warp;
        w += 1;
    }
    thread::sync_threads();
    (if own >> lane & 1 == 1 { Some(before) } else { None }, all)
}
