//! The device primitives in PTX, one instruction each.

mod memory;
mod mma;
pub mod warpgroup;

use core::arch::{asm, global_asm, nvptx};

pub(crate) use self::memory::*;
pub use self::mma::*;

global_asm!(".extern .shared .align 16 .b8 dynamic_shared[];");

// SAFETY of this whole module: each `asm!` is one instruction. It reads and writes only its named operands and, for
// `shared_*` and `global_*`, memory at an address that its caller guarantees to be valid.

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

/// Waits for all threads of the block. Stores before the barrier are visible after it.
#[inline(always)]
pub fn sync_threads() {
    // SAFETY: kernels reach every barrier with all threads; the tests in the emulator verify it.
    unsafe { nvptx::_syncthreads() }
}

/// Waits until the preceding grids in the stream have ended and their writes are visible, then lets the next grid start
/// (programmatic dependent launch). The next grid must also call this before it touches memory that this grid or the
/// preceding ones write. The host launches such a kernel without waiting for the one before it, which hides the launch
/// latency.
#[inline(always)]
pub fn await_previous_grid() {
    // SAFETY: no operands. The compiler moves no memory access across it, since it may touch any memory.
    unsafe {
        asm!("griddepcontrol.wait;", options(nostack));
        asm!("griddepcontrol.launch_dependents;", options(nostack));
    }
}

// Warp-wide primitives are LLVM intrinsics and not `asm!`: the compiler knows that all lanes must reach an intrinsic
// together, but may duplicate an `asm!` into divergent branches. (`mma` is `asm!` nevertheless: kernels use it only
// outside divergent branches.)
unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(lanes: u32, value: u32, mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(lanes: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(lanes: u32);
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(lanes: u32, value: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(lanes: u32, value: bool) -> u32;
}

/// Lane mask for all lanes, and the shuffle segment that spans the whole warp.
const ALL: u32 = 0xffff_ffff;
const WHOLE: u32 = 0x1f;

/// Waits for all lanes of the warp. Stores before it are visible after it.
#[inline(always)]
pub fn sync_warp() {
    // SAFETY: kernels reach it with all lanes; the tests in the emulator verify it.
    unsafe { bar_warp_sync(ALL) }
}

/// The value of lane `lane_id() ^ mask`.
#[inline(always)]
pub fn shuffle_xor_u32(value: u32, mask: u32) -> u32 {
    // SAFETY: kernels reach it with all lanes, as `sync_warp`.
    unsafe { shfl_bfly(ALL, value, mask, WHOLE) }
}

/// The value of lane `lane`.
#[inline(always)]
pub fn shuffle_idx_u32(value: u32, lane: u32) -> u32 {
    // SAFETY: kernels reach it with all lanes, as `sync_warp`.
    unsafe { shfl_idx(ALL, value, lane, WHOLE) }
}

/// As [`shuffle_xor_u32`], of 64 bits.
#[inline(always)]
pub(crate) fn shuffle_xor_u64(value: u64, mask: u32) -> u64 {
    let low = shuffle_xor_u32(value as u32, mask);
    let high = shuffle_xor_u32((value >> 32) as u32, mask);
    (high as u64) << 32 | low as u64
}

/// As [`shuffle_idx_u32`], of 64 bits.
#[inline(always)]
pub(crate) fn shuffle_idx_u64(value: u64, lane: u32) -> u64 {
    let low = shuffle_idx_u32(value as u32, lane);
    let high = shuffle_idx_u32((value >> 32) as u32, lane);
    (high as u64) << 32 | low as u64
}

/// Whether `value` is true in any lane.
#[inline(always)]
pub fn any(value: bool) -> bool {
    // SAFETY: kernels reach it with all lanes, as `sync_warp`.
    unsafe { vote_any(ALL, value) }
}

/// One bit per lane, the first lane lowest: whether its `value` is true.
#[inline(always)]
pub fn ballot(value: bool) -> u32 {
    // SAFETY: kernels reach it with all lanes, as `sync_warp`.
    unsafe { vote_ballot(ALL, value) }
}

macro_rules! arithmetic {
    ($t:ty, $reg:ident, $suffix:literal, $fma:ident, $sqrt:ident) => {
        #[inline(always)]
        pub(crate) fn $fma(a: $t, b: $t, c: $t) -> $t {
            unsafe extern "C" {
                // An intrinsic and not `asm!`, so that the compiler can fold a negation into the instruction.
                #[link_name = concat!("llvm.fma.", $suffix)]
                fn fma(a: $t, b: $t, c: $t) -> $t;
            }
            // SAFETY: plain arithmetic.
            unsafe { fma(a, b, c) }
        }
        #[inline(always)]
        pub(crate) fn $sqrt(a: $t) -> $t {
            let out: $t;
            // SAFETY: see the note at the top of this module.
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

/// 2 to the power of `a`, with a relative error of about 2⁻²²; subnormal results are flushed to 0.
#[inline(always)]
pub(crate) fn exp2_approx_f32(a: f32) -> f32 {
    let out: f32;
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("ex2.approx.ftz.f32 {o}, {a};", o = lateout(reg32) out, a = in(reg32) a, options(pure, nomem, nostack));
    }
    out
}

/// The binary logarithm of a number in the normal range, within 2⁻²² or an ulp, whichever is larger.
#[inline(always)]
pub(crate) fn log2_approx_f32(a: f32) -> f32 {
    let out: f32;
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("lg2.approx.ftz.f32 {o}, {a};", o = lateout(reg32) out, a = in(reg32) a, options(pure, nomem, nostack));
    }
    out
}

/// `1/a` within an ulp; subnormal arguments and results are flushed to 0.
#[inline(always)]
pub(crate) fn reciprocal_approx_f32(a: f32) -> f32 {
    let out: f32;
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("rcp.approx.ftz.f32 {o}, {a};", o = lateout(reg32) out, a = in(reg32) a, options(pure, nomem, nostack));
    }
    out
}

/// `1/a` to about 20 bits, for `a` in the normal range.
#[inline(always)]
pub(crate) fn reciprocal_approx_f64(a: f64) -> f64 {
    let out: f64;
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("rcp.approx.ftz.f64 {o}, {a};", o = lateout(reg64) out, a = in(reg64) a, options(pure, nomem, nostack));
    }
    out
}

/// Returns `n`, opaque to the compiler: a loop with this trip count is not unrolled.
#[inline(always)]
pub fn unknown(n: u32) -> u32 {
    let out: u32;
    // SAFETY: see the note at the top of this module.
    unsafe { asm!("mov.u32 {o}, {n};", o = lateout(reg32) out, n = in(reg32) n, options(nomem, nostack)) };
    out
}

/// `grid_dim_x`, read again: the compiler does not keep it in a register until then.
#[inline(always)]
pub fn grid_dim_x_anew() -> u32 {
    let out: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {o}, %nctaid.x;", o = lateout(reg32) out, options(nomem, nostack)) };
    out
}

/// `thread_idx_x`, read again: the compiler does not keep it in a register until then.
#[inline(always)]
pub fn thread_idx_x_anew() -> u32 {
    let out: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {o}, %tid.x;", o = lateout(reg32) out, options(nomem, nostack)) };
    out
}

/// Does nothing: only the emulator checks accesses to global memory.
#[inline(always)]
pub(crate) fn check_load<T>(_: *const T, _: usize) {}

/// As [`check_load`].
#[inline(always)]
pub(crate) fn check_store<T>(_: *const T, _: usize) {}

/// An array of pairs of `f32` among a kernel's parameters.
#[derive(Clone, Copy)]
pub struct Pairs(u64);

impl Pairs {
    /// The array at the address of a parameter; see [`array_parameter`].
    #[inline(always)]
    pub const fn at_address(address: u64) -> Self {
        Self(address)
    }

    /// Loads the `len` pairs into the parameter cache, each lane one line of it. Returns 0 once they have arrived.
    #[inline(always)]
    pub fn bring(self, len: u32, lane: u32) -> f64 {
        /// Pairs per line of the parameter cache.
        const LINE: u32 = 8;
        let at = (lane * LINE).min(len - 1) as u64;
        let out: u32;
        // SAFETY: `at < len`, so it reads within the array.
        unsafe {
            asm!("ld.param.b32 {o}, [{p}];", o = lateout(reg32) out, p = in(reg64) self.0 + at * 8, options(nostack));
        }
        // An arbitrary NaN bit pattern that never occurs; the compiler cannot know that, so it must wait for the load.
        if out == 0x7fc0_6d6d { f64::NAN } else { 0.0 }
    }

    /// The array from this pair on.
    #[inline(always)]
    pub fn from(self, pair: u32) -> Self {
        Self(self.0 + pair as u64 * 8)
    }

    /// Returns a pair.
    #[inline(always)]
    pub fn at(self, pair: u32) -> [f32; 2] {
        let (a, b): (f32, f32);
        // SAFETY: reads a parameter; the caller passes the index of a pair within the array.
        unsafe {
            asm!("ld.param.v2.f32 {{{a}, {b}}}, [{p}];", a = lateout(reg32) a, b = lateout(reg32) b,
                p = in(reg64) self.0 + pair as u64 * 8, options(pure, readonly, nostack));
        }
        [a, b]
    }
}

/// An array parameter of `u64`, addressed by its name in the module: to index a parameter by a variable, the compiler
/// would first copy it to each thread's local memory.
macro_rules! array_parameter {
    ($field:expr, $name:literal) => {{
        let address: u64;
        // SAFETY: only takes an address.
        unsafe {
            core::arch::asm!(concat!("mov.b64 {o}, ", $name, ";"), o = lateout(reg64) address,
                options(pure, nomem, nostack));
        }
        $crate::device::Pairs::at_address(address)
    }};
}
pub(crate) use array_parameter;

/// Adds 1 to a grid's counter of finished blocks and returns its previous value. Writes of this thread's block before
/// its last barrier are visible to every block that counts later, after a barrier in that block.
///
/// # Safety
/// `p` must be in a live allocation, and nothing else may write it meanwhile.
#[inline(always)]
pub unsafe fn count_block(p: *mut u32) -> u32 {
    let before: u32;
    // SAFETY: the caller upholds `# Safety`: `*p` is live and changed only by this atomic addition.
    unsafe {
        asm!("fence.acq_rel.gpu;", options(nostack));
        asm!("atom.global.add.u32 {o}, [{p}], 1;", o = out(reg32) before, p = in(reg64) p, options(nostack));
        asm!("fence.acq_rel.gpu;", options(nostack));
    }
    before
}
