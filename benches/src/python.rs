//! What the Python package costs beyond the Rust call: the same fit by both in turns, answers checked first.
//!
//! Both sides are timed from an array in memory to the fitted mixture, and both look once at every number for one that is
//! none: Python's class leaves that to `Dataset::new`, which is in the Rust call's time too. So the ratio is that of the
//! binding alone: what scikit-learn's interface asks for before and after, a thread, and arrays for the result.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Result, bail};
use gmm_host::{Device, Engine, Fit, FitOptions, Init, fit};
use gmm_model::{Dataset, Matrix, Mixture, Precision};

use crate::contest::{self, DISTURBED, Times};
use crate::cpu::Arguments;
use crate::definition::{self, Shape};
use crate::peer::Peer;
use crate::workload::{self, Workload};
use crate::{machine, record};

const COLUMNS: &str = "precision,covariance,n,k,d,iterations,status,ms,ms_min,ms_max,\
                       python_ms,python_ms_min,python_ms_max,ratio,ratio_min,ratio_max,sklearn_ms,error,\
                       sklearn_error,pairs,others";

/// What is fitted for a record, and for `--quick`.
const RECORD: Shape = Shape { n: 1_000_000, k: 8, d: 13 };
const QUICK: Shape = Shape { n: 20_000, k: 8, d: 13 };
/// Iterations of a fit: few, so that what is done once for a fit counts.
const ITERATIONS: usize = 5;
/// How far the lower bounds of the two calls may differ, relative to their size: Python's start goes by way of
/// precisions.
const TOLERANCE: f64 = 1e-9;
/// The same of f32 rows on a GPU: coefficients that differ in their last bits may be rounded to different f32 there.
const TOLERANCE_ROUNDED: f64 = f32::EPSILON as f64;

/// Times one fit by the Rust call and by the Python package in turns.
#[derive(clap::Args)]
pub(crate) struct PythonArguments {
    #[command(flatten)]
    common: Arguments,
    /// Engine of both: cpu, cuda, cuda:1, ..
    #[arg(long, default_value = "cpu")]
    device: String,
    /// The commit to be named in the record, where there is no repository to ask.
    #[arg(long)]
    commit: Option<String>,
}

/// Checks, times and records.
///
/// # Errors
/// Where a program is missing, a file cannot be written, or an answer is wrong.
pub(crate) fn run(PythonArguments { common: arguments, device, commit }: &PythonArguments) -> Result<()> {
    let definition = definition::read(&arguments.root.join("benches/definitions/cpu.toml"))?;
    let (shape, pairs) = if arguments.quick { (QUICK, 3) } else { (RECORD, definition.record.pairs) };
    let threads = arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let engine = Device::from_str(device)?.open(threads)?.engine;
    let mut peer = Peer::start(&arguments.python, &arguments.root.join("benches/peers/gmm_rs_fit.py"), threads)?;
    let mut machine = machine::describe();
    if engine.device_input().is_some() {
        // A GPU's records lie under its name.
        machine.slug = machine::slug(engine.description().split(',').next().unwrap_or_default());
    }
    let header = record::Header {
        what: "milliseconds per fit, by the Rust call and by the Python package in turns",
        machine: &machine,
        commit: commit.clone().unwrap_or_else(|| machine::commit(&arguments.root)),
        command: &arguments.command,
        threads,
        engine: engine.description(),
        peer: peer.versions()?,
    };
    let mut text = format!("{}{COLUMNS}\n", header.lines());
    eprint!("{text}");
    let workload = workload::generate(shape, definition.seed, &arguments.scratch)?;
    let mut wrong = 0;
    for &precision in &definition.precisions {
        let rows = rows(&workload, precision);
        peer.load(&workload.path, precision)?;
        for &kind in &definition.covariances {
            let start = workload.start(kind);
            peer.start_from(&start, definition.reg_covar)?;
            let options = FitOptions {
                covariance_type: kind,
                init: Init::Given(Box::new(start.clone())),
                tol: 0.0,
                max_iter: ITERATIONS,
                reg_covar: definition.reg_covar,
                ..FitOptions::new(shape.k)
            };
            let case = Case { shape, precision, start: &start, options, threads, device };
            let (line, right) = case.run(engine.as_ref(), rows, &mut peer, pairs)?;
            println!("{line}");
            let _ = writeln!(text, "{line}");
            wrong += usize::from(!right);
        }
    }
    let path = record::keep(&arguments.record, &machine, "python", &text)?;
    eprintln!("recorded in {}", path.display());
    if wrong > 0 { bail!("{wrong} answers were wrong and not timed") } else { Ok(()) }
}

/// The rows as both programs read them: for good, so that a data set can borrow them as Python's borrows an array.
fn rows(workload: &Workload, precision: Precision) -> Rows {
    match precision {
        Precision::F64 => Rows::F64(Box::leak(Box::new(workload.rows.clone()))),
        Precision::F32 => Rows::F32(Box::leak(Box::new(workload.rows.mapv(|v| v as f32)))),
    }
}

/// Rows of either precision, `(n, d)`.
#[derive(Clone, Copy)]
enum Rows {
    F64(&'static ndarray::Array2<f64>),
    F32(&'static ndarray::Array2<f32>),
}

impl Rows {
    fn matrix(self) -> Matrix {
        match self {
            Self::F64(rows) => rows.view().into(),
            Self::F32(rows) => rows.view().into(),
        }
    }
}

/// One line of the record.
struct Case<'a> {
    shape: Shape,
    precision: Precision,
    start: &'a Mixture,
    options: FitOptions,
    threads: usize,
    device: &'a str,
}

impl Case<'_> {
    /// The line, and whether the answer is right.
    fn run(&self, engine: &dyn Engine, rows: Rows, peer: &mut Peer, pairs: usize) -> Result<(String, bool)> {
        // What a call does in either language, all of it timed: the rows are checked, loaded, fitted and scored.
        let call = || -> Result<(f64, Fit)> {
            let begin = Instant::now();
            let fitted = fit(engine, &Dataset::new(rows.matrix())?, &self.options)?;
            Ok((begin.elapsed().as_secs_f64(), fitted))
        };
        let found = call()?.1.summary.trace.last().copied().unwrap_or(f64::NAN);
        let theirs = |peer: &mut Peer, by: &str| peer.fit(by, ITERATIONS, self.threads);
        let error = |bound: f64| ((bound - found) / found).abs();
        let python = error(theirs(peer, self.device)?.1);
        let (sklearn_seconds, sklearn) = theirs(peer, "sklearn")?;
        // A NaN is wrong.
        let is_rounded = engine.device_input().is_some() && self.precision == Precision::F32;
        let right = python <= if is_rounded { TOLERANCE_ROUNDED } else { TOLERANCE };

        let Shape { n, k, d } = self.shape;
        let mut fields = vec![self.precision.to_string(), self.start.covariance_type().to_string()];
        fields.extend([n, k, d, ITERATIONS].map(|size| size.to_string()));
        let mut disturbed = String::new();
        if right {
            let id = peer.id();
            let Times { ours, peer, ratio, others } =
                contest::time(pairs, id, || Ok(call()?.0), || Ok(theirs(peer, self.device)?.0))?;
            disturbed = format!("{others:.2}");
            fields.push(if others > DISTURBED { "disturbed" } else { "ok" }.to_owned());
            for (spread, scale) in [(ours, 1e3), (peer, 1e3), (ratio, 1.0)] {
                fields.extend([spread.median, spread.min, spread.max].map(|v| format!("{:.4}", scale * v)));
            }
            fields.push(format!("{:.1}", 1e3 * sklearn_seconds));
        } else {
            fields.push("wrong".to_owned());
            fields.extend(vec![String::new(); 10]);
        }
        fields.extend([python, error(sklearn)].map(|error| format!("{error:.1e}")));
        fields.extend([pairs.to_string(), disturbed]);
        debug_assert_eq!(fields.len(), COLUMNS.split(',').count());
        Ok((fields.join(","), right))
    }
}
