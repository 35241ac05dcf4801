//! Device memory of a pass besides the rows: lengths by one pure function, then buffers of those lengths.

use gmm_kernels::em::simple::e_step::whitened::Whitening;
use gmm_kernels::layout::{TILE_ROWS, factor_len, tiles};

use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::plan::{self, Plan, TOTALS};
use crate::cuda::number::Number;
use crate::cuda::rows::whitening;
use crate::cuda::shape::Shape;

/// Per-row results that are computed besides statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Row-major responsibilities, as input or output.
    pub(crate) row_major: bool,
    /// Log densities per row.
    pub(crate) log_densities: bool,
    /// Labels per row.
    pub(crate) labels: bool,
    /// Whether no kernel reads the responsibilities after those that write the results.
    pub(crate) is_evaluation: bool,
}

/// Positions of a mixture's parameters in one buffer of `T`; each starts 16-byte aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// `(k, d)`.
    pub(crate) mean_high: usize,
    /// `(k, d)`.
    pub(crate) mean_low: usize,
    /// `(k,)`.
    pub(crate) log_scale: usize,
    /// `(k,)`.
    pub(crate) log_scale_low: usize,
    /// `(k,)`.
    pub(crate) weights: usize,
    /// `factor_len(kind, k, d)`.
    pub(crate) factor: usize,
    /// The mixture once more for the tensor cores, as `f64`: see [`whitening`].
    pub(crate) whitening: Option<(usize, Whitening)>,
    /// Total length.
    pub(crate) len: usize,
}

impl Parameters {
    /// The positions for a shape, with room for a whitening if `is_evaluation` and there are kernels for it.
    pub(crate) fn of(shape: &Shape, is_evaluation: bool) -> Self {
        let up = |len: usize| len.next_multiple_of(4);
        let (k, kd) = (shape.k as usize, shape.k as usize * shape.d as usize);
        let mean_low = up(kd);
        let log_scale = mean_low + up(kd);
        let log_scale_low = log_scale + up(k);
        let weights = log_scale_low + up(k);
        let factor = weights + up(k);
        let end = factor + up(factor_len(shape.kernel_kind(), shape.k, shape.d) as usize);
        let whitening = whitening::layout(shape).filter(|_| is_evaluation).map(|layout| (end, layout));
        let doubles = whitening.map_or(0, |(_, layout)| layout.count() as usize);
        let len = end + up(doubles * 8 / shape.number_bytes() as usize);
        Self { mean_high: 0, mean_low, log_scale, log_scale_low, weights, factor, whitening, len }
    }
}

/// Lengths of all buffers of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// See [`Parameters`].
    pub(crate) parameters: usize,
    /// `chunk*k`.
    pub(crate) responsibilities: usize,
    /// `blocks*3`.
    pub(crate) step_partials: usize,
    /// `splits*statistics`.
    pub(crate) sum_partials: usize,
    /// `3 + statistics`.
    pub(crate) results: usize,
    /// `blocks*128*solved_columns(d)`, or 0.
    pub(crate) scratch: usize,
    /// `chunk*k`, or 0.
    pub(crate) row_major: usize,
    /// [`rows_received`], or 0.
    pub(crate) log_densities: usize,
    /// [`rows_received`], or 0.
    pub(crate) labels: usize,
}

/// Rows whose log densities and labels wait on the device for a copy to the host: those of many chunks, so that the
/// device need not wait for each of them.
pub(crate) fn rows_received(shape: &Shape, plan: &Plan) -> usize {
    const CHUNKS: u64 = 64;
    (CHUNKS * plan.chunk).min(tiles(shape.n) * u64::from(TILE_ROWS)) as usize
}

impl Sizes {
    pub(crate) fn of(shape: &Shape, plan: &Plan, extras: Extras) -> Self {
        let statistics = shape.statistics() as usize;
        let (chunk, blocks) = (plan.chunk as usize, plan.blocks as usize);
        let responsibilities = chunk * shape.k as usize;
        let where_asked = |asked: bool, len: usize| if asked { len } else { 0 };
        Self {
            parameters: Parameters::of(shape, extras.is_evaluation).len,
            responsibilities,
            step_partials: blocks * TOTALS,
            sum_partials: plan.splits as usize * statistics,
            results: TOTALS + statistics,
            scratch: plan::scratch_len(shape, plan) as usize,
            row_major: where_asked(extras.row_major, responsibilities),
            log_densities: where_asked(extras.log_densities, rows_received(shape, plan)),
            labels: where_asked(extras.labels, rows_received(shape, plan)),
        }
    }

    /// Total bytes, where a number of type `T` has `number` bytes.
    pub(crate) const fn bytes(&self, number: u64) -> u128 {
        let numbers = (self.parameters + self.responsibilities + self.scratch) as u128;
        let doubles =
            (self.step_partials + self.sum_partials + self.results + self.row_major + self.log_densities) as u128;
        numbers * number as u128 + doubles * 8 + self.labels as u128 * 4
    }
}

/// Finds the largest plan whose workspace fits into `budget` bytes, and its lengths: chunks are halved until it fits.
///
/// # Errors
/// [`Error::Memory`] with the bytes that the smallest plan needs.
pub(crate) fn fitting(
    budget: u128,
    shape: &Shape,
    extras: Extras,
    plan_for: impl Fn(u64) -> Plan,
    most_rows: u64,
) -> Result<(Plan, Sizes), Error> {
    let mut rows = most_rows;
    loop {
        let plan = plan_for(rows);
        let sizes = Sizes::of(shape, &plan, extras);
        let wanted = sizes.bytes(shape.number_bytes());
        if wanted <= budget {
            return Ok((plan, sizes));
        }
        match smaller(&plan) {
            Some(fewer) => rows = fewer,
            None => return Err(Error::Memory { what: WHAT, wanted, free: budget }),
        }
    }
}

/// Rows of the next smaller chunk; `None` if the chunk is a single tile.
pub(crate) const fn smaller(plan: &Plan) -> Option<u64> {
    let tile = crate::cuda::rows::upload::TILE as u64;
    if plan.chunk > tile { Some(plan.chunk / 2) } else { None }
}

pub(crate) const WHAT: &str = "a pass on the GPU";

/// The buffers of all passes. They grow if a pass needs more, and are otherwise reused, so that iterations allocate
/// nothing.
pub(crate) struct Workspace<T: Number> {
    pub(crate) parameters: Slot<T>,
    pub(crate) responsibilities: Slot<T>,
    pub(crate) scratch: Slot<T>,
    pub(crate) step_partials: Slot<f64>,
    pub(crate) sum_partials: Slot<f64>,
    pub(crate) results: Slot<f64>,
    pub(crate) row_major: Slot<f64>,
    pub(crate) log_densities: Slot<f64>,
    pub(crate) labels: Slot<u32>,
    /// Pinned, so that copies run asynchronously in the stream.
    pub(crate) host_parameters: Pinned<T>,
    pub(crate) host_results: Pinned<f64>,
}

impl<T: Number> Workspace<T> {
    pub(crate) fn empty() -> Self {
        Self {
            parameters: Slot::empty(),
            responsibilities: Slot::empty(),
            scratch: Slot::empty(),
            step_partials: Slot::empty(),
            sum_partials: Slot::empty(),
            results: Slot::empty(),
            row_major: Slot::empty(),
            log_densities: Slot::empty(),
            labels: Slot::empty(),
            host_parameters: pinned_empty(),
            host_results: pinned_empty(),
        }
    }

    /// Allocated device bytes.
    pub(crate) fn bytes(&self) -> u128 {
        let numbers = self.parameters.bytes() + self.responsibilities.bytes() + self.scratch.bytes();
        let sums = self.step_partials.bytes() + self.sum_partials.bytes() + self.results.bytes();
        numbers + sums + self.row_major.bytes() + self.log_densities.bytes() + self.labels.bytes()
    }

    /// Whether all buffers are at least as long as `s` requires.
    pub(crate) fn holds(&self, s: &Sizes) -> bool {
        let long = |have: usize, want: usize| have >= want;
        long(self.parameters.room(), s.parameters)
            && long(self.responsibilities.room(), s.responsibilities)
            && long(self.scratch.room(), s.scratch)
            && long(self.step_partials.room(), s.step_partials)
            && long(self.sum_partials.room(), s.sum_partials)
            && long(self.results.room(), s.results)
            && long(self.row_major.room(), s.row_major)
            && long(self.log_densities.room(), s.log_densities)
            && long(self.labels.room(), s.labels)
            && long(self.host_parameters.len(), s.parameters)
            && long(self.host_results.len(), s.results)
    }

    /// Makes all buffers at least as long as `s` requires.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn reserve(&mut self, gpu: &Gpu, s: &Sizes) -> Result<(), Error> {
        self.parameters.reserve(gpu, s.parameters)?;
        self.responsibilities.reserve(gpu, s.responsibilities)?;
        self.scratch.reserve(gpu, s.scratch)?;
        self.step_partials.reserve(gpu, s.step_partials)?;
        self.sum_partials.reserve(gpu, s.sum_partials)?;
        self.results.reserve(gpu, s.results)?;
        self.row_major.reserve(gpu, s.row_major)?;
        self.log_densities.reserve(gpu, s.log_densities)?;
        self.labels.reserve(gpu, s.labels)?;
        pin(gpu, &mut self.host_parameters, s.parameters)?;
        pin(gpu, &mut self.host_results, s.results)
    }

    /// Frees all buffers, so that a smaller workspace can be allocated.
    pub(crate) fn clear(&mut self) {
        *self = Self::empty();
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, Precision};

    use super::*;

    fn plan_for(rows: u64) -> Plan {
        let chunk = rows.min(1 << 20).next_multiple_of(128);
        Plan {
            solved: plan::Solved::Shared,
            chunk,
            blocks: (chunk / 128).min(100) as u32,
            splits: 4,
            rows_of_thread: 1,
        }
    }

    fn shape() -> Shape {
        Shape { kind: CovarianceType::Full, precision: Precision::F32, n: 1 << 20, k: 10, d: 5 }
    }

    #[test]
    fn lengths_are_their_formulas() {
        let sizes = Sizes::of(
            &shape(),
            &plan_for(1024),
            Extras { row_major: true, log_densities: true, labels: true, is_evaluation: true },
        );
        let statistics = 10 + 50 + 150;
        // A whitening of twelve components: a tile, eight offsets and a scale of f64 each.
        let whitening = 2 * 12 * (64 + 8 + 1);
        assert_eq!(sizes.parameters, 52 + 52 + 12 + 12 + 12 + 640 + whitening);
        assert_eq!((sizes.responsibilities, sizes.step_partials), (10_240, 24));
        assert_eq!((sizes.sum_partials, sizes.results, sizes.scratch), (4 * statistics, 3 + statistics, 0));
        assert_eq!((sizes.row_major, sizes.log_densities, sizes.labels), (10_240, 65_536, 65_536));
        let doubles = 24 + 5 * statistics + 3 + 10_240 + 65_536;
        assert_eq!(sizes.bytes(4), (4 * (780 + whitening + 10_240) + 8 * doubles + 4 * 65_536) as u128);
    }

    #[test]
    fn what_was_not_asked_for_takes_nothing() {
        let sizes = Sizes::of(&shape(), &plan_for(1024), Extras::default());
        assert_eq!((sizes.row_major, sizes.log_densities, sizes.labels), (0, 0, 0));
    }

    #[test]
    fn a_small_budget_gives_smaller_chunks_and_then_an_error() {
        let all = |budget| fitting(budget, &shape(), Extras::default(), plan_for, 1 << 20);
        let whole = all(u128::MAX).unwrap().0.chunk;
        assert_eq!(whole, 1 << 20);
        let (plan, sizes) = all(10 << 20).unwrap();
        assert!(plan.chunk < whole && sizes.bytes(4) <= 10 << 20, "{plan}");
        let error = all(1000).unwrap_err().to_string();
        assert!(error.contains("1000 are free"), "{error}");
    }
}
