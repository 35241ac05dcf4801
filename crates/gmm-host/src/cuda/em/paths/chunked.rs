//! Two kernels for each chunk of rows, densities and moments: one algorithm with f64, split-fp16 or fp16 operands. See
//! [`gmm_kernels::em::chunked::double_precision`] for f64 and [`gmm_kernels::em::chunked::half_precision`] for fp16.

use cust::memory::DeviceSlice;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::em::chunked::double_precision::{self, DoublePrecision};
use gmm_kernels::em::chunked::half_precision::encode::{Encode, chunked_half_encode};
use gmm_kernels::em::chunked::half_precision::{self, HalfPrecision};
use gmm_kernels::em::features::derived;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::m_step;
use gmm_kernels::layout::{Kind, tiled_len, tiles};

use super::super::error_bounds::{self, ErrorBounds};
use super::super::grid::{self, Waves};
use super::super::path::{
    EmPath, Grid, Launch, LoopBuffers, LoopPlan, LoopRows, Operand, PathBuffers, Reason, Request, SINCE_AMPERE,
};
use super::double_precision::{Part, f64_chunk, f64_densities, f64_norms};
use super::half_precision::{first_norm, half_precision_norms, half_precision_scales, takes_half_precision};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::launch::{Chunk, Launcher, or_null, pointer};
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;
use crate::path_names;

/// A chunked path with the given operand.
pub(super) struct Chunked(Operand);

pub(super) static F64: Chunked = Chunked(Operand::F64);
pub(super) static SPLIT_FP16: Chunked = Chunked(Operand::SplitFp16);
pub(super) static FP16: Chunked = Chunked(Operand::Fp16);

/// Names and shared bytes of the two kernels, densities and moments, and how the moments share the rows.
struct ChunkedKernels {
    names: [&'static str; 2],
    shared: [u64; 2],
    waves: Waves,
}

impl Chunked {
    const fn is_half(&self) -> bool {
        matches!(self.0, Operand::SplitFp16 | Operand::Fp16)
    }

    fn large(&self, shape: &Shape) -> DoublePrecision {
        if self.is_half() { self.halves(shape).of } else { DoublePrecision::of(shape.kernel_kind(), shape.k, shape.d) }
    }

    fn halves(&self, shape: &Shape) -> HalfPrecision {
        HalfPrecision::of(shape.kernel_kind(), shape.k, shape.d, self.0 == Operand::Fp16)
    }

    fn kernels(&self, shape: &Shape) -> ChunkedKernels {
        match (self.is_half(), shape.number_bytes()) {
            (true, _) => {
                let halves = self.halves(shape);
                let (densities, moments) = halves.shared_bytes(shape.kernel_kind(), shape.d);
                let lanes = halves.lanes(shape.d);
                ChunkedKernels {
                    names: [halves.densities(shape.d).name, halves.moments().name],
                    shared: [densities, moments],
                    waves: Waves { of_split: halves.blocks_of_split(shape.d), each: lanes, multiple: lanes },
                }
            }
            (false, 4) => self.of_f64::<f32>(shape),
            (false, _) => self.of_f64::<f64>(shape),
        }
    }

    fn of_f64<T: Number>(&self, shape: &Shape) -> ChunkedKernels {
        let of = self.large(shape);
        let (densities, moments) = double_precision::shared_bytes::<T>(of);
        ChunkedKernels {
            names: [
                double_precision::densities::<T>(of.family, of.at_once).name,
                double_precision::moments::<T>(of.family, of.at_once).name,
            ],
            shared: [densities, moments],
            // Each warp leaves a separate partial sum.
            waves: Waves { of_split: of.units(shape.d), each: THREADS / WARP, multiple: 1 },
        }
    }
}

impl EmPath for Chunked {
    fn name(&self) -> &'static str {
        match self.0 {
            Operand::SplitFp16 => path_names::CHUNKED_SPLIT_FP16,
            Operand::Fp16 => path_names::CHUNKED_FP16,
            Operand::F32 | Operand::F64 => path_names::CHUNKED_F64,
        }
    }

    fn operand(&self) -> Operand {
        self.0
    }

    fn supports(&self, request: &Request<'_>) -> Result<(), Reason> {
        if self.is_half() {
            takes_half_precision(request, self.0)?;
        }
        let kernels = self.kernels(&request.shape);
        request.needs(kernels.names[0], SINCE_AMPERE)?;
        if self.is_half() { request.fits(kernels.shared[0].max(kernels.shared[1])) } else { Ok(()) }
    }

    fn slower(&self, request: &Request<'_>) -> Option<Reason> {
        if !self.is_half() {
            return request.f64_is_slow();
        }
        let few = request.shape.kernel_kind() == Kind::Full && request.shape.d < 8 && request.f64_is_slow().is_none();
        few.then_some(Reason::Padding("factors, which are padded to multiples of 8 rows"))
    }

    fn describe(&self, shape: &Shape) -> String {
        let of = self.large(shape);
        let (sums, at_once) = (of.place.sums(), 8 * of.at_once);
        let how = match self.0 {
            Operand::Fp16 => ", with fp16 operands (11 bits)",
            Operand::SplitFp16 => ", with split-fp16 operands (22 bits)",
            Operand::F32 | Operand::F64 => "",
        };
        format!("two kernels per chunk of rows{how}; {at_once} components at a time; {sums} sums")
    }

    fn layout(&self, shape: &Shape) -> FeatureLayout {
        self.large(shape).place
    }

    fn takes_roots(&self, kind: Kind) -> bool {
        self.is_half() && kind == Kind::Full
    }

    fn grid(&self, shape: &Shape, gpu: &Gpu, forced: &ForcedPlan) -> Result<Grid, Error> {
        let ChunkedKernels { names, shared, waves } = self.kernels(shape);
        let at_once =
            |i: usize| Ok::<u32, Error>(gpu.occupancy(names[i], THREADS, shared[i])? * gpu.limits.multiprocessors);
        Ok(grid::of_chunks(shape, self.layout(shape), &gpu.limits, forced, [at_once(0)?, at_once(1)?], waves))
    }

    fn workspace(&self, shape: &Shape, grid: &Grid) -> PathBuffers<u64> {
        let rows = grid.chunk.min(shape.n);
        let (of, kind, d) = (self.large(shape), shape.kernel_kind(), shape.d);
        let norms = if kind == Kind::Spherical { tiled_len(shape.n, 1) } else { 0 };
        let likelihoods = double_precision::likelihoods(rows);
        if !self.is_half() {
            let exponentials = of.exponentials(rows) * shape.number_bytes() / 8;
            return PathBuffers {
                norms,
                exponentials,
                factors: of.factors(rows),
                likelihoods,
                ..PathBuffers::default()
            };
        }
        let halves = self.halves(shape);
        PathBuffers {
            operands: halves.operands(kind, d).div_ceil(2),
            offsets: halves.offsets(kind, d).div_ceil(2),
            scalars: 8 * u64::from(of.place.groups),
            scales: (u64::from(d) + 1).div_ceil(2),
            norms: norms.div_ceil(2),
            exponentials: halves.exponentials(rows).div_ceil(2),
            factors: of.factors(rows).div_ceil(2),
            likelihoods,
            ..PathBuffers::default()
        }
    }

    fn error_bounds(&self, shape: &Shape) -> ErrorBounds {
        if self.is_half() {
            error_bounds::of_half_precision(shape.kind)
        } else {
            error_bounds::of_features(shape.precision, shape.kind)
        }
    }

    fn prepare(&self, launch: &Launch<'_>) -> Result<(), Error> {
        if self.is_half() { half_precision_scales(launch, launch.rows.unweighted_f32()) } else { Ok(()) }
    }

    fn norms(&self, launch: &Launch<'_>) -> Result<(), Error> {
        match (self.is_half(), launch.rows) {
            (true, rows) => half_precision_norms(launch, rows.unweighted_f32()),
            (false, LoopRows::F32(rows)) => f64_norms(launch, rows),
            (false, LoopRows::F64(rows)) => f64_norms(launch, rows),
        }
    }

    fn encode(&self, launcher: Launcher<'_>, plan: &LoopPlan, b: &LoopBuffers, iteration: u32) -> Result<(), Error> {
        if !self.is_half() {
            return Ok(());
        }
        let shape = &plan.shape;
        let halves = self.halves(shape);
        let a = Encode {
            state: pointer(&b.state),
            iteration,
            kind: m_step::number(shape.kernel_kind()),
            k: shape.k,
            d: shape.d,
            steps: halves.of.place.steps,
            groups: halves.of.place.groups,
            at_once: halves.of.at_once,
            one: halves.one.into(),
            scales: pointer(&b.own.scales).cast(),
            coefficients: pointer(&b.coefficients),
            roots: or_null(b.roots.as_ref()),
            means: pointer(&b.means),
            constants: pointer(&b.constants),
            operands: pointer(&b.own.operands).cast(),
            offsets: pointer(&b.own.offsets).cast(),
            scalars: pointer(&b.own.scalars).cast(),
        };
        // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers` and
        // `workspace`.
        unsafe { launcher.launch(chunked_half_encode(), (8 * halves.of.place.groups, 1), a) }
    }

    fn takes_largest(&self) -> bool {
        !self.is_half()
    }

    fn list_largest(
        &self,
        launch: &Launch<'_>,
        components: DeviceSlice<u32>,
        then: &mut dyn FnMut(u64, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let of = self.large(&launch.plan.shape);
        for (start, n) in launch.plan.grid.chunks(launch.rows.n()) {
            let part = Part { start, n };
            match launch.rows {
                LoopRows::F32(rows) => f64_densities(launch, of, 1, rows, part, Some(components))?,
                LoopRows::F64(rows) => f64_densities(launch, of, 1, rows, part, Some(components))?,
            }
            then(start, n)?;
        }
        Ok(())
    }

    fn enqueue(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error> {
        match (self.is_half(), launch.rows) {
            (true, rows) => self.half_precision_pass(launch, iteration, rows.unweighted_f32()),
            (false, LoopRows::F32(rows)) => self.f64_pass(launch, iteration, rows),
            (false, LoopRows::F64(rows)) => self.f64_pass(launch, iteration, rows),
        }
    }
}

impl Chunked {
    fn f64_pass<T: Number>(&self, launch: &Launch<'_>, iteration: u32, rows: &Chunk<T>) -> Result<(), Error> {
        let of = self.large(&launch.plan.shape);
        for (start, n) in launch.plan.grid.chunks(rows.n) {
            f64_chunk(launch, of, iteration, rows, Part { start, n })?;
        }
        Ok(())
    }

    fn half_precision_pass(&self, launch: &Launch<'_>, iteration: u32, rows: &Chunk<f32>) -> Result<(), Error> {
        let halves = self.halves(&launch.plan.shape);
        for (start, n) in launch.plan.grid.chunks(rows.n) {
            half_precision_chunk(launch, halves, iteration, rows, Part { start, n })?;
        }
        Ok(())
    }
}

fn half_precision_chunk(
    launch: &Launch<'_>,
    halves: HalfPrecision,
    iteration: u32,
    rows: &Chunk<f32>,
    Part { start, n }: Part,
) -> Result<(), Error> {
    let (shape, place, b) = (&launch.plan.shape, halves.of.place, launch.buffers);
    let (own, splits, kind, d) = (&b.own, launch.plan.grid.partials, shape.kernel_kind(), shape.d);
    let x = pointer(&rows.x.index(start as usize * d as usize..)).cast_const();
    let norms = first_norm(own, launch.norms_from + start);
    let densities = half_precision::densities::Densities {
        state: pointer(&b.state),
        iteration,
        x,
        norms,
        n,
        d,
        derive: derived(kind),
        steps: halves.steps(kind, d),
        groups: place.groups,
        scales: pointer(&own.scales).cast(),
        operands: pointer(&own.operands).cast(),
        offsets: pointer(&own.offsets).cast(),
        scalars: pointer(&own.scalars).cast(),
        exponentials: pointer(&own.exponentials).cast(),
        factors: pointer(&own.factors).cast(),
        likelihoods: pointer(&own.likelihoods),
    };
    let moments = half_precision::moments::Moments {
        state: pointer(&b.state),
        iteration,
        x,
        norms,
        n,
        d,
        derive: derived(kind),
        steps: place.steps,
        groups: place.groups,
        classes: place.classes,
        scales: pointer(&own.scales).cast(),
        exponentials: pointer(&own.exponentials).cast(),
        factors: pointer(&own.factors).cast(),
        likelihoods: pointer(&own.likelihoods),
        splits,
        accumulate: (start > 0).into(),
        partials: pointer(&b.partials),
    };
    let moment_blocks = halves.blocks_of_split(d) * (splits / halves.lanes(d));
    let blocks = u64::from(launch.plan.grid.blocks).min(tiles(n)) as u32;
    // SAFETY: as in `f64_densities`.
    unsafe {
        launch.launcher.launch(halves.densities(d), (blocks, 1), densities)?;
        launch.launcher.launch(halves.moments(), (moment_blocks, 1), moments)
    }
}
