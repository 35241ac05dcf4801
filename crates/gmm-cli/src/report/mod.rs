//! `gmm report`: a model and its fit, and how rows look under it, as one HTML file.

mod html;
mod model;
mod rows;

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{ModelFile, Problem};
use gmm_model::Dataset;

use crate::args::EngineArgs;
use crate::output::{self, Console, is_stdio};
use crate::plot;
use crate::table_args::{RowsArgs, Source};
use crate::{input, render};
use html::Page;

const EXAMPLES: &str = "\
The report is one file without scripts and outside parts, which can be mailed and printed: what the model is, how its fit \
went, its components, a picture, and with ROWS their groups, the rows of doubtful group and the least likely rows. Rows are \
evaluated with the bits of gmm score and gmm predict. Of many columns or components a part is shown, and the report says \
which.

Examples:
  gmm report model.json -o report.html
  gmm report model.json data/old_faithful.csv -o report.html";

/// Write a report on a model, and on rows under it, as one HTML file
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    rows: RowsArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write to this .html file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(args: &ReportArgs, console: &Console) -> anyhow::Result<()> {
    args.rows.check()?;
    let source = args.rows.source();
    check(&args.output, &args.model, source)?;
    let name = match is_stdio(&args.model) {
        true => "a model".to_owned(),
        false => {
            args.model.file_name().map_or_else(|| input::display(&args.model), |n| n.to_string_lossy().into_owned())
        }
    };
    let text = match source {
        None => text(&name, &input::model(&args.model)?, None, console)?,
        Some(source) => {
            let (model, data, opened) =
                input::model_rows_and_engine((&args.model, source), None, &args.engine, console)?;
            let precision = args.engine.precision().unwrap_or(data.rows().precision());
            let found = rows::Findings::of(&model, &data, (opened.engine.as_ref(), precision, args.engine.threads))?;
            text(&name, &model, Some((&data, &found, source.caption())), console)?
        }
    };
    if is_stdio(&args.output) {
        return Ok(output::print(&text)?);
    }
    let _whole = output::hold(&args.output);
    gmm_data::atomic::write_bytes(&args.output, text.as_bytes())?;
    console.note(|| format!("wrote {} ({} bytes)", args.output.display(), text.len()));
    Ok(())
}

/// Checks, before any work is done, that the report can be written and is not one of the inputs.
fn check(path: &Path, model: &Path, source: Option<Source<'_>>) -> anyhow::Result<()> {
    output::check_folder(path)?;
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if !is_stdio(path) && !["html", "htm"].contains(&extension.as_str()) {
        let extension = extension.chars().take(40).collect();
        return Err(output::file_error(path, Problem::Extension { extension, choices: "html" }).into());
    }
    let files = source.map(Source::files).transpose()?.unwrap_or_default();
    Ok(output::check_apart(path, &input::with_model(&files, model))?)
}

/// The rows of a report, what was found about them, and the name of their file.
type Rows<'a> = (&'a Dataset, &'a rows::Findings, String);

fn text(name: &str, model: &ModelFile, rows: Option<Rows<'_>>, console: &Console) -> anyhow::Result<String> {
    let names: Vec<String> = (0..model.mixture.n_features()).map(|j| render::name(model, j)).collect();
    let mut page = Page::new(&format!("Report on {name}"));
    page.heading("In short");
    let mut sentences = model::summary(model, &names);
    if let Some((_, found, source)) = &rows {
        sentences.extend(found.summary(model, source));
    }
    page.list(&sentences);
    model::card(&mut page, name, model, &names);
    model::fit(&mut page, model)?;
    model::components(&mut page, model, &names);
    figure(&mut page, model, &names, rows.as_ref(), console)?;
    if let Some((data, found, source)) = &rows {
        found.sections(&mut page, model, data, source, &names);
    }
    model::words(&mut page, rows.is_some());
    Ok(page.finish())
}

/// Maximum number of columns in the figure: 6 panels of pairs, which are legible in a page's width.
const DRAWN: usize = 4;

/// Maximum number of points in a figure, so that a report has less than a megabyte.
const POINTS: usize = 1500;

fn figure(
    page: &mut Page,
    model: &ModelFile,
    names: &[String],
    rows: Option<&Rows<'_>>,
    console: &Console,
) -> anyhow::Result<()> {
    let d = names.len();
    let columns = model::telling_columns(&model.mixture, DRAWN);
    let data = rows.map(|(data, _, _)| *data);
    let source = rows.map_or_else(|| "the model alone".to_owned(), |(_, _, source)| source.clone());
    let what =
        plot::fit::What { names: Some(names), columns: Some(columns.clone()), points: Some(POINTS), seed: 0, source };
    let picture = plot::fit::picture(model, data, &what, console)?;
    let drawn: Vec<&str> = columns.iter().map(|&j| names[j].as_str()).collect();
    let mut caption = match columns.len() {
        1 => "The density of the model: the higher the curve, the more rows are expected there.".to_owned(),
        _ => "Each ellipse shows a component in two columns. The inner one holds 39 % of its rows, the outer one 86 %."
            .to_owned(),
    };
    if data.is_some() && columns.len() > 1 {
        caption += " A point is a row, with the colour and shape of its most likely component.";
    }
    if columns.len() < d {
        caption += &format!(
            " Of {d} columns these {} are drawn, in which the components differ most: gmm plot fit --axes draws others.",
            columns.len()
        );
    }
    page.heading("Picture");
    page.figure(&picture, &format!("Components of the model in {}", drawn.join(", ")), &caption);
    Ok(())
}

/// A share as a percentage, with a blank that does not break.
fn percent(share: f64) -> String {
    format!("{}\u{a0}%", gmm_model::three_digits(100.0 * share))
}

/// A number and a noun.
fn count(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}
