//! Options of sampling, the prior of the concentration, and the default prior.

use std::fmt;

use gmm_host::memory;
use gmm_model::bayes::{BayesPrior, WeightPrior};
use gmm_model::{CovarianceType, Dataset, ModelError, PriorScale};
use ndarray::{Array1, Array2};

use crate::error::refuse;
use crate::{ConjugateParts, Error, PriorOptions};

/// The concentration α of the Dirichlet process: a priori there are about `α ln(1 + n/α)` clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Concentration {
    /// A number.
    Fixed(f64),
    /// A Gamma prior. Source: Escobar and West 1995.
    Gamma {
        /// Shape.
        shape: f64,
        /// Rate, the inverse of the scale: the mean is `shape / rate`.
        rate: f64,
    },
}

impl fmt::Display for Concentration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(alpha) => alpha.fmt(f),
            Self::Gamma { shape, rate } => write!(f, "gamma:{shape},{rate}"),
        }
    }
}

impl Concentration {
    /// Where chains start: the prior mean.
    pub(super) const fn start(self) -> f64 {
        match self {
            Self::Fixed(alpha) => alpha,
            Self::Gamma { shape, rate } => shape / rate,
        }
    }

    /// Of α under its prior; 0 if it is fixed.
    pub(super) fn log_density(self, alpha: f64) -> f64 {
        match self {
            Self::Fixed(_) => 0.0,
            Self::Gamma { shape, rate } => {
                shape * libm::log(rate) - libm::lgamma(shape) + (shape - 1.0) * libm::log(alpha) - rate * alpha
            }
        }
    }
}

/// Options of [`sample`](super::sample).
#[derive(Clone, Debug, PartialEq)]
pub struct DpOptions {
    /// Covariance kind: full, diag or spherical.
    pub kind: CovarianceType,
    /// The prior of each cluster's mean and covariance. Its prior of weights does not count.
    pub prior: BayesPrior,
    /// The concentration; default 1.
    pub concentration: Concentration,
    /// Number of chains; default 4.
    pub chains: usize,
    /// Draws kept per chain; default 1000.
    pub draws: usize,
    /// Sweeps before the first draw; default 200.
    pub warmup: usize,
    /// Sweeps per kept draw; default 1.
    pub thin: usize,
    /// Proposals per sweep, of which a fifth are splits and the others merges; default 25.
    pub moves: usize,
    /// Rows per sweep whose label is drawn with all parameters integrated out; default 50.
    pub single_rows: usize,
    /// Clusters at the start of a chain; default 1. With more, each row joins the nearest of as many rows drawn at random,
    /// in units of the columns' standard deviations. Chains that start from one cluster and chains that start from many,
    /// and agree, have converged.
    pub start: usize,
    /// Random seed.
    pub seed: u64,
}

impl DpOptions {
    /// The defaults.
    pub const fn new(kind: CovarianceType, prior: BayesPrior) -> Self {
        Self {
            kind,
            prior,
            concentration: Concentration::Fixed(1.0),
            chains: 4,
            draws: 1000,
            warmup: 200,
            thin: 1,
            moves: 25,
            single_rows: 50,
            start: 1,
            seed: 0,
        }
    }

    /// Checks ranges that do not depend on the data.
    ///
    /// # Errors
    /// [`Error::Option`] with the first invalid option, its value and its range.
    pub fn validate(&self) -> Result<(), Error> {
        if self.kind == CovarianceType::Tied {
            return refuse("covariance_type", "tied", "full, diag or spherical: clusters must be independent");
        }
        let counts: [_; 4] =
            [("chains", self.chains), ("draws", self.draws), ("thin", self.thin), ("start", self.start)];
        if let Some((option, value)) = counts.into_iter().find(|(_, value)| *value == 0) {
            return refuse(option, value, "at least 1");
        }
        if self.chains > 1024 {
            return refuse("chains", self.chains, "at most 1024");
        }
        let sweeps = self.draws.checked_mul(self.thin).and_then(|s| s.checked_add(self.warmup));
        if sweeps.is_none_or(|sweeps| sweeps as u64 >= 1 << 40) {
            return refuse("draws * thin + warmup", format!("{} * {}", self.draws, self.thin), "below 2^40");
        }
        if self.single_rows == 0 {
            return refuse("single_rows", 0, "at least 1, or some partitions would not be reached");
        }
        let positive = |v: f64| v > 0.0 && v.is_finite();
        match self.concentration {
            Concentration::Fixed(v) if !positive(v) => refuse("concentration", v, "positive and finite"),
            Concentration::Gamma { shape, rate } if !(positive(shape) && positive(rate)) => {
                refuse("concentration", format!("gamma:{shape},{rate}"), "of a positive shape and rate")
            }
            _ => Ok(()),
        }
    }

    /// Errors if rows and labels need more memory than is free.
    pub(super) fn check_memory(&self, n: usize, d: usize) -> Result<(), Error> {
        let draws = self.chains as u128 * self.draws as u128;
        let bytes = n as u128 * (8 * draws + 16 * d as u128 + 32);
        match memory::check("the labels of all draws", bytes) {
            Err(gmm_host::Error::Memory { wanted, free, .. }) => Err(Error::Memory { wanted, free }),
            other => Ok(other?),
        }
    }
}

/// A weak prior that scales with the data: that of Fraley and Raftery 2007 for one component. The prior mean is that of
/// the data and worth 0.01 rows. Covariances have `d + 2` degrees of freedom and the covariance of the data as scale;
/// variances of diag and spherical have shape 3/2 and half the variance of the data as scale.
///
/// A constant column gets the scale 1.
///
/// # Errors
/// [`ModelError`] if the covariance of the data is singular: give a prior then.
///
/// Source: Fraley and Raftery 2007, Bayesian regularization for normal mixture estimation, section 3.2.
pub fn default_prior(data: &Dataset, kind: CovarianceType) -> Result<BayesPrior, Error> {
    let prior = weak(data, kind)?;
    checked(prior, kind, data.n_features())
}

/// [`default_prior`], which may be singular.
fn weak(data: &Dataset, kind: CovarianceType) -> Result<BayesPrior, Error> {
    let (n, d) = data.rows().dim();
    let (mut mean, mut covariance) = (Array1::<f64>::zeros(d), Array2::<f64>::zeros((d, d)));
    let each = |see: &mut dyn FnMut(ndarray::ArrayView1<'_, f64>)| {
        gmm_host::Data::from(data).walk(&mut |_, rows| rows.outer_iter().for_each(&mut *see))
    };
    each(&mut |row| mean += &row.mapv(|v| v / n as f64))?;
    let divisor = (n.max(2) - 1) as f64;
    each(&mut |row| {
        let z = &row - &mean;
        for i in 0..d {
            covariance.row_mut(i).scaled_add(z[i] / divisor, &z);
        }
    })?;
    (0..d)
        .filter(|&j| covariance[[j, j]] == 0.0)
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|j| covariance[[j, j]] = 1.0);
    let mean_variance = covariance.diag().sum() / d as f64;
    let (degrees_of_freedom, scale) = match kind {
        CovarianceType::Full | CovarianceType::Tied => (d as f64 + 2.0, PriorScale::Matrix(covariance)),
        CovarianceType::Diag => (3.0, PriorScale::Variances(covariance.diag().to_owned())),
        // Shape dν/2 and scale dC/2.
        CovarianceType::Spherical => (3.0 / d as f64, PriorScale::Variance(mean_variance / d as f64)),
    };
    let weights = WeightPrior::DirichletProcess { concentration: 1.0 };
    let prior = BayesPrior { weights, mean, mean_precision: 0.01, degrees_of_freedom, scale };
    Ok(prior)
}

fn checked(prior: BayesPrior, kind: CovarianceType, d: usize) -> Result<BayesPrior, Error> {
    prior.check(kind, d).map_err(|error| match error {
        ModelError::Range { what, value, .. } => Error::Prior(format!(
            "{what} is {value}; if it was not given, the covariance of the data is singular: leave out columns that are \
             combinations of others, or give a scale"
        )),
        other => other.into(),
    })?;
    Ok(prior)
}

/// The prior of a cluster from the tables of [`PriorOptions`], where they have the same meaning; the rest from
/// [`default_prior`]: `mean` of normal means, and the keys of inverse-Wishart and inverse-gamma covariances.
/// `mean_precision` is the number of rows that the prior of a mean is worth.
///
/// # Errors
/// [`Error::Prior`] if a table or key has no meaning here, or numbers and columns do not match; and as for
/// [`default_prior`] if the scale is not given.
pub fn prior_from(
    given: &PriorOptions,
    mean_precision: Option<f64>,
    kind: CovarianceType,
    data: &Dataset,
) -> Result<BayesPrior, Error> {
    let d = data.n_features();
    if given.weights.is_some() {
        let why = "weights: a Dirichlet process has a concentration in place of them: use --concentration";
        return Err(Error::Prior(why.to_owned()));
    }
    let parts = ConjugateParts::new(given, kind, d)?;
    let mut prior = weak(data, kind)?;
    prior.mean_precision = mean_precision.unwrap_or(prior.mean_precision);
    prior.degrees_of_freedom = parts.degrees_of_freedom.unwrap_or(prior.degrees_of_freedom);
    prior.scale = parts.prior_scale(kind).unwrap_or(prior.scale);
    if let Some(mean) = parts.mean {
        prior.mean = mean.into();
    }
    checked(prior, kind, d)
}
