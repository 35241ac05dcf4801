//! Rows with measurement errors of their own, and linear views of rows: extreme deconvolution.
//!
//! A row `w` of `m` values is a noisy view of a true row `v` of `d` values, which has the density of the mixture:
//!
//! ```text
//! w = R v + e,   e ~ N(0, S),   v ~ Σ_c π_c N(μ_c, Σ_c).
//! ```
//!
//! The error covariance `S`, `(m, m)`, and the projection `R`, `(m, d)`, are known and differ from row to row; without
//! projections `R` is the identity. So `w ~ Σ_c π_c N(R μ_c, T_c)` with `T_c = R Σ_c Rᵀ + S`, and EM expects the true row in
//! every component given the noisy one (Bovy, Hogg and Roweis 2011, "Extreme deconvolution", Annals of Applied Statistics 5,
//! 1657, section 3): its mean and covariance are
//!
//! ```text
//! b_c = μ_c + Σ_c Rᵀ T_c⁻¹ (w − R μ_c),   B_c = Σ_c − Σ_c Rᵀ T_c⁻¹ R Σ_c.
//! ```
//!
//! The sufficient statistics of the true rows then are `Σ r`, `Σ r (b − μ)` and `Σ r ((b − μ)(b − μ)ᵀ + B)`: the
//! [`Statistics`](crate::Statistics) of any other pass, so every M-step applies, for all covariance kinds. The density of a
//! row is that of `w`. [`reference`](mod@reference) is the naive form.

mod errors;
pub mod reference;
mod true_row;
mod views;

pub use errors::{ErrorCovariances, MeasurementErrors};
pub use true_row::TrueRows;
pub use views::Views;
