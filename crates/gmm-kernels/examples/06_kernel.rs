//! A custom kernel: the sum of squares of many numbers, one partial result per block, run in the emulator.
//!
//! ```sh
//! cargo run --release -p gmm-kernels --example 06_kernel
//! ```
//!
//! The emulator runs the threads of a block on the host. It panics where a GPU would hang or give other results: a
//! barrier that some thread does not reach, a race in shared memory, a read of unwritten memory, an access out of
//! bounds.
//!
//! **On a GPU** the same function runs once it is part of this crate, since there is no public way to launch a custom
//! module. The steps are:
//! 1. Put body and arguments into a file of `crates/gmm-kernels/src`, and declare them with `kernels!`, as `reduce.rs`
//!    does: the macro makes the entry points and their description for the launcher. Add the module to `lib.rs` and the
//!    kernel to the list in `signature.rs`.
//! 2. Run `cargo xtask build-ptx` and commit the PTX. The command names any missing tool. The PTX file is named after
//!    the kernel's family, which `xtask/src/build_ptx/family.rs` derives from the kernel's name.
//! 3. Add a safe launch function under `crates/gmm-host/src/cuda/launch`, and call it from the engine.

use gmm_kernels::THREADS;
use gmm_kernels::device::{self, Buffer, Shared, block_sum, thread};

/// Block `b` of the grid writes `partials[b]`, the sum of its numbers' squares. Shared memory: one `f64` per warp.
///
/// # Safety
/// `numbers` must have `n` entries, and `partials` one per block.
unsafe fn sum_of_squares(numbers: *const f64, n: u64, partials: *mut f64) {
    let mut sum = 0.0;
    let mut i = thread::index_1d();
    // Neighbouring threads read neighbouring numbers; the grid strides over all of them.
    while i < n {
        // SAFETY: `i < n`.
        let x = unsafe { device::load(numbers, i) };
        sum += x * x;
        i += thread::count_1d();
    }
    // Shuffles within a warp, then shared memory between warps, always in the same order.
    let total = block_sum(sum, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        // SAFETY: `partials` has one entry per block, and only this thread writes this block's.
        unsafe { device::store(partials, thread::block_idx_x().into(), total) };
    }
}

fn main() {
    const BLOCKS: usize = 4;
    let numbers: Vec<f64> = (1..=10_000).map(f64::from).collect();
    let (from, mut to) = (Buffer::new(&numbers), Buffer::<f64>::unwritten(BLOCKS));
    let (from_pointer, n, to_pointer) = (from.pointer(), numbers.len() as u64, to.pointer_mut());

    let shared_bytes = THREADS / device::WARP * 8;
    device::emulate((BLOCKS as u32, 1), THREADS, shared_bytes, || {
        // SAFETY: `from` has `n` numbers, and `to` one per block.
        unsafe { sum_of_squares(from_pointer, n, to_pointer) }
    });

    let partials = to.to_vec();
    println!("partial sums of {BLOCKS} blocks of {THREADS} threads: {partials:?}");
    let total: f64 = partials.iter().sum();
    println!("sum of squares of 1 to 10000: {total}");
    // n (n + 1) (2n + 1) / 6, exactly: all partial sums are integers below 2⁵³.
    assert_eq!(total, 333_383_335_000.0);
}
