//! The bootstrap: standard errors and intervals of all parameters of a fitted mixture.

mod replicates;

use std::ops::ControlFlow;
use std::str::FromStr;

use gmm_model::{Covariances, Dataset, Mixture, ModelError, Noise};

use crate::{Engine, Error, FitOptions, Init, NoiseOptions, NoiseStart};
use replicates::ReplicateFits;

/// How the rows of a replicate are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resampling {
    /// As many rows as the data have, drawn with replacement (Efron 1979).
    Nonparametric,
    /// All rows, with independent exponential weights (Newton and Raftery 1994). No row is ever missing, which helps
    /// small components.
    Weighted,
}

impl Resampling {
    /// The names accepted by [`FromStr`].
    pub const WORDS: [&'static str; 2] = ["nonparametric", "weighted"];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nonparametric => Self::WORDS[0],
            Self::Weighted => Self::WORDS[1],
        }
    }
}

impl FromStr for Resampling {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        [Self::Nonparametric, Self::Weighted].into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let choices = "nonparametric, weighted";
            ModelError::UnknownWord { what: "resampling", word: text.to_owned(), choices }
        })
    }
}

/// Options of [`bootstrap`].
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapOptions {
    /// Number of replicates, at least 2.
    pub replicates: usize,
    /// How the rows of a replicate are weighted.
    pub resampling: Resampling,
    /// Seed of the draws.
    pub seed: u64,
    /// What the fit of the mixture did beyond maximum likelihood ([`FitSummary::rules`](gmm_model::FitSummary::rules)), if
    /// that is known. Fits that do something else would be replicates of another estimate: an error.
    pub rules: Option<Vec<String>>,
}

/// The mixtures fitted to the replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    /// The mixture whose parameters they are replicates of.
    pub fitted: Mixture,
    /// One mixture per replicate; component `c` of each began as component `c` of `fitted`.
    pub replicates: Vec<Mixture>,
    /// The noise beside `fitted`, if there is some. Its volume is a constant of the data, the same in all replicates.
    pub noise: Option<Noise>,
    /// The weight of the noise in each replicate; empty without noise.
    pub noise_weights: Vec<f64>,
    /// Number of replicates that could not be fitted, and were replaced.
    pub failed: usize,
    /// Number of replicates whose EM stopped at `max_iter`.
    pub not_converged: usize,
}

/// Standard errors and intervals of an array of parameters, each in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Standard deviations of the replicates, with divisor `replicates − 1`.
    pub standard_error: Vec<f64>,
    /// Lower ends of the intervals.
    pub lower: Vec<f64>,
    /// Upper ends of the intervals.
    pub upper: Vec<f64>,
}

/// The [`Spread`] of each parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Spreads {
    /// Of the weights, `(k,)`.
    pub weights: Spread,
    /// Of the means, `(k, d)`.
    pub means: Spread,
    /// Of the covariances, in the shape of their kind.
    pub covariances: Spread,
    /// Of the weight of the noise, one number; none without noise.
    pub noise: Spread,
}

/// Fits `fitted` anew to replicates of `data`, from its own parameters, so that components keep their order. With
/// [`Bootstrap::spreads`] this is mclust's `MclustBootstrap`.
///
/// `options` are those of the fit; its start is not used. With noise, the start of [`FitRule::noise`](crate::FitRule::noise)
/// is the noise of the fitted mixture ([`NoiseStart::Given`]). Whole row weights stand for repeated rows, which are drawn one by
/// one; with other weights, rows are drawn together with their weights. `observer` is called after each replicate with
/// the number done.
///
/// Cost: a fit per replicate, and memory for as many mixtures.
///
/// # Errors
/// [`Error::Option`] for fewer than 2 replicates, noise that is not given, dropping of components, or other rules than
/// those recorded; [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Interrupted`] if the observer breaks; any error of the device. A numerical failure replaces a
/// replicate by another; its error is returned if there are more failures than ten times `replicates`.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use gmm_host::{BootstrapOptions, CpuEngine, FitOptions, Resampling, bootstrap, fit};
/// use gmm_model::Dataset;
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [0.2], [0.1], [5.0], [5.2], [5.1]])?;
/// let (engine, options) = (CpuEngine::new(1)?, FitOptions::new(1));
/// let fitted = fit(&engine, &data, &options)?.mixture;
/// let how = BootstrapOptions { replicates: 100, resampling: Resampling::Weighted, seed: 0, rules: None };
/// let found = bootstrap(&engine, &fitted, &data, &options, &how, &mut |_| ControlFlow::Continue(()))?;
/// let error = found.spreads(0.95).means.standard_error[0];
/// assert!(error > 0.5 && error < 1.5, "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bootstrap(
    engine: &dyn Engine,
    fitted: &Mixture,
    data: &Dataset,
    options: &FitOptions,
    how: &BootstrapOptions,
    observer: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Bootstrap, Error> {
    let noise = given_noise(options)?;
    if how.replicates < 2 {
        let must = "at least 2".to_owned();
        return Err(Error::Option { option: "replicates", value: how.replicates.to_string(), must });
    }
    if options.rule.starved.is_some() {
        let must = "left out for the bootstrap, whose components must stay".to_owned();
        return Err(Error::Option { option: "dropping of starved components", value: "on".to_owned(), must });
    }
    crate::engine::check_features(data.n_features(), fitted.n_features())?;
    let options = FitOptions {
        n_components: fitted.n_components(),
        init: Init::Given(Box::new(fitted.clone())),
        n_init: 1,
        ..options.clone()
    }
    .with_covariance(fitted.covariance_model());
    // Each mixture has its factors beside its covariances.
    let (k, d) = (fitted.n_components(), fitted.n_features());
    let numbers = 2 * (fitted.covariance_type().second_len(k, d) as u128 * 2 + k as u128 * d as u128);
    crate::memory::check("the mixtures of all replicates", 8 * how.replicates as u128 * numbers)?;
    let mut fits = ReplicateFits::new(engine, data, &options, how);
    let mut out = Bootstrap {
        fitted: fitted.clone(),
        replicates: Vec::new(),
        noise,
        noise_weights: Vec::new(),
        failed: 0,
        not_converged: 0,
    };
    while out.replicates.len() < how.replicates {
        match fits.next(how.replicates - out.replicates.len()) {
            Ok(found) => {
                let same = |rules: &&Vec<String>| without_starts(rules) == without_starts(&found.summary.rules);
                if let Some(rules) = how.rules.as_ref().filter(|rules| !same(rules)) {
                    return Err(other_rules(rules, &found.summary.rules));
                }
                out.not_converged += usize::from(!found.summary.converged);
                out.noise_weights.extend(found.noise.map(|noise| noise.weight));
                out.replicates.push(found.mixture);
            }
            Err(
                error @ (Error::Singular { .. }
                | Error::NotFinite { .. }
                | Error::Likelihood { .. }
                | Error::TooFewRows { .. }),
            ) => {
                out.failed += 1;
                if out.failed > 10 * how.replicates {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        if observer(out.replicates.len()).is_break() {
            return Err(Error::Interrupted { iterations: 0 });
        }
    }
    Ok(out)
}

/// The noise that all replicates start from.
fn given_noise(options: &FitOptions) -> Result<Option<Noise>, Error> {
    match &options.rule.noise {
        None => Ok(None),
        Some(NoiseOptions { start: NoiseStart::Given(noise), .. }) => Ok(Some(noise.as_ref().clone())),
        Some(_) => {
            let must = "given, the noise of the fitted mixture, for the bootstrap".to_owned();
            Err(Error::Option { option: "start of the noise", value: "found in the rows".to_owned(), must })
        }
    }
}

/// Rules of a fit without the start of the noise, which the replicates do not share.
fn without_starts(rules: &[String]) -> Vec<&str> {
    rules.iter().map(|rule| NoiseOptions::without_start(rule)).collect()
}

/// The error of fits that do not do what the fit of the mixture did.
fn other_rules(recorded: &[String], own: &[String]) -> Error {
    let list = |rules: &[String]| if rules.is_empty() { "plain EM".to_owned() } else { rules.join("; ") };
    let must = format!("what the fits of the bootstrap do ({}): give it the same options", list(own));
    Error::Option { option: "rule of the model's fit", value: list(recorded), must }
}

impl Bootstrap {
    /// Standard errors, and percentile intervals of the given level, such as 0.95.
    pub fn spreads(&self, level: f64) -> Spreads {
        let all = |parameter: &dyn Fn(&Mixture) -> Vec<f64>| {
            let each: Vec<Vec<f64>> = self.replicates.iter().map(parameter).collect();
            spread(&each, level)
        };
        Spreads {
            weights: all(&|m| m.weights().to_vec()),
            means: all(&|m| m.means().iter().copied().collect()),
            covariances: all(&|m| flat(m.covariances())),
            noise: spread(&self.noise_weights.iter().map(|&weight| vec![weight]).collect::<Vec<_>>(), level),
        }
    }
}

/// The covariances in row-major order.
pub fn flat(covariances: &Covariances) -> Vec<f64> {
    match covariances {
        Covariances::Full(a) => a.iter().copied().collect(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
        Covariances::Spherical(a) => a.to_vec(),
    }
}

fn spread(replicates: &[Vec<f64>], level: f64) -> Spread {
    let mut out = Spread { standard_error: Vec::new(), lower: Vec::new(), upper: Vec::new() };
    let count = replicates.len() as f64;
    for j in 0..replicates.first().map_or(0, Vec::len) {
        let mut values: Vec<f64> = replicates.iter().map(|all| all[j]).collect();
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        out.standard_error.push((squares / (count - 1.0)).sqrt());
        values.sort_by(f64::total_cmp);
        out.lower.push(quantile(&values, (1.0 - level) / 2.0));
        out.upper.push(quantile(&values, f64::midpoint(1.0, level)));
    }
    out
}

/// The quantile of ascending values, interpolated between them: definition 7 of Hyndman and Fan (1996), R's default.
fn quantile(values: &[f64], probability: f64) -> f64 {
    let at = probability.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(values.len() - 1);
    values[low] + (at - low as f64) * (values[high] - values[low])
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_those_of_r() {
        // quantile(c(1, 2, 4, 8), c(0, 0.025, 0.5, 0.975, 1)) in R.
        let values = [1.0, 2.0, 4.0, 8.0];
        for (probability, want) in [(0.0, 1.0), (0.025, 1.075), (0.5, 3.0), (0.975, 7.7), (1.0, 8.0)] {
            assert!((quantile(&values, probability) - want).abs() < 1e-12);
        }
    }
}
