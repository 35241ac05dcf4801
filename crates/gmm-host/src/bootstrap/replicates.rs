//! The fits of a bootstrap's replicates: one after another, or many in one call of an engine that has a way of its own for
//! small fits.

use std::collections::VecDeque;
use std::ops::Range;

use gmm_model::{Dataset, Draws, Matrix};

use super::{BootstrapOptions, Resampling};
use crate::many::{Job, small};
use crate::{Engine, Error, Fit, FitOptions, fit};

/// Most bytes of the rows of the replicates that are fitted together.
const MOST_BYTES: usize = 256 << 20;

/// Most replicates that are fitted together: they fill a device, and their fits take some tens of megabytes.
const MOST: usize = 4096;

/// The fits of replicates 0, 1, 2, and so on. The draws of each depend only on the seed and its index.
pub(super) struct ReplicateFits<'a> {
    engine: &'a dyn Engine,
    data: &'a Dataset,
    /// The rows of `data`, shared by replicates that are fitted alone.
    rows: Matrix,
    options: &'a FitOptions,
    how: &'a BootstrapOptions,
    /// Index of the next replicate.
    next: u64,
    /// The next replicates, if they were fitted together; `None` for those to fit alone.
    ended: VecDeque<Option<Result<Fit, Error>>>,
    /// Most replicates to fit together; 0 if the engine has no way for that.
    together: usize,
}

impl<'a> ReplicateFits<'a> {
    pub(super) fn new(
        engine: &'a dyn Engine,
        data: &'a Dataset,
        options: &'a FitOptions,
        how: &'a BootstrapOptions,
    ) -> Self {
        let (n, d) = data.rows().dim();
        // Of rows drawn with replacement, about 1 - 1/e are different ones.
        let different = match how.resampling {
            Resampling::Nonparametric => n - n * 3 / 8,
            Resampling::Weighted => n,
        };
        let is_plain = !data.has_missing() && !data.is_indirect() && options.concurrent && small::is_short(options);
        let bytes = n.saturating_mul(8 * d + 16);
        let together = if is_plain && engine.takes_small((different, d), options) { MOST_BYTES / bytes } else { 0 };
        let rows = data.rows().clone().into_shared();
        Self { engine, data, rows, options, how, next: 0, ended: VecDeque::new(), together: together.min(MOST) }
    }

    /// The fit of the next replicate, of which the caller wants `wanted` more.
    ///
    /// # Errors
    /// As for [`fit()`].
    pub(super) fn next(&mut self, wanted: usize) -> Result<Fit, Error> {
        if self.ended.is_empty() && wanted.min(self.together) > 1 {
            self.ended = self.fit_together(wanted.min(self.together)).into();
            if self.ended.iter().all(Option::is_none) {
                self.together = 0;
            }
        }
        let replicate = self.next;
        self.next += 1;
        if let Some(found) = self.ended.pop_front().flatten() {
            return found;
        }
        let rows = self.rows.cheap_clone().unwrap_or_else(|| self.rows.clone());
        fit(self.engine, &Dataset::new(rows)?.with_weights(self.weights(replicate))?, self.options)
    }

    /// The fits of the next replicates, each of the rows of positive weight; `None` for those to fit alone.
    fn fit_together(&self, count: usize) -> Vec<Option<Result<Fit, Error>>> {
        let (mut chosen, mut weights) = (Vec::new(), Vec::new());
        let mut add = |replicate: u64| -> Range<usize> {
            let first = chosen.len();
            for (row, weight) in self.weights(replicate).into_iter().enumerate().filter(|(_, weight)| *weight > 0.0) {
                chosen.push(row);
                weights.push(weight);
            }
            first..chosen.len()
        };
        let rows: Vec<Range<usize>> = (self.next..self.next + count as u64).map(&mut add).collect();
        match self.data.select_rows(&chosen).with_weights(weights) {
            Ok(table) => {
                let jobs: Vec<Job<'_>> = rows.into_iter().map(|rows| Job { rows, options: self.options }).collect();
                small::run(self.engine, &table, &jobs)
            }
            // Some replicate has this error too, alone.
            Err(_) => rows.iter().map(|_| None).collect(),
        }
    }

    /// The row weights of a replicate, `(n,)`.
    fn weights(&self, replicate: u64) -> Vec<f64> {
        weights(self.data, self.how.resampling, &mut Draws::for_purpose("bootstrap", self.how.seed, replicate))
    }
}

/// The row weights of one replicate, `(n,)`.
fn weights(data: &Dataset, resampling: Resampling, draws: &mut Draws) -> Vec<f64> {
    let n = data.n_rows();
    if resampling == Resampling::Weighted {
        return (0..n).map(|i| -libm::log(1.0 - draws.uniform()) * data.weight(i)).collect();
    }
    let mut counts = vec![0.0; n];
    match data.weights() {
        Some(weights) if weights.iter().all(|w| w.fract() == 0.0) => {
            let mut sum = 0.0;
            let ends: Vec<f64> = weights
                .iter()
                .map(|w| {
                    sum += w;
                    sum
                })
                .collect();
            (0..sum as u64).for_each(|_| counts[draws.weighted_index(&ends)] += 1.0);
        }
        _ => {
            (0..n).for_each(|_| counts[draws.index(n)] += 1.0);
            counts.iter_mut().enumerate().for_each(|(i, count)| *count *= data.weight(i));
        }
    }
    counts
}
