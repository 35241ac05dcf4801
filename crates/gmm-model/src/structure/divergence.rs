//! Kullback-Leibler divergence of mixtures, which has no closed form: an approximation, an upper bound, and an estimate
//! with its error.

use ndarray::Array2;

use super::distance::{check_dims, kl_of};
use crate::{Mixture, ModelError, reference, sample_range};

/// The variational approximation of `KL(f ‖ g)` of two mixtures, in nats (Hershey and Olsen 2007, eq. 20).
///
/// `Σ_a π_a ln (Σ_a' π_a' exp(−KL(f_a ‖ f_a')) / Σ_b ω_b exp(−KL(f_a ‖ g_b)))`: the difference of two lower bounds, so
/// it is no bound itself, and can be negative. It is 0 for equal mixtures, and [`kl`](super::kl()) for single
/// components.
///
/// # Errors
/// [`ModelError::Shape`] if the dimensions differ.
///
/// Cost: `k (k + l)` divergences of components.
pub fn kl_variational(f: &Mixture, g: &Mixture) -> Result<f64, ModelError> {
    check_dims(f, g)?;
    let log_sum = |a: usize, to: &Mixture| {
        let terms: Vec<f64> = present(to).map(|b| to.log_weight(b) - kl_of(f, a, to, b)).collect();
        reference::log_sum_exp(&terms)
    };
    Ok(present(f).map(|a| f.weights()[a] * (log_sum(a, f) - log_sum(a, g))).sum())
}

/// The variational upper bound of `KL(f ‖ g)` of two mixtures, in nats (Hershey and Olsen 2007, section 8).
///
/// Each component of `f` is divided among those of `g` and the other way round; the division is improved in turns
/// until the bound falls by less than 1e-12 of itself, at most 1000 times. Each turn lowers it.
///
/// # Errors
/// [`ModelError::Shape`] if the dimensions differ.
///
/// Cost: `k l` divergences of components, and about `3 k l` exponentials per turn.
pub fn kl_upper_bound(f: &Mixture, g: &Mixture) -> Result<f64, ModelError> {
    /// Turns converge linearly; a mixture that needs more is bounded well enough.
    const TURNS: usize = 1000;
    check_dims(f, g)?;
    let (rows, columns): (Vec<_>, Vec<_>) = (present(f).collect(), present(g).collect());
    let shape = (rows.len(), columns.len());
    let apart = Array2::from_shape_fn(shape, |(a, b)| kl_of(f, rows[a], g, columns[b]));
    let ln_pi: Vec<f64> = rows.iter().map(|&a| f.log_weight(a)).collect();
    let ln_omega: Vec<f64> = columns.iter().map(|&b| g.log_weight(b)).collect();
    // Logarithms of φ (sums to π over b) and ψ (sums to ω over a), starting from the independent division.
    let mut phi = Array2::from_shape_fn(shape, |(a, b)| ln_pi[a] + ln_omega[b]);
    let mut psi = phi.clone();
    let mut bound = f64::INFINITY;
    for _ in 0..TURNS {
        for (b, mut column) in psi.columns_mut().into_iter().enumerate() {
            let all = reference::log_sum_exp(&phi.column(b).to_vec());
            // A component of g that is infinitely far from all of f has no part in the bound.
            if all > f64::NEG_INFINITY {
                column.assign(&phi.column(b));
                column.mapv_inplace(|v| v + ln_omega[b] - all);
            }
        }
        for (a, mut row) in phi.rows_mut().into_iter().enumerate() {
            row.assign(&(&psi.row(a) - &apart.row(a)));
            let all = reference::log_sum_exp(&row.to_vec());
            if all == f64::NEG_INFINITY {
                return Ok(f64::INFINITY);
            }
            row.mapv_inplace(|v| v + ln_pi[a] - all);
        }
        let terms = phi.iter().zip(&psi).zip(&apart).filter(|((phi, _), _)| phi.exp() > 0.0);
        let next: f64 = terms.map(|((phi, psi), apart)| phi.exp() * (phi - psi + apart)).sum();
        let fall = bound - next;
        bound = bound.min(next);
        if fall <= 1e-12 * next.abs() {
            break;
        }
    }
    Ok(bound.max(0.0))
}

/// A mean of independent draws, with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonteCarlo {
    /// The mean.
    pub estimate: f64,
    /// Standard deviation of the draws divided by the root of their number.
    pub standard_error: f64,
    /// Number of draws.
    pub n: u64,
}

/// Estimates `KL(f ‖ g)` of two mixtures, in nats: the mean of `ln f(x) − ln g(x)` over `n` draws `x` from `f`.
///
/// Infinite if a draw has density 0 under `g` in double precision. The same seed gives the same draws.
///
/// # Errors
/// [`ModelError::Shape`] if the dimensions differ; [`ModelError::Range`] if `n` is less than 2.
///
/// Cost: `n (k + l)` densities, computed by the reference; memory for about a thousand rows.
pub fn kl_monte_carlo(f: &Mixture, g: &Mixture, n: u64, seed: u64) -> Result<MonteCarlo, ModelError> {
    const BLOCK: u64 = 1024;
    check_dims(f, g)?;
    if n < 2 {
        return Err(ModelError::Range { what: "n", value: n.to_string(), must: "at least 2" });
    }
    let d = f.n_features();
    let (mut mean, mut squares) = (0.0, 0.0);
    let mut rows = vec![0.0; BLOCK as usize * d];
    let mut labels = vec![0; BLOCK as usize];
    for start in (0..n).step_by(BLOCK as usize) {
        let end = n.min(start + BLOCK);
        let len = (end - start) as usize;
        sample_range(f, seed, start..end, &mut rows[..len * d], &mut labels[..len])?;
        let block = ndarray::ArrayView2::from_shape((len, d), &rows[..len * d]).expect("len*d numbers");
        let ratios = reference::log_densities(f, block) - reference::log_densities(g, block);
        for (i, ratio) in ratios.into_iter().enumerate() {
            // Welford 1962: the variance without cancellation.
            let change = ratio - mean;
            mean += change / (start + i as u64 + 1) as f64;
            squares += change * (ratio - mean);
        }
    }
    if mean.is_nan() {
        // A density of 0 makes the ratio infinite, and infinity less infinity NaN.
        return Ok(MonteCarlo { estimate: f64::INFINITY, standard_error: f64::NAN, n });
    }
    let standard_error = (squares / (n - 1) as f64 / n as f64).sqrt();
    Ok(MonteCarlo { estimate: mean, standard_error, n })
}

/// The components of positive weight.
fn present(mixture: &Mixture) -> impl Iterator<Item = usize> {
    (0..mixture.n_components()).filter(|&c| mixture.weights()[c] > 0.0)
}
