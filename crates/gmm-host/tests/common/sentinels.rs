//! Data with sentinel values (-9999, 1e20: "missing") among ordinary rows, and the results that every engine must give.

#![allow(unreachable_pub, dead_code, reason = "shared by several test programs")]

use gmm_host::{Engine, FitOptions, Likelihood, ReferenceEngine, evaluate, fit};
use gmm_model::{CovarianceType, Dataset, Draws, Precision};
use ndarray::Array2;

/// The position of the sentinels, and the other values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// In all columns.
    Everywhere,
    /// In the second column.
    OneColumn,
    /// In the second column, which is constant otherwise.
    Constant,
    /// In all columns, with the other rows around 1e4 (`f32`) or 1e8 (`f64`).
    Offset,
    /// As [`Everywhere`](Self::Everywhere), with row weights.
    Weighted,
}

/// Values that stand for "missing" in real files, and larger ones.
pub const SENTINELS: [f64; 12] = [-9999.0, -999.25, -1.0, 0.0, 99_999.0, 1e5, 1e6, 1e7, 1e10, 1e14, 1e20, 1e37];

/// 400 rows N(0, 1), 600 N(5, 2²) and 20 sentinels, in 3 columns.
pub fn rows(sentinel: f64, layout: Layout, precision: Precision) -> Dataset {
    let mut draws = Draws::for_purpose("sentinels", 1, 0);
    let offset = match (layout, precision) {
        (Layout::Offset, Precision::F32) => 1e4,
        (Layout::Offset, Precision::F64) => 1e8,
        _ => 0.0,
    };
    let rows = Array2::from_shape_fn((1020, 3), |(i, j)| {
        let draw = draws.normal();
        let value = if i < 400 { draw } else { 5.0 + 2.0 * draw };
        match layout {
            Layout::Constant if j == 1 => {
                if i < 1000 {
                    3.7
                } else {
                    sentinel
                }
            }
            Layout::OneColumn | Layout::Constant if j != 1 => value,
            _ if i < 1000 => offset + value,
            _ => sentinel,
        }
    });
    let data = match precision {
        Precision::F32 => Dataset::new(rows.mapv(|v| v as f32)),
        Precision::F64 => Dataset::new(rows),
    };
    let data = data.expect("finite rows");
    match layout {
        Layout::Weighted => data.with_weights((0..1020).map(|i| 0.5 + (i % 4) as f64).collect()).expect("weights"),
        _ => data,
    }
}

/// Compares an engine with the reference on rows with sentinels, and calls `see(what, error, allowed)` for each result:
/// the log-likelihood that the fit reports, that of the fitted mixture on the reference engine, that of a later
/// evaluation, and the value of a likelihood.
pub fn check(engine: &dyn Engine, mut see: impl FnMut(String, f64, f64)) {
    for precision in [Precision::F32, Precision::F64] {
        let eps = match precision {
            Precision::F32 => f64::from(f32::EPSILON),
            Precision::F64 => f64::EPSILON,
        };
        for layout in [Layout::Everywhere, Layout::OneColumn, Layout::Constant, Layout::Offset, Layout::Weighted] {
            for sentinel in SENTINELS {
                let data = rows(sentinel, layout, precision);
                for kind in CovarianceType::ALL {
                    let what = |of: &str| format!("{of}: {precision} {layout:?} {sentinel:e} {kind}");
                    let options = FitOptions { covariance_type: kind, ..FitOptions::new(3) };
                    let want = fit(&ReferenceEngine, &data, &options).expect("the reference").summary.log_likelihood;
                    let got = match fit(engine, &data, &options) {
                        Ok(got) => got,
                        Err(error) => {
                            see(what(&error.to_string()), f64::INFINITY, 0.0);
                            continue;
                        }
                    };
                    let reported = got.summary.log_likelihood;
                    // Allows for the rounding of each row's term, amplified by the iterations.
                    let allowed = 64.0 * eps * (want.abs() + 1020.0);
                    see(what("the fit"), (reported - want).abs(), allowed);
                    let score = |engine: &dyn Engine| {
                        evaluate::score(engine, &got.mixture, &data, precision).expect("a score").log_likelihood
                    };
                    see(what("the reference of the fitted"), (score(&ReferenceEngine) - reported).abs(), allowed);
                    see(what("the fitted again"), (score(engine) - reported).abs(), 0.0);
                    let mut likelihood = Likelihood::new(engine, &data, precision).expect("a likelihood");
                    see(
                        what("a likelihood"),
                        (likelihood.value(&got.mixture).expect("a value") - reported).abs(),
                        // On a GPU, cancellation may add an error of 1e-9 to the log density of an f64 row: see
                        // `cuda/em/error_bounds.rs`.
                        allowed + 1e-9 * data.total_weight(),
                    );
                }
            }
        }
    }
}
