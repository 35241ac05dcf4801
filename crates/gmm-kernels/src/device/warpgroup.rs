//! fp16 products by a *warpgroup*: four warps, the first a multiple of four, that call the primitive together.
//!
//! Each warp has 16 of the result's 64 rows. With `g = lane / 4` and `t = lane % 4`, `sums[4*i..4*i+4]` of a lane holds
//! the entries `(g, 8i+2t)`, `(g, 8i+2t+1)`, `(g+8, 8i+2t)` and `(g+8, 8i+2t+1)` of its warp's rows. A left operand in
//! registers has four words per step of 16 terms, as `A` of [`mma_m16n8k16_f16`](super::mma::mma_m16n8k16_f16).
//!
//! Operands in shared memory are visible to the products after a barrier, if each thread that stored or copied any of
//! them called [`stores_before_products`](super::mma::stores_before_products) before that barrier.

/// Position of an operand in shared memory: core matrices of 128 bytes, eight lines of eight fp16 numbers. A line holds
/// consecutive terms of one row or column or, if the field's documentation states it, rows or columns of one term.
#[derive(Clone, Copy)]
pub struct Cores {
    /// Bytes into the block's shared memory, a multiple of 16.
    pub at: u32,
    /// Bytes from a core matrix to that of the next eight terms.
    pub terms: u32,
    /// Bytes from a core matrix to that of the next eight rows or columns.
    pub others: u32,
}

/// A lane's sums for 64, 96, 128, 160, 192 or 256 columns. There is one array type per length: if the compiler sees one
/// length after another, it leaves long arrays in local memory.
pub trait Sums: Copy + core::ops::Index<usize, Output = f32> {
    /// All of them 0.
    const ZERO: Self;

    /// `self += left·right` in four steps of 16 terms; with `fresh`, `self = left·right`.
    fn four_steps(&mut self, left: &[u32; 16], right: Cores, fresh: bool);

    /// `self += left·right` in four steps, and [`of_memory`] for `other`, without a wait between the two.
    fn four_steps_and_of_memory(&mut self, left: &[u32; 16], right: Cores, other: &mut [f32; 32], of: InMemory);
}

/// A left operand in registers: 2, 4, 6, 8, 10, 12 or 16 steps of 16 terms.
pub trait LeftOperand {
    /// Sets `sums` to `self·right`, for 64 columns.
    fn times(&self, sums: &mut [f32; 32], right: Cores);
}

/// A split-fp16 left operand in registers: 2 or 4 steps of 16 terms, the hi parts and then the lo parts.
pub trait LeftOfHalves {
    /// Sets `sums` to `self·right`, for 64 columns: lo·hi, plus hi·lo, plus hi·hi, in this order. `right` locates the
    /// hi parts, and their lo parts are `tails` bytes further on.
    fn times(&self, sums: &mut [f32; 32], right: Cores, tails: u32);
}

/// Operands in shared memory.
#[derive(Clone, Copy)]
pub struct InMemory {
    /// 64 rows, 16 for each warp; a line holds terms of one row.
    pub left: Cores,
    /// 64 columns; a line holds columns of one term.
    pub right: Cores,
    /// Steps of 16 terms, an even number.
    pub steps: u32,
}

#[cfg(target_arch = "nvptx64")]
pub use super::machine::warpgroup::of_memory;

#[cfg(not(target_arch = "nvptx64"))]
pub use by_warps::of_memory;

#[cfg(not(target_arch = "nvptx64"))]
mod by_warps {
    use super::{Cores, InMemory, LeftOfHalves, LeftOperand, Sums};
    use crate::device::mma::mma_m16n8k16_f16_wide;
    use crate::device::{Shared, warp};

    impl Cores {
        /// Byte position of an fp16 number; with `ACROSS`, lines run along rows or columns.
        fn place<const ACROSS: bool>(self, other: u32, term: u32) -> u32 {
            let (line, along) = if ACROSS { (term, other) } else { (other, term) };
            self.at + other / 8 * self.others + term / 8 * self.terms + line % 8 * 16 + along % 8 * 2
        }

        /// The fp16 numbers of two neighbouring terms, of which the first is even.
        fn two<const ACROSS: bool>(self, other: u32, term: u32) -> u32 {
            let word = |at: u32| Shared::<f32>::at(at / 4 * 4).load(0).to_bits();
            let half = |at: u32| word(at) >> (at / 2 % 2 * 16) & 0xffff;
            if ACROSS {
                let [a, b] = [0, 1].map(|i| half(self.place::<ACROSS>(other, term + i)));
                a | b << 16
            } else {
                word(self.place::<ACROSS>(other, term))
            }
        }
    }

    fn step<const ACROSS: bool>(sums: &mut [f32], left: [u32; 4], right: Cores, step: u32) {
        let lane = warp::lane_id();
        let (g, t) = (lane / 4, lane % 4);
        mma_m16n8k16_f16_wide(sums.as_chunks_mut::<4>().0, left, |i| {
            [0, 8].map(|half| right.two::<ACROSS>(8 * i + g, 16 * step + half + 2 * t))
        });
    }

    fn steps(sums: &mut [f32], left: &[u32], right: Cores, fresh: bool) {
        if fresh {
            sums.fill(0.0);
        }
        for (i, left) in (0..).zip(left.as_chunks::<4>().0) {
            step::<false>(sums, *left, right, i);
        }
    }

    macro_rules! lefts {
        ($($steps:literal)*) => {
            $(
                impl LeftOperand for [[u32; 4]; $steps] {
                    fn times(&self, sums: &mut [f32; 32], right: Cores) {
                        steps(sums, self.as_flattened(), right, true);
                    }
                }
            )*
        };
    }
    lefts!(2 4 6 8 10 12 16);

    macro_rules! lefts_of_halves {
        ($($steps:literal)*) => {
            $(
                impl LeftOfHalves for [[[u32; 4]; $steps]; 2] {
                    fn times(&self, sums: &mut [f32; 32], right: Cores, tails: u32) {
                        let [heads_left, tails_left] = self.each_ref().map(|left| left.as_flattened());
                        steps(sums, tails_left, right, true);
                        steps(sums, heads_left, Cores { at: right.at + tails, ..right }, false);
                        steps(sums, heads_left, right, false);
                    }
                }
            )*
        };
    }
    lefts_of_halves!(2 4);

    macro_rules! sums {
        ($($m:literal)*) => {
            $(
                impl Sums for [f32; $m] {
                    const ZERO: Self = [0.0; $m];

                    fn four_steps(&mut self, left: &[u32; 16], right: Cores, fresh: bool) {
                        steps(self, left, right, fresh);
                    }

                    fn four_steps_and_of_memory(
                        &mut self,
                        left: &[u32; 16],
                        right: Cores,
                        other: &mut [f32; 32],
                        of: InMemory,
                    ) {
                        steps(self, left, right, false);
                        of_memory(other, of);
                    }
                }
            )*
        };
    }
    sums!(32 48 64 80 96 128);

    /// Sets `sums` to the product of two operands in shared memory, for 64 columns.
    pub fn of_memory(sums: &mut [f32; 32], InMemory { left, right, steps: all }: InMemory) {
        assert!(all > 0 && all.is_multiple_of(2), "{all} steps");
        let (lane, first) = (warp::lane_id(), crate::device::thread::thread_idx_x() / 32 % 4 * 16);
        let (g, t) = (lane / 4, lane % 4);
        sums.fill(0.0);
        for i in 0..all {
            let a = |row: u32, half: u32| left.two::<false>(first + row + g, 16 * i + half + 2 * t);
            step::<true>(sums, [a(0, 0), a(8, 0), a(0, 8), a(8, 8)], right, i);
        }
    }
}
