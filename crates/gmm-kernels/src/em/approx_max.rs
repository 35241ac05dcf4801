//! A number not far below the largest of some, which is found without arithmetic on `f64`: that would take the tensor cores'
//! time, whose unit does both.

use crate::device::warp;
use crate::each::each;

/// The upper half of a number's bits, in the order of the numbers.
#[inline(always)]
pub(crate) fn key(v: f64) -> i32 {
    let high = (v.to_bits() >> 32) as i32;
    high ^ ((high >> 31) & 0x7fff_ffff)
}

/// The smallest number with this key: of what has it, at most 2⁻²⁰ of its size below. Not a number for the keys of what is
/// none, and for that of −∞.
#[inline(always)]
pub(crate) fn least(key: i32) -> f64 {
    let sign = key >> 31;
    let high = key ^ (sign & 0x7fff_ffff);
    f64::from_bits((high as u32 as u64) << 32 | sign as u32 as u64)
}

/// Of two rows that four lanes share, from the largest key that a lane has: step by step for both, so that one does not wait
/// for the other's shuffles.
#[inline(always)]
pub(crate) fn least_of_quads(mut keys: [i32; 2]) -> [f64; 2] {
    each(2, |i| {
        let other = keys.map(|key| warp::shuffle_xor_u32(key as u32, 1 << i) as i32);
        each(2, |half| keys[half] = keys[half].max(other[half]));
    });
    keys.map(least)
}
