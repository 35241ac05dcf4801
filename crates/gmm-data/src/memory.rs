//! Memory for what a file holds, asked for before it is taken.

use std::io::Read;

use crate::Problem;

/// Less than this is not asked about: the system's answers are in files.
const SMALL: u128 = 1 << 20;

/// Bytes that this process can still take, as [`gmm_model::memory::available`] says.
pub(crate) fn available() -> Option<u64> {
    gmm_model::memory::available()
}

/// Refuses what would not fit.
///
/// # Errors
/// [`Problem::Memory`] with the bytes wanted and free.
pub(crate) fn check(what: &str, bytes: u128) -> Result<(), Problem> {
    if bytes <= SMALL {
        return Ok(());
    }
    // Where the system does not say, the address space is still a bound.
    let free = available().map_or(isize::MAX as u128, u128::from);
    if bytes > free { Err(refused(what, bytes, free)) } else { Ok(()) }
}

/// Makes room for `more` values. Capacity doubles where there is room for that, as a vector's does; else it grows by an
/// eighth, and at last by what is asked for.
///
/// # Errors
/// [`Problem::Memory`], before anything is taken.
pub(crate) fn reserve<T>(values: &mut Vec<T>, more: usize, what: &str) -> Result<(), Problem> {
    if values.capacity() - values.len() >= more {
        return Ok(());
    }
    let size = size_of::<T>().max(1) as u128;
    let small = values.len().max(more) as u128 * size <= SMALL;
    let free = if small { None } else { available() }.map_or(isize::MAX as u128, u128::from);
    for spare in [values.len(), values.len() / 8, 0] {
        let grown = more.max(spare);
        if grown as u128 * size <= free && values.try_reserve_exact(grown).is_ok() {
            return Ok(());
        }
    }
    // Of the whole, not of the next step, which says nothing to anyone.
    let held = values.len() as u128 * size;
    Err(refused(what, held + more as u128 * size, held + free))
}

/// Everything that a reader has, of which `expected` bytes are known.
///
/// # Errors
/// [`Problem::Memory`] before more is taken than there is; the reader's own.
pub(crate) fn read_all(mut reader: impl Read, expected: usize, what: &str) -> Result<Vec<u8>, Problem> {
    /// As much as a pipe holds.
    const STEP: usize = 1 << 16;
    let mut bytes = Vec::new();
    reserve(&mut bytes, expected, what)?;
    loop {
        reserve(&mut bytes, STEP, what)?;
        let room = bytes.capacity() - bytes.len();
        if reader.by_ref().take(room as u64).read_to_end(&mut bytes)? < room {
            return Ok(bytes);
        }
    }
}

fn refused(what: &str, wanted: u128, free: u128) -> Problem {
    Problem::Memory { what: what.to_owned(), wanted, free }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused_with_the_bytes_wanted_and_free() {
        let text = check("the table", 1 << 80).unwrap_err().to_string();
        assert!(text.starts_with("the table needs 1208925819614629174706176 bytes of memory, "), "{text}");
        assert!(check("the table", 1 << 16).is_ok());
    }

    #[test]
    fn a_vector_grows_by_doubling_and_never_beyond_memory() {
        let mut values = vec![0u8; 1000];
        reserve(&mut values, 10, "values").unwrap();
        assert!(values.capacity() >= 2000);
        assert!(reserve(&mut values, usize::MAX / 2, "values").is_err());
        assert_eq!(values.len(), 1000);
    }
}
