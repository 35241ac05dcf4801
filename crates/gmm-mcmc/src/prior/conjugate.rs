//! The tables of a prior in the terms of a conjugate prior, where they have the same meaning.

use gmm_model::{CovarianceType, PriorScale};
use ndarray::{Array1, Array2};

use super::{CovariancesPrior, MeansPrior, PriorOptions, WeightsPrior};
use crate::Error;

/// The parts of a [`BayesPrior`](gmm_model::bayes::BayesPrior) that are given by [`PriorOptions`]. `None` is what the
/// tables leave out.
///
/// ```
/// use gmm_mcmc::{ConjugateParts, PriorOptions};
/// use gmm_model::CovarianceType;
///
/// let given = PriorOptions::from_toml("[covariances]\nprior = 'inverse-gamma'\nshape = 1.5\nscale = 2")?;
/// let parts = ConjugateParts::new(&given, CovarianceType::Diag, 2)?;
/// assert_eq!((parts.degrees_of_freedom, parts.scale), (Some(3.0), Some(vec![4.0, 4.0])));
/// # Ok::<(), gmm_mcmc::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConjugateParts {
    /// The concentration of a Dirichlet distribution of the weights.
    pub concentration: Option<f64>,
    /// The prior mean, `(d,)`.
    pub mean: Option<Vec<f64>>,
    /// ν.
    pub degrees_of_freedom: Option<f64>,
    /// The diagonal of `C`, `(d,)`; for spherical one number.
    pub scale: Option<Vec<f64>>,
}

impl ConjugateParts {
    /// The parts for a covariance kind and `d` columns.
    ///
    /// An inverse-Wishart distribution has the same parameters here. The variances of diag have the distribution
    /// inverse-gamma(ν/2, C/2), that of spherical inverse-gamma(dν/2, dC/2).
    ///
    /// # Errors
    /// [`Error::Prior`] if a table or key has no meaning in a conjugate prior, or numbers and columns do not match.
    pub fn new(given: &PriorOptions, kind: CovarianceType, d: usize) -> Result<Self, Error> {
        let wrong = |why: &str| Err(Error::Prior(why.to_owned()));
        let mut parts = Self::default();
        match given.weights {
            None => {}
            Some(WeightsPrior::Flat) => parts.concentration = Some(1.0),
            Some(WeightsPrior::Dirichlet { concentration }) => parts.concentration = Some(concentration.unwrap_or(1.0)),
        }
        match &given.means {
            None => {}
            Some(MeansPrior::Normal { mean, sd: None }) => {
                parts.mean = mean.as_ref().map(|mean| mean.spread("means: mean", d)).transpose()?;
            }
            Some(MeansPrior::Normal { .. }) => {
                return wrong(
                    "means: sd: a conjugate prior of a mean scales with the covariance of its component: leave sd out, and \
                     use --mean-precision",
                );
            }
            Some(MeansPrior::Flat) => return wrong("means: a flat prior is not conjugate: leave it out"),
        }
        match (&given.covariances, kind) {
            (None, _) => {}
            (
                Some(CovariancesPrior::InverseWishart { degrees_of_freedom, scale }),
                CovarianceType::Full | CovarianceType::Tied,
            ) => {
                parts.degrees_of_freedom = *degrees_of_freedom;
                parts.scale = scale.as_ref().map(|scale| scale.spread("covariances: scale", d)).transpose()?;
            }
            (
                Some(CovariancesPrior::InverseGamma { shape, scale }),
                CovarianceType::Diag | CovarianceType::Spherical,
            ) => {
                let (columns, len) = if kind == CovarianceType::Diag { (1.0, d) } else { (d as f64, 1) };
                let twice = |v: f64| 2.0 * v / columns;
                parts.degrees_of_freedom = shape.map(twice);
                let scale = scale.as_ref().map(|scale| scale.spread("covariances: scale", len)).transpose()?;
                parts.scale = scale.map(|scale| scale.into_iter().map(twice).collect());
            }
            _ => {
                return wrong(
                    "covariances: a conjugate prior is inverse-wishart for full and tied, inverse-gamma for diag and \
                     spherical",
                );
            }
        }
        Ok(parts)
    }

    /// The scale as a matrix, variances or one variance.
    pub(crate) fn prior_scale(&self, kind: CovarianceType) -> Option<PriorScale> {
        let scale = Array1::from(self.scale.clone()?);
        Some(match kind {
            CovarianceType::Full | CovarianceType::Tied => PriorScale::Matrix(Array2::from_diag(&scale)),
            CovarianceType::Diag => PriorScale::Variances(scale),
            CovarianceType::Spherical => PriorScale::Variance(scale[0]),
        })
    }
}
