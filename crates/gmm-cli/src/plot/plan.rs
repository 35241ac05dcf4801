//! `gmm plot plan`: plots the EM path that would run on a GPU, over columns and components.

use clap::Args;
use gmm_host::{CudaEngine, Engine, loop_candidates};
use gmm_model::{CovarianceType, Precision};
use gmm_plot::{Map, plan};

use super::OutputArgs;
use crate::args;
use crate::exit::Failure;
use crate::output::Console;
use crate::select::components;

const EXAMPLES: &str = "\
Examples:
  gmm plot plan -o paths.svg
  gmm plot plan --covariance diag --precision f64 -n 1e7 -o paths.png
  gmm plot plan -d 1..40 -k 1..40 --here -o paths.svg       # this machine's first GPU";

/// Plot which kernels EM would use on a GPU, as a map over columns and components; needs no GPU
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// Covariance type
    #[arg(long, value_name = "KIND", default_value = "full", value_parser = args::covariance())]
    covariance: CovarianceType,
    /// Precision of the rows
    #[arg(long, value_name = "f32|f64", default_value = "f32", value_parser = args::words::<Precision>(&["f32", "f64"]))]
    precision: Precision,
    /// Number of rows
    #[arg(short, value_name = "N", default_value = "1000000", value_parser = args::at_least_one, allow_negative_numbers = true)]
    n: usize,
    /// Numbers of components: a range (1..40), a list (2,4,8), or a mix of both
    #[arg(
        short,
        value_name = "K..K",
        default_value = "1,2,3,4,6,8,12,16,17,24,32,48,64,96,128,192,256,384,512,1024",
        allow_hyphen_values = true
    )]
    k: String,
    /// Numbers of columns, in the same form
    #[arg(
        short,
        value_name = "D..D",
        default_value = "1,2,3,4,6,8,12,16,24,32,48,64,96,128,192,256,384,512",
        allow_hyphen_values = true
    )]
    d: String,
    /// Plan for this machine's first GPU instead of an NVIDIA H200
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Maximum number of sizes along an axis: more do not fit on a page.
const MOST: usize = 64;

/// Descriptions of the EM paths, in the order of their start-up cost.
const LEGEND: [(&str, &str); 6] = [
    ("fused", "one kernel per pass, all sums in registers"),
    ("small-d", "one kernel per pass, components divided among warps"),
    ("chunked-split-fp16", "two kernels per chunk of rows, split-fp16 products"),
    ("wgmma-split-fp16", "three kernels per chunk of rows, split-fp16 by warpgroups"),
    ("chunked-f64", "two kernels per chunk of rows, products on f64 tensor cores"),
    ("host", "one pass at a time, M-step on the host"),
];

pub(crate) fn run(args: &PlanArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&[])?;
    let (ks, ds) = (sizes("-k", &args.k)?, sizes("-d", &args.d)?);
    let gpu = if args.here { Some(CudaEngine::new(0)?) } else { None };
    let mut ways = Vec::with_capacity(ks.len() * ds.len());
    for k in &ks {
        for d in &ds {
            let candidates = loop_candidates(gpu.as_ref(), args.covariance, args.precision, (args.n, *d, *k), false)?;
            let runs = candidates.iter().find(|candidate| candidate.runs);
            ways.push(runs.map_or("none", |candidate| candidate.name).to_owned());
        }
    }
    let legend = LEGEND.map(|(name, what)| (name.to_owned(), what.to_owned()));
    let device = gpu.map_or_else(|| "as on an NVIDIA H200".to_owned(), |gpu| format!("on {}", gpu.description()));
    // A path forced by GMM_PLAN is not the planner's choice, so the caption names it.
    let forced = std::env::var("GMM_PLAN").map(|forced| format!("; GMM_PLAN={forced}")).unwrap_or_default();
    let map = Map {
        columns: &ds,
        components: &ks,
        ways: &ways,
        legend: &legend,
        title: format!("How EM runs: {} covariances, {}, {} rows", args.covariance, args.precision, args.n),
        note: format!("{device}{forced}"),
    };
    args.output.write(&plan(&map)?, console)
}

fn sizes(option: &str, text: &str) -> Result<Vec<usize>, Failure> {
    let mut sizes = components(text).map_err(|why| Failure::Usage(format!("{option} {text}: {why}")))?;
    sizes.sort_unstable();
    if sizes.len() > MOST {
        return Err(Failure::Usage(format!(
            "{option} {text}: {} sizes do not fit on a plot: give at most {MOST}",
            sizes.len()
        )));
    }
    Ok(sizes)
}
