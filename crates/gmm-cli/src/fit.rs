//! `gmm fit`: fits a mixture to rows.

pub(crate) mod bayes;
mod many;
mod online;
mod paths;
mod report;
pub(crate) mod rule;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use gmm_data::ModelFile;
use gmm_host::{
    Engine, Fit, FitOptions, FitState, Init, Iteration, NoiseOptions, NoiseStart, Tuning, Work, default_threads,
    fit_resumed,
};
use gmm_model::{CovarianceModel, CovarianceType, Dataset, Mixture, shown};

use crate::args::{self, EmArgs, EngineArgs};
use crate::checkpoint::{Basis, Checkpoint, FitRecord, Saved};
use crate::exit::{self, Failure};
use crate::input;
use crate::interrupt::{self, Hold};
use crate::measured::MeasuredArgs;
use crate::missing::MissingArgs;
use crate::opening::{self, Opening};
use crate::output::{self, Console};
use crate::progress::{Progress, RowSize};
use crate::render;
use crate::table_args::InputArgs;
use many::ManyArgs;
use online::OnlineArgs;
use paths::{check_paths, warn_of_unfinished};
use report::report;
pub(crate) use report::{fast_cost, json};
use rule::RuleArgs;

const EXAMPLES: &str = "\
Option names and defaults follow scikit-learn. Without -o the model is printed; with -o a short summary is printed.

Examples:
  gmm fit data/old_faithful.csv -k 2
  gmm fit data/old_faithful.csv -k 2 --plot fit.svg
  gmm fit rows.npy -k 16 --covariance diag --n-init 5 --seed 1 -o model.safetensors
  gmm fit survey.csv -k 4 --columns age,income,hours --weights w -o model.json --json
  gmm fit 'part-*.parquet' -k 8 --memory 4GiB -o model.json   many files as one table
  gmm fit more.csv --init model.json -o model.json         continue from a model
  gmm fit huge.npy -k 64 --checkpoint run.json -o model.json && rm run.json
  gmm fit huge.npy --resume run.json -o model.json         after an interruption
  gmm fit huge.npy -k 64 --online --batch 100000           online EM: few passes over the data
  gmm fit rows.csv -k 8 --prior                            never collapses: prior of Fraley and Raftery
  gmm fit rows.csv -k 3 --labels class                     rows with a class from 0 keep it, -1 is unknown
  gmm fit rows.csv -k 20 --bayes dp                        as many of 20 components as the data need
  gmm fit rows.csv -k 3 --noise                            rows far from all components are noise
  gmm fit survey.csv -k 4 --missing em                     a value is missing here and there
  gmm fit stars.csv -k 4 --columns x,y --noise-columns ex,ey    rows with measurement errors of their own
  gmm fit new.csv --init model.json --fix-means all        only weights and covariances change
  gmm fit sales.csv -k 2 --by store -o models.json         a fit for each value of a column";

/// Fit a Gaussian mixture to data by expectation-maximisation
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Number of components
    #[arg(short, value_name = "K", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: Option<usize>,
    /// Covariance type: full, tied, diag, spherical, or factors:H, full covariances of H factors each (a mixture of factor
    /// analysers) [default: full, or that of --init MODEL]
    #[arg(long, value_name = "KIND", value_parser = args::covariance_model)]
    covariance: Option<CovarianceModel>,
    /// Initialisation: kmeans, kmeans++, random-rows, random, stride, tree (model-based agglomeration), best (of tree,
    /// kmeans and random rows, after ten iterations each), or a model file to start from
    #[arg(long, value_name = "HOW|MODEL", default_value = "kmeans")]
    init: String,
    #[command(flatten)]
    em: EmArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    missing: MissingArgs,
    #[command(flatten)]
    measured: MeasuredArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Exit with code 7 and write no model if the fit did not converge
    #[arg(long)]
    require_convergence: bool,
    /// Save the state of the fit to this model file every three seconds, on Ctrl-C, and at the end
    #[arg(long, value_name = "FILE", conflicts_with = "moves")]
    checkpoint: Option<PathBuf>,
    /// Continue the fit that wrote this checkpoint, and save to it again. The result is that of an uninterrupted fit:
    /// on the CPU to the bit, on a GPU within rounding. Options of the fit that are left out are those of the checkpoint;
    /// those that say how rows are read (--columns, --missing, limits, measurement errors) are given again. --max-iter and
    /// --tol may change, --n-init may grow, and output options are free
    #[arg(long, value_name = "FILE", conflicts_with = "moves")]
    resume: Option<PathBuf>,
    /// Column with the known component of each row, from 0; -1 where it is not known. Labelled rows keep their component
    #[arg(long, value_name = "COLUMN", help_heading = "Beyond maximum likelihood")]
    labels: Option<String>,
    #[command(flatten)]
    rule: RuleArgs,
    #[command(flatten)]
    many: ManyArgs,
    #[command(flatten)]
    online: OnlineArgs,
    /// After EM, split one component and merge two others, and keep the result if its mean log-likelihood is higher by
    /// more than --tol, until no candidate is (SMEM; Ueda et al. 2000)
    #[arg(long, conflicts_with_all = ["checkpoint", "resume", "online", "bayes", "truncated"])]
    split_merge: bool,
    /// Write the model to a .json or .safetensors file; - is JSON on standard output
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
    /// Plot rows and components to a .svg or .png file; gmm plot fit has more options
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,
    /// Names of the options on the command line, as opposed to defaults.
    #[arg(skip)]
    pub(crate) given: Vec<String>,
}

pub(crate) fn run(args: &FitArgs, console: &Console) -> anyhow::Result<()> {
    if args.many.are_many() {
        args.measured.refuse("gmm fit --by or --each-column")?;
        return many::run(args, console);
    }
    check_paths(args)?;
    let saved = args.resume.as_deref().map(Saved::read).transpose()?;
    let prior = args.rule.prior_file(saved.is_some())?;
    // A resumed fit is past its start.
    let start = if saved.is_none() { start(&args.init)? } else { None };
    let mut options = match &saved {
        Some(saved) => resumed(args, saved)?,
        None => options(args, start.as_ref())?,
    };
    options.validate()?;
    let engine_args = match &saved {
        Some(saved) => saved.engine(&args.engine)?,
        None => args.engine.clone(),
    };
    let engine_args = args.measured.engine(&engine_args);
    let plain = options.clone();
    let work = |shape, precision| Work::fit(shape, precision, &plain);
    let opening = Opening::begin(&engine_args, args.input.source().memory(), &args.input.source().files()?, &work);
    let column = saved.as_ref().map_or(&args.labels, |saved| &saved.basis.fit.labels).clone();
    let source = args.input.source().with_missing(args.missing.missing).with_measured(&args.measured);
    let (data, labels) = input::labelled_rows(source, args.weights.as_deref(), column.as_deref(), console)?;
    if args.online.online && data.has_missing() {
        return Err(gmm_host::Error::Missing { what: "--online" }.into());
    }
    if args.online.online {
        gmm_host::Data::from(&data).refuse_indirect("--online")?;
    }
    let rule = args.rule.with_prior(prior.as_ref(), options.covariance_type, data.n_features())?;
    if prior.is_some() {
        options.rule.bayes = rule.bayes.options(options.covariance_type)?;
    }
    options.rule.labels = labels.map(Arc::new);
    options.validate()?;
    if let Some(model) = &start {
        input::check_columns(model, &data).with_context(|| args.input.source().display())?;
    }
    let opened = opening.finish(&work(data.rows().dim(), data.rows().precision()), console)?;
    opening::note_rows(&opened, &data, engine_args.precision(), console)?;
    let engine = opened.engine.as_ref();
    if args.online.online {
        let fit = online::fit(&args.online, &data, &options, engine, console)?;
        return report(args, &options, (&opened, engine_args.device), &data, fit, console);
    }
    let mut checkpoint = None;
    let mut state = FitState::default();
    if let Some(path) = args.checkpoint.as_ref().or(args.resume.as_ref()) {
        let threads = if engine_args.threads == 0 { default_threads() } else { engine_args.threads };
        let init = saved.as_ref().map_or(&args.init, |saved| &saved.basis.fit.init);
        let rule = saved.as_ref().map_or(&rule, |saved| &saved.basis.fit.rule);
        let record = FitRecord::new(&options, init).with_rule(rule, column.as_deref());
        let known = options.rule.labels.as_deref().map(Vec::as_slice);
        let basis = Basis::new(record, (&data, known), engine, threads)?;
        match saved {
            Some(saved) => {
                saved.check(&basis, console)?;
                state = saved.state;
            }
            None => warn_of_unfinished(path, console),
        }
        checkpoint = Some(Checkpoint::new(path.clone(), data.names().map(<[String]>::to_vec), basis));
    }
    let (mut fit, unsaved) = observed(checkpoint, state, &data, &options, engine, console)?;
    if args.split_merge {
        fit = split_merged(fit, &data, &options, engine, console)?;
    }
    report(args, &options, (&opened, engine_args.device), &data, fit, console)?;
    unsaved.map_or(Ok(()), Err)
}

/// Continues a finished fit with splits and merges. A signal ends it: there is nothing to save.
fn split_merged(
    fit: Fit,
    data: &Dataset,
    options: &FitOptions,
    engine: &dyn Engine,
    console: &Console,
) -> anyhow::Result<Fit> {
    let before = fit.summary.mean_log_likelihood;
    let how = gmm_host::structure::SplitMergeOptions::default();
    let mut go_on = |_: &Iteration<'_>| ControlFlow::Continue(());
    let fit = gmm_host::structure::split_merge(engine, data, fit, options, &how, &mut go_on)
        .map_err(|error| named(error, data))?;
    let gain = fit.summary.mean_log_likelihood - before;
    console.note(|| match gain {
        0.0 => "split and merge: no better maximum was found".to_owned(),
        gain => format!("split and merge: the mean log-likelihood rose by {}", render::short(gain)),
    });
    Ok(fit)
}

/// The options of a fit that goes on.
///
/// # Errors
/// Errors if an option was given that differs from that of the checkpoint.
fn resumed(args: &FitArgs, saved: &Saved) -> anyhow::Result<FitOptions> {
    let k = args.k.unwrap_or(saved.basis.fit.k);
    let kind = args.covariance.unwrap_or(CovarianceType::Full.into());
    let asked = em_options(&args.em, &args.engine, k).with_covariance(kind);
    let record = FitRecord::new(&asked, &args.init).with_rule(&args.rule, args.labels.as_deref());
    saved.options(&record, &args.given)
}

/// The model to start from, if `--init` names a file instead of an initialisation method.
fn start(init: &str) -> anyhow::Result<Option<ModelFile>> {
    match init.parse::<Init>() {
        Ok(_) => Ok(None),
        // A file that does not exist and has no model extension is more likely a misspelt method.
        Err(_) if !Path::new(init).exists() && !output::is_model_path(Path::new(init)) => {
            let words = Init::WORDS.join(", ");
            Err(Failure::Usage(format!("--init '{init}' is neither a model file nor one of {words}")).into())
        }
        Err(_) => Ok(Some(input::model(Path::new(init))?)),
    }
}

fn options(args: &FitArgs, start: Option<&ModelFile>) -> anyhow::Result<FitOptions> {
    let given = start.map(|model| &model.mixture);
    let Some(k) = args.k.or(given.map(|m| m.n_components())) else {
        return Err(Failure::Usage("the number of components is missing: give -k K or --init MODEL".to_owned()).into());
    };
    let model = args.covariance.or(given.map(Mixture::covariance_model)).unwrap_or(CovarianceType::Full.into());
    let kind = model.kind;
    if let Some(m) = given {
        for (option, differs, wanted, has) in [
            ("-k", k != m.n_components(), k.to_string(), m.n_components().to_string()),
            ("--covariance", kind != m.covariance_type(), model.to_string(), m.covariance_model().to_string()),
        ] {
            if differs {
                return Err(Failure::Usage(format!("{option} {wanted}, but {} has {has}", args.init)).into());
            }
        }
    }
    let init = match given {
        Some(mixture) => Init::Given(Box::new(mixture.clone())),
        None => args.init.parse()?,
    };
    let mut rule = args.rule.rule(kind, k)?;
    if let Some(noise) = start.and_then(|model| model.noise.clone()).filter(|_| rule.noise.is_none()) {
        rule.noise = Some(NoiseOptions { start: NoiseStart::Given(Box::new(noise)), log_volume: None });
    }
    Ok(FitOptions { init, rule, ..em_options(&args.em, &args.engine, k) }.with_covariance(model))
}

/// The options that `fit` and `select` share.
pub(crate) fn em_options(em: &EmArgs, engine: &EngineArgs, k: usize) -> FitOptions {
    FitOptions {
        n_init: em.n_init,
        init_rows: em.init_rows,
        tol: em.tol,
        max_iter: em.max_iter,
        reg_covar: em.reg_covar,
        seed: em.seed,
        precision: engine.precision(),
        fast: engine.fast(),
        autotune: em.autotune,
        ..FitOptions::new(k)
    }
}

/// Reports the result of `--autotune`.
pub(crate) fn tuned(tuning: Option<&Tuning>, engine: &dyn Engine, console: &Console) {
    match tuning {
        Some(tuning) => {
            tuning.warnings.iter().for_each(|warning| console.warn(warning));
            console.note(|| tuning.to_string());
        }
        None if engine.name().starts_with("cuda") => console.note(|| "autotune: nothing could be timed".to_owned()),
        None => {
            console.warn(&format!("--autotune has no effect: engine {} has a single implementation", engine.name()))
        }
    }
}

/// Fits from `state` while showing the progress and writing the checkpoint; stops at a signal. Also returns the error
/// if the checkpoint of the finished fit could not be written: the model is written before it is reported.
fn observed(
    mut checkpoint: Option<Checkpoint>,
    state: FitState,
    data: &Dataset,
    options: &FitOptions,
    engine: &dyn Engine,
    console: &Console,
) -> anyhow::Result<(Fit, Option<anyhow::Error>)> {
    let progress = Progress::new(console, RowSize::of(data), options.max_iter, options.n_init);
    // A checkpoint needs the mixture of each iteration.
    let options = FitOptions { concurrent: checkpoint.is_none(), ..options.clone() };
    let mut failed = None;
    let mut reached = 0;
    // Before the first iteration there is nothing to save: a signal then ends the program at once.
    let mut held: Option<Hold> = None;
    let mut observer = |step: &Iteration<'_>| {
        held.get_or_insert_with(interrupt::hold);
        progress.step(step.restart, step);
        let stop = interrupt::received().is_some();
        // An engine that runs several iterations in one batch passes the mixture only with the last.
        if step.mixture.is_none() && checkpoint.is_some() {
            return ControlFlow::Continue(());
        }
        reached = step.iteration;
        if let Some(Err(error)) = checkpoint.as_mut().map(|c| c.offer(step, stop)) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = fit_resumed(engine, data, &options, state, &mut observer);
    progress.finish();
    if let Some(error) = failed {
        return Err(error);
    }
    let fit = result.map_err(|error| match error {
        gmm_host::Error::Interrupted { iterations } => {
            let kept = checkpoint.as_ref().map(|c| format!("; --resume {} continues", c.display()));
            Failure::Interrupted { iterations, kept: kept.unwrap_or_default() }.into()
        }
        error => match &mut checkpoint {
            Some(checkpoint) if reached > 0 => stopped(named(error, data), checkpoint, reached),
            _ => named(error, data),
        },
    })?;
    let unsaved = checkpoint.as_mut().and_then(|checkpoint| checkpoint.done(&fit.state).err());
    Ok((fit, unsaved))
}

/// Writes the last mixture of a failed fit to the checkpoint, and adds to the error where it is.
fn stopped(error: anyhow::Error, checkpoint: &mut Checkpoint, iterations: usize) -> anyhow::Error {
    let path = checkpoint.display();
    let kept = match checkpoint.flush() {
        Ok(()) => format!("the mixture after {iterations} iterations is in {path}: --init {path} continues from it"),
        Err(why) => format!("the mixture after {iterations} iterations is lost: {}", exit::message(&why)),
    };
    Failure::Stopped { what: exit::message(&error), kept, error }.into()
}

/// Adds the column's name to an error that contains its index.
pub(crate) fn named(error: gmm_host::Error, data: &Dataset) -> anyhow::Error {
    use gmm_host::Error;
    use gmm_model::ModelError::{NotPositiveDefinite, Underflow};
    let column = match &error {
        Error::Singular { source: NotPositiveDefinite { column, .. } | Underflow { column, .. }, .. }
        | Error::Scale { column, .. }
        | Error::Data(gmm_model::DataError::Unobserved { column }) => Some(*column),
        _ => None,
    };
    match column.and_then(|c| data.names().map(|names| names[c].clone())) {
        Some(name) => anyhow::Error::new(error).context(format!("column '{}'", shown(&name))),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests;
