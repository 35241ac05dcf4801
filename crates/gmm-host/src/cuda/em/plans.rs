//! A way as a plan: its kernels, grids and chunks on the GPU at hand, and the digits that it may lose.

use gmm_kernels::fused::large::{self, Large};
use gmm_kernels::fused::update::Matrices;
use gmm_kernels::fused::{self, Variant, narrow};
use gmm_kernels::{THREADS, device::WARP};

use super::super::digits::limits;
use super::super::launch::{Kernels, LoopPlan};
use super::super::plan::{self, Chunks};
use super::super::rows::CudaRows;
use super::super::shape::Shape;
use super::super::upload::Number;
use super::super::ways::Way;
use crate::Error;
use crate::em::EmOptions;

impl<T: Number> CudaRows<T> {
    /// None where the host is to do it.
    pub(in crate::cuda) fn loop_plan(
        &self,
        shape: Shape,
        way: Way,
        options: &EmOptions,
        done: usize,
    ) -> Result<Option<LoopPlan>, Error> {
        let kernels = match way {
            Way::Fused(variant) => self.fused_kernels(&shape, variant)?,
            Way::Narrow(cut) => {
                let threads = cut.warps * WARP;
                let each = self.gpu.occupancy(narrow::kernel(cut).name, threads, narrow::shared_bytes(cut))?;
                let parts = shape.n.div_ceil(cut.rows_of_block());
                let blocks = u64::from(each * self.gpu.limits.multiprocessors).min(parts) as u32;
                Kernels::Narrow(cut, shape.k, blocks)
            }
            Way::Halves(halves) => {
                let (first, second) = (halves.densities(shape.d).name, halves.moments().name);
                let shared = halves.shared_bytes(shape.kernel_kind(), shape.d);
                let (each, blocks) = (halves.lanes(shape.d), halves.blocks_of_split(shape.d));
                let blocks = (blocks, each, each);
                Kernels::Halves(halves, self.chunks_of(&shape, halves.of, blocks, (first, second), shared)?)
            }
            Way::Warpgroups(of) => {
                let (first_shared, second_shared) = of.shared_bytes();
                let waves = |name: &'static str, threads: u32, shared: u64| {
                    let each = self.gpu.occupancy(name, threads, shared)?;
                    Ok::<u32, Error>(each * self.gpu.limits.multiprocessors)
                };
                let (names, threads) = (of.names(), of.threads());
                let first = waves(names.0, threads.0, first_shared)?;
                let second = waves(names.1, threads.1, second_shared)?;
                let chunks = plan::warpgroup_chunks(&shape, of, &self.gpu.limits, &self.forced, (first, second));
                Kernels::Warpgroups(of, chunks)
            }
            Way::Large(of) => {
                let first = large::densities::<T>(of.family, of.at_once).name;
                let second = large::moments::<T>(of.family, of.at_once).name;
                // A warp leaves a partial result of its own.
                let blocks = (of.units(shape.d), THREADS / WARP, 1);
                Kernels::Large(of, self.chunks_of(&shape, of, blocks, (first, second), large::shared_bytes::<T>(of))?)
            }
            Way::Host => return Ok(None),
        };
        let (most_terms, least_left) = limits(&shape, way);
        let room = self.gpu.limits.shared_bytes.into();
        let Ok(matrices) = Matrices::of(shape.kernel_kind(), shape.d, room) else { return Ok(None) };
        tracing::debug!(plan = format!("{kernels:?}"), matrices = format!("{matrices:?}"), "loop on the device");
        Ok(Some(LoopPlan {
            shape,
            kernels,
            matrices,
            max_iter: u32::try_from(options.max_iter - done).unwrap_or(u32::MAX - 1),
            tol: options.tol,
            reg_covar: options.reg_covar,
            total_weight: self.total_weight,
            most_terms,
            least_left,
        }))
    }

    /// One kernel for a pass, whose sums fit into registers.
    pub(in crate::cuda) fn fused_kernels(&self, shape: &Shape, variant: Variant) -> Result<Kernels, Error> {
        let (threads, shared) = fused::block::<T>(variant);
        let each = self.gpu.occupancy(fused::kernel::<T>(variant).name, threads, shared)?;
        let groups = shape.n.div_ceil(fused::rows_of_block(threads));
        let blocks = u64::from(each * self.gpu.limits.multiprocessors).min(groups) as u32;
        Ok(Kernels::Fused(variant, blocks))
    }

    /// Chunks for two kernels.
    fn chunks_of(
        &self,
        shape: &Shape,
        of: Large,
        second_blocks: (u32, u32, u32),
        (first, second): (&'static str, &'static str),
        (first_shared, second_shared): (u64, u64),
    ) -> Result<Chunks, Error> {
        let at_once = |name: &'static str, shared: u64| {
            let each = self.gpu.occupancy(name, THREADS, shared)?;
            Ok::<u32, Error>(each * self.gpu.limits.multiprocessors)
        };
        let waves = (at_once(first, first_shared)?, at_once(second, second_shared)?);
        Ok(plan::chunks(shape, of, &self.gpu.limits, &self.forced, waves, second_blocks))
    }
}
