//! Pooled second moments at a cost of `k*d + d²` a row instead of `k*d²/2`.
//!
//! With `j` the component of largest responsibility, `y = x − μ_j`, `δ_c = μ_c − μ_j`, `A = Σ_c r_c δ_c`, `w = Σ_c r_c`:
//!
//! `Σ_c r_c (x−μ_c)(x−μ_c)ᵀ = w e eᵀ − A Aᵀ/w + Σ_c r_c δ_c δ_cᵀ`, where `e = y − A/w`.
//!
//! The last term depends on the row only through `(j, r)`, so the responsibilities are summed by pairs `(c, j)` and the
//! outer products formed once a pass ([`finish`]). Nothing cancels that is larger than the row's own uncertainty
//! between components: where an assignment is certain, `A` and the pairs vanish and `e` is the distance to its mean.
//! (The usual short cut, total scatter less the scatter of the means, cancels in the square of the separation.)

use gmm_model::packed_index;

use super::super::layout::BLOCK;
use super::super::simd::{Real, Words};
use super::Tile;
use super::full::products;

/// Components up to which the table of pairs, `k²` sums, is worth its memory.
const MOST_COMPONENTS: usize = 512;

/// Whether the pairs cost less than the direct sums: `k² d²/2` once against `k d` for each of `n` rows.
pub(crate) const fn pays(n: usize, k: usize, d: usize) -> bool {
    k > 1 && k <= MOST_COMPONENTS && k * d <= n
}

/// Adds one tile's pooled second moments but for the pairs' part, and finds the rows' labels. The caller adds the pairs
/// and the first moments.
///
/// `centres` is `(k, d)`; `scratch` holds `3*d*BLOCK` values.
#[inline(always)]
pub(super) fn accumulate<T: Real, W: Words<T>>(
    w: W,
    centres: &[T],
    tile: Tile<'_, T>,
    scratch: &mut [T],
    second: &mut [f64],
    labels: &mut [u32; BLOCK],
) {
    let Tile { x, rows, responsibilities, floors } = tile;
    let k = floors.len();
    let d = centres.len() / k;
    let mut label = [T::ZERO; BLOCK];
    let mut weight = [T::ZERO; BLOCK];
    largest(w, k, rows, responsibilities, &mut label, &mut weight);
    labels.iter_mut().zip(label).for_each(|(to, from)| *to = from.to_f64() as u32);
    let (a, rest) = scratch.split_at_mut(d * BLOCK);
    let (e, rest) = rest.split_at_mut(d * BLOCK);
    let left = &mut rest[..d * BLOCK];
    for j in 0..d {
        let own: [T; BLOCK] = std::array::from_fn(|row| centres[labels[row] as usize * d + j]);
        let column = j * BLOCK..(j + 1) * BLOCK;
        pull(w, &centres[j..], d, k, rows, responsibilities, &own, &mut a[column.clone()]);
        residual(
            w,
            rows,
            &x[column.clone()],
            &own,
            &weight,
            &a[column.clone()],
            &mut e[column.clone()],
            &mut left[column],
        );
    }
    products(w, d, rows, e, left, second);
    negate_over_weight(w, d, rows, &weight, a, left);
    products(w, d, rows, a, left, second);
}

/// The component of largest responsibility (as `T`, exact below 2^24) and the sum of responsibilities of each row.
#[inline(always)]
fn largest<T: Real, W: Words<T>>(
    w: W,
    k: usize,
    rows: usize,
    r: &[T],
    label: &mut [T; BLOCK],
    weight: &mut [T; BLOCK],
) {
    assert!(r.len() >= k * BLOCK && rows <= BLOCK && rows.is_multiple_of(W::LANES));
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK.
        unsafe {
            let mut best = w.load(r.as_ptr().add(row));
            let (mut sum, mut index) = (best, w.splat(T::ZERO));
            for c in 1..k {
                let r = w.load(r.as_ptr().add(c * BLOCK + row));
                index = w.select_lt(best, r, w.splat(T::of(c as f64)), index);
                best = w.max(r, best);
                sum = w.add(sum, r);
            }
            w.store(label.as_mut_ptr().add(row), index);
            w.store(weight.as_mut_ptr().add(row), sum);
        }
    }
}

/// One column of `A = Σ_c r_c (μ_c − μ_j)`; `centres[c*d]` is the column's entry of component `c`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one call site")]
fn pull<T: Real, W: Words<T>>(
    w: W,
    centres: &[T],
    d: usize,
    k: usize,
    rows: usize,
    r: &[T],
    own: &[T; BLOCK],
    a: &mut [T],
) {
    let width = W::GROUP * W::LANES;
    assert!(r.len() >= k * BLOCK && a.len() >= rows && rows <= BLOCK && rows.is_multiple_of(width));
    for row in (0..rows).step_by(width) {
        for row in (row..row + width).step_by(2 * W::LANES) {
            // SAFETY: row + 2*LANES <= rows <= BLOCK, since GROUP is even.
            unsafe {
                let at = [row, row + W::LANES];
                let own = at.map(|row| w.load(own.as_ptr().add(row)));
                let mut sums = [w.splat(T::ZERO); 2];
                for c in 0..k {
                    let mean = w.splat(centres[c * d]);
                    for g in 0..2 {
                        let r = w.load(r.as_ptr().add(c * BLOCK + at[g]));
                        sums[g] = w.fma(r, w.sub(mean, own[g]), sums[g]);
                    }
                }
                for g in 0..2 {
                    w.store(a.as_mut_ptr().add(at[g]), sums[g]);
                }
            }
        }
    }
}

/// One column of `e = (x − μ_j) − A/w` and of `w e`; 0 where the row weighs nothing.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one call site")]
fn residual<T: Real, W: Words<T>>(
    w: W,
    rows: usize,
    x: &[T],
    own: &[T; BLOCK],
    weight: &[T; BLOCK],
    a: &[T],
    e: &mut [T],
    left: &mut [T],
) {
    assert!(x.len() >= rows && a.len() >= rows && e.len() >= rows && left.len() >= rows && rows <= BLOCK);
    let zero = w.splat(T::ZERO);
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows, and all are that long, as asserted.
        unsafe {
            let weight = w.load(weight.as_ptr().add(row));
            let shift = w.select_lt(zero, weight, w.div(w.load(a.as_ptr().add(row)), weight), zero);
            let y = w.sub(w.load(x.as_ptr().add(row)), w.load(own.as_ptr().add(row)));
            let value = w.sub(y, shift);
            w.store(e.as_mut_ptr().add(row), value);
            w.store(left.as_mut_ptr().add(row), w.mul(weight, value));
        }
    }
}

/// `left = −A/w`, 0 where the row weighs nothing.
#[inline(always)]
fn negate_over_weight<T: Real, W: Words<T>>(w: W, d: usize, rows: usize, weight: &[T; BLOCK], a: &[T], left: &mut [T]) {
    assert!(a.len() >= d * BLOCK && left.len() >= d * BLOCK && rows <= BLOCK);
    let zero = w.splat(T::ZERO);
    for j in 0..d {
        for row in (0..rows).step_by(W::LANES) {
            // SAFETY: j < d and row + LANES <= rows <= BLOCK.
            unsafe {
                let weight = w.load(weight.as_ptr().add(row));
                let a = w.sub(zero, w.load(a.as_ptr().add(j * BLOCK + row)));
                let value = w.select_lt(zero, weight, w.div(a, weight), zero);
                w.store(left.as_mut_ptr().add(j * BLOCK + row), value);
            }
        }
    }
}

/// Adds the pairs' part: `Σ_{c,j} pairs[c,j] (μ_c − μ_j)(μ_c − μ_j)ᵀ`, packed. Cost `k² d²/2`.
pub(crate) fn finish<T: Real>(centres: &[T], d: usize, pairs: &[f64], second: &mut [f64]) {
    let k = centres.len() / d;
    let mut delta = vec![0.0; d];
    for c in 0..k {
        for j in 0..c {
            let weight = pairs[c * k + j] + pairs[j * k + c];
            if weight == 0.0 {
                continue;
            }
            for (i, delta) in delta.iter_mut().enumerate() {
                *delta = centres[c * d + i].to_f64() - centres[j * d + i].to_f64();
            }
            for i in 0..d {
                let scaled = weight * delta[i];
                for (slot, delta) in second[packed_index(i, 0)..=packed_index(i, i)].iter_mut().zip(&delta) {
                    *slot += scaled * delta;
                }
            }
        }
    }
}
