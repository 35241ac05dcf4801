//! `gmm plot bench`: plots the record of a benchmark, or several records as bars.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gmm_plot::{Only, Record, Sweep, bars, bench};

use super::OutputArgs;
use crate::exit::Failure;
use crate::input;
use crate::output::Console;

const EXAMPLES: &str = "\
A record of gmm bench is drawn as one line per engine or program over the size that varies. If several sizes vary, it \
is drawn as maps of the times and of the EM paths. A record of growth also shows the hardware limit. Any other record is \
drawn as dots: each time with its spread and the other entries of its row.

--bars draws programs side by side instead, a panel for each record: how many times as long as gmm-rs they take for the same \
work. Records must have a peer's time beside ours (column peer_ms) or a line for each program (columns what and way). Of \
several lines of gmm_rs for the same work the one counts whose arrays are those of the first other program, else the fastest.

Examples:
  gmm plot bench benches/record/nvidia-h200/growth-2026-11-22.csv -o growth.svg
  gmm plot bench benches/record/amd-epyc-2c/2026-11-21-cpu-5.csv -o cpu.png
  gmm plot bench benches/record/amd-epyc-2c/2026-11-21-cpu-5.csv benches/record/nvidia-h200/2026-11-23-python-peers.csv \
--bars --only covariance=full --only 1:precision=f64 --only 2:precision=f32 --only way=torch,jax -o speed.svg";

/// Plot a record written by gmm bench or cargo xtask bench
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Record: a csv file; - is standard input; several with --bars
    #[arg(value_name = "RECORD", required = true)]
    records: Vec<PathBuf>,
    /// Size on the horizontal axis: n, k or d [default: all, side by side]
    #[arg(long, value_name = "n|k|d", value_parser = |text: &str| text.parse::<Sweep>())]
    sweep: Option<Sweep>,
    /// Draw how many times as long as gmm-rs other programs take, as bars
    #[arg(long, conflicts_with = "sweep")]
    bars: bool,
    /// Draw only lines whose COLUMN has one of the values; a record without COLUMN keeps all; 2:COLUMN=.. is for the second
    /// record alone; may be repeated
    #[arg(long, value_name = "COLUMN=VALUE[,VALUE]", requires = "bars", value_parser = |text: &str| text.parse::<Only>())]
    only: Vec<Only>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &BenchArgs, console: &Console) -> anyhow::Result<()> {
    let paths: Vec<&Path> = args.records.iter().map(PathBuf::as_path).collect();
    if paths.len() > 1 && !args.bars {
        return Err(Failure::Usage("several records need --bars".to_owned()).into());
    }
    args.output.check(&paths)?;
    let record = |path: &&Path| Record::parse(&super::text(path)?).with_context(|| input::display(path));
    let records = paths.iter().map(record).collect::<anyhow::Result<Vec<_>>>()?;
    let picture = if args.bars { bars(&records, &args.only) } else { bench(&records[0], args.sweep) };
    let names = || paths.iter().map(|path| input::display(path)).collect::<Vec<_>>().join(", ");
    args.output.write(&picture.with_context(names)?, console)
}
