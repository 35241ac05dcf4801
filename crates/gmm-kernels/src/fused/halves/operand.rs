//! Numbers as two halves, as operands of the tensor cores.

use super::super::features::each;
use crate::device::mma::{from_halves, mma_m16n8k16_f16, to_halves};

/// By how much exponentials are scaled: the largest is 1, and the halves of those that are a millionth of it still have
/// all digits.
pub(super) const EXPONENTIAL: f32 = 16384.0;

/// Heads of two numbers, and their tails.
#[inline(always)]
pub(super) fn two(a: f32, b: f32) -> [u32; 2] {
    let heads = to_halves(a, b);
    let [x, y] = from_halves(heads);
    [heads, to_halves(a - x, b - y)]
}

/// A left operand: heads, tails.
pub(super) type Left = [[u32; 4]; 2];

/// Of a lane's two rows and four columns, `2*column + row`.
#[inline(always)]
pub(super) fn left(v: [f32; 8]) -> Left {
    let mut out = [[0; 4]; 2];
    each(4, |i| {
        let (row, column) = (i % 2, i / 2 * 2);
        let [head, tail] = two(v[2 * column + row], v[2 * column + 2 + row]);
        out[0][i] = head;
        out[1][i] = tail;
    });
    out
}

/// A right operand: heads, tails.
pub(super) type Right = [[u32; 2]; 2];

/// Of a lane's four rows.
#[inline(always)]
pub(super) fn right(v: [f32; 4]) -> Right {
    let ([a, b], [c, d]) = (two(v[0], v[1]), two(v[2], v[3]));
    [[a, c], [b, d]]
}

/// As it lies in memory: first heads, then tails.
#[inline(always)]
pub(super) fn right_of(words: [f32; 4]) -> Right {
    let [a, b, c, d] = words.map(f32::to_bits);
    [[a, b], [c, d]]
}

/// Three products for each of four tiles by two left operands, added to nothing: what was summed before would be rounded
/// towards zero with them. The small ones first.
#[inline(always)]
pub(super) fn products<const N: usize>(left: &[Left; 2], right: &[Right; N]) -> [[[f32; 4]; N]; 2] {
    let mut out = [[[0.0; 4]; N]; 2];
    each(3, |turn| {
        let (l, r) = [(1, 0), (0, 1), (0, 0)][turn];
        each(N, |i| each(2, |s| mma_m16n8k16_f16(&mut out[s][i], left[s][l], right[i][r])));
    });
    out
}
