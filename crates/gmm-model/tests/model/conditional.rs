//! Conditional mixtures: regression against the definitions, and thresholds of outliers.

use gmm_model::{Conditional, CovarianceType, Covariances, Draws, Mixture, ModelError, OutlierThreshold, reference};
use ndarray::{Array1, Array2, array, aview1};
use proptest::prelude::*;

use crate::{close, mixture, rows};

/// Mean and variance of one target by the definition: those of the conditional mixture at `x`.
fn moments_by_definition(conditional: &Conditional, x: &[f64], target: usize) -> (f64, f64) {
    let at = conditional.at(x).expect("finite").marginal(&[target]).expect("a target");
    let mean = at.mean()[0];
    let second: f64 = (0..at.n_components())
        .map(|c| at.weights()[c] * (at.covariances().matrix(c, 1)[[0, 0]] + at.means()[[c, 0]].powi(2)))
        .sum();
    (mean, second - mean * mean)
}

fn moments(conditional: &Conditional, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let t = conditional.n_targets();
    let (mut mean, mut variance) = (vec![0.0; t], vec![0.0; t]);
    let weights = reference::posterior(conditional.marginal(), aview1(x)).1;
    let weights = weights.as_slice().expect("contiguous");
    conditional.moments(x, weights, &mut conditional.workspace(), &mut mean, &mut variance);
    (mean, variance)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_conditional_density_is_the_joint_over_the_marginal(
        (k, d, seed) in (1..5usize, 2..12usize, 0..1000u64),
        kind in prop::sample::select(CovarianceType::ALL.to_vec()),
        (split, skipped) in (any::<prop::sample::Index>(), any::<bool>()),
    ) {
        let m = mixture(k, d, kind, seed);
        // Shuffled columns, some of which belong to neither side.
        let order = Draws::new(seed, 1).distinct_indices(d, d);
        let used = if skipped && d > 2 { &order[1..] } else { &order[..] };
        let (given, targets) = used.split_at(1 + split.index(used.len() - 1));
        let conditional = Conditional::new(&m, given, targets).unwrap();
        for x in rows(&m, 4, seed).outer_iter() {
            let pick = |columns: &[usize]| columns.iter().map(|&j| x[j]).collect::<Vec<_>>();
            let (a, b) = (pick(given), pick(targets));
            let density = |m: &Mixture, x: &[f64]| reference::posterior(m, aview1(x)).0;
            let expected = density(&m.marginal(used).unwrap(), &[&a[..], &b[..]].concat())
                - density(&m.marginal(given).unwrap(), &a);
            close(conditional.log_density(&a, aview1(&b)), expected, 1e-12);
            let (means, variances) = moments(&conditional, &a);
            for target in 0..targets.len() {
                let (mean, variance) = moments_by_definition(&conditional, &a, target);
                close(means[target], mean, 1e-12);
                close(variances[target], variance, 1e-10);
            }
        }
    }
}

#[test]
fn coefficients_solve_the_normal_equations_in_many_dimensions() {
    let (d, g) = (120, 100);
    let m = mixture(2, d, CovarianceType::Full, 3);
    let (given, targets): (Vec<usize>, Vec<usize>) = ((0..g).collect(), (g..d).collect());
    let conditional = Conditional::new(&m, &given, &targets).unwrap();
    for c in 0..2 {
        let a = m.covariances().matrix(c, d);
        let b = conditional.coefficients(c).unwrap();
        let fitted = b.dot(&a.slice(ndarray::s![..g, ..g]));
        let scale = a.diag().iter().fold(0.0, |m: f64, v| m.max(*v));
        for ((i, j), v) in fitted.indexed_iter() {
            assert!((v - a[[g + i, j]]).abs() < 1e-12 * scale, "{c} {i} {j}");
        }
        let residual = &a.slice(ndarray::s![g.., g..]) - &b.dot(&a.slice(ndarray::s![..g, g..]));
        let found = conditional.covariance(c);
        assert!((&residual - &found).iter().all(|v| v.abs() < 1e-12 * scale));
    }
}

#[test]
fn without_correlation_the_targets_do_not_depend_on_the_given_columns_within_a_component() {
    for kind in [CovarianceType::Diag, CovarianceType::Spherical] {
        let m = mixture(3, 4, kind, 5);
        let conditional = Conditional::new(&m, &[2, 0], &[1]).unwrap();
        assert!(conditional.coefficients(1).is_none());
        let mut mean = [0.0];
        conditional.component_mean(1, &[1e9, -1e9], &mut [0.0; 2], &mut mean);
        assert_eq!(mean[0], m.means()[[1, 1]]);
    }
}

#[test]
fn an_offset_of_the_data_costs_no_precision_of_the_residuals() {
    // Exact in binary: the means are whole numbers and the offset a power of two.
    let offset = 2f64.powi(30);
    let covariance = array![[[4.0, 1.0], [1.0, 2.0]]];
    let at = |shift: f64| {
        let means = array![[1.0 + shift, 2.0 + shift]];
        let m = Mixture::new(array![1.0], means, Covariances::Full(covariance.clone())).unwrap();
        moments(&Conditional::new(&m, &[0], &[1]).unwrap(), &[3.0 + shift])
    };
    let ((near, variance), (far, same)) = (at(0.0), at(offset));
    assert_eq!((far[0] - offset, same[0]), (near[0], variance[0]));
}

#[test]
fn draws_have_the_moments_of_the_conditional_mixture() {
    const N: usize = 20_000;
    for kind in CovarianceType::ALL {
        let m = mixture(3, 4, kind, 11);
        let conditional = Conditional::new(&m, &[3, 1], &[0, 2]).unwrap();
        let x = [m.means()[[0, 3]], m.means()[[1, 1]]];
        let weights = reference::posterior(conditional.marginal(), aview1(&x)).1;
        let cumulative: Vec<f64> = weights
            .iter()
            .scan(0.0, |sum, w| {
                *sum += w;
                Some(*sum)
            })
            .collect();
        let mut draws = Draws::new(1, 0);
        let (mut all, mut workspace) = (Array2::zeros((N, 2)), conditional.workspace());
        for (i, mut row) in all.outer_iter_mut().enumerate() {
            draws.seek(i as u64 * conditional.uniforms() as u64);
            conditional.draw(&x, &cumulative, &mut draws, &mut workspace, row.as_slice_mut().unwrap());
        }
        let (means, variances) = moments(&conditional, &x);
        for target in 0..2 {
            let column: Array1<f64> = all.column(target).to_owned();
            let mean = column.mean().unwrap();
            let (error, variance) = ((variances[target] / N as f64).sqrt(), column.var(1.0));
            // Five standard errors; that of a variance is at most about σ² √(κ/n), and these mixtures have κ below 6.
            assert!((mean - means[target]).abs() < 5.0 * error, "{kind} {target}: {mean} {}", means[target]);
            let error = variances[target] * (6.0 / N as f64).sqrt();
            assert!((variance - variances[target]).abs() < 5.0 * error, "{kind} {target}: {variance}");
        }
    }
}

#[test]
fn a_component_of_responsibility_zero_does_not_count_even_if_its_mean_overflows() {
    let m = Mixture::new(
        array![0.5, 0.5],
        array![[0.0, 0.0], [0.0, f64::MAX]],
        Covariances::Diag(array![[1.0, 1.0], [1.0, 1.0]]),
    );
    let conditional = Conditional::new(&m.unwrap(), &[0], &[1]).unwrap();
    let (mut mean, mut variance) = ([9.0], [9.0]);
    conditional.moments(&[0.0], &[1.0, 0.0], &mut conditional.workspace(), &mut mean, &mut variance);
    assert_eq!((mean, variance), ([0.0], [1.0]));
}

#[test]
fn a_column_that_the_given_ones_determine_is_an_error_that_names_the_models_column() {
    // Column 0 is the sum of the others, up to a variance of 2⁻⁵¹: twice the spacing of numbers near 1, so that rounding
    // hides it from column 0, but not from column 2, whose variance is small.
    let (e, noise) = (2f64.powi(-20), 2f64.powi(-51));
    let a = array![[1.0 + e + noise, 1.0, e], [1.0, 1.0, 0.0], [e, 0.0, e]];
    let m = Mixture::new(array![1.0], Array2::zeros((1, 3)), Covariances::Tied(a)).expect("positive definite");
    let error = Conditional::new(&m, &[2, 1], &[0]).expect_err("singular");
    assert!(matches!(error, ModelError::NotPositiveDefinite { component: 0, column: 0, .. }), "{error}");
}

#[test]
fn a_column_on_both_sides_is_an_error() {
    let m = mixture(2, 3, CovarianceType::Full, 0);
    let error = |given: &[usize], targets: &[usize]| Conditional::new(&m, given, targets).expect_err("invalid");
    assert!(matches!(error(&[0, 1], &[1]), ModelError::Column { index: 1, d: 3, .. }));
    assert!(matches!(error(&[0], &[3]), ModelError::Column { index: 3, .. }));
    assert!(matches!(error(&[0], &[1, 1]), ModelError::Column { index: 1, .. }));
    assert!(matches!(error(&[], &[1]), ModelError::Range { .. }));
    assert!(matches!(error(&[1], &[]), ModelError::Range { .. }));
}

fn threshold(densities: &[f64], weights: Option<&[f64]>, contamination: f64) -> f64 {
    OutlierThreshold::of_rows(densities, weights, contamination).expect("valid").log_density
}

#[test]
fn a_threshold_leaves_the_share_of_the_rows_below_it() {
    let densities: Vec<f64> = (0..300).map(|i| f64::from((i * 7919) % 300) / 3.0).collect();
    for outliers in [1, 3, 30, 89, 150] {
        let threshold = threshold(&densities, None, f64::from(outliers) / 300.0);
        assert_eq!(densities.iter().filter(|v| **v < threshold).count(), outliers as usize);
    }
    // Fewer than one row, and no more than the share.
    assert_eq!(threshold(&densities, None, 0.001), 0.0);
    assert_eq!(densities.iter().filter(|v| **v < threshold(&densities, None, 5.9 / 300.0)).count(), 5);
}

#[test]
fn a_weight_of_two_is_two_rows_and_one_of_zero_none() {
    let densities = [-5.0, -4.0, -3.0, -2.0, -1.0, f64::NEG_INFINITY];
    let weights = [2.0, 1.0, 3.0, 1.0, 1.0, 0.0];
    let repeated = [-5.0, -5.0, -4.0, -3.0, -3.0, -3.0, -2.0, -1.0];
    for contamination in [0.1, 0.25, 0.374, 0.375, 0.4, 0.5] {
        let found = threshold(&densities, Some(&weights), contamination);
        assert_eq!(found, threshold(&repeated, None, contamination), "{contamination}");
    }
}

#[test]
fn equal_rows_are_on_one_side_and_rows_of_density_zero_below() {
    assert_eq!(threshold(&[-1.0; 10], None, 0.3), -1.0);
    assert_eq!(threshold(&[f64::NEG_INFINITY, -3.0, -2.0, -1.0], None, 0.25), -3.0);
    let error = OutlierThreshold::of_rows(&[f64::NEG_INFINITY, f64::NEG_INFINITY, -1.0], None, 0.5);
    assert!(matches!(error, Err(ModelError::Range { what: "contamination", .. })));
    for wrong in [0.0, -0.1, 0.51, f64::NAN] {
        assert!(OutlierThreshold::of_rows(&[-1.0, -2.0], None, wrong).is_err(), "{wrong}");
    }
}
