//! Coefficients of the next densities as hi parts, in the order in which they are read.

use crate::THREADS;
use crate::device::mma::to_halves;
use crate::device::{self, thread};
use crate::each::each;
use crate::em::chunked::half_precision::columns::{Columns, Scaled};
use crate::em::chunked::half_precision::encode::{nothing_to_read, tell_narrow};
use crate::em::layout::FeatureLayout;
use crate::em::wgmma::linear::{COMPONENTS, NEXT_FEATURES, NEXT_OTHERS, core_bytes, stage_bytes};

kernels! {
    /// The grid is `8*groups` blocks: one per component, including padding components.
    Encode {
        /// State of the loop; `TROUBLE` is set if a component is too narrow for the scales.
        state: *mut u32,
        /// The iteration that this ends; 0 before the first iteration.
        iteration: u32,
        /// One of [`kind`](crate::em::m_step::kind).
        kind: u32,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// [`FeatureLayout::steps`].
        steps: u32,
        /// [`FeatureLayout::groups`].
        groups: u32,
        /// `(d+1,)`: scales of columns and norms.
        scales: *const f32,
        /// [`FeatureLayout::coefficients`] elements.
        coefficients: *const f64,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// `(8*groups,)`: constants of the densities.
        constants: *const f64,
        /// [`Linear::operands`](crate::em::wgmma::linear::Linear::operands) words, 16-byte aligned, written; zeroed
        /// beforehand, since not all are written after `TROUBLE`.
        operands: *mut u32,
    }
    /// The kernel.
    wgmma_encode => body, shared_bytes;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &Encode) -> u64 {
    8 * (THREADS / device::WARP) as u64
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Encode`] document.
#[inline(always)]
unsafe fn body(a: Encode) {
    let (k, features) = (thread::block_idx_x(), 16 * a.steps);
    let stage = (k / COMPONENTS * (stage_bytes(features) / 4)) as u64;
    let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: 0 };
    let Encode { kind, d, scales, coefficients, means, .. } = a;
    let of = Columns { kind, k, d, place, scales, coefficients, means };
    // SAFETY: `k < 8*groups`, and only this block writes its coefficients.
    unsafe {
        if nothing_to_read(a.state, a.iteration) {
            return;
        }
        let there = k < a.k;
        let (mut constant, mut by, mut scale) = (f32::NEG_INFINITY, 0.0, 0.0);
        if there {
            let Scaled { scale: to, back, narrow, left_over } = of.scaled(true);
            tell_narrow(narrow, a.state, a.iteration);
            let log2 = core::f64::consts::LOG2_E;
            constant = ((device::load(a.constants, k as u64) + left_over) * log2) as f32;
            (by, scale) = ((back * log2) as f32, to);
        }
        // A thread writes a row of a core matrix: eight features.
        let mut eight = thread::thread_idx_x();
        while eight < features / 8 {
            let mut words = [0; 4];
            each(4, |i| {
                let f = 8 * eight + 2 * i as u32;
                if there {
                    words[i] = to_halves((of.at(f) * scale) as f32, (of.at(f + 1) * scale) as f32);
                }
            });
            let at = eight * NEXT_FEATURES + k % COMPONENTS / 8 * NEXT_OTHERS + k % 8 * 16;
            device::store4(a.operands, stage + (at / 4) as u64, words);
            eight += THREADS;
        }
        if thread::thread_idx_x() == 0 {
            let at = stage + (core_bytes(features) / 4 + k % COMPONENTS * 2) as u64;
            device::store(a.operands, at, constant.to_bits());
            device::store(a.operands, at + 1, by.to_bits());
        }
    }
}
