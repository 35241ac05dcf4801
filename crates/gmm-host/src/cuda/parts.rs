//! Statistics of many parts of the rows at once: [`Engine::pass_of_parts`](crate::Engine::pass_of_parts).

use std::ops::Range;
use std::sync::Arc;

use gmm_kernels::layout::TILE_ROWS;
use gmm_model::{CovarianceType, Dataset, Matrix, Mixture, RowStorage, Statistics};
use ndarray::{Array2, ArrayView2, s};

use super::driver::device::Gpu;
use super::em::{self, Member, Part};
use super::launch::plan::ForcedPlan;
use super::number::Number;
use super::resident::CudaResident;
use crate::Error;
use crate::cuda::rows::reach::LoadOptions;

/// Rows of a tile: parts begin at tiles.
const TILE: usize = TILE_ROWS as usize;

/// # Errors
/// As for [`Engine::pass_of_parts`](crate::Engine::pass_of_parts).
pub(super) fn pass<T: Number>(
    gpu: &Arc<Gpu>,
    data: &Dataset,
    RowStorage { precision, shift }: &RowStorage,
    mixture: &Mixture,
    parts: &[Range<usize>],
    each: &(dyn Fn(usize, Statistics) -> Result<(), Error> + Sync),
) -> Result<bool, Error> {
    // Σ w x xᵀ of a tied covariance is known for all rows together only.
    if parts.len() < 2 || mixture.covariance_type() == CovarianceType::Tied {
        return Ok(false);
    }
    let mut next = 0;
    let place = |part: &Range<usize>| {
        let start = next;
        next += part.len().next_multiple_of(TILE);
        let total_weight = part.clone().map(|row| data.weight(row)).sum();
        Part { rows: start..start + part.len(), total_weight }
    };
    let placed: Vec<Part> = parts.iter().map(place).collect();
    let spread = match data.rows() {
        Matrix::F32(a) => Dataset::new(spread(a.view(), parts, &placed, next)),
        Matrix::F64(a) => Dataset::new(spread(a.view(), parts, &placed, next)),
    };
    let mut rows = spread.map_err(Error::from)?;
    if data.weights().is_some() {
        let mut weights = vec![0.0; next];
        for (from, to) in parts.iter().zip(&placed) {
            from.clone().zip(to.rows.clone()).for_each(|(from, to)| weights[to] = data.weight(from));
        }
        rows = rows.with_weights(weights).map_err(Error::from)?;
    }
    let forced = ForcedPlan::from_environment()?;
    let mut resident =
        match CudaResident::<T>::load(gpu.clone(), &rows, *precision, shift, forced, LoadOptions::default()) {
            Err(Error::Memory { .. }) => return Ok(false),
            loaded => loaded?,
        };
    if resident.rows.streamed.is_some() {
        return Ok(false);
    }
    let CudaResident { rows, em, .. } = &mut resident;
    rows.run(|rows| {
        let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
        let paths = em::running(rows, &shape, false);
        em::pass_parts(Member { em, rows }, &paths, mixture, &placed, each)
    })
}

/// The rows with each part at its new place, and zeros between.
fn spread<A: Copy + Default>(from: ArrayView2<'_, A>, parts: &[Range<usize>], placed: &[Part], n: usize) -> Array2<A> {
    let mut to = Array2::from_elem((n, from.ncols()), A::default());
    for (part, place) in parts.iter().zip(placed) {
        to.slice_mut(s![place.rows.clone(), ..]).assign(&from.slice(s![part.clone(), ..]));
    }
    to
}
