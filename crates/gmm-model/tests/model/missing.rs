//! Completion of the statistics of a pattern, the naive reference, and Rubin's rules.

use gmm_model::missing::{Completion, Pooled, reference as naive};
use gmm_model::{Conditional, DataError, Dataset, Statistics};
use ndarray::array;

use super::*;

/// Every non-empty set of `d` columns.
fn patterns(d: usize) -> Vec<Vec<usize>> {
    (1..1usize << d).map(|bits| (0..d).filter(|j| bits >> j & 1 == 1).collect()).collect()
}

/// The rows with NaN in all columns but `observed`.
fn only(rows: &Array2<f64>, observed: &[usize]) -> Array2<f64> {
    Array2::from_shape_fn(rows.dim(), |(i, j)| if observed.contains(&j) { rows[[i, j]] } else { f64::NAN })
}

/// `c eps` times the size of the moments, where the regressions can magnify errors by the condition of the covariances.
const TOLERANCE: f64 = 1e-11;

fn statistics_close(a: &Statistics, b: &Statistics) {
    all_close(&a.weight, &b.weight, TOLERANCE);
    all_close(&a.first, &b.first, TOLERANCE);
    all_close(&a.second, &b.second, TOLERANCE);
    close(a.log_likelihood, b.log_likelihood, TOLERANCE);
    close(a.total_weight, b.total_weight, TOLERANCE);
    assert_eq!(a.n_rows, b.n_rows);
}

#[test]
fn statistics_of_observed_columns_give_those_of_all_columns_for_every_pattern() {
    for kind in CovarianceType::ALL {
        for d in 1..=4 {
            let m = mixture(3, d, kind, 7);
            let all = rows(&m, 40, 3);
            let weights: Vec<f64> = (0..40).map(|i| (i % 4) as f64 * 0.5).collect();
            for observed in patterns(d) {
                let completion = Completion::new(&m, &observed).unwrap();
                let columns = all.select(ndarray::Axis(1), &observed);
                let seen = reference::statistics(completion.marginal(), columns.view(), Some(&weights));
                let mut found = Statistics::of_no_rows(&m);
                completion.add(&seen, &mut found);
                let total = weights.iter().sum::<f64>();
                let holed = only(&all, &observed);
                let want = naive::statistics(&m, holed.view(), Some(&weights));
                statistics_close(&Statistics { total_weight: total, ..found }, &want);
            }
        }
    }
}

#[test]
fn the_naive_reference_is_the_complete_one_where_nothing_is_missing() {
    for kind in CovarianceType::ALL {
        let m = mixture(2, 3, kind, 1);
        let x = rows(&m, 25, 2);
        statistics_close(&naive::statistics(&m, x.view(), None), &reference::statistics(&m, x.view(), None));
    }
}

#[test]
fn conditional_means_and_variances_are_those_of_the_conditional_mixture() {
    for kind in CovarianceType::ALL {
        let m = mixture(2, 4, kind, 5);
        let x = rows(&m, 1, 8).row(0).to_vec();
        for observed in patterns(4).into_iter().filter(|observed| observed.len() < 4) {
            let completion = Completion::new(&m, &observed).unwrap();
            let conditional = Conditional::new(&m, &observed, completion.missing()).unwrap();
            let values: Vec<f64> = observed.iter().map(|&j| x[j]).collect();
            let t = completion.missing().len();
            for c in 0..2 {
                let (mut got, mut want) = (vec![0.0; t], vec![0.0; t]);
                completion.component_mean(c, &values, &mut got);
                conditional.component_mean(c, &values, &mut vec![0.0; values.len()], &mut want);
                all_close(&got, &want, TOLERANCE);
                let covariance = conditional.covariance(c);
                (0..t).for_each(|i| close(completion.variance(c, i), covariance[[i, i]], TOLERANCE));
            }
        }
    }
}

#[test]
fn a_row_with_nothing_observed_has_density_1_and_counts_in_no_sum() {
    let m = mixture(3, 2, CovarianceType::Full, 4);
    let x = array![[f64::NAN, f64::NAN]];
    let (log_density, r) = naive::posterior(&m, x.row(0));
    assert_eq!((log_density, r.view()), (0.0, m.weights()));
    let statistics = naive::statistics(&m, x.view(), None);
    assert_eq!((statistics.total_weight, statistics.n_rows), (0.0, 1));
    all_close(&naive::mean(&m, x.row(0)), &m.mean(), 1e-15);
}

#[test]
fn columns_of_a_pattern_are_checked() {
    let m = mixture(2, 3, CovarianceType::Full, 4);
    for columns in [&[][..], &[3], &[1, 1], &[2, 0]] {
        assert!(Completion::new(&m, columns).is_err(), "{columns:?}");
    }
}

#[test]
fn a_data_set_with_holes_is_checked_and_one_without_is_complete() {
    let nan = f64::NAN;
    assert!(!Dataset::with_holes(array![[1.0, 2.0]]).unwrap().has_missing());
    let data = Dataset::with_holes(array![[1.0f32, f32::NAN], [f32::NAN, f32::NAN], [3.0, 4.0]]).unwrap();
    assert_eq!((data.has_missing(), data.n_missing()), (true, 3));
    assert_eq!(data.rows_observed().unwrap(), [true, false, true]);
    let found = Dataset::with_holes(array![[1.0, nan], [f64::INFINITY, nan]]);
    assert!(matches!(found, Err(DataError::NotFinite { row: 1, column: 0, .. })), "{found:?}");
    let column = Dataset::with_holes(array![[1.0, nan], [2.0, nan]]).unwrap();
    assert!(matches!(column.check_columns_observed(), Err(DataError::Unobserved { column: 1 })));
    assert!(matches!(Dataset::with_holes(Array2::<f64>::zeros((0, 2))), Err(DataError::Empty { n: 0, d: 2 })));
    // Weights and parts go with the rows.
    let weighted = data.with_weights(vec![1.0, 0.0, 2.0]).unwrap();
    let present = weighted.without_absent_rows().unwrap();
    assert_eq!((present.has_missing(), present.n_rows(), present.n_missing()), (true, 2, 1));
    assert!(weighted.part(0..1).has_missing());
}

#[test]
fn rubins_rules_are_those_of_the_book() {
    // By hand: m = 5, estimates 8, 10, 12, 9, 11: mean 10, between 2.5; within 4; total 4 + 1.2 * 2.5 = 7; r = 0.75;
    // degrees of freedom 4 (1 + 1/0.75)² = 196/9.
    let pooled = Pooled::of(&[8.0, 10.0, 12.0, 9.0, 11.0], &[4.0; 5]).unwrap();
    assert_eq!((pooled.estimate, pooled.within, pooled.between), (10.0, 4.0, 2.5));
    close(pooled.variance(), 7.0, 1e-15);
    close(pooled.degrees_of_freedom(), 196.0 / 9.0, 1e-14);
    close(pooled.missing_information(), (0.75 + 2.0 / (196.0 / 9.0 + 3.0)) / 1.75, 1e-14);
    let agree = Pooled::of(&[1.0, 1.0], &[2.0, 2.0]).unwrap();
    assert_eq!((agree.variance(), agree.missing_information()), (2.0, 0.0));
    assert_eq!(agree.degrees_of_freedom(), f64::INFINITY);
    for (estimates, variances) in [(&[1.0][..], &[1.0][..]), (&[1.0, 2.0], &[1.0]), (&[1.0, f64::NAN], &[1.0, 1.0])] {
        assert!(Pooled::of(estimates, variances).is_err());
    }
}
