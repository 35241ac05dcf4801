//! How much memory there is, asked before any is taken.

use crate::Error;

/// Bytes that this process can still take, as [`gmm_model::memory::available`] says.
pub fn available() -> Option<u128> {
    gmm_model::memory::available().map(u128::from)
}

/// Less than this is not asked about: the system's answers are in files, and to read them takes longer than a small fit
/// may.
const SMALL: u128 = 1 << 20;

/// Refuses what would not fit.
///
/// # Errors
/// [`Error::Memory`] with the bytes wanted and free.
pub fn check(what: &'static str, wanted: u128) -> Result<(), Error> {
    if wanted <= SMALL {
        return Ok(());
    }
    // Where the system does not say, the address space is still a bound.
    let free = available().unwrap_or(isize::MAX as u128);
    if wanted > free { Err(Error::Memory { what, wanted, free }) } else { Ok(()) }
}
