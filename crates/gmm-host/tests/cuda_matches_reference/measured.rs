//! Rows with measurement errors: passes and evaluations against the CPU engine, or the naive reference if there are few rows.

use gmm_host::{Engine, EvaluateOptions, ReferenceEngine, Resident};
use gmm_model::deconvolution::MeasurementErrors;
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};
use ndarray::{Array2, Array3};

use crate::compare::Tally;
use crate::{Bench, common, data};

/// Deviations from 0 to 2, of which some are 0.
fn independent(n: usize, d: usize) -> MeasurementErrors {
    let deviation = |(i, j): (usize, usize)| data::noise((11 * i * d + j) as u64).clamp(0.0, 2.0);
    MeasurementErrors::from_deviations(Array2::from_shape_fn((n, d), deviation)).expect("deviations")
}

/// Covariances of all ranks from 0 to `d`.
fn correlated(n: usize, d: usize) -> MeasurementErrors {
    let mut all = Array3::zeros((n, d, d));
    for (i, mut slot) in all.outer_iter_mut().enumerate() {
        let a = Array2::from_shape_fn((d, i % (d + 1)), |(j, l)| 0.5 * data::noise((13 * (i * d + j) * d + l) as u64));
        slot.assign(&a.dot(&a.t()));
    }
    MeasurementErrors::from_covariances(&all).expect("covariances")
}

/// Every form of the kernels: columns by themselves, two to eight columns in registers, more in shared memory; independent and
/// correlated errors; with weights; with holes.
pub(crate) fn errors(bench: &Bench, tally: &mut Tally) {
    let mut sizes = vec![(700, 1, 2), (333, 2, 3), (1000, 3, 1), (500, 4, 33), (129, 5, 2), (257, 6, 4), (300, 8, 3)];
    sizes.extend([(200, 9, 2), (100, 16, 3)]);
    if !bench.quick {
        sizes.extend([(200_001, 3, 8), (100_000, 6, 64), (30_000, 13, 5)]);
    }
    for (n, d, k) in sizes {
        let mut rows = data::rows_f32(n, d, 34);
        let exact = Dataset::new(rows.clone()).expect("rows");
        rows.indexed_iter_mut().filter(|((i, j), _)| (i + 3 * j) % 7 == 0).for_each(|(_, v)| *v = f32::NAN);
        let holed = Dataset::with_holes(rows).expect("NaN counts as missing");
        let plain = if n % 2 == 1 {
            holed.clone().with_weights((0..n).map(|i| 0.5 * (i % 4) as f64).collect()).expect("weights")
        } else {
            holed.clone()
        };
        for kind in CovarianceType::ALL {
            let mixture = common::mixture(kind, k, d, 0.0, 2.0, 4);
            compare(bench, tally, &plain, &mixture, &format!("{kind} holes alone n={n} d={d} k={k}"));
        }
        for (rows, what) in [(exact, "complete"), (holed, "with holes")] {
            for (errors, of) in [(independent(n, d), "independent"), (correlated(n, d), "correlated")] {
                let mut noisy = rows.clone().with_measurement_errors(errors).expect("errors of each value");
                if n % 2 == 1 {
                    let weights = (0..n).map(|i| 0.5 * (i % 4) as f64).collect();
                    noisy = noisy.with_weights(weights).expect("weights");
                }
                for kind in CovarianceType::ALL {
                    let mixture = common::mixture(kind, k, d, 0.0, 2.0, 4);
                    compare(bench, tally, &noisy, &mixture, &format!("{kind} {of} {what} n={n} d={d} k={k}"));
                }
            }
        }
    }
}

fn compare(bench: &Bench, tally: &mut Tally, data: &Dataset, mixture: &Mixture, what: &str) {
    tally.cases += 1;
    let (n, d) = data.rows().dim();
    let slow: &dyn Engine = if n <= 1000 { &ReferenceEngine } else { &bench.cpu };
    let load = |engine: &dyn Engine| engine.load(data, Precision::F64, &vec![0.0; d]);
    let (mut got, mut want) = match (load(&bench.gpu), load(slow)) {
        (Ok(got), Ok(want)) => (got, want),
        (got, want) => {
            let error = |loaded: Result<_, gmm_host::Error>| loaded.err().map(|error| error.to_string());
            return tally.failures.push(format!("{what}: {:?} {:?}", error(got), error(want)));
        }
    };
    // The condition of the covariances is below 1e3.
    let tolerance = 1e-11;
    match (got.pass(mixture), want.pass(mixture)) {
        (Ok(got), Ok(want)) => tally.statistics(&got, &want, tolerance, what),
        (got, want) => tally.failures.push(format!("{what}: {:?} {:?}", got.err(), want.err())),
    }
    let (got, want) = (outputs(got.as_mut(), mixture), outputs(want.as_mut(), mixture));
    for (i, of) in ["log densities", "responsibilities", "totals"].into_iter().enumerate() {
        let size = want[i].iter().fold(1.0, |most: f64, v| most.max(v.abs()));
        tally.close(&got[i], &want[i], tolerance, size, &format!("{what}: {of}"));
    }
}

/// Log densities, responsibilities, totals.
fn outputs(rows: &mut dyn Resident, mixture: &Mixture) -> [Vec<f64>; 3] {
    let (n, k) = (rows.dim().0, mixture.n_components());
    let (mut log_densities, mut responsibilities) = (vec![0.0; n], vec![0.0; n * k]);
    let want = EvaluateOptions {
        log_densities: Some(&mut log_densities),
        responsibilities: Some((&mut responsibilities).into()),
        labels: None,
    };
    let totals = rows.evaluate(mixture, want).map(|e| vec![e.log_likelihood, e.entropy, e.total_weight]);
    [log_densities, responsibilities, totals.unwrap_or_default()]
}
