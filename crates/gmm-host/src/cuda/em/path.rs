//! The trait [`EmPath`]: one implementation of EM's iterations on a device.
//!
//! To add one, write its kernels in `gmm-kernels`, a file under [`paths`](super::paths) that implements [`EmPath`], and
//! an entry in [`PATHS`](super::paths::PATHS). Selection, `gmm doctor --plan`, `GMM_PLAN`, autotune and the fallback
//! after lost precision all use that list.

use std::fmt;

use cust::memory::DeviceSlice;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::m_step::Matrices;
use gmm_kernels::layout::Kind;

pub(crate) use super::buffers::{BayesBuffers, LoopBuffers, PathBuffers};
use super::error_bounds::ErrorBounds;
use super::prior::PriorNumbers;
pub(crate) use super::reason::{Reason, SINCE_AMPERE, SINCE_HOPPER};
use crate::Error;
use crate::cuda::driver::device::{Gpu, Limits};
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::launch::{Chunk, Launcher};
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// One implementation of EM's iterations on a device: its kernels and grids, its buffers, and its error bounds.
///
/// Everything but the launches is a pure function of shape and device.
pub(crate) trait EmPath: Sync {
    /// The name in `gmm doctor --plan`, `GMM_PLAN` and the autotune file.
    fn name(&self) -> &'static str;

    /// The operands of its products. After lost precision, only a path with a wider operand continues.
    fn operand(&self) -> Operand;

    /// Checks whether the path can run.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn supports(&self, request: &Request<'_>) -> Result<(), Reason>;

    /// Why it would be slower than a later path; `None` if it would not be. Autotune times it in either case.
    fn slower(&self, request: &Request<'_>) -> Option<Reason> {
        let _ = request;
        None
    }

    /// One line that describes how it runs and what determines its cost.
    fn describe(&self, shape: &Shape) -> String;

    /// Positions of the features in coefficients and in sums.
    fn layout(&self, shape: &Shape) -> FeatureLayout;

    /// Whether densities are computed about the means, from inverses of the Cholesky factors, instead of from
    /// coefficients of features.
    fn takes_roots(&self, kind: Kind) -> bool {
        let _ = kind;
        false
    }

    /// Whether sums of a component are about its mean, and not about the shift. For loops only.
    fn sums_are_about_means(&self) -> bool {
        false
    }

    /// Blocks and rows per chunk on this GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver cannot load a kernel.
    fn grid(&self, shape: &Shape, gpu: &Gpu, forced: &ForcedPlan) -> Result<Grid, Error>;

    /// Lengths of the path's own buffers, in 8-byte words. `shape.n` is the number of rows whose norms are kept.
    fn workspace(&self, shape: &Shape, grid: &Grid) -> PathBuffers<u64> {
        let _ = (shape, grid);
        PathBuffers::default()
    }

    /// The precision that an iteration may lose before another path takes over.
    fn error_bounds(&self, shape: &Shape) -> ErrorBounds;

    /// Computes the squared norms of a section's rows, if norms are a feature. Done before the first iteration, or in
    /// each iteration if the rows are streamed.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn norms(&self, launch: &Launch<'_>) -> Result<(), Error> {
        let _ = launch;
        Ok(())
    }

    /// Work done once for each section, before the first iteration and after its norms.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn prepare(&self, launch: &Launch<'_>) -> Result<(), Error> {
        let _ = launch;
        Ok(())
    }

    /// Work done after each M-step: encodes the path's operands from the new parameters.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn encode(
        &self,
        launcher: Launcher<'_>,
        plan: &LoopPlan,
        buffers: &LoopBuffers,
        iteration: u32,
    ) -> Result<(), Error> {
        let _ = (launcher, plan, buffers, iteration);
        Ok(())
    }

    /// Work done between a pass's sums, which are those of all devices, and the M-step: writes the moments of a tied covariance to
    /// `scatter`, if sums are about the means.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn pool(
        &self,
        launcher: Launcher<'_>,
        plan: &LoopPlan,
        buffers: &LoopBuffers,
        iteration: u32,
    ) -> Result<(), Error> {
        let _ = (launcher, plan, buffers, iteration);
        Ok(())
    }

    /// Whether it leaves out components that are far from a tile of rows. Each loop then begins with work on all rows, so that
    /// a single pass is faster on another path.
    fn leaves_out_components(&self) -> bool {
        false
    }

    /// For paths that do so: the mean number of components that the last pass evaluated for a tile.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn near_components(&self, launch: &Launch<'_>) -> Result<Option<f64>, Error> {
        let _ = launch;
        Ok(None)
    }

    /// Whether it heeds [`LoopPlan::largest`].
    fn takes_largest(&self) -> bool {
        false
    }

    /// For paths that heed it: enqueues for each chunk of the rows the choice of the largest components, whose numbers are
    /// written to `components`, `(n, largest)`, in place of those of the chunk before. Calls `then` after each chunk with its
    /// first row and the number of rows.
    ///
    /// # Errors
    /// [`Error::Device`]; the first error of `then`.
    fn list_largest(
        &self,
        launch: &Launch<'_>,
        components: DeviceSlice<u32>,
        then: &mut dyn FnMut(u64, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _ = (launch, components, then);
        unreachable!("asked of a path that takes the largest components")
    }

    /// Work done when a loop begins, after the operands were encoded. Returns false if the path does not suit these rows and
    /// this mixture: then the next path runs.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn begin(&self, launch: &Launch<'_>) -> Result<bool, Error> {
        let _ = launch;
        Ok(true)
    }

    /// Enqueues one pass over the rows of a section, which leaves [`Grid::partials`] partial sums.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn enqueue(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error>;
}

impl fmt::Debug for dyn EmPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn EmPath {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Operands of a path's products, ordered from the fewest bits to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operand {
    /// One half-precision number, 11 bits.
    Fp16,
    /// The sum of two half-precision numbers, 22 bits.
    SplitFp16,
    /// Single precision, of differences from the mean.
    F32,
    /// Double precision, of features about the shift.
    F64,
}

/// What a path is asked to run, and on which device.
pub(crate) struct Request<'a> {
    pub(crate) shape: Shape,
    /// Whether rows have weights.
    pub(crate) weighted: bool,
    /// Whether all rows are on the device, as one section.
    pub(crate) whole: bool,
    /// Whether the user chose speed over precision.
    pub(crate) fast: bool,
    pub(crate) limits: Limits,
    /// Whether the device's module has the named kernel.
    pub(crate) has: &'a dyn Fn(&'static str) -> bool,
}

impl Request<'_> {
    /// Errors if the module lacks a kernel; `since` names the devices that have it.
    pub(crate) fn needs(&self, kernel: &'static str, since: &'static str) -> Result<(), Reason> {
        if (self.has)(kernel) { Ok(()) } else { Err(Reason::NoKernel { since }) }
    }

    /// Errors if a block needs more shared memory than the device has.
    pub(crate) fn fits(&self, wanted: u64) -> Result<(), Reason> {
        let room = u64::from(self.limits.shared_bytes);
        if wanted <= room { Ok(()) } else { Err(Reason::SharedMemory { wanted, room }) }
    }

    /// The reason against `f64` arithmetic: `f32` rows on a GPU whose `f64` throughput is low.
    pub(crate) fn f64_is_slow(&self) -> Option<Reason> {
        /// Existing GPUs run f32 either 2 times as fast as f64, or 32 times and more.
        const MOST_F32_TO_F64: u32 = 4;
        let times = self.limits.f32_to_f64;
        (self.shape.number_bytes() == 4 && times > MOST_F32_TO_F64).then_some(Reason::F64IsSlow { times })
    }
}

/// How a path divides the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Rows per chunk: a multiple of 128, or all rows.
    pub(crate) chunk: u64,
    /// Blocks of the kernel that computes densities.
    pub(crate) blocks: u32,
    /// Number of partial sums that a pass leaves: one per block, or one per split of a chunk's rows.
    pub(crate) partials: u32,
}

impl Grid {
    /// First row and number of rows of each chunk. Chunks start at tiles, so the data of a chunk is contiguous.
    pub(crate) fn chunks(self, n: u64) -> impl Iterator<Item = (u64, u64)> {
        (0..n).step_by(self.chunk as usize).map(move |start| (start, self.chunk.min(n - start)))
    }
}

/// What stays constant during a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopPlan {
    /// Its `n` is the number of rows whose norms are kept: all, or those of a section if the rows are streamed.
    pub(crate) shape: Shape,
    /// Number of rows.
    pub(crate) n: u64,
    pub(crate) sections: usize,
    pub(crate) path: &'static dyn EmPath,
    /// Whether the user chose the path.
    pub(crate) is_forced: bool,
    pub(crate) grid: Grid,
    pub(crate) layout: FeatureLayout,
    pub(crate) matrices: Matrices,
    pub(crate) max_iter: u32,
    pub(crate) tol: f64,
    pub(crate) reg_covar: f64,
    pub(crate) total_weight: f64,
    pub(crate) bounds: ErrorBounds,
    /// Of variational Bayes; `None` for EM.
    pub(crate) prior: Option<PriorNumbers>,
    /// Components of largest density among which a row has responsibilities; 0 for all.
    pub(crate) largest: u32,
}

impl LoopPlan {
    /// Whether features that a path computes for a chunk last for all iterations: there is only one chunk.
    pub(crate) const fn keeps_features(&self) -> bool {
        self.sections == 1 && self.grid.chunk >= self.n
    }

    pub(crate) fn takes_roots(&self) -> bool {
        self.path.takes_roots(self.shape.kernel_kind())
    }

    /// Length of the densities' coefficients: [`FeatureLayout::coefficients`], or 0 if the path uses roots instead.
    pub(crate) fn coefficients(&self) -> u64 {
        if self.takes_roots() { 0 } else { self.layout.coefficients() }
    }
}

/// The rows of a section, in either precision.
#[derive(Clone, Copy)]
pub(crate) enum LoopRows {
    F32(Chunk<f32>),
    F64(Chunk<f64>),
}

impl LoopRows {
    pub(crate) fn of<T: Number>(rows: &Chunk<T>) -> Self {
        let Chunk { x, row_weights, n } = *rows;
        let bytes = x.len() * size_of::<T>();
        // SAFETY: `Number` is implemented for `f32` and `f64` only, so `T::BYTES` identifies the type; the slice covers
        // the same memory.
        unsafe {
            if T::BYTES == 4 {
                let x = DeviceSlice::from_raw_parts(x.as_device_ptr().cast(), bytes / 4);
                Self::F32(Chunk { x, row_weights, n })
            } else {
                let x = DeviceSlice::from_raw_parts(x.as_device_ptr().cast(), bytes / 8);
                Self::F64(Chunk { x, row_weights, n })
            }
        }
    }

    /// Number of rows.
    pub(crate) const fn n(&self) -> u64 {
        match self {
            Self::F32(rows) => rows.n,
            Self::F64(rows) => rows.n,
        }
    }

    /// The rows, which half-precision paths require to be unweighted `f32`.
    ///
    /// # Panics
    /// If they are not: [`EmPath::supports`] excludes such rows.
    pub(crate) fn unweighted_f32(&self) -> &Chunk<f32> {
        match self {
            Self::F32(rows) if rows.row_weights.is_none() => rows,
            _ => panic!("rows in half precision are f32 and weigh 1"),
        }
    }
}

/// Everything that the launches of a loop need.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) launcher: Launcher<'a>,
    pub(crate) plan: &'a LoopPlan,
    pub(crate) rows: &'a LoopRows,
    /// Position in the norms of the section's first row.
    pub(crate) norms_from: u64,
    pub(crate) buffers: &'a LoopBuffers,
}
