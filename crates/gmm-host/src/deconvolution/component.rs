//! The parameters of a mixture as the passes over rows with measurement errors read them.

use gmm_model::{CovarianceType, Covariances, Mixture, packed_index, packed_len};
use ndarray::Array2;

use super::layout::Layout;

/// How a block is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Diagonal,
    Dense,
    Views,
}

/// One component.
#[derive(Clone, Copy)]
pub(super) struct Component<'a> {
    /// `(d,)`.
    pub(super) mean: &'a [f64],
    /// Packed `Σ`, `(d*(d+1)/2,)`; for [`Method::Diagonal`] the variances, `(d,)`.
    pub(super) covariance: &'a [f64],
    /// `Σ`, `(d, d)`; empty for [`Method::Diagonal`].
    pub(super) dense: &'a [f64],
}

/// All components.
pub(super) struct Parameters {
    pub(super) method: Method,
    pub(super) kind: CovarianceType,
    pub(super) k: usize,
    pub(super) d: usize,
    pub(super) log_weights: Vec<f64>,
    pub(super) weights: Vec<f64>,
    /// `(k, d)`.
    means: Vec<f64>,
    /// Of each component, or one for all if they are tied.
    covariances: Vec<f64>,
    dense: Vec<f64>,
}

impl Parameters {
    pub(super) fn new(mixture: &Mixture, layout: &Layout) -> Self {
        let (k, d) = mixture.means().dim();
        let kind = mixture.covariance_type();
        let method = match kind {
            _ if layout.has_views() => Method::Views,
            CovarianceType::Diag | CovarianceType::Spherical if layout.is_diagonal => Method::Diagonal,
            _ => Method::Dense,
        };
        let (mut covariances, mut dense) = (Vec::new(), Vec::new());
        match mixture.covariances() {
            Covariances::Diag(all) if method == Method::Diagonal => covariances.extend(all.iter()),
            Covariances::Spherical(all) if method == Method::Diagonal => {
                all.iter().for_each(|v| covariances.extend(std::iter::repeat_n(*v, d)));
            }
            all => {
                for c in 0..if kind == CovarianceType::Tied { 1 } else { k } {
                    let a: Array2<f64> = all.matrix(c, d);
                    (0..d).for_each(|i| covariances.extend((0..=i).map(|j| a[[i, j]])));
                    dense.extend(a.iter());
                }
            }
        }
        Self {
            method,
            kind,
            k,
            d,
            log_weights: (0..k).map(|c| mixture.log_weight(c)).collect(),
            weights: mixture.weights().to_vec(),
            means: mixture.means().iter().copied().collect(),
            covariances,
            dense,
        }
    }

    pub(super) fn component(&self, c: usize) -> Component<'_> {
        let d = self.d;
        let len = if self.method == Method::Diagonal { d } else { packed_len(d) };
        let at = if self.covariances.len() == len { 0 } else { c };
        let dense = if self.dense.is_empty() { &[] } else { &self.dense[at * d * d..][..d * d] };
        Component { mean: &self.means[c * d..][..d], covariance: &self.covariances[at * len..][..len], dense }
    }
}

impl Component<'_> {
    /// Adds the expected second moments of the true rows to `second`, those of the component in the packing of the kind.
    /// `sums` are the component's, as the method defines them.
    pub(super) fn add_second(&self, method: Method, kind: CovarianceType, sums: &[f64], second: &mut [f64]) {
        let d = self.mean.len();
        let (weight, sums) = (sums[0], &sums[1 + d..]);
        if method == Method::Diagonal {
            match kind {
                CovarianceType::Spherical => second[0] += sums.iter().sum::<f64>(),
                _ => second.iter_mut().zip(sums).for_each(|(total, v)| *total += v),
            }
            return;
        }
        let (outer, rest) = sums.split_at(packed_len(d));
        let sigma = Array2::from_shape_vec((d, d), self.dense.to_vec()).expect("d*d entries");
        let expected = match method {
            // N Σ, symmetric up to rounding.
            Method::Dense => Array2::from_shape_vec((d, d), rest.to_vec()).expect("d*d sums").dot(&sigma),
            _ => {
                let gram = Array2::from_shape_fn((d, d), |(i, j)| rest[packed_index(i.max(j), i.min(j))]);
                &sigma * weight - sigma.dot(&gram).dot(&sigma)
            }
        };
        for i in 0..d {
            for j in 0..=i {
                let value = outer[packed_index(i, j)] + 0.5 * (expected[[i, j]] + expected[[j, i]]);
                match kind {
                    CovarianceType::Full | CovarianceType::Tied => second[packed_index(i, j)] += value,
                    CovarianceType::Diag if i == j => second[i] += value,
                    CovarianceType::Spherical if i == j => second[0] += value,
                    _ => {}
                }
            }
        }
    }
}
