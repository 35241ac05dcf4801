//! EM on the device: the host enqueues iterations, and looks now and then.

mod plans;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::fused::state::{DONE, FINISHED, STATE_LEN, TROUBLE};
use gmm_kernels::fused::update::TRACE;
use gmm_model::{CovarianceType, Mixture};
use ndarray::{Array1, Array2};

use super::arena::Arena;
use super::launch::{Kernels, Launcher, LoopBuffers, LoopPlan};
use super::packing::{pack, unpack};
use super::rows::CudaRows;
use super::upload::Number;
use super::ways::{Asked, Way};
use super::workspace::{Pinned, Slot, pin, pinned_empty};
use crate::em::{EmOptions, EmRun, OnDevice};
use crate::{Error, Resident};

/// What the loop keeps between fits of the same rows.
pub(crate) struct LoopMemory {
    numbers: Slot<f64>,
    flags: Slot<u32>,
    /// What a look brings, pinned.
    seen: Pinned<f64>,
    seen_flags: Pinned<u32>,
    /// Packed Σ w x xᵀ about the shift, once it was needed.
    pub(super) scatter: Option<Vec<f64>>,
}

impl LoopMemory {
    pub(crate) fn empty() -> Self {
        Self {
            numbers: Slot::empty(),
            flags: Slot::empty(),
            seen: pinned_empty(),
            seen_flags: pinned_empty(),
            scatter: None,
        }
    }
}

/// Time between looks that is aimed at, in seconds: an interrupt is answered and a progress bar moves.
const BETWEEN_LOOKS: f64 = 0.03;

/// Iterations between looks at most.
const MOST_BETWEEN_LOOKS: f64 = 64.0;

#[cfg(test)]
thread_local! {
    /// A test of what looks leave sets how many iterations lie between them at most, on its own thread.
    pub(super) static LOOK_AFTER: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
}

/// Why a loop came to an end.
pub(super) enum Left {
    /// It converged, or was asked for no more iterations.
    AtTheEnd,
    /// Too many digits would have been lost, or a covariance was not positive definite.
    ForDigits,
    ForMemory,
}

impl<T: Number> CudaRows<T> {
    /// [`Resident::iterate`]: by the best way that there is; where that loses too many digits the next goes on from the last
    /// look, and in the end none does, but the host.
    pub(crate) fn iterate_here(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // An iteration before the first is known only to the host, which compares likelihoods.
        if run.iterations > 0 || options.max_iter == 0 {
            return Ok(());
        }
        let shape = self.shape(run.mixture.covariance_type(), run.mixture.n_components());
        let mut ways = self.possible(&shape, Asked { fast: options.fast, ..self.asked() });
        if options.autotune {
            self.tune(&shape, &mut ways, run, options)?;
        }
        // What one way by heads, or by two halves, lacks the digits for, others by the same do too.
        let mut lacking = [false; 2];
        for way in ways {
            if way.by_heads().is_some_and(|one| lacking[usize::from(one)]) {
                continue;
            }
            let Some(plan) = self.loop_plan(shape, way, options, run.iterations)? else { return Ok(()) };
            match self.iterate_as(way, &plan, run, options, seen)? {
                Left::AtTheEnd => return Ok(()),
                // What these two lose the others may keep; what those lose is lost by all that have features.
                Left::ForDigits if !matches!(way, Way::Halves(_) | Way::Warpgroups(_) | Way::Narrow(_)) => {
                    return Ok(());
                }
                Left::ForDigits => {
                    if let Some(one) = way.by_heads() {
                        lacking[usize::from(one)] = true;
                    }
                }
                Left::ForMemory => {}
            }
        }
        Ok(())
    }

    pub(super) fn iterate_as(
        &mut self,
        way: Way,
        plan: &LoopPlan,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<Left, Error> {
        let arena = Arena::of(plan);
        match self.reserve_loop(plan, &arena) {
            // Passes in chunks need less.
            Err(Error::Memory { .. }) => return Ok(Left::ForMemory),
            other => other?,
        }
        self.begin(plan, &arena, &run.mixture)?;
        let buffers = self.loop_buffers(plan, &arena);
        let mut first_guess = guess(plan);
        let clock = self.queue.clock.clone();
        let (from, to) = &*clock;
        let before = run.iterations;
        let earlier = run.on_device.unwrap_or_default();
        let mut time = OnDevice { way: way.name(), ..earlier };
        let mut next = 1;
        loop {
            let batch = (BETWEEN_LOOKS / first_guess).clamp(1.0, MOST_BETWEEN_LOOKS) as u32;
            #[cfg(test)]
            let batch = batch.min(LOOK_AFTER.get());
            let last = plan.max_iter.min(next + batch - 1);
            let chunk = self.whole();
            let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
            self.gpu.check("an event", from.record(&self.queue.stream))?;
            for iteration in next..=last {
                launcher.loop_pass(plan, iteration, &chunk, &buffers)?;
                launcher.update(plan, iteration, &buffers)?;
            }
            self.gpu.check("an event", to.record(&self.queue.stream))?;
            self.look(&arena, &buffers)?;
            let seconds = f64::from(self.gpu.check("an event", to.elapsed_time_f32(from))?) / 1e3;
            let flags = self.loop_memory.seen_flags.as_slice();
            let (done, trouble, finished) = (flags[DONE as usize], flags[TROUBLE as usize], flags[FINISHED as usize]);
            // What came before a trouble is good, but its parameters are gone: who goes on does so from the last look.
            if trouble != 0 {
                tracing::debug!(
                    way = way.name(),
                    iteration = before + trouble as usize,
                    "the loop on the device leaves off"
                );
                return Ok(Left::ForDigits);
            }
            let Some(mixture) = self.seen_mixture(plan, &arena) else { return Ok(Left::ForDigits) };
            let known = run.iterations;
            let values = self.loop_memory.seen.as_slice();
            run.trace.extend((next..=finished).map(|i| values[((i - 1) as u64 % TRACE) as usize]));
            run.mixture = mixture;
            run.iterations = before + finished as usize;
            run.empty = (0..plan.shape.k as usize).filter(|c| flags[STATE_LEN + c] != 0).collect();
            run.converged = done != 0 && last_change(&run.trace) < options.tol;
            time.iterations = earlier.iterations + finished as usize;
            time.time += std::time::Duration::from_secs_f64(seconds);
            run.on_device = Some(time);
            seen(run, known)?;
            if done != 0 || run.finished {
                return Ok(Left::AtTheEnd);
            }
            first_guess = seconds / f64::from(last - next + 1);
            next = last + 1;
        }
    }

    /// Sees to it that Σ w x xᵀ about the shift is known.
    pub(super) fn know_scatter(&mut self) -> Result<(), Error> {
        if self.loop_memory.scatter.is_none() {
            let centre = Array2::from_shape_vec((1, self.d), self.shift.clone()).expect("d values");
            let statistics = self.nearest(CovarianceType::Tied, centre.view())?;
            self.loop_memory.scatter = Some(statistics.second);
        }
        Ok(())
    }

    fn reserve_loop(&mut self, plan: &LoopPlan, arena: &Arena) -> Result<(), Error> {
        if plan.shape.kind == CovarianceType::Tied {
            self.know_scatter()?;
        }
        let flags = STATE_LEN + plan.shape.k as usize;
        let wanted = 8 * arena.len as u128 + 4 * flags as u128;
        let have = self.loop_memory.numbers.bytes() + self.loop_memory.flags.bytes();
        self.room("the loop on the GPU", wanted, have)?;
        let (gpu, memory) = (&self.gpu, &mut self.loop_memory);
        memory.numbers.reserve(gpu, arena.len)?;
        memory.flags.reserve(gpu, flags)?;
        pin(gpu, &mut memory.seen, arena.seen())?;
        pin(gpu, &mut memory.seen_flags, flags)
    }

    fn loop_buffers(&self, plan: &LoopPlan, arena: &Arena) -> LoopBuffers {
        let numbers = arena.all(&self.loop_memory.numbers);
        let flags = self.loop_memory.flags.first(STATE_LEN + plan.shape.k as usize);
        let at = |range: &std::ops::Range<usize>| numbers.index(range.clone());
        LoopBuffers {
            state: flags.index(..STATE_LEN),
            empty: flags.index(STATE_LEN..),
            trace: at(&arena.trace),
            weights: at(&arena.weights),
            means: at(&arena.means),
            covariances: at(&arena.covariances),
            carry: at(&arena.carry),
            constants: at(&arena.constants),
            coefficients: at(&arena.coefficients),
            roots: (!arena.roots.is_empty()).then(|| at(&arena.roots)),
            sums: at(&arena.sums),
            scatter: (!arena.scatter.is_empty()).then(|| at(&arena.scatter)),
            matrices: (!arena.matrices.is_empty()).then(|| at(&arena.matrices)),
            partials: at(&arena.partials),
            between: arena.between(&numbers),
            coded: arena.coded(&numbers),
        }
    }

    /// Parameters to the device, and coefficients from them.
    fn begin(&mut self, plan: &LoopPlan, arena: &Arena, start: &Mixture) -> Result<(), Error> {
        let d = self.d;
        let b = self.loop_buffers(plan, arena);
        let memory = &mut self.loop_memory;
        let host = memory.seen.as_mut_slice();
        host[..arena.seen()].fill(0.0);
        for (slot, w) in host[arena.weights.clone()].iter_mut().zip(start.weights()) {
            *slot = *w;
        }
        for (i, (slot, m)) in host[arena.means.clone()].iter_mut().zip(start.means()).enumerate() {
            *slot = m - self.shift[i % d];
        }
        pack(start.covariances(), &mut host[arena.covariances.clone()]);
        let stream = &self.queue.stream;
        let seen = &memory.seen.as_slice()[..arena.seen()];
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `run` sees to it.
        let copied = unsafe { memory.numbers.first(arena.seen()).async_copy_from(seen, stream) };
        self.gpu.check("a copy of parameters to the device", copied)?;
        if let (Some(to), Some(scatter)) = (b.scatter, &memory.scatter) {
            let to_len = scatter.len();
            // SAFETY: the driver takes pageable memory's content before it returns.
            let copied = unsafe { to.index(..to_len).async_copy_from(&scatter[..], stream) };
            self.gpu.check("a copy of moments to the device", copied)?;
        }
        let mut zeroed = arena.all(&memory.numbers).index(arena.zeroed.clone());
        let mut flags = memory.flags.first(STATE_LEN + plan.shape.k as usize);
        // SAFETY: the loop's own buffers, and the stream keeps the order.
        let set = unsafe { zeroed.set_8_async(0, stream).and_then(|()| flags.set_8_async(0, stream)) };
        self.gpu.check("clearing a loop's state", set)?;
        if plan.kernels.chunks().is_some() {
            // Features that fill up a last step have no lane that writes them, and are added up with the others.
            let mut partials = b.partials;
            // SAFETY: as above.
            let set = unsafe { partials.set_8_async(0, stream) };
            self.gpu.check("clearing partial results", set)?;
        }
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        match (plan.kernels, b.between.and_then(|between| between.norms)) {
            (Kernels::Halves(..), _) => launcher.scales(&plan.shape, &self.whole(), &b)?,
            (Kernels::Warpgroups(of, chunks), _) => {
                launcher.scales(&plan.shape, &self.whole(), &b)?;
                launcher.features(&plan.shape, of, &chunks, &self.whole(), &b)?;
            }
            (_, Some(norms)) => launcher.norms(&plan.shape, &self.whole(), &norms)?,
            _ => {}
        }
        launcher.update(plan, 0, &b)
    }

    /// Brings trace, parameters and flags, and waits for them.
    fn look(&mut self, arena: &Arena, b: &LoopBuffers) -> Result<(), Error> {
        let (stream, memory) = (&self.queue.stream, &mut self.loop_memory);
        let flags = STATE_LEN + b.empty.len();
        // SAFETY: pinned; read only after the wait below.
        let copied = unsafe {
            memory
                .numbers
                .first(arena.seen())
                .async_copy_to(&mut memory.seen.as_mut_slice()[..arena.seen()], stream)
                .and_then(|()| {
                    memory.flags.first(flags).async_copy_to(&mut memory.seen_flags.as_mut_slice()[..flags], stream)
                })
        };
        self.gpu.check("a copy of results from the device", copied)?;
        self.queue.wait(&self.gpu)
    }

    /// The mixture that the last look brought; none where it is not one.
    fn seen_mixture(&self, plan: &LoopPlan, arena: &Arena) -> Option<Mixture> {
        let (k, d) = (plan.shape.k as usize, self.d);
        let seen = self.loop_memory.seen.as_slice();
        let mut weights = Array1::from_iter(seen[arena.weights.clone()].iter().copied());
        weights /= weights.sum();
        let means = Array2::from_shape_fn((k, d), |(c, j)| seen[arena.means.start + c * d + j] + self.shift[j]);
        let covariances = unpack(plan.shape.kind, k, d, &seen[arena.covariances.clone()]);
        Mixture::new(weights, means, covariances).ok()
    }
}

/// Seconds that an iteration may take: to decide when to look for the first time.
fn guess(plan: &LoopPlan) -> f64 {
    let products = plan.shape.n as f64 * plan.kernels.place().coefficients() as f64 / 8.0;
    1e-5 + products / 1e12
}

fn last_change(trace: &[f64]) -> f64 {
    match trace {
        [.., a, b] => (b - a).abs(),
        _ => f64::INFINITY,
    }
}
