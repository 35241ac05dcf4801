//! Rows that are known only within limits: censored, rounded and truncated data.
//!
//! A value may be known only to be in an interval: below a detection limit, above the largest mark of a scale, or within the
//! rounding of what was written down. With the exact values `x_o` of a row and the box `B` of the others, the row's density is
//!
//! ```text
//! f(row) = Σ_c π_c N(x_o; μ_c, Σ_c) P_c(B | x_o),
//! ```
//!
//! and EM expects the first two moments of the values in the box: those of a truncated normal distribution (Tallis 1961, "The
//! moment generating function of the truncated multi-normal distribution"; for mixtures Lee and Scott 2012, "EM algorithms for
//! multivariate Gaussian mixture models with truncated and censored data"). Values are taken to be censored by limits that do
//! not depend on them.
//!
//! Truncation is another matter: rows outside of a box `T` were never recorded, and nobody knows how many. The density of a
//! recorded row then is `f / P(T)` with `P(T) = Σ_c π_c P_c(T)`. For `N` recorded rows EM expects `N π_c (1 − P_c(T)) / P(T)`
//! rows of component `c` outside, with the moments of the component there (Dempster, Laird and Rubin 1977, section 4.2). Lee
//! and Scott correct the M-step by the same moments; the fixed points are the same, and with expected rows the likelihood
//! never falls.
//!
//! Both give the [`Statistics`](crate::Statistics) of any other pass, so every M-step applies, for all covariance kinds.
//! [`Region`] has the integrals, [`reference`](mod@reference) the naive form.

mod interval;
mod legendre;
mod limits;
mod plane;
pub mod reference;
mod region;
#[cfg(test)]
mod region_tests;
mod tilted;

pub use interval::IntervalMoments;
pub use limits::Limits;
pub use region::{MAX_DEPENDENT, Region};
