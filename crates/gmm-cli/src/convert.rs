//! `gmm convert`: converts a table or a model to another format.

use std::path::PathBuf;

use clap::Args;

use crate::args::TableArgs;
use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console, is_model_path, is_stdio};

const EXAMPLES: &str = "\
The format follows from the extension: json and safetensors are models; csv, tsv, txt, npy, npz (read only), parquet \
and arrow are tables. All values are preserved exactly; npy files have no column names.

Examples:
  gmm convert rows.csv rows.npy
  gmm convert arrays.npz:X rows.parquet
  gmm convert model.json model.safetensors
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
    #[command(flatten)]
    table: TableArgs,
}

pub(crate) fn run(args: &ConvertArgs, console: &Console) -> anyhow::Result<()> {
    output::check_apart(&args.to, &[&args.from])?;
    // A compressed model goes to the reader of models, which reports that it cannot be read.
    let packed =
        args.from.extension().is_some_and(|e| ["gz", "zst"].iter().any(|packed| e.eq_ignore_ascii_case(packed)));
    let model = is_model_path(&args.from) || (packed && is_model_path(&args.from.with_extension("")));
    if !is_stdio(&args.to) && model != is_model_path(&args.to) && !is_stdio(&args.from) {
        let what = |model| if model { "a model" } else { "a table" };
        let (from, to) = (args.from.display(), args.to.display());
        let why = format!("{from} is {}, but {to} would be {}", what(model), what(!model));
        return Err(Failure::Usage(why).into());
    }
    if model || is_model_path(&args.to) {
        output::check_model_path(&args.to)?;
        output::write_model(&args.to, &input::any_model(&args.from)?)?;
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
