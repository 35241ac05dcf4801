//! How the program ends: what went wrong in one line, and the exit code that belongs to it.

use std::io::{self, Write};
use std::process::ExitCode;

use gmm_data::{FileError, Problem};
use gmm_host::Error;
use gmm_model::{DataError, ModelError, shown};

use crate::interrupt;
use crate::output::{Console, paint, stderr_has_colour};

/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// The data, or a model file, cannot be used.
pub(crate) const BAD_DATA: u8 = 3;
/// The arithmetic failed.
pub(crate) const NUMERICAL: u8 = 4;
/// The device is not there, or has not enough memory.
pub(crate) const DEVICE: u8 = 5;
/// A file or stream failed.
pub(crate) const FILE: u8 = 6;
/// Not converged, where that was required.
pub(crate) const NOT_CONVERGED: u8 = 7;
/// A fault of this program: there should be no way here.
const FAULT: u8 = 1;

/// Ends that only the program has, beside those of the libraries.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Options that exclude each other, or a value that only the data show to be wrong.
    #[error("{0}")]
    Usage(String),
    /// Data that disagree with a model or with the options.
    #[error("{0}")]
    BadData(String),
    /// A signal stopped a fit.
    #[error("interrupted after {iterations} iterations{kept}")]
    Interrupted {
        /// Iterations done.
        iterations: usize,
        /// Where the mixture is kept, if it is.
        kept: String,
    },
    /// A signal stopped a sampler.
    #[error("interrupted after {draws} of {wanted} draws{kept}")]
    SamplingInterrupted {
        /// Draws kept, of all chains.
        draws: usize,
        /// Draws asked for.
        wanted: usize,
        /// Where they are, if they are.
        kept: String,
    },
    /// A fit failed on its way, and there is a checkpoint.
    #[error("{what}; {kept}")]
    Stopped {
        /// What `error` says.
        what: String,
        /// Iterations done, and where their mixture is.
        kept: String,
        /// What went wrong.
        #[source]
        error: anyhow::Error,
    },
    /// A benchmark found answers outside their tolerance, or none.
    #[error("{failed} of {rows} answers are wrong or did not come, and were not timed: see the lines above")]
    WrongAnswers {
        /// Rows without a right answer.
        failed: usize,
        /// Rows in all.
        rows: usize,
    },
    /// `--require-convergence` was given.
    #[error("not converged after {iterations} iterations: raise --max-iter or --tol")]
    NotConverged {
        /// Iterations done.
        iterations: usize,
    },
}

/// Prints the error, if there is one, and gives the exit code.
pub(crate) fn report(result: anyhow::Result<()>, console: &Console) -> ExitCode {
    console.finish();
    let Err(error) = result else {
        // A signal that came while a file was being written was held back.
        return ExitCode::from(interrupt::received().map_or(0, interrupt::code));
    };
    if is_broken_pipe(&error) {
        // Whoever read our output has enough of it.
        return ExitCode::SUCCESS;
    }
    print_error(&message(&error));
    ExitCode::from(code(&error))
}

/// Writes `error: ..` to standard error; where that is closed there is nobody to tell.
pub(crate) fn print_error(message: &str) {
    let label = paint(stderr_has_colour(), "1;31", "error:");
    let _ = writeln!(io::stderr(), "{label} {}", shown(message));
}

/// The causes in one line, from the outermost on; a cause that the one before it already tells is left out.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

pub(crate) fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(FAULT)
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(match failure {
            Failure::Usage(_) => USAGE,
            Failure::BadData(_) => BAD_DATA,
            Failure::NotConverged { .. } => NOT_CONVERGED,
            Failure::WrongAnswers { .. } => NUMERICAL,
            Failure::Interrupted { .. } | Failure::SamplingInterrupted { .. } => {
                interrupt::received().map_or(FAULT, interrupt::code)
            }
            // What stopped it decides: the next in the chain.
            Failure::Stopped { .. } => return None,
        });
    }
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(match error {
            Error::Option { option: "rows", .. } => BAD_DATA,
            Error::Option { .. } => USAGE,
            Error::Model(model) => model_code(model),
            Error::NotPositiveDefinite { .. }
            | Error::Singular { .. }
            | Error::NotFinite { .. }
            | Error::Likelihood { .. }
            | Error::Undefined { .. } => NUMERICAL,
            Error::Memory { .. } | Error::CovarianceMemory { .. } | Error::Device(_) => DEVICE,
            Error::Interrupted { .. } => interrupt::received().map_or(FAULT, interrupt::code),
            _ => BAD_DATA,
        });
    }
    if let Some(error) = cause.downcast_ref::<gmm_mcmc::Error>() {
        return match error {
            // The next in the chain, which says nothing else, decides.
            gmm_mcmc::Error::Host(error) => code_of(error),
            gmm_mcmc::Error::Option { .. } => Some(USAGE),
            gmm_mcmc::Error::Memory { .. } => Some(DEVICE),
            gmm_mcmc::Error::Prior(_) | gmm_mcmc::Error::Checkpoint(_) => Some(BAD_DATA),
            gmm_mcmc::Error::Start { .. } | gmm_mcmc::Error::Sampler { .. } => Some(NUMERICAL),
            gmm_mcmc::Error::Stopped => Some(interrupt::received().map_or(FAULT, interrupt::code)),
        };
    }
    if let Some(error) = cause.downcast_ref::<gmm_plot::Error>() {
        return Some(if matches!(error, gmm_plot::Error::Size { .. }) { USAGE } else { BAD_DATA });
    }
    if let Some(error) = cause.downcast_ref::<FileError>() {
        return Some(match error.problem {
            Problem::Io(_) => FILE,
            Problem::Extension { .. } | Problem::ReadOnly { .. } => USAGE,
            Problem::Memory { .. } => DEVICE,
            _ => BAD_DATA,
        });
    }
    if let Some(error) = cause.downcast_ref::<ModelError>() {
        return Some(model_code(error));
    }
    if cause.is::<DataError>() {
        return Some(BAD_DATA);
    }
    cause.is::<io::Error>().then_some(FILE)
}

const fn model_code(error: &ModelError) -> u8 {
    match error {
        ModelError::Memory { .. } => DEVICE,
        ModelError::UnknownWord { .. } | ModelError::Range { .. } => USAGE,
        ModelError::NotPositiveDefinite { .. } | ModelError::NotFinite { .. } | ModelError::Underflow { .. } => {
            NUMERICAL
        }
        _ => BAD_DATA,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let file = cause.downcast_ref::<FileError>().is_some_and(FileError::is_broken_pipe);
        file || cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_memory_and_a_lost_device_are_the_devices_and_numbers_that_are_none_are_numerical() {
        let of = |error: anyhow::Error| {
            let alone = code(&error);
            (alone, code(&error.context("where it was")))
        };
        for (error, expected) in [
            (anyhow::Error::new(Error::Device("cuda:0: lost".to_owned())), DEVICE),
            (Error::Memory { what: "a pass on the GPU", wanted: 2, free: 1 }.into(), DEVICE),
            (ModelError::Memory { what: "the sample", wanted: 2 }.into(), DEVICE),
            (Error::Model(ModelError::Memory { what: "the sample", wanted: 2 }).into(), DEVICE),
            (Error::NotFinite { iteration: 3, component: 1 }.into(), NUMERICAL),
            (Error::Likelihood { iteration: 3, value: f64::NAN }.into(), NUMERICAL),
            (Error::Undefined { what: "log-likelihood", value: f64::NAN }.into(), NUMERICAL),
            (ModelError::Range { what: "n_samples", value: "0".to_owned(), must: "at least 1" }.into(), USAGE),
        ] {
            let text = error.to_string();
            assert_eq!(of(error), (expected, expected), "{text}");
        }
    }
}
