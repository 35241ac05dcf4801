//! The update of the posterior: the M-step of variational Bayes.

use ndarray::{Array1, Array2, Array3, Axis};

use super::{BayesPrior, Posterior};
use crate::covariance::below_diagonal;
use crate::m_step::{check, rounding_share, variance};
use crate::{CovarianceType, Covariances, Mixture, ModelError, PriorScale, Statistics, packed_index, packed_len};

impl BayesPrior {
    /// The posterior given the statistics of a pass; `reg_covar` is added to the variances of the rows of each component,
    /// as in scikit-learn. Only with `reg_covar = 0` does the bound never fall.
    ///
    /// A component without rows has the prior as its posterior.
    ///
    /// # Errors
    /// [`ModelError`] if the prior does not fit the statistics, there are no rows, or a number overflows.
    ///
    /// Cost: as for [`m_step`](crate::m_step()).
    ///
    /// Source: Bishop 2006, eqs. 10.58 to 10.63, in moments about the centres.
    ///
    /// ```
    /// use gmm_model::bayes::{BayesPrior, WeightPrior};
    /// use gmm_model::{Covariances, CovarianceType, Mixture, PriorScale, reference};
    /// use ndarray::array;
    ///
    /// let prior = BayesPrior {
    ///     weights: WeightPrior::Dirichlet { concentration: 1.0 },
    ///     mean: array![0.0],
    ///     mean_precision: 1.0,
    ///     degrees_of_freedom: 1.0,
    ///     scale: PriorScale::Variance(1.0),
    /// };
    /// let start = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0]))?;
    /// let statistics = reference::statistics(&start, array![[1.0], [3.0], [2.0]].view(), None);
    /// let posterior = prior.update(&statistics, 0.0)?;
    /// assert_eq!(posterior.mixture().means(), array![[1.5]]);
    /// # Ok::<(), gmm_model::ModelError>(())
    /// ```
    pub fn update(&self, statistics: &Statistics, reg_covar: f64) -> Result<Posterior, ModelError> {
        check(statistics, reg_covar, None)?;
        let d = statistics.dim().1;
        self.check(statistics.kind, d)?;
        let mean_precision = Array1::from_iter(statistics.weight.iter().map(|n| self.mean_precision + n));
        let mut means = statistics.centres.clone();
        for (c, mut mean) in means.outer_iter_mut().enumerate() {
            for j in 0..d {
                let from_prior = self.mean_precision * (self.mean[j] - statistics.centres[[c, j]]);
                mean[j] += (from_prior + statistics.first[[c, j]]) / mean_precision[c];
            }
        }
        let sums = Sums { prior: self, statistics, reg_covar, share: rounding_share(statistics.n_rows) };
        let (degrees_of_freedom, covariances) = sums.covariances();
        let weights = self.weights.update(&statistics.weight);
        let mixture = Mixture::new(weights.mean(), means, covariances)?;
        Ok(Posterior { prior: self.clone(), weights, mean_precision, degrees_of_freedom, mixture })
    }

    /// The posterior given rows of total weight `total_weight` whose responsibilities reproduce `mixture`: weights, means
    /// and covariances of the components' rows are those of the mixture. An iteration can start from it.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn update_from(&self, mixture: &Mixture, total_weight: f64) -> Result<Posterior, ModelError> {
        let (k, d) = mixture.means().dim();
        let kind = mixture.covariance_type();
        let mut statistics = Statistics::zero(kind, mixture.means().to_owned());
        statistics.weight = mixture.weights().iter().map(|w| w * total_weight).collect();
        statistics.total_weight = total_weight;
        let count = &statistics.weight;
        let lower = |a: ndarray::ArrayView2<'_, f64>, n: f64, out: &mut [f64]| {
            (0..d).for_each(|i| (0..=i).for_each(|j| out[packed_index(i, j)] = n * a[[i, j]]));
        };
        match mixture.covariances() {
            Covariances::Full(all) => {
                let each = statistics.second.chunks_exact_mut(packed_len(d));
                all.outer_iter().zip(count).zip(each).for_each(|((a, n), out)| lower(a, *n, out));
            }
            Covariances::Tied(a) => lower(a.view(), total_weight, &mut statistics.second),
            Covariances::Diag(all) => {
                (0..k * d).for_each(|i| statistics.second[i] = count[i / d] * all[[i / d, i % d]]);
            }
            Covariances::Spherical(all) => {
                (0..k).for_each(|c| statistics.second[c] = count[c] * d as f64 * all[c]);
            }
        }
        self.update(&statistics, 0.0)
    }
}

struct Sums<'a> {
    prior: &'a BayesPrior,
    statistics: &'a Statistics,
    reg_covar: f64,
    /// The fraction of a moment that may be rounding error.
    share: f64,
}

impl Sums<'_> {
    /// `ν` and `C/ν` of the posteriors: one for tied, else one per component.
    fn covariances(&self) -> (Array1<f64>, Covariances) {
        let Self { prior, statistics, .. } = *self;
        let (k, d) = statistics.dim();
        let counts = Array1::from_vec(statistics.weight.clone());
        let nu = if statistics.kind == CovarianceType::Tied {
            Array1::from_elem(1, k as f64 * prior.degrees_of_freedom + counts.sum())
        } else {
            prior.degrees_of_freedom + counts
        };
        let covariances = match &prior.scale {
            PriorScale::Matrix(scale) if statistics.kind == CovarianceType::Tied => {
                let mut sum = scale * k as f64;
                self.add_scatter(&mut sum, &statistics.second, &(0..k).collect::<Vec<_>>());
                Covariances::Tied(mirrored(sum / nu[0]))
            }
            PriorScale::Matrix(scale) => {
                let mut all = Array3::zeros((k, d, d));
                for (c, mut out) in all.outer_iter_mut().enumerate() {
                    let mut sum = scale.clone();
                    self.add_scatter(&mut sum, &statistics.second[c * packed_len(d)..][..packed_len(d)], &[c]);
                    out.assign(&mirrored(sum / nu[c]));
                }
                Covariances::Full(all)
            }
            PriorScale::Variances(scale) => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| {
                (scale[j] + self.squares(c, j, statistics.second[c * d + j])) / nu[c]
            })),
            PriorScale::Variance(scale) => {
                Covariances::Spherical(Array1::from_shape_fn(k, |c| (scale + self.mean_squares(c)) / nu[c]))
            }
        };
        (nu, covariances)
    }

    /// Adds to the lower triangle `Σ r (x − x̄)(x − x̄)ᵀ + N reg_covar I + (βN/(β + N)) (x̄ − m)(x̄ − m)ᵀ` of some
    /// components, whose moments about their centres are summed in `second`.
    fn add_scatter(&self, sum: &mut Array2<f64>, second: &[f64], of: &[usize]) {
        let d = self.statistics.dim().1;
        let live: Vec<(f64, Array1<f64>, Array1<f64>, f64)> = of.iter().filter_map(|&c| self.moved(c)).collect();
        let total: f64 = live.iter().map(|(n, ..)| n).sum();
        if total == 0.0 {
            return;
        }
        for i in 0..d {
            let mut row = sum.row_mut(i);
            let row = &mut row.as_slice_mut().expect("row-major")[..i];
            row.iter_mut().zip(&second[packed_index(i, 0)..]).for_each(|(v, second)| *v += second);
            for (n, shift, away, share) in &live {
                let (down, across) = (n * shift[i], share * away[i]);
                let columns = shift.iter().zip(away);
                row.iter_mut().zip(columns).for_each(|(v, (shift, away))| *v += across * away - down * shift);
            }
            let moved: f64 = live.iter().map(|(n, shift, ..)| n * shift[i] * shift[i]).sum();
            let apart: f64 = live.iter().map(|(_, _, away, share)| share * away[i] * away[i]).sum();
            let nearest = live.iter().fold(f64::INFINITY, |m: f64, (_, _, away, _)| m.min(self.mean_of(away, i)));
            let central = variance(second[packed_index(i, i)] / total, moved / total, nearest, self.share);
            sum[[i, i]] += total * (central + self.reg_covar) + apart;
        }
    }

    /// Of a component with rows: `N`, `x̄ − centre`, `x̄ − m` and `βN/(β + N)`.
    fn moved(&self, c: usize) -> Option<(f64, Array1<f64>, Array1<f64>, f64)> {
        let Self { prior, statistics, .. } = self;
        let n = statistics.weight[c];
        (n > 0.0).then(|| {
            let shift = statistics.first.index_axis(Axis(0), c).mapv(|f| f / n);
            let away = &statistics.centres.index_axis(Axis(0), c) - &prior.mean + &shift;
            (n, shift, away, prior.mean_precision * n / (prior.mean_precision + n))
        })
    }

    /// `|x̄|` in column `j`, from `x̄ − m`.
    fn mean_of(&self, away: &Array1<f64>, j: usize) -> f64 {
        (self.prior.mean[j] + away[j]).abs()
    }

    /// As [`add_scatter`](Self::add_scatter), one variance of diag.
    fn squares(&self, c: usize, j: usize, second: f64) -> f64 {
        self.moved(c).map_or(0.0, |(n, shift, away, share)| {
            let central = variance(second / n, shift[j] * shift[j], self.mean_of(&away, j), self.share);
            n * (central + self.reg_covar) + share * away[j] * away[j]
        })
    }

    /// As [`add_scatter`](Self::add_scatter), the mean over the columns.
    fn mean_squares(&self, c: usize) -> f64 {
        let d = self.statistics.dim().1;
        self.moved(c).map_or(0.0, |(n, shift, away, share)| {
            let farthest = (0..d).fold(0.0, |m: f64, j| m.max(self.mean_of(&away, j)));
            let (about, moved) = (self.statistics.second[c] / n, shift.dot(&shift));
            let central = variance(about, moved, farthest, self.share) / d as f64;
            n * (central + self.reg_covar) + share * away.dot(&away) / d as f64
        })
    }
}

/// A symmetric matrix from its lower triangle.
fn mirrored(mut a: Array2<f64>) -> Array2<f64> {
    below_diagonal(a.nrows(), |i, j| a[[j, i]] = a[[i, j]]);
    a
}
