//! Log-likelihoods of many mixtures of diagonal covariances over the same rows, in `f32`, by products of slices.
//!
//! Entries, their squares and the coefficients of both are fixed-point numbers of three *slices* that half precision holds
//! exactly: whole numbers up to [`LEVEL`], what is left in units of 2⁻¹², and what is left of that. The tensor cores multiply
//! slices and add up in `f32`: the first with the first are whole numbers below 2²⁴, so that the large terms of a density and
//! its constant cancel without any rounding; all other products are small. What comes out has the digits of `f32` where the
//! sum has them, not where its terms do, at a fraction of what products in `f64` cost.
//!
//! Rows are scaled by powers of two, column by column, and a component's coefficients by one *step*: the host sees to it that
//! nothing is larger than [`LEVEL`], and takes this way where the step is at most [`LARGEST_STEP`].
//!
//! Four warps take 64 rows at a time, form their slices once, and go over all mixtures of their *unit* with them, eight tiles of
//! eight components at a time; up to four mixtures share the sums over components among the four lanes that have a row.
//! Exponentials are taken of logarithms to base 2 as they are: the host takes a number from all of a mixture's constants, near
//! what its rows typically have. Where a row has less than 2⁻⁶⁰ of that, it is done again about its largest component.
//!
//! A mixture's value is to the bit the same in a unit of any size: what decides is the grid in `x`. The last block to end
//! adds up what all have left, in a fixed order.

use crate::device::mma::{SLICED_TILE, products_of_slices, stores_before_products, to_halves};
use crate::device::{self, Shared, WARP, thread, warp, words};
use crate::each::each;
use crate::em::lanes::across;
use crate::layout::TILE_ROWS;

kernels! {
    /// Units of mixtures over all rows; a grid of any number of blocks in `x`, and of the units in `y`.
    Slices {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions, at most [`COLUMNS`].
        d: u32,
        /// Tiles of a mixture: 1, 2, 4 or 8.
        tiles: u32,
        /// Mixtures of a unit, in whole eights of tiles.
        sets: u32,
        /// `(units, unit_len(tiles, sets))`, 16-byte aligned: see [`HEADER`] and [`Tile`]. The counter in each header is written.
        units: *mut f64,
        /// Numbers between a block's partial results and those of the next.
        stride: u64,
        /// `(blocks, stride)`: of each unit's mixtures the first numbers of each block's, written.
        partials: *mut f64,
        /// `(units*sets,)`, written: Σ ln p(x) less what the host took from the constants, once a row.
        values: *mut f64,
    }
    /// Mixtures of up to eight components.
    scores_slices_1 => body::<1, 4, 8>, shared_bytes, threads;
    /// Up to 16.
    scores_slices_2 => body::<2, 4, 4>, shared_bytes, threads;
    /// Up to 32.
    scores_slices_4 => body::<4, 2, 2>, shared_bytes, threads;
    /// Up to 64.
    scores_slices_8 => body::<8, 1, 1>, shared_bytes, threads;
}

/// Columns that there is room for: the place of one more has the constants.
pub const COLUMNS: u32 = 15;

/// Entries, squares over this, and coefficients are at most this large.
pub const LEVEL: f32 = 512.0;

/// What a component's step is at most: the error of a row's log density, some 3e-4 steps of a bit, is then below 1e-5.
pub const LARGEST_STEP: f64 = 1.0 / 32.0;

/// What a constant over its step is at most: whole numbers below 2²⁴ have room for it beside products.
pub const LARGEST_CONSTANT: f64 = 2_097_152.0;

/// What the first part of a constant is multiplied with; the second is what is left of it.
pub const CONSTANT: f32 = 1024.0;

/// Numbers before a unit's tiles: what to multiply each column with, [`COLUMNS`] of them and one of no meaning, then a counter in four
/// bytes of 0.
pub const HEADER: u64 = COLUMNS as u64 + 3;

/// Eight components of a mixture as they come from the host: places of numbers.
pub struct Tile;

impl Tile {
    /// Numbers.
    pub const LEN: u64 = 2 * PAIRS as u64 + 8;

    /// The coefficient of entry `j` of a component, times the column's size over the step; that of its square comes next.
    pub const fn entry(j: u32, component: u32) -> u64 {
        (j / 4 * WARP + component * 4 + j % 4) as u64 * 2
    }

    /// The constant over the step, to base 2, in two parts: a whole number of [`CONSTANT`]s, and what is left.
    pub const fn constant(component: u32) -> u64 {
        Self::entry(COLUMNS, component)
    }

    /// The step.
    pub const fn step(component: u32) -> u64 {
        (2 * PAIRS + component) as u64
    }
}

/// Tiles of a mixture of `k` components: as many as a kernel is for; none where there is none.
pub const fn tiles(k: u32) -> Option<u32> {
    match k.div_ceil(8) {
        tiles @ (1 | 2) => Some(tiles),
        3 | 4 => Some(4),
        5..=8 => Some(8),
        _ => None,
    }
}

/// Mixtures whose tiles are multiplied together.
pub const fn together(tiles: u32) -> u32 {
    8 / tiles
}

/// Numbers of a unit.
pub const fn unit_len(tiles: u32, sets: u32) -> u64 {
    HEADER + (sets * tiles) as u64 * Tile::LEN
}

/// Threads of a block.
pub const THREADS: u32 = 512;
const WARPS: u32 = THREADS / WARP;

/// Warps that take rows together.
const GROUP: u32 = 4;
/// Rows that they take at a time.
pub const ROWS: u32 = 16 * GROUP;

/// Pairs of coefficients in a tile.
const PAIRS: u32 = 4 * WARP;

/// Mixtures that share the sums of a row among its lanes.
const fn shared_sums(tiles: u32) -> u32 {
    match together(tiles) {
        8 => 4,
        others => others,
    }
}

/// Bytes of shared memory of a block: tiles, their steps, and each thread's sums.
pub const fn shared_len(tiles: u32, sets: u32) -> u64 {
    (sets * tiles * (SLICED_TILE + 8)) as u64 * 4 + (sets / shared_sums(tiles)) as u64 * THREADS as u64 * 8
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Slices) -> u64 {
    shared_len(a.tiles, a.sets)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Slices) -> u32 {
    THREADS
}

/// The kernel for mixtures of so many tiles.
///
/// # Panics
/// Where there is none; [`tiles`] gives those that there are.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(tiles: u32) -> crate::Kernel<Slices> {
    match tiles {
        1 => scores_slices_1(),
        2 => scores_slices_2(),
        4 => scores_slices_4(),
        8 => scores_slices_8(),
        _ => panic!("{tiles} tiles"),
    }
}

/// What rounds to whole numbers, and to units of 2⁻¹², where it is added and taken away again.
const WHOLE: f32 = 12_582_912.0;
const FINE: f32 = 3072.0;
const WHOLE_F64: f64 = 6_755_399_441_055_744.0;
const FINE_F64: f64 = 1_649_267_441_664.0;

#[inline(always)]
fn slices(v: f32) -> [f32; 3] {
    let first = (v + WHOLE) - WHOLE;
    let left = v - first;
    let second = (left + FINE) - FINE;
    [first, second, left - second]
}

#[inline(always)]
fn slices_f64(v: f64) -> [f32; 3] {
    let first = (v + WHOLE_F64) - WHOLE_F64;
    let left = v - first;
    let second = (left + FINE_F64) - FINE_F64;
    [first as f32, second as f32, (left - second) as f32]
}

/// Of a lane's two rows the operands of each slice: a word has an entry and its square.
type Rows = [[u32; 8]; 3];

/// Numbers of a lane's four columns in its two rows.
type Arriving = [[f32; 2]; 4];

/// Sends for a lane's rows of 64: neighbours, `2*(lane / 4)` on from its warp's first.
#[inline(always)]
unsafe fn arrive(a: &Slices, group: u32, inside: u32, lane: u32) -> Arriving {
    const GROUPS: u32 = TILE_ROWS / ROWS;
    let inside = group % GROUPS * ROWS + inside;
    let from = a.x.wrapping_add(((group / GROUPS) as u64 * (a.d * TILE_ROWS) as u64 + inside as u64) as usize);
    let mut out = [[0.0; 2]; 4];
    each(4, |i| {
        let column = 4 * i as u32 + lane % 4;
        if column < a.d {
            // SAFETY: the group is one of the rows', and its tile is filled up; the first row is even.
            let two: f64 = unsafe { device::load(from.cast(), (column * TILE_ROWS / 2) as u64) };
            out[i] = [f32::from_bits(two.to_bits() as u32), f32::from_bits((two.to_bits() >> 32) as u32)];
        }
    });
    out
}

#[inline(always)]
fn cut(x: &Arriving, scales: &[f32; 4], lane: u32) -> Rows {
    let mut out = [[0; 8]; 3];
    each(4, |i| {
        each(2, |row| {
            let v = x[i][row] * scales[i];
            let part = v * (1.0 / LEVEL);
            let square = part * v;
            let (mut w, rounded) = (slices(square), words::fma_f32(part, v, -square));
            w[2] += rounded;
            let v = slices(v);
            each(3, |s| out[s][2 * i + row] = to_halves(v[s], w[s]));
            if i == 3 && lane % 4 == 3 {
                // What constants are multiplied with.
                out[0][2 * i + row] = to_halves(CONSTANT, 1.0);
            }
        });
    });
    out
}

/// Coefficients of the block's mixtures, as operands; then their steps.
#[inline(always)]
unsafe fn cut_coefficients(from: *const f64, all: u32) {
    let (words, t) = (Shared::<f32>::at(0), thread::thread_idx_x());
    let mut i = t;
    while i < all * PAIRS {
        let (tile, pair) = (i / PAIRS, i % PAIRS);
        let at = tile as u64 * Tile::LEN + 2 * pair as u64;
        // SAFETY: one of the unit's tiles.
        let [v, w] = unsafe { [device::load(from, at), device::load(from, at + 1)] };
        let (v, w) = (slices_f64(v), slices_f64(w));
        each(3, |s| words.store(tile * SLICED_TILE + s as u32 * PAIRS + pair, f32::from_bits(to_halves(v[s], w[s]))));
        i += THREADS;
    }
    let mut i = t;
    while i < all * 8 {
        let at = (i / 8) as u64 * Tile::LEN + Tile::step(i % 8);
        // SAFETY: as above.
        words.store(all * SLICED_TILE + i, unsafe { device::load(from, at) } as f32);
        i += THREADS;
    }
    stores_before_products();
}

/// The least sum that is taken as it is: of two such rows the product is normal.
const LEAST: f32 = f32::from_bits((127 - 60) << 23);

/// The sum of two rows' binary logarithms under one mixture, each about its largest component's.
#[inline(always)]
fn about_the_largest<const TILES: usize>(joint: &[f32; 32], first: usize, lane: u32, there: u32) -> f32 {
    let mut top = [f32::MIN; 2];
    each(TILES, |tile| {
        each(2, |row| {
            let at = 4 * (first + tile) + 2 * row;
            top[row] = top[row].max(joint[at]).max(joint[at + 1]);
        });
    });
    each(2, |row| each(2, |i| top[row] = top[row].max(warp::shuffle_xor(top[row], 1 << i))));
    let mut sums = [0.0; 2];
    each(TILES, |tile| {
        each(2, |row| {
            each(2, |odd| {
                sums[row] += words::exp2_approx_f32(joint[4 * (first + tile) + 2 * row + odd] - top[row]);
            });
        });
    });
    let mut out = 0.0;
    each(2, |row| {
        let sum = across::<1>([sums[row], 0.0, 0.0, 0.0], lane);
        out += if (row as u32) < there { top[row] + words::log2_approx_f32(sum) } else { 0.0 };
    });
    out
}

/// Binary logarithms of a lane's two rows, of which so many are `there`, added up, under mixture `first + lane % G` of `G`, from joint densities of `TILES` tiles each.
#[inline(always)]
fn logarithms<const G: usize, const TILES: usize>(joint: &[f32; 32], first: usize, lane: u32, there: u32) -> f32 {
    let mut totals = [1.0_f32; 2];
    each(2, |row| {
        let mut sums = [0.0; 4];
        each(G, |set| {
            each(TILES, |tile| {
                let at = 4 * ((first + set) * TILES + tile) + 2 * row;
                let two = words::exp2_approx_f32(joint[at]) + words::exp2_approx_f32(joint[at + 1]);
                sums[set] = if tile == 0 { two } else { sums[set] + two };
            });
        });
        let total = across::<G>(sums, lane);
        totals[row] = if (row as u32) < there { total } else { 1.0 };
    });
    let well = totals[0].min(totals[1]) >= LEAST;
    let mut out = words::log2_approx_f32(totals[0] * totals[1]);
    if warp::any(!well) {
        each(G, |set| {
            let again = about_the_largest::<TILES>(joint, (first + set) * TILES, lane, there);
            // Each for itself, so that a mixture's bits are its own.
            if !well && lane as usize % G == set {
                out = again;
            }
        });
    }
    out
}

/// The kernel of mixtures of `TILES` tiles, `ONCE` of which are multiplied together, and `G` share sums.
///
/// # Safety
/// As the fields of [`Slices`] say.
#[inline(always)]
unsafe fn body<const TILES: usize, const G: usize, const ONCE: usize>(a: Slices) {
    const { assert!(ONCE as u32 == together(TILES as u32) && G as u32 == shared_sums(TILES as u32)) };
    let (of_row, at_once, tiles) = (G as u32, ONCE as u32, TILES as u32);
    device::await_previous_grid();
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let (unit, sets) = (thread::block_idx_y(), a.sets);
    let from = a.units.wrapping_add((unit as u64 * unit_len(tiles, sets)) as usize);

    // So many rows as would pass 32 bits here no device holds. The four warps of a group stay together.
    let groups = a.n.div_ceil(ROWS as u64) as u32;
    let inside = me % GROUP * 16 + lane / 4 * 2;
    let step = || thread::grid_dim_x_anew() * (WARPS / GROUP);
    // SAFETY: one of the groups.
    let send = |group: u32| unsafe { arrive(&a, group, inside, lane) };
    let mut group = thread::block_idx_x() * (WARPS / GROUP) + me / GROUP;
    // SAFETY: the unit's.
    unsafe { cut_coefficients(from.cast_const().wrapping_add(HEADER as usize), sets * tiles) };
    let steps = Shared::<f64>::at(sets * tiles * SLICED_TILE * 4);
    let sums = Shared::<f64>::at(sets * tiles * (SLICED_TILE + 8) * 4);
    let mut set = 0;
    while set < sets {
        sums.store(set / of_row * THREADS + t, 0.0);
        set += of_row;
    }
    thread::sync_threads();

    while group < groups {
        // Found anew here and below, so that no registers hold what is made of them.
        let lane_here = device::unknown(lane);
        let from = a.units.wrapping_add((device::unknown(unit) as u64 * unit_len(tiles, sets)) as usize);
        // SAFETY: the unit's header.
        let scale = |i: u32| unsafe { device::load(from.cast_const(), (4 * i + lane_here % 4) as u64) as f32 };
        let scales = [0, 1, 2, 3].map(scale);
        // Other warps multiply meanwhile.
        let rows = cut(&send(group), &scales, lane);
        let first = group as u64 * ROWS as u64 + inside as u64;
        let there = a.n.saturating_sub(first).min(2) as u32;
        group += step();
        let mut set = 0;
        while set < sets {
            let mut joint = [0.0; 32];
            let lane = device::unknown(lane);
            products_of_slices(&rows, set * tiles * SLICED_TILE * 4, |tile, whole, rest| {
                let two = steps.load((set * tiles + tile as u32) * 4 + lane % 4).to_bits();
                let steps = [f32::from_bits(two as u32), f32::from_bits((two >> 32) as u32)];
                each(4, |v| joint[4 * tile + v] = (whole[v] + rest[v]) * steps[v % 2]);
            });
            each(ONCE / G, |i| {
                let more = logarithms::<G, TILES>(&joint, i * G, lane, there);
                let at = (set / of_row + i as u32) * THREADS + thread::thread_idx_x_anew();
                sums.store(at, sums.load(at) + more as f64);
            });
            set += at_once;
        }
    }

    // The warps' sums, where the coefficients were.
    thread::sync_threads();
    let all = Shared::<f64>::at(0);
    let mut set = 0;
    while set < sets {
        let mut sum = sums.load(set / of_row * THREADS + t);
        each(3, |i| sum += warp::shuffle_xor(sum, 4 << i));
        if lane < of_row {
            all.store(me * sets + set + lane, sum);
        }
        set += of_row;
    }
    thread::sync_threads();
    if t < sets {
        let mut sum = 0.0;
        each(WARPS as usize, |w| sum += all.load(w as u32 * sets + t));
        let at = thread::block_idx_x() as u64 * a.stride + (unit * sets + t) as u64;
        // SAFETY: one of the unit's mixtures, among this block's.
        unsafe { device::store(a.partials, at, sum * core::f64::consts::LN_2) };
    }
    thread::sync_threads();
    let blocks = thread::grid_dim_x();
    if t == 0 {
        let counter: *mut u32 = from.wrapping_add(COLUMNS as usize + 1).cast();
        // SAFETY: the unit's header.
        let before = unsafe { device::count_block(counter) };
        all.store(0, if before == blocks - 1 { 1.0 } else { 0.0 });
    }
    thread::sync_threads();
    if all.load(0) != 0.0 {
        // SAFETY: all blocks have written theirs.
        unsafe { total(&a, unit, sets, blocks) };
    }
}

/// The unit's values from what all blocks have: a warp has a mixture at a time.
#[inline(always)]
unsafe fn total(a: &Slices, unit: u32, sets: u32, blocks: u32) {
    /// Partial results that a lane reads together, so that their latencies pass together.
    const TOGETHER: usize = 5;
    let (lane, mut set) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    while set < sets {
        let (mut sum, at) = (0.0, (unit * sets + set) as u64);
        let mut block = lane;
        while block < blocks.next_multiple_of(WARP) {
            let mut some = [0.0; TOGETHER];
            each(TOGETHER, |i| {
                let block = block + i as u32 * WARP;
                if block < blocks {
                    // SAFETY: one of the blocks'.
                    some[i] = unsafe { device::load(a.partials.cast_const(), block as u64 * a.stride + at) };
                }
            });
            each(TOGETHER, |i| sum += some[i]);
            block += TOGETHER as u32 * WARP;
        }
        each(5, |i| sum += warp::shuffle_xor(sum, 1 << i));
        if lane == 0 {
            // SAFETY: one of the unit's mixtures.
            unsafe { device::store(a.values, at, sum) };
        }
        set += WARPS;
    }
}
