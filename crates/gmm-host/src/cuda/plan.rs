//! Which variant of the kernels, which chunk of rows and which grids: one pure function of shape and device limits.
//!
//! `GMM_PLAN` forces parts of it: `chunk=4096,blocks=64,splits=3,solved=scratch,loop=host,variant=halves`.

use std::fmt;

use gmm_kernels::e_step::solved_columns;
use gmm_kernels::fused::large::Large;
use gmm_kernels::fused::warpgroups::Warpgroups;
use gmm_kernels::layout::{TILE_ROWS, tiles};
use gmm_kernels::m_step_sums;
use gmm_model::CovarianceType;

use super::shape::Shape;
use crate::Error;

/// Rows of a tile.
const TILE: u64 = TILE_ROWS as u64;

/// What a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) multiprocessors: u32,
    /// Shared memory that one block may ask for.
    pub(crate) shared_bytes: u32,
    pub(crate) l2_bytes: u32,
    /// How many times as fast as f64 f32 is: 2 on GPUs for computing, 32 or 64 on others.
    pub(crate) f32_to_f64: u32,
}

/// Where the E-step of full and tied covariances keeps what it has solved of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solved {
    /// In shared memory.
    Shared,
    /// In device memory.
    Scratch,
}

/// How a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) solved: Solved,
    /// Rows that go through all kernels before the next: a multiple of 128.
    pub(crate) chunk: u64,
    /// Blocks of the kernels that take a thread per row.
    pub(crate) blocks: u32,
    /// Parts into which the sums split the rows of a chunk.
    pub(crate) splits: u32,
}

/// Parts of a plan that someone asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forced {
    chunk: Option<u64>,
    blocks: Option<u32>,
    splits: Option<u32>,
    solved: Option<Solved>,
    host_loop: bool,
    variant: Option<LoopKernels>,
}

/// Which kernels a loop on the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopKernels {
    /// One for a pass: where its sums fit into registers.
    Fused,
    /// Two for each chunk of rows.
    Large,
    /// The same in halves, for `f32` rows.
    Halves,
    /// The same in heads or halves, by warpgroups.
    Warpgroups,
    /// One for a pass over `f32` rows of few columns, with full covariances.
    Narrow,
}

#[cfg(test)]
thread_local! {
    /// A test of passes that the host puts together sets this, on its own thread.
    pub(crate) static HOST_LOOP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Forced {
    /// From `GMM_PLAN`.
    ///
    /// # Errors
    /// [`Error::Option`] that says what can be forced.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        std::env::var("GMM_PLAN").map_or(Ok(Self::default()), |text| Self::parse(&text))
    }

    /// Whether the loop of EM is to stay on the host.
    pub(crate) fn host_loop(&self) -> bool {
        #[cfg(test)]
        if HOST_LOOP.get() {
            return true;
        }
        self.host_loop
    }

    /// The loop's kernels, if they were asked for.
    pub(crate) const fn variant(&self) -> Option<LoopKernels> {
        self.variant
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut forced = Self::default();
        for part in text.split(',').filter(|p| !p.trim().is_empty()) {
            forced.set(part.trim()).ok_or_else(|| Error::Option {
                option: "GMM_PLAN",
                value: text.to_owned(),
                must: "like chunk=4096,blocks=64,splits=3,solved=shared|scratch,loop=device|host,variant=fused|narrow|large|halves|\
                       warpgroups, numbers from 1"
                    .to_owned(),
            })?;
        }
        Ok(forced)
    }

    fn set(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        let number = || value.parse().ok().filter(|v: &u32| *v > 0);
        match name {
            "chunk" => self.chunk = Some(u64::from(number()?).next_multiple_of(TILE)),
            "blocks" => self.blocks = Some(number()?),
            "splits" => self.splits = Some(number()?.min(MOST_SPLITS)),
            "solved" if value == "shared" => self.solved = Some(Solved::Shared),
            "solved" if value == "scratch" => self.solved = Some(Solved::Scratch),
            "loop" if value == "host" => self.host_loop = true,
            "loop" if value == "device" => self.host_loop = false,
            "variant" if value == "fused" => self.variant = Some(LoopKernels::Fused),
            "variant" if value == "narrow" => self.variant = Some(LoopKernels::Narrow),
            "variant" if value == "large" => self.variant = Some(LoopKernels::Large),
            "variant" if value == "halves" => self.variant = Some(LoopKernels::Halves),
            "variant" if value == "warpgroups" => self.variant = Some(LoopKernels::Warpgroups),
            _ => return None,
        }
        Some(())
    }
}

/// Blocks per multiprocessor that hide the latency of device memory; 16 of 128 threads are all that fit.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 16;

/// With solved columns in device memory fewer blocks, so that what they keep stays in the caches.
const BLOCKS_WITH_SCRATCH: u32 = 4;

/// Waves of the sums' blocks: enough that an uneven last one costs little.
const SUM_BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// A grid's limit in `y`.
const MOST_SPLITS: u32 = 65_535;

/// Bytes of partial sums beyond which more splits cost more in memory traffic than they bring.
const PARTIAL_BYTES: u64 = 64 << 20;

/// Chooses. Depends on its arguments alone; a smaller `most_rows` gives smaller chunks.
pub(crate) fn plan(shape: &Shape, limits: &Limits, forced: &Forced, most_rows: u64) -> Plan {
    let solved = forced.solved.unwrap_or_else(|| solved(shape, limits));
    let chunk = forced.chunk.unwrap_or_else(|| chunk(shape, limits)).min(most_rows.next_multiple_of(TILE));
    let chunk = chunk.min(tiles(shape.n) * TILE);
    let chunk_tiles = u32::try_from(chunk / TILE).unwrap_or(u32::MAX);
    let per_multiprocessor =
        if needs_solved(shape) && solved == Solved::Scratch { BLOCKS_WITH_SCRATCH } else { BLOCKS_PER_MULTIPROCESSOR };
    let blocks = forced.blocks.unwrap_or(limits.multiprocessors * per_multiprocessor).min(chunk_tiles);
    let splits = forced.splits.unwrap_or_else(|| splits(shape, limits)).min(chunk_tiles).min(MOST_SPLITS);
    Plan { solved, chunk, blocks, splits }
}

const fn needs_solved(shape: &Shape) -> bool {
    matches!(shape.kind, CovarianceType::Full | CovarianceType::Tied)
}

/// Numbers of scratch in device memory that the E-step needs under a plan.
pub(crate) const fn scratch_len(shape: &Shape, plan: &Plan) -> u64 {
    match plan.solved {
        Solved::Scratch if needs_solved(shape) => plan.blocks as u64 * TILE * solved_columns(shape.d) as u64,
        _ => 0,
    }
}

/// Shared memory while three blocks of it fit on a multiprocessor, which hides some latency; else device memory.
fn solved(shape: &Shape, limits: &Limits) -> Solved {
    let bytes = u64::from(solved_columns(shape.d)) * TILE * shape.number_bytes();
    if 3 * bytes <= u64::from(limits.shared_bytes) { Solved::Shared } else { Solved::Scratch }
}

/// Rows whose responsibilities take half of the L2 cache, so that the sums find them there; but enough to occupy the
/// device. Chunks are of equal size up to a tile.
fn chunk(shape: &Shape, limits: &Limits) -> u64 {
    let per_row = u64::from(shape.k) * shape.number_bytes();
    let cached = u64::from(limits.l2_bytes) / 2 / per_row;
    let busy = u64::from(limits.multiprocessors * BLOCKS_PER_MULTIPROCESSOR) * TILE / 2;
    let most = cached.max(busy).max(TILE);
    let count = shape.n.div_ceil(most).max(1);
    shape.n.div_ceil(count).next_multiple_of(TILE)
}

fn splits(shape: &Shape, limits: &Limits) -> u32 {
    let each = m_step_sums::blocks(shape.kernel_kind(), shape.k, shape.d).max(1);
    let busy = (limits.multiprocessors * SUM_BLOCKS_PER_MULTIPROCESSOR).div_ceil(each);
    let most = (PARTIAL_BYTES / (8 * shape.statistics())).max(1);
    u64::from(busy).min(most) as u32
}

/// How the kernels of [`fused::large`](gmm_kernels::fused::large) and [`fused::halves`](gmm_kernels::fused::halves) go over
/// the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// Rows at a time: a multiple of 128.
    pub(crate) chunk: u64,
    /// Blocks of the densities.
    pub(crate) blocks: u32,
    /// Parts into which the moments split the rows of a chunk.
    pub(crate) splits: u32,
}

/// Bytes of what the two kernels of a chunk leave to one another, in L2 caches. It is not what fits into one: every pair of
/// launches has a beginning and an end at which the device is half empty, and that costs more than what is read from
/// device memory. Measured on an H200 with N=1e6 K=64 d=32: half a cache 5.5 ms an iteration (`f64`, full) and 1.15 (`f32`,
/// diag), everything in one chunk 4.3 and 0.75.
const CACHES: u64 = 16;

/// Chunks for a device that runs so many blocks of each of the two kernels at a time: whole waves of the densities, so
/// that none runs half empty, and splits that fill one wave of the moments, of which `of_split` blocks have `each` splits. A
/// multiple of `together` splits.
pub(crate) fn chunks(
    shape: &Shape,
    of: Large,
    limits: &Limits,
    forced: &Forced,
    (first, second): (u32, u32),
    (of_split, each, together): (u32, u32, u32),
) -> Chunks {
    let per_row = u64::from(8 * of.place.groups) * shape.number_bytes();
    let wave = u64::from(first) * TILE;
    let most = CACHES * u64::from(limits.l2_bytes) / per_row / wave * wave;
    let chunk = forced.chunk.unwrap_or_else(|| most.max(wave)).min(tiles(shape.n) * TILE);
    let blocks = forced.blocks.unwrap_or(first).min(u32::try_from(chunk / TILE).unwrap_or(u32::MAX));
    let filling = second * each / of_split;
    let most = (PARTIAL_BYTES / (8 * of.place.sums())).max(1);
    let splits = forced.splits.unwrap_or_else(|| u64::from(filling.max(1)).min(most) as u32);
    // Sixteen rows at least for each.
    let splits = (u64::from(splits).min(chunk / 16) as u32 / together).max(1) * together;
    Chunks { chunk, blocks, splits }
}

/// Partial results of sums that are more than a wave of blocks for each of them, and bytes of theirs, where one is not more.
const MOST_LARGE_SPLITS: u64 = 8;
const LARGE_PARTIAL_BYTES: u64 = 1 << 30;

/// Waves of blocks for full covariances, where a partial result is less than one, and rows for each of them at least: the 46 blocks
/// of 129 columns are two thirds of a wave of 132 at best, and nine tenths of three.
const WAVES: u32 = 4;
const ROWS_OF_SPLIT: u64 = 1024;

/// Chunks for passes by warpgroups, on a device that runs so many blocks of the densities and of the sums at a time: so many rows
/// that what kernels leave one another takes no more than other ways' exponentials do, in chunks of about the same size; and splits
/// that leave least of the last wave of the sums idle.
pub(crate) fn warpgroup_chunks(
    shape: &Shape,
    of: Warpgroups,
    limits: &Limits,
    forced: &Forced,
    (first, second): (u32, u32),
) -> Chunks {
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
    Chunks { chunk, blocks, splits: u64::from(splits).min(parts) as u32 }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let solved = match self.solved {
            Solved::Shared => "shared",
            Solved::Scratch => "scratch",
        };
        write!(f, "chunk={},blocks={},splits={},solved={solved}", self.chunk, self.blocks, self.splits)
    }
}

#[cfg(test)]
mod tests;
