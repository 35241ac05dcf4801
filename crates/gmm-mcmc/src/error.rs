//! Errors of sampling. Each message says what is wrong, where, and what to try.

use gmm_model::ModelError;

/// An error of a prior, a run or a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The likelihood cannot be evaluated, or its parameters are invalid.
    #[error(transparent)]
    Host(#[from] gmm_host::Error),
    /// An option is outside its range.
    #[error("{option} is {value}: it must be {must}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        must: String,
    },
    /// The prior is invalid, or the posterior under it is improper.
    #[error("prior: {0}")]
    Prior(String),
    /// The density at a chain's start is not finite.
    #[error("chain {chain}: {why}")]
    Start {
        /// Chain, from 0.
        chain: usize,
        /// The reason.
        why: String,
    },
    /// nuts-rs reports an error.
    #[error("chain {chain}: the sampler failed: {why}")]
    Sampler {
        /// Chain, from 0.
        chain: usize,
        /// The message of nuts-rs.
        why: String,
    },
    /// The draws need more memory than is free.
    #[error("the draws need {wanted} bytes of memory, {free} are free: ask for fewer draws or chains")]
    Memory {
        /// Bytes needed.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// Bytes that are not a checkpoint, or a checkpoint of another run.
    #[error("checkpoint: {0}")]
    Checkpoint(String),
    /// The observer stopped the run, which keeps the draws so far.
    #[error("stopped")]
    Stopped,
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        Self::Host(error.into())
    }
}

/// Returns [`Error::Option`].
pub(crate) fn refuse<T>(option: &'static str, value: impl ToString, must: &str) -> Result<T, Error> {
    Err(Error::Option { option, value: value.to_string(), must: must.to_owned() })
}
