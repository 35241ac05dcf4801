//! What C learns of a failure: a status, and the text of the last one of its thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gmm_data::FileError;
use gmm_host::Error;
use gmm_model::{DataError, ModelError};

use crate::{GMM_BAD_DATA, GMM_FAULT, GMM_FILE, GMM_INVALID_ARGUMENT, GMM_NO_RESOURCES, GMM_OK};

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// A status and what it means.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: c_int,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { status: GMM_INVALID_ARGUMENT, text: text.into() }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::argument(format!("{what} is NULL"))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self { status: if error.is_io() { GMM_FILE } else { GMM_BAD_DATA }, text: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Memory { .. } | Error::CovarianceMemory { .. } | Error::Device(_) => GMM_NO_RESOURCES,
            Error::Features { .. } | Error::Option { .. } => GMM_INVALID_ARGUMENT,
            _ => GMM_BAD_DATA,
        };
        Self { status, text: error.to_string() }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self { status: GMM_BAD_DATA, text: error.to_string() }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self { status: GMM_BAD_DATA, text: error.to_string() }
    }
}

/// Runs the body of a function of the interface; a failure or panic becomes its status, and the text of the last error.
pub(crate) fn run(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Unwind safety: after a panic C has the status only, and the scorer sizes its workspace anew.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return GMM_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            let text = format!("a fault of gmm, please report it: {}", what.unwrap_or("unknown"));
            Failure { status: GMM_FAULT, text }
        }
    };
    // A zero byte would end the text.
    let text = CString::new(failure.text.replace('\0', "\\0")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = text);
    failure.status
}

/// The text of the last failure of this thread.
pub(crate) fn last() -> *const c_char {
    // A thread that is ending has no text any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(<&CStr>::default().as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: the text is valid until the next failure of this thread.
        unsafe { CStr::from_ptr(last()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_text() {
        assert_eq!(text(), "");
        assert_eq!(run(|| panic!("row {}", 3)), GMM_FAULT);
        assert_eq!(text(), "a fault of gmm, please report it: row 3");
        assert_eq!(run(|| Ok(())), GMM_OK);
        assert_eq!(run(|| Err(Failure::argument("a\0b"))), GMM_INVALID_ARGUMENT);
        assert_eq!(text(), "a\\0b");
    }
}
