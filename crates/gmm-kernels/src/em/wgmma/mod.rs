//! Passes on Hopper by warpgroup matrix products (`wgmma`), whose right operands the tensor cores read directly from
//! shared memory: for the fast fp16 mode, and for full covariances also in split fp16.
//!
//! Work besides the products is a fraction of that in the [`half_precision`](crate::em::chunked::half_precision)
//! kernels, and half of a block's warps do it while the other half run products.

pub mod full;
pub mod linear;

use crate::em::layout::FeatureLayout;
use crate::em::wgmma::full::Full;
use crate::em::wgmma::linear::Linear;
use crate::layout::Kind;

/// Choice of kernels, and the layout that they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warpgroups {
    /// Spherical, diagonal and tied covariances.
    Linear(Linear),
    /// Full covariances.
    Full(Full),
}

impl Warpgroups {
    /// Returns the choice for a shape, if there are kernels for it.
    ///
    /// With `one`, only the hi part of each value is used; split fp16 has kernels for full covariances only.
    pub const fn of(kind: Kind, k: u32, d: u32, one: bool) -> Option<Self> {
        match (kind, Linear::of(kind, k, d), Full::of(k, d, one)) {
            (Kind::Full, _, Some(full)) => Some(Self::Full(full)),
            (_, Some(linear), _) if one => Some(Self::Linear(linear)),
            _ => None,
        }
    }

    /// Whether only the hi part of each value is used.
    pub const fn one(self) -> bool {
        match self {
            Self::Linear(_) => true,
            Self::Full(full) => full.one,
        }
    }

    /// Layout of the features in the sums.
    pub const fn place(self) -> FeatureLayout {
        match self {
            Self::Linear(linear) => linear.place,
            Self::Full(full) => full.place(),
        }
    }

    /// Length of the coefficients, in 32-bit words.
    pub const fn operands(self) -> u64 {
        match self {
            Self::Linear(linear) => linear.operands(),
            Self::Full(full) => full.operands(),
        }
    }

    /// Length of the features of `n` rows, in 32-bit words.
    pub const fn rows(self, n: u64) -> u64 {
        match self {
            Self::Linear(linear) => linear.feature_words(n),
            Self::Full(full) => full.column_words(n),
        }
    }

    /// Length of the normalisers of `n` rows.
    pub const fn normalisers(self, n: u64) -> u64 {
        match self {
            Self::Linear(_) => linear::logs_len(n),
            Self::Full(full) => full.normalisers(n),
        }
    }

    /// Lengths of the log joint densities of `n` rows, and of their responsibilities in 32-bit words; 0 if they are not
    /// stored.
    pub const fn densities(self, n: u64) -> (u64, u64) {
        match self {
            Self::Linear(_) => (0, 0),
            Self::Full(full) => (full.joint(n), full.responsibilities(n)),
        }
    }

    /// Number of blocks of the sums kernel that share a split's rows.
    pub const fn blocks_of_split(self) -> u32 {
        match self {
            Self::Linear(linear) => linear.blocks_of_split(),
            Self::Full(full) => full.blocks_of_split(),
        }
    }

    /// Bytes of shared memory of a densities block and of a sums block.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self) -> (u64, u64) {
        match self {
            Self::Linear(linear) => linear.shared_bytes(),
            Self::Full(full) => full.shared_bytes(),
        }
    }

    /// Names of the kernels for densities and sums.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Linear(linear) => (linear.logs().name, linear.sums().name),
            Self::Full(full) => (full.densities().name, full.moments().name),
        }
    }

    /// Threads of a densities block and of a sums block.
    pub const fn threads(self) -> (u32, u32) {
        match self {
            Self::Linear(_) => (linear::logs::THREADS, linear::sums::THREADS),
            Self::Full(full) => full.threads(),
        }
    }

    /// Rows that a densities block processes at a time: 64 per warpgroup.
    pub const fn rows_of_block(self) -> u32 {
        self.threads().0 / 2
    }
}

const _: () = assert!(linear::logs::ROWS_OF_BLOCK == linear::logs::THREADS / 2 && full::ROWS == 64);
