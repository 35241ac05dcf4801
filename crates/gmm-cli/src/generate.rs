//! `gmm generate`: synthetic rows from a random mixture.

use std::path::PathBuf;

use clap::Args;
use gmm_data::ModelFile;
use gmm_data::atomic::Staged;
use gmm_model::{CovarianceType, SyntheticOptions, synthetic};

use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::{args, sample};

const EXAMPLES: &str = "\
Weights are drawn from a Dirichlet distribution, covariances from a Wishart distribution (so that columns are \
correlated); means are at least --separation apart. The same options give bit-identical rows on every machine, with any \
number of threads. Rows are written as they are drawn, so -n may exceed the available memory.

Examples:
  gmm generate -n 10000 -k 5 -d 3 -o rows.npy --truth truth.json
  gmm generate -n 1e6 -k 16 -d 13 --covariance diag --separation 1 --seed 3 -o rows.parquet
  gmm generate -n 1e8 -k 16 -d 16 -o rows.npy --truth truth.json";

/// Generate synthetic rows from a random mixture
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GenerateArgs {
    /// Number of rows
    #[arg(short, value_name = "N", value_parser = args::at_least_one, allow_negative_numbers = true)]
    n: usize,
    /// Number of components
    #[arg(short, value_name = "K", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: usize,
    /// Number of columns
    #[arg(short, value_name = "D", value_parser = args::at_least_one, allow_negative_numbers = true)]
    d: usize,
    /// Covariance type
    #[arg(long, value_name = "KIND", default_value = "full", value_parser = args::covariance())]
    covariance: CovarianceType,
    /// Minimum distance between means, in units of the largest component's size: components overlap at 1, hardly at 3
    #[arg(long, value_name = "C", default_value_t = 2.0, allow_hyphen_values = true)]
    separation: f64,
    /// Random seed of the mixture and the rows
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    /// Write the rows to a csv, tsv, npy, parquet or arrow file; - is csv on standard output
    #[arg(short, long, value_name = "OUT", required = true)]
    output: PathBuf,
    /// Write the true mixture to a .json or .safetensors file
    #[arg(long, value_name = "MODEL")]
    truth: Option<PathBuf>,
}

pub(crate) fn run(args: &GenerateArgs, console: &Console) -> anyhow::Result<()> {
    output::check_table_path(&args.output)?;
    if let Some(path) = &args.truth {
        output::check_model_path(path)?;
        if is_stdio(path) && is_stdio(&args.output) {
            let why = "rows and truth cannot both go to standard output";
            return Err(Failure::Usage(why.to_owned()).into());
        }
    }
    let (k, d) = (args.k as u128, args.d as u128);
    // Both are at most 9e15, so a product of two does not overflow a u128.
    let second = match args.covariance {
        CovarianceType::Full => (k * d).saturating_mul(d),
        CovarianceType::Tied => d * d,
        CovarianceType::Diag => k * d,
        CovarianceType::Spherical => k,
    };
    gmm_host::memory::check("a mixture of this size", second.saturating_add(k * d).saturating_mul(8 * 3))?;
    let options = SyntheticOptions { separation: args.separation, ..SyntheticOptions::default() };
    let mixture = synthetic(args.k, args.d, args.covariance, args.seed, &options)?;
    let names: Vec<String> = (0..args.d).map(|j| format!("x{j}")).collect();
    // Rows and truth belong together: both files appear or neither. The truth is written to a temporary file first and
    // renamed after the rows have been renamed; once the last row is drawn, signals are deferred until both exist.
    let model = ModelFile { feature_names: Some(names.clone()), ..ModelFile::from(mixture) };
    let truth = args.truth.as_deref().map(|path| output::stage_model(path, &model)).transpose()?.flatten();
    let _both = sample::write((&model.mixture, None), args.n, args.seed, Some(names), &args.output, console)?;
    truth.map_or(Ok(()), Staged::publish)?;
    console.note(|| format!("drew {} rows of {} columns from {} components", args.n, args.d, args.k));
    Ok(())
}
