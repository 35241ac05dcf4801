//! `gmm outliers`: the rows whose density under a model is below a threshold.

use std::path::PathBuf;

use clap::Args;
use gmm_data::{ModelFile, Table};
use gmm_host::{Engine, noise, threshold_of_region};
use gmm_model::OutlierThreshold;
use ndarray::Array2;
use serde_json::json;

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console, is_stdio};
use crate::table_args::InputArgs;

const EXAMPLES: &str = "\
Writes the columns outlier, 0 or 1, and log_density. A row is an outlier if its log density is below the threshold: that \
of --contamination or --level, or else the one in the model file.

Examples:
  gmm outliers model.json train.csv --contamination 0.01 --save model.json -o flagged.csv
  gmm outliers model.json new.csv                        with the threshold in the model file
  gmm outliers model.json new.csv --level 0.99           outside the region with 99 % of the model's probability
  gmm outliers model.json new.csv -o flagged.parquet --json | jq .n_outliers";

/// Flag the rows that are unlikely under a model
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OutliersArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Share of these rows that may be outliers, above 0 and at most 0.5: the threshold is that quantile of their log
    /// densities
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, conflicts_with = "level")]
    contamination: Option<f64>,
    /// Probability of the region of highest density under the model, at least 0.5 and below 1: the threshold is the log
    /// density at its border, whatever the rows
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    level: Option<f64>,
    /// Random seed of the draws from the model for --level
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    /// Column of row weights: a row of weight 2 counts twice for --contamination
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Write the model with the threshold to this file; it may be the model file itself
    #[arg(long, value_name = "MODEL")]
    save: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT", default_value = "-", hide_default_value = true)]
    output: PathBuf,
    /// Print one JSON object with the threshold and the number of outliers; needs -o
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &OutliersArgs, console: &Console) -> anyhow::Result<()> {
    check(args)?;
    let (mut model, data, opened) = input::model_rows_and_engine(
        (&args.model, args.input.source()),
        args.weights.as_deref(),
        &args.engine,
        console,
    )?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let engine = opened.engine.as_ref();
    if args.contamination.is_none() && args.level.is_none() && model.outliers.is_none() {
        return Err(no_threshold(args).into());
    }
    let (densities, _) = noise::log_densities(engine, &model.mixture, model.noise.as_ref(), &data, precision)?;
    let densities = densities.as_slice().expect("contiguous");
    let threshold = threshold(args, &model, engine, densities, data.weights())?;
    let outliers = densities.iter().filter(|v| threshold.is_outlier(**v)).count();
    let values = densities.iter().flat_map(|&v| [f64::from(u8::from(threshold.is_outlier(v))), v]).collect();
    let values = Array2::from_shape_vec((densities.len(), 2), values).expect("two of each row");
    let table = Table::with_names(values, vec!["outlier".to_owned(), "log_density".to_owned()])?;
    {
        let _whole = output::hold(&args.output);
        gmm_data::write_table(&args.output, &table)?;
    }
    if let Some(path) = &args.save {
        model.outliers = Some(threshold);
        output::write_model(path, &model)?;
    }
    console
        .note(|| format!("{outliers} of {} rows are below the log density {}", data.n_rows(), threshold.log_density));
    if args.json {
        let (n, threshold) = (data.n_rows(), serde_json::to_value(threshold)?);
        output::print_json(&json!({"n_rows": n, "n_outliers": outliers, "threshold": threshold}))?;
    }
    Ok(())
}

/// Checks the options before any file is read.
fn check(args: &OutliersArgs) -> anyhow::Result<()> {
    let usage = |why: &str| Err(Failure::Usage(why.to_owned()).into());
    if args.json && is_stdio(&args.output) {
        return usage("--json and the rows cannot both go to standard output: write the rows to a file with -o");
    }
    if args.save.is_some() && args.contamination.is_none() && args.level.is_none() {
        return usage("--save needs a new threshold: add --contamination or --level");
    }
    if args.weights.is_some() && args.contamination.is_none() {
        return usage("--weights has an effect with --contamination only");
    }
    for (option, value, is_valid, must) in [
        (
            "--contamination",
            args.contamination,
            (f64::MIN_POSITIVE..=0.5).contains(&args.contamination.unwrap_or(0.1)),
            "above 0 and at most 0.5",
        ),
        ("--level", args.level, (0.5..1.0).contains(&args.level.unwrap_or(0.9)), "at least 0.5 and below 1"),
    ] {
        if let (Some(value), false) = (value, is_valid) {
            return usage(&format!("{option} is {value}: it must be {must}"));
        }
    }
    output::check_table_path(&args.output)?;
    let files = args.input.source().files()?;
    output::check_apart(&args.output, &input::with_model(&files, &args.model))?;
    if let Some(path) = &args.save {
        output::check_model_path(path)?;
        output::check_apart(path, &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        if output::is_same(path, &args.output) {
            return usage("--save and -o name the same file");
        }
    }
    Ok(())
}

fn no_threshold(args: &OutliersArgs) -> Failure {
    Failure::Usage(format!(
        "{} has no threshold: give --contamination SHARE or --level P, and --save MODEL to keep it",
        input::display(&args.model)
    ))
}

/// The threshold that the options ask for, or that of the model.
fn threshold(
    args: &OutliersArgs,
    model: &ModelFile,
    engine: &dyn Engine,
    densities: &[f64],
    weights: Option<&[f64]>,
) -> anyhow::Result<OutlierThreshold> {
    match (args.contamination, args.level, model.outliers) {
        (Some(contamination), _, _) => Ok(OutlierThreshold::of_rows(densities, weights, contamination)?),
        (None, Some(level), _) => {
            Ok(threshold_of_region(engine, &model.mixture, model.noise.as_ref(), level, args.seed)?)
        }
        (None, None, Some(stored)) => Ok(stored),
        (None, None, None) => Err(no_threshold(args).into()),
    }
}
