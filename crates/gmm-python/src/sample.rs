//! Draws rows from a mixture, and random mixtures.

use gmm_host::Error;
use gmm_model::{SyntheticOptions, sample as draw, synthetic as draw_mixture};
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::fit::arrays;
use crate::options::{Kind, noise_of};
use crate::parameters::Parameters;

/// Rows, `(n, d)`, and their components, `(n,)`.
type Sample<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<i64>>);

/// Draws `n` rows with their components, -1 for those of the noise, given as JSON.
#[pyfunction]
#[pyo3(signature = (parameters, n, seed, noise=None))]
pub(crate) fn sample<'py>(
    py: Python<'py>,
    parameters: Parameters,
    n: usize,
    seed: u64,
    noise: Option<&str>,
) -> PyResult<Sample<'py>> {
    let noise = noise.map(|text| noise_of(py, text)).transpose()?;
    let drawn = py.detach(|| -> Result<_, Error> {
        let mixture = parameters.mixture()?;
        let k = mixture.n_components();
        let (mut rows, mut labels) = draw(&mixture, n, seed)?;
        if let Some(noise) = noise {
            noise.check(mixture.n_features())?;
            let values = rows.as_slice_mut().expect("row-major");
            noise.overwrite(k, seed, 0, values, labels.as_slice_mut().expect("contiguous"))?;
        }
        Ok((rows, labels.mapv(|label| if label == k { -1 } else { label as i64 })))
    });
    let (rows, labels) = drawn.map_err(|error| raise(py, error))?;
    Ok((rows.into_pyarray(py), labels.into_pyarray(py)))
}

/// Draws a mixture of `k` components in `d` dimensions; `options` has `concentration`, `separation`,
/// `degrees_of_freedom` and `scale`.
#[pyfunction]
pub(crate) fn synthetic<'py>(
    py: Python<'py>,
    k: usize,
    d: usize,
    kind: Kind,
    seed: u64,
    options: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = SyntheticOptions {
        concentration: options.get_item("concentration")?.extract()?,
        separation: options.get_item("separation")?.extract()?,
        degrees_of_freedom: options.get_item("degrees_of_freedom")?.extract()?,
        scale: options.get_item("scale")?.extract()?,
    };
    let mixture = draw_mixture(k, d, kind.0, seed, &options).map_err(|error| raise(py, error))?;
    arrays(py, &mixture)
}
