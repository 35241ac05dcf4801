//! The vector operations that the CPU kernels use; every algorithm is written once, over these operations.
//!
//! A [`Words`] value is a token: it exists only where its instructions are supported, so its methods are safe to call.
//! Kernels are `#[inline(always)]` generics over the token. [`Dispatch::dispatch`] enters them through one function per
//! instruction set, which enables the instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::borrow::Cow;
use std::fmt::Debug;

use gmm_model::Precision;

pub(crate) use portable::Portable;

/// `f32` or `f64`.
pub(crate) trait Real: Copy + Debug + PartialOrd + Default + Send + Sync + 'static {
    const ZERO: Self;
    const ONE: Self;
    /// Largest finite value.
    const MAX: Self;
    /// The precision of this type.
    const PRECISION: Precision;
    fn of(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Converts numbers of either precision to this one; borrowed if the precision is the same.
    fn all_of_f32(all: &[f32]) -> Cow<'_, [Self]>;
    fn all_of_f64(all: &[f64]) -> Cow<'_, [Self]>;
    /// Whether any number is neither 0 nor −0; compiled to vector operations inside a kernel.
    fn any_is_not_zero(all: &[Self]) -> bool;
    /// Constants of [`math`](super::math) for this type.
    const MATH: MathConstants<Self>;
}

/// Constants that `exp` and `ln` need for a type. See [`math`](super::math) for the formulas.
pub(crate) struct MathConstants<T: 'static> {
    /// `1.5 * 2^mantissa_bits + exponent_bias`: adding it leaves a rounded integer in the low bits.
    pub round: T,
    pub log2_e: T,
    /// ln 2 in two parts, the first with trailing zero bits so that its multiples are exact.
    pub ln2_high: T,
    pub ln2_low: T,
    /// Below this, exp returns 0: the result would be near or below the smallest normal number.
    pub exp_least: T,
    /// Coefficients 1/m! from the highest degree down to degree 2.
    pub exp_terms: &'static [T],
    /// Coefficients 2/(2m+1) from the highest degree down to m = 1.
    pub ln_terms: &'static [T],
    pub sqrt_2: T,
}

macro_rules! real {
    ($t:ident, $precision:expr, $of_f32:expr, $of_f64:expr, $round:expr, $high:expr, $low:expr, $least:expr, $exp:expr, $ln:expr) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const MAX: Self = $t::MAX;
            const PRECISION: Precision = $precision;
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn all_of_f32(all: &[f32]) -> Cow<'_, [Self]> {
                $of_f32(all)
            }
            fn all_of_f64(all: &[f64]) -> Cow<'_, [Self]> {
                $of_f64(all)
            }
            #[inline(always)]
            fn any_is_not_zero(all: &[Self]) -> bool {
                let mut bits = 0;
                for v in all {
                    bits |= v.to_bits() << 1;
                }
                bits != 0
            }
            const MATH: MathConstants<Self> = MathConstants {
                round: $round,
                log2_e: std::$t::consts::LOG2_E,
                ln2_high: $high,
                ln2_low: $low,
                exp_least: $least,
                exp_terms: $exp,
                ln_terms: $ln,
                sqrt_2: std::$t::consts::SQRT_2,
            };
        }
    };
}

// ln 2 split as in fdlibm: the high part has 20 (f64) and 9 (f32) trailing zero bits.
real!(
    f64,
    Precision::F64,
    |all: &[f32]| Cow::Owned(all.iter().map(|v| f64::from(*v)).collect()),
    Cow::Borrowed,
    6_755_399_441_055_744.0 + 1023.0,
    6.931_471_803_691_238e-1,
    1.908_214_929_270_587_7e-10,
    -708.0,
    // Degree 13: the remainder at |r| = ln(2)/2 is 4e-18 of the sum.
    &[
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        1.0 / 2.0,
    ],
    // f² ≤ 0.0295 after halving at √2: the term after 2/21 is below 2^-60 of the sum.
    &[
        2.0 / 21.0,
        2.0 / 19.0,
        2.0 / 17.0,
        2.0 / 15.0,
        2.0 / 13.0,
        2.0 / 11.0,
        2.0 / 9.0,
        2.0 / 7.0,
        2.0 / 5.0,
        2.0 / 3.0
    ]
);
real!(
    f32,
    Precision::F32,
    Cow::Borrowed,
    |all: &[f64]| Cow::Owned(all.iter().map(|v| *v as f32).collect()),
    12_582_912.0 + 127.0,
    6.931_457_5e-1,
    1.428_606_8e-6,
    -87.0,
    // Degree 7: the remainder at |r| = ln(2)/2 is 5e-9 of the sum.
    &[1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 1.0 / 2.0],
    &[2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0]
);

/// Vector operations of one instruction set for one type. Implementors are zero-sized tokens.
pub(crate) trait Words<T: Real>: Copy + Send + Sync {
    /// A vector of `LANES` values.
    type V: Copy;
    const LANES: usize;
    /// Most vectors of rows in a register tile: 4 if there are 32 registers, otherwise 2.
    const GROUP: usize;

    fn splat(self, value: T) -> Self::V;
    /// # Safety
    /// `LANES` values must be readable at `from`.
    unsafe fn load(self, from: *const T) -> Self::V;
    /// # Safety
    /// `LANES` values must be writable at `to`.
    unsafe fn store(self, to: *mut T, v: Self::V);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    fn sqrt(self, a: Self::V) -> Self::V;
    /// `a*b + c`, with a single rounding if the hardware supports it.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c − a*b`, with a single rounding if the hardware supports it.
    fn neg_fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger of the two; `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? x : y` in each lane; `y` if either is NaN.
    fn select_lt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// One bit per lane, the first lane lowest: whether `a < b`.
    fn lt_bits(self, a: Self::V, b: Self::V) -> u32;
    /// Shifts the bits left by the width of the mantissa, so that the low bits become the exponent.
    fn shift_to_exponent(self, a: Self::V) -> Self::V;
    /// The lanes of both in turns: `a0 b0 a1 b1 ..`, in two vectors.
    fn zip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// Splits a positive normal number into an exponent and a significand in [1, 2).
    fn split(self, a: Self::V) -> (Self::V, Self::V);
    /// Runs `kernel` in a separate function: code shared by several callers is then compiled once instead of inlined
    /// into each.
    fn apart<K: Kernel<T>>(self, kernel: K) -> K::Output;
    /// Sum of the lanes, in a fixed order.
    fn sum(self, a: Self::V) -> T;
    /// Sums of the lanes of four vectors.
    #[inline(always)]
    fn sum4(self, a: [Self::V; 4]) -> [T; 4] {
        [self.sum(a[0]), self.sum(a[1]), self.sum(a[2]), self.sum(a[3])]
    }
}

/// Asks for the numbers to be read into the cache, for use soon. Does nothing on other processors.
#[inline(always)]
pub(crate) fn prefetch<T>(all: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(all)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not access memory as far as the program can tell; the address is within the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(all.as_ptr().cast::<i8>().add(line)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = all;
}

/// An algorithm over the vector operations, entered through [`Dispatch::dispatch`] or, from another one,
/// [`Words::apart`].
pub(crate) trait Kernel<T: Real> {
    type Output;
    /// Must be `#[inline(always)]`, as must every function that it calls with the token.
    fn run<W: Words<T>>(self, words: W) -> Self::Output;
}

/// The instruction set in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Plain arrays, compiled for the target's baseline.
    Portable,
    /// AVX2, FMA, BMI1 and POPCNT.
    Avx2,
    /// AVX-512 F and DQ, BMI1 and POPCNT.
    Avx512,
}

impl Machine {
    /// The best instruction set that this processor supports.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            // Every processor with AVX2 has the bit instructions too; a hypervisor can hide them.
            let has_bits = is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("popcnt");
            if has_bits && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                return Self::Avx512;
            }
            if has_bits && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// All instruction sets that this processor supports, the best last.
    pub(crate) fn all() -> Vec<Self> {
        match Self::detect() {
            Self::Portable => vec![Self::Portable],
            Self::Avx2 => vec![Self::Portable, Self::Avx2],
            Self::Avx512 => vec![Self::Portable, Self::Avx2, Self::Avx512],
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        }
    }
}

/// Types that have vector operations for every instruction set.
pub(crate) trait Dispatch: Real {
    /// Runs `kernel` with the instruction set `machine`.
    fn dispatch<K: Kernel<Self>>(machine: Machine, kernel: K) -> K::Output;
}

macro_rules! dispatch {
    ($t:ty) => {
        impl Dispatch for $t {
            fn dispatch<K: Kernel<Self>>(machine: Machine, kernel: K) -> K::Output {
                #[cfg(target_arch = "x86_64")]
                {
                    assert!(machine as u8 <= Machine::detect() as u8, "{} is not on this processor", machine.name());
                    match machine {
                        // SAFETY: the processor supports AVX-512 F and DQ: `machine` is at most the detected set, as
                        // asserted.
                        Machine::Avx512 => return unsafe { avx512::enter::<$t, K>(kernel) },
                        // SAFETY: the processor supports AVX2 and FMA: `machine` is at most the detected set, as
                        // asserted.
                        Machine::Avx2 => return unsafe { avx2::enter::<$t, K>(kernel) },
                        Machine::Portable => {}
                    }
                }
                let _ = machine;
                Portable.apart(kernel)
            }
        }
    };
}
dispatch!(f32);
dispatch!(f64);
