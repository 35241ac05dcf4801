//! What rows are normalised with, and their likelihood.
//!
//! A warpgroup has the features of 64 rows in registers for as long as it takes to go over all components, whose coefficients
//! pass by in shared memory for the four warpgroups of a block. A lane looks for the largest density among its own components
//! alone, and four lanes compare at the end.

use crate::Real;
use crate::device::warpgroup::{Cores, Left};
use crate::device::{self, Shared, WARP, thread, warp, words};
use crate::each::each;
use crate::em::chunked::half_precision::operand::EXPONENTIAL;
use crate::em::state::stopped;
use crate::em::wgmma::linear::stages::{PLACES, Stages, send};
use crate::em::wgmma::linear::{COMPONENTS, NEXT_FEATURES, NEXT_OTHERS, ROWS, core_bytes, groups, stage_bytes};
use crate::math::ln_f64;

kernels! {
    /// Any grid in `x`; a block takes 256 rows at a time.
    Logs {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// [`Linear::feature_words`](crate::em::wgmma::linear::Linear::feature_words).
        rows: *const u32,
        /// Rows of the chunk, at least one.
        n: u64,
        /// One of [`FEATURES`](crate::em::wgmma::linear::FEATURES): that of the kernel.
        features: u32,
        /// [`Linear::stages`](crate::em::wgmma::linear::Linear::stages).
        stages: u32,
        /// [`Linear::operands`](crate::em::wgmma::linear::Linear::operands), 16-byte aligned.
        operands: *const u32,
        /// [`logs_len`](crate::em::wgmma::linear::logs_len), written.
        logs: *mut f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods), written: Σ ln p(x) of each sixteen rows.
        likelihoods: *mut f64,
    }
    /// Of 64 features.
    warpgroups_logs_64 => body::<4>, shared_bytes, threads;
    /// Of 96 features.
    warpgroups_logs_96 => body::<6>, shared_bytes, threads;
    /// Of 128 features.
    warpgroups_logs_128 => body::<8>, shared_bytes, threads;
    /// Of 160 features.
    warpgroups_logs_160 => body::<10>, shared_bytes, threads;
    /// Of 192 features.
    warpgroups_logs_192 => body::<12>, shared_bytes, threads;
    /// Of 256 features.
    warpgroups_logs_256 => body::<16>, shared_bytes, threads;
}

/// Threads of a block.
pub const THREADS: u32 = 512;

/// Times [`ROWS`] rows of a block.
const GROUPS: u32 = THREADS / (4 * WARP);

/// Rows of a block.
pub const ROWS_OF_BLOCK: u32 = GROUPS * ROWS;

/// Bytes of shared memory.
pub(crate) const fn shared_len(features: u32) -> u64 {
    (PLACES * stage_bytes(features)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Logs) -> u64 {
    shared_len(a.features)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Logs) -> u32 {
    THREADS
}

/// Less than every density, and finite, so that a difference to −∞ is a number.
const LOWEST: f32 = -3e38;

/// How much larger than what powers of two are taken of a density may be: some thousand such powers add up to a number whose
/// reciprocal is one too.
const FAR: f32 = 64.0;

/// Which rows a lane has.
struct Place {
    /// Times [`ROWS`] rows, which need not be there.
    group: u64,
    /// The first of its two rows in the group.
    inside: u32,
    lane: u32,
}

impl Place {
    /// Of a block that begins with this group; found anew, so that no register holds it while products are formed.
    #[inline(always)]
    fn anew(first: u32) -> Self {
        let (me, lane) = (thread::thread_idx_x_anew() / WARP, thread::thread_idx_x_anew() % WARP);
        Self { group: (first + me / 4) as u64, inside: me % 4 * 16 + lane / 4 * 2, lane }
    }
}

/// A lane's rows as left operands of `S` steps: two neighbours, which the product takes for rows eight apart. Rows that are not
/// there are others.
#[inline(always)]
unsafe fn rows<const S: usize>(a: &Logs, Place { group, inside, lane }: Place) -> [[u32; 4]; S] {
    let last = groups(a.n) - 1;
    let group = if group < last { group } else { last };
    let line = (lane % 4 * 32 + inside / 8 * NEXT_OTHERS + inside % 8 * 2) as u64;
    let from = a.rows.wrapping_add(((group * core_bytes(16 * S as u32) as u64 + line) / 4) as usize);
    let mut words = [[0; 4]; S];
    // All that is read before any of it is used, so that latencies pass together.
    each(S, |s| {
        each(4, |i| {
            let at = (2 * s + i / 2) as u32 * NEXT_FEATURES + (i % 2 * 16) as u32;
            // SAFETY: features of two rows of a group that there is.
            words[s][i] = unsafe { device::load(from, (at / 4) as u64) };
        });
    });
    let mut out = [[0; 4]; S];
    each(S, |s| {
        each(2, |half| {
            let [even, odd] = [words[s][2 * half], words[s][2 * half + 1]];
            out[s][2 * half] = even & 0xffff | odd << 16;
            out[s][2 * half + 1] = even >> 16 | odd & 0xffff_0000;
        });
    });
    out
}

/// What a lane knows of its two rows so far, among its own components.
#[derive(Clone, Copy)]
struct SoFar {
    /// A density that is not far below the largest; [`LOWEST`] where none is known.
    top: [f32; 2],
    /// Powers of two less that, added up.
    sum: [f32; 2],
}

impl SoFar {
    /// Densities of a stage's components from products.
    ///
    /// The largest is not looked for before powers of two are taken: one that is larger than all before it by less than [`FAR`]
    /// needs no other beginning.
    #[inline(always)]
    fn add(&mut self, products: &[f32; 32], stage: u32, features: u32, t: u32) {
        let scalars = Shared::<f32>::at(stage + core_bytes(features));
        let mut less = *products;
        let known = self.top.map(|top| top > LOWEST);
        let from = [0, 1].map(|r| if known[r] { self.top[r] } else { 0.0 });
        each(8, |i| {
            let [c, m, d, n] = scalars.load4(2 * (8 * i as u32 + 2 * t));
            each(2, |r| {
                less[4 * i + 2 * r] = Real::fma(m, less[4 * i + 2 * r], c - from[r]);
                less[4 * i + 2 * r + 1] = Real::fma(n, less[4 * i + 2 * r + 1], d - from[r]);
            });
        });
        // Chains of one row are independent of the other's, and two of a row of each other.
        let (mut most, mut new) = ([[LOWEST; 2]; 2], [[0.0; 2]; 2]);
        each(32, |i| most[i / 2 % 2][i % 2] = most[i / 2 % 2][i % 2].max(less[i]));
        let most = most.map(|[even, odd]| even.max(odd));
        let far = [0, 1].map(|r| !known[r] || most[r] > FAR);
        if warp::any(far[0] || far[1]) {
            each(2, |r| {
                // Less than nothing only where nothing was known.
                let by = if known[r] { most[r].max(0.0) } else { most[r] };
                each(16, |i| {
                    let at = i / 2 * 4 + 2 * r + i % 2;
                    less[at] -= by;
                });
                self.sum[r] *= words::exp2_approx_f32(-by.max(0.0));
                self.top[r] = from[r] + by;
            });
        }
        each(32, |i| new[i / 2 % 2][i % 2] += words::exp2_approx_f32(less[i]));
        each(2, |r| self.sum[r] += new[r][0] + new[r][1]);
    }
}

/// The kernel for `S` steps of sixteen features.
///
/// # Safety
/// As the fields of [`Logs`] say.
#[inline(always)]
unsafe fn body<const S: usize>(a: Logs)
where
    [[u32; 4]; S]: Left,
{
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let features = 16 * S as u32;
    let bytes = stage_bytes(features);
    let t = warp::lane_id() % 4;
    // A stage behind the others.
    let behind = thread::thread_idx_x() >= THREADS / 2;
    // Stages come again and again, for each of the block's rows.
    let mut next = 0;
    let mut send_next = |to: u32| {
        let from = a.operands.wrapping_add((next * (bytes / 4)) as usize);
        // SAFETY: one of the stages.
        unsafe { send(to, from, bytes, THREADS) };
        next = if next + 1 == a.stages { 0 } else { next + 1 };
    };
    let mut stages = Stages::start(0, bytes, &mut send_next);
    // So many rows as would pass 32 bits here no device holds.
    let all = groups(a.n) as u32;
    let mut first = thread::block_idx_x() * GROUPS;
    while first < all {
        // SAFETY: the features of all rows are there.
        let left: [[u32; 4]; S] = unsafe { rows(&a, Place::anew(first)) };
        let mut so_far = SoFar { top: [LOWEST; 2], sum: [0.0; 2] };
        let mut joint = [0.0; 32];
        let (mut at, mut before) = (0, 0);
        // In two turns for each stage, so that either is written out once: those ahead form products in the first.
        let mut turn = 0;
        while turn <= 2 * a.stages {
            let even = turn % 2 == 0;
            if even && turn < 2 * a.stages {
                before = at;
                at = stages.take(&mut send_next);
            } else if even {
                before = at;
            }
            if even == behind {
                if turn > 0 {
                    so_far.add(&joint, if behind { before } else { at }, features, t);
                    // The compiler does not know that products come next, and would keep these.
                    joint = [0.0; 32];
                }
            } else if turn < 2 * a.stages {
                left.times(&mut joint, Cores { at, terms: NEXT_FEATURES, others: NEXT_OTHERS });
            }
            turn += 1;
        }
        // SAFETY: the warp's rows, if there are any.
        unsafe { finish(&a, Place::anew(first), so_far) };
        first += thread::grid_dim_x_anew() * GROUPS;
    }
    // What is on its way and will not be used.
    crate::device::copies::arrive();
}

/// Of a lane's two rows, about whose components four lanes know a part each.
#[inline(always)]
unsafe fn finish(a: &Logs, Place { group, inside, lane }: Place, SoFar { mut top, mut sum }: SoFar) {
    let row = group * ROWS as u64 + inside as u64;
    let mut likelihood = 0.0;
    let mut out = [0.0_f32; 4];
    each(2, |r| {
        each(2, |i| {
            let (other, rest) = (warp::shuffle_xor(top[r], 1 << i), warp::shuffle_xor(sum[r], 1 << i));
            let most = top[r].max(other);
            let by = |of: f32| words::exp2_approx_f32(of - most);
            sum[r] = sum[r] * by(top[r]) + rest * by(other);
            top[r] = most;
        });
        let there = row + (r as u64) < a.n;
        if there {
            likelihood += Real::fma(top[r].to_f64(), core::f64::consts::LN_2, ln_f64(sum[r].to_f64()));
        }
        // Past the last row all is nothing. Not a number where a density is: it shows in the sums.
        (out[2 * r], out[2 * r + 1]) = if there { (top[r], EXPONENTIAL / sum[r]) } else { (f32::INFINITY, 0.0) };
    });
    each(3, |i| likelihood += warp::shuffle_xor(likelihood, 4 << i));
    if group < groups(a.n) {
        // SAFETY: the lanes of two rows have the same; sixteen rows of the group.
        unsafe {
            if lane.is_multiple_of(4) {
                device::store4(a.logs.cast(), 2 * row, out.map(f32::to_bits));
            }
            if lane == 0 {
                device::store(a.likelihoods, group * 4 + (inside / 16) as u64, likelihood);
            }
        }
    }
}

const _: () = assert!(COMPONENTS == 64 && ROWS == 64);
