//! `gmm add`: adds sums of `gmm pass`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gmm_model::Statistics;

use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::{input, pass};

const EXAMPLES: &str = "\
The order of the files decides the rounding of the sums: the same order gives the same bits. gmm fit adds the sums of \
its files in the order in which they are named.

Examples:
  gmm add part-*.stats -o all.stats
  gmm add monday.stats tuesday.stats -o - | gmm maximise - --from model.json -o model.json";

/// Add the sums of several passes under one model (for Kaldi users: sum-accs)
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AddArgs {
    /// Files of gmm pass or gmm add, added in this order; - is standard input
    #[arg(required = true)]
    statistics: Vec<PathBuf>,
    /// Output file for the sums; - is standard output
    #[arg(short, long, value_name = "STATS")]
    output: PathBuf,
    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &AddArgs, console: &Console) -> anyhow::Result<()> {
    let inputs: Vec<&Path> = args.statistics.iter().map(PathBuf::as_path).collect();
    output::check_folder(&args.output)?;
    output::check_apart(&args.output, &inputs)?;
    if inputs.iter().filter(|path| is_stdio(path)).count() > 1 {
        return Err(Failure::Usage("standard input can be read only once".to_owned()).into());
    }
    output::check_json_apart(args.json, &args.output)?;
    let mut sum: Option<Statistics> = None;
    for path in inputs {
        let found = gmm_data::read_statistics(path)?;
        match &mut sum {
            None => sum = Some(found),
            // The error compares with the sum of the files before.
            Some(sum) => sum.add(&found).with_context(|| {
                format!("{} cannot be added to {}", input::display(path), input::display(&args.statistics[0]))
            })?,
        }
    }
    let sum = sum.expect("at least one file");
    output::write_statistics(&args.output, &sum)?;
    pass::summary(&sum, (args.json, is_stdio(&args.output)), console)
}
