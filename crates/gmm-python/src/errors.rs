//! Conversion of the library's errors to the classes of `gmm_rs.exceptions`, all subclasses of `ValueError`.

use std::io;

use gmm_data::{FileError, Problem};
use gmm_host::Error;
use gmm_model::ModelError;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
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
        // A fit reports these as `Singular`; other functions report them directly.
        Error::Model(ModelError::Underflow { .. })
        | Error::NotPositiveDefinite { .. }
        | Error::Singular { .. }
        | Error::NotFinite { .. }
        | Error::Likelihood { .. }
        | Error::AllNoise { .. }
        | Error::Undefined { .. } => "NumericalError",
        Error::Device(_) => "DeviceError",
        Error::Interrupted { .. } => return PyKeyboardInterrupt::new_err(error.to_string()),
        Error::Model(_)
        | Error::Statistics(_)
        | Error::Option { .. }
        | Error::NotSymmetric { .. }
        | Error::Missing { .. }
        | Error::MeasurementErrors { .. }
        | Error::Limited { .. }
        | Error::Limits { .. }
        | Error::TooFewRows { .. }
        | Error::Features { .. }
        | Error::FeatureNames { .. } => "ParameterError",
    };
    with_class(py, class, error.to_string())
}

/// The Python exception for a file that cannot be read or written: an I/O error is an `OSError` or its subclass, such
/// as `FileNotFoundError`; invalid content is a `FileError`.
pub(crate) fn raise_file(py: Python<'_>, error: &FileError) -> PyErr {
    let class = match &error.problem {
        Problem::Io(io) => {
            // Python selects the subclass for the error number, and appends the path to the text.
            let Some(code) = io.raw_os_error() else {
                return io::Error::new(io.kind(), error.to_string()).into();
            };
            let text = io::Error::from_raw_os_error(code).to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            return PyOSError::new_err((code, text, error.path.clone()));
        }
        Problem::Disk { .. } => return PyOSError::new_err(error.to_string()),
        Problem::Extension { .. } | Problem::ReadOnly { .. } => "ParameterError",
        Problem::Memory { .. } => "OutOfMemoryError",
        _ => "FileError",
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
