//! Unconstrained parameters: mixtures as points of ℝᵐ, for samplers and optimisers without constraints.

use gmm_model::{Cholesky, CovarianceType, Covariances, Factors, Mixture, ModelError, packed_index, packed_len};
use ndarray::{Array1, Array2, Array3, ArrayViewMut2};

use super::{Gradient, check_len};
use crate::Error;

/// A one-to-one map between ℝᵐ, `m = k − 1 + k*d + s`, and the mixtures of `k` components in `d` dimensions of one
/// covariance kind whose weights are all positive. `m` is [`Mixture::n_parameters`].
///
/// A point holds, in this order:
///
/// - `k − 1` log ratios of weights, `a_c = ln(w_c / w_{k−1})` for `c < k − 1`: the weights are the softmax of `(a, 0)`;
/// - `k*d` means in row-major order, unchanged;
/// - `s` scales in the packing of [`Statistics::second`](gmm_model::Statistics::second): for full and tied the lower
///   Cholesky factor in row-major order, with logarithms on its diagonal; for diag and spherical the log standard
///   deviations.
///
/// The map does not order components: relabelling them gives another point with the same likelihood.
///
/// [`log_jacobian`](Self::log_jacobian) converts a density over (weights, means, covariances) into one over points.
///
/// ```
/// use gmm_host::{CpuEngine, Likelihood, Unconstrained};
/// use gmm_model::{CovarianceType, Dataset, Precision};
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [1.0], [5.0], [6.5]])?;
/// let mut likelihood = Likelihood::new(&CpuEngine::new(1)?, &data, Precision::F64)?;
/// let map = Unconstrained::new(CovarianceType::Diag, 2, 1)?;
///
/// // The log posterior under a flat prior on weights, means and variances, and its gradient.
/// let point = [0.0, 0.5, 5.0, 0.0, 0.0];
/// let mut gradient = vec![0.0; map.dim()];
/// let value = likelihood.unconstrained(&map, &point, &mut gradient)? + map.log_jacobian(&point)?;
/// map.add_log_jacobian_gradient(&point, &mut gradient)?;
/// assert!(value.is_finite() && gradient.len() == 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unconstrained {
    kind: CovarianceType,
    k: usize,
    d: usize,
}

impl Unconstrained {
    /// The map for `k` components in `d` dimensions.
    ///
    /// # Errors
    /// [`ModelError::Shape`] if `k` or `d` is 0.
    pub fn new(kind: CovarianceType, k: usize, d: usize) -> Result<Self, Error> {
        if k == 0 || d == 0 {
            let expected = vec![k.max(1), d.max(1)];
            return Err(ModelError::Shape { what: "means", found: vec![k, d], expected }.into());
        }
        Ok(Self { kind, k, d })
    }

    /// The map for mixtures of the kind and shape of `mixture`.
    pub fn like(mixture: &Mixture) -> Self {
        let (k, d) = mixture.means().dim();
        Self { kind: mixture.covariance_type(), k, d }
    }

    /// Length `m` of a point.
    pub fn dim(&self) -> usize {
        self.k - 1 + self.k * self.d + self.kind.second_len(self.k, self.d)
    }

    /// The mixture at a point. Weights are normalised by construction; covariances are positive definite up to
    /// rounding.
    ///
    /// # Errors
    /// [`ModelError::Shape`] if the point has another length than [`dim`](Self::dim); [`ModelError::Range`] if a value
    /// is NaN or infinite; [`ModelError::NotFinite`] if a scale overflows; [`ModelError::NotPositiveDefinite`] if a
    /// scale is so small that the covariance is singular in f64.
    pub fn to_mixture(&self, point: &[f64]) -> Result<Mixture, Error> {
        let (means, scales) = self.parts(point)?;
        let weights: Array1<f64> = self.log_weights(point).into_iter().map(f64::exp).collect();
        let weights = &weights / weights.sum();
        let (k, d) = (self.k, self.d);
        let means = Array2::from_shape_vec((k, d), means.to_vec()).expect("k*d means");
        let variance = |log_sd: &f64| (2.0 * log_sd).exp();
        let covariances = match self.kind {
            CovarianceType::Full => {
                let mut all = Array3::zeros((k, d, d));
                all.outer_iter_mut().zip(scales.chunks_exact(packed_len(d))).for_each(|(a, l)| product(a, l));
                Covariances::Full(all)
            }
            CovarianceType::Tied => {
                let mut a = Array2::zeros((d, d));
                product(a.view_mut(), scales);
                Covariances::Tied(a)
            }
            CovarianceType::Diag => {
                let variances = scales.iter().map(variance).collect();
                Covariances::Diag(Array2::from_shape_vec((k, d), variances).expect("k*d scales"))
            }
            CovarianceType::Spherical => Covariances::Spherical(scales.iter().map(variance).collect()),
        };
        Ok(Mixture::new(weights, means, covariances)?)
    }

    /// The point of a mixture, `(dim(),)`.
    ///
    /// # Errors
    /// [`Error::Option`] if the mixture has another kind; [`ModelError::Shape`] if it has another shape;
    /// [`ModelError::Range`] if a weight is 0, because its logarithm is infinite.
    pub fn from_mixture(&self, mixture: &Mixture) -> Result<Vec<f64>, Error> {
        self.check(mixture)?;
        if let Some(c) = mixture.weights().iter().position(|w| *w == 0.0) {
            let must = "of positive weight: a weight of 0 is at infinity";
            return Err(ModelError::Range { what: "a component", value: c.to_string(), must }.into());
        }
        let last = mixture.log_weight(self.k - 1);
        let mut point = Vec::with_capacity(self.dim());
        point.extend((0..self.k - 1).map(|c| mixture.log_weight(c) - last));
        point.extend(mixture.means());
        match mixture.factors() {
            Factors::Full(all) => all.iter().for_each(|l| point.extend(logged(l))),
            Factors::Tied(l) => point.extend(logged(l)),
            Factors::Diag(sd) => point.extend(sd.iter().map(|sd| sd.ln())),
            Factors::Spherical(sd) => point.extend(sd.iter().map(|sd| sd.ln())),
        }
        Ok(point)
    }

    /// ln |det J| of the map at a point, where `J` is the derivative of (the first `k − 1` weights, the means, the
    /// lower triangles of the covariances or the variances) with respect to the point. Computed from log weights, so
    /// weights that underflow cause no error.
    ///
    /// Weights: `Σ_c ln w_c`. A full or tied covariance: `d ln 2 + Σ_i (d + 1 − i) ln L_ii`, `i` from 0. A variance:
    /// `ln 2 + 2 ln σ`. (Stan Reference Manual, "Transforms of Constrained Variables", for covariance matrices.)
    ///
    /// # Errors
    /// [`ModelError::Shape`] if the point has another length than [`dim`](Self::dim); [`ModelError::Range`] if a value
    /// is NaN or infinite.
    pub fn log_jacobian(&self, point: &[f64]) -> Result<f64, Error> {
        let (_, scales) = self.parts(point)?;
        let weights: f64 = if self.k == 1 { 0.0 } else { self.log_weights(point).iter().sum() };
        let ln_2 = std::f64::consts::LN_2;
        let mut sum = weights;
        self.log_scales(|at, factor| {
            sum += factor * scales[at];
            // One ln 2 for each logarithm: the derivative of the squared diagonal entry or standard deviation.
            sum += ln_2;
        });
        Ok(sum)
    }

    /// Adds the gradient of [`log_jacobian`](Self::log_jacobian) with respect to the point to `out`, `(dim(),)`.
    ///
    /// # Errors
    /// As for [`log_jacobian`](Self::log_jacobian); [`ModelError::Shape`] if `out` has another length.
    pub fn add_log_jacobian_gradient(&self, point: &[f64], out: &mut [f64]) -> Result<(), Error> {
        self.parts(point)?;
        check_len("the slice for the gradient", out.len(), self.dim())?;
        let log_weights = self.log_weights(point);
        for (slot, log_weight) in out.iter_mut().zip(&log_weights).take(self.k - 1) {
            *slot += 1.0 - self.k as f64 * log_weight.exp();
        }
        let scales = &mut out[self.k - 1 + self.k * self.d..];
        self.log_scales(|at, factor| scales[at] += factor);
        Ok(())
    }

    /// Converts a gradient with respect to log-weights, means and scales at `mixture` into one with respect to its
    /// point, and writes it into `out`, `(dim(),)`.
    ///
    /// # Errors
    /// [`ModelError::Shape`] or [`Error::Option`] if shapes or kinds differ.
    pub fn gradient(&self, mixture: &Mixture, gradient: &Gradient, out: &mut [f64]) -> Result<(), Error> {
        self.check(mixture)?;
        check_len("the slice for the gradient", out.len(), self.dim())?;
        let (k, d) = (self.k, self.d);
        check_len("the gradient's scales", gradient.scales.len(), self.kind.second_len(k, d))?;
        check_len("the gradient's means", gradient.means.len(), k * d)?;
        check_len("the gradient's log-weights", gradient.log_weights.len(), k)?;
        let all = gradient.log_weights.iter().take(k - 1).chain(&gradient.means).chain(&gradient.scales);
        out.iter_mut().zip(all).for_each(|(slot, v)| *slot = *v);
        let scales = &mut out[k - 1 + k * d..];
        let mut diagonal = |l: &Cholesky, at: usize| {
            (0..d).for_each(|i| scales[at + packed_index(i, i)] *= l.at(i, i));
        };
        match mixture.factors() {
            Factors::Full(all) => all.iter().enumerate().for_each(|(c, l)| diagonal(l, c * packed_len(d))),
            Factors::Tied(l) => diagonal(l, 0),
            // These are already derivatives with respect to log standard deviations.
            Factors::Diag(_) | Factors::Spherical(_) => {}
        }
        Ok(())
    }

    /// Calls `visit` for each logarithm among the scales with its index and its coefficient in the log-Jacobian.
    fn log_scales(&self, mut visit: impl FnMut(usize, f64)) {
        let len = self.kind.second_len(self.k, self.d);
        match self.kind {
            CovarianceType::Full | CovarianceType::Tied => {
                for first in (0..len).step_by(packed_len(self.d)) {
                    (0..self.d).for_each(|i| visit(first + packed_index(i, i), (self.d + 1 - i) as f64));
                }
            }
            CovarianceType::Diag | CovarianceType::Spherical => (0..len).for_each(|at| visit(at, 2.0)),
        }
    }

    /// The log weights of a point, `(k,)`: the logarithm of the softmax of the log ratios and 0.
    fn log_weights(&self, point: &[f64]) -> Vec<f64> {
        let ratios = point[..self.k - 1].iter().copied().chain([0.0]);
        let top = ratios.clone().fold(0.0, f64::max);
        let total = top + ratios.clone().map(|a| (a - top).exp()).sum::<f64>().ln();
        ratios.map(|a| a - total).collect()
    }

    /// Checks a point and returns its means and scales.
    fn parts<'a>(&self, point: &'a [f64]) -> Result<(&'a [f64], &'a [f64]), Error> {
        check_len("the point", point.len(), self.dim())?;
        if let Some(at) = point.iter().position(|v| !v.is_finite()) {
            let value = format!("{} at {at}", point[at]);
            return Err(ModelError::Range { what: "the point", value, must: "finite" }.into());
        }
        Ok(point[self.k - 1..].split_at(self.k * self.d))
    }

    fn check(&self, mixture: &Mixture) -> Result<(), Error> {
        if mixture.covariance_type() != self.kind {
            let (value, must) = (mixture.covariance_type().to_string(), format!("{}, as the map is for", self.kind));
            return Err(Error::Option { option: "the covariance kind", value, must });
        }
        let (found, expected) = (mixture.means().dim(), (self.k, self.d));
        if found != expected {
            let (found, expected) = (vec![found.0, found.1], vec![expected.0, expected.1]);
            return Err(ModelError::Shape { what: "means", found, expected }.into());
        }
        Ok(())
    }
}

/// A packed factor, with the diagonal replaced by its logarithms.
fn logged(l: &Cholesky) -> Vec<f64> {
    let mut packed = l.packed().to_vec();
    (0..l.dim()).for_each(|i| packed[packed_index(i, i)] = l.at(i, i).ln());
    packed
}

/// Writes `L Lᵀ` into `out`, `(d, d)`, for a packed factor with logarithms on its diagonal.
fn product(mut out: ArrayViewMut2<'_, f64>, scales: &[f64]) {
    let d = out.nrows();
    let mut packed = scales.to_vec();
    (0..d).for_each(|i| packed[packed_index(i, i)] = scales[packed_index(i, i)].exp());
    let row = |i: usize| &packed[packed_index(i, 0)..][..=i];
    for i in 0..d {
        for j in 0..=i {
            let value: f64 = row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum();
            out[[i, j]] = value;
            out[[j, i]] = value;
        }
    }
}
