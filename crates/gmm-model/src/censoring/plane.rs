//! Regions of two dependent entries: an integral over the first, with the second in closed form.
//!
//! The integrand, the density of `z₁` times the probability of the interval that it leaves to `z₂`, is log-concave, since a
//! probability of an interval is log-concave in a shift. Newton's method finds its peak. It changes fast in two places: around
//! the peak, and where a bound of `z₂` passes 0. The range is divided there, in proportion to the scale of the change, and each
//! piece is integrated by Gauss and Legendre's rule.

use super::interval::IntervalMoments;
use super::legendre::{NODES, WEIGHTS};

/// Writes the moments of `z` where `lower ≤ L z ≤ upper`, and returns the logarithm of the probability. `factor` is
/// `[L₁₁, L₂₁, L₂₂]`.
pub(super) fn moments(factor: &[f64], (lower, upper): (&[f64], &[f64]), mean: &mut [f64], square: &mut [f64]) -> f64 {
    let (first, across, second) = (factor[0], factor[1], factor[2]);
    let (a, b) = (lower[0] / first, upper[0] / first);
    let slope = across / second;
    let of_second = |z: f64| IntervalMoments::new(lower[1] / second - slope * z, upper[1] / second - slope * z);
    let log_density = |z: f64, of: &IntervalMoments| of.log_probability - 0.5 * z * z;
    let (peak, scale) = peak((a, b), slope, of_second);
    let height = log_density(peak, &of_second(peak));

    // The log density falls by more than z²/2 at distance z from the peak.
    const REACH: f64 = 9.0;
    // No more than this, so that 16 nodes integrate the density of z₁.
    const LONGEST: f64 = 2.5;
    let mut cuts = [f64::NAN; 48];
    let mut n = 0;
    let (from, to) = (a.max(peak - REACH), b.min(peak + REACH));
    let mut cut = |at: f64| {
        if at > from && at < to {
            cuts[n] = at;
            n += 1;
        }
    };
    cut(peak);
    for step in [2.0, 6.0, 14.0, 40.0] {
        cut(peak - step * scale);
        cut(peak + step * scale);
    }
    for edge in [lower[1] / across, upper[1] / across] {
        cut(edge);
        for step in [1.5, 3.5, 7.0] {
            cut(edge - step / slope.abs());
            cut(edge + step / slope.abs());
        }
    }
    let cuts = &mut cuts[..n];
    cuts.sort_unstable_by(f64::total_cmp);
    let mut sums = [0.0; 6];
    let ends = cuts.iter().copied().chain([to]);
    let mut start = from;
    for end in ends {
        let pieces = ((end - start) / LONGEST).ceil().max(1.0);
        let half = 0.5 * (end - start) / pieces;
        for piece in 0..pieces as usize {
            let middle = start + half * (2 * piece + 1) as f64;
            for (node, weight) in NODES.iter().zip(WEIGHTS) {
                let z = middle + half * node;
                let of = of_second(z);
                let f = half * weight * libm::exp(log_density(z, &of) - height);
                let terms = [1.0, z, of.mean, z * z, z * of.mean, of.square];
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += f * term);
            }
        }
        start = end;
    }
    let total = sums[0];
    mean.iter_mut().zip(&sums[1..3]).for_each(|(out, sum)| *out = sum / total);
    square.iter_mut().zip(&sums[3..]).for_each(|(out, sum)| *out = sum / total);
    height + libm::log(total) - 0.5 * libm::log(2.0 * std::f64::consts::PI)
}

/// The largest value of the integrand between `a` and `b`, and the scale on which it changes there.
fn peak((a, b): (f64, f64), slope: f64, of_second: impl Fn(f64) -> IntervalMoments) -> (f64, f64) {
    // Derivatives of the logarithm: −z + s m, and −1 − s² (1 − v), with the mean m and the variance v of z₂.
    let derivatives = |z: f64| {
        let of = of_second(z);
        let variance = (of.square - of.mean * of.mean).clamp(0.0, 1.0);
        (slope * of.mean - z, 1.0 + slope * slope * (1.0 - variance))
    };
    let (mut low, mut high) = (a, b);
    let mut z = 0.0f64.clamp(a, b);
    let (mut up, mut bend) = derivatives(z);
    for _ in 0..60 {
        if up == 0.0 {
            break;
        }
        // The derivative falls: the peak is on the side to which it points.
        if up > 0.0 {
            low = z
        } else {
            high = z
        }
        let newton = z + up / bend;
        let inside = newton.clamp(a, b);
        let next = if inside > low && inside < high || inside == a || inside == b {
            inside
        } else if low.is_finite() && high.is_finite() {
            0.5 * (low + high)
        } else {
            // The slope is at least 1, so the peak is no farther than this.
            (z + up).clamp(a, b)
        };
        let moved = (next - z).abs();
        z = next;
        (up, bend) = derivatives(z);
        // The peak only has to be near: it divides the range, and scales the integrand.
        if moved <= 1e-3 / bend.sqrt() {
            break;
        }
    }
    (z, 1.0 / bend.sqrt().max(up.abs()))
}
