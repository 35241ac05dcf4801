//! The kernels that make a whole pass, and which of them takes a shape.

use super::features::{Full, FullAndOne, Linear, Squares};
use super::place::Place;
use super::{Family, pass};
use crate::layout::Kind;

/// A kernel of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What its features are made of.
    pub family: Family,
    /// Columns of a class, or groups of sixteen columns.
    pub size: u32,
    /// Groups of eight components.
    pub groups: u32,
    /// Warps of a block.
    pub warps: u32,
}

/// Declares a kernel per line, by size and groups of each family: `entry point: features, their steps, groups of components,
/// pass, warps of a block, and tiles of each warp's share where a block's warps share the sums`.
macro_rules! variants {
    ({ $($pass_of_rows:tt)* }
     $($entry:ident: $family:ident<$size:literal>, $steps:literal steps, $groups:literal groups,
       $pass:ident, $warps:literal warps $(of $tiles:literal tiles)?;)+) => {
        kernels! {
            $($pass_of_rows)*
            $(
                #[doc = concat!("Features [`", stringify!($family), "`]`<", $size, ">`, up to 8·", $groups, " components.")]
                $entry =>
                    pass::$pass::body::<$family<$size>, $steps, $groups $(, $tiles, $warps)?>,
                    pass::$pass::shared_bytes::<$family<$size>, $steps, $groups $(, $tiles, $warps)?>,
                    pass::threads::<$warps>;
            )+
        }

        impl Variant {
            /// All there are.
            pub const ALL: &[Self] =
                &[$(Self { family: Family::$family, size: $size, groups: $groups, warps: $warps },)+];
        }

        /// The kernel of a variant.
        ///
        /// # Panics
        /// Where there is no such variant; [`Variant::of`] and [`Variant::ALL`] give those that there are.
        #[cfg(not(target_arch = "nvptx64"))]
        pub fn kernel(variant: Variant) -> crate::Kernel<Pass> {
            match (variant.family, variant.size, variant.groups, variant.warps) {
                $((Family::$family, $size, $groups, $warps) => $entry(),)+
                _ => panic!("{variant:?} is not there"),
            }
        }
    };
}

variants! {
    {
        /// One pass over a chunk of rows; any grid in `x`.
        Pass {
            /// State of the loop, or null.
            state: *const u32,
            /// The iteration that this begins, from 1.
            iteration: u32,
            /// `(n, d)` tiled: rows less the shift. Read while the grid before this one may still run.
            x: *const u8,
            /// Bytes of each of its numbers: 4 where they are `f32`, 8 where they are `f64`.
            number_bytes: u32,
            /// `(n,)`, or null where every row weighs 1.
            row_weights: *const f64,
            /// Rows of the chunk.
            n: u64,
            /// Dimensions, at most the family's entries less what is derived.
            d: u32,
            /// One of [`derive`](pass::derive).
            derive: u32,
            /// [`Place::coefficients`]: of the log joint densities.
            coefficients: *const f64,
            /// `(8*groups,)`: constants of the log joint densities; −∞ past the last component.
            constants: *const f64,
            /// `(blocks, Place::sums)`, written.
            partials: *mut f64,
        }
    }
    pass_full_1_1: Full<1>, 1 steps, 1 groups, of_warp, 4 warps;
    pass_full_1_2: Full<1>, 1 steps, 2 groups, of_warp, 4 warps;
    pass_full_1_4: Full<1>, 1 steps, 4 groups, of_warp, 4 warps;
    pass_full_1_8: Full<1>, 1 steps, 8 groups, of_warp, 4 warps;
    pass_full_1_13: Full<1>, 1 steps, 13 groups, of_warp, 4 warps;
    pass_full_2_1: Full<2>, 3 steps, 1 groups, of_warp, 4 warps;
    pass_full_2_2: Full<2>, 3 steps, 2 groups, of_warp, 4 warps;
    pass_full_2_4: Full<2>, 3 steps, 4 groups, of_warp, 4 warps;
    pass_full_3_1: Full<3>, 6 steps, 1 groups, of_warp, 4 warps;
    pass_full_3_2: Full<3>, 6 steps, 2 groups, of_warp, 4 warps;
    pass_full_4_1: Full<4>, 10 steps, 1 groups, of_warp, 4 warps;
    pass_full_4_2: Full<4>, 10 steps, 2 groups, of_block, 4 warps of 5 tiles;
    pass_full_4_3: Full<4>, 10 steps, 3 groups, of_block, 4 warps of 8 tiles;
    pass_full_4_4: Full<4>, 10 steps, 4 groups, of_block, 4 warps of 10 tiles;
    pass_full_4_6: Full<4>, 10 steps, 6 groups, of_block, 4 warps of 15 tiles;
    pass_full_4_8: Full<4>, 10 steps, 8 groups, of_block, 8 warps of 10 tiles;
    pass_full_4_10: Full<4>, 10 steps, 10 groups, of_block, 8 warps of 13 tiles;
    pass_full_5_1: Full<5>, 15 steps, 1 groups, of_block, 4 warps of 4 tiles;
    pass_full_5_2: Full<5>, 15 steps, 2 groups, of_block, 4 warps of 8 tiles;
    pass_full_5_4: Full<5>, 15 steps, 4 groups, of_block, 4 warps of 15 tiles;
    pass_full_6_1: Full<6>, 21 steps, 1 groups, of_block, 4 warps of 6 tiles;
    pass_full_6_2: Full<6>, 21 steps, 2 groups, of_block, 4 warps of 11 tiles;
    pass_full_6_4: Full<6>, 21 steps, 4 groups, of_block, 8 warps of 11 tiles;
    pass_full_7_1: Full<7>, 28 steps, 1 groups, of_block, 4 warps of 7 tiles;
    pass_full_7_2: Full<7>, 28 steps, 2 groups, of_block, 4 warps of 14 tiles;
    pass_full_7_4: Full<7>, 28 steps, 4 groups, of_block, 8 warps of 14 tiles;
    pass_full_8_1: Full<8>, 36 steps, 1 groups, of_block, 4 warps of 9 tiles;
    pass_full_8_2: Full<8>, 36 steps, 2 groups, of_block, 4 warps of 18 tiles;
    pass_full_8_2_wide: Full<8>, 36 steps, 2 groups, of_block, 8 warps of 9 tiles;
    pass_full_8_4: Full<8>, 36 steps, 4 groups, of_block, 8 warps of 18 tiles;
    pass_full_9_1: Full<9>, 45 steps, 1 groups, of_block, 4 warps of 12 tiles;
    pass_full_9_2: Full<9>, 45 steps, 2 groups, of_block, 8 warps of 12 tiles;
    pass_full_10_1: Full<10>, 55 steps, 1 groups, of_block, 4 warps of 14 tiles;
    pass_full_10_2: Full<10>, 55 steps, 2 groups, of_block, 8 warps of 14 tiles;
    pass_full_and_one_1_1: FullAndOne<1>, 2 steps, 1 groups, of_warp, 4 warps;
    pass_full_and_one_1_2: FullAndOne<1>, 2 steps, 2 groups, of_warp, 4 warps;
    pass_full_and_one_1_4: FullAndOne<1>, 2 steps, 4 groups, of_warp, 4 warps;
    pass_full_and_one_2_1: FullAndOne<2>, 4 steps, 1 groups, of_warp, 4 warps;
    pass_full_and_one_2_2: FullAndOne<2>, 4 steps, 2 groups, of_warp, 4 warps;
    pass_full_and_one_3_1: FullAndOne<3>, 7 steps, 1 groups, of_warp, 4 warps;
    pass_full_and_one_3_2: FullAndOne<3>, 7 steps, 2 groups, of_warp, 4 warps;
    pass_linear_1_1: Linear<1>, 1 steps, 1 groups, of_warp, 4 warps;
    pass_linear_1_2: Linear<1>, 1 steps, 2 groups, of_warp, 4 warps;
    pass_linear_1_4: Linear<1>, 1 steps, 4 groups, of_warp, 4 warps;
    pass_linear_1_8: Linear<1>, 1 steps, 8 groups, of_warp, 4 warps;
    pass_linear_1_13: Linear<1>, 1 steps, 13 groups, of_warp, 4 warps;
    pass_linear_2_1: Linear<2>, 2 steps, 1 groups, of_warp, 4 warps;
    pass_linear_2_2: Linear<2>, 2 steps, 2 groups, of_warp, 4 warps;
    pass_linear_2_4: Linear<2>, 2 steps, 4 groups, of_block, 4 warps of 2 tiles;
    pass_linear_2_8: Linear<2>, 2 steps, 8 groups, of_block, 4 warps of 4 tiles;
    pass_linear_3_2: Linear<3>, 3 steps, 2 groups, of_block, 4 warps of 2 tiles;
    pass_linear_3_4: Linear<3>, 3 steps, 4 groups, of_block, 4 warps of 3 tiles;
    pass_linear_4_2: Linear<4>, 4 steps, 2 groups, of_block, 4 warps of 2 tiles;
    pass_linear_4_4: Linear<4>, 4 steps, 4 groups, of_block, 4 warps of 4 tiles;
    pass_linear_5_2: Linear<5>, 5 steps, 2 groups, of_block, 4 warps of 3 tiles;
    pass_linear_6_2: Linear<6>, 6 steps, 2 groups, of_block, 4 warps of 3 tiles;
    pass_squares_1_1: Squares<1>, 2 steps, 1 groups, of_warp, 4 warps;
    pass_squares_1_2: Squares<1>, 2 steps, 2 groups, of_warp, 4 warps;
    pass_squares_1_4: Squares<1>, 2 steps, 4 groups, of_warp, 4 warps;
    pass_squares_1_6: Squares<1>, 2 steps, 6 groups, of_block, 4 warps of 3 tiles;
    pass_squares_1_8: Squares<1>, 2 steps, 8 groups, of_block, 4 warps of 4 tiles;
    pass_squares_1_10: Squares<1>, 2 steps, 10 groups, of_block, 4 warps of 5 tiles;
    pass_squares_2_1: Squares<2>, 4 steps, 1 groups, of_warp, 4 warps;
    pass_squares_2_2: Squares<2>, 4 steps, 2 groups, of_warp, 4 warps;
    pass_squares_2_4: Squares<2>, 4 steps, 4 groups, of_warp, 4 warps;
    pass_squares_2_8: Squares<2>, 4 steps, 8 groups, of_block, 4 warps of 8 tiles;
    pass_squares_3_2: Squares<3>, 6 steps, 2 groups, of_block, 4 warps of 3 tiles;
    pass_squares_4_2: Squares<4>, 8 steps, 2 groups, of_block, 4 warps of 4 tiles;
    pass_squares_4_4: Squares<4>, 8 steps, 4 groups, of_block, 4 warps of 8 tiles;
    pass_squares_5_2: Squares<5>, 10 steps, 2 groups, of_block, 4 warps of 5 tiles;
    pass_squares_6_2: Squares<6>, 12 steps, 2 groups, of_block, 4 warps of 6 tiles;
}

impl Variant {
    /// The smallest that takes a shape, if one does: of those alike the one with most warps.
    pub fn of(kind: Kind, k: u32, d: u32) -> Option<Self> {
        let of = |family: Family, size: u32| {
            // A size more at most: what would be of no use is little then, but not where there are many components.
            const MANY: u32 = 8;
            let takes = |v: &Self| {
                let larger = v.size == size + 1 && (family != Family::Full || v.groups < MANY);
                v.family == family && (v.size == size || larger) && 8 * v.groups >= k
            };
            let first = Self::ALL.iter().copied().find(takes)?;
            first.those_alike().max_by_key(|v| v.warps)
        };
        match kind {
            Kind::Full if d % 4 == 1 && d > 1 => {
                of(Family::FullAndOne, d / 4).filter(|v| v.size == d / 4).or_else(|| of(Family::Full, d.div_ceil(4)))
            }
            Kind::Full => of(Family::Full, d.div_ceil(4)),
            Kind::Tied => of(Family::Linear, d.div_ceil(16)),
            Kind::Diag => of(Family::Squares, d.div_ceil(16)),
            Kind::Spherical => of(Family::Linear, (d + 1).div_ceil(16)),
        }
    }

    /// Those that differ from it in the warps of a block at most, itself among them.
    fn those_alike(self) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |of| self.is_like(*of))
    }

    /// Whether they differ in the warps of a block at most.
    pub fn is_like(self, other: Self) -> bool {
        self == Self { warps: self.warps, ..other }
    }

    /// Of those alike the one with most warps where a block over rows of so many bytes a number has no more than `room` bytes of
    /// shared memory; where none has so few, that with fewest warps.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn fitting(self, number_bytes: u32, room: u64) -> Self {
        let fits = |of: &Self| block(*of, number_bytes).1 <= room;
        let most = self.those_alike().filter(fits).max_by_key(|v| v.warps);
        most.or_else(|| self.those_alike().min_by_key(|v| v.warps)).expect("itself at least")
    }

    /// Where its features lie.
    pub const fn place(self) -> Place {
        match self.family {
            Family::Full => Place::full(self.size, self.groups),
            Family::FullAndOne => Place::full_and_one(self.size, self.groups),
            Family::Linear => Place::linear(self.size, self.groups),
            Family::Squares => Place::linear(2 * self.size, self.groups),
        }
    }
}

/// Threads and shared memory, in bytes, of a variant's blocks over rows of so many bytes a number.
#[cfg(not(target_arch = "nvptx64"))]
pub fn block(variant: Variant, number_bytes: u32) -> (u32, u64) {
    use core::ptr::{null, null_mut};
    // They depend on these alone.
    let any = Pass {
        state: null(),
        iteration: 0,
        x: null(),
        number_bytes,
        row_weights: null(),
        n: 0,
        d: 0,
        derive: 0,
        coefficients: null(),
        constants: null(),
        partials: null_mut(),
    };
    let kernel = kernel(variant);
    ((kernel.threads)(&any), (kernel.shared_bytes)(&any))
}
