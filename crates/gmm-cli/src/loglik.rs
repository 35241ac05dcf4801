//! `gmm loglik`: the log-likelihood of one data set, loaded once, under many models.

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{Column, Table};
use gmm_host::{Likelihood, Work, memory};
use gmm_model::{CovarianceType, Dataset, Mixture, Noise, shown};
use ndarray::Array2;
use serde_json::{Value, json};

use crate::args::{EngineArgs, covariance};
use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::table_args::OneInputArgs;
use crate::{input, opening, render};

const EXAMPLES: &str = "\
Prints one line per model: log-likelihood, log-likelihood per row, number of rows, model. With -o, writes the first two \
at full precision to a table with one row per model. With --per-row, writes a column `log_density`, or one column per \
model.

FILE.npz holds B parameter sets: weights (B, K), means (B, K, d), and covariances of shape (B, K, d, d), (B, d, d), \
(B, K, d) or (B, K) for full, tied, diag or spherical. They are evaluated as one batch, after the models.

Examples:
  gmm loglik data.csv model.json other.json
  gmm loglik data.npy --batch draws.npz -o log_likelihoods.npy
  gmm loglik data.csv model.json --per-row -o log_densities.parquet";

/// Compute the log-likelihood of data under many models
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoglikArgs {
    #[command(flatten)]
    input: OneInputArgs,
    /// Model files: json or safetensors; - is standard input
    #[arg(value_name = "PARAMS")]
    models: Vec<PathBuf>,
    /// Many parameter sets: an npz file with weights, means and covariances
    #[arg(long, value_name = "FILE.npz")]
    batch: Option<PathBuf>,
    /// Covariance type of the batch, needed if the shape is ambiguous (tied and diag with K = d)
    #[arg(long, value_name = "KIND", value_parser = covariance(), requires = "batch")]
    covariance: Option<CovarianceType>,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Write the log density of each row, as csv to standard output or to -o
    #[arg(long)]
    per_row: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write a table to a csv, tsv, npy, parquet or arrow file
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Print one JSON object instead of the lines
    #[arg(long)]
    json: bool,
}

/// Mixtures, and their names in the output.
struct Sets {
    mixtures: Vec<Mixture>,
    /// Of each mixture, if it has some.
    noise: Vec<Option<Noise>>,
    names: Vec<String>,
}

pub(crate) fn run(args: &LoglikArgs, console: &Console) -> anyhow::Result<()> {
    check(args)?;
    let data = input::rows(args.input.source(), args.weights.as_deref(), console)?;
    let sets = sets(args, &data)?;
    let work = sets.mixtures.first().map_or(Work::default(), |mixture| {
        let (shape, precision) = (data.rows().dim(), data.rows().precision());
        let passes = sets.mixtures.len() as f64;
        Work::passes(shape, precision, mixture.covariance_type(), mixture.n_components(), passes)
    });
    let opened = opening::open(&args.engine, args.input.source().memory(), &work, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let mut likelihood = Likelihood::new(opened.engine.as_ref(), &data, precision)?;
    let values = if args.per_row {
        let (densities, values) = per_row(&mut likelihood, &sets, &data)?;
        write_densities(args.output.as_deref().unwrap_or(Path::new("-")), densities)?;
        values
    } else if sets.noise.iter().any(Option::is_some) {
        let mut column = vec![0.0; data.n_rows()];
        let of = |(mixture, noise)| log_densities(&mut likelihood, mixture, noise, &data, &mut column);
        sets.mixtures.iter().zip(&sets.noise).map(of).collect::<Result<_, _>>()?
    } else {
        likelihood.batch(&sets.mixtures)?
    };
    let total = likelihood.total_weight();
    if let Some(path) = args.output.as_deref().filter(|_| !args.per_row) {
        let rows =
            Array2::from_shape_fn((values.len(), 2), |(i, j)| if j == 0 { values[i] } else { values[i] / total });
        let names = ["log_likelihood", "mean_log_likelihood"].map(str::to_owned).to_vec();
        let _whole = output::hold(path);
        gmm_data::write_table(path, &Table::with_names(rows, names)?)?;
    }
    if to_stdout(args) {
        return Ok(());
    }
    if args.json {
        return Ok(output::print_json(&json!({
            "n_rows": data.n_rows(),
            "engine": opened.engine.name(),
            "precision": opened.engine.precision(precision).name(),
            "models": as_json(&sets.names, &values, total),
        }))?);
    }
    if args.output.is_none() || !console.quiet {
        output::print(&lines(&sets.names, &values, total, data.n_rows()))?;
    }
    Ok(())
}

/// Whether the table is written to standard output.
fn to_stdout(args: &LoglikArgs) -> bool {
    args.output.as_deref().map_or(args.per_row, is_stdio)
}

/// Checks the options before any file is read.
fn check(args: &LoglikArgs) -> anyhow::Result<()> {
    if args.models.is_empty() && args.batch.is_none() {
        let why = "no model given: give model files as PARAMS, or many parameter sets with --batch FILE.npz";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    if to_stdout(args) && args.json {
        let why = "--json and the table cannot both go to standard output: write the table to a file with -o";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    let rows = args.input.source().files()?;
    let inputs = || args.models.iter().chain(&rows).chain(&args.batch);
    if inputs().filter(|path| is_stdio(path)).count() > 1 {
        return Err(Failure::Usage("only one input can come from standard input".to_owned()).into());
    }
    if let Some(path) = &args.output {
        output::check_table_path(path)?;
        output::check_apart(path, &inputs().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Reads all parameter sets: the models, then the batch.
fn sets(args: &LoglikArgs, data: &Dataset) -> anyhow::Result<Sets> {
    let mut sets = Sets { mixtures: Vec::new(), noise: Vec::new(), names: Vec::new() };
    for path in &args.models {
        let model = input::model(path)?;
        input::check_columns(&model, data).map_err(|e| anyhow::Error::new(e).context(input::display(path)))?;
        sets.mixtures.push(model.mixture);
        sets.noise.push(model.noise);
        sets.names.push(input::display(path));
    }
    if let Some(path) = &args.batch {
        let batch = gmm_data::read_mixtures(path, args.covariance)?;
        let name = input::display(path);
        if let Some(first) = batch.first() {
            let (found, expected) = (data.n_features(), first.n_features());
            if found != expected {
                let error = gmm_host::Error::Features { found, expected };
                return Err(anyhow::Error::new(error).context(name));
            }
        }
        sets.names.extend((0..batch.len()).map(|i| format!("{name}[{i}]")));
        sets.noise.extend(batch.iter().map(|_| None));
        sets.mixtures.extend(batch);
    }
    Ok(sets)
}

/// Log densities, `(n, sets)`, and the total log-likelihood of each set.
fn per_row(likelihood: &mut Likelihood, sets: &Sets, data: &Dataset) -> anyhow::Result<(Array2<f64>, Vec<f64>)> {
    let shape = (likelihood.dim().0, sets.mixtures.len());
    memory::check("the log densities of all rows and sets", 8 * (shape.0 as u128 + 1) * (shape.1 as u128 + 1))?;
    let mut densities = Array2::zeros(shape);
    let mut column = vec![0.0; shape.0];
    let mut values = Vec::with_capacity(shape.1);
    for ((mixture, noise), mut out) in sets.mixtures.iter().zip(&sets.noise).zip(densities.columns_mut()) {
        values.push(log_densities(likelihood, mixture, noise, data, &mut column)?);
        out.assign(&ndarray::aview1(&column));
    }
    Ok((densities, values))
}

/// Log densities of a set, `(n,)`, and its log-likelihood.
fn log_densities(
    likelihood: &mut Likelihood,
    mixture: &Mixture,
    noise: &Option<Noise>,
    data: &Dataset,
    out: &mut [f64],
) -> Result<f64, gmm_host::Error> {
    let total = likelihood.per_row(mixture, out)?;
    let Some(noise) = noise else { return Ok(total) };
    noise.check(mixture.n_features())?;
    noise.add_to(out);
    // A row of weight 0 does not count, even if its log density is −∞.
    let weighed = out.iter().enumerate().filter(|(row, _)| data.weight(*row) > 0.0);
    Ok(weighed.map(|(row, density)| data.weight(row) * density).sum())
}

fn write_densities(path: &Path, densities: Array2<f64>) -> anyhow::Result<()> {
    let _whole = output::hold(path);
    if densities.ncols() == 1 {
        let column = densities.as_slice().expect("row-major");
        return Ok(gmm_data::write_column(path, "log_density", Column::Values(column))?);
    }
    let names = (0..densities.ncols()).map(|i| format!("log_density_{i}")).collect();
    Ok(gmm_data::write_table(path, &Table::with_names(densities, names)?)?)
}

/// A heading and one line per model; numbers are right-aligned.
fn lines(names: &[String], values: &[f64], total: f64, n_rows: usize) -> String {
    let heading = ["log-likelihood", "per row", "rows", "model"].map(str::to_owned);
    let line = |(name, &value): (&String, &f64)| {
        [render::fixed(value), render::short(value / total), n_rows.to_string(), shown(name).into_owned()]
    };
    let rows: Vec<[String; 4]> = [heading].into_iter().chain(names.iter().zip(values).map(line)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (a, b, c) = (width(0), width(1), width(2));
    rows.iter().map(|[value, mean, n, name]| format!("{value:>a$}  {mean:>b$}  {n:>c$}  {name}\n")).collect()
}

/// JSON has no infinities: a log-likelihood of −∞ is null.
fn as_json(names: &[String], values: &[f64], total: f64) -> Value {
    let each = |(name, value): (&String, &f64)| {
        let mean = value / total;
        json!({"model": name, "log_likelihood": value, "mean_log_likelihood": mean})
    };
    names.iter().zip(values).map(each).collect()
}
