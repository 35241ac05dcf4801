//! `bench gpu`: EM iterations, initialisation, small fits, likelihoods and products, answers checked first, against floors and goals.

mod check;
pub(crate) mod growth;
mod init;
mod likelihood;
mod line;
mod plan_name;
mod products;
mod record;
mod run;
mod small_fit;
#[cfg(test)]
mod tests;
mod timing;
mod workloads;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use gmm_bench::{hardware, source as data};
use gmm_host::{Device, Engine};

use self::line::Line;
use self::record::Record;
use crate::machine;

/// Times EM iterations on the GPU and writes a record.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Words of which a workload's name must contain one: W1, diag, W4-full-f64, init, fit, likelihood, product, square.
    workloads: Vec<String>,
    /// cuda, cuda:I, or cpu to try the program where there is no GPU.
    #[arg(long, default_value = "cuda")]
    engine: String,
    /// Small data: tries the program, not the machine. Goals and floors are left out.
    #[arg(long)]
    quick: bool,
    /// Measurements of each workload at most.
    #[arg(long, default_value_t = 40)]
    repeats: usize,
    /// Seconds of measuring after which a workload has enough, if it has five.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A .csv file to be written, or the folder below which GPU/DATE.csv is.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to be named in the record, where the program runs away from the repository.
    #[arg(long)]
    commit: Option<String>,
    /// Seed of data and draws.
    #[arg(long, default_value_t = 4)]
    seed: u64,
}

/// Opens the engine and runs everything asked for.
///
/// # Errors
/// Where there is no such engine, nothing matches, the record cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let device: Device = arguments.engine.parse()?;
    plan_name::listen();
    run_on(device.open(0)?.engine.as_ref(), arguments)
}

/// Runs everything asked for on an engine.
fn run_on(engine: &dyn Engine, arguments: &Arguments) -> Result<()> {
    let began = Instant::now();
    let hardware = hardware::describe(engine);
    let commit = arguments.commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let facts = facts(arguments, commit);
    let mut record = Record::create(&arguments.out, &hardware, &facts)?;
    for (name, value) in facts.iter().chain(&hardware.facts) {
        println!("# {name}: {value}");
    }
    println!("{}", Line::heading());
    let mut verdicts = Vec::new();
    run::everything(engine, arguments, &mut |line| {
        println!("{}", line.shown());
        verdicts.push(line.verdict());
        record.push(&line)
    })?;
    if verdicts.is_empty() {
        bail!("no workload's name contains {}", arguments.workloads.join(" or "));
    }
    let count = |word: &str| verdicts.iter().filter(|verdict| **verdict == word).count();
    let (met, missed, failed) = (count("met"), count("missed"), count("wrong") + count("error"));
    println!("* wall clock, since the engine does not tell the device's");
    println!(
        "{} workloads: {met} met, {missed} missed, {failed} failed; {:.0} s; {}",
        verdicts.len(),
        began.elapsed().as_secs_f64(),
        record.path().display()
    );
    if failed > 0 {
        bail!("{failed} workloads gave wrong answers or none, and were not timed");
    }
    Ok(())
}

fn facts(arguments: &Arguments, commit: String) -> Vec<(&'static str, String)> {
    let Arguments { workloads, engine, quick, repeats, seconds, seed, .. } = arguments;
    let quick = if *quick { " --quick" } else { "" };
    let command = format!(
        "bench gpu --engine {engine}{quick} --repeats {repeats} --seconds {seconds} --seed {seed} {}",
        workloads.join(" ")
    );
    vec![
        (
            "what",
            "milliseconds per EM iteration, initialisation, small fit, likelihood or product; see benches/README.md"
                .to_owned(),
        ),
        ("date", machine::today()),
        ("commit", commit),
        ("command", command.trim_end().to_owned()),
        (
            "data",
            format!(
                "full mixture, means at least {} standard deviations apart; start: means moved by {}, covariances times {}; \
                 offset {} standard deviations of each column",
                data::SEPARATION,
                data::MOVED,
                data::WIDENED,
                data::OFFSET
            ),
        ),
    ]
}
