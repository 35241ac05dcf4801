//! The M-step: computes a mixture from sufficient statistics.

use ndarray::{Array1, Array2, Array3, ArrayViewMut2};

use crate::covariance::below_diagonal;
use crate::{Cholesky, Covariances, Factors, Mixture, ModelError, Statistics, packed_index, packed_len};

/// The result of an M-step: the new mixture, and the components that received no rows.
#[derive(Clone, Debug, PartialEq)]
pub struct MStep {
    /// The maximiser of the expected complete-data log-likelihood, with `reg_covar` added to the diagonals.
    pub mixture: Mixture,
    /// Components that were empty, in ascending order; see [`m_step`] for their parameters.
    pub empty: Vec<usize>,
    /// Components of the statistics that the mixture lacks, in ascending order: those that
    /// [`m_step_with`](crate::m_step_with) dropped for lack of rows.
    pub dropped: Vec<usize>,
}

/// Maximises the expected complete-data log-likelihood given `statistics`.
///
/// Weights are `Σr / Σw`, means `centre + Σrz / Σr`, and covariances the central second moments with `reg_covar` added
/// to the diagonal (an absolute amount, as in scikit-learn). For tied, the pooled moments over the total weight; for
/// spherical, the mean of the column variances.
///
/// **Empty components.** A component with `Σr ≤ eps * Σw` counts as empty and is listed in [`MStep::empty`]. It keeps,
/// to the bit, its mean and covariance in `previous`. Without a previous mixture its mean is its centre; without one of
/// the same kind its covariance is the pooled covariance of the others. Its weight is `Σr / Σw`, usually 0, so that it
/// hardly contributes any more. The likelihood does not fall, because this is a generalised M-step.
///
/// **Zero variances.** A variance is the second moment about the centre less the squared shift of the mean. It counts
/// as zero if it is within its own rounding error: at most `n eps` times the moment about the centre (the drift of a
/// plain sum of `n` equal squares; at most `4096 eps`, since longer sums are made in blocks), or at most the square of
/// the floating-point spacing at the mean. With `reg_covar = 0` a zero variance is an error. So is a column that is a
/// combination of the columns before it up to a relative `max(n eps, 64 (d+1) eps)` of its variance, or that has too
/// few rows: otherwise the density would be fitted to rounding noise.
///
/// # Errors
/// [`ModelError`] if `reg_covar` is negative or not finite, the statistics contain no rows, `previous` has another
/// shape, a covariance is not positive definite even with `reg_covar`, a variance underflows, or a moment is not
/// finite.
///
/// Cost: `k*d²` flops for the moments and `k*d³/3` for the factors (full).
///
/// Source: Bishop 2006, eqs. 9.24 to 9.26, in moments about the centres.
///
/// ```
/// use gmm_model::{Covariances, Mixture, m_step, reference};
/// use ndarray::array;
///
/// let start = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0]))?;
/// let statistics = reference::statistics(&start, array![[1.0], [3.0]].view(), None);
/// let fit = m_step(&statistics, 0.0, Some(&start))?.mixture;
/// assert_eq!((fit.means()[[0, 0]], fit.covariances()), (2.0, &Covariances::Spherical(array![1.0])));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn m_step(statistics: &Statistics, reg_covar: f64, previous: Option<&Mixture>) -> Result<MStep, ModelError> {
    check(statistics, reg_covar, previous)?;
    let (k, d) = statistics.dim();
    let total: f64 = statistics.weight.iter().sum();
    let empty = empties(statistics);
    let mut shift = Array2::zeros((k, d));
    let mut means = statistics.centres.clone();
    for (c, &empty) in empty.iter().enumerate() {
        if !empty {
            let weight = statistics.weight[c];
            shift.row_mut(c).zip_mut_with(&statistics.first.row(c), |s, f| *s = f / weight);
            means.row_mut(c).zip_mut_with(&shift.row(c), |m, s| *m += s);
        } else if let Some(previous) = previous {
            means.row_mut(c).assign(&previous.means().row(c));
        }
    }
    let share = rounding_share(statistics.n_rows);
    let kept = previous.map(Mixture::covariances);
    let moments = Moments { statistics, shift, means: &means, empty: &empty, total, reg_covar, share };
    let covariances = match (statistics.kind, kept) {
        (crate::CovarianceType::Full, Some(Covariances::Full(kept))) => moments.full(Some(kept)),
        (crate::CovarianceType::Full, _) => moments.full(None),
        (crate::CovarianceType::Tied, _) => moments.tied(),
        (crate::CovarianceType::Diag, Some(Covariances::Diag(kept))) => moments.diag(Some(kept)),
        (crate::CovarianceType::Diag, _) => moments.diag(None),
        (crate::CovarianceType::Spherical, Some(Covariances::Spherical(kept))) => moments.spherical(Some(kept)),
        (crate::CovarianceType::Spherical, _) => moments.spherical(None),
    };
    let weights = Array1::from_iter(statistics.weight.iter().map(|w| w / total));
    let mixture = Mixture::new(weights, means, covariances)?;
    refuse_underflow(mixture.covariances(), &empty)?;
    if reg_covar == 0.0 {
        refuse_noise(&mixture, &empty, share, statistics.n_rows)?;
    }
    Ok(MStep { mixture, empty: (0..k).filter(|&c| empty[c]).collect(), dropped: Vec::new() })
}

/// Checks what every M-step needs.
pub(crate) fn check(statistics: &Statistics, reg_covar: f64, previous: Option<&Mixture>) -> Result<(), ModelError> {
    let (k, d) = statistics.dim();
    if !(reg_covar >= 0.0 && reg_covar.is_finite()) {
        let value = reg_covar.to_string();
        return Err(ModelError::Range { what: "reg_covar", value, must: "finite and not negative" });
    }
    if let Some(found) = previous.map(|p| p.means().dim()).filter(|&dim| dim != (k, d)) {
        let found = vec![found.0, found.1];
        return Err(ModelError::Shape { what: "means of the previous mixture", found, expected: vec![k, d] });
    }
    let total: f64 = statistics.weight.iter().sum();
    if total <= 0.0 {
        let must = "positive: the statistics contain no rows of positive weight";
        return Err(ModelError::Range { what: "total weight", value: total.to_string(), must });
    }
    Ok(())
}

/// Whether each component is empty: `Σr ≤ eps * Σw`.
pub(crate) fn empties(statistics: &Statistics) -> Vec<bool> {
    let total: f64 = statistics.weight.iter().sum();
    statistics.weight.iter().map(|&w| w <= f64::EPSILON * total).collect()
}

/// The fraction of a moment that may be rounding error.
pub(crate) fn rounding_share(n_rows: u64) -> f64 {
    f64::EPSILON * (n_rows as f64).clamp(4.0, 4096.0)
}

/// `about_centre − shift²`, or 0 if that is within its own rounding error.
pub(crate) fn variance(about_centre: f64, shift_squared: f64, mean: f64, share: f64) -> f64 {
    let v = about_centre - shift_squared;
    let spacing = f64::EPSILON * mean.abs();
    // An infinite value must stay infinite, so that it is reported.
    if v.is_finite() && v <= (share * about_centre).max(spacing * spacing) { 0.0 } else { v }
}

struct Moments<'a> {
    statistics: &'a Statistics,
    /// New mean minus centre, `(k, d)`; 0 for empty components.
    shift: Array2<f64>,
    means: &'a Array2<f64>,
    empty: &'a [bool],
    total: f64,
    reg_covar: f64,
    /// The fraction of a moment that may be rounding error.
    share: f64,
}

impl Moments<'_> {
    fn full(&self, kept: Option<&Array3<f64>>) -> Covariances {
        let (k, d) = self.statistics.dim();
        let mut all = Array3::zeros((k, d, d));
        for (c, second) in self.live(self.statistics.second.chunks_exact(packed_len(d))) {
            let (weight, shift) = (self.statistics.weight[c], self.shift.row(c));
            let shift = shift.as_slice().expect("row-major");
            let mut a = all.index_axis_mut(ndarray::Axis(0), c);
            for i in 0..d {
                let raw = &second[packed_index(i, 0)..][..=i];
                let mut row = a.row_mut(i);
                let row = row.as_slice_mut().expect("row-major");
                for ((v, raw), s) in row.iter_mut().zip(raw).zip(shift) {
                    *v = raw / weight - shift[i] * s;
                }
                row[i] = self.variance(raw[i] / weight, shift[i] * shift[i], self.means[[c, i]]);
            }
            finish(a);
        }
        let pooled = self.pooled(kept.is_some(), || Array2::zeros((d, d)), |c| all.index_axis(ndarray::Axis(0), c));
        for (c, mut a) in all.outer_iter_mut().enumerate() {
            match kept {
                Some(kept) if self.empty[c] => a.assign(&kept.index_axis(ndarray::Axis(0), c)),
                _ => {
                    if self.empty[c] {
                        a.assign(&pooled);
                    }
                    a.diag_mut().mapv_inplace(|v| v + self.reg_covar);
                }
            }
        }
        Covariances::Full(all)
    }

    fn tied(&self) -> Covariances {
        let (k, d) = self.statistics.dim();
        // The sum over components of Σr δδᵀ moves the pooled moments from the centres to the new means.
        let mut correction = vec![0.0; packed_len(d)];
        for c in 0..k {
            let (weight, shift) = (self.statistics.weight[c], self.shift.row(c));
            let shift = shift.as_slice().expect("row-major");
            for i in 0..d {
                let row = &mut correction[packed_index(i, 0)..][..=i];
                row.iter_mut().zip(shift).for_each(|(v, s)| *v += weight * shift[i] * s);
            }
        }
        let mut a = Array2::zeros((d, d));
        for i in 0..d {
            for j in 0..=i {
                let at = packed_index(i, j);
                let (raw, moved) = (self.statistics.second[at] / self.total, correction[at] / self.total);
                // The floating-point spacing at the mean nearest to 0: that of every component is at least as large.
                let nearest = || self.means.column(i).iter().fold(f64::INFINITY, |m, v| m.min(v.abs()));
                a[[i, j]] = if i == j { self.variance(raw, moved, nearest()) } else { raw - moved };
            }
        }
        finish(a.view_mut());
        a.diag_mut().mapv_inplace(|v| v + self.reg_covar);
        Covariances::Tied(a)
    }

    fn diag(&self, kept: Option<&Array2<f64>>) -> Covariances {
        let (k, d) = self.statistics.dim();
        let mut all = Array2::zeros((k, d));
        for (c, second) in self.live(self.statistics.second.chunks_exact(d)) {
            for (j, v) in all.row_mut(c).iter_mut().enumerate() {
                let shift = self.shift[[c, j]];
                *v = self.variance(second[j] / self.statistics.weight[c], shift * shift, self.means[[c, j]]);
            }
        }
        let pooled = self.pooled(kept.is_some(), || Array1::zeros(d), |c| all.row(c));
        for (c, mut row) in all.outer_iter_mut().enumerate() {
            match kept {
                Some(kept) if self.empty[c] => row.assign(&kept.row(c)),
                _ => {
                    if self.empty[c] {
                        row.assign(&pooled);
                    }
                    row += self.reg_covar;
                }
            }
        }
        Covariances::Diag(all)
    }

    fn spherical(&self, kept: Option<&Array1<f64>>) -> Covariances {
        let (k, d) = self.statistics.dim();
        let mut all = Array1::zeros(k);
        for (c, second) in self.live(self.statistics.second.iter()) {
            let (shift, mean) = (self.shift.row(c), self.means.row(c));
            let about_centre = second / self.statistics.weight[c];
            let farthest = mean.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
            all[c] = self.variance(about_centre, shift.dot(&shift), farthest) / d as f64;
        }
        let pooled = self.pooled(kept.is_some(), || ndarray::arr0(0.0), |c| ndarray::aview0(&all[c]));
        for (c, v) in all.iter_mut().enumerate() {
            *v = match kept {
                Some(kept) if self.empty[c] => kept[c],
                _ if self.empty[c] => pooled[()] + self.reg_covar,
                _ => *v + self.reg_covar,
            };
        }
        Covariances::Spherical(all)
    }

    fn variance(&self, about_centre: f64, shift_squared: f64, mean: f64) -> f64 {
        variance(about_centre, shift_squared, mean, self.share)
    }

    /// The components that are not empty, each with its item.
    fn live<T>(&self, items: impl Iterator<Item = T>) -> impl Iterator<Item = (usize, T)> {
        items.enumerate().filter(|(c, _)| !self.empty[*c])
    }

    /// The weighted average over the components that are not empty; zeros if no component needs it.
    fn pooled<'a, D: ndarray::Dimension>(
        &self,
        kept: bool,
        zero: impl Fn() -> ndarray::Array<f64, D>,
        value: impl Fn(usize) -> ndarray::ArrayView<'a, f64, D>,
    ) -> ndarray::Array<f64, D> {
        let mut sum = zero();
        if kept || !self.empty.contains(&true) {
            return sum;
        }
        let mut total = 0.0;
        for (c, weight) in self.live(self.statistics.weight.iter()) {
            sum.scaled_add(*weight, &value(c));
            total += weight;
        }
        sum / total
    }
}

/// Copies the lower triangle to the upper one. If a column has variance 0, sets its covariances to 0: they are only
/// rounding error, which could exceed a small `reg_covar`.
fn finish(mut a: ArrayViewMut2<'_, f64>) {
    let flat: Vec<bool> = a.diag().iter().map(|&v| v == 0.0).collect();
    below_diagonal(a.nrows(), |i, j| {
        let v = if flat[i] || flat[j] { 0.0 } else { a[[i, j]] };
        a[[i, j]] = v;
        a[[j, i]] = v;
    });
}

/// Errors if a variance is below the smallest normal number: it has lost precision, and its reciprocal overflows.
pub(crate) fn refuse_underflow(covariances: &Covariances, empty: &[bool]) -> Result<(), ModelError> {
    let check = |component: usize, column: usize, variance: f64| match variance {
        v if v < f64::MIN_POSITIVE => Err(ModelError::Underflow { component, column, variance }),
        _ => Ok(()),
    };
    let live = || (0..empty.len()).filter(|&c| !empty[c]);
    match covariances {
        Covariances::Full(all) => live().try_for_each(|c| {
            let a = all.index_axis(ndarray::Axis(0), c);
            a.diag().iter().enumerate().try_for_each(|(j, &v)| check(c, j, v))
        }),
        Covariances::Tied(a) => a.diag().iter().enumerate().try_for_each(|(j, &v)| check(0, j, v)),
        Covariances::Diag(all) => {
            live().try_for_each(|c| all.row(c).iter().enumerate().try_for_each(|(j, &v)| check(c, j, v)))
        }
        Covariances::Spherical(all) => live().try_for_each(|c| check(c, 0, all[c])),
    }
}

/// Errors if, without `reg_covar`, a pivot is within the rounding error of the moments: its column is then a linear
/// combination of others.
///
/// The error of a pivot grows with that of the columns before it. For collinear columns and enough rows, measured
/// pivots stay below 120 eps for d up to 60 and n up to 5000. With few rows they can be far larger, but then counting
/// decides: `n` rows about their mean span at most `n − 1` dimensions.
pub(crate) fn refuse_noise(mixture: &Mixture, empty: &[bool], share: f64, n_rows: u64) -> Result<(), ModelError> {
    let kind = mixture.covariance_type();
    let factors = match mixture.factors() {
        Factors::Full(all) => all.as_slice(),
        Factors::Tied(one) => std::slice::from_ref(one),
        Factors::Diag(_) | Factors::Spherical(_) => return Ok(()),
    };
    for (component, factor) in factors.iter().enumerate() {
        // An empty component kept its old covariance, which does not come from moments.
        if factors.len() == empty.len() && empty[component] {
            continue;
        }
        for column in 0..factor.dim() {
            if counts_as_noise(factor, column, share, n_rows) {
                let pivot = factor.at(column, column) * factor.at(column, column);
                return Err(ModelError::NotPositiveDefinite { component, column, pivot, kind });
            }
        }
    }
    Ok(())
}

/// Whether a pivot is within the rounding error of the moments; `share` is [`rounding_share`].
pub(crate) fn counts_as_noise(factor: &Cholesky, column: usize, share: f64, n_rows: u64) -> bool {
    let share = share.max(64.0 * (factor.dim() + 1) as f64 * f64::EPSILON);
    let row = factor.row(column);
    let pivot = row[column] * row[column];
    let variance: f64 = row.iter().map(|v| v * v).sum();
    pivot <= share * variance || (1..=column as u64 + 1).contains(&n_rows)
}
