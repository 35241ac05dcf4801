//! `gmm doctor`: what this machine has, and what the program makes of it.

use std::fs;

use clap::Args;
use gmm_host::{Device, Opened, cuda_report, memory};

use crate::output::{self, Console, paint};

const EXAMPLES: &str = "\
Example:
  gmm doctor";

/// Say what this machine has, which engines run on it, and which one --device auto takes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {}

pub(crate) fn run(_args: &DoctorArgs, console: &Console) -> anyhow::Result<()> {
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
    let auto = Device::Auto.open(0).map(|Opened { engine, reason }| format!("{}, since {reason}", engine.name()));
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
