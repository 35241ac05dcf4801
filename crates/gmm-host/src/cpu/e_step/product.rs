//! Mahalanobis distances from factors `U` of the precisions: `y = Uᵀ(x − mean)`, a product instead of the solve in
//! `full`.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::{Columns, TILE, Terms};

/// `joint[c] = constant[c] − ½ |U_cᵀ(x − mean[c])|²` for `G` vectors of rows. Cost: `d*(d+1)` flops per row and
/// component.
///
/// The mean is subtracted first, so that nothing cancels if rows and means are far from the origin. `y[i]` is summed in
/// the order of its columns, and |y|² in the order of `i`. This is the order of [`few`](super::super::few), so the bits
/// agree.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    factor: &Columns<T>,
    c: usize,
    x: &[T],
    joint: &mut [T],
    scratch: &mut [T],
) {
    let d = factor.d;
    let width = G * W::LANES;
    let means = &terms.means[c * d..][..d];
    assert!(x.len() >= (d - 1) * STRIDE + width && scratch.len() >= d * width);
    let z = scratch.as_mut_ptr();
    for (j, mean) in means.iter().enumerate() {
        let mean = w.splat(*mean);
        for g in 0..G {
            // SAFETY: the vector of column j is within x, and that of row j within z, which has d*G*LANES values, as
            // asserted.
            unsafe {
                let x = w.load(x.as_ptr().add(j * STRIDE + g * W::LANES));
                w.store(z.add(j * width + g * W::LANES), w.sub(x, mean));
            }
        }
    }
    let mut lengths = [w.splat(T::ZERO); G];
    let mut cells = factor.cells.as_slice();
    for (first, end) in factor.tiles() {
        let rows = factor.shape.rows(first, end, d);
        let (here, rest) = cells.split_at(rows.len() * (end - first));
        cells = rest;
        let z = &scratch[rows.start * width..rows.end * width];
        match end - first {
            1 => add_squares(w, tile::<T, W, G, 1>(w, here, z, width), &mut lengths),
            2 => add_squares(w, tile::<T, W, G, 2>(w, here, z, width), &mut lengths),
            _ => add_squares(w, tile::<T, W, G, TILE>(w, here, z, width), &mut lengths),
        }
    }
    super::store_log_joint(w, terms, c, lengths, joint);
}

/// `y = Uᵀx` for `G` vectors of rows; `x` and `y` are `(d, STRIDE)`. Sums have the same order as in [`log_joint`].
#[inline(always)]
pub(super) fn multiply<T: Real, W: Words<T>, const G: usize>(w: W, factor: &Columns<T>, x: &[T], y: &mut [T]) {
    let mut cells = factor.cells.as_slice();
    for (first, end) in factor.tiles() {
        let rows = factor.shape.rows(first, end, factor.d);
        let (here, rest) = cells.split_at(rows.len() * (end - first));
        cells = rest;
        let (x, y) = (&x[rows.start * STRIDE..], &mut y[first * STRIDE..]);
        match end - first {
            1 => store_tile(w, tile::<T, W, G, 1>(w, here, x, STRIDE), y),
            2 => store_tile(w, tile::<T, W, G, 2>(w, here, x, STRIDE), y),
            _ => store_tile(w, tile::<T, W, G, TILE>(w, here, x, STRIDE), y),
        }
    }
}

#[inline(always)]
fn add_squares<T: Real, W: Words<T>, const G: usize, const R: usize>(
    w: W,
    tile: [[W::V; G]; R],
    lengths: &mut [W::V; G],
) {
    for row in tile {
        for g in 0..G {
            lengths[g] = w.fma(row[g], row[g], lengths[g]);
        }
    }
}

#[inline(always)]
fn store_tile<T: Real, W: Words<T>, const G: usize, const R: usize>(w: W, tile: [[W::V; G]; R], y: &mut [T]) {
    for (r, row) in tile.into_iter().enumerate() {
        super::store(w, row, &mut y[r * STRIDE..]);
    }
}

/// Computes `R` entries of `y`. `cells`, `(rows, R)`, holds their columns of the factor; row `j` of `z` has `G` vectors
/// from `j*stride` on.
#[inline(always)]
fn tile<T: Real, W: Words<T>, const G: usize, const R: usize>(
    w: W,
    cells: &[T],
    z: &[T],
    stride: usize,
) -> [[W::V; G]; R] {
    let rows = cells.len() / R;
    assert!(rows > 0 && stride >= G * W::LANES && z.len() >= (rows - 1) * stride + G * W::LANES);
    let mut tile = [[w.splat(T::ZERO); G]; R];
    let mut z = z.as_ptr();
    for cells in cells.chunks_exact(R) {
        let mut u = [w.splat(T::ZERO); R];
        for r in 0..R {
            u[r] = w.splat(cells[r]);
        }
        // SAFETY: z has G vectors for each chunk of cells, `stride` apart, as asserted.
        unsafe {
            for g in 0..G {
                let z = w.load(z.add(g * W::LANES));
                for r in 0..R {
                    tile[r][g] = w.fma(u[r], z, tile[r][g]);
                }
            }
        }
        z = z.wrapping_add(stride);
    }
    tile
}
