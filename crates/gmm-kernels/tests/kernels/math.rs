//! exp and ln against the host's library, in units of the last place; ln Γ and ψ against tables and the host's library.

use crate::data::Random;
use gmm_kernels::math::{exp_below_f64, exp_f32, exp_f64, ln_f32, ln_f64, ln_gamma_and_digamma};

fn ulps_f64(got: f64, want: f64) -> f64 {
    if got == want || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    (got - want).abs() / (f64::from_bits(want.abs().to_bits() + 1) - want.abs())
}

/// Compares with the `f64` value, so that the reference's own rounding does not count.
fn ulps_f32(got: f32, want: f64) -> f64 {
    let narrow = want as f32;
    if got == narrow || (got.is_nan() && narrow.is_nan()) {
        return 0.0;
    }
    let ulp = f64::from(f32::from_bits(narrow.abs().to_bits() + 1)) - f64::from(narrow.abs());
    (f64::from(got) - want).abs() / ulp
}

fn worst(points: impl Iterator<Item = f64>, error: impl Fn(f64) -> f64) -> f64 {
    points.map(|x| (error(x), x)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a }).0
}

fn points(low: f64, high: f64, seed: u64) -> impl Iterator<Item = f64> {
    let mut random = Random(seed);
    (0..200_000).map(move |_| low + (high - low) * random.uniform())
}

#[test]
fn exp_is_within_two_ulp() {
    for (low, high) in [(-1.0, 1.0), (-50.0, 0.0), (-708.0, 709.7), (-745.0, -700.0)] {
        let error = worst(points(low, high, 1), |x| ulps_f64(exp_f64(x), x.exp()));
        assert!(error <= 2.0, "f64 on {low}..{high}: {error} ulp");
    }
    for (low, high) in [(-1.0, 1.0), (-50.0, 0.0), (-87.0, 88.7), (-103.9, -80.0)] {
        let error = worst(points(low, high, 2), |x| ulps_f32(exp_f32(x as f32), f64::from(x as f32).exp()));
        assert!(error <= 2.0, "f32 on {low}..{high}: {error} ulp");
    }
}

#[test]
fn exp_below_the_range_s_end_is_within_two_ulp() {
    // Above 0 too: the approximate maximum that is subtracted may be below the true one.
    for (low, high) in [(-1e-9, 0.0), (-0.01, 0.01), (-1.0, 0.0), (-50.0, 0.0), (-708.0, 0.0), (0.0, 1.0), (0.0, 700.0)]
    {
        let error = worst(points(low, high, 5), |x| ulps_f64(exp_below_f64(x), x.exp()));
        assert!(error <= 2.0, "{low}..{high}: {error} ulp");
    }
    assert_eq!([0.0, -0.0, -708.1, -1e4, -1e300, f64::NEG_INFINITY].map(exp_below_f64), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(exp_below_f64(f64::NAN).is_nan());
}

#[test]
fn ln_is_within_two_ulp() {
    for (low, high) in [(0.5, 2.0), (0.999, 1.001), (1e-300, 1e-290), (1e-310, 1e-308), (1.0, 1e300), (1.0, 5000.0)] {
        let error = worst(points(low, high, 3), |x| ulps_f64(ln_f64(x), x.ln()));
        assert!(error <= 2.0, "f64 on {low}..{high}: {error} ulp");
    }
    for (low, high) in [(0.5, 2.0), (0.999, 1.001), (1e-40, 1e-37), (1.0, 1e38), (1.0, 5000.0)] {
        let error = worst(points(low, high, 4), |x| ulps_f32(ln_f32(x as f32), f64::from(x as f32).ln()));
        assert!(error <= 2.0, "f32 on {low}..{high}: {error} ulp");
    }
}

#[test]
fn the_edges_are_exact() {
    assert_eq!((exp_f64(0.0), exp_f32(0.0)), (1.0, 1.0));
    assert_eq!((exp_f64(f64::NEG_INFINITY), exp_f32(f32::NEG_INFINITY)), (0.0, 0.0));
    assert_eq!((exp_f64(f64::INFINITY), exp_f32(f32::INFINITY)), (f64::INFINITY, f32::INFINITY));
    assert_eq!((exp_f64(-1e308), exp_f32(-1e38)), (0.0, 0.0));
    assert!(exp_f64(f64::NAN).is_nan() && exp_f32(f32::NAN).is_nan());
    assert_eq!((ln_f64(1.0), ln_f32(1.0)), (0.0, 0.0));
    assert_eq!((ln_f64(0.0), ln_f32(0.0)), (f64::NEG_INFINITY, f32::NEG_INFINITY));
    assert_eq!((ln_f64(f64::INFINITY), ln_f32(f32::INFINITY)), (f64::INFINITY, f32::INFINITY));
    assert!(ln_f64(-1.0).is_nan() && ln_f32(-1.0).is_nan() && ln_f64(f64::NAN).is_nan());
}

/// ψ by 40 steps of the recurrence, and four terms of the series.
fn digamma(x: f64) -> f64 {
    let below: f64 = (0..40).rev().map(|i| 1.0 / (x + f64::from(i))).sum();
    let (x, z) = (x + 40.0, (x + 40.0).powi(-2));
    x.ln() - 0.5 / x - z * (1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z / 240.0))) - below
}

#[test]
fn the_log_gamma_function_and_its_derivative_are_within_a_few_eps() {
    let eps = f64::EPSILON;
    for (low, high) in [(1e-3_f64, 1e-2_f64), (1e-2, 1.0), (1.0, 3.0), (3.0, 12.0), (12.0, 1e3), (1e3, 1e8)] {
        for u in points(0.0, 1.0, 6).take(20_000) {
            let x = low * (high / low).powf(u);
            let (ln_gamma, slope) = ln_gamma_and_digamma(x);
            let (want, want_slope) = (libm::lgamma(x), digamma(x));
            // Below 10 the recurrence subtracts up to ln 10! = 15.
            let size = if x < 10.0 { 16.0 } else { 1.0 };
            let allowed = 4.0 * eps * (size + want.abs());
            assert!((ln_gamma - want).abs() <= allowed, "ln Γ({x}): {ln_gamma} {want}");
            // The reference subtracts from ln 50 = 4.
            let allowed = 4.0 * eps * (4.0 + want_slope.abs());
            assert!((slope - want_slope).abs() <= allowed, "ψ({x}): {slope} {want_slope}");
        }
    }
    // Abramowitz and Stegun 1964, 6.3.2 to 6.3.4, and their table 6.2.
    let gamma = 0.577_215_664_901_532_9;
    let half = -gamma - 2.0 * core::f64::consts::LN_2;
    for (x, want) in [(1.0, -gamma), (2.0, 1.0 - gamma), (0.5, half), (1.5, 2.0 + half), (10.0, 2.251_752_589_066_721)]
    {
        let (_, slope) = ln_gamma_and_digamma(x);
        assert!((slope - want).abs() <= 4.0 * eps * f64::max(1.0, want.abs()), "ψ({x}): {slope} {want}");
    }
}
