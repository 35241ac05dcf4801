//! `gmm distance`: how far two mixtures, or the components of one, are from each other.

use std::path::PathBuf;

use clap::Args;
use gmm_data::ModelFile;
use gmm_host::evaluate::check_names;
use gmm_model::structure::{PairDistance, distances, kl_monte_carlo, kl_upper_bound, kl_variational};
use serde_json::{Value, json};

use crate::merge::aligned;
use crate::output::{self, Console};
use crate::{args, input, render};

const EXAMPLES: &str = "\
Two models: their Kullback-Leibler divergence in nats, in both directions: the variational approximation and the upper \
bound of Hershey and Olsen 2007, and the mean of draws with its standard error. One model: the distance of every two \
components. Noise (gmm fit --noise) does not count.

Examples:
  gmm distance a.json b.json
  gmm distance a.json b.json --draws 1e6 --json | jq .forward.monte_carlo
  gmm distance model.json --criterion bhattacharyya";

/// Compute divergences of two models, or distances of a model's components
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DistanceArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    /// Another model of the same columns
    other: Option<PathBuf>,
    /// Distance of components: runnalls, kl (symmetric) or bhattacharyya
    #[arg(
        long,
        value_name = "WORD",
        default_value = "kl",
        value_parser = args::words::<PairDistance>(&["runnalls", "kl", "bhattacharyya"]),
        hide_possible_values = true,
        conflicts_with = "other"
    )]
    criterion: PairDistance,
    /// Number of draws of the Monte Carlo estimate
    #[arg(long, value_name = "N", default_value = "20000", value_parser = args::at_least_one, allow_negative_numbers = true)]
    draws: usize,
    /// Random seed
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DistanceArgs, _: &Console) -> anyhow::Result<()> {
    let model = input::model(&args.model)?;
    match &args.other {
        Some(other) => between(args, &model, &input::model(other)?),
        None => within(args, &model),
    }
}

fn between(args: &DistanceArgs, f: &ModelFile, g: &ModelFile) -> anyhow::Result<()> {
    let (found, expected) = (g.mixture.n_features(), f.mixture.n_features());
    if found != expected {
        return Err(gmm_host::Error::Features { found, expected }.into());
    }
    check_names(g.feature_names.as_deref(), f.feature_names.as_deref())?;
    let n = (args.draws as u64).max(2);
    let (mut all, mut lines) =
        (json!({}), vec![["", "variational", "upper bound", "Monte Carlo"].map(str::to_owned).to_vec()]);
    for (name, title, f, g) in [("forward", "first to second", f, g), ("backward", "second to first", g, f)] {
        let (f, g) = (&f.mixture, &g.mixture);
        let (near, bound) = (kl_variational(f, g)?, kl_upper_bound(f, g)?);
        let drawn = kl_monte_carlo(f, g, n, args.seed)?;
        all[name] = json!({
            "variational": near,
            "upper_bound": bound,
            "monte_carlo": drawn.estimate,
            "standard_error": drawn.standard_error,
        });
        let estimate = format!("{} ± {}", render::short(drawn.estimate), render::short(drawn.standard_error));
        lines.push(vec![title.to_owned(), render::short(near), render::short(bound), estimate]);
    }
    all["draws"] = n.into();
    if args.json {
        return Ok(output::print_json(&all)?);
    }
    Ok(output::print(&aligned(&lines))?)
}

fn within(args: &DistanceArgs, model: &ModelFile) -> anyhow::Result<()> {
    let table = distances(&model.mixture, args.criterion)?;
    if args.json {
        let rows: Vec<Value> = table.outer_iter().map(|row| row.to_vec().into()).collect();
        return Ok(output::print_json(&json!({"criterion": args.criterion.name(), "distances": rows}))?);
    }
    let k = model.mixture.n_components();
    let head = std::iter::once(args.criterion.name().to_owned()).chain((0..k).map(|c| c.to_string()));
    let rows = table
        .outer_iter()
        .enumerate()
        .map(|(c, row)| std::iter::once(c.to_string()).chain(row.iter().map(|v| render::short(*v))).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head.collect()).chain(rows).collect();
    Ok(output::print(&aligned(&lines))?)
}
