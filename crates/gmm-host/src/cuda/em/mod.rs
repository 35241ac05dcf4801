//! EM on the device: the host enqueues iterations, and polls now and then.
//!
//! ```text
//! begin       parameters of the start to the device; the path's own preparation; operands from the parameters
//! repeat      pass of the path     partial sums of densities and moments, over all rows
//!             reduce               partial sums into sums
//!             M-step               parameters, convergence and lost precision; the path's operands from the parameters
//! poll        log-likelihoods, parameters and flags to the host, after some iterations
//! ```
//! What a pass is, its [`EmPath`] says: see [`paths`]. [`mod@select`] chooses one. Where an iteration loses more
//! precision than a path allows ([`error_bounds`]), the next goes on from the last poll.

pub(crate) mod error_bounds;
mod grid;
mod m_step;
mod packing;
pub(crate) mod path;
pub(crate) mod paths;
pub(crate) mod select;
mod workspace;

use std::time::Duration;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::em::m_step::{Matrices, TRACE};
use gmm_kernels::em::state::{DONE, FINISHED, STATE_LEN, TROUBLE};
use gmm_model::{CovarianceType, Mixture};
use ndarray::{Array1, Array2};

use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;
use crate::em::{EmOptions, EmRun, OnDevice};
use packing::{pack, unpack};
use path::{EmPath, Launch, LoopPlan, LoopRows, Operand, Request};
use select::{Candidate, select};
use workspace::Workspace;

/// The loop's memory, which is kept between fits of the same rows.
pub(crate) struct Loop {
    numbers: Slot<f64>,
    flags: Slot<u32>,
    /// What a poll brings, pinned.
    polled: Pinned<f64>,
    polled_flags: Pinned<u32>,
}

/// Time between polls that is aimed at, in seconds: an interrupt is answered and a progress bar moves.
const BETWEEN_POLLS: f64 = 0.03;

/// Iterations between polls at most.
const MOST_BETWEEN_POLLS: f64 = 64.0;

#[cfg(test)]
thread_local! {
    /// A test of what polls leave sets how many iterations lie between them at most, on its own thread.
    pub(crate) static POLL_AFTER: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
}

/// Why a loop came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It converged, or was asked for no more iterations.
    Finished,
    /// Too much precision would have been lost, or a covariance was not positive definite.
    LostPrecision,
    LackedMemory,
}

/// What hears of a poll: the run, and how many iterations were known before.
pub(crate) type Observer<'a> = dyn FnMut(&mut EmRun, usize) -> Result<(), Error> + 'a;

impl Loop {
    pub(crate) fn empty() -> Self {
        Self { numbers: Slot::empty(), flags: Slot::empty(), polled: pinned_empty(), polled_flags: pinned_empty() }
    }

    /// [`Passes::iterate`](crate::Passes::iterate) by these paths, best first: where one loses too much precision, the next with
    /// a wider operand goes on from the last poll, and in the end the host does.
    ///
    /// # Errors
    /// As for a pass, and what `observer` says.
    pub(crate) fn iterate<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        paths: &[&'static dyn EmPath],
        run: &mut EmRun,
        options: &EmOptions,
        observer: &mut Observer<'_>,
    ) -> Result<(), Error> {
        let shape = rows.shape(run.mixture.covariance_type(), run.mixture.n_components());
        let mut lost: Option<Operand> = None;
        for &path in paths {
            if lost.is_some_and(|lost| path.operand() <= lost) {
                continue;
            }
            let Some(plan) = plan(rows, shape, path, options, run.iterations)? else { return Ok(()) };
            match self.iterate_by(rows, &plan, run, options, observer)? {
                Outcome::Finished => return Ok(()),
                Outcome::LostPrecision => lost = Some(path.operand()),
                Outcome::LackedMemory => {}
            }
        }
        Ok(())
    }

    /// Iterations by one path.
    ///
    /// # Errors
    /// As for [`iterate`](Self::iterate).
    pub(crate) fn iterate_by<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        run: &mut EmRun,
        options: &EmOptions,
        observer: &mut Observer<'_>,
    ) -> Result<Outcome, Error> {
        let workspace = Workspace::of(plan);
        match self.reserve(rows, plan, &workspace) {
            // Passes in chunks need less.
            Err(Error::Memory { .. }) => return Ok(Outcome::LackedMemory),
            other => other?,
        }
        self.begin(rows, plan, &workspace, &run.mixture)?;
        let mut seconds_an_iteration = estimate(plan);
        let before = run.iterations;
        let earlier = run.on_device.unwrap_or_default();
        let mut on_device = OnDevice { path: plan.path.name(), ..earlier };
        let mut next = 1;
        loop {
            let batch = (BETWEEN_POLLS / seconds_an_iteration).clamp(1.0, MOST_BETWEEN_POLLS) as u32;
            #[cfg(test)]
            let batch = batch.min(POLL_AFTER.get());
            let last = plan.max_iter.min(next + batch - 1);
            let seconds = self.enqueue(rows, plan, &workspace, next..=last)?;
            let flags = self.polled_flags.as_slice();
            let (done, trouble, finished) = (flags[DONE as usize], flags[TROUBLE as usize], flags[FINISHED as usize]);
            // What came before a trouble is good, but its parameters are gone: who goes on does so from the last poll.
            if trouble != 0 {
                let (path, iteration) = (plan.path.name(), before + trouble as usize);
                tracing::debug!(path, iteration, "the loop on the device leaves off");
                return Ok(Outcome::LostPrecision);
            }
            let Some(mixture) = self.polled_mixture(rows, plan, &workspace) else { return Ok(Outcome::LostPrecision) };
            let known = run.iterations;
            let values = self.polled.as_slice();
            run.trace.extend((next..=finished).map(|i| values[((i - 1) as u64 % TRACE) as usize]));
            run.mixture = mixture;
            run.iterations = before + finished as usize;
            run.empty = (0..plan.shape.k as usize).filter(|c| flags[STATE_LEN + c] != 0).collect();
            run.converged = done != 0 && last_change(&run.trace) < options.tol;
            on_device.iterations = earlier.iterations + finished as usize;
            on_device.time += Duration::from_secs_f64(seconds);
            run.on_device = Some(on_device);
            observer(run, known)?;
            if done != 0 || run.finished {
                return Ok(Outcome::Finished);
            }
            seconds_an_iteration = seconds / f64::from(last - next + 1);
            next = last + 1;
        }
    }

    /// Runs some iterations and polls: their seconds on the device's clock.
    fn enqueue<T: Number>(
        &mut self,
        rows: &Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        iterations: std::ops::RangeInclusive<u32>,
    ) -> Result<f64, Error> {
        let buffers = workspace.buffers(&self.numbers, &self.flags);
        let all = LoopRows::of(&rows.whole());
        let launch = Launch { launcher: rows.launcher(), plan, rows: &all, buffers: &buffers };
        let clock = rows.queue.clock.clone();
        let (from, to) = &*clock;
        rows.gpu.check("an event", from.record(&rows.queue.stream))?;
        for iteration in iterations {
            plan.path.enqueue(&launch, iteration)?;
            let (partials, sums) = (&buffers.partials, plan.layout.sums());
            launch.launcher.reduce_blocks(partials, plan.grid.partials.into(), sums, &buffers.sums)?;
            m_step::enqueue(&launch, iteration)?;
        }
        rows.gpu.check("an event", to.record(&rows.queue.stream))?;
        self.poll(rows, workspace)?;
        Ok(f64::from(rows.gpu.check("an event", to.elapsed_time_f32(from))?) / 1e3)
    }

    fn reserve<T: Number>(&mut self, rows: &mut Rows<T>, plan: &LoopPlan, workspace: &Workspace) -> Result<(), Error> {
        if plan.shape.kind == CovarianceType::Tied {
            rows.know_scatter()?;
        }
        let flags = workspace.flags();
        let wanted = 8 * workspace.len as u128 + 4 * flags as u128;
        rows.room("the loop on the GPU", wanted, self.numbers.bytes() + self.flags.bytes())?;
        self.numbers.reserve(&rows.gpu, workspace.len)?;
        self.flags.reserve(&rows.gpu, flags)?;
        pin(&rows.gpu, &mut self.polled, workspace.polled())?;
        pin(&rows.gpu, &mut self.polled_flags, flags)
    }

    /// Parameters to the device, and operands from them.
    fn begin<T: Number>(
        &mut self,
        rows: &Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        start: &Mixture,
    ) -> Result<(), Error> {
        let (d, stream) = (rows.d, &rows.queue.stream);
        let host = &mut self.polled.as_mut_slice()[..workspace.polled()];
        host.fill(0.0);
        for (slot, w) in host[workspace.weights.clone()].iter_mut().zip(start.weights()) {
            *slot = *w;
        }
        for (i, (slot, m)) in host[workspace.means.clone()].iter_mut().zip(start.means()).enumerate() {
            *slot = m - rows.shift[i % d];
        }
        pack(start.covariances(), &mut host[workspace.covariances.clone()]);
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `Rows::run` sees to it.
        let copied = unsafe { self.numbers.first(workspace.polled()).async_copy_from(&*host, stream) };
        rows.gpu.check("a copy of parameters to the device", copied)?;
        let mut b = workspace.buffers(&self.numbers, &self.flags);
        if let (Some(to), Some(scatter)) = (b.scatter, &rows.scatter) {
            // SAFETY: the driver takes pageable memory's content before it returns.
            let copied = unsafe { to.index(..scatter.len()).async_copy_from(&scatter[..], stream) };
            rows.gpu.check("a copy of moments to the device", copied)?;
        }
        let mut zeroed = self.numbers.first(workspace.len).index(workspace.zeroed());
        let mut flags = self.flags.first(workspace.flags());
        // SAFETY: the loop's own buffers, and the stream keeps the order.
        let set = unsafe { zeroed.set_8_async(0, stream).and_then(|()| flags.set_8_async(0, stream)) };
        rows.gpu.check("clearing a loop's state", set)?;
        if !b.own.likelihoods.is_empty() {
            // Features that fill up a last step have no lane that writes them, and are added up with the others.
            // SAFETY: as above.
            rows.gpu.check("clearing partial results", unsafe { b.partials.set_8_async(0, stream) })?;
        }
        let all = LoopRows::of(&rows.whole());
        let launch = Launch { launcher: rows.launcher(), plan, rows: &all, buffers: &b };
        plan.path.prepare(&launch)?;
        m_step::enqueue(&launch, 0)
    }

    /// Brings trace, parameters and flags, and waits for them.
    fn poll<T: Number>(&mut self, rows: &Rows<T>, workspace: &Workspace) -> Result<(), Error> {
        let (numbers, flags) = (workspace.polled(), workspace.flags());
        let stream = &rows.queue.stream;
        // SAFETY: pinned; read only after the wait below.
        let copied = unsafe {
            let to = &mut self.polled.as_mut_slice()[..numbers];
            self.numbers.first(numbers).async_copy_to(to, stream).and_then(|()| {
                self.flags.first(flags).async_copy_to(&mut self.polled_flags.as_mut_slice()[..flags], stream)
            })
        };
        rows.gpu.check("a copy of results from the device", copied)?;
        rows.queue.wait(&rows.gpu)
    }

    /// The mixture that the last poll brought; none where it is not one.
    fn polled_mixture<T: Number>(&self, rows: &Rows<T>, plan: &LoopPlan, workspace: &Workspace) -> Option<Mixture> {
        let (k, d) = (plan.shape.k as usize, rows.d);
        let polled = self.polled.as_slice();
        let mut weights = Array1::from_iter(polled[workspace.weights.clone()].iter().copied());
        weights /= weights.sum();
        let means = &polled[workspace.means.clone()];
        let means = Array2::from_shape_fn((k, d), |(c, j)| means[c * d + j] + rows.shift[j]);
        let covariances = unpack(plan.shape.kind, k, d, &polled[workspace.covariances.clone()]);
        Mixture::new(weights, means, covariances).ok()
    }
}

/// All paths for these rows, each with what speaks against it.
pub(crate) fn candidates<T: Number>(rows: &Rows<T>, shape: &Shape, fast: bool) -> Vec<Candidate> {
    let weighted = rows.row_weights.is_some();
    let has = |name: &'static str| rows.gpu.has(name);
    select(&Request { shape: *shape, weighted, fast, limits: rows.gpu.limits, has: &has }, &rows.forced)
}

/// The paths that run, best first.
pub(crate) fn running<T: Number>(rows: &Rows<T>, shape: &Shape, fast: bool) -> Vec<&'static dyn EmPath> {
    candidates(rows, shape, fast).into_iter().filter(Candidate::runs).map(|candidate| candidate.path).collect()
}

/// A path with its grid on the GPU at hand; none where there is no M-step for the shape on the device.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn plan<T: Number>(
    rows: &Rows<T>,
    shape: Shape,
    path: &'static dyn EmPath,
    options: &EmOptions,
    done: usize,
) -> Result<Option<LoopPlan>, Error> {
    let limits = rows.gpu.limits;
    let Ok(matrices) = Matrices::of(shape.kernel_kind(), shape.d, limits.shared_bytes.into()) else { return Ok(None) };
    let grid = path.grid(&shape, &rows.gpu, &rows.forced)?;
    tracing::debug!(
        path = path.name(),
        grid = format!("{grid:?}"),
        matrices = format!("{matrices:?}"),
        "loop on the device"
    );
    Ok(Some(LoopPlan {
        shape,
        path,
        grid,
        layout: path.layout(&shape),
        matrices,
        max_iter: u32::try_from(options.max_iter - done).unwrap_or(u32::MAX - 1),
        tol: options.tol,
        reg_covar: options.reg_covar,
        total_weight: rows.total_weight,
        bounds: path.error_bounds(&shape),
    }))
}

/// Seconds that an iteration may take: to decide when to poll for the first time.
fn estimate(plan: &LoopPlan) -> f64 {
    let products = plan.shape.n as f64 * plan.layout.coefficients() as f64 / 8.0;
    1e-5 + products / 1e12
}

fn last_change(trace: &[f64]) -> f64 {
    match trace {
        [.., a, b] => (b - a).abs(),
        _ => f64::INFINITY,
    }
}
