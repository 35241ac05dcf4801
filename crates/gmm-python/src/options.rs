//! Conversion of the option dictionaries passed from Python.

use std::str::FromStr;
use std::sync::Arc;

use gmm_host::{Device, FitOptions, FitRule, Floor, Init, Prior, default_threads};
use gmm_model::{CovarianceType, Precision, Starved};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::bayes;
use crate::errors::raise;

/// Where to compute: `{"device": str, "threads": int, "precision": str | None}`. The precision `fast` is `f32` with
/// [`FitOptions::fast`], which permits fp16 iterations.
#[derive(Clone)]
pub(crate) struct Execution {
    pub(crate) device: Device,
    pub(crate) threads: usize,
    pub(crate) precision: Option<Precision>,
    pub(crate) fast: bool,
}

impl Execution {
    /// Whether both use the same engine; the precision belongs to each call, not to the engine, and a GPU ignores the
    /// threads.
    pub(crate) fn same_engine(&self, other: &Self) -> bool {
        self.device == other.device && (matches!(self.device, Device::Cuda(_)) || self.threads == other.threads)
    }
}

impl<'py> FromPyObject<'_, 'py> for Execution {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let precision = from.get_item("precision")?;
        let fast = precision.extract::<&str>().is_ok_and(|word| word == "fast");
        Ok(Self {
            device: word(&from.get_item("device")?)?,
            threads: match from.get_item("threads")?.extract()? {
                // Read here, with the GIL held: while an engine is opened another thread may change the environment.
                0 => default_threads(),
                threads => threads,
            },
            precision: match precision {
                none if none.is_none() => None,
                _ if fast => Some(Precision::F32),
                name => Some(word(&name)?),
            },
            fast,
        })
    }
}

/// The options of a fit except its initialisation: the fields of [`FitOptions`] by name.
pub(crate) struct Fitting {
    pub(crate) options: FitOptions,
}

impl<'py> FromPyObject<'_, 'py> for Fitting {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let options = FitOptions {
            n_components: from.get_item("n_components")?.extract()?,
            covariance_type: word(&from.get_item("covariance_type")?)?,
            init: Init::KMeans,
            init_rows: from.get_item("init_rows")?.extract()?,
            n_init: from.get_item("n_init")?.extract()?,
            tol: from.get_item("tol")?.extract()?,
            max_iter: from.get_item("max_iter")?.extract()?,
            reg_covar: from.get_item("reg_covar")?.extract()?,
            seed: from.get_item("seed")?.extract()?,
            precision: None,
            autotune: false,
            concurrent: true,
            fast: false,
            rule: from.get_item("rule").map_or_else(|_| Ok(FitRule::none()), |from| rule(&from))?,
        };
        Ok(Self { options })
    }
}

/// What a fit does beyond maximum likelihood: `{"prior": "conjugate" | None, "floor": float, "floor_relative": float,
/// "drop_starved": float | None, "labels": int64 of shape (n,) | None}`, and perhaps `bayes`; a negative label is unknown.
fn rule(from: &Bound<'_, PyAny>) -> PyResult<FitRule> {
    let labels = from.get_item("labels")?.extract::<Option<PyReadonlyArray1<'_, i64>>>()?;
    let label = |label: &i64| usize::try_from(*label).ok();
    let starved = from.get_item("drop_starved")?.extract::<Option<f64>>()?;
    Ok(FitRule {
        prior: if from.get_item("prior")?.is_none() { Prior::None } else { Prior::Conjugate },
        floor: Floor {
            absolute: from.get_item("floor")?.extract()?,
            relative: from.get_item("floor_relative")?.extract()?,
        },
        starved: starved.map(|min_count| Starved { min_count, ..Starved::default() }),
        bayes: bayes::options(from)?,
        labels: labels.map(|all| Arc::new(all.as_array().iter().map(label).collect())),
        ..FitRule::none()
    })
}

/// A covariance type, given by name.
pub(crate) struct Kind(pub(crate) CovarianceType);

impl<'py> FromPyObject<'_, 'py> for Kind {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        word(&from).map(Self)
    }
}

/// Parses a string that names one of several choices; an unknown string is an error that lists them.
pub(crate) fn word<T: FromStr<Err = gmm_model::ModelError>>(from: &Bound<'_, PyAny>) -> PyResult<T> {
    let text: String = from.extract()?;
    text.parse().map_err(|error: gmm_model::ModelError| raise(from.py(), error))
}
