//! The CPU engine against the naive reference: every kind and precision, odd sizes, offsets and scales.

use crate::common;
use gmm_host::{CpuEngine, Engine, EvaluateOptions, ReferenceEngine, shift};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};

/// A few rounding errors per term of the longest sum, which has d terms and then the rows of a tile.
fn tolerance(precision: Precision, d: usize) -> f64 {
    let eps = match precision {
        Precision::F32 => f64::from(f32::EPSILON),
        Precision::F64 => f64::EPSILON,
    };
    32.0 * eps * (d as f64 + 4.0)
}

fn check(kind: CovarianceType, precision: Precision, n: usize, d: usize, k: usize, offset: f64, scale: f64) {
    let seed = (n * 1_000_003 + d * 1009 + k) as u64;
    let mixture = common::mixture(kind, k, d, offset, scale, seed);
    let mut rows = common::rows(n, d, offset, scale, seed);
    if precision == Precision::F32 {
        rows.mapv_inplace(|v| f64::from(v as f32));
    }
    let weights: Vec<f64> = (0..n).map(|i| (i % 3) as f64 * 0.5 + if n < 3 { 1.0 } else { 0.0 }).collect();
    let data = Dataset::new(rows).unwrap().with_weights(weights).unwrap();
    let at = shift::of_data(&data);
    let mut slow = ReferenceEngine.load(&data, Precision::F64, &at).unwrap();
    let bound = tolerance(precision, d);
    for instructions in CpuEngine::instruction_sets() {
        let what = format!("{instructions} {kind} {precision} n={n} d={d} k={k} offset={offset:e} scale={scale:e}");
        let engine = CpuEngine::with_instructions(2, instructions).unwrap();
        let mut fast = engine.load(&data, precision, &at).unwrap();
        common::check(&fast.pass(&mixture).unwrap(), &slow.pass(&mixture).unwrap(), bound, &what);
        let want = slow.nearest(kind, mixture.means()).unwrap();
        common::check(&fast.nearest(kind, mixture.means()).unwrap(), &want, bound, &format!("nearest {what}"));
        let fill = |first: usize, out: &mut [f64]| fill(first, k, out);
        let want = slow.given(kind, mixture.means(), &fill).unwrap();
        common::check(&fast.given(kind, mixture.means(), &fill).unwrap(), &want, bound, &format!("given {what}"));
        evaluate(fast.as_mut(), slow.as_mut(), &mixture, bound, &what);
    }
}

/// Responsibilities that differ by row and component and sum to 1.
fn fill(first: usize, k: usize, out: &mut [f64]) {
    for (i, row) in out.chunks_exact_mut(k).enumerate() {
        let raw = |c: usize| ((first + i) * 31 + c * 17) as f64 % 7.0 + 1.0;
        let sum: f64 = (0..k).map(raw).sum();
        row.iter_mut().enumerate().for_each(|(c, r)| *r = raw(c) / sum);
    }
}

fn evaluate(
    fast: &mut dyn gmm_host::Resident,
    slow: &mut dyn gmm_host::Resident,
    mixture: &gmm_model::Mixture,
    bound: f64,
    what: &str,
) {
    let (n, k) = (fast.dim().0, mixture.n_components());
    let run = |rows: &mut dyn gmm_host::Resident| {
        let (mut densities, mut r, mut labels) = (vec![f64::NAN; n], vec![f64::NAN; n * k], vec![u32::MAX; n]);
        let wanted = EvaluateOptions {
            log_densities: Some(&mut densities),
            responsibilities: Some((&mut r).into()),
            labels: Some(&mut labels),
        };
        let totals = rows.evaluate(mixture, wanted).unwrap();
        (totals, densities, r, labels)
    };
    let (got, want) = (run(fast), run(slow));
    let largest = want.1.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    for i in 0..n {
        assert!((got.1[i] - want.1[i]).abs() <= bound * largest, "{what}: row {i}: {} and {}", got.1[i], want.1[i]);
        let row = &got.2[i * k..][..k];
        let sum: f64 = row.iter().sum();
        assert!((sum - 1.0).abs() <= bound, "{what}: responsibilities of row {i} sum to {sum}");
        for (c, (a, b)) in row.iter().zip(&want.2[i * k..]).enumerate() {
            assert!((a - b).abs() <= bound * largest, "{what}: row {i} component {c}: {a} and {b}");
        }
        let best = want.2[i * k + got.3[i] as usize];
        assert!(best >= want.2[i * k + want.3[i] as usize] - bound * largest, "{what}: label of row {i}");
    }
    let (n, scale) = (n as f64, bound * largest);
    assert!((got.0.log_likelihood - want.0.log_likelihood).abs() <= n * scale, "{what}: {:?} {:?}", got.0, want.0);
    assert!((got.0.entropy - want.0.entropy).abs() <= 2.0 * n * scale, "{what}: {:?} {:?}", got.0, want.0);
}

fn every_kind(check: impl Fn(CovarianceType, Precision)) {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            check(kind, precision);
        }
    }
}

#[test]
fn agrees_for_every_row_count_up_to_seventy() {
    every_kind(|kind, precision| (1..=70).for_each(|n| check(kind, precision, n, 3, 2, 0.0, 1.0)));
}

#[test]
fn agrees_for_every_dimension_up_to_seventy() {
    every_kind(|kind, precision| (1..=70).for_each(|d| check(kind, precision, 37, d, 3, 0.0, 1.0)));
}

#[test]
fn agrees_for_every_component_count_up_to_forty() {
    every_kind(|kind, precision| (1..=40).for_each(|k| check(kind, precision, 65, 4, k, 0.0, 1.0)));
}

#[test]
fn agrees_over_many_blocks_and_shares() {
    every_kind(|kind, precision| check(kind, precision, 5000, 13, 8, 0.0, 1.0));
}

#[test]
fn tied_moments_keep_their_digits_where_components_are_far_apart() {
    for precision in [Precision::F32, Precision::F64] {
        for (n, k) in [(300, 4), (40, 9), (2000, 30)] {
            let d = 5;
            // Means 100 standard deviations apart: the scatter between components is 1e4 times that within them.
            let mixture = common::mixture(CovarianceType::Tied, k, d, 0.0, 1.0, 7);
            let far = mixture.means().mapv(|v| (v * 100.0).round());
            let mixture = Mixture::new(mixture.weights().to_owned(), far, mixture.covariances().clone()).unwrap();
            let mut rows = common::rows(n, d, 0.0, 0.5, 3);
            for (i, mut row) in rows.outer_iter_mut().enumerate() {
                row += &mixture.means().row(i % k);
            }
            rows.mapv_inplace(|v| f64::from(v as f32));
            let data = Dataset::new(rows).unwrap();
            let at = shift::of_data(&data);
            let want = ReferenceEngine.load(&data, Precision::F64, &at).unwrap().pass(&mixture).unwrap();
            let got = CpuEngine::new(2).unwrap().load(&data, precision, &at).unwrap().pass(&mixture).unwrap();
            // Rows are stored with an error of eps times their distance from the shift, here 300 standard deviations.
            common::check(&got, &want, 300.0 * tolerance(precision, d) / 32.0, &format!("{precision} n={n} k={k}"));
        }
    }
}

#[test]
fn the_same_thread_count_gives_the_same_bits() {
    every_kind(|kind, precision| {
        let mixture = common::mixture(kind, 5, 6, 0.0, 1.0, 1);
        let data = Dataset::new(common::rows(3000, 6, 0.0, 1.0, 1)).unwrap();
        let at = shift::of_data(&data);
        for threads in [1, 2, 3] {
            let run = || CpuEngine::new(threads).unwrap().load(&data, precision, &at).unwrap().pass(&mixture).unwrap();
            let first = run();
            (0..5).for_each(|_| assert_eq!(run().to_bytes(), first.to_bytes(), "{kind} {precision} {threads}"));
        }
    });
}

/// Everything that a resident returns, as bits.
fn bits_of(engine: &CpuEngine, data: &Dataset, precision: Precision, mixture: &Mixture) -> Vec<u64> {
    let (d, k) = (mixture.n_features(), mixture.n_components());
    let at = shift::of_data(data);
    let mut rows = engine.load(data, precision, &at).unwrap();
    let mut found: Vec<f64> = Vec::new();
    for statistics in [rows.pass(mixture).unwrap(), rows.nearest(mixture.covariance_type(), mixture.means()).unwrap()] {
        found.extend(statistics.weight.iter().chain(&statistics.first).chain(&statistics.second));
        found.push(statistics.log_likelihood);
    }
    found.extend(rows.add_centre(&data.rows().to_f64().row(3).to_vec()).unwrap());
    found.extend(rows.log_likelihoods(&[mixture.clone(), mixture.clone()]).unwrap());
    let mut densities = vec![0.0; data.n_rows()];
    let want = EvaluateOptions { log_densities: Some(&mut densities), ..EvaluateOptions::default() };
    found.push(rows.evaluate(mixture, want).unwrap().log_likelihood);
    found.extend(densities);
    let picked: Vec<usize> = (0..data.n_rows()).step_by(3).collect();
    let weights = data.weights().map(|all| picked.iter().map(|&row| all[row]).collect::<Vec<_>>());
    let mut some = rows.sample(&picked, weights.as_deref()).unwrap();
    found.push(some.pass(mixture).unwrap().log_likelihood);
    // A narrow component far from the shift: its rows are converted to f64.
    let narrow = Mixture::new(
        vec![1.0].into(),
        ndarray::Array2::from_elem((1, d), 1e3),
        gmm_model::Covariances::Spherical(vec![1e-10].into()),
    );
    if k > 0 {
        found.push(rows.pass(&narrow.unwrap()).unwrap().log_likelihood);
    }
    found.into_iter().map(f64::to_bits).collect()
}

#[test]
fn rows_that_are_not_copied_give_the_bits_of_a_copy() {
    for (n, d, k) in [(5, 1, 1), (256, 3, 2), (257, 8, 3), (3000, 13, 5)] {
        every_kind(|kind, precision| {
            let mixture = common::mixture(kind, k, d, 50.0, 1.0, 1);
            let rows = common::rows(n, d, 50.0, 1.0, 1);
            let weights: Vec<f64> = (0..n).map(|i| (i % 3) as f64 + 0.5).collect();
            let doubles = Dataset::new(rows.clone()).unwrap();
            let singles = Dataset::new(rows.mapv(|v| v as f32)).unwrap().with_weights(weights).unwrap();
            for (data, name) in [(&doubles, "f64"), (&singles, "f32, weighted")] {
                let [copied, given] = [CpuEngine::new(2), CpuEngine::without_copies(2)]
                    .map(|engine| bits_of(&engine.unwrap(), data, precision, &mixture));
                assert!(copied == given, "{kind} {precision} {n} {d} {k} {name}");
            }
        });
    }
}

#[test]
fn rows_beyond_the_range_of_squares_have_density_zero_and_the_prior_as_posterior() {
    every_kind(|kind, precision| {
        let mixture = common::mixture(kind, 3, 4, 0.0, 1.0, 1);
        let far = if precision == Precision::F32 { 1e30 } else { 1e200 };
        let mut rows = common::rows(20, 4, 0.0, 1.0, 1);
        rows.row_mut(7).fill(far * 3.0);
        let data = Dataset::new(rows).unwrap();
        for instructions in CpuEngine::instruction_sets() {
            let engine = CpuEngine::with_instructions(1, instructions).unwrap();
            let mut loaded = engine.load(&data, precision, &[0.0; 4]).unwrap();
            let (mut densities, mut r, mut labels) = (vec![0.0; 20], vec![0.0; 60], vec![9; 20]);
            let want = EvaluateOptions {
                log_densities: Some(&mut densities),
                responsibilities: Some((&mut r).into()),
                labels: Some(&mut labels),
            };
            let totals = loaded.evaluate(&mixture, want).unwrap();
            assert_eq!(totals.log_likelihood, f64::NEG_INFINITY);
            assert_eq!(densities.iter().filter(|v| v.is_finite()).count(), 19);
            assert_eq!(densities[7], f64::NEG_INFINITY);
            for (c, weight) in mixture.weights().iter().enumerate() {
                assert!((r[21 + c] - weight).abs() < 1e-7, "{r:?}");
            }
            assert!(labels[7] < 3);
        }
    });
}

#[test]
fn agrees_at_offsets_and_scales() {
    every_kind(|kind, precision| {
        let offsets = if precision == Precision::F32 { [1e2, 1e4] } else { [1e4, 1e8] };
        for offset in offsets {
            check(kind, precision, 400, 5, 3, offset, 1.0);
        }
        for scale in [1e-8, 1e8] {
            check(kind, precision, 400, 5, 3, 0.0, scale);
        }
    });
}
