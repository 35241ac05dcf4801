//! Full covariances of up to 128 columns, in two halves up to 192.
//!
//! [`mod@encode`] leaves the components' factors `W` as halves. [`joint`] holds 256 rows in registers while all components pass
//! by, and leaves log joint densities, what rows are to be normalised with, and the rows' columns as halves. [`normalise`] makes
//! responsibilities of them, in the order of a right operand, and [`moments`] adds products of two columns times
//! responsibilities up, the columns' products formed in registers.
//!
//! With two halves for each number `joint_halves` takes the place of [`joint`], columns are left in `f32`, and each product is
//! three, summed from nothing over 64 terms at most, since the tensor cores round towards zero, and added up in `f32`. Of more than
//! 128 columns it is `joint_wide`, which has 32 rows of factors at a time in shared memory.
//!
//! Log joint densities, of size n×k, go through memory: made anew for each block of the moments, of which 38 of 128 columns share 128
//! components, they would take longer than all else.

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
use crate::em::layout::Place;

/// Rows that go through a kernel together: those of a product by a warpgroup.
pub const ROWS: u32 = 64;

/// Components of a block of the moments.
pub const COMPONENTS: u32 = 128;

/// Columns that there are kernels for. Log densities of 256 columns in two halves were 1e-5 off and a little more.
pub const fn columns_at_most(one: bool) -> u32 {
    32 * if one { NARROW } else { WIDE }
}

/// Blocks of columns up to which two components' factors are in shared memory twice.
const NARROW: u32 = 4;

/// Blocks of columns up to which their rows are left operands in registers.
const WIDE: u32 = 6;

/// Bytes of a core: eight lines of eight halves.
const CORE: u32 = 128;

/// The shape that the kernels are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Components.
    pub k: u32,
    /// Dimensions, at most [`columns_at_most`].
    pub d: u32,
    /// Of each number its head alone; else two halves, and three products for one, to 22 bits.
    pub one: bool,
}

impl Full {
    /// For a shape, if there are kernels for it.
    pub const fn of(k: u32, d: u32, one: bool) -> Option<Self> {
        if k > 0 && d > 0 && d <= columns_at_most(one) { Some(Self { k, d, one }) } else { None }
    }

    /// Where sums lie: of a multiple of 32 components, which are written together.
    #[inline(always)]
    pub const fn place(self) -> Place {
        Place::full(4 * self.d.div_ceil(16), 4 * self.k.div_ceil(32))
    }

    /// Components that have densities: filled up to groups of eight.
    #[inline(always)]
    pub const fn components(self) -> u32 {
        8 * self.k.div_ceil(8)
    }

    /// Times [`COMPONENTS`] components.
    #[inline(always)]
    pub const fn tiles(self) -> u32 {
        self.k.div_ceil(COMPONENTS)
    }

    /// Words of the coefficients: [`pair_bytes`] of each two components.
    pub const fn operands(self) -> u64 {
        (self.components() / 2) as u64 * (pair_bytes(blocks(self.d), self.one) / 4) as u64
    }

    /// Words of a chunk's columns: for each 64 rows [`columns`] times 32 of heads, or 64 of `f32`.
    pub const fn column_words(self, n: u64) -> u64 {
        groups(n) * (columns(self.d) * column_bytes(self.one) / 4) as u64
    }

    /// Numbers in a chunk's log joint densities: `ceil(n/64)*components*64`.
    pub const fn joint(self, n: u64) -> u64 {
        groups(n) * (self.components() * ROWS) as u64
    }

    /// Numbers that a chunk's rows are normalised with: `ceil(n/64)*2*64`.
    pub const fn normalisers(self, n: u64) -> u64 {
        groups(n) * (2 * ROWS) as u64
    }

    /// Words of a chunk's responsibilities: `ceil(n/64)*tiles*128*32` for each half.
    pub const fn responsibilities(self, n: u64) -> u64 {
        groups(n) * (self.tiles() * responsibility_bytes(self.one) / 4) as u64
    }

    /// Blocks of the moments that share a split's rows.
    pub const fn blocks_of_split(self) -> u32 {
        units::parts(self.d) * self.tiles()
    }

    /// Shared memory of a block of the joint densities and of one of the moments, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self) -> (u64, u64) {
        let joint = match (self.one, blocks(self.d)) {
            (true, blocks) => joint::shared_len(blocks),
            (false, blocks) if blocks <= NARROW => joint_halves::shared_len(blocks),
            (false, _) => joint_wide::SHARED,
        };
        (joint, moments::shared_len(self.one))
    }

    /// Threads of a block of the joint densities and of one of the moments.
    pub const fn threads(self) -> (u32, u32) {
        let joint = match (self.one, blocks(self.d)) {
            (true, _) => joint::THREADS,
            (false, blocks) if blocks <= NARROW => joint_halves::threads_of_block(blocks),
            (false, _) => joint_wide::THREADS,
        };
        (joint, moments::THREADS)
    }

    /// The kernel for joint densities.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn densities(self) -> crate::Kernel<joint::Joint> {
        match (self.one, blocks(self.d)) {
            (true, 2) => joint::warpgroups_joint_64(),
            (true, 3) => joint::warpgroups_joint_96(),
            (true, _) => joint::warpgroups_joint_128(),
            (false, 2) => joint::warpgroups_joint_halves_64(),
            (false, 3) => joint::warpgroups_joint_halves_96(),
            (false, 4) => joint::warpgroups_joint_halves_128(),
            (false, _) => joint::warpgroups_joint_halves_192(),
        }
    }

    /// The kernel for coefficients.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn encode(self) -> crate::Kernel<encode::Encode> {
        if self.one { encode::warpgroups_encode_full() } else { encode::warpgroups_encode_halves() }
    }

    /// The kernel for responsibilities.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn normalise(self) -> crate::Kernel<normalise::Normalise> {
        if self.one { normalise::warpgroups_normalise() } else { normalise::warpgroups_normalise_halves() }
    }

    /// The kernel for moments.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn moments(self) -> crate::Kernel<moments::Moments> {
        if self.one { moments::warpgroups_moments_full() } else { moments::warpgroups_moments_halves() }
    }
}

/// Times [`ROWS`] rows.
#[inline(always)]
pub const fn groups(n: u64) -> u64 {
    n.div_ceil(ROWS as u64)
}

/// Blocks of 32 columns: those that there are kernels for.
#[inline(always)]
const fn blocks(d: u32) -> u32 {
    if d <= 64 { 2 } else { d.div_ceil(32) }
}

/// Halves of a number.
#[inline(always)]
const fn halves(one: bool) -> u32 {
    if one { 1 } else { 2 }
}

/// Bytes of 64 rows of a column: heads, or `f32`.
#[inline(always)]
const fn column_bytes(one: bool) -> u32 {
    2 * halves(one) * ROWS
}

/// Bytes of 64 rows' responsibilities for [`COMPONENTS`] components: heads, then tails if there are any.
#[inline(always)]
const fn responsibility_bytes(one: bool) -> u32 {
    2 * halves(one) * ROWS * COMPONENTS
}

/// Bytes of two components' coefficients for so many blocks, a multiple of 16: their factors' heads, tails if there are any,
/// offsets, constants and multipliers.
///
/// A product has 64 columns, and of 32 rows of a factor those up to the diagonal are no more than of 32 rows of another's: so
/// the same 32 rows of two components are multiplied together, the first's, then the second's. Blocks of them follow one another, in
/// cores of eight rows and columns, those of the same rows side by side; then the offsets of each block.
#[inline(always)]
pub const fn pair_bytes(blocks: u32, one: bool) -> u32 {
    scalars_at(blocks, one) + 16
}

/// Bytes before the `block`th 32 rows of two components' factors.
#[inline(always)]
const fn factors_at(block: u32) -> u32 {
    // A block has 64 lines of four cores for each block up to the diagonal.
    4096 * (block * (block + 1) / 2)
}

/// Bytes from a core of a block to that of the next eight rows.
#[inline(always)]
const fn rows_apart(block: u32) -> u32 {
    4 * CORE * (block + 1)
}

/// Bytes before two components' offsets, 64 for each block.
#[inline(always)]
const fn offsets_at(blocks: u32, one: bool) -> u32 {
    halves(one) * factors_at(blocks)
}

/// Bytes before two components' constants and multipliers.
#[inline(always)]
const fn scalars_at(blocks: u32, one: bool) -> u32 {
    offsets_at(blocks, one) + 4 * 64 * blocks
}

/// Columns that are held for the moments: those of rows, filled up to sixteens, then ones and fifteen of zeros.
#[inline(always)]
pub const fn columns(d: u32) -> u32 {
    16 * d.div_ceil(16) + 16
}

/// The word of a column's that has rows `row` and `row + 1` of 64, an even one.
///
/// Lane `t` of a row's four takes eight rows from the first 32 and eight from the others, 16 bytes each. These change places
/// in odd columns, so that what neighbouring columns have for the same lane lies in other banks.
#[inline(always)]
const fn word_of_rows(column: u32, row: u32) -> u32 {
    let half = (row / 32) ^ (column % 2);
    16 * half + row % 32 / 2
}

/// Where rows `row` and `row + 1` of 64, an even one, lie of a column in `f32`.
///
/// As for [`word_of_rows`] a lane takes eight rows of each half, here in two times 16 bytes, which change places in odd columns.
#[inline(always)]
const fn place_of_rows(column: u32, row: u32) -> u32 {
    let four = (row / 4 % 2) ^ (column % 2);
    32 * (row / 32) + 16 * four + row % 32 / 8 * 4 + row % 4
}

/// Heads of two numbers, and their tails, or with `ONE` nothing.
#[inline(always)]
fn as_halves<const ONE: bool>(a: f32, b: f32) -> [u32; 2] {
    if ONE { [to_halves(a, b), 0] } else { two(a, b) }
}

/// Two neighbours, of which the first is at an even place: 8-byte aligned.
#[inline(always)]
unsafe fn pair(p: *const f32, at: u64) -> [f32; 2] {
    // SAFETY: the caller's promise.
    let both: u64 = unsafe { device::load(p.wrapping_add(at as usize).cast(), 0) };
    [f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32)]
}

/// Sets two neighbours, of which the first is at an even place.
#[inline(always)]
unsafe fn set_pair(p: *mut f32, at: u64, [a, b]: [f32; 2]) {
    let both = a.to_bits() as u64 | (b.to_bits() as u64) << 32;
    // SAFETY: the caller's promise.
    unsafe { device::store(p.wrapping_add(at as usize).cast(), 0, both) };
}
