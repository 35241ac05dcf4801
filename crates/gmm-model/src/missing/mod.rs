//! Rows with missing values: the marginal mixture of the observed columns, and the statistics of EM.
//!
//! With missing values at random, the likelihood of a row is the density of its observed values, which is that of the
//! [marginal mixture](crate::Mixture::marginal). The E-step then expects, in every component, the missing values and their
//! products given the observed ones (Ghahramani and Jordan 1994, "Supervised learning from incomplete data via an EM
//! approach", section 3.2; for one component Little and Rubin 2019, section 11.2). With the centres at the means, the
//! missing part of `z = x − μ` has the mean `B z_o` and the covariance `S = Σ_mm − B Σ_om`, where `B = Σ_mo Σ_oo⁻¹`. Both
//! moments are linear in the moments of the observed columns:
//!
//! ```text
//! Σ r ẑ_m = B Σ r z_o,   Σ r ẑ_m z_oᵀ = B Σ r z_o z_oᵀ,   Σ r (ẑ_m ẑ_mᵀ + S) = B (Σ r z_o z_oᵀ) Bᵀ + S Σ r.
//! ```
//!
//! So one pass over the rows of a pattern (a set of observed columns), under its marginal mixture, gives all that is needed:
//! [`Completion`] turns the [`Statistics`](crate::Statistics) of the observed columns into those of all columns, at a cost
//! that does not depend on the number of rows. [`reference`](mod@reference) is the naive form.

mod completion;
pub mod reference;
mod rubin;

pub use completion::Completion;
pub use rubin::Pooled;
