//! Reconstructs sums from the mixture that an M-step made of them.

use gmm_model::{CovarianceType, Mixture, Statistics, packed_index, packed_len};
use ndarray::{ArrayView1, ArrayView2};

use super::Stepped;

/// Returns the sums about `start`'s means from which an M-step makes the given mixture.
pub(super) fn sums_again(stepped: &Stepped, start: &Mixture, n: u64, reg_covar: f64) -> Statistics {
    let (mixture, kind) = (&stepped.mixture, start.covariance_type());
    let (k, d) = mixture.means().dim();
    let mut out = Statistics::zero(kind, start.means().to_owned());
    out.n_rows = n;
    out.total_weight = n as f64;
    out.log_likelihood = stepped.mean_log_likelihood * n as f64;
    let mut shifts = &mixture.means() - &start.means();
    for c in 0..k {
        let weight = mixture.weights()[c] * n as f64;
        out.weight[c] = weight;
        shifts.row_mut(c).mapv_inplace(|v| v * weight);
    }
    for c in 0..k {
        let weight = out.weight[c].max(f64::MIN_POSITIVE);
        let first = shifts.row(c);
        // Tied: there is one matrix for all rows, added once; each component adds the term of its mean's shift.
        let whole = if kind == CovarianceType::Tied && c > 0 { 0.0 } else { 1.0 };
        let rows = if kind == CovarianceType::Tied { n as f64 } else { weight };
        let (at, len) = place(kind, c, d);
        let of = (mixture, c, reg_covar);
        add_second(&mut out.second[at..at + len], of, whole * rows, first, weight);
    }
    out.first = shifts;
    out
}

/// Start and length of component `c`'s second moments.
const fn place(kind: CovarianceType, c: usize, d: usize) -> (usize, usize) {
    match kind {
        CovarianceType::Full => (c * packed_len(d), packed_len(d)),
        CovarianceType::Tied => (0, packed_len(d)),
        CovarianceType::Diag => (c * d, d),
        CovarianceType::Spherical => (c, 1),
    }
}

/// Adds `rows (Σ − reg I) + first firstᵀ / weight`, in the kind's packing.
fn add_second(
    out: &mut [f64],
    (mixture, c, reg_covar): (&Mixture, usize, f64),
    rows: f64,
    first: ArrayView1<'_, f64>,
    weight: f64,
) {
    use gmm_model::Covariances::{Diag, Full, Spherical, Tied};
    let d = first.len();
    let entry = |sigma: f64, i: usize, j: usize| {
        let reg = if i == j { reg_covar } else { 0.0 };
        rows * (sigma - reg) + first[i] * first[j] / weight
    };
    match mixture.covariances() {
        Full(all) => (0..d).for_each(|i| (0..=i).for_each(|j| out[packed_index(i, j)] += entry(all[[c, i, j]], i, j))),
        Tied(a) => (0..d).for_each(|i| (0..=i).for_each(|j| out[packed_index(i, j)] += entry(a[[i, j]], i, j))),
        Diag(a) => (0..d).for_each(|i| out[i] += entry(a[[c, i]], i, i)),
        Spherical(a) => out[0] += (0..d).map(|i| entry(a[c], i, i)).sum::<f64>(),
    }
}

/// The relative error of first moments reconstructed from means: the rounding of the means relative to their shift.
pub(super) fn rounding_of_means(means: ArrayView2<'_, f64>, truth: &Statistics) -> f64 {
    let weighted = |(c, mean): (usize, ArrayView1<'_, f64>)| truth.weight[c].powi(2) * mean.dot(&mean);
    let size = means.outer_iter().enumerate().map(weighted).sum::<f64>().sqrt();
    let moved = truth.first.iter().map(|v| v * v).sum::<f64>().sqrt();
    4.0 * f64::EPSILON * size / moved.max(f64::MIN_POSITIVE)
}
