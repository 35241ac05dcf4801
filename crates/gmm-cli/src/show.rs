//! `gmm show`: a model file for people.

use std::path::PathBuf;

use clap::Args;

use crate::output::{self, Console};
use crate::{input, render};

const EXAMPLES: &str = "\
Examples:
  gmm show model.json
  gmm fit data.csv -k 3 -o - | gmm show -";

/// Print a model readably: weights, means, standard deviations, correlations, and how it was fitted
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Model: json or safetensors; - is standard input
    model: PathBuf,
    /// Print all components, columns and correlations, however many there are
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(args: &ShowArgs, console: &Console) -> anyhow::Result<()> {
    let model = input::model(&args.model)?;
    let mut text = render::mixture(&model, args.all, console.colour);
    if let Some(summary) = &model.fit {
        text += &format!("\n{}", render::fit(summary, None, None));
    }
    Ok(output::print(&text)?)
}
