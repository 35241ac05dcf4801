//! A cache of log densities by component, so that a step that changes one component evaluates only that one.

use std::mem;
use std::sync::Arc;

use gmm_model::{Mixture, ModelError};

use super::change::{ComponentChange, changed, differs};
use super::columns::Columns;
use super::{Likelihood, RowWeights, check_len, no_nan};
use crate::Error;
use crate::cpu::Mixing;

/// A [`Likelihood`] at one mixture, with the log density of every row under every component stored: `8*n*(k+1)` bytes,
/// on the GPU if the rows are there and memory suffices, else on the host.
///
/// For samplers and searches that change one component, or the weights, at a time: [`update_component`] evaluates only
/// the components that change, [`update_weights`] none, and [`undo`] reverts the last step at no cost. After any
/// sequence of steps the value is equal, to the bit, to that of a new cache at the same mixture stored in the same
/// place. It differs from [`Likelihood::value`] by rounding, because here each component is evaluated separately and
/// all are combined in f64.
///
/// Several caches, one per chain, can share one `Likelihood`.
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
    /// ln N(x | c): one column per component.
    columns: Columns,
    mixture: Mixture,
    value: f64,
    /// The mixture and value that the last update replaced.
    before: Option<(Mixture, f64)>,
}

impl ComponentCache {
    /// Bytes that a cache takes for `n` rows and `k` components after its first update of one component. If all
    /// components change at once, as with a tied covariance, every column is stored twice.
    pub const fn bytes(n: usize, k: usize) -> u128 {
        8 * Mixing::column_len(n) as u128 * (k as u128 + 1)
    }

    /// Evaluates every component. Cost: `k` passes of one component each.
    ///
    /// # Errors
    /// As for [`Likelihood::value`]; [`Error::Memory`], checked before [`bytes`](Self::bytes) are allocated on the
    /// host. If a GPU lacks the memory, the log densities are stored on the host instead.
    pub fn new(likelihood: &mut Likelihood, mixture: Mixture) -> Result<Self, Error> {
        let (columns, value) = Columns::new(likelihood, &mixture)?;
        no_nan(value)?;
        let (weights, n) = (Arc::clone(&likelihood.weights), likelihood.dim().0);
        Ok(Self { weights, n, columns, mixture, value, before: None })
    }

    /// The current mixture.
    pub const fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Σ w ln p(x) under the current mixture: finite or −∞.
    pub const fn value(&self) -> f64 {
        self.value
    }

    /// Writes the log density of each row, `(n,)`, into `out`.
    ///
    /// # Errors
    /// [`ModelError::Shape`] if `out` has another length; [`Error::Option`] if the cache was not made from
    /// `likelihood`; any error of the device.
    pub fn per_row(&self, likelihood: &mut Likelihood, out: &mut [f64]) -> Result<(), Error> {
        self.check_likelihood(likelihood)?;
        check_len("the slice for the rows' log densities", out.len(), self.n)?;
        self.columns.per_row(likelihood, &self.mixture, out)
    }

    /// Changes component `c`, and returns the new value.
    ///
    /// Cost: a pass of one component if its mean or covariance changes (of all components if a tied covariance does),
    /// an `exp` per row and component to combine them, and the factorisation of the covariances.
    ///
    /// # Errors
    /// [`ModelError`] if the new parameters are invalid, as from [`Mixture::new`], or `c` is `k` or more; as for
    /// [`update`](Self::update). The cache then stays as it was.
    pub fn update_component(
        &mut self,
        likelihood: &mut Likelihood,
        c: usize,
        change: ComponentChange<'_>,
    ) -> Result<f64, Error> {
        let mixture = changed(&self.mixture, c, change)?;
        self.update(likelihood, mixture)
    }

    /// Changes all component weights, `(k,)`, and returns the new value. No component is evaluated.
    ///
    /// # Errors
    /// [`ModelError`] if the weights are not a distribution; as for [`update`](Self::update). The cache then stays as
    /// it was.
    pub fn update_weights(&mut self, likelihood: &mut Likelihood, weights: &[f64]) -> Result<f64, Error> {
        let change = ComponentChange { weights: Some(weights), ..ComponentChange::default() };
        self.update_component(likelihood, 0, change)
    }

    /// Changes to another mixture of the same kind and shape: evaluates the components whose mean or covariance
    /// differs, and returns the new value.
    ///
    /// # Errors
    /// As for [`Likelihood::value`]; [`Error::Option`] if the cache was not made from `likelihood`, or the mixture's
    /// kind differs; [`ModelError::Shape`] if its shape differs; [`Error::Memory`] if several components change and
    /// there is no room for their old log densities. The cache then stays as it was, except that [`undo`](Self::undo)
    /// has nothing to revert.
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

    /// Reverts the last update, to the bit. Returns `false` if there is none, or it was reverted already.
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
