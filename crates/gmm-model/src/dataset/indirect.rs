//! Rows that are known only indirectly: within limits, with measurement errors, or as linear views.

use std::sync::Arc;

use ndarray::{Array2, Array3};

use super::Dataset;
use crate::DataError;
use crate::censoring::Limits;
use crate::deconvolution::{MeasurementErrors, Views};

impl Dataset {
    /// Rows of which some values are known only within limits, `(n, d)` each: a value is between `lower` and `upper`, of which
    /// each may be infinite. Equal limits are an exact value, both infinite ones a missing value. A density is that of the exact
    /// values of a row times the probability of the others' box ([`censoring`](crate::censoring)).
    ///
    /// [`rows`](Self::rows) then are values within the limits: the start of a fit uses them. If no value has limits, the result
    /// is that of [`with_holes`](Self::with_holes).
    ///
    /// Not everything that takes a data set takes one with limits; what does not is an error.
    ///
    /// # Errors
    /// [`DataError::Empty`]; [`DataError::ErrorShape`] if the shapes differ; [`DataError::Interval`] with the first limits
    /// between which there is no number.
    pub fn with_censoring(lower: Array2<f64>, upper: Array2<f64>) -> Result<Self, DataError> {
        let limits = Limits::new(lower, upper)?;
        let data = Self::with_holes(limits.values())?;
        Ok(Self { limits: (limits.n_limited() > 0).then_some(limits), ..data })
    }

    /// The same rows, of which none outside of a box was recorded: `lower` and `upper` are its ends, `(d,)`, of which each may
    /// be infinite. A density then is that of a recorded row, and a fit estimates the mixture of all.
    ///
    /// If all ends are infinite, the result is the same data set.
    ///
    /// # Errors
    /// [`DataError::Truncation`] if the box has another number of columns or is empty; [`DataError::Outside`] with the first
    /// value outside of it; [`DataError::LimitsAndErrors`] if the rows have measurement errors.
    pub fn with_truncation(mut self, lower: Vec<f64>, upper: Vec<f64>) -> Result<Self, DataError> {
        if self.errors.is_some() {
            return Err(DataError::LimitsAndErrors);
        }
        let limits = match self.limits.take() {
            Some(limits) => limits,
            None => {
                let values = self.rows.to_f64();
                let ends = |missing: f64| values.mapv(|v| if v.is_nan() { missing } else { v });
                Limits::new(ends(f64::NEG_INFINITY), ends(f64::INFINITY))?
            }
        };
        let is_open = lower.iter().chain(&upper).all(|end| end.is_infinite());
        let limits = limits.truncated(lower, upper)?;
        self.limits = (!is_open || limits.n_limited() > 0).then_some(limits);
        self.present = None;
        Ok(self)
    }

    /// The limits of the values, if some are known only within limits or rows are truncated.
    pub const fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    /// The same rows without their limits, as if the values within them were exact.
    #[must_use]
    pub fn without_limits(&self) -> Self {
        let present = self.present.as_ref().map(|present| Arc::new(present.without_limits()));
        Self { limits: None, present, ..self.clone() }
    }

    /// Whether the rows are known only indirectly: with measurement errors or within limits.
    pub const fn is_indirect(&self) -> bool {
        self.errors.is_some() || self.limits.is_some()
    }

    /// The rows behind linear views of them: `measured`, `(n, m)`, are views `R v` of rows `v` of `d` columns with
    /// measurement errors. `projections` are the `R` of each row, `(n, m, d)`; `errors` are those of the measured values.
    ///
    /// [`rows`](Self::rows) then are points, `(n, d)`, with the measured views: the start of a fit uses them.
    ///
    /// # Errors
    /// As [`Views::new`]; [`DataError::ErrorShape`] if the errors have another shape; [`DataError::Unseen`] if the
    /// projections of all rows together leave a direction out.
    pub fn of_views(
        measured: Array2<f64>,
        projections: Array3<f64>,
        errors: MeasurementErrors,
    ) -> Result<Self, DataError> {
        let views = Views::new(measured, projections)?;
        check_errors(&errors, views.measured().dim())?;
        errors.check_beside(|_, _| false)?;
        let data = Self::new(views.points()?)?;
        Ok(Self { errors: Some(errors.of_views(views)), ..data })
    }

    /// Attaches measurement errors, of shape `(n, d)`: the rows are true rows with such errors added. Densities are then
    /// those of the noisy rows, and a fit estimates the mixture of the true ones ([`deconvolution`](crate::deconvolution)).
    /// Values may be missing.
    ///
    /// Not everything that takes a data set takes one with measurement errors; what does not is an error.
    ///
    /// # Errors
    /// [`DataError::ErrorShape`] if the shape differs; [`DataError::Deviation`] if a deviation is NaN where a value is not
    /// missing; [`DataError::LimitsAndErrors`] if the rows have limits.
    pub fn with_measurement_errors(mut self, errors: MeasurementErrors) -> Result<Self, DataError> {
        if self.limits.is_some() {
            return Err(DataError::LimitsAndErrors);
        }
        check_errors(&errors, self.rows.dim())?;
        errors.check_beside(|row, column| self.has_missing && self.rows.at(row, column).is_nan())?;
        self.errors = Some(errors);
        self.present = None;
        Ok(self)
    }

    /// The measurement errors, if any.
    pub const fn measurement_errors(&self) -> Option<&MeasurementErrors> {
        self.errors.as_ref()
    }

    /// The same rows without their measurement errors.
    #[must_use]
    pub fn without_measurement_errors(&self) -> Self {
        let present = self.present.as_ref().map(|present| Arc::new(present.without_measurement_errors()));
        Self { errors: None, present, ..self.clone() }
    }
}

/// Errors unless the measurement errors are those of `n` rows of `m` values.
fn check_errors(errors: &MeasurementErrors, (n, m): (usize, usize)) -> Result<(), DataError> {
    let (rows, values) = errors.dim();
    if (rows, values) == (n, m) {
        return Ok(());
    }
    Err(DataError::ErrorShape { what: "measurement errors", found: vec![rows, values], expected: vec![n, m] })
}
