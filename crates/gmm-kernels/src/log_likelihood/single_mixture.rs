//! The log-likelihood of one mixture of diagonal covariances, in `f32`: as soon as rows come.
//!
//! A warp takes a tile of rows, four to a lane, keeps their entries in registers, and goes over the components:
//! z = x·s + t, once rounded, and a density is the component's constant less Σ z². Coefficients come with the launch itself,
//! so that nothing is copied before it, and each block writes what it has to the host's memory at once: what blocks
//! would have to say to each other takes the device longer than it takes the host to add up.
//!
//! Exponentials are taken of logarithms to base 2 as they are: the host takes a number from all constants, near what rows
//! typically have. Where a row has less than `LEAST` of that, it is done again about its largest component.

use crate::device::{self, Shared, WARP, array_parameter, thread, warp, words};
use crate::each::each;
use crate::layout::TILE_ROWS;

kernels! {
    /// One mixture over all rows; a grid of any number of blocks.
    Alone {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions, at most those of the kernel.
        d: u32,
        /// Components.
        k: u32,
        /// Tiles that the second cache is to keep until the next call, the first.
        kept: u64,
        /// `(blocks,)` on the host, written: each block's part of Σ ln p(x), less what was taken from the constants once a row.
        values: *mut f64,
        /// See [`entry`] and [`constant`].
        coefficients: [u64; PLACES],
    }
    /// Up to 4 entries.
    scores_alone_4 => body::<4>, shared_bytes, threads;
    /// Up to 8.
    scores_alone_8 => body::<8>, shared_bytes, threads;
    /// Up to 12.
    scores_alone_12 => body::<12>, shared_bytes, threads;
    /// Up to 13.
    scores_alone_13 => body::<13>, shared_bytes, threads;
    /// Up to 16.
    scores_alone_16 => body::<16>, shared_bytes, threads;
}

/// Places for coefficients, of two numbers each.
pub const PLACES: usize = 240;

/// Entries that there are kernels for.
pub const COLUMNS: [u32; 5] = [4, 8, 12, 13, 16];

/// The columns of the kernel for `d` entries, where there is one.
pub fn columns(d: u32) -> Option<u32> {
    COLUMNS.into_iter().find(|columns| d <= *columns)
}

/// The place of a component's `(s, t)` for entry `j`: the root of half of log₂e over the standard deviation, and minus the mean
/// times that.
pub const fn entry(columns: u32, component: u32, j: u32) -> usize {
    (component * (columns + 1) + j) as usize
}

/// The place of a component's constant, to base 2, and of one more number that is 0.
pub const fn constant(columns: u32, component: u32) -> usize {
    entry(columns, component, columns)
}

/// What is at a place.
pub const fn place(first: f32, second: f32) -> u64 {
    first.to_bits() as u64 | (second.to_bits() as u64) << 32
}

/// Threads of a block.
pub const THREADS: u32 = 640;
const WARPS: u32 = THREADS / WARP;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &Alone) -> u64 {
    WARPS as u64 * 8
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Alone) -> u32 {
    THREADS
}

/// The kernel for so many entries.
///
/// # Panics
/// Where there is none; [`columns`] gives those that there are.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(columns: u32) -> crate::Kernel<Alone> {
    match columns {
        4 => scores_alone_4(),
        8 => scores_alone_8(),
        12 => scores_alone_12(),
        13 => scores_alone_13(),
        16 => scores_alone_16(),
        _ => panic!("{columns} columns"),
    }
}

/// Rows of a lane.
const ROWS: usize = (TILE_ROWS / WARP) as usize;

/// The least sum over components that is taken as it is: of two such rows the product is normal.
const LEAST: f32 = f32::from_bits((127 - 60) << 23);

/// Logarithms to base 2 of a component's joint densities.
macro_rules! joint {
    ($x:ident, $all:ident, $component:expr, $d:ident) => {{
        let all = $all.from($component * ($d as u32 + 1));
        let [constant, _] = all.at($d as u32);
        let mut out = [constant; ROWS];
        each($d, |j| {
            let [s, t] = all.at(j as u32);
            each(ROWS, |row| {
                let z = words::fma_f32($x[j][row], s, t);
                out[row] = words::fma_f32(-z, z, out[row]);
            });
        });
        out
    }};
}

/// The kernel for `D` entries.
///
/// # Safety
/// As the fields of [`Alone`] say.
#[inline(always)]
unsafe fn body<const D: usize>(a: Alone) {
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let all = match D {
        4 => array_parameter!(a.coefficients, "scores_alone_4_param_6"),
        8 => array_parameter!(a.coefficients, "scores_alone_8_param_6"),
        12 => array_parameter!(a.coefficients, "scores_alone_12_param_6"),
        13 => array_parameter!(a.coefficients, "scores_alone_13_param_6"),
        _ => array_parameter!(a.coefficients, "scores_alone_16_param_6"),
    };
    let tiles = a.n.div_ceil(TILE_ROWS as u64);
    let warps = (thread::grid_dim_x() * WARPS) as u64;
    // Or else each line of them would be waited for when it is first needed.
    let mut sum = all.bring(PLACES as u32, lane);
    let mut tile = (thread::block_idx_x() + me * thread::grid_dim_x()) as u64;
    let (long, short) = (words::keeping(true), words::keeping(false));
    while tile < tiles {
        let here = a.x.wrapping_add((tile * (a.d * TILE_ROWS) as u64 + (lane * ROWS as u32) as u64) as usize);
        let keeping = if tile < a.kept { long } else { short };
        let mut x = [[0.0_f32; ROWS]; D];
        let column = |j: usize| {
            let at = here.wrapping_add(j * TILE_ROWS as usize);
            // SAFETY: the tile is one of the rows', and is filled up.
            unsafe { words::global_load_u32x4_keeping(at.cast(), keeping) }.map(f32::from_bits)
        };
        if a.d as usize == D {
            each(D, |j| x[j] = column(j));
        } else {
            each(D, |j| {
                if (j as u32) < a.d {
                    x[j] = column(j);
                }
            });
        }
        let mut sums = [0.0_f32; ROWS];
        let mut c = 0;
        while c < a.k {
            let joint = joint!(x, all, c, D);
            each(ROWS, |row| sums[row] += words::exp2_approx_f32(joint[row]));
            c += 1;
        }
        let left = a.n - tile * TILE_ROWS as u64;
        let counts = |row: usize| ((lane * ROWS as u32) as u64 + row as u64) < left;
        if left < TILE_ROWS as u64 {
            each(ROWS, |row| sums[row] = if counts(row) { sums[row] } else { 1.0 });
        }
        let well = sums[0].min(sums[1]).min(sums[2].min(sums[3])) >= LEAST;
        let two = |i: usize| words::log2_approx_f32(sums[i] * sums[i + 1]);
        let mut logs = two(0) + two(2);
        if !well {
            let mut top = [f32::MIN; ROWS];
            let mut c = 0;
            while c < a.k {
                let joint = joint!(x, all, c, D);
                each(ROWS, |row| top[row] = top[row].max(joint[row]));
                c += 1;
            }
            let (mut sums, mut c) = ([0.0_f32; ROWS], 0);
            while c < a.k {
                let joint = joint!(x, all, c, D);
                each(ROWS, |row| sums[row] += words::exp2_approx_f32(joint[row] - top[row]));
                c += 1;
            }
            logs = 0.0;
            each(ROWS, |row| {
                let log = top[row] + words::log2_approx_f32(sums[row]);
                logs += if counts(row) { log } else { 0.0 };
            });
        }
        sum += logs as f64;
        tile += warps;
    }

    let of_warps = Shared::<f64>::at(0);
    each(5, |i| sum += warp::shuffle_xor(sum, 1 << i));
    if lane == 0 {
        of_warps.store(me, sum);
    }
    thread::sync_threads();
    if t == 0 {
        let mut sum = 0.0;
        each(WARPS as usize, |warp| sum += of_warps.load(warp as u32));
        // SAFETY: this block's.
        unsafe { device::store(a.values, thread::block_idx_x() as u64, sum * core::f64::consts::LN_2) };
    }
}
