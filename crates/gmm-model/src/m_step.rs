//! The M-step: statistics in, mixture out.

use ndarray::{Array1, Array2};

use crate::mixture::{stack, unpack};
use crate::{CovarianceType, Covariances, Mixture, ModelError, Statistics, packed_index, packed_len};

/// A new mixture and the components that received no rows.
#[derive(Clone, Debug, PartialEq)]
pub struct MStep {
    /// The maximiser of the expected complete log-likelihood, with `reg_covar` on the diagonals.
    pub mixture: Mixture,
    /// Components that were empty, in ascending order; see [`m_step`] for what they got.
    pub empty: Vec<usize>,
}

/// Maximises the expected complete log-likelihood given `statistics`.
///
/// Weights are `Σr / Σw`, means `centre + Σrz / Σr`, covariances the centred second moments with `reg_covar` added to
/// the diagonal (an absolute amount, as in scikit-learn). For tied, the pooled moments over the total weight; for
/// spherical, the mean of the column variances.
///
/// **Empty components.** A component with `Σr ≤ eps * Σw` has no rows to speak of. It keeps the mean and covariance
/// that it has in `previous`; without a previous mixture it stays at its centre with the pooled covariance of the
/// others. Its weight becomes what is left, usually 0, and it no longer matters. It is listed in [`MStep::empty`].
/// The likelihood does not fall: keeping a component's parameters is a generalised M-step.
///
/// # Errors
/// [`ModelError`] where a covariance is not positive definite even with `reg_covar`, or a moment is not finite.
///
/// Cost: `k*d²` for the moments and `k*d³/3` for the factors (full).
pub fn m_step(statistics: &Statistics, reg_covar: f64, previous: Option<&Mixture>) -> Result<MStep, ModelError> {
    let (k, d) = statistics.dim();
    let total: f64 = statistics.weight.iter().sum();
    let empty: Vec<usize> = (0..k).filter(|&c| statistics.weight[c] <= f64::EPSILON * total).collect();
    let weights = Array1::from_iter(statistics.weight.iter().map(|w| w / total));
    let shift = Array2::from_shape_fn((k, d), |(c, j)| {
        if empty.contains(&c) { 0.0 } else { statistics.first[[c, j]] / statistics.weight[c] }
    });
    let means = &statistics.centres + &shift;
    let moments = Moments { statistics, shift: &shift, empty: &empty, total, reg_covar, previous };
    let covariances = match statistics.kind {
        CovarianceType::Full => moments.full(),
        CovarianceType::Tied => moments.tied(),
        CovarianceType::Diag => moments.diag()?,
        CovarianceType::Spherical => moments.spherical()?,
    };
    Ok(MStep { mixture: Mixture::new(weights, means, covariances)?, empty })
}

struct Moments<'a> {
    statistics: &'a Statistics,
    /// New mean less centre, `(k, d)`.
    shift: &'a Array2<f64>,
    empty: &'a [usize],
    total: f64,
    reg_covar: f64,
    previous: Option<&'a Mixture>,
}

impl Moments<'_> {
    fn full(&self) -> Covariances {
        let (k, d) = self.statistics.dim();
        let mut packed: Vec<Vec<f64>> = self
            .statistics
            .second
            .chunks_exact(packed_len(d))
            .enumerate()
            .map(|(c, s)| self.centred(s, self.statistics.weight[c], c))
            .collect();
        let pooled = self.pool(&packed);
        for &c in self.empty {
            packed[c] = match self.previous.map(Mixture::covariances) {
                // The previous covariance already holds reg_covar.
                Some(Covariances::Full(a)) => pack(|i, j| a[[c, i, j]] - if i == j { self.reg_covar } else { 0.0 }, d),
                _ => pooled.clone(),
            };
        }
        let matrices: Vec<_> = packed.iter().map(|p| self.regularised(p)).collect();
        debug_assert_eq!(matrices.len(), k);
        Covariances::Full(stack(&matrices, d))
    }

    fn tied(&self) -> Covariances {
        let (k, d) = self.statistics.dim();
        let weight = &self.statistics.weight;
        // Σ over components of Σr δδᵀ moves the pooled moments from the centres to the new means.
        let correction = |i, j| (0..k).map(|c| weight[c] * self.shift[[c, i]] * self.shift[[c, j]]).sum::<f64>();
        let packed = pack(|i, j| (self.statistics.second[packed_index(i, j)] - correction(i, j)) / self.total, d);
        Covariances::Tied(self.regularised(&packed))
    }

    fn diag(&self) -> Result<Covariances, ModelError> {
        let (k, d) = self.statistics.dim();
        let mut variances = Array2::zeros((k, d));
        for c in 0..k {
            for j in 0..d {
                let raw = self.statistics.second[c * d + j];
                variances[[c, j]] = self.variance(raw, self.statistics.weight[c], self.shift[[c, j]].powi(2));
            }
        }
        let pooled: Vec<f64> = (0..d).map(|j| self.average(|c| variances[[c, j]])).collect();
        for &c in self.empty {
            for j in 0..d {
                variances[[c, j]] = match self.previous.map(Mixture::covariances) {
                    Some(Covariances::Diag(a)) => a[[c, j]] - self.reg_covar,
                    _ => pooled[j],
                };
            }
        }
        variances += self.reg_covar;
        self.refuse_flat(variances.indexed_iter().map(|((c, j), &v)| (c, j, v)))?;
        Ok(Covariances::Diag(variances))
    }

    fn spherical(&self) -> Result<Covariances, ModelError> {
        let (k, d) = self.statistics.dim();
        let mut variances: Array1<f64> = (0..k)
            .map(|c| {
                let shift = self.shift.row(c);
                self.variance(self.statistics.second[c], self.statistics.weight[c], shift.dot(&shift)) / d as f64
            })
            .collect();
        let pooled = self.average(|c| variances[c]);
        for &c in self.empty {
            variances[c] = match self.previous.map(Mixture::covariances) {
                Some(Covariances::Spherical(a)) => a[c] - self.reg_covar,
                _ => pooled,
            };
        }
        variances += self.reg_covar;
        self.refuse_flat(variances.iter().enumerate().map(|(c, &v)| (c, 0, v)))?;
        Ok(Covariances::Spherical(variances))
    }

    /// `raw/weight − shift²`, or 0 where that is no more than its own rounding error.
    fn variance(&self, raw: f64, weight: f64, shift_squared: f64) -> f64 {
        let about_centre = raw / weight;
        let v = about_centre - shift_squared;
        if v <= 4.0 * f64::EPSILON * about_centre { 0.0 } else { v }
    }

    /// A variance of zero has no density; without `reg_covar` it must be reported, not divided by.
    fn refuse_flat(&self, all: impl Iterator<Item = (usize, usize, f64)>) -> Result<(), ModelError> {
        for (component, column, v) in all {
            if v <= 0.0 {
                let kind = self.statistics.kind;
                return Err(ModelError::NotPositiveDefinite { component, column, pivot: v, kind });
            }
        }
        Ok(())
    }

    /// Packed second moments of component `c` about its new mean.
    fn centred(&self, second: &[f64], weight: f64, c: usize) -> Vec<f64> {
        let shift = self.shift.row(c);
        pack(
            |i, j| {
                let raw = second[packed_index(i, j)];
                let product = shift[i] * shift[j];
                if i == j { self.variance(raw, weight, product) } else { raw / weight - product }
            },
            shift.len(),
        )
    }

    /// Weighted average over the components that are not empty.
    fn average(&self, value: impl Fn(usize) -> f64) -> f64 {
        let live = (0..self.statistics.weight.len()).filter(|c| !self.empty.contains(c));
        let (sum, weight) = live.fold((0.0, 0.0), |(s, w), c| {
            let weight = self.statistics.weight[c];
            (s + weight * value(c), w + weight)
        });
        sum / weight
    }

    fn pool(&self, packed: &[Vec<f64>]) -> Vec<f64> {
        if self.empty.is_empty() {
            return Vec::new();
        }
        (0..packed[0].len()).map(|i| self.average(|c| packed[c][i])).collect()
    }

    fn regularised(&self, packed: &[f64]) -> Array2<f64> {
        let mut a = unpack(packed, self.statistics.dim().1);
        a.diag_mut().mapv_inplace(|v| v + self.reg_covar);
        a
    }
}

fn pack(value: impl Fn(usize, usize) -> f64, d: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(packed_len(d));
    for i in 0..d {
        out.extend((0..=i).map(|j| value(i, j)));
    }
    out
}
