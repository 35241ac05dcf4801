//! Imputation of missing values, and Rubin's rules.

use gmm_host::impute::{Imputation, impute as imputed};
use gmm_host::{Data, Error, Work};
use gmm_model::missing::Pooled;
use numpy::{IntoPyArray, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::engines;
use crate::errors::raise;
use crate::options::Execution;
use crate::parameters::Parameters;
use crate::rows::Rows;
use crate::supervise::supervise;

/// The rows with their missing values replaced, `(n, d)` of float64: by the conditional mean ('mean'), that in the most
/// probable component ('mode'), or draw number `draw` of `seed` ('draw').
#[pyfunction]
pub(crate) fn impute<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
    how: &str,
    seed: u64,
    draw: u64,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let how = match how {
        "mean" => Imputation::Mean,
        "mode" => Imputation::Mode,
        _ => Imputation::Draw { seed, draw },
    };
    let rows = Rows::new(rows, None)?;
    let (shape, given) = (rows.dim(), rows.precision());
    let (parameters, factors) = parameters.split();
    let (unchecked, rows) = rows.split();
    let owners = (rows, factors).into_pyobject(py)?.into_any().unbind();
    let work = move || -> Result<_, Error> {
        let mixture = parameters.precisions()?.to_mixture()?;
        let work = Work::passes(shape, given, mixture.covariance_type(), mixture.n_components(), 1.0);
        let opened = engines::open_for(&place, &work, false)?;
        let rows = unchecked.check(&opened)?;
        let Data::Host(data) = rows.data() else { return Err(Error::Missing { what: "rows on a GPU" }) };
        imputed(opened.engine.as_ref(), &mixture, data, place.precision.unwrap_or(given), how)
    };
    let found = supervise(py, owners, None, move |_| work())?.map_err(|error| raise(py, error))?;
    Ok(found.into_pyarray(py))
}

/// The estimates of imputed data sets and the squares of their standard errors, pooled by Rubin's rules.
#[pyfunction]
pub(crate) fn pooled<'py>(
    py: Python<'py>,
    estimates: PyReadonlyArray1<'py, f64>,
    variances: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyDict>> {
    let (estimates, variances) = (estimates.as_array().to_vec(), variances.as_array().to_vec());
    let pooled = Pooled::of(&estimates, &variances).map_err(|error| raise(py, error))?;
    let numbers = [
        ("estimate", pooled.estimate),
        ("variance", pooled.variance()),
        ("within", pooled.within),
        ("between", pooled.between),
        ("degrees_of_freedom", pooled.degrees_of_freedom()),
        ("missing_information", pooled.missing_information()),
    ];
    numbers.into_py_dict(py)
}
