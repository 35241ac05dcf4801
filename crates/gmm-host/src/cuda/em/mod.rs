//! EM on the device: the host enqueues batches of iterations and polls between them.
//!
//! ```text
//! begin       copy the start's parameters to the device; the path's preparation; encode operands from the parameters
//! repeat      for each section of the rows:
//!                 pass of the path     partial sums of densities and moments, over the section's rows
//!                 reduce               partial sums, added to the sums of the sections before
//!             M-step               parameters, convergence and lost precision; encode the path's operands
//! poll        copy log-likelihoods, parameters and flags to the host, after each batch of iterations
//! ```
//! The [`EmPath`] defines the pass: see [`paths`]. [`mod@select`] chooses the path. If an iteration loses more
//! precision than a path allows ([`error_bounds`]), the next path continues from the last poll.

pub(crate) mod error_bounds;
mod exchange;
mod grid;
mod m_step;
mod packing;
pub(crate) mod path;
pub(crate) mod paths;
mod run;
pub(crate) mod select;
mod workspace;

use std::ops::Range;

use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::em::m_step::Matrices;
use gmm_model::{CovarianceType, Mixture};
use ndarray::{Array1, Array2};

use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;
use crate::em::{EmOptions, EmRun};
use packing::{pack, unpack};
use path::{EmPath, Launch, LoopBuffers, LoopPlan, LoopRows, Operand, Request};
#[cfg(test)]
pub(crate) use run::POLL_AFTER;
pub(crate) use run::{Member, Outcome, iterate_by};
use select::{Candidate, select};
use workspace::Workspace;

/// The loop's buffers, reused between fits of the same rows.
pub(crate) struct Loop {
    numbers: Slot<f64>,
    flags: Slot<u32>,
    /// The polled trace and parameters, in pinned memory.
    polled: Pinned<f64>,
    polled_flags: Pinned<u32>,
}

/// Called after each poll with the run and the number of iterations that were known before it.
pub(crate) type Observer<'a> = dyn FnMut(&mut EmRun, usize) -> Result<(), Error> + 'a;

impl Loop {
    pub(crate) fn empty() -> Self {
        Self { numbers: Slot::empty(), flags: Slot::empty(), polled: pinned_empty(), polled_flags: pinned_empty() }
    }

    /// Runs [`Passes::iterate`](crate::Passes::iterate) on these paths, best first. If one loses too much precision,
    /// the next one with a wider operand continues from the last poll, and finally the host does.
    ///
    /// # Errors
    /// As for a pass, and any error of `observer`.
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
            match iterate_by(&mut [Member { em: self, rows }], &[plan], run, options, observer)? {
                Outcome::Finished => return Ok(()),
                Outcome::LostPrecision => lost = Some(path.operand()),
                Outcome::LackedMemory => {}
            }
        }
        Ok(())
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

    /// Copies the parameters to the device, and computes operands from them. `scatter` is that of the rows of all devices.
    fn begin<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        (start, scatter): (&Mixture, Option<&[f64]>),
    ) -> Result<(), Error> {
        let (d, stream) = (rows.d, &rows.queue.stream.clone());
        let host = &mut self.polled.as_mut_slice()[..workspace.polled()];
        host.fill(0.0);
        for (slot, w) in host[workspace.weights.clone()].iter_mut().zip(start.weights()) {
            *slot = *w;
        }
        for (i, (slot, m)) in host[workspace.means.clone()].iter_mut().zip(start.means()).enumerate() {
            *slot = m - rows.shift[i % d];
        }
        pack(start.covariances(), &mut host[workspace.covariances.clone()]);
        // SAFETY: the host buffer is pinned, and `Rows::run` waits for the stream before it is written again or freed.
        let copied = unsafe { self.numbers.first(workspace.polled()).async_copy_from(&*host, stream) };
        rows.gpu.check("a copy of parameters to the device", copied)?;
        let mut b = workspace.buffers(&self.numbers, &self.flags);
        if let (Some(to), Some(scatter)) = (b.scatter, scatter) {
            // SAFETY: the driver copies pageable memory before it returns.
            let copied = unsafe { to.index(..scatter.len()).async_copy_from(scatter, stream) };
            rows.gpu.check("a copy of moments to the device", copied)?;
        }
        let mut zeroed = self.numbers.first(workspace.len).index(workspace.zeroed());
        let mut flags = self.flags.first(workspace.flags());
        // SAFETY: both ranges belong to the loop's buffers, and the stream orders this before every kernel that reads
        // them.
        let set = unsafe { zeroed.set_8_async(0, stream).and_then(|()| flags.set_8_async(0, stream)) };
        rows.gpu.check("clearing a loop's state", set)?;
        if !b.own.likelihoods.is_empty() {
            // No lane writes the features that pad the last step, but the reduction reads them.
            // SAFETY: the partial sums belong to the loop's buffers, and the stream orders this before the first pass.
            rows.gpu.check("clearing partial results", unsafe { b.partials.set_8_async(0, stream) })?;
        }
        prepare(rows, plan, &b)?;
        m_step::enqueue(rows.launcher(), plan, &b, 0)
    }

    /// Enqueues a pass over the rows of all sections, which leaves their sums.
    fn pass<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        iteration: u32,
    ) -> Result<(), Error> {
        let buffers = workspace.buffers(&self.numbers, &self.flags);
        let is_streamed = rows.streamed.is_some();
        for range in rows.sections.ranges() {
            let accumulate = range.start > 0;
            for_section(rows, plan, &buffers, range, |launch| {
                if is_streamed {
                    plan.path.norms(launch)?;
                }
                plan.path.enqueue(launch, iteration)?;
                let (partials, sums) = (&buffers.partials, plan.layout.sums());
                launch.launcher.reduce_blocks(partials, plan.grid.partials.into(), sums, &buffers.sums, accumulate)
            })?;
        }
        Ok(())
    }

    /// Copies trace, parameters and flags to the host, and waits for them.
    fn poll<T: Number>(&mut self, rows: &Rows<T>, workspace: &Workspace) -> Result<(), Error> {
        let (numbers, flags) = (workspace.polled(), workspace.flags());
        let stream = &rows.queue.stream;
        // SAFETY: the host buffers are pinned, and are read only after the wait below.
        let copied = unsafe {
            let to = &mut self.polled.as_mut_slice()[..numbers];
            self.numbers.first(numbers).async_copy_to(to, stream).and_then(|()| {
                self.flags.first(flags).async_copy_to(&mut self.polled_flags.as_mut_slice()[..flags], stream)
            })
        };
        rows.gpu.check("a copy of results from the device", copied)?;
        rows.queue.wait(&rows.gpu)
    }

    /// The mixture of the last poll; `None` if its parameters are not a valid mixture.
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

/// Calls `work` with what the launches for a section's rows need.
fn for_section<T: Number>(
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    buffers: &LoopBuffers,
    range: Range<usize>,
    work: impl FnOnce(&Launch<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let norms_from = if rows.streamed.is_some() { 0 } else { range.start as u64 };
    let chunk = LoopRows::of(&rows.bring(range)?);
    work(&Launch { launcher: rows.launcher(), plan, rows: &chunk, norms_from, buffers })
}

/// The path's work on each section before the first iteration. Half-precision scales are those of the section whose
/// columns reach farthest.
fn prepare<T: Number>(rows: &mut Rows<T>, plan: &LoopPlan, b: &LoopBuffers) -> Result<(), Error> {
    let (has_norms, has_scales) = (!b.own.norms.is_empty(), !b.own.scales.is_empty());
    // A pass over streamed rows takes long, and their norms are computed in each iteration.
    if !has_scales && (!has_norms || rows.streamed.is_some()) {
        return Ok(());
    }
    let mut least: Option<Vec<f32>> = None;
    for range in rows.sections.ranges() {
        for_section(rows, plan, b, range, |launch| {
            plan.path.norms(launch)?;
            plan.path.prepare(launch)
        })?;
        if has_scales && plan.sections > 1 {
            let found = scales(rows, &b.own.scales)?;
            least = Some(match least {
                Some(least) => least.iter().zip(&found).map(|(a, b)| a.min(*b)).collect(),
                None => found,
            });
        }
    }
    let Some(least) = least else { return Ok(()) };
    let words = pairs(&least);
    // SAFETY: the driver copies pageable memory before it returns.
    let copied = unsafe { b.own.scales.index(..words.len()).async_copy_from(&words[..], &rows.queue.stream) };
    rows.gpu.check("a copy of scales to the device", copied)
}

/// Copies scales to the host.
fn scales<T: Number>(rows: &Rows<T>, from: &DeviceSlice<f64>) -> Result<Vec<f32>, Error> {
    let mut words = vec![0.0; from.len()];
    // SAFETY: the words are read only after the wait below.
    let copied = unsafe { from.async_copy_to(&mut words[..], &rows.queue.stream) };
    rows.gpu.check("a copy of scales from the device", copied)?;
    rows.queue.wait(&rows.gpu)?;
    Ok(words
        .iter()
        .flat_map(|word: &f64| [word.to_bits() as u32, (word.to_bits() >> 32) as u32])
        .map(f32::from_bits)
        .collect())
}

/// Pairs of `f32` as words.
fn pairs(numbers: &[f32]) -> Vec<f64> {
    let word = |pair: &[f32]| f64::from_bits(u64::from(pair[0].to_bits()) | u64::from(pair[1].to_bits()) << 32);
    numbers.chunks_exact(2).map(word).collect()
}

/// Lists all paths for these rows, each with the reasons against it.
pub(crate) fn candidates<T: Number>(rows: &Rows<T>, shape: &Shape, fast: bool) -> Vec<Candidate> {
    let weighted = rows.row_weights.is_some();
    let has = |name: &'static str| rows.gpu.has(name);
    select(&Request { shape: *shape, weighted, fast, limits: rows.gpu.limits, has: &has }, &rows.forced)
}

/// Lists the paths that can run and are not slower than a later one, best first.
pub(crate) fn running<T: Number>(rows: &Rows<T>, shape: &Shape, fast: bool) -> Vec<&'static dyn EmPath> {
    candidates(rows, shape, fast).into_iter().filter(Candidate::runs).map(|candidate| candidate.path).collect()
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
    let limits = rows.gpu.limits;
    let Ok(matrices) = Matrices::of(shape.kernel_kind(), shape.d, limits.shared_bytes.into()) else { return Ok(None) };
    let (n, sections) = (shape.n, rows.sections);
    let section = Shape { n: sections.rows() as u64, ..shape };
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
