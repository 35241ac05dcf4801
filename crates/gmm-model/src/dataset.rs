//! Checked data sets: the input of every engine.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

use crate::{DataError, ModelError, RowArray};

/// The type in which an engine stores rows and computes products. Sums and parameters are always `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Precision {
    /// `f32` or `f64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "f32" => Ok(Self::F32),
            "f64" => Ok(Self::F64),
            _ => Err(ModelError::UnknownWord { what: "precision", word: text.to_owned(), choices: "f32, f64" }),
        }
    }
}

/// An `(n, d)` array of either precision, in row-major order. May contain NaN: [`Dataset`] is the checked form.
///
/// The values are owned, or borrowed for `'static` (a binding to another language can share its memory without a copy
/// if it keeps that memory alive), or shared with an owner that each [`RowArray`] keeps alive.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Single precision.
    F32(RowArray<f32>),
    /// Double precision.
    F64(RowArray<f64>),
}

impl From<RowArray<f32>> for Matrix {
    fn from(rows: RowArray<f32>) -> Self {
        Self::F32(rows)
    }
}

impl From<RowArray<f64>> for Matrix {
    fn from(rows: RowArray<f64>) -> Self {
        Self::F64(rows)
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<Array2<f32>> for Matrix {
    fn from(rows: Array2<f32>) -> Self {
        Self::F32(rows.into())
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<Array2<f64>> for Matrix {
    fn from(rows: Array2<f64>) -> Self {
        Self::F64(rows.into())
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<ArrayView2<'static, f32>> for Matrix {
    fn from(rows: ArrayView2<'static, f32>) -> Self {
        Self::F32(rows.into())
    }
}

/// Makes no copy if the rows are in row-major order.
impl From<ArrayView2<'static, f64>> for Matrix {
    fn from(rows: ArrayView2<'static, f64>) -> Self {
        Self::F64(rows.into())
    }
}

impl Matrix {
    /// `(n, d)`.
    pub fn dim(&self) -> (usize, usize) {
        match self {
            Self::F32(a) => a.dim(),
            Self::F64(a) => a.dim(),
        }
    }

    /// The precision of the stored values.
    pub const fn precision(&self) -> Precision {
        match self {
            Self::F32(_) => Precision::F32,
            Self::F64(_) => Precision::F64,
        }
    }

    /// Moves owned values to a shared owner, so that clones are cheap. No values are copied.
    #[must_use]
    pub fn into_shared(self) -> Self {
        match self {
            Self::F32(a) => Self::F32(a.into_shared()),
            Self::F64(a) => Self::F64(a.into_shared()),
        }
    }

    /// A clone that copies no values; `None` if the values are owned by this matrix alone.
    pub fn cheap_clone(&self) -> Option<Self> {
        match self {
            Self::F32(a) => a.cheap_clone().map(Self::F32),
            Self::F64(a) => a.cheap_clone().map(Self::F64),
        }
    }

    /// Entry `(row, column)` as `f64` (exact).
    pub fn at(&self, row: usize, column: usize) -> f64 {
        match self {
            Self::F32(a) => f64::from(a[[row, column]]),
            Self::F64(a) => a[[row, column]],
        }
    }

    /// All entries as `f64` (exact for `f32`).
    pub fn to_f64(&self) -> Array2<f64> {
        match self {
            Self::F32(a) => a.mapv(f64::from),
            Self::F64(a) => a.view().to_owned(),
        }
    }

    /// The columns of the given indices, in that order.
    ///
    /// # Panics
    /// If an index is `d` or more.
    pub fn select_columns(&self, columns: &[usize]) -> Self {
        match self {
            Self::F32(a) => Self::from(a.select(ndarray::Axis(1), columns)),
            Self::F64(a) => Self::from(a.select(ndarray::Axis(1), columns)),
        }
    }

    /// The rows of the given indices, in that order.
    ///
    /// # Panics
    /// If an index is `n` or more.
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        match self {
            Self::F32(a) => Self::from(a.select(ndarray::Axis(0), rows)),
            Self::F64(a) => Self::from(a.select(ndarray::Axis(0), rows)),
        }
    }

    /// The rows of a range, `(rows.len(), d)`. Copies values only if they are owned by this matrix alone.
    ///
    /// # Panics
    /// If the range ends beyond `n`.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        match self {
            Self::F32(a) => Self::F32(a.part(rows)),
            Self::F64(a) => Self::F64(a.part(rows)),
        }
    }

    /// A copy of consecutive rows.
    ///
    /// # Panics
    /// If the range ends after `n`.
    pub fn copy_rows(&self, rows: Range<usize>) -> Self {
        match self {
            Self::F32(a) => Self::from(a.slice(ndarray::s![rows, ..]).to_owned()),
            Self::F64(a) => Self::from(a.slice(ndarray::s![rows, ..]).to_owned()),
        }
    }

    fn first_not_finite(&self) -> Option<(usize, usize, f64)> {
        fn first<T: Copy + Sync>(a: &RowArray<T>, finite: impl Fn(T) -> bool + Sync) -> Option<(usize, usize)> {
            // Row and column are computed only if there is a value to report.
            let d = a.ncols();
            let flat = a.as_slice().expect("a Matrix is row-major");
            first_in_order(flat, |&v| !finite(v)).map(|i| (i / d, i % d))
        }
        let found = match self {
            Self::F32(a) => first(a, f32::is_finite),
            Self::F64(a) => first(a, f64::is_finite),
        };
        found.map(|(row, column)| (row, column, self.at(row, column)))
    }
}

/// Smallest number of values per thread: checking fewer takes less time than starting a thread.
const SHARE: usize = 1 << 19;

/// Number of values tested together.
const BLOCK: usize = 64;

/// Index of the first value that satisfies `wanted`. Large slices are searched by all cores: one core cannot use the
/// full memory bandwidth, and the search would take a noticeable part of a fit on a GPU.
///
/// The threads live only during the call: those of a pool would not exist in a forked process.
fn first_in_order<T: Sync>(numbers: &[T], wanted: impl Fn(&T) -> bool + Sync) -> Option<usize> {
    // Blocks are tested without an early exit, which would prevent vector instructions.
    let in_block = |block: &[T]| block.iter().fold(false, |found, v| found | wanted(v));
    let alone = |numbers: &[T]| {
        let block = numbers.chunks(BLOCK).position(in_block)?;
        numbers[block * BLOCK..].iter().position(&wanted).map(|i| block * BLOCK + i)
    };
    let cores = if numbers.len() < 2 * SHARE { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    let share = numbers.len().div_ceil(cores).max(SHARE);
    if numbers.len() <= share {
        return alone(numbers);
    }
    thread::scope(|scope| {
        let mut parts = numbers.chunks(share).enumerate();
        let here = parts.next();
        let seek = |(at, part)| alone(part).map(|found| at * share + found);
        // If the system cannot start a thread, this thread searches that part itself.
        let start = |part| thread::Builder::new().spawn_scoped(scope, move || seek(part)).map_err(|_| part);
        let started: Vec<_> = parts.map(start).collect();
        // Joined in order, so that the result is the first index, whichever thread finishes first.
        started.into_iter().fold(here.and_then(seek), |first, part| {
            first.or_else(|| match part {
                Ok(thread) => thread.join().expect("a look at numbers does not panic"),
                Err(part) => seek(part),
            })
        })
    })
}

/// Checks row weights for `n` rows.
///
/// # Errors
/// [`DataError`] if the length is not `n`, a weight is negative or not finite, or the sum is zero or infinite.
pub fn check_weights(weights: &[f64], n: usize) -> Result<(), DataError> {
    if weights.len() != n {
        return Err(DataError::WeightLength { found: weights.len(), n });
    }
    if let Some((row, &value)) = weights.iter().enumerate().find(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
        return Err(DataError::Weight { row, value });
    }
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 && sum.is_finite() { Ok(()) } else { Err(DataError::WeightSum { sum }) }
}

/// An `(n, d)` data set: at least one row and one column, all values finite, with optional row weights and column
/// names.
///
/// A row of weight 2 counts as two equal rows; a row of weight 0 does not count.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    rows: Matrix,
    /// Shared by clones.
    weights: Option<Arc<Vec<f64>>>,
    names: Option<Vec<String>>,
    /// First row of each part after the first.
    later_parts: Vec<usize>,
    in_place: bool,
}

impl Dataset {
    /// Checks shape and values. Cost: one pass.
    ///
    /// # Errors
    /// [`DataError::Empty`], or [`DataError::NotFinite`] with the first row and column.
    pub fn new(rows: impl Into<Matrix>) -> Result<Self, DataError> {
        let rows = rows.into();
        let (n, d) = rows.dim();
        if n == 0 || d == 0 {
            return Err(DataError::Empty { n, d });
        }
        if let Some((row, column, value)) = rows.first_not_finite() {
            return Err(DataError::NotFinite { row, column, value });
        }
        // Engines may then keep the rows without a copy.
        Ok(Self { rows: rows.into_shared(), weights: None, names: None, later_parts: Vec::new(), in_place: false })
    }

    /// Attaches row weights, `(n,)`.
    ///
    /// # Errors
    /// [`DataError`] if the length is not `n`, a weight is negative or not finite, or the sum is zero or infinite.
    pub fn with_weights(mut self, weights: Vec<f64>) -> Result<Self, DataError> {
        check_weights(&weights, self.n_rows())?;
        self.weights = Some(Arc::new(weights));
        Ok(self)
    }

    /// Attaches column names, `(d,)`.
    ///
    /// # Errors
    /// [`DataError::NameLength`] if the length is not `d`.
    pub fn with_names(mut self, names: Vec<String>) -> Result<Self, DataError> {
        if names.len() != self.n_features() {
            return Err(DataError::NameLength { found: names.len(), d: self.n_features() });
        }
        self.names = Some(names);
        Ok(self)
    }

    /// Divides the rows into consecutive parts, such as the files that they were read from; `starts` are the first rows
    /// of the parts after the first. The CPU engine takes sums per part and adds them in order, so that the sums of
    /// files that were processed one by one, added in the same order, have the same bits.
    ///
    /// # Panics
    /// If the starts do not rise strictly from 1 to less than `n`.
    #[must_use]
    pub fn with_parts(mut self, starts: Vec<usize>) -> Self {
        let rises = starts.windows(2).all(|pair| pair[0] < pair[1]);
        let inside =
            starts.first().is_none_or(|&first| first > 0) && starts.last().is_none_or(|&last| last < self.n_rows());
        assert!(rises && inside, "starts of parts");
        self.later_parts = starts;
        self
    }

    /// Asks engines on the host to read the rows where they are in every pass, and to make no copy of them in a layout
    /// of their own. A pass then takes longer, with the same bits. For rows beside whose memory a copy has no room,
    /// such as those in a mapped file.
    #[must_use]
    pub const fn kept_in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Whether engines are asked to make no copy of the rows.
    pub const fn is_kept_in_place(&self) -> bool {
        self.in_place
    }

    /// The rows of each part, in order; all rows if there is one part.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.later_parts.iter().copied());
        let ends = self.later_parts.iter().copied().chain([self.n_rows()]);
        starts.zip(ends).map(|(start, end)| start..end)
    }

    /// The rows of a range, at least one, as a data set of one part. Shares the values and copies the weights.
    ///
    /// # Panics
    /// If the range is empty or ends beyond `n`.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        assert!(!rows.is_empty(), "a part has rows");
        Self {
            rows: self.rows.part(rows.clone()),
            weights: self.weights.as_ref().map(|all| Arc::new(all[rows].to_vec())),
            names: self.names.clone(),
            later_parts: Vec::new(),
            in_place: self.in_place,
        }
    }

    /// A copy of only the rows of positive weight; `None` if all rows have positive weight. Parts without such rows
    /// vanish.
    pub fn without_absent_rows(&self) -> Option<Self> {
        let weights = self.weights.as_ref()?;
        let present: Vec<usize> = (0..weights.len()).filter(|&row| weights[row] > 0.0).collect();
        let moved = self.later_parts.iter().map(|&start| present.partition_point(|&row| row < start));
        let mut later_parts: Vec<usize> = moved.filter(|&start| start > 0 && start < present.len()).collect();
        later_parts.dedup();
        (present.len() < weights.len()).then(|| Self {
            rows: self.rows.select_rows(&present),
            weights: Some(Arc::new(present.iter().map(|&row| weights[row]).collect())),
            names: self.names.clone(),
            later_parts,
            in_place: self.in_place,
        })
    }

    /// Number of rows `n`.
    pub fn n_rows(&self) -> usize {
        self.rows.dim().0
    }

    /// Number of columns `d`.
    pub fn n_features(&self) -> usize {
        self.rows.dim().1
    }

    /// The values, `(n, d)`.
    pub const fn rows(&self) -> &Matrix {
        &self.rows
    }

    /// Row weights, `(n,)`, if any.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref().map(Vec::as_slice)
    }

    /// Weight of one row; 1 if there are no weights.
    pub fn weight(&self, row: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |w| w[row])
    }

    /// Sum of the row weights; `n` if there are none.
    pub fn total_weight(&self) -> f64 {
        self.weights.as_ref().map_or(self.n_rows() as f64, |w| w.iter().sum())
    }

    /// Column names, `(d,)`, if any.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_their_rows_when_rows_of_weight_0_go() {
        let data = Dataset::new(Array2::<f64>::zeros((6, 1))).unwrap().with_parts(vec![2, 3, 5]);
        assert_eq!(data.parts().collect::<Vec<_>>(), [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(data.part(3..5).n_rows(), 2);
        let weighted = data.with_weights(vec![0.0, 0.0, 1.0, 1.0, 0.0, 1.0]).unwrap();
        let present = weighted.without_absent_rows().unwrap();
        assert_eq!(present.parts().collect::<Vec<_>>(), [0..1, 1..2, 2..3]);
    }
}
