//! `gmm matmul`: the product of two matrices read from files.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use gmm_data::Table;
use gmm_host::products::Scalar;
use gmm_host::{Engine, ResidentMatrix, Work};
use gmm_model::{Matrix, Precision, RowArray};
use ndarray::Array2;

use crate::args::EngineArgs;
use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::table_args::ReadingArgs;
use crate::{input, opening};

const EXAMPLES: &str = "\
Sums are float64: float32 numbers are multiplied exactly, added in float64 and rounded once. With --fast, 256 products \
at a time are added in float32.

On a GPU, a float32 product with at least 2^31 multiplications is computed as three split-fp16 products, with an error \
of about 2^-22 times the norms of the row of A and the column of B; with --fast as one fp16 product, with an error of \
about 2^-12 times these norms.

NaN and infinity in A or B propagate to the entries that depend on them; a warning reports their number.

Examples:
  gmm matmul a.npy b.npy -o c.npy
  gmm matmul pages.npy questions.npy --transpose-b -o scores.npy
  gmm matmul rows.csv axes.csv | head";

/// Multiply two matrices
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MatmulArgs {
    /// Left matrix: csv, tsv, txt, npy, npz (FILE.npz:NAME), parquet or arrow; - is standard input
    a: PathBuf,
    /// Right matrix, in the same formats
    b: PathBuf,
    /// Multiply by the transpose of B: inner products of the rows of A with the rows of B
    #[arg(long)]
    transpose_b: bool,
    /// Sum float32 products in float32, 256 at a time: up to twice as fast, with an additional relative error of about
    /// 1e-7; see below for GPUs
    #[arg(long)]
    fast: bool,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Write the product to an npy, csv, tsv, parquet or arrow file [default: csv on standard output]
    #[arg(short, long, value_name = "C", default_value = "-", hide_default_value = true)]
    output: PathBuf,
}

pub(crate) fn run(args: &MatmulArgs, console: &Console) -> anyhow::Result<()> {
    if is_stdio(&args.a) && is_stdio(&args.b) {
        return Err(Failure::Usage("only one matrix can come from standard input".to_owned()).into());
    }
    output::check_table_path(&args.output)?;
    output::check_apart(&args.output, &[&args.a, &args.b])?;
    let read = |path: &Path| gmm_data::read_table(path, &args.reading.options());
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    [&a, &b].into_iter().for_each(|table| input::warn(table, console));
    check(args, &a, &b)?;
    // The product has the column names of B.
    let names = b.names.filter(|_| !args.transpose_b);
    let both = [a.matrix.precision(), b.matrix.precision()];
    let own = if both == [Precision::F32; 2] { Precision::F32 } else { Precision::F64 };
    let ((m, k), (p, q)) = (a.matrix.dim(), b.matrix.dim());
    let work = Work::product(m, if args.transpose_b { p } else { q }, k, own);
    let opened = opening::open(&args.engine, args.reading.memory, &work, console)?;
    let product: Matrix = match args.engine.precision().unwrap_or(own) {
        Precision::F32 => {
            let (a, b) = (as_f32(a.matrix, &args.a)?, as_f32(b.matrix, &args.b)?);
            multiply(args, opened.engine.as_ref(), a, b, console)?.into()
        }
        Precision::F64 => multiply(args, opened.engine.as_ref(), as_f64(a.matrix), as_f64(b.matrix), console)?.into(),
    };
    let table = match names {
        Some(names) => Table::with_names(product, names)?,
        None => Table::new(product),
    };
    let _whole = output::hold(&args.output);
    Ok(gmm_data::write_table(&args.output, &table)?)
}

/// Errors, with the file names, if the shapes do not match.
fn check(args: &MatmulArgs, a: &Table, b: &Table) -> Result<(), Failure> {
    let (what, found, other) =
        if args.transpose_b { ("columns", b.n_columns(), b.n_rows()) } else { ("rows", b.n_rows(), b.n_columns()) };
    let k = a.n_columns();
    if found == k {
        return Ok(());
    }
    let hint = match (other == k, args.transpose_b) {
        (true, true) => ": omit --transpose-b",
        (true, false) => ": use --transpose-b to multiply by its transpose",
        (false, _) => "",
    };
    let (a, b) = (input::display(&args.a), input::display(&args.b));
    Err(Failure::BadData(format!("{a} has {k} columns, but {b} has {found} {what}{hint}")))
}

fn multiply<T: Scalar>(
    args: &MatmulArgs,
    engine: &dyn Engine,
    a: RowArray<T>,
    b: RowArray<T>,
    console: &Console,
) -> anyhow::Result<Array2<T>> {
    let started = Instant::now();
    let a = ResidentMatrix::of_rows(engine, a)?;
    let fast = args.fast || args.engine.fast();
    let a = if fast { a.fast() } else { a };
    let b = if args.transpose_b { b.t() } else { b.view() };
    let product = a.matmul(b).with_context(|| format!("{} × {}", input::display(&args.a), input::display(&args.b)))?;
    let ((m, k), n) = (a.dim(), b.ncols());
    if fast {
        console.tell(fast_bound(engine, size_of::<T>() == 4));
    }
    console.note(|| format!("multiplied {m} × {k} by {k} × {n} in {:.1?}", started.elapsed()));
    let strange = product.iter().filter(|v| !v.to_f64().is_finite()).count();
    if strange > 0 {
        console.warn(&format!(
            "{strange} of {} entries of the product are NaN or infinite: an input has NaN or infinity, or sums overflow",
            product.len()
        ));
    }
    Ok(product)
}

/// The error bound of `--fast`: see [`ResidentMatrix::fast`].
fn fast_bound(engine: &dyn Engine, single: bool) -> &'static str {
    match (single, engine.device_input().is_some()) {
        (false, _) => "fast: no effect on the accuracy of float64 products",
        (true, false) => {
            "fast: the error of an entry is at most 2^-16, and typically 2^-21, of the sum of its absolute products"
        }
        (true, true) => {
            "fast: with at least 2^31 multiplications, the error of an entry is at most 2^-9, and typically 2^-12, of \
             the product of the norms of its row and column; with fewer, it is only the rounding of the result"
        }
    }
}

/// Rounds to f32. Errors if a finite number overflows, since the result would be indistinguishable from an infinity in
/// the data.
fn as_f32(matrix: Matrix, path: &Path) -> Result<RowArray<f32>, Failure> {
    let a = match matrix {
        Matrix::F32(a) => return Ok(a),
        Matrix::F64(a) => a,
    };
    let beyond = |v: &f64| v.is_finite() && !(*v as f32).is_finite();
    if let Some(((row, column), v)) = a.indexed_iter().find(|(_, v)| beyond(v)) {
        let place = format!("{}: row {row}, column {column}", input::display(path));
        return Err(Failure::BadData(format!("{place}: {v:e} is beyond the range of f32: use --precision f64")));
    }
    Ok(a.mapv(|v| v as f32).into())
}

fn as_f64(matrix: Matrix) -> RowArray<f64> {
    match matrix {
        Matrix::F32(a) => a.mapv(f64::from).into(),
        Matrix::F64(a) => a,
    }
}
