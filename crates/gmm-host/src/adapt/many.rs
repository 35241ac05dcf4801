//! Statistics of many utterances under one mixture, and adaptations to each.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gmm_model::adapt::{AdaptOptions, adapt, put_adapted_means};
use gmm_model::{CovarianceType, Mixture, Statistics};
use ndarray::Array3;

use super::Utterances;
use crate::{CpuEngine, Engine, Error, PassRows, memory, steps};

/// `map` of the statistics of every utterance under `background`, in the order of the utterances. Statistics are dropped
/// after `map`, so those of thousands of utterances, of `k (2 d + 1)` numbers and more each, need not fit into memory.
///
/// An utterance has the bits of a [`pass`](crate::pass()) over its rows in the same storage. A CPU with several threads
/// passes over as many short utterances at the same time, and several GPUs over one each. One GPU holds all utterances at
/// once where they fit ([`Engine::pass_of_parts`]): these statistics agree with a pass within rounding.
///
/// # Errors
/// [`Error::Features`] if `d` differs; [`Error::Option`] with the first utterance that has no rows; the first error of
/// `map`; [`Error::Memory`]; any error of the device.
///
/// Cost: one pass over the rows of all utterances, and one load of each.
pub fn utterance_statistics<A: Send>(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    map: &(dyn Fn(usize, Statistics) -> Result<A, Error> + Sync),
) -> Result<Vec<A>, Error> {
    statistics(engine, background, utterances, None, &kept(background, map))
}

/// What a pass does with the statistics of each utterance.
type Map<'a, A> = dyn Fn(usize, &mut Statistics) -> Result<A, Error> + Sync + 'a;

/// Gives a function a copy of the statistics, which records the mixture.
fn kept<'a, A>(
    background: &Mixture,
    map: &'a (dyn Fn(usize, Statistics) -> Result<A, Error> + Sync),
) -> impl Fn(usize, &mut Statistics) -> Result<A, Error> + Sync + use<'a, A> {
    let fingerprint = background.fingerprint();
    move |i, statistics| map(i, Statistics { mixture: fingerprint, ..statistics.clone() })
}

/// Of [`utterance_statistics`], or with `top` of [`top_statistics`].
fn statistics<A: Send>(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    top: Option<usize>,
    map: &Map<'_, A>,
) -> Result<Vec<A>, Error> {
    utterances.check(background)?;
    let storage = steps::storage(background, engine.precision(utterances.precision));
    let count = utterances.rows.len();
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Mutex<Vec<Option<Result<A, Error>>>> = Mutex::new((0..count).map(|_| None).collect());
    let keep = |i: usize, statistics: &mut Statistics| {
        let result = map(i, statistics)?;
        done.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(Ok(result));
        Ok(())
    };
    let together = (count > 1 || top.is_some() && count > 0)
        && engine.pass_of_parts(utterances.data, &storage, background, utterances.rows, top, &keep)?;
    if top.is_some() && !together && count > 0 {
        on_cpu_instead(engine)?.pass_of_parts(utterances.data, &storage, background, utterances.rows, top, &keep)?;
    }
    let work = |part: &dyn Engine| {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count || failed.load(Ordering::Relaxed) {
                return;
            }
            let rows = utterances.data.part(utterances.rows[i].clone());
            let passed = PassRows::new(part, &rows, &storage).and_then(|mut rows| rows.pass(background));
            // Under the background, as all of them: the engine does not record it.
            let result = passed.and_then(|statistics| map(i, &mut Statistics { mixture: 0, ..statistics }));
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(result);
        }
    };
    let most = utterances.rows.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    if !together && top.is_none() && (count < 2 || !engine.concurrently((most, background.n_features()), &work)) {
        work(engine);
    }
    // Utterances are begun in order, so none is missing before the first error.
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// The CPU, with all threads, for what an engine leaves to it: a GPU has too little memory, slow `f64`, or cannot tell the
/// largest components. The CPU has a way for all.
pub(super) fn on_cpu_instead(engine: &dyn Engine) -> Result<CpuEngine, Error> {
    tracing::debug!("{} leaves the largest components to the CPU", engine.name());
    CpuEngine::new(0)
}

/// As [`utterance_statistics`], with responsibilities among the `top` components of largest density of each row alone, as
/// with Kaldi's Gaussian selection (`gmm-gselect`). The log-likelihood is that of those components.
///
/// # Errors
/// As for [`utterance_statistics`]; [`Error::Option`] if `top` is 0, or the kind is neither diag nor spherical.
///
/// Runs on the CPU if a GPU has no room for all utterances, or is slow in `f64`.
/// Cost: all densities of every row, but on a CPU the exponentials and moments of `top` components only: with 30 of 1024 about
/// an eighth of the time of a whole pass. On a GPU it takes about as long as [`utterance_statistics`].
pub fn top_statistics<A: Send>(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    top: usize,
    map: &(dyn Fn(usize, Statistics) -> Result<A, Error> + Sync),
) -> Result<Vec<A>, Error> {
    of_top(engine, background, utterances, top, &kept(background, map))
}

/// Of [`top_statistics`].
fn of_top<A: Send>(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    top: usize,
    map: &Map<'_, A>,
) -> Result<Vec<A>, Error> {
    check_top(top)?;
    let kind = background.covariance_type();
    if !matches!(kind, CovarianceType::Diag | CovarianceType::Spherical) {
        let must = "diag or spherical for statistics of the largest components".to_owned();
        return Err(Error::Option { option: "kind", value: kind.to_string(), must });
    }
    statistics(engine, background, utterances, Some(top.min(background.n_components())), map)
}

pub(super) fn check_top(top: usize) -> Result<(), Error> {
    if top > 0 {
        return Ok(());
    }
    Err(Error::Option { option: "top", value: "0".to_owned(), must: "at least 1 component".to_owned() })
}

/// The mixture [adapted](adapt) to each utterance.
///
/// # Errors
/// As for [`utterance_statistics`] and [`adapt`].
///
/// ```
/// use gmm_host::adapt::{Utterances, adapt_many};
/// use gmm_host::CpuEngine;
/// use gmm_model::adapt::AdaptOptions;
/// use gmm_model::{Covariances, Dataset, Mixture};
/// use ndarray::array;
///
/// let background = Mixture::new(array![1.0], array![[0.0]], Covariances::Diag(array![[1.0]]))?;
/// let rows = Dataset::new(array![[4.0], [4.0], [-2.0]])?;
/// let speakers = Utterances::new(&rows, &[0..2, 2..3]);
/// let options = AdaptOptions { means: Some(2.0), ..AdaptOptions::default() };
/// let adapted = adapt_many(&CpuEngine::new(1)?, &background, &speakers, &options)?;
/// assert_eq!(adapted[0].means(), array![[2.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn adapt_many(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    options: &AdaptOptions,
) -> Result<Vec<Mixture>, Error> {
    options.validate()?;
    statistics(engine, background, utterances, None, &|_, of| Ok(adapt(background, of, options)?))
}

/// As [`adapt_many`], from [`top_statistics`].
///
/// # Errors
/// As for [`top_statistics`] and [`adapt`].
pub fn adapt_many_top(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    top: usize,
    options: &AdaptOptions,
) -> Result<Vec<Mixture>, Error> {
    options.validate()?;
    of_top(engine, background, utterances, top, &|_, of| Ok(adapt(background, of, options)?))
}

/// As [`adapted_means_of_many`], from [`top_statistics`].
///
/// # Errors
/// As for [`top_statistics`] and [`adapted_means_of_many`].
pub fn adapted_means_top(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    top: usize,
    relevance: f64,
) -> Result<Array3<f64>, Error> {
    means_of_each(background, utterances, relevance, |map| of_top(engine, background, utterances, top, map))
}

/// The adapted means of each utterance, `(s, k, d)`: supervectors, one per row.
///
/// # Errors
/// As for [`utterance_statistics`]; [`Error::Memory`] before `s k d` numbers are allocated.
pub fn adapted_means_of_many(
    engine: &dyn Engine,
    background: &Mixture,
    utterances: &Utterances<'_>,
    relevance: f64,
) -> Result<Array3<f64>, Error> {
    means_of_each(background, utterances, relevance, |map| statistics(engine, background, utterances, None, map))
}

/// The adapted means of each utterance, `(s, k, d)`, from the statistics with which `pass` calls its argument.
fn means_of_each(
    background: &Mixture,
    utterances: &Utterances<'_>,
    relevance: f64,
    pass: impl FnOnce(&Map<'_, ()>) -> Result<Vec<()>, Error>,
) -> Result<Array3<f64>, Error> {
    AdaptOptions { means: Some(relevance), ..AdaptOptions::default() }.validate()?;
    let (s, (k, d)) = (utterances.rows.len(), background.means().dim());
    memory::check("the adapted means", 8 * s as u128 * k as u128 * d as u128)?;
    let mut all = Array3::zeros((s, k, d));
    // Each is written by the thread that has the statistics.
    let slots: Vec<_> = all.outer_iter_mut().map(Mutex::new).collect();
    pass(&|i, statistics| {
        let mut slot = slots[i].lock().unwrap_or_else(PoisonError::into_inner);
        Ok(put_adapted_means(background, statistics, relevance, slot.view_mut())?)
    })?;
    drop(slots);
    Ok(all)
}
