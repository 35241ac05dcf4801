//! How the program ends: the error in one line, and its exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use gmm_data::{FileError, Problem};
use gmm_host::Error;
use gmm_model::{DataError, ModelError, StatisticsError, shown};
use gmm_serve::ServeError;

use crate::interrupt;
use crate::output::{Console, paint, stderr_has_colour};

/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// The data or a model file are invalid.
pub(crate) const BAD_DATA: u8 = 3;
/// A numerical failure, for instance a singular covariance.
pub(crate) const NUMERICAL: u8 = 4;
/// The device is not available, or memory is insufficient.
pub(crate) const DEVICE: u8 = 5;
/// Reading or writing a file or stream failed.
pub(crate) const FILE: u8 = 6;
/// Not converged, with `--require-convergence`.
pub(crate) const NOT_CONVERGED: u8 = 7;
/// A bug in this program.
const FAULT: u8 = 1;

/// Errors of the program itself, besides those of the libraries.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Options that exclude each other, or a value that is invalid for these data.
    #[error("{0}")]
    Usage(String),
    /// Data that do not match a model or the options.
    #[error("{0}")]
    BadData(String),
    /// A signal stopped a fit.
    #[error("interrupted after {iterations} iterations{kept}")]
    Interrupted {
        /// Completed iterations.
        iterations: usize,
        /// Names the file with the mixture, or is empty.
        kept: String,
    },
    /// A signal stopped a sampler.
    #[error("interrupted after {draws} of {wanted} draws{kept}")]
    SamplingInterrupted {
        /// Completed draws of all chains.
        draws: usize,
        /// Requested draws of all chains.
        wanted: usize,
        /// Names the file with the draws, or is empty.
        kept: String,
    },
    /// A fit with a checkpoint failed after the first iteration.
    #[error("{what}; {kept}")]
    Stopped {
        /// The message of `error`.
        what: String,
        /// Completed iterations, and the file with their mixture.
        kept: String,
        /// The cause.
        #[source]
        error: anyhow::Error,
    },
    /// In a benchmark, results were outside their tolerance or missing.
    #[error("{failed} of {rows} results are wrong or missing and were not timed: see the lines above")]
    WrongAnswers {
        /// Rows without a correct result.
        failed: usize,
        /// Rows in total.
        rows: usize,
    },
    /// `--require-convergence` was given.
    #[error("not converged after {iterations} {unit}: raise {option} or --tol")]
    NotConverged {
        /// Completed iterations, or epochs of an online fit.
        iterations: usize,
        /// Which of the two.
        unit: &'static str,
        /// The option that limits them.
        option: &'static str,
    },
}

/// Prints the error, if there is one, and returns the exit code.
pub(crate) fn report(result: anyhow::Result<()>, console: &Console) -> ExitCode {
    console.finish();
    let Err(error) = result else {
        // A signal that arrived while a file was being written was deferred.
        return ExitCode::from(interrupt::received().map_or(0, interrupt::code));
    };
    if is_broken_pipe(&error) {
        // The reader of our output closed the pipe, as `head` does.
        return ExitCode::SUCCESS;
    }
    print_error(&message(&error));
    ExitCode::from(code(&error))
}

/// Writes `error: ..` to standard error; a closed standard error is ignored.
pub(crate) fn print_error(message: &str) {
    let label = paint(stderr_has_colour(), "1;31", "error:");
    let _ = writeln!(io::stderr(), "{label} {}", shown(message));
}

/// All causes in one line, outermost first; a cause that the text so far already contains is left out.
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
            // The cause, next in the chain, determines the code.
            Failure::Stopped { .. } => return None,
        });
    }
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(match error {
            Error::Option { option: "rows", .. } => BAD_DATA,
            // Rows have errors or limits only by options, with which another option does not go.
            Error::Option { .. } | Error::MeasurementErrors { .. } | Error::Limited { .. } => USAGE,
            Error::Model(model) => model_code(model),
            Error::NotPositiveDefinite { .. }
            | Error::Singular { .. }
            | Error::NotFinite { .. }
            | Error::Likelihood { .. }
            | Error::AllNoise { .. }
            | Error::Undefined { .. } => NUMERICAL,
            Error::Memory { .. } | Error::CovarianceMemory { .. } | Error::Device(_) => DEVICE,
            Error::Interrupted { .. } => interrupt::received().map_or(FAULT, interrupt::code),
            _ => BAD_DATA,
        });
    }
    if let Some(error) = cause.downcast_ref::<gmm_mcmc::Error>() {
        return match error {
            // The host error determines the code.
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
            Problem::Io(_) | Problem::Disk { .. } => FILE,
            Problem::Extension { .. } | Problem::ReadOnly { .. } => USAGE,
            Problem::Memory { .. } => DEVICE,
            _ => BAD_DATA,
        });
    }
    if let Some(error) = cause.downcast_ref::<ModelError>() {
        return Some(model_code(error));
    }
    if let Some(error) = cause.downcast_ref::<ServeError>() {
        return match error {
            // The cause, next in the chain, determines the code.
            ServeError::File(error) => code_of(error),
            ServeError::Load { .. } => Some(BAD_DATA),
            ServeError::Names(_) => Some(USAGE),
            ServeError::Listen { .. } => Some(FILE),
            ServeError::Threads(_) => Some(DEVICE),
        };
    }
    if cause.is::<DataError>() || cause.is::<StatisticsError>() {
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
    fn each_kind_of_error_has_its_code() {
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
            (Error::Limited { what: "uniform noise" }.into(), USAGE),
            (Error::MeasurementErrors { what: "a start by a tree" }.into(), USAGE),
            (Error::Missing { what: "--online" }.into(), BAD_DATA),
            (ModelError::Range { what: "n_samples", value: "0".to_owned(), must: "at least 1" }.into(), USAGE),
        ] {
            let text = error.to_string();
            assert_eq!(of(error), (expected, expected), "{text}");
        }
    }
}
