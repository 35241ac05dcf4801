//! Passes over rows with measurement errors, or with missing values, on the device: kernels of
//! [`gmm_kernels::deconvolution`], behind the trait that the passes on the CPU implement too.
//!
//! Rows and errors are stored in `f64`, unshifted: differences from the means are taken first.

mod parameters;
mod patterns;
mod rows;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cust::memory::DeviceSlice;
use cust::memory::bytemuck::Pod;
use gmm_kernels::deconvolution::{
    ENTROPY, FAILURE, Form, LOG_LIKELIHOOD, MOST_COLUMNS, MOST_MASKED, TOTAL_WEIGHT, TOTALS, factors_len,
};
use gmm_kernels::layout::TILE_ROWS;
use gmm_model::{CovarianceType, Dataset, Mixture, ModelError, Statistics};

use super::driver::buffers::Slot;
use super::driver::device::Gpu;
use super::driver::queue::Queue;
use super::driver::staging::{receive, send};
use super::launch::{Launcher, NoisyModel, NoisyOutputs, PatternFactors, noisy_numbers};
use super::rows::threads::on_threads;
use super::rows::upload;
use crate::deconvolution::MeasuredPasses;
use crate::{Error, EvaluateOptions, Evaluation};
use rows::NoisyRows;

/// Bytes that are left beside rows with missing values: most passes need no more.
const BESIDE_BYTES: u64 = FACTOR_BYTES as u64 + PARTIAL_BYTES + OUTPUT_BYTES as u64;

/// Blocks, of a warp each, per multiprocessor: more than are resident at once, so that all end at about the same time.
const BLOCKS: u64 = 32;

/// Most bytes of partial sums, if there is a block for each multiprocessor.
const PARTIAL_BYTES: u64 = 256 << 20;

/// Most bytes of the factors of patterns that are on the device at a time, unless 128 rows need more.
const FACTOR_BYTES: usize = if cfg!(test) { 64 << 10 } else { 256 << 20 };

/// Most bytes of outputs per row that are on the device at a time.
const OUTPUT_BYTES: usize = 64 << 20;

/// Errors unless a device can pass over the rows of `data`.
///
/// # Errors
/// [`Error::Device`], which says what it cannot.
pub(super) fn check(name: &str, data: &Dataset) -> Result<(), Error> {
    let errors = data.measurement_errors();
    let what = match errors {
        None => "within limits",
        Some(errors) if errors.views().is_some() => "that are linear views of others",
        Some(errors) if !errors.covariances().is_diagonal() => {
            return check_columns(name, None, (errors.dim().1, true)).map(drop);
        }
        Some(_) => return Ok(()),
    };
    Err(Error::Device(format!("{name} has no passes over rows {what}: use the CPU (--device cpu, device=\"cpu\")")))
}

/// Whether a device passes over `d` columns with missing values, of every covariance kind.
pub(super) const fn takes_missing(d: usize) -> bool {
    d <= MOST_MASKED as usize
}

/// The form of the kernels for `d` columns with errors.
///
/// # Errors
/// [`Error::Device`] if there is none.
fn check_columns(name: &str, kind: Option<CovarianceType>, (d, is_correlated): (usize, bool)) -> Result<Form, Error> {
    let is_diagonal = matches!(kind, Some(CovarianceType::Diag | CovarianceType::Spherical));
    u32::try_from(d).ok().and_then(|d| Form::of(is_diagonal, is_correlated, d)).ok_or_else(|| {
        Error::Device(format!(
            "{name} passes over rows with measurement errors of at most {MOST_COLUMNS} columns, and these have {d}; it takes \
             any number if errors are independent and covariances diag or spherical: use one of these kinds, or the CPU \
             (--device cpu, device=\"cpu\")"
        ))
    })
}

/// Rows on a device, and the buffers of a pass.
struct State {
    rows: NoisyRows,
    /// Component weights, then records.
    parameters: Slot<f64>,
    /// Of the patterns of missing values.
    factors: Slot<f64>,
    partials: Slot<f64>,
    /// The sum of the partial results, then failures.
    results: Slot<f64>,
    values: Slot<f64>,
    labels: Slot<u32>,
    queue: Queue,
    /// Last, so that it is dropped last: the context must outlive the buffers.
    gpu: Arc<Gpu>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.gpu.enter_to_drop();
        self.queue.come_to_rest();
    }
}

/// Passes on one device.
pub(super) struct CudaPasses {
    gpu: Arc<Gpu>,
    state: Mutex<State>,
}

impl CudaPasses {
    /// Loads rows that [`check`] accepts: `tiled_len(n, d)` values and the numbers of their errors, 8 bytes each; or exact rows
    /// with missing values, of a number of columns that [`takes_missing`].
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(super) fn new(gpu: Arc<Gpu>, data: &Dataset) -> Result<Self, Error> {
        gpu.enter()?;
        let queue = Queue::new(&gpu)?;
        let rows = NoisyRows::load(&gpu, &queue, data, BESIDE_BYTES)?;
        let state = State {
            rows,
            parameters: Slot::empty(),
            factors: Slot::empty(),
            partials: Slot::empty(),
            results: Slot::empty(),
            values: Slot::empty(),
            labels: Slot::empty(),
            queue,
            gpu: gpu.clone(),
        };
        Ok(Self { gpu, state: Mutex::new(state) })
    }

    /// Runs `work` with the device's context current, and waits for the stream, also after a failure.
    fn run<A>(&self, work: impl FnOnce(&mut State) -> Result<A, Error>) -> Result<A, Error> {
        self.gpu.enter()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut state).and_then(|done| state.queue.rest(&self.gpu).map(|()| done));
        if done.is_err() {
            state.queue.recover();
        }
        done
    }
}

/// The outputs per row of a launch.
#[derive(Default)]
struct RowOutputs {
    log_densities: Option<DeviceSlice<f64>>,
    responsibilities: Option<DeviceSlice<f64>>,
    labels: Option<DeviceSlice<u32>>,
}

impl State {
    fn form(&self, mixture: &Mixture) -> Result<Form, Error> {
        if self.rows.patterns.is_some() {
            let is_diagonal = matches!(mixture.covariance_type(), CovarianceType::Diag | CovarianceType::Spherical);
            return Ok(Form::of_holes(is_diagonal, self.rows.d).expect("as many columns as a device takes"));
        }
        let name = format!("cuda:{}", self.gpu.ordinal);
        check_columns(&name, Some(mixture.covariance_type()), (self.rows.d as usize, self.rows.is_correlated))
    }

    /// Copies a mixture to the device.
    fn model(&mut self, mixture: &Mixture, form: Form) -> Result<NoisyModel, Error> {
        let k = mixture.n_components();
        let numbers = parameters::numbers(mixture, form);
        self.parameters.reserve(&self.gpu, numbers.len())?;
        let mut to = self.parameters.first(numbers.len());
        send(&self.gpu, &self.queue, &mut to, 1, |piece, chunk| upload::copy(&numbers[piece], chunk))?;
        let (weights, records) = (to.index(..k), to.index(k..));
        Ok(NoisyModel { form, k: k as u32, weights, records })
    }

    /// Blocks of a pass over groups of rows with `numbers` partial results each.
    fn blocks(&self, groups: u64, numbers: u64) -> u32 {
        let multiprocessors = u64::from(self.gpu.limits.multiprocessors);
        let affordable = (PARTIAL_BYTES / (8 * numbers)).max(multiprocessors);
        groups.min(BLOCKS * multiprocessors).min(affordable) as u32
    }

    /// The end of the first rows of `rows` for one launch: for [`Form::Patterns`], their factors have room.
    fn end(&self, rows: &Range<usize>, model: &NoisyModel) -> usize {
        match (&self.rows.patterns, model.form) {
            (Some(patterns), Form::Patterns) => {
                let each = 8 * model.k as usize * factors_len(self.rows.d) as usize;
                patterns.end(rows, (FACTOR_BYTES / each).max(1), TILE_ROWS as usize)
            }
            _ => rows.end,
        }
    }

    /// Makes the factors of the patterns of some rows.
    fn factors(&mut self, rows: &Range<usize>, model: &NoisyModel) -> Result<Option<PatternFactors>, Error> {
        let (Some(patterns), Form::Patterns) = (&self.rows.patterns, model.form) else { return Ok(None) };
        let among = patterns.among(rows);
        let len = among.len() * model.k as usize * factors_len(self.rows.d) as usize;
        self.factors.reserve(&self.gpu, len)?;
        let factors = PatternFactors {
            masks: patterns.masks(),
            first: among.start as u32,
            count: among.len() as u32,
            factors: self.factors.first(len),
        };
        Launcher { gpu: &self.gpu, queue: &self.queue }.pattern_factors(self.rows.d, model, &factors)?;
        Ok(Some(factors))
    }

    /// Passes over some rows. Returns the totals and, if they are wanted, the sums.
    fn pass(
        &mut self,
        range: &Range<usize>,
        model: &NoisyModel,
        with_sums: bool,
        to: RowOutputs,
    ) -> Result<Vec<f64>, Error> {
        let factors = self.factors(range, model)?;
        let rows = &self.rows.part(range.clone());
        let numbers = noisy_numbers(model.form, model.k, rows.d, with_sums);
        let blocks = self.blocks(rows.groups(model.form), numbers);
        let (len, failures) = (numbers as usize, (blocks * FAILURE) as usize);
        self.partials.reserve(&self.gpu, blocks as usize * len)?;
        self.results.reserve(&self.gpu, len + failures)?;
        let (partials, results) = (self.partials.first(blocks as usize * len), self.results.first(len + failures));
        let out = NoisyOutputs {
            with_sums,
            partials,
            failures: results.index(len..),
            log_densities: to.log_densities,
            responsibilities: to.responsibilities,
            labels: to.labels,
        };
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.deconvolution(rows, model, factors.as_ref(), &out, blocks)?;
        launcher.reduce_blocks(&partials, blocks.into(), numbers, &results.index(..len), false)?;
        let mut found = self.received(&results)?;
        let failures = found.split_off(len);
        match failures.chunks_exact(FAILURE as usize).find(|failure| failure[0] > 0.0) {
            None => Ok(found),
            Some(failure) => Err(parameters::failure(failure).into()),
        }
    }

    fn received<A: cust::memory::DeviceCopy + Pod>(&self, from: &DeviceSlice<A>) -> Result<Vec<A>, Error> {
        let mut out = Vec::with_capacity(from.len());
        receive(&self.gpu, &self.queue, from, |_, piece| out.extend_from_slice(piece))?;
        Ok(out)
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let form = self.form(mixture)?;
        let model = self.model(mixture, form)?;
        let mut out = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
        out.n_rows = self.rows.n as u64;
        let mut left = 0..self.rows.n;
        while !left.is_empty() {
            let rows = left.start..self.end(&left, &model);
            let found = self.pass(&rows, &model, true, RowOutputs::default()).map_err(|error| named(error, mixture))?;
            let (totals, sums) = found.split_at(TOTALS as usize);
            parameters::add_sums(form, sums, &mut out);
            out.log_likelihood += totals[LOG_LIKELIHOOD as usize];
            out.total_weight += totals[TOTAL_WEIGHT as usize];
            left.start = rows.end;
        }
        Ok(out)
    }

    fn evaluate(&mut self, mixture: &Mixture, mut want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        let form = self.form(mixture)?;
        let model = self.model(mixture, form)?;
        let k = mixture.n_components();
        let densities = usize::from(want.log_densities.is_some());
        let values = densities + if want.responsibilities.is_some() { k } else { 0 };
        let labels = usize::from(want.labels.is_some());
        let mut most = self.rows.n;
        if values + labels > 0 {
            most = (OUTPUT_BYTES / (8 * values + 4 * labels)).max(1).next_multiple_of(TILE_ROWS as usize).min(most);
        }
        self.values.reserve(&self.gpu, most * values)?;
        self.labels.reserve(&self.gpu, most * labels)?;
        let mut sum = Evaluation { total_weight: self.rows.total_weight, ..Evaluation::NOTHING };
        let mut first = 0;
        while first < self.rows.n {
            let rows = first..self.rows.n.min(first + most);
            let rows = first..self.end(&rows, &model);
            let n = rows.len();
            let of_values = self.values.first(n * values);
            let to = RowOutputs {
                log_densities: want.log_densities.is_some().then(|| of_values.index(..n)),
                responsibilities: want.responsibilities.is_some().then(|| of_values.index(densities * n..)),
                labels: want.labels.is_some().then(|| self.labels.first(n)),
            };
            let totals = self.pass(&rows, &model, false, to).map_err(|error| named(error, mixture))?;
            sum.log_likelihood += totals[LOG_LIKELIHOOD as usize];
            sum.entropy += totals[ENTROPY as usize];
            self.put(&rows, &of_values, &mut want)?;
            first = rows.end;
        }
        Ok(sum)
    }

    /// Copies the outputs of some rows from the device: log densities, then responsibilities; and labels.
    fn put(&self, rows: &Range<usize>, values: &DeviceSlice<f64>, want: &mut EvaluateOptions<'_>) -> Result<(), Error> {
        let order = self.rows.patterns.as_ref().map(|patterns| &patterns.order[rows.clone()]);
        let place = |i: usize| order.map_or(rows.start + i, |order| order[i]);
        let mut from = 0;
        if let Some(out) = &mut want.log_densities {
            let densities = values.index(..rows.len());
            receive(&self.gpu, &self.queue, &densities, |piece, found| {
                piece.zip(found).for_each(|(i, v)| out[place(i)] = *v);
            })?;
            from = rows.len();
        }
        if let Some(out) = &mut want.responsibilities {
            let (numbers, k) = (values.index(from..), (values.len() - from) / rows.len());
            receive(&self.gpu, &self.queue, &numbers, |piece, found| {
                if order.is_none() {
                    return out.put(rows.start * k + piece.start, found.iter().copied());
                }
                // A piece may end within a row.
                let (mut at, mut found) = (piece.start, found);
                while !found.is_empty() {
                    let (some, rest) = found.split_at(found.len().min(k - at % k));
                    out.put(place(at / k) * k + at % k, some.iter().copied());
                    (at, found) = (at + some.len(), rest);
                }
            })?;
        }
        if let Some(out) = &mut want.labels {
            let labels = self.labels.first(rows.len());
            receive(&self.gpu, &self.queue, &labels, |piece, found| {
                piece.zip(found).for_each(|(i, v)| out[place(i)] = *v);
            })?;
        }
        Ok(())
    }
}

/// The error of a factorisation, with the mixture's covariance kind.
fn named(error: Error, mixture: &Mixture) -> Error {
    match error {
        Error::Model(ModelError::NotPositiveDefinite { component, column, pivot, .. }) => {
            ModelError::NotPositiveDefinite { component, column, pivot, kind: mixture.covariance_type() }.into()
        }
        other => other,
    }
}

impl MeasuredPasses for CudaPasses {
    fn pass(&self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.run(|state| state.statistics(mixture))
    }

    fn evaluate(&self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.run(|state| state.evaluate(mixture, want))
    }

    fn of_rows(&self, data: Dataset) -> Result<Box<dyn MeasuredPasses>, Error> {
        Ok(Box::new(Self::new(self.gpu.clone(), &data)?))
    }
}

/// Passes on several devices, each over a contiguous share of the rows.
pub(super) struct GroupPasses(Vec<(CudaPasses, usize)>);

impl GroupPasses {
    /// Loads the share of each device, as its rows.
    ///
    /// # Errors
    /// As for [`CudaPasses::new`].
    pub(super) fn new(shares: Vec<(Arc<Gpu>, Range<usize>)>, data: &Dataset) -> Result<Self, Error> {
        let load = |(gpu, rows): (Arc<Gpu>, Range<usize>)| {
            let n = rows.len();
            Ok((CudaPasses::new(gpu, &data.part(rows))?, n))
        };
        on_threads(shares, load).map(Self)
    }
}

impl MeasuredPasses for GroupPasses {
    fn pass(&self, mixture: &Mixture) -> Result<Statistics, Error> {
        let all = on_threads(self.0.iter().collect(), |(share, _)| share.pass(mixture))?;
        Ok(Statistics::sum(all).map_err(|(_, error)| error)?.expect("at least one device"))
    }

    fn evaluate(&self, mixture: &Mixture, mut want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        let k = mixture.n_components();
        let shares = self.0.iter().map(|(share, n)| (share, want.split(*n, k))).collect();
        let all =
            on_threads(shares, |(share, want): (&CudaPasses, EvaluateOptions<'_>)| share.evaluate(mixture, want))?;
        Ok(all.into_iter().fold(Evaluation::NOTHING, |sum, part| sum + part))
    }

    /// On the first device.
    fn of_rows(&self, data: Dataset) -> Result<Box<dyn MeasuredPasses>, Error> {
        self.0[0].0.of_rows(data)
    }
}
