//! Log-likelihoods of many mixtures with diagonal covariances over the same rows, for `f32`, with fixed-point products.
//!
//! Entries, their squares and the coefficients of both are fixed-point numbers of three *slices*, each exact in fp16:
//! an integer of size up to [`LEVEL`], the remainder in units of 2⁻¹², and the remainder of that. The tensor cores
//! multiply slices and add in `f32`. Products of two first slices are integers whose sums stay below 2²⁴, so that the
//! large terms of a density and its constant cancel exactly; all other products are small. The result has `f32`
//! precision relative to the density and not to its largest term, at a fraction of the cost of `f64` products.
//!
//! Rows are scaled by powers of two per column, and a component's coefficients by one *step*. The host ensures that
//! nothing exceeds [`LEVEL`], and uses this path only if the step is at most [`LARGEST_STEP`].
//!
//! Four warps take 64 rows at a time, compute their slices once, and loop over all mixtures of their *unit*, eight
//! tiles of eight components at a time. Up to four mixtures distribute their sums over components among the four lanes
//! of a row. Exponentials are taken without subtracting a maximum. Instead, the host subtracts a number close to a
//! typical row's log density (to base 2) from all of a mixture's constants. A row whose sum is below 2⁻⁶⁰ is recomputed
//! relative to its largest component.
//!
//! A mixture's value has the same bits in a unit of any size; it depends only on the grid size in `x`. The last block
//! to end adds up the sums of all blocks, in a fixed order.

use crate::device::mma::{SLICED_TILE, products_of_slices, products_one_by_one, stores_before_products, to_halves};
use crate::device::{self, Shared, WARP, thread, warp, words};
use crate::each::each;
use crate::em::lanes::across;
use crate::layout::TILE_ROWS;
use crate::log_likelihood::fixed_point_sums;

kernels! {
    /// Units of mixtures over all rows; any number of blocks along `x`, and one per unit along `y`.
    FixedPointPass {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions, at most [`COLUMNS`].
        d: u32,
        /// Tiles per mixture: 1, 2, 4 or 8.
        tiles: u32,
        /// Mixtures per unit; `sets*tiles` is a multiple of 8.
        sets: u32,
        /// `(units, unit_len(tiles, sets))`, 16-byte aligned: see [`HEADER`] and [`Tile`]. The counter in each header
        /// is written.
        units: *mut f64,
        /// Distance between the partial results of consecutive blocks, in numbers.
        stride: u64,
        /// `(blocks, stride)`, written: the first numbers of a block are the sums of each unit's mixtures.
        partials: *mut f64,
        /// `(units*sets,)`, written: Σ ln p(x), without the per-row number that the host subtracted from the constants.
        values: *mut f64,
    }
    /// Mixtures of up to eight components.
    fixed_point_1 => body::<false, 1, 4, 8>, shared_bytes, threads;
    /// Up to 16.
    fixed_point_2 => body::<false, 2, 4, 4>, shared_bytes, threads;
    /// Up to 32.
    fixed_point_4 => body::<false, 4, 2, 2>, shared_bytes, threads;
    /// Up to 64.
    fixed_point_8 => body::<false, 8, 1, 1>, shared_bytes, threads;
    /// As [`fixed_point_1`] and so on, with products of warpgroups.
    wgmma_fixed_point_1 => body::<true, 1, 4, 8>, shared_bytes, threads;
    /// Up to 16.
    wgmma_fixed_point_2 => body::<true, 2, 4, 4>, shared_bytes, threads;
    /// Up to 32.
    wgmma_fixed_point_4 => body::<true, 4, 2, 2>, shared_bytes, threads;
    /// Up to 64.
    wgmma_fixed_point_8 => body::<true, 8, 1, 1>, shared_bytes, threads;
}

/// Most columns: one more column holds the constants.
pub const COLUMNS: u32 = 15;

/// Largest size of entries, of coefficients, and of squares divided by it.
pub const LEVEL: f32 = 512.0;

/// Largest step of a component: the error of a row's log density, about 3e-4 times the step (in bits), is then below
/// 1e-5.
pub const LARGEST_STEP: f64 = 1.0 / 32.0;

/// Largest constant divided by its step: sums below 2²⁴ then have room for it besides the products.
pub const LARGEST_CONSTANT: f64 = 2_097_152.0;

/// Factor of the first part of a constant; the second part is the remainder.
pub const CONSTANT: f32 = 1024.0;

/// Numbers in front of a unit's tiles: the scales of [`COLUMNS`] columns, one unused number, and a counter in four
/// bytes, initially 0.
pub const HEADER: u64 = COLUMNS as u64 + 3;

/// Eight components of a mixture as the host passes them: positions of their numbers.
pub struct Tile;

impl Tile {
    /// Length of a tile, in numbers.
    pub const LEN: u64 = 2 * PAIRS as u64 + 8;

    /// Position of a component's coefficient of entry `j`, times the column's size over the step; that of the square
    /// follows.
    pub const fn entry(j: u32, component: u32) -> u64 {
        (j / 4 * WARP + component * 4 + j % 4) as u64 * 2
    }

    /// Position of the constant over the step, to base 2, in two parts: a whole number of [`CONSTANT`]s, and the
    /// remainder.
    pub const fn constant(component: u32) -> u64 {
        Self::entry(COLUMNS, component)
    }

    /// Position of the step.
    pub const fn step(component: u32) -> u64 {
        (2 * PAIRS + component) as u64
    }
}

/// Returns the tiles of a mixture of `k` components, rounded up to a number that has a kernel, or `None`.
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

/// Length of a unit, in numbers.
pub const fn unit_len(tiles: u32, sets: u32) -> u64 {
    HEADER + (sets * tiles) as u64 * Tile::LEN
}

/// Threads per block.
pub const THREADS: u32 = 512;
pub(crate) const WARPS: u32 = THREADS / WARP;

/// Warps that take rows together.
const GROUP: u32 = 4;
/// Rows that these warps take at a time.
pub const ROWS: u32 = 16 * GROUP;

/// Pairs of coefficients in a tile.
const PAIRS: u32 = 4 * WARP;

/// Mixtures that distribute the sums of a row among its lanes.
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
fn shared_bytes(a: &FixedPointPass) -> u64 {
    shared_len(a.tiles, a.sets)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &FixedPointPass) -> u32 {
    THREADS
}

/// Returns the kernel for mixtures of `tiles` tiles; `warpgroups`: with Hopper's instructions, for Hopper only.
///
/// # Panics
/// Panics if there is none; [`tiles`] returns those that exist.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(tiles: u32, warpgroups: bool) -> crate::Kernel<FixedPointPass> {
    match (tiles, warpgroups) {
        (1, false) => fixed_point_1(),
        (2, false) => fixed_point_2(),
        (4, false) => fixed_point_4(),
        (8, false) => fixed_point_8(),
        (1, true) => wgmma_fixed_point_1(),
        (2, true) => wgmma_fixed_point_2(),
        (4, true) => wgmma_fixed_point_4(),
        (8, true) => wgmma_fixed_point_8(),
        _ => panic!("{tiles} tiles"),
    }
}

/// Adding and subtracting these rounds to integers, and to units of 2⁻¹².
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

/// A lane's operands of each slice, for its two rows; a word packs an entry and its square.
type Rows = [[u32; 8]; 3];

/// A lane's entries: four columns of its two rows.
type Arriving = [[f32; 2]; 4];

/// Loads a lane's two rows of 64. They are adjacent, starting at `2*(lane / 4)` from its warp's first row.
#[inline(always)]
unsafe fn arrive(a: &FixedPointPass, group: u32, inside: u32, lane: u32) -> Arriving {
    const GROUPS: u32 = TILE_ROWS / ROWS;
    let inside = group % GROUPS * ROWS + inside;
    let from = a.x.wrapping_add(((group / GROUPS) as u64 * (a.d * TILE_ROWS) as u64 + inside as u64) as usize);
    let mut out = [[0.0; 2]; 4];
    each(4, |i| {
        let column = 4 * i as u32 + lane % 4;
        if column < a.d {
            // SAFETY: the group is within the rows, tiles are padded to 128 rows, and `column < d`; the first row is
            // even, so aligned.
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
                // The factors of the constant's two parts.
                out[0][2 * i + row] = to_halves(CONSTANT, 1.0);
            }
        });
    });
    out
}

/// Converts the coefficients of the block's mixtures to operands; then stores their steps.
#[inline(always)]
unsafe fn cut_coefficients<const WARPGROUPS: bool>(from: *const f64, all: u32) {
    let (words, t) = (Shared::<f32>::at(0), thread::thread_idx_x());
    let mut i = t;
    while i < all * PAIRS {
        let (tile, pair) = (i / PAIRS, i % PAIRS);
        let at = tile as u64 * Tile::LEN + 2 * pair as u64;
        // SAFETY: `tile < all`, and `pair < PAIRS`, so both numbers are within one of the unit's tiles.
        let [v, w] = unsafe { [device::load(from, at), device::load(from, at + 1)] };
        let (v, w) = (slices_f64(v), slices_f64(w));
        each(3, |s| words.store(tile * SLICED_TILE + s as u32 * PAIRS + pair, f32::from_bits(to_halves(v[s], w[s]))));
        i += THREADS;
    }
    let mut i = t;
    while i < all * 8 {
        let at = (i / 8) as u64 * Tile::LEN + Tile::step(i % 8);
        // SAFETY: `i / 8 < all`, and `Tile::step` is within a tile.
        words.store(all * SLICED_TILE + i, unsafe { device::load(from, at) } as f32);
        i += THREADS;
    }
    if WARPGROUPS {
        stores_before_products();
    }
}

/// Smallest sum that needs no recomputation: the product of two such sums is a normal number.
const LEAST: f32 = f32::from_bits((127 - 60) << 23);

/// Sum of two rows' binary logarithms under one mixture, each relative to its largest component.
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

/// Sum of the binary logarithms of a lane's two rows, of which the first `there` count, under mixture `first + lane %
/// G` of `G`, from joint densities of `TILES` tiles each.
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
            // Per lane, so that a mixture's bits do not depend on the others.
            if !well && lane as usize % G == set {
                out = again;
            }
        });
    }
    out
}

/// The kernel for mixtures of `TILES` tiles, of which `ONCE` are multiplied together and `G` share sums. `WARPGROUPS`:
/// with Hopper's instructions.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`FixedPointPass`].
#[inline(always)]
unsafe fn body<const WARPGROUPS: bool, const TILES: usize, const G: usize, const ONCE: usize>(a: FixedPointPass) {
    const { assert!(ONCE as u32 == together(TILES as u32) && G as u32 == shared_sums(TILES as u32)) };
    let (of_row, at_once, tiles) = (G as u32, ONCE as u32, TILES as u32);
    device::await_previous_grid();
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let (unit, sets) = (thread::block_idx_y(), a.sets);
    let from = a.units.wrapping_add((unit as u64 * unit_len(tiles, sets)) as usize);

    // No device holds so many rows that this exceeds 32 bits. The four warps of a group stay together.
    let groups = a.n.div_ceil(ROWS as u64) as u32;
    let inside = me % GROUP * 16 + lane / 4 * 2;
    let step = || thread::grid_dim_x_anew() * (WARPS / GROUP);
    // SAFETY: `group < groups`, so it is within the rows.
    let send = |group: u32| unsafe { arrive(&a, group, inside, lane) };
    let mut group = thread::block_idx_x() * (WARPS / GROUP) + me / GROUP;
    // SAFETY: `from` is the unit's data, with `sets*tiles` tiles behind its header.
    unsafe { cut_coefficients::<WARPGROUPS>(from.cast_const().wrapping_add(HEADER as usize), sets * tiles) };
    let steps = Shared::<f64>::at(sets * tiles * SLICED_TILE * 4);
    let sums = Shared::<f64>::at(sets * tiles * (SLICED_TILE + 8) * 4);
    let mut set = 0;
    while set < sets {
        sums.store(set / of_row * THREADS + t, 0.0);
        set += of_row;
    }
    thread::sync_threads();

    while group < groups {
        // Recomputed here and below, so that no registers hold values derived from them.
        let lane_here = device::unknown(lane);
        let from = a.units.wrapping_add((device::unknown(unit) as u64 * unit_len(tiles, sets)) as usize);
        // SAFETY: `4*i + lane % 4 < 16`, within the unit's header.
        let scale = |i: u32| unsafe { device::load(from.cast_const(), (4 * i + lane_here % 4) as u64) as f32 };
        let scales = [0, 1, 2, 3].map(scale);
        // Other warps multiply while this one loads.
        let rows = cut(&send(group), &scales, lane);
        let first = group as u64 * ROWS as u64 + inside as u64;
        let there = a.n.saturating_sub(first).min(2) as u32;
        group += step();
        let mut set = 0;
        while set < sets {
            let mut joint = [0.0; 32];
            let lane = device::unknown(lane);
            let at = set * tiles * SLICED_TILE * 4;
            let take = |tile: usize, whole: [f32; 4], rest: [f32; 4]| {
                let two = steps.load((set * tiles + tile as u32) * 4 + lane % 4).to_bits();
                let steps = [f32::from_bits(two as u32), f32::from_bits((two >> 32) as u32)];
                each(4, |v| joint[4 * tile + v] = (whole[v] + rest[v]) * steps[v % 2]);
            };
            if WARPGROUPS {
                products_of_slices(&rows, at, take);
            } else {
                products_one_by_one(&rows, at, take);
            }
            each(ONCE / G, |i| {
                let more = logarithms::<G, TILES>(&joint, i * G, lane, there);
                let at = (set / of_row + i as u32) * THREADS + thread::thread_idx_x_anew();
                sums.store(at, sums.load(at) + more as f64);
            });
            set += at_once;
        }
    }

    // SAFETY: all threads call this, the fields are as documented, and the counter is in the unit's header.
    unsafe { fixed_point_sums::store(&a, sums, of_row, from.wrapping_add(COLUMNS as usize + 1).cast()) };
}
