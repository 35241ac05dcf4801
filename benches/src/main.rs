//! The benchmark program behind `cargo xtask bench`: checks the answers, times the programs, and writes a record.
//! General parts are in the library `gmm-bench`; this crate contains the comparisons with other programs, the GPU
//! workloads and the growth sweeps.

mod adapt;
mod ceiling;
mod contest;
mod cpu;
mod definition;
mod dirichlet;
mod end_to_end;
mod gpu;
mod large_k;
mod likelihood;
mod missing;
mod noisy;
mod ours;
mod python;
mod report;
mod run;
mod scale;
mod served;
mod setup;
mod starts;
mod truncated;
mod turns;
mod variational;
mod workload;

use anyhow::Result;
use clap::Parser;
use turns::EngineTurns;

/// Benchmarks that check their answers before they time.
#[derive(Parser)]
enum Command {
    /// Time one EM iteration of the CPU engine and of scikit-learn, in turns.
    Cpu(cpu::Arguments),
    /// Time log-likelihoods of the CPU engine and of scikit-learn, in turns.
    Likelihood(cpu::Arguments),
    /// Time fits through the Rust call and from the Python package, in turns.
    Python(python::PythonArguments),
    /// Time EM iterations, initialisation, small fits, likelihoods and products on the GPU, against the chip's floor.
    Gpu(gpu::Arguments),
    /// Time EM iterations on the GPU as rows, components and columns grow.
    Growth(gpu::growth::Arguments),
    /// Time EM iterations over rows in memory, rows that exceed it, and on several GPUs.
    Scale(scale::Arguments),
    /// Time passes with thousands of components, over lists of near ones and over all.
    LargeK(large_k::Arguments),
    /// Time EM on rows with missing values beside EM on whole rows.
    Missing(EngineTurns),
    /// Time passes over rows with measurement errors on the GPU and on the CPU, in turns.
    Noisy(noisy::Arguments),
    /// Time iterations of variational Bayes beside those of EM.
    Variational(EngineTurns),
    /// Time the adaptation of a background model to many utterances.
    Adapt(EngineTurns),
    /// Time sweeps of the sampler of Dirichlet process mixtures.
    DirichletProcess(dirichlet::Arguments),
    /// Time truncated EM beside EM over all components, and compare the likelihoods that they reach.
    Truncated(truncated::Arguments),
    /// Time reads and fits of files as whole processes, with other programs, and calls from Python.
    EndToEnd(end_to_end::Arguments),
    /// Time requests to resident matrices behind the server, from socket to answer.
    Served(EngineTurns),
    /// Fit public data sets from every start, and compare the likelihoods that they reach.
    Starts(starts::Arguments),
    /// Run one of the definitions of `gmm bench`, and record it for the repository.
    Run(run::Arguments),
    /// Write `docs/BENCHMARKS.md` from the records.
    Report(report::Arguments),
    /// Draw a growth record.
    Plot(gpu::growth::PlotArguments),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Cpu(arguments) => cpu::run(&arguments),
        Command::Likelihood(arguments) => likelihood::run(&arguments),
        Command::Python(arguments) => python::run(&arguments),
        Command::Gpu(arguments) => gpu::run(&arguments),
        Command::Growth(arguments) => gpu::growth::run(&arguments),
        Command::EndToEnd(arguments) => end_to_end::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Served(arguments) => served::run(&arguments),
        Command::Starts(arguments) => starts::run(&arguments),
        Command::LargeK(arguments) => large_k::run(&arguments),
        Command::Missing(arguments) => missing::run(&arguments),
        Command::Noisy(arguments) => noisy::run(&arguments),
        Command::Variational(arguments) => variational::run(&arguments),
        Command::Adapt(arguments) => adapt::run(&arguments),
        Command::DirichletProcess(arguments) => dirichlet::run(&arguments),
        Command::Truncated(arguments) => truncated::run(&arguments),
        Command::Scale(arguments) => scale::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Plot(arguments) => gpu::growth::plot(&arguments),
    }
}
