//! One device's part of the EM loop: its buffers, and the launches of a pass and a poll.

use std::ops::Range;

use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_model::bayes::{BayesPrior, Posterior};
use gmm_model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2};

use super::m_step;
use super::packing::{integers, pack, unpack, words};
use super::path::{EmPath, Launch, LoopBuffers, LoopPlan, LoopRows};
use super::prior;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;

/// The buffers of the loop on one device, reused between fits of the same rows.
pub(crate) struct Loop {
    pub(super) numbers: Slot<f64>,
    pub(super) flags: Slot<u32>,
    /// The polled trace and parameters, in pinned memory.
    pub(super) polled: Pinned<f64>,
    pub(super) polled_flags: Pinned<u32>,
    /// Path, kind and `k` for which [`prepare`] has run. Its results stay until another path or shape overwrites them.
    prepared: Option<Key>,
    /// For which path and shape there is an order of the rows with their best components, and the means that these belong to. Any
    /// order and any best components are valid: they only decide how many components are evaluated.
    pub(super) near: Option<(Key, Array2<f64>)>,
    /// The last path and shape that did not suit the rows.
    refused: Option<Key>,
    /// `(n,)`, for evaluations.
    pub(super) densities: Slot<f64>,
}

/// Path, kind and `k`.
pub(super) type Key = (&'static str, CovarianceType, u32);

pub(super) fn key(path: &dyn EmPath, shape: &Shape) -> Key {
    (path.name(), shape.kind, shape.k)
}

/// A device's share of the rows, and the buffers of its loop. With several, each device makes the whole M-step, from
/// the same sums, so that no parameters have to be exchanged.
pub(crate) struct Member<'a, T: Number> {
    pub(crate) em: &'a mut Loop,
    pub(crate) rows: &'a mut Rows<T>,
}

/// What a loop begins with.
pub(super) struct Start<'a> {
    mixture: &'a Mixture,
    /// Of variational Bayes; the mixture is that of its means.
    posterior: Option<&'a Posterior>,
    /// Packed Σ w x xᵀ about the shift over the rows of all devices, for a tied covariance.
    scatter: Option<&'a [f64]>,
}

impl<'a> Start<'a> {
    pub(super) const fn of(mixture: &'a Mixture, scatter: Option<&'a [f64]>) -> Self {
        Self { mixture, posterior: None, scatter }
    }

    /// With a posterior, of which `mixture` is that of the means.
    pub(super) const fn with(self, posterior: Option<&'a Posterior>) -> Self {
        Self { posterior, ..self }
    }

    /// Writes the parameters in the order of the workspace; `host` is zeroed.
    fn write(&self, workspace: &Workspace, shift: &[f64], host: &mut [f64]) {
        let d = shift.len();
        for (i, (slot, m)) in host[workspace.means.clone()].iter_mut().zip(self.mixture.means()).enumerate() {
            *slot = m - shift[i % d];
        }
        pack(self.mixture.covariances(), &mut host[workspace.covariances.clone()]);
        let Some(posterior) = self.posterior else {
            host[workspace.weights.clone()].iter_mut().zip(self.mixture.weights()).for_each(|(slot, w)| *slot = *w);
            return;
        };
        host[workspace.counts.clone()].copy_from_slice(&posterior.counts().to_vec());
        prior::pack_prior(posterior.prior(), shift, &mut host[workspace.prior.clone()]);
    }

    /// The moments of the rows, and those of the prior.
    fn moments(&self, shift: &[f64]) -> Option<Vec<f64>> {
        let mut scatter = self.scatter?.to_vec();
        if let Some(posterior) = self.posterior {
            prior::add_to_scatter(posterior.prior(), self.mixture.n_components(), shift, &mut scatter);
        }
        Some(scatter)
    }
}

impl Loop {
    pub(crate) fn empty() -> Self {
        Self {
            numbers: Slot::empty(),
            flags: Slot::empty(),
            polled: pinned_empty(),
            polled_flags: pinned_empty(),
            prepared: None,
            near: None,
            refused: None,
            densities: Slot::empty(),
        }
    }

    /// Forgets what depends on the shift of the rows. The order of the rows does not.
    pub(crate) fn moved(&mut self) {
        if self.near.is_none() {
            *self = Self::empty();
        }
        self.prepared = None;
    }

    /// Whether a path was found not to suit these rows.
    pub(super) fn is_refused(&self, path: &dyn EmPath, shape: &Shape) -> bool {
        self.refused == Some(key(path, shape))
    }

    /// [`EmPath::near_components`].
    pub(super) fn near_components<T: Number>(
        &self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
    ) -> Result<Option<f64>, Error> {
        if !plan.path.leaves_out_components() {
            return Ok(None);
        }
        let (b, mut found) = (workspace.buffers(&self.numbers, &self.flags), None);
        for_section(rows, plan, &b, 0..plan.n as usize, |launch| {
            found = plan.path.near_components(launch)?;
            Ok(())
        })?;
        Ok(found)
    }

    /// Records that the order of the rows and their best components are those under this mixture.
    pub(super) fn left_near(&mut self, plan: &LoopPlan, mixture: &Mixture) {
        if plan.path.leaves_out_components() {
            self.near = Some((key(plan.path, &plan.shape), mixture.means().to_owned()));
        }
    }

    pub(super) fn reserve<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
    ) -> Result<(), Error> {
        if plan.shape.kind == CovarianceType::Tied {
            rows.know_scatter()?;
        }
        let flags = workspace.flags();
        let wanted = 8 * workspace.len as u128 + 4 * flags as u128;
        rows.room("the loop on the GPU", wanted, self.numbers.bytes() + self.flags.bytes())?;
        if workspace.len > self.numbers.room() || flags > self.flags.room() {
            // What a replaced buffer held is lost.
            (self.near, self.prepared) = (None, None);
        }
        self.numbers.reserve(&rows.gpu, workspace.len)?;
        self.flags.reserve(&rows.gpu, flags)?;
        pin(&rows.gpu, &mut self.polled, workspace.written())?;
        pin(&rows.gpu, &mut self.polled_flags, flags)
    }

    /// Copies the parameters to the device, and computes operands from them. Returns false if the path does not suit the rows.
    pub(super) fn begin<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        start: &Start<'_>,
    ) -> Result<bool, Error> {
        self.near = None;
        self.send(rows, plan, workspace, start)?;
        if !plan.path.leaves_out_components() {
            return Ok(true);
        }
        let mut suits = false;
        let b = workspace.buffers(&self.numbers, &self.flags);
        for_section(rows, plan, &b, 0..plan.n as usize, |launch| {
            suits = plan.path.begin(launch)?;
            Ok(())
        })?;
        if !suits {
            self.refused = Some(key(plan.path, &plan.shape));
        }
        Ok(suits)
    }

    /// Copies the parameters to the device, and computes operands from them.
    pub(super) fn send<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        start: &Start<'_>,
    ) -> Result<(), Error> {
        let stream = &rows.queue.stream.clone();
        let host = &mut self.polled.as_mut_slice()[..workspace.written()];
        host.fill(0.0);
        start.write(workspace, &rows.shift, host);
        // SAFETY: the host buffer is pinned, and `Rows::run` waits for the stream before it is written again or freed.
        let copied = unsafe { self.numbers.first(workspace.written()).async_copy_from(&*host, stream) };
        rows.gpu.check("a copy of parameters to the device", copied)?;
        let mut b = workspace.buffers(&self.numbers, &self.flags);
        if let (Some(to), Some(scatter)) = (b.scatter, start.moments(&rows.shift)) {
            // SAFETY: the driver copies pageable memory before it returns.
            let copied = unsafe { to.index(..scatter.len()).async_copy_from(&scatter[..], stream) };
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
        let key = key(plan.path, &plan.shape);
        if self.prepared != Some(key) {
            self.prepared = None;
            prepare(rows, plan, &b)?;
            self.prepared = Some(key);
        }
        m_step::enqueue(rows.launcher(), plan, &b, 0)
    }

    /// Enqueues a pass over the rows of all sections, which leaves their sums.
    pub(super) fn pass<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        iteration: u32,
    ) -> Result<(), Error> {
        let buffers = workspace.buffers(&self.numbers, &self.flags);
        let is_streamed = rows.streamed.is_some();
        for (section, range) in rows.sections.ranges().enumerate() {
            for_section(rows, plan, &buffers, range, |launch| {
                if is_streamed {
                    plan.path.norms(launch)?;
                }
                pass_of(launch, iteration, section > 0)
            })?;
        }
        Ok(())
    }

    /// Copies trace, parameters and flags to the host, and waits for them.
    pub(super) fn poll<T: Number>(&mut self, rows: &Rows<T>, workspace: &Workspace) -> Result<(), Error> {
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
    pub(super) fn polled_mixture<T: Number>(
        &self,
        rows: &Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
    ) -> Option<Mixture> {
        let polled = self.polled.as_slice();
        let mut weights = Array1::from_iter(polled[workspace.weights.clone()].iter().copied());
        weights /= weights.sum();
        let (means, covariances) = self.polled_parameters(rows, plan, workspace);
        Mixture::new(weights, means, covariances).ok()
    }

    /// The posterior of the last poll; `None` if its parameters are not valid.
    pub(super) fn polled_posterior<T: Number>(
        &self,
        rows: &Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        prior: &BayesPrior,
    ) -> Option<Posterior> {
        let (means, covariances) = self.polled_parameters(rows, plan, workspace);
        prior.posterior_of(&self.polled.as_slice()[workspace.counts.clone()], means, covariances).ok()
    }

    /// Means and covariances of the last poll.
    fn polled_parameters<T: Number>(
        &self,
        rows: &Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
    ) -> (Array2<f64>, Covariances) {
        let (k, d) = (plan.shape.k as usize, rows.d);
        let polled = self.polled.as_slice();
        let means = &polled[workspace.means.clone()];
        let means = Array2::from_shape_fn((k, d), |(c, j)| means[c * d + j] + rows.shift[j]);
        (means, unpack(plan.shape.kind, k, d, &polled[workspace.covariances.clone()]))
    }
}

/// Enqueues a pass over the rows of a launch, which leaves their sums, or adds them to those there.
pub(super) fn pass_of(launch: &Launch<'_>, iteration: u32, accumulate: bool) -> Result<(), Error> {
    let Launch { launcher, plan, buffers, .. } = launch;
    plan.path.enqueue(launch, iteration)?;
    let (partials, sums) = (&buffers.partials, plan.layout.sums());
    launcher.reduce_blocks(partials, plan.grid.partials.into(), sums, &buffers.sums, accumulate)
}

/// Calls `work` with what the launches for a section's rows need.
pub(super) fn for_section<T: Number>(
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    buffers: &LoopBuffers,
    range: Range<usize>,
    work: impl FnOnce(&Launch<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let norms_from = if rows.streamed.is_some() { 0 } else { range.start as u64 };
    let chunk = LoopRows::of(&rows.stage(range)?);
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
    let words = words(&least.iter().map(|scale| scale.to_bits()).collect::<Vec<_>>());
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
    Ok(integers(&words).map(f32::from_bits).collect())
}
