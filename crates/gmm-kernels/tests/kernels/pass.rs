//! E-step and moments together, as an engine runs them.

use crate::compare::{same_statistics, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{How, KINDS, PLAIN, evaluate, pass, tiled, untiled};
use gmm_kernels::Real;
use gmm_model::{CovarianceType, reference};

/// Rows, dimensions, components: odd sizes around panels of 8, pieces of 16, warps of 32 and tiles of 128.
const SIZES: [(usize, usize, usize); 17] = [
    (1, 1, 1),
    (2, 1, 3),
    (31, 2, 5),
    (33, 3, 1),
    (127, 7, 2),
    (128, 8, 4),
    (129, 9, 3),
    (65, 13, 8),
    (200, 15, 2),
    (100, 16, 3),
    (150, 17, 5),
    (70, 30, 6),
    (60, 33, 2),
    (40, 64, 2),
    (37, 70, 3),
    (130, 5, 40),
    (200, 2, 17),
];

fn check<T: Real>(offset: f64, weighted: bool, how: How) {
    for (n, d, k) in SIZES {
        for (kind, _) in KINDS {
            let random = &mut Random((n * 1000 + d * 50 + k) as u64);
            let mixture = mixture(kind, k, d, offset, random);
            let rows = rows::<T>(&mixture, n, random);
            let weights: Option<Vec<f64>> =
                weighted.then(|| (0..n).map(|i| if i % 5 == 3 { 0.0 } else { 0.25 + random.uniform() }).collect());
            let weights = weights.as_deref();
            let got = pass::<T>(&mixture, &rows, &column_means(&rows), weights, how);
            let want = reference::statistics(&mixture, rows.view(), weights);
            same_statistics(&got, &want, tolerance::<T>(), &format!("{} {kind} n={n} d={d} k={k}", T::NAME));
        }
    }
}

#[test]
fn f32_is_the_reference() {
    check::<f32>(0.0, false, PLAIN);
}

#[test]
fn f64_is_the_reference() {
    check::<f64>(0.0, false, PLAIN);
}

#[test]
fn f32_with_row_weights_and_three_splits() {
    check::<f32>(0.0, true, How { splits: 3, blocks: 1, ..PLAIN });
}

#[test]
fn f64_with_row_weights_and_two_splits() {
    check::<f64>(0.0, true, How { splits: 2, blocks: 3, ..PLAIN });
}

#[test]
fn f32_far_from_the_origin() {
    check::<f32>(1e4, false, PLAIN);
}

#[test]
fn f64_far_from_the_origin() {
    check::<f64>(1e8, false, PLAIN);
}

#[test]
fn solved_columns_may_lie_in_scratch() {
    check::<f32>(0.0, false, How { large: true, ..PLAIN });
    check::<f64>(0.0, false, How { large: true, blocks: 1, ..PLAIN });
}

#[test]
fn a_thread_may_compute_several_rows() {
    for (n, weighted) in [(1300, false), (1024, true), (127, false)] {
        for (kind, _) in KINDS {
            same_rows::<f32>(kind, n, weighted);
            same_rows::<f64>(kind, n, weighted);
        }
    }
}

/// Every row has the same bits whether a thread computes one row or several.
fn same_rows<T: Real>(kind: CovarianceType, n: usize, weighted: bool) {
    let random = &mut Random(n as u64);
    let mixture = mixture(kind, 3, 17, 0.0, random);
    let rows = rows::<T>(&mixture, n, random);
    let (shift, x) = (column_means(&rows), tiled::<T>(&rows, Some(&column_means(&rows)), None));
    let weights = weighted.then(|| (0..n).map(|i| (i % 3) as f64).collect::<Vec<_>>());
    let [one, several] = [false, true]
        .map(|several| evaluate(&mixture, &x, n, &shift, weights.as_deref(), How { several, weighted, ..PLAIN }));
    assert_eq!(one.log_densities, several.log_densities, "{} {kind} n={n}", T::NAME);
    assert_eq!(one.labels, several.labels);
    assert_eq!(untiled(&one.responsibilities, n, 3), untiled(&several.responsibilities, n, 3));
    for (a, b) in one.totals.iter().zip(&several.totals) {
        assert!((a - b).abs() <= 1e-12 * a.abs(), "{a} {b}");
    }
}

#[test]
fn many_tiles_and_splits() {
    for (kind, _) in KINDS {
        let random = &mut Random(5);
        let mixture = mixture(kind, 3, 4, 0.0, random);
        let rows = rows::<f32>(&mixture, 1000, random);
        let how = How { blocks: 3, splits: 5, ..PLAIN };
        let got = pass::<f32>(&mixture, &rows, &column_means(&rows), None, how);
        let want = reference::statistics(&mixture, rows.view(), None);
        same_statistics(&got, &want, tolerance::<f32>(), "1000 rows");
        // Repeating gives the same bits; other splits give almost the same.
        assert_eq!(got, pass::<f32>(&mixture, &rows, &column_means(&rows), None, how));
        let other = pass::<f32>(&mixture, &rows, &column_means(&rows), None, PLAIN);
        same_statistics(&other, &got, 1e-6, "other splits");
    }
}

#[test]
fn f32_sums_are_better_than_promised() {
    // Within 2e-6 of the second moments: products in f32, sums in f64.
    let random = &mut Random(9);
    let mixture = mixture(gmm_model::CovarianceType::Full, 4, 16, 0.0, random);
    let rows = rows::<f32>(&mixture, 2000, random);
    let got = pass::<f32>(&mixture, &rows, &column_means(&rows), None, How { blocks: 4, splits: 2, ..PLAIN });
    same_statistics(&got, &reference::statistics(&mixture, rows.view(), None), 2e-6, "2000 rows");
}

#[test]
fn many_components_and_many_dimensions() {
    for (n, d, k) in [(140, 2, 300), (20, 256, 2), (260, 33, 33)] {
        for (kind, _) in KINDS {
            let random = &mut Random(d as u64);
            let mixture = mixture(kind, k, d, 0.0, random);
            let rows = rows::<f32>(&mixture, n, random);
            let want = reference::statistics(&mixture, rows.view(), None);
            let shift = column_means(&rows);
            let what = format!("{kind} n={n} d={d} k={k}");
            // Above 200 columns, the solved columns do not fit into shared memory.
            let how = How { large: d > 200, splits: 2, ..PLAIN };
            let narrow = pass::<f32>(&mixture, &rows, &shift, None, how);
            same_statistics(&narrow, &want, tolerance::<f32>(), &what);
            let wide = pass::<f64>(&mixture, &rows, &shift, None, how);
            same_statistics(&wide, &want, tolerance::<f64>(), &what);
        }
    }
}

#[test]
fn f32_components_thousands_of_deviations_apart() {
    // The shift is close to one component only; the means of the others need their low parts.
    for (kind, _) in KINDS {
        let random = &mut Random(11);
        let near = mixture(kind, 4, 6, 0.0, random);
        let mut means = near.means().to_owned();
        for (c, mut row) in means.outer_iter_mut().enumerate() {
            row += 2000.0 * c as f64;
        }
        let far = gmm_model::Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap();
        let rows = rows::<f32>(&far, 300, random);
        let shift: Vec<f64> = column_means(&rows).iter().map(|m| f64::from(*m as f32)).collect();
        let got = pass::<f32>(&far, &rows, &shift, None, PLAIN);
        same_statistics(&got, &reference::statistics(&far, rows.view(), None), tolerance::<f32>(), kind.name());
    }
}

#[test]
fn no_rows_are_no_statistics() {
    for (kind, _) in KINDS {
        let mixture = mixture(kind, 2, 3, 0.0, &mut Random(1));
        let rows = ndarray::Array2::zeros((0, 3));
        let got = pass::<f64>(&mixture, &rows, &[0.0; 3], None, How { splits: 2, ..PLAIN });
        assert_eq!(got, gmm_model::Statistics::zero(kind, mixture.means().to_owned()));
    }
}
