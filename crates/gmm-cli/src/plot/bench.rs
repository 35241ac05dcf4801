//! `gmm plot bench`: a record of a benchmark.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use gmm_plot::{Record, Sweep, bench};

use super::OutputArgs;
use crate::input;
use crate::output::Console;

const EXAMPLES: &str = "\
A record of gmm bench is drawn as lines of engines and other programs over what grows, or, where several sizes do, as maps of \
times and ways; one of growth with the floor; any other as dots: each time with its spread, and what the record has beside it.

Examples:
  gmm plot bench benches/record/nvidia-h200/growth-2026-11-22.csv -o growth.svg
  gmm plot bench benches/record/amd-epyc-2c/2026-11-21-cpu-5.csv -o cpu.png";

/// Draw a record that gmm bench or cargo xtask bench wrote
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Record, a csv file; - is standard input
    record: PathBuf,
    /// What grows: n, k or d [default: all, side by side]
    #[arg(long, value_name = "n|k|d", value_parser = |text: &str| text.parse::<Sweep>())]
    sweep: Option<Sweep>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &BenchArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&[&args.record])?;
    let text = super::text(&args.record)?;
    let picture = Record::parse(&text).and_then(|record| bench(&record, args.sweep));
    args.output.write(&picture.with_context(|| input::display(&args.record))?, console)
}
