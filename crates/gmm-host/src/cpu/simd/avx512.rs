//! AVX-512 operations: 8 f64 or 16 f32 per vector, 32 registers.

#![allow(unused_unsafe, reason = "`call!` nests in itself")]

use std::arch::x86_64::*;

use super::{Kernel, Real, Words};

/// Token: exists only inside [`enter`].
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// Runs `kernel` with AVX-512 enabled.
///
/// # Safety
/// The processor must support AVX-512 F and DQ.
#[target_feature(enable = "avx512f,avx512dq,avx2,fma,bmi1,popcnt")]
#[inline(never)]
pub(super) unsafe fn enter<T: Real, K: Kernel<T>>(kernel: K) -> K::Output
where
    Avx512: Words<T>,
{
    kernel.run(Avx512(()))
}

macro_rules! call {
    ($name:ident $(::<$($c:tt),*>)? ( $($a:expr),* )) => {{
        // SAFETY: an `Avx512` token exists only if the processor supports AVX-512 F and DQ.
        unsafe { $name$(::<$($c),*>)?($($a),*) }
    }};
}

impl Words<f64> for Avx512 {
    type V = __m512d;
    const LANES: usize = 8;
    const GROUP: usize = 4;

    #[inline(always)]
    fn apart<K: Kernel<f64>>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists, so the processor supports AVX-512 F and DQ.
        unsafe { enter::<f64, K>(kernel) }
    }

    #[inline(always)]
    fn splat(self, value: f64) -> __m512d {
        call!(_mm512_set1_pd(value))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f64) -> __m512d {
        call!(_mm512_loadu_pd(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64, v: __m512d) {
        call!(_mm512_storeu_pd(to, v))
    }
    #[inline(always)]
    fn add(self, a: __m512d, b: __m512d) -> __m512d {
        call!(_mm512_add_pd(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512d, b: __m512d) -> __m512d {
        call!(_mm512_sub_pd(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512d, b: __m512d) -> __m512d {
        call!(_mm512_mul_pd(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512d, b: __m512d) -> __m512d {
        call!(_mm512_div_pd(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512d) -> __m512d {
        call!(_mm512_sqrt_pd(a))
    }
    #[inline(always)]
    fn fma(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        call!(_mm512_fmadd_pd(a, b, c))
    }
    #[inline(always)]
    fn neg_fma(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        call!(_mm512_fnmadd_pd(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512d, b: __m512d) -> __m512d {
        call!(_mm512_max_pd(a, b))
    }
    #[inline(always)]
    fn select_lt(self, a: __m512d, b: __m512d, x: __m512d, y: __m512d) -> __m512d {
        let mask = call!(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(a, b));
        call!(_mm512_mask_blend_pd(mask, y, x))
    }
    #[inline(always)]
    fn lt_bits(self, a: __m512d, b: __m512d) -> u32 {
        call!(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(a, b)).into()
    }
    #[inline(always)]
    fn shift_to_exponent(self, a: __m512d) -> __m512d {
        call!(_mm512_castsi512_pd(call!(_mm512_slli_epi64::<52>(call!(_mm512_castpd_si512(a))))))
    }
    #[inline(always)]
    fn zip(self, a: __m512d, b: __m512d) -> (__m512d, __m512d) {
        let low = call!(_mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11));
        let high = call!(_mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15));
        (call!(_mm512_permutex2var_pd(a, low, b)), call!(_mm512_permutex2var_pd(a, high, b)))
    }
    #[inline(always)]
    fn split(self, a: __m512d) -> (__m512d, __m512d) {
        (call!(_mm512_getexp_pd(a)), call!(_mm512_getmant_pd::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(a)))
    }
    #[inline(always)]
    fn sum(self, a: __m512d) -> f64 {
        call!(_mm512_reduce_add_pd(a))
    }
    #[inline(always)]
    fn sum4(self, [a, b, c, d]: [__m512d; 4]) -> [f64; 4] {
        // Transpose and add: within 128-bit lanes first, then across them.
        let ab = call!(_mm512_add_pd(call!(_mm512_unpacklo_pd(a, b)), call!(_mm512_unpackhi_pd(a, b))));
        let cd = call!(_mm512_add_pd(call!(_mm512_unpacklo_pd(c, d)), call!(_mm512_unpackhi_pd(c, d))));
        let low = call!(_mm512_shuffle_f64x2::<0b10_00_10_00>(ab, cd));
        let high = call!(_mm512_shuffle_f64x2::<0b11_01_11_01>(ab, cd));
        // The 128-bit lanes of `a` and `b` are interleaved and added; likewise those of `c` and `d`.
        let v = call!(_mm512_add_pd(low, high));
        let swapped = call!(_mm512_shuffle_f64x2::<0b10_11_00_01>(v, v));
        let v = call!(_mm512_add_pd(v, swapped));
        let mut out = [0.0; 8];
        call!(_mm512_storeu_pd(out.as_mut_ptr(), v));
        [out[0], out[1], out[4], out[5]]
    }
}

impl Words<f32> for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const GROUP: usize = 4;

    #[inline(always)]
    fn apart<K: Kernel<f32>>(self, kernel: K) -> K::Output {
        // SAFETY: `self` exists, so the processor supports AVX-512 F and DQ.
        unsafe { enter::<f32, K>(kernel) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        call!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        call!(_mm512_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: __m512) {
        call!(_mm512_storeu_ps(to, v))
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        call!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        call!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn neg_fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        call!(_mm512_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        call!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        let mask = call!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b));
        call!(_mm512_mask_blend_ps(mask, y, x))
    }
    #[inline(always)]
    fn lt_bits(self, a: __m512, b: __m512) -> u32 {
        call!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b)).into()
    }
    #[inline(always)]
    fn shift_to_exponent(self, a: __m512) -> __m512 {
        call!(_mm512_castsi512_ps(call!(_mm512_slli_epi32::<23>(call!(_mm512_castps_si512(a))))))
    }
    #[inline(always)]
    fn zip(self, a: __m512, b: __m512) -> (__m512, __m512) {
        let low = call!(_mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
        let high = call!(_mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
        (call!(_mm512_permutex2var_ps(a, low, b)), call!(_mm512_permutex2var_ps(a, high, b)))
    }
    #[inline(always)]
    fn split(self, a: __m512) -> (__m512, __m512) {
        (call!(_mm512_getexp_ps(a)), call!(_mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(a)))
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        call!(_mm512_reduce_add_ps(a))
    }
}
