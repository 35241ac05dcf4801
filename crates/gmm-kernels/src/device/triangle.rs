//! Products of 64 rows with rows of a triangle, by a [warpgroup](super::warpgroup): nothing is multiplied past the diagonal.
//!
//! Operands and sums are as there; a left operand is of 128 terms, of which a word reads as many as it says.

#[cfg(target_arch = "nvptx64")]
pub use super::machine::triangle::up_to;

#[cfg(not(target_arch = "nvptx64"))]
pub use by_warps::up_to;

#[cfg(not(target_arch = "nvptx64"))]
mod by_warps {
    use crate::device::mma::mma_m16n8k16_f16;
    use crate::device::warpgroup::Cores;
    use crate::device::{Shared, warp};

    /// `sums = left·right` by the first steps of sixteen terms, 2, 4, 6 or 8, for 64 columns.
    pub fn up_to(steps: usize, sums: &mut [f32; 32], left: &[u32; 32], right: Cores) {
        assert!(matches!(steps, 2 | 4 | 6 | 8), "{steps} steps");
        let lane = warp::lane_id();
        *sums = [0.0; 32];
        for (step, left) in (0..steps as u32).zip(left.as_chunks::<4>().0) {
            for (i, four) in (0..).zip(sums.as_chunks_mut::<4>().0) {
                let core = |half: u32| right.at + i * right.others + (2 * step + half) * right.terms;
                // A core's lines are the columns of four lanes each.
                let b = [0, 1].map(|half| Shared::<f32>::at(core(half) + 4 * lane).load(0).to_bits());
                mma_m16n8k16_f16(four, *left, b);
            }
        }
    }
}
