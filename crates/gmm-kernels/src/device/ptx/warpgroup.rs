//! Products by four warps together, on Hopper: all steps of a call in one `asm!` that waits for its end, so that no register
//! of a product under way is moved.

use core::arch::asm;

use super::base;
use crate::device::warpgroup::{Cores, Sums};

// SAFETY of this floor: each `asm!` reads and writes its named operands and reads shared memory by descriptors that the caller
// vouches for.

/// The two words of a descriptor without swizzling, and by how much the first grows from a step of sixteen terms to the next.
#[inline(always)]
fn descriptor(of: Cores) -> [u32; 3] {
    [((base() + of.at) >> 4 & 0x3fff) | of.terms >> 4 << 16, of.others >> 4, of.terms >> 3]
}

/// A list of registers.
macro_rules! registers {
    ([$first:literal $($i:literal)*]) => { concat!("{{{", $first, "}" $(, ",{", $i, "}")*, "}}") };
}

/// `name, columns, registers of the sums, words of the left operand: its registers, and where they are among these`.
macro_rules! of_registers {
    ($name:ident, $n:literal, $m:literal, $list:tt, $words:literal, $($more:tt)*) => {
        of_registers!(@ $name, $n, $m, $list, $list, $words, $($more)*);
    };
    (@ $name:ident, $n:literal, $m:literal, $list:tt, [$($i:literal)*], $steps:literal,
     $([$a:ident $b:ident $c:ident $d:ident $at:literal])*) => {
        #[inline(always)]
        fn $name(sums: &mut [f32; $m], left: &[u32; $steps], right: Cores, fresh: bool) {
            let [first, second, by] = descriptor(right);
            // SAFETY: see above.
            unsafe {
                asm!(
                    "{{ .reg .pred add; .reg .b32 low; .reg .b64 e; setp.ne.b32 add, {old}, 0; mov.b32 low, {first};",
                    "wgmma.fence.sync.aligned;",
                    $(
                        "mov.b64 e, {{low, {second}}};",
                        concat!(
                            "wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.f16.f16 ", registers!($list), ", {{{",
                            stringify!($a), "},{", stringify!($b), "},{", stringify!($c), "},{", stringify!($d),
                            "}}}, e, add, 1, 1, 0;"
                        ),
                        "setp.eq.b32 add, 0, 0; add.u32 low, low, {by};",
                    )*
                    // The bracket not on a line of its own, which ends a kernel.
                    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}",
                    $(inout(reg32) sums[$i],)*
                    $($a = in(reg32) left[$at], $b = in(reg32) left[$at + 1], $c = in(reg32) left[$at + 2],
                      $d = in(reg32) left[$at + 3],)*
                    first = in(reg32) first, second = in(reg32) second, by = in(reg32) by, old = in(reg32) !fresh as u32,
                    options(nostack));
            }
        }
    };
}

of_registers!(two_steps_64, 64, 32, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ], 8, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4]);
of_registers!(four_steps_64, 64, 32, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    ], 16, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4] [c0 c1 c2 c3 8] [d0 d1 d2 d3 12]);
of_registers!(four_steps_96, 96, 48, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47
    ], 16, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4] [c0 c1 c2 c3 8] [d0 d1 d2 d3 12]);
of_registers!(four_steps_128, 128, 64, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    ], 16, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4] [c0 c1 c2 c3 8] [d0 d1 d2 d3 12]);
of_registers!(four_steps_160, 160, 80, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75
        76 77 78 79
    ], 16, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4] [c0 c1 c2 c3 8] [d0 d1 d2 d3 12]);
of_registers!(four_steps_192, 192, 96, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75
        76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    ], 16, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4] [c0 c1 c2 c3 8] [d0 d1 d2 d3 12]);
of_registers!(four_steps_256, 256, 128, [
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75
        76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108
        109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
    ], 16, [a0 a1 a2 a3 0] [b0 b1 b2 b3 4] [c0 c1 c2 c3 8] [d0 d1 d2 d3 12]);

/// `sums += left·right` by two steps of sixteen terms, for 64 columns; with `fresh` to nothing.
#[inline(always)]
pub fn two_steps(sums: &mut [f32; 32], left: &[u32; 8], right: Cores, fresh: bool) {
    two_steps_64(sums, left, right, fresh);
}

macro_rules! sums {
    ($($m:literal $name:ident)*) => {
        $(
            impl Sums for [f32; $m] {
                const ZERO: Self = [0.0; $m];

                #[inline(always)]
                fn four_steps(&mut self, left: &[u32; 16], right: Cores, fresh: bool) {
                    $name(self, left, right, fresh);
                }
            }
        )*
    };
}
sums!(32 four_steps_64 48 four_steps_96 64 four_steps_128 80 four_steps_160 96 four_steps_192 128 four_steps_256);

/// Defines the word for a list of registers.
macro_rules! of_memory {
    ([$($i:literal)*]) => {
        /// `left·right` by so many steps of sixteen terms, an even number, for 64 columns; the right one's lines run along its
        /// columns.
        // The label is known between its brackets alone.
        #[allow(named_asm_labels)]
        #[inline(always)]
        pub fn steps_of_memory(sums: &mut [f32; 32], left: Cores, right: Cores, steps: u32) {
            let ([a, a2, a_by], [b, b2, b_by]) = (descriptor(left), descriptor(right));
            // SAFETY: see above.
            unsafe {
                asm!(
                    "{{ .reg .pred add, more; .reg .b32 x, y, left; .reg .b64 e, f; setp.ne.b32 add, 0, 0;",
                    "mov.b32 x, {a}; mov.b32 y, {b}; mov.b32 left, {steps};",
                    "wgmma.fence.sync.aligned;",
                    "TOP:",
                    "mov.b64 e, {{x, {a2}}}; mov.b64 f, {{y, {b2}}};",
                    concat!("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 ", registers!([$($i)*]), ", e, f, add, 1, 1, 0, 1;"),
                    "setp.eq.b32 add, 0, 0; add.u32 x, x, {a_by}; add.u32 y, y, {b_by};",
                    "mov.b64 e, {{x, {a2}}}; mov.b64 f, {{y, {b2}}};",
                    concat!("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 ", registers!([$($i)*]), ", e, f, add, 1, 1, 0, 1;"),
                    "add.u32 x, x, {a_by}; add.u32 y, y, {b_by}; sub.u32 left, left, 2; setp.ne.u32 more, left, 0; @more bra TOP;",
                    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}",
                    $(inout(reg32) sums[$i],)*
                    a = in(reg32) a, a2 = in(reg32) a2, a_by = in(reg32) a_by,
                    b = in(reg32) b, b2 = in(reg32) b2, b_by = in(reg32) b_by, steps = in(reg32) steps,
                    options(nostack));
            }
        }
    };
}

of_memory!([
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
]);
