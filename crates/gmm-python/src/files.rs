//! Reading and writing of model files.

use std::path::PathBuf;

use gmm_data::ModelFile;
use gmm_model::{FitSummary, Mixture, OutlierThreshold, Precision};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::bayes;
use crate::errors::{raise, raise_file, with_class};
use crate::fit;
use crate::given::Given;
use crate::options::{noise_of, word};

/// The content of a model file: the arrays of a fit, `covariance_type`, `feature_names` or None, `record`, the summary of
/// the fit as JSON, or None, `outliers`, `(log_density, contamination, level)` or None, `clusters`, the cluster of each
/// component, or None, `noise` as JSON, or None, and `posterior` or None.
#[pyfunction]
pub(crate) fn read_model(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let file = py.detach(|| gmm_data::read_model(&path)).map_err(|error| raise_file(py, &error))?;
    let out = fit::arrays(py, &file.mixture)?;
    out.set_item("covariance_type", file.mixture.covariance_type().name())?;
    out.set_item("feature_names", file.feature_names)?;
    out.set_item("record", file.fit.as_ref().map(record))?;
    out.set_item("outliers", file.outliers.map(|found| (found.log_density, found.contamination, found.level)))?;
    out.set_item("clusters", file.clusters)?;
    out.set_item("noise", file.noise.as_ref().map(fit::in_json))?;
    out.set_item("posterior", file.posterior.map(|posterior| bayes::as_dict(py, &posterior)).transpose()?)?;
    Ok(out)
}

/// Writes a model file, JSON or safetensors depending on the extension. `record`, `outliers`, `clusters` and `noise`
/// have the form returned by [`read_model`]. The mixture of a `posterior` is its own.
#[pyfunction]
#[pyo3(signature = (path, given, feature_names=None, record=None, outliers=None, clusters=None, noise=None, posterior=None))]
#[expect(clippy::too_many_arguments, reason = "each is an argument in Python")]
pub(crate) fn write_model(
    py: Python<'_>,
    path: PathBuf,
    given: Given,
    feature_names: Option<Vec<String>>,
    record: Option<&str>,
    outliers: Option<(f64, Option<f64>, Option<f64>)>,
    clusters: Option<Vec<usize>>,
    noise: Option<&str>,
    posterior: Option<bayes::Given>,
) -> PyResult<()> {
    let posterior = posterior.map(|bayes::Given(posterior)| posterior);
    let mixture = match &posterior {
        Some(posterior) => posterior.mixture().clone(),
        None => given.mixture().map_err(|error| raise(py, error))?,
    };
    let parts = Parts { feature_names, record, outliers, clusters, noise };
    let file = ModelFile { posterior, ..parts.beside(py, mixture)? };
    py.detach(|| gmm_data::write_model(&path, &file)).map_err(|error| raise_file(py, &error))
}

/// What a model file has beside a mixture, in the form returned by [`read_model`].
struct Parts<'a> {
    feature_names: Option<Vec<String>>,
    record: Option<&'a str>,
    outliers: Option<(f64, Option<f64>, Option<f64>)>,
    clusters: Option<Vec<usize>>,
    noise: Option<&'a str>,
}

impl Parts<'_> {
    fn beside(self, py: Python<'_>, mixture: Mixture) -> PyResult<ModelFile> {
        let Self { feature_names, record, outliers, clusters, noise } = self;
        let fit = record.map(serde_json::from_str::<FitSummary>).transpose();
        let fit = fit.map_err(|error| with_class(py, "ParameterError", format!("the record of the fit: {error}")))?;
        let outliers =
            outliers.map(|(log_density, contamination, level)| OutlierThreshold { log_density, contamination, level });
        let noise = noise.map(|text| noise_of(py, text)).transpose()?;
        Ok(ModelFile { feature_names, fit, outliers, clusters, noise, ..ModelFile::from(mixture) })
    }
}

/// The bytes of an ONNX model in `precision`, f32 or f64; or writes them to a file, if there is a `path`. The other
/// arguments are those of [`write_model`].
#[pyfunction]
#[pyo3(signature = (path, precision, given, feature_names=None, record=None, outliers=None, clusters=None, noise=None))]
#[expect(clippy::too_many_arguments, reason = "each is an argument in Python")]
pub(crate) fn to_onnx<'py>(
    py: Python<'py>,
    path: Option<PathBuf>,
    precision: Bound<'py, PyAny>,
    given: Given,
    feature_names: Option<Vec<String>>,
    record: Option<&str>,
    outliers: Option<(f64, Option<f64>, Option<f64>)>,
    clusters: Option<Vec<usize>>,
    noise: Option<&str>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let precision: Precision = word(&precision)?;
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    let file = Parts { feature_names, record, outliers, clusters, noise }.beside(py, mixture)?;
    match path {
        Some(path) => {
            py.detach(|| gmm_data::write_onnx(&path, &file, precision)).map_err(|error| raise_file(py, &error))?;
            Ok(None)
        }
        None => {
            let bytes = py.detach(|| gmm_data::model_to_onnx(&file, precision));
            Ok(Some(PyBytes::new(py, &bytes.map_err(|error| raise_file(py, &error))?)))
        }
    }
}

/// The summary of a fit as JSON, in the form of a model file.
pub(crate) fn record(summary: &FitSummary) -> String {
    serde_json::to_string(summary).expect("a plain structure")
}
