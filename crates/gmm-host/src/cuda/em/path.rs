//! What an EM path is: [`EmPath`], one implementation of EM's iterations on a device.
//!
//! To add one: its kernels in `gmm-kernels`, a file under [`paths`](super::paths) that implements [`EmPath`], and a row in
//! [`PATHS`](super::paths::PATHS). Selection, `gmm doctor --plan`, `GMM_PLAN`, autotune and the fallback after lost precision all
//! go through that list.

use std::fmt;
use std::ops::Range;

use cust::memory::DeviceSlice;
use gmm_kernels::em::layout::Place;
use gmm_kernels::em::m_step::Matrices;
use gmm_kernels::layout::Kind;

use super::error_bounds::ErrorBounds;
use crate::Error;
use crate::cuda::driver::device::{Gpu, Limits};
use crate::cuda::launch::plan::Forced;
use crate::cuda::launch::{Chunk, Launcher};
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// One implementation of EM's iterations on a device: its kernels and their grids, its buffers, and how exact it is.
///
/// Everything but the launches is a pure function of shape and device.
pub(crate) trait EmPath: Sync {
    /// For people, `GMM_PLAN` and the file of timings.
    fn name(&self) -> &'static str;

    /// What its products are made of. After lost precision only a path with a wider operand goes on.
    fn operand(&self) -> Operand;

    /// Whether it can run.
    ///
    /// # Errors
    /// The reason why not.
    fn supports(&self, request: &Request<'_>) -> Result<(), Reason>;

    /// Why it would be slower than a later path, where it would. Autotune tries it nevertheless.
    fn slower(&self, request: &Request<'_>) -> Option<Reason> {
        let _ = request;
        None
    }

    /// How it runs, and what decides its cost, in one line.
    fn describe(&self, shape: &Shape) -> String;

    /// Where features lie in coefficients and in sums.
    fn layout(&self, shape: &Shape) -> Place;

    /// Whether densities are taken about the means, from inverses of the Cholesky factors, and not from coefficients of features.
    fn takes_roots(&self, kind: Kind) -> bool {
        let _ = kind;
        false
    }

    /// Blocks and chunks of rows on this GPU.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver cannot load a kernel.
    fn grid(&self, shape: &Shape, gpu: &Gpu, forced: &Forced) -> Result<Grid, Error>;

    /// Lengths of its own buffers, in `f64`.
    fn workspace(&self, shape: &Shape, grid: &Grid) -> PathBuffers<u64> {
        let _ = (shape, grid);
        PathBuffers::default()
    }

    /// Precision that an iteration may lose before another path takes over.
    fn error_bounds(&self, shape: &Shape) -> ErrorBounds;

    /// What comes once, before the first iteration.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn prepare(&self, launch: &Launch<'_>) -> Result<(), Error> {
        let _ = launch;
        Ok(())
    }

    /// What comes after each M-step: its operands from the new parameters.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn encode(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error> {
        let _ = (launch, iteration);
        Ok(())
    }

    /// One pass over all rows: [`Grid::partials`] partial sums.
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

/// What products are made of, from the fewest bits to the most.
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

/// What is asked of a path.
pub(crate) struct Request<'a> {
    pub(crate) shape: Shape,
    /// Rows have weights.
    pub(crate) weighted: bool,
    /// The caller chose speed over precision.
    pub(crate) fast: bool,
    pub(crate) limits: Limits,
    /// Whether the device's module has a kernel.
    pub(crate) has: &'a dyn Fn(&'static str) -> bool,
}

impl Request<'_> {
    /// Errors if the module lacks a kernel; `since` says which devices have it.
    pub(crate) fn needs(&self, kernel: &'static str, since: &'static str) -> Result<(), Reason> {
        if (self.has)(kernel) { Ok(()) } else { Err(Reason::NoKernel { since }) }
    }

    /// Errors if a block wants more shared memory than there is.
    pub(crate) fn fits(&self, wanted: u64) -> Result<(), Reason> {
        let room = u64::from(self.limits.shared_bytes);
        if wanted <= room { Ok(()) } else { Err(Reason::SharedMemory { wanted, room }) }
    }

    /// Rows in `f32` on a GPU whose `f64` is slow: computing them in `f64` does not pay.
    pub(crate) fn f64_is_slow(&self) -> Option<Reason> {
        /// There are GPUs whose f32 is 2 times as fast as f64, and 32 times and more.
        const MOST_F32_TO_F64: u32 = 4;
        let times = self.limits.f32_to_f64;
        (self.shape.number_bytes() == 4 && times > MOST_F32_TO_F64).then_some(Reason::F64IsSlow { times })
    }
}

/// Why a path does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// `GMM_PLAN` has `loop=host`.
    HostForced,
    /// `GMM_PLAN` names another path.
    OtherForced,
    /// The matrices of the M-step want more shared memory than a block has.
    MStep {
        d: u32,
        wanted: u64,
        room: u64,
    },
    SharedMemory {
        wanted: u64,
        room: u64,
    },
    /// The device's module lacks the kernel; what it came with.
    NoKernel {
        since: &'static str,
    },
    /// The sums of a pass do not fit into registers.
    Registers {
        k: u32,
        d: u32,
    },
    /// It is for other problems, which the text names.
    Only(&'static str),
    /// Rows have weights, whose range half precision need not hold.
    RowWeights,
    /// It is less exact, which is opt-in.
    NotAskedFor,
    F64IsSlow {
        times: u32,
    },
    /// Padding would be most of the work, of what the text names.
    Padding(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostForced => f.write_str("GMM_PLAN has loop=host"),
            Self::OtherForced => f.write_str("GMM_PLAN names another path"),
            Self::MStep { d, wanted, room } => {
                write!(f, "the M-step of {d} columns wants {wanted} bytes of shared memory, {room} are there")
            }
            Self::SharedMemory { wanted, room } => {
                write!(f, "it wants {wanted} bytes of shared memory, {room} are there")
            }
            Self::NoKernel { since } => write!(f, "the module has no kernel for it: {since}"),
            Self::Registers { k, d } => {
                write!(f, "the sums of {k} components of {d} columns do not fit into registers")
            }
            Self::Only(what) => write!(f, "it is for {what} only"),
            Self::RowWeights => f.write_str("rows have weights, whose range half precision need not hold"),
            Self::NotAskedFor => f.write_str("it is less exact: --precision fast allows it"),
            Self::F64IsSlow { times } => {
                write!(f, "it computes in f64, and f32 is {times} times as fast on this GPU")
            }
            Self::Padding(of) => write!(f, "padding would be most of its {of}"),
        }
    }
}

/// Tensor cores for f64 and half precision.
pub(crate) const SINCE_AMPERE: &str = "tensor cores for f64 came with compute capability 8.0";
pub(crate) const SINCE_HOPPER: &str = "warpgroups came with Hopper";

/// How a path goes over the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Rows at a time: a multiple of 128, or all.
    pub(crate) chunk: u64,
    /// Blocks of the kernel that computes densities.
    pub(crate) blocks: u32,
    /// Partial sums that a pass leaves: of each block, or of each part into which the sums split the rows of a chunk.
    pub(crate) partials: u32,
}

impl Grid {
    /// First row and number of rows of each chunk. Chunks are whole tiles, so what belongs to them lies one after another.
    pub(crate) fn chunks(self, n: u64) -> impl Iterator<Item = (u64, u64)> {
        (0..n).step_by(self.chunk as usize).map(move |start| (start, self.chunk.min(n - start)))
    }
}

/// A path's own buffers; `A` is a length in `f64`, where it lies, or the memory itself. What lies there says its field.
#[derive(Clone, Copy, Default)]
pub(crate) struct PathBuffers<A> {
    /// `u32`: coefficients as the products take them.
    pub(crate) operands: A,
    /// `f32`: what means take from densities.
    pub(crate) offsets: A,
    /// `f32`, `(8*groups, 2)`.
    pub(crate) scalars: A,
    /// `f32`, `(d+1,)`: powers of two by which columns come into half precision's range, and the norm's.
    pub(crate) scales: A,
    /// Squared norms of all rows, `tiled_len(n, 1)`, of `f64` or `f32`, where norms are a feature.
    pub(crate) norms: A,
    /// Of a chunk: exponentials of the log densities less a row's largest, or features in half precision.
    pub(crate) exponentials: A,
    /// Of a chunk: by what exponentials become responsibilities.
    pub(crate) factors: A,
    /// Of a chunk: what each row's log-likelihood adds up to.
    pub(crate) likelihoods: A,
    /// `f32`, of a chunk: log densities.
    pub(crate) joint: A,
    /// `u32`, of a chunk: responsibilities in half precision, two by two.
    pub(crate) responsibilities: A,
}

impl<A: Clone> PathBuffers<A> {
    /// The same of each, in a fixed order.
    pub(crate) fn map<B>(&self, mut f: impl FnMut(A) -> B) -> PathBuffers<B> {
        PathBuffers {
            operands: f(self.operands.clone()),
            offsets: f(self.offsets.clone()),
            scalars: f(self.scalars.clone()),
            scales: f(self.scales.clone()),
            norms: f(self.norms.clone()),
            exponentials: f(self.exponentials.clone()),
            factors: f(self.factors.clone()),
            likelihoods: f(self.likelihoods.clone()),
            joint: f(self.joint.clone()),
            responsibilities: f(self.responsibilities.clone()),
        }
    }
}

impl<A: Copy> PathBuffers<A> {
    /// All of them, in a fixed order.
    pub(crate) const fn all(&self) -> [A; 10] {
        let Self { operands, offsets, scalars, scales, norms, .. } = *self;
        let Self { exponentials, factors, likelihoods, joint, responsibilities, .. } = *self;
        [operands, offsets, scalars, scales, norms, exponentials, factors, likelihoods, joint, responsibilities]
    }
}

impl PathBuffers<Range<usize>> {
    /// What is zeroed before the first iteration: features that fill up a last step have no one that writes them.
    pub(crate) fn zeroed_until(&self) -> usize {
        self.scalars.end
    }
}

/// The buffers of a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopBuffers {
    /// State, `(4,)`.
    pub(crate) state: DeviceSlice<u32>,
    /// `(k,)`.
    pub(crate) empty: DeviceSlice<u32>,
    /// The last [`TRACE`](gmm_kernels::em::m_step::TRACE) mean log-likelihoods.
    pub(crate) trace: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, d)`, less the shift.
    pub(crate) means: DeviceSlice<f64>,
    /// Packed, `second_len(kind, k, d)`.
    pub(crate) covariances: DeviceSlice<f64>,
    /// `(2,)`.
    pub(crate) carry: DeviceSlice<f64>,
    /// `(8*groups,)`.
    pub(crate) constants: DeviceSlice<f64>,
    /// [`LoopPlan::coefficients`].
    pub(crate) coefficients: DeviceSlice<f64>,
    /// `(k, d*(d+1)/2)` where [`EmPath::takes_roots`].
    pub(crate) roots: Option<DeviceSlice<f64>>,
    /// [`Place::sums`].
    pub(crate) sums: DeviceSlice<f64>,
    /// `(d*(d+1)/2,)` where the covariance is tied.
    pub(crate) scatter: Option<DeviceSlice<f64>>,
    /// `(k, wide_matrix(d))` where they are in device memory.
    pub(crate) matrices: Option<DeviceSlice<f64>>,
    /// `(partials, sums)`.
    pub(crate) partials: DeviceSlice<f64>,
    pub(crate) own: PathBuffers<DeviceSlice<f64>>,
}

/// What stays the same in a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopPlan {
    pub(crate) shape: Shape,
    pub(crate) path: &'static dyn EmPath,
    pub(crate) grid: Grid,
    pub(crate) layout: Place,
    pub(crate) matrices: Matrices,
    pub(crate) max_iter: u32,
    pub(crate) tol: f64,
    pub(crate) reg_covar: f64,
    pub(crate) total_weight: f64,
    pub(crate) bounds: ErrorBounds,
}

impl LoopPlan {
    pub(crate) fn takes_roots(&self) -> bool {
        self.path.takes_roots(self.shape.kernel_kind())
    }

    /// Coefficients of densities: [`Place::coefficients`], or none where roots take their place.
    pub(crate) fn coefficients(&self) -> u64 {
        if self.takes_roots() { 0 } else { self.layout.coefficients() }
    }
}

/// All rows of a loop, of either type: paths state which they take.
#[derive(Clone, Copy)]
pub(crate) enum LoopRows {
    F32(Chunk<f32>),
    F64(Chunk<f64>),
}

impl LoopRows {
    pub(crate) fn of<T: Number>(rows: &Chunk<T>) -> Self {
        let Chunk { x, row_weights, n } = *rows;
        let bytes = x.len() * size_of::<T>();
        // SAFETY: `T` is one of two types, of this size; the slice is the same memory.
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

    /// `f32` rows that weigh 1, which is what half precision takes.
    ///
    /// # Panics
    /// For others: [`EmPath::supports`] refuses them.
    pub(crate) fn unweighted_f32(&self) -> &Chunk<f32> {
        match self {
            Self::F32(rows) if rows.row_weights.is_none() => rows,
            _ => panic!("rows in half precision are f32 and weigh 1"),
        }
    }
}

/// Everything that launches of a loop need.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) launcher: Launcher<'a>,
    pub(crate) plan: &'a LoopPlan,
    pub(crate) rows: &'a LoopRows,
    pub(crate) buffers: &'a LoopBuffers,
}
