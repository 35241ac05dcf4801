//! The words on the host: a block's threads as coroutines that switch where a GPU's threads would wait.
//!
//! Why coroutines and not OS threads: a switch costs nanoseconds instead of microseconds, the order is the same in
//! every run, and at each barrier the emulator *knows* where every thread is. So it can panic, naming the thread,
//! where a GPU would hang or silently race:
//! - a barrier or warp word that some threads never reach, because they returned or wait elsewhere;
//! - two threads that touch the same shared word, one writing, with no barrier between them;
//! - shared memory read before it was written (it is also filled with NaN), or out of bounds, or misaligned;
//! - shared memory touched while a copy to it is on its way: until the thread that sent for it waited;
//! - global memory outside every live [`Buffer`], or read before it was written.

mod block;
mod buffer;
mod collective;
mod halves;
mod shadow;

pub use block::emulate;
pub use buffer::Buffer;
pub(crate) use buffer::{check_load, check_store};
pub use collective::{
    any, mma_m8n8k4_f64, mma_m16n8k4_f64, mma_m16n8k8_f64, mma_m16n8k8_tf32, mma_m16n8k16_bf16, mma_m16n8k16_f16,
    mma_m16n8k16_f64, shuffle_idx_u32, shuffle_xor_u32, sync_warp,
};
pub use halves::{from_halves, multiply_halves, to_halves};

use block::{Stop, me};

macro_rules! index {
    ($($name:ident = $field:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub fn $name() -> u32 {
            ($field)(me())
        }
    )*};
}

index! {
    thread_idx_x = |me: &block::Thread<'_>| me.index;
    block_dim_x = |me: &block::Thread<'_>| me.block.shape.threads;
    block_idx_x = |me: &block::Thread<'_>| me.block.at.0;
    block_idx_y = |me: &block::Thread<'_>| me.block.at.1;
    grid_dim_x = |me: &block::Thread<'_>| me.block.shape.grid.0;
    grid_dim_y = |me: &block::Thread<'_>| me.block.shape.grid.1;
}

/// Waits for all threads of the block.
pub fn sync_threads() {
    me().stop(Stop::Barrier);
}

/// Nothing: launches run one after another here.
pub fn await_previous_grid() {}

pub(crate) fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

pub(crate) fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

pub(crate) fn sqrt_f32(a: f32) -> f32 {
    a.sqrt()
}

pub(crate) fn sqrt_f64(a: f64) -> f64 {
    a.sqrt()
}

/// `thread_idx_x`.
pub fn thread_idx_x_anew() -> u32 {
    thread_idx_x()
}

/// `grid_dim_x`.
pub fn grid_dim_x_anew() -> u32 {
    grid_dim_x()
}

/// The same number.
pub fn unknown(n: u32) -> u32 {
    n
}

/// With an error as large as the chip's.
pub(crate) fn exp2_approx_f32(a: f32) -> f32 {
    let exact = a.exp2() * (1.0 + 1.5e-7);
    if exact < f32::MIN_POSITIVE { 0.0 } else { exact }
}

/// With an error as large as the chip's.
pub(crate) fn log2_approx_f32(a: f32) -> f32 {
    a.log2() + 2.0_f32.powi(-23)
}

/// `1/a` within an ulp; subnormal numbers are 0.
pub(crate) fn reciprocal_approx_f32(a: f32) -> f32 {
    let flushed = |v: f32| if v.abs() < f32::MIN_POSITIVE { 0.0 * v } else { v };
    flushed(1.0 / flushed(a))
}

/// To 20 bits, as on the chip.
pub(crate) fn reciprocal_approx_f64(a: f64) -> f64 {
    f64::from_bits((1.0 / a).to_bits() & !((1 << 32) - 1))
}

macro_rules! shared {
    ($t:ty, $n:literal, $load:ident, $store:ident) => {
        pub(crate) fn $load(offset: u32) -> $t {
            let words = me().block.shared.load::<{ $n }>(offset, me());
            // SAFETY: plain old data of the same size, both arrays of `u32`-sized words.
            unsafe { std::mem::transmute_copy(&words) }
        }

        pub(crate) fn $store(offset: u32, value: $t) {
            // SAFETY: as above.
            let words: [u32; $n] = unsafe { std::mem::transmute_copy(&value) };
            me().block.shared.store(offset, words, me());
        }
    };
}
shared!(u32, 1, shared_load_u32, shared_store_u32);
shared!(u64, 2, shared_load_u64, shared_store_u64);
shared!([u32; 4], 4, shared_load_u32x4, shared_store_u32x4);
shared!([u64; 2], 4, shared_load_u64x2, shared_store_u64x2);

pub(crate) unsafe fn global_load_u32x4(p: *const u32) -> [u32; 4] {
    check_load(p, 4);
    // SAFETY: the caller's promise, and checked just now.
    unsafe { *p.cast() }
}

/// An array among a launch's parameters: pairs of numbers.
#[derive(Clone, Copy)]
pub struct Pairs<'a>(&'a [u64]);

impl<'a> Pairs<'a> {
    pub(crate) const fn of(all: &'a [u64]) -> Self {
        Self(all)
    }

    /// Asks for all `len` of them, each lane for some. 0, which comes when they are there.
    pub fn bring(self, len: u32, _: u32) -> f64 {
        assert!(len as usize <= self.0.len(), "{len} pairs");
        0.0
    }

    /// From this pair on.
    pub fn from(self, pair: u32) -> Self {
        Self(&self.0[pair as usize..])
    }

    /// A pair.
    pub fn at(self, pair: u32) -> [f32; 2] {
        let both = self.0[pair as usize];
        [f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32)]
    }
}

macro_rules! array_parameter {
    ($field:expr, $name:literal) => {
        $crate::device::Pairs::of(&$field)
    };
}
pub(crate) use array_parameter;

pub(crate) fn keeping(long: bool) -> u64 {
    long.into()
}

pub(crate) unsafe fn global_load_u32x4_keeping(p: *const u32, _: u64) -> [u32; 4] {
    // SAFETY: the caller's promise.
    unsafe { global_load_u32x4(p) }
}

pub(crate) unsafe fn global_load_u64x2(p: *const u64) -> [u64; 2] {
    check_load(p, 2);
    // SAFETY: as above.
    unsafe { *p.cast() }
}

pub(crate) unsafe fn global_store_u32x4(p: *mut u32, v: [u32; 4]) {
    check_store(p.cast_const(), 4);
    // SAFETY: the caller's promise, and checked just now.
    unsafe { *p.cast() = v };
}

/// Here all is near.
pub(crate) fn prefetch(_: *const u8) {}

/// Blocks run one after another here.
///
/// # Safety
/// `p` is in a live [`Buffer`].
pub unsafe fn count_block(p: *mut u32) -> u32 {
    check_load(p.cast_const(), 1);
    // SAFETY: the caller's promise, and checked just now.
    unsafe {
        let before = *p;
        *p = before + 1;
        before
    }
}

/// It arrives when the thread waits for it, and no sooner.
pub(crate) unsafe fn copy_ahead(offset: u32, from: *const u8) {
    // SAFETY: the caller's promise.
    let numbers = unsafe { global_load_u64x2(from.cast()) };
    // SAFETY: both plain old data of 16 bytes.
    me().send(offset, unsafe { std::mem::transmute::<[u64; 2], [u32; 4]>(numbers) });
}

/// As [`copy_ahead`].
pub(crate) unsafe fn copy_ahead_u64(offset: u32, from: *const u64) {
    check_load(from, 1);
    // SAFETY: the caller's promise, and checked just now.
    let number = unsafe { *from };
    me().send(offset, [number as u32, (number >> 32) as u32]);
}

/// All that this thread sent for is there.
pub(crate) fn copies_arrive() {
    me().arrive(|_, _| true);
}

/// As [`copy_ahead`].
pub(crate) unsafe fn copy_ahead_once(offset: u32, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe { copy_ahead(offset, from) };
}

/// Ends a group of what this thread sent for.
pub(crate) fn copies_end_group() {
    let groups = &me().groups;
    groups.set(groups.get() + 1);
}

/// All groups that this thread ended but the `LATER` last are there.
pub(crate) fn copies_arrive_but<const LATER: u32>() {
    me().arrive(|group, ended| group + LATER < ended);
}
