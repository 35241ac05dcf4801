//! How many threads an engine takes where nobody says.

use std::{env, thread};

/// More than any machine has: a larger number in the environment counts as this.
pub const MAX_THREADS: usize = 1024;

/// Where numbers of threads are found, in this order.
const VARIABLES: [&str; 2] = ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"];

/// The number of threads for 0: what `RAYON_NUM_THREADS` says, else `OMP_NUM_THREADS`, at most [`MAX_THREADS`]; else one per
/// core that this process may use, by its affinity and its control group.
///
/// A variable that holds no positive number is passed over. Of a list (`4,2`, as OpenMP has it for nested loops) the first
/// number counts.
pub fn default_threads() -> usize {
    let said = VARIABLES.iter().find_map(|name| number(&env::var(name).ok()?));
    said.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Makes rayon's global threads, which do work that is no engine's, as many as [`default_threads`]: a program calls this once,
/// first. They are started here only where rayon by itself would take another number of them.
pub fn limit_global_threads() {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let rayons_own = env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok()).filter(|&n| n > 0);
    let threads = default_threads();
    if threads != rayons_own.unwrap_or_else(cores) {
        // Whatever has started them before has decided.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
}

fn number(text: &str) -> Option<usize> {
    let first = text.split(',').next()?.trim();
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Digits that do not fit are a large number all the same.
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
