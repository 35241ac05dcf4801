//! Error covariances of rows, checked.

use std::ops::Range;
use std::sync::Arc;

use ndarray::{Array2, Array3, ArrayView2, Axis};

use super::Views;
use crate::{DataError, packed_index, packed_len};

/// The error covariance of each of `n` rows of `m` measured values, and, if the rows are linear views of others, their
/// projections. Clones share the values.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementErrors {
    covariances: ErrorCovariances,
    views: Option<Arc<Views>>,
}

/// Error covariances `S`, positive semidefinite.
#[derive(Clone, Debug, PartialEq)]
pub enum ErrorCovariances {
    /// Independent errors: variances, `(n, m)`.
    Diag(Arc<Array2<f64>>),
    /// Correlated errors: packed lower triangles, `(n, m*(m+1)/2)`.
    Full(Arc<Array2<f64>>),
}

impl ErrorCovariances {
    /// `(n, m*(m+1)/2)` or `(n, m)`: the values of each row are contiguous.
    pub fn values(&self) -> ArrayView2<'_, f64> {
        match self {
            Self::Diag(all) | Self::Full(all) => all.view(),
        }
    }

    /// Whether errors are independent.
    pub const fn is_diagonal(&self) -> bool {
        matches!(self, Self::Diag(_))
    }

    fn map(&self, change: impl FnOnce(&Array2<f64>) -> Array2<f64>) -> Self {
        match self {
            Self::Diag(all) => Self::Diag(Arc::new(change(all))),
            Self::Full(all) => Self::Full(Arc::new(change(all))),
        }
    }
}

impl MeasurementErrors {
    /// Independent errors with the given standard deviations, `(n, m)`, in the units of the columns; not variances. 0 is an
    /// exact value. NaN is allowed where the value of the row is missing ([`Dataset::with_holes`](crate::Dataset)).
    ///
    /// # Errors
    /// [`DataError::Deviation`] with the first deviation that is negative or infinite, or whose square is.
    pub fn from_deviations(mut deviations: Array2<f64>) -> Result<Self, DataError> {
        for ((row, column), value) in deviations.indexed_iter_mut() {
            let square = *value * *value;
            // A deviation so small that its square is 0 is exact.
            if *value < 0.0 || square.is_infinite() {
                return Err(DataError::Deviation { row, column, value: *value });
            }
            *value = square;
        }
        Ok(Self { covariances: ErrorCovariances::Diag(Arc::new(standard(deviations))), views: None })
    }

    /// Errors with the given covariances, `(n, m, m)`, symmetric and positive semidefinite up to the rounding of single
    /// precision. Zero matrices are exact rows.
    ///
    /// Cost: `n*m³/3` flops, to check them.
    ///
    /// # Errors
    /// [`DataError::ErrorCovariance`] with the first row whose matrix is not finite, symmetric and positive semidefinite.
    pub fn from_covariances(covariances: &Array3<f64>) -> Result<Self, DataError> {
        let (n, m, columns) = covariances.dim();
        if m != columns {
            let found = covariances.shape().to_vec();
            return Err(DataError::ErrorShape { what: "error covariances", found, expected: vec![n, m, m] });
        }
        let mut packed = Array2::zeros((n, packed_len(m)));
        let (mut work, mut left) = (Array2::zeros((m, m)), Vec::new());
        for (row, (a, mut packed)) in covariances.outer_iter().zip(packed.outer_iter_mut()).enumerate() {
            check(a, &mut work, &mut left).map_err(|why| DataError::ErrorCovariance { row, why })?;
            for i in 0..m {
                (0..=i).for_each(|j| packed[packed_index(i, j)] = a[[i, j]]);
            }
        }
        Ok(Self { covariances: ErrorCovariances::Full(Arc::new(packed)), views: None })
    }

    /// The rows that these errors belong to are the given views.
    pub(crate) fn of_views(self, views: Views) -> Self {
        Self { views: Some(Arc::new(views)), ..self }
    }

    /// The covariances.
    pub const fn covariances(&self) -> &ErrorCovariances {
        &self.covariances
    }

    /// The measured values and projections, if the rows are views.
    pub fn views(&self) -> Option<&Views> {
        self.views.as_deref()
    }

    /// `(n, m)`.
    pub fn dim(&self) -> (usize, usize) {
        let (n, len) = self.covariances.values().dim();
        match self.covariances {
            ErrorCovariances::Diag(_) => (n, len),
            // len = m (m + 1) / 2.
            ErrorCovariances::Full(_) => (n, ((8 * len + 1).isqrt() - 1) / 2),
        }
    }

    /// Error covariance of a row, `(m, m)`.
    pub fn matrix(&self, row: usize) -> Array2<f64> {
        let (m, values) = (self.dim().1, self.covariances.values());
        let values = values.row(row);
        Array2::from_shape_fn((m, m), |(i, j)| match self.covariances {
            ErrorCovariances::Diag(_) => {
                if i == j {
                    values[i]
                } else {
                    0.0
                }
            }
            ErrorCovariances::Full(_) => values[packed_index(i.max(j), i.min(j))],
        })
    }

    /// Errors if a variance is NaN where the value of the row is not.
    ///
    /// # Errors
    /// [`DataError::Deviation`] with the first.
    pub(crate) fn check_beside(&self, is_missing: impl Fn(usize, usize) -> bool) -> Result<(), DataError> {
        let ErrorCovariances::Diag(all) = &self.covariances else { return Ok(()) };
        match all.indexed_iter().find(|((row, column), v)| v.is_nan() && !is_missing(*row, *column)) {
            Some(((row, column), _)) => Err(DataError::Deviation { row, column, value: f64::NAN }),
            None => Ok(()),
        }
    }

    /// Those of the given rows.
    #[must_use]
    pub fn select_rows(&self, rows: &[usize]) -> Self {
        let views = self.views.as_ref().map(|views| Arc::new(views.select_rows(rows)));
        Self { covariances: self.covariances.map(|all| all.select(Axis(0), rows)), views }
    }

    /// Those of consecutive rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        self.select_rows(&rows.collect::<Vec<_>>())
    }
}

/// In row-major order.
fn standard(a: Array2<f64>) -> Array2<f64> {
    if a.is_standard_layout() { a } else { a.as_standard_layout().into_owned() }
}

/// What a positive semidefinite matrix of correlations may lack by rounding, also of single precision.
const ROUNDING: f64 = 1e-6;

/// Checks an error covariance; `work` is `(m, m)`, and `left` is `(m,)`.
///
/// Of the correlations, the pivots of largest diagonal entry are eliminated, one after another, which is stable for singular
/// matrices too: what is left of a semidefinite matrix has no entry larger than its diagonal.
fn check(a: ArrayView2<'_, f64>, work: &mut Array2<f64>, left: &mut Vec<usize>) -> Result<(), String> {
    let m = a.nrows();
    if let Some(((i, j), v)) = a.indexed_iter().find(|(_, v)| !v.is_finite()) {
        return Err(format!("has {v} as entry ({i}, {j}): it must be finite"));
    }
    for i in 0..m {
        if let Some(j) =
            (0..i).find(|&j| (a[[i, j]] - a[[j, i]]).abs() > ROUNDING * a[[i, j]].abs().max(a[[j, i]].abs()))
        {
            return Err(format!("is not symmetric: entries ({i}, {j}) and ({j}, {i}) differ"));
        }
    }
    let indefinite = |column: usize| Err(format!("is not positive semidefinite (column {column})"));
    let root = |i: usize| a[[i, i]].max(0.0).sqrt();
    for i in 0..m {
        for j in 0..m {
            let size = root(i) * root(j);
            if a[[i, j]].abs() > (1.0 + ROUNDING) * size || a[[i, i]] < 0.0 {
                return indefinite(i);
            }
            work[[i, j]] = if size > 0.0 { a[[i, j]] / size } else { 0.0 };
        }
    }
    left.clear();
    left.extend(0..m);
    while let Some(at) = (0..left.len()).max_by(|&p, &q| work[[left[p], left[p]]].total_cmp(&work[[left[q], left[q]]]))
    {
        let pivot = left.swap_remove(at);
        let size = work[[pivot, pivot]];
        let entries = || left.iter().flat_map(|&i| left.iter().map(move |&j| (i, j)));
        if size <= ROUNDING {
            let large = entries().find(|&(i, j)| work[[i, j]].abs() > ROUNDING);
            let column = large.map(|(i, _)| i).or((size < -ROUNDING).then_some(pivot));
            return column.map_or(Ok(()), indefinite);
        }
        for &i in left.iter() {
            let factor = work[[i, pivot]] / size;
            left.iter().for_each(|&j| work[[i, j]] -= factor * work[[pivot, j]]);
        }
    }
    Ok(())
}
