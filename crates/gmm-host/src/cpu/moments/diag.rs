//! First moments and the diagonals of the second moments.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::{AT_ONCE, sums_of_lanes};

/// Columns processed together: eight running sums hide the latency of two FMA units.
const COLUMNS: usize = 4;

/// `first[j] += Σ r z_j`, `second[j] += Σ r z_j²` with `z = x − centre`; the length of `r` is a multiple of `AT_ONCE *
/// LANES`.
#[inline(always)]
pub(super) fn accumulate<T: Real, W: Words<T>>(
    w: W,
    centre: &[T],
    x: &[T],
    r: &[T],
    first: &mut [f64],
    second: &mut [f64],
) {
    columns(w, centre, x, r, |j, a, b| {
        first[j] += a;
        second[j] += b;
    });
}

/// Calls `add(j, Σ r z_j, Σ r z_j²)` for every column.
#[inline(always)]
pub(super) fn columns<T: Real, W: Words<T>>(
    w: W,
    centre: &[T],
    x: &[T],
    r: &[T],
    mut add: impl FnMut(usize, f64, f64),
) {
    let d = centre.len();
    let mut j = 0;
    while j + COLUMNS <= d {
        tile::<T, W, COLUMNS>(w, &centre[j..], &x[j * STRIDE..], r, |i, a, b| add(j + i, a, b));
        j += COLUMNS;
    }
    while j < d {
        tile::<T, W, 1>(w, &centre[j..], &x[j * STRIDE..], r, |i, a, b| add(j + i, a, b));
        j += 1;
    }
}

#[inline(always)]
fn tile<T: Real, W: Words<T>, const C: usize>(
    w: W,
    centre: &[T],
    x: &[T],
    r: &[T],
    mut add: impl FnMut(usize, f64, f64),
) {
    assert!(x.len() >= (C - 1) * STRIDE + r.len() && r.len().is_multiple_of(AT_ONCE * W::LANES));
    let mut means = [w.splat(T::ZERO); C];
    for (slot, &mean) in means.iter_mut().zip(centre) {
        *slot = w.splat(mean);
    }
    let mut first = [w.splat(T::ZERO); C];
    let mut second = [w.splat(T::ZERO); C];
    for start in (0..r.len()).step_by(AT_ONCE * W::LANES) {
        for turn in 0..AT_ONCE {
            let row = start + turn * W::LANES;
            // SAFETY: row + LANES <= r.len(), and x holds C columns of that length, as asserted.
            unsafe {
                let r = w.load(r.as_ptr().add(row));
                for i in 0..C {
                    let z = w.sub(w.load(x.as_ptr().add(i * STRIDE + row)), means[i]);
                    let rz = w.mul(r, z);
                    first[i] = w.add(first[i], rz);
                    second[i] = w.fma(rz, z, second[i]);
                }
            }
        }
    }
    let (first, second) = (sums_of_lanes::<T, W, C>(w, first), sums_of_lanes::<T, W, C>(w, second));
    for i in 0..C {
        add(i, first[i].to_f64(), second[i].to_f64());
    }
}

/// `first[j] += Σ r z_j` only.
#[inline(always)]
pub(super) fn firsts<T: Real, W: Words<T>>(w: W, centre: &[T], x: &[T], r: &[T], first: &mut [f64]) {
    let d = centre.len();
    let mut j = 0;
    while j + COLUMNS <= d {
        first_tile::<T, W, COLUMNS>(w, &centre[j..], &x[j * STRIDE..], r, &mut first[j..]);
        j += COLUMNS;
    }
    while j < d {
        first_tile::<T, W, 1>(w, &centre[j..], &x[j * STRIDE..], r, &mut first[j..]);
        j += 1;
    }
}

/// One running sum for each vector and column: eight, as above.
#[inline(always)]
fn first_tile<T: Real, W: Words<T>, const C: usize>(w: W, centre: &[T], x: &[T], r: &[T], first: &mut [f64]) {
    assert!(x.len() >= (C - 1) * STRIDE + r.len() && r.len().is_multiple_of(AT_ONCE * W::LANES));
    let mut means = [w.splat(T::ZERO); C];
    for (slot, &mean) in means.iter_mut().zip(centre) {
        *slot = w.splat(mean);
    }
    let mut sums = [[w.splat(T::ZERO); C]; AT_ONCE];
    for start in (0..r.len()).step_by(AT_ONCE * W::LANES) {
        for (turn, sums) in sums.iter_mut().enumerate() {
            let row = start + turn * W::LANES;
            // SAFETY: row + LANES <= r.len(), and x holds C columns of that length, as asserted.
            unsafe {
                let r = w.load(r.as_ptr().add(row));
                for i in 0..C {
                    let z = w.sub(w.load(x.as_ptr().add(i * STRIDE + row)), means[i]);
                    sums[i] = w.fma(r, z, sums[i]);
                }
            }
        }
    }
    let [mut sums, others] = sums;
    for i in 0..C {
        sums[i] = w.add(sums[i], others[i]);
    }
    for (slot, sum) in first.iter_mut().zip(sums_of_lanes::<T, W, C>(w, sums)) {
        *slot += sum.to_f64();
    }
}
