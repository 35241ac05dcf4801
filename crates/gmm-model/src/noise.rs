//! A uniform component for rows that belong to no Gaussian component: noise (Banfield and Raftery 1993).

use faer::{Mat, Side};
use ndarray::{Array2, ArrayView1, ArrayView2};
use serde::{Deserialize, Serialize};

use crate::{Draws, Mixture, ModelError, reference};

/// The noise component of a mixture: with the Gaussian mixture `g` beside it the density is
/// `p(x) = w0 / V + (1 − w0) g(x)`.
///
/// `V` is a constant of the data, the hypervolume of the region that they lie in. The density of the noise is `1 / V` for
/// every row, also for one outside that region, as in mclust: a row far from all others is noise. Over the whole space
/// `p` therefore does not integrate to 1; over the region it does, up to the tails of `g`.
///
/// The weights of the [`Mixture`] sum to 1: they are those of a row that is not noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// `w0`, the share of noise, from 0 to 1.
    pub weight: f64,
    /// `ln V`.
    pub log_volume: f64,
    /// The region of volume `V`, from which noise is drawn; `None` if the volume was given without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<NoiseRegion>,
}

/// A box, along the columns or along other orthogonal axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseRegion {
    /// The least coordinate along each axis, `(d,)`.
    pub lower: Vec<f64>,
    /// The largest coordinate along each axis, `(d,)`.
    pub upper: Vec<f64>,
    /// The axes, if they are not those of the columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<NoiseRotation>,
}

/// The axes of a [`NoiseRegion`]: the coordinates of `x` are `axes (x − centre)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseRotation {
    /// The origin of the coordinates, `(d,)`.
    pub centre: Vec<f64>,
    /// Orthonormal axes, `(d, d)`, one per row.
    pub axes: Vec<Vec<f64>>,
}

impl Noise {
    /// Number of free parameters of a noise component, as mclust counts: its weight and its volume.
    pub const N_PARAMETERS: usize = 2;

    /// Noise of share `weight` in a region.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn new(weight: f64, region: NoiseRegion) -> Result<Self, ModelError> {
        let noise = Self { weight, log_volume: region.log_volume(), region: Some(region) };
        let d = noise.region.as_ref().map_or(0, |region| region.lower.len());
        noise.check(d)?;
        Ok(noise)
    }

    /// Checks the numbers, for mixtures of `d` columns.
    ///
    /// # Errors
    /// [`ModelError::Range`] if the weight is not between 0 and 1, or the volume is not positive and finite;
    /// [`ModelError::Shape`] and [`ModelError::Range`] if the region has another number of columns or is empty.
    pub fn check(&self, d: usize) -> Result<(), ModelError> {
        let range = |what, value: f64, must| Err(ModelError::Range { what, value: value.to_string(), must });
        if !(0.0..=1.0).contains(&self.weight) {
            return range("noise weight", self.weight, "from 0 to 1");
        }
        if !self.log_volume.is_finite() {
            return range("logarithm of the noise volume", self.log_volume, "finite");
        }
        let Some(NoiseRegion { lower, upper, rotation }) = &self.region else { return Ok(()) };
        let mut lengths = vec![lower.len(), upper.len()];
        if let Some(NoiseRotation { centre, axes }) = rotation {
            lengths.extend([centre.len(), axes.len()].into_iter().chain(axes.iter().map(Vec::len)));
        }
        if let Some(&found) = lengths.iter().find(|len| **len != d) {
            return Err(ModelError::Shape { what: "noise region", found: vec![found], expected: vec![d] });
        }
        if let Some((low, _)) = lower.iter().zip(upper).find(|(a, b)| !(a.is_finite() && b.is_finite() && a < b)) {
            return range("lower end of the noise region", *low, "finite and below the upper one");
        }
        let numbers = rotation.iter().flat_map(|r| r.centre.iter().chain(r.axes.iter().flatten()));
        match numbers.into_iter().find(|v| !v.is_finite()) {
            Some(&v) => range("number in the noise region", v, "finite"),
            None => Ok(()),
        }
    }

    /// `ln(w0 / V)`, −∞ for a weight of 0.
    pub fn log_joint(&self) -> f64 {
        self.weight.ln() - self.log_volume
    }

    /// `ln(1 − w0)`, which is added to the log weight of every Gaussian component.
    pub fn log_rest(&self) -> f64 {
        (-self.weight).ln_1p()
    }

    /// What the posterior of a row depends on.
    pub fn terms(&self) -> NoiseTerms {
        NoiseTerms { weight: self.weight, log_joint: self.log_joint(), log_rest: self.log_rest() }
    }

    /// Turns log densities of the Gaussian mixture into those of the mixture with this noise.
    pub fn add_to(&self, log_densities: &mut [f64]) {
        let terms = self.terms();
        log_densities.iter_mut().for_each(|density| *density = terms.posterior(*density).0);
    }

    /// The naive reference of a row, `(d,)`: `ln p(x)` and the responsibilities, `(k + 1,)`, of which the last is that of
    /// the noise.
    pub fn reference(&self, mixture: &Mixture, x: ArrayView1<'_, f64>) -> (f64, Vec<f64>) {
        let rest = self.log_rest();
        let of = |c| rest + reference::log_joint(mixture, c, x);
        let joint: Vec<f64> = (0..mixture.n_components()).map(of).chain([self.log_joint()]).collect();
        let log_density = reference::log_sum_exp(&joint);
        (log_density, joint.iter().map(|v| (v - log_density).exp()).collect())
    }

    /// Replaces those of the rows `first..` of a sample, `(.., d)` in row-major order, that are noise by draws from the
    /// region, and their labels by `k`. Which rows are noise depends only on weight, seed and the row's index.
    ///
    /// # Errors
    /// [`ModelError::Range`] if there is no region.
    ///
    /// # Panics
    /// If the lengths of rows and labels disagree.
    pub fn overwrite(
        &self,
        k: usize,
        seed: u64,
        first: u64,
        rows: &mut [f64],
        labels: &mut [usize],
    ) -> Result<(), ModelError> {
        let Some(NoiseRegion { lower, upper, rotation }) = &self.region else {
            let must = "given by a region, such as that of the rows of a fit: noise of a given volume cannot be drawn";
            return Err(ModelError::Range { what: "noise", value: "a volume only".to_owned(), must });
        };
        let d = lower.len();
        assert_eq!(rows.len(), labels.len() * d, "d numbers of each row");
        let mut draws = Draws::for_purpose("noise", seed, 0);
        draws.seek(first.wrapping_mul(1 + d as u64));
        let mut at = vec![0.0; d];
        for (row, label) in rows.chunks_exact_mut(d).zip(labels) {
            let is_noise = draws.uniform() < self.weight;
            for ((at, a), b) in at.iter_mut().zip(lower).zip(upper) {
                *at = a + (b - a) * draws.uniform();
            }
            if !is_noise {
                continue;
            }
            *label = k;
            match rotation {
                None => row.copy_from_slice(&at),
                Some(NoiseRotation { centre, axes }) => {
                    row.copy_from_slice(centre);
                    for (axis, at) in axes.iter().zip(&at) {
                        row.iter_mut().zip(axis).for_each(|(x, a)| *x += a * at);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The logarithms of a [`Noise`] component, for many rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseTerms {
    weight: f64,
    log_joint: f64,
    log_rest: f64,
}

impl NoiseTerms {
    /// `1 − w0`.
    pub fn rest(self) -> f64 {
        1.0 - self.weight
    }

    /// `ln p(x)`, the probability that the row is noise, and that it is not, from `ln g(x)`. If both densities are 0, the
    /// probability is `w0`.
    pub fn posterior(self, log_density: f64) -> (f64, f64, f64) {
        let (noise, rest) = (self.log_joint, self.log_rest + log_density);
        let top = noise.max(rest);
        if top == f64::NEG_INFINITY {
            return (top, self.weight, 1.0 - self.weight);
        }
        let (a, b) = ((noise - top).exp(), (rest - top).exp());
        (top + (a + b).ln(), a / (a + b), b / (a + b))
    }
}

impl NoiseRegion {
    /// `ln V`, the sum of the logarithms of the lengths.
    pub fn log_volume(&self) -> f64 {
        self.lower.iter().zip(&self.upper).map(|(a, b)| (b - a).ln()).sum()
    }
}

/// The principal axes of a covariance, `(d, d)`, one per row: its eigenvectors. `None` if it is not finite.
pub fn principal_axes(covariance: ArrayView2<'_, f64>) -> Option<Array2<f64>> {
    let d = covariance.nrows();
    let eigen = Mat::from_fn(d, d, |i, j| covariance[[i, j]]).self_adjoint_eigen(Side::Lower).ok()?;
    let vectors = eigen.U();
    Some(Array2::from_shape_fn((d, d), |(axis, j)| vectors[(j, axis)]))
}
