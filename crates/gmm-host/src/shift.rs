//! The point about which rows are held: near the bulk of the data, so that a common offset costs no digits.

use gmm_model::{Dataset, Mixture};

/// Rows looked at; more would not place the median better than it needs to be.
const SAMPLE: usize = 1023;

/// Per column, the median of up to 1023 evenly strided rows, `(d,)`.
///
/// Any point within the bulk serves. The median is one even where a few rows are at 1e200, which would drag a mean
/// along and cost all other rows their digits; and it is a value of the data, so a constant column becomes exact zeros.
pub fn of_data(data: &Dataset) -> Vec<f64> {
    let n = data.n_rows();
    let take = n.min(SAMPLE);
    // 128 bits, since n * SAMPLE may pass 2^64 on no machine but costs nothing here.
    let row = |i: usize| (i as u128 * n as u128 / take as u128) as usize;
    (0..data.n_features())
        .map(|column| {
            let mut values: Vec<f64> = (0..take).map(|i| data.rows().at(row(i), column)).collect();
            let (_, median, _) = values.select_nth_unstable_by(take / 2, f64::total_cmp);
            *median
        })
        .collect()
}

/// The mixture's mean, `(d,)`: for evaluation, so that a row's result does not depend on the rows beside it.
pub fn of_mixture(mixture: &Mixture) -> Vec<f64> {
    mixture.mean().to_vec()
}
