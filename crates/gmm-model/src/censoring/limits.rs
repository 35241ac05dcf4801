//! The limits of the values of rows, checked.

use std::ops::Range;
use std::sync::Arc;

use ndarray::{Array2, ArrayView1, Axis};

use crate::DataError;

/// The interval of each value of `n` rows of `d` columns, and the box outside of which no row was recorded, if there is one.
/// Clones share the values.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `(n, d)` each. Equal limits are an exact value; both infinite, a missing one. Within the truncation.
    lower: Arc<Array2<f64>>,
    upper: Arc<Array2<f64>>,
    /// Lower and upper ends of the box, `(d,)` each.
    truncation: Option<Arc<[Vec<f64>; 2]>>,
}

impl Limits {
    /// Checks limits of shape `(n, d)` each.
    ///
    /// # Errors
    /// [`DataError::ErrorShape`] if the shapes differ; [`DataError::Interval`] with the first interval without a number.
    pub(crate) fn new(lower: Array2<f64>, upper: Array2<f64>) -> Result<Self, DataError> {
        if lower.dim() != upper.dim() {
            let (found, expected) = (upper.shape().to_vec(), lower.shape().to_vec());
            return Err(DataError::ErrorShape { what: "upper limits", found, expected });
        }
        for ((row, column), &low) in lower.indexed_iter() {
            let high = upper[[row, column]];
            let is_interval = low < high && low < f64::INFINITY && high > f64::NEG_INFINITY;
            if !(is_interval || low == high && low.is_finite()) {
                return Err(DataError::Interval { row, column, lower: low, upper: high });
            }
        }
        let standard = |a: Array2<f64>| Arc::new(a.as_standard_layout().into_owned());
        Ok(Self { lower: standard(lower), upper: standard(upper), truncation: None })
    }

    /// The same values of rows that were recorded only within a box, `(d,)` each.
    ///
    /// # Errors
    /// [`DataError::Truncation`] if the box has another number of columns or is empty; [`DataError::Outside`] with the first
    /// value outside of it.
    pub(crate) fn truncated(mut self, lower: Vec<f64>, upper: Vec<f64>) -> Result<Self, DataError> {
        let d = self.lower.ncols();
        if lower.len() != d || upper.len() != d {
            return Err(DataError::Truncation {
                why: format!("has {} and {} ends for {d} columns", lower.len(), upper.len()),
            });
        }
        if let Some(column) = (0..d).find(|&j| !(lower[j] < upper[j] && lower[j] < f64::INFINITY)) {
            let why = format!("is empty in column {column}: from {} to {}", lower[column], upper[column]);
            return Err(DataError::Truncation { why });
        }
        let (own_lower, own_upper) = (Arc::make_mut(&mut self.lower), Arc::make_mut(&mut self.upper));
        for ((row, column), low) in own_lower.indexed_iter_mut() {
            let high = &mut own_upper[[row, column]];
            let is_exact = low == high;
            let (cut_low, cut_high) = (low.max(lower[column]), high.min(upper[column]));
            if cut_low > cut_high || cut_low == cut_high && !is_exact {
                return Err(DataError::Outside { row, column, lower: lower[column], upper: upper[column] });
            }
            (*low, *high) = (cut_low, cut_high);
        }
        self.truncation = Some(Arc::new([lower, upper]));
        Ok(self)
    }

    /// Lower and upper limits of a row, `(d,)` each.
    pub fn row(&self, row: usize) -> (ArrayView1<'_, f64>, ArrayView1<'_, f64>) {
        (self.lower.row(row), self.upper.row(row))
    }

    /// Lower and upper ends of the box outside of which no row was recorded, `(d,)` each.
    pub fn truncation(&self) -> Option<(&[f64], &[f64])> {
        self.truncation.as_ref().map(|ends| (ends[0].as_slice(), ends[1].as_slice()))
    }

    /// Number of values that are known only within an interval.
    pub fn n_limited(&self) -> usize {
        let is_limited = |(low, high): (&f64, &f64)| low < high && (low.is_finite() || high.is_finite());
        self.lower.iter().zip(&*self.upper).filter(|&ends| is_limited(ends)).count()
    }

    /// The first column whose values have no most likely mean and variance: none is exact or within two finite limits, and those
    /// below their limits could all lie below those above theirs. Without rows there is none. Cost: `n*d`.
    pub fn unlocated_column(&self) -> Option<usize> {
        (0..self.lower.ncols()).find(|&j| {
            let (mut is_limited, mut below, mut above) = (false, f64::NEG_INFINITY, f64::INFINITY);
            for (&low, &high) in self.lower.column(j).iter().zip(self.upper.column(j)) {
                match (low.is_finite(), high.is_finite()) {
                    (true, true) => return false,
                    (true, false) => above = above.min(low),
                    (false, true) => below = below.max(high),
                    (false, false) => continue,
                }
                is_limited = true;
            }
            // Limits that differ by row and overlap are enough: probabilities at two points are a mean and a deviation.
            is_limited && below <= above
        })
    }

    /// A value of each interval, `(n, d)`: the exact value, the middle, or the finite limit; NaN of a missing value.
    pub(crate) fn values(&self) -> Array2<f64> {
        let value = |low: f64, high: f64| match (low.is_finite(), high.is_finite()) {
            (true, true) => low + 0.5 * (high - low),
            (true, false) => low,
            (false, true) => high,
            (false, false) => f64::NAN,
        };
        ndarray::Zip::from(&*self.lower).and(&*self.upper).map_collect(|&low, &high| value(low, high))
    }

    /// Those of the rows of a range.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        self.select_rows(&rows.collect::<Vec<_>>())
    }

    /// Those of the rows of the given indices.
    pub(crate) fn select_rows(&self, rows: &[usize]) -> Self {
        let of = |all: &Array2<f64>| Arc::new(all.select(Axis(0), rows));
        Self { lower: of(&self.lower), upper: of(&self.upper), truncation: self.truncation.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_unlocated_if_its_values_may_be_arbitrarily_far_away() {
        const INF: f64 = f64::INFINITY;
        let of = |ends: &[(f64, f64)]| {
            let column = |end: fn(&(f64, f64)) -> f64| Array2::from_shape_fn((ends.len(), 1), |(i, _)| end(&ends[i]));
            Limits::new(column(|e| e.0), column(|e| e.1)).unwrap().unlocated_column()
        };
        // All above, all below, on both sides of a gap, and beside missing values.
        assert_eq!(of(&[(1.0, INF), (2.0, INF)]), Some(0));
        assert_eq!(of(&[(-INF, 1.0), (-INF, 2.0)]), Some(0));
        assert_eq!(of(&[(-INF, 1.0), (3.0, INF)]), Some(0));
        assert_eq!(of(&[(-INF, 1.0), (-INF, INF)]), Some(0));
        // An exact value, one within limits, and limits that overlap, as of doses and responses.
        assert_eq!(of(&[(1.0, INF), (2.0, 2.0)]), None);
        assert_eq!(of(&[(-INF, 1.0), (1.0, 3.0)]), None);
        assert_eq!(of(&[(-INF, 1.0), (-INF, 3.0), (1.0, INF), (2.0, INF)]), None);
        // Only missing: another error.
        assert_eq!(of(&[(-INF, INF)]), None);
    }
}
