//! `Engine::scorer`, on which every answer depends: the bits of loaded rows, for each kind and precision, in any order of sizes.

use gmm_host::{CpuEngine, Engine, Error, EvaluateOptions, evaluate};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, SyntheticOptions, sample, synthetic};
use ndarray::{Array2, array, s};

const SIZES: [usize; 7] = [1, 700, 7, 256, 1, 257, 64];

fn check(mixture: &Mixture, rows: &Array2<f64>, precision: Precision) {
    let engine = CpuEngine::new(2).unwrap();
    let scorer = engine.scorer(mixture, precision).expect("the CPU engine has one");
    for n in SIZES {
        let data = Dataset::new(rows.slice(s![..n, ..]).to_owned()).unwrap();
        let k = mixture.n_components();
        let (mut densities, mut all, mut labels) = (vec![0.0; n], vec![0.0; n * k], vec![0; n]);
        let want = EvaluateOptions {
            log_densities: Some(&mut densities),
            responsibilities: Some((&mut all).into()),
            labels: Some(&mut labels),
        };
        let totals = scorer.evaluate(&data, want).unwrap();
        let (expected, expected_totals) = evaluate::log_densities(&engine, mixture, &data, precision).unwrap();
        assert_eq!(densities, expected.to_vec(), "{n} rows");
        assert_eq!(totals, expected_totals);
        let expected = evaluate::responsibilities(&engine, mixture, &data, precision).unwrap();
        assert_eq!(all, expected.into_iter().collect::<Vec<_>>());
        assert_eq!(labels, evaluate::labels(&engine, mixture, &data, precision).unwrap().to_vec());
    }
}

#[test]
fn a_scorer_has_the_bits_of_loaded_rows() {
    for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag, CovarianceType::Spherical] {
        for (k, d) in [(1, 1), (3, 2), (8, 13), (5, 40)] {
            let mixture = synthetic(k, d, kind, 3, &SyntheticOptions::default()).unwrap();
            let rows = sample(&mixture, 700, 1).unwrap().0;
            for precision in [Precision::F64, Precision::F32] {
                check(&mixture, &rows, precision);
            }
        }
    }
}

#[test]
fn calls_at_a_time_have_the_same_bits() {
    let mixture = synthetic(8, 13, CovarianceType::Full, 3, &SyntheticOptions::default()).unwrap();
    let data = Dataset::new(sample(&mixture, 3000, 1).unwrap().0).unwrap();
    let engine = CpuEngine::new(2).unwrap();
    let expected = evaluate::log_densities(&engine, &mixture, &data, Precision::F64).unwrap().0.to_vec();
    let scorer = engine.scorer(&mixture, Precision::F64).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut densities = vec![0.0; data.n_rows()];
                    let want = EvaluateOptions { log_densities: Some(&mut densities), ..EvaluateOptions::default() };
                    scorer.evaluate(&data, want).unwrap();
                    assert_eq!(densities, expected);
                }
            });
        }
    });
}

#[test]
fn a_scorer_stores_rows_in_f64_where_f32_would_lose_digits() {
    // Two narrow components far from one another: `shift::is_felt` in single precision.
    let covariances = gmm_model::Covariances::Spherical(array![1e-6, 1e-6]);
    let mixture = Mixture::new(array![0.5, 0.5], array![[0.0], [1e4]], covariances).unwrap();
    let rows = Array2::from_shape_fn((700, 1), |(i, _)| if i % 2 == 0 { 1e-3 } else { 1e4 - 1e-3 });
    check(&mixture, &rows, Precision::F32);
}

#[test]
fn a_scorer_refuses_rows_that_do_not_fit() {
    let mixture = synthetic(2, 3, CovarianceType::Diag, 0, &SyntheticOptions::default()).unwrap();
    let scorer = CpuEngine::new(1).unwrap().scorer(&mixture, Precision::F64).unwrap();
    let refused = |data: Dataset| scorer.evaluate(&data, EvaluateOptions::default()).unwrap_err();
    assert!(matches!(refused(Dataset::new(array![[1.0]]).unwrap()), Error::Features { found: 1, expected: 3 }));
    let holes = Dataset::with_holes(array![[1.0, f64::NAN, 0.0]]).unwrap();
    assert!(matches!(refused(holes), Error::Missing { .. }));
}
