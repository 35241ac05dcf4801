//! `end-to-end`: what a user waits for, from the start of a process to its result on disk, with other programs beside
//! it.

mod calls;
mod case;
mod child;
mod data;
mod ours;
mod peers;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use gmm_bench::hardware::{self, Hardware};
use gmm_bench::record::{Csv, Facts};
use gmm_bench::timing::Limits;
use gmm_bench::{Shape, Status, machine};
use gmm_host::Device;
use gmm_model::Precision;

use self::calls::Calls;
use self::case::{COLUMNS, Case, Line};
use self::data::Table;
use self::ours::Ours;
use self::peers::{Checked, Peers};

/// Times whole processes: reads and fits of files by gmm and by other programs, and calls from Python.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program to measure.
    #[arg(long, default_value = "gmm")]
    program: PathBuf,
    /// Engines: cpu, cuda, cuda:1, ..
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    engine: Vec<String>,
    /// A Python with the other programs, as far as they are installed, and gmm_rs.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Rows of the f32 table in npy, npz, parquet and arrow.
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// Its columns.
    #[arg(long, default_value_t = 16)]
    columns: usize,
    /// Rows of the f64 table in npy and csv.
    #[arg(long, default_value_t = 1_000_000)]
    csv_rows: usize,
    /// Its columns.
    #[arg(long, default_value_t = 13)]
    csv_columns: usize,
    /// Rows of the arrays that Python passes on the CPU.
    #[arg(long, default_value_t = 1_000_000)]
    call_rows: usize,
    /// Rows of the arrays that Python passes on a GPU.
    #[arg(long, default_value_t = 10_000_000)]
    call_rows_gpu: usize,
    /// Number of components.
    #[arg(short, default_value_t = 16)]
    k: usize,
    /// EM iterations of a fit.
    #[arg(long, default_value_t = 20)]
    iterations: usize,
    /// Runs of each command.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds of one command's runs after which it is not run again.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Tables of 2000 rows: tries the program, not the machine.
    #[arg(long)]
    quick: bool,
    /// Folder for the files, which are removed at the end.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
    /// The .csv file to write, or the folder for MACHINE/DATE-end-to-end.csv.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to name in the record, if the program runs outside the repository.
    #[arg(long)]
    commit: Option<String>,
    /// A note for the head of the record; may be repeated.
    #[arg(long)]
    note: Vec<String>,
}

/// Rows with `--quick`.
const QUICK: usize = 2000;

/// Checks, times and records.
///
/// # Errors
/// If an engine or the program is missing, a file cannot be written, or an answer of ours is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = arguments.folder.join(format!("end-to-end-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let done = measure(arguments, &folder);
    let removed = std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()));
    done.and(removed)
}

fn measure(arguments: &Arguments, folder: &Path) -> Result<()> {
    let peers = arguments.python.as_deref().map(|python| Peers { python, folder });
    let (facts, slug) = head(arguments, peers.as_ref())?;
    let stem = format!("{}-end-to-end", machine::today());
    let mut record = Csv::create(&arguments.out, &slug, &stem, &facts, COLUMNS)?;
    println!("{facts}{COLUMNS}");
    let mut wrong = 0;
    let mut push = |lines: Vec<Line>| -> Result<()> {
        for line in lines {
            wrong += usize::from(line.status == Status::Wrong && line.program.starts_with("gmm"));
            println!("{}", line.text());
            record.push(&line.text())?;
        }
        Ok(())
    };
    let size = |rows: usize| if arguments.quick { QUICK.min(rows) } else { rows };
    let k = arguments.k;
    let floats = (Shape { n: size(arguments.rows), k, d: arguments.columns }, Precision::F32);
    let doubles = (Shape { n: size(arguments.csv_rows), k, d: arguments.csv_columns }, Precision::F64);
    for (kind, formats) in [(floats, &["npz", "parquet", "arrow"][..]), (doubles, &["csv"])] {
        let table = Table::write(&arguments.program, kind, formats, folder)?;
        push(files(arguments, &table, folder, peers.as_ref())?)?;
        for (_, file) in &table.files {
            std::fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    if let Some(python) = &arguments.python {
        let shape = Shape { n: size(arguments.call_rows), ..floats.0 };
        let gpu_rows = size(arguments.call_rows_gpu);
        let calls = Calls { shape, gpu_rows, iterations: arguments.iterations, runs: arguments.runs };
        for engine in &arguments.engine {
            push(calls.run(python, engine)?)?;
        }
    }
    eprintln!("recorded in {}", record.path().display());
    ensure!(wrong == 0, "{wrong} answers were wrong and not timed");
    Ok(())
}

/// The head of the record, and the name of its folder: the GPU's, if an engine is one.
fn head(arguments: &Arguments, peers: Option<&Peers<'_>>) -> Result<(Facts, String)> {
    let Arguments { engine, k, iterations, runs, seconds, commit, note, .. } = arguments;
    let named = engine.iter().find(|name| name.starts_with("cuda")).or(engine.first()).context("no engine is given")?;
    let Hardware { slug, facts: hardware } = hardware::describe(named.parse::<Device>()?.open(0)?.engine.as_ref());
    let commit = commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let command = format!("gmm fit FILE -k {k} --max-iter {iterations} --tol 0 -o MODEL --device {}", engine.join("|"));
    let what = "end-to-end: milliseconds from the start of a process to its result, files in the page cache";
    let mut facts = Facts::new(what, commit, &command);
    facts.extend(hardware);
    facts.add("program", machine::output(&arguments.program.to_string_lossy(), &["--version"]));
    if let Some(peers) = peers {
        facts.extend(peers.versions()?);
    }
    facts.add("note", format!("the median of up to {runs} runs in turns; no further run after {seconds} s"));
    facts.extend(note.iter().map(|note| ("note", note.clone())));
    Ok((facts, slug))
}

/// The lines of a table's files: checks every program, then times those that are right, in turns.
fn files(arguments: &Arguments, table: &Table, folder: &Path, peers: Option<&Peers<'_>>) -> Result<Vec<Line>> {
    let ours = Ours { program: &arguments.program, folder, iterations: arguments.iterations };
    let (mut cases, mut lines) = (Vec::new(), Vec::new());
    for engine in &arguments.engine {
        let (right, wrong) = ours.cases(table, engine)?;
        cases.extend(right);
        lines.extend(wrong);
    }
    if let Some(peers) = peers {
        let (right, without) = split(peers.readers(table).into_iter().chain(fits(arguments, table, &ours, peers)?));
        cases.extend(right);
        lines.extend(without);
    }
    case::time(&mut cases, Limits { repeats: arguments.runs, seconds: arguments.seconds })?;
    lines.extend(cases.into_iter().map(|case| case.line));
    lines.sort_by(|a, b| a.what.cmp(&b.what).then_with(|| a.format.cmp(&b.format)));
    Ok(lines)
}

/// Fits of a table's csv or npy file from the same start by ours and scikit-learn, and scikit-learn's from random rows.
fn fits(arguments: &Arguments, table: &Table, ours: &Ours<'_>, peers: &Peers<'_>) -> Result<Vec<Checked>> {
    let start = ours.start(table)?;
    // Text, where there is some; else npy, which scikit-learn's users have.
    let at = table.files.iter().position(|(format, _)| *format == "csv").unwrap_or(0);
    let mut all = Vec::new();
    let mut wanted = None;
    for engine in &arguments.engine {
        let case = ours.fit_from(table, at, engine, &start)?;
        wanted = wanted.or(case.line.log_likelihood);
        all.push(Ok(case));
    }
    let wanted = wanted.context("the fit has no trace: --iterations must be at least 1")?;
    all.push(peers.fit(table, at, arguments.iterations, Some((&start, wanted))));
    all.push(peers.fit(table, at, arguments.iterations, None));
    Ok(all)
}

fn split(all: impl IntoIterator<Item = Checked>) -> (Vec<Case>, Vec<Line>) {
    let (mut right, mut without) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(case) => right.push(case),
            Err(line) => without.push(*line),
        }
    }
    (right, without)
}
