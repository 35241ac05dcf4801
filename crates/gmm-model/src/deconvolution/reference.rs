//! The naive form for rows with measurement errors: sequential, `f64`, with an inverse by elimination, and simple enough to
//! be checked by reading. The engines' passes are tested against it.

use ndarray::{Array1, Array2};

use crate::missing::reference::{add_expected, inverse, of_joint};
use crate::{Dataset, Mixture, Statistics};

/// What is known of a row: `w`, `(m,)`, `R`, `(m, d)`, and `S`, `(m, m)`. Missing values and their errors are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// `w`.
    pub measured: Array1<f64>,
    /// `R`.
    pub projection: Array2<f64>,
    /// `S`.
    pub covariance: Array2<f64>,
}

impl Measurement {
    /// The measurement of a row of `data`; without measurement errors it is exact.
    pub fn of(data: &Dataset, row: usize) -> Self {
        let d = data.n_features();
        let errors = data.measurement_errors();
        let views = errors.and_then(|errors| errors.views());
        let all: Vec<f64> = match views {
            Some(views) => views.measured().row(row).to_vec(),
            None => (0..d).map(|j| data.rows().at(row, j)).collect(),
        };
        let seen: Vec<usize> = (0..all.len()).filter(|&i| !all[i].is_nan()).collect();
        let s = errors.map(|errors| errors.matrix(row));
        Self {
            measured: seen.iter().map(|&i| all[i]).collect(),
            projection: Array2::from_shape_fn((seen.len(), d), |(i, j)| match views {
                Some(views) => views.projection(row)[[seen[i], j]],
                None => f64::from(seen[i] == j),
            }),
            covariance: Array2::from_shape_fn((seen.len(), seen.len()), |(i, j)| {
                s.as_ref().map_or(0.0, |s| s[[seen[i], seen[j]]])
            }),
        }
    }
}

/// `ln(π_c N(w | R μ_c, T_c))`, and mean `b_c`, `(d,)`, and covariance `B_c`, `(d, d)`, of the true row in component `c`.
pub fn component(mixture: &Mixture, c: usize, x: &Measurement) -> (f64, Array1<f64>, Array2<f64>) {
    let Measurement { measured, projection: r, covariance } = x;
    let sigma = mixture.covariances().matrix(c, mixture.n_features()).to_owned();
    let mean = mixture.means().row(c).to_owned();
    let t = r.dot(&sigma).dot(&r.t()) + covariance;
    let (inverse, ln_det) = inverse(&t);
    let z = measured - &r.dot(&mean);
    let ln_2pi = (2.0 * std::f64::consts::PI).ln();
    let distance = z.dot(&inverse.dot(&z));
    let log_joint = mixture.log_weight(c) - 0.5 * (z.len() as f64 * ln_2pi + ln_det + distance);
    let gain = sigma.dot(&r.t()).dot(&inverse);
    let rest = &sigma - &gain.dot(r).dot(&sigma);
    (log_joint, mean + gain.dot(&z), rest)
}

/// Log density of the measurement, and responsibilities, `(k,)`. If nothing is measured: 0, and the weights.
pub fn posterior(mixture: &Mixture, x: &Measurement) -> (f64, Array1<f64>) {
    if x.measured.is_empty() {
        return (0.0, mixture.weights().to_owned());
    }
    let joint: Vec<f64> = (0..mixture.n_components()).map(|c| component(mixture, c, x).0).collect();
    of_joint(mixture, &joint)
}

/// One E-step with the expected sufficient statistics of the true rows about the mixture's means. A row of which nothing is
/// measured does not count.
pub fn statistics(mixture: &Mixture, data: &Dataset) -> Statistics {
    let mut out = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    for row in 0..data.n_rows() {
        let (w, x) = (data.weight(row), Measurement::of(data, row));
        out.n_rows += 1;
        if w <= 0.0 || x.measured.is_empty() {
            continue;
        }
        let (log_density, r) = posterior(mixture, &x);
        add_expected(&mut out, (w, log_density), &r, |c| {
            let (_, b, rest) = component(mixture, c, &x);
            (b, rest)
        });
    }
    out
}

/// Mean, `(d,)`, and covariance, `(d, d)`, of the true row given the measurement, over all components.
pub fn true_row(mixture: &Mixture, x: &Measurement) -> (Array1<f64>, Array2<f64>) {
    let (d, (_, r)) = (mixture.n_features(), posterior(mixture, x));
    let parts: Vec<_> = (0..r.len()).map(|c| component(mixture, c, x)).collect();
    let mean = parts.iter().zip(&r).fold(Array1::zeros(d), |sum: Array1<f64>, ((_, b, _), r)| sum + b * *r);
    let mut covariance = Array2::zeros((d, d));
    for ((_, b, rest), r) in parts.iter().zip(&r) {
        let z = b - &mean;
        covariance += &((rest + &Array2::from_shape_fn((d, d), |(i, j)| z[i] * z[j])) * *r);
    }
    (mean, covariance)
}
