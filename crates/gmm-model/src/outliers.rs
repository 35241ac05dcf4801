//! The log density below which a row is an outlier.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// A threshold on the log density: rows below it are outliers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutlierThreshold {
    /// The threshold.
    pub log_density: f64,
    /// The share of the rows that it was chosen for, if it is a quantile of their log densities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contamination: Option<f64>,
    /// The probability of its complement under the mixture itself, if it bounds a highest-density region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<f64>,
}

impl OutlierThreshold {
    /// The threshold below which at most the share `contamination` of the rows lies, by weight, and as many rows as that
    /// allows.
    ///
    /// It lies halfway between the rows on both sides, so that rounding on another machine moves none of them. A row of
    /// weight 2 counts as two equal rows. Cost: a sort.
    ///
    /// # Errors
    /// [`ModelError::Range`] if `contamination` is not between 0 and 0.5, or if more rows than that have density 0, so
    /// that no threshold separates them.
    ///
    /// ```
    /// use gmm_model::OutlierThreshold;
    ///
    /// let threshold = OutlierThreshold::of_rows(&[-3.0, -9.0, -2.0, -4.0], None, 0.25)?;
    /// assert_eq!(threshold.log_density, -6.5);
    /// assert!(threshold.is_outlier(-9.0) && !threshold.is_outlier(-4.0));
    /// # Ok::<(), gmm_model::ModelError>(())
    /// ```
    pub fn of_rows(log_densities: &[f64], weights: Option<&[f64]>, contamination: f64) -> Result<Self, ModelError> {
        /// Rounding of a share of the total weight: `0.07 * 100` must count as 7.
        const ROUNDING: f64 = 1e-12;
        if !(contamination > 0.0 && contamination <= 0.5) {
            let value = contamination.to_string();
            return Err(ModelError::Range { what: "contamination", value, must: "above 0 and at most 0.5" });
        }
        let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
        let mut order: Vec<usize> = (0..log_densities.len()).filter(|&row| weight(row) > 0.0).collect();
        order.sort_by(|&a, &b| log_densities[a].total_cmp(&log_densities[b]));
        let total: f64 = order.iter().map(|&row| weight(row)).sum();
        let allowed = total * (contamination + ROUNDING);
        // Rows of equal log density are on the same side.
        let (mut below, mut weight_below, mut first_inside) = (None, 0.0, f64::NEG_INFINITY);
        for ties in order.chunk_by(|&a, &b| log_densities[a] == log_densities[b]) {
            first_inside = log_densities[ties[0]];
            weight_below += ties.iter().map(|&row| weight(row)).sum::<f64>();
            if weight_below > allowed {
                break;
            }
            below = Some(first_inside);
        }
        if first_inside == f64::NEG_INFINITY {
            let must = "at least the share of the rows whose density is 0";
            return Err(ModelError::Range { what: "contamination", value: contamination.to_string(), must });
        }
        let log_density = match below {
            Some(below) if below.is_finite() => below + (first_inside - below) / 2.0,
            _ => first_inside,
        };
        Ok(Self { log_density, contamination: Some(contamination), level: None })
    }

    /// Whether a row of this log density is an outlier; also if it is NaN.
    pub fn is_outlier(&self, log_density: f64) -> bool {
        log_density < self.log_density || log_density.is_nan()
    }
}
