//! Probabilities and moments of regions against quadrature and known values.

use super::Region;
use crate::{Cholesky, packed_index, packed_len};
use ndarray::Array2;

const INF: f64 = f64::INFINITY;

fn region(covariance: &Array2<f64>, lower: &[f64], upper: &[f64]) -> (Cholesky, Region) {
    let factor = Cholesky::new(covariance.view()).unwrap();
    let mut region = Region::new(lower.len());
    region.lower.copy_from_slice(lower);
    region.upper.copy_from_slice(upper);
    region.compute(factor.packed(), false);
    (factor, region)
}

fn equal_correlation(m: usize, rho: f64) -> Array2<f64> {
    Array2::from_shape_fn((m, m), |(i, j)| if i == j { 1.0 } else { rho })
}

/// Probability and moments of `x = L z` by Simpson's rule over the region, cut where the density is negligible.
fn naive(covariance: &Array2<f64>, lower: &[f64], upper: &[f64]) -> (f64, Vec<f64>, Vec<f64>) {
    let m = lower.len();
    let factor = Cholesky::new(covariance.view()).unwrap();
    let n = if m == 2 { 2000 } else { 120 };
    let reach = |i: usize| 9.0 * covariance[[i, i]].sqrt();
    let from: Vec<f64> = (0..m).map(|i| lower[i].max(-reach(i))).collect();
    let step: Vec<f64> = (0..m).map(|i| (upper[i].min(reach(i)) - from[i]) / n as f64).collect();
    let (mut total, mut first, mut second) = (0.0, vec![0.0; m], vec![0.0; packed_len(m)]);
    let mut at = vec![0usize; m];
    'all: loop {
        let x: Vec<f64> = (0..m).map(|i| from[i] + step[i] * at[i] as f64).collect();
        let mut z = x.clone();
        factor.solve_lower(&mut z);
        // Simpson's rule.
        let weight: f64 = at
            .iter()
            .map(|&i| {
                if i == 0 || i == n {
                    1.0
                } else if i % 2 == 1 {
                    4.0
                } else {
                    2.0
                }
            })
            .product();
        let f = weight * (-0.5 * z.iter().map(|z| z * z).sum::<f64>()).exp();
        total += f;
        for i in 0..m {
            first[i] += f * x[i];
            (0..=i).for_each(|j| second[packed_index(i, j)] += f * x[i] * x[j]);
        }
        for i in 0..m {
            at[i] += 1;
            if at[i] <= n {
                continue 'all;
            }
            at[i] = 0;
        }
        break;
    }
    first.iter_mut().chain(&mut second).for_each(|v| *v /= total);
    let volume: f64 = step.iter().map(|step| step / 3.0).product();
    let log = (total * volume).ln() - 0.5 * factor.ln_det() - 0.5 * m as f64 * (2.0 * std::f64::consts::PI).ln();
    (log, first, second)
}

fn check(covariance: &Array2<f64>, lower: &[f64], upper: &[f64], tolerance: f64) {
    let m = lower.len();
    let (factor, found) = region(covariance, lower, upper);
    let (log, first, second) = naive(covariance, lower, upper);
    let name = format!("{covariance} {lower:?} {upper:?}");
    let error = (found.log_probability - log).abs();
    assert!(error < tolerance, "{name}: {} {log}", found.log_probability);
    let mut x = vec![0.0; m];
    factor.multiply_lower(&found.mean, &mut x);
    for i in 0..m {
        assert!((x[i] - first[i]).abs() < tolerance, "{name}: mean {i}: {} {}", x[i], first[i]);
        for j in 0..=i {
            let mut sum = 0.0;
            for a in 0..=i {
                for b in 0..=j {
                    sum += factor.at(i, a) * factor.at(j, b) * found.square[packed_index(a.max(b), a.min(b))];
                }
            }
            let want = second[packed_index(i, j)];
            assert!((sum - want).abs() < tolerance * (1.0 + want.abs()), "{name}: square {i},{j}: {sum} {want}");
        }
    }
}

#[test]
fn planes_are_those_of_quadrature() {
    for rho in [0.0, 0.3, -0.8, 0.95] {
        let covariance = Array2::from_shape_vec((2, 2), vec![1.0, 1.5 * rho, 1.5 * rho, 2.25]).unwrap();
        for (lower, upper) in [
            ([-INF, -INF], [0.3, -0.2]),
            ([1.0, -1.0], [INF, 2.0]),
            ([-0.5, -0.5], [0.5, 0.5]),
            ([2.5, 0.0], [4.0, INF]),
            ([-1.0, 0.5], [3.0, 0.6]),
        ] {
            check(&covariance, &lower, &upper, 1e-7);
        }
    }
}

#[test]
fn solids_are_those_of_quadrature() {
    let covariance = Array2::from_shape_vec((3, 3), vec![1.0, 0.6, -0.3, 0.6, 2.0, 0.2, -0.3, 0.2, 0.7]).unwrap();
    for (lower, upper) in [
        ([-INF, -INF, -INF], [0.3, -0.2, 1.0]),
        ([1.0, -1.0, -0.2], [INF, 2.0, INF]),
        ([-0.5, -0.5, -0.5], [0.5, 0.5, 0.5]),
        ([1.5, 1.5, 0.5], [INF, INF, INF]),
    ] {
        check(&covariance, &lower, &upper, 2e-3);
    }
}

#[test]
fn quadrants_have_known_probabilities() {
    // P(x > 0, y > 0) = 1/4 + asin(ρ) / 2π, Sheppard 1899.
    for rho in [-0.999_999, -0.99, -0.5, 0.0, 0.2, 0.9, 0.999, 0.999_999_9] {
        let found = region(&equal_correlation(2, rho), &[0.0; 2], &[INF; 2]).1.log_probability;
        let want = (0.25 + f64::asin(rho) / (2.0 * std::f64::consts::PI)).ln();
        // At a correlation near −1 the last entry of the factor is a small difference.
        let lost = 4.0 * f64::EPSILON / (1.0 + rho);
        assert!((found - want).abs() < 1e-11 + lost, "{rho}: {found} {want}");
    }
}

#[test]
fn orthants_of_half_correlated_entries_have_probability_1_over_m_plus_1() {
    for m in [3, 4, 5, 6] {
        let found = region(&equal_correlation(m, 0.5), &vec![0.0; m], &vec![INF; m]).1.log_probability;
        let want = -((m + 1) as f64).ln();
        assert!((found - want).abs() < 2e-4, "{m}: {found} {want}");
    }
}

#[test]
fn independent_entries_are_products_in_any_number() {
    for m in [2, 3, 5, 6] {
        let (lower, upper) = (vec![-0.3; m], vec![1.7; m]);
        let (_, found) = region(&equal_correlation(m, 0.0), &lower, &upper);
        let mut product = Region::new(m);
        product.lower.copy_from_slice(&lower);
        product.upper.copy_from_slice(&upper);
        let ones: Vec<f64> = (0..m).flat_map(|i| (0..=i).map(move |j| if i == j { 1.0 } else { 0.0 })).collect();
        product.compute(&ones, true);
        let tolerance = if m == 2 { 1e-12 } else { 2e-3 };
        assert!((found.log_probability - product.log_probability).abs() < 1e-12);
        for (a, b) in found.square.iter().zip(&product.square).chain(found.mean.iter().zip(&product.mean)) {
            assert!((a - b).abs() < tolerance, "{m}: {a} {b}");
        }
    }
}

#[test]
fn far_orthants_keep_relative_accuracy() {
    // As t grows, P(x > t) of equally correlated entries tends to the density at (t, .., t) over the product of the slopes there
    // (Savage 1962): with a = t / (1 + (m−1)ρ) each, P = φ(t, .., t) / aᵐ · (1 − O(1/a²)).
    let t = 40.0;
    for m in [2, 3, 5] {
        let covariance = equal_correlation(m, 0.5);
        let (factor, found) = region(&covariance, &vec![t; m], &vec![INF; m]);
        let mut z = vec![t; m];
        factor.solve_lower(&mut z);
        let slope = t / (1.0 + 0.5 * (m - 1) as f64);
        let log_density = -0.5 * z.iter().map(|z| z * z).sum::<f64>()
            - 0.5 * factor.ln_det()
            - 0.5 * m as f64 * (2.0 * std::f64::consts::PI).ln();
        let want = log_density - m as f64 * slope.ln();
        let close = 3.0 * m as f64 / slope / slope;
        assert!((found.log_probability - want).abs() < close, "{m}: {} {want} {close}", found.log_probability);
    }
}

#[test]
fn almost_equal_entries_far_out_have_a_finite_density() {
    // Differences of 2 and more between entries whose differences have a deviation of 0.0045: far out, but not impossible.
    for (rho, lower) in [(0.99999, [0.1, 0.1, 0.5]), (0.9999, [2.5, 2.5, 0.5])] {
        let upper = lower.map(|v| v + 1.0);
        let (_, found) = region(&equal_correlation(3, rho), &lower, &upper);
        assert!(found.log_probability.is_finite() && found.log_probability < 0.0, "{}", found.log_probability);
        assert!(found.mean.iter().chain(&found.square).all(|v| v.is_finite()));
    }
}

#[test]
fn limits_that_stand_for_none_do_not_matter() {
    for far in [1e19, 1e30, 1e300] {
        let (_, found) = region(&equal_correlation(2, 0.9), &[-far; 2], &[far; 2]);
        assert!(found.log_probability.abs() < 1e-10, "{far}: {}", found.log_probability);
        assert!((found.square[0] - 1.0).abs() < 1e-7 && (found.square[2] - 1.0).abs() < 1e-7, "{far}");
    }
    // Overflows, which must not end the process.
    let _ = region(&equal_correlation(3, 0.5), &[5e159; 3], &[1.5e160; 3]);
}
