//! Errors of sampling: what, where, and what to try.

use gmm_model::ModelError;

/// Why there are no draws.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The likelihood cannot be evaluated.
    #[error(transparent)]
    Host(#[from] gmm_host::Error),
    /// An option outside its range.
    #[error("{option} is {value}: it must be {must}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        must: String,
    },
    /// A prior that is none, or under which the posterior is none.
    #[error("prior: {0}")]
    Prior(String),
    /// No start from which a chain could go on.
    #[error("chain {chain}: {why}")]
    Start {
        /// Chain, from 0.
        chain: usize,
        /// Why not.
        why: String,
    },
    /// What nuts-rs says.
    #[error("chain {chain}: the sampler failed: {why}")]
    Sampler {
        /// Chain, from 0.
        chain: usize,
        /// Its words.
        why: String,
    },
    /// More draws than there is memory for.
    #[error("the draws need {wanted} bytes of memory, {free} are free: ask for fewer draws or chains")]
    Memory {
        /// Bytes wanted.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// Bytes that are no checkpoint, or that of another run.
    #[error("checkpoint: {0}")]
    Checkpoint(String),
    /// The observer asked to stop; the run holds what was drawn until then.
    #[error("stopped")]
    Stopped,
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        Self::Host(error.into())
    }
}

/// Refuses an option.
pub(crate) fn refuse<T>(option: &'static str, value: impl ToString, must: &str) -> Result<T, Error> {
    Err(Error::Option { option, value: value.to_string(), must: must.to_owned() })
}
