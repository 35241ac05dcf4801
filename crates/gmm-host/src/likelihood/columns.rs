//! Log densities of all rows, one column per component, on the device or the host, and the mixture's log-likelihood
//! from them.

use std::mem;

use gmm_model::{CovarianceType, Mixture};
use rayon::prelude::*;

use super::{Likelihood, RowWeights};
use crate::cpu::Mixing;
use crate::{DeviceColumn, Error, EvaluateOptions, memory};

/// Pieces of [`Mixing::ROWS`] rows per task: enough work that the overhead of a task is negligible.
const PIECES: usize = 16;

/// A column per component, the columns that the last step replaced, and spare columns for the next step.
pub(super) enum Columns {
    /// On the device that stores the rows.
    There(Cache<DeviceColumn>),
    /// On the host, `Mixing::column_len(n)` numbers each.
    Here(Cache<Vec<f64>>, Mixing),
}

pub(super) struct Cache<C> {
    now: Vec<C>,
    /// Component and column that the last step replaced, restored by an undo.
    before: Vec<(usize, C)>,
    /// Unused columns.
    spare: Vec<C>,
}

impl<C> Cache<C> {
    const fn new(now: Vec<C>, spare: Vec<C>) -> Self {
        Self { now, before: Vec::new(), spare }
    }

    /// Replaces the columns of the components `which` by others, and keeps the old ones for an undo. On failure the
    /// columns are unchanged, but the previous step can no longer be undone.
    fn renew(&mut self, which: &[usize], mut make: impl FnMut() -> Result<C, Error>) -> Result<(), Error> {
        self.spare.extend(self.before.drain(..).map(|(_, column)| column));
        let there = self.spare.len();
        while self.spare.len() < which.len() {
            let column = make().inspect_err(|_| self.spare.truncate(there))?;
            self.spare.push(column);
        }
        for &c in which {
            let other = self.spare.pop().expect("as many as that");
            self.before.push((c, mem::replace(&mut self.now[c], other)));
        }
        Ok(())
    }

    fn undo(&mut self) {
        for (c, column) in self.before.drain(..) {
            self.spare.push(mem::replace(&mut self.now[c], column));
        }
    }
}

impl Columns {
    /// Allocates and evaluates the columns of all components. Returns them and Σ w ln p(x).
    pub(super) fn new(likelihood: &mut Likelihood, mixture: &Mixture) -> Result<(Self, f64), Error> {
        let (n, k) = (likelihood.dim().0, mixture.n_components());
        let all: Vec<usize> = (0..k).collect();
        // With a tied covariance all components change at once.
        let spare = if mixture.covariance_type() == CovarianceType::Tied { k } else { 1 };
        let there = on_device(likelihood, k, spare).and_then(|there| match there.map(Self::There) {
            None => Ok(None),
            Some(mut there) => there.value(likelihood, mixture, &all).map(|value| Some((there, value))),
        });
        match there {
            Ok(None) => {}
            Err(Error::Memory { wanted, free, .. }) => {
                tracing::info!(
                    wanted,
                    free,
                    "the GPU lacks the memory for log densities of components: kept on the host"
                );
            }
            Ok(Some(done)) => return Ok(done),
            Err(other) => return Err(other),
        }
        memory::check("log densities kept by component", super::ComponentCache::bytes(n, k))?;
        let now = vec![vec![0.0; Mixing::column_len(n)]; k];
        let mut here = Self::Here(Cache::new(now, Vec::new()), Mixing::detect());
        let value = here.value(likelihood, mixture, &all)?;
        Ok((here, value))
    }

    /// Replaces the columns of the components `which` by others, to be evaluated. The returned step is undone when
    /// dropped unless it is kept.
    pub(super) fn step(&mut self, likelihood: &mut Likelihood, which: &[usize]) -> Result<Step<'_>, Error> {
        self.renew(likelihood, which)?;
        Ok(Step { columns: self, is_kept: false })
    }

    fn renew(&mut self, likelihood: &mut Likelihood, which: &[usize]) -> Result<(), Error> {
        match self {
            Self::There(kept) => kept.renew(which, || {
                let column = likelihood.rows.column()?;
                column.ok_or_else(|| Error::Device("the rows are no longer on a device".to_owned()))
            }),
            Self::Here(kept, _) => {
                let len = kept.now[0].len();
                kept.renew(which, || {
                    memory::check("log densities kept by component", 8 * len as u128)?;
                    Ok(vec![0.0; len])
                })
            }
        }
    }

    /// Restores the columns that the last [`step`](Self::step) replaced.
    pub(super) fn undo(&mut self) {
        match self {
            Self::There(kept) => kept.undo(),
            Self::Here(kept, _) => kept.undo(),
        }
    }

    /// Evaluates the components `anew` into their columns, and returns Σ w ln p(x) of the mixture.
    fn value(&mut self, likelihood: &mut Likelihood, mixture: &Mixture, anew: &[usize]) -> Result<f64, Error> {
        let alone = |&c: &usize| Ok((c, mixture.component(c)?));
        let anew = anew.iter().map(alone).collect::<Result<Vec<_>, Error>>()?;
        match self {
            Self::There(kept) => likelihood.rows.mix_columns(&mut kept.now, &log_weights(mixture), &anew),
            Self::Here(kept, mixing) => {
                let n = likelihood.dim().0;
                for (c, component) in anew {
                    let want =
                        EvaluateOptions { log_densities: Some(&mut kept.now[c][..n]), ..EvaluateOptions::default() };
                    likelihood.rows.evaluate(&component, want)?;
                }
                Ok(total(*mixing, &kept.now, &log_weights(mixture), n, &likelihood.weights))
            }
        }
    }

    /// ln p(x) of each row, `(n,)`.
    pub(super) fn per_row(&self, likelihood: &mut Likelihood, mixture: &Mixture, out: &mut [f64]) -> Result<(), Error> {
        let log_weights = log_weights(mixture);
        match self {
            Self::There(kept) => likelihood.rows.mixed_rows(&kept.now, &log_weights, out),
            Self::Here(kept, mixing) => {
                let mut piece = [0.0; Mixing::ROWS];
                for (i, out) in out.chunks_mut(Mixing::ROWS).enumerate() {
                    mixing.log_densities(&kept.now, &log_weights, i * Mixing::ROWS, &mut piece);
                    out.copy_from_slice(&piece[..out.len()]);
                }
                Ok(())
            }
        }
    }
}

/// A step with some new columns. If it is dropped without [`keep`](Self::keep), by an error or a panic, the old columns
/// are restored.
pub(super) struct Step<'a> {
    columns: &'a mut Columns,
    is_kept: bool,
}

impl Step<'_> {
    /// [`Columns::value`].
    pub(super) fn value(
        &mut self,
        likelihood: &mut Likelihood,
        mixture: &Mixture,
        anew: &[usize],
    ) -> Result<f64, Error> {
        self.columns.value(likelihood, mixture, anew)
    }

    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.columns.undo();
        }
    }
}

/// Allocates `k` columns and `spare` more on the device; `None` if the rows are not on a device.
fn on_device(likelihood: &mut Likelihood, k: usize, spare: usize) -> Result<Option<Cache<DeviceColumn>>, Error> {
    let all = (0..k + spare).map(|_| likelihood.rows.column()).collect::<Result<Option<Vec<_>>, Error>>()?;
    Ok(all.map(|mut all| {
        let spare = all.split_off(k);
        Cache::new(all, spare)
    }))
}

fn log_weights(mixture: &Mixture) -> Vec<f64> {
    (0..mixture.n_components()).map(|c| mixture.log_weight(c)).collect()
}

/// Σ w ln p(x). The order of summation is fixed: pieces in order within a task, then tasks in order.
fn total(mixing: Mixing, columns: &[Vec<f64>], log_weights: &[f64], n: usize, weights: &RowWeights) -> f64 {
    let step = PIECES * Mixing::ROWS;
    let task = |start: usize| {
        let mut piece = [0.0; Mixing::ROWS];
        let mut sum = 0.0;
        for first in (start..n.min(start + step)).step_by(Mixing::ROWS) {
            mixing.log_densities(columns, log_weights, first, &mut piece);
            let rows = &piece[..Mixing::ROWS.min(n - first)];
            sum += match &weights.each {
                None => rows.iter().sum::<f64>(),
                // A row of weight 0 does not count, even if its log density is −∞.
                Some(all) => {
                    let terms = all[first..].iter().zip(rows);
                    terms.map(|(w, v)| if *w > 0.0 { w * v } else { 0.0 }).sum::<f64>()
                }
            };
        }
        sum
    };
    let sums: Vec<f64> = (0..n.div_ceil(step)).into_par_iter().map(|i| task(i * step)).collect();
    sums.iter().sum()
}
