//! Bias and coverage of fits of simulated data sets.

#![allow(unreachable_pub, dead_code, reason = "shared by several test programs")]

use gmm_host::{CpuEngine, Engine, EvaluateOptions, FitOptions, Init, fit, shift};
use gmm_model::{Covariances, Dataset, Mixture, Precision};
use ndarray::{Array2, array};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::common::uniform;

/// Number of simulated data sets.
const SETS: usize = 200;

/// Exactly normal numbers (Box and Muller 1958). A sum of twelve uniform ones, as other tests have it, is not normal enough here: the
/// estimate of a deviation from what is within −1 and 2 tends to 1.015 then, not to 1, whatever the number of rows.
pub fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - uniform(rng))).sqrt();
    radius * libm::cos(2.0 * std::f64::consts::PI * uniform(rng))
}

/// The truth, and what is known of it.
pub struct Truth {
    pub mixture: Mixture,
    /// Names and values of what is estimated.
    pub parameters: fn(&Mixture) -> Vec<(&'static str, f64)>,
    /// The 95 % quantile of the χ² distribution, with the number of free parameters as degrees of freedom.
    pub quantile: f64,
}

impl Truth {
    /// Two correlated components in two columns, far enough apart that the likelihood of some hundred rows is nearly quadratic,
    /// but with rows in between.
    pub fn two_components() -> Self {
        let covariances = array![[[1.0, 0.6], [0.6, 1.0]], [[1.0, -0.3], [-0.3, 0.5]]];
        let mixture = Mixture::new(array![0.4, 0.6], array![[0.0, 0.0], [4.0, 2.0]], Covariances::Full(covariances));
        let parameters = |of: &Mixture| {
            let matrix = of.covariances().matrix(1, 2);
            vec![
                ("weight", of.weights()[0]),
                ("mean of column 1", of.means()[[0, 0]]),
                ("mean of column 2", of.means()[[1, 1]]),
                ("variance of column 2", matrix[[1, 1]]),
                ("covariance", matrix[[0, 1]]),
            ]
        };
        Self { mixture: mixture.unwrap(), parameters, quantile: 19.675 }
    }

    /// Rows of the mixture, `(n, d)`.
    pub fn rows(&self, n: usize, rng: &mut ChaCha8Rng) -> Array2<f64> {
        let (k, d) = self.mixture.means().dim();
        let mut rows = Array2::zeros((n, d));
        for mut row in rows.outer_iter_mut() {
            let mut left = uniform(rng);
            let c = (0..k - 1).find(|&c| {
                left -= self.mixture.weights()[c];
                left < 0.0
            });
            let c = c.unwrap_or(k - 1);
            let covariance = self.mixture.covariances().matrix(c, d);
            // Cholesky of a matrix of at most two columns.
            let drawn: Vec<f64> = (0..d).map(|_| normal(rng)).collect();
            let first = covariance[[0, 0]].sqrt();
            row[0] = self.mixture.means()[[c, 0]] + first * drawn[0];
            if d == 2 {
                let slope = covariance[[1, 0]] / first;
                let rest = (covariance[[1, 1]] - slope * slope).sqrt();
                row[1] = self.mixture.means()[[c, 1]] + slope * drawn[0] + rest * drawn[1];
            }
        }
        rows
    }

    /// Fits the simulated data sets from the truth, and checks bias and coverage. `n` is about the number of rows of a data set.
    ///
    /// Maximum likelihood has a bias of the order of 1/n: here below `4/n`. The likelihood region of 95 % has to hold the truth in
    /// about as many data sets.
    pub fn check(&self, what: &str, n: usize, data: impl Fn(&mut ChaCha8Rng) -> Dataset) {
        let cpu = CpuEngine::new(2).unwrap();
        let init = Init::Given(Box::new(self.mixture.clone()));
        let k = self.mixture.weights().len();
        let options = FitOptions { tol: 1e-9, max_iter: 5000, reg_covar: 0.0, init, ..FitOptions::new(k) };
        let options = FitOptions { covariance_type: self.mixture.covariances().kind(), ..options };
        let (mut estimates, mut covered) = (Vec::new(), 0);
        for set in 0..SETS {
            let data = data(&mut ChaCha8Rng::seed_from_u64(1000 + set as u64));
            let found = fit(&cpu, &data, &options).unwrap();
            let mut rows = cpu.load(&data, Precision::F64, &shift::of_data(&data)).unwrap();
            let of_truth = rows.evaluate(&self.mixture, EvaluateOptions::default()).unwrap().log_likelihood;
            covered += usize::from(2.0 * (found.summary.log_likelihood - of_truth) < self.quantile);
            estimates.push((self.parameters)(&found.mixture));
        }
        for (j, (name, truth)) in (self.parameters)(&self.mixture).into_iter().enumerate() {
            let mean = estimates.iter().map(|of| of[j].1).sum::<f64>() / SETS as f64;
            let squares = estimates.iter().map(|of| (of[j].1 - mean).powi(2)).sum::<f64>();
            let deviation = (squares / (SETS - 1) as f64).sqrt();
            let of_mean = deviation / (SETS as f64).sqrt();
            let bias = (mean - truth) / of_mean;
            println!("{what}: {name} {mean:.4} ± {of_mean:.4} of {truth}, bias {bias:.2} standard errors");
            assert!((mean - truth).abs() < 0.3 * deviation, "{what}: {name} {mean}");
            assert!((mean - truth).abs() < 3.5 * of_mean + 4.0 / n as f64, "{what}: {name} {mean}");
        }
        println!("{what}: the truth is in {covered} of {SETS} regions of 95 %");
        // 190 are expected, with a standard deviation of 3.1.
        assert!((178..=200).contains(&covered), "{what}: {covered}");
    }
}
