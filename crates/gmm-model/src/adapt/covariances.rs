//! Adapted covariances: see [`adapt`](super::adapt).

use ndarray::{Array1, Array2, ArrayView1, Axis};

use super::{AdaptRule, share};
use crate::{Covariances, Mixture, ModelError, Statistics, packed_index, packed_len};

/// The covariances about the adapted `means`, `(k, d)`.
pub(super) fn adapted(
    background: &Mixture,
    statistics: &Statistics,
    means: &Array2<f64>,
    (relevance, rule): (f64, AdaptRule),
) -> Result<Covariances, ModelError> {
    let kind = background.covariance_type();
    if statistics.kind != kind {
        let must = "of the background's covariance kind for variances";
        return Err(ModelError::Range { what: "kind of the statistics", value: statistics.kind.to_string(), must });
    }
    let d = background.n_features();
    let component = |c: usize| {
        let n = statistics.weight[c];
        let e = if n > 0.0 { &statistics.first.row(c) / n } else { Array1::zeros(d) };
        Component { n, alpha: share(n, relevance), delta: &means.row(c) - &background.means().row(c), e, rule }
    };
    Ok(match background.covariances() {
        Covariances::Full(old) => {
            let mut all = old.clone();
            for (c, mut a) in all.outer_iter_mut().enumerate().filter(|(c, _)| statistics.weight[*c] > 0.0) {
                let (of, second) = (component(c), &statistics.second[c * packed_len(d)..][..packed_len(d)]);
                for i in 0..d {
                    for j in 0..=i {
                        a[[i, j]] = of.entry(second[packed_index(i, j)], a[[i, j]], i, j);
                        a[[j, i]] = a[[i, j]];
                    }
                }
            }
            Covariances::Full(all)
        }
        Covariances::Diag(old) => {
            let mut all = old.clone();
            for (c, mut row) in all.outer_iter_mut().enumerate().filter(|(c, _)| statistics.weight[*c] > 0.0) {
                let of = component(c);
                let second = ArrayView1::from(&statistics.second[c * d..][..d]);
                row.iter_mut().enumerate().for_each(|(j, v)| *v = of.entry(second[j], *v, j, j));
            }
            Covariances::Diag(all)
        }
        Covariances::Spherical(old) => {
            // The mean over columns of what diag would have.
            let of = |c: usize| component(c).mean_variance(statistics.second[c], old[c]);
            let held = |c: usize| if statistics.weight[c] > 0.0 { of(c) } else { old[c] };
            Covariances::Spherical((0..old.len_of(Axis(0))).map(held).collect())
        }
        Covariances::Tied(_) => {
            let must = "full, diag or spherical: a shared covariance has no rows of one component";
            return Err(ModelError::Range { what: "kind of the adapted variances", value: kind.to_string(), must });
        }
    })
}

/// One component's rows.
struct Component {
    /// Their weight, above 0.
    n: f64,
    alpha: f64,
    /// Their mean, less the background's, `(d,)`.
    e: Array1<f64>,
    /// The adapted mean, less the background's, `(d,)`.
    delta: Array1<f64>,
    rule: AdaptRule,
}

impl Component {
    /// Entry `(i, j)` of the covariance, from `Σ r z_i z_j` and the background's entry.
    ///
    /// The rows' part is their own covariance and the distance of their mean from the new one, both of which are positive
    /// semidefinite.
    fn entry(&self, second: f64, old: f64, i: usize, j: usize) -> f64 {
        let own = second / self.n - self.e[i] * self.e[j];
        let own = if i == j { own.max(0.0) } else { own };
        let (left, right) = (self.e[i] - self.delta[i], self.e[j] - self.delta[j]);
        self.mix(own + left * right, old, self.delta[i] * self.delta[j])
    }

    /// The mean of the columns' variances, from `Σ r |z|²` and the background's variance.
    fn mean_variance(&self, second: f64, old: f64) -> f64 {
        let d = self.e.len() as f64;
        let own = (second / self.n - self.e.dot(&self.e)).max(0.0);
        let left = &self.e - &self.delta;
        self.mix((own + left.dot(&left)) / d, old, self.delta.dot(&self.delta) / d)
    }

    fn mix(&self, of_rows: f64, old: f64, moved: f64) -> f64 {
        let of_background = match self.rule {
            AdaptRule::Reynolds => old + moved,
            AdaptRule::Kaldi => old,
        };
        self.alpha * of_rows + (1.0 - self.alpha) * of_background
    }
}
