//! Columns, their norm or their squares as features: spherical, diagonal and tied covariances.
//!
//! Before the first iteration [`features`] leaves the rows' features as halves. [`logs`] then takes the densities of all
//! components for what rows are to be normalised with, and [`sums`] takes them again, component by component, makes
//! responsibilities of them in registers, where they are what the next product wants as its left operand, and adds features
//! times responsibilities up. Three products in all, and of each row two numbers between the kernels.

pub mod encode;
pub mod features;
pub mod logs;
mod stages;
pub mod sums;

use crate::em::layout::Place;
use crate::layout::{Kind, tiles};

/// Rows that go through a kernel together.
pub const ROWS: u32 = 64;

/// Components whose coefficients lie together.
pub const COMPONENTS: u32 = 64;

/// Components of a block of the sums.
const OF_SUMS: u32 = 2 * COMPONENTS;

/// Numbers of features that there are kernels for.
pub const FEATURES: [u32; 6] = [64, 96, 128, 160, 192, 256];

/// The shape that the kernels are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Where features lie, [`FEATURES`] of them and a multiple of 128 components.
    pub place: Place,
}

impl Linear {
    /// For a shape, if there are kernels for it.
    pub const fn of(kind: Kind, k: u32, d: u32) -> Option<Self> {
        let wanted = match kind {
            Kind::Full => return None,
            Kind::Tied => d,
            Kind::Diag => 2 * d.next_multiple_of(16),
            Kind::Spherical => d + 1,
        };
        let mut i = 0;
        while i < FEATURES.len() {
            if wanted <= FEATURES[i] {
                return Some(Self { place: Place::linear(FEATURES[i] / 16, k.div_ceil(OF_SUMS) * (OF_SUMS / 8)) });
            }
            i += 1;
        }
        None
    }

    /// Features, those included that are none.
    pub const fn features(self) -> u32 {
        16 * self.place.steps
    }

    /// Times [`COMPONENTS`] components.
    pub const fn stages(self) -> u32 {
        self.place.groups / (COMPONENTS / 8)
    }

    /// Words of the coefficients: `stages` times [`stage_bytes`].
    pub const fn operands(self) -> u64 {
        (self.stages() * (stage_bytes(self.features()) / 4)) as u64
    }

    /// Words of the features of `n` rows.
    pub const fn feature_words(self, n: u64) -> u64 {
        groups(n) * (core_bytes(self.features()) / 4) as u64
    }

    /// Blocks of the sums that share a split's rows.
    pub const fn blocks_of_split(self) -> u32 {
        self.place.groups / (OF_SUMS / 8)
    }

    /// Shared memory of a block of the logarithms and of one of the sums, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self) -> (u64, u64) {
        (logs::shared_len(self.features()), sums::shared_len(self.features()))
    }

    /// The kernel for logarithms.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn logs(self) -> crate::Kernel<logs::Logs> {
        match self.features() {
            64 => logs::warpgroups_logs_64(),
            96 => logs::warpgroups_logs_96(),
            128 => logs::warpgroups_logs_128(),
            160 => logs::warpgroups_logs_160(),
            192 => logs::warpgroups_logs_192(),
            _ => logs::warpgroups_logs_256(),
        }
    }

    /// The kernel for sums.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn sums(self) -> crate::Kernel<sums::Sums> {
        match self.features() {
            64 => sums::warpgroups_sums_64(),
            96 => sums::warpgroups_sums_96(),
            128 => sums::warpgroups_sums_128(),
            160 => sums::warpgroups_sums_160(),
            192 => sums::warpgroups_sums_192(),
            _ => sums::warpgroups_sums_256(),
        }
    }
}

/// Times [`ROWS`] rows in the tiles of `n`.
#[inline(always)]
pub const fn groups(n: u64) -> u64 {
    2 * tiles(n)
}

/// Numbers that rows are normalised with: of each a log joint density to base 2 that is not far below its largest, and what
/// powers of two less that are to be multiplied with.
pub const fn logs_len(n: u64) -> u64 {
    2 * ROWS as u64 * groups(n)
}

/// Bytes of the features of [`ROWS`] rows, or of the coefficients of [`COMPONENTS`] components, in cores of eight by eight:
/// features eight by eight, and for each all rows or components.
#[inline(always)]
const fn core_bytes(features: u32) -> u32 {
    128 * features
}

/// Bytes of a stage of coefficients: after the cores of each component, whose lines are components, its constant and what
/// products are multiplied with.
#[inline(always)]
pub const fn stage_bytes(features: u32) -> u32 {
    core_bytes(features) + 8 * COMPONENTS
}

/// From a core to that of the next eight features, and to that of the next eight rows or components.
const NEXT_FEATURES: u32 = 1024;
const NEXT_OTHERS: u32 = 128;

/// Column of feature `f` and whether it is the column's square; norms and what is no feature are columns from `d` on.
#[inline(always)]
const fn column(f: u32, features: u32, squares: bool) -> (u32, bool) {
    if squares && f >= features / 2 { (f - features / 2, true) } else { (f, false) }
}
