//! Passes that leave out the components far from a tile of rows, against the naive reference and against dense passes.

use crate::common;
use common::{normal, uniform};
use gmm_host::init::RowDraw;
use gmm_host::{CpuEngine, Engine, EvaluateOptions, ReferenceEngine, Resident};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Noise, Precision, Statistics};
use ndarray::{Array1, Array2, Array3};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// `n` rows around `k` centres in the unit cube, with standard deviations of about `sd`, and a mixture near the truth.
fn clusters(kind: CovarianceType, n: usize, k: usize, d: usize, sd: f64) -> (Array2<f64>, Mixture) {
    let rng = &mut ChaCha8Rng::seed_from_u64((n * 31 + k * 7 + d) as u64);
    let centres = Array2::from_shape_fn((k, d), |_| uniform(rng));
    let mut rows = Array2::zeros((n, d));
    for mut row in rows.outer_iter_mut() {
        let (c, mut before) = ((uniform(rng) * k as f64) as usize, 0.0);
        for (j, x) in row.iter_mut().enumerate() {
            let z = normal(rng);
            // Correlated with the column before, and long in the first.
            *x = centres[[c, j]] + sd * (z + 0.8 * before) * if j == 0 { 3.0 } else { 1.0 };
            before = z;
        }
    }
    let variance = |c: usize, j: usize| sd * sd * (1.0 + (c % 3) as f64) * if j == 0 { 6.0 } else { 1.5 };
    let full = |c: usize| {
        let covariance = |i: usize, j: usize| (variance(c, i) * variance(c, j)).sqrt();
        Array2::from_shape_fn((d, d), move |(i, j)| covariance(i, j) * if i == j { 1.0 } else { 0.4 })
    };
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| full(c)[[i, j]])),
        CovarianceType::Tied => Covariances::Tied(full(1)),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| variance(c, j))),
        CovarianceType::Spherical => Covariances::Spherical(Array1::from_shape_fn(k, |c| variance(c, 1))),
    };
    let weights: Array1<f64> = (0..k).map(|c| 1.0 + (c % 5) as f64).collect();
    let means = centres.mapv(|v| v + 0.5 * sd * normal(rng));
    (rows, Mixture::new(&weights / weights.sum(), means, covariances).unwrap())
}

/// As for dense passes: a few rounding errors for each term of the longest sum.
fn tolerance(precision: Precision, d: usize) -> f64 {
    let eps = if precision == Precision::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    32.0 * eps * (d as f64 + 4.0)
}

fn engine(instructions: &str) -> CpuEngine {
    CpuEngine::with_instructions(2, instructions).unwrap().with_skipping(true)
}

/// Log densities and labels of all rows.
fn per_row(rows: &mut dyn Resident, mixture: &Mixture) -> (f64, f64, Vec<f64>, Vec<u32>) {
    let n = rows.dim().0;
    let (mut densities, mut labels) = (vec![f64::NAN; n], vec![u32::MAX; n]);
    let want =
        EvaluateOptions { log_densities: Some(&mut densities), labels: Some(&mut labels), responsibilities: None };
    let totals = rows.evaluate(mixture, want).unwrap();
    (totals.log_likelihood, totals.entropy, densities, labels)
}

/// Compares every pass with the reference's.
fn check(data: &Dataset, mixture: &Mixture, precision: Precision, what: &str) {
    let (d, shift) = (data.n_features(), vec![0.5; data.n_features()]);
    let kind = mixture.covariance_type();
    let bound = tolerance(precision, d);
    let mut slow = ReferenceEngine.load(data, Precision::F64, &shift).unwrap();
    let want = slow.pass(mixture).unwrap();
    let wanted_rows = per_row(slow.as_mut(), mixture);
    for instructions in CpuEngine::instruction_sets() {
        let what = format!("{instructions} {kind} {precision} {what}");
        let mut rows = engine(instructions).load(data, precision, &shift).unwrap();
        common::check(&rows.pass(mixture).unwrap(), &want, bound, &what);
        for kind in [CovarianceType::Spherical, kind] {
            let want = slow.nearest(kind, mixture.means()).unwrap();
            let found = rows.nearest(kind, mixture.means()).unwrap();
            common::check(&found, &want, bound, &format!("nearest {what}"));
        }
        let found = per_row(rows.as_mut(), mixture);
        let size = wanted_rows.2.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
        for (i, (a, b)) in found.2.iter().zip(&wanted_rows.2).enumerate() {
            assert!(a == b || (a - b).abs() <= bound * size, "{what}: row {i}: {a} and {b}");
        }
        let differ = found.3.iter().zip(&wanted_rows.3).filter(|(a, b)| a != b).count();
        assert!(differ * 1000 <= data.n_rows(), "{what}: {differ} labels");
        let n = data.n_rows() as f64;
        let close = |a: f64, b: f64| a == b || (a - b).abs() <= n * bound * size;
        assert!(close(found.0, wanted_rows.0) && close(found.1, wanted_rows.1), "{what}: {found:?}");
        let alone = rows.log_likelihoods(std::slice::from_ref(mixture)).unwrap()[0];
        assert_eq!(alone.to_bits(), rows.pass(mixture).unwrap().log_likelihood.to_bits(), "{what}");
    }
}

#[test]
fn sums_and_densities_are_those_of_the_reference() {
    for kind in CovarianceType::ALL {
        for (n, k, d) in [(1, 3, 2), (257, 20, 1), (2000, 60, 2), (1700, 70, 3), (900, 30, 6)] {
            for precision in [Precision::F64, Precision::F32] {
                let (mut rows, mixture) = clusters(kind, n, k, d, 0.004);
                if precision == Precision::F32 {
                    rows.mapv_inplace(|v| f64::from(v as f32));
                }
                let data = Dataset::new(rows).unwrap();
                let what = format!("n={n} k={k} d={d}");
                check(&data, &mixture, precision, &what);
                let weight = |i: usize| if n > 1 { (i % 4) as f64 * 0.5 } else { 2.0 };
                let data = data.with_weights((0..n).map(weight).collect()).unwrap();
                check(&data, &mixture, precision, &format!("{what}, weighted"));
            }
        }
    }
}

#[test]
fn equal_rows_far_rows_and_rows_on_the_borders_of_tiles_are_exact() {
    for kind in CovarianceType::ALL {
        let (mut rows, mixture) = clusters(kind, 1300, 50, 2, 0.004);
        rows.row_mut(700).fill(4.0);
        check(&Dataset::new(rows.clone()).unwrap(), &mixture, Precision::F64, "one far row");
        rows.outer_iter_mut().for_each(|mut row| row.assign(&(&mixture.means().row(7) + 0.003)));
        check(&Dataset::new(rows.clone()).unwrap(), &mixture, Precision::F64, "equal rows");
        // A hundred distinct rows: tiles share their borders.
        for (i, mut row) in rows.outer_iter_mut().enumerate() {
            let sign = if i / 50 % 2 == 0 { 1.0 } else { -1.0 };
            row.assign(&(&mixture.means().row(i % 50) + 0.003 * sign));
        }
        check(&Dataset::new(rows).unwrap(), &mixture, Precision::F64, "repeated rows");
    }
}

#[test]
fn components_that_coincide_that_are_empty_or_far_away_have_the_dense_meaning() {
    let (rows, mixture) = clusters(CovarianceType::Diag, 2000, 60, 2, 0.004);
    let Covariances::Diag(variances) = mixture.covariances() else { unreachable!() };
    let (mut weights, mut means) = (mixture.weights().to_owned(), mixture.means().to_owned());
    let moved = weights[3];
    weights[3] = 0.0;
    weights[4] += moved;
    means.row_mut(5).fill(1e150);
    let twin = means.row(6).to_owned();
    means.row_mut(9).assign(&twin);
    let mixture = Mixture::new(weights, means, Covariances::Diag(variances.clone())).unwrap();
    let data = Dataset::new(rows).unwrap();
    check(&data, &mixture, Precision::F64, "odd components");
    let mut fast = engine(CpuEngine::instruction_sets()[0]).load(&data, Precision::F64, &[0.0; 2]).unwrap();
    let found = fast.pass(&mixture).unwrap();
    assert_eq!((found.weight[3], found.weight[5]), (0.0, 0.0));
}

#[test]
fn a_row_whose_every_density_underflows_has_the_weights_as_responsibilities() {
    for kind in CovarianceType::ALL {
        let (mut rows, mixture) = clusters(kind, 1000, 40, 2, 0.004);
        rows.row_mut(123).fill(1e200);
        let data = Dataset::new(rows).unwrap();
        let run = |engine: &dyn Engine| {
            let mut rows = engine.load(&data, Precision::F64, &[0.5; 2]).unwrap();
            let found = per_row(rows.as_mut(), &mixture);
            (found, rows.pass(&mixture).unwrap().weight)
        };
        let (fast, want) = (run(&engine(CpuEngine::instruction_sets()[0])), run(&ReferenceEngine));
        assert_eq!(fast.0.2[123], f64::NEG_INFINITY, "{kind}");
        assert_eq!(fast.0.0, f64::NEG_INFINITY, "{kind}");
        for (a, b) in fast.1.iter().zip(&want.1) {
            assert!((a - b).abs() <= 1e-12 * b.max(1.0), "{kind}: {a} and {b}");
        }
    }
}

#[test]
fn every_scale_of_the_data_gives_the_same_answer() {
    for scale in [1e-150, 1e150] {
        let (rows, mixture) = clusters(CovarianceType::Full, 1000, 40, 2, 0.004);
        let Covariances::Full(all) = mixture.covariances() else { unreachable!() };
        let covariances = Covariances::Full(all.mapv(|v| v * scale * scale));
        let scaled = Mixture::new(mixture.weights().to_owned(), &mixture.means() * scale, covariances).unwrap();
        let run = |engine: &dyn Engine| -> Statistics {
            let data = Dataset::new(&rows * scale).unwrap();
            engine.load(&data, Precision::F64, &[0.0; 2]).unwrap().pass(&scaled).unwrap()
        };
        let (fast, dense) =
            (run(&engine(CpuEngine::instruction_sets()[0])), run(&CpuEngine::new(2).unwrap().with_skipping(false)));
        common::check(&fast, &dense, 64.0 * f64::EPSILON, &format!("{scale:e}"));
    }
}

#[test]
fn noise_and_parts_of_a_data_set_are_passed_over_alike() {
    let (rows, mixture) = clusters(CovarianceType::Full, 2000, 60, 2, 0.004);
    let noise = Noise { weight: 0.1, log_volume: 0.0, region: None };
    let run = |engine: &dyn Engine, starts: Vec<usize>| {
        let data = Dataset::new(rows.clone()).unwrap().with_parts(starts);
        let found = engine.load(&data, Precision::F64, &[0.5; 2]).unwrap().pass_beside(&mixture, &noise).unwrap();
        let found = found.expect("the CPU engine knows noise");
        (found.statistics, found.count)
    };
    let (fast, dense) =
        (CpuEngine::new(2).unwrap().with_skipping(true), CpuEngine::new(2).unwrap().with_skipping(false));
    for starts in [vec![], vec![300, 301, 1500]] {
        let (found, want) = (run(&fast, starts.clone()), run(&dense, starts));
        common::check(&found.0, &want.0, 64.0 * f64::EPSILON, "beside noise");
        assert!((found.1 - want.1).abs() <= 1e-12 * want.1.max(1.0), "{} and {}", found.1, want.1);
    }
}

#[test]
fn the_same_rows_and_threads_give_the_same_bits() {
    let (rows, mixture) = clusters(CovarianceType::Full, 20_000, 600, 2, 0.004);
    let run = |threads: usize| {
        let data = Dataset::new(rows.clone()).unwrap();
        let mut rows = CpuEngine::new(threads).unwrap().load(&data, Precision::F64, &[0.5; 2]).unwrap();
        let found = rows.pass(&mixture).unwrap();
        found.weight.iter().chain(&found.second).map(|v| v.to_bits()).collect::<Vec<_>>()
    };
    for threads in [1, 2, 3] {
        assert!(run(threads) == run(threads), "{threads} threads");
    }
}

#[test]
fn distances_to_many_centres_have_the_bits_of_dense_ones_and_draws_agree() {
    let (rows, mixture) = clusters(CovarianceType::Spherical, 2600, 80, 2, 0.004);
    let weight = |i: usize| (i % 4) as f64 * 0.5;
    for (precision, weighted) in [(Precision::F64, false), (Precision::F64, true), (Precision::F32, true)] {
        let weights: Option<Vec<f64>> = weighted.then(|| (0..2600).map(weight).collect());
        let data = Dataset::new(rows.clone()).unwrap();
        let data = match &weights {
            Some(weights) => data.with_weights(weights.clone()).unwrap(),
            None => data,
        };
        let load = |always| CpuEngine::new(2).unwrap().with_skipping(always).load(&data, precision, &[0.5; 2]).unwrap();
        let (mut fast, mut dense) = (load(true), load(false));
        for (c, centre) in mixture.means().outer_iter().enumerate() {
            let (found, want) =
                (fast.add_centre(&centre.to_vec()).unwrap(), dense.add_centre(&centre.to_vec()).unwrap());
            assert_eq!(found, want, "centre {c}");
            let draws = [0.1, 0.6, 0.9].map(|uniform| RowDraw { group: c % 3, uniform });
            let found = fast.weigh_draws(&draws, weights.as_deref()).unwrap();
            let want = dense.weigh_draws(&draws, weights.as_deref()).unwrap();
            assert_eq!(found.rows, want.rows, "centre {c}");
            let total: f64 = dense.add_drawn(1).unwrap().iter().sum();
            assert_eq!(fast.add_drawn(1).unwrap().iter().sum::<f64>(), total, "centre {c}");
            for (a, b) in found.left.iter().zip(&want.left) {
                assert!((a - b).abs() <= 1e-12 * want.left[0].max(total), "centre {c}: {a} and {b}");
            }
        }
        let all = 0..2600;
        assert_eq!(fast.near(std::slice::from_ref(&all)).unwrap(), dense.near(&[all]).unwrap());
    }
}

/// Tiles have copies of the rows; where the rows themselves have none, the workspace must serve both.
#[test]
fn passes_over_tiles_and_over_rows_without_copies_alternate() {
    let (rows, mixture) = clusters(CovarianceType::Full, 3000, 60, 2, 0.003);
    let data = Dataset::new(rows).unwrap();
    let shift = [0.0; 2];
    let responsibilities = |engine: &CpuEngine| {
        let mut rows = engine.load(&data, Precision::F64, &shift).unwrap();
        let first = rows.pass(&mixture).unwrap();
        let mut out = vec![0.0; 3000 * 60];
        let want = EvaluateOptions { responsibilities: Some((&mut out).into()), ..EvaluateOptions::default() };
        rows.evaluate(&mixture, want).unwrap();
        assert_eq!(rows.pass(&mixture).unwrap(), first);
        out
    };
    let without = CpuEngine::without_copies(2).unwrap().with_skipping(true);
    assert_eq!(responsibilities(&without), responsibilities(&CpuEngine::new(2).unwrap().with_skipping(true)));
}
