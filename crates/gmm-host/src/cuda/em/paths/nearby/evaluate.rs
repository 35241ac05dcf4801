//! An evaluation: densities, labels and totals, without the sums of the M-step.

use cust::memory::DeviceSlice;
use gmm_kernels::em::nearby::{self, TILES, nearby_gather, nearby_lists};
use gmm_kernels::layout::tiles;

use super::buffers::{Buffers, arguments, download, size, with_rows};
use crate::Error;
use crate::cuda::em::packing::as_integers;
use crate::cuda::em::path::Launch;
use crate::cuda::launch::{or_null, pointer};

/// What an evaluation finds.
pub(crate) struct Evaluated {
    /// Σ w ln p(x) and −Σ w Σ r ln r.
    pub(crate) totals: [f64; 2],
    /// `(n,)`.
    pub(crate) labels: DeviceSlice<u32>,
}

/// Evaluates the mixture whose operands are encoded, after [`EmPath::begin`](crate::cuda::em::path::EmPath::begin), or `again` if the
/// order of the rows is there. Log densities, `(n,)`, and labels are in the caller's order. Waits for the totals.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn evaluate(
    launch: &Launch<'_>,
    again: bool,
    log_densities: Option<&DeviceSlice<f64>>,
) -> Result<Evaluated, Error> {
    let Launch { launcher, plan, buffers, .. } = *launch;
    let (shape, own) = (&plan.shape, Buffers::of(&plan.shape, plan.grid.blocks));
    let a = with_rows(arguments(plan, buffers, 1), launch.rows, &own, buffers);
    let (tiles, totals) = (tiles(shape.n) as u32, buffers.own.nearby.index(own.totals.clone()));
    let evaluation = nearby::Nearby { totals: pointer(&totals), log_densities: or_null(log_densities), ..a };
    // SAFETY: the buffers are those of the loop, in the lengths of `Buffers`; `log_densities` has one number for each row.
    unsafe {
        if again {
            // The rows may have moved since.
            launcher.launch(nearby_gather(), (tiles, 1), nearby::Nearby { labels: std::ptr::null_mut(), ..a })?;
        }
        launcher.launch(nearby_lists(), (tiles.div_ceil(TILES), 1), a)?;
        launcher.launch(size(shape).pass(), (plan.grid.blocks, 1), evaluation)?;
    }
    let mut of_blocks = vec![0.0; totals.len()];
    download(launcher, &totals, &mut of_blocks)?;
    let sum = |which: usize| of_blocks.iter().skip(which).step_by(2).sum();
    let labels = as_integers(&buffers.own.nearby.index(own.labels.clone())).index(..shape.n as usize);
    Ok(Evaluated { totals: [sum(0), sum(1)], labels })
}
