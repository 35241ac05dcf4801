//! Random mixtures and rows for the tests, and comparison of statistics.

#![allow(unreachable_pub, dead_code, reason = "shared by several test programs")]

use gmm_model::{CovarianceType, Covariances, Mixture, Statistics};
use ndarray::{Array1, Array2, Array3};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Uniform in [0, 1).
pub fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Sum of twelve uniforms: normal enough for test data.
pub fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0
}

/// A mixture with correlated columns whose components overlap.
pub fn mixture(kind: CovarianceType, k: usize, d: usize, offset: f64, scale: f64, seed: u64) -> Mixture {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let weights: Array1<f64> = (0..k).map(|_| 0.2 + uniform(rng)).collect();
    let weights = &weights / weights.sum();
    let means = Array2::from_shape_fn((k, d), |_| offset + scale * 1.5 * normal(rng));
    let mut matrix = || {
        let a = Array2::from_shape_fn((d, d), |_| normal(rng));
        let mut m = a.dot(&a.t()) / d as f64 * 0.5;
        m.diag_mut().mapv_inplace(|v| v + 0.5);
        m * scale * scale
    };
    let covariances = match kind {
        CovarianceType::Full => {
            let mut all = Array3::zeros((k, d, d));
            for mut slot in all.outer_iter_mut() {
                slot.assign(&matrix());
            }
            Covariances::Full(all)
        }
        CovarianceType::Tied => Covariances::Tied(matrix()),
        CovarianceType::Diag => {
            Covariances::Diag(Array2::from_shape_fn((k, d), |_| scale * scale * (0.5 + uniform(rng))))
        }
        CovarianceType::Spherical => {
            Covariances::Spherical((0..k).map(|_| scale * scale * (0.5 + uniform(rng))).collect())
        }
    };
    Mixture::new(weights, means, covariances).expect("a valid mixture")
}

/// Rows around the means of `mixture(.., offset, scale, ..)`.
pub fn rows(n: usize, d: usize, offset: f64, scale: f64, seed: u64) -> Array2<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
    Array2::from_shape_fn((n, d), |_| offset + scale * 2.0 * normal(rng))
}

/// Panics unless two statistics agree to `tolerance` relative to the size of each kind of moment.
pub fn check(got: &Statistics, want: &Statistics, tolerance: f64, what: &str) {
    let close = |name: &str, a: &[f64], b: &[f64], scale: f64| {
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert!((a - b).abs() <= tolerance * scale, "{what}: {name}[{i}] is {a:e}, want {b:e} (scale {scale:e})");
        }
        assert_eq!(a.len(), b.len());
    };
    let size = |v: &[f64]| v.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let total = want.total_weight;
    let second = size(&want.second).max(1e-300);
    close("weight", &got.weight, &want.weight, total);
    // First moments cancel; their terms have the size of the weight times a standard deviation.
    let deviation = (second * total).sqrt();
    close("first", got.first.as_slice().unwrap(), want.first.as_slice().unwrap(), deviation);
    close("second", &got.second, &want.second, second);
    close("log-likelihood", &[got.log_likelihood], &[want.log_likelihood], want.log_likelihood.abs().max(total));
    assert_eq!(got.n_rows, want.n_rows);
    assert_eq!(got.centres, want.centres);
}
