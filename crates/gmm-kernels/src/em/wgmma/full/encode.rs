//! Factors of the next densities in fp16, with the offsets, constant and multiplier of each component.

use crate::device::{self, Shared, block_max, thread};
use crate::each::each;
use crate::em::chunked::half_precision::encode::{head, largest, nothing_to_read, scale_for, tell_narrow};
use crate::em::wgmma::full::{
    CORE, as_halves, blocks, factors_at, halves, offsets_at, pair_bytes, rows_apart, scalars_at,
};
use crate::layout::{packed_index, packed_len};
use crate::{Real, THREADS};

kernels! {
    /// The grid is [`Full::components`](crate::em::wgmma::full::Full::components) blocks.
    Encode {
        /// State of the loop; `TROUBLE` is set if a component is too narrow for the scales.
        state: *mut u32,
        /// The iteration that this ends; 0 before the first iteration.
        iteration: u32,
        /// Components.
        k: u32,
        /// Dimensions, at most [`columns_at_most`](crate::em::wgmma::full::columns_at_most).
        d: u32,
        /// `(d,)`: scales of columns; powers of two.
        scales: *const f32,
        /// Packed `W` of each component, `(k, d*(d+1)/2)`.
        roots: *const f64,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// `(k,)`: constants of the densities.
        constants: *const f64,
        /// [`Full::operands`](crate::em::wgmma::full::Full::operands) words, 16-byte aligned, written; zeroed
        /// beforehand, since not all are written past the last component and after `TROUBLE`.
        operands: *mut u32,
    }
    /// Hi parts only.
    wgmma_encode_full => body::<true>, shared_bytes;
    /// Split fp16.
    wgmma_encode_halves => body::<false>, shared_bytes;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &Encode) -> u64 {
    8 * (THREADS / device::WARP) as u64
}

/// Body of the kernel; with `ONE`, hi parts only.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Encode`] document.
#[inline(always)]
unsafe fn body<const ONE: bool>(a: Encode) {
    let k = thread::block_idx_x();
    // SAFETY: `k` is below the grid's `components`, and only this block writes its coefficients.
    unsafe {
        if nothing_to_read(a.state, a.iteration) {
            return;
        }
        let own = a.operands.wrapping_add(((k / 2) as u64 * (pair_bytes(blocks(a.d), ONE) / 4) as u64) as usize);
        let (constant, by) = match k < a.k {
            false => (f64::NEG_INFINITY, 0.0),
            true => {
                let (back, narrow) = factor::<ONE>(&a, k, own);
                tell_narrow(narrow, a.state, a.iteration);
                (device::load(a.constants, k as u64), -0.5 * back * back)
            }
        };
        if thread::thread_idx_x() == 0 {
            let at = (scalars_at(blocks(a.d), ONE) / 4 + k % 2 * 2) as u64;
            // To base 2.
            let v = [constant, by].map(|v| (v * core::f64::consts::LOG2_E) as f32);
            device::store(own, at, v[0].to_bits());
            device::store(own, at + 1, v[1].to_bits());
        }
    }
}

/// Position of the offset of one of 32 rows: the four offsets of sixteen rows that a lane of the densities uses are
/// adjacent.
#[inline(always)]
const fn offset(row: u32) -> u32 {
    row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2
}

/// Writes a component's factor and offsets. Returns the reciprocal scale of `W`, and the largest precision of a column,
/// given those before it, that this thread saw.
#[inline(always)]
unsafe fn factor<const ONE: bool>(a: &Encode, k: u32, own: *mut u32) -> (f64, f32) {
    let d = a.d;
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
    let (most, narrow) = largest(d, of);
    let (scale, back) = scale_for(block_max(most, Shared::at(0)));
    let as_half = |i: u32, j: u32| (of(i, j) * scale) as f32;
    let mut block = 0;
    while block < blocks(d) {
        // Core-matrix rows: eight columns of a factor row each, up to the diagonal block.
        let (mut i, eights) = (thread::thread_idx_x(), 4 * (block + 1));
        while i < 32 * eights {
            let (row, eight) = (i / eights, i % eights);
            let mut words = [[0; 4]; 2];
            each(4, |i| {
                let (row, j) = (32 * block + row, 8 * eight + 2 * i as u32);
                let both = as_halves::<ONE>(as_half(row, j), as_half(row, j + 1));
                each(2, |half| words[half][i] = both[half]);
            });
            let at = factors_at(block) + (k % 2 * 4 + row / 8) * rows_apart(block) + eight * CORE + row % 8 * 16;
            each(halves(ONE) as usize, |half| {
                let at = at + half as u32 * factors_at(blocks(d));
                // SAFETY: the row is in the component's factors; 16-byte aligned.
                unsafe { device::store4(own, (at / 4) as u64, words[half]) };
            });
            i += THREADS;
        }
        block += 1;
    }
    let mut i = thread::thread_idx_x();
    while i < 32 * blocks(d) {
        let mut sum = 0.0;
        let mut j = 0;
        while j <= i && i < d {
            // Hi parts as rounded, so that the error is proportional to the rows' distance from the mean.
            let root = if ONE { head(as_half(i, j)).to_f64() } else { of(i, j) * scale };
            // SAFETY: `j < d` and `k < a.k`.
            unsafe {
                let mean = device::load(a.means, k as u64 * d as u64 + j as u64);
                sum = Real::fma(-root * device::load(a.scales, j as u64).to_f64(), mean, sum);
            }
            j += 1;
        }
        let at = offsets_at(blocks(d), ONE) / 4 + i / 32 * 64 + k % 2 * 32 + offset(i % 32);
        // SAFETY: `i < 32*blocks`, so the offset is within this pair's coefficients.
        unsafe { device::store(own, at as u64, (sum as f32).to_bits()) };
        i += THREADS;
    }
    (back, narrow)
}
