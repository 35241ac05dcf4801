//! `gmm predict`: the most likely component of each row, or its responsibilities.

use std::path::PathBuf;

use clap::Args;
use gmm_data::{Column, Table};
use gmm_host::evaluate;

use crate::args::{EngineArgs, InputArgs};
use crate::input;
use crate::output::{self, Console};

const EXAMPLES: &str = "\
Writes one column `label`, or with --proba the columns proba_0, proba_1, .., which sum to 1 in each row.

Examples:
  gmm predict model.json new.csv                     one label per row on standard output
  gmm predict model.json new.npy -o labels.npy
  gmm predict model.json new.csv --proba -o responsibilities.parquet";

/// Predict the component of each row
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Write the probabilities (responsibilities) of all components instead of labels
    #[arg(long)]
    proba: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

pub(crate) fn run(args: &PredictArgs, console: &Console) -> anyhow::Result<()> {
    output::check_table_path(&args.output)?;
    output::check_apart(&args.output, &[&args.input.input, &args.model])?;
    let (model, data, opened) = input::model_rows_and_engine((&args.model, &args.input), None, &args.engine, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let engine = opened.engine.as_ref();
    if args.proba {
        let responsibilities = evaluate::responsibilities(engine, &model.mixture, &data, precision)?;
        let names = (0..model.mixture.n_components()).map(|c| format!("proba_{c}")).collect();
        let table = Table::with_names(responsibilities, names)?;
        let _whole = output::hold(&args.output);
        gmm_data::write_table(&args.output, &table)?;
    } else {
        let labels = evaluate::labels(engine, &model.mixture, &data, precision)?;
        let labels = labels.as_slice().expect("contiguous");
        let _whole = output::hold(&args.output);
        gmm_data::write_column(&args.output, "label", Column::Labels(labels))?;
    }
    console.note(|| format!("wrote {} rows", data.n_rows()));
    Ok(())
}
