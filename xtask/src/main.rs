//! Repository chores: `cargo xtask COMMAND`.

mod bench;
mod build_ptx;
mod ci;
mod deny;
mod gpu_test;
mod package;
mod shell;
mod test;
mod test_python;
mod venv;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Repository chores")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test of the workspace, doctests included.
    Test(test::Options),
    /// Build the Python package's wheel, install it beside scikit-learn, and run its tests.
    TestPython(test_python::Options),
    /// Build the Python package's wheel for others: optimised, stripped, its manylinux tag checked.
    Wheel(wheel::Options),
    /// Compile the kernels to PTX; `--check` fails where the committed modules are stale.
    BuildPtx {
        /// [--check] [--rustc PATH] [--ptxas PATH|auto]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the GPU engine's tests on the GPU that is there.
    GpuTest(gpu_test::Options),
    /// Run every check that a change must pass: format, lints, documentation, licences, tests.
    Ci(ci::Options),
    /// Time our engines beside other programs, answers checked first, and record what comes out.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::TestPython(options) => test_python::run(&options),
        Command::Wheel(options) => wheel::run(&options),
        Command::BuildPtx { arguments } => build_ptx::run(&arguments),
        Command::GpuTest(options) => gpu_test::run(&options),
        Command::Ci(options) => ci::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
