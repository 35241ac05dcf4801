//! Rows with sentinels (-9999, 1e20: "missing") among ordinary ones, and what every engine must make of them.

#![allow(unreachable_pub, dead_code, reason = "shared by several test programs")]

use gmm_host::{Engine, FitOptions, Likelihood, ReferenceEngine, evaluate, fit};
use gmm_model::{CovarianceType, Dataset, Draws, Precision};
use ndarray::Array2;

/// Where sentinels stand, and what is beside them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// In all columns.
    Everywhere,
    /// In the second column.
    OneColumn,
    /// In the second column, which is constant otherwise.
    Constant,
    /// In all columns, and the other rows lie at 1e4 (`f32`) or 1e8 (`f64`).
    Offset,
    /// As everywhere, with row weights.
    Weighted,
}

/// Values that stand for "missing" in files that people have, and larger ones.
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

/// Calls `see(what, error, allowed)` for every number that an engine gives on rows with sentinels, compared with the
/// reference: the fit that it reports, what the reference says of the fitted mixture, what a saved model would score, and the
/// value of a likelihood.
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
                    // Rounding of each row's term, and what iterations make of it.
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
                        // On a GPU sums of terms that cancel may cost a density of f64 rows 1e-9: see `cuda/digits.rs`.
                        allowed + 1e-9 * data.total_weight(),
                    );
                }
            }
        }
    }
}
