//! The likelihood of a fixed data set as a function of the parameters: many evaluations, in batches, with gradients.

mod change;
mod columns;
mod components;
mod gradient;
mod unconstrained;

use std::sync::Arc;

use gmm_model::{Mixture, ModelError, Precision};

use crate::shift::Sample;
use crate::{Data, Engine, Error, EvaluateOptions, Resident, hold, shift};

pub use change::ComponentChange;
pub use components::ComponentCache;
pub use gradient::Gradient;
pub use unconstrained::Unconstrained;

/// The log-likelihood of one data set, `(n, d)`, as a function of a mixture's parameters.
///
/// The rows are loaded once and stay on the engine; only parameters and results are copied. Nothing of size `n*k` is
/// stored, unless by a [`ComponentCache`]. Samplers that need unconstrained parameters in ℝᵐ can use [`Unconstrained`].
///
/// **Values** are Σ w ln p(x) over the rows, with row weights `w` (1 if there are none), in nats; densities are per
/// unit volume of the data. A value is finite or −∞, never NaN. It is −∞ if a row of positive weight is so far from
/// every component of positive weight that its squared distance overflows. The same rows, parameters, engine and thread
/// count give the same bits, in a batch or not, with one exception: on a GPU, for `f32` rows without weights and
/// diagonal or spherical covariances, batches of up to three mixtures use another kernel than larger ones. The two
/// agree to a relative 1e-6 of the value or of a row's log density.
///
/// **Parameters** are given as a [`Mixture`], which is always valid. [`Mixture::new`] errors if the weights' sum
/// differs from 1 by more than 1e-6 ([`ModelError::WeightSum`]; smaller differences, from rounding in text, are
/// normalised), or if a covariance is singular ([`ModelError::NotPositiveDefinite`]) or not finite. A component of
/// weight 0 contributes nothing.
///
/// **Precision.** Rows are stored as `x − shift`, with `shift` near a median of the data, rounded once to `precision`;
/// sums are f64.
///
/// ```
/// use gmm_host::{CpuEngine, Likelihood};
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [1.0], [5.0], [6.5]])?;
/// let mut likelihood = Likelihood::new(&CpuEngine::new(1)?, &data, Precision::F64)?;
///
/// // A slice through the likelihood: one mean moves. All values come from one walk over the rows.
/// let at = |mean: f64| {
///     Mixture::new(array![0.5, 0.5], array![[0.5], [mean]], Covariances::Spherical(array![1.0, 1.0]))
/// };
/// let slice = [3.0, 4.0, 5.75, 7.0].map(at).into_iter().collect::<Result<Vec<_>, _>>()?;
/// let values = likelihood.batch(&slice)?;
/// assert!(values[0] < values[1] && values[1] < values[2] && values[2] > values[3]);
/// assert_eq!(values[2], likelihood.value(&slice[2])?);
///
/// // Near the top the slope vanishes; below it, the mean wants to grow.
/// let (value, gradient) = likelihood.value_and_gradient(&slice[1])?;
/// assert!((value - values[1]).abs() < 1e-12 && gradient.means[[1, 0]] > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Likelihood {
    rows: Box<dyn Resident>,
    /// Shared with the caches made from this likelihood, which identify it by the pointer.
    weights: Arc<RowWeights>,
}

/// The row weights of the data set.
struct RowWeights {
    each: Option<Vec<f64>>,
    total: f64,
}

impl Likelihood {
    /// Loads the rows, as `x − shift` with `shift` near a median of the data, in `precision`; in `f64` if `f32` would
    /// lose too much of rows far from the others.
    ///
    /// Cost: one read of the data. Memory: that of the rows in `precision` on the engine, and a copy of the row weights
    /// on the host.
    ///
    /// # Errors
    /// [`Error::Memory`], checked before anything is allocated; [`Error::Option`] if row weights are outside the range
    /// of `precision`; any error of the device.
    pub fn new<'a>(engine: &dyn Engine, data: impl Into<Data<'a>>, precision: Precision) -> Result<Self, Error> {
        let data = data.into();
        shift::check_weights(data, engine.precision(precision))?;
        let sample = Sample::of(data)?;
        let rows = hold::for_likelihood(data, engine, precision, &sample, &sample.shift())?;
        let weights = RowWeights { each: data.weights().map(<[f64]>::to_vec), total: data.total_weight() };
        Ok(Self { rows, weights: Arc::new(weights) })
    }

    /// `(n, d)`.
    pub fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    /// Σ w, the sum of the row weights; `n` if there are none.
    pub fn total_weight(&self) -> f64 {
        self.weights.total
    }

    /// Σ w ln p(x) over all rows: finite or −∞.
    ///
    /// Cost: one pass over the rows that computes only densities.
    ///
    /// # Errors
    /// [`Error::Features`] if the mixture has another `d`; [`Error::Memory`]; any error of the device.
    pub fn value(&mut self, mixture: &Mixture) -> Result<f64, Error> {
        Ok(self.batch(std::slice::from_ref(mixture))?[0])
    }

    /// The value under each mixture, `(mixtures.len(),)`: that of [`value`](Self::value), to the bit, with the
    /// exception described [above](Self).
    ///
    /// Mixtures may differ in kind and number of components. Consecutive mixtures that agree in both are evaluated
    /// together, so that the rows are read from memory once for dozens of them.
    ///
    /// # Errors
    /// As for [`value`](Self::value).
    pub fn batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        let values = self.rows.log_likelihoods(mixtures)?;
        values.iter().try_for_each(|&value| no_nan(value))?;
        Ok(values)
    }

    /// Writes the log density of each row, `(n,)`, into `out` and returns the value, equal to [`value`](Self::value) up
    /// to rounding. The log densities are not weighted.
    ///
    /// # Errors
    /// As for [`value`](Self::value); [`ModelError::Shape`] if `out` has another length than `n`.
    pub fn per_row(&mut self, mixture: &Mixture, out: &mut [f64]) -> Result<f64, Error> {
        check_len("the slice for the rows' log densities", out.len(), self.dim().0)?;
        let totals =
            self.rows.evaluate(mixture, EvaluateOptions { log_densities: Some(out), ..EvaluateOptions::default() })?;
        no_nan(totals.log_likelihood)?;
        Ok(totals.log_likelihood)
    }

    /// The value and its gradient; see [`Gradient`] for the parameters it refers to.
    ///
    /// Cost: one [`Passes::expectation`](crate::Passes::expectation), and `3*k*d³` flops for full covariances.
    ///
    /// # Errors
    /// As for [`value`](Self::value); [`Error::Undefined`] if the value is −∞ or a moment overflows: there is no
    /// gradient at such parameters.
    pub fn value_and_gradient(&mut self, mixture: &Mixture) -> Result<(f64, Gradient), Error> {
        let statistics = self.rows.expectation(mixture)?;
        if !statistics.log_likelihood.is_finite() {
            return Err(Error::Undefined { what: "log-likelihood", value: statistics.log_likelihood });
        }
        let gradient = Gradient::of(mixture, &statistics);
        match gradient.first_not_finite() {
            None => Ok((statistics.log_likelihood, gradient)),
            Some(value) => Err(Error::Undefined { what: "gradient", value }),
        }
    }

    /// Value and gradient under each mixture, to the bits of [`value_and_gradient`](Self::value_and_gradient). `None`
    /// for a mixture at which the gradient does not exist; the others are not affected.
    ///
    /// For several chains that move together. Cost: [`Passes::passes`](crate::Passes::passes).
    ///
    /// # Errors
    /// As for [`value`](Self::value).
    pub fn values_and_gradients(&mut self, mixtures: &[Mixture]) -> Result<Vec<Option<(f64, Gradient)>>, Error> {
        let statistics = self.rows.passes(mixtures)?;
        let each = mixtures.iter().zip(&statistics).map(|(mixture, statistics)| {
            let gradient = statistics.log_likelihood.is_finite().then(|| Gradient::of(mixture, statistics))?;
            gradient.first_not_finite().is_none().then_some((statistics.log_likelihood, gradient))
        });
        Ok(each.collect())
    }

    /// Returns the value at a point of the unconstrained space, and writes its gradient with respect to the point,
    /// `(map.dim(),)`, into `gradient`. The log-Jacobian of the transformation is not included: see
    /// [`Unconstrained::log_jacobian`].
    ///
    /// # Errors
    /// As for [`value_and_gradient`](Self::value_and_gradient) and [`Unconstrained::to_mixture`]; [`ModelError::Shape`]
    /// if `gradient` has another length.
    pub fn unconstrained(&mut self, map: &Unconstrained, at: &[f64], gradient: &mut [f64]) -> Result<f64, Error> {
        check_len("the slice for the gradient", gradient.len(), map.dim())?;
        let mixture = map.to_mixture(at)?;
        let (value, found) = self.value_and_gradient(&mixture)?;
        map.gradient(&mixture, &found, gradient)?;
        Ok(value)
    }
}

/// Errors if a value is NaN; −∞ is allowed.
fn no_nan(value: f64) -> Result<(), Error> {
    if value.is_nan() { Err(Error::Undefined { what: "log-likelihood", value }) } else { Ok(()) }
}

fn check_len(what: &'static str, found: usize, expected: usize) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Shape { what, found: vec![found], expected: vec![expected] })
}
