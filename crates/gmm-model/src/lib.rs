//! What a Gaussian mixture is: parameters, covariance kinds, densities, sufficient statistics and the M-step,
//! information criteria, sampling, and [`reference`](mod@reference), the naive f64 oracle. No GPU, no files.
//!
//! `n`, `k` and `d` mean rows, components and dimensions everywhere. Parameters are `f64` whatever the data are.
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

mod cholesky;
mod covariance;
mod criteria;
mod dataset;
mod draw;
mod error;
mod m_step;
mod marginal;
pub mod memory;
mod mixture;
mod parameter_draws;
mod precision_factor;
mod precision_mixture;
pub mod reference;
mod sample;
mod shown;
mod statistics;
mod summary;
mod synthetic;

pub use cholesky::{Cholesky, NotPositiveDefinite};
pub use covariance::{CovarianceType, Covariances, packed_index, packed_len};
pub use criteria::{Criteria, Criterion, criteria, entropy};
pub use dataset::{Dataset, Matrix, Precision, check_weights};
pub use draw::Draws;
pub use error::{DataError, ModelError, StatisticsError};
pub use m_step::{MStep, m_step};
pub use mixture::{Factors, Mixture};
pub use parameter_draws::{DrawStat, Parameter, ParameterDraws};
pub use precision_factor::{covariance_of_precision, inverse_transposed};
pub use precision_mixture::{FactorShape, Numbers, PrecisionMixture};
pub use sample::{sample, sample_range};
pub use shown::{number, shown, three_digits};
pub use statistics::Statistics;
pub use summary::FitSummary;
pub use synthetic::{SyntheticOptions, bartlett_factor, synthetic, wishart};
