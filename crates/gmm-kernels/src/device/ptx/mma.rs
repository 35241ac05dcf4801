//! Tensor-core instructions and the fp16 conversions that they need: Ampere and later.

use core::arch::asm;

use super::memory::base;

// SAFETY of this module: each `asm!` is one instruction that reads and writes only its named operands.

/// Rounds two numbers to fp16 and packs them, the first in the lower bits.
#[inline(always)]
pub fn to_halves(a: f32, b: f32) -> u32 {
    let out: u32;
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("cvt.rn.f16x2.f32 {o}, {b}, {a};", o = lateout(reg32) out, a = in(reg32) a, b = in(reg32) b,
            options(pure, nomem, nostack));
    }
    out
}

/// Converts two packed fp16 numbers to `f32`, the one in the lower bits first.
#[inline(always)]
pub fn from_halves(pair: u32) -> [f32; 2] {
    let (a, b): (f32, f32);
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("{{ .reg .b16 l, h; mov.b32 {{l, h}}, {p}; cvt.f32.f16 {a}, l; cvt.f32.f16 {b}, h; }}", a = out(reg32) a,
            b = out(reg32) b, p = in(reg32) pair, options(pure, nomem, nostack));
    }
    [a, b]
}

/// Multiplies two pairs of fp16 numbers, rounding the products to fp16.
#[inline(always)]
pub fn multiply_halves(a: u32, b: u32) -> u32 {
    let out: u32;
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("mul.rn.f16x2 {o}, {a}, {b};", o = lateout(reg32) out, a = in(reg32) a, b = in(reg32) b,
            options(pure, nomem, nostack));
    }
    out
}

/// `mma.sync` m16n8k16, F16 in, f32 sums.
#[inline(always)]
pub fn mma_m16n8k16_f16(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3}}}, {{{b0},{b1}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg32) c[0], c1 = inout(reg32) c[1], c2 = inout(reg32) c[2], c3 = inout(reg32) c[3],
            a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
            b0 = in(reg32) b[0], b1 = in(reg32) b[1], options(nomem, nostack));
    }
}

/// Makes this thread's stores to shared memory visible to warpgroup products, which read it asynchronously after the
/// block's next barrier.
#[inline(always)]
pub fn stores_before_products() {
    // SAFETY: no operands. The compiler moves no memory access across it.
    unsafe {
        asm!("fence.proxy.async.shared::cta;", options(nostack));
    }
}

/// The sums that [`products_of_slices`](crate::device::mma::products_of_slices) passes on: entry `4*tile + i` of the
/// first slices' product, and of the sum of the other products.
#[inline(always)]
pub fn products_of_slices(left: &[[u32; 8]; 3], at: u32) -> [[f32; 32]; 2] {
    /// Distance, in units of 16 bytes, from a core matrix to that of the next eight terms and of the next eight
    /// columns.
    const LEADING: u32 = 128 / 16;
    const STRIDE: u32 = 1536 / 16;
    let [mut h, mut l] = [[0.0_f32; 32]; 2];
    let descriptor = ((base() + at) >> 4 & 0x3fff) | LEADING << 16;
    // SAFETY: reads its operands and, through the descriptor, 8 tiles of shared memory, and waits for the products to
    // end.
    unsafe {
        asm!(
            "{{",
            ".reg .pred z, o; .reg .b32 low; .reg .b64 e;",
            "setp.ne.b32 z, 0, 0; setp.eq.b32 o, 0, 0;",
            "wgmma.fence.sync.aligned;",
            "add.u32 low, {d}, 32; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a8},{a9},{a10},{a11}}}, e, z, 1, 1, 0;",
            "add.u32 low, {d}, 48; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a12},{a13},{a14},{a15}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 0; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a16},{a17},{a18},{a19}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 16; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a20},{a21},{a22},{a23}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 64; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a0},{a1},{a2},{a3}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 80; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a4},{a5},{a6},{a7}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 0; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a8},{a9},{a10},{a11}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 16; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a12},{a13},{a14},{a15}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 32; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a0},{a1},{a2},{a3}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 48; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{l0},{l1},{l2},{l3},{l4},{l5},{l6},{l7},{l8},{l9},{l10},{l11},{l12},{l13},{l14},{l15},{l16},{l17},{l18},{l19},{l20},{l21},{l22},{l23},{l24},{l25},{l26},{l27},{l28},{l29},{l30},{l31}}}, {{{a4},{a5},{a6},{a7}}}, e, o, 1, 1, 0;",
            "add.u32 low, {d}, 0; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{h0},{h1},{h2},{h3},{h4},{h5},{h6},{h7},{h8},{h9},{h10},{h11},{h12},{h13},{h14},{h15},{h16},{h17},{h18},{h19},{h20},{h21},{h22},{h23},{h24},{h25},{h26},{h27},{h28},{h29},{h30},{h31}}}, {{{a0},{a1},{a2},{a3}}}, e, z, 1, 1, 0;",
            "add.u32 low, {d}, 16; mov.b64 e, {{low, {stride}}};",
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{h0},{h1},{h2},{h3},{h4},{h5},{h6},{h7},{h8},{h9},{h10},{h11},{h12},{h13},{h14},{h15},{h16},{h17},{h18},{h19},{h20},{h21},{h22},{h23},{h24},{h25},{h26},{h27},{h28},{h29},{h30},{h31}}}, {{{a4},{a5},{a6},{a7}}}, e, o, 1, 1, 0;",
            "wgmma.commit_group.sync.aligned;",
            // The closing brace shares the line, since a brace on a line of its own ends a kernel.
            "wgmma.wait_group.sync.aligned 0; }}",
            h0 = out(reg32) h[0], l0 = out(reg32) l[0],
            h1 = out(reg32) h[1], l1 = out(reg32) l[1],
            h2 = out(reg32) h[2], l2 = out(reg32) l[2],
            h3 = out(reg32) h[3], l3 = out(reg32) l[3],
            h4 = out(reg32) h[4], l4 = out(reg32) l[4],
            h5 = out(reg32) h[5], l5 = out(reg32) l[5],
            h6 = out(reg32) h[6], l6 = out(reg32) l[6],
            h7 = out(reg32) h[7], l7 = out(reg32) l[7],
            h8 = out(reg32) h[8], l8 = out(reg32) l[8],
            h9 = out(reg32) h[9], l9 = out(reg32) l[9],
            h10 = out(reg32) h[10], l10 = out(reg32) l[10],
            h11 = out(reg32) h[11], l11 = out(reg32) l[11],
            h12 = out(reg32) h[12], l12 = out(reg32) l[12],
            h13 = out(reg32) h[13], l13 = out(reg32) l[13],
            h14 = out(reg32) h[14], l14 = out(reg32) l[14],
            h15 = out(reg32) h[15], l15 = out(reg32) l[15],
            h16 = out(reg32) h[16], l16 = out(reg32) l[16],
            h17 = out(reg32) h[17], l17 = out(reg32) l[17],
            h18 = out(reg32) h[18], l18 = out(reg32) l[18],
            h19 = out(reg32) h[19], l19 = out(reg32) l[19],
            h20 = out(reg32) h[20], l20 = out(reg32) l[20],
            h21 = out(reg32) h[21], l21 = out(reg32) l[21],
            h22 = out(reg32) h[22], l22 = out(reg32) l[22],
            h23 = out(reg32) h[23], l23 = out(reg32) l[23],
            h24 = out(reg32) h[24], l24 = out(reg32) l[24],
            h25 = out(reg32) h[25], l25 = out(reg32) l[25],
            h26 = out(reg32) h[26], l26 = out(reg32) l[26],
            h27 = out(reg32) h[27], l27 = out(reg32) l[27],
            h28 = out(reg32) h[28], l28 = out(reg32) l[28],
            h29 = out(reg32) h[29], l29 = out(reg32) l[29],
            h30 = out(reg32) h[30], l30 = out(reg32) l[30],
            h31 = out(reg32) h[31], l31 = out(reg32) l[31],
            a0 = in(reg32) left[0][0],
            a1 = in(reg32) left[0][1],
            a2 = in(reg32) left[0][2],
            a3 = in(reg32) left[0][3],
            a4 = in(reg32) left[0][4],
            a5 = in(reg32) left[0][5],
            a6 = in(reg32) left[0][6],
            a7 = in(reg32) left[0][7],
            a8 = in(reg32) left[1][0],
            a9 = in(reg32) left[1][1],
            a10 = in(reg32) left[1][2],
            a11 = in(reg32) left[1][3],
            a12 = in(reg32) left[1][4],
            a13 = in(reg32) left[1][5],
            a14 = in(reg32) left[1][6],
            a15 = in(reg32) left[1][7],
            a16 = in(reg32) left[2][0],
            a17 = in(reg32) left[2][1],
            a18 = in(reg32) left[2][2],
            a19 = in(reg32) left[2][3],
            a20 = in(reg32) left[2][4],
            a21 = in(reg32) left[2][5],
            a22 = in(reg32) left[2][6],
            a23 = in(reg32) left[2][7],
            d = in(reg32) descriptor, stride = const STRIDE, options(nostack));
    }
    [h, l]
}

/// `mma.sync` m16n8k8, TF32 in, f32 sums.
#[inline(always)]
pub fn mma_m16n8k8_tf32(c: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: see the note at the top of this module.
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
    // SAFETY: see the note at the top of this module.
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
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{{c0},{c1}}}, {{{a}}}, {{{b}}}, {{{c0},{c1}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], a = in(reg64) a, b = in(reg64) b,
            options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k16, f64.
#[inline(always)]
pub fn mma_m16n8k16_f64(c: &mut [f64; 4], a: [f64; 8], b: [f64; 4]) {
    // SAFETY: see the note at the top of this module.
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
#[inline(always)]
pub fn mma_m16n8k8_f64(c: &mut [f64; 4], a: [f64; 4], b: [f64; 2]) {
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1},{a2},{a3}}}, {{{b0},{b1}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], c2 = inout(reg64) c[2], c3 = inout(reg64) c[3],
            a0 = in(reg64) a[0], a1 = in(reg64) a[1], a2 = in(reg64) a[2], a3 = in(reg64) a[3],
            b0 = in(reg64) b[0], b1 = in(reg64) b[1], options(nomem, nostack));
    }
}

/// `mma.sync` m16n8k4, f64.
#[inline(always)]
pub fn mma_m16n8k4_f64(c: &mut [f64; 4], a: [f64; 2], b: [f64; 1]) {
    // SAFETY: see the note at the top of this module.
    unsafe {
        asm!("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {{{c0},{c1},{c2},{c3}}}, {{{a0},{a1}}}, {{{b0}}}, {{{c0},{c1},{c2},{c3}}};",
            c0 = inout(reg64) c[0], c1 = inout(reg64) c[1], c2 = inout(reg64) c[2], c3 = inout(reg64) c[3],
            a0 = in(reg64) a[0], a1 = in(reg64) a[1], b0 = in(reg64) b[0], options(nomem, nostack));
    }
}
