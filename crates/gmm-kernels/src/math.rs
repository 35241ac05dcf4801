//! exp, ln, ln Γ and ψ in plain arithmetic, identical on the device and in the emulator, so that tests cover the code that runs.
//!
//! Coefficients are those of the power series, with enough terms that the truncation error is below a third of an ulp
//! on the reduced range. `tests/kernels/math.rs` measures both functions against the host's library.

mod powers;

use crate::device::words::{
    exp2_approx_f32, fma_f32, fma_f64, log2_approx_f32, reciprocal_approx_f32, reciprocal_approx_f64,
};

macro_rules! exp {
    ($name:ident, $t:ident, $bits:ident, $int:ident, $fma:ident, $mantissa:literal, $bias:literal, $round:literal,
     $ln2_low:literal, $over:literal, $under:literal, [$($c:expr),*]) => {
        /// e to the power of `x`: `x = n ln 2 + r` with `|r| ≤ ½ ln 2`, a series for `exp r`, and `2ⁿ` in two factors
        /// so that subnormal results are reached.
        #[inline(always)]
        pub fn $name(x: $t) -> $t {
            if x > $over {
                return $t::INFINITY;
            }
            if x < $under {
                return 0.0;
            }
            // Adding 1.5 · 2^(mantissa bits) leaves the nearest integer in the low bits.
            let shifted = $fma(x, core::$t::consts::LOG2_E, $round);
            let n = shifted - $round;
            let power = (shifted.to_bits() as $int).wrapping_sub(($round as $t).to_bits() as $int);
            let r = $fma(n, -$ln2_low, $fma(n, -core::$t::consts::LN_2, x));
            let mut p: $t = 0.0;
            $(p = $fma(p, r, 1.0 / $c);)*
            let e = $fma(p, r * r, r) + 1.0;
            let two = |n: $int| $t::from_bits(((n + $bias) << $mantissa) as $bits);
            let half = power >> 1;
            e * two(half) * two(power - half)
        }
    };
}

// Factorials from the last term's down to 2!.
exp!(
    exp_f64,
    f64,
    u64,
    i64,
    fma_f64,
    52,
    1023,
    6_755_399_441_055_744.0,
    2.319_046_813_846_299_6e-17,
    709.79,
    -745.2,
    [
        6_227_020_800.0,
        479_001_600.0,
        39_916_800.0,
        3_628_800.0,
        362_880.0,
        40_320.0,
        5_040.0,
        720.0,
        120.0,
        24.0,
        6.0,
        2.0
    ]
);
exp!(
    exp_f32,
    f32,
    u32,
    i32,
    fma_f32,
    23,
    127,
    12_582_912.0,
    -1.904_654_3e-9,
    88.73,
    -104.0,
    [5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0]
);

macro_rules! ln {
    ($name:ident, $t:ident, $bits:ident, $int:ident, $fma:ident, $mantissa:literal, $bias:literal,
     $lift:literal, $up:literal, $ln2_high:literal, $ln2_low:literal, $over:expr, [$($odd:literal),*]) => {
        /// The natural logarithm of `x = 2ⁿ m`, `m` in `[√½, √2)`: with `f = m − 1` and `s = f / (2 + f)`, `ln m = f −
        /// (½f² − s (½f² + Σ 2 s^(2i) / (2i+1)))`, which is accurate near 1.
        #[inline(always)]
        pub fn $name(x: $t) -> $t {
            if x == 0.0 {
                return $t::NEG_INFINITY;
            }
            if x < 0.0 || x.is_nan() {
                return $t::NAN;
            }
            if x == $t::INFINITY {
                return x;
            }
            // Scale a subnormal into the normal range first.
            let (x, lifted) = if x < $t::MIN_POSITIVE { (x * $up, $lift) } else { (x, 0) };
            let bits = x.to_bits();
            let mut n = (bits >> $mantissa) as $int - $bias - lifted;
            let one: $bits = $bias << $mantissa;
            let mut m = $t::from_bits(bits & ((1 << $mantissa) - 1) | one);
            if m > core::$t::consts::SQRT_2 {
                m *= 0.5;
                n += 1;
            }
            let f = m - 1.0;
            let s = ($over)(f, 2.0 + f);
            let z = s * s;
            let mut series: $t = 0.0;
            $(series = $fma(series, z, 2.0 / $odd);)*
            let half = 0.5 * f * f;
            let n = n as $t;
            n * $ln2_high - ((half - (s * (half + z * series) + n * $ln2_low)) - f)
        }
    };
}

// ln 2 in two parts; the first is short enough that its product with any exponent is exact.
ln!(
    ln_f64,
    f64,
    u64,
    i64,
    fma_f64,
    52,
    1023,
    54,
    18_014_398_509_481_984.0,
    6.931_471_803_691_238e-1,
    1.908_214_929_270_587_7e-10,
    // A division would add a branch and registers for special values that cannot occur here.
    |a: f64, b: f64| a * reciprocal(b),
    [23.0, 21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0]
);
ln!(
    ln_f32,
    f32,
    u32,
    i64,
    fma_f32,
    23,
    127,
    25,
    33_554_432.0,
    6.931_381e-1,
    9.058_001e-6,
    |a: f32, b: f32| a / b,
    [11.0, 9.0, 7.0, 5.0, 3.0]
);

/// `1/x` within an ulp, for `x` and `1/x` in the normal range: two Newton steps from a 20-bit approximation.
#[inline(always)]
pub fn reciprocal(x: f64) -> f64 {
    let mut r = reciprocal_approx_f64(x);
    r = fma_f64(fma_f64(-x, r, 1.0), r, r);
    fma_f64(fma_f64(-x, r, 1.0), r, r)
}

/// ln Γ(x) and its derivative ψ(x), for `x` from 1e-290 to 1e290. The error of each is a few eps of the larger of 1, its
/// value and, below 10, `|ln x|` and `1/x`.
///
/// Source: Abramowitz and Stegun 1964, 6.1.15 and 6.3.5 (recurrence), 6.1.41 and 6.3.18 (asymptotic series; from 10 on
/// the first term left out is below 1e-17).
#[inline(always)]
pub fn ln_gamma_and_digamma(x: f64) -> (f64, f64) {
    const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;
    // Σ 1/x as a fraction over the product of the x.
    let (mut x, mut product, mut over) = (x, 1.0, 0.0);
    while x < 10.0 {
        over = fma_f64(over, x, product);
        product *= x;
        x += 1.0;
    }
    let below = over * reciprocal(product);
    let (ln, inverse) = (ln_f64(x), reciprocal(x));
    let square = inverse * inverse;
    let (mut of_ln, mut of_slope) = (0.0, 0.0);
    // B₂ₙ / 2n from the last term to the first, and the odd number 2n − 1.
    macro_rules! series {
        ($($b:expr, $odd:literal;)*) => {
            $(
                of_ln = fma_f64(of_ln, square, $b / $odd);
                of_slope = fma_f64(of_slope, square, $b);
            )*
        };
    }
    series! {
        -3617.0 / 8160.0, 15.0;
        1.0 / 12.0, 13.0;
        -691.0 / 32760.0, 11.0;
        1.0 / 132.0, 9.0;
        -1.0 / 240.0, 7.0;
        1.0 / 252.0, 5.0;
        -1.0 / 120.0, 3.0;
        1.0 / 12.0, 1.0;
    }
    let shifted = fma_f64(x - 0.5, ln, HALF_LN_2PI - x) + of_ln * inverse;
    let ln_gamma = if product == 1.0 { shifted } else { shifted - ln_f64(product) };
    (ln_gamma, ln - 0.5 * inverse - of_slope * square - below)
}

/// The binary logarithm of `x` in the normal range, within 2⁻²² or an ulp, whichever is larger.
#[inline(always)]
pub fn log2_f32(x: f32) -> f32 {
    log2_approx_f32(x)
}

/// `1/x` within an ulp, for `x` and `1/x` in the normal range.
#[inline(always)]
pub fn reciprocal_f32(x: f32) -> f32 {
    reciprocal_approx_f32(x)
}

/// e to the power of `x ≤ 709`, within 2 ulp down to −708; 0 below −708.01, where the result is almost subnormal. NaN
/// gives NaN.
///
/// It uses only eight `f64` operations, since warps queue for the `f64` unit of the tensor cores. The nearest power
/// `2^(j/64)` comes from a table, which leaves a series of five terms, and its index is computed in `f32`.
#[inline(always)]
pub fn exp_below_f64(x: f64) -> f64 {
    const ROUND: f32 = 12_582_912.0;
    const STEPS: f64 = powers::STEPS as f64;
    let short = x as f32;
    let shifted = fma_f32(short, (STEPS * core::f64::consts::LOG2_E) as f32, ROUND);
    let n = (shifted - ROUND) as f64;
    let r = fma_f64(n, -2.319_046_813_846_299_6e-17 / STEPS, fma_f64(n, -core::f64::consts::LN_2 / STEPS, x));
    let place = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    // 2ⁿ in steps of 1/64. The exponent cannot overflow for the `x` that reach the result below.
    let power = powers::POWERS[(place & (powers::STEPS - 1)) as usize];
    let power = f64::from_bits(power.wrapping_add(((place >> powers::STEPS.ilog2()) as i64 as u64) << 52));
    let mut series = 1.0 / 120.0;
    series = fma_f64(series, r, 1.0 / 24.0);
    series = fma_f64(series, r, 1.0 / 6.0);
    series = fma_f64(series, r, 0.5);
    series = fma_f64(series, r, 1.0);
    let value = fma_f64(power, series * r, power);
    // Compare the rounded exponent, in `f32`, to avoid an `f64` comparison.
    if shifted < ROUND - (708.0 * STEPS * core::f64::consts::LOG2_E) as f32 { 0.0 } else { value }
}

/// e to the power of `x ≤ 0`, within a relative error of 2.5e-7 plus a few ulp of 1; 0 if the result is subnormal.
#[inline(always)]
pub fn exp_below_f32(x: f32) -> f32 {
    exp2_approx_f32(x * core::f32::consts::LOG2_E)
}

/// 2 to the power of `x ≤ 0`, within a relative error of 2⁻²²; 0 if the result is subnormal.
#[inline(always)]
pub fn exp2_f32(x: f32) -> f32 {
    exp2_approx_f32(x)
}
