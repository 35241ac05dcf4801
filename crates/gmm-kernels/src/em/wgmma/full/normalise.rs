//! From log joint densities to responsibilities in fp16, in the order in which the moments read them.

use crate::THREADS;
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::em::state::stopped;
use crate::em::wgmma::full::{COMPONENTS, CORE, ROWS, as_halves, groups, halves, pair};
use crate::math::exp2_f32;

kernels! {
    /// Any grid size in `x`; a warp processes 32 rows and 128 components at a time.
    Normalise {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// Rows of the chunk.
        n: u64,
        /// [`Full::components`](crate::em::wgmma::full::Full::components).
        components: u32,
        /// `(ceil(n/64), components, 64)`: log joint densities to base 2.
        joint: *const f32,
        /// `(ceil(n/64), 2, 64)`: largest log densities, then the factors of 2^(log density − largest).
        normalisers: *const f32,
        /// [`Full::responsibilities`](crate::em::wgmma::full::Full::responsibilities) words, 16-byte aligned, written:
        /// for each 64 rows and 128 components hi parts, then lo parts if there are any. For each eight components
        /// there are eight core matrices, whose rows are components; 0 past the last component and row.
        responsibilities: *mut u32,
    }
    /// Hi parts only.
    wgmma_normalise => body::<true>, no_shared;
    /// Split fp16.
    wgmma_normalise_halves => body::<false>, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Normalise) -> u64 {
    0
}

/// Groups of eight components that a warp loads before it uses any, so that their latencies overlap.
const TOGETHER: usize = 4;

/// Body of the kernel; with `ONE`, hi parts only.
///
/// Lane `t` of a row's four multiplies two data rows of each row of a core matrix. Of 32 data rows, these are the ones
/// from `8t + 2v` on in the `v`th core matrix, so that the lane reads eight adjacent rows of its columns at once.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Normalise`] document.
#[inline(always)]
unsafe fn body<const ONE: bool>(a: Normalise) {
    // SAFETY: `state` is null or a loop's state, as `Normalise` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, tiles) = (warp::lane_id(), a.components.div_ceil(COMPONENTS));
    if tiles == 0 {
        return;
    }
    let (among, v) = (lane / 4, lane % 4);
    let all = groups(a.n) as u32 * tiles * 2;
    let mut item = (thread::block_idx_x() * THREADS + thread::thread_idx_x()) / WARP;
    while item < all {
        let (half, tile, group) = (item % 2, item / 2 % tiles, item / 2 / tiles);
        let row = |t: usize| 32 * half + 8 * t as u32 + 2 * v;
        let (mut tops, mut shares) = ([[0.0; 2]; 4], [[0.0; 2]; 4]);
        each(4, |t| {
            let at = group as u64 * (2 * ROWS) as u64 + row(t) as u64;
            // SAFETY: `group` is below `ceil(n/64)`, for which `normalisers` has 128 elements each.
            unsafe {
                tops[t] = pair(a.normalisers, at);
                shares[t] = pair(a.normalisers, at + ROWS as u64);
            }
        });
        let mut eight = 0;
        while eight < COMPONENTS / 8 {
            let component = |i: usize| tile * COMPONENTS + 8 * (eight + i as u32) + among;
            let mut joint = [[[f32::NEG_INFINITY; 2]; 4]; TOGETHER];
            each(TOGETHER, |i| {
                if component(i) < a.components {
                    let at = (group * a.components + component(i)) as u64 * ROWS as u64;
                    // SAFETY: the component is below `components`, and `row(t)` is even and below 64.
                    each(4, |t| joint[i][t] = unsafe { pair(a.joint, at + row(t) as u64) });
                }
            });
            each(TOGETHER, |i| {
                let mut words = [[0; 4]; 2];
                each(4, |t| {
                    let of = |odd: usize| exp2_f32(joint[i][t][odd] - tops[t][odd]) * shares[t][odd];
                    let both = as_halves::<ONE>(of(0), of(1));
                    each(2, |half| words[half][t] = both[half]);
                });
                if component(i) >= a.components {
                    // Also if a row's factor is NaN.
                    words = [[0; 4]; 2];
                }
                each(halves(ONE) as usize, |half_of_number| {
                    let before = (group * tiles + tile) * halves(ONE) + half_of_number as u32;
                    let eights = before as u64 * (COMPONENTS / 8) as u64 + eight as u64 + i as u64;
                    let at = (eights * 8 + (4 * half + v) as u64) * (CORE / 4) as u64 + 4 * among as u64;
                    // SAFETY: only this lane writes this row of a core matrix; 16-byte aligned.
                    unsafe { device::store4(a.responsibilities, at, words[half_of_number]) };
                });
            });
            eight += TOGETHER as u32;
        }
        item += thread::grid_dim_x() * (THREADS / WARP);
    }
}
