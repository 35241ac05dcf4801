//! `gmm plot`: pictures of fits, of how they were found, and of how long it took; one file per kind of picture.

mod bench;
pub(crate) mod fit;
mod plan;
pub(crate) mod select;
mod trace;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use gmm_data::{FileError, Problem};
use gmm_plot::{Format, Picture, SCALES};

use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console, is_stdio};

const EXAMPLES: &str = "\
Pictures are SVG or PNG, by the extension, and look the same on every machine. gmm fit --plot and gmm select --plot draw \
what was just found.

Examples:
  gmm plot fit model.json data.csv -o fit.svg
  gmm plot fit model.json data.csv --axes age,income -o fit.png
  gmm plot trace model.json -o trace.svg
  gmm select data.csv -k 1..10 --covariance full,diag --json | gmm plot select - -o bic.svg
  gmm plot bench benches/record/nvidia-h200/growth-2026-11-22.csv --sweep k -o growth.svg
  gmm plot plan --covariance full --precision f32 -n 1e6 -o ways.svg";

/// Draw a fit, its trace, a selection, a benchmark's record, or the planner's choices, as SVG or PNG
#[derive(Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct PlotArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Fit(fit::FitArgs),
    Trace(trace::TraceArgs),
    Select(select::SelectArgs),
    Bench(bench::BenchArgs),
    Plan(plan::PlanArgs),
}

/// Where the picture goes.
#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Write the picture: .svg or .png; - is SVG on standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Pixels of a PNG to a unit of the picture
    #[arg(long, value_name = "S", default_value = "2", value_parser = scale, allow_negative_numbers = true)]
    scale: f64,
}

/// Pixels to a unit where none are asked for: sharp on today's screens, and on paper at a column's width.
const SCALE: f64 = 2.0;

pub(crate) fn run(args: &PlotArgs, console: &Console) -> anyhow::Result<()> {
    match &args.what {
        What::Fit(args) => fit::run(args, console),
        What::Trace(args) => trace::run(args, console),
        What::Select(args) => select::run(args, console),
        What::Bench(args) => bench::run(args, console),
        What::Plan(args) => plan::run(args, console),
    }
}

impl OutputArgs {
    /// Refuses, before any work is done, an output that could not be written in the end, or is one of the inputs.
    fn check(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        check(&self.output)?;
        Ok(output::check_apart(&self.output, inputs)?)
    }

    fn write(&self, picture: &Picture, console: &Console) -> anyhow::Result<()> {
        if is_stdio(&self.output) {
            return Ok(output::print(picture.svg())?);
        }
        save(&self.output, picture, self.scale, console)
    }
}

/// Refuses, before any work is done, a picture's path that could not be written in the end.
///
/// # Errors
/// [`FileError`] for a folder, another extension than a picture's, or a folder that is not there.
pub(crate) fn check(path: &Path) -> Result<(), FileError> {
    output::check_folder(path)?;
    if is_stdio(path) || Format::of_path(path).is_some() {
        return Ok(());
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    Err(output::file_error(path, Problem::Extension { extension, choices: Format::CHOICES }))
}

/// Refuses, before a fit, a `--plot` that could not be written after it.
///
/// # Errors
/// As [`check`], and for standard output, which has the results.
pub(crate) fn check_option(path: &Path, input: &Path) -> anyhow::Result<()> {
    if is_stdio(path) {
        return Err(Failure::Usage("--plot needs a file".to_owned()).into());
    }
    check(path)?;
    Ok(output::check_apart(path, &[input])?)
}

/// Writes what a `--plot` asks for.
///
/// # Errors
/// As [`save`].
pub(crate) fn write(path: &Path, picture: &Picture, console: &Console) -> anyhow::Result<()> {
    save(path, picture, SCALE, console)
}

/// Writes a picture, whole or not at all.
fn save(path: &Path, picture: &Picture, scale: f64, console: &Console) -> anyhow::Result<()> {
    let format = Format::of_path(path).unwrap_or(Format::Svg);
    let bytes = picture.bytes(format, scale)?;
    let _whole = output::hold(path);
    gmm_data::atomic::write_bytes(path, &bytes)?;
    console.note(|| format!("wrote {} ({} bytes)", path.display(), bytes.len()));
    Ok(())
}

/// The text of a file, or of standard input.
fn text(path: &Path) -> anyhow::Result<String> {
    let name = input::display(path);
    let bytes = gmm_data::read_bytes(path)?;
    Ok(String::from_utf8(bytes).map_err(|_| Failure::BadData(format!("{name}: not text in UTF-8")))?)
}

fn scale(text: &str) -> Result<f64, String> {
    let (least, most) = (SCALES.start(), SCALES.end());
    let value = text.parse().ok().filter(|value| SCALES.contains(value));
    value.ok_or_else(|| format!("it must be a number from {least} to {most}"))
}
