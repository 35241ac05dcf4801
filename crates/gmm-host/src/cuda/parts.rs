//! Statistics of many parts of the rows at once: [`Engine::pass_of_parts`](crate::Engine::pass_of_parts).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gmm_model::{CovarianceType, Dataset, Mixture, RowStorage, Statistics};

use super::driver::device::Gpu;
use super::em::{self, Member, Part};
use super::launch::plan::ForcedPlan;
use super::number::Number;
use super::resident::CudaResident;
use crate::Error;
use crate::adapt::{Ratios, Trial};
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
    let Some((mut resident, placed)) = load::<T>(gpu, data, storage, parts, ForcedPlan::from_environment()?)? else {
        return Ok(false);
    };
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
    ratios_with::<T>(gpu, data, storage, asked, ForcedPlan::from_environment()?)
}

/// As [`ratios`], with a plan.
pub(super) fn ratios_with<T: Number>(
    gpu: &Arc<Gpu>,
    data: &Dataset,
    storage: &RowStorage,
    asked: &Ratios<'_>,
    forced: ForcedPlan,
) -> Result<Option<Vec<f64>>, Error> {
    // Rows and speakers without a trial are not loaded.
    let (utterances, of_rows) = numbered(asked.trials.iter().map(|trial| trial.utterance));
    let (speakers, of_speakers) = numbered(asked.trials.iter().map(|trial| trial.speaker));
    let trials: Vec<Trial> =
        of_rows.into_iter().zip(of_speakers).map(|(utterance, speaker)| Trial { speaker, utterance }).collect();
    let parts: Vec<Range<usize>> = utterances.iter().map(|&utterance| asked.utterances[utterance].clone()).collect();
    let Some((mut resident, placed)) = load::<T>(gpu, data, storage, &parts, forced)? else { return Ok(None) };
    let asked = Ratios { utterances: &parts, trials: &trials, speakers: asked.speakers.borrowed(), ..*asked };
    let CudaResident { rows, em, .. } = &mut resident;
    rows.run(|rows| {
        let shape = rows.shape(asked.background.covariance_type(), asked.background.n_components());
        let paths = em::running(rows, &shape, false);
        em::ratios(Member { em, rows }, &paths, &placed, &asked, &speakers)
    })
}

/// The different `names` in the order of their first use, and for each name its place among them.
fn numbered(names: impl Iterator<Item = usize>) -> (Vec<usize>, Vec<usize>) {
    let (mut used, mut places) = (Vec::new(), HashMap::new());
    let place = |name| {
        *places.entry(name).or_insert_with(|| {
            used.push(name);
            used.len() - 1
        })
    };
    let of = names.map(place).collect();
    (used, of)
}

/// Rows on the device, and where the parts are among them.
type Loaded<T> = (CudaResident<T>, Vec<Part>);

/// Loads the rows, with parts that begin at tiles; `None` if memory lacks.
fn load<T: Number>(
    gpu: &Arc<Gpu>,
    data: &Dataset,
    RowStorage { precision, shift }: &RowStorage,
    parts: &[Range<usize>],
    forced: ForcedPlan,
) -> Result<Option<Loaded<T>>, Error> {
    let mut tiles: Vec<Range<usize>> = Vec::new();
    let mut place = |part: &Range<usize>| {
        let start = tiles.len() * TILE;
        tiles.extend(part.clone().step_by(TILE).map(|first| first..part.end.min(first + TILE)));
        let total_weight = part.clone().map(|row| data.weight(row)).sum();
        Part { rows: start..start + part.len(), total_weight }
    };
    let placed: Vec<Part> = parts.iter().map(&mut place).collect();
    let options = LoadOptions { tiles: Some(&tiles), ..LoadOptions::default() };
    match CudaResident::<T>::load(gpu.clone(), data, *precision, shift, forced, options) {
        Err(Error::Memory { .. }) => Ok(None),
        loaded => Ok(Some((loaded?, placed))),
    }
}
