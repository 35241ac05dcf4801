//! `gmm predict`: the most likely component of each row, or its responsibilities.

mod by;

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{Column, ModelFile, Table, TableHead};
use gmm_host::{Engine, evaluate, noise};
use gmm_model::{Dataset, Precision, reference};
use ndarray::Array2;

use crate::args::EngineArgs;
use crate::input;
use crate::measured::MeasuredArgs;
use crate::missing::MissingArgs;
use crate::output::{self, Console};
use crate::table_args::InputArgs;

const EXAMPLES: &str = "\
Writes one column `label`, or with --proba the columns proba_0, proba_1, .., which sum to 1 in each row. If the model has
clusters (gmm merge --criterion entropy), these are clusters; with --components they are components. If it has noise \
(gmm fit --noise), the label of noise is -1, and the last column is proba_noise.

Examples:
  gmm predict model.json new.csv                     one label per row on standard output
  gmm predict model.json new.npy -o labels.npy
  gmm predict model.json new.csv --proba -o responsibilities.parquet
  gmm predict models.json new.csv --by store         by the models of gmm fit --by store";

/// Predict the component of each row
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Write the probabilities (responsibilities) of all components instead of labels
    #[arg(long)]
    proba: bool,
    /// Print components even if the model combines them into clusters
    #[arg(long)]
    components: bool,
    /// Column of numbers or text, the group of each row: MODEL holds the models of groups (gmm fit --by), and each row
    /// gets the label of its group's model
    #[arg(long, value_name = "COLUMN", conflicts_with = "components")]
    by: Option<String>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    missing: MissingArgs,
    #[command(flatten)]
    measured: MeasuredArgs,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

pub(crate) fn run(args: &PredictArgs, console: &Console) -> anyhow::Result<()> {
    output::check_table_path(&args.output)?;
    output::check_apart(&args.output, &input::with_model(&args.input.source().files()?, &args.model))?;
    args.missing.missing.refuse_drop("the predictions")?;
    if let Some(column) = &args.by {
        args.measured.refuse("gmm predict --by")?;
        return by::run(args, column, console);
    }
    let source = args.input.source().with_missing(args.missing.missing).with_measured(&args.measured);
    let (mut model, data, opened) = input::model_rows_and_engine((&args.model, source), None, &args.engine, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let engine = opened.engine.as_ref();
    // Of a posterior the responsibilities are those of its E-step.
    if let Some(posterior) = &model.posterior {
        model.mixture = posterior.expectation()?.mixture;
    }
    let clusters = model.clusters.as_deref().filter(|_| !args.components);
    if args.proba {
        let _whole = output::hold(&args.output);
        write_proba(&args.output, (&model, clusters), &data, (engine, precision))?;
    } else if let Some(clusters) = clusters {
        let labels = labels(&model, clusters, &data, (engine, precision))?;
        let _whole = output::hold(&args.output);
        gmm_data::write_column(&args.output, "label", Column::Signed(&labels))?;
    } else if let Some(noise) = &model.noise {
        let labels = noise::labels(engine, &model.mixture, noise, &data, precision)?;
        let _whole = output::hold(&args.output);
        gmm_data::write_column(&args.output, "label", Column::Signed(labels.as_slice().expect("contiguous")))?;
    } else {
        let labels = evaluate::labels(engine, &model.mixture, &data, precision)?;
        let labels = labels.as_slice().expect("contiguous");
        let _whole = output::hold(&args.output);
        gmm_data::write_column(&args.output, "label", Column::Labels(labels))?;
    }
    console.note(|| format!("wrote {} rows", data.n_rows()));
    Ok(())
}

/// Values that are evaluated at once, 64 MiB. The engine loads each chunk anew, which takes longer.
pub(crate) const AT_ONCE: usize = 1 << 23;

/// Writes the responsibilities of components or clusters: many of them a chunk of rows at a time, so that memory for
/// one chunk suffices.
fn write_proba(
    path: &Path,
    (model, clusters): (&ModelFile, Option<&[usize]>),
    data: &Dataset,
    (engine, precision): (&dyn Engine, Precision),
) -> anyhow::Result<()> {
    let (n, k) = (data.n_rows(), model.mixture.n_components());
    let of = |responsibilities: Array2<f64>| match clusters {
        Some(clusters) => summed(&responsibilities, clusters),
        None => responsibilities,
    };
    let named = (0..clusters.map_or(k, count)).map(|c| format!("proba_{c}"));
    let names: Vec<String> = named.chain(model.noise.iter().map(|_| "proba_noise".to_owned())).collect();
    let (mixture, noise) = (&model.mixture, model.noise.as_ref());
    if n.saturating_mul(k) <= AT_ONCE {
        let responsibilities = of(noise::responsibilities(engine, mixture, noise, data, precision)?);
        return Ok(gmm_data::write_table(path, &Table::with_names(responsibilities, names)?)?);
    }
    let head = TableHead { n, d: names.len(), precision: Precision::F64, names: Some(names) };
    gmm_data::write_table_chunks(path, &head, |first, rows| {
        let chunk = data.part(first..first + rows);
        anyhow::Ok(of(noise::responsibilities(engine, mixture, noise, &chunk, precision)?).into())
    })
}

/// The cluster of largest total responsibility of each row, `(n,)`, the first among equals; -1 for noise.
fn labels(
    model: &ModelFile,
    clusters: &[usize],
    data: &Dataset,
    (engine, precision): (&dyn Engine, Precision),
) -> anyhow::Result<Vec<i32>> {
    let (mixture, noise) = (&model.mixture, model.noise.as_ref());
    let (n, at_once) = (data.n_rows(), (AT_ONCE / mixture.n_components()).max(1));
    let count = count(clusters);
    let label = |best: usize| if best == count { -1 } else { best as i32 };
    let mut labels = Vec::with_capacity(n);
    let mut add = |chunk: &Dataset| {
        let sums = summed(&noise::responsibilities(engine, mixture, noise, chunk, precision)?, clusters);
        labels.extend(sums.outer_iter().map(|row| label(reference::argmax(row))));
        anyhow::Ok(())
    };
    if n <= at_once {
        add(data)?;
    } else {
        for first in (0..n).step_by(at_once) {
            add(&data.part(first..n.min(first + at_once)))?;
        }
    }
    Ok(labels)
}

/// Number of clusters.
pub(crate) fn count(clusters: &[usize]) -> usize {
    clusters.iter().max().map_or(0, |most| most + 1)
}

/// The responsibilities of clusters, from those of components; a further column, the noise, stays the last. A sum that
/// rounding makes larger than 1 is 1.
pub(crate) fn summed(responsibilities: &Array2<f64>, clusters: &[usize]) -> Array2<f64> {
    let (n, further) = (responsibilities.nrows(), responsibilities.ncols() - clusters.len());
    let mut sums = Array2::zeros((n, count(clusters) + further));
    for (c, &cluster) in clusters.iter().enumerate() {
        let mut column = sums.column_mut(cluster);
        column += &responsibilities.column(c);
    }
    // Not by `min`, which would hide a NaN.
    sums.mapv_inplace(|sum| if sum > 1.0 { 1.0 } else { sum });
    for i in 0..further {
        sums.column_mut(count(clusters) + i).assign(&responsibilities.column(clusters.len() + i));
    }
    sums
}
