//! Runs EM on a device, or on several that share the rows: tries the paths in order, and continues on the next one when
//! a path loses precision or lacks memory.

use std::time::Duration;

use gmm_kernels::em::m_step::{Matrices, TRACE};
use gmm_kernels::em::state::{DONE, FINISHED, STATE_LEN, TROUBLE};
use gmm_model::CovarianceType;

use super::device_loop::{Member, Start};
use super::exchange::Exchange;
use super::m_step;
use super::path::{EmPath, LoopPlan, Operand};
use super::prior::PriorNumbers;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::threads::on_threads;
use crate::cuda::shape::Shape;
use crate::em::{EmOptions, EmRun, OnDevice};

/// Target time between polls, in seconds: short enough to react to an interrupt and to move a progress bar, and long
/// against the 0.2 ms for which a poll leaves the device idle.
const BETWEEN_POLLS: f64 = 0.1;

/// Most iterations between polls.
const MOST_BETWEEN_POLLS: f64 = 64.0;

#[cfg(test)]
thread_local! {
    /// Most iterations between polls; set by tests of what polls leave, on their own thread.
    pub(crate) static POLL_AFTER: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
}

/// Why a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It converged or reached the iteration limit.
    Finished,
    /// It would have lost too much precision, or a covariance was not positive definite.
    LostPrecision,
    /// Memory lacked, or the path does not suit the rows.
    NotBegun,
}

/// Called after each poll with the run and the number of iterations that were known before it.
pub(crate) type Observer<'a> = dyn FnMut(&mut EmRun, usize) -> Result<(), Error> + 'a;

/// Runs [`Passes::iterate`](crate::Passes::iterate) on these paths, best first, over the rows of all members. If a path
/// loses too much precision, the next one with a wider operand continues from the last poll, and finally the host does.
///
/// # Errors
/// As for a pass, and any error of `observer`.
pub(crate) fn iterate<T: Number>(
    members: &mut [Member<'_, T>],
    paths: &[&'static dyn EmPath],
    run: &mut EmRun,
    options: &EmOptions,
    observer: &mut Observer<'_>,
) -> Result<(), Error> {
    let (kind, k) = (run.mixture.covariance_type(), run.mixture.n_components());
    let prior = run.posterior.as_ref().map(PriorNumbers::of);
    let total_weight = members.iter().map(|member| member.rows.total_weight).sum();
    let mut lost: Option<Operand> = None;
    for &path in paths {
        if lost.is_some_and(|lost| path.operand() <= lost) {
            continue;
        }
        let mut plans = Vec::with_capacity(members.len());
        for Member { rows, .. } in &*members {
            rows.gpu.enter()?;
            let Some(plan) = plan(rows, rows.shape(kind, k), path, options, run.iterations)? else { return Ok(()) };
            plans.push(LoopPlan { total_weight, prior, ..plan });
        }
        match iterate_on_path(members, &plans, run, options, observer)? {
            Outcome::Finished => return Ok(()),
            Outcome::LostPrecision => lost = Some(path.operand()),
            Outcome::NotBegun => {}
        }
    }
    Ok(())
}

/// A loop that has begun.
struct PathRun<'a, 'b, T: Number> {
    members: &'a mut [Member<'b, T>],
    plans: &'a [LoopPlan],
    workspaces: Vec<Workspace>,
    /// `None` for a single device.
    exchange: Option<Exchange>,
}

/// Runs the iterations on one path; `plans` has the plan of each member.
///
/// # Errors
/// As for [`iterate`]. With several members, all of their streams have been waited for.
pub(crate) fn iterate_on_path<T: Number>(
    members: &mut [Member<'_, T>],
    plans: &[LoopPlan],
    run: &mut EmRun,
    options: &EmOptions,
    observer: &mut Observer<'_>,
) -> Result<Outcome, Error> {
    let workspaces: Vec<Workspace> = plans.iter().map(Workspace::of).collect();
    let mut running = PathRun { members, plans, workspaces, exchange: None };
    let outcome = running.begin(run).and_then(|begun| match begun {
        true => running.iterate(run, options, observer),
        // Paths that process rows in smaller chunks, and the host's passes, need less.
        false => Ok(Outcome::NotBegun),
    });
    if running.members.len() > 1 {
        running.members.iter().for_each(|member| {
            member.rows.gpu.enter_to_drop();
            member.rows.recover();
        });
    }
    outcome
}

impl<T: Number> PathRun<'_, '_, T> {
    /// Takes the buffers and copies the parameters to the devices. Returns false if memory lacks, or if the path does not suit
    /// the rows.
    fn begin(&mut self, run: &EmRun) -> Result<bool, Error> {
        for ((member, plan), workspace) in self.members.iter_mut().zip(self.plans).zip(&self.workspaces) {
            member.rows.gpu.enter()?;
            match member.em.reserve(member.rows, plan, workspace) {
                Err(Error::Memory { .. }) => return Ok(false),
                other => other?,
            }
        }
        if self.members.len() > 1 {
            let sums = self.plans[0].layout.sums() as usize;
            match Exchange::new(self.members, sums) {
                Err(Error::Memory { .. }) => return Ok(false),
                other => self.exchange = Some(other?),
            }
        }
        let scatter = self.scatter();
        for ((member, plan), workspace) in self.members.iter_mut().zip(self.plans).zip(&self.workspaces) {
            member.rows.gpu.enter()?;
            let start = Start::of(&run.mixture, scatter.as_deref()).with(run.posterior.as_ref());
            if !member.em.begin(member.rows, plan, workspace, &start)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Σ w x xᵀ about the shift over the rows of all members, for a tied covariance.
    fn scatter(&self) -> Option<Vec<f64>> {
        if self.plans[0].shape.kind != CovarianceType::Tied {
            return None;
        }
        let all = self.members.iter().map(|member| member.rows.scatter.clone().expect("known since `reserve`"));
        all.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect())
    }

    fn iterate(&mut self, run: &mut EmRun, options: &EmOptions, observer: &mut Observer<'_>) -> Result<Outcome, Error> {
        let plan = self.plans[0];
        let mut seconds_an_iteration = estimate(&plan);
        let before = run.iterations;
        let earlier = run.on_device.unwrap_or_default();
        let mut on_device = OnDevice { path: plan.path.name(), ..earlier };
        let mut next = 1;
        loop {
            let batch = (BETWEEN_POLLS / seconds_an_iteration).clamp(1.0, MOST_BETWEEN_POLLS) as u32;
            #[cfg(test)]
            let batch = batch.min(POLL_AFTER.get());
            let last = plan.max_iter.min(next + batch - 1);
            let seconds = self.enqueue(next..=last)?;
            let first = &self.members[0];
            let flags = first.em.polled_flags.as_slice();
            let (done, trouble, finished) = (flags[DONE as usize], flags[TROUBLE as usize], flags[FINISHED as usize]);
            // Iterations before the trouble are valid, but their parameters are overwritten: the next path continues
            // from the last poll.
            if trouble != 0 {
                let (path, iteration) = (plan.path.name(), before + trouble as usize);
                tracing::debug!(path, iteration, "the loop on the device lost precision: the next path continues");
                return Ok(Outcome::LostPrecision);
            }
            let polled = match &run.posterior {
                None => first.em.polled_mixture(first.rows, &plan, &self.workspaces[0]).map(|mixture| (mixture, None)),
                Some(before) => first
                    .em
                    .polled_posterior(first.rows, &plan, &self.workspaces[0], before.prior())
                    .map(|posterior| (posterior.mixture().clone(), Some(posterior))),
            };
            let Some((mixture, posterior)) = polled else { return Ok(Outcome::LostPrecision) };
            let known = run.iterations;
            let values = first.em.polled.as_slice();
            run.trace.extend((next..=finished).map(|i| values[((i - 1) as u64 % TRACE) as usize]));
            (run.mixture, run.posterior) = (mixture, posterior);
            run.iterations = before + finished as usize;
            run.empty = (0..plan.shape.k as usize).filter(|c| flags[STATE_LEN + c] != 0).collect();
            run.converged = done != 0 && last_change(&run.trace) < options.tol;
            on_device.iterations = earlier.iterations + finished as usize;
            on_device.time += Duration::from_secs_f64(seconds);
            run.on_device = Some(on_device);
            observer(run, known)?;
            if done != 0 || run.finished {
                self.end(run)?;
                return Ok(Outcome::Finished);
            }
            seconds_an_iteration = seconds / f64::from(last - next + 1);
            next = last + 1;
        }
    }

    /// Notes what the path leaves for evaluations, and how many components were near a tile of the first device.
    fn end(&mut self, run: &mut EmRun) -> Result<(), Error> {
        let all = self.members.iter_mut().zip(self.plans).zip(&self.workspaces);
        for (i, ((Member { em, rows }, plan), workspace)) in all.enumerate() {
            if i == 0 {
                rows.gpu.enter()?;
                run.near_components = em.near_components(rows, plan, workspace)?;
            }
            em.left_near(plan, &run.mixture);
        }
        Ok(())
    }

    /// Enqueues some iterations and polls the first device. Returns their duration on its clock, in seconds.
    fn enqueue(&mut self, iterations: std::ops::RangeInclusive<u32>) -> Result<f64, Error> {
        let first = &self.members[0].rows;
        first.gpu.enter()?;
        let clock = first.queue.clock.clone();
        let (from, to) = &*clock;
        first.gpu.check("an event", from.record(&first.queue.stream))?;
        for iteration in iterations {
            self.pass(iteration)?;
            if let Some(exchange) = &mut self.exchange {
                exchange.add_up(self.members, &self.workspaces)?;
            }
            for ((member, plan), workspace) in self.members.iter().zip(self.plans).zip(&self.workspaces) {
                member.rows.gpu.enter()?;
                let buffers = workspace.buffers(&member.em.numbers, &member.em.flags);
                m_step::enqueue(member.rows.launcher(), plan, &buffers, iteration)?;
            }
        }
        let Member { em, rows } = &mut self.members[0];
        rows.gpu.enter()?;
        rows.gpu.check("an event", to.record(&rows.queue.stream))?;
        em.poll(rows, &self.workspaces[0])?;
        Ok(f64::from(rows.gpu.check("an event", to.elapsed_time_f32(from))?) / 1e3)
    }

    /// Enqueues the pass of each member. If rows are streamed, which keeps a thread busy, each member has its own.
    fn pass(&mut self, iteration: u32) -> Result<(), Error> {
        let all = self.members.iter_mut().zip(self.plans).zip(&self.workspaces);
        let one = |((member, plan), workspace): ((&mut Member<'_, T>, &LoopPlan), &Workspace)| {
            member.rows.gpu.enter()?;
            member.em.pass(member.rows, plan, workspace, iteration)
        };
        let are_streamed = all.len() > 1 && self.plans.iter().any(|plan| plan.n > plan.shape.n);
        if !are_streamed {
            return all.map(one).try_for_each(|done| done);
        }
        on_threads(all.collect(), one).map(|_| ())
    }
}

/// Plans a path with its grid on this GPU; `None` if the device cannot run the M-step for this shape.
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
    plan_over(rows, shape, path, options, (done, rows.sections.rows()))
}

/// As [`plan`], for passes over at most `most` rows at once.
///
/// # Errors
/// As there.
pub(super) fn plan_over<T: Number>(
    rows: &Rows<T>,
    shape: Shape,
    path: &'static dyn EmPath,
    options: &EmOptions,
    (done, most): (usize, usize),
) -> Result<Option<LoopPlan>, Error> {
    let limits = rows.gpu.limits;
    let Ok(matrices) = Matrices::of(shape.kernel_kind(), shape.d, limits.shared_bytes.into()) else { return Ok(None) };
    let (n, sections) = (shape.n, rows.sections);
    let section = Shape { n: most as u64, ..shape };
    let grid = path.grid(&section, &rows.gpu, &rows.forced)?;
    let shape = if rows.streamed.is_some() { section } else { shape };
    // Benchmarks read the field `plan`.
    let plan = format!("{}: {grid:?}", path.name());
    tracing::debug!(plan, matrices = format!("{matrices:?}"), "loop on the device");
    Ok(Some(LoopPlan {
        shape,
        n,
        sections: sections.count(),
        path,
        is_forced: rows.forced.path().is_some(),
        grid,
        layout: path.layout(&shape),
        matrices,
        max_iter: u32::try_from(options.max_iter - done).unwrap_or(u32::MAX - 1),
        tol: options.tol,
        reg_covar: options.reg_covar,
        total_weight: rows.total_weight,
        bounds: path.error_bounds(&shape),
        prior: None,
        largest: 0,
    }))
}

/// Rough estimate of an iteration's duration in seconds, used to schedule the first poll.
fn estimate(plan: &LoopPlan) -> f64 {
    let products = plan.n as f64 * plan.layout.coefficients() as f64 / 8.0;
    1e-5 + products / 1e12
}

fn last_change(trace: &[f64]) -> f64 {
    match trace {
        [.., a, b] => (b - a).abs(),
        _ => f64::INFINITY,
    }
}
