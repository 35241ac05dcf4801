//! Chunks, blocks and splits for paths that process rows in chunks: pure functions of shape and device.

use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::wgmma::Warpgroups;
use gmm_kernels::layout::{TILE_ROWS, tiles};

use super::path::Grid;
use crate::cuda::driver::device::Limits;
use crate::cuda::launch::plan::{ForcedPlan, PARTIAL_BYTES};
use crate::cuda::shape::Shape;

/// Rows per tile.
const TILE: u64 = TILE_ROWS as u64;

/// Size of the intermediate results that the first kernel of a chunk leaves for the second, in multiples of the L2
/// cache. They need not fit into one cache: at the start and the end of every pair of launches the device is half
/// empty, which costs more than reading them from device memory. Measured on an H200 with N=1e6 K=64 d=32: chunks of
/// half a cache take 5.5 ms an iteration (`f64`, full) and 1.15 (`f32`, diag), one chunk for all rows 4.3 and 0.75.
const CACHES: u64 = 16;

/// How blocks and splits of the moments share the rows of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Waves {
    /// Number of blocks that compute `each` splits.
    pub(super) of_split: u32,
    pub(super) each: u32,
    /// The number of splits is a multiple of this.
    pub(super) multiple: u32,
}

/// Grid for two kernels, of which the device runs `first` and `second` blocks at a time. A chunk is a whole number of
/// waves of the densities, so that no wave is half empty, and the splits fill one wave of the moments.
pub(super) fn of_chunks(
    shape: &Shape,
    layout: FeatureLayout,
    limits: &Limits,
    forced: &ForcedPlan,
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
    // At least 16 rows per split.
    let splits = (u64::from(splits).min(chunk / 16) as u32 / multiple).max(1) * multiple;
    Grid { chunk, blocks, partials: splits }
}

/// Most splits if one split of the sums already takes at least a wave of blocks, and most bytes of their partial sums;
/// a single split may exceed this size.
const MOST_LARGE_SPLITS: u64 = 8;
const LARGE_PARTIAL_BYTES: u64 = 1 << 30;

/// Most waves of blocks for full covariances if a split takes less than one wave, and fewest rows per split. The 46
/// blocks of 129 columns fill at best two thirds of one wave of 132, but nine tenths of three.
const WAVES: u32 = 4;
const ROWS_OF_SPLIT: u64 = 1024;

/// Grid for the wgmma paths, on a device that runs `first` blocks of the densities and `second` blocks of the sums at a
/// time. Chunks have about equal sizes, and their intermediate results take no more memory than [`CACHES`] allows other
/// paths. The number of splits leaves the least of the last wave of the sums idle.
pub(super) fn of_warpgroups(
    shape: &Shape,
    of: Warpgroups,
    limits: &Limits,
    forced: &ForcedPlan,
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
    // The number of splits, within limits, that comes closest to whole waves.
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
    use gmm_kernels::em::chunked::double_precision::DoublePrecision;
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
            let of = DoublePrecision::of(shape.kernel_kind(), k, d);
            let waves = Waves { of_split: of.units(d), each: 4, multiple: 1 };
            of_chunks(&shape, of.place, &H200, &ForcedPlan::default(), [264, 264], waves)
        };
        let wave = 264 * TILE;
        let one = at(CovarianceType::Full, Precision::F64, 1_000_000, 64, 32);
        assert_eq!(one, Grid { chunk: 1_000_064, blocks: 264, partials: 58 });
        let many = at(CovarianceType::Full, Precision::F64, 10_000_000, 64, 32);
        assert_eq!((many.chunk % wave, many.chunk / wave), (0, 58));
        let all = at(CovarianceType::Full, Precision::F64, 100_000, 30, 30);
        assert_eq!((all.chunk, all.blocks), (100_096, 264));
        // At least one wave, however much memory it takes.
        assert_eq!(at(CovarianceType::Diag, Precision::F32, 1_000_000, 100_000, 8).chunk, wave);
        let few = at(CovarianceType::Full, Precision::F64, 40, 30, 30);
        assert_eq!((few.chunk, few.blocks, few.partials), (128, 1, 8));
    }

    #[test]
    fn sums_by_warpgroups_leave_little_of_their_waves_idle() {
        let of = |kind: CovarianceType, (n, k, d), one, forced: &str| {
            let shape = shape(kind, Precision::F32, n, k, d);
            let of = Warpgroups::of(shape.kernel_kind(), k, d, one).unwrap();
            let chunks = of_warpgroups(&shape, of, &H200, &ForcedPlan::parse(forced).unwrap(), [132, 132]);
            (chunks, u64::from(of.blocks_of_split()), 8 * of.place().sums())
        };
        // Nine tenths of the slots are busy: 46 blocks per split take several waves, 19 a single one. Partial results
        // stay small.
        for (n, k, d) in [(100_000, 64, 129), (100_000, 33, 192), (200_000, 64, 64), (1_000_000, 1024, 128)] {
            let (chunks, each, bytes) = of(CovarianceType::Full, (n, k, d), false, "");
            let blocks = u64::from(chunks.partials) * each;
            assert!(10 * blocks >= 9 * blocks.next_multiple_of(132), "{n} {k} {d}: {chunks:?}, {each} blocks each");
            assert!(u64::from(chunks.partials) * bytes <= LARGE_PARTIAL_BYTES, "{n} {k} {d}: {chunks:?}");
            assert!(chunks.partials == 1 || chunks.chunk / u64::from(chunks.partials) >= ROWS_OF_SPLIT, "{chunks:?}");
        }
        // At least one wave, however few rows there are, and never more splits than groups of rows.
        let (few, each, _) = of(CovarianceType::Full, (5_000, 64, 48), false, "");
        assert_eq!(u64::from(few.partials), (132 / each).min(few.chunk.div_ceil(192)), "{few:?}");
        assert_eq!(of(CovarianceType::Full, (1, 1, 1), true, "").0.partials, 1);
        let (columns, each, _) = of(CovarianceType::Diag, (100_000, 1024, 128), true, "");
        assert_eq!(u64::from(columns.partials), 132 / each);
        // A single partial result of this size exceeds a gigabyte, and is allowed.
        assert_eq!(of(CovarianceType::Full, (1_000_000, 9000, 192), false, "").0.partials, 1);
        assert_eq!(of(CovarianceType::Full, (100_000, 64, 129), false, "splits=2,chunk=4096").0.partials, 2);
    }
}
