//! How the host-driven passes run: kernels, chunks of rows and grids, chosen by one pure function of shape and device
//! limits.
//!
//! `GMM_PLAN` forces parts of it:
//! `chunk=4096,blocks=64,splits=3,section=8192,solved=scratch,rows=1,loop=host,path=chunked-f64`.

use std::fmt;

use gmm_kernels::em::simple::e_step::{AT_ONCE, solved_columns};
use gmm_kernels::em::simple::moments;
use gmm_kernels::layout::{TILE_ROWS, tiles};
use gmm_model::CovarianceType;

use crate::cuda::driver::device::Limits;
use crate::cuda::shape::Shape;
use crate::{Error, path_names};

/// Rows per tile.
const TILE: u64 = TILE_ROWS as u64;

/// Number of totals that precede the statistics in a pass's results: Σ w ln p(x), entropy, Σ w.
pub(crate) const TOTALS: usize = 3;

/// Where the E-step of full and tied covariances stores the solved columns of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solved {
    /// In shared memory.
    Shared,
    /// In device memory.
    Scratch,
}

/// How a host-driven pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) solved: Solved,
    /// Rows that go through all kernels before the next chunk starts: a multiple of 128.
    pub(crate) chunk: u64,
    /// Blocks of the kernels that use one thread per row.
    pub(crate) blocks: u32,
    /// Number of parts into which the sums split the rows of a chunk.
    pub(crate) splits: u32,
    /// Rows that a thread of the E-step computes together.
    pub(crate) rows_of_thread: u32,
}

impl Plan {
    /// Blocks of the E-step of `n` rows.
    pub(crate) fn step_blocks(&self, n: u64) -> u32 {
        u64::from(self.blocks).min((tiles(n) / u64::from(self.rows_of_thread)).max(1)) as u32
    }
}

/// Parts of a plan that the user forced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForcedPlan {
    pub(crate) chunk: Option<u64>,
    pub(crate) blocks: Option<u32>,
    pub(crate) splits: Option<u32>,
    /// Rows of a section: a multiple of 128.
    pub(crate) section: Option<u64>,
    solved: Option<Solved>,
    rows_of_thread: Option<u32>,
    host_loop: bool,
    path: Option<&'static str>,
    /// Whether all components are to be evaluated; not part of `GMM_PLAN`.
    pub(crate) dense: bool,
}

#[cfg(test)]
thread_local! {
    /// Set by tests of the host-driven passes, on their own thread.
    pub(crate) static HOST_LOOP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl ForcedPlan {
    /// Reads `GMM_PLAN`.
    ///
    /// # Errors
    /// [`Error::Option`], which lists what can be forced.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        std::env::var("GMM_PLAN").map_or(Ok(Self::default()), |text| Self::parse(&text))
    }

    /// Whether EM's loop is forced to stay on the host.
    pub(crate) fn host_loop(&self) -> bool {
        #[cfg(test)]
        if HOST_LOOP.get() {
            return true;
        }
        self.host_loop
    }

    /// The name of the forced EM path.
    pub(crate) const fn path(&self) -> Option<&'static str> {
        self.path
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut forced = Self::default();
        for part in text.split(',').filter(|p| !p.trim().is_empty()) {
            forced.set(part.trim()).ok_or_else(|| Error::Option {
                option: "GMM_PLAN",
                value: text.to_owned(),
                must: format!(
                    "like chunk=4096,blocks=64,splits=3,section=8192,solved=shared|scratch,rows=1|4,loop=device|host,path={}, numbers from 1",
                    path_names::ON_DEVICE.join("|")
                ),
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
            "section" => self.section = Some(u64::from(number()?).next_multiple_of(TILE)),
            "splits" => self.splits = Some(number()?.min(MOST_SPLITS)),
            "solved" if value == "shared" => self.solved = Some(Solved::Shared),
            "solved" if value == "scratch" => self.solved = Some(Solved::Scratch),
            "rows" => self.rows_of_thread = Some(number()?),
            "loop" if value == "host" => self.host_loop = true,
            "loop" if value == "device" => self.host_loop = false,
            "path" => self.path = Some(path_names::ON_DEVICE.into_iter().find(|known| *known == value)?),
            _ => return None,
        }
        Some(())
    }
}

/// Blocks per multiprocessor that hide the latency of device memory: at most 16 blocks of 128 threads fit.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 16;

/// Blocks per multiprocessor if solved columns are in device memory: fewer, so that their scratch stays in the caches.
const BLOCKS_WITH_SCRATCH: u32 = 4;

/// Blocks per multiprocessor from which threads of the E-step compute several rows.
const BLOCKS_OF_SEVERAL_ROWS: u32 = 4;

/// Blocks of the sums per multiprocessor: enough that an uneven last wave costs little.
const SUM_BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// The limit of a grid's `y` dimension.
const MOST_SPLITS: u32 = 65_535;

/// Bytes of partial sums beyond which further splits cost more in memory traffic than they gain.
pub(crate) const PARTIAL_BYTES: u64 = 64 << 20;

/// Chooses a plan. Depends only on its arguments. Chunks are at most `most_rows` rows, rounded up to a tile; those of
/// an evaluation, after which no kernel reads all responsibilities again, are longer than those of a pass.
pub(crate) fn plan(shape: &Shape, limits: &Limits, forced: &ForcedPlan, most_rows: u64, is_evaluation: bool) -> Plan {
    let solved = forced.solved.unwrap_or_else(|| solved(shape, limits));
    let chunk =
        forced.chunk.unwrap_or_else(|| chunk(shape, limits, is_evaluation)).min(most_rows.next_multiple_of(TILE));
    let chunk = chunk.min(tiles(shape.n) * TILE);
    let chunk_tiles = u32::try_from(chunk / TILE).unwrap_or(u32::MAX);
    let per_multiprocessor =
        if needs_solved(shape) && solved == Solved::Scratch { BLOCKS_WITH_SCRATCH } else { BLOCKS_PER_MULTIPROCESSOR };
    let blocks = forced.blocks.unwrap_or(limits.multiprocessors * per_multiprocessor).min(chunk_tiles);
    let splits = forced.splits.unwrap_or_else(|| splits(shape, limits)).min(chunk_tiles).min(MOST_SPLITS);
    let rows_of_thread = rows_of_thread(shape, limits, solved, chunk_tiles, forced.rows_of_thread);
    Plan { solved, chunk, blocks, splits, rows_of_thread }
}

/// Bytes of a row with a matrix of covariances up to which several rows of each thread stay in the L1 cache.
const CACHED_ROW: u64 = 256;

/// Several rows if that leaves enough blocks to fill the device, and the rows and their solved columns fit where they are
/// read quickly.
fn rows_of_thread(shape: &Shape, limits: &Limits, solved: Solved, chunk_tiles: u32, forced: Option<u32>) -> u32 {
    let bytes = u64::from(solved_columns(shape.d) * AT_ONCE) * TILE * shape.number_bytes();
    let near = u64::from(shape.d) * shape.number_bytes() <= CACHED_ROW;
    let room =
        !needs_solved(shape) || (near && solved == Solved::Shared && 3 * bytes <= u64::from(limits.shared_bytes));
    let fills = chunk_tiles >= AT_ONCE * limits.multiprocessors * BLOCKS_OF_SEVERAL_ROWS;
    if room && forced.map_or(fills, |rows| rows == AT_ONCE) { AT_ONCE } else { 1 }
}

const fn needs_solved(shape: &Shape) -> bool {
    matches!(shape.kind, CovarianceType::Full | CovarianceType::Tied)
}

/// Length of the E-step's scratch in device memory under a plan, in numbers of the rows' precision.
pub(crate) const fn scratch_len(shape: &Shape, plan: &Plan) -> u64 {
    match plan.solved {
        Solved::Scratch if needs_solved(shape) => plan.blocks as u64 * TILE * solved_columns(shape.d) as u64,
        _ => 0,
    }
}

/// Shared memory if three blocks' columns fit on a multiprocessor, which hides some latency; otherwise device memory.
fn solved(shape: &Shape, limits: &Limits) -> Solved {
    let bytes = u64::from(solved_columns(shape.d)) * TILE * shape.number_bytes();
    if 3 * bytes <= u64::from(limits.shared_bytes) { Solved::Shared } else { Solved::Scratch }
}

/// Bytes of an evaluation's rows or responsibilities in one chunk: what the memory pool keeps.
const EVALUATION_BYTES: u64 = 64 << 20;

/// Groups of tiles for each multiprocessor in a chunk of an evaluation: several times as many as run at once, so that few
/// multiprocessors idle at the end.
const EVALUATION_GROUPS: u32 = 24;

/// Rows whose responsibilities fill half of the L2 cache, so that the sums read them from there, but at least enough to
/// occupy the device. Chunk sizes differ by at most a tile.
fn chunk(shape: &Shape, limits: &Limits, is_evaluation: bool) -> u64 {
    let per_row = u64::from(shape.k) * shape.number_bytes();
    let cached = u64::from(limits.l2_bytes) / 2 / per_row;
    let busy = u64::from(limits.multiprocessors * BLOCKS_PER_MULTIPROCESSOR) * TILE / 2;
    let even = match is_evaluation {
        true => {
            let largest = shape.number_bytes() * u64::from(shape.k.max(shape.d));
            (u64::from(limits.multiprocessors * EVALUATION_GROUPS * AT_ONCE) * TILE).min(EVALUATION_BYTES / largest)
        }
        false => 0,
    };
    let most = cached.max(busy).max(even).max(TILE);
    let count = shape.n.div_ceil(most).max(1);
    shape.n.div_ceil(count).next_multiple_of(TILE)
}

fn splits(shape: &Shape, limits: &Limits) -> u32 {
    let each = moments::blocks(shape.kernel_kind(), shape.k, shape.d).max(1);
    let busy = (limits.multiprocessors * SUM_BLOCKS_PER_MULTIPROCESSOR).div_ceil(each);
    let most = (PARTIAL_BYTES / (8 * shape.statistics())).max(1);
    u64::from(busy).min(most) as u32
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let solved = match self.solved {
            Solved::Shared => "shared",
            Solved::Scratch => "scratch",
        };
        let Self { chunk, blocks, splits, rows_of_thread, .. } = self;
        write!(f, "chunk={chunk},blocks={blocks},splits={splits},solved={solved},rows={rows_of_thread}")
    }
}

#[cfg(test)]
mod tests;
