//! Log-likelihood ratios of speakers and background, with the components of largest density.

use std::ops::Range;

use gmm_model::{Mixture, ModelError, Precision, RowStorage};
use ndarray::ArrayView3;

use super::{Utterances, many};
use crate::{Engine, Error, cpu, shift};

/// Models of speakers: each has a component for every component of the background, in the same order.
#[derive(Clone, Copy)]
pub enum Speakers<'a> {
    /// Adapted means, `(s, k, d)`; weights and covariances are the background's.
    Means(ArrayView3<'a, f64>),
    /// Whole mixtures, of any covariance kind.
    Mixtures(&'a [Mixture]),
}

impl Speakers<'_> {
    /// Number of speakers.
    pub fn len(&self) -> usize {
        match self {
            Self::Means(means) => means.len_of(ndarray::Axis(0)),
            Self::Mixtures(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn borrowed(&self) -> Speakers<'_> {
        match self {
            Self::Means(means) => Speakers::Means(means.view()),
            Self::Mixtures(all) => Speakers::Mixtures(all),
        }
    }

    fn check(&self, background: &Mixture) -> Result<(), Error> {
        let (k, d) = background.means().dim();
        let wrong = |found: Vec<usize>, expected: Vec<usize>| {
            Err(ModelError::Shape { what: "means of a speaker", found, expected }.into())
        };
        match self {
            Self::Means(means) if means.shape()[1..] != [k, d] => {
                wrong(means.shape().to_vec(), vec![means.shape()[0], k, d])
            }
            Self::Means(means) => match means.indexed_iter().find(|(_, v)| !v.is_finite()) {
                Some(((_, component, _), &value)) => {
                    Err(ModelError::NotFinite { what: "mean of a speaker", component, value }.into())
                }
                None => Ok(()),
            },
            Self::Mixtures(all) => match all.iter().find(|one| one.means().dim() != (k, d)) {
                Some(other) => wrong(other.means().shape().to_vec(), vec![k, d]),
                None => Ok(()),
            },
        }
    }

    /// Whether some means lose precision in `f32`.
    fn is_felt(&self, background: &Mixture, at: &[f64]) -> bool {
        match self {
            Self::Means(means) => cpu::is_felt(*means, background, at),
            Self::Mixtures(all) => all.iter().any(|one| shift::is_felt(one, at, Precision::F32)),
        }
    }
}

/// A speaker's model and the utterance that it is compared with, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Index into the speakers.
    pub speaker: usize,
    /// Index into the utterances.
    pub utterance: usize,
}

/// Options of [`log_likelihood_ratios`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatioOptions {
    /// Components of each row; at least `k` for all. Default 5, the number of Reynolds, Quatieri and Dunn 2000.
    pub top: usize,
}

impl Default for RatioOptions {
    fn default() -> Self {
        Self { top: 5 }
    }
}

/// What [`Engine::ratios`] is asked for, checked.
#[derive(Clone, Copy)]
pub struct Ratios<'a> {
    /// The mixture that selects components.
    pub background: &'a Mixture,
    /// Of the background's shape.
    pub speakers: Speakers<'a>,
    /// The rows of each utterance.
    pub utterances: &'a [Range<usize>],
    /// Of speakers and utterances that exist.
    pub trials: &'a [Trial],
    /// From 1 to `k`.
    pub top: usize,
}

/// The mean over an utterance's rows of `ln p(x | speaker) − ln p(x | background)`, of each trial, `(trials.len(),)`.
///
/// Both densities are sums over the `top` components of the row that have the largest densities under the background,
/// since an adapted component stays near its origin (Reynolds, Quatieri and Dunn 2000, section 3.4). They are selected
/// once per utterance, whatever the number of speakers. Rows of weight `w` count `w` times.
///
/// The CPU engine computes densities in the precision of the utterances, unless means need `f64`; its bits do not depend on
/// threads. A GPU, of several the first, computes them in `f64`. It leaves all trials to the CPU if it has no room for their
/// utterances and speakers, is slow in `f64`, or if a row has fewer than `top` components whose densities, relative to its
/// largest, are above 0 in the precision of the rows: which of the others are the largest is then unknown there.
///
/// # Errors
/// [`Error::Features`] and [`Error::Model`] if shapes differ; [`Error::Option`] if `top` is 0, an utterance has no rows, a
/// trial names a speaker or utterance that does not exist, or a row is so far from all components that both densities are
/// 0; [`Error::Memory`].
///
/// Cost: `k` densities per row of each utterance, and `top` per row of each trial.
pub fn log_likelihood_ratios(
    engine: &dyn Engine,
    background: &Mixture,
    speakers: &Speakers<'_>,
    utterances: &Utterances<'_>,
    trials: &[Trial],
    options: &RatioOptions,
) -> Result<Vec<f64>, Error> {
    utterances.check(background)?;
    speakers.check(background)?;
    many::check_top(options.top)?;
    let (s, u) = (speakers.len(), utterances.rows.len());
    if let Some(trial) = trials.iter().find(|trial| trial.speaker >= s || trial.utterance >= u) {
        let value = format!("of speaker {} and utterance {}", trial.speaker, trial.utterance);
        let must = format!("below {s} and {u}, their numbers");
        return Err(Error::Option { option: "trial", value, must });
    }
    let at = shift::of_mixture(background);
    let wide = shift::is_felt(background, &at, utterances.precision) || speakers.is_felt(background, &at);
    let precision = if wide { Precision::F64 } else { engine.precision(utterances.precision) };
    let storage = RowStorage { precision, shift: at };
    let top = options.top.min(background.n_components());
    let asked = Ratios { background, speakers: speakers.borrowed(), utterances: utterances.rows, trials, top };
    let ratios = match engine.ratios(utterances.data, &storage, &asked)? {
        Some(ratios) => ratios,
        None => many::on_cpu_instead(engine)?.trial_ratios(utterances.data, &storage, &asked)?,
    };
    match ratios.iter().position(|v| v.is_nan()) {
        Some(at) => {
            let value = format!("number {}", trials[at].utterance);
            let must = "nearer to the background: a row has density 0 under every component".to_owned();
            Err(Error::Option { option: "utterance", value, must })
        }
        None => Ok(ratios),
    }
}
