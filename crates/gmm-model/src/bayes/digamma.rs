//! The digamma function.

/// ψ(x), the derivative of ln Γ(x), for `x > 0`. Its error is a few eps of the larger of 1 and the result.
///
/// Source: Abramowitz and Stegun 1964, 6.3.5 (recurrence) and 6.3.18 (asymptotic series; from 10 on the first term left
/// out is below 1e-17). The logarithm is `libm`'s, so every machine has the same bits.
pub(crate) fn digamma(x: f64) -> f64 {
    /// `B₂ₙ / 2n` for n = 1, 2, ..
    const SERIES: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
        -3617.0 / 8160.0,
    ];
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += 1.0 / x;
        x += 1.0;
    }
    let inverse_square = 1.0 / (x * x);
    let series = SERIES.iter().rev().fold(0.0, |sum, c| (sum + c) * inverse_square);
    libm::log(x) - 0.5 / x - series - below
}

/// `Σ_{i<d} ψ(a − i/2)`, the derivative of [`ln_gamma_multivariate`].
pub(crate) fn digamma_multivariate(d: usize, a: f64) -> f64 {
    (0..d).map(|i| digamma(a - 0.5 * i as f64)).sum()
}

/// `ln Γ_d(a)`, for `a > (d − 1)/2`.
pub(crate) fn ln_gamma_multivariate(d: usize, a: f64) -> f64 {
    let pairs = (d * (d - 1)) as f64 / 4.0;
    pairs * std::f64::consts::PI.ln() + (0..d).map(|i| libm::lgamma(a - 0.5 * i as f64)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_met() {
        // Abramowitz and Stegun 1964, 6.3.2 to 6.3.4, and their table 6.1 and 6.2 at 1.5 and 10.
        let gamma = 0.577_215_664_901_532_9;
        let known = [
            (1.0, -gamma),
            (2.0, 1.0 - gamma),
            (0.5, -gamma - 2.0 * std::f64::consts::LN_2),
            (1.5, 2.0 - gamma - 2.0 * std::f64::consts::LN_2),
            (10.0, 2.251_752_589_066_721),
        ];
        for (x, wanted) in known {
            assert!(
                (digamma(x) - wanted).abs() <= 4.0 * f64::EPSILON * f64::max(1.0, wanted.abs()),
                "{x}: {}",
                digamma(x)
            );
        }
    }

    #[test]
    fn it_is_the_derivative_of_the_log_gamma_function() {
        for x in [1e-3, 0.1, 0.9, 3.3, 9.99, 10.01, 77.0, 1e4] {
            // Fourth-order differences.
            let h = 1e-3 * x;
            let at = |steps: f64| libm::lgamma(x + steps * h);
            let slope = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * h);
            assert!((digamma(x) - slope).abs() <= 1e-9 * (1.0 + slope.abs()), "{x}: {} {slope}", digamma(x));
        }
    }
}
