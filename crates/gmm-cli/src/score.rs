//! `gmm score`: the log-likelihood of rows under a model.

use std::path::PathBuf;

use clap::Args;
use gmm_data::Column;
use gmm_host::{Evaluation, evaluate};
use serde_json::{Value, json};

use crate::args::{EngineArgs, InputArgs};
use crate::output::{self, Console, is_stdio};
use crate::{input, render};

const EXAMPLES: &str = "\
Prints the log-likelihood, in total and per row; with --per-row, writes one column `log_density`.

Examples:
  gmm score model.json new.csv
  gmm score model.json new.csv --json | jq .mean_log_likelihood
  gmm score model.json new.csv --per-row -o log_densities.npy";

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
    #[command(flatten)]
    engine: EngineArgs,
    /// Output file of --per-row: csv, tsv, npy, parquet or arrow
    #[arg(short, long, value_name = "OUT", requires = "per_row")]
    output: Option<PathBuf>,
    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ScoreArgs, console: &Console) -> anyhow::Result<()> {
    let to_stdout = args.per_row && args.output.as_deref().is_none_or(is_stdio);
    if to_stdout && args.json {
        let why = "--json and --per-row cannot both write to standard output: write --per-row to a file with -o";
        return Err(crate::exit::Failure::Usage(why.to_owned()).into());
    }
    if let Some(path) = &args.output {
        output::check_table_path(path)?;
        output::check_apart(path, &input::with_model(&args.input.source().files()?, &args.model))?;
    }
    let (model, data, opened) = input::model_rows_and_engine(
        (&args.model, args.input.source()),
        args.weights.as_deref(),
        &args.engine,
        console,
    )?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let engine = opened.engine.as_ref();
    let totals = if args.per_row {
        let (densities, totals) = evaluate::log_densities(engine, &model.mixture, &data, precision)?;
        let densities = densities.as_slice().expect("contiguous");
        let path = args.output.clone().unwrap_or_else(|| "-".into());
        let _whole = output::hold(&path);
        gmm_data::write_column(path, "log_density", Column::Values(densities))?;
        totals
    } else {
        evaluate::score(engine, &model.mixture, &data, precision)?
    };
    if to_stdout {
        return Ok(());
    }
    if args.json {
        return Ok(output::print_json(&as_json(&totals, data.n_rows()))?);
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

/// JSON has no infinities: a log-likelihood of −∞ is null.
fn as_json(totals: &Evaluation, n_rows: usize) -> Value {
    json!({
        "log_likelihood": totals.log_likelihood,
        "mean_log_likelihood": totals.log_likelihood / totals.total_weight,
        "n_rows": n_rows,
    })
}
