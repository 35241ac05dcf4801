//! Split-fp16 values as tensor-core operands.

use crate::device::mma::{from_halves, mma_m16n8k16_f16, multiply_halves, to_halves};
use crate::em::features::each;

/// Scale of exponentials: the largest is 1, and the hi and lo parts of those a million times smaller still have full
/// precision.
pub(crate) const EXPONENTIAL: f32 = 16384.0;

/// Packs the hi parts of two values, and their lo parts.
#[inline(always)]
pub(crate) fn two(a: f32, b: f32) -> [u32; 2] {
    let heads = to_halves(a, b);
    let [x, y] = from_halves(heads);
    [heads, to_halves(a - x, b - y)]
}

/// A left operand: hi parts, lo parts.
pub(crate) type LeftOperand = [[u32; 4]; 2];

/// Operand of a lane's two rows and four columns, given at `2*column + row`.
#[inline(always)]
pub(crate) fn left(v: [f32; 8]) -> LeftOperand {
    let mut out = [[0; 4]; 2];
    each(4, |i| {
        let (row, column) = (i % 2, i / 2 * 2);
        let [head, tail] = two(v[2 * column + row], v[2 * column + 2 + row]);
        out[0][i] = head;
        out[1][i] = tail;
    });
    out
}

/// Operand of two features in a lane's four rows.
#[inline(always)]
pub(crate) fn left_down(v: [f32; 4], w: [f32; 4]) -> LeftOperand {
    let ([a, b], [c, d]) = (two(v[0], v[1]), two(w[0], w[1]));
    let ([e, f], [g, h]) = (two(v[2], v[3]), two(w[2], w[3]));
    [[a, c, e, g], [b, d, f, h]]
}

/// Squares of a left operand's values; with `ONE`, of the hi parts, rounded again.
#[inline(always)]
pub(crate) fn squares<const ONE: bool>([heads, tails]: LeftOperand) -> LeftOperand {
    let mut out = [[0; 4]; 2];
    each(4, |i| {
        if ONE {
            out[0][i] = multiply_halves(heads[i], heads[i]);
            return;
        }
        let ([a, b], [c, d]) = (from_halves(heads[i]), from_halves(tails[i]));
        let (v, w) = (a + c, b + d);
        let [head, tail] = two(v * v, w * w);
        out[0][i] = head;
        out[1][i] = tail;
    });
    out
}

/// A right operand: hi parts, lo parts.
pub(crate) type Right = [[u32; 2]; 2];

/// Operand of a lane's four rows.
#[inline(always)]
pub(crate) fn right(v: [f32; 4]) -> Right {
    let ([a, b], [c, d]) = (two(v[0], v[1]), two(v[2], v[3]));
    [[a, c], [b, d]]
}

/// Operand from its memory layout: hi parts first, then lo parts.
#[inline(always)]
pub(crate) fn right_of(words: [f32; 4]) -> Right {
    let [a, b, c, d] = words.map(f32::to_bits);
    [[a, b], [c, d]]
}

/// `N` adjacent operands of a stream. A unit of the stream is 16 bytes per lane: the hi and lo parts of one operand or,
/// with `ONE`, the hi parts of two. `first` is even.
#[inline(always)]
pub(crate) fn rights<const ONE: bool, const N: usize>(first: u32, unit: impl Fn(u32) -> [f32; 4]) -> [Right; N] {
    const { assert!(N.is_multiple_of(2)) };
    let mut out = [[[0; 2]; 2]; N];
    if ONE {
        each(N / 2, |i| {
            let [one, two] = right_of(unit(first / 2 + i as u32));
            out[2 * i][0] = one;
            out[2 * i + 1][0] = two;
        });
    } else {
        each(N, |i| out[i] = right_of(unit(first + i as u32)));
    }
    out
}

/// Adds products of two left operands with `N` right ones to `sums[row + s][column + i]`.
///
/// Three products each, the small ones first, accumulated from zero: the tensor cores would round an accumulated sum
/// towards zero. With `ONE`, one product of the hi parts, accumulated in the tensor cores.
#[inline(always)]
pub(crate) fn add_products<const ONE: bool, const N: usize, const M: usize>(
    sums: &mut [[[f32; 4]; M]],
    (row, column): (usize, usize),
    left: &[LeftOperand; 2],
    right: &[Right; N],
) {
    if ONE {
        each(N, |i| each(2, |s| mma_m16n8k16_f16(&mut sums[row + s][column + i], left[s][0], right[i][0])));
        return;
    }
    let mut new = [[[0.0; 4]; N]; 2];
    each(3, |turn| {
        let (l, r) = [(1, 0), (0, 1), (0, 0)][turn];
        each(N, |i| each(2, |s| mma_m16n8k16_f16(&mut new[s][i], left[s][l], right[i][r])));
    });
    each(2, |s| each(N, |i| each(4, |v| sums[row + s][column + i][v] += new[s][i][v])));
}
