//! From log joint densities, a piece of components at a time, to exponentials, their factors and the rows'
//! log-likelihood.

use crate::Real;
use crate::device::{self, WARP, thread, warp};
use crate::em::chunked::half_precision::densities::Densities;
use crate::em::chunked::half_precision::operand::{EXPONENTIAL, two};
use crate::em::chunked::half_precision::rows::ROWS;
use crate::em::features::each;
use crate::em::lanes::{larger, quad};
use crate::layout::TILE_ROWS;
use crate::math::ln_f64;

/// Below every density, and finite, so that its difference from −∞ is not NaN.
const LOWEST: f32 = -3e38;

/// A lane's log joint densities: for each sixteen rows and each group of components, those of rows `2g`, `2g+1` and
/// components `2t`, `2t+1`, row by row.
pub(crate) type Joint<const G: usize> = [[[f32; 4]; G]; 2];

/// Running maxima and sums of a lane's four rows, and the position of its outputs.
///
/// With `ANEW`, the position is recomputed on each use, so that no register holds it while densities are computed: full
/// covariances have no register to spare. For columns, recomputing would leave too few registers for products in
/// flight.
pub(crate) struct SoFar<const ANEW: bool> {
    /// Largest density of each row.
    top: [f32; 4],
    /// Σ exp(density − top) over the lane's own components.
    sum: [f32; 4],
    tile: u64,
    /// The warp's first row in the tile, and the lane.
    place: (u32, u32),
}

impl<const ANEW: bool> SoFar<ANEW> {
    #[inline(always)]
    pub(crate) fn start(tile: u64) -> Self {
        Self { top: [LOWEST; 4], sum: [0.0; 4], tile, place: place(thread::thread_idx_x()) }
    }

    #[inline(always)]
    fn place(&self) -> (u32, u32) {
        if ANEW { place(thread::thread_idx_x_anew()) } else { self.place }
    }

    /// Index in the tile of row `r` of the lane's four.
    #[inline(always)]
    fn row((first, lane): (u32, u32), r: usize) -> u32 {
        first + 16 * (r / 2) as u32 + lane / 4 * 2 + r as u32 % 2
    }

    #[inline(always)]
    fn factor_at(&self, place: (u32, u32), pieces: u32, piece: u32, r: usize) -> u64 {
        (self.tile * pieces as u64 + piece as u64) * TILE_ROWS as u64 + Self::row(place, r) as u64
    }

    /// Writes the exponentials of a piece of components, and updates the rows' maxima and sums.
    #[inline(always)]
    pub(crate) unsafe fn add<const G: usize, const ONE: bool>(&mut self, a: &Densities, piece: u32, joint: &Joint<G>) {
        let place = self.place();
        let (first, lane) = place;
        let (g, t) = (lane / 4, lane % 4);
        // Of two components, lanes of even `g` write the first and lanes of odd `g` the second.
        let even_lane = g % 2 == 0;
        let columns = [
            crate::em::chunked::double_precision::column(2 * t),
            crate::em::chunked::double_precision::column(2 * t + 1),
        ];
        let sixteen = self.tile * (TILE_ROWS / 16) as u64 + (first / 16) as u64;
        each(2, |half| {
            let mut most = [0.0; 2];
            each(2, |odd| {
                let r = 2 * half + odd;
                let before = self.top[r];
                let mut top = before;
                each(G, |i| top = larger(larger(top, joint[half][i][2 * odd]), joint[half][i][2 * odd + 1]));
                top = quad(top, larger);
                self.sum[r] *= (before - top).exp_below();
                self.top[r] = top;
                most[odd] = top;
            });
            // Words of two rows each: the sixteen rows of a component are contiguous, then the components of a group,
            // then the groups. The hi parts of two words come first, so that operands are contiguous, followed by their
            // lo parts or, with `ONE`, by the hi parts of the next group.
            let words = if ONE { 64 } else { 128 };
            let start = ((sixteen + half as u64) * a.groups as u64 + (piece * G as u32) as u64) * words;
            let to = a.exponentials.wrapping_add(start as usize);
            let mut pair = |i: usize, which: usize| {
                let mut e = [0.0; 2];
                each(2, |odd| {
                    e[odd] = (joint[half][i][2 * odd + which] - most[odd]).exp_below();
                    self.sum[2 * half + odd] += e[odd];
                });
                two(e[0] * EXPONENTIAL, e[1] * EXPONENTIAL)
            };
            each(if ONE { G / 2 } else { G }, |unit| {
                let mut words = [[0; 2]; 2];
                each(2, |which| {
                    words[which] =
                        if ONE { [pair(2 * unit, which)[0], pair(2 * unit + 1, which)[0]] } else { pair(unit, which) };
                });
                // Exchanges components with the lane of the adjacent two rows, so that each lane writes 16 bytes of one
                // component.
                let (mine, theirs) = if even_lane { (words[0], words[1]) } else { (words[1], words[0]) };
                let theirs = theirs.map(|word| warp::shuffle_xor_u32(word, 4));
                let (even, odd) = if even_lane { (mine, theirs) } else { (theirs, mine) };
                let column = if even_lane { columns[0] } else { columns[1] };
                let at = (128 * unit as u32 + 16 * column + 4 * (g / 2)) as u64;
                // SAFETY: each lane writes its own rows and components; 16-byte aligned.
                unsafe { device::store4(to, at, [even[0], odd[0], even[1], odd[1]]) };
            });
        });
        // Each of the four lanes of a row stores every fourth piece, and finishes it in `finish`. A single piece needs
        // no comparison.
        let pieces = a.groups / G as u32;
        if pieces > 1 && piece % 4 == t {
            // SAFETY: rows of the tile, for which `factors` has 128 elements per piece.
            each(4, |r| unsafe { device::store(a.factors, self.factor_at(place, pieces, piece, r), self.top[r]) });
        }
    }

    /// Writes the factors and the log-likelihoods.
    #[inline(always)]
    pub(crate) unsafe fn finish(self, a: &Densities, pieces: u32) {
        let place = self.place();
        let (first, lane) = place;
        let t = lane % 4;
        let mut likelihood = [0.0; 2];
        each(4, |r| {
            let (top, sum) = (self.top[r], quad(self.sum[r], |a, b| a + b));
            let there = self.tile * (TILE_ROWS as u64) + (Self::row(place, r) as u64) < a.n;
            if there {
                likelihood[r / 2] += top.to_f64() + ln_f64(sum.to_f64());
            }
            // NaN if a density is NaN: it reaches the sums, and the host takes another path.
            let share = if there { 1.0 / sum } else { 0.0 };
            let mut piece = t;
            while piece < pieces {
                let at = self.factor_at(place, pieces, piece, r);
                // SAFETY: this lane wrote the same element in `add`, or there is one piece, which `factors` has room
                // for.
                unsafe {
                    let of_piece = if pieces > 1 { device::load(a.factors.cast_const(), at) } else { top };
                    device::store(a.factors, at, (of_piece - top).exp_below() * share);
                }
                piece += 4;
            }
        });
        each(2, |half| {
            let mut v = likelihood[half];
            each(3, |by| v += warp::shuffle_xor(v, 4 << by));
            if lane == 0 {
                let sixteen = self.tile * (TILE_ROWS / 16) as u64 + (first / 16) as u64;
                // SAFETY: sixteen rows of the tile, so the index is below `likelihoods(n)`.
                unsafe { device::store(a.likelihoods, sixteen + half as u64, v) };
            }
        });
    }
}

/// First row in a tile of a thread's warp, and the thread's lane.
#[inline(always)]
fn place(thread: u32) -> (u32, u32) {
    (thread / WARP * ROWS, thread % WARP)
}

const _: () = assert!(ROWS == 32);
