//! Structure of mixtures: divergences, trees of merges, merges, combinations by rows, splits.

use std::ops::ControlFlow;

use gmm_host::structure::{SplitMergeOptions, combine, merge_by_likelihood};
use gmm_host::{Error, Fit, FitOptions, Init, Iteration, Work};
use gmm_model::structure::{
    Combination, PairDistance, SplitOptions, Tree, agglomerate, distances, kl_monte_carlo, kl_upper_bound,
    kl_variational, merge, split, split_to,
};
use gmm_model::{Mixture, ModelError};
use ndarray::Array2;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::engines;
use crate::errors::raise;
use crate::fit;
use crate::given::Given;
use crate::options::{Execution, Fitting, word};
use crate::rows::Rows;
use crate::stoppable::stoppable;
use crate::supervise::supervise;

/// Distances of every two components, `(k, k)`: `runnalls`, `kl` or `bhattacharyya`.
#[pyfunction]
pub(crate) fn distances_of<'py>(
    py: Python<'py>,
    given: Given,
    by: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let by: PairDistance = word(by)?;
    let found = py.detach(|| distances(&given.mixture()?, by));
    Ok(found.map_err(|error| raise(py, error))?.into_pyarray(py))
}

/// Divergence of the second mixture from the first: approximation, upper bound, mean of draws and its standard error.
#[pyfunction]
pub(crate) fn divergence(py: Python<'_>, f: Given, g: Given, draws: u64, seed: u64) -> PyResult<(f64, f64, f64, f64)> {
    let found = py.detach(|| -> Result<_, ModelError> {
        let (f, g) = (f.mixture()?, g.mixture()?);
        let drawn = kl_monte_carlo(&f, &g, draws, seed)?;
        Ok((kl_variational(&f, &g)?, kl_upper_bound(&f, &g)?, drawn.estimate, drawn.standard_error))
    });
    found.map_err(|error| raise(py, error))
}

/// The tree of merges by a distance of components: see [`tree_dict`].
#[pyfunction]
pub(crate) fn tree<'py>(py: Python<'py>, given: Given, by: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let by: PairDistance = word(by)?;
    let found = py.detach(|| agglomerate(&given.mixture()?, by));
    tree_dict(py, &found.map_err(|error| raise(py, error))?)
}

/// The arrays of the mixture in which components of the same number are merged.
#[pyfunction]
pub(crate) fn merged<'py>(py: Python<'py>, given: Given, clusters: Vec<usize>) -> PyResult<Bound<'py, PyDict>> {
    let found = py.detach(|| merge(&given.mixture()?, &clusters));
    fit::arrays(py, &found.map_err(|error| raise(py, error))?)
}

/// The arrays of the mixture with one component split, or with splits of the widest until there are `k`.
#[pyfunction]
#[pyo3(signature = (given, component, k, share, distance))]
pub(crate) fn split_of<'py>(
    py: Python<'py>,
    given: Given,
    component: Option<usize>,
    k: usize,
    share: f64,
    distance: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let options = SplitOptions { share, distance };
    let found = py.detach(|| {
        let mixture = given.mixture()?;
        match component {
            Some(c) => split(&mixture, c, &options),
            None => split_to(&mixture, k, &options),
        }
    });
    fit::arrays(py, &found.map_err(|error| raise(py, error))?)
}

/// What rows say of the structure of a mixture.
enum Outcome {
    Merges(Tree, gmm_host::structure::Criteria),
    Clusters(Combination),
}

/// The tree by a criterion of rows, `bic`, `entropy` or `demp`: see [`tree_dict`]. For `bic` also `log_likelihood`, `bic`,
/// `description_length` and `best`; else `entropy`, `joined_weight` and `elbow`. Their first entries are of `k` components.
#[pyfunction]
#[pyo3(signature = (rows, given, place, by, weights=None))]
pub(crate) fn tree_of_rows<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    given: Given,
    place: Execution,
    by: &Bound<'py, PyAny>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyDict>> {
    let name: String = by.extract()?;
    let clusters = if name == "bic" { None } else { Some(word(by)?) };
    let rows = Rows::new(rows, weights)?;
    let (shape, precision, is_on_gpu) = (rows.dim(), place.precision.unwrap_or(rows.precision()), rows.is_on_gpu());
    let mixture: Mixture = given.mixture().map_err(|error| raise(py, error))?;
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, None, move |line| -> Result<Outcome, Error> {
        let k = mixture.n_components();
        let work = Work::passes(shape, precision, mixture.covariance_type(), k, k as f64);
        let opened = engines::open_for(&place, &work, is_on_gpu)?;
        let rows = unchecked.check(&opened)?;
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        Ok(match clusters {
            Some(by) => Outcome::Clusters(combine(&engine, &mixture, rows.data(), precision, by)?),
            None => {
                let (tree, criteria) = merge_by_likelihood(&engine, &mixture, rows.data(), precision)?;
                Outcome::Merges(tree, criteria)
            }
        })
    })?;
    match done.map_err(|error| raise(py, error))? {
        Outcome::Clusters(found) => {
            let out = tree_dict(py, &found.tree)?;
            out.set_item("elbow", found.elbow())?;
            out.set_item("entropy", found.entropy.into_pyarray(py))?;
            out.set_item("joined_weight", found.joined_weight.into_pyarray(py))?;
            Ok(out)
        }
        Outcome::Merges(tree, criteria) => {
            let out = tree_dict(py, &tree)?;
            out.set_item("best", criteria.best())?;
            out.set_item("log_likelihood", criteria.log_likelihood.into_pyarray(py))?;
            out.set_item("bic", criteria.bic.into_pyarray(py))?;
            out.set_item("description_length", criteria.description_length.into_pyarray(py))?;
            Ok(out)
        }
    }
}

/// EM from the given mixture, then splits and merges of components while they raise the likelihood: a result as returned
/// by `fit`.
#[pyfunction]
#[pyo3(signature = (rows, given, options, place, candidates, weights=None))]
pub(crate) fn split_merge<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    given: Given,
    options: Fitting,
    place: Execution,
    candidates: usize,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyDict>> {
    let init = Init::Given(Box::new(given.mixture().map_err(|error| raise(py, error))?));
    let Fitting { options } = options;
    let options = FitOptions { init, precision: place.precision, fast: place.fast, n_init: 1, ..options };
    let how = SplitMergeOptions { candidates, ..SplitMergeOptions::default() };
    let rows = Rows::new(rows, weights)?;
    let (shape, precision, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, None, move |line| -> Result<Fit, Error> {
        options.validate()?;
        let opened = engines::open_for(&place, &Work::fit(shape, precision, &options), is_on_gpu)?;
        let rows = unchecked.check(&opened)?;
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        let mut go_on =
            |_: &Iteration<'_>| if line.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let fitted = gmm_host::fit_observed(&engine, rows.data(), &options, &mut go_on)?;
        gmm_host::structure::split_merge(&engine, rows.data(), fitted, &options, &how, &mut go_on)
    })?;
    fit::as_dict(py, done.map_err(|error| raise(py, error))?)
}

/// `linkage`, `(k - 1, 4)` as in SciPy: the two joined nodes, the height, and the number of components below; `values`,
/// the criterion of each join, `(k - 1,)`; and `labels`, `(k, k)`: row `c` has the cluster of each component when `c + 1`
/// clusters are left.
fn tree_dict<'py>(py: Python<'py>, tree: &Tree) -> PyResult<Bound<'py, PyDict>> {
    let k = tree.n_components();
    let mut linkage = Array2::zeros((tree.joins().len(), 4));
    let mut sizes = vec![1.0; k];
    for (mut row, join) in linkage.outer_iter_mut().zip(tree.joins()) {
        let size = sizes[join.left] + sizes[join.right];
        row.assign(&ndarray::arr1(&[join.left as f64, join.right as f64, join.height, size]));
        sizes.push(size);
    }
    let mut labels = Array2::<i64>::zeros((k, k));
    for (c, mut row) in labels.outer_iter_mut().enumerate() {
        let clusters = tree.clusters(c + 1).map_err(|error| raise(py, error))?;
        row.iter_mut().zip(clusters).for_each(|(to, cluster)| *to = cluster as i64);
    }
    let out = PyDict::new(py);
    out.set_item("linkage", linkage.into_pyarray(py))?;
    out.set_item("values", tree.joins().iter().map(|join| join.value).collect::<Vec<f64>>().into_pyarray(py))?;
    out.set_item("labels", labels.into_pyarray(py))?;
    Ok(out)
}
