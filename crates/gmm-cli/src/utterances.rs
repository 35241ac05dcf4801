//! Which rows are one utterance: those of a file, or those with one value of a column.

use std::ops::Range;

use gmm_data::GroupLabel;
use gmm_host::many::Grouping;
use gmm_model::Dataset;

use crate::groups;

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
    let grouping = Grouping::new(&groups::numbers(values, column)?);
    let data = grouping.sorted(data)?;
    let (labels, rows) = grouping.into_parts();
    let value = |label| match label {
        GroupLabel::Number(value) => value,
        GroupLabel::Text(_) => unreachable!("labels of numbers"),
    };
    Ok(ByValue { data, values: labels.into_iter().map(value).collect(), rows })
}
