//! `missing`: EM on rows with missing values and on the whole rows, in turns.
//!
//! The data: `K` centres uniform in a cube of side 10; each row belongs to a centre drawn uniformly, and has independent
//! standard normal columns about it. Then each value is missing with the stated share, by itself; a row keeps at least one.
//! EM starts at the true weights and covariances, at means off by a third of a deviation. Everything follows from the seed.

use std::time::Instant;

use anyhow::{Result, ensure};
use gmm_host::{Engine, FitOptions, Init, ReferenceEngine, Resident, fit};
use gmm_model::{CovarianceType, Covariances, Dataset, Draws, Mixture, Precision, Statistics};
use ndarray::{Array1, Array2, Array3, s};

use crate::large_k::error;
use crate::turns::{EngineTurns, TurnOptions};

/// Rows, columns and components.
const SIZE: (usize, usize, usize) = (100_000, 13, 8);

/// Rows of a quick run.
const QUICK: usize = 10_000;

/// Rows that the naive reference sums too.
const CHECKED: usize = 5_003;

/// Shares of missing values.
const SHARES: [f64; 3] = [0.01, 0.1, 0.3];

/// Iterations of a fit.
const ITERATIONS: usize = 20;

/// Largest error of a sum, relative to the largest entry of its array.
const ALLOWED: [(Precision, f64); 2] = [(Precision::F64, 1e-11), (Precision::F32, 2e-6)];

const COLUMNS: &str = "n,d,k,kind,precision,share,patterns,what,turn,ms,whole_ms,ratio,error";

/// Measures all shares, kinds and precisions, and writes the record.
///
/// # Errors
/// If a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &EngineTurns) -> Result<()> {
    let TurnOptions { quick, turns, seed, .. } = &arguments.common;
    let title = "milliseconds of EM on rows with missing values and on whole rows";
    let (engine, mut record) = arguments.open("missing", title, COLUMNS)?;

    let (n, d, k) = (if *quick { QUICK } else { SIZE.0 }, SIZE.1, SIZE.2);
    let (rows, means) = problem((n, d, k), *seed);
    let whole = Dataset::new(rows.clone())?;
    let shift = vec![5.0; d];
    let mut wrong = 0;
    for share in SHARES {
        let holes = with_holes(&rows, share, *seed);
        let patterns = patterns(&holes);
        let part = Dataset::with_holes(holes.slice(s![..CHECKED.min(n), ..]).to_owned())?;
        let holes = Dataset::with_holes(holes)?;
        for (kind, (precision, allowed)) in
            CovarianceType::ALL.into_iter().flat_map(|kind| ALLOWED.map(|precision| (kind, precision)))
        {
            let start = start(&means, kind)?;
            let pass = |engine: &dyn Engine, data: &Dataset| -> Result<Statistics> {
                Ok(engine.load(data, precision, &shift)?.pass(&start)?)
            };
            let error = error(&pass(&*engine, &part)?, &pass(&ReferenceEngine, &part)?);
            wrong += usize::from(error > allowed);
            let options = FitOptions {
                covariance_type: kind,
                precision: Some(precision),
                init: Init::Given(Box::new(start.clone())),
                max_iter: ITERATIONS,
                tol: 0.0,
                ..FitOptions::new(k)
            };
            let mut loaded = [&holes, &whole].map(|data| engine.load(data, precision, &shift));
            let mut push = |what: &str, turn: usize, [ms, whole_ms]: [f64; 2]| -> Result<()> {
                let ratio = ms / whole_ms;
                let line = format!(
                    "{n},{d},{k},{kind},{precision},{share},{patterns},{what},{turn},{ms:.3},{whole_ms:.3},{ratio:.2},\
                     {error:.1e}"
                );
                println!("{line}");
                record.push(&line)
            };
            for turn in 0..*turns {
                let mut times = [0.0; 2];
                for (rows, ms) in loaded.iter_mut().zip(&mut times) {
                    let rows: &mut dyn Resident = rows.as_mut().map_err(|error| anyhow::anyhow!("{error}"))?.as_mut();
                    // The first of a turn follows other rows, as in no fit.
                    rows.pass(&start)?;
                    let began = Instant::now();
                    rows.pass(&start)?;
                    *ms = 1e3 * began.elapsed().as_secs_f64();
                }
                push("pass", turn, times)?;
            }
            for turn in 0..*turns {
                let mut times = [0.0; 2];
                for (data, ms) in [&holes, &whole].into_iter().zip(&mut times) {
                    *ms = 1e3 * fit(&*engine, data, &options)?.elapsed.as_secs_f64();
                }
                push(&format!("fit of {ITERATIONS}"), turn, times)?;
            }
        }
    }
    ensure!(wrong == 0, "{wrong} answers were wrong");
    println!("{}", record.path().display());
    Ok(())
}

/// The whole rows, and the means of the start: see the head of this file.
pub(crate) fn problem((n, d, k): (usize, usize, usize), seed: u64) -> (Array2<f64>, Array2<f64>) {
    let draws = &mut Draws::for_purpose("missing", seed, 0);
    let centres = Array2::from_shape_simple_fn((k, d), || 10.0 * draws.uniform());
    let mut rows = Array2::zeros((n, d));
    for mut row in rows.outer_iter_mut() {
        let centre = centres.row(((draws.uniform() * k as f64) as usize).min(k - 1));
        row.iter_mut().zip(centre).for_each(|(x, c)| *x = c + draws.normal());
    }
    let means = centres.mapv(|c| c + draws.normal() / 3.0);
    (rows, means)
}

/// The rows with a share of their values missing; the first value of a row stays if no other does.
fn with_holes(rows: &Array2<f64>, share: f64, seed: u64) -> Array2<f64> {
    let draws = &mut Draws::for_purpose("missing values", seed, 0);
    let mut holes = rows.clone();
    for (mut row, whole) in holes.outer_iter_mut().zip(rows.outer_iter()) {
        row.iter_mut().filter(|_| draws.uniform() < share).for_each(|x| *x = f64::NAN);
        if row.iter().all(|x| x.is_nan()) {
            row[0] = whole[0];
        }
    }
    holes
}

/// Number of sets of observed columns.
fn patterns(rows: &Array2<f64>) -> usize {
    let pattern = |row: ndarray::ArrayView1<'_, f64>| row.iter().fold(0u64, |bits, x| 2 * bits + u64::from(x.is_nan()));
    rows.outer_iter().map(pattern).collect::<std::collections::BTreeSet<_>>().len()
}

/// The mixture at which EM starts.
pub(crate) fn start(means: &Array2<f64>, kind: CovarianceType) -> Result<Mixture> {
    let (k, d) = means.dim();
    let covariances = match kind {
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| f64::from(u8::from(i == j))))
        }
        CovarianceType::Tied => Covariances::Tied(Array2::eye(d)),
        CovarianceType::Diag => Covariances::Diag(Array2::ones((k, d))),
        CovarianceType::Spherical => Covariances::Spherical(Array1::ones(k)),
    };
    Ok(Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means.clone(), covariances)?)
}
