//! Pooled second moments at a cost of `k*d + d²` per row instead of `k*d²/2`.
//!
//! With `j` the component of largest responsibility, `y = x − μ_j`, `δ_c = μ_c − μ_j`, `A = Σ_c r_c δ_c`, `w = Σ_c r_c`:
//!
//! `Σ_c r_c (x−μ_c)(x−μ_c)ᵀ = w e eᵀ − A Aᵀ/w + Σ_c r_c δ_c δ_cᵀ`, where `e = y − A/w`.
//!
//! The last term depends on the row only through `(j, r)`. The responsibilities are therefore summed by pairs `(c, j)`,
//! and the outer products are computed once per pass ([`finish`]). Nothing cancels that exceeds the row's own
//! uncertainty between components: if an assignment is certain, `A` and the pairs vanish and `e` is the distance to its
//! mean. (The usual shortcut, total scatter less the scatter of the means, has cancellation of the order of the squared
//! separation.)

use gmm_model::packed_index;

use super::super::layout::{BLOCK, STRIDE};
use super::super::simd::{Kernel, Real, Words};
use super::Tile;
use super::full::Products;

/// Columns processed together: each load of a responsibility serves four.
const COLUMNS: usize = 4;

/// Most components for which the table of pairs, `k²` sums, is worth its memory.
const MOST_COMPONENTS: usize = 512;

/// Whether the pairs cost less than the direct sums: `k² d²/2` once, compared with `k d` for each of `n` rows. In one
/// column the direct sums are cheap.
pub(crate) const fn pays(n: usize, k: usize, d: usize) -> bool {
    d > 1 && k > 1 && k <= MOST_COMPONENTS && k * d <= n
}

/// Adds one tile's pooled second moments except the pairs' part, and finds the rows' labels. The caller adds the pairs
/// and the first moments.
pub(super) struct Pooled<'a, T> {
    /// `(k, d)`.
    pub(super) centres: &'a [T],
    pub(super) tile: Tile<'a, T>,
    /// `(3*d, STRIDE)`.
    pub(super) scratch: &'a mut [T],
    pub(super) second: &'a mut [f64],
    pub(super) labels: &'a mut [u32; BLOCK],
}

impl<T: Real> Kernel<T> for Pooled<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        accumulate(w, self);
    }
}

#[inline(always)]
fn accumulate<T: Real, W: Words<T>>(w: W, all: Pooled<'_, T>) {
    let Pooled { centres, tile, scratch, second, labels } = all;
    let Tile { x, rows, responsibilities, floors, .. } = tile;
    let k = floors.len();
    let d = centres.len() / k;
    let mut label = [T::ZERO; BLOCK];
    let mut weight = [T::ZERO; BLOCK];
    largest(w, k, rows, responsibilities, &mut label, &mut weight);
    labels.iter_mut().zip(label).for_each(|(to, from)| *to = from.to_f64() as u32);
    let (a, rest) = scratch.split_at_mut(d * STRIDE);
    let (e, rest) = rest.split_at_mut(d * STRIDE);
    let left = &mut rest[..d * STRIDE];
    // `e` first holds the columns of each row's own centre.
    for (j, own) in e.chunks_exact_mut(STRIDE).enumerate() {
        own.iter_mut().zip(labels.iter()).for_each(|(slot, &label)| *slot = centres[label as usize * d + j]);
    }
    let mut j = 0;
    while j + COLUMNS <= d {
        pull::<T, W, COLUMNS>(w, centres, d, j, tile, e, a);
        j += COLUMNS;
    }
    while j < d {
        pull::<T, W, 1>(w, centres, d, j, tile, e, a);
        j += 1;
    }
    for j in 0..d {
        let column = j * STRIDE..j * STRIDE + BLOCK;
        let (e, left) = (&mut e[column.clone()], &mut left[column.clone()]);
        residual(w, rows, &x[column.clone()], &weight, &a[column], e, left);
    }
    w.apart(Products { d, rows, z: e, rz: left, second });
    negate_over_weight(w, d, rows, &weight, a, left);
    w.apart(Products { d, rows, z: a, rz: left, second });
}

/// For each row, finds the component of largest responsibility (as `T`, exact below 2^24) and the sum of
/// responsibilities.
#[inline(always)]
fn largest<T: Real, W: Words<T>>(
    w: W,
    k: usize,
    rows: usize,
    r: &[T],
    label: &mut [T; BLOCK],
    weight: &mut [T; BLOCK],
) {
    assert!(r.len() >= k * STRIDE && rows <= BLOCK && rows.is_multiple_of(W::LANES));
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK.
        unsafe {
            let mut best = w.load(r.as_ptr().add(row));
            let (mut sum, mut index) = (best, w.splat(T::ZERO));
            for c in 1..k {
                let r = w.load(r.as_ptr().add(c * STRIDE + row));
                index = w.select_lt(best, r, w.splat(T::of(c as f64)), index);
                best = w.max(r, best);
                sum = w.add(sum, r);
            }
            w.store(label.as_mut_ptr().add(row), index);
            w.store(weight.as_mut_ptr().add(row), sum);
        }
    }
}

/// Computes `C` columns of `A = Σ_c r_c (μ_c − μ_j)` from column `first` on; `own` holds `μ_j`.
#[inline(always)]
fn pull<T: Real, W: Words<T>, const C: usize>(
    w: W,
    centres: &[T],
    d: usize,
    first: usize,
    tile: Tile<'_, T>,
    own: &[T],
    a: &mut [T],
) {
    let Tile { rows, responsibilities: r, floors, .. } = tile;
    let k = floors.len();
    assert!(rows <= BLOCK && rows.is_multiple_of(2 * W::LANES) && first + C <= d && centres.len() >= k * d);
    assert!(r.len() >= k * STRIDE && own.len() >= d * STRIDE && a.len() >= d * STRIDE);
    for row in (0..rows).step_by(2 * W::LANES) {
        // SAFETY: row + 2*LANES <= rows <= BLOCK, and the lengths were asserted.
        unsafe {
            let mut centre = [[w.splat(T::ZERO); 2]; C];
            for (i, centre) in centre.iter_mut().enumerate() {
                for (g, centre) in centre.iter_mut().enumerate() {
                    *centre = w.load(own.as_ptr().add((first + i) * STRIDE + row + g * W::LANES));
                }
            }
            let mut sums = [[w.splat(T::ZERO); 2]; C];
            for c in 0..k {
                let r = r.as_ptr().add(c * STRIDE + row);
                let r = [w.load(r), w.load(r.add(W::LANES))];
                for (i, (sums, centre)) in sums.iter_mut().zip(centre).enumerate() {
                    let mean = w.splat(*centres.get_unchecked(c * d + first + i));
                    for (g, (sum, own)) in sums.iter_mut().zip(centre).enumerate() {
                        *sum = w.fma(r[g], w.sub(mean, own), *sum);
                    }
                }
            }
            for (i, sums) in sums.into_iter().enumerate() {
                for (g, sum) in sums.into_iter().enumerate() {
                    w.store(a.as_mut_ptr().add((first + i) * STRIDE + row + g * W::LANES), sum);
                }
            }
        }
    }
}

/// Computes one column of `e = (x − μ_j) − A/w`, where `e` holds `μ_j` on entry, and of `w e`.
#[inline(always)]
fn residual<T: Real, W: Words<T>>(
    w: W,
    rows: usize,
    x: &[T],
    weight: &[T; BLOCK],
    a: &[T],
    e: &mut [T],
    left: &mut [T],
) {
    assert!(x.len() >= rows && a.len() >= rows && e.len() >= rows && left.len() >= rows && rows <= BLOCK);
    let zero = w.splat(T::ZERO);
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows, and all columns have at least `rows` values, as asserted.
        unsafe {
            let weight = w.load(weight.as_ptr().add(row));
            let shift = w.select_lt(zero, weight, w.div(w.load(a.as_ptr().add(row)), weight), zero);
            let y = w.sub(w.load(x.as_ptr().add(row)), w.load(e.as_ptr().add(row)));
            let value = w.sub(y, shift);
            w.store(e.as_mut_ptr().add(row), value);
            w.store(left.as_mut_ptr().add(row), w.mul(weight, value));
        }
    }
}

/// `left = −A/w`, or 0 if the row's weight is 0.
#[inline(always)]
fn negate_over_weight<T: Real, W: Words<T>>(w: W, d: usize, rows: usize, weight: &[T; BLOCK], a: &[T], left: &mut [T]) {
    assert!(a.len() >= d * STRIDE && left.len() >= d * STRIDE && rows <= BLOCK);
    let zero = w.splat(T::ZERO);
    for j in 0..d {
        for row in (0..rows).step_by(W::LANES) {
            // SAFETY: j < d and row + LANES <= rows <= BLOCK.
            unsafe {
                let weight = w.load(weight.as_ptr().add(row));
                let a = w.sub(zero, w.load(a.as_ptr().add(j * STRIDE + row)));
                let value = w.select_lt(zero, weight, w.div(a, weight), zero);
                w.store(left.as_mut_ptr().add(j * STRIDE + row), value);
            }
        }
    }
}

/// Adds the pairs' part, `Σ_{c,j} pairs[c,j] (μ_c − μ_j)(μ_c − μ_j)ᵀ`, packed. Cost: `k² d²/2`.
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
