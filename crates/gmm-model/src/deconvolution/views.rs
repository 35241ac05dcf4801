//! Rows that are linear views of others, `w = R v`, and points that stand for the rows behind them.

use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};

use crate::{Cholesky, DataError};

/// Measured values `w`, `(n, m)`, and projections `R`, `(n, m, d)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Views {
    measured: Array2<f64>,
    projections: Array3<f64>,
}

impl Views {
    /// Checks shapes and values.
    ///
    /// # Errors
    /// [`DataError::Empty`]; [`DataError::NotFinite`] with the first measured value that is not finite;
    /// [`DataError::ErrorShape`] if the projections have another shape; [`DataError::Projection`] if an entry is not finite.
    pub fn new(measured: Array2<f64>, projections: Array3<f64>) -> Result<Self, DataError> {
        let ((n, m), (rows, from, d)) = (measured.dim(), projections.dim());
        if n == 0 || m == 0 || d == 0 {
            return Err(DataError::Empty { n, d: if m == 0 { m } else { d } });
        }
        if (rows, from) != (n, m) {
            let found = projections.shape().to_vec();
            return Err(DataError::ErrorShape { what: "projections", found, expected: vec![n, m, d] });
        }
        if let Some(((row, column), &value)) = measured.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(DataError::NotFinite { row, column, value });
        }
        if let Some(((row, ..), &value)) = projections.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(DataError::Projection { row, value });
        }
        let measured = measured.as_standard_layout().into_owned();
        Ok(Self { measured, projections: projections.as_standard_layout().into_owned() })
    }

    /// `w`, `(n, m)`, in row-major order.
    pub fn measured(&self) -> ArrayView2<'_, f64> {
        self.measured.view()
    }

    /// `R` of a row, `(m, d)`.
    pub fn projection(&self, row: usize) -> ArrayView2<'_, f64> {
        self.projections.index_axis(Axis(0), row)
    }

    /// Number of columns `d` of the rows behind the views.
    pub fn n_features(&self) -> usize {
        self.projections.dim().2
    }

    pub(super) fn select_rows(&self, rows: &[usize]) -> Self {
        Self { measured: self.measured.select(Axis(0), rows), projections: self.projections.select(Axis(0), rows) }
    }

    /// Points, `(n, d)`, with these views, for starts of a fit: of all points whose view is the measured one, that nearest
    /// to the mean of least squares of all views.
    ///
    /// # Errors
    /// [`DataError::Unseen`] if some direction is in no view.
    pub(crate) fn points(&self) -> Result<Array2<f64>, DataError> {
        let (n, d) = (self.measured.nrows(), self.n_features());
        let (mut normal, mut right) = (Array2::<f64>::zeros((d, d)), Array1::<f64>::zeros(d));
        for (r, w) in self.projections.outer_iter().zip(self.measured.outer_iter()) {
            normal += &r.t().dot(&r);
            right += &r.t().dot(&w);
        }
        let factor = Cholesky::new(normal.view()).map_err(|e| DataError::Unseen { column: e.column })?;
        let mut mean = right.to_vec();
        factor.solve_lower(&mut mean);
        factor.solve_lower_transposed(&mut mean);
        let mean = Array1::from_vec(mean);
        let mut out = Array2::zeros((n, d));
        for ((r, w), mut point) in
            self.projections.outer_iter().zip(self.measured.outer_iter()).zip(out.outer_iter_mut())
        {
            let mut gram = r.dot(&r.t());
            let size = gram.diag().iter().copied().fold(0.0, f64::max);
            // Rows of R that depend on one another; the points need not be exact.
            gram.diag_mut().mapv_inplace(|v| v + 1e-9 * size + f64::MIN_POSITIVE);
            let mut rest = (&w - &r.dot(&mean)).to_vec();
            point.assign(&mean);
            if let Ok(factor) = Cholesky::new(gram.view()) {
                factor.solve_lower(&mut rest);
                factor.solve_lower_transposed(&mut rest);
                point += &r.t().dot(&Array1::from_vec(rest));
            }
        }
        Ok(out)
    }
}
