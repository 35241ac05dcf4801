//! `bench gpu`: times EM iterations, initialisation, small fits, likelihoods and products, after checking the answers,
//! and compares the times with floors and goals.

mod check;
pub(crate) mod growth;
mod init;
mod likelihood;
mod line;
mod plan_name;
mod products;
mod run;
mod small_fit;
#[cfg(test)]
mod tests;
mod timing;
mod workloads;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use gmm_bench::record::{Csv, Facts};
use gmm_bench::{hardware, source as data};
use gmm_host::{Device, Engine};

use self::line::{COLUMNS, Line};
use gmm_bench::machine;

/// Times EM iterations on the GPU and writes a record.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Run only workloads whose names contain one of these words: W1, diag, W4-full-f64, init, fit, likelihood,
    /// product, square.
    workloads: Vec<String>,
    /// cuda, cuda:I, or cpu to try the program without a GPU.
    #[arg(long, default_value = "cuda")]
    engine: String,
    /// Small data, to try the program. Goals and floors are left out.
    #[arg(long)]
    quick: bool,
    /// Maximum number of measurements of each workload.
    #[arg(long, default_value_t = 40)]
    repeats: usize,
    /// Seconds after which no measurement of a workload begins, if it has at least five.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The .csv file to write, or the folder for GPU/DATE.csv.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to name in the record, if the program runs outside the repository.
    #[arg(long)]
    commit: Option<String>,
    /// Seed of the data and of random draws.
    #[arg(long, default_value_t = 4)]
    seed: u64,
}

/// Opens the engine and runs the selected workloads.
///
/// # Errors
/// If the engine is not available, no workload matches, the record cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let device: Device = arguments.engine.parse()?;
    plan_name::listen();
    run_on(device.open(0)?.engine.as_ref(), arguments)
}

/// Runs the selected workloads on an engine.
fn run_on(engine: &dyn Engine, arguments: &Arguments) -> Result<()> {
    let began = Instant::now();
    let hardware = hardware::describe(engine);
    let commit = arguments.commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let mut facts = facts(arguments, commit);
    facts.extend(hardware.facts);
    let mut record = Csv::create(&arguments.out, &hardware.slug, &machine::today(), &facts, COLUMNS)?;
    println!("{facts}{}", Line::heading());
    let mut verdicts = Vec::new();
    run::everything(engine, arguments, &mut |line| {
        println!("{}", line.shown());
        verdicts.push(line.verdict());
        record.push(&line.fields().join(","))
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

fn facts(arguments: &Arguments, commit: String) -> Facts {
    let Arguments { workloads, engine, quick, repeats, seconds, seed, .. } = arguments;
    let quick = if *quick { " --quick" } else { "" };
    let command = format!(
        "bench gpu --engine {engine}{quick} --repeats {repeats} --seconds {seconds} --seed {seed} {}",
        workloads.join(" ")
    );
    let what = "milliseconds per EM iteration, initialisation, small fit, likelihood or product";
    let mut facts = Facts::new(what, commit, &command);
    let data = format!(
        "full mixture, means at least {} standard deviations apart; start: means moved by {}, covariances times {}; \
         offset {} standard deviations of each column",
        data::SEPARATION,
        data::MOVED,
        data::WIDENED,
        data::OFFSET
    );
    facts.add("data", data);
    facts
}
