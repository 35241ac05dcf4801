//! Mahalanobis distances by forward substitution with each component's Cholesky factor.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::{TILE, Terms, Triangle};

/// `joint[c] = constant[c] − ½ |L_c⁻¹ (x − mean[c])|²` for `G` vectors of rows. Cost `d*(d+1)` flops a row and component.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    factor: &Triangle<T>,
    c: usize,
    x: &[T],
    joint: &mut [T],
    scratch: &mut [T],
) {
    let d = terms.d;
    let q = solve::<T, W, G>(w, factor, &terms.means[c * d..][..d], x, scratch, G * W::LANES);
    super::store_log_joint(w, terms, c, q, joint);
}

/// Solves `L y = x − mean` for `G` vectors of rows; returns |y|² and leaves `y` in `y`, column `j` at `j*stride`.
///
/// Tiles of four rows of `L` by `G` vectors stay in registers; the columns before the tile are a matrix product, and
/// only its corner is sequential.
#[inline(always)]
pub(crate) fn solve<T: Real, W: Words<T>, const G: usize>(
    w: W,
    factor: &Triangle<T>,
    means: &[T],
    x: &[T],
    y: &mut [T],
    stride: usize,
) -> [W::V; G] {
    let d = factor.d;
    let width = G * W::LANES;
    assert!(means.len() == d && x.len() >= (d - 1) * STRIDE + width);
    assert!(stride >= width && y.len() >= (d - 1) * stride + width);
    let mut lengths = [w.splat(T::ZERO); G];
    let (mut panel, mut corner) = (0, 0);
    for top in (0..d).step_by(TILE) {
        let place = Place { top, panel: &factor.panels[panel..], corner: &factor.corners[corner..], stride };
        // SAFETY: rows top.. of the factor exist, and x and y are long enough, as asserted.
        unsafe {
            match d - top {
                1 => tile::<T, W, G, 1>(w, factor, place, means, x, y, &mut lengths),
                2 => tile::<T, W, G, 2>(w, factor, place, means, x, y, &mut lengths),
                3 => tile::<T, W, G, 3>(w, factor, place, means, x, y, &mut lengths),
                _ => tile::<T, W, G, TILE>(w, factor, place, means, x, y, &mut lengths),
            }
        }
        let rows = TILE.min(d - top);
        panel += top * rows;
        corner += rows * (rows - 1) / 2;
    }
    lengths
}

struct Place<'a, T> {
    top: usize,
    panel: &'a [T],
    corner: &'a [T],
    stride: usize,
}

/// Solves `R` rows of the factor from row `top`.
///
/// # Safety
/// `top + R <= d`; `x` holds `G` vectors in each of `d` columns at `STRIDE`, `y` likewise at `stride`.
#[inline(always)]
unsafe fn tile<T: Real, W: Words<T>, const G: usize, const R: usize>(
    w: W,
    factor: &Triangle<T>,
    place: Place<'_, T>,
    means: &[T],
    x: &[T],
    y: &mut [T],
    lengths: &mut [W::V; G],
) {
    let Place { top, panel, corner, stride } = place;
    assert!(panel.len() >= top * R && corner.len() >= R * (R - 1) / 2 && means.len() >= top + R);
    let mut tile = [[w.splat(T::ZERO); G]; R];
    for (r, row) in tile.iter_mut().enumerate() {
        let (mean, scale) = (w.splat(means[top + r]), w.splat(factor.inverse_diagonal[top + r]));
        for (g, value) in row.iter_mut().enumerate() {
            // SAFETY: the caller's.
            let x = unsafe { w.load(x.as_ptr().add((top + r) * STRIDE + g * W::LANES)) };
            *value = w.mul(w.sub(x, mean), scale);
        }
    }
    assert!(top.is_multiple_of(TILE));
    for left in (0..top).step_by(TILE) {
        // Unrolled: the fewer turns, the better the processor foresees the last.
        for turn in 0..TILE {
            let j = left + turn;
            // SAFETY: the caller's for y; the panel's length was asserted.
            unsafe {
                let mut solved = [w.splat(T::ZERO); G];
                for (g, y_g) in solved.iter_mut().enumerate() {
                    *y_g = w.load(y.as_ptr().add(j * stride + g * W::LANES));
                }
                for (r, row) in tile.iter_mut().enumerate() {
                    let m = w.splat(*panel.get_unchecked(j * R + r));
                    for (value, y) in row.iter_mut().zip(solved) {
                        *value = w.neg_fma(m, y, *value);
                    }
                }
            }
        }
    }
    let mut next = 0;
    for r in 0..R {
        for p in 0..r {
            let m = w.splat(corner[next]);
            next += 1;
            for g in 0..G {
                tile[r][g] = w.neg_fma(m, tile[p][g], tile[r][g]);
            }
        }
        for g in 0..G {
            lengths[g] = w.fma(tile[r][g], tile[r][g], lengths[g]);
            // SAFETY: the caller's.
            unsafe { w.store(y.as_mut_ptr().add((top + r) * stride + g * W::LANES), tile[r][g]) };
        }
    }
}
