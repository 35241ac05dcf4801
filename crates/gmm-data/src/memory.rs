//! Checks that memory is available before it is allocated for a file's contents.

use std::io::Read;

use crate::Problem;

/// How many bytes of memory the numbers of a table may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// All that is free.
    None,
    /// Half of the free memory; all of it if there is no disk for more.
    Half,
    /// 64 MiB, or a sixteenth of the free memory if that is less; all of it if there is no disk for more.
    Little,
    /// These bytes, as far as they are free.
    Bytes(u64),
}

impl Limit {
    /// Whether all memory that is free may be used if there is no disk.
    pub(crate) const fn can_be_exceeded(self) -> bool {
        matches!(self, Self::Half | Self::Little)
    }

    /// The limit that a user gave, else half of the free memory.
    pub(crate) fn of(given: Option<u64>) -> Self {
        given.map_or(Self::Half, Self::Bytes)
    }

    /// The limit for what is in memory beside the numbers for a while: an eighth of given bytes, else a little.
    pub(crate) fn beside(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Half | Self::Little => Self::Little,
            Self::Bytes(bytes) => Self::Bytes(bytes / 8),
        }
    }

    /// Bytes that may be in memory, if `held` of them are already; no exact number if it is more than `wanted`.
    pub(crate) fn fitting(self, held: u128, wanted: u128) -> u128 {
        // Little is not worth asking the system for.
        let free = || if wanted <= SMALL { None } else { available() };
        let all = || free().map_or(u128::MAX, |free| held + u128::from(free));
        match self {
            Self::None => all(),
            Self::Bytes(bytes) => u128::from(bytes).min(all()),
            Self::Half => all() / 2,
            Self::Little => (all() / 16).min(64 << 20),
        }
    }
}

/// Bytes that the numbers of a table may take in memory if `given` is the limit that the user gave
/// ([`ReadOptions::memory`](crate::ReadOptions::memory)): the given bytes as far as they are free, else half of the
/// free memory. `None` if neither is known.
pub fn memory_limit(given: Option<u64>) -> Option<u64> {
    match (given, available()) {
        (Some(given), Some(free)) => Some(given.min(free)),
        (None, Some(free)) => Some(free / 2),
        (given, None) => given,
    }
}

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
    // `vec!` is the only way to zeroed pages, and aborts the program if it fails: the same reservation must succeed
    // first.
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

/// Appends up to `len` bytes of a reader, fewer only if it ends before. Memory is reserved for the bytes that there
/// are.
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
