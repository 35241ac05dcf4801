//! Rows with which users met "ill-defined empirical covariance" or its like, as their public reports describe them.

use gmm_host::{CpuEngine, FitOptions, FitRule, fit};
use gmm_model::{CovarianceType, Dataset, Draws, Matrix, Starved};
use ndarray::{Array2, Axis, array, concatenate};

use crate::{floor, prior, with};

#[track_caller]
fn every_rule_gives_a_model(rows: impl Into<Matrix>, k: usize) {
    let data = Dataset::new(rows).unwrap();
    let starved = Some(Starved::default());
    let rules = [prior(), floor(1e-6, 0.0), floor(0.0, 1e-3), FitRule { starved, ..FitRule::none() }];
    for rule in rules {
        for kind in CovarianceType::ALL {
            for reg_covar in [0.0, 1e-6] {
                let options = FitOptions { reg_covar, ..with(rule.clone(), k, kind) };
                let found = fit(&CpuEngine::new(1).unwrap(), &data, &options).unwrap();
                assert!(found.summary.log_likelihood.is_finite(), "{kind} {rule:?}");
            }
        }
    }
}

#[test]
fn scikit_learn_30382_two_rows_of_f32_far_apart() {
    every_rule_gives_a_model(array![[9999.0f32], [0.0]], 2);
}

#[test]
fn scikit_learn_12056_one_hot_columns_and_many_components() {
    // 1477 rows of 284 columns of zeros and ones and 500 components, at a tenth of the size.
    let mut draws = Draws::for_purpose("one-hot", 1, 0);
    let mut rows = Array2::zeros((148, 28));
    for mut row in rows.outer_iter_mut() {
        (0..7).for_each(|group| row[4 * group + draws.index(4)] = 1.0);
    }
    every_rule_gives_a_model(rows, 50);
}

#[test]
fn mmdetection_4152_losses_that_are_almost_all_equal() {
    // Positive anchors of one object: a few losses in one column, two components.
    every_rule_gives_a_model(Array2::from_elem((9, 1), 0.731_25f32), 2);
    every_rule_gives_a_model(array![[0.5f32], [0.5], [0.5], [0.500_000_06]], 2);
    every_rule_gives_a_model(array![[0.1f32], [0.7]], 2);
}

#[test]
fn dsb_35_counts_of_a_cell_that_are_mostly_zero() {
    let mut rows = Array2::zeros((87, 1));
    (0..5).for_each(|i| rows[[17 * i, 0]] = (i as f32 + 1.0).ln_1p());
    every_rule_gives_a_model(rows, 2);
}

#[test]
fn ragflow_16632_reduced_embeddings_with_near_identical_points() {
    // Few points per component in 12 dimensions, many of them copies up to rounding.
    let mut draws = Draws::for_purpose("embeddings", 2, 0);
    let points = Array2::from_shape_simple_fn((20, 12), || draws.normal() as f32);
    let copies = points.mapv(|v| v * (1.0 + f32::EPSILON));
    let rows = concatenate(Axis(0), &[points.view(), copies.view(), points.view()]).unwrap();
    every_rule_gives_a_model(rows, 24);
}

#[test]
#[expect(clippy::approx_constant, reason = "6.28 is a number of the report")]
fn mathematica_stack_exchange_43592_seven_rows_of_five_columns() {
    // MATLAB: "ill-conditioned covariance created at iteration 3".
    let rows = array![
        [0.0, 2.76, 10.68, 12.4133, 9.26667],
        [0.0, 0.0, 0.0, 0.0, 1.13333],
        [6.06667, 8.32, 6.86667, 6.6, 4.49333],
        [1.25333, 5.96, 7.49333, 5.81333, 5.05333],
        [0.0, 0.0, 1.13333, 6.42667, 7.41333],
        [0.0, 0.0, 0.0, 3.25333, 3.82667],
        [0.76, 6.28, 10.28, 9.05333, 5.12]
    ];
    every_rule_gives_a_model(rows, 2);
}
