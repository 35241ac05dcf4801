//! The words as PTX, one instruction each.

#[cfg(feature = "sm_80")]
mod mma;
#[cfg(feature = "sm_90a")]
pub mod triangle;
#[cfg(feature = "sm_90a")]
pub mod warpgroup;

use core::arch::{asm, global_asm, nvptx};

#[cfg(feature = "sm_80")]
pub use self::mma::*;

global_asm!(".extern .shared .align 16 .b8 dynamic_shared[];");

// SAFETY of this whole floor: each `asm!` is one instruction that reads and writes its named operands, and, for
// `shared_*` and `global_*`, the memory at the address that the caller vouches for.

macro_rules! index {
    ($($name:ident => $intrinsic:ident),* $(,)?) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register.
            unsafe { nvptx::$intrinsic() as u32 }
        }
    )*};
}

index! {
    thread_idx_x => _thread_idx_x, block_dim_x => _block_dim_x,
    block_idx_x => _block_idx_x, block_idx_y => _block_idx_y,
    grid_dim_x => _grid_dim_x, grid_dim_y => _grid_dim_y,
}

/// Waits for all threads of the block; their stores before it are seen after it.
#[inline(always)]
pub fn sync_threads() {
    // SAFETY: kernels reach every barrier with all threads; the emulator's tests prove it.
    unsafe { nvptx::_syncthreads() }
}

/// Waits until the grids before this one in the stream have ended, and sees what they wrote; then lets the next grid take
/// its places, where it says the same before it touches memory that they write. The host launches a kernel that says this
/// without waiting for the one before it: the launch itself then costs nothing.
#[cfg(feature = "sm_90a")]
#[inline(always)]
pub fn await_previous_grid() {
    // SAFETY: no operands; nothing is moved across it, since it may touch any memory.
    unsafe {
        asm!("griddepcontrol.wait;", options(nostack));
        asm!("griddepcontrol.launch_dependents;", options(nostack));
    }
}

/// Nothing: before Hopper every launch waits for the one before it.
#[cfg(not(feature = "sm_90a"))]
#[inline(always)]
pub fn await_previous_grid() {}

// Warp words are LLVM's intrinsics and not `asm!`: the compiler knows of an intrinsic that lanes must reach it together,
// and may duplicate an `asm!` into branches where they do not. (`mma` is `asm!` still: kernels say it in code that
// no branch of theirs divides.)
unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(lanes: u32, value: u32, mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(lanes: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(lanes: u32);
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(lanes: u32, value: bool) -> bool;
}

/// All lanes; and the segment of a shuffle: the whole warp.
const ALL: u32 = 0xffff_ffff;
const WHOLE: u32 = 0x1f;

/// Waits for all lanes of the warp; their stores before it are seen after it.
#[inline(always)]
pub fn sync_warp() {
    // SAFETY: kernels reach it with all lanes; the emulator's tests prove it.
    unsafe { bar_warp_sync(ALL) }
}

/// The value of lane `lane_id() ^ mask`.
#[inline(always)]
pub fn shuffle_xor_u32(value: u32, mask: u32) -> u32 {
    // SAFETY: as above.
    unsafe { shfl_bfly(ALL, value, mask, WHOLE) }
}

/// The value of lane `lane`.
#[inline(always)]
pub fn shuffle_idx_u32(value: u32, lane: u32) -> u32 {
    // SAFETY: as above.
    unsafe { shfl_idx(ALL, value, lane, WHOLE) }
}

/// Whether it is true in some lane.
#[inline(always)]
pub fn any(value: bool) -> bool {
    // SAFETY: as above.
    unsafe { vote_any(ALL, value) }
}

macro_rules! arithmetic {
    ($t:ty, $reg:ident, $suffix:literal, $fma:ident, $sqrt:ident) => {
        #[inline(always)]
        pub(crate) fn $fma(a: $t, b: $t, c: $t) -> $t {
            unsafe extern "C" {
                // Not `asm!`, so that a sign goes into the instruction.
                #[link_name = concat!("llvm.fma.", $suffix)]
                fn fma(a: $t, b: $t, c: $t) -> $t;
            }
            // SAFETY: arithmetic.
            unsafe { fma(a, b, c) }
        }
        #[inline(always)]
        pub(crate) fn $sqrt(a: $t) -> $t {
            let out: $t;
            // SAFETY: see above.
            unsafe {
                asm!(concat!("sqrt.rn.", $suffix, " {o}, {a};"), o = lateout($reg) out, a = in($reg) a,
                    options(pure, nomem, nostack));
            }
            out
        }
    };
}
arithmetic!(f32, reg32, "f32", fma_f32, sqrt_f32);
arithmetic!(f64, reg64, "f64", fma_f64, sqrt_f64);

/// 2 to the power of `a`, with a relative error of 2⁻²² or so; subnormal results are 0.
#[inline(always)]
pub(crate) fn exp2_approx_f32(a: f32) -> f32 {
    let out: f32;
    // SAFETY: see above.
    unsafe {
        asm!("ex2.approx.ftz.f32 {o}, {a};", o = lateout(reg32) out, a = in(reg32) a, options(pure, nomem, nostack));
    }
    out
}

/// The binary logarithm of a number in the normal range, within 2⁻²² or an ulp.
#[inline(always)]
pub(crate) fn log2_approx_f32(a: f32) -> f32 {
    let out: f32;
    // SAFETY: see above.
    unsafe {
        asm!("lg2.approx.ftz.f32 {o}, {a};", o = lateout(reg32) out, a = in(reg32) a, options(pure, nomem, nostack));
    }
    out
}

/// `1/a` within an ulp; subnormal numbers are 0.
#[inline(always)]
pub(crate) fn reciprocal_approx_f32(a: f32) -> f32 {
    let out: f32;
    // SAFETY: see above.
    unsafe {
        asm!("rcp.approx.ftz.f32 {o}, {a};", o = lateout(reg32) out, a = in(reg32) a, options(pure, nomem, nostack));
    }
    out
}

/// `1/a` to 20 bits or so, for `a` in the normal range.
#[inline(always)]
pub(crate) fn reciprocal_approx_f64(a: f64) -> f64 {
    let out: f64;
    // SAFETY: see above.
    unsafe {
        asm!("rcp.approx.ftz.f64 {o}, {a};", o = lateout(reg64) out, a = in(reg64) a, options(pure, nomem, nostack));
    }
    out
}

/// The same number, of which the compiler knows nothing: a loop of that many turns stays a loop.
#[inline(always)]
pub fn unknown(n: u32) -> u32 {
    let out: u32;
    // SAFETY: see above.
    unsafe { asm!("mov.u32 {o}, {n};", o = lateout(reg32) out, n = in(reg32) n, options(nomem, nostack)) };
    out
}

/// `grid_dim_x`, read anew.
#[inline(always)]
pub fn grid_dim_x_anew() -> u32 {
    let out: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {o}, %nctaid.x;", o = lateout(reg32) out, options(nomem, nostack)) };
    out
}

/// `thread_idx_x`, read anew: the compiler does not keep it in a register until then.
#[inline(always)]
pub fn thread_idx_x_anew() -> u32 {
    let out: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {o}, %tid.x;", o = lateout(reg32) out, options(nomem, nostack)) };
    out
}

/// The emulator checks what is read of global memory, and where is written; the chip does not.
#[inline(always)]
pub(crate) fn check_load<T>(_: *const T, _: usize) {}

/// As [`check_load`].
#[inline(always)]
pub(crate) fn check_store<T>(_: *const T, _: usize) {}

#[inline(always)]
fn base() -> u32 {
    let out: u32;
    // SAFETY: takes the address of the block's shared memory.
    unsafe { asm!("mov.u32 {o}, dynamic_shared;", o = out(reg32) out, options(pure, nomem, nostack)) };
    out
}

macro_rules! shared_scalar {
    ($t:ty, $reg:ident, $suffix:literal, $load:ident, $store:ident) => {
        #[inline(always)]
        pub(crate) fn $load(offset: u32) -> $t {
            let out: $t;
            // SAFETY: see above.
            unsafe {
                asm!(concat!("ld.shared.", $suffix, " {o}, [{a}];"), o = out($reg) out,
                    a = in(reg32) base() + offset, options(readonly, nostack));
            }
            out
        }
        #[inline(always)]
        pub(crate) fn $store(offset: u32, value: $t) {
            // SAFETY: see above.
            unsafe {
                asm!(concat!("st.shared.", $suffix, " [{a}], {v};"), a = in(reg32) base() + offset,
                    v = in($reg) value, options(nostack));
            }
        }
    };
}
shared_scalar!(u32, reg32, "u32", shared_load_u32, shared_store_u32);
shared_scalar!(u64, reg64, "u64", shared_load_u64, shared_store_u64);

#[inline(always)]
pub(crate) fn shared_load_u32x4(offset: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: see above.
    unsafe {
        asm!("ld.shared.v4.u32 {{{a},{b},{c},{d}}}, [{p}];", a = out(reg32) a, b = out(reg32) b, c = out(reg32) c,
            d = out(reg32) d, p = in(reg32) base() + offset, options(readonly, nostack));
    }
    [a, b, c, d]
}

#[inline(always)]
pub(crate) fn shared_store_u32x4(offset: u32, v: [u32; 4]) {
    // SAFETY: see above.
    unsafe {
        asm!("st.shared.v4.u32 [{p}], {{{a},{b},{c},{d}}};", a = in(reg32) v[0], b = in(reg32) v[1],
            c = in(reg32) v[2], d = in(reg32) v[3], p = in(reg32) base() + offset, options(nostack));
    }
}

#[inline(always)]
pub(crate) fn shared_load_u64x2(offset: u32) -> [u64; 2] {
    let (a, b): (u64, u64);
    // SAFETY: see above.
    unsafe {
        asm!("ld.shared.v2.u64 {{{a},{b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b,
            p = in(reg32) base() + offset, options(readonly, nostack));
    }
    [a, b]
}

#[inline(always)]
pub(crate) fn shared_store_u64x2(offset: u32, v: [u64; 2]) {
    // SAFETY: see above.
    unsafe {
        asm!("st.shared.v2.u64 [{p}], {{{a},{b}}};", a = in(reg64) v[0], b = in(reg64) v[1],
            p = in(reg32) base() + offset, options(nostack));
    }
}

/// 16 bytes of global memory, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn global_load_u32x4(p: *const u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.v4.u32 {{{a},{b},{c},{d}}}, [{p}];", a = out(reg32) a, b = out(reg32) b, c = out(reg32) c,
            d = out(reg32) d, p = in(reg64) p, options(readonly, nostack));
    }
    [a, b, c, d]
}

/// An array among a launch's parameters: pairs of numbers.
#[cfg(feature = "sm_80")]
#[derive(Clone, Copy)]
pub struct Pairs(u64);

#[cfg(feature = "sm_80")]
impl Pairs {
    /// Those at the address of a parameter: see [`array_parameter`].
    #[inline(always)]
    pub const fn at_address(address: u64) -> Self {
        Self(address)
    }

    /// Asks for all `len` of them, each lane for some. 0, which comes when they are there.
    #[inline(always)]
    pub fn bring(self, len: u32, lane: u32) -> f64 {
        /// Pairs of a line of the cache for parameters.
        const LINE: u32 = 8;
        let at = (lane * LINE).min(len - 1) as u64;
        let out: u32;
        // SAFETY: one of them.
        unsafe {
            asm!("ld.param.b32 {o}, [{p}];", o = lateout(reg32) out, p = in(reg64) self.0 + at * 8, options(nostack));
        }
        // A number that is none, with bits of its own: the compiler does not know that it never comes.
        if out == 0x7fc0_6d6d { f64::NAN } else { 0.0 }
    }

    /// From this pair on.
    #[inline(always)]
    pub fn from(self, pair: u32) -> Self {
        Self(self.0 + pair as u64 * 8)
    }

    /// A pair.
    #[inline(always)]
    pub fn at(self, pair: u32) -> [f32; 2] {
        let (a, b): (f32, f32);
        // SAFETY: one of them.
        unsafe {
            asm!("ld.param.v2.f32 {{{a}, {b}}}, [{p}];", a = lateout(reg32) a, b = lateout(reg32) b,
                p = in(reg64) self.0 + pair as u64 * 8, options(pure, readonly, nostack));
        }
        [a, b]
    }
}

/// A parameter that is an array of `u64`, by its name in the module too: the compiler would copy a parameter, to memory of
/// each thread, before it took from it what an index says.
#[cfg(feature = "sm_80")]
macro_rules! array_parameter {
    ($field:expr, $name:literal) => {{
        let address: u64;
        // SAFETY: takes an address.
        unsafe {
            core::arch::asm!(concat!("mov.b64 {o}, ", $name, ";"), o = lateout(reg64) address,
                options(pure, nomem, nostack));
        }
        $crate::device::Pairs::at_address(address)
    }};
}
#[cfg(feature = "sm_80")]
pub(crate) use array_parameter;

/// How long the second cache keeps what is read: until nothing else is left to give up, or as short as it can.
#[cfg(feature = "sm_90a")]
#[inline(always)]
pub(crate) fn keeping(long: bool) -> u64 {
    let out: u64;
    // SAFETY: makes a number.
    unsafe {
        if long {
            asm!("createpolicy.fractional.L2::evict_last.b64 {o}, 1.0;", o = lateout(reg64) out,
                options(pure, nomem, nostack));
        } else {
            asm!("createpolicy.fractional.L2::evict_first.b64 {o}, 1.0;", o = lateout(reg64) out,
                options(pure, nomem, nostack));
        }
    }
    out
}

/// 16 bytes of global memory, 16-byte aligned, kept as [`keeping`] says.
#[cfg(feature = "sm_90a")]
#[inline(always)]
pub(crate) unsafe fn global_load_u32x4_keeping(p: *const u32, keeping: u64) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.L2::cache_hint.v4.u32 {{{a},{b},{c},{d}}}, [{p}], {k};", a = out(reg32) a, b = out(reg32) b,
            c = out(reg32) c, d = out(reg32) d, p = in(reg64) p, k = in(reg64) keeping, options(readonly, nostack));
    }
    [a, b, c, d]
}

/// As long as anything: drivers that took the first modules for Ampere do not know these instructions.
#[cfg(all(feature = "sm_80", not(feature = "sm_90a")))]
#[inline(always)]
pub(crate) fn keeping(_: bool) -> u64 {
    0
}

/// As [`global_load_u32x4`].
#[cfg(all(feature = "sm_80", not(feature = "sm_90a")))]
#[inline(always)]
pub(crate) unsafe fn global_load_u32x4_keeping(p: *const u32, _: u64) -> [u32; 4] {
    // SAFETY: the caller's promise.
    unsafe { global_load_u32x4(p) }
}

/// 16 bytes of global memory, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn global_load_u64x2(p: *const u64) -> [u64; 2] {
    let (a, b): (u64, u64);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ld.global.v2.u64 {{{a},{b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b, p = in(reg64) p,
            options(readonly, nostack));
    }
    [a, b]
}

/// 16 bytes of global memory, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn global_store_u32x4(p: *mut u32, [a, b, c, d]: [u32; 4]) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("st.global.v4.u32 [{p}], {{{a},{b},{c},{d}}};", p = in(reg64) p, a = in(reg32) a, b = in(reg32) b,
            c = in(reg32) c, d = in(reg32) d, options(nostack));
    }
}

/// Adds 1 to what the blocks of a grid count by, and gives what it was. What this thread's block wrote before its last barrier is
/// seen by every block that counts later, after a barrier of its own.
///
/// # Safety
/// `p` is in a live allocation, which nothing else writes meanwhile.
#[inline(always)]
pub unsafe fn count_block(p: *mut u32) -> u32 {
    let before: u32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("fence.acq_rel.gpu;", options(nostack));
        asm!("atom.global.add.u32 {o}, [{p}], 1;", o = out(reg32) before, p = in(reg64) p, options(nostack));
        asm!("fence.acq_rel.gpu;", options(nostack));
    }
    before
}

/// A line of global memory into the second cache, some time.
#[inline(always)]
pub(crate) fn prefetch(p: *const u8) {
    // SAFETY: a hint: an address without memory has no effect.
    unsafe { asm!("prefetch.global.L2 [{p}];", p = in(reg64) p, options(nostack)) };
}

/// 16 bytes of global memory into shared memory, both 16-byte aligned, some time before [`copies_arrive`] returns.
#[cfg(feature = "sm_80")]
#[inline(always)]
pub(crate) unsafe fn copy_ahead(offset: u32, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("cp.async.ca.shared.global [{to}], [{from}], 16;", to = in(reg32) base() + offset,
            from = in(reg64) from, options(nostack));
    }
}

/// 8 bytes of global memory into shared memory, both 8-byte aligned, some time before [`copies_arrive`] returns.
#[cfg(feature = "sm_80")]
#[inline(always)]
pub(crate) unsafe fn copy_ahead_u64(offset: u32, from: *const u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("cp.async.ca.shared.global [{to}], [{from}], 8;", to = in(reg32) base() + offset,
            from = in(reg64) from, options(nostack));
    }
}

/// 8 bytes of global memory into shared memory, both 8-byte aligned, at once: such copies came with Ampere.
#[cfg(not(feature = "sm_80"))]
#[inline(always)]
pub(crate) unsafe fn copy_ahead_u64(offset: u32, from: *const u64) {
    // SAFETY: the caller's promise.
    shared_store_u64(offset, unsafe { *from });
}

/// Waits for all copies that this thread started.
#[cfg(feature = "sm_80")]
#[inline(always)]
pub(crate) fn copies_arrive() {
    // SAFETY: see above.
    unsafe { asm!("cp.async.wait_all;", options(nostack)) };
}

/// Nothing is on its way.
#[cfg(not(feature = "sm_80"))]
#[inline(always)]
pub(crate) fn copies_arrive() {}

/// As [`copy_ahead`], by the L2 cache alone: for what a block reads once.
#[cfg(feature = "sm_80")]
#[inline(always)]
pub(crate) unsafe fn copy_ahead_once(offset: u32, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("cp.async.cg.shared.global [{to}], [{from}], 16;", to = in(reg32) base() + offset,
            from = in(reg64) from, options(nostack));
    }
}

/// Ends a group of copies: what this thread started since the last.
#[cfg(feature = "sm_80")]
#[inline(always)]
pub(crate) fn copies_end_group() {
    // SAFETY: see above.
    unsafe { asm!("cp.async.commit_group;", options(nostack)) };
}

/// Waits for this thread's groups of copies but the `LATER` last.
#[cfg(feature = "sm_80")]
#[inline(always)]
pub(crate) fn copies_arrive_but<const LATER: u32>() {
    // SAFETY: see above.
    unsafe { asm!("cp.async.wait_group {n};", n = const LATER, options(nostack)) };
}
