//! Options of `gmm fit` beyond maximum likelihood: prior, floors, dropping, fixed and shared parts.

use clap::Args;
use gmm_host::{FitRule, Floor, NoiseOptions, NoiseStart, Prior, TruncatedOptions};
use gmm_model::{CovarianceType, FixedParts, Starved};
use serde::{Deserialize, Serialize};

use super::bayes::{BayesArgs, PriorFile, is_file};
use crate::exit::Failure;

/// What a fit does beyond maximum likelihood. Stored in checkpoints.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RuleArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) objective: ObjectiveArgs,
    #[command(flatten)]
    #[serde(flatten)]
    noise: NoiseArgs,
    /// Components that keep their weight in --init MODEL: indices from 0, or all
    #[arg(long, value_name = "0,2|all", help_heading = "Beyond maximum likelihood")]
    fix_weights: Option<String>,
    /// Components that keep their mean in --init MODEL: indices from 0, or all
    #[arg(long, value_name = "0,2|all", help_heading = "Beyond maximum likelihood")]
    fix_means: Option<String>,
    /// Components that keep their covariance in --init MODEL: indices from 0, or all
    #[arg(long, value_name = "0,2|all", help_heading = "Beyond maximum likelihood")]
    fix_covariances: Option<String>,
    /// Components to update; the others keep all their parameters in --init MODEL
    #[arg(
        long,
        value_name = "0,2",
        conflicts_with_all = ["fix_weights", "fix_means", "fix_covariances"],
        help_heading = "Beyond maximum likelihood"
    )]
    update_only: Option<String>,
    /// Groups of components that share one covariance: '0,1;2,3', or all
    #[arg(long, value_name = "0,1;2,3", help_heading = "Beyond maximum likelihood")]
    share_covariance: Option<String>,
    /// Truncated EM: each row counts for the G components that explain it best, which are searched for near those it had
    /// before; for thousands of components of any kind but tied, on the CPU unless --device names a GPU. The log-likelihood is then
    /// a lower bound
    #[arg(
        long,
        value_name = "G",
        value_parser = listed,
        help_heading = "Beyond maximum likelihood"
    )]
    truncated: Option<usize>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) bayes: BayesArgs,
}

/// Prior, floors and dropping.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ObjectiveArgs {
    /// Maximise the posterior density under a conjugate prior instead of the likelihood: that of Fraley and Raftery
    /// (2007), made from the data, as in mclust. Components then cannot collapse onto a few rows. With --bayes a file in
    /// the form of gmm mcmc --prior; the options of --bayes take precedence over it
    #[arg(
        long,
        value_name = "conjugate|none|FILE.toml",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "conjugate",
        value_parser = prior,
        help_heading = "Beyond maximum likelihood"
    )]
    prior: Option<String>,
    /// Smallest variance of a component in any direction, in squared units of the data
    #[arg(long, value_name = "V", allow_hyphen_values = true, help_heading = "Beyond maximum likelihood")]
    floor: Option<f64>,
    /// Smallest variance of a component, as a fraction of the variance of each column
    #[arg(long, value_name = "F", allow_hyphen_values = true, help_heading = "Beyond maximum likelihood")]
    floor_relative: Option<f64>,
    /// Drop components whose rows count at most COUNT, or whose weight is at most 1e-5 (for Kaldi users:
    /// --remove-low-count-gaussians) [COUNT if left out: 10]
    #[arg(
        long,
        value_name = "COUNT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10",
        help_heading = "Beyond maximum likelihood"
    )]
    drop_starved: Option<f64>,
}

/// Uniform noise.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NoiseArgs {
    /// Add a uniform component for rows that belong to no other (Banfield and Raftery 1993), as in mclust. Rows whose
    /// neighbours are far away are noise at the start: those that nearest-neighbour cleaning finds, or the given SHARE
    #[arg(
        long,
        value_name = "SHARE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "cleaned",
        help_heading = "Beyond maximum likelihood"
    )]
    noise: Option<String>,
    /// Hypervolume of the region of --noise, as mclust's 1/Vinv [default: of the smaller of the boxes along columns and
    /// principal axes]
    #[arg(
        long,
        value_name = "V",
        requires = "noise",
        allow_hyphen_values = true,
        help_heading = "Beyond maximum likelihood"
    )]
    noise_volume: Option<f64>,
}

fn listed(value: &str) -> Result<usize, String> {
    let why =
        "it must be a number of components, at least 1; rows that were only recorded within limits have --recorded";
    value.parse().ok().filter(|g| *g > 0).ok_or_else(|| why.to_owned())
}

fn prior(value: &str) -> Result<String, String> {
    if ["conjugate", "none"].contains(&value) || is_file(value) {
        return Ok(value.to_owned());
    }
    Err("choose one of conjugate, none, or a file NAME.toml".to_owned())
}

impl ObjectiveArgs {
    /// The file of `--prior`, if it is one.
    ///
    /// # Errors
    /// As for [`PriorFile::read`].
    pub(crate) fn prior_file(&self, bayes: &BayesArgs) -> anyhow::Result<Option<PriorFile>> {
        PriorFile::read(self.prior.as_deref(), bayes)
    }

    /// The rule of a fit.
    pub(crate) fn rule(&self) -> FitRule {
        FitRule {
            prior: if self.prior.as_deref() == Some("conjugate") { Prior::Conjugate } else { Prior::None },
            floor: Floor {
                absolute: self.floor.unwrap_or_default(),
                relative: self.floor_relative.unwrap_or_default(),
            },
            starved: self.drop_starved.map(|min_count| Starved { min_count, ..Starved::default() }),
            ..FitRule::none()
        }
    }
}

impl RuleArgs {
    /// The file of `--prior`, if it is one.
    ///
    /// # Errors
    /// As for [`PriorFile::read`]; [`Failure::Usage`] if the fit goes on.
    pub(crate) fn prior_file(&self, resumes: bool) -> anyhow::Result<Option<PriorFile>> {
        match self.objective.prior.as_deref().filter(|value| is_file(value)) {
            Some(path) if resumes => {
                Err(usage("--prior", path, "the checkpoint has the prior: leave it out".to_owned()).into())
            }
            _ => self.objective.prior_file(&self.bayes),
        }
    }

    /// These options, with the numbers of a file in place of its name.
    ///
    /// # Errors
    /// As for [`BayesArgs::with_prior`].
    pub(crate) fn with_prior(&self, file: Option<&PriorFile>, kind: CovarianceType, d: usize) -> anyhow::Result<Self> {
        let Some(file) = file else { return Ok(self.clone()) };
        let bayes = self.bayes.with_prior(file, kind, d)?;
        Ok(Self { objective: ObjectiveArgs { prior: None, ..self.objective.clone() }, bayes, ..self.clone() })
    }

    /// The rule of a fit of `k` components of a kind, without labels.
    ///
    /// # Errors
    /// [`Failure::Usage`] if a list is malformed.
    pub(crate) fn rule(&self, kind: CovarianceType, k: usize) -> Result<FitRule, Failure> {
        let list = |option: &str, text: &Option<String>| {
            text.as_deref().map_or(Ok(Vec::new()), |text| components(text, k).map_err(|why| usage(option, text, why)))
        };
        let fixed = match &self.update_only {
            Some(_) => FixedParts::all_but(&list("--update-only", &self.update_only)?, k),
            None => FixedParts {
                weights: list("--fix-weights", &self.fix_weights)?,
                means: list("--fix-means", &self.fix_means)?,
                covariances: list("--fix-covariances", &self.fix_covariances)?,
            },
        };
        let groups = |text: &String| {
            let of = |group| components(group, k).map_err(|why| usage("--share-covariance", text, why));
            text.split(';').map(of).collect::<Result<Vec<_>, _>>()
        };
        Ok(FitRule {
            fixed,
            shared: self.share_covariance.as_ref().map_or(Ok(Vec::new()), groups)?,
            noise: self.noise.options()?,
            truncated: self.truncated.map(|components| TruncatedOptions { components }),
            bayes: self.bayes.options(kind)?,
            ..self.objective.rule()
        })
    }
}

impl NoiseArgs {
    /// The noise component.
    ///
    /// # Errors
    /// [`Failure::Usage`] if a number is malformed or outside its range.
    pub(crate) fn options(&self) -> Result<Option<NoiseOptions>, Failure> {
        let Some(word) = self.noise.as_deref() else { return Ok(None) };
        let start = match word {
            "cleaned" => NoiseStart::Cleaned,
            share => match share.parse() {
                Ok(share) if share > 0.0 && share < 1.0 => NoiseStart::Share(share),
                _ => return Err(usage("--noise", share, "it must be a share above 0 and below 1".to_owned())),
            },
        };
        let log_volume = match self.noise_volume {
            Some(volume) if !(volume > 0.0 && volume.is_finite()) => {
                return Err(usage("--noise-volume", &volume.to_string(), "it must be positive and finite".to_owned()));
            }
            volume => volume.map(f64::ln),
        };
        Ok(Some(NoiseOptions { start, log_volume }))
    }
}

pub(super) fn usage(option: &str, text: &str, why: String) -> Failure {
    Failure::Usage(format!("{option} '{text}': {why}"))
}

/// Parses indices of components, or `all`.
fn components(text: &str, k: usize) -> Result<Vec<usize>, String> {
    if text == "all" {
        return Ok((0..k).collect());
    }
    let index = |word: &str| match word.trim().parse() {
        Ok(c) if c < k => Ok(c),
        Ok(_) => Err(format!("there are {k} components, from 0 to {}", k - 1)),
        Err(_) => Err("it must be a list of component indices from 0, such as 0,2, or all".to_owned()),
    };
    text.split(',').map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_components_are_indices_or_all() {
        assert_eq!(components("0, 2", 3), Ok(vec![0, 2]));
        assert_eq!(components("all", 3), Ok(vec![0, 1, 2]));
        for text in ["3", "", "a", "0,,1", "-1"] {
            assert!(components(text, 3).is_err(), "{text}");
        }
        let args = RuleArgs { share_covariance: Some("0,1;2,3".to_owned()), ..RuleArgs::default() };
        assert_eq!(args.rule(CovarianceType::Full, 4).unwrap().shared, [vec![0, 1], vec![2, 3]]);
        assert!(RuleArgs::default().rule(CovarianceType::Full, 4).unwrap().is_none());
    }

    #[test]
    fn an_update_of_chosen_components_fixes_the_others() {
        let args = RuleArgs { update_only: Some("1".to_owned()), ..RuleArgs::default() };
        assert_eq!(args.rule(CovarianceType::Full, 3).unwrap().fixed, FixedParts::all_but(&[1], 3));
    }
}
