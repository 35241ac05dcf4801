//! First moments and packed second moments: the costly half of a full-covariance pass.

use gmm_model::packed_index;

use super::super::layout::{BLOCK, STRIDE};
use super::super::simd::{Real, Words};

/// Entries of a register tile: 4 rows by 4 columns of the moment matrix, each a vector over rows of the data.
const TILE: usize = 4;

/// `first[j] += Σ r z_j`, `second[i,j] += Σ r z_i z_j` for `j <= i`, packed, with `z = x − centre`.
///
/// `r` is a multiple of `LANES` long; `scratch` holds `2*d*STRIDE` values. Cost `d*(d+1)` flops a row.
#[inline(always)]
pub(super) fn accumulate<T: Real, W: Words<T>>(
    w: W,
    centre: &[T],
    x: &[T],
    r: &[T],
    scratch: &mut [T],
    first: &mut [f64],
    second: &mut [f64],
) {
    let d = centre.len();
    let (z, rz) = scratch.split_at_mut(d * STRIDE);
    differences(w, centre, x, r, z, rz, first);
    products(w, d, r.len(), z, rz, second);
}

/// `z = x − centre`, `rz = r z`, both `(d, STRIDE)`, and the first moments.
#[inline(always)]
fn differences<T: Real, W: Words<T>>(
    w: W,
    centre: &[T],
    x: &[T],
    r: &[T],
    z: &mut [T],
    rz: &mut [T],
    first: &mut [f64],
) {
    for (j, &mean) in centre.iter().enumerate() {
        let mean = w.splat(mean);
        let mut sum = w.splat(T::ZERO);
        let (x, z, rz) = (&x[j * STRIDE..][..BLOCK], &mut z[j * STRIDE..][..BLOCK], &mut rz[j * STRIDE..][..BLOCK]);
        assert!(r.len() <= BLOCK && r.len().is_multiple_of(W::LANES));
        for row in (0..r.len()).step_by(W::LANES) {
            // SAFETY: row + LANES <= r.len() <= BLOCK.
            unsafe {
                let difference = w.sub(w.load(x.as_ptr().add(row)), mean);
                let weighted = w.mul(w.load(r.as_ptr().add(row)), difference);
                w.store(z.as_mut_ptr().add(row), difference);
                w.store(rz.as_mut_ptr().add(row), weighted);
                sum = w.add(sum, weighted);
            }
        }
        first[j] += w.sum(sum).to_f64();
    }
}

/// `second[i,j] += Σ_row rz[i,row] z[j,row]` for `j <= i`, packed.
#[inline(always)]
pub(super) fn products<T: Real, W: Words<T>>(w: W, d: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    assert!(z.len() >= d * STRIDE && rz.len() >= d * STRIDE && rows <= BLOCK && rows.is_multiple_of(W::LANES));
    for i in (0..d).step_by(TILE) {
        let rz = &rz[i * STRIDE..];
        match d - i {
            1 => row_of_tiles::<T, W, 1>(w, i, rows, z, rz, second),
            2 => row_of_tiles::<T, W, 2>(w, i, rows, z, rz, second),
            3 => row_of_tiles::<T, W, 3>(w, i, rows, z, rz, second),
            _ => row_of_tiles::<T, W, TILE>(w, i, rows, z, rz, second),
        }
    }
}

#[inline(always)]
fn row_of_tiles<T: Real, W: Words<T>, const R: usize>(
    w: W,
    i: usize,
    rows: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    for j in (0..i).step_by(TILE) {
        square::<T, W, R>(w, (i, j), rows, &z[j * STRIDE..], rz, second);
    }
    corner::<T, W, R>(w, i, rows, &z[i * STRIDE..], rz, second);
}

/// `R` by 4 entries wholly below the diagonal.
#[inline(always)]
fn square<T: Real, W: Words<T>, const R: usize>(
    w: W,
    (i, j): (usize, usize),
    rows: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    assert!(z.len() >= (TILE - 1) * STRIDE + rows && rz.len() >= (R - 1) * STRIDE + rows);
    let mut tile = [[w.splat(T::ZERO); TILE]; R];
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows, and the columns are that long, as asserted.
        unsafe {
            let mut columns = [w.splat(T::ZERO); TILE];
            for (b, column) in columns.iter_mut().enumerate() {
                *column = w.load(z.as_ptr().add(b * STRIDE + row));
            }
            for (a, sums) in tile.iter_mut().enumerate() {
                let rz = w.load(rz.as_ptr().add(a * STRIDE + row));
                for (sum, z) in sums.iter_mut().zip(columns) {
                    *sum = w.fma(rz, z, *sum);
                }
            }
        }
    }
    for (a, sums) in tile.into_iter().enumerate() {
        let slots = &mut second[packed_index(i + a, j)..][..TILE];
        for (slot, sum) in slots.iter_mut().zip(w.sum4(sums)) {
            *slot += sum.to_f64();
        }
    }
}

/// The lower triangle of the `R` by `R` entries on the diagonal.
#[inline(always)]
fn corner<T: Real, W: Words<T>, const R: usize>(w: W, i: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    assert!(z.len() >= (R - 1) * STRIDE + rows && rz.len() >= (R - 1) * STRIDE + rows);
    let mut tile = [[w.splat(T::ZERO); R]; R];
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows, and the columns are that long, as asserted.
        unsafe {
            let mut columns = [w.splat(T::ZERO); R];
            for (b, column) in columns.iter_mut().enumerate() {
                *column = w.load(z.as_ptr().add(b * STRIDE + row));
            }
            for a in 0..R {
                let rz = w.load(rz.as_ptr().add(a * STRIDE + row));
                for b in 0..=a {
                    tile[a][b] = w.fma(rz, columns[b], tile[a][b]);
                }
            }
        }
    }
    for a in 0..R {
        for b in 0..=a {
            second[packed_index(i + a, i + b)] += w.sum(tile[a][b]).to_f64();
        }
    }
}
