//! Many small fits, a block of threads each: [`Engine::fit_small`](crate::Engine::fit_small).
//!
//! Fits of one launch have a shape and options in common. The number of threads of a fit depends on its own shape, so
//! that its bits do not depend on the others. Launches of few fits leave multiprocessors idle, so several run at the
//! same time, each on a stream of its own. A fit that ends with trouble, or has too many rows for a block, is left to
//! the ordinary way, which also makes its errors.

mod class;
mod found;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use cust::memory::bytemuck::Pod;
use cust::memory::{DeviceCopy, DeviceSlice};
use gmm_kernels::many::OUTCOME;
use gmm_model::{Covariances, Dataset, Draws, Matrix, Mixture, Precision, RowStorage};
use ndarray::ArrayView1;
use rayon::prelude::*;

use super::driver::buffers::Slot;
use super::driver::device::Gpu;
use super::driver::queue::Queue;
use super::driver::staging::{receive, send};
use super::launch::plan::ForcedPlan;
use super::launch::{Launcher, ManyBuffers};
use super::rows::upload;
use crate::em::OnDevice;
use crate::init::StartReached;
use crate::many::{GroupRun, Job, SmallFit, refusal};
use crate::{Error, Evaluation, FitOptions, Init, shift};
use class::{Class, MOST_BYTES, classes};
use found::{Found, Run};

/// Most launches at the same time: a driver has eight connections to a device unless told otherwise.
const AT_ONCE: usize = 8;

const WHAT: &str = "many small fits on the GPU";

/// As [`Engine::takes_small`](crate::Engine::takes_small).
pub(super) fn takes(gpu: &Gpu, shape: (usize, usize), options: &FitOptions) -> bool {
    matches!(ForcedPlan::from_environment(), Ok(plan) if plan == ForcedPlan::default())
        && refusal(options).is_none()
        && class::shape(gpu, shape, options).is_some()
}

/// # Errors
/// As for [`Engine::fit_small`](crate::Engine::fit_small).
pub(super) fn fit(gpu: &Gpu, data: &Dataset, jobs: &[Job<'_>]) -> Result<Option<Vec<Option<SmallFit>>>, Error> {
    if data.has_missing() || ForcedPlan::from_environment()? != ForcedPlan::default() {
        return Ok(None);
    }
    let mut classes = classes(gpu, data.n_features(), jobs);
    let none = || jobs.iter().map(|_| None).collect::<Vec<Option<SmallFit>>>();
    if classes.is_empty() {
        return Ok(Some(none()));
    }
    // The longest first: the last to run are then short.
    classes.sort_by_key(|class| Reverse(class.shape.k));
    gpu.enter()?;
    let table = match Table::send(gpu, &Queue::new(gpu)?, data) {
        // The ordinary way needs less.
        Err(Error::Memory { .. }) => return Ok(None),
        table => table?,
    };
    let mut batches: Vec<Batch<'_>> = Vec::new();
    for class in &classes {
        let batch = |some| Batch { gpu, data, table: &table, class, jobs: some, all: jobs };
        batches.extend(class.jobs.chunks(class.at_once()).map(batch));
    }
    let mut ended = Instant::now();
    if batches.len() == 1 && batches[0].jobs.len() == jobs.len() {
        // No second copy of all results.
        let launched = batches.remove(0).launch()?;
        return launched.collect(&mut ended).map(Some);
    }
    let mut out = none();
    let mut end = |launched: Launched<'_>| -> Result<(), Error> {
        let runs = launched.collect(&mut ended)?;
        launched.batch.jobs.iter().zip(runs).for_each(|(&job, run)| out[job] = run);
        Ok(())
    };
    let mut running: VecDeque<Launched<'_>> = VecDeque::new();
    for batch in batches {
        let bytes = |running: &VecDeque<Launched<'_>>| running.iter().map(|one| one.batch.bytes()).sum::<usize>();
        while running.len() >= AT_ONCE || bytes(&running) + batch.bytes() > MOST_BYTES {
            let Some(first) = running.pop_front() else { break };
            end(first)?;
        }
        running.push_back(batch.launch()?);
    }
    running.into_iter().try_for_each(end)?;
    Ok(Some(out))
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
    data: &'a Dataset,
    table: &'a Table,
    class: &'a Class<'a>,
    /// Indices among all jobs.
    jobs: &'a [usize],
    all: &'a [Job<'a>],
}

impl<'a> Batch<'a> {
    fn rows(&self, job: usize) -> Range<usize> {
        self.all[self.jobs[job]].rows.clone()
    }

    /// Bytes of the results.
    fn bytes(&self) -> usize {
        self.class.bytes() * self.jobs.len()
    }

    /// Starts the fits: a block for each restart of each, those of a fit one after another.
    fn launch(self) -> Result<Launched<'a>, Error> {
        let begun = Instant::now();
        let Self { gpu, data, class, table, .. } = self;
        let queue = Queue::new(gpu)?;
        let Class { shape, .. } = class;
        let restarts = class.restarts();
        let fits = self.jobs.len() * restarts;
        let rows: Vec<Range<usize>> = (0..self.jobs.len()).map(|job| self.rows(job)).collect();
        let shifts: Vec<Vec<f64>> = rows.par_iter().map(|rows| shift::of_few(data, rows)).collect();
        let of_blocks = || (0..fits).map(|block| block / restarts);
        let firsts: Vec<u64> = of_blocks().map(|job| rows[job].start as u64).collect();
        let lens: Vec<u32> = of_blocks().map(|job| rows[job].len() as u32).collect();
        let flat: Vec<f64> = of_blocks().flat_map(|job| shifts[job].iter().copied()).collect();
        let (uniforms, each) = self.uniforms();
        let draws: Vec<u32> = (0..fits).map(|block| (block % restarts * each) as u32).collect();
        let (firsts, lens, draws) =
            (sent(gpu, &queue, &firsts)?, sent(gpu, &queue, &lens)?, sent(gpu, &queue, &draws)?);
        let (flat, uniforms) = (sent(gpu, &queue, &flat)?, sent(gpu, &queue, &uniforms)?);
        let parameters = match &class.options.init {
            Init::Given(mixture) => sent(gpu, &queue, &self.given(mixture, &shifts))?,
            _ => Slot::taken(gpu, WHAT, fits * shape.parameters_len())?,
        };
        let traces = Slot::<f64>::taken(gpu, WHAT, (fits * shape.max_iter as usize).max(1))?;
        let outcomes = Slot::<f64>::taken(gpu, WHAT, fits * (OUTCOME + shape.d) as usize)?;
        let n = data.n_rows();
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
        Launcher { gpu, queue: &queue }.many_fits(shape, fits as u32, &buffers)?;
        let slots =
            Slots { _numbers: [flat, uniforms, parameters, traces, outcomes], _places: [lens, draws], _firsts: firsts };
        Ok(Launched { batch: self, queue, begun, shifts, buffers, _slots: slots })
    }

    /// The random numbers of each restart, one restart after another, and how many each has.
    fn uniforms(&self) -> (Vec<f64>, usize) {
        let each = self.class.uniforms_of_restart();
        if each == 0 {
            return (vec![0.0], 0);
        }
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

/// The memory of a launch.
struct Slots {
    _numbers: [Slot<f64>; 5],
    _places: [Slot<u32>; 2],
    _firsts: Slot<u64>,
}

/// Fits that may still run.
struct Launched<'a> {
    batch: Batch<'a>,
    queue: Queue,
    begun: Instant,
    /// Of each fit, `(d,)`.
    shifts: Vec<Vec<f64>>,
    /// Within `slots`.
    buffers: ManyBuffers,
    _slots: Slots,
}

/// The kernel uses the memory until it has ended.
impl Drop for Launched<'_> {
    fn drop(&mut self) {
        self.queue.come_to_rest();
    }
}

impl Launched<'_> {
    /// Waits for the fits. `ended` is when the launch before ended, and then when this one did: the time of a launch
    /// begins there, if it began earlier.
    fn collect(&self, ended: &mut Instant) -> Result<Vec<Option<SmallFit>>, Error> {
        let Self { batch, queue, begun, shifts, buffers, .. } = self;
        let Batch { gpu, data, class, .. } = *batch;
        let found = Found {
            parameters: received(gpu, queue, &buffers.parameters)?,
            traces: received(gpu, queue, &buffers.traces)?,
            outcomes: received(gpu, queue, &buffers.outcomes)?,
        };
        let since = (*begun).max(std::mem::replace(ended, Instant::now()));
        let elapsed = (*ended - since) / shifts.len() as u32;
        let restarts = class.restarts();
        let runs = shifts.par_iter().enumerate().map(|(job, shift)| {
            let all = (0..restarts).map(|restart| found.restart(class, job * restarts + restart, shift));
            let mut all: Vec<Run> = all.collect::<Option<_>>()?;
            // The first of the best, as for restarts in turn.
            let highest = (1..all.len()).fold(0, |top, i| if all[i].score > all[top].score { i } else { top });
            let name = class.options.init.name();
            let starts = all.iter().enumerate().map(|(i, one)| StartReached::of(&one.run, i, name)).collect();
            let Run { mut run, evaluation, variances, .. } = all.swap_remove(highest);
            let total_weight = batch.rows(job).map(|row| data.weight(row)).sum();
            run.on_device = Some(OnDevice { iterations: run.iterations, path: "many", time: elapsed });
            let precision = class.options.precision.unwrap_or(data.rows().precision());
            Some(Ok(GroupRun {
                run,
                restart: highest,
                empty_at_start: 0,
                starts,
                evaluation: Evaluation { total_weight, ..evaluation },
                variances,
                storage: RowStorage { precision, shift: shift.clone() },
                elapsed,
            }))
        });
        Ok(runs.collect())
    }
}

fn received(gpu: &Gpu, queue: &Queue, from: &DeviceSlice<f64>) -> Result<Vec<f64>, Error> {
    let mut out = Vec::with_capacity(from.len());
    receive(gpu, queue, from, |_, piece| out.extend_from_slice(piece))?;
    Ok(out)
}
