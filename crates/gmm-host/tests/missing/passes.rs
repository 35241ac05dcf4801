//! Passes and evaluations against the naive reference, for every kind, precision and share of holes.

use gmm_host::{CpuEngine, Engine, EvaluateOptions, ReferenceEngine, shift};

use super::*;

/// A few rounding errors per term of the longest sum, times the growth of errors in the regressions of missing on observed
/// columns: the condition of the covariances of `common::mixture`, which is below 40 in each of a dozen columns.
fn tolerance(precision: Precision, d: usize) -> f64 {
    let eps = match precision {
        Precision::F32 => f64::from(f32::EPSILON),
        Precision::F64 => f64::EPSILON,
    };
    64.0 * eps * (d as f64 + 4.0)
}

/// Panics unless a pass and an evaluation of the engine agree with the naive reference.
fn check(
    engine: &dyn Engine,
    kind: CovarianceType,
    precision: Precision,
    (n, d, k): (usize, usize, usize),
    share: f64,
) {
    let seed = (n * 1_000_003 + d * 1009 + k) as u64;
    let mixture = common::mixture(kind, k, d, 0.0, 1.0, seed);
    let rows = holed(n, d, share, seed, precision);
    let what = format!("{} {kind} {precision} n={n} d={d} k={k} {share} missing", engine.name());
    let weights: Vec<f64> = (0..n).map(|i| 0.5 * (1 + i % 3) as f64).collect();
    for weights in [None, Some(weights)] {
        let data = Dataset::with_holes(rows.clone()).unwrap();
        let data = match &weights {
            Some(weights) => data.with_weights(weights.clone()).unwrap(),
            None => data,
        };
        let mut resident = engine.load(&data, precision, &shift::of_data(&data)).unwrap();
        let want = reference::statistics(&mixture, rows.view(), weights.as_deref());
        let got = resident.pass(&mixture).unwrap();
        common::check(&got, &want, tolerance(precision, d), &what);
        assert!((got.total_weight - want.total_weight).abs() <= 1e-12 * want.total_weight, "{what}");
        densities(resident.as_mut(), &mixture, &rows, weights.as_deref(), (tolerance(precision, d), &what));
    }
}

/// Panics unless the outputs of each row, and the totals with and without them, are those of the reference.
fn densities(
    resident: &mut dyn gmm_host::Resident,
    mixture: &Mixture,
    rows: &Array2<f64>,
    weights: Option<&[f64]>,
    (tolerance, what): (f64, &str),
) {
    let (n, k) = (rows.nrows(), mixture.n_components());
    let (mut log_densities, mut responsibilities, mut labels) = (vec![0.0; n], vec![0.0; n * k], vec![0u32; n]);
    let want = EvaluateOptions {
        log_densities: Some(&mut log_densities),
        responsibilities: Some((&mut responsibilities).into()),
        labels: Some(&mut labels),
    };
    let totals = resident.evaluate(mixture, want).unwrap();
    let mut sum = 0.0;
    for (i, x) in rows.outer_iter().enumerate() {
        let (log_density, r) = reference::posterior(mixture, x);
        let bound = tolerance * (1.0 + log_density.abs());
        assert!((log_densities[i] - log_density).abs() <= bound, "{what}: row {i}: {} {log_density}", log_densities[i]);
        for (got, want) in responsibilities[i * k..].iter().zip(&r) {
            assert!((got - want).abs() <= 4.0 * bound, "{what}: row {i}: responsibility {got}, want {want}");
        }
        let best = gmm_model::reference::argmax(r.view());
        assert!(r[labels[i] as usize] >= r[best] - 8.0 * bound, "{what}: row {i}: label {}", labels[i]);
        sum += weights.map_or(1.0, |w| w[i]) * log_densities[i];
    }
    assert!((totals.log_likelihood - sum).abs() <= tolerance * sum.abs(), "{what}: {} {sum}", totals.log_likelihood);
    let alone = resident.evaluate(mixture, EvaluateOptions::default()).unwrap();
    assert_eq!(alone, totals, "{what}: the totals depend on the outputs");
    let other = common::mixture(mixture.covariance_type(), k, mixture.n_features(), 0.1, 1.0, 77);
    let batch = resident.log_likelihoods(&[mixture.clone(), other.clone()]).unwrap();
    assert!((batch[0] - totals.log_likelihood).abs() <= tolerance * sum.abs(), "{what}: {batch:?} {totals:?}");
    let want: f64 = (0..n).map(|i| weights.map_or(1.0, |w| w[i]) * reference::posterior(&other, rows.row(i)).0).sum();
    assert!((batch[1] - want).abs() <= tolerance * want.abs(), "{what}: {batch:?} {want}");
}

#[test]
fn passes_and_densities_are_those_of_the_reference_for_every_kind_and_share_of_holes() {
    let engine = CpuEngine::new(2).unwrap();
    for kind in CovarianceType::ALL {
        for shape in [(700, 4, 3), (90, 7, 2), (5, 2, 1), (300, 1, 2), (200, 12, 3)] {
            for share in [0.02, 0.3, 0.8] {
                for precision in [Precision::F64, Precision::F32] {
                    check(&engine, kind, precision, shape, share);
                }
            }
        }
        check(&ReferenceEngine, kind, Precision::F64, (200, 4, 3), 0.3);
    }
}

#[test]
fn every_instruction_set_and_thread_count_gives_the_sums_of_the_reference() {
    for instructions in CpuEngine::instruction_sets() {
        for threads in [1, 2, 5] {
            let engine = CpuEngine::with_instructions(threads, instructions).unwrap();
            check(&engine, CovarianceType::Full, Precision::F64, (3000, 5, 4), 0.2);
        }
    }
}

#[test]
fn a_thousand_patterns_give_the_sums_of_the_reference() {
    let engine = CpuEngine::new(2).unwrap();
    let patterns = |rows: &Array2<f64>| {
        let keys = rows.outer_iter().map(|x| x.iter().map(|v| v.is_nan()).collect::<Vec<_>>());
        keys.collect::<std::collections::HashSet<_>>().len()
    };
    let (n, d) = (4000, 12);
    assert!(patterns(&holed(n, d, 0.4, (n * 1_000_003 + d * 1009 + 8) as u64, Precision::F64)) > 1000);
    check(&engine, CovarianceType::Full, Precision::F64, (n, d, 8), 0.4);
}

#[test]
fn rows_without_holes_in_a_table_with_some_give_the_bits_of_a_complete_table() {
    let mixture = common::mixture(CovarianceType::Full, 3, 4, 0.0, 1.0, 9);
    let rows = common::rows(500, 4, 0.0, 1.0, 9);
    let mut with_one = rows.clone();
    with_one.push_row(ndarray::aview1(&[f64::NAN; 4])).unwrap();
    let engine = CpuEngine::new(2).unwrap();
    let complete = Dataset::new(rows).unwrap();
    let at = shift::of_data(&complete);
    let want = engine.load(&complete, Precision::F64, &at).unwrap().pass(&mixture).unwrap();
    let holed = Dataset::with_holes(with_one).unwrap();
    assert!(holed.has_missing());
    let got = engine.load(&holed, Precision::F64, &at).unwrap().pass(&mixture).unwrap();
    assert_eq!(got, Statistics { n_rows: 501, ..want });
}

#[test]
fn a_sample_of_rows_is_that_of_its_own_data_set() {
    let engine = CpuEngine::new(2).unwrap();
    let rows = holed(900, 4, 0.3, 3, Precision::F64);
    let mixture = common::mixture(CovarianceType::Full, 3, 4, 0.0, 1.0, 3);
    let data = Dataset::with_holes(rows.clone()).unwrap();
    let mut all = engine.load(&data, Precision::F64, &shift::of_data(&data)).unwrap();
    let chosen: Vec<usize> = (0..300).map(|i| (i * 7919) % 900).collect();
    let weights: Vec<f64> = (0..300).map(|i| (i % 4) as f64).collect();
    for weights in [None, Some(weights.as_slice())] {
        let some = all.sample(&chosen, weights).unwrap().pass(&mixture).unwrap();
        let want = reference::statistics(&mixture, rows.select(ndarray::Axis(0), &chosen).view(), weights);
        common::check(&some, &want, tolerance(Precision::F64, 4), "sample");
    }
}
