//! Rubin's rules: one estimate from those of several imputed data sets.

use crate::ModelError;

/// An estimate pooled over imputed data sets.
///
/// ```
/// use gmm_model::missing::Pooled;
///
/// let pooled = Pooled::of(&[2.0, 4.0], &[1.0, 3.0])?;
/// // Within 2, between 2, total 2 + (1 + 1/2) 2.
/// assert_eq!((pooled.estimate, pooled.within, pooled.between, pooled.variance()), (3.0, 2.0, 2.0, 5.0));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pooled {
    /// Number of imputed data sets.
    pub n_imputations: usize,
    /// The mean of the estimates.
    pub estimate: f64,
    /// The mean of their squared standard errors.
    pub within: f64,
    /// The variance of the estimates over the data sets.
    pub between: f64,
}

impl Pooled {
    /// Pools the `estimates` of imputed data sets, `(m,)`, at least two, with the squares of their standard errors,
    /// `variances`.
    ///
    /// Source: Rubin 1987, "Multiple imputation for nonresponse in surveys", eqs. 3.1.2 to 3.1.4.
    ///
    /// # Errors
    /// [`ModelError::Shape`] if the lengths differ; [`ModelError::Range`] if there are fewer than two, an estimate is not
    /// finite, or a variance is negative or not finite.
    pub fn of(estimates: &[f64], variances: &[f64]) -> Result<Self, ModelError> {
        let m = estimates.len();
        if variances.len() != m {
            return Err(ModelError::Shape { what: "variances", found: vec![variances.len()], expected: vec![m] });
        }
        if m < 2 {
            return Err(ModelError::Range { what: "imputations", value: m.to_string(), must: "at least 2" });
        }
        if let Some(value) = estimates.iter().find(|v| !v.is_finite()) {
            return Err(ModelError::Range { what: "estimate", value: value.to_string(), must: "finite" });
        }
        if let Some(value) = variances.iter().find(|v| !(v.is_finite() && **v >= 0.0)) {
            return Err(ModelError::Range { what: "variance", value: value.to_string(), must: "finite, not negative" });
        }
        let estimate = estimates.iter().sum::<f64>() / m as f64;
        let within = variances.iter().sum::<f64>() / m as f64;
        let between = estimates.iter().map(|q| (q - estimate).powi(2)).sum::<f64>() / (m - 1) as f64;
        Ok(Self { n_imputations: m, estimate, within, between })
    }

    /// `(1 + 1/m)` times the variance between the data sets.
    fn extra(&self) -> f64 {
        (1.0 + 1.0 / self.n_imputations as f64) * self.between
    }

    /// The total variance, `within + (1 + 1/m) between`: the square of the standard error (Rubin 1987, eq. 3.1.5).
    pub fn variance(&self) -> f64 {
        self.within + self.extra()
    }

    /// Degrees of freedom of the t distribution of the estimate, `(m − 1)(1 + within / ((1 + 1/m) between))²` (Rubin 1987,
    /// eq. 3.1.6); infinite if the data sets agree.
    pub fn degrees_of_freedom(&self) -> f64 {
        (self.n_imputations - 1) as f64 * (1.0 + self.within / self.extra()).powi(2)
    }

    /// The fraction of information about the quantity that is missing, `(r + 2/(ν + 3)) / (r + 1)`, where `r` is the relative
    /// increase of the variance and `ν` are the degrees of freedom (Rubin 1987, eq. 3.1.10).
    pub fn missing_information(&self) -> f64 {
        let (extra, more) = (self.extra(), 2.0 / (self.degrees_of_freedom() + 3.0));
        if self.variance() == 0.0 { 0.0 } else { (extra + more * self.within) / self.variance() }
    }
}
