//! Checks that enough memory is free before it is allocated.

use crate::Error;

/// Bytes that this process can still allocate, from [`gmm_model::memory::available`]; `None` if the system does not
/// report it.
pub fn available() -> Option<u128> {
    gmm_model::memory::available().map(u128::from)
}

/// Smaller sizes, in bytes, are not checked: the free memory is read from system files, which takes longer than a small
/// fit should.
const SMALL: u128 = 1 << 20;

/// Errors if `wanted` bytes for `what` exceed the free memory.
///
/// # Errors
/// [`Error::Memory`] with the bytes needed and free.
pub fn check(what: &'static str, wanted: u128) -> Result<(), Error> {
    if wanted <= SMALL {
        return Ok(());
    }
    // If the system reports nothing, the address space is still a bound.
    let free = available().unwrap_or(isize::MAX as u128);
    if wanted > free { Err(Error::Memory { what, wanted, free }) } else { Ok(()) }
}
