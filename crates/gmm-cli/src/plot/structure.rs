//! `gmm plot dendrogram` and `gmm plot entropy`: the tree of merges, and the entropies of a combination.

use std::path::PathBuf;

use clap::Args;
use gmm_model::structure::{PairDistance, Tree, agglomerate};
use gmm_plot::{Dendrogram, Entropy, Picture};
use serde_json::Value;

use super::OutputArgs;
use crate::args;
use crate::exit::Failure;
use crate::input;
use crate::output::Console;

const TREE_EXAMPLES: &str = "\
Examples:
  gmm plot dendrogram model.json -o tree.svg
  gmm plot dendrogram model.json --criterion kl -k 3 -o tree.png
  gmm merge model.json --criterion entropy --data rows.csv --json | gmm plot dendrogram - -o tree.svg";

/// Plot the tree of merges of a model, or of the output of gmm merge --json
#[derive(Args)]
#[command(after_help = TREE_EXAMPLES)]
pub(crate) struct DendrogramArgs {
    /// Model file, or output of gmm merge --json; - is standard input
    input: PathBuf,
    /// Distance of a model's components: runnalls, kl or bhattacharyya [default: runnalls]
    #[arg(
        long,
        value_name = "WORD",
        value_parser = args::words::<PairDistance>(&["runnalls", "kl", "bhattacharyya"]),
        hide_possible_values = true
    )]
    criterion: Option<PairDistance>,
    /// Number of clusters to colour [default: that of gmm merge; 1 for a model]
    #[arg(short, value_name = "K", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

const ENTROPY_EXAMPLES: &str = "\
Examples:
  gmm merge model.json --criterion entropy --data rows.csv --json | gmm plot entropy - -o entropy.svg";

/// Plot the output of gmm merge --criterion entropy --json: the entropy against the number of clusters
#[derive(Args)]
#[command(after_help = ENTROPY_EXAMPLES)]
pub(crate) struct EntropyArgs {
    /// Output of gmm merge --json with --criterion entropy or demp; - is standard input
    merges: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn dendrogram(args: &DendrogramArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&[&args.input])?;
    let name = input::display(&args.input);
    let bytes = gmm_data::read_bytes(&args.input)?;
    let merges = serde_json::from_slice::<Value>(&bytes).ok().filter(|value| value["tree"].is_array());
    let (tree, word, count) = match merges {
        Some(value) => {
            if args.criterion.is_some() {
                let why = "--criterion is for a model: the output of gmm merge has a tree already".to_owned();
                return Err(Failure::Usage(why).into());
            }
            let wrong = |why| Failure::BadData(format!("{name}: not the output of gmm merge --json: {why}"));
            let (tree, word) = tree_of(&value).map_err(wrong)?;
            (tree, word, value["count"].as_u64().map_or(1, |count| count as usize))
        }
        None => {
            let model = gmm_data::read_model_bytes(&bytes, &name)?;
            let by = args.criterion.unwrap_or(PairDistance::Runnalls);
            (agglomerate(&model.mixture, by)?, by.name().to_owned(), 1)
        }
    };
    let count = args.k.unwrap_or(count);
    let note = match count {
        1 => String::new(),
        count => format!("{count} clusters are coloured; the dashed line cuts there"),
    };
    let title = format!("Merges of {} components by {word}", tree.n_components());
    let picture = gmm_plot::dendrogram(&Dendrogram { tree: &tree, count, height: height(&word), title, note });
    args.output.write(&picture.map_err(|error| anyhow::Error::new(error).context(name))?, console)
}

/// What the heights of a tree by this criterion are.
fn height(word: &str) -> String {
    match word {
        "runnalls" => "sum of Runnalls' bounds, nats",
        "kl" => "largest symmetric divergence, nats",
        "bhattacharyya" => "largest Bhattacharyya distance",
        "bic" => "fall of the log-likelihood, nats",
        "entropy" => "fall of the entropy, nats",
        "demp" => "1 − misclassification probability",
        _ => "height",
    }
    .to_owned()
}

pub(crate) fn entropy(args: &EntropyArgs, console: &Console) -> anyhow::Result<()> {
    args.output.check(&[&args.merges])?;
    let name = input::display(&args.merges);
    let text = super::text(&args.merges)?;
    let wrong = |why: &str| Failure::BadData(format!("{name}: not the output of gmm merge --json: {why}"));
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let trace = value["trace"].as_array().ok_or_else(|| wrong("there is no list 'trace'"))?;
    let entropy: Option<Vec<f64>> = trace.iter().map(|one| one["entropy"].as_f64()).collect();
    let entropy =
        entropy.ok_or_else(|| wrong("its trace has no 'entropy': use --criterion entropy or demp with --data"))?;
    let (count, elbow) = (&value["count"], &value["elbow"]);
    let (Some(count), Some(elbow)) = (count.as_u64(), elbow.as_u64()) else {
        return Err(wrong("there is no 'count' or no 'elbow'").into());
    };
    let picture = entropy_picture(&entropy, count as usize, elbow as usize);
    args.output.write(&picture.map_err(|error| anyhow::Error::new(error).context(name))?, console)
}

fn entropy_picture(entropy: &[f64], count: usize, elbow: usize) -> Result<Picture, gmm_plot::Error> {
    let title = format!("Entropy of the assignments of {} components combined", entropy.len());
    let note = match count == elbow {
        true => format!("two fitted lines change at {elbow} clusters (ringed)"),
        false => format!("{count} clusters (ringed); two fitted lines change at {elbow}"),
    };
    gmm_plot::entropy(&Entropy { entropy, count, elbow, title, note })
}

/// The tree in the output of `gmm merge --json`, and its criterion.
fn tree_of(value: &Value) -> Result<(Tree, String), String> {
    let word = value["criterion"].as_str().ok_or("there is no 'criterion'")?;
    let size = |value: &Value| value.as_u64().and_then(|v| usize::try_from(v).ok());
    let joins = value["tree"].as_array().ok_or("there is no list 'tree'")?;
    let k = size(&value["n_components"]).filter(|k| *k == joins.len() + 1);
    let k = k.ok_or("'n_components' is not the number of joins of 'tree' and 1")?;
    let mut tree = Tree::new(k);
    // The node of each cluster, in the order of the tree's clusters.
    let mut nodes: Vec<usize> = (0..k).collect();
    for (step, join) in joins.iter().enumerate() {
        let place = |node: &Value| size(node).and_then(|node| nodes.iter().position(|n| *n == node));
        let (i, j) = place(&join["left"]).zip(place(&join["right"])).ok_or(format!("join {step} has no such nodes"))?;
        let number = |name: &str| join[name].as_f64().ok_or(format!("'{name}' of join {step} is not a finite number"));
        tree.join(i, j, number("value")?, number("height")?).map_err(|error| error.to_string())?;
        nodes[i.min(j)] = k + step;
        nodes.remove(i.max(j));
    }
    Ok((tree, word.to_owned()))
}
