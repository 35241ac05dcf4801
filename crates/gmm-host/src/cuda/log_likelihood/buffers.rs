//! What the likelihoods of all kinds share: memory, values that the host looks for, and what is taken from constants.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gmm_model::Mixture;

use super::coefficients::Work;
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;

/// Mixtures that the host waits for at a time, at most, a multiple of eight: what a wait costs is nothing beside them.
pub(crate) const AT_A_TIME: usize = 512;

/// Memory that stays between calls.
pub(super) struct Buffers {
    pub(super) numbers: Slot<f64>,
    /// Coefficients on their way, pinned.
    pub(super) coefficients: Pinned<f64>,
    /// What comes back, pinned: kernels write there.
    pub(super) values: Pinned<f64>,
    pub(super) work: Work,
}

impl Buffers {
    pub(super) fn empty() -> Self {
        let work = Work::default();
        Self { numbers: Slot::empty(), coefficients: pinned_empty(), values: pinned_empty(), work }
    }

    /// Makes room for so many numbers on the device, coefficients on their way, and numbers that come back.
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
            // What is given up may go to others, and nobody waited for the values that came last.
            data.queue.rest(gpu)?;
        }
        memory.numbers.reserve(gpu, numbers)?;
        pin(gpu, &mut memory.coefficients, coefficients)?;
        pin(gpu, &mut memory.values, values)
    }
}

/// Values that a kernel writes to the host's memory, looked for there: the driver tells of a kernel's end some microseconds after
/// it wrote them, which is a good part of what few mixtures take.
pub(super) struct Expected(());

impl Expected {
    pub(super) const FEW: usize = 8;

    /// What no kernel writes: NaN, with bits of its own.
    const NOTHING: u64 = 0x7ff8_6e6f_7468_6e67;

    /// Of so many values, before the kernel that writes them is launched.
    pub(super) fn of(values: &mut Pinned<f64>, count: usize) -> Self {
        values.as_mut_slice()[..count].fill(f64::from_bits(Self::NOTHING));
        Self(())
    }

    /// The same of the values of a few mixtures; none of more, of which the driver tells as soon.
    pub(super) fn of_few(values: &mut Pinned<f64>, count: usize) -> Option<Self> {
        (count <= Self::FEW).then(|| Self::of(values, count))
    }

    /// Whether the first `count` of them came within some hundred microseconds; else the stream is to be waited for, which tells
    /// of faults. With a value all is done that its kernel read or wrote.
    pub(super) fn come(self, values: &mut Pinned<f64>, count: usize) -> bool {
        let first = values.as_mut_slice().as_mut_ptr();
        let is_there = |i: usize| {
            // SAFETY: a number of the buffer, which the device alone writes meanwhile, and as a whole.
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

/// About the log density of rows where the densest component has its own: what is taken from constants, and added for all rows
/// at once, so that kernels can do with `f32`.
pub(super) fn typical(mixture: &Mixture) -> f64 {
    let peak = |c| mixture.log_weight(c) + mixture.log_normalizer(c);
    let densest = (0..mixture.n_components()).map(peak).fold(f64::NEG_INFINITY, f64::max);
    if densest.is_finite() { densest - 0.5 * mixture.n_features() as f64 } else { 0.0 }
}
