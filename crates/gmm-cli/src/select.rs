//! `gmm select`: selects the number of components and the covariance type by an information criterion.

mod by;
mod report;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::ModelFile;
use gmm_host::{Candidate, Choice, Engine, Fit, FitRule, Init, Iteration, TestOptions, Warning, Work, choose, select};
use gmm_model::{CovarianceModel, Dataset};

use crate::args::{self, EmArgs, EngineArgs};
use crate::exit::Failure;
use crate::fit::bayes::BayesArgs;
use crate::fit::rule::{NoiseArgs, ObjectiveArgs};
use crate::interrupt::{self, Hold};
use crate::measured::MeasuredArgs;
use crate::missing::MissingArgs;
use crate::opening::{self, Opening};
use crate::output::{self, Console, is_stdio};
use crate::progress::{Progress, RowSize};
use crate::table_args::InputArgs;
use crate::{bootstrap, fit, input, plot};
use report::{as_json, decision, line, starts, table};

const EXAMPLES: &str = "\
Fits every combination and prints one line for each; * marks the best, which has the lowest criterion.

Examples:
  gmm select data/old_faithful.csv -k 1..6
  gmm select rows.npy -k 2,4,8,16 --covariance full,diag --criterion icl --n-init 3 -o best.json
  gmm select data.csv -k 1..10 --covariance full,tied,diag --plot bic.svg
  gmm select data.csv -k 1..6 --init tree --criterion blrt --replicates 199
  gmm select data.csv -k 1..20 --prior --reg-covar 0       no candidate fails; as mclust's priorControl()";

/// Choose the number of components and the covariance type by an information criterion
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SelectArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Numbers of components: a range (1..10, both ends included), a list (2,4,8), or a mix of both
    #[arg(short, value_name = "K..K", required = true, allow_hyphen_values = true)]
    k: String,
    /// Covariance types to compare: full, tied, diag, spherical, or factors:H for some H
    #[arg(
        long,
        value_name = "KIND,..",
        default_value = "full",
        value_delimiter = ',',
        value_parser = args::covariance_model
    )]
    covariance: Vec<CovarianceModel>,
    /// What decides: a criterion, of which lower is better (bic, aic, icl, or icl-labels, which is mclust's ICL),
    /// blrt, bootstrap likelihood-ratio tests of each number of components against the next, or bound, the highest lower
    /// bound of the log evidence, with --bayes
    #[arg(long, value_name = "WORD", default_value = "bic", value_parser = args::words::<Choice>(&Choice::WORDS))]
    criterion: Choice,
    /// Number of data sets drawn for each test of blrt
    #[arg(long, value_name = "N", default_value_t = TestOptions::DEFAULT.replicates, value_parser = args::at_least_one,
          allow_negative_numbers = true)]
    replicates: usize,
    /// A test of blrt with a p-value above this ends the sequence
    #[arg(long, value_name = "P", default_value_t = TestOptions::DEFAULT.level, value_parser = bootstrap::level,
          allow_negative_numbers = true)]
    level: f64,
    /// Initialisation
    #[arg(long, value_name = "HOW", default_value = "kmeans",
          value_parser = args::words::<Init>(&Init::WORDS))]
    init: Init,
    #[command(flatten)]
    objective: ObjectiveArgs,
    #[command(flatten)]
    noise: NoiseArgs,
    #[command(flatten)]
    bayes: BayesArgs,
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
    /// Choose for the rows of each value of this column alone, numbers or text; -o FILE.json gets the best model of each
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["plot", "autotune"])]
    by: Option<String>,
    /// Write the best model to a .json or .safetensors file; - is JSON on standard output
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
    /// Plot the criterion against the number of components to a .svg or .png file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &SelectArgs, console: &Console) -> anyhow::Result<()> {
    let components = components(&args.k).map_err(|why| Failure::Usage(format!("-k {}: {why}", args.k)))?;
    let files = args.input.source().files()?;
    let inputs: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    if let Some(path) = &args.output {
        output::check_model_path(path)?;
        output::check_apart(path, &inputs)?;
        output::check_json_apart(args.json, path)?;
    }
    if let Some(path) = &args.plot {
        plot::check_option(path, &inputs)?;
        if !matches!(args.criterion, Choice::Criterion(_)) {
            let why = format!("--plot draws bic, aic or icl, not {}", args.criterion.name());
            return Err(Failure::Usage(why).into());
        }
    }
    args.criterion.check(&components, &args.covariance)?;
    let tests = TestOptions { replicates: args.replicates, level: args.level };
    if args.criterion == Choice::Blrt {
        tests.check()?;
    }
    if matches!(args.criterion, Choice::Blrt | Choice::LabelsIcl) {
        args.measured.refuse(&format!("--criterion {}", args.criterion.name()))?;
    }
    let mut options = fit::em_options(&args.em, &args.engine, components[0]);
    options.init = args.init.clone();
    options = options.with_covariance(args.covariance[0]);
    let bayes = args.bayes.options(options.covariance_type)?;
    let prior = args.objective.prior_file(&args.bayes)?;
    if prior.as_ref().is_some_and(|file| file.tables.covariances.is_some()) && args.covariance.len() > 1 {
        let why = "--prior FILE.toml with [covariances] is for one covariance type: give one --covariance";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    options.rule =
        FitRule { noise: args.noise.options()?, bayes, factors: options.rule.factors, ..args.objective.rule() };
    if args.criterion == Choice::Bound && options.rule.bayes.is_none() {
        return Err(Failure::Usage("--criterion bound needs --bayes, whose fits have a bound".to_owned()).into());
    }
    options.validate()?;
    if let Some(column) = &args.by {
        args.missing.missing.refuse_drop("the groups")?;
        args.measured.refuse("gmm select --by")?;
        if prior.is_some() {
            let why = "--prior FILE.toml is for one choice: give the numbers by options beside --by".to_owned();
            return Err(Failure::Usage(why).into());
        }
        return by::run(args, column, (&components, &options), console);
    }
    let work = |shape, precision| Work::select(shape, precision, &options, &components, &args.covariance);
    let engine_args = args.measured.engine(&args.engine);
    let opening = Opening::begin(&engine_args, args.input.source().memory(), &files, &work);
    let source = args.input.source().with_missing(args.missing.missing).with_measured(&args.measured);
    let data = input::rows(source, args.weights.as_deref(), console)?;
    let opened = opening.finish(&work(data.rows().dim(), data.rows().precision()), console)?;
    let mut options = options.clone();
    if let Some(file) = &prior {
        let kind = options.covariance_type;
        options.rule.bayes = args.bayes.with_prior(file, kind, data.n_features())?.options(kind)?;
    }
    opening::note_rows(&opened, &data, args.engine.precision(), console)?;

    let runs = args.covariance.len() * components.len() * options.n_init;
    let progress = Progress::new(console, RowSize::of(&data), options.max_iter, runs);
    let done = std::cell::Cell::new(0);
    let mut held: Option<Hold> = None;
    let stop = || if interrupt::received().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let candidates = select(
        opened.engine.as_ref(),
        &data,
        &options,
        &components,
        &args.covariance,
        &mut |candidate: &Candidate| {
            done.set(done.get() + 1);
            progress.title(&format!("{} of {} fits", done.get(), runs / options.n_init));
            console.note(|| format!("{}{}", line(candidate, " ", false), starts(candidate)));
            stop()
        },
        &mut |step: &Iteration<'_>| {
            held.get_or_insert_with(interrupt::hold);
            progress.step(done.get() * options.n_init + step.restart, step);
            stop()
        },
    );
    progress.finish();
    let failed = |error| match error {
        gmm_host::Error::Interrupted { iterations } => Failure::Interrupted { iterations, kept: String::new() }.into(),
        error => fit::named(error, &data),
    };
    let mut candidates = candidates.map_err(failed)?;
    let mut tested = |test: usize, replicate: usize| {
        console.step_note(|| format!("test {}: {replicate} of {} data sets", test + 1, args.replicates));
        stop()
    };
    let engine = opened.engine.as_ref();
    let chosen = choose(engine, &data, &candidates, args.criterion, &options, &tests, &mut tested).map_err(failed)?;
    drop(held);
    if args.em.autotune {
        tuned(&candidates, opened.engine.as_ref(), console);
    }
    let Some(chosen) = chosen else {
        let error = candidates.into_iter().find_map(|c| c.outcome.err());
        return Err(fit::named(error.expect("a candidate without a fit has an error"), &data));
    };
    let at = chosen.best;
    if let Ok(found) = &candidates[at].outcome {
        warn(&candidates[at], found, &data, console);
    }
    if args.engine.fast()
        && let Ok(found) = &candidates[at].outcome
    {
        console.tell(&format!("the best one: {}", fit::fast_cost(found)));
    }
    let object = as_json(&candidates, &chosen, args);
    let text = if args.json {
        format!("{object:#}\n")
    } else {
        format!("{}{}", table(&candidates, at, console), decision(&candidates, &chosen))
    };
    if let Some(path) = &args.output {
        let Candidate { outcome, .. } = candidates.swap_remove(at);
        let Ok(found) = outcome else { unreachable!("the best candidate has a fit") };
        let feature_names = data.names().map(<[String]>::to_vec);
        let Fit { mixture, summary, storage, noise, posterior, .. } = found;
        let (fit, storage) = (Some(summary), Some(storage));
        let model = ModelFile { feature_names, fit, storage, noise, posterior, ..ModelFile::from(mixture) };
        output::write_model(path, &model)?;
    }
    match &args.output {
        Some(path) if is_stdio(path) => console.note(|| text),
        Some(_) if console.quiet && !args.json => {}
        _ => output::print(&text)?,
    }
    let Some(path) = &args.plot else { return Ok(()) };
    let picture = plot::select::picture(&object, None).map_err(|why| match why {
        plot::select::Why::Form(why) => unreachable!("the object is this program's own: {why}"),
        plot::select::Why::Picture(error) => error,
    })?;
    plot::write(path, &picture, console)
}

/// Warns if the best fit did not converge, or if its likelihood is not reliable.
fn warn(Candidate { k, kind, .. }: &Candidate, best: &Fit, data: &Dataset, console: &Console) {
    let best_one = format!("the best candidate, {k} components with {kind} covariances");
    if !best.summary.converged {
        console.warn(&format!(
            "{best_one}, did not converge in {} iterations, so its criterion is not final: raise --max-iter or --tol; \
             (!) marks each candidate that did not converge",
            best.summary.iterations
        ));
    }
    for warning in &best.warnings {
        if matches!(warning, Warning::Spikes { .. } | Warning::LikelihoodFell { .. } | Warning::EmptyComponents { .. })
        {
            console.warn(&format!("{best_one}: {}", output::warning(warning, data.names())));
        }
    }
}

/// Reports the result of `--autotune` for each candidate that has a fit; prints equal warnings once.
fn tuned(candidates: &[Candidate], engine: &dyn Engine, console: &Console) {
    let fits = candidates.iter().filter_map(|candidate| Some((candidate, candidate.outcome.as_ref().ok()?)));
    let mut warned = Vec::new();
    for (Candidate { k, kind, .. }, found) in fits {
        let Some(tuning) = &found.tuning else { return fit::tuned(None, engine, console) };
        for warning in tuning.warnings.iter().filter(|warning| !warned.contains(*warning)).collect::<Vec<_>>() {
            console.warn(warning);
            warned.push(warning.clone());
        }
        console.note(|| format!("{k} {kind}: {tuning}"));
    }
}

/// Parses `1..10`, `1..=10`, `2,4,8` and combinations of them. Ranges include both ends. Each number appears once, in
/// the order given.
pub(crate) fn components(text: &str) -> Result<Vec<usize>, String> {
    /// More fits than anyone would wait for.
    const MOST: usize = 10_000;
    let mut out = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (first, last.strip_prefix('=').unwrap_or(last)),
            None => (part, part),
        };
        let [first, last] = [first, last].map(|number| args::at_least_one(number.trim()));
        let like = |why| format!("{why}; a list is written 1..10 or 2,3,5");
        let (first, last) = (first.map_err(like)?, last.map_err(like)?);
        if first > last {
            return Err(format!("{first}..{last} runs backwards"));
        }
        if last - first >= MOST {
            return Err(format!("at most {MOST} numbers"));
        }
        for k in first..=last {
            if !out.contains(&k) {
                out.push(k);
            }
        }
    }
    if out.len() > MOST { Err(format!("at most {MOST} numbers")) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn ranges_and_lists_of_components_are_read() {
        assert_eq!(components("1..4").unwrap(), [1, 2, 3, 4]);
        assert_eq!(components("1..=3,8, 2").unwrap(), [1, 2, 3, 8]);
        for bad in ["", "0..3", "3..1", "a", "1..", "-1", "2.5", "1..1000000000000"] {
            assert!(components(bad).is_err(), "{bad}");
        }
    }
}
