//! Passes over thousands of components that evaluate only those near a tile of rows. See [`gmm_kernels::em::nearby`].
//!
//! A loop begins with sorting the rows by their best components, which are in the order of a k-d tree. So neighbours
//! in the order are near each other, however the columns are scaled. The order follows from rows and start alone. An evaluation of
//! the means that a loop has left takes its order and best components; any other one begins as a loop does.

mod buffers;
mod evaluate;
mod order;

pub(crate) use evaluate::{Evaluated, evaluate};

use gmm_kernels::THREADS;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::nearby::{self, TILES, nearby_encode, nearby_gather, nearby_lists, nearby_pool, nearby_sums};
use gmm_kernels::layout::{Kind, packed_len, tiles};

use buffers::{Buffers, arguments, instance, layout, numbers, size, with_rows};

use crate::cuda::driver::device::Gpu;
use crate::cuda::em::error_bounds::ErrorBounds;
use crate::cuda::em::path::{
    EmPath, Grid, Launch, LoopBuffers, LoopPlan, Operand, PathBuffers, Reason, Request, SINCE_AMPERE,
};
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::launch::{Launcher, pointer};
use crate::cuda::shape::Shape;
use crate::{Error, path_names};

pub(super) struct Nearby;

/// The least number of components: with fewer, the other paths' products on tensor cores are faster.
const LEAST_COMPONENTS: u64 = 512;

/// The least number of rows: some groups of tiles for each multiprocessor.
const LEAST_ROWS: u64 = 1 << 15;

/// The largest mean share of the components that a tile may evaluate: a component costs some three times as much there as
/// on the paths that evaluate all of them, and some time goes into finding it.
const MOST_LISTED: f64 = 0.2;

/// One tile in this many is looked at to find that share.
const LOOK: usize = 32;

/// Most bytes of the sums of all blocks.
const PARTIALS: u64 = 1 << 30;

const FEW_COLUMNS: &str = "up to 6 columns with full and tied covariances, or 12 with variances alone";
const WHOLE: &str = "fewer than 2^32 rows that are on the device as one section";

impl EmPath for Nearby {
    fn name(&self) -> &'static str {
        path_names::NEARBY
    }

    fn operand(&self) -> Operand {
        Operand::F64
    }

    fn supports(&self, request: &Request<'_>) -> Result<(), Reason> {
        let size = instance(&request.shape).ok_or(Reason::Only(FEW_COLUMNS))?;
        if !request.whole || u32::try_from(request.shape.n).is_err() {
            return Err(Reason::Only(WHOLE));
        }
        request.needs(size.pass().name, SINCE_AMPERE)?;
        request.fits(size.pass_bytes())
    }

    fn slower(&self, request: &Request<'_>) -> Option<Reason> {
        let Shape { n, k, .. } = request.shape;
        if u64::from(k) < LEAST_COMPONENTS {
            return Some(Reason::TooFew { what: "components", least: LEAST_COMPONENTS });
        }
        if n < LEAST_ROWS {
            return Some(Reason::TooFew { what: "rows", least: LEAST_ROWS });
        }
        request.f64_is_slow()
    }

    fn describe(&self, shape: &Shape) -> String {
        let kernel = size(shape).pass().name;
        format!("{kernel}; components near each tile of rows, unless too many are: known when the loop begins")
    }

    fn layout(&self, shape: &Shape) -> FeatureLayout {
        layout(shape)
    }

    fn grid(&self, shape: &Shape, gpu: &Gpu, _: &ForcedPlan) -> Result<Grid, Error> {
        let size = size(shape);
        let each = gpu.occupancy(size.pass().name, THREADS, size.pass_bytes())?;
        let most = (PARTIALS / (8 * self.layout(shape).sums())).max(1);
        let blocks = u64::from(each * gpu.limits.multiprocessors).min(tiles(shape.n)).min(most) as u32;
        Ok(Grid { chunk: shape.n, blocks, partials: 1 })
    }

    fn workspace(&self, shape: &Shape, grid: &Grid) -> PathBuffers<u64> {
        PathBuffers { nearby: Buffers::of(shape, grid.blocks).len as u64, ..PathBuffers::default() }
    }

    fn sums_are_about_means(&self) -> bool {
        true
    }

    /// No bounds: what the host's passes about the means compute, which would continue, rounds in the same way. A component
    /// of a single row is left with the regularisation alone.
    fn error_bounds(&self, _: &Shape) -> ErrorBounds {
        ErrorBounds { most_terms: f64::INFINITY, least_left: -1.0 }
    }

    fn encode(&self, launcher: Launcher<'_>, plan: &LoopPlan, b: &LoopBuffers, iteration: u32) -> Result<(), Error> {
        let a = arguments(plan, b, iteration);
        // SAFETY: the buffers are those of the loop, in the lengths of `Buffers`.
        unsafe { launcher.launch(nearby_encode(), (plan.shape.k.div_ceil(THREADS), 1), a) }
    }

    fn pool(&self, launcher: Launcher<'_>, plan: &LoopPlan, b: &LoopBuffers, iteration: u32) -> Result<(), Error> {
        if plan.shape.kernel_kind() != Kind::Tied {
            return Ok(());
        }
        // After the reduction, and for several devices after their exchange.
        let a = nearby::Nearby { sums: pointer(&b.sums), ..arguments(plan, b, iteration) };
        // SAFETY: the buffers are those of the loop; a tied covariance has a `scatter`.
        unsafe { launcher.launch(nearby_pool(), (packed_len(plan.shape.d) as u32, 1), a) }
    }

    fn leaves_out_components(&self) -> bool {
        true
    }

    fn begin(&self, launch: &Launch<'_>) -> Result<bool, Error> {
        let Launch { launcher, plan, buffers, .. } = *launch;
        // The constants of a posterior are not those of its means and covariances.
        if plan.prior.is_some() {
            return Ok(false);
        }
        let shape = &plan.shape;
        let own = Buffers::of(shape, plan.grid.blocks);
        let a = with_rows(arguments(plan, buffers, 1), launch.rows, &own, buffers);
        let number = |count: u64| u32::try_from(count).expect("tiles of fewer than 2^32 rows");
        let groups = tiles(shape.n).div_ceil(TILES.into());
        // SAFETY: the buffers are those of the loop, in the lengths of `Buffers`; the rows are those of the section.
        unsafe { launcher.launch(size(shape).seed(), (number(tiles(shape.n)), 1), a)? };
        order::sort_rows(launch, &own)?;
        // SAFETY: as above.
        unsafe {
            launcher.launch(nearby_gather(), (number(tiles(shape.n)), 1), a)?;
            launcher.launch(nearby_lists(), (number(groups), 1), a)?;
            launcher.launch(size(shape).pass(), (plan.grid.blocks, 1), nearby::Nearby { every: LOOK as u32, ..a })?;
        }
        let listed = numbers(launcher, &buffers.own.nearby.index(own.listed), tiles(shape.n) as usize)?;
        let blocks = listed.chunks(listed.len().div_ceil(plan.grid.blocks as usize));
        let seen: Vec<f64> = blocks.flat_map(|of| of.iter().step_by(LOOK)).map(|&count| f64::from(count)).collect();
        let share = seen.iter().sum::<f64>() / (seen.len() as f64 * f64::from(shape.k));
        let suits = share <= MOST_LISTED || plan.is_forced;
        tracing::debug!(share, suits, "components near a tile");
        Ok(suits)
    }

    fn near_components(&self, launch: &Launch<'_>) -> Result<Option<f64>, Error> {
        let Launch { launcher, plan, buffers, .. } = *launch;
        let own = Buffers::of(&plan.shape, plan.grid.blocks);
        let listed = numbers(launcher, &buffers.own.nearby.index(own.listed), tiles(plan.shape.n) as usize)?;
        Ok(Some(listed.iter().map(|&count| f64::from(count)).sum::<f64>() / listed.len() as f64))
    }

    fn enqueue(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error> {
        let Launch { launcher, plan, buffers, .. } = *launch;
        let shape = &plan.shape;
        let a =
            with_rows(arguments(plan, buffers, iteration), launch.rows, &Buffers::of(shape, plan.grid.blocks), buffers);
        let groups = tiles(shape.n).div_ceil(TILES.into()) as u32;
        // SAFETY: the buffers are those of the loop, in the lengths of `Buffers`; `begin` has filled them.
        unsafe {
            launcher.launch(nearby_lists(), (groups, 1), a)?;
            launcher.launch(size(shape).pass(), (plan.grid.blocks, 1), a)?;
            launcher.launch(nearby_sums(), (plan.layout.groups + 1, 1), a)
        }
    }
}
