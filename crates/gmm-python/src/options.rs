//! Conversion of the option dictionaries passed from Python.

use std::str::FromStr;
use std::sync::Arc;

use gmm_host::{
    Device, FitOptions, FitRule, Floor, Init, NoiseOptions, NoiseStart, Prior, PriorParts, TruncatedOptions,
    default_threads,
};
use gmm_model::{CovarianceType, FixedParts, Noise, Precision, PriorScale, Starved};
use numpy::{PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bayes;
use crate::errors::{raise, with_class};

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

/// What a fit does beyond maximum likelihood: `{"prior": "conjugate" | dict | None, "floor": float, "floor_relative": float,
/// "drop_starved": float | None, "labels": int64 of shape (n,) | None, "fixed": (list, list, list), "shared": list of
/// lists, "noise": dict | None, "truncated": int | None, "factors": int | None}`, and perhaps `bayes`; a negative label is unknown.
fn rule(from: &Bound<'_, PyAny>) -> PyResult<FitRule> {
    let labels = from.get_item("labels")?.extract::<Option<PyReadonlyArray1<'_, i64>>>()?;
    let label = |label: &i64| usize::try_from(*label).ok();
    let (weights, means, covariances) = from.get_item("fixed")?.extract()?;
    let starved = from.get_item("drop_starved")?.extract::<Option<f64>>()?;
    Ok(FitRule {
        prior: prior(&from.get_item("prior")?)?,
        floor: Floor {
            absolute: from.get_item("floor")?.extract()?,
            relative: from.get_item("floor_relative")?.extract()?,
        },
        starved: starved.map(|min_count| Starved { min_count, ..Starved::default() }),
        bayes: bayes::options(from)?,
        labels: labels.map(|all| Arc::new(all.as_array().iter().map(label).collect())),
        fixed: FixedParts { weights, means, covariances },
        shared: from.get_item("shared")?.extract()?,
        noise: noise(&from.get_item("noise")?)?,
        factors: from.get_item("factors")?.extract()?,
        truncated: from
            .get_item("truncated")?
            .extract::<Option<usize>>()?
            .map(|components| TruncatedOptions { components }),
    })
}

/// `None`, `"conjugate"`, or a dictionary of the parts that replace those of the default.
fn prior(from: &Bound<'_, PyAny>) -> PyResult<Prior> {
    if from.is_none() {
        return Ok(Prior::None);
    }
    let Ok(parts) = from.cast::<PyDict>() else { return Ok(Prior::Conjugate) };
    let number = |name: &str| parts.get_item(name)?.map(|v| v.extract::<f64>()).transpose();
    let array = |name: &str| {
        let given = parts.get_item(name)?.map(|v| v.extract::<PyReadonlyArrayDyn<'_, f64>>()).transpose()?;
        Ok::<_, PyErr>(given.map(|array| array.as_array().to_owned()))
    };
    let scale = array("scale")?.map(|scale| match scale.ndim() {
        0 => PriorScale::Variance(scale.first().copied().unwrap_or(f64::NAN)),
        1 => PriorScale::Variances(scale.into_dimensionality().expect("one axis")),
        _ => PriorScale::Matrix(scale.into_dimensionality().expect("two axes, as `gmm_rs` checks")),
    });
    Ok(Prior::Parts(Box::new(PriorParts {
        mean: array("mean")?.map(|mean| mean.into_dimensionality().expect("one axis, as `gmm_rs` checks")),
        shrinkage: number("shrinkage")?,
        degrees_of_freedom: number("degrees_of_freedom")?,
        scale,
        concentration: number("concentration")?,
    })))
}

/// `{"start": None | float | bool of shape (n,) | str, "log_volume": float | None}`, where a str is the JSON of fitted
/// noise; or `None`.
fn noise(from: &Bound<'_, PyAny>) -> PyResult<Option<NoiseOptions>> {
    if from.is_none() {
        return Ok(None);
    }
    let given = from.get_item("start")?;
    let start = if given.is_none() {
        NoiseStart::Cleaned
    } else if let Ok(share) = given.extract::<f64>() {
        NoiseStart::Share(share)
    } else if let Ok(text) = given.extract::<String>() {
        NoiseStart::Given(Box::new(noise_of(from.py(), &text)?))
    } else {
        let rows: PyReadonlyArray1<'_, bool> = given.extract()?;
        NoiseStart::Rows(Arc::new(rows.as_array().to_vec()))
    };
    Ok(Some(NoiseOptions { start, log_volume: from.get_item("log_volume")?.extract()? }))
}

/// Noise from its JSON.
pub(crate) fn noise_of(py: Python<'_>, text: &str) -> PyResult<Noise> {
    serde_json::from_str(text).map_err(|error| with_class(py, "ParameterError", format!("the noise: {error}")))
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
