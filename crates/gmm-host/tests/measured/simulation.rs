//! Bias and coverage over 200 simulated data sets of rows with measurement errors, and of linear views.

use super::common::uniform;
use super::simulate::{Truth, normal};
use super::*;

/// Number of rows of a data set.
const ROWS: usize = 800;

#[test]
fn estimates_from_rows_with_errors_are_nearly_unbiased_and_cover_the_truth() {
    let truth = Truth::two_components();
    truth.check("errors from none to the size of a component", ROWS, |rng| {
        let mut rows = truth.rows(ROWS, rng);
        let deviations = Array2::from_shape_simple_fn(rows.dim(), || uniform(rng));
        rows.zip_mut_with(&deviations, |x, sd| *x += sd * normal(rng));
        let errors = MeasurementErrors::from_deviations(deviations).unwrap();
        Dataset::new(rows).unwrap().with_measurement_errors(errors).unwrap()
    });
    truth.check("errors in common to both columns", ROWS, |rng| {
        let mut rows = truth.rows(ROWS, rng);
        let mut covariances = Array3::zeros((ROWS, 2, 2));
        for (mut row, mut of) in rows.outer_iter_mut().zip(covariances.outer_iter_mut()) {
            let (common, own) = (uniform(rng), 0.5 * uniform(rng));
            let both = common * normal(rng);
            row.iter_mut().for_each(|x| *x += both + own * normal(rng));
            of.fill(common * common);
            of.diag_mut().mapv_inplace(|v| v + own * own);
        }
        let errors = MeasurementErrors::from_covariances(&covariances).unwrap();
        Dataset::new(rows).unwrap().with_measurement_errors(errors).unwrap()
    });
}
