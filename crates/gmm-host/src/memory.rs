//! How much memory there is, asked before any is taken.

use crate::Error;

/// Bytes that can be taken without swapping, where the system says so (Linux).
pub fn available() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u128 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Refuses what would not fit.
///
/// # Errors
/// [`Error::Memory`] with the bytes wanted and free.
pub fn check(what: &'static str, wanted: u128) -> Result<(), Error> {
    // Where the system does not say, the address space is still a bound.
    let free = available().unwrap_or(isize::MAX as u128);
    if wanted > free { Err(Error::Memory { what, wanted, free }) } else { Ok(()) }
}
