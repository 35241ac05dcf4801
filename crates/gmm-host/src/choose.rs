//! Choosing among fitted candidates: by a criterion, by labels, or by sequential tests.

use std::ops::ControlFlow;
use std::str::FromStr;

use gmm_model::{CovarianceModel, Criterion, ModelError};

use crate::blrt::{BlrtFit, BlrtOptions, BlrtTest, blrt};
use crate::labels_icl::labels_icl;
use crate::{Candidate, Data, Engine, Error, Fit, FitOptions, best};

/// How the best of several candidates is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The lowest value of a criterion.
    Criterion(Criterion),
    /// The lowest integrated completed likelihood by labels, [`labels_icl`].
    LabelsIcl,
    /// Bootstrap likelihood-ratio tests of K against the next larger number of components, until one is not
    /// significant: [`blrt()`].
    Blrt,
    /// The highest lower bound of the log evidence, of fits by variational Bayes.
    Bound,
}

impl Choice {
    /// The names accepted by [`FromStr`].
    pub const WORDS: [&'static str; 6] = ["bic", "aic", "icl", "icl-labels", "blrt", "bound"];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Criterion(criterion) => criterion.name(),
            Self::LabelsIcl => "icl-labels",
            Self::Blrt => "blrt",
            Self::Bound => "bound",
        }
    }

    /// Checks that the candidates can be compared in this way, before they are fitted.
    ///
    /// # Errors
    /// [`Error::Option`] for tests of several covariance kinds, or of numbers of components that do not ascend.
    pub fn check(self, components: &[usize], kinds: &[CovarianceModel]) -> Result<(), Error> {
        let refuse = |option, value: String, must: &str| Err(Error::Option { option, value, must: must.to_owned() });
        match self {
            Self::Blrt if kinds.len() != 1 => {
                let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
                refuse("covariance_type", names.join(","), "one kind: a test compares nested mixtures")
            }
            Self::Blrt if !components.windows(2).all(|two| two[0] < two[1]) => {
                refuse("k", format!("{components:?}"), "ascending for sequential tests")
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Choice {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "icl-labels" => Ok(Self::LabelsIcl),
            "blrt" => Ok(Self::Blrt),
            "bound" => Ok(Self::Bound),
            _ => text.parse().map(Self::Criterion).map_err(|_| ModelError::UnknownWord {
                what: "criterion",
                word: text.to_owned(),
                choices: "bic, aic, icl, icl-labels, blrt, bound",
            }),
        }
    }
}

/// Options of [`choose`] that only tests use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestOptions {
    /// Number of data sets drawn for each test.
    pub replicates: usize,
    /// A test whose p-value is above this ends the sequence.
    pub level: f64,
}

impl TestOptions {
    /// 99 data sets and a level of 0.05.
    pub const DEFAULT: Self = Self { replicates: 99, level: 0.05 };

    /// Checks that a test can be significant: its smallest p-value is `1/(replicates + 1)`.
    ///
    /// # Errors
    /// [`Error::Option`] for a level outside of 0 to 1, or too few replicates for the level.
    pub fn check(&self) -> Result<(), Error> {
        let Self { replicates, level } = *self;
        let refuse = |option, value: String, must: String| Err(Error::Option { option, value, must });
        if !(level > 0.0 && level < 1.0) {
            return refuse("level", level.to_string(), "between 0 and 1".to_owned());
        }
        // As `blrt` divides, so that 19 are enough for 0.05. Without data sets every p-value is 1.
        if 1.0 / (replicates as f64 + 1.0) > level {
            let mut least = (1.0 / level).round() - 1.0;
            if 1.0 / (least + 1.0) > level {
                least += 1.0;
            }
            let why = "the smallest p-value of a test is 1 / (replicates + 1)";
            return refuse(
                "replicates",
                replicates.to_string(),
                format!("at least {least} for a level of {level}: {why}"),
            );
        }
        Ok(())
    }
}

/// The best candidate, and by what it was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Index of the candidate.
    pub best: usize,
    /// For [`Choice::LabelsIcl`] the value of each candidate, NaN if it has no fit; else empty.
    pub labels_icl: Vec<f64>,
    /// For [`Choice::Blrt`] the tests made, from the smallest number of components on; else empty.
    pub tests: Vec<BlrtTest>,
}

/// Chooses among the candidates that [`select`](crate::select()) fitted to `data` with `options`; `None` if none has a fit.
/// `observer` is called after each data set of a test, with the numbers of tests and of its data sets done.
///
/// # Errors
/// As for [`Choice::check`] and, for [`Choice::Blrt`], [`TestOptions::check`]; [`Error::Interrupted`] if the observer breaks;
/// any error of the engine.
pub fn choose<'a>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    candidates: &[Candidate],
    choice: Choice,
    options: &FitOptions,
    tests: &TestOptions,
    observer: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Option<Chosen>, Error> {
    let data = data.into();
    if choice == Choice::Blrt {
        // Its replicates are rows without errors.
        data.refuse_indirect("the bootstrapped likelihood ratio test")?;
    }
    let mut out = Chosen { best: 0, labels_icl: Vec::new(), tests: Vec::new() };
    match choice {
        Choice::Criterion(criterion) => match best(candidates, criterion) {
            Some(at) => out.best = at,
            None => return Ok(None),
        },
        Choice::LabelsIcl => {
            let precision = options.precision.unwrap_or(data.precision());
            for candidate in candidates {
                out.labels_icl.push(match &candidate.outcome {
                    Ok(fit) => labels_icl(engine, &fit.mixture, data, precision)?,
                    Err(_) => f64::NAN,
                });
            }
            let fitted = (0..candidates.len()).filter(|&i| candidates[i].outcome.is_ok());
            match fitted.min_by(|&a, &b| out.labels_icl[a].total_cmp(&out.labels_icl[b])) {
                Some(at) => out.best = at,
                None => return Ok(None),
            }
        }
        Choice::Bound => match highest_bound(candidates)? {
            Some(at) => out.best = at,
            None => return Ok(None),
        },
        Choice::Blrt => return sequence(engine, data, candidates, options, tests, observer),
    }
    Ok(Some(out))
}

/// The index of the candidate of the highest bound, the first among equals; `None` if none has a fit.
fn highest_bound(candidates: &[Candidate]) -> Result<Option<usize>, Error> {
    let mut best: Option<(usize, f64)> = None;
    for (i, candidate) in candidates.iter().enumerate() {
        let Ok(fit) = &candidate.outcome else { continue };
        let Some(bound) = fit.summary.lower_bound else {
            let must = "used with fits by variational Bayes, which have a bound".to_owned();
            return Err(Error::Option { option: "criterion", value: "bound".to_owned(), must });
        };
        if best.is_none_or(|(_, highest)| bound > highest) {
            best = Some((i, bound));
        }
    }
    Ok(best.map(|(i, _)| i))
}

/// The tests of each candidate against the next, until one is not significant or a candidate has no fit.
fn sequence<'a>(
    engine: &dyn Engine,
    data: Data<'_>,
    candidates: &'a [Candidate],
    options: &FitOptions,
    tests: &TestOptions,
    observer: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Option<Chosen>, Error> {
    let components: Vec<usize> = candidates.iter().map(|candidate| candidate.k).collect();
    let mut kinds: Vec<CovarianceModel> = candidates.iter().map(|candidate| candidate.kind).collect();
    kinds.dedup();
    Choice::Blrt.check(&components, &kinds)?;
    tests.check()?;
    let fitted: Vec<&Fit> = candidates.iter().map_while(|candidate| candidate.outcome.as_ref().ok()).collect();
    if fitted.is_empty() {
        return Ok(None);
    }
    let options = options.clone().with_covariance(kinds[0]);
    let rows = (data.total_weight().round() as usize).max(2);
    let how = BlrtOptions { replicates: tests.replicates, rows, seed: options.seed };
    let of = |fit: &'a Fit| BlrtFit { mixture: &fit.mixture, log_likelihood: fit.summary.log_likelihood };
    let mut out = Chosen { best: 0, labels_icl: Vec::new(), tests: Vec::new() };
    for two in fitted.windows(2) {
        let done = out.tests.len();
        let mut seen = |replicates| observer(done, replicates);
        let test = blrt(engine, of(two[0]), of(two[1]), &options, &how, &mut seen)?;
        let is_significant = test.p_value <= tests.level;
        out.tests.push(test);
        if !is_significant {
            break;
        }
        out.best += 1;
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_need_replicates_for_a_p_value_as_small_as_the_level() {
        // The least number of replicates for each level, also where 1 / level is rounded.
        for (level, least) in [(0.05, 19), (0.01, 99), (0.1, 9), (0.001, 999), (0.3, 3), (0.06, 16), (0.5, 1), (0.9, 1)]
        {
            assert!(TestOptions { replicates: least, level }.check().is_ok(), "{level} {least}");
            let error = TestOptions { replicates: least - 1, level }.check().unwrap_err().to_string();
            assert!(error.contains(&format!("at least {least} for a level of {level}: the smallest")), "{error}");
        }
        assert!(TestOptions::DEFAULT.check().is_ok());
        for level in [0.0, 1.0, -0.1, f64::NAN] {
            let error = TestOptions { replicates: 99, level }.check().unwrap_err().to_string();
            assert!(error.contains("between 0 and 1"), "{error}");
        }
    }
}
