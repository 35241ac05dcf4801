//! Mahalanobis distances by forward substitution with each component's Cholesky factor.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::{TILE, Terms, Triangle};

/// `joint[c] = constant[c] − ½ |L_c⁻¹ (x − mean[c])|²` for `G` vectors of rows. Cost: `d*(d+1)` flops per row and
/// component.
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
    let q = solve::<T, W, G>(w, factor, x, scratch, G * W::LANES);
    super::store_log_joint(w, terms, c, q, joint);
}

/// Solves `L y = x − mean` for `G` vectors of rows. Returns |y|² and leaves `y` in `y`, column `j` at `j*stride`.
///
/// Tiles of [`TILE`] rows of `L` by `G` vectors stay in registers. The columns before the tile are a matrix product;
/// only the tile's triangle is sequential. The first tile has the `d % TILE` remaining rows, so that all others are
/// full.
#[inline(always)]
pub(crate) fn solve<T: Real, W: Words<T>, const G: usize>(
    w: W,
    factor: &Triangle<T>,
    x: &[T],
    y: &mut [T],
    stride: usize,
) -> [W::V; G] {
    let d = factor.d;
    let width = G * W::LANES;
    assert!(x.len() >= (d - 1) * STRIDE + width && factor.cells.len() == Triangle::<T>::len(d));
    assert!(stride >= width && y.len() >= (d - 1) * stride + width);
    let mut lengths = [w.splat(T::ZERO); G];
    let mut cells = factor.cells.as_ptr();
    let mut x = x.as_ptr();
    let y = y.as_mut_ptr();
    // SAFETY: the tiles together read exactly the `Triangle::len(d)` cells and cover d rows; x and y have d columns of
    // G*LANES values, as asserted.
    unsafe {
        let odd = d % TILE;
        let sums = &mut lengths;
        match odd {
            1 => cells = tile::<T, W, G, 1>(w, cells, (0, 0), x, y, stride, sums),
            2 => cells = tile::<T, W, G, 2>(w, cells, (0, 0), x, y, stride, sums),
            _ => {}
        }
        x = x.add(odd * STRIDE);
        for before in 0..d / TILE {
            cells = tile::<T, W, G, TILE>(w, cells, (odd, before), x, y, stride, sums);
            x = x.add(TILE * STRIDE);
        }
    }
    lengths
}

/// Solves `R` rows of the factor after `odd + before*TILE` rows, using the cells from `cells` on; returns a pointer to
/// the next tile's cells. Pointers only advance: index arithmetic for each tile would cost as much as its triangle.
///
/// # Safety
/// The tile's cells must be readable. `x` must hold `G` vectors in each of `R` columns, `STRIDE` apart, and `y` in each
/// of `odd + before*TILE + R` columns, `stride` apart.
#[inline(always)]
unsafe fn tile<T: Real, W: Words<T>, const G: usize, const R: usize>(
    w: W,
    cells: *const T,
    (odd, before): (usize, usize),
    x: *const T,
    y: *mut T,
    stride: usize,
    lengths: &mut [W::V; G],
) -> *const T {
    // SAFETY: the caller upholds `# Safety`: the cells, `R` columns of `x` and all columns of `y` up to this tile are
    // valid.
    unsafe {
        let mut tile = [[w.splat(T::ZERO); G]; R];
        for r in 0..R {
            let (mean, scale) = (w.splat(*cells.add(r)), w.splat(*cells.add(R + r)));
            for g in 0..G {
                tile[r][g] = w.mul(w.sub(w.load(x.add(r * STRIDE + g * W::LANES)), mean), scale);
            }
        }
        let mut cells = cells.add(2 * R);
        let mut solved = y.cast_const();
        for _ in 0..odd {
            column::<T, W, G, R>(w, cells, solved, &mut tile);
            cells = cells.add(R);
            solved = solved.add(stride);
        }
        for _ in 0..before {
            // Unrolled: with fewer iterations, the processor predicts the last one better.
            for turn in 0..TILE {
                column::<T, W, G, R>(w, cells.add(turn * R), solved.add(turn * stride), &mut tile);
            }
            cells = cells.add(TILE * R);
            solved = solved.add(TILE * stride);
        }
        let y = solved.cast_mut();
        for r in 0..R {
            for p in 0..r {
                let m = w.splat(*cells.add(r * (r - 1) / 2 + p));
                for g in 0..G {
                    tile[r][g] = w.neg_fma(m, tile[p][g], tile[r][g]);
                }
            }
            for g in 0..G {
                lengths[g] = w.fma(tile[r][g], tile[r][g], lengths[g]);
                w.store(y.add(r * stride + g * W::LANES), tile[r][g]);
            }
        }
        cells.add(R * (R - 1) / 2)
    }
}

/// `tile[r] −= cells[r] y`.
///
/// # Safety
/// `R` cells at `cells` and `G` vectors at `y` must be readable.
#[inline(always)]
unsafe fn column<T: Real, W: Words<T>, const G: usize, const R: usize>(
    w: W,
    cells: *const T,
    y: *const T,
    tile: &mut [[W::V; G]; R],
) {
    // SAFETY: the caller upholds `# Safety`: `R` cells and `G` vectors are readable.
    unsafe {
        let mut m = [w.splat(T::ZERO); R];
        for r in 0..R {
            m[r] = w.splat(*cells.add(r));
        }
        for g in 0..G {
            let y = w.load(y.add(g * W::LANES));
            for r in 0..R {
                tile[r][g] = w.neg_fma(m[r], y, tile[r][g]);
            }
        }
    }
}
