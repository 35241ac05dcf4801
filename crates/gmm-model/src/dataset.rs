//! Checked data sets: the input of every engine.

mod indirect;

use std::ops::Range;
use std::sync::Arc;

use crate::censoring::Limits;
use crate::deconvolution::MeasurementErrors;
use crate::{DataError, Matrix};

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
/// names. One made by [`with_holes`](Self::with_holes) may have missing values, which are NaN.
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
    /// Whether NaN stands for a missing value.
    has_missing: bool,
    /// The rows of positive weight, if a copy of them was provided.
    present: Option<Arc<Self>>,
    errors: Option<MeasurementErrors>,
    limits: Option<Limits>,
}

impl Dataset {
    /// Checks shape and values. Cost: one pass.
    ///
    /// # Errors
    /// [`DataError::Empty`], or [`DataError::NotFinite`] with the first row and column.
    pub fn new(rows: impl Into<Matrix>) -> Result<Self, DataError> {
        let data = Self::unread(rows)?;
        data.check_finite()?;
        Ok(data)
    }

    /// As [`new`](Self::new), without a look at the values: for callers that call [`check_finite`](Self::check_finite)
    /// later, or find out otherwise. Rows that are not finite give results without meaning.
    ///
    /// # Errors
    /// [`DataError::Empty`].
    pub fn unread(rows: impl Into<Matrix>) -> Result<Self, DataError> {
        let rows = rows.into();
        let (n, d) = rows.dim();
        if n == 0 || d == 0 {
            return Err(DataError::Empty { n, d });
        }
        Ok(Self::unchecked(rows, false))
    }

    /// As [`new`](Self::new), where NaN is a missing value. Values are taken to be missing at random: whether one is missing
    /// may depend on the observed values of its row, but given those not on the missing ones. Rows without a NaN give the
    /// data set of [`new`](Self::new). A row may have no observed value; it says nothing about a mixture.
    ///
    /// Not everything that takes a data set takes one with missing values; what does not is an error.
    ///
    /// # Errors
    /// [`DataError::Empty`]; [`DataError::NotFinite`] with the first infinite value.
    pub fn with_holes(rows: impl Into<Matrix>) -> Result<Self, DataError> {
        let rows = rows.into();
        let (n, d) = rows.dim();
        if n == 0 || d == 0 {
            return Err(DataError::Empty { n, d });
        }
        if rows.first_not_finite().is_none() {
            return Ok(Self::unchecked(rows, false));
        }
        if let Some((row, column, value)) = rows.first_infinite() {
            return Err(DataError::NotFinite { row, column, value });
        }
        Ok(Self::unchecked(rows, true))
    }

    /// The rows of the given indices, which may repeat, with their measurement errors and limits: one part, without weights.
    #[must_use]
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        let errors = self.errors.as_ref().map(|errors| errors.select_rows(rows));
        let limits = self.limits.as_ref().map(|limits| limits.select_rows(rows));
        Self {
            names: self.names.clone(),
            errors,
            limits,
            ..Self::unchecked(self.rows.select_rows(rows), self.has_missing)
        }
    }

    fn unchecked(rows: Matrix, has_missing: bool) -> Self {
        // Engines may keep shared rows without a copy.
        let rows = rows.into_shared();
        Self {
            rows,
            weights: None,
            names: None,
            later_parts: Vec::new(),
            in_place: false,
            has_missing,
            present: None,
            errors: None,
            limits: None,
        }
    }

    /// Whether some value may be missing: NaN then stands for one.
    pub const fn has_missing(&self) -> bool {
        self.has_missing
    }

    /// Errors if some column has no observed value: a mixture cannot be fitted to it.
    ///
    /// # Errors
    /// [`DataError::Unobserved`] with the first such column.
    pub fn check_columns_observed(&self) -> Result<(), DataError> {
        let n = self.n_rows();
        let is_unobserved = |column: &usize| (0..n).all(|row| self.rows.at(row, *column).is_nan());
        match (0..self.n_features()).find(is_unobserved).filter(|_| self.has_missing) {
            Some(column) => Err(DataError::Unobserved { column }),
            None => Ok(()),
        }
    }

    /// Number of missing values.
    pub fn n_missing(&self) -> usize {
        match &self.rows {
            _ if !self.has_missing => 0,
            Matrix::F32(a) => a.iter().filter(|v| v.is_nan()).count(),
            Matrix::F64(a) => a.iter().filter(|v| v.is_nan()).count(),
        }
    }

    /// For each row, `(n,)`, whether it has an observed value; `None` if every row has one.
    pub fn rows_observed(&self) -> Option<Vec<bool>> {
        fn of<T: Copy>(a: &crate::RowArray<T>, is_nan: impl Fn(T) -> bool) -> Vec<bool> {
            a.outer_iter().map(|row| row.iter().any(|&v| !is_nan(v))).collect()
        }
        let observed = match &self.rows {
            _ if !self.has_missing => return None,
            Matrix::F32(a) => of(a, f32::is_nan),
            Matrix::F64(a) => of(a, f64::is_nan),
        };
        observed.contains(&false).then_some(observed)
    }

    /// Errors if a value is NaN or infinite. Cost: one pass.
    ///
    /// # Errors
    /// [`DataError::NotFinite`] with the first row and column.
    pub fn check_finite(&self) -> Result<(), DataError> {
        match self.rows.first_not_finite() {
            Some((row, column, value)) => Err(DataError::NotFinite { row, column, value }),
            None => Ok(()),
        }
    }

    /// Attaches row weights, `(n,)`.
    ///
    /// # Errors
    /// [`DataError`] if the length is not `n`, a weight is negative or not finite, or the sum is zero or infinite.
    pub fn with_weights(mut self, weights: Vec<f64>) -> Result<Self, DataError> {
        check_weights(&weights, self.n_rows())?;
        self.weights = Some(Arc::new(weights));
        self.present = None;
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
        self.present = None;
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
            weights: self.weights.as_ref().map(|all| Arc::new(all[rows.clone()].to_vec())),
            names: self.names.clone(),
            later_parts: Vec::new(),
            in_place: self.in_place,
            has_missing: self.has_missing,
            present: None,
            errors: self.errors.as_ref().map(|errors| errors.part(rows.clone())),
            limits: self.limits.as_ref().map(|limits| limits.part(rows)),
        }
    }

    /// The rows of positive weight in order, as copies of at most about 32 MiB; `None` if all rows have positive
    /// weight.
    pub fn present_rows(&self) -> Option<impl Iterator<Item = Matrix>> {
        let weights = self.weights().filter(|weights| weights.contains(&0.0))?;
        let block = ((1 << 22) / self.n_features()).max(1);
        let mut present = (0..weights.len()).filter(|&row| weights[row] > 0.0);
        Some(std::iter::from_fn(move || {
            let some: Vec<usize> = present.by_ref().take(block).collect();
            (!some.is_empty()).then(|| self.rows.select_rows(&some))
        }))
    }

    /// Provides a copy of all [`present_rows`](Self::present_rows), which
    /// [`without_absent_rows`](Self::without_absent_rows) would else make in memory. Comes after the weights and parts.
    ///
    /// # Panics
    /// If the number of rows or columns differs.
    #[must_use]
    pub fn with_present_rows(mut self, rows: Matrix) -> Self {
        let weights: Vec<f64> = self.weights().unwrap_or_default().iter().copied().filter(|&w| w > 0.0).collect();
        assert_eq!(rows.dim(), (weights.len(), self.n_features()), "the rows of positive weight");
        self.present = Some(Arc::new(self.only_present(rows.into_shared(), weights)));
        self
    }

    /// Only the rows of positive weight, in a copy; `None` if all rows have positive weight. Parts without such rows
    /// vanish.
    pub fn without_absent_rows(&self) -> Option<Self> {
        if let Some(present) = &self.present {
            return Some(Self::clone(present));
        }
        let weights = self.weights.as_ref()?;
        let present: Vec<usize> = (0..weights.len()).filter(|&row| weights[row] > 0.0).collect();
        (present.len() < weights.len()).then(|| {
            let of_present = present.iter().map(|&row| weights[row]).collect();
            self.only_present(self.rows.select_rows(&present), of_present)
        })
    }

    /// The data set of the rows of positive weight.
    fn only_present(&self, rows: Matrix, weights: Vec<f64>) -> Self {
        let all = self.weights.as_ref().expect("weights, some of them 0");
        let count = |rows: Range<usize>| all[rows].iter().filter(|&&weight| weight > 0.0).count();
        let moved = self.parts().scan(0, |start, part| {
            *start += count(part);
            Some(*start)
        });
        let mut later_parts: Vec<usize> = moved.filter(|&start| start > 0 && start < weights.len()).collect();
        later_parts.dedup();
        let present = || (0..all.len()).filter(|&row| all[row] > 0.0).collect::<Vec<_>>();
        let errors = self.errors.as_ref().map(|errors| errors.select_rows(&present()));
        let limits = self.limits.as_ref().map(|limits| limits.select_rows(&present()));
        Self {
            rows,
            weights: Some(Arc::new(weights)),
            names: self.names.clone(),
            later_parts,
            in_place: self.in_place,
            has_missing: self.has_missing,
            present: None,
            errors,
            limits,
        }
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
    use ndarray::Array2;

    use super::*;

    #[test]
    fn parts_follow_their_rows_when_rows_of_weight_0_go() {
        let data = Dataset::new(Array2::<f64>::zeros((6, 1))).unwrap().with_parts(vec![2, 3, 5]);
        assert_eq!(data.parts().collect::<Vec<_>>(), [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(data.part(3..5).n_rows(), 2);
        let weighted = data.with_weights(vec![0.0, 0.0, 1.0, 1.0, 0.0, 1.0]).unwrap();
        let present = weighted.without_absent_rows().unwrap();
        assert_eq!(present.parts().collect::<Vec<_>>(), [0..1, 1..2, 2..3]);
        assert!(present.present_rows().is_none());
        // The blocks together are the copy, and one that is provided takes its place.
        let blocks: Vec<Matrix> = weighted.present_rows().unwrap().collect();
        assert_eq!(blocks, [present.rows().clone()]);
        let provided = weighted.with_present_rows(Array2::<f64>::ones((3, 1)).into());
        assert_eq!(provided.without_absent_rows().unwrap().rows(), &Matrix::from(Array2::<f64>::ones((3, 1))));
        assert_eq!(provided.without_absent_rows().unwrap().parts().collect::<Vec<_>>(), [0..1, 1..2, 2..3]);
    }
}
