//! Full covariances of up to 128 columns; in split fp16, up to 192.
//!
//! [`mod@encode`] writes the components' factors `W` in fp16. [`joint`] keeps 256 rows in registers while all
//! components are streamed past; it writes log joint densities, normalisers of the rows, and the rows' columns in fp16.
//! [`normalise`] turns these into responsibilities in the layout of a right operand. [`moments`] accumulates products
//! of two columns times responsibilities; the products of columns are computed in registers.
//!
//! In split fp16, `joint_halves` replaces [`joint`], columns are written in `f32`, and each product becomes three.
//! Since the tensor cores round towards zero, each sums at most 64 terms, starting from zero, and the results are added
//! in `f32`. With more than 128 columns, `joint_wide` is used, which has 32 rows of factors at a time in shared memory.
//!
//! Log joint densities, of size n×k, are stored in memory. With 128 columns, 38 blocks of the moments share 128
//! components; recomputing the densities in each of them would take longer than everything else.

pub mod encode;
pub mod joint;
mod joint_halves;
mod joint_wide;
pub mod moments;
pub mod normalise;
mod units;

use crate::device;
use crate::device::mma::to_halves;
use crate::em::chunked::half_precision::operand::two;
use crate::em::layout::FeatureLayout;

/// Rows processed together: those of a warpgroup's product.
pub const ROWS: u32 = 64;

/// Components of a moments block.
pub const COMPONENTS: u32 = 128;

/// Maximum number of columns. In split fp16 with 256 columns, log densities had errors slightly above 1e-5.
pub const fn columns_at_most(one: bool) -> u32 {
    32 * if one { NARROW } else { WIDE }
}

/// Maximum blocks of columns for which shared memory holds two components' factors twice.
const NARROW: u32 = 4;

/// Maximum blocks of columns for which rows fit into registers as left operands.
const WIDE: u32 = 6;

/// Bytes of a core matrix: eight rows of eight fp16 values.
const CORE: u32 = 128;

/// The shape that the kernels work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Components.
    pub k: u32,
    /// Dimensions, at most [`columns_at_most`].
    pub d: u32,
    /// Whether only the hi part of each value is used; else split fp16, three products instead of one, to 22 bits.
    pub one: bool,
}

impl Full {
    /// Returns the shape, if there are kernels for it.
    pub const fn of(k: u32, d: u32, one: bool) -> Option<Self> {
        if k > 0 && d > 0 && d <= columns_at_most(one) { Some(Self { k, d, one }) } else { None }
    }

    /// Layout of the sums, for a multiple of 32 components, which are written together.
    #[inline(always)]
    pub const fn place(self) -> FeatureLayout {
        FeatureLayout::full(4 * self.d.div_ceil(16), 4 * self.k.div_ceil(32))
    }

    /// Components that have densities: padded to groups of eight.
    #[inline(always)]
    pub const fn components(self) -> u32 {
        8 * self.k.div_ceil(8)
    }

    /// Number of tiles of [`COMPONENTS`] components.
    #[inline(always)]
    pub const fn tiles(self) -> u32 {
        self.k.div_ceil(COMPONENTS)
    }

    /// Length of the coefficients, in 32-bit words: [`pair_bytes`] for every two components.
    pub const fn operands(self) -> u64 {
        (self.components() / 2) as u64 * (pair_bytes(blocks(self.d), self.one) / 4) as u64
    }

    /// Length of a chunk's columns, in 32-bit words: for each 64 rows, [`columns`] times 32 of hi parts or 64 of `f32`.
    pub const fn column_words(self, n: u64) -> u64 {
        groups(n) * (columns(self.d) * column_bytes(self.one) / 4) as u64
    }

    /// Length of a chunk's log joint densities: `ceil(n/64)*components*64`.
    pub const fn joint(self, n: u64) -> u64 {
        groups(n) * (self.components() * ROWS) as u64
    }

    /// Length of a chunk's normalisers: `ceil(n/64)*2*64`.
    pub const fn normalisers(self, n: u64) -> u64 {
        groups(n) * (2 * ROWS) as u64
    }

    /// Length of a chunk's responsibilities, in 32-bit words: `ceil(n/64)*tiles*128*32` for hi parts, and again for lo
    /// parts.
    pub const fn responsibilities(self, n: u64) -> u64 {
        groups(n) * (self.tiles() * responsibility_bytes(self.one) / 4) as u64
    }

    /// Number of moments blocks that share a split's rows.
    pub const fn blocks_of_split(self) -> u32 {
        units::parts(self.d) * self.tiles()
    }

    /// Bytes of shared memory of a joint-densities block and of a moments block.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self) -> (u64, u64) {
        let joint = match (self.one, blocks(self.d)) {
            (true, blocks) => joint::shared_len(blocks),
            (false, blocks) if blocks <= NARROW => joint_halves::shared_len(blocks),
            (false, _) => joint_wide::SHARED,
        };
        (joint, moments::shared_len(self.one))
    }

    /// Threads of a joint-densities block and of a moments block.
    pub const fn threads(self) -> (u32, u32) {
        let joint = match (self.one, blocks(self.d)) {
            (true, _) => joint::THREADS,
            (false, blocks) if blocks <= NARROW => joint_halves::threads_of_block(blocks),
            (false, _) => joint_wide::THREADS,
        };
        (joint, moments::THREADS)
    }

    /// Returns the kernel for joint densities.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn densities(self) -> crate::Kernel<joint::Joint> {
        match (self.one, blocks(self.d)) {
            (true, 2) => joint::wgmma_joint_64(),
            (true, 3) => joint::wgmma_joint_96(),
            (true, _) => joint::wgmma_joint_128(),
            (false, 2) => joint::wgmma_joint_halves_64(),
            (false, 3) => joint::wgmma_joint_halves_96(),
            (false, 4) => joint::wgmma_joint_halves_128(),
            (false, _) => joint::wgmma_joint_halves_192(),
        }
    }

    /// Returns the kernel for coefficients.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn encode(self) -> crate::Kernel<encode::Encode> {
        if self.one { encode::wgmma_encode_full() } else { encode::wgmma_encode_halves() }
    }

    /// Returns the kernel for responsibilities.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn normalise(self) -> crate::Kernel<normalise::Normalise> {
        if self.one { normalise::wgmma_normalise() } else { normalise::wgmma_normalise_halves() }
    }

    /// Returns the kernel for moments.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn moments(self) -> crate::Kernel<moments::Moments> {
        if self.one { moments::wgmma_moments_full() } else { moments::wgmma_moments_halves() }
    }
}

/// Number of groups of [`ROWS`] rows.
#[inline(always)]
pub const fn groups(n: u64) -> u64 {
    n.div_ceil(ROWS as u64)
}

/// Blocks of 32 columns: the smallest number that there are kernels for.
#[inline(always)]
const fn blocks(d: u32) -> u32 {
    if d <= 64 { 2 } else { d.div_ceil(32) }
}

/// Number of fp16 parts of a value.
#[inline(always)]
const fn halves(one: bool) -> u32 {
    if one { 1 } else { 2 }
}

/// Bytes of 64 rows of a column: hi parts, or `f32`.
#[inline(always)]
const fn column_bytes(one: bool) -> u32 {
    2 * halves(one) * ROWS
}

/// Bytes of 64 rows' responsibilities for [`COMPONENTS`] components: hi parts, then lo parts if there are any.
#[inline(always)]
const fn responsibility_bytes(one: bool) -> u32 {
    2 * halves(one) * ROWS * COMPONENTS
}

/// Bytes of two components' coefficients for `blocks` blocks, a multiple of 16: their factors' hi parts, lo parts if
/// there are any, offsets, constants and multipliers.
///
/// A product has 64 columns. The number of columns up to the diagonal is the same for 32 rows of one factor and the
/// same 32 rows of another. So these rows of two components are multiplied together: the first's, then the second's.
/// Blocks are stored one after another, as core matrices of eight rows and columns, those of the same rows side by
/// side; then come the offsets of each block.
#[inline(always)]
pub const fn pair_bytes(blocks: u32, one: bool) -> u32 {
    scalars_at(blocks, one) + 16
}

/// Bytes before the `block`th 32 rows of two components' factors.
#[inline(always)]
const fn factors_at(block: u32) -> u32 {
    // A block has 64 rows, each with four core matrices for each block up to the diagonal.
    4096 * (block * (block + 1) / 2)
}

/// Bytes from a core matrix of a block to that of the next eight rows.
#[inline(always)]
const fn rows_apart(block: u32) -> u32 {
    4 * CORE * (block + 1)
}

/// Bytes before two components' offsets, which are 64 per block.
#[inline(always)]
const fn offsets_at(blocks: u32, one: bool) -> u32 {
    halves(one) * factors_at(blocks)
}

/// Bytes before two components' constants and multipliers.
#[inline(always)]
const fn scalars_at(blocks: u32, one: bool) -> u32 {
    offsets_at(blocks, one) + 4 * 64 * blocks
}

/// Columns stored for the moments: those of the rows, padded to a multiple of sixteen, then one of ones and fifteen of
/// zeros.
#[inline(always)]
pub const fn columns(d: u32) -> u32 {
    16 * d.div_ceil(16) + 16
}

/// Index in a column of the word with rows `row` and `row + 1` of 64; `row` is even.
///
/// Lane `t` of a row's four loads eight rows of the first 32 and eight of the others, 16 bytes each. In odd columns the
/// two are swapped, so that a lane's loads of adjacent columns use different banks.
#[inline(always)]
const fn word_of_rows(column: u32, row: u32) -> u32 {
    let half = (row / 32) ^ (column % 2);
    16 * half + row % 32 / 2
}

/// Index in a column of `f32` of rows `row` and `row + 1` of 64; `row` is even.
///
/// As for [`word_of_rows`], a lane loads eight rows of each half, here as two vectors of 16 bytes, which are swapped in
/// odd columns.
#[inline(always)]
const fn place_of_rows(column: u32, row: u32) -> u32 {
    let four = (row / 4 % 2) ^ (column % 2);
    32 * (row / 32) + 16 * four + row % 32 / 8 * 4 + row % 4
}

/// Packs the hi parts of two values, and their lo parts; with `ONE`, the lo parts are 0.
#[inline(always)]
fn as_halves<const ONE: bool>(a: f32, b: f32) -> [u32; 2] {
    if ONE { [to_halves(a, b), 0] } else { two(a, b) }
}

/// Loads two adjacent elements; `at` is even, so they are 8-byte aligned.
#[inline(always)]
unsafe fn pair(p: *const f32, at: u64) -> [f32; 2] {
    // SAFETY: the caller passes an even `at` within `p`.
    let both: u64 = unsafe { device::load(p.wrapping_add(at as usize).cast(), 0) };
    [f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32)]
}

/// Stores two adjacent elements; `at` is even, so they are 8-byte aligned.
#[inline(always)]
unsafe fn set_pair(p: *mut f32, at: u64, [a, b]: [f32; 2]) {
    let both = a.to_bits() as u64 | (b.to_bits() as u64) << 32;
    // SAFETY: the caller passes an even `at` within `p`, which no other thread accesses.
    unsafe { device::store(p.wrapping_add(at as usize).cast(), 0, both) };
}
