//! AVX2 and FMA operations: 4 f64 or 8 f32 per vector, 16 registers.

#![allow(unused_unsafe, reason = "`call!` nests in itself")]

use std::arch::x86_64::*;

use super::{Kernel, Real, Words};

/// Token: exists only inside [`enter`].
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Runs `kernel` with AVX2 and FMA enabled.
///
/// # Safety
/// The processor must support AVX2 and FMA.
#[target_feature(enable = "avx2,fma,bmi1,popcnt")]
#[inline(never)]
pub(super) unsafe fn enter<T: Real, K: Kernel<T>>(kernel: K) -> K::Output
where
    Avx2: Words<T>,
{
    kernel.run(Avx2(()))
}

macro_rules! call {
    ($name:ident $(::<$c:tt>)? ( $($a:expr),* )) => {{
        // SAFETY: an `Avx2` token exists only if the processor supports AVX2 and FMA.
        unsafe { $name$(::<$c>)?($($a),*) }
    }};
}

macro_rules! plain_words {
    ($t:ty, $v:ty, $set1:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $sqrt:ident, $fma:ident,
     $fnma:ident, $max:ident, $cmp:ident, $blend:ident, $movemask:ident) => {
        #[inline(always)]
        fn splat(self, value: $t) -> $v {
            call!($set1(value))
        }
        #[inline(always)]
        unsafe fn load(self, from: *const $t) -> $v {
            call!($load(from))
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut $t, v: $v) {
            call!($store(to, v))
        }
        #[inline(always)]
        fn add(self, a: $v, b: $v) -> $v {
            call!($add(a, b))
        }
        #[inline(always)]
        fn sub(self, a: $v, b: $v) -> $v {
            call!($sub(a, b))
        }
        #[inline(always)]
        fn mul(self, a: $v, b: $v) -> $v {
            call!($mul(a, b))
        }
        #[inline(always)]
        fn div(self, a: $v, b: $v) -> $v {
            call!($div(a, b))
        }
        #[inline(always)]
        fn sqrt(self, a: $v) -> $v {
            call!($sqrt(a))
        }
        #[inline(always)]
        fn fma(self, a: $v, b: $v, c: $v) -> $v {
            call!($fma(a, b, c))
        }
        #[inline(always)]
        fn neg_fma(self, a: $v, b: $v, c: $v) -> $v {
            call!($fnma(a, b, c))
        }
        #[inline(always)]
        fn max(self, a: $v, b: $v) -> $v {
            call!($max(a, b))
        }
        #[inline(always)]
        fn select_lt(self, a: $v, b: $v, x: $v, y: $v) -> $v {
            let mask = call!($cmp::<_CMP_LT_OQ>(a, b));
            call!($blend(y, x, mask))
        }
        #[inline(always)]
        fn lt_bits(self, a: $v, b: $v) -> u32 {
            let mask = call!($cmp::<_CMP_LT_OQ>(a, b));
            call!($movemask(mask)) as u32
        }
    };
}

impl Words<f64> for Avx2 {
    type V = __m256d;
    const LANES: usize = 4;
    const GROUP: usize = 2;

    #[inline(always)]
    fn apart<K: Kernel<f64>>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists, so the processor supports AVX2 and FMA.
        unsafe { enter::<f64, K>(kernel) }
    }
    plain_words!(
        f64,
        __m256d,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd,
        _mm256_div_pd,
        _mm256_sqrt_pd,
        _mm256_fmadd_pd,
        _mm256_fnmadd_pd,
        _mm256_max_pd,
        _mm256_cmp_pd,
        _mm256_blendv_pd,
        _mm256_movemask_pd
    );
    #[inline(always)]
    fn shift_to_exponent(self, a: __m256d) -> __m256d {
        call!(_mm256_castsi256_pd(call!(_mm256_slli_epi64::<52>(call!(_mm256_castpd_si256(a))))))
    }
    #[inline(always)]
    fn zip(self, a: __m256d, b: __m256d) -> (__m256d, __m256d) {
        // Within each half; then the halves are put in order.
        let (low, high) = (call!(_mm256_unpacklo_pd(a, b)), call!(_mm256_unpackhi_pd(a, b)));
        (call!(_mm256_permute2f128_pd::<0x20>(low, high)), call!(_mm256_permute2f128_pd::<0x31>(low, high)))
    }
    #[inline(always)]
    fn split(self, a: __m256d) -> (__m256d, __m256d) {
        let bits = call!(_mm256_castpd_si256(a));
        // The biased exponent in the low bits of 2^52; the subtraction below removes both 2^52 and the bias.
        let magic = call!(_mm256_set1_pd(4_503_599_627_370_496.0));
        let biased = call!(_mm256_or_si256(call!(_mm256_srli_epi64::<52>(bits)), call!(_mm256_castpd_si256(magic))));
        let exponent = call!(_mm256_sub_pd(
            call!(_mm256_castsi256_pd(biased)),
            call!(_mm256_set1_pd(4_503_599_627_370_496.0 + 1023.0))
        ));
        let mantissa = call!(_mm256_and_si256(bits, call!(_mm256_set1_epi64x((1 << 52) - 1))));
        let one = call!(_mm256_castpd_si256(call!(_mm256_set1_pd(1.0))));
        (exponent, call!(_mm256_castsi256_pd(call!(_mm256_or_si256(mantissa, one)))))
    }
    #[inline(always)]
    fn sum(self, a: __m256d) -> f64 {
        let half = call!(_mm_add_pd(call!(_mm256_castpd256_pd128(a)), call!(_mm256_extractf128_pd::<1>(a))));
        let swapped = call!(_mm_unpackhi_pd(half, half));
        call!(_mm_cvtsd_f64(call!(_mm_add_sd(half, swapped))))
    }
    #[inline(always)]
    fn sum4(self, [a, b, c, d]: [__m256d; 4]) -> [f64; 4] {
        let ab = call!(_mm256_hadd_pd(a, b));
        let cd = call!(_mm256_hadd_pd(c, d));
        let low = call!(_mm256_permute2f128_pd::<0x20>(ab, cd));
        let high = call!(_mm256_permute2f128_pd::<0x31>(ab, cd));
        let mut out = [0.0; 4];
        call!(_mm256_storeu_pd(out.as_mut_ptr(), call!(_mm256_add_pd(low, high))));
        out
    }
}

impl Words<f32> for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const GROUP: usize = 2;

    #[inline(always)]
    fn apart<K: Kernel<f32>>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists, so the processor supports AVX2 and FMA.
        unsafe { enter::<f32, K>(kernel) }
    }
    plain_words!(
        f32,
        __m256,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        _mm256_div_ps,
        _mm256_sqrt_ps,
        _mm256_fmadd_ps,
        _mm256_fnmadd_ps,
        _mm256_max_ps,
        _mm256_cmp_ps,
        _mm256_blendv_ps,
        _mm256_movemask_ps
    );
    #[inline(always)]
    fn shift_to_exponent(self, a: __m256) -> __m256 {
        call!(_mm256_castsi256_ps(call!(_mm256_slli_epi32::<23>(call!(_mm256_castps_si256(a))))))
    }
    #[inline(always)]
    fn zip(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // Within each half; then the halves are put in order.
        let (low, high) = (call!(_mm256_unpacklo_ps(a, b)), call!(_mm256_unpackhi_ps(a, b)));
        (call!(_mm256_permute2f128_ps::<0x20>(low, high)), call!(_mm256_permute2f128_ps::<0x31>(low, high)))
    }
    #[inline(always)]
    fn split(self, a: __m256) -> (__m256, __m256) {
        let bits = call!(_mm256_castps_si256(a));
        let biased = call!(_mm256_cvtepi32_ps(call!(_mm256_srli_epi32::<23>(bits))));
        let mantissa = call!(_mm256_and_si256(bits, call!(_mm256_set1_epi32((1 << 23) - 1))));
        let one = call!(_mm256_castps_si256(call!(_mm256_set1_ps(1.0))));
        (
            call!(_mm256_sub_ps(biased, call!(_mm256_set1_ps(127.0)))),
            call!(_mm256_castsi256_ps(call!(_mm256_or_si256(mantissa, one)))),
        )
    }
    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        let quad = call!(_mm_add_ps(call!(_mm256_castps256_ps128(a)), call!(_mm256_extractf128_ps::<1>(a))));
        let pair = call!(_mm_add_ps(quad, call!(_mm_movehl_ps(quad, quad))));
        call!(_mm_cvtss_f32(call!(_mm_add_ss(pair, call!(_mm_movehdup_ps(pair))))))
    }
}
