//! Work for each of many groups, at the same time where one does not fill the engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gmm_model::Dataset;

use super::Groups;
use crate::cpu::FEW_NUMBERS;
use crate::{Engine, Error};

/// Calls `work` with the index of each of `count` jobs, on several threads if the engine offers it for jobs of this
/// shape and `concurrent` is set. The jobs begin in order, and stop beginning once `work` returns `false`.
pub(super) fn share_out(
    engine: &dyn Engine,
    shape: (usize, usize),
    (count, concurrent): (usize, bool),
    work: &(dyn Fn(&dyn Engine, usize) -> bool + Sync),
) {
    let next = AtomicUsize::new(0);
    let on_part = |part: &dyn Engine| {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= count || !work(part, job) {
                return;
            }
        }
    };
    if count < 2 || !concurrent || !engine.concurrently(shape, &on_part) {
        on_part(engine);
    }
}

/// Work for one group: gets an engine for it, its index, and its rows.
pub type GroupWork<'a, R> = dyn Fn(&dyn Engine, usize, &Dataset) -> Result<R, Error> + Sync + 'a;

/// Calls `work` with the rows of each group, such as to evaluate a model of its own, and an engine for them. The results
/// are in the order of the groups.
///
/// # Errors
/// Each entry: the error of `work`; [`Error::Data`] for an empty group.
pub fn map_groups<R: Send>(engine: &dyn Engine, groups: &Groups<'_>, work: &GroupWork<'_, R>) -> Vec<Result<R, Error>> {
    let d = groups.data.n_features();
    let done: Mutex<Vec<Option<Result<R, Error>>>> = Mutex::new((0..groups.len()).map(|_| None).collect());
    let is_large = |&group: &usize| groups.rows[group].len().saturating_mul(d) > FEW_NUMBERS;
    let (large, small): (Vec<usize>, Vec<usize>) = (0..groups.len()).partition(is_large);
    for chosen in [large, small] {
        let n = chosen.iter().map(|&group| groups.rows[group].len()).max().unwrap_or(0);
        share_out(engine, (n, d), (chosen.len(), true), &|part, i| {
            let group = chosen[i];
            let result = groups.part(group).and_then(|rows| work(part, group, &rows));
            done.lock().unwrap_or_else(PoisonError::into_inner)[group] = Some(result);
            true
        });
    }
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter().map(|result| result.expect("each group is worked on")).collect()
}
