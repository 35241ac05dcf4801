//! The likelihood of fixed data under varying parameters, against naive sums and finite differences.

#[path = "../common/mod.rs"]
mod common;
mod components;
mod gradients;
mod naive;
mod unconstrained;
mod values;

use gmm_host::{CpuEngine, Likelihood};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// Rows around `offset`, with weights 0, 0.5, 1, .. if requested, and a mixture that overlaps them.
fn case(kind: CovarianceType, n: usize, d: usize, k: usize, offset: f64, weighted: bool) -> (Dataset, Mixture) {
    let seed = (n * 1_000_003 + d * 1009 + k) as u64;
    let data = Dataset::new(common::rows(n, d, offset, 1.0, seed)).unwrap();
    let weights = (0..n).map(|i| (i % 4) as f64 * 0.5 + if n < 4 { 1.0 } else { 0.0 }).collect();
    let data = if weighted { data.with_weights(weights).unwrap() } else { data };
    (data, common::mixture(kind, k, d, offset, 1.0, seed))
}

fn on_cpu(data: &Dataset) -> Likelihood {
    Likelihood::new(&cpu(), data, Precision::F64).unwrap()
}

/// Every kind, with and without row weights, an offset, and several components.
fn every_case(mut check: impl FnMut(&str, Dataset, Mixture)) {
    for kind in CovarianceType::ALL {
        for (d, k) in [(1, 1), (3, 1), (4, 3), (7, 2)] {
            for (offset, weighted) in [(0.0, false), (0.0, true), (1e4, true)] {
                let (data, mixture) = case(kind, 90, d, k, offset, weighted);
                check(&format!("{kind} d={d} k={k} offset={offset:e} weighted={weighted}"), data, mixture);
            }
        }
    }
}

/// Panics unless the numbers agree to `tolerance` times the larger of 1 and their largest magnitude.
#[track_caller]
fn close<'a>(
    got: impl IntoIterator<Item = &'a f64>,
    want: impl IntoIterator<Item = &'a f64>,
    tolerance: f64,
    what: &str,
) {
    let (got, want): (Vec<_>, Vec<_>) = (got.into_iter().collect(), want.into_iter().collect());
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        // Written so that a NaN fails.
        let agree = (*a - *b).abs() <= tolerance * scale;
        assert!(agree, "{what}[{i}]: {a:e}, want {b:e}, of {scale:e}");
    }
}

/// The derivative of `f` at 0 by a five-point formula: exact up to O(h⁴) and rounding.
fn slope(mut f: impl FnMut(f64) -> f64) -> f64 {
    let h = 1e-3;
    let (near, far) = (f(h) - f(-h), f(2.0 * h) - f(-2.0 * h));
    (8.0 * near - far) / (12.0 * h)
}
