//! What a request is answered that cannot be served: a status and a message that says what, where and what to try.

use axum::http::StatusCode;
use gmm_host::Error;

/// An answer other than the result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The status of HTTP.
    pub status: StatusCode,
    /// One line for the client.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// 400: the request itself is wrong.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404: nothing has that name.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 413: more than a limit allows.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// 500: a fault of the server.
    pub(crate) fn fault(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

/// An error of the engine: of the request if its rows are wrong, of the server if memory or a device is.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Memory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Error::Device(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl From<gmm_model::DataError> for Refusal {
    fn from(error: gmm_model::DataError) -> Self {
        Self::bad(error.to_string())
    }
}
