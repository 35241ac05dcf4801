//! Features that are columns, their norm or their squares: spherical, diagonal and tied covariances.
//!
//! Before the first iteration, [`features`] writes the rows' features in fp16. In each iteration, [`logs`] computes the
//! densities of all components and writes the rows' normalisers. [`sums`] computes the densities again, component by
//! component, turns them into responsibilities in the registers that the next product reads as its left operand, and
//! accumulates features times responsibilities. That is three products in all, and two numbers per row between the
//! kernels.

pub mod encode;
pub mod features;
pub mod logs;
mod stages;
pub mod sums;

use crate::em::layout::FeatureLayout;
use crate::layout::{Kind, tiles};

/// Rows processed together.
pub const ROWS: u32 = 64;

/// Components whose coefficients are stored together.
pub const COMPONENTS: u32 = 64;

/// Components of a sums block.
const OF_SUMS: u32 = 2 * COMPONENTS;

/// Supported numbers of features.
pub const FEATURES: [u32; 6] = [64, 96, 128, 160, 192, 256];

/// The shape that the kernels work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Layout of the features: one of [`FEATURES`], and a multiple of 128 components.
    pub place: FeatureLayout,
}

impl Linear {
    /// Returns the layout for a shape, if there are kernels for it.
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
                return Some(Self {
                    place: FeatureLayout::linear(FEATURES[i] / 16, k.div_ceil(OF_SUMS) * (OF_SUMS / 8)),
                });
            }
            i += 1;
        }
        None
    }

    /// Number of features, including padding.
    pub const fn features(self) -> u32 {
        16 * self.place.steps
    }

    /// Number of stages of [`COMPONENTS`] components.
    pub const fn stages(self) -> u32 {
        self.place.groups / (COMPONENTS / 8)
    }

    /// Length of the coefficients, in 32-bit words: `stages` times [`stage_bytes`] / 4.
    pub const fn operands(self) -> u64 {
        (self.stages() * (stage_bytes(self.features()) / 4)) as u64
    }

    /// Length of the features of `n` rows, in 32-bit words.
    pub const fn feature_words(self, n: u64) -> u64 {
        groups(n) * (core_bytes(self.features()) / 4) as u64
    }

    /// Number of sums blocks that share a split's rows.
    pub const fn blocks_of_split(self) -> u32 {
        self.place.groups / (OF_SUMS / 8)
    }

    /// Bytes of shared memory of a logs block and of a sums block.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self) -> (u64, u64) {
        (logs::shared_len(self.features()), sums::shared_len(self.features()))
    }

    /// Returns the kernel for normalisers.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn logs(self) -> crate::Kernel<logs::Logs> {
        match self.features() {
            64 => logs::wgmma_logs_64(),
            96 => logs::wgmma_logs_96(),
            128 => logs::wgmma_logs_128(),
            160 => logs::wgmma_logs_160(),
            192 => logs::wgmma_logs_192(),
            _ => logs::wgmma_logs_256(),
        }
    }

    /// Returns the kernel for sums.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn sums(self) -> crate::Kernel<sums::Sums> {
        match self.features() {
            64 => sums::wgmma_sums_64(),
            96 => sums::wgmma_sums_96(),
            128 => sums::wgmma_sums_128(),
            160 => sums::wgmma_sums_160(),
            192 => sums::wgmma_sums_192(),
            _ => sums::wgmma_sums_256(),
        }
    }
}

/// Number of groups of [`ROWS`] rows in the tiles of `n`.
#[inline(always)]
pub const fn groups(n: u64) -> u64 {
    2 * tiles(n)
}

/// Length of the normalisers: for each row a log joint density to base 2 that is near its largest, and the factor of
/// 2^(log density − that).
pub const fn logs_len(n: u64) -> u64 {
    2 * ROWS as u64 * groups(n)
}

/// Bytes of the features of [`ROWS`] rows, or of the coefficients of [`COMPONENTS`] components, in core matrices of
/// eight by eight: for each eight features, those of all rows or components.
#[inline(always)]
const fn core_bytes(features: u32) -> u32 {
    128 * features
}

/// Bytes of a stage of coefficients: core matrices whose rows are components, then each component's constant and the
/// multiplier of its products.
#[inline(always)]
pub const fn stage_bytes(features: u32) -> u32 {
    core_bytes(features) + 8 * COMPONENTS
}

/// Bytes from a core matrix to that of the next eight features, and to that of the next eight rows or components.
const NEXT_FEATURES: u32 = 1024;
const NEXT_OTHERS: u32 = 128;

/// Column of feature `f`, and whether the feature is its square. Norms and padding are columns from `d` on.
#[inline(always)]
const fn column(f: u32, features: u32, squares: bool) -> (u32, bool) {
    if squares && f >= features / 2 { (f - features / 2, true) } else { (f, false) }
}
