//! `gmm sample`: rows drawn from a model.

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{TableHead, write_table_chunks};
use gmm_host::sample_rows;
use gmm_model::{Matrix, Mixture, Precision};
use ndarray::Array2;

use crate::interrupt::Hold;
use crate::output::{self, Console};
use crate::{args, input, progress};

const EXAMPLES: &str = "\
Row i depends on the model, the seed and i alone: a longer sample begins with the shorter one, and any number of \
threads draws the same. Rows are written as they are drawn, so that -n may be far beyond memory.

Examples:
  gmm sample model.json -n 1000 > rows.csv
  gmm sample model.json -n 1e6 --seed 7 -o rows.parquet";

/// Draw rows from a model
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SampleArgs {
    /// Model: json or safetensors; - is standard input
    model: PathBuf,
    /// Number of rows
    #[arg(short, value_name = "N", value_parser = args::at_least_one, allow_negative_numbers = true)]
    n: usize,
    /// Seed of the draws
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

pub(crate) fn run(args: &SampleArgs, console: &Console) -> anyhow::Result<()> {
    output::check_table_path(&args.output)?;
    output::check_apart(&args.output, &[&args.model])?;
    let model = input::model(&args.model)?;
    write(&model.mixture, args.n, args.seed, model.feature_names, &args.output, console)?;
    console.note(|| format!("drew {} rows", args.n));
    Ok(())
}

/// Draws rows and writes them piece by piece: memory does not grow with `n`. A signal ends it at once, until the last piece
/// is drawn, and leaves no file; what is returned holds signals back, so that what belongs to the rows can follow them.
///
/// # Errors
/// From the file, also where the disk has no room for the rows.
pub(crate) fn write(
    mixture: &Mixture,
    n: usize,
    seed: u64,
    names: Option<Vec<String>>,
    path: &Path,
    console: &Console,
) -> anyhow::Result<Option<Hold>> {
    let head = TableHead { n, d: mixture.n_features(), precision: Precision::F64, names };
    let progress = progress::Rows::new(console, n);
    let mut last = None;
    write_table_chunks(path, &head, |first, rows| -> anyhow::Result<Matrix> {
        let mut values = Array2::zeros((rows, head.d));
        let slots = values.as_slice_mut().expect("row-major");
        sample_rows(mixture, seed, first as u64..(first + rows) as u64, slots)?;
        if first + rows == n {
            last = output::hold(path);
        }
        progress.at(first + rows);
        Ok(values.into())
    })?;
    progress.finish();
    Ok(last)
}
