//! How a product is sliced and chunked: pure functions of shapes and the device.

use gmm_kernels::products::scales::pieces;
use gmm_kernels::products::{Form, SLICE, STEPS, blocks, sums_len};

/// Multiplications from which split fp16 is used: with fewer, `f64` takes no longer than the launches.
const WORTH: u128 = 1 << 31;

/// Terms per sum below which split fp16 is not used.
const SHORT: u64 = 64;

/// Most bytes of device memory per chunk of queries, unless a single block takes more.
const MOST_BYTES: u128 = 2 << 30;

/// The form in which `f32` factors are multiplied, if the device supports it.
pub(crate) const fn form((m, k): (u64, u64), n: u64, fast: bool) -> Form {
    if k < SHORT || (m as u128) * (k as u128) * (n as u128) < WORTH {
        Form::Double
    } else if fast {
        Form::Heads
    } else {
        Form::HalfPrecision
    }
}

/// Steps per slice of the terms. More slices occupy more multiprocessors and fill the last round of blocks, but each
/// slice costs a block's start and end, and a round trip of its sums through memory.
pub(crate) fn slice(form: Form, m: u64, n: u64, k: u64, multiprocessors: u32) -> u32 {
    // Costs in units of a stage: a block's start and end; and `1/SUMS` for the memory round trip of one block's sums.
    const ENDS: u64 = 6;
    const SUMS: u64 = 25;
    const MOST: u64 = 64;
    let stages = form.steps(k) / u64::from(STEPS);
    let (tiles, at_once) = (blocks(m) * blocks(n), u64::from(multiprocessors.max(1)));
    let least = match form {
        Form::Double => 1,
        Form::HalfPrecision | Form::Heads => k.div_ceil(SLICE).max(1),
    };
    let cost = |slices: u64| {
        let rounds = (tiles * slices).div_ceil(at_once);
        rounds * (stages.div_ceil(slices) + ENDS) + tiles * slices / SUMS
    };
    let most = stages.min(least.max(MOST)).max(least);
    let slices = (least..=most).min_by_key(|&slices| (cost(slices), slices)).unwrap_or(least);
    (stages.div_ceil(slices).max(1) * u64::from(STEPS)) as u32
}

/// Numbers among which one thread block selects the largest: the products of a query are divided into such segments, and
/// the host selects among the largest of each. `m` if there are queries enough for all multiprocessors, or products too few.
pub(crate) const fn segment(m: u64, n: u64, count: u64) -> u64 {
    /// On an H200 a search among 1e6 × 256 for one vector takes 1.5 ms so, and 10 ms if one block selects among all.
    const LEAST: u64 = 4096;
    /// So that the host has at most this share of the numbers.
    const SHARE: u64 = 64;
    let len = if count * SHARE > LEAST { count * SHARE } else { LEAST };
    if n > gmm_kernels::products::BLOCK as u64 || m < 4 * len { m } else { len }
}

/// Numbers that are selected of `m` in segments of `len`: `count` of each, or all of a shorter last one.
pub(crate) const fn candidates(m: u64, len: u64, count: u64) -> u64 {
    let rest = m % len;
    m / len * count + if rest < count { rest } else { count }
}

/// What a query needs, for the calculation of its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) form: Form,
    pub(crate) m: u64,
    pub(crate) k: u64,
    pub(crate) slices: u32,
    /// Bytes per number.
    pub(crate) number: u64,
    /// Whether a product, `(m, n)`, is written.
    pub(crate) product: bool,
    /// Rows that are selected for each query.
    pub(crate) count: u64,
}

impl Needs {
    /// Bytes that `n` queries take.
    pub(crate) fn bytes(&self, n: u64) -> u128 {
        let Self { form, m, k, slices, number, product, count } = *self;
        let sum = if form == Form::Double { 8 } else { 4 };
        let mut all = u128::from(n) * u128::from(k) * u128::from(number);
        all += 4 * u128::from(form.words(n, k));
        all += u128::from(slices) * u128::from(sums_len(m, n)) * sum;
        // Results of forms take no more than the following.
        all += u128::from(n) * (8 + u128::from(count) * u128::from(4 + number) + 4 * u128::from(1 + pieces(k)));
        all + if product { u128::from(m) * u128::from(n) * u128::from(number) } else { 0 }
    }

    /// Queries per chunk, out of `n`: whole blocks, within `free` and [`MOST_BYTES`] bytes; at least one block.
    pub(crate) fn chunk(&self, n: u64, free: u128) -> u64 {
        const BLOCK: u64 = gmm_kernels::products::BLOCK as u64;
        let within = MOST_BYTES.min(free);
        let mut chunk = blocks(n) * BLOCK;
        while chunk > BLOCK && (self.bytes(chunk) > within || blocks(self.m) * blocks(chunk) >= 1 << 30) {
            chunk = blocks(chunk / 2) * BLOCK;
        }
        chunk.min(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_fill_the_device_and_sums_of_halves_stay_short() {
        // 16 × 16 blocks on 132 multiprocessors already fill nearly two rounds.
        assert_eq!(u64::from(slice(Form::Double, 2000, 2000, 40_000, 132)), Form::Double.steps(40_000));
        for (m, n, k) in [(2000, 2000, 40_000), (1, 1, 1_000_000), (100_000, 3, 100), (128, 128, 64), (1, 1, 1)] {
            for form in [Form::Double, Form::HalfPrecision, Form::Heads] {
                let slice = slice(form, m, n, k, 132);
                assert!(slice > 0 && slice.is_multiple_of(STEPS));
                let terms = u64::from(slice) * u64::from(form.columns());
                assert!(form == Form::Double || terms < SLICE + 2 * u64::from(STEPS * form.columns()), "{terms}");
            }
        }
        let few = slice(Form::Double, 2000, 1, 40_000, 132);
        assert!(Form::Double.steps(40_000).div_ceil(few.into()) >= 8, "16 blocks would leave most of the device idle");
    }

    #[test]
    fn chunks_are_whole_blocks_within_memory() {
        let needs = Needs { form: Form::Double, m: 1000, k: 1000, slices: 1, number: 4, product: false, count: 0 };
        assert_eq!(needs.chunk(50_000, u128::MAX), 50_000);
        let (chunk, free) = (needs.chunk(50_000, 100 << 20), 100 << 20);
        assert!(chunk.is_multiple_of(128) && needs.bytes(chunk) <= free && needs.bytes(2 * chunk) > free);
        assert_eq!(needs.chunk(50_000, 0), 128);
        assert_eq!(needs.chunk(5, u128::MAX), 5);
    }

    #[test]
    fn few_queries_are_selected_from_in_segments() {
        assert_eq!(segment(1_000_000, 1, 10), 4096);
        assert_eq!(candidates(1_000_000, 4096, 10), 244 * 10 + 10);
        assert_eq!(candidates(4096 * 5 + 3, 4096, 10), 53);
        assert_eq!(segment(1_000_000, 1, 1000), 64_000);
        for (m, n, count) in [(16_000, 1, 10), (1_000_000, 129, 10), (1_000_000, 1, 100_000)] {
            assert_eq!(segment(m, n, count), m);
            assert_eq!(candidates(m, m, count), count);
        }
    }

    #[test]
    fn small_products_are_exact() {
        assert_eq!(form((100, 100), 100, true), Form::Double);
        assert_eq!(form((2000, 40_000), 2000, false), Form::HalfPrecision);
        assert_eq!(form((2000, 40_000), 2000, true), Form::Heads);
        assert_eq!(form((1 << 20, 2), 1 << 20, false), Form::Double);
    }
}
