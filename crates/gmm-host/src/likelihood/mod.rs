//! The likelihood of fixed data under parameters that move: evaluated a million times, in batches, with gradients.

mod change;
mod columns;
mod components;
mod gradient;
mod unconstrained;

use std::sync::Arc;

use gmm_model::{Mixture, ModelError, Precision};

use crate::shift::Sample;
use crate::{Data, Engine, Error, Resident, Wanted, hold, shift};

pub use change::ComponentChange;
pub use components::ComponentCache;
pub use gradient::Gradient;
pub use unconstrained::Unconstrained;

/// The log-likelihood of one data set, `(n, d)`, as a function of a mixture's parameters.
///
/// The rows are loaded once and stay on the engine; parameters go in, numbers come out. Nothing of size `n*k` is held:
/// [`ComponentCache`] is for those who want that. Samplers that move in all of ℝᵐ find the way by [`Unconstrained`].
///
/// **Values.** Σ w ln p(x) over the rows, with row weights `w` (1 where there are none), in natural logarithms of the
/// data's own units. A value is finite or −∞ (a row of positive weight has no density: it lies beyond the range of
/// squares from every component of positive weight), never NaN. Same rows, parameters, engine and thread count give
/// the same bits, in a batch or alone; but on a GPU, of `f32` rows without weights and diagonal or spherical covariances, up
/// to three mixtures go another way than more of them, and the two agree to 1e-6 of the value or a row's.
///
/// **Parameters** come as a [`Mixture`], which cannot be wrong: [`Mixture::new`] refuses weights that miss a sum of 1
/// by more than 1e-6 ([`ModelError::WeightSum`]; less than that is rounding of text, and divided out) and covariances
/// that are singular ([`ModelError::NotPositiveDefinite`]) or not finite. A component of weight 0 counts for nothing.
///
/// **Precision.** Rows are held as `x − shift` about a median of the data, rounded once to `precision`; sums are f64.
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
    /// Shared with the caches made from it, which thereby know it again.
    weights: Arc<RowWeights>,
}

/// Weights of the rows as the data set has them.
struct RowWeights {
    each: Option<Vec<f64>>,
    total: f64,
}

impl Likelihood {
    /// Loads the rows, as `x − shift` with `shift` near a median of the data, in `precision`; in `f64` where `f32` would lose
    /// rows far from the others.
    ///
    /// Cost: one read of the data, and as much memory on the engine as the rows take in `precision`; a
    /// copy of the row weights here besides.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is taken; [`Error::Option`] for row weights out of the range of `precision`;
    /// what the device says.
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

    /// Σ w, the sum of the row weights; `n` where there are none.
    pub fn total_weight(&self) -> f64 {
        self.weights.total
    }

    /// Σ w ln p(x) over all rows: finite or −∞.
    ///
    /// Cost: one pass over the rows that computes densities and nothing else.
    ///
    /// # Errors
    /// [`Error::Features`] where the mixture has another `d`; [`Error::Memory`]; what the device says.
    pub fn value(&mut self, mixture: &Mixture) -> Result<f64, Error> {
        Ok(self.batch(std::slice::from_ref(mixture))?[0])
    }

    /// The value under each mixture, `(mixtures.len(),)`: that of [`value`](Self::value), to the bits or as said
    /// [above](Self).
    ///
    /// Mixtures of every kind and number of components may stand side by side; those in a row that have both in
    /// common go over the rows together, so that rows are fetched from memory once for dozens of them.
    ///
    /// # Errors
    /// As for [`value`](Self::value).
    pub fn batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        let values = self.rows.log_likelihoods(mixtures)?;
        values.iter().try_for_each(|&value| no_nan(value))?;
        Ok(values)
    }

    /// The value, up to rounding, and the log density of each row, `(n,)`, into `out`; row weights do not enter the latter.
    ///
    /// # Errors
    /// As for [`value`](Self::value); [`ModelError::Shape`] where `out` has another length than `n`.
    pub fn per_row(&mut self, mixture: &Mixture, out: &mut [f64]) -> Result<f64, Error> {
        check_len("the slice for the rows' log densities", out.len(), self.dim().0)?;
        let totals = self.rows.evaluate(mixture, Wanted { log_densities: Some(out), ..Wanted::default() })?;
        no_nan(totals.log_likelihood)?;
        Ok(totals.log_likelihood)
    }

    /// The value and its gradient; see [`Gradient`] for the directions.
    ///
    /// Cost: one [`Passes::expectation`](crate::Passes::expectation), and `3*k*d³` flops for full covariances.
    ///
    /// # Errors
    /// As for [`value`](Self::value); [`Error::Undefined`] where the value is −∞ or a moment overflows: there is no
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

    /// Value and gradient under each mixture, to the bits that [`value_and_gradient`](Self::value_and_gradient) gives
    /// each alone; `None` for one that has none, which does not concern the others.
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

    /// The value at a point of the unconstrained space, and its gradient there, `(map.dim(),)`, into `gradient`. The
    /// transformation's Jacobian is not in it: [`Unconstrained::log_jacobian`] is a function of its own.
    ///
    /// # Errors
    /// As for [`value_and_gradient`](Self::value_and_gradient) and [`Unconstrained::to_mixture`];
    /// [`ModelError::Shape`] where `gradient` has another length.
    pub fn unconstrained(&mut self, map: &Unconstrained, at: &[f64], gradient: &mut [f64]) -> Result<f64, Error> {
        check_len("the slice for the gradient", gradient.len(), map.dim())?;
        let mixture = map.to_mixture(at)?;
        let (value, found) = self.value_and_gradient(&mixture)?;
        map.gradient(&mixture, &found, gradient)?;
        Ok(value)
    }
}

/// Refuses a value that is no number: −∞ is one.
fn no_nan(value: f64) -> Result<(), Error> {
    if value.is_nan() { Err(Error::Undefined { what: "log-likelihood", value }) } else { Ok(()) }
}

fn check_len(what: &'static str, found: usize, expected: usize) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Shape { what, found: vec![found], expected: vec![expected] })
}
