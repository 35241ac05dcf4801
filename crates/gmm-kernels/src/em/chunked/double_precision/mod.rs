//! The loop where there are more sums than registers, a warp's or a block's: two kernels instead of one pass.
//!
//! [`densities()`] leaves, for a chunk of rows, the exponentials of their log joint densities and what each is to be
//! multiplied by to become a responsibility; [`moments()`] adds features times responsibilities into the sums, as
//! [`Place`] orders them, so that reduction and [`update`](crate::em::m_step) are those of the other variants. Both are
//! matrix products. Operands come from global memory, which the caches make cheap, since each is used for 16 products at
//! least; the warps of a block share coefficients, and nothing else.

mod across;
pub mod densities;
pub(crate) mod down;
pub mod moments;
pub mod norms;

use crate::em::features::Family;
use crate::em::layout::Place;
use crate::layout::{Kind, TILE_ROWS, tiles};

/// Groups of eight components that a warp takes at a time, in the kernels for few components, the narrow and the wide ones.
pub const GROUPS: [u32; 3] = [FEW, NARROW, WIDE];
/// Up to 16 components.
pub(crate) const FEW: u32 = 2;
/// 32 components at a time.
pub(crate) const NARROW: u32 = 4;
/// 64 components at a time.
pub(crate) const WIDE: u32 = 8;

/// Which kernels, and the shape they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Large {
    /// What the features are made of.
    pub family: Family,
    /// Where they lie.
    pub place: Place,
    /// Groups of components at a time, one of [`GROUPS`].
    pub at_once: u32,
}

impl Large {
    /// For a shape; there is one for every shape.
    pub const fn of(kind: Kind, k: u32, d: u32) -> Self {
        // The wide one reads features half as often; the narrow one has fewer components that are not there.
        let (few, many) = (k.div_ceil(8 * NARROW) * NARROW, k.div_ceil(8 * WIDE) * WIDE);
        let (groups, at_once) = if k <= 8 * FEW {
            (FEW, FEW)
        } else if few * 5 <= many * 4 {
            (few, NARROW)
        } else {
            (many, WIDE)
        };
        let (family, place) = match kind {
            // Classes in fours: a step has four entries of each class.
            Kind::Full => (Family::Full, Place::full(4 * d.div_ceil(16), groups)),
            Kind::Tied => (Family::Linear, Place::linear(d.div_ceil(16), groups)),
            Kind::Diag => (Family::Linear, Place::linear(2 * d.div_ceil(16), groups)),
            Kind::Spherical => (Family::Linear, Place::linear((d + 1).div_ceil(16), groups)),
        };
        Self { family, place, at_once }
    }

    /// Pieces of `at_once` groups.
    pub const fn pieces(self) -> u32 {
        self.place.groups / self.at_once
    }

    /// Numbers in a chunk's exponentials.
    pub const fn exponentials(self, n: u64) -> u64 {
        tiles(n) * (TILE_ROWS * 8 * self.place.groups) as u64
    }

    /// Numbers in a chunk's factors.
    pub const fn factors(self, n: u64) -> u64 {
        tiles(n) * (TILE_ROWS * self.pieces()) as u64
    }

    /// Warps that share the sums of a split's rows.
    pub const fn units(self, d: u32) -> u32 {
        moments::units(self, d)
    }
}

/// Column of component `k` among the eight of its group, as sums have them.
#[inline(always)]
pub(crate) const fn column(k: u32) -> u32 {
    // Their weights are in that order too.
    Place { steps: 0, groups: 0, classes: 0 }.weight(k % 8) as u32
}

/// Numbers in the likelihoods of a chunk: one for each sixteen rows.
pub const fn likelihoods(n: u64) -> u64 {
    tiles(n) * (TILE_ROWS / crate::em::features::GROUP) as u64
}

/// The kernel for densities.
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

/// The kernel for moments.
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

/// Shared memory of a block of the densities and of one of the moments, in bytes.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn shared_bytes<T: crate::Real>(of: Large) -> (u64, u64) {
    (densities::shared_len(of.at_once), moments::shared_len::<T>(of.at_once))
}
