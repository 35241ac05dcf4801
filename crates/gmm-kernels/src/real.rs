//! The two number types that kernels are instantiated for.

use core::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use crate::device::{store4, warp, words};
use crate::math;

/// `f32` or `f64`: the type in which rows are stored and products computed. Sums over rows are `f64` for both.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// +∞.
    const INFINITY: Self;
    /// −∞.
    const NEG_INFINITY: Self;
    /// Size in bytes.
    const BYTES: u32;
    /// `f32` or `f64`: the suffix of kernel names.
    const NAME: &'static str;

    /// Rounds to the nearest value.
    fn from_f64(value: f64) -> Self;
    /// Converts exactly.
    fn to_f64(self) -> f64;
    /// `self * b + c` with a single rounding.
    fn fma(self, b: Self, c: Self) -> Self;
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// e to the power of `self`, within 2 ulp; 0 at −∞.
    fn exp(self) -> Self;
    /// e to the power of `self ≤ 0`, accurate enough for sums of such terms: within 2.5e-7 in `f32` and 2 ulp in `f64`;
    /// 0 if the result would be subnormal or close to it.
    fn exp_below(self) -> Self;
    /// The natural logarithm, within 2 ulp; −∞ at 0.
    fn ln(self) -> Self;
    /// The value of lane `lane_id() ^ mask`.
    fn shuffle_xor(self, mask: u32) -> Self;
    /// The value of lane `lane`.
    fn shuffle_idx(self, lane: u32) -> Self;
    /// Reads shared memory at a byte offset.
    fn shared_load(offset: u32) -> Self;
    /// Writes shared memory at a byte offset.
    fn shared_store(offset: u32, value: Self);
    /// Reads four values at a byte offset that is a multiple of 16.
    fn shared_load4(offset: u32) -> [Self; 4];
    /// Writes four values at a byte offset that is a multiple of 16.
    fn shared_store4(offset: u32, values: [Self; 4]);
    /// Reads four values of global memory, 16-byte aligned.
    ///
    /// # Safety
    /// The four values must lie in a live allocation.
    unsafe fn global_load4(p: *const Self) -> [Self; 4];
    /// Writes four values to global memory, 16-byte aligned.
    ///
    /// # Safety
    /// As for [`store`](crate::device::store), of all four.
    unsafe fn global_store4(p: *mut Self, values: [Self; 4]);
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const INFINITY: Self = f32::INFINITY;
    const NEG_INFINITY: Self = f32::NEG_INFINITY;
    const BYTES: u32 = 4;
    const NAME: &'static str = "f32";

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        words::fma_f32(self, b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        words::sqrt_f32(self)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        math::exp_f32(self)
    }
    #[inline(always)]
    fn exp_below(self) -> Self {
        math::exp_below_f32(self)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        math::ln_f32(self)
    }
    #[inline(always)]
    fn shuffle_xor(self, mask: u32) -> Self {
        Self::from_bits(warp::shuffle_xor_u32(self.to_bits(), mask))
    }
    #[inline(always)]
    fn shuffle_idx(self, lane: u32) -> Self {
        Self::from_bits(warp::shuffle_idx_u32(self.to_bits(), lane))
    }
    #[inline(always)]
    fn shared_load(offset: u32) -> Self {
        Self::from_bits(words::shared_load_u32(offset))
    }
    #[inline(always)]
    fn shared_store(offset: u32, value: Self) {
        words::shared_store_u32(offset, value.to_bits());
    }
    #[inline(always)]
    fn shared_load4(offset: u32) -> [Self; 4] {
        words::shared_load_u32x4(offset).map(Self::from_bits)
    }
    #[inline(always)]
    fn shared_store4(offset: u32, values: [Self; 4]) {
        words::shared_store_u32x4(offset, values.map(Self::to_bits));
    }
    #[inline(always)]
    unsafe fn global_load4(p: *const Self) -> [Self; 4] {
        // SAFETY: the caller upholds `# Safety`: the 16 bytes at `p` are live and aligned.
        unsafe { words::global_load_u32x4(p.cast()) }.map(Self::from_bits)
    }
    #[inline(always)]
    unsafe fn global_store4(p: *mut Self, values: [Self; 4]) {
        // SAFETY: the caller upholds `# Safety`.
        unsafe { store4(p.cast(), 0, values.map(Self::to_bits)) };
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const INFINITY: Self = f64::INFINITY;
    const NEG_INFINITY: Self = f64::NEG_INFINITY;
    const BYTES: u32 = 8;
    const NAME: &'static str = "f64";

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        words::fma_f64(self, b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        words::sqrt_f64(self)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        math::exp_f64(self)
    }
    #[inline(always)]
    fn exp_below(self) -> Self {
        math::exp_below_f64(self)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        math::ln_f64(self)
    }
    #[inline(always)]
    fn shuffle_xor(self, mask: u32) -> Self {
        Self::from_bits(words::shuffle_xor_u64(self.to_bits(), mask))
    }
    #[inline(always)]
    fn shuffle_idx(self, lane: u32) -> Self {
        Self::from_bits(words::shuffle_idx_u64(self.to_bits(), lane))
    }
    #[inline(always)]
    fn shared_load(offset: u32) -> Self {
        Self::from_bits(words::shared_load_u64(offset))
    }
    #[inline(always)]
    fn shared_store(offset: u32, value: Self) {
        words::shared_store_u64(offset, value.to_bits());
    }
    #[inline(always)]
    fn shared_load4(offset: u32) -> [Self; 4] {
        let ([a, b], [c, d]) = (words::shared_load_u64x2(offset), words::shared_load_u64x2(offset + 16));
        [a, b, c, d].map(Self::from_bits)
    }
    #[inline(always)]
    fn shared_store4(offset: u32, values: [Self; 4]) {
        let [a, b, c, d] = values.map(Self::to_bits);
        words::shared_store_u64x2(offset, [a, b]);
        words::shared_store_u64x2(offset + 16, [c, d]);
    }
    #[inline(always)]
    unsafe fn global_load4(p: *const Self) -> [Self; 4] {
        // SAFETY: the caller upholds `# Safety`: the 32 bytes at `p` are live and 16-byte aligned.
        let ([a, b], [c, d]) =
            unsafe { (words::global_load_u64x2(p.cast()), words::global_load_u64x2(p.wrapping_add(2).cast())) };
        [a, b, c, d].map(Self::from_bits)
    }
    #[inline(always)]
    unsafe fn global_store4(p: *mut Self, values: [Self; 4]) {
        let words = values.map(Self::to_bits);
        let half =
            |i: usize| [words[i] as u32, (words[i] >> 32) as u32, words[i + 1] as u32, (words[i + 1] >> 32) as u32];
        // SAFETY: the caller upholds `# Safety`.
        unsafe {
            store4(p.cast(), 0, half(0));
            store4(p.cast(), 4, half(2));
        }
    }
}
