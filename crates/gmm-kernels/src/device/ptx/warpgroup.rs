//! Products by four warps together, on Hopper. All steps of a call are in one `asm!` that waits for their end, so that
//! the compiler cannot move a register of an asynchronous product.

use core::arch::asm;

use super::memory::base;
use crate::device::warpgroup::{Cores, InMemory, LeftOfHalves, LeftOperand, Sums};

// SAFETY of this module: each `asm!` reads and writes only its named operands, and reads shared memory through
// descriptors that its caller built from a valid `Cores`.

/// The two words of a descriptor without swizzling, and the increment of the first per step of 16 terms.
#[inline(always)]
fn descriptor(of: Cores) -> [u32; 3] {
    [((base() + of.at) >> 4 & 0x3fff) | of.terms >> 4 << 16, of.others >> 4, of.terms >> 3]
}

/// A list of registers, given as operand positions or as names.
macro_rules! registers {
    ([$first:literal $($i:literal)*]) => { concat!("{{{", $first, "}" $(, ",{", $i, "}")*, "}}") };
    ([$first:ident $($i:ident)*]) => { concat!("{{{", stringify!($first), "}" $(, ",{", stringify!($i), "}")*, "}}") };
}

/// Declarations and set-up in front of both kinds of products.
macro_rules! start {
    () => {
        "{{ .reg .pred add, more; .reg .b32 low, high, left; .reg .b64 e, f; wgmma.fence.sync.aligned;"
    };
}

/// Waits. The closing brace shares the line, since a brace on a line of its own ends a kernel.
macro_rules! end {
    () => {
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}"
    };
}

/// A step whose left operand is in registers. The descriptor of the right operand is `{first}` and `{second}`.
macro_rules! step {
    ($n:literal, $sums:tt, $left:tt) => {
        concat!(
            "mov.b64 e, {{low, {second}}}; wgmma.mma_async.sync.aligned.m64n",
            $n,
            "k16.f32.f16.f16 ",
            registers!($sums),
            ", ",
            registers!($left),
            ", e, add, 1, 1, 0; setp.eq.b32 add, 0, 0; add.u32 low, low, {by};"
        )
    };
}

/// All steps of operands that are both in memory. The label is local to its braces.
macro_rules! steps_of_memory {
    ($sums:tt) => {
        concat!(
            "setp.ne.b32 add, 0, 0; mov.b32 low, {a}; mov.b32 high, {b}; mov.b32 left, {steps}; TOP:",
            steps_of_memory!(@ $sums), "setp.eq.b32 add, 0, 0;", steps_of_memory!(@ $sums),
            "sub.u32 left, left, 2; setp.ne.u32 more, left, 0; @more bra TOP;"
        )
    };
    (@ $sums:tt) => {
        concat!(
            "mov.b64 e, {{low, {a2}}}; mov.b64 f, {{high, {b2}}}; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 ",
            registers!($sums), ", e, f, add, 1, 1, 0, 1; add.u32 low, low, {a_by}; add.u32 high, high, {b_by};"
        )
    };
}

/// `steps: registers of the sums; each step's registers as names and position`.
macro_rules! lefts {
    ($($steps:literal: $list:tt; $([$a:ident $b:ident $c:ident $d:ident $at:literal])*;)*) => {
        $(lefts!(@ $steps: $list $list; $([$a $b $c $d $at])*);)*
    };
    (@ $steps:literal: $list:tt [$($i:literal)*]; $([$a:ident $b:ident $c:ident $d:ident $at:literal])*) => {
        impl LeftOperand for [[u32; 4]; $steps] {
            #[inline(always)]
            fn times(&self, sums: &mut [f32; 32], right: Cores) {
                let [first, second, by] = descriptor(right);
                // SAFETY: see the note at the top of this module.
                unsafe {
                    asm!(
                        start!(), "setp.ne.b32 add, 0, 0; mov.b32 low, {first};", $(step!(64, $list, [$a $b $c $d]),)* end!(),
                        $(inout(reg32) sums[$i],)*
                        $($a = in(reg32) self[$at][0], $b = in(reg32) self[$at][1],
                          $c = in(reg32) self[$at][2], $d = in(reg32) self[$at][3],)*
                        first = in(reg32) first, second = in(reg32) second, by = in(reg32) by, options(nostack));
                }
            }
        }
    };
}

/// As [`lefts`], for split fp16: each step's names of the hi and of the lo parts, and its position.
macro_rules! lefts_of_halves {
    ($($steps:literal: $list:tt; $([$heads:tt $tails:tt $at:literal])*;)*) => {
        $(lefts_of_halves!(@ $steps: $list $list; $([$heads $heads $tails $tails $at])*);)*
    };
    (@ $steps:literal: $list:tt [$($i:literal)*]; $([
        $heads:tt [$a:ident $b:ident $c:ident $d:ident] $tails:tt [$e:ident $f:ident $g:ident $h:ident] $at:literal
    ])*) => {
        impl LeftOfHalves for [[[u32; 4]; $steps]; 2] {
            #[inline(always)]
            fn times(&self, sums: &mut [f32; 32], right: Cores, tails: u32) {
                let [first, second, by] = descriptor(right);
                // SAFETY: see the note at the top of this module.
                unsafe {
                    asm!(
                        start!(), "setp.ne.b32 add, 0, 0; mov.b32 low, {first};", $(step!(64, $list, $tails),)*
                        "add.u32 low, {first}, {to_tails};", $(step!(64, $list, $heads),)*
                        "mov.b32 low, {first};", $(step!(64, $list, $heads),)* end!(),
                        $(inout(reg32) sums[$i],)*
                        $($a = in(reg32) self[0][$at][0], $b = in(reg32) self[0][$at][1],
                          $c = in(reg32) self[0][$at][2], $d = in(reg32) self[0][$at][3],
                          $e = in(reg32) self[1][$at][0], $f = in(reg32) self[1][$at][1],
                          $g = in(reg32) self[1][$at][2], $h = in(reg32) self[1][$at][3],)*
                        first = in(reg32) first, second = in(reg32) second, by = in(reg32) by,
                        to_tails = in(reg32) tails >> 4, options(nostack));
                }
            }
        }
    };
}

/// `left·right` in the given number of steps of 16 terms, for 64 columns.
macro_rules! of_memory {
    ([$($i:literal)*]) => {
        /// Sets `sums` to the product of two operands in shared memory, for 64 columns.
        #[allow(named_asm_labels)]
        #[inline(always)]
        pub fn of_memory(sums: &mut [f32; 32], InMemory { left, right, steps }: InMemory) {
            let ([a, a2, a_by], [b, b2, b_by]) = (descriptor(left), descriptor(right));
            // SAFETY: see the note at the top of this module.
            unsafe {
                asm!(
                    start!(), steps_of_memory!([$($i)*]), end!(),
                    $(inout(reg32) sums[$i],)*
                    a = in(reg32) a, a2 = in(reg32) a2, a_by = in(reg32) a_by,
                    b = in(reg32) b, b2 = in(reg32) b2, b_by = in(reg32) b_by, steps = in(reg32) steps,
                    options(nostack));
            }
        }
    };
}

/// `columns, registers of the sums: their list; the other product's registers as names and positions`.
macro_rules! sums {
    ($n:literal, $m:literal: $list:tt; $others:tt) => {
        sums!(@ $n, $m: $list $list; $others $others);
    };
    (@ $n:literal, $m:literal: $list:tt [$($i:literal)*]; ($($name:ident)*; $($from:literal)*) $others:tt) => {
        impl Sums for [f32; $m] {
            const ZERO: Self = [0.0; $m];

            #[inline(always)]
            fn four_steps(&mut self, left: &[u32; 16], right: Cores, fresh: bool) {
                let [first, second, by] = descriptor(right);
                // SAFETY: see the note at the top of this module.
                unsafe {
                    asm!(
                        start!(), "setp.ne.b32 add, {old}, 0; mov.b32 low, {first};",
                        step!($n, $list, [l0 l1 l2 l3]), step!($n, $list, [l4 l5 l6 l7]),
                        step!($n, $list, [l8 l9 l10 l11]), step!($n, $list, [l12 l13 l14 l15]), end!(),
                        $(inout(reg32) self[$i],)*
                        l0 = in(reg32) left[0], l1 = in(reg32) left[1], l2 = in(reg32) left[2], l3 = in(reg32) left[3],
                        l4 = in(reg32) left[4], l5 = in(reg32) left[5], l6 = in(reg32) left[6], l7 = in(reg32) left[7],
                        l8 = in(reg32) left[8], l9 = in(reg32) left[9], l10 = in(reg32) left[10], l11 = in(reg32) left[11],
                        l12 = in(reg32) left[12], l13 = in(reg32) left[13], l14 = in(reg32) left[14],
                        l15 = in(reg32) left[15], first = in(reg32) first, second = in(reg32) second, by = in(reg32) by,
                        old = in(reg32) !fresh as u32, options(nostack));
                }
            }

            #[allow(named_asm_labels)]
            #[inline(always)]
            fn four_steps_and_of_memory(
                &mut self,
                left: &[u32; 16],
                right: Cores,
                other: &mut [f32; 32],
                InMemory { left: others_left, right: others_right, steps }: InMemory,
            ) {
                let [first, second, by] = descriptor(right);
                let ([a, a2, a_by], [b, b2, b_by]) = (descriptor(others_left), descriptor(others_right));
                // SAFETY: see the note at the top of this module.
                unsafe {
                    asm!(
                        start!(), "setp.eq.b32 add, 0, 0; mov.b32 low, {first};",
                        step!($n, $list, [l0 l1 l2 l3]), step!($n, $list, [l4 l5 l6 l7]),
                        step!($n, $list, [l8 l9 l10 l11]), step!($n, $list, [l12 l13 l14 l15]),
                        steps_of_memory!([$($name)*]), end!(),
                        $(inout(reg32) self[$i],)*
                        $($name = inout(reg32) other[$from],)*
                        l0 = in(reg32) left[0], l1 = in(reg32) left[1], l2 = in(reg32) left[2], l3 = in(reg32) left[3],
                        l4 = in(reg32) left[4], l5 = in(reg32) left[5], l6 = in(reg32) left[6], l7 = in(reg32) left[7],
                        l8 = in(reg32) left[8], l9 = in(reg32) left[9], l10 = in(reg32) left[10], l11 = in(reg32) left[11],
                        l12 = in(reg32) left[12], l13 = in(reg32) left[13], l14 = in(reg32) left[14],
                        l15 = in(reg32) left[15], first = in(reg32) first, second = in(reg32) second, by = in(reg32) by,
                        a = in(reg32) a, a2 = in(reg32) a2, a_by = in(reg32) a_by,
                        b = in(reg32) b, b2 = in(reg32) b2, b_by = in(reg32) b_by, steps = in(reg32) steps,
                        options(nostack));
                }
            }
        }
    };
}

lefts!(
    2: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1];
    4: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1] [a2 b2 c2 d2 2] [a3 b3 c3 d3 3];
    6: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1] [a2 b2 c2 d2 2] [a3 b3 c3 d3 3] [a4 b4 c4 d4 4] [a5 b5 c5 d5 5];
    8: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1] [a2 b2 c2 d2 2] [a3 b3 c3 d3 3] [a4 b4 c4 d4 4] [a5 b5 c5 d5 5] [a6 b6 c6 d6 6]
    [a7 b7 c7 d7 7];
    10: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1] [a2 b2 c2 d2 2] [a3 b3 c3 d3 3] [a4 b4 c4 d4 4] [a5 b5 c5 d5 5] [a6 b6 c6 d6 6]
    [a7 b7 c7 d7 7] [a8 b8 c8 d8 8] [a9 b9 c9 d9 9];
    12: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1] [a2 b2 c2 d2 2] [a3 b3 c3 d3 3] [a4 b4 c4 d4 4] [a5 b5 c5 d5 5] [a6 b6 c6 d6 6]
    [a7 b7 c7 d7 7] [a8 b8 c8 d8 8] [a9 b9 c9 d9 9] [a10 b10 c10 d10 10] [a11 b11 c11 d11 11];
    16: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [a0 b0 c0 d0 0] [a1 b1 c1 d1 1] [a2 b2 c2 d2 2] [a3 b3 c3 d3 3] [a4 b4 c4 d4 4] [a5 b5 c5 d5 5] [a6 b6 c6 d6 6]
    [a7 b7 c7 d7 7] [a8 b8 c8 d8 8] [a9 b9 c9 d9 9] [a10 b10 c10 d10 10] [a11 b11 c11 d11 11] [a12 b12 c12 d12 12]
    [a13 b13 c13 d13 13] [a14 b14 c14 d14 14] [a15 b15 c15 d15 15];
);
lefts_of_halves!(
    2: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [[a0 b0 c0 d0] [e0 f0 g0 h0] 0] [[a1 b1 c1 d1] [e1 f1 g1 h1] 1];
    4: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    [[a0 b0 c0 d0] [e0 f0 g0 h0] 0] [[a1 b1 c1 d1] [e1 f1 g1 h1] 1] [[a2 b2 c2 d2] [e2 f2 g2 h2] 2]
    [[a3 b3 c3 d3] [e3 f3 g3 h3] 3];
);
of_memory!([
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
]);

/// Adds the registers of the other product.
macro_rules! all_sums {
    ($($n:literal, $m:literal: $list:tt;)*) => {
        $(
            sums!($n, $m: $list; (
                o0 o1 o2 o3 o4 o5 o6 o7 o8 o9 o10 o11 o12 o13 o14 o15 o16 o17 o18 o19 o20 o21 o22 o23 o24 o25 o26 o27 o28 o29
                o30 o31;
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            ));
        )*
    };
}
all_sums!(
    64, 32: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ];
    96, 48: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47
    ];
    128, 64: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    ];
    160, 80: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75
        76 77 78 79
    ];
    192, 96: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75
        76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    ];
    256, 128: [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75
        76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108
        109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
    ];
);
