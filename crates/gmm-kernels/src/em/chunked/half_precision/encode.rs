//! Coefficients of the next densities in fp16, in the order in which they are read.

use crate::device::mma::{from_halves, to_halves};
use crate::device::ring::OPERAND;
use crate::device::{self, Shared, WARP, block_max, thread};
use crate::em::chunked::half_precision::columns::{Columns, Scaled};
use crate::em::chunked::half_precision::operand::right;
use crate::em::chunked::half_precision::order::Full;
use crate::em::chunked::half_precision::scales::{exponent, power_of_two};
use crate::em::features::each;
use crate::em::layout::FeatureLayout;
use crate::em::m_step::kind;
use crate::em::state::{TROUBLE, stopped};
use crate::layout::{packed_index, packed_len};
use crate::{Real, THREADS};

kernels! {
    /// The grid is `8*groups` blocks: one per component, including padding components.
    Encode {
        /// State of the loop; `TROUBLE` is set if a component is too narrow for the scales.
        state: *mut u32,
        /// The iteration that this ends; 0 before the first iteration.
        iteration: u32,
        /// One of [`kind`].
        kind: u32,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// [`FeatureLayout::steps`].
        steps: u32,
        /// [`FeatureLayout::groups`].
        groups: u32,
        /// Groups that the densities process at a time, one of
        /// [`GROUPS`](crate::em::chunked::double_precision::GROUPS).
        at_once: u32,
        /// Nonzero: hi parts only.
        one: u32,
        /// `(d+1,)`: scales of columns and norms.
        scales: *const f32,
        /// [`FeatureLayout::coefficients`] elements, for features that are columns.
        coefficients: *const f64,
        /// For full covariances: packed `W` of each component, `(k, d*(d+1)/2)`; else null.
        roots: *const f64,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// `(8*groups,)`: constants of the densities.
        constants: *const f64,
        /// [`HalfPrecision::operands`](crate::em::chunked::half_precision::HalfPrecision::operands) words, written;
        /// zeroed beforehand, since not all are written.
        operands: *mut u32,
        /// [`HalfPrecision::offsets`](crate::em::chunked::half_precision::HalfPrecision::offsets) elements, written;
        /// zeroed beforehand.
        offsets: *mut f32,
        /// `(8*groups, 2)`, written; zeroed beforehand, since not all are written after `TROUBLE`.
        scalars: *mut f32,
    }
    /// The kernel.
    chunked_half_encode => body, shared_bytes;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &Encode) -> u64 {
    8 * (THREADS / WARP) as u64
}

/// Scaled coefficients are below `2^TOP`.
const TOP: i32 = 14;

/// Maximum precision (inverse variance) of a scaled column, that of a standard deviation of 1/16. fp16 values below
/// 2⁻¹⁴ lose precision: products of entries as small as 1/16 have an error of at most 2⁻¹⁷ each, which averages out
/// over many rows. The largest entry of a column is at least 64, so a component may be a thousand times narrower.
const NARROWEST: f32 = 256.0;

/// Returns the power of two that scales values of at most `most` below `2^TOP`, and its reciprocal.
#[inline(always)]
pub(crate) fn scale_for(most: f32) -> (f64, f64) {
    // The clamp keeps products of scaled columns and coefficients within `f32`.
    let e = (TOP - 1 - exponent(most)).clamp(-60, 60);
    (power_of_two(e).to_f64(), power_of_two(-e).to_f64())
}

/// Whether there are no valid coefficients to read: after `TROUBLE`, or after the loop ended.
///
/// # Safety
/// `state` has `STATE_LEN` elements.
#[inline(always)]
pub(crate) unsafe fn nothing_to_read(state: *mut u32, iteration: u32) -> bool {
    // SAFETY: `state` has `STATE_LEN` elements.
    unsafe {
        let trouble = device::load(state.cast_const(), TROUBLE) != 0;
        trouble || (iteration > 0 && stopped(state.cast_const(), iteration))
    }
}

/// Sets `TROUBLE` if the largest column precision seen by any thread of the block is too large for the scales. All
/// threads call it, each with its `seen`; [`block_max`]'s scratch at the start of shared memory is overwritten.
///
/// # Safety
/// As for [`nothing_to_read`].
#[inline(always)]
pub(crate) unsafe fn tell_narrow(seen: f32, state: *mut u32, iteration: u32) {
    // Negated, so that NaN counts as too narrow.
    let wide_enough = block_max(seen, Shared::at(0)) <= NARROWEST;
    if thread::thread_idx_x() == 0 && !wide_enough {
        // SAFETY: `state` has `STATE_LEN` elements, as `# Safety` requires.
        unsafe { device::store(state, TROUBLE, iteration.max(1)) };
    }
}

/// For this thread's part of a factor of `d` rows up to the diagonal: the largest absolute entry, and the largest
/// squared diagonal entry.
#[inline(always)]
pub(crate) fn largest(d: u32, of: impl Fn(u32, u32) -> f64) -> (f32, f32) {
    let (warp, lane) = (thread::thread_idx_x() / WARP, thread::thread_idx_x() % WARP);
    let (mut most, mut narrow) = (0.0_f32, 0.0_f32);
    let mut i = warp;
    while i < d {
        let mut j = lane;
        while j <= i {
            let v = of(i, j) as f32;
            let v = if v < 0.0 { -v } else { v };
            most = if v > most { v } else { most };
            if i == j {
                narrow = if v * v <= narrow { narrow } else { v * v };
            }
            j += WARP;
        }
        i += THREADS / WARP;
    }
    (most, narrow)
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Encode`] document.
#[inline(always)]
pub unsafe fn body(a: Encode) {
    let k = thread::block_idx_x();
    // SAFETY: `k < 8*groups`, and only this block writes the scalars of `k`.
    unsafe {
        if nothing_to_read(a.state, a.iteration) {
            return;
        }
        let (constant, by) = match k < a.k {
            false => (f32::NEG_INFINITY, 0.0),
            true => {
                let (back, narrow, more) = if a.kind == kind::FULL { factor(&a, k) } else { columns(&a, k) };
                tell_narrow(narrow, a.state, a.iteration);
                ((device::load(a.constants, k as u64) + more) as f32, back as f32)
            }
        };
        if thread::thread_idx_x() == 0 {
            device::store(a.scalars, 2 * k as u64, constant);
            device::store(a.scalars, 2 * k as u64 + 1, by);
        }
    }
}

/// Writes the coefficients of a component's columns. Returns the reciprocal scale of products, the largest precision
/// that this thread saw, and, with hi parts only, the mean loss of log density over the component's rows.
#[inline(always)]
unsafe fn columns(a: &Encode, k: u32) -> (f64, f32, f64) {
    let of = Columns {
        kind: a.kind,
        k,
        d: a.d,
        place: FeatureLayout { steps: a.steps, groups: a.groups, classes: 0 },
        scales: a.scales,
        coefficients: a.coefficients,
        means: a.means,
    };
    // SAFETY: `k < a.k`.
    let Scaled { scale, back, narrow, left_over } = unsafe { of.scaled(a.one != 0) };
    // `at_once` is a power of two.
    let (piece, group) = ((k / 8) >> a.at_once.trailing_zeros(), (k / 8) & (a.at_once - 1));
    // A thread writes four features of a step: those of one lane.
    let mut i = thread::thread_idx_x();
    while i < 4 * a.steps {
        let (step, t) = (i / 4, i % 4);
        let operand = (piece * a.steps + step) * a.at_once + group;
        let mut v = [0.0; 4];
        // SAFETY: the feature is below `16*steps`.
        each(4, |quarter| v[quarter] = (unsafe { of.at(16 * step + 4 * quarter as u32 + t) } * scale) as f32);
        // SAFETY: the operand is below `steps*groups`.
        unsafe { write(a, operand, k % 8 * 4 + t, v) };
        i += THREADS;
    }
    (back, narrow, left_over)
}

/// Writes a component's factor and offsets. Returns the multiplier from a squared norm to the log density, the largest
/// precision of a column, given those before it, that this thread saw, and 0.
#[inline(always)]
unsafe fn factor(a: &Encode, k: u32) -> (f64, f32, f64) {
    let (order, d) = (Full::of(a.d), a.d);
    let of = |i: u32, j: u32| {
        if j > i || i >= d {
            return 0.0;
        }
        // SAFETY: `j ≤ i < d`, an entry of the component's factor.
        unsafe {
            let root = device::load(a.roots, k as u64 * packed_len(d) + packed_index(i, j));
            root / device::load(a.scales, j as u64).to_f64()
        }
    };
    let (warp, lane) = (thread::thread_idx_x() / WARP, thread::thread_idx_x() % WARP);
    let (g, t) = (lane / 4, lane % 4);
    let (most, narrow) = largest(d, of);
    let (scale, back) = scale_for(block_max(most, Shared::at(0)));
    let among = k % order.components();
    let mut base = order.all(k - among);
    let mut block = 0;
    while block < order.blocks() {
        let mut step = 0;
        while step < order.steps(block) {
            let width = order.width(block, step);
            let mut tile = warp;
            while tile < width {
                let row = 64 * block + 8 * (order.first(block, step) + tile) + g;
                let mut v = [0.0; 4];
                each(4, |quarter| v[quarter] = (of(row, 16 * step + 4 * quarter as u32 + t) * scale) as f32);
                // SAFETY: the operand is one of this component's in the step.
                unsafe { write(a, base + among * width + tile, lane, v) };
                tile += THREADS / WARP;
            }
            base += order.components() * width;
            step += 1;
        }
        block += 1;
    }
    let mut i = thread::thread_idx_x();
    while i < d {
        let mut sum = 0.0;
        let mut j = 0;
        while j <= i {
            // SAFETY: `j ≤ i < d`.
            unsafe {
                let mut root = device::load(a.roots, k as u64 * packed_len(d) + packed_index(i, j));
                if a.one != 0 {
                    // As rounded, so that the error is proportional to the rows' distance from the mean.
                    let by = device::load(a.scales, j as u64).to_f64();
                    root = head((of(i, j) * scale) as f32).to_f64() * back * by;
                }
                sum = Real::fma(-root, device::load(a.means, k as u64 * d as u64 + j as u64), sum);
            }
            j += 1;
        }
        // SAFETY: `i < d`, a row of this component's offsets.
        unsafe { device::store(a.offsets, k as u64 * order.rows() as u64 + i as u64, (sum * scale) as f32) };
        i += THREADS;
    }
    (-0.5 * back * back, narrow, 0.0)
}

/// `v` rounded to fp16.
#[inline(always)]
pub(crate) fn head(v: f32) -> f32 {
    from_halves(to_halves(v, 0.0))[0]
}

/// Writes a lane's part of an operand.
#[inline(always)]
unsafe fn write(a: &Encode, operand: u32, lane: u32, v: [f32; 4]) {
    let [heads, tails] = right(v);
    let at = |unit: u32| unit as u64 * (OPERAND / 4) as u64 + 4 * lane as u64;
    // SAFETY: the caller passes an operand of `operands`.
    unsafe {
        if a.one != 0 {
            let at = at(operand / 2) + 2 * (operand % 2) as u64;
            each(2, |i| device::store(a.operands, at + i as u64, heads[i]));
        } else {
            each(2, |i| device::store(a.operands, at(operand) + i as u64, heads[i]));
            each(2, |i| device::store(a.operands, at(operand) + 2 + i as u64, tails[i]));
        }
    }
}
