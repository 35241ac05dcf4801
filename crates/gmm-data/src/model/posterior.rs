//! The field `posterior` of a model: prior and posterior of a fit by variational Bayes. Means and covariances are those of
//! the model's mixture.

use gmm_model::bayes::{BayesPrior, Posterior, PosteriorNumbers, WeightPosterior, WeightPrior};
use gmm_model::{Mixture, PriorScale};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};

use crate::Problem;
use crate::error::Fault;

/// The numbers of the field, with scikit-learn's names.
#[derive(Serialize, Deserialize)]
pub(super) struct PosteriorField {
    weight_prior: Family,
    weight_concentration_prior: f64,
    mean_prior: Vec<f64>,
    mean_precision_prior: f64,
    degrees_of_freedom_prior: f64,
    covariance_prior: Scale,
    weight_concentration: Concentration,
    mean_precision: Vec<f64>,
    degrees_of_freedom: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Family {
    Dirichlet,
    Dp,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Scale {
    Variance(f64),
    Variances(Vec<f64>),
    Matrix(Vec<Vec<f64>>),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Concentration {
    Dirichlet(Vec<f64>),
    /// The two parameters of each stick.
    Sticks(Vec<[f64; 2]>),
}

impl PosteriorField {
    pub(super) fn of(posterior: &Posterior) -> Self {
        let BayesPrior { weights, mean, mean_precision, degrees_of_freedom, scale } = posterior.prior();
        Self {
            weight_prior: match weights {
                WeightPrior::Dirichlet { .. } => Family::Dirichlet,
                WeightPrior::DirichletProcess { .. } => Family::Dp,
            },
            weight_concentration_prior: weights.concentration(),
            mean_prior: mean.to_vec(),
            mean_precision_prior: *mean_precision,
            degrees_of_freedom_prior: *degrees_of_freedom,
            covariance_prior: match scale {
                PriorScale::Matrix(a) => Scale::Matrix(a.outer_iter().map(|row| row.to_vec()).collect()),
                PriorScale::Variances(v) => Scale::Variances(v.to_vec()),
                PriorScale::Variance(v) => Scale::Variance(*v),
            },
            weight_concentration: match posterior.weights() {
                WeightPosterior::Dirichlet(all) => Concentration::Dirichlet(all.to_vec()),
                WeightPosterior::Sticks(all) => {
                    Concentration::Sticks(all.outer_iter().map(|stick| [stick[0], stick[1]]).collect())
                }
            },
            mean_precision: posterior.mean_precision().to_vec(),
            degrees_of_freedom: posterior.degrees_of_freedom().to_vec(),
        }
    }

    /// The posterior of a model with this mixture.
    pub(super) fn with(self, mixture: &Mixture) -> Result<Posterior, Fault> {
        let wrong = |why: String| Fault::field("posterior", Problem::Field(why));
        let concentration = self.weight_concentration_prior;
        let weights = match self.weight_prior {
            Family::Dirichlet => WeightPrior::Dirichlet { concentration },
            Family::Dp => WeightPrior::DirichletProcess { concentration },
        };
        let scale = match self.covariance_prior {
            Scale::Variance(v) => PriorScale::Variance(v),
            // An empty list could be either; it is wrong as both.
            Scale::Variances(v) => PriorScale::Variances(Array1::from_vec(v)),
            Scale::Matrix(rows) => {
                let shape = (rows.len(), rows.first().map_or(0, Vec::len));
                let matrix = Array2::from_shape_vec(shape, rows.concat());
                PriorScale::Matrix(matrix.map_err(|_| wrong("covariance_prior: rows of unequal length".to_owned()))?)
            }
        };
        let prior = BayesPrior {
            weights,
            mean: self.mean_prior.into(),
            mean_precision: self.mean_precision_prior,
            degrees_of_freedom: self.degrees_of_freedom_prior,
            scale,
        };
        let weights = match self.weight_concentration {
            Concentration::Dirichlet(all) => WeightPosterior::Dirichlet(all.into()),
            Concentration::Sticks(all) => {
                WeightPosterior::Sticks(Array2::from_shape_fn((all.len(), 2), |(c, i)| all[c][i]))
            }
        };
        let numbers = PosteriorNumbers {
            weights,
            mean_precision: self.mean_precision.into(),
            degrees_of_freedom: self.degrees_of_freedom.into(),
        };
        Posterior::new(prior, numbers, mixture.clone()).map_err(|e| Fault::field("posterior", Problem::Model(e)))
    }
}
