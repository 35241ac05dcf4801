//! Normalisers of the rows, and their log-likelihood.
//!
//! A warpgroup keeps the features of 64 rows in registers while it goes over all components, whose coefficients are
//! streamed through shared memory for the four warpgroups of a block. A lane tracks the largest density among its own
//! components only; the four lanes of a row combine theirs at the end.

use crate::Real;
use crate::device::warpgroup::{Cores, LeftOperand};
use crate::device::{self, Shared, WARP, thread, warp, words};
use crate::each::each;
use crate::em::chunked::half_precision::operand::EXPONENTIAL;
use crate::em::state::stopped;
use crate::em::wgmma::linear::stages::{Stages, send};
use crate::em::wgmma::linear::{COMPONENTS, NEXT_FEATURES, NEXT_OTHERS, ROWS, core_bytes, groups, stage_bytes};
use crate::math::ln_f64;

kernels! {
    /// Any grid size in `x`; a block processes 256 rows at a time.
    Logs {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// [`Linear::feature_words`](crate::em::wgmma::linear::Linear::feature_words) words.
        rows: *const u32,
        /// Rows of the chunk, at least one.
        n: u64,
        /// The kernel's number of features, one of [`FEATURES`](crate::em::wgmma::linear::FEATURES).
        features: u32,
        /// [`Linear::stages`](crate::em::wgmma::linear::Linear::stages).
        stages: u32,
        /// [`Linear::operands`](crate::em::wgmma::linear::Linear::operands) words, 16-byte aligned.
        operands: *const u32,
        /// [`logs_len`](crate::em::wgmma::linear::logs_len) elements, written.
        logs: *mut f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements, written: Σ ln p(x) of each
        /// sixteen rows.
        likelihoods: *mut f64,
    }
    /// 64 features.
    wgmma_logs_64 => body::<4>, shared_bytes, threads;
    /// 96 features.
    wgmma_logs_96 => body::<6>, shared_bytes, threads;
    /// 128 features.
    wgmma_logs_128 => body::<8>, shared_bytes, threads;
    /// 160 features.
    wgmma_logs_160 => body::<10>, shared_bytes, threads;
    /// 192 features.
    wgmma_logs_192 => body::<12>, shared_bytes, threads;
    /// 256 features.
    wgmma_logs_256 => body::<16>, shared_bytes, threads;
}

/// Threads per block.
pub const THREADS: u32 = 512;

/// Number of groups of [`ROWS`] rows per block.
const GROUPS: u32 = THREADS / (4 * WARP);

/// Rows per block.
pub const ROWS_OF_BLOCK: u32 = GROUPS * ROWS;

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(features: u32) -> u64 {
    (crate::em::wgmma::linear::stages::SLOTS * stage_bytes(features)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Logs) -> u64 {
    shared_len(a.features)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Logs) -> u32 {
    THREADS
}

/// Below every density, and finite, so that its difference from −∞ is not NaN.
const LOWEST: f32 = -3e38;

/// Maximum excess, in binary logarithms, of a density over the reference `top`: the reciprocal of a sum of some
/// thousand such powers of two is still a normal number.
const FAR: f32 = 64.0;

/// A lane's rows.
struct LaneRows {
    /// Group of [`ROWS`] rows, which may be past the last.
    group: u64,
    /// The first of its two rows in the group.
    inside: u32,
    lane: u32,
}

impl LaneRows {
    /// Rows of this lane in a block that starts with group `first`; recomputed, so that no register holds it while
    /// products run.
    #[inline(always)]
    fn anew(first: u32) -> Self {
        let (me, lane) = (thread::thread_idx_x_anew() / WARP, thread::thread_idx_x_anew() % WARP);
        Self { group: (first + me / 4) as u64, inside: me % 4 * 16 + lane / 4 * 2, lane }
    }
}

/// A lane's rows as left operands of `S` steps: two adjacent rows, which the product treats as rows eight apart. For a
/// group past the last, the rows of the last group.
#[inline(always)]
unsafe fn rows<const S: usize>(a: &Logs, LaneRows { group, inside, lane }: LaneRows) -> [[u32; 4]; S] {
    let last = groups(a.n) - 1;
    let group = if group < last { group } else { last };
    let line = (lane % 4 * 32 + inside / 8 * NEXT_OTHERS + inside % 8 * 2) as u64;
    let from = a.rows.wrapping_add(((group * core_bytes(16 * S as u32) as u64 + line) / 4) as usize);
    let mut words = [[0; 4]; S];
    // All loads before any use, so that latencies overlap.
    each(S, |s| {
        each(4, |i| {
            let at = (2 * s + i / 2) as u32 * NEXT_FEATURES + (i % 2 * 16) as u32;
            // SAFETY: features of two rows of a group that exists, by the clamp above.
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

/// Running state of a lane's two rows, over its own components.
#[derive(Clone, Copy)]
struct SoFar {
    /// A log density near the largest; [`LOWEST`] if there is none yet.
    top: [f32; 2],
    /// Σ 2^(density − top).
    sum: [f32; 2],
}

impl SoFar {
    /// Adds the densities of a stage's components, computed from products.
    ///
    /// Powers of two are taken without finding the maximum first: if a density exceeds `top` by less than [`FAR`],
    /// `top` need not change.
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
        // Independent chains for the two rows, and two chains per row.
        let (mut most, mut new) = ([[LOWEST; 2]; 2], [[0.0; 2]; 2]);
        each(32, |i| most[i / 2 % 2][i % 2] = most[i / 2 % 2][i % 2].max(less[i]));
        let most = most.map(|[even, odd]| even.max(odd));
        let far = [0, 1].map(|r| !known[r] || most[r] > FAR);
        if warp::any(far[0] || far[1]) {
            each(2, |r| {
                // Negative only if there was no `top` yet.
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

/// Body of the kernel for `S` steps of sixteen features.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Logs`] document.
#[inline(always)]
unsafe fn body<const S: usize>(a: Logs)
where
    [[u32; 4]; S]: LeftOperand,
{
    // SAFETY: `state` is null or a loop's state, as `Logs` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let features = 16 * S as u32;
    let bytes = stage_bytes(features);
    let t = warp::lane_id() % 4;
    // Whether this warpgroup works one stage behind the others.
    let behind = thread::thread_idx_x() >= THREADS / 2;
    // The stages repeat for each of the block's groups of rows.
    let mut next = 0;
    let mut send_next = |to: u32| {
        let from = a.operands.wrapping_add((next * (bytes / 4)) as usize);
        // SAFETY: `next < stages`.
        unsafe { send(to, from, bytes, THREADS) };
        next = if next + 1 == a.stages { 0 } else { next + 1 };
    };
    let mut stages = Stages::start(0, bytes, &mut send_next);
    // No device holds enough rows to exceed 32 bits here.
    let all = groups(a.n) as u32;
    let mut first = thread::block_idx_x() * GROUPS;
    while first < all {
        // SAFETY: `rows` has the features of all `groups(n)` groups.
        let left: [[u32; 4]; S] = unsafe { rows(&a, LaneRows::anew(first)) };
        let mut so_far = SoFar { top: [LOWEST; 2], sum: [0.0; 2] };
        let mut joint = [0.0; 32];
        let (mut at, mut before) = (0, 0);
        // Two turns per stage, so that the code of both exists once: warpgroups ahead run products in the first turn.
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
                    // The compiler does not know that products overwrite these, and would keep them.
                    joint = [0.0; 32];
                }
            } else if turn < 2 * a.stages {
                left.times(&mut joint, Cores { at, terms: NEXT_FEATURES, others: NEXT_OTHERS });
            }
            turn += 1;
        }
        // SAFETY: `finish` writes rows of existing groups only.
        unsafe { finish(&a, LaneRows::anew(first), so_far) };
        first += thread::grid_dim_x_anew() * GROUPS;
    }
    // Waits for copies in flight that will not be used.
    crate::device::copies::arrive();
}

/// Combines the four lanes' parts of two rows, and writes the rows' normalisers and log-likelihood.
#[inline(always)]
unsafe fn finish(a: &Logs, LaneRows { group, inside, lane }: LaneRows, SoFar { mut top, mut sum }: SoFar) {
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
        // Factors are 0 past the last row, and NaN if a density is NaN: it reaches the sums, and the host takes another
        // path.
        (out[2 * r], out[2 * r + 1]) = if there { (top[r], EXPONENTIAL / sum[r]) } else { (f32::INFINITY, 0.0) };
    });
    each(3, |i| likelihood += warp::shuffle_xor(likelihood, 4 << i));
    if group < groups(a.n) {
        // SAFETY: the group exists; one of the four lanes of two rows writes them, and lane 0 the log-likelihood of
        // sixteen rows.
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
