//! The program `gmm`: fits, evaluates, samples and converts Gaussian mixtures.
//!
//! Results go to standard output, everything else to standard error; [`exit`] lists the exit codes.

mod adapt;
mod add;
mod args;
mod bench;
mod bootstrap;
mod checkpoint;
mod classify;
mod completions;
mod convert;
mod distance;
mod doctor;
mod exit;
mod fit;
mod generate;
mod groups;
mod impute;
mod input;
mod interrupt;
mod limits;
mod loglik;
mod man;
mod matmul;
mod maximise;
mod mcmc;
mod measured;
mod merge;
mod missing;
mod opening;
mod outliers;
mod output;
mod pass;
mod plot;
mod predict;
mod progress;
mod regress;
mod render;
mod report;
mod sample;
mod score;
mod select;
mod serve;
mod show;
mod size;
mod split;
mod table_args;
mod utterances;

use std::process::ExitCode;

use args::Command;
use output::Console;

fn main() -> ExitCode {
    interrupt::install();
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    gmm_host::limit_global_threads();
    let console = Console::new(cli.quiet, cli.verbose).with_progress(cli.progress);
    let result = match &cli.command {
        Command::Fit(args) => fit::run(args, &console),
        Command::Predict(args) => predict::run(args, &console),
        Command::Score(args) => score::run(args, &console),
        Command::Pass(args) => pass::run(args, &console),
        Command::Adapt(args) => adapt::run(args, &console),
        Command::Add(args) => add::run(args, &console),
        Command::Maximise(args) => maximise::run(args, &console),
        Command::Loglik(args) => loglik::run(args, &console),
        Command::Mcmc(args) => mcmc::run(args, &console),
        Command::Classify(args) => classify::run(args, &console),
        Command::Regress(args) => regress::run(args, &console),
        Command::Impute(args) => impute::run(args, &console),
        Command::Outliers(args) => outliers::run(args, &console),
        Command::Matmul(args) => matmul::run(args, &console),
        Command::Sample(args) => sample::run(args, &console),
        Command::Generate(args) => generate::run(args, &console),
        Command::Select(args) => select::run(args, &console),
        Command::Convert(args) => convert::run(args, &console),
        Command::Merge(args) => merge::run(args, &console),
        Command::Split(args) => split::run(args, &console),
        Command::Distance(args) => distance::run(args, &console),
        Command::Plot(args) => plot::run(args, &console),
        Command::Report(args) => report::run(args, &console),
        Command::Serve(args) => serve::run(args, &console),
        Command::Show(args) => show::run(args, &console),
        Command::Bootstrap(args) => bootstrap::run(args, &console),
        Command::Bench(args) => bench::run(args, &console),
        Command::Doctor(args) => doctor::run(args, &console),
        Command::Completions(args) => completions::run(args, &console),
        Command::Man(args) => man::run(args, &console),
    };
    exit::report(result, &console)
}
