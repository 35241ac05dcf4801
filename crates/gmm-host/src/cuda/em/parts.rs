//! Passes over parts of the rows, such as the utterances of many speakers, each with statistics of its own.
//!
//! The rows are loaded once, each part from a tile on. A part has too few rows for all multiprocessors, so several
//! [lanes](Lane) run at the same time, each with parts that follow one another on its stream without a wait. While one batch of
//! parts runs, the host converts the sums of the batch before.

use std::ops::Range;

use cust::event::Event;
use cust::memory::AsyncCopyDestination;
use gmm_model::{Mixture, Statistics};
use rayon::prelude::*;

use super::device_loop::{Loop, Member, pass_of};
use super::lanes::{LANES, Lane};
use super::path::{EmPath, Launch, LoopPlan, LoopRows};
use super::run;
use super::sums::Unpacked;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::driver::buffers::{pin, pinned_empty};
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::Launcher;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::em::EmOptions;

/// Bytes of pinned memory for the sums of two batches.
const PINNED: usize = 128 << 20;

/// Most parts of a batch: some for every thread, and few, since the conversion of the last batch overlaps with no pass.
const BATCH: usize = 16;

/// A part: its rows, which begin at a tile, and their total weight.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) rows: Range<usize>,
    pub(crate) total_weight: f64,
}

/// Calls `each` with the statistics of every part, from several threads. With `top`, rows have responsibilities among as many
/// components only, those of largest density. Returns false if no path keeps enough
/// precision, or memory lacks: `each` may then have been called for some parts.
///
/// # Errors
/// As for a pass; the first error of `each`.
pub(crate) fn pass_parts<T: Number>(
    Member { em, rows }: Member<'_, T>,
    paths: &[&'static dyn EmPath],
    mixture: &Mixture,
    (parts, top): (&[Part], Option<usize>),
    each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
) -> Result<bool, Error> {
    let Some(plan) = plan_of(rows, paths, mixture, parts, top)? else { return Ok(false) };
    let done = on_path(em, rows, &plan, mixture, parts, each);
    if done.is_err() {
        rows.recover();
    }
    match done {
        Err(Error::Memory { .. }) => Ok(false),
        done => done,
    }
}

/// The plan of passes over parts on the first path that can; `None` if there is none.
pub(super) fn plan_of<T: Number>(
    rows: &Rows<T>,
    paths: &[&'static dyn EmPath],
    mixture: &Mixture,
    parts: &[Part],
    top: Option<usize>,
) -> Result<Option<LoopPlan>, Error> {
    let options =
        EmOptions { tol: 0.0, max_iter: 1, reg_covar: 0.0, precision: rows.precision, autotune: false, fast: false };
    let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
    let longest = parts.iter().map(|part| part.rows.len()).max().unwrap_or(0);
    let takes = |path: &dyn EmPath| !path.leaves_out_components() && (top.is_none() || path.takes_largest());
    let Some(&path) = paths.iter().find(|path| takes(**path)) else { return Ok(None) };
    let Some(plan) = run::plan_over(rows, shape, path, &options, (0, longest))? else { return Ok(None) };
    // Sections are parts: features that a path keeps for a single section are not.
    Ok(Some(LoopPlan { sections: parts.len().max(2), largest: top.map_or(0, |top| top as u32), ..plan }))
}

/// As [`pass_parts`], on one path.
fn on_path<T: Number>(
    em: &mut Loop,
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    mixture: &Mixture,
    parts: &[Part],
    each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
) -> Result<bool, Error> {
    let workspace = Workspace::of(plan);
    let len = plan.layout.sums() as usize;
    let batch = (PINNED / (16 * len)).clamp(1, BATCH);
    let mut pinned = [pinned_empty(), pinned_empty()];
    pinned.iter_mut().try_for_each(|half| pin(&rows.gpu, half, batch * len))?;
    let mut others: Vec<Loop> = (1..LANES.min(parts.len())).map(|_| Loop::empty()).collect();
    // Dropped before the pinned memory: they then wait for their streams, which use that.
    let lanes = Lane::open([em].into_iter().chain(&mut others), rows, plan, &workspace, mixture)?;
    let shift = rows.shift.clone();
    // A result of each thread, used again, so that no memory is allocated for a part.
    let zero = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    let mut results = vec![zero; rayon::current_num_threads().min(batch)];
    let mut before: Option<(usize, &[Part])> = None;
    for (number, some) in parts.chunks(batch).map(Some).chain([None]).enumerate() {
        let [ref mut even, ref mut odd] = pinned;
        let (filling, full) = if number % 2 == 0 { (even, odd) } else { (odd, even) };
        if let Some(some) = some {
            let slots = filling.as_mut_slice()[..batch * len].chunks_exact_mut(len);
            for ((part, slot), lane) in some.iter().zip(slots).zip(lanes.iter().cycle()) {
                lane.pass(rows, plan, &workspace, part.rows.clone(), slot)?;
            }
            lanes.iter().try_for_each(|lane| lane.mark(&rows.gpu, number))?;
        }
        if let Some((first, done)) = before {
            lanes.iter().try_for_each(|lane| lane.reach(&rows.gpu, number - 1))?;
            let of = |i: usize, part: &Part, sums: &[f64], result: &mut Statistics| {
                let unpacked = Unpacked { plan, sums, shift: &shift, scatter: None, mixture, of_part: true };
                match unpacked.fill(result, part.total_weight, part.rows.len()) {
                    Some(()) => each(first + i, result).map(|()| true),
                    None => Ok(false),
                }
            };
            if !convert(done, &full.as_slice()[..done.len() * len], &mut results, &of)? {
                return Ok(false);
            }
        }
        before = some.map(|some| (number * batch, some));
    }
    lanes.iter().try_fold(true, |kept, lane| Ok(lane.kept_precision(&rows.gpu, &workspace)? && kept))
}

impl Lane<'_> {
    /// Enqueues a pass over a part, and a copy of its sums to the pinned `slot`.
    fn pass<T: Number>(
        &self,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        part: Range<usize>,
        slot: &mut [f64],
    ) -> Result<(), Error> {
        let buffers = workspace.buffers(&self.em.numbers, &self.em.flags);
        let norms_from = part.start as u64;
        let chunk = LoopRows::of(&rows.stage(part)?);
        let launcher = Launcher { gpu: &rows.gpu, queue: &self.queue };
        pass_of(&Launch { launcher, plan, rows: &chunk, norms_from, buffers: &buffers }, 1, false)?;
        // SAFETY: the slot is pinned, is read only after `reach` of its batch, and is freed after the lane.
        let copied = unsafe { buffers.sums.index(..slot.len()).async_copy_to(slot, &self.queue.stream) };
        rows.gpu.check("a copy of sums from the device", copied)
    }

    /// Marks the end of a batch on the stream.
    fn mark(&self, gpu: &Gpu, batch: usize) -> Result<(), Error> {
        gpu.check("an event", self.end_of(batch).record(&self.queue.stream))
    }

    /// Waits for the end of a batch.
    fn reach(&self, gpu: &Gpu, batch: usize) -> Result<(), Error> {
        self.queue.explain(gpu, self.end_of(batch).synchronize())
    }

    /// At most two batches have not been waited for.
    fn end_of(&self, batch: usize) -> &Event {
        let (even, odd) = &*self.queue.clock;
        if batch.is_multiple_of(2) { even } else { odd }
    }
}

/// Handles the sums of the part of the given index in a batch, in the memory of a result; false if they lost precision.
type Convert<'a> = dyn Fn(usize, &Part, &[f64], &mut Statistics) -> Result<bool, Error> + Sync + 'a;

/// Calls `of` with each part and its sums, on as many threads as there are `results`; false if one of the calls returned that.
fn convert(parts: &[Part], sums: &[f64], results: &mut [Statistics], of: &Convert<'_>) -> Result<bool, Error> {
    let len = sums.len() / parts.len();
    let share = parts.len().div_ceil(results.len());
    let shares = parts.par_chunks(share).zip(sums.par_chunks(share * len)).zip(results).enumerate();
    let ended = shares.map(|(thread, ((parts, sums), result))| {
        let mut all = parts.iter().zip(sums.chunks_exact(len)).enumerate();
        all.try_fold(true, |good, (i, (part, sums))| Ok(of(thread * share + i, part, sums, result)? && good))
    });
    let ended: Vec<Result<bool, Error>> = ended.collect();
    ended.into_iter().try_fold(true, |all, one| Ok(all && one?))
}
