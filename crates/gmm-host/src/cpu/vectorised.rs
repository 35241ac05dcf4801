//! Loops of other crates, compiled for the vector instructions of the processor.

use super::simd::{Dispatch, Kernel, Machine, Words};

/// Loops over numbers, for [`vectorised`].
pub trait Loops {
    /// What the loops compute.
    type Output;

    /// Runs them. Must be `#[inline(always)]`, as must every function that it calls and that is to use the vectors.
    fn run(self) -> Self::Output;
}

/// Runs loops compiled for the widest vectors of this processor.
///
/// No operations are fused or reordered: the bits are the same on every processor.
pub fn vectorised<L: Loops>(loops: L) -> L::Output {
    f64::dispatch(Machine::detect(), OfLoops(loops))
}

struct OfLoops<L>(L);

impl<L: Loops> Kernel<f64> for OfLoops<L> {
    type Output = L::Output;

    #[inline(always)]
    fn run<W: Words<f64>>(self, _: W) -> L::Output {
        self.0.run()
    }
}
