//! One kernel per pass for `f32` rows of few columns with full covariances. Each warp of a block handles its own
//! components, and densities are computed from `f32` differences from the means. See [`gmm_kernels::em::small_d`].

use gmm_kernels::device::WARP;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::small_d::{self, Partition, SmallDPass};
use gmm_kernels::layout::Kind;

use super::super::error_bounds::{ErrorBounds, OF_DIFFERENCES};
use super::super::path::{EmPath, Grid, Launch, LoopRows, Operand, Reason, Request, SINCE_AMPERE};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::launch::{or_null, pointer};
use crate::cuda::shape::Shape;
use crate::path_names;

pub(super) struct SmallD;

const FEW_COLUMNS: &str = "float32 rows of few columns with full covariances";

fn cut(shape: &Shape) -> Option<Partition> {
    Partition::of(shape.k, shape.d).filter(|_| shape.kernel_kind() == Kind::Full && shape.number_bytes() == 4)
}

fn supported(shape: &Shape) -> Partition {
    cut(shape).expect("a shape that is supported")
}

impl EmPath for SmallD {
    fn name(&self) -> &'static str {
        path_names::SMALL_D
    }

    fn operand(&self) -> Operand {
        Operand::F32
    }

    fn supports(&self, request: &Request<'_>) -> Result<(), Reason> {
        let cut = cut(&request.shape).ok_or(Reason::Only(FEW_COLUMNS))?;
        request.needs(small_d::kernel(cut).name, SINCE_AMPERE)?;
        request.fits(small_d::shared_bytes(cut))
    }

    fn describe(&self, shape: &Shape) -> String {
        let Partition { each, warps, .. } = supported(shape);
        format!("one kernel a pass; the {warps} warps of a block share its rows, {each} components each")
    }

    fn layout(&self, shape: &Shape) -> FeatureLayout {
        small_d::place(shape.k)
    }

    fn takes_roots(&self, _: Kind) -> bool {
        true
    }

    fn grid(&self, shape: &Shape, gpu: &Gpu, _: &ForcedPlan) -> Result<Grid, Error> {
        let cut = supported(shape);
        let each = gpu.occupancy(small_d::kernel(cut).name, cut.warps * WARP, small_d::shared_bytes(cut))?;
        let parts = shape.n.div_ceil(cut.rows_of_block());
        let blocks = u64::from(each * gpu.limits.multiprocessors).min(parts) as u32;
        Ok(Grid { chunk: shape.n, blocks, partials: blocks })
    }

    fn error_bounds(&self, _: &Shape) -> ErrorBounds {
        OF_DIFFERENCES
    }

    fn enqueue(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error> {
        let (shape, b) = (&launch.plan.shape, launch.buffers);
        let cut = supported(shape);
        let LoopRows::F32(rows) = launch.rows else { panic!("rows of few columns are f32") };
        let pass = SmallDPass {
            state: pointer(&b.state),
            iteration,
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            k: shape.k,
            groups: launch.plan.layout.groups,
            warps: cut.warps,
            means: pointer(&b.means),
            roots: pointer(b.roots.as_ref().expect("a path that takes roots has them")),
            constants: pointer(&b.constants),
            partials: pointer(&b.partials),
        };
        // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers`; the
        // rows are the `n` rows of `Rows`.
        unsafe { launch.launcher.launch(small_d::kernel(cut), (launch.plan.grid.blocks, 1), pass) }
    }
}
