//! `gmm doctor`: reports the hardware of this machine and the engines that can use it.

use std::fmt::Write;
use std::fs;

use clap::Args;
use gmm_host::{CudaEngine, Device, Engine, FitOptions, Opened, Work, cuda_report, estimates, loop_candidates, memory};
use gmm_model::{CovarianceType, Precision};

use crate::args;
use crate::output::{self, Console, paint};

const EXAMPLES: &str = "\
Examples:
  gmm doctor
  gmm doctor --plan -k 8 -d 13 -n 1e6          # how EM would run on this GPU (without one: on an H200)";

/// Report this machine's hardware, the available engines, and the one that --device auto selects
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Report instead which kernels EM would use on the GPU for a given shape, and why not others
    #[arg(long, requires_all = ["k", "d"])]
    plan: bool,
    /// Number of components, for --plan
    #[arg(short, value_name = "K", requires = "plan", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: Option<usize>,
    /// Number of columns, for --plan
    #[arg(short, value_name = "D", requires = "plan", value_parser = args::at_least_one, allow_negative_numbers = true)]
    d: Option<usize>,
    /// Number of rows, for --plan
    #[arg(short, value_name = "N", requires = "plan", default_value = "1000000", value_parser = args::at_least_one,
          allow_negative_numbers = true)]
    n: usize,
    /// Covariance type, for --plan [default: all four]
    #[arg(long, value_name = "KIND", requires = "plan", value_parser = args::covariance())]
    covariance: Option<CovarianceType>,
}

/// The legend of the star.
const BEGINS: &str =
    "* marks the path that a fit starts with; it falls back to a later one if precision would be lost\n";

/// The output of `--plan`.
fn plan(args: &DoctorArgs, shape: (usize, usize, usize)) -> anyhow::Result<String> {
    let gpu = CudaEngine::new(0).ok();
    let options = |kind| FitOptions { covariance_type: kind, ..FitOptions::new(shape.2) };
    let mut text = match &gpu {
        Some(gpu) => format!("on {}\n{BEGINS}", gpu.description()),
        None => {
            format!("as on an NVIDIA H200, since no GPU is available here: run `gmm doctor` for the reason\n{BEGINS}")
        }
    };
    for kind in CovarianceType::ALL.into_iter().filter(|kind| args.covariance.is_none_or(|only| only == *kind)) {
        for precision in [Precision::F32, Precision::F64] {
            let work = Work::fit((shape.0, shape.1), precision, &options(kind));
            let _ = writeln!(text, "\n{kind} {precision}; a fit takes {}", estimates(&work, 0, false));
            for candidate in loop_candidates(gpu.as_ref(), kind, precision, shape, false)? {
                let _ = writeln!(text, "  {candidate}");
            }
            let kept = gpu.as_ref().map(|gpu| gpu.kept_tuning(kind, precision, shape)).transpose()?;
            if let Some(kept) = kept.flatten() {
                let _ = writeln!(text, "  with --autotune, {kept}");
            }
            let fast = loop_candidates(gpu.as_ref(), kind, precision, shape, true)?;
            if let Some(heads) = fast.iter().find(|way| way.runs && way.fast) {
                let _ = writeln!(text, "  with --precision fast, {}: {}", heads.name, heads.reason);
            }
        }
    }
    Ok(text)
}

pub(crate) fn run(args: &DoctorArgs, console: &Console) -> anyhow::Result<()> {
    if let (true, Some(k), Some(d)) = (args.plan, args.k, args.d) {
        return Ok(output::print(&plan(args, (args.n, d, k))?)?);
    }
    let cores = std::thread::available_parallelism().map_or_else(|e| e.to_string(), |n| n.to_string());
    let mut lines = vec![
        ("version", format!("gmm {} ({} {})", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS)),
        ("processor", format!("{}, {cores} cores for this process", processor())),
        ("memory", memory_line()),
    ];
    for (name, device) in [("cpu", Device::Cpu), ("reference", Device::Reference)] {
        lines.push((name, engine(device.open(0).map(|opened| opened.engine.description()))));
    }
    let cuda = cuda_report().to_string();
    lines.extend(
        cuda.lines().map(|line| line.split_once(": ").unwrap_or(("cuda", line))).map(|(a, b)| (a, b.to_owned())),
    );
    // The lines above give the full reason why each GPU cannot be used.
    let auto = Device::Auto.open(0).map(|Opened { engine, .. }| match engine.name() {
        name if name == "cpu" => "cpu, since no GPU can be used".to_owned(),
        name => format!("{name} for large work, cpu for small: --plan estimates both"),
    });
    lines.push(("--device auto", engine(auto)));
    let text =
        lines.iter().map(|(label, text)| format!("{} {text}\n", paint(console.colour, "1", &format!("{label:<14}"))));
    Ok(output::print(&text.collect::<String>())?)
}

fn engine(opened: Result<String, gmm_host::Error>) -> String {
    opened.unwrap_or_else(|why| format!("not available: {why}"))
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

fn memory_line() -> String {
    let gib = |bytes: u128| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    memory::available().map_or_else(|| "unknown".to_owned(), |free| format!("{} available", gib(free)))
}
