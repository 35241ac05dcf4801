//! Checks that memory is available before it is allocated for a file's contents.

use std::io::Read;

use crate::Problem;

/// Requests up to this many bytes are not checked: a check reads files of the operating system.
const SMALL: u128 = 1 << 20;

/// Bytes that this process can still allocate, from [`gmm_model::memory::available`].
pub(crate) fn available() -> Option<u64> {
    gmm_model::memory::available()
}

/// Checks that `bytes` bytes are available.
///
/// # Errors
/// [`Problem::Memory`] with the bytes needed and free, if they are not.
pub(crate) fn check(what: &str, bytes: u128) -> Result<(), Problem> {
    if bytes <= SMALL {
        return Ok(());
    }
    // If the system does not report free memory, the address space is still a bound.
    let free = available().map_or(isize::MAX as u128, u128::from);
    if bytes > free { Err(refused(what, bytes, free)) } else { Ok(()) }
}

/// Reserves room for `more` values. The capacity doubles, as a vector's does, if memory allows; else it grows by an
/// eighth, and failing that by exactly `more`.
///
/// # Errors
/// [`Problem::Memory`] if none of these fit. Nothing is allocated then.
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
    // Report the total size: the size of the last increment would mean nothing to the user.
    let held = values.len() as u128 * size;
    Err(refused(what, held + more as u128 * size, held + free))
}

/// Returns `count` zeros. The system provides the pages when they are first written to.
///
/// # Errors
/// [`Problem::Memory`] if they do not fit. Nothing is allocated then.
pub(crate) fn zeros<T: Clone + Default>(count: usize, what: &str) -> Result<Vec<T>, Problem> {
    // `vec!` is the only way to zeroed pages, and aborts the program if it fails: the same reservation must succeed first.
    reserve(&mut Vec::<T>::new(), count, what)?;
    Ok(vec![T::default(); count])
}

/// Reads everything from a reader; room for `expected` bytes is reserved first.
///
/// # Errors
/// [`Problem::Memory`] before more memory is allocated than is free; any error of the reader.
pub(crate) fn read_all(reader: impl Read, expected: usize, what: &str) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    reserve(&mut bytes, expected, what)?;
    append(reader, &mut bytes, u64::MAX, what)?;
    Ok(bytes)
}

/// Appends up to `len` bytes of a reader, fewer only if it ends before. Memory is reserved for the bytes that there are.
///
/// # Errors
/// As [`read_all`].
pub(crate) fn append(mut reader: impl Read, bytes: &mut Vec<u8>, len: u64, what: &str) -> Result<(), Problem> {
    /// The capacity of a Linux pipe.
    const STEP: usize = 1 << 16;
    let end = (bytes.len() as u64).saturating_add(len);
    loop {
        let more = end - bytes.len() as u64;
        reserve(bytes, usize::try_from(more).map_or(STEP, |more| more.min(STEP)), what)?;
        let room = ((bytes.capacity() - bytes.len()) as u64).min(more);
        if room == 0 || (reader.by_ref().take(room).read_to_end(bytes)? as u64) < room {
            return Ok(());
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
