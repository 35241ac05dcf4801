//! Parallel sampling of a mixture, with the same bits as sequential sampling.

use std::ops::Range;

use gmm_model::{Mixture, ModelError, sample_range};
use rayon::prelude::*;

/// Rows that a thread draws at a time: about a millisecond of work.
const PIECE: usize = 4096;

/// Writes rows `range` of the infinite sample defined by `mixture` and `seed` into `rows`, `(range.len(), d)` in
/// row-major order. Runs on the current rayon thread pool.
///
/// Row `i` depends only on the mixture, the seed and `i`: any division into ranges and any number of threads give the
/// bits of [`gmm_model::sample`](gmm_model::sample()).
///
/// # Errors
/// [`ModelError::Shape`] if the length of `rows` is not `range.len() * d`.
///
/// ```
/// use gmm_host::sample_rows;
/// use gmm_model::{CovarianceType, SyntheticOptions, sample, synthetic};
///
/// let mixture = synthetic(3, 2, CovarianceType::Full, 0, &SyntheticOptions::default())?;
/// let (all, _) = sample(&mixture, 10, 7)?;
/// let mut rows = [0.0; 8];
/// sample_rows(&mixture, 7, 6..10, &mut rows)?;
/// assert_eq!(rows, all.as_slice().unwrap()[12..]);
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn sample_rows(mixture: &Mixture, seed: u64, range: Range<u64>, rows: &mut [f64]) -> Result<(), ModelError> {
    let d = mixture.n_features();
    let len = range.end.saturating_sub(range.start) as usize;
    if len.checked_mul(d) != Some(rows.len()) {
        return Err(ModelError::Shape { what: "rows", found: vec![rows.len()], expected: vec![len, d] });
    }
    rows.par_chunks_mut(PIECE * d).enumerate().try_for_each(|(piece, rows)| {
        let first = range.start + (piece * PIECE) as u64;
        let mut labels = vec![0; rows.len() / d];
        sample_range(mixture, seed, first..first + labels.len() as u64, rows, &mut labels)
    })
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, SyntheticOptions, sample, synthetic};

    use super::*;

    #[test]
    fn any_chunks_and_any_number_of_threads_give_the_same_bits() {
        let n = 3 * PIECE + 77;
        for kind in CovarianceType::ALL {
            let mixture = synthetic(4, 3, kind, 2, &SyntheticOptions::default()).unwrap();
            let (all, _) = sample(&mixture, n, 9).unwrap();
            for threads in [1, 2, 5] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                for chunk in [n, PIECE, 1000, PIECE + 1] {
                    let mut rows = vec![0.0; n * 3];
                    let first = (0..n).step_by(chunk);
                    for (first, rows) in first.zip(rows.chunks_mut(chunk * 3)) {
                        let range = first as u64..(first + rows.len() / 3) as u64;
                        pool.install(|| sample_rows(&mixture, 9, range, rows)).unwrap();
                    }
                    let same = all.iter().zip(&rows).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{kind}, {threads} threads, chunks of {chunk}");
                }
            }
        }
    }

    #[test]
    fn a_buffer_of_another_length_is_refused() {
        let mixture = synthetic(2, 3, CovarianceType::Diag, 0, &SyntheticOptions::default()).unwrap();
        assert!(sample_rows(&mixture, 0, 0..4, &mut [0.0; 11]).is_err());
    }
}
