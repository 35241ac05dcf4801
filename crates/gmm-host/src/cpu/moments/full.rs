//! First moments and packed second moments: the expensive half of a full-covariance pass.
//!
//! The moment matrix is divided into tiles of [`tall`] rows by [`WIDE`] columns, so that a tile's running sums and the
//! operands fill the registers. Each sum is a vector over rows of the data. The sums of a tile's row are contiguous in
//! the packed triangle, so that four vectors are reduced at a time.

use gmm_model::packed_index;

use super::super::layout::{BLOCK, STRIDE};
use super::super::simd::{Kernel, Real, Words};
use super::{AT_ONCE, sums_of_lanes};

/// Columns of a tile.
const WIDE: usize = 4;

/// Columns that stay in the L1 cache while all rows of the moment matrix are processed: at most 24 KiB with the row's
/// own columns.
const RESIDENT: usize = 2 * WIDE;

/// Rows of a tile: 4 with 32 registers (16 sums), otherwise 3 (12 sums in 16 registers).
#[inline(always)]
const fn tall<T: Real, W: Words<T>>() -> usize {
    if W::GROUP == 4 { 4 } else { 3 }
}

/// `first[j] += Σ r z_j`, `second[i,j] += Σ r z_i z_j` for `j <= i`, packed, with `z = x − centre`.
///
/// Cost: `d*(d+1)` flops per row.
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
        for i in (0..d).step_by(tall::<T, W>()) {
            let (centre, x, z, first) = (&centre[i..], &x[i * STRIDE..], &mut z[i * STRIDE..], &mut first[i..]);
            match tall::<T, W>().min(d - i) {
                1 => form::<T, W, 1>(w, i, centre, x, roots, z, first, second),
                2 => form::<T, W, 2>(w, i, centre, x, roots, z, first, second),
                3 => form::<T, W, 3>(w, i, centre, x, roots, z, first, second),
                _ => form::<T, W, 4>(w, i, centre, x, roots, z, first, second),
            }
        }
        below_diagonal(w, d, r.len(), z, z, second);
    }
}

/// Computes `R` columns of `z = √r (x − centre)`, `(d, STRIDE)`, from column `i` of the data on, their first moments,
/// and their second moments with each other.
///
/// Both factors of a product carry the root of the responsibility, so one array serves as both: half the stores and
/// half the cache. Each `z` is used in its first products while it is written; stores alone would wait for the L2
/// cache.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "inputs and outputs of two sums")]
fn form<T: Real, W: Words<T>, const R: usize>(
    w: W,
    i: usize,
    centre: &[T],
    x: &[T],
    roots: &[T],
    z: &mut [T],
    first: &mut [f64],
    second: &mut [f64],
) {
    let rows = roots.len();
    assert!(rows <= BLOCK && rows.is_multiple_of(W::LANES));
    assert!(x.len() >= (R - 1) * STRIDE + BLOCK && z.len() >= (R - 1) * STRIDE + BLOCK);
    let mut means = [w.splat(T::ZERO); R];
    for a in 0..R {
        means[a] = w.splat(centre[a]);
    }
    let mut firsts = [w.splat(T::ZERO); R];
    let mut tile = [[w.splat(T::ZERO); R]; R];
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK, and the columns are that long, as asserted.
        unsafe {
            let root = w.load(roots.as_ptr().add(row));
            let mut own = [root; R];
            for a in 0..R {
                let x = w.load(x.as_ptr().add(a * STRIDE + row));
                own[a] = w.mul(root, w.sub(x, means[a]));
                w.store(z.as_mut_ptr().add(a * STRIDE + row), own[a]);
                firsts[a] = w.fma(root, own[a], firsts[a]);
                for b in 0..=a {
                    tile[a][b] = w.fma(own[a], own[b], tile[a][b]);
                }
            }
        }
    }
    add_sums(w, firsts, first);
    add_corner(w, i, tile, second);
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
        for i in (0..d).step_by(tall::<T, W>()) {
            let (z, rz) = (&z[i * STRIDE..], &rz[i * STRIDE..]);
            match tall::<T, W>().min(d - i) {
                1 => corner::<T, W, 1>(w, i, rows, z, rz, second),
                2 => corner::<T, W, 2>(w, i, rows, z, rz, second),
                3 => corner::<T, W, 3>(w, i, rows, z, rz, second),
                _ => corner::<T, W, 4>(w, i, rows, z, rz, second),
            }
        }
        below_diagonal(w, d, rows, z, rz, second);
    }
}

/// Adds the lower triangle of the `R` by `R` entries on the diagonal from row `i` on.
#[inline(always)]
fn corner<T: Real, W: Words<T>, const R: usize>(w: W, i: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    assert!(z.len() >= (R - 1) * STRIDE + rows && rz.len() >= (R - 1) * STRIDE + rows);
    let mut tile = [[w.splat(T::ZERO); R]; R];
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows, and the columns are that long, as asserted.
        unsafe {
            let mut columns = [w.splat(T::ZERO); R];
            for a in 0..R {
                columns[a] = w.load(z.as_ptr().add(a * STRIDE + row));
                let rz = w.load(rz.as_ptr().add(a * STRIDE + row));
                for b in 0..=a {
                    tile[a][b] = w.fma(rz, columns[b], tile[a][b]);
                }
            }
        }
    }
    add_corner(w, i, tile, second);
}

/// Adds the entries of [`Products`] outside the diagonal triangles.
#[inline(always)]
fn below_diagonal<T: Real, W: Words<T>>(w: W, d: usize, rows: usize, z: &[T], rz: &[T], second: &mut [f64]) {
    for left in (0..d).step_by(RESIDENT) {
        let first = (left + 1).next_multiple_of(tall::<T, W>());
        for i in (first..d).step_by(tall::<T, W>()) {
            let mut j = left;
            let end = i.min(left + RESIDENT);
            while j < end {
                // Split five as three and two (and six as three and three): a tile with fewer than six sums is limited
                // by FMA latency.
                let wide = match end - j {
                    5 | 6 => 3,
                    rest => rest.min(WIDE),
                };
                let (z, rz) = (&z[j * STRIDE..], &rz[i * STRIDE..]);
                match (wide, tall::<T, W>().min(d - i)) {
                    (1, 1) => rectangle::<T, W, 1, 1>(w, (i, j), rows, z, rz, second),
                    (1, 2) => rectangle::<T, W, 1, 2>(w, (i, j), rows, z, rz, second),
                    (1, 3) => rectangle::<T, W, 1, 3>(w, (i, j), rows, z, rz, second),
                    (1, _) => rectangle::<T, W, 1, 4>(w, (i, j), rows, z, rz, second),
                    (2, 1) => rectangle::<T, W, 2, 1>(w, (i, j), rows, z, rz, second),
                    (2, 2) => rectangle::<T, W, 2, 2>(w, (i, j), rows, z, rz, second),
                    (2, 3) => rectangle::<T, W, 2, 3>(w, (i, j), rows, z, rz, second),
                    (2, _) => rectangle::<T, W, 2, 4>(w, (i, j), rows, z, rz, second),
                    (3, 1) => rectangle::<T, W, 3, 1>(w, (i, j), rows, z, rz, second),
                    (3, 2) => rectangle::<T, W, 3, 2>(w, (i, j), rows, z, rz, second),
                    (3, 3) => rectangle::<T, W, 3, 3>(w, (i, j), rows, z, rz, second),
                    (3, _) => rectangle::<T, W, 3, 4>(w, (i, j), rows, z, rz, second),
                    (_, 1) => rectangle::<T, W, 4, 1>(w, (i, j), rows, z, rz, second),
                    (_, 2) => rectangle::<T, W, 4, 2>(w, (i, j), rows, z, rz, second),
                    (_, 3) => rectangle::<T, W, 4, 3>(w, (i, j), rows, z, rz, second),
                    (_, _) => rectangle::<T, W, 4, 4>(w, (i, j), rows, z, rz, second),
                }
                j += wide;
            }
        }
    }
}

/// Adds the entries of `N` columns from `j` on and `R` rows from `i` on, all below the diagonal.
#[inline(always)]
fn rectangle<T: Real, W: Words<T>, const N: usize, const R: usize>(
    w: W,
    (i, j): (usize, usize),
    rows: usize,
    z: &[T],
    rz: &[T],
    second: &mut [f64],
) {
    assert!(z.len() >= (N - 1) * STRIDE + rows && rz.len() >= (R - 1) * STRIDE + rows);
    assert!(rows.is_multiple_of(AT_ONCE * W::LANES));
    let mut tile = [[w.splat(T::ZERO); N]; R];
    for start in (0..rows).step_by(AT_ONCE * W::LANES) {
        for turn in 0..AT_ONCE {
            let row = start + turn * W::LANES;
            // SAFETY: row + LANES <= rows, and the columns are that long, as asserted.
            unsafe {
                let mut own = [w.splat(T::ZERO); R];
                for b in 0..R {
                    own[b] = w.load(rz.as_ptr().add(b * STRIDE + row));
                }
                for a in 0..N {
                    let column = w.load(z.as_ptr().add(a * STRIDE + row));
                    for b in 0..R {
                        tile[b][a] = w.fma(own[b], column, tile[b][a]);
                    }
                }
            }
        }
    }
    for b in 0..R {
        add_sums(w, tile[b], &mut second[packed_index(i + b, j)..]);
    }
}

/// Adds the sum of each vector's lanes to its slot.
#[inline(always)]
fn add_sums<T: Real, W: Words<T>, const N: usize>(w: W, sums: [W::V; N], slots: &mut [f64]) {
    let slots = &mut slots[..N];
    let sums = sums_of_lanes::<T, W, N>(w, sums);
    for a in 0..N {
        slots[a] += sums[a].to_f64();
    }
}

/// Adds the lower triangle of a tile on the diagonal.
#[inline(always)]
fn add_corner<T: Real, W: Words<T>, const R: usize>(w: W, i: usize, tile: [[W::V; R]; R], second: &mut [f64]) {
    for a in 0..R {
        let sums = sums_of_lanes::<T, W, R>(w, tile[a]);
        let slots = &mut second[packed_index(i + a, i)..][..=a];
        for b in 0..=a {
            slots[b] += sums[b].to_f64();
        }
    }
}
