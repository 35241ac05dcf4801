//! Tensor-core products: `D = A·B + D` by a whole warp, each lane holding its fragment as the PTX ISA defines it.
//!
//! With `g = lane / 4` and `t = lane % 4`, a lane holds the entries `(g, 2t)` and `(g, 2t+1)` of `C`/`D` and, for 16
//! rows, `(g+8, 2t)` and `(g+8, 2t+1)`. TF32 operands are the bits of an `f32`, whose low 13 bits are ignored. BF16
//! operands are two to a word, the lower column (A) or row (B) in the lower half.
//!
//! All lanes must call these together, outside divergent branches.

/// `A` is 16×8: `(g,t) (g+8,t) (g,t+4) (g+8,t+4)`; `B` is 8×8: `(t,g) (t+4,g)`.
pub use super::machine::mma_m16n8k8_tf32;

/// `A` is 16×16: `(g,2t..) (g+8,2t..) (g,2t+8..) (g+8,2t+8..)`; `B` is 16×8: `(2t..,g) (2t+8..,g)`.
pub use super::machine::mma_m16n8k16_bf16;

/// `A` and `B` as for [`mma_m16n8k16_bf16`], F16 as [`to_halves`] makes them.
pub use super::machine::mma_m16n8k16_f16;

#[cfg(not(target_arch = "nvptx64"))]
pub use super::machine::mma_m16n8k16_f16_wide;

pub use super::machine::{from_halves, multiply_halves, to_halves};

#[cfg(target_arch = "nvptx64")]
pub use super::machine::stores_before_products;

/// Does nothing: the emulator's products read stores directly.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub fn stores_before_products() {}

/// 32-bit words in a tile of right operands: 3 slices of 2 steps of 16 terms. Each step has 2 halves of 8 terms, and
/// each half has 8 columns of 16 bytes (8 fp16 terms).
pub const SLICED_TILE: u32 = 384;

/// Multiplies a warp's 16 rows by 8 tiles of [`SLICED_TILE`] words each, which start at byte `at` of shared memory.
/// `left` has 3 slices of 2 steps, each as `A` of [`mma_m16n8k16_f16`]. For each tile, `take` gets the product of the
/// two first slices, and the sum of the other products, smallest first; both are laid out as `D`. Four warps, the first
/// a multiple of four, must call this together with the same tiles.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn products_of_slices(left: &[[u32; 8]; 3], at: u32, mut take: impl FnMut(usize, [f32; 4], [f32; 4])) {
    let all = super::machine::products_of_slices(left, at);
    crate::each::each(8, |tile| {
        let four = |i: usize| [all[i][4 * tile], all[i][4 * tile + 1], all[i][4 * tile + 2], all[i][4 * tile + 3]];
        take(tile, four(0), four(1));
    });
}

#[cfg(not(target_arch = "nvptx64"))]
pub use products_one_by_one as products_of_slices;

/// As [`products_of_slices`], one product after another: for devices without warpgroups.
#[inline(always)]
pub fn products_one_by_one(left: &[[u32; 8]; 3], at: u32, mut take: impl FnMut(usize, [f32; 4], [f32; 4])) {
    use super::{Shared, warp};
    use crate::each::each;
    let (words, lane) = (Shared::<f32>::at(at), warp::lane_id());
    each(8, |tile| {
        let mut sums = [[0.0; 4]; 2];
        each(6, |i| {
            // The product of the first slices goes to the first sums.
            let (rows, columns, to) = [(1, 1, 1), (2, 0, 1), (0, 2, 1), (1, 0, 1), (0, 1, 1), (0, 0, 0)][i];
            each(2, |step| {
                let from = tile as u32 * SLICED_TILE + (columns * 2 + step as u32) * 64 + lane;
                let right = [words.load(from).to_bits(), words.load(from + 32).to_bits()];
                let a: &[u32; 8] = &left[rows];
                let a = [a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]];
                mma_m16n8k16_f16(&mut sums[to], a, right);
            });
        });
        take(tile, sums[0], sums[1]);
    });
}

/// `A` is 8×4: `(g,t)`; `B` is 4×8: `(t,g)`.
pub use super::machine::mma_m8n8k4_f64;

/// `A` is 16×16: `(g,t+4q) (g+8,t+4q)` for `q` in 0..4; `B` is 16×8: `(t+4q,g)`. Before Hopper several smaller
/// instructions, by `Module::translated`.
pub use super::machine::mma_m16n8k16_f64 as f64_16x8x16;

/// `A` is 16×8 and `B` is 8×8: the first half of the operands of [`f64_16x8x16`].
pub use super::machine::mma_m16n8k8_f64 as f64_16x8x8;

/// `A` is 16×4 and `B` is 4×8: the first quarter of the operands of [`f64_16x8x16`].
pub use super::machine::mma_m16n8k4_f64 as f64_16x8x4;
