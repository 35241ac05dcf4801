//! A value near the maximum of several `f64`, found with integer comparisons: `f64` arithmetic would take time from the
//! tensor cores, because the same unit executes both.

use crate::device::warp;
use crate::each::each;

/// Upper 32 bits of `v`, mapped so that integer order is numeric order.
#[inline(always)]
pub(crate) fn key(v: f64) -> i32 {
    let high = (v.to_bits() >> 32) as i32;
    high ^ ((high >> 31) & 0x7fff_ffff)
}

/// The smallest value with this key: at most 2⁻²⁰ (relative) below every other value with it. NaN for the keys of NaN
/// and of −∞.
#[inline(always)]
pub(crate) fn least(key: i32) -> f64 {
    let sign = key >> 31;
    let high = key ^ (sign & 0x7fff_ffff);
    f64::from_bits((high as u32 as u64) << 32 | sign as u32 as u64)
}

/// For two rows that four lanes share: a value near each row's maximum, from each lane's largest keys. The two
/// reductions are interleaved, so that neither waits for the other's shuffles.
#[inline(always)]
pub(crate) fn least_of_quads(mut keys: [i32; 2]) -> [f64; 2] {
    each(2, |i| {
        let other = keys.map(|key| warp::shuffle_xor_u32(key as u32, 1 << i) as i32);
        each(2, |half| keys[half] = keys[half].max(other[half]));
    });
    keys.map(least)
}
