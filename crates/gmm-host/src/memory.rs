//! How much memory there is, asked before any is taken.

use crate::Error;

/// Bytes that can be taken without swapping, where the system says so (Linux): what is available on the machine, to the
/// process's group (version 2), and to the process under its address-space limit, whichever is least.
pub fn available() -> Option<u128> {
    let machine = field("/proc/meminfo", "MemAvailable:", 1).map(|kib| kib * 1024);
    let limit = field("/proc/self/limits", "Max address space", 3);
    let address_space = limit.map(|limit| limit.saturating_sub(field("/proc/self/statm", "", 0).unwrap_or(0) * 4096));
    [machine, group(), address_space].into_iter().flatten().min()
}

/// The number at position `at` of the first line that starts with `line`; `None` where there is none ("unlimited").
fn field(path: &str, line: &str, at: usize) -> Option<u128> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find(|l| l.starts_with(line))?.split_ascii_whitespace().nth(at)?.parse().ok()
}

fn group() -> Option<u128> {
    let limit = field("/sys/fs/cgroup/memory.max", "", 0)?;
    Some(limit.saturating_sub(field("/sys/fs/cgroup/memory.current", "", 0)?))
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
