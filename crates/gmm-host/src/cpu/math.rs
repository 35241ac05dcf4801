//! exp and ln over the vector operations, to about one unit in the last place.

use super::simd::{Dispatch, Kernel, Machine, Real, Words};

/// `exp(x)` for `x ≤ 0`; 0 below the logarithm of the smallest normal number, and for −∞.
///
/// `x = n ln 2 + r` with |r| ≤ ln(2)/2 and ln 2 in two parts; a polynomial gives `exp(r)`. The rounding leaves the
/// integer `n` in the low bits, and shifting it into the exponent gives `2^n`.
///
/// Processes `G` vectors step by step, so that each constant is loaded once for all of them.
#[inline(always)]
pub(crate) fn exp<T: Real, W: Words<T>, const G: usize>(w: W, x: [W::V; G]) -> [W::V; G] {
    let m = &T::MATH;
    let (least, round) = (w.splat(m.exp_least), w.splat(m.round));
    let (mut biased, mut r) = (x, x);
    for g in 0..G {
        let clamped = w.max(x[g], least);
        biased[g] = w.fma(clamped, w.splat(m.log2_e), round);
        let n = w.sub(biased[g], round);
        r[g] = w.neg_fma(n, w.splat(m.ln2_high), clamped);
        r[g] = w.neg_fma(n, w.splat(m.ln2_low), r[g]);
    }
    let mut p = [w.splat(m.exp_terms[0]); G];
    for &term in &m.exp_terms[1..] {
        let term = w.splat(term);
        for g in 0..G {
            p[g] = w.fma(p[g], r[g], term);
        }
    }
    for g in 0..G {
        // 1 + r + r² p, the small parts first.
        let tail = w.fma(w.mul(r[g], r[g]), p[g], r[g]);
        let value = w.add(tail, w.splat(T::ONE));
        let scaled = w.mul(value, w.shift_to_exponent(biased[g]));
        p[g] = w.select_lt(x[g], least, w.splat(T::ZERO), scaled);
    }
    p
}

/// `ln(x)` for normal `x > 0`.
///
/// `x = 2^e m` with m in [√½, √2), and `ln m = 2 artanh(f)`, `f = (m−1)/(m+1)`.
#[inline(always)]
pub(crate) fn ln<T: Real, W: Words<T>>(w: W, x: W::V) -> W::V {
    let c = &T::MATH;
    let one = w.splat(T::ONE);
    let (e, m) = w.split(x);
    let half = w.mul(m, w.splat(T::of(0.5)));
    let low = w.splat(c.sqrt_2);
    let e = w.select_lt(m, low, e, w.add(e, one));
    let m = w.select_lt(m, low, m, half);
    let g = w.sub(m, one);
    let f = w.div(g, w.add(m, one));
    let f2 = w.mul(f, f);
    let mut p = w.splat(c.ln_terms[0]);
    for &term in &c.ln_terms[1..] {
        p = w.fma(p, f2, w.splat(term));
    }
    // ln m = 2f + f³p, with 2f = g − f*g so that the leading part g is exact.
    let ln_m = w.add(w.neg_fma(f, g, w.mul(w.mul(f2, f), p)), g);
    let high = w.mul(e, w.splat(c.ln2_high));
    w.add(high, w.fma(e, w.splat(c.ln2_low), ln_m))
}

/// Replaces each value by its exponential, to about one unit in the last place. No value may be above 0; values below
/// −708 become 0.
///
/// The bits depend only on the processor's instruction set.
pub fn exp_in_place(values: &mut [f64]) {
    f64::dispatch(Machine::detect(), ExpInPlace(values));
}

struct ExpInPlace<'a>(&'a mut [f64]);

impl Kernel<f64> for ExpInPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<f64>>(self, w: W) {
        let mut chunks = self.0.chunks_exact_mut(W::LANES);
        for chunk in &mut chunks {
            // SAFETY: the chunk holds LANES values.
            unsafe { w.store(chunk.as_mut_ptr(), exp(w, [w.load(chunk.as_ptr())])[0]) };
        }
        let rest = chunks.into_remainder();
        // LANES is at most 16.
        let mut padded = [0.0; 16];
        padded[..rest.len()].copy_from_slice(rest);
        // SAFETY: `padded` holds at least LANES values.
        unsafe { w.store(padded.as_mut_ptr(), exp(w, [w.load(padded.as_ptr())])[0]) };
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Map<'a, T> {
        input: &'a [T],
        output: &'a mut [T],
        ln: bool,
    }

    impl<T: Real> Kernel<T> for Map<'_, T> {
        type Output = ();
        #[inline(always)]
        fn run<W: Words<T>>(self, w: W) {
            for (i, o) in self.input.chunks_exact(W::LANES).zip(self.output.chunks_exact_mut(W::LANES)) {
                // SAFETY: both chunks hold LANES values.
                unsafe {
                    let x = w.load(i.as_ptr());
                    w.store(o.as_mut_ptr(), if self.ln { ln(w, x) } else { exp(w, [x])[0] });
                }
            }
        }
    }

    fn worst<T: Dispatch>(machine: Machine, input: &[T], ln: bool) -> f64 {
        let mut output = vec![T::ZERO; input.len()];
        T::dispatch(machine, Map { input, output: &mut output, ln });
        let error = |(x, y): (&T, &T)| {
            let want = if ln { x.to_f64().ln() } else { x.to_f64().exp() };
            (y.to_f64() - want).abs() / want.abs().max(1e-300)
        };
        input.iter().zip(&output).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_within_two_ulp_down_to_the_smallest_normal() {
        let x: Vec<f64> = (0..160_000).map(|i| -(i as f64) * 0.004_424).collect();
        let x32: Vec<f32> = x.iter().map(|v| (v / 8.2) as f32).collect();
        for machine in Machine::all() {
            assert!(worst(machine, &x, false) < 2.0 * f64::EPSILON, "{machine:?} {}", worst(machine, &x, false));
            assert!(worst(machine, &x32, false) < 2.0 * f64::from(f32::EPSILON), "{machine:?}");
        }
    }

    #[test]
    fn exp_of_what_underflows_is_zero() {
        for machine in Machine::all() {
            let mut out = [1.0; 16];
            let input = [-709.0, -1e5, f64::NEG_INFINITY, -708.5].repeat(4);
            f64::dispatch(machine, Map { input: &input, output: &mut out, ln: false });
            assert_eq!(out, [0.0; 16]);
        }
    }

    #[test]
    fn ln_is_within_two_ulp_over_sums_of_exponentials() {
        let x: Vec<f64> =
            (0..160_000).map(|i| 1.0 + (i as f64) * 0.07).chain((1..1601).map(|i| 1.0 + i as f64 * 1e-9)).collect();
        let x32: Vec<f32> = x.iter().map(|v| *v as f32).filter(|v| *v != 1.0).collect();
        for machine in Machine::all() {
            assert!(worst(machine, &x[1..159_985], true) < 2.0 * f64::EPSILON, "{machine:?}");
            assert!(worst(machine, &x32[..159_984], true) < 2.0 * f64::from(f32::EPSILON), "{machine:?}");
        }
    }

    #[test]
    fn exponentials_in_place_are_those_of_the_platform_at_any_length() {
        for n in 0..40 {
            let x: Vec<f64> = (0..n).map(|i| -0.37 * f64::from(i * i)).collect();
            let mut found = x.clone();
            exp_in_place(&mut found);
            for (x, found) in x.iter().zip(found) {
                assert!((found - x.exp()).abs() <= 2.0 * f64::EPSILON * x.exp(), "{n} {x} {found}");
            }
        }
    }
}
