//! What a fit does beyond maximum likelihood: the options, and the rule that they become for one data set.

mod bayes;
mod labels;
mod moves;
mod resolved;

use std::sync::Arc;

use gmm_model::{ConjugatePrior, FixedParts, MStepRule, PriorScale, Starved};
use ndarray::Array1;

use crate::noise::NoiseOptions;
use crate::{Error, FitOptions, Init, TruncatedOptions};

pub use bayes::{BayesOptions, WeightFamily};
pub(crate) use labels::separate;
pub(crate) use moves::improve;
pub(crate) use resolved::{Expectation, Rule, of_data, of_statistics};

/// What a fit does beyond maximum likelihood: prior, covariance floor, dropping of starved components, fixed and shared
/// parts, factors, labels, noise. [`FitRule::none`] is the plain fit.
///
/// With a prior, a floor or dropping, a fit of finite data always ends with a model: a covariance that would not be
/// positive definite gets variances of 2⁻⁴⁰ of the data's in the directions that it lacks
/// ([`MStepRule::rescue`]), variances stay large enough that no row's squared distance overflows, and `f32` rows whose
/// squares would overflow are stored in `f64`. What remains an error are values whose squares leave the range of `f64`
/// (beyond about 1e150), and columns whose variances differ by more than its range.
///
/// With any rule but variational Bayes without labels the host makes the M-steps from the statistics of a pass, on every
/// engine; a GPU's loop is not used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitRule {
    /// The prior of means, covariances and weights, whose mode is looked for.
    pub prior: Prior,
    /// Variational Bayes: the posterior of all parameters. Only labels may be used with it.
    pub bayes: Option<BayesOptions>,
    /// The smallest variances.
    pub floor: Floor,
    /// Which components are dropped for lack of rows.
    pub starved: Option<Starved>,
    /// Parameters that keep the bits that they have in the start, which must be [`Init::Given`].
    pub fixed: FixedParts,
    /// Groups of components that share one covariance. Not for tied, where all do.
    pub shared: Vec<Vec<usize>>,
    /// The number of factors of each covariance, at least 1 and below `d`: a mixture of factor analysers, whose full
    /// covariances are `Λ Λᵀ + diag(ψ)` ([`Mixture::loadings`](gmm_model::Mixture::loadings)). Uniquenesses `ψ` are at least `reg_covar`, and floors apply
    /// to them. A given start without factors is brought to the nearest ones first.
    pub factors: Option<usize>,
    /// The component of each row, `(n,)`, or `None` if it is not known. The likelihood of a labelled row is that of row
    /// and label.
    pub labels: Option<Arc<Vec<Option<usize>>>>,
    /// A uniform noise component for rows that belong to no other.
    pub noise: Option<NoiseOptions>,
    /// Each row counts for a few components only, which are searched for: for thousands of components in any number of columns.
    /// What the fit reports as log-likelihood is then a lower bound.
    pub truncated: Option<TruncatedOptions>,
}

/// The prior of a fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Prior {
    /// None: maximum likelihood.
    #[default]
    None,
    /// The conjugate prior with the default of Fraley and Raftery (2007), from the data: see
    /// [`ConjugatePrior::default_for`].
    Conjugate,
    /// A given conjugate prior.
    Given(Box<ConjugatePrior>),
    /// [`Prior::Conjugate`], of which some parts are given.
    Parts(Box<PriorParts>),
}

/// Parts of a conjugate prior that replace those of the default: see [`ConjugatePrior`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriorParts {
    /// μ_P, `(d,)`.
    pub mean: Option<Array1<f64>>,
    /// κ.
    pub shrinkage: Option<f64>,
    /// ν.
    pub degrees_of_freedom: Option<f64>,
    /// Λ or ς².
    pub scale: Option<PriorScale>,
    /// α.
    pub concentration: Option<f64>,
}

impl PriorParts {
    /// A prior with these parts replaced.
    pub(crate) fn over(&self, default: ConjugatePrior) -> ConjugatePrior {
        ConjugatePrior {
            mean: self.mean.clone().unwrap_or(default.mean),
            shrinkage: self.shrinkage.unwrap_or(default.shrinkage),
            degrees_of_freedom: self.degrees_of_freedom.unwrap_or(default.degrees_of_freedom),
            scale: self.scale.clone().unwrap_or(default.scale),
            concentration: self.concentration.unwrap_or(default.concentration),
        }
    }
}

/// The smallest variances: in column `j`, the larger of `absolute` and `relative` times the variance of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Floor {
    /// In squared units of the data.
    pub absolute: f64,
    /// A fraction of the variance of each column.
    pub relative: f64,
}

impl FitRule {
    /// The plain fit: maximum likelihood.
    pub const fn none() -> Self {
        Self {
            prior: Prior::None,
            bayes: None,
            floor: Floor { absolute: 0.0, relative: 0.0 },
            starved: None,
            fixed: FixedParts { weights: Vec::new(), means: Vec::new(), covariances: Vec::new() },
            shared: Vec::new(),
            factors: None,
            labels: None,
            noise: None,
            truncated: None,
        }
    }

    /// Whether this is the plain fit.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// Errors if there is noise, for what uses only the Gaussian components.
    pub(crate) fn refuse_noise(&self, what: &str) -> Result<(), Error> {
        if self.noise.is_none() {
            return Ok(());
        }
        let must = format!("left out for {what}");
        Err(Error::Option { option: "uniform noise", value: "on".to_owned(), must })
    }

    /// Whether a fit of finite data always ends with a model.
    pub fn never_fails(&self) -> bool {
        self.prior != Prior::None || self.bayes.is_some() || self.floor != Floor::default() || self.starved.is_some()
    }

    /// Whether a fit goes on with moves.
    pub(crate) fn has_moves(&self) -> bool {
        self.bayes.as_ref().is_some_and(|bayes| bayes.moves)
    }

    /// Checks all that does not depend on the data.
    pub(crate) fn validate(&self, options: &FitOptions) -> Result<(), Error> {
        let refuse = |option, value: String, must: &str| Err(Error::Option { option, value, must: must.to_owned() });
        for (option, value) in [("floor", self.floor.absolute), ("relative floor", self.floor.relative)] {
            if !(value >= 0.0 && value.is_finite()) {
                return refuse(option, value.to_string(), "finite and not negative");
            }
        }
        if let Some(bayes) = &self.bayes {
            bayes.validate()?;
            let alone = Self { bayes: Some(bayes.clone()), labels: self.labels.clone(), ..Self::none() };
            if *self != alone {
                return refuse(
                    "bayes",
                    "on".to_owned(),
                    "used without prior, floors, dropping, fixed and shared parts, factors, noise and truncated EM",
                );
            }
        }
        let FitOptions { n_components: k, covariance_type: kind, .. } = *options;
        let Self { fixed, starved, .. } = self;
        self.without_data().check(kind, k, 0)?;
        if !fixed.is_none() && !matches!(options.init, Init::Given(_)) {
            return refuse("fixed parts", "set".to_owned(), "used with a given start, whose parameters they are");
        }
        if let Some(noise) = &self.noise {
            noise.validate(options)?;
        }
        if let Some(truncated) = self.truncated {
            truncated.validate(options)?;
        }
        let Some(labels) = &self.labels else { return Ok(()) };
        if let Some(row) = labels.iter().position(|label| label.is_some_and(|c| c >= k)) {
            let value = format!("{} in row {row}", labels[row].expect("a label"));
            return refuse("label", value, "a component, from 0 to n_components - 1, or absent");
        }
        if starved.is_some() {
            return refuse(
                "dropping of starved components",
                "on".to_owned(),
                "used without labels, which name components",
            );
        }
        if !matches!(options.init, Init::KMeans | Init::KMeansPlusPlus | Init::Given(_)) {
            return refuse("init", format!("{:?}", options.init), "kmeans, kmeans++ or given parameters with labels");
        }
        Ok(())
    }

    /// The parts of the M-step's rule that do not depend on the data.
    pub(super) fn without_data(&self) -> MStepRule {
        let Self { fixed, shared, starved, factors, .. } = self;
        MStepRule {
            fixed: fixed.clone(),
            shared: shared.clone(),
            starved: *starved,
            factors: *factors,
            ..MStepRule::default()
        }
    }

    /// One line for each part, for the record of a fit.
    pub(crate) fn lines(&self, rule: &Rule) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(options), Some(bayes)) = (&self.bayes, &rule.bayes) {
            lines.push(options.line(&bayes.prior));
        }
        if let Some(prior) = &rule.m_step.prior {
            let from = if self.prior == Prior::Conjugate { " (Fraley and Raftery 2007)" } else { "" };
            let ConjugatePrior { shrinkage, degrees_of_freedom, concentration, .. } = prior;
            let dirichlet =
                if *concentration == 1.0 { String::new() } else { format!(", concentration {concentration}") };
            lines.push(format!(
                "conjugate prior{from}: shrinkage {shrinkage}, degrees of freedom {degrees_of_freedom}{dirichlet}"
            ));
        }
        let Floor { absolute, relative } = self.floor;
        if absolute > 0.0 {
            lines.push(format!("covariance floor {absolute}"));
        }
        if relative > 0.0 {
            lines.push(format!("covariance floor {relative} of the variance of the data"));
        }
        if let Some(Starved { min_count, min_weight }) = self.starved {
            lines.push(format!("starved components dropped: count at most {min_count} or weight at most {min_weight}"));
        }
        let FixedParts { weights, means, covariances } = &self.fixed;
        for (what, all) in [("weights", weights), ("means", means), ("covariances", covariances)] {
            if !all.is_empty() {
                lines.push(format!("fixed {what} of components {all:?}"));
            }
        }
        if let Some(h) = self.factors {
            lines.push(format!("covariances of {h} factor{}", if h == 1 { "" } else { "s" }));
        }
        lines.extend(self.shared.iter().map(|group| format!("one covariance for components {group:?}")));
        if let Some(labels) = &self.labels {
            lines.push(format!("{} of {} rows labelled", labels.iter().flatten().count(), labels.len()));
        }
        if let (Some(options), Some(noise)) = (&self.noise, &rule.noise) {
            lines.push(options.line(&noise.start));
        }
        lines
    }
}
