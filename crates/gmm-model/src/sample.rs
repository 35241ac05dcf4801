//! Sampling rows from a mixture. Row `i` depends only on the mixture, the seed and `i`.

use std::ops::Range;

use ndarray::{Array1, Array2};

use crate::{Draws, Factors, Mixture, ModelError};

/// Draws `n` rows, `(n, d)`, and the components that they came from, `(n,)`.
///
/// A larger `n` leaves the first rows unchanged. Cost: `n*d²/2` flops for full and tied, else `n*d`.
///
/// # Errors
/// [`ModelError::Range`] if `n` is 0; [`ModelError::Memory`] if the rows do not fit in memory.
///
/// ```
/// use gmm_model::{Covariances, Mixture, sample};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![0.5, 0.5], array![[-9.0], [9.0]], Covariances::Spherical(array![1.0, 1.0]))?;
/// let (rows, labels) = sample(&mixture, 100, 7)?;
/// assert!(rows.column(0).iter().zip(&labels).all(|(&x, &label)| (x > 0.0) == (label == 1)));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn sample(mixture: &Mixture, n: usize, seed: u64) -> Result<(Array2<f64>, Array1<usize>), ModelError> {
    let d = mixture.n_features();
    if n == 0 {
        return Err(ModelError::Range { what: "n_samples", value: n.to_string(), must: "at least 1" });
    }
    let too_many = || ModelError::Memory { what: "the sample", wanted: 8 * n as u128 * (d as u128 + 1) };
    let mut rows = zeros(n.checked_mul(d).ok_or_else(too_many)?, 0.0).ok_or_else(too_many)?;
    let mut labels = zeros(n, 0).ok_or_else(too_many)?;
    sample_range(mixture, seed, 0..n as u64, &mut rows, &mut labels)?;
    let rows = Array2::from_shape_vec((n, d), rows).expect("n*d numbers were taken");
    Ok((rows, Array1::from_vec(labels)))
}

fn zeros<T: Copy>(len: usize, zero: T) -> Option<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).ok()?;
    out.resize(len, zero);
    Some(out)
}

/// Writes rows `range` of the infinite sample that [`sample`] returns the beginning of into `rows`, `(range.len(), d)`
/// in row-major order, and their components into `labels`, `(range.len(),)`.
///
/// Any division of the rows into ranges gives the same bits. Allocates `k + d` numbers.
///
/// # Errors
/// [`ModelError::Shape`] if the length of a buffer does not match the range.
pub fn sample_range(
    mixture: &Mixture,
    seed: u64,
    range: Range<u64>,
    rows: &mut [f64],
    labels: &mut [usize],
) -> Result<(), ModelError> {
    let d = mixture.n_features();
    let len = range.end.saturating_sub(range.start) as usize;
    if labels.len() != len {
        return Err(ModelError::Shape { what: "labels", found: vec![labels.len()], expected: vec![len] });
    }
    if len.checked_mul(d) != Some(rows.len()) {
        return Err(ModelError::Shape { what: "rows", found: vec![rows.len()], expected: vec![len, d] });
    }
    let cumulative = cumulative(mixture);
    let mut z = vec![0.0; d];
    let mut draws = Draws::for_purpose("sample", seed, 0);
    // Every row takes the same number of uniforms, so one seek is enough for the whole range.
    let per_row = 1 + Draws::normal_uniforms(d) as u64;
    draws.seek(range.start.wrapping_mul(per_row));
    for (row, label) in rows.chunks_exact_mut(d).zip(labels) {
        let c = draws.weighted_index(&cumulative);
        draws.fill_normal(&mut z);
        *label = c;
        match mixture.factors() {
            Factors::Full(all) => all[c].multiply_lower(&z, row),
            Factors::Tied(one) => one.multiply_lower(&z, row),
            Factors::Diag(sd) => row.iter_mut().zip(&z).zip(sd.row(c)).for_each(|((x, z), sd)| *x = sd * z),
            Factors::Spherical(sd) => row.iter_mut().zip(&z).for_each(|(x, z)| *x = sd[c] * z),
        }
        row.iter_mut().zip(mixture.means().row(c)).for_each(|(x, mean)| *x += mean);
    }
    Ok(())
}

fn cumulative(mixture: &Mixture) -> Vec<f64> {
    let sum = mixture.weights().into_iter().scan(0.0, |sum, w| {
        *sum += w;
        Some(*sum)
    });
    sum.collect()
}
