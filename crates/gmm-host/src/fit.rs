//! Fitting: options in, the best mixture of all restarts out.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use gmm_model::{CovarianceType, Criteria, Draws, FitSummary, Mixture, Precision, three_digits};
use ndarray::Array2;

use crate::em::{self, EmOptions, EmRun, Observer, OnDevice};
use crate::init::{self, Init, Start};
use crate::shift::Sample;
use crate::spikes::{Spike, places};
use crate::{Data, Engine, Error, FastLoss, Resident, Tuning, Wanted, evaluate, fast, hold, memory, shift, spikes};

/// What to fit and when to stop. Names and defaults are scikit-learn's.
#[derive(Clone, Debug, PartialEq)]
pub struct FitOptions {
    /// Number of components `k`, at least 1 and at most the number of rows.
    pub n_components: usize,
    /// Covariance kind.
    pub covariance_type: CovarianceType,
    /// Where EM starts from.
    pub init: Init,
    /// Rows that k-means looks at in each start: a sample, evenly spread. `None`: the larger of 32768 and `64 k` where there are
    /// more than twice as many, else all. Components that only a few rows of a million make need all: `Some(usize::MAX)`.
    pub init_rows: Option<usize>,
    /// Restarts, of which the one with the highest log-likelihood at its last E-step is kept; ways of starting that draw
    /// nothing run once.
    pub n_init: usize,
    /// Stop when the mean log-likelihood changes by strictly less than this.
    pub tol: f64,
    /// Stop after this many iterations; 0 returns the start.
    pub max_iter: usize,
    /// Added to the covariances' diagonals: an absolute amount, in squared units of the data.
    pub reg_covar: f64,
    /// Seed of every draw.
    pub seed: u64,
    /// Precision on the engine; `None` takes that of the data.
    pub precision: Option<Precision>,
    /// Whether a GPU's ways to run EM are timed on these rows, and the fastest is taken in place of the plan's; what was
    /// found is kept in a file ([`CudaEngine::tuning_file`](crate::CudaEngine::tuning_file)) for shapes like this one.
    /// Engines with one way have nothing to choose. Which way is fastest may change with the machine's load, and ways
    /// differ in rounding: without this, the same data give the same bits.
    pub autotune: bool,
    /// Whether a GPU may iterate with one half-precision product, 11 bits, for each that is otherwise made of three, where that
    /// is faster: `f32` rows without weights, with more components or columns than the kernels take that are exact and as
    /// fast. Elsewhere it changes nothing. What it cost is measured at the end, on these rows: [`Fit::fast`]. The
    /// log-likelihood of the result is that of every other fit.
    pub fast: bool,
}

impl FitOptions {
    /// The defaults for `k` components: full, k-means, `tol` 1e-3, 100 iterations, `reg_covar` 1e-6, one start, seed 0.
    pub const fn new(k: usize) -> Self {
        Self {
            n_components: k,
            covariance_type: CovarianceType::Full,
            init: Init::KMeans,
            init_rows: None,
            n_init: 1,
            tol: 1e-3,
            max_iter: 100,
            reg_covar: 1e-6,
            seed: 0,
            precision: None,
            autotune: false,
            fast: false,
        }
    }

    /// Checks what can be checked without data.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and its range.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |option, value: &dyn ToString, must: &str| {
            Err(Error::Option { option, value: value.to_string(), must: must.to_owned() })
        };
        if self.n_components == 0 {
            return refuse("n_components", &0, "at least 1");
        }
        if self.n_init == 0 {
            return refuse("n_init", &0, "at least 1");
        }
        for (option, value) in [("tol", self.tol), ("reg_covar", self.reg_covar)] {
            if !(value >= 0.0 && value.is_finite()) {
                return refuse(option, &value, "finite and not negative");
            }
        }
        if let Some(rows) = self.init_rows.filter(|rows| *rows < self.n_components) {
            return refuse("init_rows", &rows, "at least n_components");
        }
        if let Init::Given(mixture) = &self.init {
            if mixture.n_components() != self.n_components {
                return refuse("n_components", &self.n_components, &format!("{}, as given", mixture.n_components()));
            }
            if mixture.covariance_type() != self.covariance_type {
                let given = mixture.covariance_type();
                return refuse("covariance_type", &self.covariance_type, &format!("{given}, as given"));
            }
        }
        Ok(())
    }
}

/// Something about a fit that is not an error but should be seen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// EM stopped at `max_iter`.
    #[error("not converged after {iterations} iterations: raise max_iter or tol")]
    NotConverged {
        /// Iterations done.
        iterations: usize,
    },
    /// Fewer distinct clusters than components.
    #[error("the initialisation left {empty} of {k} components without rows: fewer distinct rows than components?")]
    FewerClusters {
        /// Components without rows.
        empty: usize,
        /// Components.
        k: usize,
    },
    /// Components that ended without rows.
    #[error("components {components:?} are empty: they kept their last mean and covariance and have no weight")]
    EmptyComponents {
        /// Indices, from 0.
        components: Vec<usize>,
    },
    /// The likelihood fell by more than rounding.
    #[error(
        "the mean log-likelihood fell by {} at iteration {iteration}: reg_covar is large against the data's \
         variances, or the floating-point precision is exhausted",
        three_digits(*by)
    )]
    LikelihoodFell {
        /// Iteration, from 1.
        iteration: usize,
        /// By how much.
        by: f64,
    },
    /// Columns whose variance is below what is added to it.
    #[error(
        "reg_covar {reg_covar:e} is larger than the variance of column(s) {columns:?}: it decides the fit there; rescale the data or lower it"
    )]
    RegularisationDominates {
        /// The amount added.
        reg_covar: f64,
        /// Columns, from 0.
        columns: Vec<usize>,
    },
    /// Components that have less variance of their own, in some direction, than what is added to it.
    #[error(
        "reg_covar {reg_covar:e} is more than half the variance of {} in some direction: repeated values, linearly dependent \
         columns, or too few rows; the likelihood then depends on reg_covar; drop repeats or columns, raise \
         reg_covar or use fewer components",
        places(spikes, |j| format!("column {j}"))
    )]
    Spikes {
        /// The amount added.
        reg_covar: f64,
        /// Which, and along which column.
        spikes: Vec<Spike>,
    },
}

/// A fitted mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The best mixture of all restarts.
    pub mixture: Mixture,
    /// Its record, as stored in model files.
    pub summary: FitSummary,
    /// What should be seen.
    pub warnings: Vec<Warning>,
    /// Time of initialisation and EM, the rows' way to the engine included.
    pub elapsed: Duration,
    /// Iterations of the best run that the engine did without the host, if it did any.
    pub on_device: Option<OnDevice>,
    /// How the best run's way was chosen, where [`FitOptions::autotune`] asked and the engine had a choice.
    pub tuning: Option<Tuning>,
    /// What iterating with fewer digits costs, where [`FitOptions::fast`] asked for it and the best run did.
    pub fast: Option<FastLoss>,
}

/// Fits a mixture to `data` on `engine`.
///
/// # Errors
/// See [`fit_observed`].
///
/// ```
/// use gmm_host::{CpuEngine, FitOptions, fit};
/// use gmm_model::Dataset;
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [0.2], [0.1], [5.0], [5.2], [5.1]])?;
/// let fitted = fit(&CpuEngine::new(1)?, &data, &FitOptions::new(2))?;
/// assert!((fitted.mixture.weights()[0] - 0.5).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fit<'a>(engine: &dyn Engine, data: impl Into<Data<'a>>, options: &FitOptions) -> Result<Fit, Error> {
    fit_observed(engine, data, options, &mut |_| ControlFlow::Continue(()))
}

/// Fits a mixture and calls `observer` after every iteration.
///
/// # Errors
/// [`Error`] for options or data that cannot be used, for memory (before it is taken), for a device that fails, for
/// covariances that are not positive definite, and [`Error::Interrupted`] where the observer says so. The mixture that
/// the observer saw last is right whatever came after it: [`Init::Given`] goes on from there.
pub fn fit_observed<'a>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    options: &FitOptions,
    observer: &mut Observer<'_>,
) -> Result<Fit, Error> {
    fit_data(engine, data.into(), options, observer)
}

fn fit_data(
    engine: &dyn Engine,
    data: Data<'_>,
    options: &FitOptions,
    observer: &mut Observer<'_>,
) -> Result<Fit, Error> {
    let started = Instant::now();
    let all_rows = data.dim().0 as u64;
    let present = data.without_absent_rows();
    let data = present.as_ref().map_or(data, Data::from);
    check(data, options)?;
    let asked = options.precision.unwrap_or(data.precision());
    shift::check_weights(data, asked)?;
    let sample = Sample::of(data)?;
    let at = sample.shift();
    let (mut rows, precision) = hold::for_fit(data, engine, asked, &sample, &at, options.reg_covar)?;
    let mut warnings = regularisation(rows.as_mut(), &sample, &at, options.reg_covar)?;
    let (best, empty_at_start) = best_run(rows.as_mut(), data, &at, options, precision, observer)?;
    let on_device = best.on_device;
    let fast = match on_device {
        Some(on) if fast::is_fast(on.path) => {
            fast::loss(rows.as_mut(), &best.mixture, &em_options(options, precision))?
        }
        _ => None,
    };
    // Held about a median of the mixture's means as every later evaluation holds them: the saved model scores these data
    // to the same bits.
    let near = shift::of_mixture(&best.mixture);
    let held_alike = precision == engine.precision(asked) && !shift::is_felt(&best.mixture, &near, precision);
    let evaluation = if held_alike && rows.hold_about(&near)? {
        rows.evaluate(&best.mixture, Wanted::default())?
    } else {
        // The rows go first, so that no more memory is taken.
        drop(rows);
        evaluate::score(engine, &best.mixture, data, asked)?
    };
    if evaluation.log_likelihood.is_nan() || evaluation.entropy.is_nan() {
        return Err(Error::Likelihood { iteration: best.iterations, value: f64::NAN });
    }
    let criteria = Criteria::new(
        best.mixture.n_parameters(),
        evaluation.log_likelihood,
        evaluation.total_weight,
        evaluation.entropy,
    );
    if empty_at_start > 0 {
        warnings.push(Warning::FewerClusters { empty: empty_at_start, k: options.n_components });
    }
    // A fall far below `tol` is convergence.
    let falls = best.falls.iter().filter(|(_, by)| *by >= 0.01 * options.tol);
    warnings.extend(falls.map(|&(iteration, by)| Warning::LikelihoodFell { iteration, by }));
    if !best.empty.is_empty() {
        warnings.push(Warning::EmptyComponents { components: best.empty.clone() });
    }
    // A start that was given and stayed has its own covariances.
    if best.iterations > 0 {
        let spikes = spikes::spikes(&best.mixture, options.reg_covar, &best.empty, &dominated(&warnings));
        if !spikes.is_empty() {
            warnings.push(Warning::Spikes { reg_covar: options.reg_covar, spikes });
        }
    }
    if !best.converged {
        warnings.push(Warning::NotConverged { iterations: best.iterations });
    }
    let summary = FitSummary {
        log_likelihood: evaluation.log_likelihood,
        mean_log_likelihood: evaluation.log_likelihood / evaluation.total_weight,
        n_rows: all_rows,
        iterations: best.iterations,
        converged: best.converged,
        aic: criteria.aic,
        bic: criteria.bic,
        icl: criteria.icl,
        tol: options.tol,
        reg_covar: options.reg_covar,
        seed: options.seed,
        engine: engine.name(),
        precision: engine.precision(precision).name().to_owned(),
        trace: best.trace,
    };
    let tuning = best.tuning;
    Ok(Fit { mixture: best.mixture, summary, warnings, elapsed: started.elapsed(), on_device, tuning, fast })
}

fn check(data: Data<'_>, options: &FitOptions) -> Result<(), Error> {
    options.validate()?;
    let ((n, d), k) = (data.dim(), options.n_components);
    if n < 2 {
        return Err(Error::Option {
            option: "rows",
            value: n.to_string(),
            must: "at least 2 of positive weight".to_owned(),
        });
    }
    if k > n {
        return Err(Error::TooFewRows { k, n });
    }
    if let Init::Given(mixture) = &options.init {
        crate::engine::check_features(d, mixture.n_features())?;
    }
    // What k-means++ keeps per row: four numbers.
    memory::check("the initialisation", 8 * 4 * n as u128)?;
    // The mixture, its factors, the statistics and the M-step's copies: about six times the second moments.
    let wanted = |kind: CovarianceType| 8 * 6 * (kind.second_len(k, d) as u128 + 2 * k as u128 * d as u128);
    let kind = options.covariance_type;
    memory::check("a mixture of this size", wanted(kind)).map_err(|error| match error {
        Error::Memory { wanted: bytes, free, .. } if wanted(CovarianceType::Diag) < free.min(bytes) => {
            Error::CovarianceMemory { kind, d, wanted: bytes, free }
        }
        other => other,
    })
}

fn em_options(options: &FitOptions, precision: Precision) -> EmOptions {
    let FitOptions { tol, max_iter, reg_covar, autotune, fast, .. } = *options;
    EmOptions { tol, max_iter, reg_covar, precision, autotune, fast }
}

/// The best of all restarts by the last log-likelihood of its trace, and the components that its start left without rows.
fn best_run(
    rows: &mut dyn Resident,
    data: Data<'_>,
    at: &[f64],
    options: &FitOptions,
    precision: Precision,
    observer: &mut Observer<'_>,
) -> Result<(EmRun, usize), Error> {
    let FitOptions { covariance_type: kind, n_components: k, reg_covar, init_rows, .. } = *options;
    let start = Start { data, shift: at, kind, k, reg_covar, init_rows };
    let em = em_options(options, precision);
    let restarts = if options.init.is_deterministic() { 1 } else { options.n_init };
    let mut best: Option<(f64, EmRun, usize)> = None;
    let mut failure = None;
    for restart in 0..restarts {
        let mut draws = Draws::for_purpose("fit", options.seed, restart as u64);
        let attempt = init::start(rows, start, &options.init, &mut draws)
            .and_then(|(mixture, empty)| Ok((em::run(rows, mixture, &em, restart, observer)?, empty)));
        let (run, empty) = match attempt {
            Ok(found) => found,
            // One unlucky start does not spoil the others.
            Err(error @ (Error::Singular { .. } | Error::NotFinite { .. } | Error::Likelihood { .. })) => {
                failure.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let score = match run.trace.last() {
            Some(&mean) => mean,
            None if restarts == 1 => 0.0,
            // Without iterations the starts are compared.
            None => rows.evaluate(&run.mixture, Wanted::default())?.log_likelihood,
        };
        let finished = run.finished;
        if best.as_ref().is_none_or(|(s, ..)| score > *s) {
            best = Some((score, run, empty));
        }
        if finished {
            break;
        }
    }
    match (best, failure) {
        (Some((_, run, empty)), _) => Ok((run, empty)),
        (None, failure) => Err(failure.expect("at least one restart ran")),
    }
}

/// The columns that [`Warning::RegularisationDominates`] names.
fn dominated(warnings: &[Warning]) -> Vec<usize> {
    let columns = warnings.iter().map(|warning| match warning {
        Warning::RegularisationDominates { columns, .. } => columns.as_slice(),
        _ => &[],
    });
    columns.flatten().copied().collect()
}

/// Warns of columns whose variance is below `reg_covar`.
fn regularisation(
    rows: &mut dyn Resident,
    sample: &Sample<'_>,
    at: &[f64],
    reg_covar: f64,
) -> Result<Vec<Warning>, Error> {
    // Twice, so that no rounding of a pass could say otherwise.
    if sample.variances_at_least(at).iter().all(|&least| least >= 2.0 * reg_covar) {
        return Ok(Vec::new());
    }
    let centre = Array2::from_shape_vec((1, at.len()), at.to_vec()).expect("d values");
    let s = rows.nearest(CovarianceType::Diag, centre.view())?;
    em::check(&s, 0)?;
    let variance = |j: usize| s.second[j] / s.weight[0] - (s.first[[0, j]] / s.weight[0]).powi(2);
    let columns: Vec<usize> = (0..at.len()).filter(|&j| variance(j) < reg_covar).collect();
    let dominated = !columns.is_empty();
    Ok(dominated.then_some(Warning::RegularisationDominates { reg_covar, columns }).into_iter().collect())
}
