//! Log densities kept component by component, so that a step which moves one component evaluates that one alone.

use std::mem;
use std::sync::Arc;

use gmm_model::{Mixture, ModelError};
use rayon::prelude::*;

use super::change::{ComponentChange, changed, differs};
use super::{Likelihood, RowWeights, check_len, no_nan};
use crate::cpu::Mixing;
use crate::{Error, Wanted, memory};

/// Pieces of [`Mixing::ROWS`] rows that one task sums up: what a task costs is then nothing beside its exponentials.
const PIECES: usize = 16;

/// A [`Likelihood`] at one mixture with the log density of every row under every component kept, `8*n*(k+1)` bytes.
///
/// For samplers and searches that move one component, or the weights, at a time: [`update_component`] evaluates the
/// components that change and no others, [`update_weights`] none, and [`undo`] takes the last step back for nothing.
/// Whatever the steps were, the value is to the bit that of a new cache at the same mixture. It differs from
/// [`Likelihood::value`] by rounding: here each component is evaluated on its own, and mixed in f64 on this machine.
///
/// Several caches, one for each chain, can stand on one `Likelihood`.
///
/// ```
/// use gmm_host::{ComponentCache, ComponentChange, CpuEngine, Likelihood};
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [1.0], [5.0], [6.5]])?;
/// let mut likelihood = Likelihood::new(&CpuEngine::new(1)?, &data, Precision::F64)?;
/// let start = Mixture::new(array![0.5, 0.5], array![[0.5], [4.0]], Covariances::Diag(array![[1.0], [1.0]]))?;
/// let mut cache = ComponentCache::new(&mut likelihood, start)?;
///
/// let before = cache.value();
/// let step = ComponentChange { mean: Some(&[5.5]), ..ComponentChange::default() };
/// let after = cache.update_component(&mut likelihood, 1, step)?;
/// assert!(after > before);
/// cache.undo();
/// assert_eq!(cache.value(), before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`update_component`]: Self::update_component
/// [`update_weights`]: Self::update_weights
/// [`undo`]: Self::undo
pub struct ComponentCache {
    weights: Arc<RowWeights>,
    n: usize,
    mixing: Mixing,
    /// ln N(x | c), a column of `Mixing::column_len(n)` for each component.
    columns: Vec<Vec<f64>>,
    mixture: Mixture,
    value: f64,
    /// What the last update replaced.
    before: Option<Before>,
    /// Columns that nobody uses.
    spare: Vec<Vec<f64>>,
}

struct Before {
    mixture: Mixture,
    value: f64,
    columns: Vec<(usize, Vec<f64>)>,
}

impl ComponentCache {
    /// Bytes that a cache holds for `n` rows and `k` components after its first update of one component.
    pub const fn bytes(n: usize, k: usize) -> u128 {
        8 * Mixing::column_len(n) as u128 * (k as u128 + 1)
    }

    /// Evaluates every component. Cost: `k` passes of one component each.
    ///
    /// # Errors
    /// As for [`Likelihood::value`]; [`Error::Memory`] before [`bytes`](Self::bytes) are taken.
    pub fn new(likelihood: &mut Likelihood, mixture: Mixture) -> Result<Self, Error> {
        let (n, k) = (likelihood.dim().0, mixture.n_components());
        memory::check("log densities kept by component", Self::bytes(n, k))?;
        let mut cache = Self {
            weights: Arc::clone(&likelihood.weights),
            n,
            mixing: Mixing::detect(),
            columns: vec![vec![0.0; Mixing::column_len(n)]; k],
            mixture,
            value: 0.0,
            before: None,
            spare: Vec::new(),
        };
        for c in 0..k {
            component(likelihood, &cache.mixture, c, &mut cache.columns[c][..n])?;
        }
        cache.value = cache.total();
        no_nan(cache.value)?;
        Ok(cache)
    }

    /// The mixture that the cache is at.
    pub const fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Σ w ln p(x) under it: finite or −∞.
    pub const fn value(&self) -> f64 {
        self.value
    }

    /// The log density of each row, `(n,)`, into `out`.
    ///
    /// # Errors
    /// [`ModelError::Shape`] where `out` has another length.
    pub fn per_row(&self, out: &mut [f64]) -> Result<(), Error> {
        check_len("the slice for the rows' log densities", out.len(), self.n)?;
        let log_weights = self.log_weights();
        let mut piece = [0.0; Mixing::ROWS];
        for (i, out) in out.chunks_mut(Mixing::ROWS).enumerate() {
            self.mixing.log_densities(&self.columns, &log_weights, i * Mixing::ROWS, &mut piece);
            out.copy_from_slice(&piece[..out.len()]);
        }
        Ok(())
    }

    /// Moves component `c`, and returns the new value.
    ///
    /// Cost: a pass of one component where its mean or covariance changes (of all where a tied covariance does), an
    /// `exp` a row and component to mix them again, and the mixture's factors.
    ///
    /// # Errors
    /// [`ModelError`] for parameters that cannot be, as from [`Mixture::new`], and for a component that is not there;
    /// as for [`update`](Self::update). The cache stays as it was.
    pub fn update_component(
        &mut self,
        likelihood: &mut Likelihood,
        c: usize,
        change: ComponentChange<'_>,
    ) -> Result<f64, Error> {
        let mixture = changed(&self.mixture, c, change)?;
        self.update(likelihood, mixture)
    }

    /// Changes all component weights, `(k,)`, and returns the new value. No row is evaluated.
    ///
    /// # Errors
    /// [`ModelError`] for weights that are no distribution. The cache stays as it was.
    pub fn update_weights(&mut self, weights: &[f64]) -> Result<f64, Error> {
        let change = ComponentChange { weights: Some(weights), ..ComponentChange::default() };
        let mixture = changed(&self.mixture, 0, change)?;
        self.commit(mixture, Vec::new())
    }

    /// Moves to another mixture of the same kind and shape, evaluates the components whose mean or covariance is
    /// another, and returns the new value.
    ///
    /// # Errors
    /// As for [`Likelihood::value`]; [`Error::Option`] where `likelihood` is not the one that the cache was made from, or
    /// the mixture's kind differs; [`ModelError::Shape`] where its shape does. The cache stays as it was; only
    /// [`undo`](Self::undo) has nothing to take back.
    pub fn update(&mut self, likelihood: &mut Likelihood, mixture: Mixture) -> Result<f64, Error> {
        self.check(likelihood, &mixture)?;
        self.forget();
        let changed = (0..mixture.n_components()).filter(|&c| differs(&self.mixture, &mixture, c));
        let mut columns = Vec::new();
        for c in changed {
            let mut column = self.spare.pop().unwrap_or_else(|| vec![0.0; Mixing::column_len(self.n)]);
            let evaluated = component(likelihood, &mixture, c, &mut column[..self.n]);
            columns.push((c, column));
            if let Err(error) = evaluated {
                self.spare.extend(columns.into_iter().map(|(_, column)| column));
                return Err(error);
            }
        }
        self.commit(mixture, columns)
    }

    /// Takes the last update back, to the bit; false where there is none, or it was taken back already.
    pub fn undo(&mut self) -> bool {
        let Some(before) = self.before.take() else { return false };
        for (c, column) in before.columns {
            self.spare.push(mem::replace(&mut self.columns[c], column));
        }
        (self.mixture, self.value) = (before.mixture, before.value);
        true
    }

    /// Puts a mixture and the columns that belong to it in place, and keeps the old ones for [`undo`](Self::undo).
    fn commit(&mut self, mixture: Mixture, columns: Vec<(usize, Vec<f64>)>) -> Result<f64, Error> {
        self.forget();
        let replace = |(c, column): (usize, Vec<f64>)| (c, mem::replace(&mut self.columns[c], column));
        let columns = columns.into_iter().map(replace).collect();
        let mixture = mem::replace(&mut self.mixture, mixture);
        self.before = Some(Before { mixture, value: self.value, columns });
        self.value = self.total();
        no_nan(self.value).inspect_err(|_| {
            self.undo();
        })?;
        Ok(self.value)
    }

    /// Makes the columns that an undo would bring back free for others.
    fn forget(&mut self) {
        if let Some(before) = self.before.take() {
            self.spare.extend(before.columns.into_iter().map(|(_, column)| column));
        }
    }

    fn check(&self, likelihood: &Likelihood, mixture: &Mixture) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.weights, &likelihood.weights) {
            let must = "the one that the components were evaluated with".to_owned();
            return Err(Error::Option { option: "the likelihood", value: "another".to_owned(), must });
        }
        let (kind, must) = (mixture.covariance_type(), self.mixture.covariance_type());
        if kind != must {
            let must = format!("{must}, as before");
            return Err(Error::Option { option: "the covariance kind", value: kind.to_string(), must });
        }
        let (found, expected) = (mixture.means().dim(), self.mixture.means().dim());
        if found != expected {
            let (found, expected) = (vec![found.0, found.1], vec![expected.0, expected.1]);
            return Err(ModelError::Shape { what: "means", found, expected }.into());
        }
        Ok(())
    }

    fn log_weights(&self) -> Vec<f64> {
        (0..self.mixture.n_components()).map(|c| self.mixture.log_weight(c)).collect()
    }

    /// Σ w ln p(x): pieces in order within a task, tasks in order.
    fn total(&self) -> f64 {
        let log_weights = self.log_weights();
        let step = PIECES * Mixing::ROWS;
        let task = |start: usize| {
            let mut piece = [0.0; Mixing::ROWS];
            let mut sum = 0.0;
            for first in (start..self.n.min(start + step)).step_by(Mixing::ROWS) {
                self.mixing.log_densities(&self.columns, &log_weights, first, &mut piece);
                let rows = &piece[..Mixing::ROWS.min(self.n - first)];
                sum += match &self.weights.each {
                    None => rows.iter().sum::<f64>(),
                    // A row of weight 0 is not there: not even its −∞ counts.
                    Some(all) => {
                        let terms = all[first..].iter().zip(rows);
                        terms.map(|(w, v)| if *w > 0.0 { w * v } else { 0.0 }).sum::<f64>()
                    }
                };
            }
            sum
        };
        let sums: Vec<f64> = (0..self.n.div_ceil(step)).into_par_iter().map(|i| task(i * step)).collect();
        sums.iter().sum()
    }
}

/// Log density of each row under one component alone.
fn component(likelihood: &mut Likelihood, mixture: &Mixture, c: usize, out: &mut [f64]) -> Result<(), Error> {
    let alone = mixture.component(c)?;
    let want = Wanted { log_densities: Some(out), ..Wanted::default() };
    likelihood.rows.evaluate(&alone, want).map(drop)
}
