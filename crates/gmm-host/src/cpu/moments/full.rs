//! First moments and packed second moments: the costly half of a full-covariance pass.

use std::ops::Range;

use gmm_model::packed_index;

use super::super::layout::{BLOCK, STRIDE};
use super::super::simd::{Kernel, Real, Words};
use super::{AT_ONCE, sums_of_lanes};

/// `first[j] += Σ r z_j`, `second[i,j] += Σ r z_i z_j` for `j <= i`, packed, with `z = x − centre`.
///
/// Cost `d*(d+1)` flops a row.
pub(super) struct Moments<'a, T> {
    /// `(d,)`.
    pub(super) centre: &'a [T],
    /// `(d, STRIDE)`.
    pub(super) x: &'a [T],
    /// A multiple of `AT_ONCE * LANES` rows.
    pub(super) r: &'a [T],
    /// `(2*d, STRIDE)`.
    pub(super) scratch: &'a mut [T],
    pub(super) first: &'a mut [f64],
    pub(super) second: &'a mut [f64],
}

impl<T: Real> Kernel<T> for Moments<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { centre, x, r, scratch, first, second } = self;
        let d = centre.len();
        let (z, roots) = scratch.split_at_mut(d * STRIDE);
        let roots = &mut roots[..r.len()];
        for (root, r) in roots.chunks_exact_mut(W::LANES).zip(r.chunks_exact(W::LANES)) {
            // SAFETY: both chunks hold LANES values.
            unsafe { w.store(root.as_mut_ptr(), w.sqrt(w.load(r.as_ptr()))) };
        }
        if W::GROUP == 4 {
            form::<T, W, 4>(w, centre, x, roots, z, first, second);
            tiles::<T, W, 4>(w, d, r.len(), RESIDENT * 4, z, z, second);
        } else {
            form::<T, W, 3>(w, centre, x, roots, z, first, second);
            tiles::<T, W, 3>(w, d, r.len(), RESIDENT * 3, z, z, second);
        }
    }
}

/// `z = √r (x − centre)`, `(d, STRIDE)`, the first moments, and the second ones in the first `RESIDENT*N` columns of the
/// moment matrix.
///
/// The root shares a responsibility out to both factors of a product, so that one array serves as both: half the stores,
/// and half the cache. Each `z` goes into its first products while it is written: by itself the writing would wait for
/// the second-level cache.
#[inline(always)]
fn form<T: Real, W: Words<T>, const N: usize>(
    w: W,
    centre: &[T],
    x: &[T],
    roots: &[T],
    z: &mut [T],
    first: &mut [f64],
    second: &mut [f64],
) {
    let d = centre.len();
    for i in (0..d).step_by(N) {
        let firsts = &mut first[i..];
        match N.min(d - i) {
            1 => form_row::<T, W, N, 1>(w, i, centre, x, roots, z, firsts, second),
            2 => form_row::<T, W, N, 2>(w, i, centre, x, roots, z, firsts, second),
            3 => form_row::<T, W, N, 3>(w, i, centre, x, roots, z, firsts, second),
            _ => form_row::<T, W, N, 4>(w, i, centre, x, roots, z, firsts, second),
        }
    }
}

/// `R` columns of `z` from column `i` on, and their products with the first `RESIDENT*N` columns.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "inputs and outputs of two sums")]
fn form_row<T: Real, W: Words<T>, const N: usize, const R: usize>(
    w: W,
    i: usize,
    centre: &[T],
    x: &[T],
    roots: &[T],
    z: &mut [T],
    first: &mut [f64],
    second: &mut [f64],
) {
    let (before, own) = z.split_at_mut(i * STRIDE);
    let (centre, x) = (&centre[i..], &x[i * STRIDE..]);
    if i == 0 {
        form_tile::<T, W, 0, R>(w, (i, 0), centre, x, roots, before, own, first, second);
    } else {
        form_tile::<T, W, N, R>(w, (i, 0), centre, x, roots, before, own, first, second);
    }
    row_of_tiles::<T, W, N, R>(w, (i, 0), N.min(i)..i.min(RESIDENT * N), roots.len(), z, &z[i * STRIDE..], second);
}

/// `R` columns of `z`, and their products with the `N` columns `before`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "as above")]
fn form_tile<T: Real, W: Words<T>, const N: usize, const R: usize>(
    w: W,
    (i, j): (usize, usize),
    centre: &[T],
    x: &[T],
    roots: &[T],
    before: &[T],
    own: &mut [T],
    first: &mut [f64],
    second: &mut [f64],
) {
    let rows = roots.len();
    assert!(rows <= BLOCK && rows.is_multiple_of(W::LANES) && before.len() >= N * STRIDE);
    assert!(x.len() >= R * STRIDE && own.len() >= R * STRIDE);
    let mut means = [w.splat(T::ZERO); R];
    for a in 0..R {
        means[a] = w.splat(centre[a]);
    }
    let mut firsts = [w.splat(T::ZERO); R];
    let mut tile = [[w.splat(T::ZERO); N]; R];
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK, and the columns are that long, as asserted.
        unsafe {
            let root = w.load(roots.as_ptr().add(row));
            for a in 0..R {
                let x = w.load(x.as_ptr().add(a * STRIDE + row));
                let z = w.mul(root, w.sub(x, means[a]));
                w.store(own.as_mut_ptr().add(a * STRIDE + row), z);
                firsts[a] = w.fma(root, z, firsts[a]);
                for b in 0..N {
                    let column = w.load(before.as_ptr().add(b * STRIDE + row));
                    tile[a][b] = w.fma(z, column, tile[a][b]);
                }
            }
        }
    }
    for (a, sums) in tile.into_iter().enumerate() {
        first[a] += w.sum(firsts[a]).to_f64();
        add_sums(w, sums, &mut second[packed_index(i + a, j)..]);
    }
}

/// Adds the sum of each vector's lanes.
#[inline(always)]
fn add_sums<T: Real, W: Words<T>, const N: usize>(w: W, sums: [W::V; N], slots: &mut [f64]) {
    for (slot, sum) in slots[..N].iter_mut().zip(sums_of_lanes::<T, W, N>(w, sums)) {
        *slot += sum.to_f64();
    }
}

/// `second[i,j] += Σ_row rz[i,row] z[j,row]` for `j <= i`, packed.
pub(super) struct Products<'a, T> {
    pub(super) d: usize,
    /// A multiple of `AT_ONCE * LANES`.
    pub(super) rows: usize,
    /// `(d, STRIDE)`.
    pub(super) z: &'a [T],
    /// `(d, STRIDE)`.
    pub(super) rz: &'a [T],
    pub(super) second: &'a mut [f64],
}

impl<T: Real> Kernel<T> for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { d, rows, z, rz, second } = self;
        assert!(z.len() >= d * STRIDE && rz.len() >= d * STRIDE && rows <= BLOCK);
        assert!(rows.is_multiple_of(AT_ONCE * W::LANES));
        // 16 running sums where there are 32 registers, else 9: with their factors they fill the registers.
        if W::GROUP == 4 {
            tiles::<T, W, 4>(w, d, rows, 0, z, rz, second);
        } else {
            tiles::<T, W, 3>(w, d, rows, 0, z, rz, second);
        }
    }
}

/// [`Products`] by register tiles of `N` rows by `N` columns of the moment matrix, each a vector over rows of the data.
#[inline(always)]
fn tiles<T: Real, W: Words<T>, const N: usize>(
    w: W,
    d: usize,
    rows: usize,
    from: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    for left in (from..d).step_by(RESIDENT * N) {
        for i in (left..d).step_by(N) {
            let (rz, columns) = (&rz[i * STRIDE..], left..i.min(left + RESIDENT * N));
            match N.min(d - i) {
                1 => row_of_tiles::<T, W, N, 1>(w, (i, left), columns, rows, z, rz, second),
                2 => row_of_tiles::<T, W, N, 2>(w, (i, left), columns, rows, z, rz, second),
                3 => row_of_tiles::<T, W, N, 3>(w, (i, left), columns, rows, z, rz, second),
                _ => row_of_tiles::<T, W, N, 4>(w, (i, left), columns, rows, z, rz, second),
            }
        }
    }
}

/// Tiles of columns that stay in the first-level cache while all rows of the moment matrix are gone through: with the
/// row's own, 24 KiB at most.
const RESIDENT: usize = 2;

/// `R` rows of the moment matrix from row `i` on, by some of the resident columns from `left` on, and with them the
/// corner on the diagonal where it is among these.
#[inline(always)]
fn row_of_tiles<T: Real, W: Words<T>, const N: usize, const R: usize>(
    w: W,
    (i, left): (usize, usize),
    columns: Range<usize>,
    rows: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    for j in columns.step_by(N) {
        square::<T, W, N, R>(w, (i, j), rows, &z[j * STRIDE..], rz, second);
    }
    if i < left + RESIDENT * N {
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
        add_sums(w, sums, &mut second[packed_index(i + a, j)..]);
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
