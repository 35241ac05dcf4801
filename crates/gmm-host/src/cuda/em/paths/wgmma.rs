//! Products by Hopper's warpgroup instructions (wgmma), with split-fp16 or fp16 operands: two or three kernels for each
//! chunk of rows. See [`gmm_kernels::em::wgmma`].

use gmm_kernels::em::chunked::double_precision;
use gmm_kernels::em::features::derived;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::m_step;
use gmm_kernels::em::wgmma::Warpgroups;
use gmm_kernels::em::wgmma::full::joint::Joint;
use gmm_kernels::em::wgmma::full::moments::Moments;
use gmm_kernels::em::wgmma::full::normalise::Normalise;
use gmm_kernels::em::wgmma::full::{self, Full};
use gmm_kernels::em::wgmma::linear::encode::{Encode, wgmma_encode};
use gmm_kernels::em::wgmma::linear::features::{Features, wgmma_features};
use gmm_kernels::em::wgmma::linear::logs::Logs;
use gmm_kernels::em::wgmma::linear::sums::Sums;
use gmm_kernels::em::wgmma::linear::{self, Linear};
use gmm_kernels::layout::{Kind, tiled_len};

use super::super::error_bounds::{self, ErrorBounds};
use super::super::grid;
use super::super::path::{
    EmPath, Grid, Launch, LoopBuffers, LoopPlan, Operand, PathBuffers, Reason, Request, SINCE_HOPPER,
};
use super::half_precision::{first_norm, half_precision_norms, half_precision_scales, takes_half_precision};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::launch::{Chunk, Launcher, or_null, pointer};
use crate::cuda::shape::Shape;
use crate::path_names;

/// A wgmma path with the given operand.
pub(super) struct Wgmma(Operand);

pub(super) static SPLIT_FP16: Wgmma = Wgmma(Operand::SplitFp16);
pub(super) static FP16: Wgmma = Wgmma(Operand::Fp16);

/// Fewest columns for split-fp16 operands: the kernels pad to 64 columns.
const LEAST_COLUMNS: u32 = 33;

const WIDTHS: &str =
    "128 columns at most (fp16; tied 256, spherical 255), or full covariances of 33 to 192 columns (split fp16)";

/// Whether wgmma is faster than the chunked path's warp-level products. Milliseconds with wgmma and without, on an
/// H200, 2e5 rows. fp16: full covariances of 64 columns and 16 components 0.47 and 0.59; of 32 columns and 64
/// components (1e6 rows) 1.67 and 1.29; diagonal ones of 32 columns and 64 components, which are padded to 128, 0.076
/// and 0.079. Split fp16, for which the chunked path takes 32 or 64 components at a time: 48 columns and 24 components
/// 0.75 and 0.60, 48 components 0.92 and 1.04; 64 columns 1.03 and 0.89, 1.20 and 1.64; 33 columns and 64 components
/// (1e5 rows) 0.49 and 0.53.
const fn is_worth_it(kind: Kind, k: u32, d: u32, operand: Operand) -> bool {
    match (kind, operand) {
        (Kind::Full, Operand::Fp16) => d > 32 && k >= 16,
        (Kind::Full, _) => k > 32,
        _ => k >= 64,
    }
}

impl Wgmma {
    fn kernels(&self, shape: &Shape) -> Option<Warpgroups> {
        let one = self.0 == Operand::Fp16;
        let of = Warpgroups::of(shape.kernel_kind(), shape.k, shape.d, one);
        of.filter(|_| one || shape.d >= LEAST_COLUMNS)
    }

    fn supported(&self, shape: &Shape) -> Warpgroups {
        self.kernels(shape).expect("a shape that is supported")
    }
}

impl EmPath for Wgmma {
    fn name(&self) -> &'static str {
        if self.0 == Operand::Fp16 { path_names::WGMMA_FP16 } else { path_names::WGMMA_SPLIT_FP16 }
    }

    fn operand(&self) -> Operand {
        self.0
    }

    fn supports(&self, request: &Request<'_>) -> Result<(), Reason> {
        takes_half_precision(request, self.0)?;
        let of = self.kernels(&request.shape).ok_or(Reason::Only(WIDTHS))?;
        request.needs(of.names().1, SINCE_HOPPER)?;
        let (densities, sums) = of.shared_bytes();
        request.fits(densities.max(sums))
    }

    fn slower(&self, request: &Request<'_>) -> Option<Reason> {
        let Shape { k, d, .. } = request.shape;
        let worth = is_worth_it(request.shape.kernel_kind(), k, d, self.0);
        (!worth).then_some(Reason::Padding("products, which are padded to 64 columns or components"))
    }

    fn describe(&self, shape: &Shape) -> String {
        let kernels = if shape.kernel_kind() == Kind::Full { "three" } else { "two" };
        let numbers = match self.0 {
            Operand::Fp16 => "fp16 operands (11 bits)",
            _ => "split-fp16 operands (22 bits)",
        };
        let sums = self.layout(shape).sums();
        format!("{kernels} kernels per chunk of rows, with {numbers} for warpgroups (wgmma); {sums} sums")
    }

    fn layout(&self, shape: &Shape) -> FeatureLayout {
        self.supported(shape).place()
    }

    fn takes_roots(&self, kind: Kind) -> bool {
        kind == Kind::Full
    }

    fn grid(&self, shape: &Shape, gpu: &Gpu, forced: &ForcedPlan) -> Result<Grid, Error> {
        let of = self.supported(shape);
        let (names, threads, shared) = (of.names(), of.threads(), of.shared_bytes());
        let waves = |name, threads, shared| {
            Ok::<u32, Error>(gpu.occupancy(name, threads, shared)? * gpu.limits.multiprocessors)
        };
        let waves = [waves(names.0, threads.0, shared.0)?, waves(names.1, threads.1, shared.1)?];
        Ok(grid::of_warpgroups(shape, of, &gpu.limits, forced, waves))
    }

    fn workspace(&self, shape: &Shape, grid: &Grid) -> PathBuffers<u64> {
        let (of, rows) = (self.supported(shape), grid.chunk.min(shape.n));
        let (joint, responsibilities) = of.densities(rows);
        let norms = if shape.kernel_kind() == Kind::Spherical { tiled_len(shape.n, 1) } else { 0 };
        PathBuffers {
            operands: of.operands().div_ceil(2),
            offsets: 0,
            scalars: 0,
            scales: (u64::from(shape.d) + 1).div_ceil(2),
            norms: norms.div_ceil(2),
            exponentials: of.rows(rows).div_ceil(2),
            factors: of.normalisers(rows).div_ceil(2),
            likelihoods: double_precision::likelihoods(rows),
            joint: joint.div_ceil(2),
            responsibilities: responsibilities.div_ceil(2),
            nearby: 0,
        }
    }

    fn error_bounds(&self, shape: &Shape) -> ErrorBounds {
        error_bounds::of_half_precision(shape.kind)
    }

    fn norms(&self, launch: &Launch<'_>) -> Result<(), Error> {
        half_precision_norms(launch, launch.rows.unweighted_f32())
    }

    fn prepare(&self, launch: &Launch<'_>) -> Result<(), Error> {
        let rows = launch.rows.unweighted_f32();
        half_precision_scales(launch, rows)?;
        match self.supported(&launch.plan.shape) {
            // With several chunks, each chunk's features overwrite those of the previous one, so each pass recomputes
            // them.
            Warpgroups::Linear(of) if launch.plan.keeps_features() => features(launch, of, rows, (0, rows.n)),
            Warpgroups::Linear(_) | Warpgroups::Full(_) => Ok(()),
        }
    }

    fn encode(&self, launcher: Launcher<'_>, plan: &LoopPlan, b: &LoopBuffers, iteration: u32) -> Result<(), Error> {
        let shape = &plan.shape;
        let (state, k, d) = (pointer(&b.state), shape.k, shape.d);
        match self.supported(shape) {
            Warpgroups::Linear(of) => {
                let a = Encode {
                    state,
                    iteration,
                    kind: m_step::number(shape.kernel_kind()),
                    k,
                    d,
                    steps: of.place.steps,
                    groups: of.place.groups,
                    scales: pointer(&b.own.scales).cast(),
                    coefficients: pointer(&b.coefficients),
                    means: pointer(&b.means),
                    constants: pointer(&b.constants),
                    operands: pointer(&b.own.operands).cast(),
                };
                // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers`
                // and `workspace`.
                unsafe { launcher.launch(wgmma_encode(), (8 * of.place.groups, 1), a) }
            }
            Warpgroups::Full(of) => {
                let a = full::encode::Encode {
                    state,
                    iteration,
                    k,
                    d,
                    scales: pointer(&b.own.scales).cast(),
                    roots: or_null(b.roots.as_ref()),
                    means: pointer(&b.means),
                    constants: pointer(&b.constants),
                    operands: pointer(&b.own.operands).cast(),
                };
                // SAFETY: as above.
                unsafe { launcher.launch(of.encode(), (of.components(), 1), a) }
            }
        }
    }

    fn enqueue(&self, launch: &Launch<'_>, iteration: u32) -> Result<(), Error> {
        let rows = launch.rows.unweighted_f32();
        let of = self.supported(&launch.plan.shape);
        for chunk in launch.plan.grid.chunks(rows.n) {
            match of {
                Warpgroups::Linear(of) => linear_chunk(launch, of, iteration, rows, chunk)?,
                Warpgroups::Full(of) => full_chunk(launch, of, iteration, rows, chunk)?,
            }
        }
        Ok(())
    }
}

/// Computes the half-precision features of `n` rows from row `start` on.
fn features(launch: &Launch<'_>, of: Linear, rows: &Chunk<f32>, (start, n): (u64, u64)) -> Result<(), Error> {
    let (shape, own) = (&launch.plan.shape, &launch.buffers.own);
    let features = Features {
        x: first_row(rows, shape.d, start),
        norms: first_norm(own, launch.norms_from + start),
        n,
        d: shape.d,
        derive: derived(shape.kernel_kind()),
        features: of.features(),
        scales: pointer(&own.scales).cast(),
        out: pointer(&own.exponentials).cast(),
    };
    let grid = (linear::groups(n).min(1 << 16) as u32, 1);
    // SAFETY: the buffers have the lengths that `workspace` states, and `rows` holds `n` rows from `start` on.
    unsafe { launch.launcher.launch(wgmma_features(), grid, features) }
}

/// Enqueues one chunk of rows with diagonal, tied or spherical covariances: log densities, then sums.
fn linear_chunk(
    launch: &Launch<'_>,
    of: Linear,
    iteration: u32,
    rows: &Chunk<f32>,
    (start, n): (u64, u64),
) -> Result<(), Error> {
    let (shape, grid, b) = (&launch.plan.shape, launch.plan.grid, launch.buffers);
    let own = &b.own;
    if !launch.plan.keeps_features() {
        features(launch, of, rows, (start, n))?;
    }
    let logs = Logs {
        state: pointer(&b.state),
        iteration,
        rows: pointer(&own.exponentials).cast(),
        n,
        features: of.features(),
        stages: of.stages(),
        operands: pointer(&own.operands).cast(),
        logs: pointer(&own.factors).cast(),
        likelihoods: pointer(&own.likelihoods),
    };
    let sums = Sums {
        state: pointer(&b.state),
        iteration,
        n,
        d: shape.d,
        derive: derived(shape.kernel_kind()),
        features: of.features(),
        groups: of.place.groups,
        scales: pointer(&own.scales).cast(),
        operands: pointer(&own.operands).cast(),
        rows: pointer(&own.exponentials).cast(),
        logs: pointer(&own.factors).cast(),
        likelihoods: pointer(&own.likelihoods),
        splits: grid.partials,
        accumulate: (start > 0).into(),
        partials: pointer(&b.partials),
    };
    let blocks = blocks_of(n, Warpgroups::Linear(of).rows_of_block(), grid);
    // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers` and
    // `workspace`; `Rows` holds `n` rows from `start` on.
    unsafe {
        launch.launcher.launch(of.logs(), (blocks, 1), logs)?;
        launch.launcher.launch(of.sums(), (of.blocks_of_split() * grid.partials, 1), sums)
    }
}

/// Enqueues one chunk of rows with full covariances: joint densities, responsibilities, then moments.
fn full_chunk(
    launch: &Launch<'_>,
    of: Full,
    iteration: u32,
    rows: &Chunk<f32>,
    (start, n): (u64, u64),
) -> Result<(), Error> {
    let (grid, b) = (launch.plan.grid, launch.buffers);
    let (own, state) = (&b.own, pointer(&b.state).cast_const());
    let (Full { k, d, .. }, components) = (of, of.components());
    let joint = Joint {
        state,
        iteration,
        x: first_row(rows, d, start),
        n,
        d,
        components,
        scales: pointer(&own.scales).cast(),
        operands: pointer(&own.operands).cast(),
        columns: pointer(&own.exponentials).cast(),
        joint: pointer(&own.joint).cast(),
        normalisers: pointer(&own.factors).cast(),
        likelihoods: pointer(&own.likelihoods),
    };
    let normalise = Normalise {
        state,
        iteration,
        n,
        components,
        joint: pointer(&own.joint).cast(),
        normalisers: pointer(&own.factors).cast(),
        responsibilities: pointer(&own.responsibilities).cast(),
    };
    let moments = Moments {
        state,
        iteration,
        n,
        k,
        d,
        scales: pointer(&own.scales).cast(),
        columns: pointer(&own.exponentials).cast(),
        responsibilities: pointer(&own.responsibilities).cast(),
        likelihoods: pointer(&own.likelihoods),
        splits: grid.partials,
        accumulate: (start > 0).into(),
        partials: pointer(&b.partials),
    };
    let blocks = blocks_of(n, Warpgroups::Full(of).rows_of_block(), grid);
    // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers` and
    // `workspace`; `Rows` holds `n` rows from `start` on.
    unsafe {
        launch.launcher.launch(of.densities(), (blocks, 1), joint)?;
        launch.launcher.launch(of.normalise(), (full::groups(n).min(1 << 16) as u32, 1), normalise)?;
        launch.launcher.launch(of.moments(), (of.blocks_of_split() * grid.partials, 1), moments)
    }
}

/// Blocks of the densities kernel for `n` rows.
fn blocks_of(n: u64, rows_of_block: u32, grid: Grid) -> u32 {
    n.div_ceil(u64::from(rows_of_block)).min(u64::from(grid.blocks)) as u32
}

fn first_row(rows: &Chunk<f32>, d: u32, start: u64) -> *const f32 {
    pointer(&rows.x.index(start as usize * d as usize..)).cast_const()
}
