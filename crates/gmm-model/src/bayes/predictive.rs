//! The posterior predictive density: a mixture of Student distributions.

use ndarray::{Array1, ArrayView1};

use super::Posterior;
use crate::{Mixture, PriorScale};

/// The density of a new row given the data, `∫ p(x | parameters) q(parameters)`: a mixture of Student distributions,
/// whose tails are heavier than those of the mixture of posterior means.
///
/// Source: Bishop 2006, eqs. 10.81 and 10.82, and their counterparts for Gamma distributions.
#[derive(Clone, Debug)]
pub struct Predictive {
    mixture: Mixture,
    /// Of each component.
    students: Vec<Student>,
    /// Whether the columns are independent given the component, each with its own precision.
    by_column: bool,
}

#[derive(Clone, Copy, Debug)]
struct Student {
    degrees_of_freedom: f64,
    /// The squared distances under the mixture's covariances are divided by this.
    squared_scale: f64,
    /// The logarithm of the density at the mean, times the weight.
    log_at_mean: f64,
}

impl Posterior {
    /// The posterior predictive density. The weights are the posterior means.
    pub fn predictive(&self) -> Predictive {
        let k = self.mixture.n_components();
        let students = (0..k).map(|c| self.student(c)).collect();
        let by_column = matches!(self.prior.scale, PriorScale::Variances(_));
        Predictive { mixture: self.mixture.clone(), students, by_column }
    }

    fn student(&self, c: usize) -> Student {
        let d = self.mixture.n_features() as f64;
        let (nu, beta) = (self.nu(c), self.mean_precision[c]);
        let widened = (1.0 + beta) / beta;
        // In diag each column has a distribution of one dimension.
        let (degrees_of_freedom, squared_scale, dim, count) = match self.prior.scale {
            PriorScale::Matrix(_) => (nu + 1.0 - d, widened * nu / (nu + 1.0 - d), d, 1.0),
            PriorScale::Variances(_) => (nu, widened, 1.0, d),
            PriorScale::Variance(_) => (d * nu, widened, d, 1.0),
        };
        let half_ln_det = -self.mixture.log_normalizer(c) - 0.5 * d * std::f64::consts::TAU.ln();
        let constant = libm::lgamma(0.5 * (degrees_of_freedom + dim))
            - libm::lgamma(0.5 * degrees_of_freedom)
            - 0.5 * dim * (degrees_of_freedom * std::f64::consts::PI * squared_scale).ln();
        let log_at_mean = self.mixture.log_weight(c) + count * constant - half_ln_det;
        Student { degrees_of_freedom, squared_scale, log_at_mean }
    }
}

impl Predictive {
    /// `d`.
    pub fn n_features(&self) -> usize {
        self.mixture.n_features()
    }

    /// The log density of one row, `(d,)`. Cost: `O(k d²)`, for diag and spherical `O(k d)`.
    pub fn log_density(&self, x: ArrayView1<'_, f64>) -> f64 {
        let logs: Vec<f64> = (0..self.students.len()).map(|c| self.log_joint(c, x)).collect();
        crate::reference::log_sum_exp(&logs)
    }

    /// The probability of each component for one row, `(k,)`, and the log density. Source: as for a mixture.
    pub fn responsibilities(&self, x: ArrayView1<'_, f64>) -> (f64, Array1<f64>) {
        let logs: Array1<f64> = (0..self.students.len()).map(|c| self.log_joint(c, x)).collect();
        let total = crate::reference::log_sum_exp(logs.as_slice().expect("one row"));
        if total == f64::NEG_INFINITY {
            return (total, self.mixture.weights().to_owned());
        }
        (total, logs.mapv(|v| (v - total).exp()))
    }

    fn log_joint(&self, c: usize, x: ArrayView1<'_, f64>) -> f64 {
        let Student { degrees_of_freedom, squared_scale, log_at_mean } = self.students[c];
        let mut z = (&x - &self.mixture.means().row(c)).to_vec();
        self.mixture.factors().solve_lower(c, &mut z);
        let fall = |squares: f64| (squares / (squared_scale * degrees_of_freedom)).ln_1p();
        if self.by_column {
            let falls: f64 = z.iter().map(|v| fall(v * v)).sum();
            return log_at_mean - 0.5 * (degrees_of_freedom + 1.0) * falls;
        }
        let squares: f64 = z.iter().map(|v| v * v).sum();
        log_at_mean - 0.5 * (degrees_of_freedom + z.len() as f64) * fall(squares)
    }
}
