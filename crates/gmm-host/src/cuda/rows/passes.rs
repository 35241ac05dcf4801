//! The host-driven passes over resident rows: kernels, chunk by chunk, and the host's work before and after.

use std::ops::Range;

use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::em::simple::e_step::whitened::Whitening;
use gmm_kernels::layout::tiled_len;
use gmm_model::{CovarianceType, Mixture, PrecisionMixture, Statistics};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use crate::cuda::driver::staging::send;
use crate::cuda::launch::plan::TOTALS;
use crate::cuda::launch::plan::{self, Plan};
use crate::cuda::launch::{Chunk, Model, StepOutputs};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::outputs::Outputs;
use crate::cuda::rows::parameters::{self, Filled};
use crate::cuda::rows::whitening;
use crate::cuda::rows::workspace::{self, Extras, Parameters};
use crate::cuda::shape::Shape;
use crate::{Error, Evaluation, FillResponsibilities};

/// Rows per call of the caller's function that fills responsibilities.
const FILLED: usize = 256;

/// The numbers of a whitening in a buffer of parameters.
fn as_doubles<T: Number>(numbers: &DeviceSlice<T>, layout: Whitening) -> DeviceSlice<f64> {
    let len = layout.count() as usize;
    assert!(numbers.len() * size_of::<T>() >= 8 * len, "room for a whitening");
    // SAFETY: the slice has these bytes, which start 16-byte aligned, and any bits are numbers.
    unsafe { DeviceSlice::from_raw_parts(numbers.as_device_ptr().cast(), len) }
}

impl<T: Number> Rows<T> {
    /// Writes parameters with `fill`, which returns what it wrote, and enqueues their copy to the device.
    pub(crate) fn parameters(
        &mut self,
        shape: &Shape,
        is_evaluation: bool,
        fill: impl FnOnce(&[f64], &Parameters, &mut [T]) -> Filled,
    ) -> Result<Model<T>, Error> {
        let whitens = is_evaluation && whitening::is_fast(&self.gpu.limits) && self.launcher().has_whitened(shape);
        let at = Parameters::of(shape, whitens);
        let host = &mut self.workspace.host_parameters.as_mut_slice()[..at.len];
        let Filled { written, is_whitened } = fill(&self.shift, &at, host);
        let device = self.workspace.parameters.first(at.len);
        // SAFETY: the host buffer is pinned, and `run` waits for the stream before it is written again or freed.
        let copy = unsafe { device.index(..written).async_copy_from(&host[..written], &self.queue.stream) };
        self.gpu.check("a copy of parameters to the device", copy)?;
        Ok(Model {
            mean_high: device.index(at.mean_high..at.mean_low),
            mean_low: device.index(at.mean_low..at.log_scale),
            log_scale: device.index(at.log_scale..at.log_scale_low),
            log_scale_low: device.index(at.log_scale_low..at.weights),
            weights: device.index(at.weights..at.factor),
            factor: device.index(at.factor..),
            whitening: at.whitening.filter(|_| is_whitened).map(|(at, layout)| as_doubles(&device.index(at..), layout)),
            of_precisions: false,
        })
    }

    fn centres(&mut self, shape: &Shape, centres: ArrayView2<'_, f64>) -> Result<Model<T>, Error> {
        self.parameters(shape, false, |shift, at, out| {
            let (high, low) = out.split_at_mut(at.mean_low);
            parameters::centres(centres, shift, &mut high[at.mean_high..], low);
            Filled { written: at.log_scale, is_whitened: false }
        })
    }

    /// Enqueues the E-step of a chunk, and adds its totals to the results.
    pub(crate) fn e_step(
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

    /// Adds the sums of a chunk to the results.
    fn sums(&self, shape: &Shape, plan: &Plan, start: usize, chunk: &Chunk<T>, model: &Model<T>) -> Result<(), Error> {
        let (w, launcher) = (&self.workspace, self.launcher());
        let len = shape.statistics() as usize;
        let partials = w.sum_partials.first(plan.splits as usize * len);
        let responsibilities = w.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
        launcher.sums(shape, plan, chunk, model, &responsibilities, &partials)?;
        let out = w.results.first(TOTALS + len).index(TOTALS..);
        launcher.reduce_partials(shape, plan, &partials, &out, start > 0)
    }

    /// Copies a range of the results to the host, and waits for it.
    fn results(&mut self, range: Range<usize>) -> Result<&[f64], Error> {
        let host = &mut self.workspace.host_results.as_mut_slice()[..range.len()];
        let device = self.workspace.results.first(range.end).index(range);
        // SAFETY: the host buffer is pinned, and is read only after the wait below.
        let copy = unsafe { device.async_copy_to(&mut *host, &self.queue.stream) };
        self.gpu.check("a copy of results from the device", copy)?;
        self.queue.wait(&self.gpu)?;
        Ok(host)
    }

    /// The results as statistics about `centres`; `with_likelihood` if an E-step wrote the totals.
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

    pub(crate) fn pass_here(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let (shape, plan) = self.prepare(mixture.covariance_type(), mixture.n_components(), Extras::default())?;
        let model = self.parameters(&shape, false, |shift, at, out| parameters::fill(mixture, shift, at, out))?;
        let out = StepOutputs { responsibilities: true, weighted: true, log_densities: None, labels: None };
        for rows in self.sections.chunks(plan.chunk as usize) {
            let (start, chunk) = (rows.start, self.stage(rows)?);
            self.e_step(&shape, &plan, start, &chunk, &model, &out)?;
            self.sums(&shape, &plan, start, &chunk, &model)?;
        }
        self.statistics(&shape, mixture.means(), true)
    }

    /// Computes [`scatter`](Self::scatter) if it is not known yet.
    ///
    /// # Errors
    /// As for a pass.
    pub(crate) fn know_scatter(&mut self) -> Result<(), Error> {
        if self.scatter.is_none() {
            let centre = Array2::from_shape_vec((1, self.d), self.shift.clone()).expect("d values");
            let statistics = self.run(|rows| rows.nearest_here(CovarianceType::Tied, centre.view()))?;
            self.scatter = Some(statistics.second);
        }
        Ok(())
    }

    pub(crate) fn nearest_here(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
    ) -> Result<Statistics, Error> {
        let (shape, plan) = self.prepare(kind, centres.nrows(), Extras::default())?;
        let model = self.centres(&shape, centres)?;
        for rows in self.sections.chunks(plan.chunk as usize) {
            let (start, chunk) = (rows.start, self.stage(rows)?);
            let r = self.workspace.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
            self.launcher().nearest(&shape, &plan, &chunk, &model, &r)?;
            self.sums(&shape, &plan, start, &chunk, &model)?;
        }
        self.statistics(&shape, centres, false)
    }

    pub(crate) fn given_here(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        let k = centres.nrows();
        let extras = Extras { row_major: true, ..Extras::default() };
        let (shape, plan) = self.prepare(kind, k, extras)?;
        let model = self.centres(&shape, centres)?;
        for rows in self.sections.chunks(plan.chunk as usize) {
            let (start, chunk) = (rows.start, self.stage(rows)?);
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

    pub(crate) fn evaluate_here(&mut self, mixture: &Mixture, outputs: &mut Outputs<'_>) -> Result<Evaluation, Error> {
        let (kind, k) = (mixture.covariance_type(), mixture.n_components());
        self.evaluate_filled(kind, k, false, |shift, at, out| parameters::fill(mixture, shift, at, out), outputs)
    }

    /// [`evaluate_here`](Self::evaluate_here) with factors of precisions; matrices are upper triangular. `scales` are
    /// `ln w_c` plus the log normalisers, `(k,)`.
    pub(crate) fn evaluate_precisions_here(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        scales: &[f64],
        outputs: &mut Outputs<'_>,
    ) -> Result<Evaluation, Error> {
        let (kind, k) = (mixture.covariance_type(), mixture.n_components());
        let fill = |shift: &[f64], at: &Parameters, out: &mut [T]| {
            parameters::fill_precisions(mixture, scales, shift, at, out)
        };
        self.evaluate_filled(kind, k, true, fill, outputs)
    }

    fn evaluate_filled(
        &mut self,
        kind: CovarianceType,
        k: usize,
        of_precisions: bool,
        fill: impl FnOnce(&[f64], &Parameters, &mut [T]) -> Filled,
        outputs: &mut Outputs<'_>,
    ) -> Result<Evaluation, Error> {
        let extras = outputs.extras();
        let (shape, plan) = self.prepare(kind, k, extras)?;
        let model = Model { of_precisions, ..self.parameters(&shape, true, fill)? };
        outputs.touch();
        // The first row whose log density and label have not left the device.
        let (mut first, most) = (0, workspace::rows_received(&shape, &plan));
        for rows in self.sections.chunks(plan.chunk as usize) {
            if rows.end - first > most {
                self.put_rows(first..rows.start, outputs)?;
                first = rows.start;
            }
            let (start, chunk) = (rows.start, self.stage(rows.clone())?);
            let w = &self.workspace;
            let here = rows.start - first..rows.end - first;
            let out = StepOutputs {
                responsibilities: outputs.wants_responsibilities(),
                weighted: false,
                log_densities: extras.log_densities.then(|| w.log_densities.first(here.end).index(here.clone())),
                labels: extras.labels.then(|| w.labels.first(here.end).index(here.clone())),
            };
            self.e_step(&shape, &plan, start, &chunk, &model, &out)?;
            if out.responsibilities {
                let w = &self.workspace;
                let tiled = w.responsibilities.first(tiled_len(chunk.n, shape.k) as usize);
                let untile = |to: &DeviceSlice<f64>| self.launcher().untile(&shape, &plan, chunk.n, &tiled, to);
                let values = rows.start * k..rows.end * k;
                outputs.put_responsibilities(&self.gpu, &self.queue, values, &w.row_major, untile)?;
            }
        }
        self.put_rows(first..self.n, outputs)?;
        let total_weight = self.total_weight;
        let totals = self.results(0..TOTALS)?;
        Ok(Evaluation { log_likelihood: totals[0], entropy: totals[1], total_weight })
    }

    /// Writes the log densities and labels of rows, which are on the device.
    fn put_rows(&self, rows: Range<usize>, outputs: &mut Outputs<'_>) -> Result<(), Error> {
        let (w, extras) = (&self.workspace, outputs.extras());
        if extras.log_densities {
            outputs.put_log_densities(&self.gpu, &self.queue, rows.clone(), &w.log_densities.first(rows.len()))?;
        }
        if extras.labels {
            outputs.put_labels(&self.gpu, &self.queue, rows.clone(), &w.labels.first(rows.len()))?;
        }
        Ok(())
    }
}
