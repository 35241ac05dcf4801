//! `gmm plot`: plots of fits, their convergence, model selections and benchmarks; one file per kind of plot.

mod bench;
pub(crate) mod fit;
mod plan;
pub(crate) mod select;
mod structure;
pub(crate) mod trace;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use gmm_data::{FileError, Problem};
use gmm_plot::{Format, Picture, SCALES};

use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console, is_stdio};

const EXAMPLES: &str = "\
Plots are SVG or PNG, depending on the extension, and look the same on every machine. gmm fit --plot and gmm select \
--plot plot their own results.

Examples:
  gmm plot fit model.json data.csv -o fit.svg
  gmm plot fit model.json data.csv --axes age,income -o fit.png
  gmm plot trace model.json -o trace.svg
  gmm select data.csv -k 1..10 --covariance full,diag --json | gmm plot select - -o bic.svg
  gmm plot bench benches/record/nvidia-h200/growth-2026-11-22.csv --sweep k -o growth.svg
  gmm plot plan --covariance full --precision f32 -n 1e6 -o paths.svg";

/// Plot a fit, its convergence, a model selection, merges, a benchmark record or the planned EM paths as SVG or PNG
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
    Dendrogram(structure::DendrogramArgs),
    Entropy(structure::EntropyArgs),
}

/// Options of the output file.
#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Write the plot to a .svg or .png file; - is SVG on standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Resolution of a PNG, in pixels per SVG unit
    #[arg(long, value_name = "S", default_value = "2", value_parser = scale, allow_negative_numbers = true)]
    scale: f64,
}

/// Default resolution in pixels per SVG unit: sharp on today's screens, and on paper at the width of a column.
const SCALE: f64 = 2.0;

pub(crate) fn run(args: &PlotArgs, console: &Console) -> anyhow::Result<()> {
    match &args.what {
        What::Fit(args) => fit::run(args, console),
        What::Trace(args) => trace::run(args, console),
        What::Select(args) => select::run(args, console),
        What::Bench(args) => bench::run(args, console),
        What::Plan(args) => plan::run(args, console),
        What::Dendrogram(args) => structure::dendrogram(args, console),
        What::Entropy(args) => structure::entropy(args, console),
    }
}

impl OutputArgs {
    /// Checks, before any work is done, that the output can be written and is not one of the inputs.
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

/// Checks, before any work is done, that a plot can be written to `path`.
///
/// # Errors
/// [`FileError`] if `path` is a folder, has an extension other than svg or png, or is in a folder that does not exist.
pub(crate) fn check(path: &Path) -> Result<(), FileError> {
    output::check_folder(path)?;
    if is_stdio(path) || Format::of_path(path).is_some() {
        return Ok(());
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    Err(output::file_error(path, Problem::Extension { extension, choices: Format::CHOICES }))
}

/// Checks, before a fit, that the file of `--plot` can be written after it.
///
/// # Errors
/// As [`check`]; and if `path` is standard output, which is used for the results.
pub(crate) fn check_option(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    if is_stdio(path) {
        return Err(Failure::Usage("--plot cannot write to standard output: give a file".to_owned()).into());
    }
    check(path)?;
    Ok(output::check_apart(path, inputs)?)
}

/// Writes the plot of a `--plot` option.
///
/// # Errors
/// As [`save`].
pub(crate) fn write(path: &Path, picture: &Picture, console: &Console) -> anyhow::Result<()> {
    save(path, picture, SCALE, console)
}

/// Writes a plot atomically.
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
    Ok(String::from_utf8(bytes).map_err(|_| Failure::BadData(format!("{name}: not valid UTF-8 text")))?)
}

fn scale(text: &str) -> Result<f64, String> {
    let (least, most) = (SCALES.start(), SCALES.end());
    let value = text.parse().ok().filter(|value| SCALES.contains(value));
    value.ok_or_else(|| format!("it must be a number from {least} to {most}"))
}
