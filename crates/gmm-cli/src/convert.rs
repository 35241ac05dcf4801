//! `gmm convert`: converts a table or a model to another format.

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_data::{ExchangeFormat, Format};
use gmm_model::Precision;

use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console, is_model_path, is_stdio};
use crate::table_args::TableArgs;

const EXAMPLES: &str = "\
The format follows from the extension: json and safetensors are models; csv, tsv, txt, npy, npz (read only), parquet \
and arrow are tables. All values are preserved exactly; npy files have no column names.

A model is also written as onnx: standard operators (opset 13) for onnxruntime and other programs. The input X, (N, d), \
and the outputs label, responsibilities and log_density are those of gmm predict and gmm score, in --precision. \
Models by variational Bayes are refused.

Other programs: dubm and ubm are Kaldi's mixtures as text, <DiagGMM> and <FullGMM>; mclust is the list of a fit by R's mclust \
as JSON, for jsonlite. All commands read these forms too, under any name.

Examples:
  gmm convert rows.csv rows.npy
  gmm convert arrays.npz:X rows.parquet
  gmm convert model.json model.safetensors
  gmm convert model.json model.onnx --precision f64
  gmm convert final.dubm model.json
  gmm convert model.json fit.mclust
  gmm convert rows.parquet - | head
  gmm convert excel.txt rows.csv --separator ';' --decimal , --columns '!id'";

/// Convert a table or a model to another format
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// Table or model to convert; - is a table on standard input
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// Output file, in the format of its extension; - is standard output, as csv for a table or JSON for a model
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// Precision of an onnx model, and of the rows that it takes: f32 or f64 [default: f32, as most programs expect]
    #[arg(long, value_name = "P")]
    precision: Option<Precision>,
    #[command(flatten)]
    table: TableArgs,
}

pub(crate) fn run(args: &ConvertArgs, console: &Console) -> anyhow::Result<()> {
    output::check_apart(&args.to, &[&args.from])?;
    // A compressed model goes to the reader of models, which reports that it cannot be read.
    let packed =
        args.from.extension().is_some_and(|e| ["gz", "zst"].iter().any(|packed| e.eq_ignore_ascii_case(packed)));
    let to_model = is_model(&args.to) || is_onnx(&args.to);
    // Other programs write models with any extension, except those of tables.
    let model = is_model(&args.from)
        || (packed && is_model(&args.from.with_extension("")))
        || (to_model && !is_stdio(&args.from) && Format::of_path(&args.from).is_err());
    if is_onnx(&args.from) {
        let why = format!("{}: onnx models are written, not read: give the model file", args.from.display());
        return Err(Failure::Usage(why).into());
    }
    if args.precision.is_some() && !is_onnx(&args.to) {
        return Err(Failure::Usage("--precision is that of an onnx model: name the output *.onnx".to_owned()).into());
    }
    if !is_stdio(&args.to) && model != to_model && !is_stdio(&args.from) {
        let what = |model| if model { "a model" } else { "a table" };
        let (from, to) = (args.from.display(), args.to.display());
        let why = format!("{from} is {}, but {to} would be {}", what(model), what(!model));
        return Err(Failure::Usage(why).into());
    }
    if to_model {
        args.table.refuse("for a model")?;
    }
    if is_onnx(&args.to) {
        output::check_folder(&args.to)?;
        let model = input::model(&args.from)?;
        let _whole = output::hold(&args.to);
        gmm_data::write_onnx(&args.to, &model, args.precision.unwrap_or(Precision::F32))?;
    } else if let Some(format) = ExchangeFormat::of_path(&args.to) {
        output::check_folder(&args.to)?;
        let model = input::model(&args.from)?;
        let _whole = output::hold(&args.to);
        gmm_data::write_exchange(&args.to, &model, format)?;
    } else if model || is_model_path(&args.to) {
        output::check_model_path(&args.to)?;
        output::write_model(&args.to, &input::model(&args.from)?)?;
    } else {
        output::check_table_path(&args.to)?;
        let table = gmm_data::read_table(&args.from, &args.table.options())?;
        input::warn(&table, console);
        let _whole = output::hold(&args.to);
        gmm_data::write_table(&args.to, &table)?;
    }
    console.note(|| format!("wrote {}", args.to.display()));
    Ok(())
}

/// Whether a path has the extension of a model that can be read.
fn is_model(path: &Path) -> bool {
    is_model_path(path) || ExchangeFormat::of_path(path).is_some()
}

/// Whether a path has the extension of an ONNX model.
fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"))
}
