//! Rows in groups: which rows belong together, and the table in the order of its groups.

use std::ops::Range;

use gmm_model::{DataError, Dataset};

use crate::{Error, memory};

/// Many groups of rows of one table, each a contiguous range.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    /// All rows, `(n, d)`, with the row weights if there are any.
    pub data: &'a Dataset,
    /// The rows of each group. They may overlap, and need not cover all rows.
    pub rows: &'a [Range<usize>],
}

impl<'a> Groups<'a> {
    /// The groups with these rows.
    pub const fn new(data: &'a Dataset, rows: &'a [Range<usize>]) -> Self {
        Self { data, rows }
    }

    /// Number of groups.
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no group.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows of a group as a data set, which shares the values.
    ///
    /// # Errors
    /// [`Error::Data`] if the group is empty or its weights sum to 0 or to infinity; [`Error::Option`] if it ends beyond
    /// the rows.
    pub fn part(&self, group: usize) -> Result<Dataset, Error> {
        let (rows, (n, d)) = (self.rows[group].clone(), self.data.rows().dim());
        if rows.is_empty() {
            return Err(DataError::Empty { n: 0, d }.into());
        }
        if rows.end > n {
            let must = format!("ranges of the {n} rows");
            return Err(Error::Option { option: "groups", value: format!("{rows:?}"), must });
        }
        let part = self.data.part(rows);
        match part.weights().map(|weights| weights.iter().sum::<f64>()) {
            Some(sum) if !(sum > 0.0 && sum.is_finite()) => Err(DataError::WeightSum { sum }.into()),
            _ => Ok(part),
        }
    }
}

/// Which rows of a table belong together, by a label of each row. Groups are in ascending order of their labels, as in
/// pandas' `groupby` and R's `split`; the rows of a group keep their order.
///
/// ```
/// use gmm_host::many::Grouping;
/// use gmm_model::Dataset;
/// use ndarray::array;
///
/// let grouping = Grouping::new(&["b", "a", "b"]);
/// assert_eq!(grouping.labels(), ["a", "b"]);
/// assert_eq!(grouping.rows(), [0..1, 1..3]);
/// let data = grouping.sorted(Dataset::new(array![[1.0], [2.0], [3.0]])?)?;
/// assert_eq!(data.rows().to_f64(), array![[2.0], [1.0], [3.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping<L> {
    labels: Vec<L>,
    rows: Vec<Range<usize>>,
    /// The row of the table at each place of the sorted rows; `None` if it is already sorted.
    order: Option<Vec<usize>>,
}

impl<L: Ord + Clone> Grouping<L> {
    /// Groups rows by their labels, `(n,)`. Cost: a sort, unless rows of one group are together already.
    pub fn new(of_rows: &[L]) -> Self {
        let mut order: Vec<usize> = (0..of_rows.len()).collect();
        // Stable: the rows of a group keep their order.
        order.sort_by(|&a, &b| of_rows[a].cmp(&of_rows[b]));
        let groups = || order.chunk_by(|&a, &b| of_rows[a] == of_rows[b]);
        let labels = groups().map(|rows| of_rows[rows[0]].clone()).collect();
        // The groups' rows are where they were if those of each are consecutive.
        if groups().all(|rows| rows.is_sorted_by(|a, b| a + 1 == *b)) {
            let rows = groups().map(|rows| rows[0]..rows[0] + rows.len()).collect();
            return Self { labels, rows, order: None };
        }
        let rows = groups().scan(0, |end, rows| {
            let first = *end;
            *end += rows.len();
            Some(first..*end)
        });
        let rows = rows.collect();
        Self { labels, rows, order: Some(order) }
    }
}

impl<L> Grouping<L> {
    /// The label of each group, ascending.
    pub fn labels(&self) -> &[L] {
        &self.labels
    }

    /// The rows of each group within the [sorted](Self::sorted) table.
    pub fn rows(&self) -> &[Range<usize>] {
        &self.rows
    }

    /// The label and the sorted rows of each group.
    pub fn into_parts(self) -> (Vec<L>, Vec<Range<usize>>) {
        (self.labels, self.rows)
    }

    /// The table with the rows of each group together: the given one if they are already, else a copy. Its weights and
    /// names move with it, parts do not.
    ///
    /// # Errors
    /// [`Error::Memory`] if the copy does not fit.
    ///
    /// # Panics
    /// If the table has another number of rows than the labels.
    pub fn sorted(&self, data: Dataset) -> Result<Dataset, Error> {
        let Some(order) = &self.order else { return Ok(data) };
        let (n, d) = data.rows().dim();
        assert_eq!(order.len(), n, "a label for each row");
        memory::check("the rows in the order of their groups", 8 * n as u128 * d as u128)?;
        let mut moved = data.select_rows(order);
        if let Some(weights) = data.weights() {
            moved = moved.with_weights(order.iter().map(|&row| weights[row]).collect())?;
        }
        Ok(moved)
    }

    /// Values of the sorted rows, `(n,)`, in the order of the table.
    ///
    /// # Panics
    /// If there are not `n` values.
    pub fn in_table_order<V: Clone>(&self, sorted: Vec<V>) -> Vec<V> {
        let Some(order) = &self.order else { return sorted };
        assert_eq!(order.len(), sorted.len(), "a value for each row");
        let mut out = sorted.clone();
        for (&row, value) in order.iter().zip(sorted) {
            out[row] = value;
        }
        out
    }

    /// The row of the table at a place of the sorted rows.
    pub fn table_row(&self, sorted: usize) -> usize {
        self.order.as_ref().map_or(sorted, |order| order[sorted])
    }
}
