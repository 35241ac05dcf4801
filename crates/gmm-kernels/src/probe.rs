//! Self-test of the device primitives: applies each one to given numbers, so that device and emulator can be compared.

use crate::device::mma;
use crate::device::{self, Shared, WARP, block_sum, thread, warp};
use crate::{Real, math};

kernels! {
    /// One block of 128 threads.
    Probe {
        /// `(128,)`: one number per thread.
        x: *const f64,
        /// `(128, 8)`, written: exp and ln in `f64` and in `f32`, shuffle by 5 in both types, block sum, and the next
        /// thread's number read through shared memory.
        out: *mut f64,
    }
    /// The kernel.
    probe_words => words_body, words_shared;
}

kernels! {
    /// One block of one or more warps, each with the same `A` (16×16) and `B` (16×8), row-major.
    ProbeMma {
        /// `(16, 16)`.
        a: *const f64,
        /// `(16, 8)`.
        b: *const f64,
        /// `(4, 16, 8)`, written: products in TF32 (columns 0..8 of `A`), BF16, f64 8×8×4 (the upper left 8×4 of `A`)
        /// and f64 16×8×16.
        out: *mut f64,
    }
    /// The kernel.
    probe_mma => mma_body, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn words_shared(_: &Probe) -> u64 {
    u64::from(crate::THREADS * 16)
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &ProbeMma) -> u64 {
    0
}

/// Body of [`probe_words`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Probe`].
#[inline(always)]
pub unsafe fn words_body(a: Probe) {
    let t = thread::thread_idx_x();
    // SAFETY: the block has 128 threads, so `t < 128`: `x` has 128 numbers and `out` 128*8.
    unsafe {
        let x = device::load(a.x, t as u64);
        let narrow = x as f32;
        let shared = Shared::<f64>::at(0);
        let sum = block_sum(x, shared);
        shared.store(t, x);
        thread::sync_threads();
        let neighbour = shared.load((t + 1) % thread::block_dim_x());
        let out = [
            math::exp_f64(x),
            math::ln_f64(x),
            math::exp_f32(narrow) as f64,
            math::ln_f32(narrow) as f64,
            warp::shuffle_xor(x, 5),
            Real::shuffle_xor(narrow, 5) as f64,
            sum,
            neighbour,
        ];
        let mut i = 0;
        while i < 8 {
            device::store(a.out, t as u64 * 8 + i as u64, out[i]);
            i += 1;
        }
    }
}

/// Body of [`probe_mma`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`ProbeMma`].
#[inline(always)]
pub unsafe fn mma_body(probe: ProbeMma) {
    let lane = warp::lane_id();
    let (g, t) = (lane / 4, lane % 4);
    // SAFETY: `row` and `column` are below 16, and `a` is 16×16.
    let a = |row: u32, column: u32| unsafe { device::load(probe.a, (row * 16 + column) as u64) };
    // SAFETY: `row` is below 16 and `column` below 8, and `b` is 16×8.
    let b = |row: u32, column: u32| unsafe { device::load(probe.b, (row * 8 + column) as u64) };
    let put = |which: u32, row: u32, column: u32, v: f64| {
        if thread::thread_idx_x() < WARP {
            // SAFETY: `which < 4`, `row < 16` and `column < 8`, so the index lies within `out`; only the first warp
            // writes.
            unsafe { device::store(probe.out, ((which * 16 + row) * 8 + column) as u64, v) };
        }
    };
    let bits = |v: f64| (v as f32).to_bits();
    let pair = |low: f64, high: f64| bits(low) >> 16 | bits(high) & 0xffff_0000;
    let four = |which, c: [f64; 4]| {
        put(which, g, 2 * t, c[0]);
        put(which, g, 2 * t + 1, c[1]);
        put(which, g + 8, 2 * t, c[2]);
        put(which, g + 8, 2 * t + 1, c[3]);
    };
    let mut c = [0.0; 4];
    let left = [a(g, t), a(g + 8, t), a(g, t + 4), a(g + 8, t + 4)].map(bits);
    mma::mma_m16n8k8_tf32(&mut c, left, [b(t, g), b(t + 4, g)].map(bits));
    four(0, c.map(|v| v as f64));

    let mut c = [0.0; 4];
    let left = |row: u32, column: u32| pair(a(row, column), a(row, column + 1));
    let right = |row: u32| pair(b(row, g), b(row + 1, g));
    let fragment = [left(g, 2 * t), left(g + 8, 2 * t), left(g, 2 * t + 8), left(g + 8, 2 * t + 8)];
    mma::mma_m16n8k16_bf16(&mut c, fragment, [right(2 * t), right(2 * t + 8)]);
    four(1, c.map(|v| v as f64));

    let mut c = [0.0; 2];
    mma::mma_m8n8k4_f64(&mut c, a(g, t), b(t, g));
    put(2, g, 2 * t, c[0]);
    put(2, g, 2 * t + 1, c[1]);

    let mut c = [0.0; 4];
    let [x, y] = [g, g + 8].map(|row| [0, 4, 8, 12].map(|column| a(row, t + column)));
    let left = [x[0], y[0], x[1], y[1], x[2], y[2], x[3], y[3]];
    mma::f64_16x8x16(&mut c, left, [b(t, g), b(t + 4, g), b(t + 8, g), b(t + 12, g)]);
    four(3, c);
}
