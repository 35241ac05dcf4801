//! `gmm classify`: assigns each row to one of several models, by the posterior predictive density under their draws.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gmm_data::{Column, Table};
use gmm_host::evaluate::check_names;
use gmm_host::{Likelihood, Work, memory};
use gmm_model::{CovarianceType, Dataset, Mixture, Noise, shown};
use ndarray::Array2;
use serde_json::json;

use crate::args::{EngineArgs, covariance};
use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::table_args::InputArgs;
use crate::{input, opening};

const EXAMPLES: &str = "\
Each class has a model file (json or safetensors), or a file of draws written by gmm mcmc (npz,
parquet or arrow). The density of a row under draws is its mean over the draws, the posterior
predictive density. Each row is assigned to the class with the largest density times prior. Writes
one column `class`, the index of the class in the given order; with --proba, writes the columns
proba_NAME, .., which sum to 1 in each row, followed by log_density_NAME, .. Of a table with more
columns those with the models' names are used.

Examples:
  gmm classify new.csv --model setosa=setosa.npz --model other=other.json
  gmm classify new.csv --model a=a.npz --model b=b.npz --class-prior a=0.9 --class-prior b=0.1
  gmm classify new.csv --model a=a.npz --model b=b.npz --proba -o proba.parquet";

/// Classify rows by several models, one per class
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClassifyArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Name of a class and the file with its model or draws; needed at least twice
    #[arg(long = "model", value_name = "NAME=FILE", required = true, value_parser = named)]
    models: Vec<(String, String)>,
    /// Prior weight of a class, for all classes or none; weights are divided by their sum [default: equal]
    #[arg(long = "class-prior", value_name = "NAME=P", value_parser = named)]
    priors: Vec<(String, String)>,
    /// Covariance type of the draws, needed if a file is ambiguous (tied and diag with K = d)
    #[arg(long, value_name = "KIND", value_parser = covariance())]
    covariance: Option<CovarianceType>,
    /// Write the probabilities of all classes and the log densities instead of the class
    #[arg(long)]
    proba: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT", default_value = "-", hide_default_value = true)]
    output: PathBuf,
    /// Print one JSON object with the number of rows of each class; needs -o
    #[arg(long)]
    json: bool,
}

/// Parses `NAME=VALUE`.
fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}

pub(crate) fn run(args: &ClassifyArgs, console: &Console) -> anyhow::Result<()> {
    let log_priors = check(args)?;
    let classes = args.models.iter().map(|(_, file)| class(args, Path::new(file))).collect::<Result<Vec<_>, _>>()?;
    let names = common_names(&classes)?;
    let (data, _) = input::rows_with(args.input.source(), (None, None), names, console)?;
    classes.iter().try_for_each(|class| class.check_columns(&data))?;
    let of = |mixture: &Mixture| {
        let (shape, precision) = (data.rows().dim(), data.rows().precision());
        Work::passes(shape, precision, mixture.covariance_type(), mixture.n_components(), 1.0)
    };
    let work = classes.iter().flat_map(|class| &class.mixtures).map(of).fold(Work::default(), Work::and);
    let opened = opening::open(&args.engine, args.input.source().memory(), &work, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let mut likelihood = Likelihood::new(opened.engine.as_ref(), &data, precision)?;
    let (n, classes_n) = (data.n_rows(), classes.len());
    memory::check("the densities of all rows and classes", 8 * (n as u128 + 1) * (2 * classes_n as u128 + 2))?;
    let mut densities = Array2::zeros((n, classes_n));
    for ((class, (name, _)), mut out) in classes.iter().zip(&args.models).zip(densities.columns_mut()) {
        let mut density = mean_density(&mut likelihood, &class.mixtures)?;
        if let Some(noise) = &class.noise {
            noise.add_to(&mut density);
        }
        out.assign(&ndarray::aview1(&density));
        console.note(|| format!("class {name}: {} mixtures", class.mixtures.len()));
    }
    let mut proba = &densities + &ndarray::aview1(&log_priors);
    let labels: Vec<u32> = proba.outer_iter().map(|row| largest(row.as_slice().expect("row-major"))).collect();
    if args.proba {
        proba.outer_iter_mut().for_each(|mut row| normalise(row.as_slice_mut().expect("row-major"), &log_priors));
        let columns = |stem: &str| args.models.iter().map(|(name, _)| format!("{stem}_{name}")).collect::<Vec<_>>();
        let all = ndarray::concatenate![ndarray::Axis(1), proba, densities];
        let table = Table::with_names(all, [columns("proba"), columns("log_density")].concat())?;
        let _whole = output::hold(&args.output);
        gmm_data::write_table(&args.output, &table)?;
    } else {
        let _whole = output::hold(&args.output);
        gmm_data::write_column(&args.output, "class", Column::Labels(&labels))?;
    }
    if args.json {
        let count = |c: usize| labels.iter().filter(|&&label| label as usize == c).count();
        let each: Vec<_> =
            args.models.iter().enumerate().map(|(c, (name, _))| json!({"class": name, "rows": count(c)})).collect();
        let (engine, precision) = (opened.engine.name(), opened.engine.precision(precision).name());
        output::print_json(&json!({"n_rows": n, "engine": engine, "precision": precision, "classes": each}))?;
    }
    Ok(())
}

/// Checks the options before any file is read, and returns the logarithms of the class priors.
fn check(args: &ClassifyArgs) -> anyhow::Result<Vec<f64>> {
    let usage = |why: String| Err(Failure::Usage(why).into());
    let names: Vec<&String> = args.models.iter().map(|(name, _)| name).collect();
    if names.len() < 2 {
        return usage("--model is needed at least twice: there must be two or more classes".to_owned());
    }
    if let Some((_, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return usage(format!("--model names the class '{name}' twice"));
    }
    output::check_table_path(&args.output)?;
    let rows = args.input.source().files()?;
    let files = args.models.iter().map(|(_, file)| Path::new(file));
    let inputs: Vec<&Path> = files.chain(rows.iter().map(PathBuf::as_path)).collect();
    if inputs.iter().filter(|path| is_stdio(path)).count() > 1 {
        return usage("only one input can come from standard input".to_owned());
    }
    output::check_apart(&args.output, &inputs)?;
    if args.json && is_stdio(&args.output) {
        return usage(
            "--json and the table cannot both go to standard output: write the table to a file with -o".to_owned(),
        );
    }
    if args.priors.is_empty() {
        return Ok(vec![-(names.len() as f64).ln(); names.len()]);
    }
    let mut priors = vec![None; names.len()];
    for (name, value) in &args.priors {
        let Some(at) = names.iter().position(|n| *n == name) else {
            return usage(format!("--class-prior {name}: there is no such class"));
        };
        let value: f64 = value.parse().ok().filter(|v: &f64| *v >= 0.0 && v.is_finite()).ok_or_else(|| {
            Failure::Usage(format!("--class-prior {name}={value}: it must be a finite number and not negative"))
        })?;
        if priors[at].replace(value).is_some() {
            return usage(format!("--class-prior names the class '{name}' twice"));
        }
    }
    if let Some(at) = priors.iter().position(Option::is_none) {
        return usage(format!(
            "--class-prior is missing for the class '{}': give one for every class or for none",
            names[at]
        ));
    }
    let total: f64 = priors.iter().flatten().sum();
    if !(total > 0.0 && total.is_finite()) {
        return usage("--class-prior: the sum of the weights is 0 or infinite".to_owned());
    }
    Ok(priors.into_iter().flatten().map(|p| (p / total).ln()).collect())
}

/// The mixture of a model file, or all mixtures of a file of draws.
struct Class {
    file: String,
    mixtures: Vec<Mixture>,
    noise: Option<Noise>,
    /// The names of the columns that the mixtures were fitted to, if the file has them.
    names: Option<Vec<String>>,
}

impl Class {
    /// # Errors
    /// Errors if rows have another number of columns, or others by name; includes the file.
    fn check_columns(&self, data: &Dataset) -> anyhow::Result<()> {
        let (found, expected) = (data.n_features(), self.mixtures[0].n_features());
        let checked = match found == expected {
            true => check_names(data.names(), self.names.as_deref()),
            false => Err(gmm_host::Error::Features { found, expected }),
        };
        checked.with_context(|| self.file.clone())
    }
}

fn class(args: &ClassifyArgs, path: &Path) -> anyhow::Result<Class> {
    let file = input::display(path);
    if is_stdio(path) || output::is_model_path(path) {
        let model = input::model(path)?;
        return Ok(Class { file, mixtures: vec![model.mixture], noise: model.noise, names: model.feature_names });
    }
    Ok(Class { file, mixtures: gmm_data::read_mixtures(path, args.covariance)?, noise: None, names: None })
}

/// The names of the columns of all classes that have names.
///
/// # Errors
/// [`Failure::BadData`] if those of two classes differ.
fn common_names(classes: &[Class]) -> Result<Option<&[String]>, Failure> {
    let mut named = classes.iter().filter_map(|class| Some((&class.file, class.names.as_deref()?)));
    let Some((file, names)) = named.next() else { return Ok(None) };
    match named.find(|(_, others)| *others != names) {
        None => Ok(Some(names)),
        Some((other, others)) => {
            let [names, others] = [names, others].map(|names| shown(&names.join(", ")).into_owned());
            let why = format!("{file} has the columns {names}, and {other} {others}: all models must have the same");
            Err(Failure::BadData(why))
        }
    }
}

/// Logarithm of the mean density of the mixtures at each row, `(n,)`: a streaming log-sum-exp with a running maximum.
fn mean_density(likelihood: &mut Likelihood, mixtures: &[Mixture]) -> anyhow::Result<Vec<f64>> {
    let n = likelihood.dim().0;
    let (mut top, mut sum, mut here) = (vec![f64::NEG_INFINITY; n], vec![0.0; n], vec![0.0; n]);
    for mixture in mixtures {
        likelihood.per_row(mixture, &mut here)?;
        for ((top, sum), &value) in top.iter_mut().zip(&mut sum).zip(&here) {
            if value > *top {
                // At the first finite value, the sum is 0 and `exp(-inf - value)` is 0.
                *sum = *sum * (*top - value).exp() + 1.0;
                *top = value;
            } else if value > f64::NEG_INFINITY {
                *sum += (value - *top).exp();
            }
        }
    }
    let count = (mixtures.len() as f64).ln();
    Ok(top.iter().zip(&sum).map(|(top, sum)| if *sum > 0.0 { top + sum.ln() - count } else { *top }).collect())
}

/// Index of the largest value, the first one if several are equal.
fn largest(row: &[f64]) -> u32 {
    let mut best = 0;
    (1..row.len()).for_each(|c| best = if row[c] > row[best] { c } else { best });
    best as u32
}

/// Turns log joint densities into probabilities; if all densities are 0, into the priors.
fn normalise(row: &mut [f64], log_priors: &[f64]) {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        row.iter_mut().zip(log_priors).for_each(|(slot, prior)| *slot = prior.exp());
        return;
    }
    row.iter_mut().for_each(|v| *v = (*v - top).exp());
    let total: f64 = row.iter().sum();
    row.iter_mut().for_each(|v| *v /= total);
}
