//! Information criteria: the log-likelihood with a penalty per parameter. Lower is better for all of them.

use std::fmt;
use std::str::FromStr;

use ndarray::ArrayView2;

use crate::{ModelError, reference};

/// A criterion for choosing the number of components and the covariance kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Criterion {
    /// Akaike's criterion.
    Aic,
    /// Bayesian criterion (Schwarz's).
    Bic,
    /// Integrated completed likelihood.
    Icl,
}

impl Criterion {
    /// The name used in files and on the command line: `aic`, `bic` or `icl`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aic => "aic",
            Self::Bic => "bic",
            Self::Icl => "icl",
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Criterion {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        [Self::Aic, Self::Bic, Self::Icl].into_iter().find(|c| c.name() == text).ok_or_else(|| {
            ModelError::UnknownWord { what: "criterion", word: text.to_owned(), choices: "aic, bic, icl" }
        })
    }
}

/// The three criteria of one fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criteria {
    /// `2p − 2 LL` (Akaike 1974).
    pub aic: f64,
    /// `p ln n − 2 LL` (Schwarz 1978).
    pub bic: f64,
    /// `BIC + 2 E`, with `E` the entropy of the responsibilities: BIC of the data together with their labels
    /// (Biernacki, Celeux and Govaert 2000, in the entropy form of McLachlan and Peel 2000).
    pub icl: f64,
}

impl Criteria {
    /// Computes the criteria from the number of free parameters `p`
    /// ([`Mixture::n_parameters`](crate::Mixture::n_parameters)), the total log-likelihood `LL = Σ w ln p(x)`, the
    /// total row weight `n`, and the entropy `E = −Σ w Σ r ln r`.
    ///
    /// `n` is the total row weight rather than the row count, because a row of weight 2 counts as two rows.
    ///
    /// ```
    /// let criteria = gmm_model::Criteria::new(3, -10.0, 100.0, 0.5);
    /// assert_eq!(criteria.aic, 26.0);
    /// assert_eq!(criteria.bic, 3.0 * 100f64.ln() + 20.0);
    /// assert_eq!(criteria.icl, criteria.bic + 1.0);
    /// ```
    pub fn new(n_parameters: usize, log_likelihood: f64, total_weight: f64, entropy: f64) -> Self {
        let p = n_parameters as f64;
        let bic = p * total_weight.ln() - 2.0 * log_likelihood;
        Self { aic: 2.0 * p - 2.0 * log_likelihood, bic, icl: bic + 2.0 * entropy }
    }

    /// The value of one criterion.
    pub const fn get(&self, criterion: Criterion) -> f64 {
        match criterion {
            Criterion::Aic => self.aic,
            Criterion::Bic => self.bic,
            Criterion::Icl => self.icl,
        }
    }
}

/// `−Σ r ln r` of one row's responsibilities, with `0 ln 0 = 0`; between 0 and `ln k`.
pub fn entropy<'a>(responsibilities: impl IntoIterator<Item = &'a f64>) -> f64 {
    -responsibilities.into_iter().filter(|&&r| r > 0.0).map(|&r| r * r.ln()).sum::<f64>()
}

/// The criteria of a mixture on rows, `(n, d)`, with row weights, `(n,)`, computed naively: the reference for the
/// engines.
pub fn criteria(mixture: &crate::Mixture, rows: ArrayView2<'_, f64>, weights: Option<&[f64]>) -> Criteria {
    let (mut log_likelihood, mut total, mut uncertain) = (0.0, 0.0, 0.0);
    for (i, x) in rows.outer_iter().enumerate() {
        let w = weights.map_or(1.0, |w| w[i]);
        if w > 0.0 {
            let (log_density, r) = reference::posterior(mixture, x);
            log_likelihood += w * log_density;
            uncertain += w * entropy(&r);
            total += w;
        }
    }
    Criteria::new(mixture.n_parameters(), log_likelihood, total, uncertain)
}
