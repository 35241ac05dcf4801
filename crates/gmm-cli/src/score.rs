//! `gmm score`: the log-likelihood of rows under a model.

mod by;

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{Column, ModelFile};
use gmm_host::adapt::{RatioOptions, Speakers, Trial, Utterances, log_likelihood_ratios};
use gmm_host::{Engine, Evaluation, Work, noise, predictive_log_densities};
use gmm_model::Dataset;
use ndarray::Array1;
use serde_json::{Value, json};

use crate::args::{self, EngineArgs};
use crate::measured::MeasuredArgs;
use crate::missing::{Missing, MissingArgs};
use crate::output::{self, Console, is_stdio};
use crate::table_args::InputArgs;
use crate::utterances::{self, ByValue};
use crate::{input, opening, render};

const EXAMPLES: &str = "\
Prints the log-likelihood, in total and per row; with --per-row, writes one column `log_density`.
Of a model by variational Bayes (gmm fit --bayes) these are posterior predictive densities, computed on the CPU.

Examples:
  gmm score model.json new.csv
  gmm score model.json new.csv --json | jq .mean_log_likelihood
  gmm score model.json new.csv --per-row -o log_densities.npy
  gmm score speaker.json new.csv --background ubm.json --top 5    mean log-likelihood ratio
  gmm score models.json new.csv --by store                        by the models of gmm fit --by store";

/// Compute the log-likelihood of data under a model
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScoreArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Write the log density of each row, as csv to standard output or to -o
    #[arg(long)]
    per_row: bool,
    /// Print the mean log-likelihood ratio to this background model, of which MODEL is an adaptation: a line for each input
    /// file
    #[arg(long, value_name = "UBM", conflicts_with = "per_row")]
    background: Option<PathBuf>,
    /// Column of numbers or text, the group of each row: MODEL holds the models of groups (gmm fit --by). With
    /// --background, a column of numbers: a ratio for the rows of each value in place of each file
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// Components of each row in the ratio: those of largest density under the background; all if a model has noise
    #[arg(
        long,
        value_name = "C",
        default_value_t = 5,
        value_parser = args::at_least_one,
        allow_negative_numbers = true,
        requires = "background"
    )]
    top: usize,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    missing: MissingArgs,
    #[command(flatten)]
    measured: MeasuredArgs,
    /// Output file of --per-row: csv, tsv, npy, parquet or arrow
    #[arg(short, long, value_name = "OUT", requires = "per_row")]
    output: Option<PathBuf>,
    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ScoreArgs, console: &Console) -> anyhow::Result<()> {
    if let Some(background) = &args.background {
        args.measured.refuse("--background")?;
        if args.missing.missing != Missing::Error {
            let why = "--missing is not for --background: the ratio needs complete rows";
            return Err(crate::exit::Failure::Usage(why.to_owned()).into());
        }
        return ratios(args, background, console);
    }
    let to_stdout = args.per_row && args.output.as_deref().is_none_or(is_stdio);
    if to_stdout && args.json {
        let why = "--json and --per-row cannot both write to standard output: write --per-row to a file with -o";
        return Err(crate::exit::Failure::Usage(why.to_owned()).into());
    }
    if let Some(path) = &args.output {
        output::check_table_path(path)?;
        output::check_apart(path, &input::with_model(&args.input.source().files()?, &args.model))?;
    }
    if args.per_row {
        args.missing.missing.refuse_drop("the log densities")?;
    }
    if let Some(column) = &args.by {
        args.missing.missing.refuse_drop("the groups")?;
        args.measured.refuse("gmm score --by")?;
        return by::run(args, column, to_stdout, console);
    }
    let (model, data, opened) = input::model_rows_and_engine(
        (&args.model, args.input.source().with_missing(args.missing.missing).with_measured(&args.measured)),
        args.weights.as_deref(),
        &args.engine,
        console,
    )?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let engine = opened.engine.as_ref();
    let totals = if args.per_row || model.posterior.is_some() {
        let (densities, totals) = match &model.posterior {
            Some(posterior) => {
                if data.has_missing() {
                    return Err(gmm_host::Error::Missing { what: "a posterior predictive density" }.into());
                }
                gmm_host::Data::from(&data).refuse_indirect("a posterior predictive density")?;
                let densities = predictive_log_densities(posterior, &data, args.engine.threads)?;
                let totals = totals(&densities, &data);
                (densities, totals)
            }
            None => noise::log_densities(engine, &model.mixture, model.noise.as_ref(), &data, precision)?,
        };
        if !args.per_row {
            return report(args, &totals, &data, console);
        }
        let densities = densities.as_slice().expect("contiguous");
        let path = args.output.clone().unwrap_or_else(|| "-".into());
        let _whole = output::hold(&path);
        gmm_data::write_column(path, "log_density", Column::Values(densities))?;
        totals
    } else {
        noise::score(engine, &model.mixture, model.noise.as_ref(), &data, precision)?
    };
    if to_stdout {
        return Ok(());
    }
    report(args, &totals, &data, console)
}

/// The totals of log densities, without the entropy.
fn totals(densities: &Array1<f64>, data: &Dataset) -> Evaluation {
    let mut totals = Evaluation { log_likelihood: 0.0, entropy: f64::NAN, total_weight: 0.0 };
    for (row, density) in densities.iter().enumerate() {
        let weight = data.weights().map_or(1.0, |weights| weights[row]);
        // A row of weight 0 does not count, even if its log density is −∞.
        if weight > 0.0 {
            totals.log_likelihood += weight * density;
        }
        totals.total_weight += weight;
    }
    totals
}

/// Prints the totals.
fn report(args: &ScoreArgs, totals: &Evaluation, data: &Dataset, console: &Console) -> anyhow::Result<()> {
    if args.json {
        return Ok(output::print_json(&as_json(totals, data.n_rows()))?);
    }
    if args.output.is_none() || !console.quiet {
        output::print(&format!(
            "log-likelihood  {}\nper row         {}\nrows            {}\n",
            render::fixed(totals.log_likelihood),
            render::short(totals.log_likelihood / totals.total_weight),
            data.n_rows()
        ))?;
    }
    Ok(())
}

/// The ratio of each input file.
fn ratios(args: &ScoreArgs, background: &Path, console: &Console) -> anyhow::Result<()> {
    let source = args.input.source();
    let background = input::model_beside(background, source)?;
    let model = input::model_beside(&args.model, source)?;
    let (data, values) = input::rows_of(&model, source, (args.weights.as_deref(), args.by.as_deref()), console)?;
    let ByValue { data, values, rows: parts } = match (&args.by, values) {
        (Some(column), Some(values)) => utterances::by_value(data, &values, column)?,
        _ => ByValue { values: Vec::new(), rows: data.parts().collect(), data },
    };
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let utterances = Utterances { precision, ..Utterances::new(&data, &parts) };
    let trials: Vec<Trial> = (0..parts.len()).map(|utterance| Trial { speaker: 0, utterance }).collect();
    let (mixture, shape) = (&background.mixture, data.rows().dim());
    let work = Work::passes(shape, precision, mixture.covariance_type(), mixture.n_components(), 1.0);
    let opened = opening::open(&args.engine, source.memory(), &work, console)?;
    let (engine, options) = (opened.engine.as_ref(), RatioOptions { top: args.top });
    let speaker = Speakers::Mixtures(std::slice::from_ref(&model.mixture));
    let found = if background.noise.is_some() || model.noise.is_some() {
        ratios_beside_noise(engine, (&background, &model), &utterances)?
    } else {
        log_likelihood_ratios(engine, &background.mixture, &speaker, &utterances, &trials, &options)?
    };
    if args.json {
        let of = |(i, (v, rows)): (usize, (&f64, &Range<usize>))| match values.get(i) {
            Some(value) => json!({"value": value, "ratio": v, "n_rows": rows.len()}),
            None => json!({"ratio": v, "n_rows": rows.len()}),
        };
        let ratios: Vec<Value> = found.iter().zip(&parts).enumerate().map(of).collect();
        return Ok(output::print_json(&json!({"log_likelihood_ratios": ratios, "top": args.top}))?);
    }
    // Files without rows have no part; lines are then without names.
    let files = source.files()?;
    let named = files.len() == parts.len() && parts.len() > 1;
    let line = |(i, v): (usize, &f64)| match values.get(i) {
        Some(value) => format!("{}  {value}\n", render::short(*v)),
        None if named => format!("{}  {}\n", render::short(*v), gmm_model::shown(&input::display(&files[i]))),
        None => format!("{}\n", render::short(*v)),
    };
    Ok(output::print(&found.iter().enumerate().map(line).collect::<String>())?)
}

/// The ratio of each utterance, with all components and the noise of both models.
fn ratios_beside_noise(
    engine: &dyn Engine,
    (background, model): (&ModelFile, &ModelFile),
    utterances: &Utterances<'_>,
) -> anyhow::Result<Vec<f64>> {
    let Utterances { data, rows, precision } = *utterances;
    let of = |file: &ModelFile| noise::log_densities(engine, &file.mixture, file.noise.as_ref(), data, precision);
    let (under_model, under_background) = (of(model)?.0, of(background)?.0);
    let mean = |rows: &Range<usize>| {
        let weighed = || rows.clone().filter(|&row| data.weight(row) > 0.0);
        let total: f64 = weighed().map(|row| data.weight(row)).sum();
        weighed().map(|row| data.weight(row) * (under_model[row] - under_background[row])).sum::<f64>() / total
    };
    Ok(rows.iter().map(mean).collect())
}

/// JSON has no infinities: a log-likelihood of −∞ is null.
fn as_json(totals: &Evaluation, n_rows: usize) -> Value {
    json!({
        "log_likelihood": totals.log_likelihood,
        "mean_log_likelihood": totals.log_likelihood / totals.total_weight,
        "n_rows": n_rows,
    })
}
