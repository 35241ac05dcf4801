//! Densities, responsibilities and likelihoods of resident rows.

use std::ops::Add;

use gmm_model::{Mixture, PrecisionMixture};

use crate::{DeviceOutputs, Error};

/// The outputs per row that [`Evaluate::evaluate`] writes, besides the totals that it returns.
#[derive(Default)]
pub struct EvaluateOptions<'a> {
    /// Log densities, `(n,)`.
    pub log_densities: Option<&'a mut [f64]>,
    /// Responsibilities, `(n, k)` in row-major order.
    pub responsibilities: Option<&'a mut [f64]>,
    /// The component of largest responsibility, `(n,)`; the first among equals.
    pub labels: Option<&'a mut [u32]>,
}

impl<'a> EvaluateOptions<'a> {
    /// Cuts the outputs of the first `rows` rows off, for a mixture of `k` components.
    ///
    /// # Panics
    /// If there are fewer rows.
    #[must_use]
    pub fn split(&mut self, rows: usize, k: usize) -> EvaluateOptions<'a> {
        fn front<'a, U>(all: &mut Option<&'a mut [U]>, len: usize) -> Option<&'a mut [U]> {
            let (head, tail) = all.take()?.split_at_mut(len);
            *all = Some(tail);
            Some(head)
        }
        EvaluateOptions {
            log_densities: front(&mut self.log_densities, rows),
            responsibilities: front(&mut self.responsibilities, rows * k),
            labels: front(&mut self.labels, rows),
        }
    }
}

/// Totals over all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Σ w ln p(x).
    pub log_likelihood: f64,
    /// −Σ w Σ_c r ln r, the entropy of the assignments.
    pub entropy: f64,
    /// Σ w.
    pub total_weight: f64,
}

/// The totals over the rows of both.
impl Add for Evaluation {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            log_likelihood: self.log_likelihood + other.log_likelihood,
            entropy: self.entropy + other.entropy,
            total_weight: self.total_weight + other.total_weight,
        }
    }
}

/// Evaluates mixtures on resident rows.
pub trait Evaluate: Send {
    /// Evaluates `mixture` on every row, writes the outputs in `want` and returns the totals. A row's values do not
    /// depend on other rows.
    ///
    /// If all densities of a row underflow, its log density is −∞ and its responsibilities are the component weights.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error>;

    /// [`evaluate`](Self::evaluate) of a mixture given by factors of its precisions. Engines may use the factors
    /// directly; the default converts them to covariances.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass), and [`Error::Model`] if a factor is not finite or singular.
    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.evaluate(&mixture.to_mixture()?, want)
    }

    /// [`evaluate_precisions`](Self::evaluate_precisions), with results that stay in the memory of the engine's device.
    /// Only GPU engines implement this.
    ///
    /// # Safety
    /// The addresses of `out` are those of arrays of the stated lengths on this engine's device, which nothing else
    /// reads or writes until this returns.
    ///
    /// # Errors
    /// As for [`evaluate_precisions`](Self::evaluate_precisions); [`Error::Device`] if the engine has no device.
    unsafe fn evaluate_there(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        out: &DeviceOutputs,
    ) -> Result<Evaluation, Error> {
        let _ = (mixture, out);
        Err(Error::Device("this engine has no device memory for results".to_owned()))
    }

    /// Σ w ln p(x) over all rows under each mixture, `(mixtures.len(),)`: the log-likelihood of
    /// [`evaluate`](Self::evaluate). Engines may compute many mixtures at once, or at a lower cost than an evaluation.
    /// A mixture's value does not depend on the others.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        mixtures.iter().map(|m| Ok(self.evaluate(m, EvaluateOptions::default())?.log_likelihood)).collect()
    }
}
