//! Bias and coverage over 200 simulated data sets each, of one component whose rows are censored, rounded or truncated.

use gmm_model::Covariances;
use ndarray::array;

use super::simulate::{Truth, normal};
use super::*;

#[test]
#[ignore = "simulates 800 data sets: for every night, by cargo test -p gmm-host --test censored -- --ignored"]
fn estimates_of_limited_rows_are_nearly_unbiased_and_cover_the_truth() {
    let standard = Mixture::new(array![1.0], array![[0.0]], Covariances::Full(array![[[1.0]]])).unwrap();
    let parameters =
        |of: &Mixture| vec![("mean", of.means()[[0, 0]]), ("deviation", of.covariances().matrix(0, 1)[[0, 0]].sqrt())];
    let truth = Truth { mixture: standard, parameters, quantile: 5.991 };
    let normals = |rng: &mut ChaCha8Rng, n: usize| Array2::from_shape_simple_fn((n, 1), || normal(rng));
    truth.check("a third below a detection limit", 150, |rng| {
        let rows = normals(rng, 150);
        let lower = rows.mapv(|v| if v < -0.43 { -INF } else { v });
        Dataset::with_censoring(lower, rows.mapv(|v| v.max(-0.43))).unwrap()
    });
    truth.check("rounded to 1.5 deviations", 150, |rng| {
        let rows = normals(rng, 150).mapv(|v| (v / 1.5).round() * 1.5);
        Dataset::with_censoring(&rows - 0.75, &rows + 0.75).unwrap()
    });
    for n in [400, 1600] {
        truth.check(&format!("recorded from -1 to 2 only, of {n}"), n, |rng| {
            let inside: Vec<f64> = normals(rng, n).into_iter().filter(|v| (-1.0..2.0).contains(v)).collect();
            let rows = Array2::from_shape_vec((inside.len(), 1), inside).unwrap();
            Dataset::new(rows).unwrap().with_truncation(vec![-1.0], vec![2.0]).unwrap()
        });
    }
}
