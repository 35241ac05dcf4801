//! Priors as a user writes them, in TOML or as a structure; what is left out has a default that scales with the data.

use serde::{Deserialize, Serialize};

use crate::Error;

/// The three parts of a prior; a part that is `None` has its default, see [`Prior`](super::Prior).
///
/// ```
/// use gmm_mcmc::{CovariancesPrior, PriorOptions};
///
/// let text = r#"
///     [weights]
///     prior = "dirichlet"
///     concentration = 2.0
///     [covariances]
///     prior = "lkj"
///     eta = 4.0
///     scale = [1.0, 20.0]
/// "#;
/// let options = PriorOptions::from_toml(text)?;
/// assert!(options.means.is_none() && matches!(options.covariances, Some(CovariancesPrior::Lkj { .. })));
/// assert!(PriorOptions::from_toml("[means]\nprior = 'normal'\nsigma = 1.0").is_err());
/// # Ok::<(), gmm_mcmc::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorOptions {
    /// Of the component weights.
    pub weights: Option<WeightsPrior>,
    /// Of each component's mean.
    pub means: Option<MeansPrior>,
    /// Of each covariance; of the only one where it is tied.
    pub covariances: Option<CovariancesPrior>,
}

impl PriorOptions {
    /// Reads the TOML form.
    ///
    /// # Errors
    /// [`Error::Prior`] with line and column for what is not TOML, a key that is not known, and a value of another type.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|e| Error::Prior(e.to_string().trim_end().to_owned()))
    }
}

/// Prior of the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prior", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WeightsPrior {
    /// Every distribution alike: a Dirichlet of concentration 1.
    Flat,
    /// A symmetric Dirichlet.
    Dirichlet {
        /// The same for each component; default 1.
        concentration: Option<f64>,
    },
}

/// Prior of each mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prior", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MeansPrior {
    /// Constant; proper (as a posterior) with one component alone.
    Flat,
    /// Independent normals, one for each column.
    Normal {
        /// Where they are centred; default the middle of the column's range.
        mean: Option<PerColumn>,
        /// Their standard deviations; default the column's range.
        sd: Option<PerColumn>,
    },
}

/// Prior of each covariance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prior", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CovariancesPrior {
    /// Constant: never proper, and refused.
    Flat,
    /// For full and tied: inverse-Wishart with a diagonal scale matrix.
    InverseWishart {
        /// Above `d − 1`; default `d + 2`.
        degrees_of_freedom: Option<f64>,
        /// The scale's diagonal, in squared units of the data; default the columns' variances times `k^(−2/d)`.
        scale: Option<PerColumn>,
    },
    /// For full and tied: an LKJ prior of the correlations, half-normals of the standard deviations.
    Lkj {
        /// Shape: 1 is flat over correlation matrices, more is nearer to none; default 2.
        eta: Option<f64>,
        /// Scales of the half-normals, in units of the data; default the columns' standard deviations.
        scale: Option<PerColumn>,
    },
    /// For diag and spherical: inverse-gammas of the variances.
    InverseGamma {
        /// Shape; default 3/2.
        shape: Option<f64>,
        /// Scale, in squared units of the data; default half the columns' variances times `k^(−2/d)`.
        scale: Option<PerColumn>,
    },
    /// For diag and spherical: half-normals of the standard deviations.
    HalfNormal {
        /// Their scales, in units of the data; default the columns' standard deviations.
        scale: Option<PerColumn>,
    },
}

/// One number for all columns, or one for each, `(d,)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PerColumn {
    /// The same for all.
    All(f64),
    /// `(d,)`.
    Each(Vec<f64>),
}

impl PerColumn {
    /// The numbers written out, `(len,)`.
    pub(super) fn spread(&self, what: &str, len: usize) -> Result<Vec<f64>, Error> {
        match self {
            Self::All(value) => Ok(vec![*value; len]),
            Self::Each(values) if values.len() == len => Ok(values.clone()),
            Self::Each(values) => {
                Err(Error::Prior(format!("{what} has {} numbers, expected {len} (or one for all)", values.len())))
            }
        }
    }
}
