//! Rows that are known only within limits: passes over censored, rounded and truncated rows.
//!
//! The model is that of [`gmm_model::censoring`]. A pass returns the expected statistics of the rows behind the limits, and of
//! those that truncation kept from being recorded, so that fits, likelihoods, gradients and rules need no more. All is `f64`.
//!
//! [`patterns`] sorts rows by which of their values are exact, limited or missing; [`pass`] makes the passes. With the columns
//! in that order and `Σ = L Lᵀ`, `x − μ = L z`, the exact values determine the first entries of `z`, the limited ones restrict
//! the next to a [`Region`](gmm_model::censoring::Region), and the last are free: independent standard normal. So sums are
//! taken over `z`, and multiplied by `L` once per pattern.
//!
//! k-means and the moments of given responsibilities use a value within each interval.

mod pass;
mod patterns;

use std::sync::Arc;

use gmm_model::{Dataset, Mixture, Statistics};

use crate::deconvolution::MeasuredPasses;
use crate::{Data, Error, EvaluateOptions, Evaluation};
use patterns::Patterns;

/// The lines of a fit's record about limits.
pub(crate) fn lines(data: Data<'_>) -> Vec<String> {
    let Some(limits) = data.limits() else { return Vec::new() };
    let mut lines = Vec::new();
    if limits.n_limited() > 0 {
        lines.push(format!("{} values known within limits", limits.n_limited()));
    }
    if let Some((lower, upper)) = limits.truncation() {
        let ends = lower.iter().zip(upper).enumerate().filter(|(_, (low, high))| low.is_finite() || high.is_finite());
        let line = |(j, (low, high))| format!("rows truncated to {low} to {high} in column {}", data.column_name(j));
        lines.extend(ends.map(line));
    }
    lines
}

/// Passes over rows within limits.
pub(crate) struct LimitedPasses {
    pool: Arc<rayon::ThreadPool>,
    data: Dataset,
    patterns: Patterns,
}

impl LimitedPasses {
    /// `data` has limits.
    pub(crate) fn new(pool: Arc<rayon::ThreadPool>, data: Dataset) -> Self {
        let patterns = Patterns::of(data.limits().expect("rows with limits"), data.rows().dim());
        Self { pool, data, patterns }
    }
}

impl MeasuredPasses for LimitedPasses {
    fn pass(&self, mixture: &Mixture) -> Result<Statistics, Error> {
        pass::statistics(&self.pool, &self.data, &self.patterns, mixture)
    }

    fn evaluate(&self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        pass::evaluate(&self.pool, &self.data, &self.patterns, mixture, want)
    }

    fn of_rows(&self, data: Dataset) -> Result<Box<dyn MeasuredPasses>, Error> {
        Ok(Box::new(Self::new(self.pool.clone(), data)))
    }
}
