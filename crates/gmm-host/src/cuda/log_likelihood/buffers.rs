//! Shared by all likelihood kernels: memory, polling of values in pinned memory, and the offset taken from constants.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gmm_model::Mixture;

use super::coefficients::Work;
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;

/// Most mixtures per host synchronisation, a multiple of eight: with this many the cost of the wait is negligible.
pub(crate) const AT_A_TIME: usize = 512;

/// Memory that is reused between calls.
pub(super) struct Buffers {
    pub(super) numbers: Slot<f64>,
    /// Staging buffer of coefficients, pinned.
    pub(super) coefficients: Pinned<f64>,
    /// Results, pinned: kernels write to them directly.
    pub(super) values: Pinned<f64>,
    pub(super) work: Work,
}

impl Buffers {
    pub(super) fn empty() -> Self {
        let work = Work::default();
        Self { numbers: Slot::empty(), coefficients: pinned_empty(), values: pinned_empty(), work }
    }

    /// Makes room for the given lengths of device memory, staged coefficients and results, in `f64`.
    pub(super) fn reserve<T: Number>(
        &mut self,
        data: &Rows<T>,
        numbers: usize,
        coefficients: usize,
        values: usize,
    ) -> Result<(), Error> {
        let (gpu, memory) = (&data.gpu, self);
        gpu.room("likelihoods on the GPU", 8 * numbers as u128, memory.numbers.bytes())?;
        let held = (memory.numbers.room(), memory.coefficients.len(), memory.values.len());
        if held.0 < numbers || held.1 < coefficients || held.2 < values {
            // The pool may give the old buffers to others, and the last call may not have waited for the stream.
            data.queue.rest(gpu)?;
        }
        memory.numbers.reserve(gpu, numbers)?;
        pin(gpu, &mut memory.coefficients, coefficients)?;
        pin(gpu, &mut memory.values, values)
    }
}

/// Values that a kernel writes directly to pinned host memory, and that the host polls there. The driver reports the
/// end of a kernel some microseconds after the values are written, a large share of the time for few mixtures.
pub(super) struct Expected(());

impl Expected {
    pub(super) const FEW: usize = 8;

    /// A marker that no kernel writes: NaN with a distinct bit pattern.
    const NOTHING: u64 = 0x7ff8_6e6f_7468_6e67;

    /// Marks the first `count` values as not yet written; call before the kernel is launched.
    pub(super) fn of(values: &mut Pinned<f64>, count: usize) -> Self {
        values.as_mut_slice()[..count].fill(f64::from_bits(Self::NOTHING));
        Self(())
    }

    /// The same for at most [`FEW`](Self::FEW) values; `None` for more, for which the driver's wait is as fast.
    pub(super) fn of_few(values: &mut Pinned<f64>, count: usize) -> Option<Self> {
        (count <= Self::FEW).then(|| Self::of(values, count))
    }

    /// Polls the first `count` values for up to 300 µs. Returns whether all arrived; if not, wait for the stream, which
    /// reports faults. A value that arrived implies that its kernel has finished reading and writing everything that
    /// the value depends on.
    pub(super) fn come(self, values: &mut Pinned<f64>, count: usize) -> bool {
        let first = values.as_mut_slice().as_mut_ptr();
        let is_there = |i: usize| {
            // SAFETY: `i < count`, the length that `of` filled; meanwhile only the device writes the number, atomically
            // as 8 bytes.
            let bits = unsafe { AtomicU64::from_ptr(first.add(i).cast()) };
            bits.load(Ordering::Acquire) != Self::NOTHING
        };
        let (begin, mut next) = (Instant::now(), 0);
        loop {
            while next < count && is_there(next) {
                next += 1;
            }
            if next == count {
                return true;
            }
            if begin.elapsed() > Duration::from_micros(300) {
                return false;
            }
            std::hint::spin_loop();
        }
    }
}

/// Approximate log density of rows that belong to the densest component. It is subtracted from constants, and added
/// back once for all rows, so that `f32` suffices for the kernels.
pub(super) fn typical(mixture: &Mixture) -> f64 {
    let peak = |c| mixture.log_weight(c) + mixture.log_normalizer(c);
    let densest = (0..mixture.n_components()).map(peak).fold(f64::NEG_INFINITY, f64::max);
    if densest.is_finite() { densest - 0.5 * mixture.n_features() as f64 } else { 0.0 }
}
