//! The random draws of k-means++: a group of rows and a uniform number, from which the engine selects a row.

use gmm_model::Draws;

use crate::engine::DISTANCE_ROWS;

/// The draw of a row: its group, and a uniform number that selects the row within the group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowDraw {
    /// Index of the group: the [`DISTANCE_ROWS`] rows from row `1024 * group` on.
    pub group: usize,
    /// In `[0, 1)`: selects the row at which the running sum of `w near` exceeds this fraction of the group's sum.
    pub uniform: f64,
}

/// The result of [`Seeding::weigh_draws`](crate::Seeding::weigh_draws).
#[derive(Clone, Debug, PartialEq)]
pub struct WeighedRows {
    /// The row of each draw, `(t,)`.
    pub rows: Vec<usize>,
    /// For each drawn row, the sum `Σ w min(near, |x − row|²)` that remains if it becomes a centre, `(t,)`.
    pub left: Vec<f64>,
}

/// The row that a draw selects if row `i` of `n` has probability proportional to `value(i)`.
pub(crate) fn row_of(draw: RowDraw, n: usize, value: impl Fn(usize) -> f64) -> usize {
    let first = draw.group * DISTANCE_ROWS;
    let values = (first..n.min(first + DISTANCE_ROWS)).map(value);
    first + Draws::index_at(&cumulative(values.collect()), draw.uniform)
}

/// [`row_of`] for each draw, with probability proportional to weight times `near`, `(n,)`, the squared distances on the
/// host.
pub(crate) fn rows_of(draws: &[RowDraw], near: &[f64], weights: Option<&[f64]>) -> Vec<usize> {
    assert!(!near.is_empty(), "no centre was added");
    let weight = |i: usize| weights.map_or(1.0, |w| w[i]);
    let value = |i: usize| if weight(i) > 0.0 { weight(i) * near[i] } else { 0.0 };
    draws.iter().map(|&draw| row_of(draw, near.len(), value)).collect()
}

/// Running sums.
pub(super) fn cumulative(mut values: Vec<f64>) -> Vec<f64> {
    let mut sum = 0.0;
    for slot in &mut values {
        sum += *slot;
        *slot = sum;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_drawn_among_those_of_its_group_that_have_weight_and_distance() {
        let n = DISTANCE_ROWS + 3;
        let mut near = vec![0.0; n];
        (near[5], near[9], near[n - 2], near[n - 1]) = (1.0, 3.0, 2.0, f64::INFINITY);
        let draws = |group| [0.0, 0.24, 0.26, 0.99].map(|uniform| RowDraw { group, uniform });
        assert_eq!(rows_of(&draws(0), &near, None), [5, 5, 9, 9]);
        let mut weights = vec![1.0; n];
        (weights[5], weights[n - 1]) = (9.0, 0.0);
        assert_eq!(rows_of(&draws(0), &near, Some(&weights)), [5, 5, 5, 9]);
        assert_eq!(rows_of(&draws(1), &near, Some(&weights)), [n - 2; 4]);
    }
}
