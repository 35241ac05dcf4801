//! Variational Bayes: priors and posteriors of all parameters of a mixture.
//!
//! The posterior is approximated by `q(z) q(π) Π_c q(μ_c, Λ_c)`, with Λ the precisions. One iteration is a pass and an
//! update, as in EM:
//!
//! 1. The expected log density of a row under component `c` is a Gaussian log density plus a constant. So the E-step is a
//!    pass of any engine under the mixture of [`Posterior::expectation`], and needs no kernel.
//! 2. [`BayesPrior::update`] computes the posterior from the [`Statistics`](crate::Statistics) of that pass. A GPU does so
//!    itself.
//!
//! The lower bound of the log evidence is the log-likelihood of the pass, plus that mixture's constant per row, less
//! [`Posterior::divergence`]. All constants are included, so bounds of different `k`, kinds and priors can be compared.
//! It holds for any posterior, and the two steps maximise it in turn.
//!
//! | kind | prior of a component | here |
//! | --- | --- | --- |
//! | full | Normal-Wishart | `Λ ~ W(ν, C⁻¹)`, `μ given Λ ~ N(m, (βΛ)⁻¹)` |
//! | tied | Normal-Wishart | one Λ of `W(kν, (kC)⁻¹)` |
//! | diag | Normal-Gamma per column | `λ_j ~ Gamma(ν/2, C_j/2)` |
//! | spherical | Normal-Gamma | `λ ~ Gamma(dν/2, dC/2)` |
//!
//! With these, posterior means and expected precisions are those of scikit-learn for all kinds (for tied its prior counts
//! once per component). Its E-step takes `E ln |Λ|` of a Wishart distribution for diag and spherical too, which is not
//! the expectation under their Gamma distributions if `d > 1`; here it is, or the bound could fall.
//!
//! Source: Bishop 2006, section 10.2; Attias 2000; Blei and Jordan 2006.

mod digamma;
mod draw;
mod loops;
mod posterior;
mod predictive;
mod prior;
mod update;
mod weights;

pub(crate) use digamma::ln_gamma_multivariate;
pub use posterior::{Expectation, Posterior, PosteriorNumbers};
pub use predictive::Predictive;
pub use prior::{BayesPrior, WeightPrior};
pub use weights::WeightPosterior;
