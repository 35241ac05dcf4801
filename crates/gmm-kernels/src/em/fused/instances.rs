//! The kernels of the fused path, and the choice among them by shape.

use super::warp::typed;
use super::{block, warp};
use crate::em::features::{Family, Full, FullAndOne, Linear, Squares};
use crate::em::layout::FeatureLayout;
use crate::layout::Kind;

/// A kernel instance of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its feature family.
    pub family: Family,
    /// Columns of a class, or groups of sixteen columns.
    pub size: u32,
    /// Groups of eight components.
    pub groups: u32,
    /// Warps per block.
    pub warps: u32,
    /// Bytes per value of its rows; `None` if it takes rows of either type.
    pub number_bytes: Option<u32>,
}

/// The only element, if there is exactly one.
const fn only(entries: &[u32]) -> Option<u32> {
    match *entries {
        [entry] => Some(entry),
        _ => None,
    }
}

/// Declares one kernel per line, by size and groups of each family: `entry point: features, their steps, groups of
/// components, pass, warps per block`, then, if a block's warps share the sums, the tiles of each warp's share, and, if
/// it takes rows of one type only, the bytes per value.
macro_rules! instances {
    ({ $($pass_of_rows:tt)* }
     $($entry:ident: $family:ident<$size:literal>, $steps:literal steps, $groups:literal groups,
       $pass:ident, $warps:literal warps $(of $tiles:literal tiles)? $(for $bytes:literal bytes)?;)+) => {
        kernels! {
            $($pass_of_rows)*
            $(
                #[doc = concat!("Features [`", stringify!($family), "`]`<", $size, ">`, up to 8·", $groups, " components.")]
                $entry =>
                    $pass::body::<$family<$size>, $steps, $groups $(, $tiles, $warps)? $(, $bytes)?>,
                    $pass::shared_bytes::<$family<$size>, $steps, $groups $(, $tiles, $warps)? $(, $bytes)?>,
                    super::threads::<$warps>;
            )+
        }

        impl Instance {
            /// All instances.
            pub const ALL: &[Self] =
                &[$(Self {
                    family: Family::$family,
                    size: $size,
                    groups: $groups,
                    warps: $warps,
                    number_bytes: only(&[$($bytes)?]),
                },)+];
        }

        /// Returns the kernel of an instance.
        ///
        /// # Panics
        /// Panics if there is no such instance; [`Instance::of`] and [`Instance::ALL`] return existing ones only.
        #[cfg(not(target_arch = "nvptx64"))]
        pub fn kernel(instance: Instance) -> crate::Kernel<Pass> {
            let at = Instance::ALL.iter().position(|of| *of == instance);
            let kernels = [$($entry as fn() -> crate::Kernel<Pass>),+];
            kernels[at.unwrap_or_else(|| panic!("no kernel for {instance:?}"))]()
        }
    };
}

instances! {
    {
        /// One pass over a chunk of rows; the grid may have any size in `x`.
        Pass {
            /// State of the loop, or null.
            state: *const u32,
            /// The iteration that this pass begins, from 1.
            iteration: u32,
            /// `(n, d)` tiled: rows less the shift. Read while the previous grid may still run.
            x: *const u8,
            /// Bytes per value of `x`: 4 for `f32`, 8 for `f64`.
            number_bytes: u32,
            /// `(n,)`, or null if every row has weight 1.
            row_weights: *const f64,
            /// Rows of the chunk.
            n: u64,
            /// Dimensions, at most the family's entries less the derived columns.
            d: u32,
            /// One of [`derive`](crate::em::features::derive).
            derive: u32,
            /// [`FeatureLayout::coefficients`] elements: coefficients of the log joint densities.
            coefficients: *const f64,
            /// `(8*groups,)`: constants of the log joint densities; −∞ past the last component.
            constants: *const f64,
            /// `(blocks, FeatureLayout::sums)`, written.
            partials: *mut f64,
        }
    }
    fused_full_1_1: Full<1>, 1 steps, 1 groups, warp, 4 warps;
    fused_full_1_2: Full<1>, 1 steps, 2 groups, warp, 4 warps;
    fused_full_1_4: Full<1>, 1 steps, 4 groups, warp, 4 warps;
    fused_full_1_8: Full<1>, 1 steps, 8 groups, warp, 4 warps;
    fused_full_1_13: Full<1>, 1 steps, 13 groups, warp, 4 warps;
    fused_full_2_1: Full<2>, 3 steps, 1 groups, warp, 4 warps;
    fused_full_2_2: Full<2>, 3 steps, 2 groups, warp, 4 warps;
    fused_full_2_4: Full<2>, 3 steps, 4 groups, warp, 4 warps;
    fused_full_3_1: Full<3>, 6 steps, 1 groups, warp, 4 warps;
    fused_full_3_2: Full<3>, 6 steps, 2 groups, warp, 4 warps;
    fused_full_4_1: Full<4>, 10 steps, 1 groups, warp, 4 warps;
    fused_full_4_2: Full<4>, 10 steps, 2 groups, block, 4 warps of 5 tiles;
    fused_full_4_3: Full<4>, 10 steps, 3 groups, block, 4 warps of 8 tiles;
    fused_full_4_4: Full<4>, 10 steps, 4 groups, block, 4 warps of 10 tiles;
    fused_full_4_6: Full<4>, 10 steps, 6 groups, block, 4 warps of 15 tiles;
    fused_full_4_8: Full<4>, 10 steps, 8 groups, block, 8 warps of 10 tiles;
    fused_full_4_10: Full<4>, 10 steps, 10 groups, block, 8 warps of 13 tiles;
    fused_full_5_1: Full<5>, 15 steps, 1 groups, block, 4 warps of 4 tiles;
    fused_full_5_2: Full<5>, 15 steps, 2 groups, block, 4 warps of 8 tiles;
    fused_full_5_4: Full<5>, 15 steps, 4 groups, block, 4 warps of 15 tiles;
    fused_full_6_1: Full<6>, 21 steps, 1 groups, block, 4 warps of 6 tiles;
    fused_full_6_2: Full<6>, 21 steps, 2 groups, block, 4 warps of 11 tiles;
    fused_full_6_4: Full<6>, 21 steps, 4 groups, block, 8 warps of 11 tiles;
    fused_full_7_1: Full<7>, 28 steps, 1 groups, block, 4 warps of 7 tiles;
    fused_full_7_2: Full<7>, 28 steps, 2 groups, block, 4 warps of 14 tiles;
    fused_full_7_4: Full<7>, 28 steps, 4 groups, block, 8 warps of 14 tiles;
    fused_full_8_1: Full<8>, 36 steps, 1 groups, block, 4 warps of 9 tiles;
    fused_full_8_2: Full<8>, 36 steps, 2 groups, block, 4 warps of 18 tiles;
    fused_full_8_2_wide: Full<8>, 36 steps, 2 groups, block, 8 warps of 9 tiles;
    fused_full_8_4: Full<8>, 36 steps, 4 groups, block, 8 warps of 18 tiles;
    fused_full_9_1: Full<9>, 45 steps, 1 groups, block, 4 warps of 12 tiles;
    fused_full_9_2: Full<9>, 45 steps, 2 groups, block, 8 warps of 12 tiles;
    fused_full_10_1: Full<10>, 55 steps, 1 groups, block, 4 warps of 14 tiles;
    fused_full_10_2: Full<10>, 55 steps, 2 groups, block, 8 warps of 14 tiles;
    fused_full_and_one_1_1: FullAndOne<1>, 2 steps, 1 groups, warp, 4 warps;
    fused_full_and_one_1_2: FullAndOne<1>, 2 steps, 2 groups, warp, 4 warps;
    fused_full_and_one_1_4: FullAndOne<1>, 2 steps, 4 groups, warp, 4 warps;
    fused_full_and_one_2_1: FullAndOne<2>, 4 steps, 1 groups, warp, 4 warps;
    fused_full_and_one_2_2: FullAndOne<2>, 4 steps, 2 groups, warp, 4 warps;
    // One kernel for both types takes 3.6 % longer on W1-full-f64 (an H100,
    // benches/record/nvidia-h100-80gb-hbm3, one-kernel).
    fused_full_and_one_3_1_f32: FullAndOne<3>, 7 steps, 1 groups, typed, 4 warps for 4 bytes;
    fused_full_and_one_3_1_f64: FullAndOne<3>, 7 steps, 1 groups, typed, 4 warps for 8 bytes;
    fused_full_and_one_3_2: FullAndOne<3>, 7 steps, 2 groups, warp, 4 warps;
    fused_linear_1_1: Linear<1>, 1 steps, 1 groups, warp, 4 warps;
    fused_linear_1_2: Linear<1>, 1 steps, 2 groups, warp, 4 warps;
    fused_linear_1_4: Linear<1>, 1 steps, 4 groups, warp, 4 warps;
    fused_linear_1_8: Linear<1>, 1 steps, 8 groups, warp, 4 warps;
    fused_linear_1_13: Linear<1>, 1 steps, 13 groups, warp, 4 warps;
    fused_linear_2_1: Linear<2>, 2 steps, 1 groups, warp, 4 warps;
    fused_linear_2_2: Linear<2>, 2 steps, 2 groups, warp, 4 warps;
    fused_linear_2_4: Linear<2>, 2 steps, 4 groups, block, 4 warps of 2 tiles;
    fused_linear_2_8: Linear<2>, 2 steps, 8 groups, block, 4 warps of 4 tiles;
    fused_linear_3_2: Linear<3>, 3 steps, 2 groups, block, 4 warps of 2 tiles;
    fused_linear_3_4: Linear<3>, 3 steps, 4 groups, block, 4 warps of 3 tiles;
    fused_linear_4_2: Linear<4>, 4 steps, 2 groups, block, 4 warps of 2 tiles;
    fused_linear_4_4: Linear<4>, 4 steps, 4 groups, block, 4 warps of 4 tiles;
    fused_linear_5_2: Linear<5>, 5 steps, 2 groups, block, 4 warps of 3 tiles;
    fused_linear_6_2: Linear<6>, 6 steps, 2 groups, block, 4 warps of 3 tiles;
    // One kernel for both types takes 3.6 % longer on W1-diag-f32, too.
    fused_squares_1_1_f32: Squares<1>, 2 steps, 1 groups, typed, 4 warps for 4 bytes;
    fused_squares_1_1_f64: Squares<1>, 2 steps, 1 groups, typed, 4 warps for 8 bytes;
    fused_squares_1_2: Squares<1>, 2 steps, 2 groups, warp, 4 warps;
    fused_squares_1_4: Squares<1>, 2 steps, 4 groups, warp, 4 warps;
    fused_squares_1_6: Squares<1>, 2 steps, 6 groups, block, 4 warps of 3 tiles;
    fused_squares_1_8: Squares<1>, 2 steps, 8 groups, block, 4 warps of 4 tiles;
    fused_squares_1_10: Squares<1>, 2 steps, 10 groups, block, 4 warps of 5 tiles;
    fused_squares_2_1: Squares<2>, 4 steps, 1 groups, warp, 4 warps;
    fused_squares_2_2: Squares<2>, 4 steps, 2 groups, warp, 4 warps;
    fused_squares_2_4: Squares<2>, 4 steps, 4 groups, warp, 4 warps;
    fused_squares_2_8: Squares<2>, 4 steps, 8 groups, block, 4 warps of 8 tiles;
    fused_squares_3_2: Squares<3>, 6 steps, 2 groups, block, 4 warps of 3 tiles;
    fused_squares_4_2: Squares<4>, 8 steps, 2 groups, block, 4 warps of 4 tiles;
    fused_squares_4_4: Squares<4>, 8 steps, 4 groups, block, 4 warps of 8 tiles;
    fused_squares_5_2: Squares<5>, 10 steps, 2 groups, block, 4 warps of 5 tiles;
    fused_squares_6_2: Squares<6>, 12 steps, 2 groups, block, 4 warps of 6 tiles;
}

impl Instance {
    /// Returns the smallest instance that takes a shape, if there is one; among instances alike, the one with most
    /// warps. [`Instance::fitting`] then chooses by type of row and shared memory.
    pub fn of(kind: Kind, k: u32, d: u32) -> Option<Self> {
        let of = |family: Family, size: u32| {
            // At most one size larger: unused features cost little then, except with many components.
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

    /// Instances that differ at most in warps per block and type of row, including itself.
    fn those_alike(self) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |of| self.is_like(*of))
    }

    /// Whether the two differ at most in warps per block and type of row.
    pub fn is_like(self, other: Self) -> bool {
        self == Self { warps: self.warps, number_bytes: self.number_bytes, ..other }
    }

    /// Whether it takes rows of `number_bytes` per value.
    pub fn takes_rows_of(self, number_bytes: u32) -> bool {
        self.number_bytes.is_none_or(|of| of == number_bytes)
    }

    /// Among instances alike that take rows of `number_bytes` per value, returns the one with most warps whose block
    /// needs at most `room` bytes of shared memory; if none fits, the one with fewest warps.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn fitting(self, number_bytes: u32, room: u64) -> Self {
        let alike = || self.those_alike().filter(|of| of.takes_rows_of(number_bytes));
        let fits = |of: &Self| block_of(*of, number_bytes).1 <= room;
        let most = alike().filter(fits).max_by_key(|v| v.warps);
        most.or_else(|| alike().min_by_key(|v| v.warps)).expect("one for each type of row")
    }

    /// Layout of its features.
    pub const fn place(self) -> FeatureLayout {
        match self.family {
            Family::Full => FeatureLayout::full(self.size, self.groups),
            Family::FullAndOne => FeatureLayout::full_and_one(self.size, self.groups),
            Family::Linear => FeatureLayout::linear(self.size, self.groups),
            Family::Squares => FeatureLayout::linear(2 * self.size, self.groups),
        }
    }
}

/// Threads and shared memory, in bytes, of an instance's blocks for rows of `number_bytes` per value.
#[cfg(not(target_arch = "nvptx64"))]
pub fn block_of(instance: Instance, number_bytes: u32) -> (u32, u64) {
    use core::ptr::{null, null_mut};
    // They depend on `number_bytes` and the instance only.
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
    let kernel = kernel(instance);
    ((kernel.threads)(&any), (kernel.shared_bytes)(&any))
}
