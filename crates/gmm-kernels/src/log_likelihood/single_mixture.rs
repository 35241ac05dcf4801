//! The log-likelihood of one mixture with diagonal covariances, in `f32`, limited only by reading the rows.
//!
//! A warp takes a tile of rows, four per lane, keeps their entries in registers and loops over the components. It
//! computes `z = x·s + t`, rounded once, and a log density is the component's constant less Σ z². The coefficients are
//! launch parameters, so that nothing needs to be copied first. Each block writes its sum directly to host memory: a
//! reduction among the blocks would take longer than the host takes to add the sums up.
//!
//! Exponentials are taken without subtracting a maximum. Instead, the host subtracts a number close to a typical row's
//! log density (to base 2) from all constants. A row whose sum is below `LEAST` is recomputed relative to its largest
//! component.

use crate::device::{self, Shared, WARP, array_parameter, thread, warp, words};
use crate::each::each;
use crate::layout::TILE_ROWS;

kernels! {
    /// One mixture over all rows; any number of blocks.
    SingleMixturePass {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions, at most the kernel's `D`.
        d: u32,
        /// Components.
        k: u32,
        /// Number of leading tiles that the L2 cache should keep until the next call.
        kept: u64,
        /// `(blocks,)` in host memory, written: each block's part of Σ ln p(x), without the per-row number subtracted
        /// from the constants.
        values: *mut f64,
        /// Pairs of coefficients; see [`entry`] and [`constant`].
        coefficients: [u64; PLACES],
    }
    /// Up to 4 entries.
    single_mixture_4 => body::<4>, shared_bytes, threads;
    /// Up to 8.
    single_mixture_8 => body::<8>, shared_bytes, threads;
    /// Up to 12.
    single_mixture_12 => body::<12>, shared_bytes, threads;
    /// Up to 13.
    single_mixture_13 => body::<13>, shared_bytes, threads;
    /// Up to 16.
    single_mixture_16 => body::<16>, shared_bytes, threads;
}

/// Number of coefficient slots, of two numbers each.
pub const PLACES: usize = 240;

/// Numbers of columns that have kernels.
pub const COLUMNS: [u32; 5] = [4, 8, 12, 13, 16];

/// Returns the columns of the smallest kernel for `d` dimensions, or `None`.
pub fn columns(d: u32) -> Option<u32> {
    COLUMNS.into_iter().find(|columns| d <= *columns)
}

/// Slot of a component's `(s, t)` for entry `j`: `s` is √(½ log₂e) divided by the standard deviation, and `t =
/// −mean·s`.
pub const fn entry(columns: u32, component: u32, j: u32) -> usize {
    (component * (columns + 1) + j) as usize
}

/// Slot of a component's constant, to base 2; the second number is 0.
pub const fn constant(columns: u32, component: u32) -> usize {
    entry(columns, component, columns)
}

/// Packs two numbers into a slot.
pub const fn place(first: f32, second: f32) -> u64 {
    first.to_bits() as u64 | (second.to_bits() as u64) << 32
}

/// Threads per block.
pub const THREADS: u32 = 640;
const WARPS: u32 = THREADS / WARP;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &SingleMixturePass) -> u64 {
    WARPS as u64 * 8
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &SingleMixturePass) -> u32 {
    THREADS
}

/// Returns the kernel for `columns` columns.
///
/// # Panics
/// Panics if there is none; [`columns`] returns those that exist.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(columns: u32) -> crate::Kernel<SingleMixturePass> {
    match columns {
        4 => single_mixture_4(),
        8 => single_mixture_8(),
        12 => single_mixture_12(),
        13 => single_mixture_13(),
        16 => single_mixture_16(),
        _ => panic!("{columns} columns"),
    }
}

/// Rows per lane.
const ROWS: usize = (TILE_ROWS / WARP) as usize;

/// Smallest sum over components that needs no recomputation: the product of two such sums is a normal number.
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

/// The kernel for up to `D` entries.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`SingleMixturePass`].
#[inline(always)]
unsafe fn body<const D: usize>(a: SingleMixturePass) {
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let all = match D {
        4 => array_parameter!(a.coefficients, "single_mixture_4_param_6"),
        8 => array_parameter!(a.coefficients, "single_mixture_8_param_6"),
        12 => array_parameter!(a.coefficients, "single_mixture_12_param_6"),
        13 => array_parameter!(a.coefficients, "single_mixture_13_param_6"),
        _ => array_parameter!(a.coefficients, "single_mixture_16_param_6"),
    };
    let tiles = a.n.div_ceil(TILE_ROWS as u64);
    let warps = (thread::grid_dim_x() * WARPS) as u64;
    // Load all coefficients now; otherwise each cache line would stall when it is first used.
    let mut sum = all.bring(PLACES as u32, lane);
    let mut tile = (thread::block_idx_x() + me * thread::grid_dim_x()) as u64;
    let (long, short) = (words::keeping(true), words::keeping(false));
    while tile < tiles {
        let here = a.x.wrapping_add((tile * (a.d * TILE_ROWS) as u64 + (lane * ROWS as u32) as u64) as usize);
        let keeping = if tile < a.kept { long } else { short };
        let mut x = [[0.0_f32; ROWS]; D];
        let column = |j: usize| {
            let at = here.wrapping_add(j * TILE_ROWS as usize);
            // SAFETY: `tile < tiles`, tiles are padded to 128 rows, and `j < d`; rows of four are 16-byte aligned.
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
    // SAFETY: all threads call this, and the fields are as documented.
    unsafe { store(&a, sum) };
}

/// Writes the block's sum.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`SingleMixturePass`]. All threads of the block must
/// call this.
#[inline(always)]
unsafe fn store(a: &SingleMixturePass, mut sum: f64) {
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let of_warps = Shared::<f64>::at(0);
    each(5, |i| sum += warp::shuffle_xor(sum, 1 << i));
    if lane == 0 {
        of_warps.store(me, sum);
    }
    thread::sync_threads();
    if t == 0 {
        let mut sum = 0.0;
        each(WARPS as usize, |warp| sum += of_warps.load(warp as u32));
        // SAFETY: `values` has one number per block, and only this thread writes this block's.
        unsafe { device::store(a.values, thread::block_idx_x() as u64, sum * core::f64::consts::LN_2) };
    }
}
