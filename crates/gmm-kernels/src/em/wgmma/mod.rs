//! Passes on Hopper by products of whole warpgroups, whose right operands the tensor cores read from shared memory by themselves:
//! the fast mode's, of heads, and for full covariances those of two halves too.
//!
//! What a lane does beside a product is then a fraction of what the kernels of [`halves`](crate::em::chunked::half_precision) do, and half of a
//! block's warps do it while the others form products.

pub mod full;
pub mod linear;

use crate::em::layout::Place;
use crate::em::wgmma::full::Full;
use crate::em::wgmma::linear::Linear;
use crate::layout::Kind;

/// Which kernels, and the shape they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warpgroups {
    /// Spherical, diagonal and tied covariances.
    Linear(Linear),
    /// Full ones.
    Full(Full),
}

impl Warpgroups {
    /// For a shape, if there are kernels for it.
    ///
    /// With `one` of each number its head alone; two halves have kernels for full covariances.
    pub const fn of(kind: Kind, k: u32, d: u32, one: bool) -> Option<Self> {
        match (kind, Linear::of(kind, k, d), Full::of(k, d, one)) {
            (Kind::Full, _, Some(full)) => Some(Self::Full(full)),
            (_, Some(linear), _) if one => Some(Self::Linear(linear)),
            _ => None,
        }
    }

    /// Whether of each number there is its head alone.
    pub const fn one(self) -> bool {
        match self {
            Self::Linear(_) => true,
            Self::Full(full) => full.one,
        }
    }

    /// Where features lie.
    pub const fn place(self) -> Place {
        match self {
            Self::Linear(linear) => linear.place,
            Self::Full(full) => full.place(),
        }
    }

    /// Words of the coefficients.
    pub const fn operands(self) -> u64 {
        match self {
            Self::Linear(linear) => linear.operands(),
            Self::Full(full) => full.operands(),
        }
    }

    /// Words of the features of `n` rows.
    pub const fn rows(self, n: u64) -> u64 {
        match self {
            Self::Linear(linear) => linear.feature_words(n),
            Self::Full(full) => full.column_words(n),
        }
    }

    /// Numbers that `n` rows are normalised with.
    pub const fn normalisers(self, n: u64) -> u64 {
        match self {
            Self::Linear(_) => linear::logs_len(n),
            Self::Full(full) => full.normalisers(n),
        }
    }

    /// Numbers in the log joint densities of `n` rows, and words of their responsibilities, where these are written.
    pub const fn densities(self, n: u64) -> (u64, u64) {
        match self {
            Self::Linear(_) => (0, 0),
            Self::Full(full) => (full.joint(n), full.responsibilities(n)),
        }
    }

    /// Blocks of the sums that share a split's rows.
    pub const fn blocks_of_split(self) -> u32 {
        match self {
            Self::Linear(linear) => linear.blocks_of_split(),
            Self::Full(full) => full.blocks_of_split(),
        }
    }

    /// Shared memory of a block of the densities and of one of the sums, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self) -> (u64, u64) {
        match self {
            Self::Linear(linear) => linear.shared_bytes(),
            Self::Full(full) => full.shared_bytes(),
        }
    }

    /// Names of the kernels for densities and for sums.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Linear(linear) => (linear.logs().name, linear.sums().name),
            Self::Full(full) => (full.densities().name, full.moments().name),
        }
    }

    /// Threads of a block of the densities, and of one of the sums.
    pub const fn threads(self) -> (u32, u32) {
        match self {
            Self::Linear(_) => (linear::logs::THREADS, linear::sums::THREADS),
            Self::Full(full) => full.threads(),
        }
    }

    /// Rows that a block of the densities takes at a time: 64 for each warpgroup.
    pub const fn rows_of_block(self) -> u32 {
        self.threads().0 / 2
    }
}

const _: () = assert!(linear::logs::ROWS_OF_BLOCK == linear::logs::THREADS / 2 && full::ROWS == 64);
