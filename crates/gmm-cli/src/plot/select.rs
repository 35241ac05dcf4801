//! `gmm plot select`: plots a criterion against the number of components.

use std::path::PathBuf;

use clap::Args;
use gmm_model::Criterion;
use gmm_plot::{Candidate, Picture};
use serde_json::Value;

use super::OutputArgs;
use crate::args;
use crate::exit::Failure;
use crate::input;
use crate::output::Console;

const EXAMPLES: &str = "\
Examples:
  gmm select data.csv -k 1..10 --covariance full,diag --json > candidates.json
  gmm plot select candidates.json -o bic.svg
  gmm plot select candidates.json --criterion icl -o icl.png";

/// Plot the output of gmm select --json: a criterion against the number of components, one line per covariance type
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SelectArgs {
    /// Output of gmm select --json; - is standard input
    candidates: PathBuf,
    /// Information criterion; lower is better [default: the criterion of gmm select]
    #[arg(long, value_name = "WORD", value_parser = args::criterion())]
    criterion: Option<Criterion>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &SelectArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&[&args.candidates])?;
    let name = input::display(&args.candidates);
    let text = super::text(&args.candidates)?;
    let wrong = |why: String| Failure::BadData(format!("{name}: not the output of gmm select --json: {why}"));
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let picture = picture(&value, args.criterion).map_err(|why| match why {
        Why::Form(why) => anyhow::Error::new(wrong(why)),
        Why::Picture(error) => anyhow::Error::new(error).context(name.clone()),
    })?;
    args.output.write(&picture, console)
}

/// The reason why there is no plot.
pub(crate) enum Why {
    /// A field of the object is missing or has the wrong type.
    Form(String),
    /// There is nothing to draw.
    Picture(gmm_plot::Error),
}

/// Draws the object written by `gmm select --json`, with the given criterion or the object's own.
///
/// # Errors
/// [`Why`].
pub(crate) fn picture(value: &Value, criterion: Option<Criterion>) -> Result<Picture, Why> {
    let form = |what: &str| Why::Form(what.to_owned());
    let own = value["criterion"].as_str().ok_or_else(|| form("there is no 'criterion'"))?;
    let criterion = match criterion {
        Some(criterion) => criterion,
        None => own.parse().map_err(|error: gmm_model::ModelError| Why::Form(error.to_string()))?,
    };
    let all = value["candidates"].as_array().ok_or_else(|| form("there is no list 'candidates'"))?;
    let candidate = |(i, one): (usize, &Value)| {
        let kind = one["covariance_type"].as_str();
        let k = one["n_components"].as_u64().and_then(|k| usize::try_from(k).ok()).filter(|k| *k > 0);
        let (Some(kind), Some(k)) = (kind, k) else {
            return Err(Why::Form(format!("candidate {i} has no 'covariance_type' or no 'n_components'")));
        };
        // A candidate without a fit has an 'error' instead; a NaN or infinite value is null.
        let value = one[criterion.name()].as_f64().unwrap_or(f64::NAN);
        Ok(Candidate { kind: kind.to_owned(), k, value, converged: one["converged"].as_bool().unwrap_or(true) })
    };
    let candidates = all.iter().enumerate().map(candidate).collect::<Result<Vec<_>, _>>()?;
    let rows = all.iter().find_map(|one| one["n_rows"].as_u64());
    let note = rows.map_or_else(String::new, |n| match candidates.len() {
        1 => format!("1 fit to {n} rows"),
        many => format!("{many} fits to {n} rows"),
    });
    let name = criterion.name().to_uppercase();
    gmm_plot::select(&candidates, &name, &format!("{name} against the number of components"), &note)
        .map_err(Why::Picture)
}
