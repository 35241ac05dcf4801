//! Evaluations of one mixture on small sets of rows, one after another: the mixture is prepared once, and the workspace is
//! kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gmm_model::{Dataset, Mixture};

use super::CpuEngine;
use super::layout::Layout;
use super::passes::Passes;
use super::simd::{Dispatch, Machine};
use super::terms::Terms;
use crate::engine::{Scorer, check_features};
use crate::nearby::Skip;
use crate::{Error, EvaluateOptions, Evaluation, shift};

/// A mixture in the form that the kernels read, with the workspaces of its evaluations.
pub(super) struct CpuScorer<T> {
    terms: Terms<T>,
    shift: Vec<f64>,
    machine: Machine,
    pool: Arc<rayon::ThreadPool>,
    /// Workspaces that no call uses now: at most as many as there ever were calls at a time.
    spare: Mutex<Vec<Passes<T>>>,
    /// Calls in progress.
    calls: AtomicUsize,
}

impl<T: Dispatch> CpuScorer<T> {
    pub(super) fn new(engine: &CpuEngine, mixture: &Mixture) -> Self {
        let shift = shift::of_mixture(mixture);
        let (machine, pool) = (engine.machine, engine.pool.clone());
        let terms = Terms::new(mixture, &shift);
        Self { terms, shift, machine, pool, spare: Mutex::default(), calls: AtomicUsize::new(0) }
    }
}

impl<T: Dispatch> Scorer for CpuScorer<T> {
    fn evaluate(&self, data: &Dataset, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        // A call beside others computes on its own thread: they keep the cores busy, and its rows are in that core's cache.
        let call = Call::begin(&self.calls);
        self.evaluate_on(data, want, call.is_first)
    }

    fn evaluate_here(&self, data: &Dataset, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        let _call = Call::begin(&self.calls);
        self.evaluate_on(data, want, false)
    }
}

impl<T: Dispatch> CpuScorer<T> {
    fn evaluate_on(
        &self,
        data: &Dataset,
        want: EvaluateOptions<'_>,
        on_all_threads: bool,
    ) -> Result<Evaluation, Error> {
        check_features(data.n_features(), self.terms.d)?;
        crate::Data::from(data).require_exact("an evaluation by a scorer")?;
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare().pop();
        let mut passes = found.unwrap_or_else(|| Passes::new(self.machine, self.pool.clone(), Skip::Never));
        // Rows that are read once are not copied as a whole: each block is made in the cache, to the same bits. Rows of a
        // data set are always shared, so that each layout is of this kind, as the workspace is.
        let layout = Layout::new(self.machine, data, &self.shift, 0)?;
        let found = passes.evaluate_on(&layout, &self.terms, want, on_all_threads);
        // A workspace of a call that panicked is not used again.
        spare().push(passes);
        found
    }
}

/// A call in progress, also if it ends by a panic.
struct Call<'a> {
    calls: &'a AtomicUsize,
    is_first: bool,
}

impl<'a> Call<'a> {
    fn begin(calls: &'a AtomicUsize) -> Self {
        Self { calls, is_first: calls.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
