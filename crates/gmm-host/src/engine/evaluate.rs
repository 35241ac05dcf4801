//! Densities, responsibilities and likelihoods of resident rows.

use gmm_model::{Mixture, PrecisionMixture};

use crate::Error;

/// What [`Evaluate::evaluate`] writes per row, besides the totals that it returns.
#[derive(Default)]
pub struct Wanted<'a> {
    /// Log densities, `(n,)`.
    pub log_densities: Option<&'a mut [f64]>,
    /// Responsibilities, `(n, k)` row by row.
    pub responsibilities: Option<&'a mut [f64]>,
    /// Component of largest responsibility, `(n,)`, the first among equals.
    pub labels: Option<&'a mut [u32]>,
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

/// Evaluates mixtures on resident rows.
pub trait Evaluate: Send {
    /// Evaluates `mixture` on every row and writes what was asked for. A row's values do not depend on other rows.
    ///
    /// Where every density of a row underflows, its log density is −∞ and its responsibilities are the component
    /// weights.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn evaluate(&mut self, mixture: &Mixture, want: Wanted<'_>) -> Result<Evaluation, Error>;

    /// [`evaluate`](Self::evaluate) of a mixture that is given by factors of its precisions: from these, where an engine
    /// has a way to.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass), and [`Error::Model`] of factors that are not finite or singular.
    fn evaluate_precisions(&mut self, mixture: &PrecisionMixture<'_>, want: Wanted<'_>) -> Result<Evaluation, Error> {
        self.evaluate(&mixture.to_mixture()?, want)
    }

    /// Σ w ln p(x) over all rows under each mixture, `(mixtures.len(),)`: what [`evaluate`](Self::evaluate) gives, for
    /// engines that can do it for many mixtures at once or for less than an evaluation. A mixture's value does not
    /// depend on the others.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        mixtures.iter().map(|m| Ok(self.evaluate(m, Wanted::default())?.log_likelihood)).collect()
    }
}
