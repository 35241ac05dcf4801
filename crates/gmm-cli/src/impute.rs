//! `gmm impute`: replaces missing values by what a model says about them.

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::Table;
use gmm_host::impute::{Imputation, impute};
use gmm_host::{TrueRowMoments, true_rows};
use gmm_model::missing::Pooled;
use ndarray::{Array2, Axis};

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::measured::ErrorArgs;
use crate::missing::Missing;
use crate::output::{self, Console};
use crate::table_args::InputArgs;
use crate::{input, render};

const EXAMPLES: &str = "\
Missing values are NaN, nulls, and in text empty fields, NA, NULL or ?. Each is replaced by its mean given the observed \
values of its row (mean), or its mean in the component that is then most probable (mode), or a draw (draw). Observed values \
stay.

With measurement errors (--noise-columns) every row is replaced by the mean of the true row given the noisy one.

Of a model with noise (gmm fit --noise), the values are those of a row that is not noise.

Examples:
  gmm impute model.json holes.csv > whole.csv
  gmm impute model.json holes.csv --how draw --seed 7 -o whole.parquet
  gmm impute model.json holes.csv --draws 20 -o 'whole-{}.csv'     multiple imputation: whole-0.csv, ..
  gmm impute model.json holes.csv --draws 20 --pool-means          means of the columns by Rubin's rules";

/// Replace missing values, or rows with measurement errors, by what a model says about them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImputeArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// What replaces a missing value: mean, mode or draw [default: mean; with --draws, draw]
    #[arg(long, value_name = "HOW", value_parser = ["mean", "mode", "draw"], hide_possible_values = true)]
    how: Option<String>,
    /// Draw this many times: multiple imputation. {} in the name of the output stands for the number of the draw
    #[arg(long, value_name = "M", value_parser = args::at_least_one, allow_negative_numbers = true)]
    draws: Option<usize>,
    /// Print the mean of each column over the draws, with a standard error that includes the uncertainty of the missing
    /// values (Rubin's rules)
    #[arg(long, requires = "draws")]
    pool_means: bool,
    /// Random seed of the draws
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    errors: ErrorArgs,
    /// With measurement errors: also write the standard deviation of each true value, as further columns NAME_sd
    #[arg(long, help_heading = "Measurement errors")]
    deviations: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write to a file: csv, tsv, npy, parquet or arrow [default: csv on standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &ImputeArgs, console: &Console) -> anyhow::Result<()> {
    if args.errors.are_given() {
        return true_values(args, console);
    }
    if args.deviations {
        let why = "--deviations are those of true values: give the measurement errors, as by --noise-columns";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    if let (Some(_), Some(how @ ("mean" | "mode"))) = (args.draws, args.how.as_deref()) {
        let why = format!("--draws draws, and --how {how} does not: leave one of them out, or give --how draw");
        return Err(Failure::Usage(why).into());
    }
    let count = args.draws.unwrap_or(1);
    if args.pool_means && count < 2 {
        return Err(Failure::Usage("--pool-means needs at least two draws: --draws 20".to_owned()).into());
    }
    let paths = paths(args, count)?;
    let files = args.input.source().files()?;
    for path in &paths {
        output::check_table_path(path)?;
        output::check_apart(path, &input::with_model(&files, &args.model))?;
    }
    let source = args.input.source().with_missing(Missing::Em);
    let (model, data, opened) = input::model_rows_and_engine((&args.model, source), None, &args.engine, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let names = data.names().map(<[String]>::to_vec).or_else(|| model.feature_names.clone());
    let mut moments: Vec<Vec<(f64, f64)>> = Vec::new();
    for draw in 0..count {
        let how = match args.how.as_deref() {
            Some("mode") => Imputation::Mode,
            Some("draw") => Imputation::Draw { seed: args.seed, draw: draw as u64 },
            None if args.draws.is_some() => Imputation::Draw { seed: args.seed, draw: draw as u64 },
            _ => Imputation::Mean,
        };
        let filled = impute(opened.engine.as_ref(), &model.mixture, &data, precision, how)?;
        if args.pool_means {
            moments.push(filled.axis_iter(Axis(1)).map(|column| mean_and_error(&column.to_vec())).collect());
        }
        if let Some(path) = paths.get(draw) {
            write(path, filled, names.clone())?;
        }
    }
    console.note(|| format!("imputed {} values of {} rows", data.n_missing(), data.n_rows()));
    if args.pool_means {
        output::print(&pooled(&moments, names.as_deref())?)?;
    }
    Ok(())
}

/// Writes the means of the true rows given the noisy ones.
fn true_values(args: &ImputeArgs, console: &Console) -> anyhow::Result<()> {
    if args.draws.is_some() || args.how.as_deref().is_some_and(|how| how != "mean") {
        let why =
            "with measurement errors, rows are replaced by the means of the true ones: leave --how and --draws out";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    let paths = paths(args, 1)?;
    let files = args.input.source().files()?;
    for path in &paths {
        output::check_table_path(path)?;
        output::check_apart(path, &input::with_model(&files, &args.model))?;
    }
    let measured = args.errors.measured();
    let source = args.input.source().with_missing(Missing::Em).with_measured(&measured);
    let (model, data, opened) = input::model_rows_and_engine((&args.model, source), None, &args.engine, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let TrueRowMoments { means, covariances } = true_rows(opened.engine.as_ref(), &model.mixture, &data, precision)?;
    let (n, d) = means.dim();
    let names = data.names().map(<[String]>::to_vec).or_else(|| model.feature_names.clone());
    let (rows, names) = if args.deviations {
        let deviation = |i: usize, j: usize| covariances[[i, j, j]].sqrt();
        let rows = Array2::from_shape_fn((n, 2 * d), |(i, j)| if j < d { means[[i, j]] } else { deviation(i, j - d) });
        let names = names.unwrap_or_else(|| (0..d).map(|j| j.to_string()).collect());
        let further: Vec<String> = names.iter().map(|name| format!("{name}_sd")).collect();
        (rows, Some([names, further].concat()))
    } else {
        (means, names)
    };
    paths.iter().try_for_each(|path| write(path, rows.clone(), names.clone()))?;
    console.note(|| format!("wrote the means of {n} true rows"));
    Ok(())
}

/// The output of each draw; none if only means are printed.
///
/// # Errors
/// [`Failure::Usage`] if several draws would have the same output.
fn paths(args: &ImputeArgs, count: usize) -> Result<Vec<PathBuf>, Failure> {
    let Some(path) = &args.output else {
        return match (count, args.pool_means) {
            (_, true) => Ok(Vec::new()),
            (1, false) => Ok(vec![PathBuf::from("-")]),
            _ => Err(Failure::Usage("several draws need -o with {} for their number: -o 'whole-{}.csv'".to_owned())),
        };
    };
    let text = path.to_string_lossy();
    if count > 1 && !text.contains("{}") {
        return Err(Failure::Usage(format!("-o {text} has no {{}} for the number of the draw: -o 'whole-{{}}.csv'")));
    }
    if args.draws.is_none() {
        return Ok(vec![path.clone()]);
    }
    Ok((0..count).map(|draw| PathBuf::from(text.replace("{}", &draw.to_string()))).collect())
}

fn write(path: &Path, rows: Array2<f64>, names: Option<Vec<String>>) -> anyhow::Result<()> {
    let table = match names {
        Some(names) => Table::with_names(rows, names)?,
        None => Table::new(rows),
    };
    let _whole = output::hold(path);
    Ok(gmm_data::write_table(path, &table)?)
}

/// The mean of a column and the square of its standard error.
fn mean_and_error(column: &[f64]) -> (f64, f64) {
    let n = column.len() as f64;
    let mean = column.iter().sum::<f64>() / n;
    let squares: f64 = column.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, squares / ((n - 1.0).max(1.0) * n))
}

/// The table of pooled means.
fn pooled(draws: &[Vec<(f64, f64)>], names: Option<&[String]>) -> anyhow::Result<String> {
    let mut lines = vec![["column", "mean", "standard error", "missing information"].map(str::to_owned)];
    for column in 0..draws[0].len() {
        let (means, variances): (Vec<f64>, Vec<f64>) = draws.iter().map(|draw| draw[column]).unzip();
        let pooled = Pooled::of(&means, &variances)?;
        let name = names.map_or_else(|| column.to_string(), |names| gmm_model::shown(&names[column]).into_owned());
        let [mean, error] = [pooled.estimate, pooled.variance().sqrt()].map(render::short);
        lines.push([name, mean, error, format!("{:.3}", pooled.missing_information())]);
    }
    let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |line: &[String; 4]| {
        let [name, numbers @ ..] = line;
        let rest: String = numbers.iter().zip(&widths[1..]).map(|(v, &w)| format!("  {v:>w$}")).collect();
        format!("{name:<0$}{rest}\n", widths[0])
    };
    Ok(lines.iter().map(line).collect())
}
