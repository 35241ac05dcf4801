//! Features that depend on single entries: loaded from device memory directly into registers.
//!
//! Lane `4g + t` of a warp holds the features `t`, `t+4`, `t+8`, .. of rows `g` and `g+8`. A *four* is the group of
//! four features that the four lanes of a row hold at the same index. Lanes that read the same column thus read
//! neighbouring rows.

use crate::Real;
use crate::device::{self, Shared, mma, warp};
use crate::each::each;
use crate::em::features::GROUP;
use crate::em::lanes::quad;
use crate::layout::TILE_ROWS;
use crate::log_likelihood::LogLikelihoods;
use crate::log_likelihood::pass::Rows;

/// Entries, and their norm if requested, in `Q` fours.
#[derive(Clone, Copy)]
pub(crate) struct Linear<const Q: usize>([[f64; 2]; Q]);

/// Entries and their squares, in `Q` fours: fours of entries alternate with the fours of their squares. If `Q` is odd,
/// the last four has two entries and their squares.
#[derive(Clone, Copy)]
pub(crate) struct Squares<const Q: usize>([[f64; 2]; Q]);

/// Positions of entry `j` and of its square among the features of [`Squares`].
#[inline(always)]
pub(crate) const fn place(fours: u32, j: u32) -> [u32; 2] {
    let whole = 4 * (fours / 2);
    if j < whole {
        let at = j / 4 * 8 + j % 4;
        [at, at + 4]
    } else {
        let at = 4 * (fours - 1) + j - whole;
        [at, at + 2]
    }
}

/// Position of a lane's two rows of a group.
#[derive(Clone, Copy)]
struct Offsets<T> {
    /// Column 0 of row `g`; row `g+8` is 8 numbers further, and the next column 128.
    x: *const T,
    d: u32,
}

impl<T: Real> Offsets<T> {
    #[inline(always)]
    fn of(a: &LogLikelihoods<T>, group: u32, lane: u32) -> Self {
        let (tile, inside) = (group / GROUPS, group % GROUPS * GROUP + lane / 4);
        let at = tile as u64 * (a.d * TILE_ROWS) as u64 + inside as u64;
        Self { x: a.x.wrapping_add(at as usize), d: a.d }
    }

    /// Reads a column of both rows; 0 past the last column.
    #[inline(always)]
    unsafe fn two(self, column: u32) -> [T; 2] {
        let mut out = [T::ZERO; 2];
        let at = (column * TILE_ROWS) as u64;
        if column < self.d {
            // SAFETY: the group is within the `n` rows, tiles are padded to 128 rows, and `column < d`.
            out = unsafe { [device::load(self.x, at), device::load(self.x, at + 8)] };
        }
        out
    }
}

/// Groups per tile.
const GROUPS: u32 = TILE_ROWS / GROUP;

/// Adds the products of `Q` fours with each tile.
#[inline(always)]
fn multiply<const Q: usize, const TILES: usize>(
    features: &[[f64; 2]; Q],
    lane: u32,
    tiles: Shared<f64>,
    sums: &mut [[f64; 4]; TILES],
) {
    each(Q.div_ceil(4), |step| {
        each(TILES, |tile| {
            let at = tile as u32 * crate::log_likelihood::tile_len(Q) + step as u32 * 128 + lane * 2;
            let low = tiles.load2(at);
            let high = if Q - 4 * step > 2 { tiles.load2(at + 64) } else { [0.0; 2] };
            product(&features[4 * step..], [low[0], low[1], high[0], high[1]], &mut sums[tile]);
        });
    });
}

/// Adds the product of up to four fours with a tile's coefficients.
#[inline(always)]
fn product(fours: &[[f64; 2]], [b0, b1, b2, b3]: [f64; 4], sum: &mut [f64; 4]) {
    match *fours {
        [x, y, z, w, ..] => {
            mma::f64_16x8x16(sum, [x[0], x[1], y[0], y[1], z[0], z[1], w[0], w[1]], [b0, b1, b2, b3]);
        }
        [x, y, z] => {
            mma::f64_16x8x8(sum, [x[0], x[1], y[0], y[1]], [b0, b1]);
            mma::f64_16x8x4(sum, z, [b2]);
        }
        [x, y] => mma::f64_16x8x8(sum, [x[0], x[1], y[0], y[1]], [b0, b1]),
        [x] => mma::f64_16x8x4(sum, x, [b0]),
        [] => {}
    }
}

impl<const Q: usize> Rows for Linear<Q> {
    const FOURS: usize = Q;
    // For tied covariances, the host adds the term that all components share.
    const WHOLE: bool = false;
    const SHARED: u32 = 0;
    type Arriving<T: Real> = [[T; 2]; Q];

    #[inline(always)]
    fn begin(_: Shared<f64>, _: u32) {}

    #[inline(always)]
    unsafe fn arrive<T: Real>(a: &LogLikelihoods<T>, group: u32, lane: u32) -> [[T; 2]; Q] {
        let (mut out, at) = ([[T::ZERO; 2]; Q], Offsets::of(a, group, lane));
        // SAFETY: the caller guarantees a group within the rows.
        each(Q, |q| out[q] = unsafe { at.two(4 * q as u32 + lane % 4) });
        out
    }

    #[inline(always)]
    fn stage<T: Real>(a: &LogLikelihoods<T>, arrived: [[T; 2]; Q], _: Shared<f64>, lane: u32) -> Self {
        let mut out = [[0.0; 2]; Q];
        each(Q, |q| out[q] = arrived[q].map(T::to_f64));
        if a.norm != 0 {
            each(2, |half| {
                let mut norm = 0.0;
                each(Q, |q| norm += out[q][half] * out[q][half]);
                let norm = quad(norm, core::ops::Add::add);
                each(Q, |q| {
                    if 4 * q as u32 + lane % 4 == a.d {
                        out[q][half] = norm;
                    }
                });
            });
        }
        // Reconverge: the norm's shuffles and the products that follow need all lanes.
        warp::sync_warp();
        Self(out)
    }

    #[inline(always)]
    fn multiply<const TILES: usize>(
        &self,
        _: Shared<f64>,
        lane: u32,
        tiles: Shared<f64>,
        sums: &mut [[f64; 4]; TILES],
    ) {
        multiply(&self.0, lane, tiles, sums);
    }
}

impl<const Q: usize> Rows for Squares<Q> {
    const FOURS: usize = Q;
    const WHOLE: bool = true;
    const SHARED: u32 = 0;
    // Only half of these are used.
    type Arriving<T: Real> = [[T; 2]; Q];

    #[inline(always)]
    fn begin(_: Shared<f64>, _: u32) {}

    #[inline(always)]
    unsafe fn arrive<T: Real>(a: &LogLikelihoods<T>, group: u32, lane: u32) -> [[T; 2]; Q] {
        let (mut out, at) = ([[T::ZERO; 2]; Q], Offsets::of(a, group, lane));
        // SAFETY: the caller guarantees a group within the rows.
        each(Q / 2, |q| out[q] = unsafe { at.two(4 * q as u32 + lane % 4) });
        if Q % 2 == 1 {
            // SAFETY: as above.
            out[Q / 2] = unsafe { at.two(4 * (Q / 2) as u32 + lane % 2) };
        }
        out
    }

    #[inline(always)]
    fn stage<T: Real>(_: &LogLikelihoods<T>, arrived: [[T; 2]; Q], _: Shared<f64>, lane: u32) -> Self {
        let mut out = [[0.0; 2]; Q];
        each(Q / 2, |q| {
            let entries = arrived[q].map(T::to_f64);
            out[2 * q] = entries;
            out[2 * q + 1] = entries.map(|v| v * v);
        });
        if Q % 2 == 1 {
            out[Q - 1] = arrived[Q / 2].map(|v| {
                let v = v.to_f64();
                if lane % 4 < 2 { v } else { v * v }
            });
        }
        Self(out)
    }

    #[inline(always)]
    fn multiply<const TILES: usize>(
        &self,
        _: Shared<f64>,
        lane: u32,
        tiles: Shared<f64>,
        sums: &mut [[f64; 4]; TILES],
    ) {
        multiply(&self.0, lane, tiles, sums);
    }
}
