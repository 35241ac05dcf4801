//! `gmm show`: prints a model file in readable form.

use std::path::PathBuf;

use clap::Args;
use gmm_data::ModelOrGroups;

use crate::output::{self, Console};
use crate::{groups, render};

const EXAMPLES: &str = "\
Examples:
  gmm show model.json
  gmm fit data.csv -k 3 -o - | gmm show -";

/// Print a model: weights, means, standard deviations, correlations, factors, and the summary of its fit
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Model file: json or safetensors, or the models of groups (gmm fit --by); - is standard input
    model: PathBuf,
    /// Print all components, columns and correlations, without a limit
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(args: &ShowArgs, console: &Console) -> anyhow::Result<()> {
    let model = match groups::model_or_groups(&args.model)? {
        ModelOrGroups::Model(model) => model,
        ModelOrGroups::Groups(models) => return Ok(output::print(&groups::table(&models, console.colour))?),
    };
    let mut text = render::mixture(&model, args.all, console.colour);
    if model.mixture.loadings().is_some() {
        text += &format!("\n{}", render::factors(&model, args.all, console.colour));
    }
    if let Some(clusters) = &model.clusters {
        text += &format!("\n{}", render::clusters(clusters));
    }
    if let Some(posterior) = &model.posterior {
        text += &format!("\n{}", render::posterior(posterior));
    }
    if let Some(summary) = &model.fit {
        text += &format!("\n{}", render::fit(summary, None, None));
    }
    Ok(output::print(&text)?)
}
