//! Chunks of rows, blocks and splits of paths that take rows in chunks: pure functions of shape and device.

use gmm_kernels::em::layout::Place;
use gmm_kernels::em::wgmma::Warpgroups;
use gmm_kernels::layout::{TILE_ROWS, tiles};

use super::path::Grid;
use crate::cuda::driver::device::Limits;
use crate::cuda::launch::plan::{Forced, PARTIAL_BYTES};
use crate::cuda::shape::Shape;

/// Rows of a tile.
const TILE: u64 = TILE_ROWS as u64;

/// Bytes of what the two kernels of a chunk leave to one another, in L2 caches. It is not what fits into one: every pair of
/// launches has a beginning and an end at which the device is half empty, and that costs more than what is read from
/// device memory. Measured on an H200 with N=1e6 K=64 d=32: half a cache 5.5 ms an iteration (`f64`, full) and 1.15 (`f32`,
/// diag), everything in one chunk 4.3 and 0.75.
const CACHES: u64 = 16;

/// How the moments of a chunk share its rows.
#[derive(Clone, Copy)]
pub(super) struct Waves {
    /// Blocks that together have `each` splits.
    pub(super) of_split: u32,
    pub(super) each: u32,
    /// Splits are a multiple of this.
    pub(super) multiple: u32,
}

/// For two kernels of which a device runs so many blocks at a time: whole waves of the densities, so that none runs half empty, and
/// splits that fill one wave of the moments.
pub(super) fn of_chunks(
    shape: &Shape,
    layout: Place,
    limits: &Limits,
    forced: &Forced,
    [first, second]: [u32; 2],
    Waves { of_split, each, multiple }: Waves,
) -> Grid {
    let per_row = u64::from(8 * layout.groups) * shape.number_bytes();
    let wave = u64::from(first) * TILE;
    let most = CACHES * u64::from(limits.l2_bytes) / per_row / wave * wave;
    let chunk = forced.chunk.unwrap_or_else(|| most.max(wave)).min(tiles(shape.n) * TILE);
    let blocks = forced.blocks.unwrap_or(first).min(u32::try_from(chunk / TILE).unwrap_or(u32::MAX));
    let filling = second * each / of_split;
    let most = (PARTIAL_BYTES / (8 * layout.sums())).max(1);
    let splits = forced.splits.unwrap_or_else(|| u64::from(filling.max(1)).min(most) as u32);
    // Sixteen rows at least for each.
    let splits = (u64::from(splits).min(chunk / 16) as u32 / multiple).max(1) * multiple;
    Grid { chunk, blocks, partials: splits }
}

/// Partial results of sums that are more than a wave of blocks for each of them, and bytes of theirs, where one is not more.
const MOST_LARGE_SPLITS: u64 = 8;
const LARGE_PARTIAL_BYTES: u64 = 1 << 30;

/// Waves of blocks for full covariances, where a partial result is less than one, and rows for each of them at least: the 46 blocks
/// of 129 columns are two thirds of a wave of 132 at best, and nine tenths of three.
const WAVES: u32 = 4;
const ROWS_OF_SPLIT: u64 = 1024;

/// Chunks for passes by warpgroups, on a device that runs so many blocks of the densities and of the sums at a time: so many rows
/// that what kernels leave one another takes no more than other paths' exponentials do, in chunks of about the same size; and splits
/// that leave least of the last wave of the sums idle.
pub(super) fn of_warpgroups(
    shape: &Shape,
    of: Warpgroups,
    limits: &Limits,
    forced: &Forced,
    [first, second]: [u32; 2],
) -> Grid {
    let rows_of_block = u64::from(of.rows_of_block());
    let wave = (u64::from(first) * rows_of_block).next_multiple_of(TILE);
    let (joint, responsibilities) = of.densities(wave);
    let bytes = 4 * (of.rows(wave) + of.normalisers(wave) + joint + responsibilities);
    let most = (CACHES * u64::from(limits.l2_bytes) / bytes).max(1);
    let waves = shape.n.div_ceil(wave);
    let even = waves.div_ceil(waves.div_ceil(most)) * wave;
    let chunk = forced.chunk.unwrap_or(even).min(tiles(shape.n) * TILE);
    let parts = chunk.div_ceil(rows_of_block);
    let blocks = forced.blocks.unwrap_or_else(|| u64::from(first).min(parts) as u32);
    let each = of.blocks_of_split();
    // As near to whole waves as a few partial results come.
    let room = |bytes: u64| bytes / (8 * of.place().sums());
    let of_wave = u64::from(second / each);
    let most = match of {
        _ if each >= second => MOST_LARGE_SPLITS.min(chunk / ROWS_OF_SPLIT).min(room(LARGE_PARTIAL_BYTES)),
        Warpgroups::Linear(_) => of_wave,
        Warpgroups::Full(_) => {
            let some_waves = u64::from(WAVES * second / each);
            some_waves.min(chunk / ROWS_OF_SPLIT).min(room(PARTIAL_BYTES)).max(of_wave)
        }
    };
    let most = most.max(1) as u32;
    let idle = |splits: u32| (splits * each).next_multiple_of(second) * 64 / (splits * each);
    let splits = forced.splits.unwrap_or_else(|| (1..=most).min_by_key(|&splits| (idle(splits), splits)).unwrap_or(1));
    Grid { chunk, blocks, partials: u64::from(splits).min(parts) as u32 }
}

#[cfg(test)]
mod tests {
    use gmm_kernels::em::chunked::double_precision::Large;
    use gmm_model::{CovarianceType, Precision};

    use super::*;

    const H200: Limits = Limits { multiprocessors: 132, shared_bytes: 232_448, l2_bytes: 62_914_560, f32_to_f64: 2 };

    fn shape(kind: CovarianceType, precision: Precision, n: u64, k: u32, d: u32) -> Shape {
        Shape { kind, precision, n, k, d }
    }

    #[test]
    fn chunks_of_a_loop_are_whole_waves() {
        let at = |kind, precision, n, k, d| {
            let shape = shape(kind, precision, n, k, d);
            let of = Large::of(shape.kernel_kind(), k, d);
            let waves = Waves { of_split: of.units(d), each: 4, multiple: 1 };
            of_chunks(&shape, of.place, &H200, &Forced::default(), [264, 264], waves)
        };
        let wave = 264 * TILE;
        let one = at(CovarianceType::Full, Precision::F64, 1_000_000, 64, 32);
        assert_eq!(one, Grid { chunk: 1_000_064, blocks: 264, partials: 58 });
        let many = at(CovarianceType::Full, Precision::F64, 10_000_000, 64, 32);
        assert_eq!((many.chunk % wave, many.chunk / wave), (0, 58));
        let all = at(CovarianceType::Full, Precision::F64, 100_000, 30, 30);
        assert_eq!((all.chunk, all.blocks), (100_096, 264));
        // One wave at least, whatever it takes.
        assert_eq!(at(CovarianceType::Diag, Precision::F32, 1_000_000, 100_000, 8).chunk, wave);
        let few = at(CovarianceType::Full, Precision::F64, 40, 30, 30);
        assert_eq!((few.chunk, few.blocks, few.partials), (128, 1, 8));
    }

    #[test]
    fn sums_by_warpgroups_leave_little_of_their_waves_idle() {
        let of = |kind: CovarianceType, (n, k, d), one, forced: &str| {
            let shape = shape(kind, Precision::F32, n, k, d);
            let of = Warpgroups::of(shape.kernel_kind(), k, d, one).unwrap();
            let chunks = of_warpgroups(&shape, of, &H200, &Forced::parse(forced).unwrap(), [132, 132]);
            (chunks, u64::from(of.blocks_of_split()), 8 * of.place().sums())
        };
        // Nine tenths are busy, of 46 blocks by some waves, of 19 by a single one; partial results are not many bytes.
        for (n, k, d) in [(100_000, 64, 129), (100_000, 33, 192), (200_000, 64, 64), (1_000_000, 1024, 128)] {
            let (chunks, each, bytes) = of(CovarianceType::Full, (n, k, d), false, "");
            let blocks = u64::from(chunks.partials) * each;
            assert!(10 * blocks >= 9 * blocks.next_multiple_of(132), "{n} {k} {d}: {chunks:?}, {each} blocks each");
            assert!(u64::from(chunks.partials) * bytes <= LARGE_PARTIAL_BYTES, "{n} {k} {d}: {chunks:?}");
            assert!(chunks.partials == 1 || chunks.chunk / u64::from(chunks.partials) >= ROWS_OF_SPLIT, "{chunks:?}");
        }
        // One wave at least, however few rows there are, and never more splits than groups of rows.
        let (few, each, _) = of(CovarianceType::Full, (5_000, 64, 48), false, "");
        assert_eq!(u64::from(few.partials), (132 / each).min(few.chunk.div_ceil(192)), "{few:?}");
        assert_eq!(of(CovarianceType::Full, (1, 1, 1), true, "").0.partials, 1);
        let (columns, each, _) = of(CovarianceType::Diag, (100_000, 1024, 128), true, "");
        assert_eq!(u64::from(columns.partials), 132 / each);
        // A single partial result of theirs may be more than a gigabyte.
        assert_eq!(of(CovarianceType::Full, (1_000_000, 9000, 192), false, "").0.partials, 1);
        assert_eq!(of(CovarianceType::Full, (100_000, 64, 129), false, "splits=2,chunk=4096").0.partials, 2);
    }
}
