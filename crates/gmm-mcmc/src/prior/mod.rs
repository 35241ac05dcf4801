//! Priors of weights, means and covariances: densities, gradients, and defaults that scale with the data.

mod conjugate;
mod defaults;
mod options;
mod triangle;

use std::f64::consts::{LN_2, PI};

use gmm_host::Data;
use gmm_model::{CovarianceType, packed_index, packed_len};
use libm::lgamma;
use serde::Serialize;

use crate::Error;
pub use conjugate::ConjugateParts;
pub use options::{CovariancesPrior, MeansPrior, PerColumn, PriorOptions, WeightsPrior};
use triangle::Triangle;

/// A checked prior over mixtures of `k` components in `d` dimensions of one covariance kind.
///
/// Its density is over (the first `k − 1` weights, the means, the lower triangles of the covariances or the variances):
/// the coordinates in which [`Unconstrained::log_jacobian`](gmm_host::Unconstrained::log_jacobian) is defined. It is
/// normalised unless it is improper. Components are independent and identically distributed, so relabelling does not
/// change it.
///
/// **Defaults**, for the parts that [`PriorOptions`] leaves out:
///
/// | part | prior | source |
/// | --- | --- | --- |
/// | weights | Dirichlet, concentration 1 | uniform over distributions |
/// | means | normal about the middle of each column's range, sd its range | Richardson and Green 1997 |
/// | full, tied | inverse-Wishart, `d + 2` degrees of freedom, scale `diag(v) k^(−2/d)` | Fraley and Raftery 2007 |
/// | diag | inverse-gamma, shape 3/2, scale `v k^(−2/d) / 2` | the marginals of that |
/// | spherical | the same with the mean of `v` over the columns | |
/// | lkj, if requested | `eta` 2, half-normals of scale `√v` | Lewandowski, Kurowicka and Joe 2009 |
/// | half-normal, if requested | scale `√v` | |
///
/// where `v` are the variances of the columns, weighted by the row weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prior {
    kind: CovarianceType,
    k: usize,
    d: usize,
    /// Concentration of the symmetric Dirichlet of the weights.
    concentration: f64,
    /// Mean and standard deviation of the normal for each column, `(d, 2)`; `None` for a flat prior.
    means: Option<Vec<[f64; 2]>>,
    scales: Scales,
    /// The part of the log density that does not depend on the point.
    constant: f64,
}

/// The prior of one covariance.
#[derive(Clone, Debug, PartialEq, Serialize)]
enum Scales {
    /// Degrees of freedom, and the diagonal of the scale matrix, `(d,)`.
    InverseWishart { nu: f64, scale: Vec<f64> },
    /// Shape of the LKJ prior, and the scales of the half-normals, `(d,)`.
    Lkj { eta: f64, scale: Vec<f64> },
    /// Shape, and the scale for each variance of a component, `(d,)` or `(1,)`.
    InverseGamma { shape: f64, scale: Vec<f64> },
    /// The scale for each standard deviation of a component, `(d,)` or `(1,)`.
    HalfNormal { scale: Vec<f64> },
}

impl Prior {
    /// The prior of `options` for mixtures of `k` components of kind `kind` over the columns of `data`. Missing parts
    /// are filled in from the data.
    ///
    /// Cost: two reads of the data ([`Data::walk`]); rows on a GPU are copied to the host in blocks for that.
    ///
    /// # Errors
    /// [`Error::Prior`] if a value is out of range or of the wrong length, a prior does not apply to the covariance
    /// kind, a flat prior would make the posterior improper, or a default needs the spread of a constant column.
    /// [`Error::Option`] if `k` is 0. For rows on a GPU also as for [`Data::walk`].
    pub fn new<'a>(
        options: &PriorOptions,
        kind: CovarianceType,
        k: usize,
        data: impl Into<Data<'a>>,
    ) -> Result<Self, Error> {
        if k == 0 {
            return crate::error::refuse("k", 0, "at least 1");
        }
        let data = data.into();
        let d = data.dim().1;
        let columns = defaults::columns(data)?;
        let concentration = defaults::concentration(options.weights.as_ref())?;
        let means = defaults::means(options.means.as_ref(), k, &columns)?;
        let scales = defaults::scales(options.covariances.as_ref(), kind, k, &columns)?;
        let covariances = if kind == CovarianceType::Tied { 1 } else { k };
        let constant = lgamma(k as f64 * concentration) - k as f64 * lgamma(concentration)
            + k as f64 * means.iter().flatten().map(|[_, sd]| -0.5 * (2.0 * PI).ln() - sd.ln()).sum::<f64>()
            + covariances as f64 * scales.constant(d);
        Ok(Self { kind, k, d, concentration, means, scales, constant })
    }

    /// The covariance kind.
    pub const fn kind(&self) -> CovarianceType {
        self.kind
    }

    /// `(k, d)`.
    pub const fn dim(&self) -> (usize, usize) {
        (self.k, self.d)
    }

    /// Describes the values (for spherical covariances, the rows) at which the posterior is improper; `None` if it is
    /// proper.
    ///
    /// A half-normal has positive density at a standard deviation of 0. If a component collapses onto two rows of equal
    /// value, the posterior density grows like the inverse of its standard deviation, so its integral is infinite. Most
    /// samplers do not find such a narrow spike, so this is meant for a warning. The posterior is proper with one
    /// component, with a tied covariance, and with priors of the inverse-gamma family.
    ///
    /// Cost: sorts the values of each column, if the prior is half-normal. Rows on a GPU are all copied to the host for
    /// that; if the host lacks the memory, returns `None`.
    ///
    /// # Errors
    /// None for rows on the host; for rows on a GPU those of [`gmm_host::DeviceData::fetch`], except lack of memory.
    pub fn improper_at<'a>(&self, data: impl Into<Data<'a>>) -> Result<Option<String>, Error> {
        let vanishing = matches!(self.scales, Scales::Lkj { .. } | Scales::HalfNormal { .. });
        if self.k == 1 || self.kind == CovarianceType::Tied || !vanishing {
            return Ok(None);
        }
        match defaults::repeated(data.into(), self.kind == CovarianceType::Spherical) {
            // The result is only used for a warning, for which a run should not fail.
            Err(Error::Host(gmm_host::Error::Memory { .. })) => Ok(None),
            other => other,
        }
    }

    /// The log density at a point of the unconstrained space, `(m,)`, without the Jacobian of the map. Adds its
    /// gradient with respect to the point to `gradient`, `(m,)`.
    ///
    /// Cost: `O(k*d³)` for inverse-Wishart, else `O(k*d²)`.
    ///
    /// # Panics
    /// If a slice has another length than the points of the map.
    pub fn log_density(&self, point: &[f64], mut gradient: Option<&mut [f64]>) -> f64 {
        let (k, d) = (self.k, self.d);
        let (ratios, rest) = point.split_at(k - 1);
        let (means, scales) = rest.split_at(k * d);
        assert_eq!(scales.len(), self.kind.second_len(k, d), "the point's length");
        let mut sum = self.constant + self.weights_at(ratios, gradient.as_deref_mut());
        sum += self.means_at(means, gradient.as_deref_mut().map(|g| &mut g[k - 1..][..k * d]));
        let mut slots = gradient.map(|g| &mut g[k - 1 + k * d..]);
        let each = match self.kind {
            CovarianceType::Full | CovarianceType::Tied => packed_len(d),
            CovarianceType::Diag => d,
            CovarianceType::Spherical => 1,
        };
        for (c, part) in scales.chunks_exact(each).enumerate() {
            sum += self.scales.at(part, d, slots.as_deref_mut().map(|g| &mut g[c * each..][..each]));
        }
        sum
    }

    /// `(α − 1) Σ ln w`; the gradient with respect to the log ratios is `(α − 1)(1 − k w)`.
    fn weights_at(&self, ratios: &[f64], gradient: Option<&mut [f64]>) -> f64 {
        let excess = self.concentration - 1.0;
        if excess == 0.0 {
            return 0.0;
        }
        let top = ratios.iter().copied().fold(0.0, f64::max);
        let all = || ratios.iter().copied().chain([0.0]);
        let total = top + all().map(|a| (a - top).exp()).sum::<f64>().ln();
        if let Some(gradient) = gradient {
            let slots = gradient.iter_mut().zip(ratios);
            slots.for_each(|(slot, a)| *slot += excess * (1.0 - self.k as f64 * (a - total).exp()));
        }
        excess * all().map(|a| a - total).sum::<f64>()
    }

    fn means_at(&self, means: &[f64], mut gradient: Option<&mut [f64]>) -> f64 {
        let Some(columns) = &self.means else { return 0.0 };
        let mut sum = 0.0;
        for (i, (value, [mean, sd])) in means.iter().zip(columns.iter().cycle()).enumerate() {
            let z = (value - mean) / sd;
            sum -= 0.5 * z * z;
            if let Some(gradient) = &mut gradient {
                gradient[i] -= z / sd;
            }
        }
        sum
    }
}

impl Scales {
    /// The part of the log density that does not depend on the covariance.
    fn constant(&self, d: usize) -> f64 {
        let half_normals = |scale: &[f64]| scale.iter().map(|s| 0.5 * (2.0 / PI).ln() - s.ln()).sum::<f64>();
        match self {
            Self::InverseWishart { nu, scale } => {
                let half_ln_det = 0.5 * scale.iter().map(|s| s.ln()).sum::<f64>();
                nu * half_ln_det - 0.5 * nu * d as f64 * LN_2 - lgamma_multivariate(d, 0.5 * nu)
            }
            // A factor of 2 for each variance: dσ² = 2 σ dσ.
            Self::Lkj { eta, scale } => half_normals(scale) - d as f64 * LN_2 - ln_lkj_integral(d, *eta),
            Self::InverseGamma { shape, scale } => scale.iter().map(|s| shape * s.ln() - lgamma(*shape)).sum(),
            Self::HalfNormal { scale } => half_normals(scale) - scale.len() as f64 * LN_2,
        }
    }

    /// The log density of one covariance, without the constant. Adds its gradient to `gradient`.
    fn at(&self, part: &[f64], d: usize, gradient: Option<&mut [f64]>) -> f64 {
        match self {
            Self::InverseWishart { nu, scale } => inverse_wishart(*nu, scale, &Triangle::new(part, d), part, gradient),
            Self::Lkj { eta, scale } => lkj(*eta, scale, &Triangle::new(part, d), part, gradient),
            Self::InverseGamma { shape, scale } => each(part, scale, gradient, |log_sd, scale| {
                let ratio = scale * (-2.0 * log_sd).exp();
                (-2.0 * (shape + 1.0) * log_sd - ratio, -2.0 * (shape + 1.0) + 2.0 * ratio)
            }),
            Self::HalfNormal { scale } => each(part, scale, gradient, |log_sd, scale| {
                let z = log_sd.exp() / scale;
                (-0.5 * z * z - log_sd, -z * z - 1.0)
            }),
        }
    }
}

/// Sums `at` over the log standard deviations and their scales; `at` returns a log density and its derivative.
fn each(part: &[f64], scale: &[f64], gradient: Option<&mut [f64]>, at: impl Fn(f64, f64) -> (f64, f64)) -> f64 {
    let found: Vec<(f64, f64)> = part.iter().zip(scale).map(|(&log_sd, &s)| at(log_sd, s)).collect();
    if let Some(gradient) = gradient {
        gradient.iter_mut().zip(&found).for_each(|(slot, (_, slope))| *slot += slope);
    }
    found.iter().map(|(value, _)| value).sum()
}

/// `−(ν + d + 1)/2 ln |Σ| − ½ tr(S Σ⁻¹)`. The gradient of the trace term with respect to `L` is the lower triangle of
/// `L⁻ᵀ (L⁻¹ S L⁻ᵀ)`.
fn inverse_wishart(nu: f64, scale: &[f64], l: &Triangle, part: &[f64], gradient: Option<&mut [f64]>) -> f64 {
    let d = scale.len();
    let factor = nu + d as f64 + 1.0;
    let mut b = l.whiten(scale);
    let trace: f64 = (0..d).map(|i| b[i * d + i]).sum();
    let half_ln_det: f64 = (0..d).map(|i| part[packed_index(i, i)]).sum();
    if let Some(gradient) = gradient {
        l.solve_transposed(&mut b);
        for i in 0..d {
            for j in 0..i {
                gradient[packed_index(i, j)] += b[i * d + j];
            }
            gradient[packed_index(i, i)] += b[i * d + i] * l.at(i, i) - factor;
        }
    }
    -factor * half_ln_det - 0.5 * trace
}

/// Half-normals for the standard deviations `τ` and LKJ for the correlations `R`, as a density of `Σ = diag(τ) R
/// diag(τ)`: `−½ Σ (τ/s)² + (η − 1) ln |R| − d Σ ln τ`, because `|∂Σ/∂(τ, R)| = 2^d Π τ^d`, and `ln |R| = 2 Σ (ln L_ii
/// − ln τ_i)`.
fn lkj(eta: f64, scale: &[f64], l: &Triangle, part: &[f64], mut gradient: Option<&mut [f64]>) -> f64 {
    let d = scale.len();
    let excess = 2.0 * (eta - 1.0);
    let mut sum = 0.0;
    for (i, s) in scale.iter().enumerate() {
        let variance = l.variance(i);
        sum -= 0.5 * variance / (s * s) + 0.5 * (excess + d as f64) * variance.ln();
        sum += excess * part[packed_index(i, i)];
        if let Some(gradient) = &mut gradient {
            let slope = 1.0 / (s * s) + (excess + d as f64) / variance;
            (0..i).for_each(|j| gradient[packed_index(i, j)] -= slope * l.at(i, j));
            gradient[packed_index(i, i)] += excess - slope * l.at(i, i) * l.at(i, i);
        }
    }
    sum
}

/// ln Γ_d(a), the multivariate gamma function.
fn lgamma_multivariate(d: usize, a: f64) -> f64 {
    let pairs = (d * (d - 1)) as f64 / 4.0;
    pairs * PI.ln() + (0..d).map(|i| lgamma(a - 0.5 * i as f64)).sum::<f64>()
}

/// ln ∫ |R|^(η−1) dR over correlation matrices (Lewandowski, Kurowicka and Joe 2009, equation 16).
fn ln_lkj_integral(d: usize, eta: f64) -> f64 {
    (1..d)
        .map(|i| {
            let rest = (d - i) as f64;
            let b = eta + 0.5 * (rest - 1.0);
            (2.0 * eta - 2.0 + rest) * rest * LN_2 + rest * (2.0 * lgamma(b) - lgamma(2.0 * b))
        })
        .sum()
}
