//! Log densities kept component by component, so that a step which moves one component evaluates that one alone.

use std::mem;
use std::sync::Arc;

use gmm_model::{Mixture, ModelError};

use super::change::{ComponentChange, changed, differs};
use super::columns::Columns;
use super::{Likelihood, RowWeights, check_len, no_nan};
use crate::Error;
use crate::cpu::Mixing;

/// A [`Likelihood`] at one mixture with the log density of every row under every component kept, `8*n*(k+1)` bytes: on a
/// GPU where the rows are there and memory is left, else here.
///
/// For samplers and searches that move one component, or the weights, at a time: [`update_component`] evaluates the
/// components that change and no others, [`update_weights`] none, and [`undo`] takes the last step back for nothing.
/// Whatever the steps were, the value is to the bit that of a new cache at the same mixture, kept in the same place. It
/// differs from [`Likelihood::value`] by rounding: here each component is evaluated on its own, and all are mixed in f64.
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
    /// ln N(x | c), a column for each component.
    columns: Columns,
    mixture: Mixture,
    value: f64,
    /// What the last update replaced.
    before: Option<(Mixture, f64)>,
}

impl ComponentCache {
    /// Bytes that a cache holds for `n` rows and `k` components after its first update of one component. Where all components
    /// move at once, as with a tied covariance, it holds each twice.
    pub const fn bytes(n: usize, k: usize) -> u128 {
        8 * Mixing::column_len(n) as u128 * (k as u128 + 1)
    }

    /// Evaluates every component. Cost: `k` passes of one component each.
    ///
    /// # Errors
    /// As for [`Likelihood::value`]; [`Error::Memory`] before [`bytes`](Self::bytes) are taken here. A GPU that lacks the
    /// memory is no error: they are then kept here.
    pub fn new(likelihood: &mut Likelihood, mixture: Mixture) -> Result<Self, Error> {
        let (columns, value) = Columns::new(likelihood, &mixture)?;
        no_nan(value)?;
        let (weights, n) = (Arc::clone(&likelihood.weights), likelihood.dim().0);
        Ok(Self { weights, n, columns, mixture, value, before: None })
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
    /// [`ModelError::Shape`] where `out` has another length; [`Error::Option`] where `likelihood` is not the one that the
    /// cache was made from; what the device says.
    pub fn per_row(&self, likelihood: &mut Likelihood, out: &mut [f64]) -> Result<(), Error> {
        self.check_likelihood(likelihood)?;
        check_len("the slice for the rows' log densities", out.len(), self.n)?;
        self.columns.per_row(likelihood, &self.mixture, out)
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
    /// [`ModelError`] for weights that are no distribution; as for [`update`](Self::update). The cache stays as it was.
    pub fn update_weights(&mut self, likelihood: &mut Likelihood, weights: &[f64]) -> Result<f64, Error> {
        let change = ComponentChange { weights: Some(weights), ..ComponentChange::default() };
        self.update_component(likelihood, 0, change)
    }

    /// Moves to another mixture of the same kind and shape, evaluates the components whose mean or covariance is
    /// another, and returns the new value.
    ///
    /// # Errors
    /// As for [`Likelihood::value`]; [`Error::Option`] where `likelihood` is not the one that the cache was made from, or
    /// the mixture's kind differs; [`ModelError::Shape`] where its shape does; [`Error::Memory`] where more than one component
    /// moves, and there is no room to keep what these were. The cache stays as it was; only [`undo`](Self::undo) has nothing to
    /// take back.
    pub fn update(&mut self, likelihood: &mut Likelihood, mixture: Mixture) -> Result<f64, Error> {
        self.check(likelihood, &mixture)?;
        self.before = None;
        let changed: Vec<usize> =
            (0..mixture.n_components()).filter(|&c| differs(&self.mixture, &mixture, c)).collect();
        let mut step = self.columns.step(likelihood, &changed)?;
        let value = step.value(likelihood, &mixture, &changed)?;
        no_nan(value)?;
        step.keep();
        self.before = Some((mem::replace(&mut self.mixture, mixture), mem::replace(&mut self.value, value)));
        Ok(value)
    }

    /// Takes the last update back, to the bit; false where there is none, or it was taken back already.
    pub fn undo(&mut self) -> bool {
        let Some(before) = self.before.take() else { return false };
        self.columns.undo();
        (self.mixture, self.value) = before;
        true
    }

    fn check(&self, likelihood: &Likelihood, mixture: &Mixture) -> Result<(), Error> {
        self.check_likelihood(likelihood)?;
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

    fn check_likelihood(&self, likelihood: &Likelihood) -> Result<(), Error> {
        if Arc::ptr_eq(&self.weights, &likelihood.weights) {
            return Ok(());
        }
        let must = "the one that the components were evaluated with".to_owned();
        Err(Error::Option { option: "the likelihood", value: "another".to_owned(), must })
    }
}
