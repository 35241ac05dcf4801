//! E-step and moments together, as an engine runs them.

use crate::harness::{How, KINDS, PLAIN, Random, column_means, mixture, pass, rows, same_statistics, tolerance};
use gmm_kernels::Real;
use gmm_model::reference;

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
fn many_tiles_and_splits() {
    for (kind, _) in KINDS {
        let random = &mut Random(5);
        let mixture = mixture(kind, 3, 4, 0.0, random);
        let rows = rows::<f32>(&mixture, 1000, random);
        let how = How { blocks: 3, splits: 5, ..PLAIN };
        let got = pass::<f32>(&mixture, &rows, &column_means(&rows), None, how);
        let want = reference::statistics(&mixture, rows.view(), None);
        same_statistics(&got, &want, tolerance::<f32>(), "1000 rows");
        // The same bits again; and with other splits nearly so.
        assert_eq!(got, pass::<f32>(&mixture, &rows, &column_means(&rows), None, how));
        let other = pass::<f32>(&mixture, &rows, &column_means(&rows), None, PLAIN);
        same_statistics(&other, &got, 1e-6, "other splits");
    }
}

#[test]
fn f32_sums_are_better_than_promised() {
    // 2e-6 of the second moments: products in f32, sums in f64.
    let random = &mut Random(9);
    let mixture = mixture(gmm_model::CovarianceType::Full, 4, 16, 0.0, random);
    let rows = rows::<f32>(&mixture, 2000, random);
    let got = pass::<f32>(&mixture, &rows, &column_means(&rows), None, How { blocks: 4, splits: 2, ..PLAIN });
    same_statistics(&got, &reference::statistics(&mixture, rows.view(), None), 2e-6, "2000 rows");
}
