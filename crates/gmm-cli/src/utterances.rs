//! Which rows are one utterance: those of a file, or those with one value of a column.

use std::ops::Range;

use gmm_host::memory;
use gmm_model::{Dataset, shown};

use crate::exit::Failure;

/// The rows of every value of a column.
pub(crate) struct ByValue {
    /// The rows, in another order if the rows of a value were not together.
    pub(crate) data: Dataset,
    /// Ascending.
    pub(crate) values: Vec<f64>,
    /// The rows of each value.
    pub(crate) rows: Vec<Range<usize>>,
}

/// Groups rows by the values of `column`. Rows of one value keep their order.
///
/// # Errors
/// Errors if a value is not finite, with its row; if rows that have to be moved do not fit into memory.
pub(crate) fn by_value(data: Dataset, values: &[f64], column: &str) -> anyhow::Result<ByValue> {
    if let Some(row) = values.iter().position(|v| !v.is_finite()) {
        let why = format!("column '{}': row {row} has no number, so that no utterance is its own", shown(column));
        return Err(Failure::BadData(why).into());
    }
    // -0 and 0 are one value.
    let values: Vec<f64> = values.iter().map(|v| v + 0.0).collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let same = |a: &usize, b: &usize| values[*a] == values[*b];
    let groups = || order.chunk_by(same);
    let named = groups().map(|rows| values[rows[0]]).collect();
    // The sort is stable: rows that were together are consecutive.
    if groups().all(|rows| rows.is_sorted_by(|a, b| a + 1 == *b)) {
        let rows = groups().map(|rows| rows[0]..rows[0] + rows.len()).collect();
        return Ok(ByValue { data, values: named, rows });
    }
    let (n, d) = data.rows().dim();
    memory::check("the rows in the order of their utterances", 8 * n as u128 * d as u128)?;
    let mut moved = Dataset::new(data.rows().select_rows(&order))?;
    if let Some(weights) = data.weights() {
        moved = moved.with_weights(order.iter().map(|&row| weights[row]).collect())?;
    }
    if let Some(names) = data.names() {
        moved = moved.with_names(names.to_vec())?;
    }
    let rows = groups().scan(0, |end, rows| {
        let first = *end;
        *end += rows.len();
        Some(first..*end)
    });
    let rows = rows.collect();
    Ok(ByValue { data: moved, values: named, rows })
}
