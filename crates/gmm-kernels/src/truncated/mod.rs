//! Truncated EM: each row counts for a few components, the best of those that it tries.
//!
//! ```text
//! truncated_step     a warp takes 32 rows, which lie in the order of their best components, one after another:
//!     try    <- the row's components, their neighbours, and the leaf of a tree over the components, each once
//!     joint  <- log joint densities of these, one lane for each
//!     list   <- the best of them, with their responsibilities
//!     at the end of a component's rows: its neighbours, those that its first rows explain best
//! sort, truncated_starts    where the entries of each component lie, by row
//! truncated_sums     one block per component: its moments about the mean, in the order of the rows
//! ```
//! Everything but the rows is in `f64`. The neighbours of a component follow from the first of its rows, at most [`SEEN`]: the
//! means of their log joint densities rank those that they tried.
//!
//! Sources: as for `gmm_host`'s module `truncated`, which does the same on the CPU with all rows of a component.

mod densities;
mod step;
mod sums;
mod table;

use crate::device::WARP;
use crate::layout::TILE_ROWS;

/// What a component's distance is measured by.
pub mod form {
    /// Reciprocal standard deviations, `(k, padded)`.
    pub const DIAG: u32 = 0;
    /// One for each component, `(k,)`.
    pub const SPHERICAL: u32 = 1;
    /// Rows of the inverse Cholesky factor, `(k, lines, padded)`.
    pub const FULL: u32 = 2;
    /// Factors: `1 / √ψ`, `(k, padded)`; their posterior means, `(k, lines, padded)`; loadings, `(k, factors, padded)`.
    pub const FACTORS: u32 = 3;
}

kernels! {
    /// Rows are less the shift. `n * listed` is below 2³².
    Truncated {
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// Components.
        k: u32,
        /// Size of a coordinate in bytes: 4 for `f32`, 8 for `f64`.
        number_bytes: u32,
        /// `(n, d)` tiled.
        x: *const u8,
        /// `(n,)`; or null if every row has weight 1.
        row_weights: *const f64,
        /// One of [`form`].
        form: u32,
        /// Length of a line of `means`, `scales`, `lines_of` and `loadings`, at least `d`.
        padded: u32,
        /// Lines of a component.
        lines: u32,
        /// Factors of a component.
        factors: u32,
        /// `(k, padded)`.
        means: *const f64,
        /// As [`form`] says, or null.
        scales: *const f64,
        /// As [`form`] says, or null.
        lines_of: *const f64,
        /// As [`form`] says, or null.
        loadings: *const f64,
        /// `(k,)`: log joint densities at the means.
        constants: *const f64,
        /// `(k,)`: component weights.
        weights: *const f64,
        /// Components of a row, at most 32 and `k`.
        listed: u32,
        /// Neighbours of a component, itself among them; 0 if every row has all components.
        each: u32,
        /// `(n,)`: rows in the order of their best components.
        order: *const u32,
        /// `(n, listed)`: the components of each row by its place in `order`, the best first; or null if there are none yet.
        before: *const u32,
        /// `(k, each)`.
        neighbours: *const u32,
        /// `(k, each)`, a copy of `neighbours`, of which `truncated_step` writes those of components that rows begin with.
        next_neighbours: *mut u32,
        /// Trees.
        trees: u32,
        /// `(trees,)`: their roots among the nodes.
        roots: *const u32,
        /// `(nodes, 3)`: the plane, the node below it and the one above; or `u32::MAX`, and the range of a leaf's members.
        nodes: *const u32,
        /// `(planes, padded)`.
        normals: *const f64,
        /// `(planes,)`.
        thresholds: *const f64,
        /// Components of the leaves.
        members: *const u32,
        /// `(n, listed)`, written: the components of each row by its place, the best first.
        components: *mut u32,
        /// `(n, listed)`, written: their responsibilities.
        responsibilities: *mut f64,
        /// `(blocks of truncated_step, 4)`, written: free energy, entropy, row weight, and the number of components tried.
        totals: *mut f64,
        /// `(n*listed,)`: places in `components` in the order of the components there, then of the places.
        entries: *const u32,
        /// `(n*listed,)`: those components.
        keys: *const u32,
        /// `(k + 1,)`, written by `truncated_starts`: where each component's entries begin.
        starts: *mut u32,
        /// `(k,)`, written by `truncated_sums`: Σ r.
        counts: *mut f64,
        /// `(k, d)`: Σ r (x − mean).
        first: *mut f64,
        /// Σ r of squares, `(k, d)` or `(k,)`, or of products of columns, `(k, d*(d+1)/2)` packed.
        second: *mut f64,
    }
    /// One warp for each [`ROWS`] rows: [`step_blocks`].
    truncated_step => step::body, step_shared;
    /// One thread for each entry.
    truncated_starts => sums::starts, no_shared;
    /// One block per component.
    truncated_sums => sums::body, sums_shared;
}

/// Rows of a warp of `truncated_step`.
pub const ROWS: u32 = 32;

/// Rows of a component from which its neighbours follow, at most.
pub const SEEN: u32 = 32;

/// Components that a row may try, at most.
pub const CANDIDATES: u32 = 256;

/// Components that the rows of a component try, of which means are kept, at most.
const TABLE: u32 = 128;

const WARPS: u32 = TILE_ROWS / WARP;

/// Most columns.
pub const COLUMNS: u32 = 1024;

/// Most factors.
pub const FACTORS: u32 = 64;

/// Blocks of `truncated_step`.
pub const fn step_blocks(n: u64) -> u64 {
    n.div_ceil(ROWS as u64 * WARPS as u64)
}

/// `(a / b, a % b)`; no call to a panic is compiled for a `b` of 0.
///
/// # Safety
/// `b` is not 0.
#[inline(always)]
unsafe fn divided(a: u32, b: u32) -> (u32, u32) {
    // SAFETY: the caller upholds `# Safety`.
    let b = unsafe { core::num::NonZeroU32::new_unchecked(b) };
    (a / b, a % b)
}

/// Where things of a warp lie in the shared memory of `truncated_step`, in `f64`.
#[derive(Clone, Copy)]
struct StepMemory {
    /// `(padded,)`.
    row: u32,
    /// `(factors, 32)`: posterior means of the factors, of each lane.
    factors: u32,
    /// `(CANDIDATES,)`.
    joint: u32,
    /// `(CANDIDATES,)`, `u32`.
    candidates: u32,
    /// `(32,)`: densities of the row's components; `(32,)`, `u32`: these.
    tops: u32,
    best: u32,
    /// `(TABLE,)`: sums, then means.
    sums: u32,
    /// `(TABLE,)`, `u32` each: components, and numbers of rows.
    tried: u32,
    rows: u32,
    end: u32,
}

impl StepMemory {
    #[inline(always)]
    const fn of(padded: u32, factors: u32) -> Self {
        let of_factors = padded;
        let joint = of_factors + factors * WARP;
        let candidates = joint + CANDIDATES;
        let tops = candidates + CANDIDATES / 2;
        let best = tops + WARP;
        let sums = best + WARP / 2;
        let tried = sums + TABLE;
        let rows = tried + TABLE / 2;
        Self { row: 0, factors: of_factors, joint, candidates, tops, best, sums, tried, rows, end: rows + TABLE / 2 }
    }
}

/// Bytes of shared memory of `truncated_step`; `factors` is 0 for covariances without them.
pub const fn step_bytes(padded: u32, factors: u32) -> u64 {
    8 * WARPS as u64 * StepMemory::of(padded, factors).end as u64 + SCRATCH_BYTES
}

/// Bytes of scratch for the sums of a block: four numbers for each warp.
const SCRATCH_BYTES: u64 = 8 * 4 * WARPS as u64;

/// Rows that `truncated_sums` stages at once for products of columns.
const STAGED: u32 = 8;

/// Bytes of shared memory of `truncated_sums`.
pub const fn sums_bytes(d: u32) -> u64 {
    let staged = (STAGED * (d + 1)) as u64;
    let teams = 3 * TILE_ROWS as u64;
    8 * (d as u64 + if staged > teams { staged } else { teams })
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Truncated) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn step_shared(a: &Truncated) -> u64 {
    step_bytes(a.padded, a.factors)
}

#[cfg(not(target_arch = "nvptx64"))]
fn sums_shared(a: &Truncated) -> u64 {
    sums_bytes(a.d)
}
