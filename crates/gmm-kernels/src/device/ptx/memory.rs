//! Loads, stores and copies of shared and global memory.

use core::arch::asm;

/// The address of the block's shared memory.
#[inline(always)]
pub(super) fn base() -> u32 {
    let out: u32;
    // SAFETY: only takes the address of the block's shared memory.
    unsafe { asm!("mov.u32 {o}, dynamic_shared;", o = out(reg32) out, options(pure, nomem, nostack)) };
    out
}

macro_rules! shared_scalar {
    ($t:ty, $reg:ident, $suffix:literal, $load:ident, $store:ident) => {
        #[inline(always)]
        pub(crate) fn $load(offset: u32) -> $t {
            let out: $t;
            // SAFETY: see the note at the top of `ptx.rs`.
            unsafe {
                asm!(concat!("ld.shared.", $suffix, " {o}, [{a}];"), o = out($reg) out,
                    a = in(reg32) base() + offset, options(readonly, nostack));
            }
            out
        }
        #[inline(always)]
        pub(crate) fn $store(offset: u32, value: $t) {
            // SAFETY: see the note at the top of `ptx.rs`.
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
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe {
        asm!("ld.shared.v4.u32 {{{a},{b},{c},{d}}}, [{p}];", a = out(reg32) a, b = out(reg32) b, c = out(reg32) c,
            d = out(reg32) d, p = in(reg32) base() + offset, options(readonly, nostack));
    }
    [a, b, c, d]
}

#[inline(always)]
pub(crate) fn shared_store_u32x4(offset: u32, v: [u32; 4]) {
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe {
        asm!("st.shared.v4.u32 [{p}], {{{a},{b},{c},{d}}};", a = in(reg32) v[0], b = in(reg32) v[1],
            c = in(reg32) v[2], d = in(reg32) v[3], p = in(reg32) base() + offset, options(nostack));
    }
}

#[inline(always)]
pub(crate) fn shared_load_u64x2(offset: u32) -> [u64; 2] {
    let (a, b): (u64, u64);
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe {
        asm!("ld.shared.v2.u64 {{{a},{b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b,
            p = in(reg32) base() + offset, options(readonly, nostack));
    }
    [a, b]
}

#[inline(always)]
pub(crate) fn shared_store_u64x2(offset: u32, v: [u64; 2]) {
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe {
        asm!("st.shared.v2.u64 [{p}], {{{a},{b}}};", a = in(reg64) v[0], b = in(reg64) v[1],
            p = in(reg32) base() + offset, options(nostack));
    }
}

/// Reads 16 bytes of global memory, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn global_load_u32x4(p: *const u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16.
    unsafe {
        asm!("ld.global.v4.u32 {{{a},{b},{c},{d}}}, [{p}];", a = out(reg32) a, b = out(reg32) b, c = out(reg32) c,
            d = out(reg32) d, p = in(reg64) p, options(readonly, nostack));
    }
    [a, b, c, d]
}

/// L2 cache policy for loads: `evict_last` if `long`, otherwise `evict_first`.
#[inline(always)]
pub(crate) fn keeping(long: bool) -> u64 {
    let out: u64;
    // SAFETY: only creates a policy value.
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

/// Reads 16 bytes of global memory, 16-byte aligned, with a policy from [`keeping`].
#[inline(always)]
pub(crate) unsafe fn global_load_u32x4_keeping(p: *const u32, keeping: u64) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16.
    unsafe {
        asm!("ld.global.L2::cache_hint.v4.u32 {{{a},{b},{c},{d}}}, [{p}], {k};", a = out(reg32) a, b = out(reg32) b,
            c = out(reg32) c, d = out(reg32) d, p = in(reg64) p, k = in(reg64) keeping, options(readonly, nostack));
    }
    [a, b, c, d]
}

/// Reads 16 bytes of global memory, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn global_load_u64x2(p: *const u64) -> [u64; 2] {
    let (a, b): (u64, u64);
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16.
    unsafe {
        asm!("ld.global.v2.u64 {{{a},{b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b, p = in(reg64) p,
            options(readonly, nostack));
    }
    [a, b]
}

/// Writes 16 bytes of global memory, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn global_store_u32x4(p: *mut u32, [a, b, c, d]: [u32; 4]) {
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16, that no other thread accesses
    // concurrently.
    unsafe {
        asm!("st.global.v4.u32 [{p}], {{{a},{b},{c},{d}}};", p = in(reg64) p, a = in(reg32) a, b = in(reg32) b,
            c = in(reg32) c, d = in(reg32) d, options(nostack));
    }
}

/// Prefetches a line of global memory into the L2 cache.
#[inline(always)]
pub(crate) fn prefetch(p: *const u8) {
    // SAFETY: a hint; an invalid address has no effect.
    unsafe { asm!("prefetch.global.L2 [{p}];", p = in(reg64) p, options(nostack)) };
}

/// Starts copying 16 bytes of global memory to shared memory, both 16-byte aligned; [`copies_arrive`] waits for it.
#[inline(always)]
pub(crate) unsafe fn copy_ahead(offset: u32, from: *const u8) {
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16, that nothing writes in this launch.
    unsafe {
        asm!("cp.async.ca.shared.global [{to}], [{from}], 16;", to = in(reg32) base() + offset,
            from = in(reg64) from, options(nostack));
    }
}

/// Starts copying 8 bytes of global memory to shared memory, both 8-byte aligned; [`copies_arrive`] waits for it.
#[inline(always)]
pub(crate) unsafe fn copy_ahead_u64(offset: u32, from: *const u64) {
    // SAFETY: the caller passes the address of 8 live bytes, aligned to 8, that nothing writes in this launch.
    unsafe {
        asm!("cp.async.ca.shared.global [{to}], [{from}], 8;", to = in(reg32) base() + offset,
            from = in(reg64) from, options(nostack));
    }
}

/// Waits for all copies that this thread started.
#[inline(always)]
pub(crate) fn copies_arrive() {
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe { asm!("cp.async.wait_all;", options(nostack)) };
}

/// As [`copy_ahead`], but bypasses the L1 cache: for data that the block reads once.
#[inline(always)]
pub(crate) unsafe fn copy_ahead_once(offset: u32, from: *const u8) {
    // SAFETY: the caller passes the address of 16 live bytes, aligned to 16, that nothing writes in this launch.
    unsafe {
        asm!("cp.async.cg.shared.global [{to}], [{from}], 16;", to = in(reg32) base() + offset,
            from = in(reg64) from, options(nostack));
    }
}

/// Ends a group of copies: those that this thread started since the previous group.
#[inline(always)]
pub(crate) fn copies_end_group() {
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe { asm!("cp.async.commit_group;", options(nostack)) };
}

/// Waits for all of this thread's copy groups except the last `LATER`.
#[inline(always)]
pub(crate) fn copies_arrive_but<const LATER: u32>() {
    // SAFETY: see the note at the top of `ptx.rs`.
    unsafe { asm!("cp.async.wait_group {n};", n = const LATER, options(nostack)) };
}
