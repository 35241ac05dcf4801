//! Development tasks of the repository: `cargo xtask COMMAND`.

mod bench;
mod book;
mod build_ptx;
mod c_header;
mod ci;
mod deny;
mod dist;
mod gpu_test;
mod package;
mod shell;
mod test;
mod test_python;
mod tools;
mod venv;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Development tasks")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all tests of the workspace, including doctests.
    Test(test::Options),
    /// Build the Python wheel, install it together with scikit-learn, and run its tests.
    TestPython(test_python::Options),
    /// Build the Python wheel for distribution: optimised, stripped, with its manylinux tag checked.
    Wheel(wheel::Options),
    /// Build the release files: an archive with the program, its manual pages and licences, and the wheel.
    Dist(dist::Options),
    /// Compile the kernels to PTX; with `--check`, fail if the committed files are stale.
    BuildPtx {
        /// [--check] [--rustc PATH] [--ptxas PATH|auto]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Make the header of the C interface; with `--check`, fail if the committed one is stale.
    CHeader(c_header::Options),
    /// Run the tests of the GPU engine on this machine's GPU.
    GpuTest(gpu_test::Options),
    /// Run all checks that a change must pass: format, lints, documentation, licences, packages, tests.
    Ci(ci::Options),
    /// Run benchmarks of our engines and other programs, checking results first, and record the times.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::TestPython(options) => test_python::run(&options),
        Command::Wheel(options) => wheel::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::BuildPtx { arguments } => build_ptx::run(&arguments),
        Command::CHeader(options) => c_header::run(&options),
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
