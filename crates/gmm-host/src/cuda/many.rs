//! Many small fits, a block of threads each: [`Engine::fit_small`](crate::Engine::fit_small).
//!
//! Fits of one launch have a shape and options in common. The number of threads of a fit depends on its own shape, so
//! that its bits do not depend on the others. A fit that ends with trouble, or has too many rows for a block, is left to
//! the ordinary way, which also makes its errors.

use std::ops::Range;
use std::time::Instant;

use cust::memory::bytemuck::Pod;
use cust::memory::{DeviceCopy, DeviceSlice};
use gmm_kernels::layout::{packed_index, packed_len};
use gmm_kernels::many::{
    CONVERGED, ENTROPY, ITERATIONS, LOG_LIKELIHOOD, MOST_ROWS, MOST_WARPS, OUTCOME, TROUBLE, start_code,
};
use gmm_model::{
    CovarianceType, Covariances, Dataset, Draws, Matrix, Mixture, Precision, RowStorage, packed_len as triangle,
};
use ndarray::{Array1, Array2, Array3, ArrayView1};
use rayon::prelude::*;

use super::driver::buffers::Slot;
use super::driver::device::Gpu;
use super::driver::queue::Queue;
use super::driver::staging::{receive, send};
use super::launch::plan::ForcedPlan;
use super::launch::{Launcher, ManyBuffers, ManyShape};
use super::rows::upload;
use super::shape::Shape;
use crate::em::{self, EmRun, OnDevice};
use crate::fit::em_options;
use crate::many::{GroupRun, Job, SmallFit};
use crate::{Error, Evaluation, FitOptions, Init, shift};

/// Most products of a pass over the rows: a fit of more is faster on several multiprocessors.
const MOST_PRODUCTS: usize = 1 << 18;

/// Most bytes of results on the device and the host at a time.
const MOST_BYTES: usize = 256 << 20;

const WHAT: &str = "many small fits on the GPU";

/// # Errors
/// As for [`Engine::fit_small`](crate::Engine::fit_small).
pub(super) fn fit(gpu: &Gpu, data: &Dataset, jobs: &[Job<'_>]) -> Result<Option<Vec<Option<SmallFit>>>, Error> {
    if data.has_missing() || ForcedPlan::from_environment()? != ForcedPlan::default() {
        return Ok(None);
    }
    let classes = classes(gpu, data, jobs);
    let none = || jobs.iter().map(|_| None).collect::<Vec<Option<SmallFit>>>();
    if classes.is_empty() {
        return Ok(Some(none()));
    }
    gpu.enter()?;
    let queue = Queue::new(gpu)?;
    let table = match Table::send(gpu, &queue, data) {
        // The ordinary way needs less.
        Err(Error::Memory { .. }) => return Ok(None),
        table => table?,
    };
    if let [class] = &classes[..]
        && class.jobs.len() == jobs.len()
        && class.at_once() >= jobs.len()
    {
        // No second copy of all results.
        return Batch { gpu, queue: &queue, data, table: &table, class, jobs: &class.jobs, all: jobs }.run().map(Some);
    }
    let mut out = none();
    for class in classes {
        for some in class.jobs.chunks(class.at_once()) {
            let batch = Batch { gpu, queue: &queue, data, table: &table, class: &class, jobs: some, all: jobs };
            let runs = batch.run()?;
            some.iter().zip(runs).for_each(|(&job, run)| out[job] = run);
        }
    }
    Ok(Some(out))
}

/// Fits that one launch can run.
struct Class<'a> {
    shape: ManyShape,
    options: &'a FitOptions,
    /// Their indices.
    jobs: Vec<usize>,
}

impl Class<'_> {
    /// Restarts of each fit.
    fn restarts(&self) -> usize {
        if self.shape.start == start_code::GIVEN { 1 } else { self.options.n_init }
    }

    /// Fits whose results fit into memory at a time, at least one.
    fn at_once(&self) -> usize {
        let ManyShape { max_iter, d, .. } = self.shape;
        let numbers = self.shape.parameters_len() + (max_iter + OUTCOME + 2 * d) as usize + 2;
        (MOST_BYTES / (8 * numbers * self.restarts())).max(1)
    }
}

/// The classes of the fits that a block can run.
fn classes<'a>(gpu: &Gpu, data: &Dataset, jobs: &[Job<'a>]) -> Vec<Class<'a>> {
    let mut classes: Vec<Class<'a>> = Vec::new();
    for (index, Job { rows, options }) in jobs.iter().enumerate() {
        let Some(shape) = shape(gpu, data, rows.len(), options) else { continue };
        // Usually that of the fit before.
        let alike = |class: &&mut Class<'_>| {
            let most_rows = class.shape.most_rows.max(shape.most_rows);
            let common = ManyShape { most_rows, ..class.shape };
            common == ManyShape { most_rows, ..shape }
                && (std::ptr::eq(class.options, *options) || class.options == *options)
                && common.shared_bytes() <= gpu.limits.shared_bytes.into()
        };
        match classes.iter_mut().rev().find(alike) {
            Some(class) => {
                class.shape.most_rows = class.shape.most_rows.max(shape.most_rows);
                class.jobs.push(index);
            }
            None => classes.push(Class { shape, options, jobs: vec![index] }),
        }
    }
    classes
}

/// How a block runs a fit of `n` rows; `None` if it is left to the ordinary way.
fn shape(gpu: &Gpu, data: &Dataset, n: usize, options: &FitOptions) -> Option<ManyShape> {
    let FitOptions { n_components, covariance_type, ref init, reg_covar, tol, max_iter, .. } = *options;
    let of = Shape::new(covariance_type, Precision::F64, (n, data.n_features(), n_components)).ok()?;
    let start = match init {
        Init::Given(_) => start_code::GIVEN,
        Init::KMeansPlusPlus => start_code::SEEDS,
        Init::KMeans => start_code::K_MEANS,
        _ => return None,
    };
    let (k, d) = (of.k as usize, of.d as usize);
    let products = n.checked_mul(k)?.checked_mul(triangle(d) + d + 1)?;
    // Without `reg_covar` the host decides whether a covariance is more than rounding error. A sample of the rows is
    // k-means' own affair.
    let fits = n <= MOST_ROWS as usize
        && products <= MOST_PRODUCTS
        && reg_covar > 0.0
        && options.init_rows.is_none_or(|rows| rows >= n)
        && !options.autotune;
    let shape = ManyShape {
        most_rows: n as u32,
        d: of.d,
        k: of.k,
        kind: of.kernel_kind() as u32,
        warps: ((n * k).div_ceil(2048) as u32).clamp(1, MOST_WARPS),
        start,
        trials: 2 + (k as f64).ln() as u32,
        reg_covar,
        tol,
        max_iter: u32::try_from(max_iter).ok().filter(|most| 8 * *most as usize <= MOST_BYTES)?,
    };
    (fits && shape.shared_bytes() <= gpu.limits.shared_bytes.into()).then_some(shape)
}

/// All rows on the device, as they are.
struct Table {
    precision: Precision,
    rows: Slot<f64>,
    weights: Option<Slot<f64>>,
}

impl Table {
    fn send(gpu: &Gpu, queue: &Queue, data: &Dataset) -> Result<Self, Error> {
        let numbers = data.n_rows() * data.n_features();
        let (precision, words) = match data.rows() {
            Matrix::F32(_) => (Precision::F32, numbers.div_ceil(2)),
            Matrix::F64(_) => (Precision::F64, numbers),
        };
        let rows = Slot::taken(gpu, WHAT, words)?;
        match data.rows() {
            Matrix::F32(a) => send_rows(gpu, queue, a.as_slice().expect("a Matrix is row-major"), &rows)?,
            Matrix::F64(a) => send_rows(gpu, queue, a.as_slice().expect("a Matrix is row-major"), &rows)?,
        }
        let weights = match data.weights() {
            Some(weights) => Some(sent(gpu, queue, weights)?),
            None => None,
        };
        Ok(Self { precision, rows, weights })
    }
}

/// Copies the rows to the device, unchanged.
fn send_rows<S: DeviceCopy + Pod + Send + Sync>(
    gpu: &Gpu,
    queue: &Queue,
    rows: &[S],
    to: &Slot<f64>,
) -> Result<(), Error> {
    let words = to.first(to.room());
    // SAFETY: the same bytes, viewed as the numbers of the rows, of which there are not more.
    let mut numbers = unsafe { DeviceSlice::<S>::from_raw_parts(words.as_device_ptr().cast(), rows.len()) };
    send(gpu, queue, &mut numbers, 1, |piece, chunk| upload::copy(&rows[piece], chunk))
}

/// A copy of some numbers on the device.
fn sent<A: DeviceCopy + Pod + Send + Sync>(gpu: &Gpu, queue: &Queue, numbers: &[A]) -> Result<Slot<A>, Error> {
    let slot = Slot::taken(gpu, WHAT, numbers.len().max(1))?;
    send(gpu, queue, &mut slot.first(numbers.len()), 1, |piece, chunk| upload::copy(&numbers[piece], chunk))?;
    Ok(slot)
}

/// Some fits of a class, which run at the same time.
struct Batch<'a> {
    gpu: &'a Gpu,
    queue: &'a Queue,
    data: &'a Dataset,
    table: &'a Table,
    class: &'a Class<'a>,
    /// Indices among all jobs.
    jobs: &'a [usize],
    all: &'a [Job<'a>],
}

impl Batch<'_> {
    fn rows(&self, job: usize) -> Range<usize> {
        self.all[self.jobs[job]].rows.clone()
    }

    /// Runs the fits: a block for each restart of each, those of a fit one after another.
    fn run(&self) -> Result<Vec<Option<SmallFit>>, Error> {
        let started = Instant::now();
        let Self { gpu, queue, class, table, .. } = *self;
        let Class { shape, .. } = class;
        let restarts = class.restarts();
        let fits = self.jobs.len() * restarts;
        let data = self.data;
        let rows: Vec<Range<usize>> = (0..self.jobs.len()).map(|job| self.rows(job)).collect();
        let shifts: Vec<Vec<f64>> = rows.par_iter().map(|rows| shift::of_few(data, rows)).collect();
        let of_blocks = || (0..fits).map(|block| block / restarts);
        let firsts: Vec<u64> = of_blocks().map(|job| rows[job].start as u64).collect();
        let lens: Vec<u32> = of_blocks().map(|job| rows[job].len() as u32).collect();
        let flat: Vec<f64> = of_blocks().flat_map(|job| shifts[job].iter().copied()).collect();
        let (uniforms, each) = self.uniforms();
        let draws: Vec<u32> = (0..fits).map(|block| (block % restarts * each) as u32).collect();
        let (firsts, lens, draws) = (sent(gpu, queue, &firsts)?, sent(gpu, queue, &lens)?, sent(gpu, queue, &draws)?);
        let (flat, uniforms) = (sent(gpu, queue, &flat)?, sent(gpu, queue, &uniforms)?);
        let parameters = match &class.options.init {
            Init::Given(mixture) => sent(gpu, queue, &self.given(mixture, &shifts))?,
            _ => Slot::taken(gpu, WHAT, fits * shape.parameters_len())?,
        };
        let traces = Slot::<f64>::taken(gpu, WHAT, (fits * shape.max_iter as usize).max(1))?;
        let outcomes = Slot::<f64>::taken(gpu, WHAT, fits * (OUTCOME + shape.d) as usize)?;
        let n = self.data.n_rows();
        let buffers = ManyBuffers {
            rows: (table.precision, table.rows.first(table.rows.room())),
            row_weights: table.weights.as_ref().map(|weights| weights.first(n)),
            firsts: firsts.first(fits),
            lens: lens.first(fits),
            shifts: flat.first(fits * shape.d as usize),
            uniforms: uniforms.first(uniforms.room()),
            draws: draws.first(fits),
            parameters: parameters.first(fits * shape.parameters_len()),
            traces: traces.first(fits * shape.max_iter as usize),
            outcomes: outcomes.first(fits * (OUTCOME + shape.d) as usize),
        };
        Launcher { gpu, queue }.many_fits(shape, fits as u32, &buffers)?;
        let found = Found {
            parameters: received(gpu, queue, &buffers.parameters)?,
            traces: received(gpu, queue, &buffers.traces)?,
            outcomes: received(gpu, queue, &buffers.outcomes)?,
        };
        let elapsed = started.elapsed() / self.jobs.len() as u32;
        let runs = shifts.into_par_iter().enumerate().map(|(job, shift)| {
            let best = (0..restarts).map(|restart| found.restart(class, job * restarts + restart, &shift));
            let mut best: Vec<_> = best.collect::<Option<_>>()?;
            // The first of the best, as for restarts in turn.
            let highest = (1..best.len()).fold(0, |top, i| if best[i].1 > best[top].1 { i } else { top });
            let (mut run, _, evaluation, variances) = best.swap_remove(highest);
            let total_weight = rows[job].clone().map(|row| data.weight(row)).sum();
            run.on_device = Some(OnDevice { iterations: run.iterations, path: "many", time: elapsed });
            Some(Ok(GroupRun {
                run,
                restart: highest,
                empty_at_start: 0,
                evaluation: Evaluation { total_weight, ..evaluation },
                variances,
                storage: RowStorage { precision: class.options.precision.unwrap_or(data.rows().precision()), shift },
                elapsed,
            }))
        });
        Ok(runs.collect())
    }

    /// The random numbers of each restart, one restart after another, and how many each has.
    fn uniforms(&self) -> (Vec<f64>, usize) {
        let ManyShape { k, trials, start, .. } = self.class.shape;
        if start == start_code::GIVEN {
            return (vec![0.0], 0);
        }
        let each = (2 + 2 * trials * (k - 1)) as usize;
        let of = |restart: usize| {
            let mut draws = Draws::for_purpose("fit", self.class.options.seed, restart as u64);
            (0..each).map(move |_| draws.uniform())
        };
        ((0..self.class.restarts()).flat_map(of).collect(), each)
    }

    /// The given parameters for each fit, about its shift.
    fn given(&self, mixture: &Mixture, shifts: &[Vec<f64>]) -> Vec<f64> {
        let triangle = |a: ndarray::ArrayView2<'_, f64>| {
            (0..a.nrows()).flat_map(|i| (0..=i).map(|j| a[[i, j]]).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let covariances: Vec<f64> = match mixture.covariances() {
            Covariances::Full(all) => all.outer_iter().flat_map(triangle).collect(),
            Covariances::Tied(one) => triangle(one.view()),
            Covariances::Diag(all) => all.iter().copied().collect(),
            Covariances::Spherical(all) => all.to_vec(),
        };
        let of = |shift: &Vec<f64>| {
            let means = &mixture.means() - &ArrayView1::from(shift);
            mixture.weights().iter().copied().chain(means).chain(covariances.iter().copied()).collect::<Vec<_>>()
        };
        shifts.iter().flat_map(of).collect()
    }
}

/// The results of a launch.
struct Found {
    parameters: Vec<f64>,
    traces: Vec<f64>,
    outcomes: Vec<f64>,
}

impl Found {
    /// The run of a block, what it is compared by, its totals, and the columns' variances. `None` if it is left to the
    /// ordinary way.
    fn restart(&self, class: &Class<'_>, block: usize, shift: &[f64]) -> Option<(EmRun, f64, Evaluation, Vec<f64>)> {
        let ManyShape { d, max_iter, .. } = class.shape;
        let len = (OUTCOME + d) as usize;
        let (outcome, variances) = self.outcomes[block * len..][..len].split_at(OUTCOME as usize);
        let at = |place: u32| outcome[place as usize];
        if at(TROUBLE) != 0.0 {
            return None;
        }
        let iterations = at(ITERATIONS) as usize;
        let trace = self.traces[block * max_iter as usize..][..iterations].to_vec();
        let mixture = match &class.options.init {
            // Without the rounding of the shift.
            Init::Given(start) if iterations == 0 => start.as_ref().clone(),
            _ => self.mixture(class, block, shift)?,
        };
        // As in an M-step: of a component without rows this weight is all that there is.
        let weights = mixture.weights();
        let is_empty = |&c: &usize| iterations > 0 && weights[c] <= f64::EPSILON;
        let empty = (0..weights.len()).filter(is_empty).collect();
        let options = em_options(class.options, class.options.precision.unwrap_or(Precision::F64));
        let falls = em::falls(&trace, d as usize, &options);
        let evaluation = Evaluation { log_likelihood: at(LOG_LIKELIHOOD), entropy: at(ENTROPY), ..Evaluation::NOTHING };
        let score = trace.last().copied().unwrap_or(evaluation.log_likelihood);
        let converged = at(CONVERGED) != 0.0;
        let run = EmRun { iterations, converged, trace, empty, falls, ..EmRun::new(mixture) };
        Some((run, score, evaluation, variances.to_vec()))
    }

    fn mixture(&self, class: &Class<'_>, block: usize, shift: &[f64]) -> Option<Mixture> {
        let (len, k, d) = (class.shape.parameters_len(), class.shape.k as usize, class.shape.d as usize);
        let (weights, rest) = self.parameters[block * len..][..len].split_at(k);
        let (means, covariances) = rest.split_at(k * d);
        let means = Array2::from_shape_fn((k, d), |(c, j)| means[c * d + j] + shift[j]);
        let entry = |c: usize, i: usize, j: usize| {
            let (i, j) = (i.max(j) as u32, i.min(j) as u32);
            covariances[c * packed_len(d as u32) as usize + packed_index(i, j) as usize]
        };
        let covariances = match class.options.covariance_type {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| entry(c, i, j))),
            CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| entry(0, i, j))),
            CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| covariances[c * d + j])),
            CovarianceType::Spherical => Covariances::Spherical(Array1::from(covariances.to_vec())),
        };
        Mixture::new(Array1::from(weights.to_vec()), means, covariances).ok()
    }
}

fn received(gpu: &Gpu, queue: &Queue, from: &DeviceSlice<f64>) -> Result<Vec<f64>, Error> {
    let mut out = Vec::with_capacity(from.len());
    receive(gpu, queue, from, |_, piece| out.extend_from_slice(piece))?;
    Ok(out)
}
