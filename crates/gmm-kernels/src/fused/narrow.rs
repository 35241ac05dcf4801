//! One whole E- and M-pass over `f32` rows of few columns, with many components: each warp has components of its own.
//!
//! Where a row has two entries, products of matrices have next to nothing to add up, and what costs is one exponential and
//! some twenty operations for each row and component. So all warps of a block take the same 64 rows, two to a lane, and
//! each its own components, whose sums stay in its registers:
//! 1. densities about the means, `2^(c − |W(x − μ)|²)` of `c` less the largest: no row is above 1, and the largest of a
//!    row need not be known. Rows so far from everything that this could underflow are done again about their own largest;
//! 2. what warps have of a row's sum passes through shared memory, one barrier for 64 rows;
//! 3. moments about the means, of the same exponentials.
//!
//! `x − μ` is formed of `μ` as two numbers, so its error is relative to itself. A lane adds up at most [`FLUSH`] times two
//! rows in `f32`; everything longer is added in `f64`, in a fixed order.

use super::features::each;
use super::lanes::{larger, row_weight};
use super::place::Place;
use super::state::stopped;
use crate::Real;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::layout::{TILE_ROWS, packed_index, packed_len};
use crate::math::{exp2_f32, log2_f32, reciprocal_f32};

kernels! {
    /// Any grid in `x`, blocks of [`Cut::warps`].
    Narrow {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this begins, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Components.
        k: u32,
        /// [`Place::groups`] of [`place`].
        groups: u32,
        /// Warps of a block, [`Cut::warps`].
        warps: u32,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// Packed inverses of the Cholesky factors, `(k, d*(d+1)/2)`.
        roots: *const f64,
        /// `(8*groups,)`: what log joint densities are at the means; −∞ past the last component.
        constants: *const f64,
        /// `(blocks, Place::sums)`, written.
        partials: *mut f64,
    }
    /// One column.
    narrow_1 => body::<1, 1, 12, 4>, shared::<1, 12, 4>, threads;
    /// Two columns, 7 components for each warp.
    narrow_2_7 => body::<2, 3, 7, 4>, shared::<2, 7, 4>, threads;
    /// Two columns, 8 components for each warp.
    narrow_2_8 => body::<2, 3, 8, 4>, shared::<2, 8, 4>, threads;
    /// Three columns.
    narrow_3 => body::<3, 6, 6, 2>, shared::<3, 6, 2>, threads;
}

/// Warps of a block at most: with 128 registers for each thread they fill a multiprocessor.
const MOST_WARPS: u32 = 16;

/// Times 64 rows of which sums are kept in `f32`.
const FLUSH: u32 = 128;

/// Distance of one number of all lanes from the next, where they cross: one more than the lanes, against bank conflicts.
const CROSSING: u32 = WARP + 1;

/// Below that a row's sum of densities may have lost what underflowed: 2⁻⁶⁰, where the least number is 2⁻¹²⁶.
const LOW: f32 = f32::from_bits((127 - 60) << 23);

/// How a mixture is cut into warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Columns.
    pub d: u32,
    /// Components of a warp.
    pub each: u32,
    /// Rows of a lane.
    pub rows: u32,
    /// Warps of a block.
    pub warps: u32,
}

impl Cut {
    /// None where rows have too many columns, or a block has too few warps.
    pub fn of(k: u32, d: u32) -> Option<Self> {
        let (sizes, rows): (&[u32], u32) = match d {
            1 => (&[12], 4),
            2 => (&[8, 7], 4),
            3 => (&[6], 2),
            _ => return None,
        };
        let cuts = sizes.iter().map(|each| Self { d, each: *each, rows, warps: k.div_ceil(*each) });
        // Each quarter of a multiprocessor has every fourth warp: what counts is the one with the most.
        cuts.filter(|cut| cut.warps <= MOST_WARPS).min_by_key(|cut| cut.warps.div_ceil(4) * cut.each)
    }

    /// Rows that a block takes at a time.
    pub const fn rows_of_block(self) -> u64 {
        (WARP * self.rows) as u64
    }
}

/// Where the sums lie.
pub const fn place(k: u32) -> Place {
    Place::full(1, k.div_ceil(8))
}

/// The kernel of a cut.
///
/// # Panics
/// Where there is none; [`Cut::of`] gives those that there are.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(cut: Cut) -> crate::Kernel<Narrow> {
    match (cut.d, cut.each) {
        (1, _) => narrow_1(),
        (2, 7) => narrow_2_7(),
        (2, _) => narrow_2_8(),
        (3, _) => narrow_3(),
        _ => panic!("{cut:?} is not there"),
    }
}

/// Numbers of a component's parameters in shared memory, a multiple of four.
const fn parameters(d: u32) -> u32 {
    (2 * d + 1 + packed_len(d) as u32).next_multiple_of(4)
}

/// Numbers of a component's sums.
const fn sums_len(d: u32) -> u32 {
    1 + d + packed_len(d) as u32
}

/// Where the largest of the constants lies, as a binary logarithm in `f64`; after it what warps have of the rows' sums, twice, so that one barrier is
/// enough.
const TOP: u32 = 0;
const SHARES: u32 = 16;

/// Bytes of what warps have of the sums of `rows` rows a lane.
const fn shares_len(rows: u32) -> u32 {
    4 * MOST_WARPS * WARP * rows
}

/// Where warps' parts start.
const fn first(rows: u32) -> u32 {
    SHARES + 2 * shares_len(rows)
}

/// Where things lie in a warp's part of shared memory, in bytes from its start. Constants, since a place that has to be
/// computed takes a register, of which there are none left.
struct Part {
    /// Its components' sums so far, `f64`; before them their parameters.
    sums: u32,
    /// Σ w log₂ p(x) of each lane, `f64`.
    likelihood: u32,
    /// Where its sums cross the lanes.
    crossing: u32,
    end: u32,
}

impl Part {
    const fn new(d: u32, each: u32) -> Self {
        let sums = (4 * parameters(d) * each).next_multiple_of(16);
        let likelihood = sums + 8 * each * sums_len(d);
        let crossing = likelihood + 8 * WARP;
        Self { sums, likelihood, crossing, end: (crossing + 4 * WARP * CROSSING).next_multiple_of(16) }
    }
}

/// Bytes of shared memory of a block.
pub const fn shared_bytes(cut: Cut) -> u64 {
    (first(cut.rows) + cut.warps * Part::new(cut.d, cut.each).end) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared<const D: usize, const C: usize, const R: usize>(a: &Narrow) -> u64 {
    shared_bytes(Cut { d: D as u32, each: C as u32, rows: R as u32, warps: a.warps })
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(a: &Narrow) -> u32 {
    WARP * a.warps
}

/// A component as a lane uses it.
struct Terms<const D: usize, const S: usize> {
    /// The mean, rounded.
    mean: [f32; D],
    /// `W` times what rounding took of the mean, negative.
    rest: [f32; D],
    /// Binary logarithm of the density at the mean, less the largest of all.
    constant: f32,
    /// `W`, the inverse of the covariance's Cholesky factor, times √(½ log₂ e).
    root: [f32; S],
}

impl<const D: usize, const S: usize> Terms<D, S> {
    #[inline(always)]
    fn load(at: Shared<f32>) -> Self {
        let mut all = [0.0; 16];
        each(parameters(D as u32) as usize / 4, |four| {
            let some = at.load4(4 * four as u32);
            each(4, |i| all[4 * four + i] = some[i]);
        });
        let mut out = Self { mean: [0.0; D], rest: [0.0; D], constant: all[2 * D], root: [0.0; S] };
        each(D, |j| (out.mean[j], out.rest[j]) = (all[j], all[D + j]));
        each(S, |i| out.root[i] = all[2 * D + 1 + i]);
        out
    }

    /// Binary logarithm of a row's density, in terms of the largest that a row can have.
    #[inline(always)]
    fn density(&self, x: [f32; D]) -> f32 {
        let mut log = self.constant;
        each(D, |i| {
            let mut t = self.rest[i];
            each(i + 1, |j| t = Real::fma(self.root[i * (i + 1) / 2 + j], x[j] - self.mean[j], t));
            log = Real::fma(-t, t, log);
        });
        log
    }
}

/// Sums of a lane's rows for its warp's components.
struct Sums<const D: usize, const S: usize, const C: usize> {
    weight: [f32; C],
    first: [[f32; D]; C],
    second: [[f32; S]; C],
}

impl<const D: usize, const S: usize, const C: usize> Sums<D, S, C> {
    const NOTHING: Self = Self { weight: [0.0; C], first: [[0.0; D]; C], second: [[0.0; S]; C] };

    #[inline(always)]
    fn add(&mut self, c: usize, r: f32, from: [f32; D]) {
        self.weight[c] += r;
        each(D, |i| {
            let part = r * from[i];
            self.first[c][i] += part;
            each(i + 1, |j| {
                let at = i * (i + 1) / 2 + j;
                self.second[c][at] = Real::fma(part, from[j], self.second[c][at]);
            });
        });
    }

    /// Adds the lanes' sums to the warp's, and starts anew: 32 numbers at a time pass through shared memory, and each lane adds
    /// up one of them.
    #[inline(always)]
    fn flush(&mut self, Mine { totals: to, crossing, lane, .. }: Mine) {
        let mut i = 0;
        let last = (C as u32) * sums_len(D as u32) - 1;
        let mut one = |v: f32| {
            crossing.store(i % WARP * CROSSING + lane, v);
            if i % WARP == WARP - 1 || i == last {
                let at = i - i % WARP + lane;
                warp::sync_warp();
                if at <= last {
                    let mut sum = to.load(at);
                    let mut from = 0;
                    while from < WARP {
                        sum += crossing.load(lane * CROSSING + from).to_f64();
                        from += 1;
                    }
                    to.store(at, sum);
                }
                warp::sync_warp();
            }
            i += 1;
        };
        each(C, |c| {
            one(self.weight[c]);
            each(D, |i| one(self.first[c][i]));
            each(S, |i| one(self.second[c][i]));
        });
        *self = Self::NOTHING;
    }
}

/// Rows of a lane, from device memory: the tile is filled up with zeros past the last.
#[inline(always)]
unsafe fn fetch<const D: usize, const R: usize>(x: *const f32, some: u32, lane: u32) -> [[f32; D]; R] {
    let in_tile = TILE_ROWS / (R as u32 * WARP);
    let (tile, part) = (some / in_tile, some % in_tile);
    let from = x.wrapping_add((tile as u64 * (TILE_ROWS as u64 * D as u64)) as usize);
    let mut out = [[0.0; D]; R];
    each(R, |r| {
        each(D, |j| {
            let at = j as u32 * TILE_ROWS + (part * R as u32 + r as u32) * WARP + lane;
            // SAFETY: a tile of the rows.
            out[r][j] = unsafe { device::load(from, at as u64) };
        });
    });
    out
}

/// What a warp has of a lane's rows' sums: neighbours in shared memory, read as one.
struct Share;

impl Share {
    #[inline(always)]
    fn store<const R: usize>(at: u32, v: [f32; R]) {
        match R {
            2 => {
                let both = (v[R - 1].to_bits() as u64) << 32 | v[0].to_bits() as u64;
                Shared::<f64>::at(at).store(0, f64::from_bits(both));
            }
            4 => Shared::<f32>::at(at).store4(0, [v[0], v[1 % R], v[2 % R], v[3 % R]]),
            _ => each(R, |r| Shared::<f32>::at(at).store(r as u32, v[r])),
        }
    }

    #[inline(always)]
    fn load<const R: usize>(at: u32) -> [f32; R] {
        let mut out = [0.0; R];
        match R {
            2 => {
                let both = Shared::<f64>::at(at).load(0).to_bits();
                out[0] = f32::from_bits(both as u32);
                out[R - 1] = f32::from_bits((both >> 32) as u32);
            }
            4 => {
                let all = Shared::<f32>::at(at).load4(0);
                each(R, |r| out[r] = all[r % 4]);
            }
            _ => each(R, |r| out[r] = Shared::<f32>::at(at).load(r as u32)),
        }
        out
    }
}

/// What warps have of the rows' sums, put together.
#[inline(always)]
fn exchange<const R: usize>(which: u32, warps: u32, own: [f32; R], with: impl Fn(f32, f32) -> f32) -> [f32; R] {
    let t = thread::thread_idx_x_anew();
    let bytes = 4 * R as u32;
    let at = device::unknown(SHARES + which % 2 * shares_len(R as u32) + t % WARP * bytes);
    Share::store(at + t / WARP * WARP * bytes, own);
    thread::sync_threads();
    let (at, warps) = (device::unknown(at), device::unknown(warps));
    let mut all = [0.0; R];
    // Written out, in fours: a loop's count and place would take registers.
    each(MOST_WARPS as usize / 4, |four| {
        if 4 * (four as u32) < warps {
            each(4, |i| {
                let w = (4 * four + i) as u32;
                if w < warps {
                    let some = Share::load::<R>(at + w * WARP * bytes);
                    each(R, |r| all[r] = if w == 0 { some[r] } else { with(all[r], some[r]) });
                }
            });
        }
    });
    all
}

/// Who a thread is, and what is its warp's.
#[derive(Clone, Copy)]
struct Mine {
    lane: u32,
    warp: u32,
    /// In bytes: its components'.
    parameters: u32,
    totals: Shared<f64>,
    likelihood: Shared<f64>,
    crossing: Shared<f32>,
}

impl Mine {
    /// Found anew each time: what is kept, with a place for each component, would take registers of which there are none.
    #[inline(always)]
    fn new<const D: usize, const C: usize, const R: usize>() -> Self {
        let t = thread::thread_idx_x_anew();
        let part = const { Part::new(D as u32, C as u32) };
        let parameters = first(R as u32) + t / WARP * part.end;
        Self {
            lane: t % WARP,
            warp: t / WARP,
            parameters,
            totals: Shared::at(parameters + part.sums),
            likelihood: Shared::at(parameters + part.likelihood),
            crossing: Shared::at(parameters + part.crossing),
        }
    }
}

/// Where a component's parameters and sums are, of all the block's.
#[inline(always)]
fn of_component<const D: usize, const C: usize, const R: usize>(c: u32) -> (Shared<f32>, Shared<f64>) {
    let part = const { Part::new(D as u32, C as u32) };
    let (from, i) = (first(R as u32) + c / C as u32 * part.end, c % C as u32);
    (Shared::at(from + 4 * i * parameters(D as u32)), Shared::at(from + part.sums + 8 * i * sums_len(D as u32)))
}

/// Parameters as [`Terms`] has them, and the largest of the constants, into shared memory. All threads.
#[inline(always)]
unsafe fn prepare<const D: usize, const S: usize, const C: usize, const R: usize>(a: &Narrow) {
    let t = thread::thread_idx_x();
    let scratch = Shared::<f64>::at(SHARES);
    let mut top = f64::NEG_INFINITY;
    let mut c = t;
    while c < a.k {
        // SAFETY: `c < k`.
        top = larger(top, unsafe { device::load(a.constants, c as u64) });
        c += thread::block_dim_x();
    }
    each(5, |by| top = larger(top, warp::shuffle_xor(top, 1 << by)));
    if t % WARP == 0 {
        scratch.store(t / WARP, top);
    }
    thread::sync_threads();
    let mut w = 0;
    while w < a.warps {
        top = larger(top, scratch.load(w));
        w += 1;
    }
    let mut c = t;
    while c < C as u32 * a.warps {
        let (to, _) = of_component::<D, C, R>(c);
        let mut mean = [0.0; D];
        let mut rest = [0.0; D];
        let mut root = [0.0; S];
        let mut constant = f32::NEG_INFINITY;
        if c < a.k {
            // SAFETY: `c < k`.
            unsafe {
                constant = ((device::load(a.constants, c as u64) - top) * core::f64::consts::LOG2_E) as f32;
                let mut left = [0.0; D];
                each(D, |j| {
                    let exact = device::load(a.means, c as u64 * D as u64 + j as u64);
                    mean[j] = exact as f32;
                    left[j] = exact - mean[j].to_f64();
                });
                each(D, |i| {
                    each(i + 1, |j| {
                        let entry = i * (i + 1) / 2 + j;
                        // √(½ log₂ e), so that a square is half a square in binary logarithms.
                        let v = device::load(a.roots, c as u64 * S as u64 + entry as u64) * 0.849_321_800_288_019_3;
                        root[entry] = v as f32;
                        rest[i] -= v * left[j];
                    });
                });
            }
        }
        each(D, |j| {
            to.store(j as u32, mean[j]);
            to.store((D + j) as u32, rest[j] as f32);
        });
        to.store(2 * D as u32, constant);
        each(S, |i| to.store((2 * D + 1 + i) as u32, root[i]));
        let mut i = (2 * D + 1 + S) as u32;
        while i < parameters(D as u32) {
            to.store(i, 0.0);
            i += 1;
        }
        c += thread::block_dim_x();
    }
    if t == 0 {
        Shared::<f64>::at(TOP).store(0, top * core::f64::consts::LOG2_E);
    }
    thread::sync_threads();
}

/// The kernel: `D` columns, `S` the length of a packed matrix, `C` components of a warp, `R` rows of a lane.
///
/// # Safety
/// As the fields of [`Narrow`] say.
#[inline(always)]
unsafe fn body<const D: usize, const S: usize, const C: usize, const R: usize>(a: Narrow) {
    const { assert!(S as u64 == packed_len(D as u32) && parameters(D as u32) <= 16) };
    device::await_previous_grid();
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    // SAFETY: as the fields say.
    unsafe { prepare::<D, S, C, R>(&a) };
    let mine = Mine::new::<D, C, R>();
    let mut i = mine.lane;
    while i < C as u32 * sums_len(D as u32) {
        mine.totals.store(i, 0.0);
        i += WARP;
    }
    mine.likelihood.store(mine.lane, 0.0);
    warp::sync_warp();

    let place = |own: u32, c: usize| Shared::<f32>::at(own + 4 * c as u32 * parameters(D as u32));
    let terms = |own: u32, c: usize| Terms::<D, S>::load(place(own, c));
    let mut sums = Sums::<D, S, C>::NOTHING;
    // So many rows as would pass 32 bits here no device holds.
    let all = a.n.div_ceil(WARP as u64 * R as u64) as u32;
    let mut now = thread::block_idx_x();
    let (mut done, mut turn) = (0, 0);
    let mut x = [[0.0; D]; R];
    if now < all {
        // SAFETY: rows that there are, here and below.
        x = unsafe { fetch(a.x, now, mine.lane) };
    }
    while now < all {
        let mine = Mine::new::<D, C, R>();
        let mut e = [[0.0; R]; C];
        let mut sum = [0.0; R];
        each(C, |c| {
            let terms = terms(mine.parameters, c);
            each(R, |r| {
                e[c][r] = exp2_f32(terms.density(x[r]));
                sum[r] += e[c][r];
            });
        });
        let mut total = exchange(done, a.warps, sum, |a, b| a + b);
        let mine = Mine::new::<D, C, R>();
        let first = device::unknown(now) as u64 * (WARP as u64 * R as u64);
        // Of the 64 rows.
        let there =
            if a.n - first < (WARP as u64 * R as u64) { (a.n - first) as u32 } else { (WARP as u64 * R as u64) as u32 };
        let row = |r: usize| r as u32 * WARP + mine.lane;
        let mut about = [0.0; R];
        let mut low = false;
        // Also where it is not a number.
        each(R, |r| low |= row(r) < there && !(total[r] >= LOW));
        if warp::any(low) {
            // All warps see the same sums, so all come here together.
            let mut most = [f32::NEG_INFINITY; R];
            each(C, |c| {
                let terms = terms(mine.parameters, c);
                each(R, |r| most[r] = larger(most[r], terms.density(x[r])));
            });
            about = exchange(done + 1, a.warps, most, larger);
            sum = [0.0; R];
            let mine = Mine::new::<D, C, R>();
            each(C, |c| {
                let terms = terms(mine.parameters, c);
                each(R, |r| {
                    e[c][r] = exp2_f32(terms.density(x[r]) - about[r]);
                    sum[r] += e[c][r];
                });
            });
            total = exchange(done, a.warps, sum, |a, b| a + b);
        }
        let mut share = [0.0; R];
        let mut weight = [0.0; R];
        each(R, |r| {
            // SAFETY: the weights are as the arguments' field says.
            weight[r] = unsafe { row_weight(a.row_weights, a.n, first + row(r) as u64) };
            // Not a number where a density is: it shows in the sums, and the pass is made another way.
            share[r] = if weight[r] > 0.0 { weight[r] as f32 * reciprocal_f32(total[r]) } else { 0.0 };
        });
        // The warps take turns with the likelihood.
        if turn == mine.warp {
            let mut likelihood = mine.likelihood.load(mine.lane);
            let top = Shared::<f64>::at(TOP).load(0);
            each(R, |r| {
                let log = top + (about[r] + log2_f32(total[r])).to_f64();
                likelihood += if weight[r] > 0.0 { weight[r] * log } else { 0.0 };
            });
            mine.likelihood.store(mine.lane, likelihood);
        }
        turn = if turn + 1 == a.warps { 0 } else { turn + 1 };
        now += thread::grid_dim_x();
        let mut next = x;
        let mine = Mine::new::<D, C, R>();
        each(C, |c| {
            if c == C / 2 && now < all {
                // Sent for when half of the exponentials need no registers any more.
                // SAFETY: as above.
                next = unsafe { fetch(a.x, now, mine.lane) };
            }
            let mean = place(mine.parameters, c).load4(0);
            each(R, |r| {
                let mut from = [0.0; D];
                each(D, |j| from[j] = x[r][j] - mean[j]);
                sums.add(c, e[c][r] * share[r], from);
            });
        });
        x = next;
        done += 1;
        if done % FLUSH == 0 {
            sums.flush(Mine::new::<D, C, R>());
        }
    }
    let mine = Mine::new::<D, C, R>();
    sums.flush(mine);
    let mut likelihood = mine.likelihood.load(mine.lane) * core::f64::consts::LN_2;
    each(5, |by| likelihood += warp::shuffle_xor(likelihood, 1 << by));
    let likelihoods = Shared::<f64>::at(SHARES);
    thread::sync_threads();
    if mine.lane == 0 {
        likelihoods.store(mine.warp, likelihood);
    }
    let out = Out { a: &a, place: Place::full(1, a.groups) };
    // SAFETY: the block's own piece.
    unsafe { out.clear() };
    thread::sync_threads();
    let c = mine.warp * C as u32 + mine.lane;
    if mine.lane < C as u32 && c < a.k {
        // SAFETY: as above, and no other thread has this component.
        unsafe { out.component::<D, C, R>(c) };
    }
    if mine.warp == 0 && mine.lane == 0 {
        let mut total = 0.0;
        let mut w = 0;
        while w < a.warps {
            total += likelihoods.load(w);
            w += 1;
        }
        // SAFETY: as above.
        unsafe { out.put(out.place.log_likelihood(), total) };
    }
}

/// A block's partial result.
struct Out<'a> {
    a: &'a Narrow,
    place: Place,
}

impl Out<'_> {
    #[inline(always)]
    unsafe fn put(&self, i: u64, v: f64) {
        // SAFETY: a piece of `sums` numbers for each block.
        unsafe { device::store(self.a.partials, thread::block_idx_x() as u64 * self.place.sums() + i, v) };
    }

    /// Zeros, of which most remain: features that few columns do not have.
    #[inline(always)]
    unsafe fn clear(&self) {
        let mut i = thread::thread_idx_x() as u64;
        while i < self.place.sums() {
            // SAFETY: the caller's promise.
            unsafe { self.put(i, 0.0) };
            i += thread::block_dim_x() as u64;
        }
    }

    /// A component's sums, about the shift.
    #[inline(always)]
    unsafe fn component<const D: usize, const C: usize, const R: usize>(&self, c: u32) {
        let (means, sums) = of_component::<D, C, R>(c);
        let p = self.place;
        let weight = sums.load(0);
        let mut mean = [0.0; D];
        let mut first = [0.0; D];
        each(D, |j| (mean[j], first[j]) = (means.load(j as u32).to_f64(), sums.load(1 + j as u32)));
        // SAFETY: the caller's promise.
        unsafe {
            self.put(p.weight(c), weight);
            each(D, |i| {
                self.put(p.entry_sum(i as u32, c), first[i] + mean[i] * weight);
                each(i + 1, |j| {
                    let own = sums.load(1 + D as u32 + packed_index(i as u32, j as u32) as u32);
                    let moved = mean[i] * first[j] + mean[j] * first[i] + mean[i] * mean[j] * weight;
                    self.put(p.product_sum(i as u32, j as u32, c), own + moved);
                });
            });
        }
    }
}
