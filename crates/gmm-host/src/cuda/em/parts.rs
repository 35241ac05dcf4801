//! Passes over parts of the rows, such as the utterances of many speakers, each with statistics of its own.
//!
//! The rows are loaded once, each part from a tile on. Parts follow one another on the device without a wait; while one
//! batch of them runs, the host converts the sums of the batch before.

use std::ops::Range;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::em::state::{STATE_LEN, TROUBLE};
use gmm_model::{Mixture, Statistics};

use super::device_loop::{Loop, Member, Start};
use super::path::{EmPath, LoopPlan};
use super::run;
use super::sums::Unpacked;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::driver::buffers::{pin, pinned_empty};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::em::EmOptions;
use crate::threads::default_threads;

/// Bytes of pinned memory for the sums of two batches.
const PINNED: usize = 128 << 20;

/// Most parts of a batch.
const BATCH: usize = 64;

/// A part: its rows, which begin at a tile, and their total weight.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) rows: Range<usize>,
    pub(crate) total_weight: f64,
}

/// Calls `each` with the statistics of every part, from several threads. Returns false if no path keeps enough
/// precision, or memory lacks: `each` may then have been called for some parts.
///
/// # Errors
/// As for a pass; the first error of `each`.
pub(crate) fn pass_parts<T: Number>(
    Member { em, rows }: Member<'_, T>,
    paths: &[&'static dyn EmPath],
    mixture: &Mixture,
    parts: &[Part],
    each: &(dyn Fn(usize, Statistics) -> Result<(), Error> + Sync),
) -> Result<bool, Error> {
    let options =
        EmOptions { tol: 0.0, max_iter: 1, reg_covar: 0.0, precision: rows.precision, autotune: false, fast: false };
    let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
    let longest = parts.iter().map(|part| part.rows.len()).max().unwrap_or(0);
    let Some(&path) = paths.iter().find(|path| !path.leaves_out_components()) else { return Ok(false) };
    let Some(plan) = run::plan_over(rows, shape, path, &options, (0, longest))? else { return Ok(false) };
    // Sections are parts: features that a path keeps for a single section are not.
    let plan = LoopPlan { sections: parts.len().max(2), ..plan };
    match on_path(em, rows, &plan, mixture, parts, each) {
        Err(Error::Memory { .. }) => Ok(false),
        done => done,
    }
}

fn on_path<T: Number>(
    em: &mut Loop,
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    mixture: &Mixture,
    parts: &[Part],
    each: &(dyn Fn(usize, Statistics) -> Result<(), Error> + Sync),
) -> Result<bool, Error> {
    let workspace = Workspace::of(plan);
    em.reserve(rows, plan, &workspace)?;
    em.begin(rows, plan, &workspace, &Start::of(mixture, None))?;
    let len = plan.layout.sums() as usize;
    let batch = (PINNED / (16 * len)).clamp(1, BATCH);
    let mut pinned = [pinned_empty(), pinned_empty()];
    pinned.iter_mut().try_for_each(|half| pin(&rows.gpu, half, batch * len))?;
    let shift = rows.shift.clone();
    let mut before: Option<(usize, &[Part])> = None;
    for (number, some) in parts.chunks(batch).map(Some).chain([None]).enumerate() {
        let [ref mut even, ref mut odd] = pinned;
        let (filling, full) = if number % 2 == 0 { (even, odd) } else { (odd, even) };
        if let Some(some) = some {
            let slots = filling.as_mut_slice()[..batch * len].chunks_exact_mut(len);
            for (part, slot) in some.iter().zip(slots) {
                em.pass_over(rows, plan, &workspace, std::iter::once(part.rows.clone()), 1)?;
                let sums = workspace.buffers(&em.numbers, &em.flags).sums.index(..len);
                // SAFETY: the slot is pinned, and is read only after the wait below.
                let copied = unsafe { sums.async_copy_to(slot, &rows.queue.stream) };
                rows.gpu.check("a copy of sums from the device", copied)?;
            }
        }
        if let Some((first, done)) = before {
            let of = |part: &Part, sums: &[f64]| {
                let unpacked = Unpacked { plan, sums, shift: &shift, scatter: None, mixture, of_part: true };
                unpacked.statistics(part.total_weight, part.rows.len())
            };
            if !convert(done, &full.as_slice()[..done.len() * len], &|i, part, sums| match of(part, sums) {
                Some(statistics) => each(first + i, statistics).map(|()| true),
                None => Ok(false),
            })? {
                rows.queue.wait(&rows.gpu)?;
                return Ok(false);
            }
        }
        rows.queue.wait(&rows.gpu)?;
        before = some.map(|some| (number * batch, some));
    }
    let mut state = [0; STATE_LEN];
    // SAFETY: read only after the wait below.
    let copied = unsafe {
        let flags = workspace.buffers(&em.numbers, &em.flags).state;
        flags.index(..STATE_LEN).async_copy_to(&mut state[..], &rows.queue.stream)
    };
    rows.gpu.check("a copy of flags from the device", copied)?;
    rows.queue.wait(&rows.gpu)?;
    Ok(state[TROUBLE as usize] == 0)
}

/// Handles the sums of the part of the given index in a batch; false if they lost precision.
type Convert<'a> = dyn Fn(usize, &Part, &[f64]) -> Result<bool, Error> + Sync + 'a;

/// Calls `of` with each part and its sums, on several threads; false if one of the calls returned that.
fn convert(parts: &[Part], sums: &[f64], of: &Convert<'_>) -> Result<bool, Error> {
    let len = sums.len() / parts.len();
    let share = parts.len().div_ceil(default_threads());
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .chunks(share)
            .zip(sums.chunks(share * len))
            .enumerate()
            .map(|(thread, (parts, sums))| {
                scope.spawn(move || {
                    let all = parts.iter().zip(sums.chunks_exact(len)).enumerate();
                    all.map(|(i, (part, sums))| of(thread * share + i, part, sums))
                        .try_fold(true, |good, one| one.map(|one| good && one))
                })
            })
            .collect();
        let ended: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("conversions do not panic")).collect();
        ended.into_iter().try_fold(true, |all, one| Ok(all && one?))
    })
}
