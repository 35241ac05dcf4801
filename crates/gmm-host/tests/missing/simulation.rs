//! Bias and coverage over 200 simulated data sets with values that are missing at random.

use super::common::uniform;
use super::simulate::Truth;
use super::*;

/// Number of rows of a data set.
const ROWS: usize = 800;

#[test]
fn estimates_from_rows_with_missing_values_are_nearly_unbiased_and_cover_the_truth() {
    let truth = Truth::two_components();
    // Whether the second value is missing depends on the first, which is observed: the rows without a missing value alone have
    // other weights, and other means of the second column.
    truth.check("more missing where the first column is high", ROWS, |rng| {
        let mut rows = truth.rows(ROWS, rng);
        for mut row in rows.outer_iter_mut() {
            if uniform(rng) < if row[0] > 3.5 { 0.7 } else { 0.1 } {
                row[1] = f64::NAN;
            }
        }
        Dataset::with_holes(rows).unwrap()
    });
    truth.check("either missing", ROWS, |rng| {
        let mut rows = truth.rows(ROWS, rng);
        for mut row in rows.outer_iter_mut() {
            match (4.0 * uniform(rng)) as usize {
                0 => row[0] = f64::NAN,
                1 => row[1] = f64::NAN,
                _ => {}
            }
        }
        Dataset::with_holes(rows).unwrap()
    });
}
