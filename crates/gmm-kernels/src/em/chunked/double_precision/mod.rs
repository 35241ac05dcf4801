//! EM in `f64` for sums that fit into neither a warp's nor a block's registers: two kernels instead of one pass.
//!
//! For a chunk of rows, [`densities()`] writes the exponentials of their log joint densities and the factors that turn
//! exponentials into responsibilities. [`moments()`] adds features times responsibilities to the sums, in the order of
//! [`FeatureLayout`], so that reduction and [`update`](crate::em::m_step) are the same as on the other paths. Both are
//! matrix products. Operands come from global memory; caches make that cheap, since each operand is used for at least
//! 16 products. The warps of a block share coefficients and nothing else.

mod across;
pub mod densities;
pub(crate) mod down;
pub mod largest;
pub mod moments;
pub mod norms;
mod share;
pub mod trials;

use crate::em::features::Family;
use crate::em::layout::FeatureLayout;
use crate::layout::{Kind, TILE_ROWS, tiles};

/// Groups of eight components that a warp processes at a time: in the kernels for few components, the narrow and the
/// wide kernels.
pub const GROUPS: [u32; 3] = [FEW, NARROW, WIDE];
/// For up to 16 components.
pub(crate) const FEW: u32 = 2;
/// For 32 components at a time.
pub(crate) const NARROW: u32 = 4;
/// For 64 components at a time.
pub(crate) const WIDE: u32 = 8;

/// Choice of kernels, and the layout that they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoublePrecision {
    /// The feature family.
    pub family: Family,
    /// Layout of the features.
    pub place: FeatureLayout,
    /// Groups of components processed at a time, one of [`GROUPS`].
    pub at_once: u32,
}

impl DoublePrecision {
    /// Returns the choice for a shape; every shape is supported.
    pub const fn of(kind: Kind, k: u32, d: u32) -> Self {
        // The wide kernel loads features half as often; the narrow one wastes less on padding components.
        let (few, many) = (k.div_ceil(8 * NARROW) * NARROW, k.div_ceil(8 * WIDE) * WIDE);
        let (groups, at_once) = if k <= 8 * FEW {
            (FEW, FEW)
        } else if few * 5 <= many * 4 {
            (few, NARROW)
        } else {
            (many, WIDE)
        };
        let (family, place) = match kind {
            // Classes in multiples of four: a step has four entries of each class.
            Kind::Full => (Family::Full, FeatureLayout::full(4 * d.div_ceil(16), groups)),
            Kind::Tied => (Family::Linear, FeatureLayout::linear(d.div_ceil(16), groups)),
            Kind::Diag => (Family::Linear, FeatureLayout::linear(2 * d.div_ceil(16), groups)),
            Kind::Spherical => (Family::Linear, FeatureLayout::linear((d + 1).div_ceil(16), groups)),
        };
        Self { family, place, at_once }
    }

    /// Number of pieces of `at_once` groups.
    pub const fn pieces(self) -> u32 {
        self.place.groups / self.at_once
    }

    /// Length of a chunk's exponentials.
    pub const fn exponentials(self, n: u64) -> u64 {
        tiles(n) * (TILE_ROWS * 8 * self.place.groups) as u64
    }

    /// Length of a chunk's factors.
    pub const fn factors(self, n: u64) -> u64 {
        tiles(n) * (TILE_ROWS * self.pieces()) as u64
    }

    /// Number of warps that share the sums of a split's rows.
    pub const fn units(self, d: u32) -> u32 {
        moments::units(self, d)
    }
}

/// Column of component `k` within its group of eight, in the order of the sums.
#[inline(always)]
pub(crate) const fn column(k: u32) -> u32 {
    // The positions of Σ r have that order too.
    FeatureLayout { steps: 0, groups: 0, classes: 0 }.weight(k % 8) as u32
}

/// Length of a chunk's log-likelihoods: one per sixteen rows.
pub const fn likelihoods(n: u64) -> u64 {
    tiles(n) * (TILE_ROWS / crate::em::features::GROUP) as u64
}

/// Returns the kernel for densities.
#[cfg(not(target_arch = "nvptx64"))]
pub fn densities<T: crate::Real>(family: Family, at_once: u32) -> crate::Kernel<densities::Densities<T>> {
    match (family, at_once) {
        (Family::Full | Family::FullAndOne, FEW) => densities::full_few::<T>(),
        (Family::Full | Family::FullAndOne, NARROW) => densities::full_narrow::<T>(),
        (Family::Full | Family::FullAndOne, _) => densities::full_wide::<T>(),
        (Family::Linear | Family::Squares, FEW) => densities::linear_few::<T>(),
        (Family::Linear | Family::Squares, NARROW) => densities::linear_narrow::<T>(),
        (Family::Linear | Family::Squares, _) => densities::linear_wide::<T>(),
    }
}

/// Returns the kernel for moments.
#[cfg(not(target_arch = "nvptx64"))]
pub fn moments<T: crate::Real>(family: Family, at_once: u32) -> crate::Kernel<moments::Moments<T>> {
    match (family, at_once) {
        (Family::Full | Family::FullAndOne, FEW) => moments::full_few::<T>(),
        (Family::Full | Family::FullAndOne, NARROW) => moments::full_narrow::<T>(),
        (Family::Full | Family::FullAndOne, _) => moments::full_wide::<T>(),
        (Family::Linear | Family::Squares, FEW) => moments::linear_few::<T>(),
        (Family::Linear | Family::Squares, NARROW) => moments::linear_narrow::<T>(),
        (Family::Linear | Family::Squares, _) => moments::linear_wide::<T>(),
    }
}

/// Bytes of shared memory of a densities block and of a moments block.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn shared_bytes<T: crate::Real>(of: DoublePrecision) -> (u64, u64) {
    (densities::shared_len(of.at_once), moments::shared_len::<T>(of.at_once))
}
