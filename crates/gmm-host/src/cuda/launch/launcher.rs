//! The launcher, the device data that it takes, and the kernels of the host-driven pass.

use std::os::raw::c_void;

use cust::memory::DeviceSlice;
use cust::sys::{CUresult, CUstream, cuLaunchKernel};
use gmm_kernels::em::fused::{self, Instance, Pass};
use gmm_kernels::em::simple::e_step::whitened::Whitening;
use gmm_kernels::em::simple::e_step::{self, EStep};
use gmm_kernels::em::simple::moments::{self, Sums};
use gmm_kernels::layout::{statistics_len, tiled_len, tiles};
use gmm_kernels::reduce::{Reduce, numbers, of_blocks, reduce_partials, reduce_scalars};
use gmm_kernels::seeding::nearest::{Nearest, nearest as nearest_kernel};
use gmm_kernels::tile::{Tile, Untile, tile_from_f64, untile as untile_kernel};
use gmm_kernels::{Arguments, Kernel, THREADS};
use gmm_model::{CovarianceType, Precision};

use super::arguments::{
    Chunk, Model, StepOutputs, at_least, check_centres, check_chunk, check_model, or_null, pointer,
};
use super::plan::{Plan, Solved, TOTALS, scratch_len};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::device_state::KernelHandle;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::table::{LaunchAttribute, LaunchConfig, launch_with_attributes};
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;

/// The device and the stream on which kernels are launched.
#[derive(Clone, Copy)]
pub(crate) struct Launcher<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) queue: &'a Queue,
}

/// The kernel of the E-step on the tensor cores, for shapes that have one.
fn whitened<T: Number>(shape: &Shape) -> Option<Kernel<EStep<T>>> {
    match shape.kind {
        CovarianceType::Full => e_step::whitened_kernel(false, shape.d),
        CovarianceType::Tied => e_step::whitened_kernel(true, shape.d),
        CovarianceType::Diag | CovarianceType::Spherical => None,
    }
}

impl Launcher<'_> {
    /// Launches a kernel on the stream.
    ///
    /// # Safety
    /// Pointers and lengths match the documentation of the arguments' fields, and the memory stays allocated until the
    /// stream has been waited for.
    pub(crate) unsafe fn launch<A: Arguments + 'static>(
        self,
        kernel: Kernel<A>,
        grid: (u32, u32),
        a: A,
    ) -> Result<(), Error> {
        let name = kernel.name;
        let shared = (kernel.shared_bytes)(&a);
        let entry = self.gpu.function(name, shared)?;
        let stream = self.queue.stream.as_inner();
        let mut pointers = a.pointers();
        #[cfg(test)]
        crate::cuda::driver::fake::launching(kernel, grid, a);
        // SAFETY: one macro generates both the entry point's parameters and this list, so the order and types of the
        // values agree. The pointers in `a` are valid by `# Safety`.
        let code = unsafe { enter(entry, grid, (kernel.threads)(&a), shared as u32, stream, pointers.as_mut_ptr()) };
        self.gpu.check_code(|| format!("launching kernel {name}"), code)?;
        self.queue.launched(name);
        Ok(())
    }

    /// Computes log densities, responsibilities `(n, k)` tiled, and each block's totals, `(blocks, 3)`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn e_step<T: Number>(
        self,
        shape: &Shape,
        plan: &Plan,
        chunk: &Chunk<T>,
        model: &Model<T>,
        responsibilities: &DeviceSlice<T>,
        partials: &DeviceSlice<f64>,
        scratch: &DeviceSlice<T>,
        out: &StepOutputs,
    ) -> Result<(), Error> {
        let blocks = plan.step_blocks(chunk.n);
        check_chunk(shape, chunk);
        check_model(shape, model);
        at_least(responsibilities, tiled_len(chunk.n, shape.k), "responsibilities");
        at_least(partials, u64::from(blocks) * TOTALS as u64, "partial totals");
        at_least(scratch, scratch_len(shape, plan), "scratch");
        out.log_densities.iter().for_each(|s| at_least(s, chunk.n, "log densities"));
        out.labels.iter().for_each(|s| at_least(s, chunk.n, "labels"));
        let is_several = plan.rows_of_thread > 1;
        if let Some(numbers) = &model.whitening {
            let layout = Whitening::of(shape.k, shape.d, shape.kind == CovarianceType::Tied);
            at_least(numbers, layout.count(), "a whitening");
        }
        let kernel = match (shape.kind, plan.solved) {
            _ if model.whitening.is_some() => whitened(shape).expect("a shape with a kernel"),
            (CovarianceType::Full, _) if model.of_precisions && is_several => e_step::precision_full_rows::<T>(),
            (CovarianceType::Tied, _) if model.of_precisions && is_several => e_step::precision_tied_rows::<T>(),
            (CovarianceType::Full, _) if model.of_precisions => e_step::precision_full::<T>(),
            (CovarianceType::Tied, _) if model.of_precisions => e_step::precision_tied::<T>(),
            (CovarianceType::Full, _) if is_several => e_step::full_rows::<T>(),
            (CovarianceType::Tied, _) if is_several => e_step::tied_rows::<T>(),
            (CovarianceType::Full, Solved::Shared) => e_step::full::<T>(),
            (CovarianceType::Full, Solved::Scratch) => e_step::full_large::<T>(),
            (CovarianceType::Tied, Solved::Shared) => e_step::tied::<T>(),
            (CovarianceType::Tied, Solved::Scratch) => e_step::tied_large::<T>(),
            (CovarianceType::Diag, _) => e_step::diag::<T>(),
            (CovarianceType::Spherical, _) => e_step::spherical::<T>(),
        };
        let a = EStep {
            x: pointer(&chunk.x),
            row_weights: or_null(chunk.row_weights.as_ref()),
            n: chunk.n,
            k: shape.k,
            d: shape.d,
            mean_high: pointer(&model.mean_high),
            mean_low: pointer(&model.mean_low),
            factor: pointer(&model.factor),
            log_scale: pointer(&model.log_scale),
            log_scale_low: pointer(&model.log_scale_low),
            weights: pointer(&model.weights),
            responsibilities: pointer(responsibilities),
            want_responsibilities: out.responsibilities.into(),
            weighted: out.weighted.into(),
            log_densities: or_null(out.log_densities.as_ref()),
            labels: or_null(out.labels.as_ref()),
            partials: pointer(partials),
            scratch: if scratch.is_empty() { std::ptr::null_mut() } else { pointer(scratch) },
            rows_of_thread: plan.rows_of_thread,
            whitening: or_null(model.whitening.as_ref()),
        };
        // SAFETY: every length was checked against the field's formula, and parameter buffers start 16-byte aligned.
        unsafe { self.launch(kernel, (blocks, 1), a) }
    }

    /// Whether there is a kernel of the E-step on tensor cores for a shape.
    pub(crate) fn has_whitened(self, shape: &Shape) -> bool {
        let name = match shape.precision {
            Precision::F32 => whitened::<f32>(shape).map(|kernel| kernel.name),
            Precision::F64 => whitened::<f64>(shape).map(|kernel| kernel.name),
        };
        name.is_some_and(|name| self.gpu.has(name))
    }

    /// Moments of a chunk under its responsibilities: `(splits, statistics)` partial sums.
    pub(crate) fn sums<T: Number>(
        self,
        shape: &Shape,
        plan: &Plan,
        chunk: &Chunk<T>,
        model: &Model<T>,
        responsibilities: &DeviceSlice<T>,
        partials: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let kind = shape.kernel_kind();
        check_chunk(shape, chunk);
        check_centres(shape, model);
        at_least(responsibilities, tiled_len(chunk.n, shape.k), "responsibilities");
        at_least(partials, u64::from(plan.splits) * statistics_len(kind, shape.k, shape.d), "partial sums");
        let kernel = match shape.kind {
            CovarianceType::Full => moments::full::<T>(),
            CovarianceType::Tied => moments::tied::<T>(),
            CovarianceType::Diag => moments::diag::<T>(),
            CovarianceType::Spherical => moments::spherical::<T>(),
        };
        let a = Sums {
            x: pointer(&chunk.x),
            responsibilities: pointer(responsibilities),
            n: chunk.n,
            k: shape.k,
            d: shape.d,
            mean_high: pointer(&model.mean_high),
            mean_low: pointer(&model.mean_low),
            partials: pointer(partials),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(kernel, (moments::blocks(kind, shape.k, shape.d), plan.splits), a) }
    }

    /// Hard assignments: each row's weight at its nearest centre and 0 elsewhere, `(n, k)` tiled.
    pub(crate) fn nearest<T: Number>(
        self,
        shape: &Shape,
        plan: &Plan,
        chunk: &Chunk<T>,
        centres: &Model<T>,
        responsibilities: &DeviceSlice<T>,
    ) -> Result<(), Error> {
        check_chunk(shape, chunk);
        check_centres(shape, centres);
        at_least(responsibilities, tiled_len(chunk.n, shape.k), "responsibilities");
        let a = Nearest {
            x: pointer(&chunk.x),
            row_weights: or_null(chunk.row_weights.as_ref()),
            n: chunk.n,
            k: shape.k,
            d: shape.d,
            centre_high: pointer(&centres.mean_high),
            centre_low: pointer(&centres.mean_low),
            responsibilities: pointer(responsibilities),
            labels: std::ptr::null_mut(),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(nearest_kernel::<T>(), (blocks(plan, chunk.n), 1), a) }
    }

    /// Reduces few partial results of many numbers: `out = (out +) Σ partials`.
    pub(crate) fn reduce_partials(
        self,
        shape: &Shape,
        plan: &Plan,
        partials: &DeviceSlice<f64>,
        out: &DeviceSlice<f64>,
        accumulate: bool,
    ) -> Result<(), Error> {
        let len = shape.statistics();
        let a = reduction(partials, plan.splits.into(), len, out, accumulate);
        // Beyond 2^16 blocks, each thread reduces several numbers.
        let grid = len.div_ceil(u64::from(THREADS)).min(1 << 16) as u32;
        // SAFETY: lengths were checked by `reduction`.
        unsafe { self.launch(reduce_partials(), (grid, 1), a) }
    }

    /// Launches one fused pass. It prefetches its first rows while the preceding grid may still run. So the preceding
    /// grid must not write rows; an M-step or a copy is always in between.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub(crate) unsafe fn fused_pass(
        self,
        shape: &Shape,
        instance: Instance,
        blocks: u32,
        a: Pass,
    ) -> Result<(), Error> {
        let of = Instance::of(shape.kernel_kind(), shape.k, shape.d);
        assert!(of.is_some_and(|of| instance.is_like(of)), "{instance:?} for {shape:?}");
        assert_eq!(u64::from(a.number_bytes), shape.number_bytes(), "bytes of a number of the rows");
        assert!(instance.takes_rows_of(a.number_bytes), "{instance:?} for {shape:?}");
        // The kernel copies them 16 bytes at a time.
        assert!([a.coefficients, a.constants].iter().all(|at| at.addr().is_multiple_of(16)), "operands of a pass");
        // SAFETY: the caller upholds `# Safety`, and the asserts above checked that the instance supports this shape
        // and number type.
        unsafe { self.launch(fused::kernel(instance), (blocks, 1), a) }
    }

    /// Sums the partial results of blocks, `(count, len)`: `out = Σ partials`, or `out += Σ partials` to `accumulate`.
    pub(crate) fn reduce_blocks(
        self,
        partials: &DeviceSlice<f64>,
        count: u64,
        len: u64,
        out: &DeviceSlice<f64>,
        accumulate: bool,
    ) -> Result<(), Error> {
        let a = reduction(partials, count, len, out, accumulate);
        // Beyond 2^16 blocks, each block reduces several groups of numbers in turn.
        let grid = len.div_ceil(numbers(len).into()).min(1 << 16) as u32;
        // SAFETY: lengths were checked by `reduction`.
        unsafe { self.launch(of_blocks(len), (grid, 1), a) }
    }

    /// Reduces many partial results of few numbers: the E-step's totals of all its blocks for a chunk of `n` rows.
    pub(crate) fn reduce_totals(
        self,
        plan: &Plan,
        n: u64,
        partials: &DeviceSlice<f64>,
        out: &DeviceSlice<f64>,
        accumulate: bool,
    ) -> Result<(), Error> {
        let a = reduction(partials, plan.step_blocks(n).into(), TOTALS as u64, out, accumulate);
        // SAFETY: lengths were checked by `reduction`; the grid has one block per number.
        unsafe { self.launch(reduce_scalars(), (TOTALS as u32, 1), a) }
    }

    /// Converts row-major responsibilities, `(n, k)`, to tiles, multiplied by the row weights.
    pub(crate) fn tile<T: Number>(
        self,
        shape: &Shape,
        plan: &Plan,
        chunk: &Chunk<T>,
        from: &DeviceSlice<f64>,
        to: &DeviceSlice<T>,
    ) -> Result<(), Error> {
        at_least(from, chunk.n * u64::from(shape.k), "given responsibilities");
        at_least(to, tiled_len(chunk.n, shape.k), "responsibilities");
        let a = Tile {
            from: pointer(from).cast_const().cast(),
            n: chunk.n,
            columns: shape.k,
            shift: std::ptr::null(),
            scale: or_null(chunk.row_weights.as_ref()),
            to: pointer(to),
        };
        // SAFETY: every length was checked against the field's formula; `from` holds `f64`, which this kernel expects.
        unsafe { self.launch(tile_from_f64::<T>(), (blocks(plan, chunk.n), 1), a) }
    }

    /// Converts tiled responsibilities, `(n, k)`, to row-major order.
    pub(crate) fn untile<T: Number>(
        self,
        shape: &Shape,
        plan: &Plan,
        n: u64,
        from: &DeviceSlice<T>,
        to: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        at_least(from, tiled_len(n, shape.k), "responsibilities");
        at_least(to, n * u64::from(shape.k), "responsibilities in rows");
        let a = Untile { from: pointer(from), n, columns: shape.k, to: pointer(to) };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(untile_kernel::<T>(), (blocks(plan, n), 1), a) }
    }
}

/// Launches a kernel. If it has `griddepcontrol.wait` and the driver supports it, the launch overlaps the preceding
/// grids (programmatic stream serialisation).
///
/// # Safety
/// As for `cuLaunchKernel`.
unsafe fn enter(
    KernelHandle { function, waits }: KernelHandle,
    (x, y): (u32, u32),
    threads: u32,
    shared: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
) -> CUresult {
    if waits {
        let attribute = LaunchAttribute::WAITS_BY_ITSELF;
        let (grid, block) = ([x, y, 1], [threads, 1, 1]);
        let config = LaunchConfig { grid, block, shared, stream, attributes: &raw const attribute, attributes_len: 1 };
        // SAFETY: the caller upholds `cuLaunchKernel`'s contract. `waits` means that the kernel's PTX has
        // `griddepcontrol.wait`, and a test checks that it comes before any access to memory that other kernels write.
        if let Some(code) = unsafe { launch_with_attributes(&config, function, parameters) } {
            return code;
        }
    }
    // SAFETY: the caller upholds `cuLaunchKernel`'s contract: a live function and stream, and a pointer to each
    // parameter.
    unsafe { cuLaunchKernel(function, x, y, 1, threads, 1, 1, shared, stream, parameters, std::ptr::null_mut()) }
}

/// Blocks for a chunk of `n` rows: at most one per tile.
fn blocks(plan: &Plan, n: u64) -> u32 {
    u64::from(plan.blocks).min(tiles(n)) as u32
}

fn reduction(partials: &DeviceSlice<f64>, count: u64, len: u64, out: &DeviceSlice<f64>, accumulate: bool) -> Reduce {
    at_least(partials, count * len, "partial results");
    at_least(out, len, "results");
    Reduce { partials: pointer(partials), count, len, out: pointer(out), accumulate: accumulate.into() }
}
