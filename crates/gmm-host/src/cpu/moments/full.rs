//! First moments and packed second moments: the costly half of a full-covariance pass.

use std::ops::Range;

use gmm_model::packed_index;

use super::super::layout::{BLOCK, STRIDE};
use super::super::simd::{Real, Words};
use super::{AT_ONCE, sums_of_lanes};

/// `first[j] += Σ r z_j`, `second[i,j] += Σ r z_i z_j` for `j <= i`, packed, with `z = x − centre`.
///
/// `r` is a multiple of `AT_ONCE * LANES` long; `scratch` holds `2*d*STRIDE` values. Cost `d*(d+1)` flops a row.
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
    let (z, roots) = scratch.split_at_mut(d * STRIDE);
    let roots = &mut roots[..r.len()];
    for (root, r) in roots.chunks_exact_mut(W::LANES).zip(r.chunks_exact(W::LANES)) {
        // SAFETY: both chunks hold LANES values.
        unsafe { w.store(root.as_mut_ptr(), w.sqrt(w.load(r.as_ptr()))) };
    }
    differences(w, centre, x, roots, z, first);
    products(w, d, r.len(), z, z, second);
}

/// `z = √r (x − centre)`, `(d, STRIDE)`, and the first moments.
///
/// The root shares a responsibility out to both factors of a product, so that one array serves as both: half the stores,
/// and half the cache.
#[inline(always)]
fn differences<T: Real, W: Words<T>>(w: W, centre: &[T], x: &[T], roots: &[T], z: &mut [T], first: &mut [f64]) {
    for (j, &mean) in centre.iter().enumerate() {
        let mean = w.splat(mean);
        let mut sum = w.splat(T::ZERO);
        let (x, z) = (&x[j * STRIDE..][..BLOCK], &mut z[j * STRIDE..][..BLOCK]);
        assert!(roots.len() <= BLOCK && roots.len().is_multiple_of(W::LANES));
        for row in (0..roots.len()).step_by(W::LANES) {
            // SAFETY: row + LANES <= roots.len() <= BLOCK.
            unsafe {
                let root = w.load(roots.as_ptr().add(row));
                let scaled = w.mul(root, w.sub(w.load(x.as_ptr().add(row)), mean));
                w.store(z.as_mut_ptr().add(row), scaled);
                sum = w.fma(root, scaled, sum);
            }
        }
        first[j] += w.sum(sum).to_f64();
    }
}

/// `second[i,j] += Σ_row rz[i,row] z[j,row]` for `j <= i`, packed.
#[inline(always)]
pub(super) fn products<T: Real, W: Words<T>>(w: W, d: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    assert!(z.len() >= d * STRIDE && rz.len() >= d * STRIDE && rows <= BLOCK);
    assert!(rows.is_multiple_of(AT_ONCE * W::LANES));
    // 16 running sums where there are 32 registers, else 9: with their factors they fill the registers.
    if W::GROUP == 4 {
        tiles::<T, W, 4>(w, d, rows, z, rz, second);
    } else {
        tiles::<T, W, 3>(w, d, rows, z, rz, second);
    }
}

/// [`products`] by register tiles of `N` rows by `N` columns of the moment matrix, each a vector over rows of the data.
#[inline(always)]
fn tiles<T: Real, W: Words<T>, const N: usize>(w: W, d: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    for left in (0..d).step_by(RESIDENT * N) {
        for i in (left..d).step_by(N) {
            let (rz, columns) = (&rz[i * STRIDE..], left..i.min(left + RESIDENT * N));
            match N.min(d - i) {
                1 => row_of_tiles::<T, W, N, 1>(w, i, columns, rows, z, rz, second),
                2 => row_of_tiles::<T, W, N, 2>(w, i, columns, rows, z, rz, second),
                3 => row_of_tiles::<T, W, N, 3>(w, i, columns, rows, z, rz, second),
                _ => row_of_tiles::<T, W, N, 4>(w, i, columns, rows, z, rz, second),
            }
        }
    }
}

/// Tiles of columns that stay in the first-level cache while all rows of the moment matrix are gone through: with the
/// row's own, 24 KiB at most.
const RESIDENT: usize = 2;

/// `R` rows of the moment matrix from row `i` on, by some columns, and with them the corner on the diagonal where the
/// columns do not end before it.
#[inline(always)]
fn row_of_tiles<T: Real, W: Words<T>, const N: usize, const R: usize>(
    w: W,
    i: usize,
    columns: Range<usize>,
    rows: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    let corner_too = columns.end == i && columns.len() < RESIDENT * N;
    for j in columns.step_by(N) {
        square::<T, W, N, R>(w, (i, j), rows, &z[j * STRIDE..], rz, second);
    }
    if corner_too {
        corner::<T, W, R>(w, i, rows, &z[i * STRIDE..], rz, second);
    }
}

/// `R` by `N` entries wholly below the diagonal.
#[inline(always)]
fn square<T: Real, W: Words<T>, const N: usize, const R: usize>(
    w: W,
    (i, j): (usize, usize),
    rows: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    assert!(z.len() >= (N - 1) * STRIDE + rows && rz.len() >= (R - 1) * STRIDE + rows);
    let mut tile = [[w.splat(T::ZERO); N]; R];
    for start in (0..rows).step_by(AT_ONCE * W::LANES) {
        for turn in 0..AT_ONCE {
            let row = start + turn * W::LANES;
            // SAFETY: row + LANES <= rows, and the columns are that long, as asserted.
            unsafe {
                let mut columns = [w.splat(T::ZERO); N];
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
    }
    for (a, sums) in tile.into_iter().enumerate() {
        let slots = &mut second[packed_index(i + a, j)..][..N];
        for (slot, sum) in slots.iter_mut().zip(sums_of_lanes::<T, W, N>(w, sums)) {
            *slot += sum.to_f64();
        }
    }
}

/// The lower triangle of the `R` by `R` entries on the diagonal.
#[inline(always)]
fn corner<T: Real, W: Words<T>, const R: usize>(w: W, i: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    assert!(z.len() >= (R - 1) * STRIDE + rows && rz.len() >= (R - 1) * STRIDE + rows);
    let mut tile = [[w.splat(T::ZERO); R]; R];
    for start in (0..rows).step_by(AT_ONCE * W::LANES) {
        for turn in 0..AT_ONCE {
            let row = start + turn * W::LANES;
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
    }
    for a in 0..R {
        for b in 0..=a {
            second[packed_index(i + a, i + b)] += w.sum(tile[a][b]).to_f64();
        }
    }
}
