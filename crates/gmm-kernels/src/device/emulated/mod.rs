//! The device primitives on the host: the threads of a block are coroutines that switch wherever a GPU's threads would
//! wait.
//!
//! Coroutines have three advantages over OS threads: a switch costs nanoseconds instead of microseconds, the order is
//! the same in every run, and at each barrier the emulator *knows* where every thread is. It can therefore panic,
//! naming the thread, where a GPU would hang or silently race:
//! - a barrier or warp-wide primitive that some threads never reach, because they returned or wait elsewhere;
//! - two threads that access the same shared word without a barrier between them, at least one of them writing;
//! - shared memory that is read before it is written (it is also filled with NaN), or accessed out of bounds or
//!   misaligned;
//! - shared memory accessed while a copy to it is in flight, that is, until the thread that started the copy has
//!   waited;
//! - global memory outside every live [`Buffer`], or read before it is written.

mod block;
mod buffer;
mod collective;
mod halves;
mod shadow;

pub use block::emulate;
pub use buffer::Buffer;
pub(crate) use buffer::{check_load, check_store};
pub use collective::{
    any, ballot, mma_m8n8k4_f64, mma_m16n8k4_f64, mma_m16n8k8_f64, mma_m16n8k8_tf32, mma_m16n8k16_bf16,
    mma_m16n8k16_f16, mma_m16n8k16_f16_wide, mma_m16n8k16_f64, shuffle_idx_u32, shuffle_xor_u32, sync_warp,
};
pub(crate) use collective::{shuffle_idx_u64, shuffle_xor_u64};
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

/// Does nothing: launches run one after another here.
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

/// Returns `n`.
pub fn unknown(n: u32) -> u32 {
    n
}

/// As inaccurate as the hardware's instruction.
pub(crate) fn exp2_approx_f32(a: f32) -> f32 {
    let exact = a.exp2() * (1.0 + 1.5e-7);
    if exact < f32::MIN_POSITIVE { 0.0 } else { exact }
}

/// As inaccurate as the hardware's instruction.
pub(crate) fn log2_approx_f32(a: f32) -> f32 {
    a.log2() + 2.0_f32.powi(-23)
}

/// `1/a` within an ulp; subnormal arguments and results are flushed to 0.
pub(crate) fn reciprocal_approx_f32(a: f32) -> f32 {
    let flushed = |v: f32| if v.abs() < f32::MIN_POSITIVE { 0.0 * v } else { v };
    flushed(1.0 / flushed(a))
}

/// `1/a` to 20 bits, as on the hardware.
pub(crate) fn reciprocal_approx_f64(a: f64) -> f64 {
    f64::from_bits((1.0 / a).to_bits() & !((1 << 32) - 1))
}

macro_rules! shared {
    ($t:ty, $n:literal, $load:ident, $store:ident) => {
        pub(crate) fn $load(offset: u32) -> $t {
            let words = me().block.shared.load::<{ $n }>(offset, me());
            // SAFETY: `$t` and `[u32; $n]` are plain old data of the same size.
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
    // SAFETY: `check_load` verified that the 16 bytes at `p` are live, aligned and written.
    unsafe { *p.cast() }
}

/// An array of pairs of `f32` among a kernel's parameters.
#[derive(Clone, Copy)]
pub struct Pairs<'a>(&'a [u64]);

impl<'a> Pairs<'a> {
    pub(crate) const fn of(all: &'a [u64]) -> Self {
        Self(all)
    }

    /// Loads the `len` pairs into the parameter cache on a GPU. Here it only checks `len`. Returns 0.
    pub fn bring(self, len: u32, _: u32) -> f64 {
        assert!(len as usize <= self.0.len(), "{len} pairs");
        0.0
    }

    /// The array from this pair on.
    pub fn from(self, pair: u32) -> Self {
        Self(&self.0[pair as usize..])
    }

    /// Returns a pair.
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
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16; `global_load_u32x4` checks it.
    unsafe { global_load_u32x4(p) }
}

pub(crate) unsafe fn global_load_u64x2(p: *const u64) -> [u64; 2] {
    check_load(p, 2);
    // SAFETY: `check_load` verified that the 16 bytes at `p` are live, aligned and written.
    unsafe { *p.cast() }
}

pub(crate) unsafe fn global_store_u32x4(p: *mut u32, v: [u32; 4]) {
    check_store(p.cast_const(), 4);
    // SAFETY: `check_store` verified that the 16 bytes at `p` are live and aligned.
    unsafe { *p.cast() = v };
}

/// Does nothing: there is no cache here.
pub(crate) fn prefetch(_: *const u8) {}

/// Adds 1 to a grid's counter of finished blocks and returns its previous value. Blocks run one after another here.
///
/// # Safety
/// `p` must be in a live [`Buffer`].
pub unsafe fn count_block(p: *mut u32) -> u32 {
    check_load(p.cast_const(), 1);
    // SAFETY: `check_load` verified that `*p` is live and aligned, and only one emulated thread runs at a time.
    unsafe {
        let before = *p;
        *p = before + 1;
        before
    }
}

/// The copy completes when the thread waits for it, and no sooner.
pub(crate) unsafe fn copy_ahead(offset: u32, from: *const u8) {
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16; `global_load_u64x2` checks it.
    let numbers = unsafe { global_load_u64x2(from.cast()) };
    // SAFETY: `[u64; 2]` and `[u32; 4]` are plain old data of 16 bytes.
    me().send(offset, unsafe { std::mem::transmute::<[u64; 2], [u32; 4]>(numbers) });
}

/// As [`copy_ahead`].
pub(crate) unsafe fn copy_ahead_u64(offset: u32, from: *const u64) {
    check_load(from, 1);
    // SAFETY: `check_load` verified that `*from` is live, aligned and written.
    let number = unsafe { *from };
    me().send(offset, [number as u32, (number >> 32) as u32]);
}

/// Completes all copies that this thread started.
pub(crate) fn copies_arrive() {
    me().arrive(|_, _| true);
}

/// As [`copy_ahead`].
pub(crate) unsafe fn copy_ahead_once(offset: u32, from: *const u8) {
    // SAFETY: the caller upholds what `copy_ahead` requires: 16 live bytes at `from`, aligned to 16.
    unsafe { copy_ahead(offset, from) };
}

/// Ends a group of copies: those that this thread started since the previous group.
pub(crate) fn copies_end_group() {
    let groups = &me().groups;
    groups.set(groups.get() + 1);
}

/// Completes all of this thread's copy groups except the last `LATER`.
pub(crate) fn copies_arrive_but<const LATER: u32>() {
    me().arrive(|group, ended| group + LATER < ended);
}
