//! The launches of the chunked path with operands in `f64`.

use cust::memory::DeviceSlice;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::em::chunked::double_precision::norms::{Norms, norms};
use gmm_kernels::em::chunked::double_precision::{self, DoublePrecision};
use gmm_kernels::em::features::derived;
use gmm_kernels::layout::{tiled_len, tiles};

use super::super::path::Launch;
use crate::Error;
use crate::cuda::launch::{Chunk, at_least, or_null, pointer};
use crate::cuda::number::Number;

/// Computes the squared norms of a section's rows, if norms are a feature.
pub(super) fn f64_norms<T: Number>(launch: &Launch<'_>, rows: &Chunk<T>) -> Result<(), Error> {
    let out = &launch.buffers.own.norms;
    if out.is_empty() {
        return Ok(());
    }
    let out = out.index(launch.norms_from as usize..);
    at_least(&out, tiled_len(rows.n, 1), "norms");
    let a = Norms::<T> { x: pointer(&rows.x), n: rows.n, d: launch.plan.shape.d, norms: pointer(&out) };
    // SAFETY: lengths were checked against the fields' formulas.
    unsafe { launch.launcher.launch(norms::<T>(), (tiles(rows.n).min(1 << 16) as u32, 1), a) }
}

/// One chunk of the rows: its first row, and the number of rows.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) n: u64,
}

/// Launches the densities of a chunk and, where the plan asks for it, the choice of the largest components, which are
/// listed in `components`.
pub(super) fn f64_densities<T: Number>(
    launch: &Launch<'_>,
    of: DoublePrecision,
    iteration: u32,
    rows: &Chunk<T>,
    Part { start, n }: Part,
    components: Option<DeviceSlice<u32>>,
) -> Result<(), Error> {
    let (shape, place, b) = (&launch.plan.shape, of.place, launch.buffers);
    let (own, d, count) = (&b.own, shape.d, launch.plan.largest);
    let norms = (!own.norms.is_empty()).then(|| own.norms.index((launch.norms_from + start) as usize..));
    let row_weights = rows.row_weights.map(|all| all.index(start as usize..));
    let densities = double_precision::densities::Densities::<T> {
        state: pointer(&b.state),
        iteration,
        x: pointer(&rows.x.index(start as usize * d as usize..)).cast_const(),
        norms: or_null(norms.as_ref()),
        row_weights: or_null(row_weights.as_ref()),
        n,
        d,
        derive: derived(shape.kernel_kind()),
        steps: place.steps,
        groups: place.groups,
        classes: place.classes,
        coefficients: pointer(&b.coefficients),
        constants: pointer(&b.constants),
        exponentials: pointer(&own.exponentials).cast(),
        factors: pointer(&own.factors),
        likelihoods: pointer(&own.likelihoods),
    };
    if let Some(components) = &components {
        at_least(components, tiled_len(n, count), "components of rows");
    }
    let blocks = u64::from(launch.plan.grid.blocks).min(tiles(n)) as u32;
    // SAFETY: the buffers belong to the loop, and `m_step::check` compared their lengths with `LoopBuffers` and
    // `workspace`; `Rows` holds `n` rows from `start` on.
    unsafe {
        launch.launcher.launch(double_precision::densities::<T>(of.family, of.at_once), (blocks, 1), densities)?;
        if count == 0 {
            return Ok(());
        }
        let largest = double_precision::largest::Largest::<T> {
            n,
            groups: place.groups,
            at_once: of.at_once,
            count,
            row_weights: or_null(row_weights.as_ref()),
            exponentials: pointer(&own.exponentials).cast(),
            factors: pointer(&own.factors),
            likelihoods: pointer(&own.likelihoods),
            components: components.as_ref().map_or(std::ptr::null_mut(), pointer),
            state: components.as_ref().map_or(std::ptr::null_mut(), |_| pointer(&b.state)),
        };
        let blocks = (8 * tiles(n)).min(1 << 16) as u32;
        launch.launcher.launch(double_precision::largest::largest::<T>(), (blocks, 1), largest)
    }
}

/// Launches both kernels for a chunk.
pub(super) fn f64_chunk<T: Number>(
    launch: &Launch<'_>,
    of: DoublePrecision,
    iteration: u32,
    rows: &Chunk<T>,
    part: Part,
) -> Result<(), Error> {
    f64_densities(launch, of, iteration, rows, part, None)?;
    let (shape, place, b) = (&launch.plan.shape, of.place, launch.buffers);
    let (own, splits, d) = (&b.own, launch.plan.grid.partials, shape.d);
    let norms = (!own.norms.is_empty()).then(|| own.norms.index((launch.norms_from + part.start) as usize..));
    let moments = double_precision::moments::Moments::<T> {
        state: pointer(&b.state),
        iteration,
        x: pointer(&rows.x.index(part.start as usize * d as usize..)).cast_const(),
        norms: or_null(norms.as_ref()),
        n: part.n,
        d,
        derive: derived(shape.kernel_kind()),
        steps: place.steps,
        groups: place.groups,
        classes: place.classes,
        exponentials: pointer(&own.exponentials).cast(),
        factors: pointer(&own.factors),
        likelihoods: pointer(&own.likelihoods),
        splits,
        accumulate: (part.start > 0).into(),
        partials: pointer(&b.partials),
    };
    let blocks = (of.units(d) * splits).div_ceil(THREADS / WARP);
    // SAFETY: as in `f64_densities`.
    unsafe { launch.launcher.launch(double_precision::moments::<T>(of.family, of.at_once), (blocks, 1), moments) }
}
