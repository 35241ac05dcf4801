//! One kernel per pass on f64 tensor cores: a warp or a block holds all sums of the mixture in registers. See
//! [`gmm_kernels::em`].

use gmm_kernels::em::features::derived;
use gmm_kernels::em::fused::{self, Instance, Pass};
use gmm_kernels::em::layout::FeatureLayout;

use super::super::error_bounds::{self, ErrorBounds};
use super::super::path::{EmPath, Grid, Launch, LoopRows, Operand, Reason, Request, SINCE_AMPERE};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::launch::{Chunk, or_null, pointer};
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;
use crate::path_names;

pub(super) struct Fused;

/// The fused kernel's instance for a shape, with the kernel's name, threads and bytes of shared memory.
pub(crate) struct FusedKernel {
    pub(crate) instance: Instance,
    pub(crate) kernel: &'static str,
    pub(crate) threads: u32,
    pub(crate) shared: u64,
}

impl FusedKernel {
    pub(crate) fn of(shape: &Shape, shared_bytes: u32) -> Option<Self> {
        let number_bytes = shape.number_bytes() as u32;
        let instance = Instance::of(shape.kernel_kind(), shape.k, shape.d)?.fitting(number_bytes, shared_bytes.into());
        let (threads, shared) = fused::block_of(instance, number_bytes);
        Some(Self { instance, kernel: fused::kernel(instance).name, threads, shared })
    }

    /// Number of blocks: as many as run concurrently, and at most one per group of rows.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn blocks(&self, shape: &Shape, gpu: &Gpu) -> Result<u32, Error> {
        let each = gpu.occupancy(self.kernel, self.threads, self.shared)?;
        let groups = shape.n.div_ceil(fused::rows_of_block(self.threads));
        Ok(u64::from(each * gpu.limits.multiprocessors).min(groups) as u32)
    }
}

fn supported(launch: &Launch<'_>) -> FusedKernel {
    FusedKernel::of(&launch.plan.shape, launch.launcher.gpu.limits.shared_bytes).expect("a shape that is supported")
}

impl EmPath for Fused {
    fn name(&self) -> &'static str {
        path_names::FUSED
    }

    fn operand(&self) -> Operand {
        Operand::F64
    }

    fn supports(&self, request: &Request<'_>) -> Result<(), Reason> {
        let Shape { k, d, .. } = request.shape;
        let instance =
            FusedKernel::of(&request.shape, request.limits.shared_bytes).ok_or(Reason::Registers { k, d })?;
        request.needs(instance.kernel, SINCE_AMPERE)?;
        request.fits(instance.shared)
    }

    fn slower(&self, request: &Request<'_>) -> Option<Reason> {
        request.f64_is_slow()
    }

    fn describe(&self, shape: &Shape) -> String {
        let Some(FusedKernel { instance, .. }) = FusedKernel::of(shape, u32::MAX) else { return String::new() };
        let (sums, kernel) = (instance.place().sums(), fused::kernel(instance).name);
        format!("one kernel a pass, {kernel}; its warps hold all {sums} sums in registers")
    }

    fn layout(&self, shape: &Shape) -> FeatureLayout {
        Instance::of(shape.kernel_kind(), shape.k, shape.d).expect("a shape that is supported").place()
    }

    fn grid(&self, shape: &Shape, gpu: &Gpu, _: &ForcedPlan) -> Result<Grid, Error> {
        let instance = FusedKernel::of(shape, gpu.limits.shared_bytes).expect("a shape that is supported");
        let blocks = instance.blocks(shape, gpu)?;
        Ok(Grid { chunk: shape.n, blocks, partials: blocks })
    }

    fn error_bounds(&self, shape: &Shape) -> ErrorBounds {
        error_bounds::of_features(shape.precision, shape.kind)
    }

    fn enqueue(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error> {
        match launch.rows {
            LoopRows::F32(rows) => enqueue(launch, iteration, rows),
            LoopRows::F64(rows) => enqueue(launch, iteration, rows),
        }
    }
}

fn enqueue<T: Number>(launch: &Launch<'_>, iteration: u32, rows: &Chunk<T>) -> Result<(), Error> {
    let (shape, b) = (&launch.plan.shape, launch.buffers);
    let pass = Pass {
        state: pointer(&b.state),
        iteration,
        x: pointer(&rows.x).cast(),
        number_bytes: T::BYTES,
        row_weights: or_null(rows.row_weights.as_ref()),
        n: rows.n,
        d: shape.d,
        derive: derived(shape.kernel_kind()),
        coefficients: pointer(&b.coefficients),
        constants: pointer(&b.constants),
        partials: pointer(&b.partials),
    };
    // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers`; the rows
    // are those of `Rows`, and the M-step or a copy precedes this launch.
    unsafe { launch.launcher.fused_pass(shape, supported(launch).instance, launch.plan.grid.blocks, pass) }
}
