//! Vector operations on plain arrays of 32 bytes, which the compiler maps to the target's instructions.

use super::{Kernel, Real, Words};

/// Token of the portable operations.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(never)]
fn apart<T: Real, K: Kernel<T>>(kernel: K) -> K::Output
where
    Portable: Words<T>,
{
    kernel.run(Portable)
}

macro_rules! portable {
    ($t:ident, $lanes:expr, $bits:ident, $mantissa:expr, $bias:expr) => {
        impl Words<$t> for Portable {
            type V = [$t; $lanes];
            const LANES: usize = $lanes;
            const GROUP: usize = 2;

            #[inline(always)]
            fn apart<K: Kernel<$t>>(self, kernel: K) -> K::Output {
                apart::<$t, K>(kernel)
            }

            #[inline(always)]
            fn splat(self, value: $t) -> Self::V {
                [value; $lanes]
            }
            #[inline(always)]
            unsafe fn load(self, from: *const $t) -> Self::V {
                // SAFETY: the caller guarantees `LANES` readable values at `from`; unaligned reads are allowed.
                unsafe { from.cast::<Self::V>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t, v: Self::V) {
                // SAFETY: the caller guarantees `LANES` writable values at `to`; unaligned writes are allowed.
                unsafe { to.cast::<Self::V>().write_unaligned(v) }
            }
            #[inline(always)]
            fn add(self, a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i] + b[i])
            }
            #[inline(always)]
            fn sub(self, a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i] - b[i])
            }
            #[inline(always)]
            fn mul(self, a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i] * b[i])
            }
            #[inline(always)]
            fn div(self, a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i] / b[i])
            }
            #[inline(always)]
            fn sqrt(self, a: Self::V) -> Self::V {
                std::array::from_fn(|i| a[i].sqrt())
            }
            #[inline(always)]
            fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                std::array::from_fn(|i| fused(a[i], b[i], c[i]))
            }
            #[inline(always)]
            fn neg_fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                std::array::from_fn(|i| fused(-a[i], b[i], c[i]))
            }
            #[inline(always)]
            fn max(self, a: Self::V, b: Self::V) -> Self::V {
                std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
            }
            #[inline(always)]
            fn select_lt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
                std::array::from_fn(|i| if a[i] < b[i] { x[i] } else { y[i] })
            }
            #[inline(always)]
            fn lt_bits(self, a: Self::V, b: Self::V) -> u32 {
                (0..$lanes).map(|i| u32::from(a[i] < b[i]) << i).sum()
            }
            #[inline(always)]
            fn shift_to_exponent(self, a: Self::V) -> Self::V {
                a.map(|v| $t::from_bits(v.to_bits() << $mantissa))
            }
            #[inline(always)]
            fn zip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
                let at = |i: usize| if i % 2 == 0 { a[i / 2] } else { b[i / 2] };
                (std::array::from_fn(at), std::array::from_fn(|i| at($lanes + i)))
            }
            #[inline(always)]
            fn split(self, a: Self::V) -> (Self::V, Self::V) {
                let exponent = a.map(|v| ((v.to_bits() >> $mantissa) as i32 - $bias) as $t);
                let one = ($bias as $bits) << $mantissa;
                let significand = a.map(|v| $t::from_bits(v.to_bits() & ((1 << $mantissa) - 1) | one));
                (exponent, significand)
            }
            #[inline(always)]
            fn sum(self, a: Self::V) -> $t {
                // Halves, then quarters: the same order as with the vector instruction sets.
                let mut v = a;
                let mut half = $lanes / 2;
                while half > 0 {
                    for i in 0..half {
                        v[i] += v[i + half];
                    }
                    half /= 2;
                }
                v[0]
            }
        }
    };
}
portable!(f64, 4, u64, 52, 1023);
portable!(f32, 8, u32, 23, 127);

/// Rounds once if the target always has an FMA instruction; elsewhere `mul_add` would be a slow library call.
#[inline(always)]
fn fused<T: Real + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + MulAdd>(a: T, b: T, c: T) -> T {
    if cfg!(target_arch = "aarch64") { a.mul_add_once(b, c) } else { a * b + c }
}

trait MulAdd {
    fn mul_add_once(self, b: Self, c: Self) -> Self;
}
impl MulAdd for f32 {
    #[inline(always)]
    fn mul_add_once(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
}
impl MulAdd for f64 {
    #[inline(always)]
    fn mul_add_once(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }
}
