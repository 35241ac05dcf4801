//! The words of the tensor cores, and the halves that they take: Ampere and later.

use core::arch::asm;

// SAFETY of this floor: each `asm!` is one instruction that reads and writes its named operands alone.

/// Two numbers rounded to half precision, the first in the lower bits.
#[inline(always)]
pub fn to_halves(a: f32, b: f32) -> u32 {
    let out: u32;
    // SAFETY: see above.
    unsafe {
        asm!("cvt.rn.f16x2.f32 {o}, {b}, {a};", o = lateout(reg32) out, a = in(reg32) a, b = in(reg32) b,
            options(pure, nomem, nostack));
    }
    out
}

/// The numbers of two halves, the one in the lower bits first.
#[inline(always)]
pub fn from_halves(pair: u32) -> [f32; 2] {
    let (a, b): (f32, f32);
    // SAFETY: see above.
    unsafe {
        asm!("{{ .reg .b16 l, h; mov.b32 {{l, h}}, {p}; cvt.f32.f16 {a}, l; cvt.f32.f16 {b}, h; }}", a = out(reg32) a,
            b = out(reg32) b, p = in(reg32) pair, options(pure, nomem, nostack));
    }
    [a, b]
}

/// Products of two halves and two others, rounded to halves.
#[inline(always)]
pub fn multiply_halves(a: u32, b: u32) -> u32 {
    let out: u32;
    // SAFETY: see above.
    unsafe {
        asm!("mul.rn.f16x2 {o}, {a}, {b};", o = lateout(reg32) out, a = in(reg32) a, b = in(reg32) b,
            options(pure, nomem, nostack));
    }
    out
}

/// `mma.sync` m16n8k16, F16 in, f32 sums.
#[inline(always)]
pub fn mma_m16n8k16_f16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3}}}, {{{b0},{b1}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg32) c[0], c1 = inout(reg32) c[1], c2 = inout(reg32) c[2], c3 = inout(reg32) c[3],
            a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
            b0 = in(reg32) b[0], b1 = in(reg32) b[1], options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k8, TF32 in, f32 sums.
#[inline(always)]
pub fn mma_m16n8k8_tf32(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3}}}, {{{b0},{b1}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg32) c[0], c1 = inout(reg32) c[1], c2 = inout(reg32) c[2], c3 = inout(reg32) c[3],
            a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
            b0 = in(reg32) b[0], b1 = in(reg32) b[1], options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k16, BF16 in, f32 sums.
#[inline(always)]
pub fn mma_m16n8k16_bf16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3}}}, {{{b0},{b1}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg32) c[0], c1 = inout(reg32) c[1], c2 = inout(reg32) c[2], c3 = inout(reg32) c[3],
            a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
            b0 = in(reg32) b[0], b1 = in(reg32) b[1], options(nomem, nostack));
    }
}

/// `mma.sync` m8n8k4, f64.
#[inline(always)]
pub fn mma_m8n8k4_f64(c: &mut [f64; 2], a: f64, b: f64) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{{c0},{c1}}}, {{{a}}}, {{{b}}}, {{{c0},{c1}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], a = in(reg64) a, b = in(reg64) b,
            options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k16, f64.
#[cfg(feature = "sm_90a")]
#[inline(always)]
pub fn mma_m16n8k16_f64(c: &mut [f64; 4], a: [f64; 8], b: [f64; 4]) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3},{a4},{a5},{a6},{a7}}}, {{{b0},{b1},{b2},{b3}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], c2 = inout(reg64) c[2], c3 = inout(reg64) c[3],
            a0 = in(reg64) a[0], a1 = in(reg64) a[1], a2 = in(reg64) a[2], a3 = in(reg64) a[3],
            a4 = in(reg64) a[4], a5 = in(reg64) a[5], a6 = in(reg64) a[6], a7 = in(reg64) a[7],
            b0 = in(reg64) b[0], b1 = in(reg64) b[1], b2 = in(reg64) b[2], b3 = in(reg64) b[3],
            options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k8, f64.
#[cfg(feature = "sm_90a")]
#[inline(always)]
pub fn mma_m16n8k8_f64(c: &mut [f64; 4], a: [f64; 4], b: [f64; 2]) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3}}}, {{{b0},{b1}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], c2 = inout(reg64) c[2], c3 = inout(reg64) c[3],
            a0 = in(reg64) a[0], a1 = in(reg64) a[1], a2 = in(reg64) a[2], a3 = in(reg64) a[3],
            b0 = in(reg64) b[0], b1 = in(reg64) b[1], options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k4, f64.
#[cfg(feature = "sm_90a")]
#[inline(always)]
pub fn mma_m16n8k4_f64(c: &mut [f64; 4], a: [f64; 2], b: [f64; 1]) {
    // SAFETY: see above.
    unsafe {
        asm!("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1}}}, {{{b0}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], c2 = inout(reg64) c[2], c3 = inout(reg64) c[3],
            a0 = in(reg64) a[0], a1 = in(reg64) a[1], b0 = in(reg64) b[0], options(nomem, nostack));
    }
}
