//! The log posterior density over all of ℝᵐ, and its gradient.

use gmm_host::{Likelihood, Unconstrained};
use gmm_model::Mixture;

use crate::{Error, Prior};

/// A log density and its gradient, `(m,)`; `None` if one of them is not finite.
pub type Evaluated = Option<(f64, Vec<f64>)>;

/// The density to sample, at points of ℝᵐ: likelihood, prior and the Jacobian of [`Unconstrained`].
///
/// Its logarithm is `Σ w ln p(x) + ln prior + ln |J|`. So draws of points, mapped back to parameters, are draws from
/// the posterior over (weights, means, covariances). It is normalised up to the marginal likelihood.
///
/// ```
/// use gmm_host::{CpuEngine, Likelihood};
/// use gmm_mcmc::{Prior, PriorOptions, Target};
/// use gmm_model::{CovarianceType, Dataset, Precision};
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [1.0], [5.0], [6.5]])?;
/// let mut likelihood = Likelihood::new(&CpuEngine::new(1)?, &data, Precision::F64)?;
/// let prior = Prior::new(&PriorOptions::default(), CovarianceType::Full, 2, &data)?;
/// let target = Target::new(prior)?;
///
/// // ln(w_0 / w_1), two means, two log standard deviations.
/// let near = vec![0.0, 0.5, 5.8, -0.7, -0.3];
/// let far = vec![0.0, 50.0, 58.0, -0.7, -0.3];
/// let found = target.values_and_gradients(&mut likelihood, &[near, far])?;
/// let value = |i: usize| found[i].as_ref().map(|(value, _)| *value);
/// assert!(value(0) > value(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    map: Unconstrained,
    prior: Prior,
}

impl Target {
    /// The posterior under `prior`, for mixtures of its kind, `k` and `d`.
    ///
    /// # Errors
    /// As for [`Unconstrained::new`].
    pub fn new(prior: Prior) -> Result<Self, Error> {
        let (k, d) = prior.dim();
        Ok(Self { map: Unconstrained::new(prior.kind(), k, d)?, prior })
    }

    /// Length `m` of a point.
    pub fn dim(&self) -> usize {
        self.map.dim()
    }

    /// The map between points and mixtures.
    pub const fn map(&self) -> &Unconstrained {
        &self.map
    }

    /// The prior.
    pub const fn prior(&self) -> &Prior {
        &self.prior
    }

    /// The mixture at a point; `None` if rounding makes it invalid, for instance if a standard deviation underflows.
    ///
    /// # Errors
    /// [`gmm_model::ModelError::Shape`] if the point has another length than [`dim`](Self::dim).
    pub fn mixture(&self, point: &[f64]) -> Result<Option<Mixture>, Error> {
        match self.map.to_mixture(point) {
            Ok(mixture) => Ok(Some(mixture)),
            Err(gmm_host::Error::Model(gmm_model::ModelError::Shape { what, found, expected })) => {
                Err(gmm_model::ModelError::Shape { what, found, expected }.into())
            }
            Err(_) => Ok(None),
        }
    }

    /// The log density at a point with the given log-likelihood; −∞ in place of NaN.
    ///
    /// # Errors
    /// As for [`mixture`](Self::mixture).
    pub fn value(&self, point: &[f64], log_likelihood: f64) -> Result<f64, Error> {
        let value = log_likelihood + self.prior.log_density(point, None) + self.map.log_jacobian(point)?;
        Ok(if value.is_nan() { f64::NEG_INFINITY } else { value })
    }

    /// The log density and its gradient, `(m,)`, at each point, from one call of the engine; `None` for a point at
    /// which they are not finite. A point's results do not depend on the other points, to the bit.
    ///
    /// # Errors
    /// As for [`mixture`](Self::mixture) and [`Likelihood::values_and_gradients`].
    pub fn values_and_gradients(
        &self,
        likelihood: &mut Likelihood,
        points: &[Vec<f64>],
    ) -> Result<Vec<Evaluated>, Error> {
        let found = points.iter().map(|point| self.mixture(point)).collect::<Result<Vec<_>, _>>()?;
        let mixtures: Vec<Mixture> = found.iter().flatten().cloned().collect();
        let mut evaluated = mixtures.iter().zip(likelihood.values_and_gradients(&mixtures)?);
        let mut all = Vec::with_capacity(points.len());
        for (point, mixture) in points.iter().zip(&found) {
            let here = mixture.as_ref().and_then(|_| evaluated.next());
            let Some((mixture, Some((value, found)))) = here else {
                all.push(None);
                continue;
            };
            let mut gradient = vec![0.0; self.dim()];
            self.map.gradient(mixture, &found, &mut gradient)?;
            self.map.add_log_jacobian_gradient(point, &mut gradient)?;
            let value = value + self.prior.log_density(point, Some(&mut gradient)) + self.map.log_jacobian(point)?;
            let finite = value.is_finite() && gradient.iter().all(|g| g.is_finite());
            all.push(finite.then_some((value, gradient)));
        }
        Ok(all)
    }
}
