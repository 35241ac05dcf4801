//! Values: against naive sums, bits equal to those of other passes, batches, and edge cases.

use gmm_host::{CpuEngine, Engine, Error, EvaluateOptions, Likelihood, ReferenceEngine, shift};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, ModelError, Precision};
use ndarray::{Array2, array};

use super::{case, common, cpu, every_case, naive, on_cpu};

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::F64];

/// A few rounding errors per term of a row's log density, which has d terms.
fn tolerance(precision: Precision, d: usize) -> f64 {
    let eps = match precision {
        Precision::F32 => f64::from(f32::EPSILON),
        Precision::F64 => f64::EPSILON,
    };
    32.0 * eps * (d as f64 + 4.0)
}

#[test]
fn a_value_is_the_naive_sum_on_every_instruction_set() {
    for kind in CovarianceType::ALL {
        for precision in PRECISIONS {
            for (n, d, k) in [(1, 1, 1), (7, 3, 2), (255, 13, 8), (256, 2, 5), (257, 30, 3), (5000, 5, 4)] {
                let (data, mixture) = case(kind, n, d, k, 0.0, n % 2 == 1);
                let data = match precision {
                    Precision::F64 => data,
                    // Rounded to f32, so that both engines have the same rows.
                    Precision::F32 => {
                        let rows = data.rows().to_f64().mapv(|v| v as f32);
                        let narrow = Dataset::new(rows).unwrap();
                        data.weights().map_or(narrow.clone(), |w| narrow.with_weights(w.to_vec()).unwrap())
                    }
                };
                let want = naive::value(&mixture, &data);
                let mut each = vec![0.0; n];
                on_cpu(&data).per_row(&mixture, &mut each).unwrap();
                let largest = each.iter().fold(1.0f64, |m, v| m.max(v.abs()));
                let bound = tolerance(precision, d) * largest * data.total_weight();
                for instructions in CpuEngine::instruction_sets() {
                    let engine = CpuEngine::with_instructions(2, instructions).unwrap();
                    let got = Likelihood::new(&engine, &data, precision).unwrap().value(&mixture).unwrap();
                    let what = format!("{instructions} {kind} {precision} n={n} d={d} k={k}");
                    assert!((got - want).abs() <= bound, "{what}: {got} and {want}, bound {bound:e}");
                }
            }
        }
    }
}

#[test]
fn a_value_is_the_naive_sum_to_nine_digits_with_weights_offsets_and_one_component() {
    every_case(|what, data, mixture| {
        let want = naive::value(&mixture, &data);
        for engine in [&cpu() as &dyn Engine, &ReferenceEngine] {
            let mut likelihood = Likelihood::new(engine, &data, Precision::F64).unwrap();
            let got = likelihood.value(&mixture).unwrap();
            assert!((got - want).abs() <= 1e-9 * want.abs().max(1.0), "{what} {}: {got} and {want}", engine.name());
            let mut each = vec![0.0; data.n_rows()];
            let again = likelihood.per_row(&mixture, &mut each).unwrap();
            assert_eq!(again, got, "{what}");
            let sum: f64 = each.iter().enumerate().map(|(i, v)| data.weight(i) * v).sum();
            assert!((sum - want).abs() <= 1e-9 * want.abs().max(1.0), "{what}: rows sum to {sum}, not {want}");
            assert_eq!(likelihood.total_weight(), data.total_weight());
            assert_eq!(likelihood.dim(), data.rows().dim());
        }
    });
}

#[test]
fn a_value_has_the_bits_of_a_pass_and_of_an_evaluation() {
    for kind in CovarianceType::ALL {
        for precision in PRECISIONS {
            for (n, threads) in [(40, 2), (3000, 1), (3000, 3)] {
                let (data, mixture) = case(kind, n, 6, 5, 0.0, true);
                let engine = CpuEngine::new(threads).unwrap();
                let mut rows = engine.load(&data, precision, &shift::of_data(&data)).unwrap();
                let pass = rows.pass(&mixture).unwrap().log_likelihood;
                let evaluated = rows.evaluate(&mixture, EvaluateOptions::default()).unwrap().log_likelihood;
                let value = Likelihood::new(&engine, &data, precision).unwrap().value(&mixture).unwrap();
                assert_eq!([pass, evaluated], [value; 2], "{kind} {precision} n={n} threads={threads}");
            }
        }
    }
}

#[test]
fn a_batch_gives_each_mixture_the_bits_that_it_has_alone() {
    // With few rows, threads divide the mixtures; with many, the rows. More mixtures than one batch evaluates at once.
    for n in [300, 4000] {
        for precision in PRECISIONS {
            let data = Dataset::new(common::rows(n, 3, 0.0, 1.0, 4)).unwrap();
            let mut sets: Vec<Mixture> =
                (0..150).map(|i| common::mixture(CovarianceType::Full, 3, 3, 0.0, 1.0, i)).collect();
            for (i, kind) in CovarianceType::ALL.into_iter().cycle().take(21).enumerate() {
                sets.push(common::mixture(kind, 1 + i % 5, 3, 0.0, 1.0, i as u64));
            }
            for engine in [&cpu() as &dyn Engine, &CpuEngine::new(1).unwrap()] {
                let mut likelihood = Likelihood::new(engine, &data, precision).unwrap();
                let together = likelihood.batch(&sets).unwrap();
                let alone: Vec<f64> = sets.iter().map(|m| likelihood.value(m).unwrap()).collect();
                assert_eq!(together, alone, "n={n} {precision} {}", engine.description());
            }
        }
    }
    assert_eq!(on_cpu(&case(CovarianceType::Full, 5, 2, 1, 0.0, false).0).batch(&[]).unwrap(), [0.0; 0]);
}

#[test]
fn a_row_without_density_makes_the_value_minus_infinity_and_never_nan() {
    for kind in CovarianceType::ALL {
        for precision in PRECISIONS {
            let mut rows = common::rows(300, 4, 0.0, 1.0, 1);
            rows.row_mut(7).fill(3e200);
            let data = Dataset::new(rows).unwrap();
            let mixture = common::mixture(kind, 3, 4, 0.0, 1.0, 1);
            for instructions in CpuEngine::instruction_sets() {
                let engine = CpuEngine::with_instructions(1, instructions).unwrap();
                let mut likelihood = Likelihood::new(&engine, &data, precision).unwrap();
                assert_eq!(likelihood.value(&mixture).unwrap(), f64::NEG_INFINITY);
                let mut each = vec![0.0; 300];
                assert_eq!(likelihood.per_row(&mixture, &mut each).unwrap(), f64::NEG_INFINITY);
                assert_eq!(each[7], f64::NEG_INFINITY);
                assert_eq!(each.iter().filter(|v| v.is_finite()).count(), 299);
                let gradient = likelihood.value_and_gradient(&mixture);
                assert!(matches!(gradient, Err(Error::Undefined { .. })), "{kind} {precision} {instructions}");
                // With weight 0 the row does not count, even though its log density is −∞.
                let weights = (0..300).map(|i| f64::from(i != 7)).collect();
                let without = data.clone().with_weights(weights).unwrap();
                let value = Likelihood::new(&engine, &without, precision).unwrap().value(&mixture).unwrap();
                assert!(value.is_finite(), "{kind} {precision} {instructions}: {value}");
            }
        }
    }
}

#[test]
fn a_row_beyond_the_squares_of_single_precision_has_the_density_that_the_reference_says() {
    for kind in CovarianceType::ALL {
        let mut rows = common::rows(300, 4, 0.0, 1.0, 1);
        rows.row_mut(7).fill(3e30);
        let data = Dataset::new(rows).unwrap();
        let mixture = common::mixture(kind, 3, 4, 0.0, 1.0, 1);
        let want = Likelihood::new(&gmm_host::ReferenceEngine, &data, Precision::F64).unwrap().value(&mixture).unwrap();
        let got = Likelihood::new(&CpuEngine::new(1).unwrap(), &data, Precision::F32).unwrap().value(&mixture).unwrap();
        assert!(want.is_finite() && (got - want).abs() <= 1e-12 * want.abs(), "{kind}: {got}, want {want}");
    }
}

#[test]
fn a_component_of_weight_zero_counts_for_nothing() {
    let covariances = Covariances::Diag(array![[1.0], [1.0]]);
    let mixture = Mixture::new(array![1.0, 0.0], array![[0.0], [5.0]], covariances).unwrap();
    let data = Dataset::new(array![[0.5], [5.0]]).unwrap();
    let mut likelihood = on_cpu(&data);
    let alone = likelihood.value(&mixture.component(0).unwrap()).unwrap();
    let (value, gradient) = likelihood.value_and_gradient(&mixture).unwrap();
    assert!((value - alone).abs() < 1e-12);
    assert_eq!((gradient.log_weights[1], gradient.means[[1, 0]], gradient.scales[1]), (0.0, 0.0, 0.0));
}

#[test]
fn parameters_that_cannot_be_are_typed_errors() {
    let means = || array![[0.0, 0.0], [1.0, 1.0]];
    let unit = || Covariances::Spherical(array![1.0, 1.0]);
    let sum = Mixture::new(array![0.5, 0.6], means(), unit()).unwrap_err();
    assert!(matches!(sum, ModelError::WeightSum { .. }), "{sum}");
    let flat = Mixture::new(array![0.5, 0.5], means(), Covariances::Spherical(array![1.0, 0.0])).unwrap_err();
    assert!(matches!(flat, ModelError::NotPositiveDefinite { component: 1, .. }), "{flat}");

    let data = Dataset::new(Array2::<f64>::zeros((4, 3))).unwrap();
    let mut likelihood = on_cpu(&data);
    let mixture = Mixture::new(array![0.5, 0.5], means(), unit()).unwrap();
    let features = |found: Result<(), Error>| {
        assert!(matches!(found, Err(Error::Features { found: 3, expected: 2 })), "{found:?}");
    };
    features(likelihood.value(&mixture).map(drop));
    features(likelihood.batch(std::slice::from_ref(&mixture)).map(drop));
    features(likelihood.per_row(&mixture, &mut [0.0; 4]).map(drop));
    features(likelihood.value_and_gradient(&mixture).map(drop));
    let wrong = likelihood.per_row(&mixture, &mut [0.0; 3]).unwrap_err();
    assert!(wrong.to_string().contains("[3], expected [4]"), "{wrong}");
}
