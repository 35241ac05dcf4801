//! `gmm fit --by` and `--each-column`: many fits of one table.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use gmm_data::{GroupLabel, GroupModels, ModelFile};
use gmm_host::many::{Groups, Progress, fit_many_watched};
use gmm_host::{Error, Fit, FitOptions, Warning, Work, memory};
use gmm_model::{Dataset, Matrix};
use ndarray::Array2;
use serde_json::{Value, json};

use super::{FitArgs, named};
use crate::exit::{self, Failure};
use crate::groups::{self, GroupedRows};
use crate::opening::{self, Opening};
use crate::output::{self, Console, is_stdio};
use crate::progress::Count;
use crate::{input, interrupt};

/// Several fits of one table.
#[derive(Args)]
pub(crate) struct ManyArgs {
    /// Fit the rows of each value of this column alone, numbers or text. -o FILE.json gets the models of all groups, for
    /// predict and score with --by; any other -o is a folder, which gets a model GROUP.json for each
    #[arg(
        long,
        value_name = "COLUMN",
        help_heading = "Many fits",
        conflicts_with_all = ["checkpoint", "resume", "online", "split_merge", "plot", "labels"]
    )]
    by: Option<String>,
    /// Fit each column alone; -o as with --by
    #[arg(
        long,
        help_heading = "Many fits",
        conflicts_with_all = ["by", "checkpoint", "resume", "online", "split_merge", "plot", "labels"]
    )]
    each_column: bool,
}

impl ManyArgs {
    /// Whether there are several fits.
    pub(crate) const fn are_many(&self) -> bool {
        self.by.is_some() || self.each_column
    }
}

/// The fits to make.
struct Plan {
    /// The rows of all groups.
    data: Dataset,
    labels: Vec<GroupLabel>,
    rows: Vec<Range<usize>>,
    /// The columns of each group's rows.
    names: Vec<Option<Vec<String>>>,
}

pub(crate) fn run(args: &FitArgs, console: &Console) -> anyhow::Result<()> {
    let output = args.output.as_deref().map(|path| Output::new(path, args)).transpose()?;
    let start = super::start(&args.init)?;
    let options = super::options(args, start.as_ref())?;
    options.validate()?;
    args.missing.missing.refuse_drop("the groups")?;
    let prior = args.rule.prior_file(false)?;
    let work = |shape, precision| Work::fit(shape, precision, &options);
    let source = args.input.source().with_missing(args.missing.missing);
    let opening = Opening::begin(&args.engine, source.memory(), &source.files()?, &work);
    let weights = args.weights.as_deref();
    let plan = match &args.many.by {
        Some(column) => by(groups::rows_by(source, column, (weights, None), console)?),
        None => each_column(&input::rows(source, weights, console)?)?,
    };
    let rule = args.rule.with_prior(prior.as_ref(), options.covariance_type, plan.data.n_features())?;
    let opened = opening.finish(&work(plan.data.rows().dim(), plan.data.rows().precision()), console)?;
    opening::note_rows(&opened, &plan.data, args.engine.precision(), console)?;
    let mut options = options.clone();
    if prior.is_some() {
        options.rule.bayes = rule.bayes.options(options.covariance_type)?;
    }
    let started = Instant::now();
    let fits = fit_all(&plan, opened.engine.as_ref(), &options, console)?;
    console.note(|| format!("{} fits in {:.1?}", fits.len(), started.elapsed()));
    if fits.iter().all(Result::is_err) {
        let first = fits.into_iter().find_map(Result::err).expect("a table has rows, so that there is a group");
        return Err(named(first, &plan.data).context(format!("group {}", plan.labels[0])));
    }
    warn(&plan, &fits, console);
    if args.require_convergence
        && let Some(fit) = fits.iter().flatten().find(|fit| !fit.summary.converged)
    {
        let iterations = fit.summary.iterations;
        return Err(Failure::NotConverged { iterations, unit: "iterations", option: "--max-iter" }.into());
    }
    let models = models(args.many.by.clone(), &plan, fits);
    if let Some(output) = &output {
        output.write(&models, args, console)?;
    }
    report(args, &models, started.elapsed().as_secs_f64(), console)
}

fn by(GroupedRows { data, grouping }: GroupedRows) -> Plan {
    let (labels, rows) = grouping.into_parts();
    let names = vec![data.names().map(<[String]>::to_vec); rows.len()];
    Plan { data, labels, rows, names }
}

/// The columns one below the other, each a group.
fn each_column(data: &Dataset) -> anyhow::Result<Plan> {
    let (n, d) = data.rows().dim();
    memory::check("the columns one by one", 8 * n as u128 * d as u128)?;
    let rows: Matrix = match data.rows() {
        Matrix::F32(a) => Array2::from_shape_fn((n * d, 1), |(i, _)| a[[i % n, i / n]]).into(),
        Matrix::F64(a) => Array2::from_shape_fn((n * d, 1), |(i, _)| a[[i % n, i / n]]).into(),
    };
    let mut below = if data.has_missing() { Dataset::with_holes(rows)? } else { Dataset::new(rows)? };
    if let Some(weights) = data.weights() {
        below = below.with_weights(weights.repeat(d))?;
    }
    let label = |j: usize| match data.names() {
        Some(names) => GroupLabel::Text(names[j].clone()),
        None => GroupLabel::number(j as f64),
    };
    Ok(Plan {
        data: below,
        labels: (0..d).map(label).collect(),
        rows: (0..d).map(|j| j * n..(j + 1) * n).collect(),
        names: (0..d).map(|j| data.names().map(|names| vec![names[j].clone()])).collect(),
    })
}

/// Shortest time between two looks at the number of fits that ended.
const EVERY: Duration = Duration::from_millis(50);

/// # Errors
/// Errors only if a signal ended the fits.
fn fit_all(
    plan: &Plan,
    engine: &dyn gmm_host::Engine,
    options: &FitOptions,
    console: &Console,
) -> anyhow::Result<Vec<Result<Fit, Error>>> {
    let held = interrupt::hold();
    let done = AtomicUsize::new(0);
    let watch = |progress: Progress<'_>| {
        if let Progress::Done { .. } = progress {
            done.fetch_add(1, Ordering::Relaxed);
        }
        if interrupt::received().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let groups = Groups::new(&plan.data, &plan.rows);
    let (shows, ended) = (thread::current(), AtomicBool::new(false));
    // The fits run on other threads: this one shows how many have ended.
    let fits = thread::scope(|scope| {
        let fits = scope.spawn(|| {
            let fits = fit_many_watched(engine, &groups, options, &watch);
            ended.store(true, Ordering::Release);
            shows.unpark();
            fits
        });
        let bar = Count::new(console, groups.len(), "fits");
        while !ended.load(Ordering::Acquire) && !fits.is_finished() {
            bar.at(done.load(Ordering::Relaxed));
            thread::park_timeout(EVERY);
        }
        bar.finish();
        fits.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    drop(held);
    if interrupt::received().is_some() {
        return Err(Failure::Interrupted { iterations: 0, kept: String::new() }.into());
    }
    Ok(fits)
}

/// At most this many groups are named in warnings of one kind.
const MOST_NAMED: usize = 5;

/// Warns of groups without a model, and of doubtful fits; fits that did not converge are counted.
fn warn(plan: &Plan, fits: &[Result<Fit, Error>], console: &Console) {
    let mut texts = Vec::new();
    let mut unconverged = 0;
    for ((label, names), fit) in plan.labels.iter().zip(&plan.names).zip(fits) {
        match fit {
            Err(error) => texts.push(format!("group {label}: {error}")),
            Ok(fit) => {
                for warning in &fit.warnings {
                    match warning {
                        Warning::NotConverged { .. } => unconverged += 1,
                        warning => texts.push(format!("group {label}: {}", output::warning(warning, names.as_deref()))),
                    }
                }
            }
        }
    }
    texts.iter().take(MOST_NAMED).for_each(|text| console.warn(text));
    if texts.len() > MOST_NAMED {
        console.warn(&format!("{} more warnings of this kind: -v shows them", texts.len() - MOST_NAMED));
        texts.iter().skip(MOST_NAMED).for_each(|text| console.note(|| text.clone()));
    }
    if unconverged > 0 {
        let of = fits.len();
        console.warn(&format!("{unconverged} of {of} fits did not converge: raise --max-iter or --tol"));
    }
}

fn models(by: Option<String>, plan: &Plan, fits: Vec<Result<Fit, Error>>) -> GroupModels {
    let model = |(fit, names): (Result<Fit, Error>, &Option<Vec<String>>)| match fit {
        Ok(Fit { mixture, posterior, noise, summary, storage, .. }) => {
            let (fit, storage) = (Some(summary), Some(storage));
            Ok(ModelFile { feature_names: names.clone(), fit, storage, posterior, noise, ..ModelFile::from(mixture) })
        }
        Err(error) => Err(exit::message(&named(error, &plan.data))),
    };
    let models = fits.into_iter().zip(&plan.names).map(model);
    GroupModels { by, groups: plan.labels.iter().cloned().zip(models).collect() }
}

/// Where the models go.
enum Output {
    /// One file, or standard output.
    File(PathBuf),
    /// A file for each in this folder.
    Folder(PathBuf),
}

impl Output {
    /// # Errors
    /// Errors if the file cannot be written or is an input.
    fn new(path: &Path, args: &FitArgs) -> anyhow::Result<Self> {
        output::check_json_apart(args.json, path)?;
        if !is_stdio(path) && !output::is_model_path(path) {
            return Ok(Self::Folder(path.to_owned()));
        }
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("safetensors")) {
            let why = "the models of all groups are one json file, or a folder: safetensors holds one model";
            return Err(Failure::Usage(format!("-o {}: {why}", path.display())).into());
        }
        output::check_model_path(path)?;
        let files = args.input.source().files()?;
        output::check_apart(path, &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        Ok(Self::File(path.to_owned()))
    }

    fn write(&self, models: &GroupModels, args: &FitArgs, console: &Console) -> anyhow::Result<()> {
        match self {
            Self::File(path) => {
                groups::write(path, models)?;
                console.note(|| format!("wrote {}", path.display()));
            }
            Self::Folder(folder) => {
                let files = args.input.source().files()?;
                let inputs: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
                let paths: Vec<PathBuf> =
                    models.groups.iter().map(|(label, _)| file_of(folder, label)).collect::<Result<_, _>>()?;
                paths.iter().try_for_each(|path| output::check_apart(path, &inputs))?;
                output::create_folder(folder)?;
                for (path, (_, model)) in paths.iter().zip(&models.groups) {
                    if let Ok(model) = model {
                        output::write_model(path, model)?;
                        console.note(|| format!("wrote {}", path.display()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The model file of a group.
fn file_of(folder: &Path, label: &GroupLabel) -> Result<PathBuf, Failure> {
    let name = label.to_string();
    if name.starts_with('.') || name.contains(['/', '\\', '\0']) {
        let why = "no file can have that name: write all models to one file, -o FILE.json";
        return Err(Failure::BadData(format!("group {name}: {why}")));
    }
    Ok(folder.join(format!("{name}.json")))
}

fn report(args: &FitArgs, models: &GroupModels, elapsed: f64, console: &Console) -> anyhow::Result<()> {
    if args.json {
        return Ok(output::print_json(&as_json(models, elapsed))?);
    }
    let table = groups::table(models, console.colour);
    match &args.output {
        Some(path) if is_stdio(path) => console.note(|| table),
        Some(_) if console.quiet => {}
        _ => output::print(&table)?,
    }
    Ok(())
}

fn as_json(models: &GroupModels, elapsed: f64) -> Value {
    let one = |(label, model): &(GroupLabel, Result<ModelFile, String>)| match model {
        Ok(model) => json!({"group": label, "fit": model.fit, "error": null}),
        Err(error) => json!({"group": label, "fit": null, "error": error}),
    };
    let groups: Vec<Value> = models.groups.iter().map(one).collect();
    json!({"by": models.by, "groups": groups, "elapsed_s": elapsed})
}
