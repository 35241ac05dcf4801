//! Regions of three and more dependent entries: a lattice of points, tilted towards the region.
//!
//! Entry after entry is drawn from its interval given those before it. In place of the standard normal distribution entry `i`
//! has the mean `μ_i`, and each point the weight `exp ψ(z, μ)`, which restores the distribution:
//!
//! ```text
//! ψ(z, μ) = Σ_i  μ_i²/2 − z_i μ_i + ln P(l_i(z) − μ_i, u_i(z) − μ_i).
//! ```
//!
//! The means are those of minimax tilting (Botev 2017, "The normal law under linear restrictions: simulation and estimation
//! via minimax tilting", section 3): the saddle point of `ψ`, at which the largest weight is as small as possible. So the
//! relative error of the probability stays bounded far out in the tails. In place of random points there is a lattice, whose
//! coordinates are folded so that the integrand is periodic.

use super::interval::{IntervalMoments, quantile};
use crate::packed_index;

/// Number of points. The probability's relative error is then below 2e-4, that of moments below 2e-3 (`region_tests.rs`).
const POINTS: usize = 2048;

/// √ of the first primes, whose multiples make the lattice (Richtmyer).
const ROOTS: [f64; super::MAX_DEPENDENT - 1] = [
    std::f64::consts::SQRT_2,
    1.732_050_807_568_877_2,
    2.236_067_977_499_79,
    2.645_751_311_064_590_7,
    3.316_624_790_355_4,
];

/// Workspace for `m` entries.
#[derive(Clone, Debug)]
pub(super) struct Workspace {
    z: Vec<f64>,
    tilt: Vec<f64>,
}

impl Workspace {
    pub(super) fn new(m: usize) -> Self {
        Self { z: vec![0.0; m], tilt: vec![0.0; m] }
    }
}

/// Writes the moments of `z` where `lower ≤ L z ≤ upper`, and returns the logarithm of the probability.
pub(super) fn moments(
    factor: &[f64],
    bounds: (&[f64], &[f64]),
    work: &mut Workspace,
    mean: &mut [f64],
    square: &mut [f64],
) -> f64 {
    let m = mean.len();
    let Workspace { z, tilt } = work;
    let top = saddle(factor, bounds, z, tilt);
    let (mut sum, mut largest) = (0.0, f64::NEG_INFINITY);
    mean.fill(0.0);
    square.fill(0.0);
    for point in 0..POINTS {
        let mut log_weight = -top;
        for i in 0..m - 1 {
            let (a, b) = interval(factor, bounds, z, i);
            let tilt = tilt[i];
            let u = ((point as f64 + 0.5) * ROOTS[i]).fract();
            let u = (2.0 * u - 1.0).abs().clamp(1e-12, 1.0 - 1e-12);
            z[i] = tilt + quantile(a - tilt, b - tilt, u);
            log_weight += (0.5 * tilt - z[i]) * tilt + IntervalMoments::new(a - tilt, b - tilt).log_probability;
        }
        let (a, b) = interval(factor, bounds, z, m - 1);
        let last = IntervalMoments::new(a, b);
        z[m - 1] = last.mean;
        log_weight += last.log_probability;
        if log_weight == f64::NEG_INFINITY {
            continue;
        }
        // At the saddle point no weight is far above 1. Far out with correlations close to 1 Newton's method may not get there,
        // and all weights would underflow: they are relative to the largest so far.
        if log_weight > largest {
            let rescale = libm::exp(largest - log_weight);
            sum *= rescale;
            mean.iter_mut().chain(&mut *square).for_each(|v| *v *= rescale);
            largest = log_weight;
        }
        let weight = libm::exp(log_weight - largest);
        sum += weight;
        for i in 0..m {
            let own = weight * z[i];
            mean[i] += own;
            for j in 0..i {
                square[packed_index(i, j)] += own * z[j];
            }
            square[packed_index(i, i)] += if i == m - 1 { weight * last.square } else { own * z[i] };
        }
    }
    mean.iter_mut().chain(square).for_each(|v| *v /= sum);
    top + largest + libm::log(sum / POINTS as f64)
}

/// The interval of entry `i` given those before it.
fn interval(factor: &[f64], (lower, upper): (&[f64], &[f64]), z: &[f64], i: usize) -> (f64, f64) {
    let row = &factor[packed_index(i, 0)..][..=i];
    let before: f64 = row[..i].iter().zip(z).map(|(l, z)| l * z).sum();
    ((lower[i] - before) / row[i], (upper[i] - before) / row[i])
}

/// Finds the saddle point of ψ, writes its means to `tilt`, and returns ψ there.
///
/// With `m_i` the mean of entry `i` in its interval, `l_ij` the factor's rows over their diagonals, the equations are
/// `z_i = μ_i + m_i` and `μ_i = Σ_{j>i} l_ji m_j`; the last `z` and `μ` do not count. They are solved for `z` by Newton's method,
/// since with them inserted ψ(z, μ(z)) is concave in `z`.
fn saddle(factor: &[f64], bounds: (&[f64], &[f64]), z: &mut [f64], tilt: &mut [f64]) -> f64 {
    let m = z.len();
    let n = m - 1;
    z.fill(0.0);
    tilt.fill(0.0);
    // A start within the region: each entry at its mean given those before it.
    for i in 0..n {
        let (a, b) = interval(factor, bounds, z, i);
        z[i] = IntervalMoments::new(a, b).mean;
    }
    let ratio = |i: usize, j: usize| factor[packed_index(i, j)] / factor[packed_index(i, i)];
    let mut of = [IntervalMoments { log_probability: 0.0, mean: 0.0, square: 1.0 }; super::MAX_DEPENDENT];
    let residual = |z: &[f64], tilt: &[f64], of: &mut [IntervalMoments], out: &mut [f64]| {
        for i in 0..m {
            let (a, b) = interval(factor, bounds, z, i);
            of[i] = IntervalMoments::new(a - tilt[i], b - tilt[i]);
        }
        for i in 0..n {
            out[i] = tilt[i] + of[i].mean - z[i];
            out[n + i] = (i + 1..m).map(|j| ratio(j, i) * of[j].mean).sum::<f64>() - tilt[i];
        }
        out.iter().map(|v| v * v).sum::<f64>()
    };
    let mut r = [0.0; 2 * super::MAX_DEPENDENT];
    let mut next_r = r;
    let mut size = residual(z, tilt, &mut of, &mut r[..2 * n]);
    let mut jacobian = [[0.0; 2 * super::MAX_DEPENDENT]; 2 * super::MAX_DEPENDENT];
    for _ in 0..50 {
        if size < 1e-12 {
            break;
        }
        // A shift of both bounds by c moves the mean by (1 − variance) c.
        let pull = |of: &IntervalMoments| (1.0 - (of.square - of.mean * of.mean)).clamp(0.0, 1.0);
        jacobian.iter_mut().for_each(|row| row.fill(0.0));
        for i in 0..n {
            let own = pull(&of[i]);
            jacobian[i][i] = -1.0;
            jacobian[i][n + i] = 1.0 - own;
            (0..i).for_each(|j| jacobian[i][j] -= own * ratio(i, j));
            jacobian[n + i][n + i] = -1.0;
            for j in i + 1..m {
                let weight = ratio(j, i) * pull(&of[j]);
                (0..j.min(n)).for_each(|l| jacobian[n + i][l] -= weight * ratio(j, l));
                if j < n {
                    jacobian[n + i][n + j] -= weight;
                }
            }
        }
        let mut step = r;
        if !solve(&mut jacobian, &mut step, 2 * n) {
            break;
        }
        let mut share = 1.0;
        let improved = loop {
            let (mut next_z, mut next_tilt) = ([0.0; super::MAX_DEPENDENT], [0.0; super::MAX_DEPENDENT]);
            for i in 0..n {
                next_z[i] = z[i] - share * step[i];
                next_tilt[i] = tilt[i] - share * step[n + i];
            }
            let next = residual(&next_z[..m], &next_tilt[..m], &mut of, &mut next_r[..2 * n]);
            if next < size {
                z.copy_from_slice(&next_z[..m]);
                tilt.copy_from_slice(&next_tilt[..m]);
                (size, r) = (next, next_r);
                break true;
            }
            share *= 0.5;
            if share < 1e-6 {
                break false;
            }
        };
        if !improved {
            residual(z, tilt, &mut of, &mut next_r[..2 * n]);
            break;
        }
    }
    let terms = (0..m).map(|i| (0.5 * tilt[i] - z[i]) * tilt[i] + of[i].log_probability);
    terms.sum()
}

/// Solves `A x = b` in place by elimination with partial pivoting; `false` if a pivot is 0.
fn solve<const N: usize>(a: &mut [[f64; N]; N], b: &mut [f64; N], n: usize) -> bool {
    for column in 0..n {
        let largest = (column..n).max_by(|&x, &y| a[x][column].abs().total_cmp(&a[y][column].abs())).unwrap_or(column);
        a.swap(column, largest);
        b.swap(column, largest);
        let pivot = a[column][column];
        if !(pivot.abs() > 0.0 && pivot.is_finite()) {
            return false;
        }
        for row in column + 1..n {
            let share = a[row][column] / pivot;
            for j in column..n {
                a[row][j] -= share * a[column][j];
            }
            b[row] -= share * b[column];
        }
    }
    for row in (0..n).rev() {
        let rest: f64 = (row + 1..n).map(|j| a[row][j] * b[j]).sum();
        b[row] = (b[row] - rest) / a[row][row];
    }
    true
}
