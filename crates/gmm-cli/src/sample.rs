//! `gmm sample`: rows drawn from a model.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::Table;
use gmm_model::{Mixture, sample, sample_range};
use ndarray::Array2;

use crate::output::{self, Console, is_stdio};
use crate::{args, input, interrupt};

const EXAMPLES: &str = "\
Row i depends on the model, the seed and i alone: a longer sample begins with the shorter one.

Examples:
  gmm sample model.json -n 1000 > rows.csv
  gmm sample model.json -n 1e6 --seed 7 -o rows.parquet";

/// Numbers drawn at a time where they are printed, a row at least: memory does not grow with -n.
const CHUNK: usize = 1 << 18;

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
    write(&model.mixture, args.n, args.seed, model.feature_names, &args.output)?;
    console.note(|| format!("drew {} rows", args.n));
    Ok(())
}

/// Draws rows and writes them; on standard output chunk by chunk.
///
/// # Errors
/// Where the rows do not fit in memory (files), or from the file.
pub(crate) fn write(
    mixture: &Mixture,
    n: usize,
    seed: u64,
    names: Option<Vec<String>>,
    path: &Path,
) -> anyhow::Result<()> {
    if is_stdio(path) {
        return print(mixture, n, seed, names);
    }
    let d = mixture.n_features() as u128;
    // The rows, and the component of each.
    gmm_host::memory::check("the sample", n as u128 * 8 * (d + 1))?;
    let (rows, _) = sample(mixture, n, seed)?;
    let table = Table { matrix: rows.into(), names };
    let _whole = interrupt::hold();
    Ok(gmm_data::write_table(path, &table)?)
}

fn print(mixture: &Mixture, n: usize, seed: u64, names: Option<Vec<String>>) -> anyhow::Result<()> {
    let d = mixture.n_features();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut names = names;
    let mut first = 0;
    while first < n {
        let len = (CHUNK / d).max(1).min(n - first);
        let (mut rows, mut labels) = (vec![0.0; len * d], vec![0; len]);
        sample_range(mixture, seed, first as u64..(first + len) as u64, &mut rows, &mut labels)?;
        let matrix = Array2::from_shape_vec((len, d), rows)?;
        // The header comes once.
        let table = Table { matrix: matrix.into(), names: names.take() };
        gmm_data::write_csv(&mut out, &table).map_err(output::on_stdout)?;
        first += len;
    }
    Ok(out.flush().map_err(output::on_stdout)?)
}
