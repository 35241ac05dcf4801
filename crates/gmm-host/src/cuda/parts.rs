//! Statistics of many parts of the rows at once: [`Engine::pass_of_parts`](crate::Engine::pass_of_parts).

use std::ops::Range;
use std::sync::Arc;

use gmm_model::{CovarianceType, Dataset, Mixture, RowStorage, Statistics};

use super::driver::device::Gpu;
use super::em::{self, Member, Part};
use super::launch::plan::ForcedPlan;
use super::number::Number;
use super::resident::CudaResident;
use crate::Error;
use crate::adapt::Ratios;
use crate::cuda::rows::reach::LoadOptions;
use crate::cuda::rows::upload::TILE;

/// # Errors
/// As for [`Engine::pass_of_parts`](crate::Engine::pass_of_parts).
pub(super) fn pass<T: Number>(
    gpu: &Arc<Gpu>,
    data: &Dataset,
    storage: &RowStorage,
    mixture: &Mixture,
    (parts, top): (&[Range<usize>], Option<usize>),
    each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
) -> Result<bool, Error> {
    // Σ w x xᵀ of a tied covariance is known for all rows together only.
    if parts.len() < 2 && top.is_none() || mixture.covariance_type() == CovarianceType::Tied {
        return Ok(false);
    }
    let Some((mut resident, placed)) = load::<T>(gpu, data, storage, parts)? else { return Ok(false) };
    let CudaResident { rows, em, .. } = &mut resident;
    rows.run(|rows| {
        let shape = rows.shape(mixture.covariance_type(), mixture.n_components());
        let paths = em::running(rows, &shape, false);
        em::pass_parts(Member { em, rows }, &paths, mixture, (&placed, top), each)
    })
}

/// # Errors
/// As for [`Engine::ratios`](crate::Engine::ratios).
pub(super) fn ratios<T: Number>(
    gpu: &Arc<Gpu>,
    data: &Dataset,
    storage: &RowStorage,
    asked: &Ratios<'_>,
) -> Result<Option<Vec<f64>>, Error> {
    if asked.trials.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let Some((mut resident, placed)) = load::<T>(gpu, data, storage, asked.utterances)? else { return Ok(None) };
    let CudaResident { rows, em, .. } = &mut resident;
    rows.run(|rows| {
        let shape = rows.shape(asked.background.covariance_type(), asked.background.n_components());
        let paths = em::running(rows, &shape, false);
        em::ratios(Member { em, rows }, &paths, &placed, asked)
    })
}

/// Rows on the device, and where the parts are among them.
type Loaded<T> = (CudaResident<T>, Vec<Part>);

/// Loads the rows, with parts that begin at tiles; `None` if memory lacks.
fn load<T: Number>(
    gpu: &Arc<Gpu>,
    data: &Dataset,
    RowStorage { precision, shift }: &RowStorage,
    parts: &[Range<usize>],
) -> Result<Option<Loaded<T>>, Error> {
    let mut tiles: Vec<Range<usize>> = Vec::new();
    let mut place = |part: &Range<usize>| {
        let start = tiles.len() * TILE;
        tiles.extend(part.clone().step_by(TILE).map(|first| first..part.end.min(first + TILE)));
        let total_weight = part.clone().map(|row| data.weight(row)).sum();
        Part { rows: start..start + part.len(), total_weight }
    };
    let placed: Vec<Part> = parts.iter().map(&mut place).collect();
    let forced = ForcedPlan::from_environment()?;
    let options = LoadOptions { tiles: Some(&tiles), ..LoadOptions::default() };
    match CudaResident::<T>::load(gpu.clone(), data, *precision, shift, forced, options) {
        Err(Error::Memory { .. }) => Ok(None),
        loaded => Ok(Some((loaded?, placed))),
    }
}
