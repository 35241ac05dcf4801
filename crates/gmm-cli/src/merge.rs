//! `gmm merge`: merges components, or combines them into clusters.

mod report;

pub(crate) use report::aligned;

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::ModelFile;
use gmm_host::structure::{Criteria, along, combine, merge_by_likelihood};
use gmm_model::structure::{Combination, CombineBy, MergeChange, PairDistance, Tree, agglomerate, merge};

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::table_args::DataArgs;
use crate::{input, render};
use report::Report;

const EXAMPLES: &str = "\
Merged components keep the mean and covariance of the whole mixture: exactly for full and tied covariances, the \
variances for diag, their sum for spherical. With entropy, demp or --clusters the components stay, and the model lists \
the cluster of each: gmm predict then prints clusters.

Without -k the number is chosen: by BIC on the rows of --data; for entropy by the elbow of the entropies; for demp and \
bhattacharyya by --cutoff. Noise (gmm fit --noise) stays as it is, and each row counts as much as it is not noise.

Examples:
  gmm merge model.json -k 3 -o merged.json
  gmm merge model.json --data rows.csv -o merged.json                       as many as BIC prefers
  gmm merge model.json --criterion entropy --data rows.csv -o clusters.json
  gmm merge model.json --criterion entropy --data rows.csv --json | gmm plot entropy - -o entropy.svg
  gmm merge model.json -k 3 --json | gmm plot dendrogram - -o tree.svg";

/// Merge components of a model, or combine them into clusters
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MergeArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    /// Number of components or clusters to keep
    #[arg(short, value_name = "K", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: Option<usize>,
    /// Which two come next: runnalls (smallest bound on the divergence that the merge causes), kl (smallest symmetric
    /// Kullback-Leibler divergence), bhattacharyya (smallest distance), bic (highest likelihood of the rows), entropy
    /// (largest fall of the entropy of the assignments; Baudry et al. 2010), demp (largest misclassification probability;
    /// Hennig 2010) [default: runnalls; bic if there are rows and no -k]
    #[arg(long, value_name = "WORD", value_parser = args::words::<By>(&By::WORDS), hide_possible_values = true)]
    criterion: Option<By>,
    /// Keep the components, and store the cluster of each
    #[arg(long)]
    clusters: bool,
    /// For demp and bhattacharyya without -k: go on while the misclassification probability, or the overlap exp(-D), is
    /// at least this [default: 0.025 for demp, 0.1 for bhattacharyya, as in Hennig's R package fpc]
    #[arg(long, value_name = "P", conflicts_with = "k", value_parser = share, allow_negative_numbers = true)]
    cutoff: Option<f64>,
    #[command(flatten)]
    data: DataArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN", requires = "data")]
    weights: Option<String>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write the model to a .json or .safetensors file; - is JSON on standard output
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
    /// Print one JSON object with tree and trace instead of the summary
    #[arg(long)]
    json: bool,
}

/// The value of `--criterion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Distance(PairDistance),
    Bic,
    Rows(CombineBy),
}

impl By {
    pub(crate) const WORDS: [&str; 6] = ["runnalls", "kl", "bhattacharyya", "bic", "entropy", "demp"];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Distance(by) => by.name(),
            Self::Bic => "bic",
            Self::Rows(by) => by.name(),
        }
    }
}

impl std::str::FromStr for By {
    type Err = gmm_model::ModelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "bic" => Ok(Self::Bic),
            "entropy" | "demp" => text.parse().map(Self::Rows),
            _ => text.parse().map(Self::Distance),
        }
    }
}

/// A probability, as of `--cutoff`.
fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "it must be a number from 0 to 1".to_owned())
}

/// What the merges are, and what the rows say of them.
struct Found {
    tree: Tree,
    criteria: Option<Criteria>,
    combination: Option<Combination>,
}

pub(crate) fn run(args: &MergeArgs, console: &Console) -> anyhow::Result<()> {
    check(args)?;
    let by = args.criterion.unwrap_or(match (args.k, args.data.source()) {
        (None, Some(_)) => By::Bic,
        _ => By::Distance(PairDistance::Runnalls),
    });
    needs(args, by)?;
    let (model, found) = found(args, by, console)?;
    let count = count(args, by, &model, &found)?;
    let clusters = found.tree.clusters(count)?;
    let keeps = args.clusters || matches!(by, By::Rows(_));
    let new = if keeps {
        ModelFile { clusters: Some(clusters.clone()), ..model.clone() }
    } else {
        let ModelFile { feature_names, storage, noise, .. } = &model;
        let (feature_names, storage, noise) = (feature_names.clone(), storage.clone(), noise.clone());
        ModelFile { feature_names, storage, noise, ..ModelFile::from(merge(&model.mixture, &clusters)?) }
    };
    if let Some(path) = &args.output {
        output::write_model(path, &new)?;
        console.note(|| format!("wrote {}", path.display()));
    }
    let bounds = bounds(by, &model, &found)?;
    let Found { tree, criteria, combination } = &found;
    let report = Report {
        by: by.name(),
        tree,
        bounds: &bounds,
        criteria: criteria.as_ref(),
        combination: combination.as_ref(),
        clusters: &clusters,
        count,
    };
    if args.json {
        return Ok(output::print_json(&report.json())?);
    }
    match &args.output {
        None => Ok(output::print(&format!("{}\n{}", render::mixture(&new, false, console.colour), report.text()))?),
        Some(path) if console.quiet || is_stdio(path) => Ok(()),
        Some(_) => Ok(output::print(&report.text())?),
    }
}

fn check(args: &MergeArgs) -> anyhow::Result<()> {
    let files = args.data.source().map(|source| source.files()).transpose()?.unwrap_or_default();
    if let Some(path) = &args.output {
        output::check_model_path(path)?;
        let inputs: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        output::check_apart(path, &inputs)?;
        output::check_json_apart(args.json, path)?;
    }
    Ok(())
}

/// Checks that what the criterion needs was given, before anything is read.
fn needs(args: &MergeArgs, by: By) -> anyhow::Result<()> {
    let has_rows = args.data.source().is_some();
    let why = match by {
        By::Bic | By::Rows(_) if !has_rows => format!("--criterion {} needs the rows: give --data ROWS", by.name()),
        By::Distance(PairDistance::Runnalls | PairDistance::Kl) if args.k.is_none() && !has_rows => {
            "the number of components is missing: give -k K, or --data ROWS to choose it by BIC".to_owned()
        }
        By::Distance(PairDistance::Runnalls | PairDistance::Kl) | By::Bic | By::Rows(CombineBy::Entropy)
            if args.cutoff.is_some() =>
        {
            format!("--cutoff has no meaning for --criterion {}: it is for demp and bhattacharyya", by.name())
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(why).into())
}

/// Reads model and rows, and makes the tree.
fn found(args: &MergeArgs, by: By, console: &Console) -> anyhow::Result<(ModelFile, Found)> {
    let Some(source) = args.data.source() else {
        let model = input::model(&args.model)?;
        let By::Distance(by) = by else { unreachable!("other criteria were checked to have rows") };
        let tree = agglomerate(&model.mixture, by)?;
        return Ok((model, Found { tree, criteria: None, combination: None }));
    };
    let (model, data, opened) =
        input::model_rows_and_engine((&args.model, source), args.weights.as_deref(), &args.engine, console)?;
    let (engine, m) = (opened.engine.as_ref(), &model.mixture);
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let data = input::discounted(engine, &model, data, precision)?;
    let found = match by {
        By::Bic => {
            let (tree, criteria) = merge_by_likelihood(engine, m, &data, precision)?;
            Found { tree, criteria: Some(criteria), combination: None }
        }
        By::Distance(by) => {
            let tree = agglomerate(m, by)?;
            let criteria = along(engine, m, &tree, &data, precision)?;
            Found { tree, criteria: Some(criteria), combination: None }
        }
        By::Rows(by) => {
            let combination = combine(engine, m, &data, precision, by)?;
            Found { tree: combination.tree.clone(), criteria: None, combination: Some(combination) }
        }
    };
    Ok((model, found))
}

/// The number of components or clusters: that of `-k`, or that which the criterion chooses.
fn count(args: &MergeArgs, by: By, model: &ModelFile, found: &Found) -> anyhow::Result<usize> {
    let k = model.mixture.n_components();
    if let Some(count) = args.k {
        if count > k {
            let why = format!("-k {count}, but the model has {k} components: a merge makes fewer, gmm split more");
            return Err(Failure::Usage(why).into());
        }
        return Ok(count);
    }
    Ok(match (by, &found.combination, &found.criteria) {
        (By::Rows(CombineBy::Entropy), Some(combination), _) => combination.elbow(),
        (By::Rows(CombineBy::Demp), Some(combination), _) => combination.separated(args.cutoff.unwrap_or(0.025)),
        (By::Distance(PairDistance::Bhattacharyya), ..) => {
            let cutoff = args.cutoff.unwrap_or(0.1);
            k - found.tree.joins().iter().take_while(|join| (-join.value).exp() >= cutoff).count()
        }
        (_, _, Some(criteria)) => criteria.best(),
        _ => k,
    })
}

/// Without rows: what the merges by Runnalls' bound change at most, for as many rows as the model was fitted to. Empty
/// if there are rows, or if the model has no record of a fit.
fn bounds(by: By, model: &ModelFile, found: &Found) -> anyhow::Result<Vec<MergeChange>> {
    let (By::Distance(PairDistance::Runnalls), Some(fit), None) = (by, &model.fit, &found.criteria) else {
        return Ok(Vec::new());
    };
    let (tree, n) = (&found.tree, fit.n_rows as f64);
    let change = |step: usize| {
        let merged = merge(&model.mixture, &tree.clusters(tree.n_components() - step)?)?;
        // The height is the sum of the bounds so far.
        let bound = step.checked_sub(1).map_or(0.0, |last| tree.joins()[last].height);
        anyhow::Ok(MergeChange::new(&model.mixture, &merged, n, -n * bound))
    };
    (0..tree.n_components()).map(change).collect()
}
