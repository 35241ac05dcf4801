//! `gmm pass`: one E-step over rows, whose sums go to a file.

use std::path::PathBuf;

use clap::Args;
use gmm_data::ModelFile;
use gmm_model::{Precision, RowStorage, Statistics};
use serde_json::json;

use crate::args::EngineArgs;
use crate::output::{self, Console, is_stdio};
use crate::table_args::InputArgs;
use crate::{fit, input, render};

const EXAMPLES: &str = "\
For data in many files or on many machines: pass over each file, add the sums, and maximise.

Examples:
  gmm pass model.json part-0.npy -o part-0.stats
  gmm add part-*.stats -o all.stats
  gmm maximise all.stats --from model.json -o model.json

Repeated, these are the iterations of gmm fit part-*.npy, to the bit on a CPU with the same number of threads. The \
start comes from gmm fit --max-iter 0. Rows are rounded as in the fit that MODEL comes from. The weight of \
noise (gmm fit --noise) is estimated too, and its volume stays.";

/// Run one E-step over rows and write its sums to a file (for Kaldi users: acc-stats)
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PassArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Output file for the sums; - is standard output
    #[arg(short, long, value_name = "STATS")]
    output: PathBuf,
    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PassArgs, console: &Console) -> anyhow::Result<()> {
    check_output(args)?;
    let (model, data, opened) = input::model_rows_and_engine(
        (&args.model, args.input.source()),
        args.weights.as_deref(),
        &args.engine,
        console,
    )?;
    let storage = storage(&model, args.engine.precision(), data.rows().precision());
    let (engine, mixture) = (opened.engine.as_ref(), &model.mixture);
    let statistics = match &model.noise {
        None => gmm_host::pass(engine, mixture, &data, &storage),
        Some(noise) => gmm_host::pass_beside(engine, mixture, noise, &data, &storage),
    }
    .map_err(|error| fit::named(error, &data))?;
    output::write_statistics(&args.output, &statistics)?;
    summary(&statistics, (args.json, is_stdio(&args.output)), console)
}

fn check_output(args: &PassArgs) -> anyhow::Result<()> {
    output::check_folder(&args.output)?;
    output::check_apart(&args.output, &input::with_model(&args.input.source().files()?, &args.model))?;
    output::check_json_apart(args.json, &args.output)?;
    Ok(())
}

/// How the rows are stored: as in the fit that the model comes from, but in the precision `asked` for.
fn storage(model: &ModelFile, asked: Option<Precision>, of_data: Precision) -> RowStorage {
    match &model.storage {
        Some(known) => RowStorage { precision: asked.unwrap_or(known.precision), shift: known.shift.clone() },
        None => gmm_host::storage(&model.mixture, asked.unwrap_or(of_data)),
    }
}

/// Prints the totals of statistics, unless standard output has the statistics themselves.
pub(crate) fn summary(
    statistics: &Statistics,
    (as_json, to_stdout): (bool, bool),
    console: &Console,
) -> anyhow::Result<()> {
    let Statistics { log_likelihood, total_weight, n_rows, .. } = *statistics;
    let mean = statistics.mean_log_likelihood();
    if as_json {
        let object = json!({
            "log_likelihood": log_likelihood,
            "mean_log_likelihood": mean,
            "total_weight": total_weight,
            "n_rows": n_rows,
        });
        output::print_json(&object)?;
    } else if !console.quiet && !to_stdout {
        let (all, mean) = (render::fixed(log_likelihood), render::short(mean));
        output::print(&format!("log-likelihood  {all}\nper row         {mean}\nrows            {n_rows}\n"))?;
    }
    Ok(())
}
