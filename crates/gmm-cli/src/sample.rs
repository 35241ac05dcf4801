//! `gmm sample`: draws rows from a model.

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{TableHead, write_table_chunks};
use gmm_host::noise::sample_rows;
use gmm_model::{Matrix, Mixture, Noise, Precision};
use ndarray::Array2;

use crate::interrupt::Hold;
use crate::output::{self, Console};
use crate::{args, input, progress};

const EXAMPLES: &str = "\
Row i depends only on the model, the seed and i: a longer sample starts with the rows of a shorter one, and the number \
of threads does not matter. Rows are written as they are drawn, so -n may exceed the available memory.

Examples:
  gmm sample model.json -n 1000 > rows.csv
  gmm sample model.json -n 1e6 --seed 7 -o rows.parquet";

/// Draw rows from a model
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SampleArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    /// Number of rows
    #[arg(short, value_name = "N", value_parser = args::at_least_one, allow_negative_numbers = true)]
    n: usize,
    /// Random seed
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
    if let Some(noise) = model.noise.as_ref().filter(|noise| noise.region.is_none()) {
        // Before the file is begun.
        noise.overwrite(0, 0, 0, &mut [], &mut [])?;
    }
    write((&model.mixture, model.noise.as_ref()), args.n, args.seed, model.feature_names, &args.output, console)?;
    console.note(|| format!("drew {} rows", args.n));
    Ok(())
}

/// Draws rows and writes them in chunks, so that memory does not grow with `n`. Until the last chunk is drawn, a signal
/// ends the program at once and leaves no file. The returned guard defers signals, so that the caller can write a file
/// that belongs to the rows.
///
/// # Errors
/// Errors if the file cannot be written, also if the disk has too little space for the rows.
pub(crate) fn write(
    (mixture, noise): (&Mixture, Option<&Noise>),
    n: usize,
    seed: u64,
    names: Option<Vec<String>>,
    path: &Path,
    console: &Console,
) -> anyhow::Result<Option<Hold>> {
    let head = TableHead { n, d: mixture.n_features(), precision: Precision::F64, names };
    let progress = progress::Count::new(console, n, "rows");
    let mut last = None;
    write_table_chunks(path, &head, |first, rows| -> anyhow::Result<Matrix> {
        let mut values = Array2::zeros((rows, head.d));
        let slots = values.as_slice_mut().expect("row-major");
        sample_rows(mixture, noise, seed, first as u64..(first + rows) as u64, slots)?;
        if first + rows == n {
            last = output::hold(path);
        }
        progress.at(first + rows);
        Ok(values.into())
    })?;
    progress.finish();
    Ok(last)
}
