//! The library's errors as the classes of `gmm_rs.exceptions`, all of them `ValueError`s.

use gmm_host::Error;
use gmm_model::ModelError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The Python exception for an error.
pub(crate) fn raise(py: Python<'_>, error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let class = match &error {
        Error::Data(_) | Error::Scale { .. } => "DataError",
        Error::Memory { .. } | Error::CovarianceMemory { .. } | Error::Model(ModelError::Memory { .. }) => {
            "OutOfMemoryError"
        }
        // Of a fit these are `Singular`; elsewhere an evaluation met them.
        Error::Model(ModelError::Underflow { .. })
        | Error::NotPositiveDefinite { .. }
        | Error::Singular { .. }
        | Error::NotFinite { .. }
        | Error::Likelihood { .. }
        | Error::Undefined { .. } => "NumericalError",
        Error::Device(_) => "DeviceError",
        Error::Interrupted { .. } => return PyKeyboardInterrupt::new_err(error.to_string()),
        Error::Model(_)
        | Error::Statistics(_)
        | Error::Option { .. }
        | Error::NotSymmetric { .. }
        | Error::TooFewRows { .. }
        | Error::Features { .. }
        | Error::FeatureNames { .. } => "ParameterError",
    };
    with_class(py, class, error.to_string())
}

/// An exception of the named class of `gmm_rs.exceptions`.
pub(crate) fn with_class(py: Python<'_>, class: &str, message: String) -> PyErr {
    let found = py.import("gmm_rs.exceptions").and_then(|module| Ok(module.getattr(class)?.cast_into::<PyType>()?));
    match found {
        Ok(class) => PyErr::from_type(class, (message,)),
        Err(error) => error,
    }
}
