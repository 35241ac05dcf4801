//! `gmm split`: splits components, and keeps the moments.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use gmm_data::ModelFile;
use gmm_model::structure::{SplitOptions, split, split_to};

use crate::exit::Failure;
use crate::output::{self, Console};
use crate::{args, input, render};

const EXAMPLES: &str = "\
A component is split along its principal axis into two of equal covariance, so that mean and covariance of the whole \
mixture stay. With -k the component of largest weight times variance along that axis is split, until there are K. \
Noise (gmm fit --noise) stays as it is.

Examples:
  gmm split model.json --component 2 -o more.json
  gmm split model.json -k 16 -o more.json && gmm fit rows.csv --init more.json -o model.json";

/// Split components of a model
#[derive(Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("which").required(true).args(["component", "k"]))]
pub(crate) struct SplitArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    /// The component to split, from 0: one half keeps its place, the other is appended
    #[arg(long, value_name = "C", value_parser = args::count, allow_negative_numbers = true)]
    component: Option<usize>,
    /// Split the widest component until there are this many
    #[arg(short, value_name = "K", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: Option<usize>,
    /// Distance of the means from the old one, in standard deviations along the axis, between 0 and 1
    #[arg(long, value_name = "U", default_value = "0.5", allow_hyphen_values = true)]
    distance: f64,
    /// Write the model to a .json or .safetensors file; - is JSON on standard output
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &SplitArgs, console: &Console) -> anyhow::Result<()> {
    if let Some(path) = &args.output {
        output::check_model_path(path)?;
    }
    let model = input::model(&args.model)?;
    let options = SplitOptions { distance: args.distance, ..SplitOptions::default() };
    let wrong = |error: gmm_model::ModelError| match error {
        error @ gmm_model::ModelError::Range { .. } => anyhow::Error::new(Failure::Usage(error.to_string())),
        error => error.into(),
    };
    let (mixture, clusters) = match (args.component, args.k) {
        (Some(c), _) => {
            let mixture = split(&model.mixture, c, &options).map_err(wrong)?;
            // Both halves stay in the cluster of the component.
            let clusters = model.clusters.clone().map(|mut clusters| {
                clusters.push(clusters[c]);
                clusters
            });
            (mixture, clusters)
        }
        (None, k) => (split_to(&model.mixture, k.unwrap_or_default(), &options).map_err(wrong)?, None),
    };
    let ModelFile { feature_names, storage, noise, .. } = model;
    let new = ModelFile { feature_names, storage, clusters, noise, ..ModelFile::from(mixture) };
    match &args.output {
        Some(path) => {
            output::write_model(path, &new)?;
            console.note(|| format!("wrote {}", path.display()));
            Ok(())
        }
        None => Ok(output::print(&render::mixture(&new, false, console.colour))?),
    }
}
