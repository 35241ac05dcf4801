//! The default number of threads of an engine.

use std::{env, thread};

use crate::Error;

/// The largest default number of threads. A larger number in the environment counts as this one.
pub const MAX_THREADS: usize = 1024;

/// Environment variables with the number of threads, in the order of their priority.
const VARIABLES: [&str; 2] = ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"];

/// The number of threads that an engine uses for `threads` = 0: the value of `RAYON_NUM_THREADS`, else of
/// `OMP_NUM_THREADS`, at most [`MAX_THREADS`]; else one per core that this process may use, by its affinity and its
/// control group.
///
/// Ignores a variable that is not a positive integer. Takes the first number of a list (`4,2`, which OpenMP uses for
/// nested loops).
pub fn default_threads() -> usize {
    let said = VARIABLES.iter().find_map(|name| number(&env::var(name).ok()?));
    said.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Limits rayon's global thread pool, which runs work outside the engines, to [`default_threads`]. A program should
/// call this once, before any other use of rayon. Starts the pool only if rayon's own default is a different number.
pub fn limit_global_threads() {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let rayons_own = env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok()).filter(|&n| n > 0);
    let threads = default_threads();
    if threads != rayons_own.unwrap_or_else(cores) {
        // Fails if the pool is already running: its size then stays.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
}

/// Runs `work` on a pool of this many threads, for work outside the engines; 0 means the current pool.
///
/// # Errors
/// [`Error::Device`] if the threads cannot be started.
pub fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> Result<R, Error> {
    if threads == 0 {
        // A thread of the pool takes part in its work; any other would hand all of it over, and wait.
        return Ok(rayon::scope(|_| work()));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    Ok(pool.map_err(|e| Error::Device(format!("cannot start {threads} threads: {e}")))?.install(work))
}

fn number(text: &str) -> Option<usize> {
    let first = text.split(',').next()?.trim();
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number that overflows `usize` counts as `MAX_THREADS`.
    Some(first.parse().unwrap_or(usize::MAX).min(MAX_THREADS)).filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_counts_where_it_holds_a_positive_number() {
        for (text, expected) in [
            ("3", Some(3)),
            (" 3 ", Some(3)),
            ("4,2", Some(4)),
            ("1024", Some(1024)),
            ("1025", Some(1024)),
            ("99999999999999999999999999", Some(1024)),
            ("0", None),
            ("", None),
            ("-2", None),
            ("2.5", None),
            ("many", None),
        ] {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }
}
