//! The standard normal distribution on an interval: probability, moments and quantiles, accurate in the tails.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

use super::legendre::{NODES, WEIGHTS};

/// A standard normal number, given that it is in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalMoments {
    /// Logarithm of the interval's probability.
    pub log_probability: f64,
    /// Mean given the interval.
    pub mean: f64,
    /// Mean square given the interval.
    pub square: f64,
}

/// √(2/π).
const TWICE_PEAK: f64 = 0.797_884_560_802_865_4;
/// ½ ln 2π.
const HALF_LN_TWO_PI: f64 = 0.918_938_533_204_672_7;

impl IntervalMoments {
    /// Of the interval from `a` to `b`, `a < b`, of which each may be infinite.
    ///
    /// Relative errors are a few eps, also far out and for narrow intervals. A narrow interval is integrated by Gauss and
    /// Legendre's rule of 16 nodes, since differences would cancel; all others are closed forms with the scaled
    /// complementary error function, whose exponent is taken out.
    pub fn new(a: f64, b: f64) -> Self {
        if a + b < 0.0 {
            let Self { log_probability, mean, square } = Self::new(-b, -a);
            return Self { log_probability, mean: -mean, square };
        }
        if a == f64::NEG_INFINITY {
            return Self { log_probability: 0.0, mean: 0.0, square: 1.0 };
        }
        let (width, middle) = (b - a, 0.5 * (a + b));
        // The exponent then changes by at most 4 over the half, which 16 nodes integrate to rounding.
        if width <= 2.0 && width * middle <= 8.0 {
            return Self::narrow(middle, 0.5 * width);
        }
        // Of the density at b to that at a.
        let exponent = if b == f64::INFINITY { f64::NEG_INFINITY } else { -0.5 * width * (a + b) };
        let ratio = libm::exp(exponent);
        let b_ratio = if ratio > 0.0 { b * ratio } else { 0.0 };
        if a >= 0.0 {
            let rest = if ratio > 0.0 { ratio * erfcx(b * FRAC_1_SQRT_2) } else { 0.0 };
            let scaled = erfcx(a * FRAC_1_SQRT_2) - rest;
            return Self {
                log_probability: -0.5 * a * a + libm::log(scaled) - LN_2,
                mean: TWICE_PEAK * -libm::expm1(exponent) / scaled,
                square: 1.0 + TWICE_PEAK * (a - b_ratio) / scaled,
            };
        }
        let tails = upper_tail(-a) + upper_tail(b);
        let probability = if tails < 0.5 {
            1.0 - tails
        } else {
            0.5 * (libm::erf(b * FRAC_1_SQRT_2) + libm::erf(-a * FRAC_1_SQRT_2))
        };
        let at_a = 0.5 * TWICE_PEAK * libm::exp(-0.5 * a * a) / probability;
        Self {
            log_probability: if tails < 0.5 { libm::log1p(-tails) } else { libm::log(probability) },
            mean: at_a * -libm::expm1(exponent),
            square: 1.0 + at_a * (a - b_ratio),
        }
    }

    fn narrow(middle: f64, half: f64) -> Self {
        let (mut sum, mut first, mut second) = (0.0, 0.0, 0.0);
        for (node, weight) in NODES.iter().zip(WEIGHTS) {
            let t = half * node;
            let f = weight * libm::exp(-t * (middle + 0.5 * t));
            sum += f;
            first += f * t;
            second += f * t * t;
        }
        let (first, second) = (first / sum, second / sum);
        Self {
            log_probability: libm::log(half * sum) - 0.5 * middle * middle - HALF_LN_TWO_PI,
            mean: middle + first,
            square: middle * middle + 2.0 * middle * first + second,
        }
    }
}

/// The number below which a standard normal number in the interval from `a` to `b` is with probability `u`. The relative
/// error is about 1e-10.
pub(super) fn quantile(a: f64, b: f64, u: f64) -> f64 {
    if a + b < 0.0 {
        return -quantile(-b, -a, 1.0 - u);
    }
    // Upper tails relative to that of `a`, so that nothing underflows.
    let log_tail_a = log_tail_and_hazard(a).0;
    let between = if b == f64::INFINITY { 0.0 } else { libm::exp(log_tail_and_hazard(b).0 - log_tail_a) };
    let log_tail = log_tail_a + libm::log1p(-u * (1.0 - between));
    let mut x = if log_tail > -LN_2 {
        // The lower half.
        -first_guess(libm::log(-libm::expm1(log_tail)))
    } else {
        first_guess(log_tail)
    };
    // Newton's method for the logarithm of the tail, which is nearly a parabola.
    for _ in 0..3 {
        let (log, slope) = log_tail_and_hazard(x);
        let step = (log - log_tail) / slope;
        // Halley's correction: the second derivative is −slope (slope − x). The error then is of the order of the step's cube.
        let step = step / (1.0 + 0.5 * step * (slope - x));
        x += step;
        if step.abs() < 6e-4 {
            break;
        }
    }
    // Unlike `clamp`, no panic if the bounds have overflowed to NaN.
    x.max(a).min(b)
}

/// An approximation of the number with this upper tail, whose logarithm is at most −ln 2: Abramowitz and Stegun 1964,
/// 26.2.23, off by at most 4.5e-4.
fn first_guess(log_tail: f64) -> f64 {
    let t = (-2.0 * log_tail).max(0.0).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

/// The logarithm of the upper tail of a finite `x` or −∞, and the density over the tail.
fn log_tail_and_hazard(x: f64) -> (f64, f64) {
    if x < 0.0 {
        let below = upper_tail(-x);
        return (libm::log1p(-below), 0.5 * TWICE_PEAK * libm::exp(-0.5 * x * x) / (1.0 - below));
    }
    let scaled = erfcx(x * FRAC_1_SQRT_2);
    (-0.5 * x * x + libm::log(0.5 * scaled), TWICE_PEAK / scaled)
}

/// The probability of a larger number than `x`.
fn upper_tail(x: f64) -> f64 {
    0.5 * libm::erfc(x * FRAC_1_SQRT_2)
}

/// The scaled complementary error function `exp(x²) erfc(x)`, `x ≥ 0`.
fn erfcx(x: f64) -> f64 {
    /// From here on eight terms of the asymptotic series are exact to rounding.
    const FAR: f64 = 10.0;
    if x < FAR {
        let square = x * x;
        // The rounding error of the square, which the exponential would magnify.
        let rest = x.mul_add(x, -square);
        return libm::erfc(x) * libm::exp(square) * (1.0 + rest);
    }
    // Σ (−1)^i (2i − 1)!! / (2x²)^i, Abramowitz and Stegun 1964, 7.1.23.
    let unit = 0.5 / x / x;
    let series = (1..=8).rev().fold(1.0, |sum, i| 1.0 - unit * f64::from(2 * i - 1) * sum);
    series / (x * PI.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Simpson's rule about the end nearer to 0, with the density's exponent there taken out.
    fn naive(a: f64, b: f64) -> [f64; 3] {
        let near = if a > 0.0 {
            a
        } else if b < 0.0 {
            b
        } else {
            0.0
        };
        // The density falls by e⁻⁴⁰ within this.
        let reach = if near == 0.0 { 9.0 } else { 40.0 / (near.abs() + 4.0) };
        let (from, to) = (a.max(near - reach), b.min(near + reach));
        let n = 20_000;
        let mut sums = [0.0; 3];
        for i in 0..=n {
            let t = f64::from(i) / f64::from(n);
            let x = from + t * (to - from);
            let weight = if i == 0 || i == n {
                1.0
            } else if i % 2 == 1 {
                4.0
            } else {
                2.0
            };
            let f = weight * (-0.5 * (x - near) * (x + near)).exp();
            [0, 1, 2].into_iter().for_each(|power| sums[power as usize] += f * x.powi(power));
        }
        let log = (sums[0] * (to - from) / f64::from(3 * n)).ln() - 0.5 * near * near - 0.5 * (2.0 * PI).ln();
        [log, sums[1] / sums[0], sums[2] / sums[0]]
    }

    #[test]
    fn moments_of_intervals_are_those_of_quadrature_also_in_the_tails() {
        let inf = f64::INFINITY;
        let ends = [-inf, -40.0, -12.0, -8.0, -3.0, -1.1, -0.2, 0.0, 1e-3, 0.7, 2.0, 8.0, 8.01, 40.0, 40.3, inf];
        for (i, &a) in ends.iter().enumerate() {
            for &b in &ends[i + 1..] {
                let IntervalMoments { log_probability, mean, square } = IntervalMoments::new(a, b);
                for (found, want) in [log_probability, mean, square].into_iter().zip(naive(a, b)) {
                    // Simpson's rule of 20,000 steps is exact to about 1e-13.
                    let close = (found - want).abs() <= 2e-12 * want.abs().max(1e-2);
                    assert!(close, "[{a}, {b}]: {found} {want}");
                }
            }
        }
    }

    #[test]
    fn tails_have_published_values() {
        // −log10 Q(x), in arithmetic of 60 digits.
        for (x, want) in [
            (8.0, 15.206_142_551_017_155),
            (10.0, 23.118_053_405_486_076),
            (40.0, 349.437_006_459_345_84),
            (100.0, 2_173.871_542_869_034_4),
        ] {
            let found = -IntervalMoments::new(x, f64::INFINITY).log_probability / 10f64.ln();
            assert!((found / want - 1.0).abs() < 1e-14, "{x}: {found} {want}");
        }
        // Far out the mean is x + 1/x − 2/x³ + ..
        let far = IntervalMoments::new(1e6, f64::INFINITY);
        assert!((far.mean - (1e6 + 1e-6)).abs() < 1e-9 && (far.square / 1e12 - 1.0 - 2e-12).abs() < 1e-15, "{far:?}");
    }

    #[test]
    fn narrow_intervals_do_not_cancel() {
        for middle in [0.0, 3.0, 30.0] {
            let half = 1e-9;
            let found = IntervalMoments::new(middle - half, middle + half);
            let want = -0.5 * middle * middle - HALF_LN_TWO_PI + (2e-9f64).ln();
            assert!((found.log_probability - want).abs() < 1e-7, "{middle}: {found:?}");
            assert!((found.mean - middle).abs() < 1e-9);
        }
    }

    #[test]
    fn quantiles_invert_probabilities() {
        let inf = f64::INFINITY;
        for (a, b) in [(-inf, inf), (-1.0, 2.0), (3.0, inf), (-inf, -38.0), (40.0, 41.0), (200.0, inf), (-9.0, 30.0)] {
            for u in [1e-7, 0.01, 0.3, 0.5, 0.9, 1.0 - 1e-7] {
                let x = quantile(a, b, u);
                let share = IntervalMoments::new(a, x).log_probability - IntervalMoments::new(a, b).log_probability;
                assert!(
                    (share.exp() - u).abs() < 1e-8 * (u * (1.0 - u)).max(1e-3),
                    "[{a}, {b}] {u}: {x} {}",
                    share.exp()
                );
            }
        }
    }
}
