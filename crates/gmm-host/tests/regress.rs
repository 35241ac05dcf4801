//! Regression and thresholds of outliers on engines, against the reference and closed forms.

use crate::common;
use gmm_host::regress::{self, DrawOptions};
use gmm_host::{CpuEngine, Engine, ReferenceEngine, on_threads, threshold_of_region};
use gmm_model::{Conditional, CovarianceType, Covariances, Dataset, Mixture, Precision};
use ndarray::{Array2, array};

/// More rows than a block of responsibilities, or than a thread's share, has.
const N: usize = 3000;
const K: usize = 500;

fn of(kind: CovarianceType, k: usize) -> (Conditional, Dataset) {
    let mixture = common::mixture(kind, k, 5, 3.0, 2.0, 7);
    let conditional = Conditional::new(&mixture, &[4, 0, 2], &[1, 3]).unwrap();
    (conditional, Dataset::new(common::rows(N, 3, 3.0, 2.0, 1)).unwrap())
}

fn moments(engine: &dyn Engine, conditional: &Conditional, data: &Dataset, precision: Precision) -> [Vec<f64>; 2] {
    let len = data.n_rows() * conditional.n_targets();
    let (mut means, mut deviations) = (vec![0.0; len], vec![0.0; len]);
    regress::moments(engine, conditional, data, precision, &mut means, &mut deviations).unwrap();
    [means, deviations]
}

#[track_caller]
fn agree(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{i}: {a} is not {b}");
    }
}

#[test]
fn the_cpu_engine_agrees_with_the_reference_and_f32_within_its_rounding() {
    for kind in CovarianceType::ALL {
        let (conditional, data) = of(kind, 6);
        let expected = moments(&ReferenceEngine, &conditional, &data, Precision::F64);
        let engine = CpuEngine::new(2).unwrap();
        for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-4)] {
            let found = moments(&engine, &conditional, &data, precision);
            (0..2).for_each(|i| agree(&found[i], &expected[i], tolerance));
        }
    }
}

#[test]
fn blocks_and_threads_do_not_change_a_bit() {
    let (conditional, data) = of(CovarianceType::Full, K);
    let engine = CpuEngine::new(2).unwrap();
    let all = moments(&engine, &conditional, &data, Precision::F64);
    let part = Dataset::new(data.rows().part(2000..2900)).unwrap();
    let alone = on_threads(3, || moments(&engine, &conditional, &part, Precision::F64)).unwrap();
    (0..2).for_each(|i| assert_eq!(alone[i], all[i][4000..5800]));
}

#[test]
fn a_rows_draws_depend_on_its_index_and_not_on_the_block() {
    let (conditional, data) = of(CovarianceType::Tied, K);
    let engine = CpuEngine::new(1).unwrap();
    let draw = |data: &Dataset, first_row| {
        let mut out = vec![0.0; data.n_rows() * 6];
        let options = DrawOptions { count: 3, seed: 5, first_row };
        regress::draw(&engine, &conditional, data, Precision::F64, options, &mut out).unwrap();
        out
    };
    let all = draw(&data, 0);
    let part = Dataset::new(data.rows().part(1500..2500)).unwrap();
    assert_eq!(draw(&part, 1500), all[9000..15000]);
    assert_ne!(draw(&part, 0), all[9000..15000]);
}

#[test]
fn the_mean_of_many_draws_is_the_predicted_mean() {
    const COUNT: usize = 4000;
    let (conditional, data) = of(CovarianceType::Full, 4);
    let few = Dataset::new(data.rows().part(0..5)).unwrap();
    let [means, deviations] = moments(&ReferenceEngine, &conditional, &few, Precision::F64);
    let mut out = vec![0.0; 5 * COUNT * 2];
    let options = DrawOptions { count: COUNT, seed: 0, first_row: 0 };
    regress::draw(&ReferenceEngine, &conditional, &few, Precision::F64, options, &mut out).unwrap();
    for (row, draws) in out.chunks_exact(COUNT * 2).enumerate() {
        for target in 0..2 {
            let (mean, deviation) = (means[row * 2 + target], deviations[row * 2 + target]);
            let drawn = draws.iter().skip(target).step_by(2).sum::<f64>() / COUNT as f64;
            assert!((drawn - mean).abs() < 5.0 * deviation / (COUNT as f64).sqrt(), "{row} {target}");
        }
    }
}

#[test]
fn densities_are_those_of_the_conditional_mixture_also_where_the_marginal_underflows() {
    for kind in CovarianceType::ALL {
        let (conditional, _) = of(kind, 4);
        let mut rows = common::rows(50, 5, 3.0, 2.0, 2);
        rows.row_mut(7).fill(1e200);
        rows[[8, 0]] = 1e200;
        let data = Dataset::new(rows.clone()).unwrap();
        let found = regress::log_densities(&CpuEngine::new(2).unwrap(), &conditional, &data, Precision::F64).unwrap();
        for (row, found) in rows.outer_iter().zip(found) {
            let (x, y) = (row.slice(ndarray::s![..3]).to_vec(), row.slice(ndarray::s![3..]));
            let expected = conditional.log_density(&x, y);
            assert!(
                found == expected || (found - expected).abs() < 1e-11 * expected.abs().max(1.0),
                "{found} {expected}"
            );
        }
    }
}

#[test]
fn a_row_far_from_everything_has_a_finite_mean() {
    for kind in CovarianceType::ALL {
        let (conditional, _) = of(kind, 3);
        let far = Dataset::new(Array2::from_elem((1, 3), 1e200)).unwrap();
        let [means, deviations] = moments(&CpuEngine::new(1).unwrap(), &conditional, &far, Precision::F64);
        assert!(means.iter().all(|v| v.is_finite()) && deviations.iter().all(|v| !v.is_nan()), "{kind}: {means:?}");
    }
}

#[test]
fn the_wrong_number_of_columns_is_an_error() {
    let (conditional, _) = of(CovarianceType::Full, 2);
    let wide = Dataset::new(Array2::<f64>::zeros((4, 5))).unwrap();
    let narrow = Dataset::new(Array2::<f64>::zeros((4, 3))).unwrap();
    let (mut means, mut deviations) = (vec![0.0; 8], vec![0.0; 8]);
    let slots = (&mut means[..], &mut deviations[..]);
    let error = regress::moments(&ReferenceEngine, &conditional, &wide, Precision::F64, slots.0, slots.1);
    assert_eq!(error.unwrap_err().to_string(), gmm_host::Error::Features { found: 5, expected: 3 }.to_string());
    assert!(regress::log_densities(&ReferenceEngine, &conditional, &narrow, Precision::F64).is_err());
}

#[test]
fn the_region_of_one_gaussian_is_that_of_the_chi_square_distribution() {
    // In two dimensions a share α of the rows has a squared distance above −2 ln α: the log density there is that at the
    // mean plus ln α.
    let covariance = array![[2.0, 0.5], [0.5, 1.0]];
    let m = Mixture::new(array![1.0], array![[1.0, -1.0]], Covariances::Tied(covariance)).unwrap();
    for level in [0.5, 0.9, 0.99] {
        let found = threshold_of_region(&ReferenceEngine, &m, None, level, 3).unwrap();
        let alpha: f64 = 1.0 - level;
        let expected = m.log_normalizer(0) + alpha.ln();
        // The standard error of a share α of 2¹⁷ rows, relative to α.
        let error = ((1.0 - alpha) / alpha / f64::from(1 << 17)).sqrt();
        assert!((found.log_density - expected).abs() < 5.0 * error, "{level}: {} {expected}", found.log_density);
        assert_eq!((found.level, found.contamination), (Some(level), None));
    }
    for wrong in [0.4, 1.0, -1.0, f64::NAN] {
        assert!(threshold_of_region(&ReferenceEngine, &m, None, wrong, 0).is_err(), "{wrong}");
    }
}
