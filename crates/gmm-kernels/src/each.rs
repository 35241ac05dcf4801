//! Unrolled loops.

/// Calls `f` with 0 to `n − 1`, unrolled for a constant `n` of at most 36, so that arrays indexed by it stay in
/// registers.
#[inline(always)]
pub(crate) fn each(n: usize, mut f: impl FnMut(usize)) {
    macro_rules! written_out {
        ($($i:literal)*) => { $(if $i < n { f($i); })* };
    }
    written_out!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35);
}

/// As [`each`], for a constant `n` of at most 8. Loops within loops are compiled sooner.
#[inline(always)]
pub(crate) fn few(n: usize, mut f: impl FnMut(usize)) {
    macro_rules! written_out {
        ($($i:literal)*) => { $(if $i < n { f($i); })* };
    }
    written_out!(0 1 2 3 4 5 6 7);
}
