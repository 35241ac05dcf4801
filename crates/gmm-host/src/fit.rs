//! Fitting a mixture: [`fit`] runs every restart and returns the best mixture with its record and warnings.

mod finished;
mod options;
mod warning;

pub(crate) use finished::finished;
pub use options::FitOptions;
pub use warning::Warning;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use gmm_model::bayes::Posterior;
use gmm_model::{CovarianceType, Criteria, FitSummary, MStepRule, Mixture, Noise, Precision, RowStorage, Statistics};
use ndarray::Array2;

use crate::em::{self, EmOptions, EmRun, Observer, OnDevice, RestartProgress};
use crate::init::{Init, Start, StartReached};
use crate::noise::{self, NoiseOutputs};
use crate::restarts::{self, FitState};
use crate::rule;
use crate::shift::Sample;
use crate::{
    Data, Engine, Error, EvaluateOptions, Evaluation, FastLoss, Resident, Search, Tuning, censoring, deconvolution,
    fast, hold, memory, missing, shift, spikes,
};

/// A fitted mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The best mixture of all restarts.
    pub mixture: Mixture,
    /// The posterior of a fit by variational Bayes; `mixture` is that of its means.
    pub posterior: Option<Posterior>,
    /// The noise component, if [`FitRule::noise`](crate::FitRule::noise) is set.
    pub noise: Option<Noise>,
    /// The record of the fit that model files store.
    pub summary: FitSummary,
    /// How the rows were stored, for passes elsewhere ([`pass`](crate::pass())) that round as this fit did.
    pub storage: RowStorage,
    /// Problems that the user should know of; empty if there are none.
    pub warnings: Vec<Warning>,
    /// Wall time of the fit: loading the rows on the engine, initialisation, EM and the final evaluation.
    pub elapsed: Duration,
    /// The iterations of the best run that the engine made without the host, if any.
    pub on_device: Option<OnDevice>,
    /// If the last pass of the best run left out components whose part in a tile of rows is below rounding: the mean number of
    /// components that it evaluated for a tile.
    pub near_components: Option<f64>,
    /// How the EM path of the best run was chosen, if [`FitOptions::autotune`] is set and the engine has several paths.
    pub tuning: Option<Tuning>,
    /// The measured loss of accuracy, if [`FitOptions::fast`] is set and the best run used an fp16 path.
    pub fast: Option<FastLoss>,
    /// What each start reached, in the order of the restarts: first the short runs of an [`Init::Best`], then the run
    /// that went on from the best of them. A resumed fit has only those made since.
    pub starts: Vec<StartReached>,
    /// The state at the end: [`fit_resumed`] continues from it with more iterations or restarts.
    pub state: FitState,
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
/// [`Error`] if options or data are invalid, if memory does not suffice (checked before it is allocated), if the device
/// fails, or if a covariance is not positive definite; [`Error::Interrupted`] if the observer breaks. After any error
/// the last mixture that the observer received is valid: a new fit can continue from it by [`Init::Given`].
pub fn fit_observed<'a>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    options: &FitOptions,
    observer: &mut Observer<'_>,
) -> Result<Fit, Error> {
    fit_data(engine, data.into(), options, FitState::default(), observer)
}

/// Continues a fit from a state that [`Iteration::save`](crate::Iteration::save) recorded, or from [`Fit::state`].
///
/// With the same data, options and engine the result has the bits of an undisturbed fit, if the host makes the
/// iterations, as on the CPU. A loop on a GPU continues from parameters that were copied to the host, which can round
/// them: the result then agrees with that of an undisturbed fit up to rounding. Data and options are not compared with
/// those of the state: the caller does that.
///
/// `max_iter` and `tol` may differ. They apply to the running restart and to those after it, and completed restarts
/// stay as they are. A state at the end of a fit first continues its best restart, if that has neither converged by
/// `tol` nor reached `max_iter`, and then makes the restarts that a larger `n_init` adds.
///
/// # Errors
/// As for [`fit_observed`]; [`Error::Option`] if the state has another shape or covariance kind, or more restarts than
/// `n_init`.
pub fn fit_resumed<'a>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    options: &FitOptions,
    state: FitState,
    observer: &mut Observer<'_>,
) -> Result<Fit, Error> {
    fit_data(engine, data.into(), options, state, observer)
}

fn fit_data(
    engine: &dyn Engine,
    data: Data<'_>,
    options: &FitOptions,
    from: FitState,
    observer: &mut Observer<'_>,
) -> Result<Fit, Error> {
    let started = Instant::now();
    let all_rows = data.dim().0 as u64;
    let observed = data.without_unobserved()?;
    let data = observed.as_ref().map_or(data, |(data, _)| Data::Host(data));
    let whole = data;
    let absent = data.without_absent_rows();
    let present = absent.as_ref().map_or(data, Data::from);
    check(present, options)?;
    missing::check(present, options)?;
    deconvolution::check(present, options)?;
    let undivided = match options.rule.truncated {
        Some(truncated) => truncated.whole_rows(present)?,
        None => None,
    };
    let present = undivided.as_ref().map_or(present, Data::Host);
    // Labels are those of all rows, also of rows of weight 0.
    let (unlabelled, labelled) = rule::separate(engine, whole, options)?.unzip();
    let is_known = matches!(unlabelled, Some(None));
    // If all rows are labelled, they are on the engine for what all rows decide, such as the prior.
    let unlabelled = unlabelled.flatten();
    let data = unlabelled.as_ref().map_or(present, Data::Host);
    // Passes over rows known only indirectly are made in f64, whatever was asked for.
    let asked = if data.is_indirect() { Precision::F64 } else { options.precision.unwrap_or(data.precision()) };
    shift::check_weights(data, asked)?;
    if from == FitState::default()
        && let Some(mut found) = restarts::run_by_engine(engine, data, options, observer)?
    {
        found.summary.n_rows = all_rows;
        return Ok(Fit { elapsed: started.elapsed(), ..found });
    }
    let sample = Sample::of(data)?;
    let at = sample.shift();
    let (mut rows, asked, precision) = hold::for_rule(data, engine, asked, &sample, &at, options)?;
    let mut warnings = regularisation(rows.as_mut(), &sample, &at, options.reg_covar)?;
    let FitOptions { covariance_type: kind, n_components: k, reg_covar, init_rows, .. } = *options;
    let mut rule =
        rule::of_data(&options.rule, rows.as_mut(), &sample, &at, (kind, k, precision), (labelled, is_known))?;
    rule.noise = noise::of_data(options, whole, present, data)?;
    rule.has_unrecorded = data.limits().is_some_and(|limits| limits.truncation().is_some());
    rule.truncated = options.rule.truncated.map(|truncated| Search::new(truncated.components, options.seed));
    let start = Start { data, shift: &at, kind, k, reg_covar, init_rows, rule: &rule };
    let mut starts = Vec::new();
    let at_once = match data {
        Data::Host(host) if options.concurrent && from == FitState::default() => {
            restarts::run_concurrently(engine, host, start, options, precision, &mut starts, observer)?
        }
        _ => None,
    };
    let mut state = match at_once {
        Some(state) => state,
        None => restarts::run_all(rows.as_mut(), start, options, precision, (from, &mut starts), observer)?,
    };
    if options.rule.has_moves()
        && let Some(best) = &mut state.best
    {
        let progress = RestartProgress { index: best.index, begun: state.begun, empty_at_start: 0, best: None };
        let em = em_options(options, precision);
        best.run = rule::improve(rows.as_mut(), best.run.clone(), &em, &rule, progress, observer)?;
    }
    let (best, empty_at_start) = state.best.clone().map(|best| (best.run, best.empty_at_start)).expect("a run ended");
    let (on_device, near_components) = (best.on_device, best.near_components);
    let fast = match on_device {
        Some(on) if fast::is_fast(on.path) => {
            fast::loss(rows.as_mut(), &best.mixture, &em_options(options, precision))?
        }
        _ => None,
    };
    let lower_bound = match &best.posterior {
        Some(posterior) => Some(rule.lower_bound(rows.as_mut(), posterior)?),
        None => None,
    };
    let mut evaluation = match &rule.truncated {
        _ if is_known => Evaluation::NOTHING,
        Some(begun) => {
            let pass = rows.pass_truncated(&best.mixture, best.search.as_ref().unwrap_or(begun))?;
            let Statistics { log_likelihood, total_weight, .. } = pass.statistics;
            Evaluation { log_likelihood, total_weight, entropy: pass.entropy }
        }
        None => totals(rows, engine, &best, data, (asked, precision))?,
    };
    rule.add_labelled(&mut evaluation, &best.mixture, best.noise.as_ref())?;
    if evaluation.log_likelihood.is_nan() || evaluation.entropy.is_nan() {
        return Err(Error::Likelihood { iteration: best.iterations, value: f64::NAN });
    }
    if let Some((_, rows)) = observed {
        warnings.push(Warning::Unobserved { rows });
    }
    if empty_at_start > 0 {
        warnings.push(Warning::FewerClusters { empty: empty_at_start, k: options.n_components });
    }
    warn_of_run(&mut warnings, &best, options);
    let stored = engine.precision(precision).name();
    let summary = FitSummary {
        lower_bound,
        rules: options
            .rule
            .lines(&rule)
            .into_iter()
            .chain(missing::line(data))
            .chain(deconvolution::line(data))
            .chain(censoring::lines(data))
            .chain(options.rule.truncated.map(|truncated| truncated.line(options.n_components)))
            .collect(),
        ..summary(&best, &evaluation, all_rows, (options, &rule.m_step), (engine.name(), stored.to_owned()))
    };
    let EmRun { mixture, posterior, noise, tuning, .. } = best;
    let elapsed = started.elapsed();
    let storage = RowStorage { precision, shift: at };
    Ok(Fit {
        mixture,
        posterior,
        noise,
        summary,
        storage,
        warnings,
        elapsed,
        on_device,
        near_components,
        tuning,
        fast,
        state,
        starts,
    })
}

/// The totals of the rows under the best mixture; `asked` is the precision for evaluating them, `precision` that in which
/// they are stored.
///
/// Evaluated about a median of the mixture's means, as in every later evaluation: so the saved model scores these data to
/// the same bits; but for thousands of components on a GPU, where rows are added in the order that the loop has left.
fn totals(
    mut rows: Box<dyn Resident>,
    engine: &dyn Engine,
    best: &EmRun,
    data: Data<'_>,
    (asked, precision): (Precision, Precision),
) -> Result<Evaluation, Error> {
    let (mixture, noise) = (&best.mixture, best.noise.as_ref());
    let near = shift::of_mixture(mixture);
    let held_alike = precision == engine.precision(asked) && !shift::is_felt(mixture, &near, precision);
    if !(held_alike && rows.hold_about(&near)?) {
        // Freed first: the rows are never on the engine twice.
        drop(rows);
        return noise::score(engine, mixture, noise, data, asked);
    }
    match noise {
        None => rows.evaluate(mixture, EvaluateOptions::default()),
        Some(noise) => noise::evaluate_rows(rows.as_mut(), data.weights(), mixture, noise, NoiseOutputs::default()),
    }
}

/// The record of a run on `n_rows` rows under a rule; `place` are the names of engine and precision.
pub(crate) fn summary(
    run: &EmRun,
    evaluation: &Evaluation,
    n_rows: u64,
    (options, rule): (&FitOptions, &MStepRule),
    place: (String, String),
) -> FitSummary {
    let Evaluation { log_likelihood, total_weight, entropy, .. } = *evaluation;
    let n_parameters = rule.n_parameters(&run.mixture) + run.noise.as_ref().map_or(0, |_| Noise::N_PARAMETERS);
    let criteria = Criteria::new(n_parameters, log_likelihood, total_weight, entropy);
    FitSummary {
        log_likelihood,
        mean_log_likelihood: log_likelihood / total_weight,
        n_rows,
        iterations: run.iterations,
        converged: run.converged,
        aic: criteria.aic,
        bic: criteria.bic,
        icl: criteria.icl,
        tol: options.tol,
        reg_covar: options.reg_covar,
        seed: options.seed,
        engine: place.0,
        precision: place.1,
        trace: run.trace.clone(),
        lower_bound: None,
        rules: Vec::new(),
    }
}

/// Adds the warnings about the best run.
pub(crate) fn warn_of_run(warnings: &mut Vec<Warning>, best: &EmRun, options: &FitOptions) {
    // A fall far below `tol` counts as convergence.
    let falls = best.falls.iter().filter(|(_, by)| *by >= 0.01 * options.tol);
    warnings.extend(falls.map(|&(iteration, by)| Warning::LikelihoodFell { iteration, by }));
    let left = best.mixture.n_components();
    if left < options.n_components {
        warnings.push(Warning::Dropped { dropped: options.n_components - left, left });
    }
    if !best.empty.is_empty() {
        warnings.push(Warning::EmptyComponents { components: best.empty.clone() });
    }
    // Without iterations the covariances are the given ones, to which `reg_covar` was not added.
    if best.iterations > 0 && best.posterior.is_none() {
        let spikes = spikes::spikes(&best.mixture, options.reg_covar, &best.empty, &dominated(warnings));
        if !spikes.is_empty() {
            warnings.push(Warning::Spikes { reg_covar: options.reg_covar, spikes });
        }
    }
    if !best.converged {
        warnings.push(Warning::NotConverged { iterations: best.iterations });
    }
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
    // k-means++ stores four numbers per row.
    let start_rows = options.init_rows.unwrap_or_else(|| crate::init::default_rows(n, k)).min(n);
    memory::check("the initialisation", 8 * 4 * start_rows as u128)?;
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

pub(crate) fn em_options(options: &FitOptions, precision: Precision) -> EmOptions {
    let FitOptions { tol, max_iter, reg_covar, autotune, fast, .. } = *options;
    EmOptions { tol, max_iter, reg_covar, precision, autotune, fast }
}

/// The columns named by [`Warning::RegularisationDominates`].
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
    // The factor 2 leaves room for the rounding of the pass below.
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
