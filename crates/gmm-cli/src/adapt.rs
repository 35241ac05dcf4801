//! `gmm adapt`: moves a background model towards the rows of speakers.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use gmm_data::{ModelFile, Table};
use gmm_host::adapt::{Utterances, adapt_many, adapt_many_top, adapted_means_of_many, adapted_means_top};
use gmm_model::adapt::{AdaptOptions, AdaptRule, Supervector, supervector};
use gmm_model::{Dataset, Mixture};
use ndarray::{Array2, Array3, ArrayView2};

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console, is_stdio};
use crate::table_args::InputArgs;
use crate::utterances::{self, ByValue};

const EXAMPLES: &str = "\
Each component moves towards the rows that it is responsible for, as far as their number supports it (maximum a \
posteriori adaptation; Reynolds, Quatieri and Dunn 2000). Every input file is a speaker: with several of them, -o is a \
folder, which gets a model for each. With --by, every value of a column is a speaker, in all files together. Noise \
(gmm fit --noise) stays as it is, and each row counts as much as it is not noise.

Examples:
  gmm adapt ubm.json speaker.npy -o speaker.json
  gmm adapt ubm.json speaker.npy -o speaker.json --adapt means,variances,weights --relevance 10
  gmm adapt ubm.json a.npy b.npy c.npy -o speakers/
  gmm adapt ubm.json a.npy b.npy c.npy --supervectors means.npy --normalised
  gmm adapt ubm.json all.parquet --by speaker -o speakers/ --top 30
  gmm score speaker.json new.npy --background ubm.json --top 5";

/// Adapt a background model to the rows of one speaker or many
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdaptArgs {
    /// Background model: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Column of numbers: the rows of each value are a speaker. -o is then a folder, which gets a model VALUE.json for
    /// each, and --supervectors has the values as first column
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,
    /// Share each row among its C components of largest density only, as Kaldi does with gmm-gselect: faster on a CPU; of kind
    /// diag or spherical
    #[arg(long, value_name = "C", value_parser = args::at_least_one, allow_negative_numbers = true)]
    top: Option<usize>,
    /// Relevance factor: the weight of rows at which a component is halfway between the background and the rows
    #[arg(long, value_name = "R", default_value = "16", allow_hyphen_values = true)]
    relevance: f64,
    /// What is adapted: means, variances, weights
    #[arg(
        long,
        value_name = "WHAT,..",
        value_delimiter = ',',
        default_value = "means",
        value_parser = ["means", "variances", "weights"]
    )]
    adapt: Vec<String>,
    /// Rule for variances and weights: reynolds (the paper's) or kaldi
    #[arg(long, value_name = "RULE", default_value = "reynolds", value_parser = args::words::<AdaptRule>(&["reynolds", "kaldi"]))]
    rule: AdaptRule,
    #[command(flatten)]
    engine: EngineArgs,
    /// Output model: json or safetensors; for several speakers, a folder, which is created if it does not exist
    #[arg(short, long, value_name = "MODEL", required_unless_present = "supervectors")]
    output: Option<PathBuf>,
    /// Write the adapted means, one row of k*d numbers for each speaker: csv, tsv, npy, parquet or arrow
    #[arg(long, value_name = "OUT")]
    supervectors: Option<PathBuf>,
    /// Supervectors less those of the background, in standard deviations and times the roots of the weights (Campbell,
    /// Sturim and Reynolds 2006)
    #[arg(long, requires = "supervectors")]
    normalised: bool,
}

pub(crate) fn run(args: &AdaptArgs, console: &Console) -> anyhow::Result<()> {
    let files = args.input.source().files()?;
    let of_files = outputs(args, &files)?;
    let options = options(args)?;
    let (model, (data, values), opened) = input::model_rows_by_and_engine(
        (&args.model, args.input.source()),
        (args.weights.as_deref(), args.by.as_deref()),
        &args.engine,
        console,
    )?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let data = input::discounted(opened.engine.as_ref(), &model, data, precision)?;
    let ByValue { data, values, rows } = match (&args.by, values) {
        (Some(column), Some(values)) => utterances::by_value(data, &values, column)?,
        _ => ByValue { values: Vec::new(), rows: of_each(&data, files.len())?, data },
    };
    let outputs = match &args.by {
        Some(_) => outputs_by(args, &files, &values)?,
        None => of_files,
    };
    let utterances = Utterances { precision, ..Utterances::new(&data, &rows) };
    let started = Instant::now();
    let background = &model.mixture;
    let engine = opened.engine.as_ref();
    let adapted = match (args.top, means_alone(args, &options)) {
        (Some(top), Some(relevance)) => {
            Adapted::Means(adapted_means_top(engine, background, &utterances, top, relevance)?)
        }
        (Some(top), None) => Adapted::Mixtures(adapt_many_top(engine, background, &utterances, top, &options)?),
        (None, Some(relevance)) => Adapted::Means(adapted_means_of_many(engine, background, &utterances, relevance)?),
        (None, None) => Adapted::Mixtures(adapt_many(engine, background, &utterances, &options)?),
    };
    console.note(|| format!("adapted to {} speakers in {:.1?}", rows.len(), started.elapsed()));
    if let Some(path) = &args.supervectors {
        let form = if args.normalised { Supervector::Normalised } else { Supervector::Mean };
        let named = args.by.as_deref().map(|column| (column, values.as_slice()));
        write_supervectors(path, &adapted.means(), background, form, named)?;
    }
    let Adapted::Mixtures(adapted) = adapted else { return Ok(()) };
    let ModelFile { feature_names, storage, noise, .. } = model;
    for (path, mixture) in outputs.iter().zip(adapted) {
        let (feature_names, storage, noise) = (feature_names.clone(), storage.clone(), noise.clone());
        let new = ModelFile { feature_names, storage, noise, ..ModelFile::from(mixture) };
        output::write_model(path, &new)?;
        console.note(|| format!("wrote {}", path.display()));
    }
    Ok(())
}

/// What was adapted to each speaker.
enum Adapted {
    /// `(s, k, d)`: all that supervectors need, and a third of the memory of mixtures.
    Means(Array3<f64>),
    Mixtures(Vec<Mixture>),
}

impl Adapted {
    /// The means of each speaker, `(k, d)`.
    fn means(&self) -> Vec<ArrayView2<'_, f64>> {
        match self {
            Self::Means(all) => all.outer_iter().collect(),
            Self::Mixtures(all) => all.iter().map(Mixture::means).collect(),
        }
    }
}

/// The relevance factor of the means, if nothing else is adapted and no models are written.
fn means_alone(args: &AdaptArgs, options: &AdaptOptions) -> Option<f64> {
    let alone = args.output.is_none() && options.variances.is_none() && options.weights.is_none();
    options.means.filter(|_| alone)
}

/// The rows of each file.
fn of_each(data: &Dataset, files: usize) -> Result<Vec<Range<usize>>, Failure> {
    let speakers: Vec<Range<usize>> = data.parts().collect();
    if speakers.len() == files {
        return Ok(speakers);
    }
    Err(Failure::BadData(format!("{} of the {files} files have rows: leave the others out", speakers.len())))
}

fn options(args: &AdaptArgs) -> Result<AdaptOptions, Failure> {
    let of = |what: &str| args.adapt.iter().any(|word| word == what).then_some(args.relevance);
    let options =
        AdaptOptions { means: of("means"), variances: of("variances"), weights: of("weights"), rule: args.rule };
    options.validate().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(options)
}

/// The model files, one for each input file; none without `-o` or with `--by`. Checks that they can be written, and do not
/// replace the inputs or one another.
fn outputs(args: &AdaptArgs, files: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let inputs = input::with_model(files, &args.model);
    if let Some(path) = &args.supervectors {
        output::check_table_path(path)?;
        output::check_apart(path, &inputs)?;
    }
    let Some(path) = &args.output else { return Ok(Vec::new()) };
    if args.by.is_some() {
        if is_stdio(path) || output::is_model_path(path) {
            let why = "with --by every value is a speaker: -o must be a folder for their models";
            return Err(Failure::Usage(why.to_owned()).into());
        }
        return Ok(Vec::new());
    }
    if files.len() < 2 {
        output::check_model_path(path)?;
        output::check_apart(path, &input::with_model(files, Path::new("")))?;
        return Ok(vec![path.clone()]);
    }
    if is_stdio(path) || output::is_model_path(path) {
        let why = format!("{} files are as many speakers: -o must be a folder for their models", files.len());
        return Err(Failure::Usage(why).into());
    }
    let mut all: Vec<PathBuf> = Vec::with_capacity(files.len());
    for file in files {
        let stem = file.file_stem().unwrap_or(file.as_os_str());
        let mut name = stem.to_owned();
        name.push(".json");
        let to = path.join(name);
        if all.contains(&to) {
            let why = format!("two input files have the name {}: their models would be one file", stem.display());
            return Err(Failure::Usage(why).into());
        }
        output::check_apart(&to, &inputs)?;
        all.push(to);
    }
    output::create_folder(path)?;
    Ok(all)
}

/// The model files of `--by`, one for each value.
fn outputs_by(args: &AdaptArgs, files: &[PathBuf], values: &[f64]) -> anyhow::Result<Vec<PathBuf>> {
    let Some(folder) = &args.output else { return Ok(Vec::new()) };
    let all: Vec<PathBuf> = values.iter().map(|value| folder.join(format!("{value}.json"))).collect();
    let inputs = input::with_model(files, &args.model);
    all.iter().try_for_each(|path| output::check_apart(path, &inputs))?;
    output::create_folder(folder)?;
    Ok(all)
}

/// Writes a row for each speaker, which begins with the value of a column if the speakers have one.
fn write_supervectors(
    path: &Path,
    means: &[ArrayView2<'_, f64>],
    background: &Mixture,
    form: Supervector,
    by: Option<(&str, &[f64])>,
) -> anyhow::Result<()> {
    let (k, d) = background.means().dim();
    let width = k * d + usize::from(by.is_some());
    let mut values = Vec::with_capacity(means.len() * width);
    for (i, of_speaker) in means.iter().enumerate() {
        values.extend(by.map(|(_, all)| all[i]));
        values.extend(supervector(*of_speaker, background, form)?);
    }
    let of_means = (0..k).flat_map(|c| (0..d).map(move |j| format!("m{c}_{j}")));
    let names = by.map(|(column, _)| column.to_owned()).into_iter().chain(of_means).collect();
    let values = Array2::from_shape_vec((means.len(), width), values).expect("a row for each");
    let _whole = output::hold(path);
    Ok(gmm_data::write_table(path, &Table::with_names(values, names)?)?)
}
