//! Rows resident on a device, and the passes over them.

use std::ops::Range;
use std::sync::Arc;

use cust::memory::{AsyncCopyDestination, DeviceBuffer};
use gmm_kernels::layout::tiled_len;
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, Statistics};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use super::device::{Gpu, Queue};
use super::em::LoopMemory;
use super::launch::{Chunk, Launcher, Model, StepOutputs};
use super::lloyd::LloydMemory;
use super::parameters;
use super::plan::{self, Forced, Plan, Shape};
use super::seeding::SeedMemory;
use super::staging::{receive, send};
use super::upload::{self, Number};
use super::workspace::{self, Extras, Parameters, Sizes, TOTALS, Workspace};
use crate::em::{EmOptions, EmRun};
use crate::engine::check_features;
use crate::init::{LloydPasses, lloyd_pass};
use crate::{Error, Evaluation, FillResponsibilities, Resident, Wanted};

/// Rows that one call of the caller's function fills with responsibilities.
const FILLED: usize = 256;

/// Rows on a device. Everything that it holds is freed with its context current: see `Drop`.
pub(crate) struct CudaRows<T: Number> {
    pub(super) queue: Queue,
    pub(super) precision: Precision,
    pub(super) n: usize,
    pub(super) d: usize,
    pub(super) shift: Vec<f64>,
    pub(super) total_weight: f64,
    /// `(n, d)` tiled.
    x: DeviceBuffer<T>,
    /// `(n,)`.
    row_weights: Option<DeviceBuffer<f64>>,
    workspace: Workspace<T>,
    pub(super) loop_memory: LoopMemory,
    pub(super) seeding: SeedMemory<T>,
    pub(super) lloyd: LloydMemory,
    pub(super) forced: Forced,
    /// What the workspace is made for.
    planned: Option<(Shape, Extras, Plan)>,
    /// Rows of a chunk at most: fewer than there are once a launch lacked memory.
    most_rows: u64,
    /// Last, so that the context outlives what belongs to it.
    pub(super) gpu: Arc<Gpu>,
}

impl<T: Number> CudaRows<T> {
    /// Takes a data set in: `tiled_len(n, d)*size_of::<T>()` bytes on the device, and `8*n` for row weights.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is taken; [`Error::Device`].
    pub(crate) fn load(
        gpu: Arc<Gpu>,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        forced: Forced,
    ) -> Result<Self, Error> {
        const WHAT: &str = "the data on the GPU";
        gpu.enter()?;
        let (n, d) = data.rows().dim();
        let len = usize::try_from(tiled_len(n as u64, d as u32)).unwrap_or(usize::MAX);
        let weighted = data.weights().is_some();
        let wanted = len as u128 * size_of::<T>() as u128 + if weighted { 8 * n as u128 } else { 0 };
        let free = gpu.free()?;
        if wanted > free {
            return Err(Error::Memory { what: WHAT, wanted, free });
        }
        let queue = Queue::new(&gpu)?;
        // SAFETY: the upload writes all of it before any kernel reads it.
        let x = gpu.check_memory(WHAT, wanted, unsafe { DeviceBuffer::uninitialized(len) })?;
        // SAFETY: as above.
        let weights = weighted.then(|| unsafe { DeviceBuffer::uninitialized(n) });
        let weights = weights.map(|w| gpu.check_memory(WHAT, wanted, w)).transpose()?;
        let mut rows = Self {
            queue,
            precision,
            n,
            d,
            shift: shift.to_vec(),
            total_weight: data.total_weight(),
            x,
            row_weights: weights,
            workspace: Workspace::empty(),
            loop_memory: LoopMemory::empty(),
            seeding: SeedMemory::empty(),
            lloyd: LloydMemory::empty(),
            forced,
            planned: None,
            most_rows: n as u64,
            gpu,
        };
        rows.upload(data)?;
        Ok(rows)
    }

    fn upload(&mut self, data: &Dataset) -> Result<(), Error> {
        upload::rows(&self.gpu, &self.queue, data, &self.shift, &mut self.x)?;
        if let (Some(to), Some(weights)) = (&mut self.row_weights, data.weights()) {
            upload::weights(&self.gpu, &self.queue, weights, to)?;
        }
        Ok(())
    }

    pub(super) fn shape(&self, kind: CovarianceType, k: usize) -> Shape {
        Shape { kind, precision: self.precision, n: self.n as u64, k: k as u32, d: self.d as u32 }
    }

    /// All rows as one chunk.
    pub(super) fn whole(&self) -> Chunk<T> {
        Chunk { x: self.x.index(..), row_weights: self.row_weights.as_ref().map(|w| w.index(..)), n: self.n as u64 }
    }

    /// Plans a pass and makes the workspace fit: the most rows at a time for which there is memory.
    fn prepare(&mut self, kind: CovarianceType, k: usize, extras: Extras) -> Result<(Shape, Plan), Error> {
        let shape = self.shape(kind, k);
        if let Some((s, e, plan)) = self.planned
            && (s, e) == (shape, extras)
        {
            return Ok((shape, plan));
        }
        let (limits, forced) = (self.gpu.limits, self.forced);
        let plan_for = |most_rows| plan::plan(&shape, &limits, &forced, most_rows);
        let whole = plan_for(self.most_rows);
        let sizes = Sizes::of(&shape, &whole, extras);
        let plan = if self.workspace.holds(&sizes) { whole } else { self.reserve(&shape, extras, plan_for)? };
        tracing::debug!(kind = %kind, precision = %self.precision, n = self.n, k, d = self.d, %plan, "plan");
        self.planned = Some((shape, extras, plan));
        Ok((shape, plan))
    }

    fn reserve(&mut self, shape: &Shape, extras: Extras, plan_for: impl Fn(u64) -> Plan) -> Result<Plan, Error> {
        self.planned = None;
        let mut most_rows = self.most_rows;
        loop {
            let budget = self.gpu.free()? + self.workspace.bytes();
            let (plan, sizes) = workspace::fitting(budget, shape, extras, &plan_for, most_rows)?;
            let kept = self.workspace.bytes() > 0;
            match self.workspace.reserve(&self.gpu, &sizes) {
                // What earlier passes left may stand in the way: once more without it, then with smaller chunks.
                Err(Error::Memory { .. }) if kept => self.workspace.clear(),
                Err(error @ Error::Memory { .. }) => {
                    self.workspace.clear();
                    most_rows = workspace::smaller(&plan).ok_or(error)?;
                }
                other => return other.map(|()| plan),
            }
        }
    }

    fn launcher(&self) -> Launcher<'_> {
        Launcher { gpu: &self.gpu, queue: &self.queue }
    }

    /// Writes parameters with `fill`, which says how many numbers it wrote, and puts their copy on the stream.
    fn parameters(
        &mut self,
        shape: &Shape,
        fill: impl FnOnce(&[f64], &Parameters, &mut [T]) -> usize,
    ) -> Result<Model<T>, Error> {
        let at = Parameters::of(shape);
        let host = &mut self.workspace.host_parameters.as_mut_slice()[..at.len];
        let written = fill(&self.shift, &at, host);
        let device = self.workspace.parameters.first(at.len);
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `run` sees to it.
        let copy = unsafe { device.index(..written).async_copy_from(&host[..written], &self.queue.stream) };
        self.gpu.check("a copy of parameters to the device", copy)?;
        Ok(Model {
            mean_high: device.index(at.mean_high..at.mean_low),
            mean_low: device.index(at.mean_low..at.log_scale),
            log_scale: device.index(at.log_scale..at.weights),
            weights: device.index(at.weights..at.factor),
            factor: device.index(at.factor..),
        })
    }

    fn centres(&mut self, shape: &Shape, centres: ArrayView2<'_, f64>) -> Result<Model<T>, Error> {
        self.parameters(shape, |shift, at, out| {
            let (high, low) = out.split_at_mut(at.mean_low);
            parameters::centres(centres, shift, &mut high[at.mean_high..], low);
            at.log_scale
        })
    }

    /// First row and piece of each chunk.
    fn chunks(&self, plan: &Plan) -> impl Iterator<Item = (usize, Chunk<T>)> + use<T> {
        let (n, d, step) = (self.n, self.d, plan.chunk as usize);
        let x = self.x.index(..);
        let row_weights = self.row_weights.as_ref().map(|w| w.index(..));
        (0..n).step_by(step).map(move |start| {
            let rows = step.min(n - start);
            // Chunks are whole tiles, so the pieces follow one another.
            let piece = start * d..start * d + tiled_len(rows as u64, d as u32) as usize;
            let row_weights = row_weights.as_ref().map(|w| w.index(start..start + rows));
            (start, Chunk { x: x.index(piece), row_weights, n: rows as u64 })
        })
    }

    /// One E-step of a chunk, and its totals into the results.
    fn e_step(
        &self,
        shape: &Shape,
        plan: &Plan,
        start: usize,
        chunk: &Chunk<T>,
        model: &Model<T>,
        out: &StepOutputs,
    ) -> Result<(), Error> {
        let (w, launcher) = (&self.workspace, self.launcher());
        let partials = w.step_partials.first(plan.blocks as usize * TOTALS);
        let responsibilities = w.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
        let scratch = w.scratch.first(plan::scratch_len(shape, plan) as usize);
        launcher.e_step(shape, plan, chunk, model, &responsibilities, &partials, &scratch, out)?;
        launcher.reduce_totals(plan, chunk.n, &partials, &w.results.first(TOTALS), start > 0)
    }

    /// Sums of a chunk into the results.
    fn sums(&self, shape: &Shape, plan: &Plan, start: usize, chunk: &Chunk<T>, model: &Model<T>) -> Result<(), Error> {
        let (w, launcher) = (&self.workspace, self.launcher());
        let len = shape.statistics() as usize;
        let partials = w.sum_partials.first(plan.splits as usize * len);
        let responsibilities = w.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
        launcher.sums(shape, plan, chunk, model, &responsibilities, &partials)?;
        let out = w.results.first(TOTALS + len).index(TOTALS..);
        launcher.reduce_partials(shape, plan, &partials, &out, start > 0)
    }

    /// Waits for results of a range, which the pass has written.
    fn results(&mut self, range: Range<usize>) -> Result<&[f64], Error> {
        let host = &mut self.workspace.host_results.as_mut_slice()[..range.len()];
        let device = self.workspace.results.first(range.end).index(range);
        // SAFETY: pinned; read only after the wait below.
        let copy = unsafe { device.async_copy_to(&mut *host, &self.queue.stream) };
        self.gpu.check("a copy of results from the device", copy)?;
        self.queue.wait(&self.gpu)?;
        Ok(host)
    }

    /// The results as statistics about `centres`; `log_likelihood` where an E-step left one.
    fn statistics(
        &mut self,
        shape: &Shape,
        centres: ArrayView2<'_, f64>,
        with_likelihood: bool,
    ) -> Result<Statistics, Error> {
        let (k, kd) = (shape.k as usize, shape.k as usize * shape.d as usize);
        let (total_weight, n_rows) = (self.total_weight, self.n as u64);
        let from = if with_likelihood { 0 } else { TOTALS };
        let results = self.results(from..TOTALS + shape.statistics() as usize)?;
        let mut out = Statistics::zero(shape.kind, centres.to_owned());
        let (weight, rest) = results[TOTALS - from..].split_at(k);
        let (first, second) = rest.split_at(kd);
        out.weight.copy_from_slice(weight);
        out.first = Array2::from_shape_vec(centres.dim(), first.to_vec()).expect("k*d sums");
        out.second.copy_from_slice(second);
        out.log_likelihood = if with_likelihood { results[0] } else { 0.0 };
        out.total_weight = total_weight;
        out.n_rows = n_rows;
        Ok(out)
    }

    fn pass_here(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let (shape, plan) = self.prepare(mixture.covariance_type(), mixture.n_components(), Extras::default())?;
        let model = self.parameters(&shape, |shift, at, out| parameters::fill(mixture, shift, at, out))?;
        let out = StepOutputs { responsibilities: true, weighted: true, log_densities: None, labels: None };
        for (start, chunk) in self.chunks(&plan) {
            self.e_step(&shape, &plan, start, &chunk, &model, &out)?;
            self.sums(&shape, &plan, start, &chunk, &model)?;
        }
        self.statistics(&shape, mixture.means(), true)
    }

    fn nearest_here(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        let (shape, plan) = self.prepare(kind, centres.nrows(), Extras::default())?;
        let model = self.centres(&shape, centres)?;
        for (start, chunk) in self.chunks(&plan) {
            let r = self.workspace.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
            self.launcher().nearest(&shape, &plan, &chunk, &model, &r)?;
            self.sums(&shape, &plan, start, &chunk, &model)?;
        }
        self.statistics(&shape, centres, false)
    }

    fn given_here(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        let k = centres.nrows();
        let extras = Extras { row_major: true, ..Extras::default() };
        let (shape, plan) = self.prepare(kind, k, extras)?;
        let model = self.centres(&shape, centres)?;
        for (start, chunk) in self.chunks(&plan) {
            let w = &self.workspace;
            let mut rows = w.row_major.first(chunk.n as usize * k);
            send(&self.gpu, &self.queue, &mut rows, k, |piece, out| {
                let first = start + piece.start / k;
                out.par_chunks_mut(FILLED * k).enumerate().for_each(|(i, out)| fill(first + i * FILLED, out));
            })?;
            let r = w.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
            self.launcher().tile(&shape, &plan, &chunk, &rows, &r)?;
            self.sums(&shape, &plan, start, &chunk, &model)?;
        }
        self.statistics(&shape, centres, false)
    }

    fn evaluate_here(&mut self, mixture: &Mixture, want: &mut Wanted<'_>) -> Result<Evaluation, Error> {
        let k = mixture.n_components();
        let extras = Extras {
            row_major: want.responsibilities.is_some(),
            log_densities: want.log_densities.is_some(),
            labels: want.labels.is_some(),
        };
        let (shape, plan) = self.prepare(mixture.covariance_type(), k, extras)?;
        let model = self.parameters(&shape, |shift, at, out| parameters::fill(mixture, shift, at, out))?;
        for (start, chunk) in self.chunks(&plan) {
            let (w, m) = (&self.workspace, chunk.n as usize);
            let rows = start..start + m;
            let out = StepOutputs {
                responsibilities: extras.row_major,
                weighted: false,
                log_densities: extras.log_densities.then(|| w.log_densities.first(m)),
                labels: extras.labels.then(|| w.labels.first(m)),
            };
            self.e_step(&shape, &plan, start, &chunk, &model, &out)?;
            if let (Some(to), Some(from)) = (&mut want.log_densities, &out.log_densities) {
                receive(&self.gpu, &self.queue, from, copy_to(&mut to[rows.clone()]))?;
            }
            if let (Some(to), Some(from)) = (&mut want.labels, &out.labels) {
                receive(&self.gpu, &self.queue, from, copy_to(&mut to[rows.clone()]))?;
            }
            if let Some(to) = &mut want.responsibilities {
                let tiled = w.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
                let from = w.row_major.first(m * k);
                self.launcher().untile(&shape, &plan, chunk.n, &tiled, &from)?;
                receive(&self.gpu, &self.queue, &from, copy_to(&mut to[rows.start * k..rows.end * k]))?;
            }
        }
        let total_weight = self.total_weight;
        let totals = self.results(0..TOTALS)?;
        Ok(Evaluation { log_likelihood: totals[0], entropy: totals[1], total_weight })
    }

    /// Runs a pass with the device's context current. After a failure what it left on the stream is waited for, since
    /// it may still use the workspace.
    ///
    /// A launch may need device memory of its own: for a kernel's code when it first runs, and for its threads' stacks.
    /// Where that lacks, the pass starts again with smaller chunks, whose workspace leaves more.
    fn run<A>(&mut self, mut pass: impl FnMut(&mut Self) -> Result<A, Error>) -> Result<A, Error> {
        self.gpu.enter()?;
        loop {
            let lacked_before = self.gpu.lacked_memory();
            let error = match pass(self) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let _ = self.queue.stream.synchronize();
            super::driver::take_failure();
            // Where an allocation failed, the error has the bytes, and smaller chunks were tried.
            if matches!(error, Error::Memory { .. }) || self.gpu.lacked_memory() == lacked_before {
                return Err(error);
            }
            let held = self.workspace.bytes();
            let Ok(free) = self.gpu.free() else { return Err(error) };
            if !self.make_room() {
                return Err(Error::Device(format!(
                    "{error}; the pass wants {held} bytes in its smallest chunks and as much again as the driver needs, \
                     {free} are free: use fewer components, or f32"
                )));
            }
        }
    }

    /// Gives the workspace back and makes chunks smaller; false where they are one tile.
    fn make_room(&mut self) -> bool {
        let smaller = self.planned.take().and_then(|(_, _, plan)| workspace::smaller(&plan));
        self.workspace.clear();
        self.most_rows = smaller.unwrap_or(self.most_rows);
        smaller.is_some()
    }
}

/// Copies pieces to their places, on several threads where they are long: one does not keep up with the device.
fn copy_to<A: Copy + Send + Sync>(to: &mut [A]) -> impl FnMut(Range<usize>, &[A]) {
    const LONG: usize = 1 << 17;
    move |piece, from| {
        let to = &mut to[piece];
        if from.len() < 2 * LONG {
            to.copy_from_slice(from);
        } else {
            to.par_chunks_mut(LONG).zip(from.par_chunks(LONG)).for_each(|(to, from)| to.copy_from_slice(from));
        }
    }
}

impl<T: Number> Resident for CudaRows<T> {
    fn dim(&self) -> (usize, usize) {
        (self.n, self.d)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        check_features(self.d, mixture.n_features())?;
        self.run(|rows| rows.pass_here(mixture))
    }

    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        check_features(self.d, run.mixture.n_features())?;
        self.run(|rows| rows.iterate_here(run, options, seen))
    }

    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        check_features(self.d, centres.ncols())?;
        match self.run(|rows| rows.hard_statistics(kind, centres))? {
            Some(statistics) => Ok(statistics),
            None => self.run(|rows| rows.nearest_here(kind, centres)),
        }
    }

    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        check_features(self.d, centres.ncols())?;
        match self.run(|rows| rows.lloyd_here(centres, most, rest))? {
            Some(passes) => Ok(passes),
            None => lloyd_pass(self, centres),
        }
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.d, centres.ncols())?;
        self.run(|rows| rows.given_here(kind, centres, fill))
    }

    fn forget_centres(&mut self) {
        self.forget_centres_here();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.d, centre.len())?;
        self.run(|rows| rows.add_centre_here(centre))
    }

    fn potentials(&mut self, candidates: ArrayView2<'_, f64>) -> Result<Vec<f64>, Error> {
        check_features(self.d, candidates.ncols())?;
        self.run(|rows| rows.potentials_here(candidates))
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.run(|rows| rows.near_here(ranges))
    }

    fn evaluate(&mut self, mixture: &Mixture, mut want: Wanted<'_>) -> Result<Evaluation, Error> {
        check_features(self.d, mixture.n_features())?;
        self.run(|rows| rows.evaluate_here(mixture, &mut want))
    }
}

impl<T: Number> Drop for CudaRows<T> {
    fn drop(&mut self) {
        // The buffers, which are dropped after this, belong to the context.
        self.forget_centres_here();
    }
}
