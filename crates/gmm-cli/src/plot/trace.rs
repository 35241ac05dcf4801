//! `gmm plot trace`: plots the convergence of a fit.

use std::path::PathBuf;

use clap::Args;
use gmm_model::{FitSummary, Mixture};
use gmm_plot::{Error, Picture, Trace, trace};

use super::OutputArgs;
use crate::exit::Failure;
use crate::input;
use crate::output::Console;

const EXAMPLES: &str = "\
Examples:
  gmm plot trace model.json -o trace.svg
  gmm fit data.csv -k 3 -o - | gmm plot trace - -o trace.png";

/// Plot the log-likelihood of each iteration of a fit, and its change
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// Model file with the record of its fit: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &TraceArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&[&args.model])?;
    let (model, name) = (input::model(&args.model)?, input::display(&args.model));
    let Some(summary) = &model.fit else {
        let why =
            format!("{name}: the model has no record of a fit, so there is no trace: use a model written by gmm fit");
        return Err(Failure::BadData(why).into());
    };
    let picture = picture(&model.mixture, summary).map_err(|error| anyhow::Error::new(error).context(name))?;
    args.output.write(&picture, console)
}

/// Draws the trace of a fit.
///
/// # Errors
/// [`Error::Nothing`] if it has no value that is finite.
pub(crate) fn picture(m: &Mixture, summary: &FitSummary) -> Result<Picture, Error> {
    let components =
        if m.n_components() == 1 { "1 component".to_owned() } else { format!("{} components", m.n_components()) };
    let ended = if summary.converged { "converged" } else { "not converged" };
    trace(&Trace {
        values: &summary.trace,
        tol: summary.tol,
        title: format!(
            "EM: {components}, {} covariances, {} columns, {} rows",
            m.covariance_model(),
            m.n_features(),
            summary.n_rows
        ),
        note: format!("{ended} after {} iterations on {}, {}", summary.iterations, summary.engine, summary.precision),
    })
}
