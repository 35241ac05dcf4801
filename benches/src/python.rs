//! Measures the overhead of the Python package over the Rust call: the same fit by both in turns, after checking the
//! answers.
//!
//! Both are timed from an array in memory to the fitted mixture, and both check every value for NaN and infinity once:
//! Python's class leaves that to `Dataset::new`, which is included in the Rust call's time. The ratio therefore shows
//! the cost of the binding only: the work that scikit-learn's interface requires before and after the fit, a thread,
//! and arrays for the result.

use anyhow::Result;
use gmm_bench::difference::relative;
use gmm_bench::pairs;
use gmm_bench::peer::Peer;
use gmm_bench::timing::once;
use gmm_host::{Engine, Fit, FitOptions, Init, fit};
use gmm_model::{Dataset, Matrix, Mixture, Precision};

use crate::cpu::Arguments;
use crate::definition::Shape;
use crate::setup::{self, Setup};
use crate::workload::{self, Workload};

const COLUMNS: &str = "precision,covariance,n,k,d,iterations,status,ms,ms_min,ms_max,\
                       python_ms,python_ms_min,python_ms_max,ratio,ratio_min,ratio_max,sklearn_ms,error,\
                       sklearn_error,pairs,others";

/// The shape fitted for a record; [`QUICK`] is for `--quick`.
const RECORD: Shape = Shape { n: 1_000_000, k: 8, d: 13 };
const QUICK: Shape = Shape { n: 20_000, k: 8, d: 13 };
/// Iterations of a fit: few, so that a fit's one-time costs show.
const ITERATIONS: usize = 5;
/// Maximum relative difference of the two calls' lower bounds. They differ because Python's start covariances are
/// converted to precisions and back.
const TOLERANCE: f64 = 1e-9;
/// As [`TOLERANCE`], for f32 rows on a GPU, where coefficients that differ in their last f64 bits may round to
/// different f32 values.
const TOLERANCE_ROUNDED: f64 = f32::EPSILON as f64;

/// Times one fit through the Rust call and from the Python package, in turns.
#[derive(clap::Args)]
pub(crate) struct PythonArguments {
    #[command(flatten)]
    common: Arguments,
    /// Engine of both calls: cpu, cuda, cuda:1, ..
    #[arg(long, default_value = "cpu")]
    device: String,
    /// The commit to name in the record, if the program runs outside the repository.
    #[arg(long)]
    commit: Option<String>,
}

/// Checks, times and records.
///
/// # Errors
/// If a program is missing, a file cannot be written, or an answer is wrong.
pub(crate) fn run(PythonArguments { common: arguments, device, commit }: &PythonArguments) -> Result<()> {
    let what = "milliseconds per fit, by the Rust call and by the Python package in turns";
    let mut setup = Setup::open(arguments, what, device, "gmm_rs_fit.py", commit.clone())?;
    eprintln!("{}{COLUMNS}", setup.facts);
    let mut lines = setup.record(arguments, "python", COLUMNS)?;
    let Setup { definition, engine, peer, threads, .. } = &mut setup;
    let (shape, pairs) = if arguments.quick { (QUICK, 3) } else { (RECORD, definition.record.pairs) };
    let workload = workload::generate(shape, definition.seed, &arguments.scratch)?;
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
            let case = Case { shape, precision, start: &start, options, threads: *threads, device };
            let (line, right) = case.run(engine.as_ref(), rows, peer, pairs)?;
            println!("{line}");
            lines.push(&line, right)?;
        }
    }
    lines.finish()
}

/// The rows as both programs read them. They are leaked, so that a `Dataset` can borrow them as Python's borrows an
/// array.
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
    /// Runs the case; returns its line, and whether the answer is right.
    fn run(&self, engine: &dyn Engine, rows: Rows, peer: &mut Peer, pairs: usize) -> Result<(String, bool)> {
        // The whole call is timed, as in Python: rows are checked, loaded, fitted and scored.
        let call = || -> Result<(f64, Fit)> { once(|| Ok(fit(engine, &Dataset::new(rows.matrix())?, &self.options)?)) };
        let found = call()?.1.summary.trace.last().copied().unwrap_or(f64::NAN);
        let theirs = |peer: &mut Peer, by: &str| peer.fit(by, ITERATIONS, self.threads);
        let error = |bound: f64| relative(bound, found);
        let python = error(theirs(peer, self.device)?.1);
        let (sklearn_seconds, sklearn) = theirs(peer, "sklearn")?;
        // `right` is false if the error is NaN.
        let is_rounded = engine.device_input().is_some() && self.precision == Precision::F32;
        let right = python <= if is_rounded { TOLERANCE_ROUNDED } else { TOLERANCE };

        let Shape { n, k, d } = self.shape;
        let mut fields = setup::key(self.precision, self.start.covariance_type(), &[n, k, d, ITERATIONS]);
        let id = peer.id();
        let time = || pairs::time(pairs, id, || Ok(call()?.0), || Ok(theirs(peer, self.device)?.0));
        let times = right.then(time).transpose()?;
        fields.extend(setup::times(times.as_ref(), 4));
        fields.push(setup::decimals(times.map(|_| 1e3 * sklearn_seconds), 1));
        fields.extend([python, error(sklearn)].map(|error| format!("{error:.1e}")));
        fields.extend([pairs.to_string(), setup::decimals(times.map(|times| times.others), 2)]);
        Ok((fields.join(","), right))
    }
}
