//! Evaluations of one mixture on small sets of rows, one after another: the mixture is prepared once, and the workspace is
//! kept.

use std::sync::{Mutex, PoisonError};

use gmm_model::{Dataset, Mixture};

use super::CpuEngine;
use super::layout::Layout;
use super::passes::Passes;
use super::simd::Dispatch;
use super::terms::Terms;
use crate::engine::{Scorer, check_features};
use crate::nearby::Skip;
use crate::{Error, EvaluateOptions, Evaluation, shift};

/// A mixture in the form that the kernels read, with the workspace of its evaluations.
pub(super) struct CpuScorer<T> {
    terms: Terms<T>,
    shift: Vec<f64>,
    passes: Mutex<Passes<T>>,
}

impl<T: Dispatch> CpuScorer<T> {
    pub(super) fn new(engine: &CpuEngine, mixture: &Mixture) -> Self {
        let shift = shift::of_mixture(mixture);
        let passes = Mutex::new(Passes::new(engine.machine, engine.pool.clone(), Skip::Never));
        Self { terms: Terms::new(mixture, &shift), shift, passes }
    }
}

impl<T: Dispatch> Scorer for CpuScorer<T> {
    fn evaluate(&self, data: &Dataset, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        check_features(data.n_features(), self.terms.d)?;
        crate::Data::from(data).require_exact("an evaluation by a scorer")?;
        // After a panic the workspace is sized anew.
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = passes.machine();
        // The workspace has no buffer for blocks that were not copied.
        let layout = passes.make_layout(data.rows().dim(), || Layout::new(machine, data, &self.shift, u128::MAX))?;
        passes.evaluate(&layout, &self.terms, want)
    }
}
