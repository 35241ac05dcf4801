//! `gmm regress`: the distribution of some columns given others, under a model.

use std::path::PathBuf;

use clap::Args;
use gmm_data::{ModelFile, TableHead};
use gmm_host::regress::{self, DrawOptions};
use gmm_host::{Engine, Work, on_threads};
use gmm_model::{Conditional, Dataset, Matrix, ModelError, Precision};
use ndarray::{Array2, Axis, concatenate};

use crate::args::{self, EngineArgs, Words};
use crate::exit::Failure;
use crate::output::{self, Console};
use crate::table_args::InputArgs;
use crate::{input, opening};

const EXAMPLES: &str = "\
Writes the columns mean_NAME, .. and sd_NAME, .. of the predicted columns; with --density the column log_density; with \
--draws the columns draw_0_NAME, ... The rows need the given columns only, and for --density the predicted ones too. A \
table without names has the model's columns, or exactly the needed ones: those given, then those predicted. Of a model \
with noise (gmm fit --noise), the distribution is that of a row that is not noise.

Examples:
  gmm regress model.json new.csv --predict price
  gmm regress model.json new.csv --given age,size --predict price -o prices.parquet
  gmm regress model.json test.csv --predict price --density
  gmm regress model.json new.csv --predict price --draws 100 --seed 7 -o draws.npy";

/// Predict columns from others: Gaussian mixture regression
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RegressArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Columns of the model to predict from, in the form of --columns [default: all that are not predicted]
    #[arg(long, value_name = "A,B,..", value_parser = Words::new)]
    given: Vec<Words>,
    /// Columns of the model to predict, in the form of --columns
    #[arg(long, value_name = "C,..", value_parser = Words::new, required = true)]
    predict: Vec<Words>,
    /// Also write the log density of the values that the rows have in the predicted columns
    #[arg(long)]
    density: bool,
    /// Also write this many draws of the predicted columns for each row
    #[arg(long, value_name = "N", value_parser = args::at_least_one, allow_negative_numbers = true)]
    draws: Option<usize>,
    /// Random seed of --draws
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

pub(crate) fn run(args: &RegressArgs, console: &Console) -> anyhow::Result<()> {
    output::check_table_path(&args.output)?;
    output::check_apart(&args.output, &input::with_model(&args.input.source().files()?, &args.model))?;
    let model = input::model_beside(&args.model, args.input.source())?;
    let (given, targets) = columns(args, &model)?;
    let conditional = Conditional::new(&model.mixture, &given, &targets).map_err(|error| {
        let place = match error {
            ModelError::NotPositiveDefinite { column, .. } => {
                format!("{}, column '{}'", input::display(&args.model), input::column_name(&model, column))
            }
            _ => input::display(&args.model),
        };
        anyhow::Error::new(error).context(place)
    })?;
    let needed = if args.density { [given, targets.clone()].concat() } else { given };
    let data = input::rows_of_columns(&model, &needed, args.input.source(), console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let marginal = conditional.marginal();
    let work = Work::passes(data.rows().dim(), precision, marginal.covariance_type(), marginal.n_components(), 1.0);
    let opened = opening::open(&args.engine, args.input.source().memory(), &work, console)?;
    let names = names(args, &model, &targets);
    let head = TableHead { n: data.n_rows(), d: names.len(), precision: Precision::F64, names: Some(names) };
    let engine = opened.engine.as_ref();
    let _whole = output::hold(&args.output);
    gmm_data::write_table_chunks(&args.output, &head, |first, rows| -> anyhow::Result<Matrix> {
        let block = Dataset::new(data.rows().part(first..first + rows))?;
        let of_block = || values(args, (engine, precision), &conditional, &block, first as u64);
        Ok(on_threads(args.engine.threads, of_block)??.into())
    })?;
    console.note(|| format!("wrote {} rows", data.n_rows()));
    Ok(())
}

/// The indices of the given columns and of the predicted ones among the model's.
///
/// # Errors
/// Errors with the name of a column that does not exist or is in both lists.
fn columns(args: &RegressArgs, model: &ModelFile) -> anyhow::Result<(Vec<usize>, Vec<usize>)> {
    let d = model.mixture.n_features();
    let find = |option: &str, lists: &[Words]| {
        let words: Vec<_> = lists.iter().flat_map(|words| &words.0).collect();
        let found = gmm_data::find_columns(&words, model.feature_names.as_deref(), d);
        found.map_err(|error| Failure::Usage(format!("{option}: {error}")))
    };
    let targets = find("--predict", &args.predict)?;
    let others = || (0..d).filter(|column| !targets.contains(column)).collect();
    let given: Vec<usize> = if args.given.is_empty() { others() } else { find("--given", &args.given)? };
    if given.is_empty() {
        let why = "--predict names all columns of the model: at least one must be left to predict from";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    match targets.iter().find(|column| given.contains(column)) {
        Some(&both) => {
            let name = input::column_name(model, both);
            Err(Failure::Usage(format!("column '{name}' is in both --given and --predict")).into())
        }
        None => Ok((given, targets)),
    }
}

/// The names of the output's columns.
fn names(args: &RegressArgs, model: &ModelFile, targets: &[usize]) -> Vec<String> {
    let each = |stem: &str| targets.iter().map(|&j| format!("{stem}_{}", input::column_name(model, j))).collect();
    let mut names: Vec<String> = each("mean");
    names.extend::<Vec<_>>(each("sd"));
    names.extend(args.density.then(|| "log_density".to_owned()));
    (0..args.draws.unwrap_or(0)).for_each(|draw| names.extend::<Vec<_>>(each(&format!("draw_{draw}"))));
    names
}

/// The output of a block of rows, the first of which has the index `first`.
fn values(
    args: &RegressArgs,
    (engine, precision): (&dyn Engine, Precision),
    conditional: &Conditional,
    block: &Dataset,
    first: u64,
) -> Result<Array2<f64>, gmm_host::Error> {
    let (n, t) = (block.n_rows(), conditional.n_targets());
    let given: Vec<usize> = (0..conditional.n_given()).collect();
    let only_given = match args.density {
        true => Some(Dataset::new(block.rows().select_columns(&given))?),
        false => None,
    };
    let rows = only_given.as_ref().unwrap_or(block);
    let (mut means, mut deviations) = (Array2::zeros((n, t)), Array2::zeros((n, t)));
    let slots = (means.as_slice_mut().expect("row-major"), deviations.as_slice_mut().expect("row-major"));
    regress::moments(engine, conditional, rows, precision, slots.0, slots.1)?;
    let mut all = concatenate![Axis(1), means, deviations];
    if args.density {
        let densities = regress::log_densities(engine, conditional, block, precision)?;
        all = concatenate![Axis(1), all, Array2::from_shape_vec((n, 1), densities).expect("one of each row")];
    }
    if let Some(count) = args.draws {
        let mut draws = Array2::zeros((n, count * t));
        let options = DrawOptions { count, seed: args.seed, first_row: first };
        let slots = draws.as_slice_mut().expect("row-major");
        regress::draw(engine, conditional, rows, precision, options, slots)?;
        all = concatenate![Axis(1), all, draws];
    }
    Ok(all)
}
