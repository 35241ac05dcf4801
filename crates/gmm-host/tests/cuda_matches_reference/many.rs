//! Many small fits in one launch, and fits of rows with missing values, against the CPU engine in f64.

use std::ops::Range;

use gmm_host::many::{Groups, fit_many};
use gmm_host::{FitOptions, Init};
use gmm_model::{CovarianceType, Dataset, Precision};

use crate::compare::Tally;
use crate::fits::{agree, clumps, compare};
use crate::{Bench, common, data};

/// Each fit of a call is the CPU engine's, from k-means on. With one restart: of two that end at the same place, rounding
/// decides which is better.
pub(crate) fn many(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick {
        vec![(20, 60, 3, 2)]
    } else {
        vec![(300, 100, 1, 3), (200, 300, 4, 3), (100, 131, 7, 2), (50, 1000, 2, 5), (7, 40, 13, 2)]
    };
    for (fits, n, d, k) in sizes {
        let all = clumps(fits * n, d, k);
        let all = if n % 2 == 1 { with_weights(all) } else { all };
        let groups: Vec<Range<usize>> = (0..fits).map(|fit| fit * n..(fit + 1) * n).collect();
        for kind in CovarianceType::ALL {
            let options = FitOptions {
                covariance_type: kind,
                max_iter: 10,
                tol: 0.0,
                precision: Some(Precision::F64),
                ..FitOptions::new(k)
            };
            let got = fit_many(&bench.gpu, &Groups::new(&all, &groups), &options);
            let want = fit_many(&bench.cpu, &Groups::new(&all, &groups), &options);
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let what = format!("{kind} n={n} d={d} k={k} group {i}");
                match (got, want) {
                    (Ok(got), Ok(want)) => agree(tally, got, want, Precision::F64, &what),
                    (got, want) => tally.expect(got.is_err() && want.is_err(), || format!("{what}: one fit failed")),
                }
            }
        }
    }
}

fn with_weights(rows: Dataset) -> Dataset {
    let weights = (0..rows.n_rows()).map(|i| 0.5 * (1 + i % 3) as f64).collect();
    rows.with_weights(weights).expect("weights")
}

/// Rows with missing values: a pattern in which nothing is missing, one of every column, and more.
pub(crate) fn missing(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick { vec![(500, 3, 2)] } else { vec![(1001, 3, 2), (20_000, 6, 3), (100_000, 13, 4)] };
    for (n, d, k) in sizes {
        let mut rows = data::rows_f32(n, d, 33);
        for (i, mut row) in rows.outer_iter_mut().enumerate() {
            for j in 0..d {
                // A tenth, and of each row at least one is observed.
                if data::noise((7 * i * d + j) as u64) > 1.28 && j != i % d {
                    row[j] = f32::NAN;
                }
            }
        }
        let holed = Dataset::with_holes(rows).expect("NaN counts as missing");
        let holed = if n % 2 == 1 { with_weights(holed) } else { holed };
        for kind in CovarianceType::ALL {
            for precision in [Precision::F32, Precision::F64] {
                let options = FitOptions {
                    covariance_type: kind,
                    init: Init::Given(Box::new(common::mixture(kind, k, d, 0.0, 2.0, 4))),
                    max_iter: 8,
                    tol: 0.0,
                    precision: Some(precision),
                    ..FitOptions::new(k)
                };
                compare(bench, tally, &holed, &options, &format!("{kind} {precision} n={n} d={d} k={k}"));
            }
        }
    }
}
