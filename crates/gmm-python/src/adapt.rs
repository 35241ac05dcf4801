//! Background models: adaptation to many speakers, ratios of the largest components, linear scores.

use std::ops::Range;

use gmm_host::adapt::{
    RatioOptions, Speakers, Trial, Utterances, adapt_many, adapt_many_top, adapted_means_of_many, adapted_means_top,
    log_likelihood_ratios, utterance_statistics,
};
use gmm_host::{Data, Error, Work};
use gmm_model::adapt::{AdaptOptions, AdaptRule, Supervector, linear_scores, supervector};
use gmm_model::{Dataset, Mixture, Precision};
use ndarray::{Array1, Array2, Array3, Axis};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray1, PyReadonlyArray3};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::engines;
use crate::errors::raise;
use crate::fit;
use crate::given::Given;
use crate::options::{Execution, word};
use crate::rows::Rows;
use crate::statistics::Sums;
use crate::stoppable::stoppable;
use crate::supervise::supervise;

/// Rows of several utterances one after another, and where each ends.
type Ends = Vec<usize>;

/// First moments and total weights.
type Moments<'py> = (Bound<'py, PyArray3<f64>>, Bound<'py, PyArray1<f64>>);

fn ranges(ends: &[usize]) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
}

/// Runs `work` on the rows, which are copied to the host by the caller, with the engine for `place`.
fn on_utterances<A: Send + 'static>(
    py: Python<'_>,
    rows: Rows,
    mixture: Mixture,
    place: Execution,
    work: impl FnOnce(&dyn gmm_host::Engine, &Mixture, &Dataset, Precision) -> Result<A, Error> + Send + 'static,
) -> PyResult<A> {
    let (shape, precision) = (rows.dim(), place.precision.unwrap_or(rows.precision()));
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, None, move |line| -> Result<A, Error> {
        let passes = Work::passes(shape, precision, mixture.covariance_type(), mixture.n_components(), 1.0);
        let opened = engines::open_for(&place, &passes, false)?;
        let rows = unchecked.check(&opened)?;
        let Data::Host(data) = rows.data() else { unreachable!("rows on the host") };
        work(&stoppable(opened.engine.as_ref(), line.stop()), &mixture, data, precision)
    })?;
    done.map_err(|error| raise(py, error))
}

/// The arrays of the mixture adapted to the rows. `relevance` has the factors of means, variances and weights; with `top`,
/// rows are shared among as many components.
#[pyfunction]
#[pyo3(signature = (rows, given, place, relevance, rule_and_top, weights=None))]
pub(crate) fn adapted<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    given: Given,
    place: Execution,
    relevance: (Option<f64>, Option<f64>, Option<f64>),
    rule_and_top: (Bound<'py, PyAny>, Option<usize>),
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (rule, top): (AdaptRule, _) = (word(&rule_and_top.0)?, rule_and_top.1);
    let options = AdaptOptions { means: relevance.0, variances: relevance.1, weights: relevance.2, rule };
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let found =
        on_utterances(py, Rows::new(rows, weights)?, mixture, place, move |engine, mixture, data, precision| {
            let all = vec![0..data.n_rows(); 1];
            let utterances = Utterances { precision, ..Utterances::new(data, &all) };
            let mut found = match top {
                Some(top) => adapt_many_top(engine, mixture, &utterances, top, &options),
                None => adapt_many(engine, mixture, &utterances, &options),
            }?;
            Ok(found.remove(0))
        })?;
    fit::arrays(py, &found)
}

/// The statistics of each utterance, with rows shared among their `top` components of largest density.
#[pyfunction]
pub(crate) fn top_statistics(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    given: Given,
    place: Execution,
    ends: Ends,
    top: usize,
) -> PyResult<Vec<Sums>> {
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let found = on_utterances(py, Rows::new(rows, None)?, mixture, place, move |engine, mixture, data, precision| {
        let all = ranges(&ends);
        let utterances = Utterances { precision, ..Utterances::new(data, &all) };
        gmm_host::adapt::top_statistics(engine, mixture, &utterances, top, &|_, one| Ok(one))
    })?;
    Ok(found.into_iter().map(Sums).collect())
}

/// The adapted means of each utterance, `(s, k, d)`; with `top`, rows are shared among as many components.
#[pyfunction]
pub(crate) fn adapted_means<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    given: Given,
    place: Execution,
    ends: Ends,
    relevance_and_top: (f64, Option<usize>),
) -> PyResult<Bound<'py, PyArray3<f64>>> {
    let (relevance, top) = relevance_and_top;
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let found = on_utterances(py, Rows::new(rows, None)?, mixture, place, move |engine, mixture, data, precision| {
        let all = ranges(&ends);
        let utterances = Utterances { precision, ..Utterances::new(data, &all) };
        match top {
            Some(top) => adapted_means_top(engine, mixture, &utterances, top, relevance),
            None => adapted_means_of_many(engine, mixture, &utterances, relevance),
        }
    })?;
    Ok(found.into_pyarray(py))
}

/// First moments about the means, `(u, k, d)`, and the total weight of each utterance, `(u,)`.
#[pyfunction]
pub(crate) fn first_moments<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    given: Given,
    place: Execution,
    ends: Ends,
) -> PyResult<Moments<'py>> {
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let (first, totals) =
        on_utterances(py, Rows::new(rows, None)?, mixture, place, move |engine, mixture, data, precision| {
            let all = ranges(&ends);
            let utterances = Utterances { precision, ..Utterances::new(data, &all) };
            let each = utterance_statistics(engine, mixture, &utterances, &|_, s| Ok((s.first, s.total_weight)))?;
            let (k, d) = mixture.means().dim();
            let mut first = Array3::zeros((each.len(), k, d));
            first.axis_iter_mut(Axis(0)).zip(&each).for_each(|(mut to, (from, _))| to.assign(from));
            Ok((first, each.iter().map(|(_, total)| *total).collect::<Array1<f64>>()))
        })?;
    Ok((first.into_pyarray(py), totals.into_pyarray(py)))
}

/// Mean log-likelihood ratios of trials, `(speaker, utterance)`, with the `top` components of each row.
#[pyfunction]
pub(crate) fn ratios<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    given: Given,
    place: Execution,
    ends: Ends,
    speakers: (Option<PyReadonlyArray3<'py, f64>>, Vec<Given>),
    trials: (Vec<(usize, usize)>, usize),
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let (trials, top) = trials;
    let means = speakers.0.map(|means| means.as_array().to_owned());
    let models: Vec<Mixture> =
        speakers.1.iter().map(Given::mixture).collect::<Result<_, _>>().map_err(|e| raise(py, e))?;
    let found = on_utterances(py, Rows::new(rows, None)?, mixture, place, move |engine, mixture, data, precision| {
        let all = ranges(&ends);
        let utterances = Utterances { precision, ..Utterances::new(data, &all) };
        let speakers = match &means {
            Some(means) => Speakers::Means(means.view()),
            None => Speakers::Mixtures(&models),
        };
        let trials: Vec<Trial> = trials.iter().map(|&(speaker, utterance)| Trial { speaker, utterance }).collect();
        let options = RatioOptions { top };
        log_likelihood_ratios(engine, mixture, &speakers, &utterances, &trials, &options)
    })?;
    Ok(Array1::from_vec(found).into_pyarray(py))
}

/// Supervectors of means `(s, k, d)`: `(s, k*d)`.
#[pyfunction]
pub(crate) fn supervectors<'py>(
    py: Python<'py>,
    given: Given,
    means: PyReadonlyArray3<'py, f64>,
    normalised: bool,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let form = if normalised { Supervector::Normalised } else { Supervector::Mean };
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let (k, d) = mixture.means().dim();
    let mut all = Array2::zeros((means.as_array().len_of(Axis(0)), k * d));
    for (mut row, means) in all.outer_iter_mut().zip(means.as_array().outer_iter()) {
        row.assign(&supervector(means, &mixture, form).map_err(|error| raise(py, error))?);
    }
    Ok(all.into_pyarray(py))
}

/// Linear scores of means `(s, k, d)` on utterances with first moments `(u, k, d)`: `(s, u)`; divided by `totals`, `(u,)`.
#[pyfunction]
#[pyo3(signature = (given, means, first, totals=None))]
pub(crate) fn linear<'py>(
    py: Python<'py>,
    given: Given,
    means: PyReadonlyArray3<'py, f64>,
    first: PyReadonlyArray3<'py, f64>,
    totals: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let totals = totals.map(|all| all.as_array().to_vec());
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let found = linear_scores(means.as_array(), &mixture, first.as_array(), totals.as_deref());
    Ok(found.map_err(|error| raise(py, error))?.into_pyarray(py))
}
