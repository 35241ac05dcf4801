//! Rows within limits, naively: the density of every point of the box, summed by Simpson's rule.

use ndarray::{Array1, Array2};

use crate::{Mixture, packed_index, packed_len};

/// Steps of the rule in each inexact column, for one and for two of them.
const STEPS: [usize; 2] = [4000, 300];

/// The density of a row between `lower` and `upper`, `(d,)` each, in component `c`, without its weight, and the mean, `(d,)`,
/// and packed mean product, `(d*(d+1)/2,)`, of `x − μ` given the row. Equal limits are exact values. The error is about 1e-7.
///
/// Points farther than ten standard deviations from the mean given the exact values do not count, so the box has to reach
/// nearer than that.
///
/// # Panics
/// If more than two columns are inexact.
pub fn component(mixture: &Mixture, c: usize, lower: &[f64], upper: &[f64]) -> (f64, Array1<f64>, Vec<f64>) {
    let d = lower.len();
    let mean = mixture.means().row(c).to_owned();
    let covariance: Array2<f64> = mixture.covariances().matrix(c, d);
    let factor = crate::Cholesky::new(covariance.view()).expect("a checked mixture");
    let inexact: Vec<usize> = (0..d).filter(|&j| lower[j] < upper[j]).collect();
    let n = match inexact.len() {
        0 => 1,
        count => STEPS[count - 1] + 1,
    };
    // The mean and deviation of each inexact column given the exact ones.
    let exact: Vec<usize> = (0..d).filter(|j| !inexact.contains(j)).collect();
    let centre = |j: usize| {
        let (mut m, mut v) = (mean[j], covariance[[j, j]]);
        if !exact.is_empty() {
            let own = covariance.select(ndarray::Axis(0), &exact).select(ndarray::Axis(1), &exact);
            let own = crate::Cholesky::new(own.view()).expect("positive definite");
            let mut z: Vec<f64> = exact.iter().map(|&i| lower[i] - mean[i]).collect();
            let mut cross: Vec<f64> = exact.iter().map(|&i| covariance[[i, j]]).collect();
            own.solve_lower(&mut z);
            own.solve_lower(&mut cross);
            m += z.iter().zip(&cross).map(|(z, c)| z * c).sum::<f64>();
            v -= cross.iter().map(|c| c * c).sum::<f64>();
        }
        (m, v.sqrt())
    };
    let ranges: Vec<(f64, f64)> = inexact
        .iter()
        .map(|&j| {
            let (m, sd) = centre(j);
            (lower[j].max(m - 10.0 * sd), upper[j].min(m + 10.0 * sd))
        })
        .collect();
    let (mut total, mut first, mut second) = (0.0, Array1::zeros(d), vec![0.0; packed_len(d)]);
    let constant = (-0.5 * factor.ln_det()).exp() * (2.0 * std::f64::consts::PI).powf(-0.5 * d as f64);
    for at in 0..n.pow(inexact.len() as u32) {
        let (mut x, mut weight, mut rest) = (lower.to_vec(), constant, at);
        for (&j, (from, to)) in inexact.iter().zip(&ranges) {
            let (i, step) = (rest % n, (to - from) / (n - 1) as f64);
            rest /= n;
            x[j] = from + step * i as f64;
            weight *= step / 3.0 * if i == 0 || i == n - 1 { 1.0 } else { (2 + 2 * (i % 2)) as f64 };
        }
        let z: Vec<f64> = x.iter().zip(&mean).map(|(x, m)| x - m).collect();
        let mut white = z.clone();
        factor.solve_lower(&mut white);
        let f = weight * (-0.5 * white.iter().map(|z| z * z).sum::<f64>()).exp();
        total += f;
        for i in 0..d {
            first[i] += f * z[i];
            (0..=i).for_each(|j| second[packed_index(i, j)] += f * z[i] * z[j]);
        }
    }
    first.iter_mut().chain(&mut second).for_each(|v| *v /= total);
    (total, first, second)
}
