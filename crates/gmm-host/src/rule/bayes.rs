//! The prior of a Bayesian fit: options, and what they become for one data set.

use gmm_model::bayes::{BayesPrior, WeightPrior};
use gmm_model::{CovarianceType, PriorScale};
use ndarray::{Array1, Array2};

use crate::Error;

/// A fit by variational Bayes in place of maximum likelihood: see [`gmm_model::bayes`]. What is `None` has scikit-learn's
/// default.
#[derive(Clone, Debug, PartialEq)]
pub struct BayesOptions {
    /// The family of the weights' prior.
    pub weights: WeightFamily,
    /// The concentration of the weights' prior; `None`: `1 / k`. A small one leaves components without rows.
    pub concentration: Option<f64>,
    /// The prior mean of the means, `(d,)`; `None`: the mean of the data.
    pub mean: Option<Array1<f64>>,
    /// How many rows the prior of a mean is worth; `None`: 1.
    pub mean_precision: Option<f64>,
    /// How many rows the prior of a covariance is worth; `None`: `d`. Above `d − 1` for full and tied, else positive.
    pub degrees_of_freedom: Option<f64>,
    /// The prior scale of the covariances, in squared units of the data; `None`: the covariance of the data, its diagonal,
    /// or the mean of that. A default that is not positive definite, as of a constant column, is raised to variances of
    /// 2⁻⁴⁰ of the column's.
    pub scale: Option<PriorScale>,
    /// After the iterations, whether components are reordered, merged, deleted and born as long as that raises the bound.
    pub moves: bool,
}

/// The family of the weights' prior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFamily {
    /// A symmetric Dirichlet distribution over `k` weights.
    Dirichlet,
    /// A Dirichlet process, truncated at `k` components.
    DirichletProcess,
}

impl BayesOptions {
    /// scikit-learn's defaults, with a family of the weights' prior.
    pub const fn new(weights: WeightFamily) -> Self {
        Self {
            weights,
            concentration: None,
            mean: None,
            mean_precision: None,
            degrees_of_freedom: None,
            scale: None,
            moves: false,
        }
    }

    /// Checks all that does not depend on the data.
    pub(super) fn validate(&self) -> Result<(), Error> {
        let positive = [
            ("concentration", self.concentration),
            ("mean precision", self.mean_precision),
            ("degrees of freedom", self.degrees_of_freedom),
        ];
        for (option, value) in positive {
            if let Some(value) = value.filter(|v| !(*v > 0.0 && v.is_finite())) {
                let must = "positive and finite".to_owned();
                return Err(Error::Option { option, value: value.to_string(), must });
            }
        }
        Ok(())
    }

    /// The prior for data of the given mean and covariance, whose divisor is `n − 1`; `rescue` are the variances, `(d,)`, to
    /// which a singular covariance is raised.
    ///
    /// # Errors
    /// [`Error::Model`] if shapes or ranges are wrong.
    pub(super) fn prior(
        &self,
        (kind, k): (CovarianceType, usize),
        mean: &Array1<f64>,
        covariance: Array2<f64>,
        rescue: &Array1<f64>,
    ) -> Result<BayesPrior, Error> {
        let concentration = self.concentration.unwrap_or(1.0 / k as f64);
        let weights = match self.weights {
            WeightFamily::Dirichlet => WeightPrior::Dirichlet { concentration },
            WeightFamily::DirichletProcess => WeightPrior::DirichletProcess { concentration },
        };
        let default = |covariance: &Array2<f64>| BayesPrior::default_for(kind, weights, mean.view(), covariance.view());
        let mut prior = default(&covariance);
        if self.scale.is_none() && prior.check(kind, mean.len()).is_err() {
            prior = default(&(&covariance + &Array2::from_diag(rescue)));
        }
        prior.mean = self.mean.clone().unwrap_or(prior.mean);
        prior.mean_precision = self.mean_precision.unwrap_or(prior.mean_precision);
        prior.degrees_of_freedom = self.degrees_of_freedom.unwrap_or(prior.degrees_of_freedom);
        prior.scale = self.scale.clone().unwrap_or(prior.scale);
        prior.check(kind, mean.len())?;
        Ok(prior)
    }

    /// One line for the record of a fit.
    pub(super) fn line(&self, prior: &BayesPrior) -> String {
        let BayesPrior { weights, mean_precision, degrees_of_freedom, .. } = prior;
        let family = match self.weights {
            WeightFamily::Dirichlet => "Dirichlet distribution",
            WeightFamily::DirichletProcess => "Dirichlet process",
        };
        let concentration = weights.concentration();
        format!(
            "variational Bayes: {family} of concentration {concentration}, mean precision {mean_precision}, degrees of \
             freedom {degrees_of_freedom}{}",
            if self.moves { ", moves" } else { "" }
        )
    }
}
