//! Gaussian mixtures as a mathematical object: parameters, covariance kinds, densities, sufficient statistics and the
//! M-step, information criteria, sampling, and the naive f64 [`reference`](mod@reference) against which all engines are
//! tested. No GPU code, no file formats.
//!
//! `n`, `k` and `d` always mean the numbers of rows, components and dimensions. Parameters are always `f64`, for data
//! of either precision.
//!
//! ```
//! use gmm_model::{Covariances, Mixture};
//! use ndarray::array;
//!
//! let mixture = Mixture::new(
//!     array![0.25, 0.75],
//!     array![[0.0, 0.0], [4.0, 1.0]],
//!     Covariances::Spherical(array![1.0, 2.0]),
//! )?;
//! assert_eq!((mixture.n_components(), mixture.n_features()), (2, 2));
//! # Ok::<(), gmm_model::ModelError>(())
//! ```

pub mod adapt;
pub mod bayes;
pub mod censoring;
mod cholesky;
mod conditional;
mod covariance;
mod criteria;
mod dataset;
pub mod deconvolution;
mod draw;
mod error;
mod factor_analysis;
mod labelled;
mod m_step;
mod marginal;
mod matrix;
pub mod memory;
pub mod missing;
mod mixture;
mod noise;
mod outliers;
mod parameter_draws;
mod precision_factor;
mod precision_mixture;
mod recentre;
pub mod reference;
mod row_array;
mod rule;
mod sample;
mod shown;
mod statistics;
mod storage;
pub mod structure;
mod summary;
mod synthetic;

pub use cholesky::{Cholesky, NotPositiveDefinite};
pub use conditional::Conditional;
pub use covariance::{CovarianceModel, CovarianceType, Covariances, packed_index, packed_len};
pub use criteria::{Criteria, Criterion, criteria, entropy};
pub use dataset::{Dataset, check_weights};
pub use draw::Draws;
pub use error::{DataError, ModelError, StatisticsError};
pub use factor_analysis::FactorLoadings;
pub use labelled::LabelledRows;
pub use m_step::{MStep, m_step};
pub use matrix::{Matrix, Precision};
pub use mixture::{Factors, Mixture};
pub use noise::{Noise, NoiseRegion, NoiseRotation, NoiseTerms, principal_axes};
pub use outliers::OutlierThreshold;
pub use parameter_draws::{DrawStat, Parameter, ParameterDraws};
pub use precision_factor::{covariance_of_precision, inverse_transposed};
pub use precision_mixture::{FactorShape, Numbers, PrecisionMixture};
pub use row_array::RowArray;
pub use rule::{ConjugatePrior, FixedParts, MStepRule, PriorScale, Starved, m_step_with};
pub use sample::{sample, sample_range};
pub use shown::{number, shown, three_digits};
pub use statistics::Statistics;
pub use storage::RowStorage;
pub use summary::FitSummary;
pub use synthetic::{SyntheticOptions, bartlett_factor, synthetic, wishart};
