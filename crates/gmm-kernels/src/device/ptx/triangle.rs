//! Products with rows of a triangle, on Hopper: all steps of a call in one `asm!` that waits for its end, as in
//! [`warpgroup`](super::warpgroup).

use core::arch::asm;

use super::base;
use crate::device::warpgroup::Cores;

// SAFETY of this floor: each `asm!` writes and reads its named operands and reads shared memory by a descriptor that the caller
// vouches for.

/// `name`, words of the left operand that are read; then for each step where its four are among the operands, behind the sums.
macro_rules! up_to {
    ($name:ident, [$($w:literal)*], $([$a:literal $b:literal $c:literal $d:literal])*) => {
        #[inline(always)]
        fn $name(sums: &mut [f32; 32], left: &[u32; 32], right: Cores) {
            // Without swizzling.
            let (first, second) = (((base() + right.at) >> 4 & 0x3fff) | right.terms >> 4 << 16, right.others >> 4);
            up_to!(@ [
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            ] first, second, right.terms >> 3, sums, left, [$($w)*], $([$a $b $c $d])*)
        }
    };
    (@ [$($i:literal)*] $first:expr, $second:expr, $by:expr, $sums:ident, $left:ident, [$($w:literal)*],
     $([$a:literal $b:literal $c:literal $d:literal])*) => {{
        // SAFETY: see above.
        unsafe {
            asm!(
                "{{ .reg .pred add; .reg .b32 low; .reg .b64 e; setp.ne.b32 add, 0, 0; mov.b32 low, {first};",
                "wgmma.fence.sync.aligned;",
                $(
                    "mov.b64 e, {{low, {second}}};",
                    concat!(
                        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{0}",
                        ",{1},{2},{3},{4},{5},{6},{7},{8},{9},{10},{11},{12},{13},{14},{15},{16},{17},{18},{19},{20},{21},{22},{23}",
                        ",{24},{25},{26},{27},{28},{29},{30},{31}}}, {{{",
                        $a, "},{", $b, "},{", $c, "},{", $d, "}}}, e, add, 1, 1, 0;"
                    ),
                    "setp.eq.b32 add, 0, 0; add.u32 low, low, {by};",
                )*
                // The bracket not on a line of its own, which ends a kernel.
                "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}",
                $(inout(reg32) $sums[$i],)*
                $(in(reg32) $left[$w],)*
                first = in(reg32) $first, second = in(reg32) $second, by = in(reg32) $by,
                options(nostack));
        }
    }};
}

up_to!(up_to_2, [0 1 2 3 4 5 6 7],
    [32 33 34 35] [36 37 38 39]);
up_to!(up_to_4, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15],
    [32 33 34 35] [36 37 38 39] [40 41 42 43] [44 45 46 47]);
up_to!(up_to_6, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23],
    [32 33 34 35] [36 37 38 39] [40 41 42 43] [44 45 46 47] [48 49 50 51]
    [52 53 54 55]);
up_to!(up_to_8, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31],
    [32 33 34 35] [36 37 38 39] [40 41 42 43] [44 45 46 47] [48 49 50 51]
    [52 53 54 55] [56 57 58 59] [60 61 62 63]);

/// `sums = left·right` by the first steps of sixteen terms, 2, 4, 6 or 8, a number known to the compiler, for 64 columns.
#[inline(always)]
pub fn up_to(steps: usize, sums: &mut [f32; 32], left: &[u32; 32], right: Cores) {
    match steps {
        2 => up_to_2(sums, left, right),
        4 => up_to_4(sums, left, right),
        6 => up_to_6(sums, left, right),
        _ => up_to_8(sums, left, right),
    }
}
