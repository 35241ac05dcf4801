//! Adaptation of a background mixture to the rows of one speaker or class: maximum a posteriori parameters, supervectors
//! of means, and linear scores.
//!
//! A universal background model (UBM) is fitted to the rows of many speakers. A speaker's model is the UBM moved towards
//! the speaker's own rows, component by component, as far as the rows support it. An adaptation is thus an M-step with
//! another rule, and needs the [`Statistics`] of one pass alone.

mod covariances;
mod supervector;

use std::borrow::Cow;

use ndarray::{Array1, Array2, ArrayViewMut2};

use crate::{Mixture, ModelError, Statistics};

pub use supervector::{Supervector, linear_score, linear_scores, supervector};

/// What is adapted, and how strongly the background holds. A relevance factor is the weight of rows at which a
/// component's parameters are halfway between the background's and the rows'; with 0 those of the rows replace them.
/// `None` keeps the background's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptOptions {
    /// Relevance factor of the means. Default 16, as in Reynolds, Quatieri and Dunn 2000.
    pub means: Option<f64>,
    /// Relevance factor of the covariances. Default `None`.
    pub variances: Option<f64>,
    /// Relevance factor of the weights. Default `None`.
    pub weights: Option<f64>,
    /// The rule for covariances and weights. Default [`AdaptRule::Reynolds`].
    pub rule: AdaptRule,
}

impl Default for AdaptOptions {
    fn default() -> Self {
        Self { means: Some(16.0), variances: None, weights: None, rule: AdaptRule::Reynolds }
    }
}

/// How covariances and weights are adapted; both rules adapt means alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptRule {
    /// Reynolds, Quatieri and Dunn 2000, eqs. 11 and 13: every component's weight has its own coefficient, then they are
    /// divided by their sum; the second moments of rows and background are averaged. bob.learn.em has the same weights and
    /// means, with a relevance factor of 4, but other variances: the background's second moment there is `Σ + M` in place of
    /// `Σ + M²` (`map_gmm_m_step` in `gmm.py` of version 3.3, `MAP_GMMTrainer::mStep` of version 2).
    Reynolds,
    /// Kaldi's `MapDiagGmmUpdate` (`gmm/mle-diag-gmm.cc`; `gmm-adapt-map`): `w = (n + τ w) / (Σn + τ)`; the background's covariance is averaged with the rows'
    /// second moment about the new mean, without the distance of the background's mean from it.
    Kaldi,
}

impl std::str::FromStr for AdaptRule {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "reynolds" => Ok(Self::Reynolds),
            "kaldi" => Ok(Self::Kaldi),
            _ => Err(ModelError::UnknownWord { what: "rule", word: text.to_owned(), choices: "reynolds, kaldi" }),
        }
    }
}

impl AdaptOptions {
    /// Checks that the relevance factors are finite and not negative.
    ///
    /// # Errors
    /// [`ModelError::Range`] with the first that is not.
    pub fn validate(&self) -> Result<(), ModelError> {
        for factor in [self.means, self.variances, self.weights].into_iter().flatten() {
            if !(factor >= 0.0 && factor.is_finite()) {
                let value = factor.to_string();
                return Err(ModelError::Range { what: "relevance", value, must: "finite and not negative" });
            }
        }
        Ok(())
    }
}

/// Maximum a posteriori adaptation of `background` to the rows whose statistics under it are given.
///
/// With `n` the weight of a component's rows, `e` and `S` the mean and the second moment of its rows about the
/// background's mean `M`, `α = n / (n + relevance)` of the respective parameter, and `δ = α e` the move of the mean:
///
/// ```text
/// m = M + δ
/// Σ' = α (S − e δᵀ − δ eᵀ + δ δᵀ) + (1 − α) (Σ + δ δᵀ)
/// w' ∝ α n / Σn + (1 − α) w
/// ```
///
/// With one relevance factor for means and variances this is eq. 13 of Reynolds, in moments about `M`, so that nothing
/// cancels. With different factors eq. 13 depends on the origin of the data and may become negative. This form takes both
/// second moments about the new mean, which depends on neither. Without eq. 13's `δ δᵀ` it is the rule of Kaldi.
///
/// A component without rows keeps its parameters. Spherical covariances adapt the mean of the columns' variances; the
/// shared one of kind tied cannot be adapted per component.
///
/// # Errors
/// [`ModelError`] if a relevance factor is negative or not finite, the statistics have another shape or, for variances,
/// another kind, they record another mixture, a moment is not finite, variances of kind tied are asked for, or a covariance
/// is singular, as it can be with a relevance of 0.
///
/// Cost: about `4 k d` flops (full: `k d²` with variances), and the factors of the new mixture.
///
/// Source: Reynolds, Quatieri and Dunn 2000, "Speaker Verification Using Adapted Gaussian Mixture Models", Digital
/// Signal Processing 10, eqs. 11 to 14; Gauvain and Lee 1994 for the priors behind them.
///
/// ```
/// use gmm_model::adapt::{AdaptOptions, adapt};
/// use gmm_model::{Covariances, Mixture, reference};
/// use ndarray::array;
///
/// let background = Mixture::new(array![1.0], array![[0.0]], Covariances::Diag(array![[1.0]]))?;
/// let statistics = reference::statistics(&background, array![[4.0], [4.0]].view(), None);
/// let options = AdaptOptions { means: Some(2.0), ..AdaptOptions::default() };
/// assert_eq!(adapt(&background, &statistics, &options)?.means(), array![[2.0]]);
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn adapt(background: &Mixture, statistics: &Statistics, options: &AdaptOptions) -> Result<Mixture, ModelError> {
    options.validate()?;
    let statistics = of_background(background, statistics)?;
    let means = options.means.map_or_else(|| background.means().to_owned(), |r| means_of(background, &statistics, r));
    let covariances = match options.variances {
        Some(relevance) => covariances::adapted(background, &statistics, &means, (relevance, options.rule))?,
        None => background.covariances().clone(),
    };
    let weights = match options.weights {
        Some(relevance) => weights_of(background, &statistics, relevance, options.rule),
        None => background.weights().to_owned(),
    };
    Mixture::new(weights, means, covariances)
}

/// The means of [`adapt`] alone, `(k, d)`: all that thousands of speakers with one background need.
///
/// # Errors
/// As for [`adapt`].
///
/// Cost: `2 k d` flops.
pub fn adapted_means(background: &Mixture, statistics: &Statistics, relevance: f64) -> Result<Array2<f64>, ModelError> {
    let mut means = background.means().to_owned();
    put_adapted_means(background, statistics, relevance, means.view_mut())?;
    Ok(means)
}

/// [`adapted_means`] in memory of the caller's, `(k, d)`.
///
/// # Errors
/// As for [`adapted_means`].
///
/// # Panics
/// If `out` has another shape.
pub fn put_adapted_means(
    background: &Mixture,
    statistics: &Statistics,
    relevance: f64,
    mut out: ArrayViewMut2<'_, f64>,
) -> Result<(), ModelError> {
    AdaptOptions { means: Some(relevance), ..AdaptOptions::default() }.validate()?;
    let statistics = of_background(background, statistics)?;
    move_means(background, &statistics, relevance, out.view_mut());
    match out.indexed_iter().find(|(_, v)| !v.is_finite()) {
        Some(((component, _), &value)) => Err(ModelError::NotFinite { what: "mean", component, value }),
        None => Ok(()),
    }
}

/// Checks that statistics are those of rows under `background`, and takes their moments about its means.
fn of_background<'a>(background: &Mixture, statistics: &'a Statistics) -> Result<Cow<'a, Statistics>, ModelError> {
    let (found, expected) = (statistics.dim(), background.means().dim());
    if found != expected {
        let (found, expected) = (vec![found.0, found.1], vec![expected.0, expected.1]);
        return Err(ModelError::Shape { what: "centres of the statistics", found, expected });
    }
    if statistics.mixture != 0 && statistics.mixture != background.fingerprint() {
        let value = "those of another mixture".to_owned();
        return Err(ModelError::Range { what: "statistics", value, must: "of a pass under the background" });
    }
    if statistics.centres == background.means() {
        return Ok(Cow::Borrowed(statistics));
    }
    let moved = statistics.clone().recentred(background.means().to_owned());
    Ok(Cow::Owned(moved.expect("shapes that were compared")))
}

/// `n / (n + relevance)`; 0 without rows.
fn share(weight: f64, relevance: f64) -> f64 {
    if weight > 0.0 { weight / (weight + relevance) } else { 0.0 }
}

/// `M + α e`, as `M + Σrz / (n + relevance)`.
fn means_of(background: &Mixture, statistics: &Statistics, relevance: f64) -> Array2<f64> {
    let mut means = Array2::zeros(background.means().dim());
    move_means(background, statistics, relevance, means.view_mut());
    means
}

/// Of [`means_of`], in `out`.
fn move_means(background: &Mixture, statistics: &Statistics, relevance: f64, mut out: ArrayViewMut2<'_, f64>) {
    out.assign(&background.means());
    for (c, mut mean) in out.outer_iter_mut().enumerate() {
        if statistics.weight[c] > 0.0 {
            mean.scaled_add(1.0 / (statistics.weight[c] + relevance), &statistics.first.row(c));
        }
    }
}

fn weights_of(background: &Mixture, statistics: &Statistics, relevance: f64, rule: AdaptRule) -> Array1<f64> {
    let total: f64 = statistics.weight.iter().sum();
    if total <= 0.0 {
        return background.weights().to_owned();
    }
    let pairs = statistics.weight.iter().zip(background.weights());
    let mixed: Array1<f64> = match rule {
        AdaptRule::Reynolds => pairs
            .map(|(&n, w)| {
                let alpha = share(n, relevance);
                alpha * n / total + (1.0 - alpha) * w
            })
            .collect(),
        AdaptRule::Kaldi => pairs.map(|(n, w)| (n + relevance * w) / (total + relevance)).collect(),
    };
    let sum = mixed.sum();
    mixed / sum
}
