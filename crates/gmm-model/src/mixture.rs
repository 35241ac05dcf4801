//! A Gaussian mixture: checked when constructed, then immutable.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, ArrayView3, Axis};

use crate::covariance::below_diagonal;
use crate::error::expect_shape;
use crate::factor_analysis::check_number;
use crate::statistics::fnv1a;
use crate::{Cholesky, CovarianceModel, CovarianceType, Covariances, FactorLoadings, ModelError};

pub(crate) const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// Largest difference of the weights' sum from 1 (as in scikit-learn). Weights often come from text.
const WEIGHT_SUM_TOLERANCE: f64 = 1e-6;

/// Largest difference between entries (i, j) and (j, i) of a covariance, relative to the geometric mean of the two
/// variances.
const SYMMETRY_TOLERANCE: f64 = 1e-9;

/// Factored covariances, from which densities are evaluated: lower Cholesky factors, or standard deviations.
#[derive(Clone, Debug, PartialEq)]
pub enum Factors {
    /// One factor per component.
    Full(Vec<Cholesky>),
    /// One factor for all components.
    Tied(Cholesky),
    /// Standard deviations, `(k, d)`.
    Diag(Array2<f64>),
    /// Standard deviations, `(k,)`.
    Spherical(Array1<f64>),
}

/// Weights, means and covariances of a Gaussian mixture with `k` components in `d` dimensions, checked and factored.
///
/// Always `f64`, with all arrays in row-major order. A component may have weight zero; its log weight is −∞, so it does
/// not contribute to any density.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    weights: Array1<f64>,
    means: Array2<f64>,
    covariances: Covariances,
    factors: Factors,
    log_normalizers: Array1<f64>,
    /// Those of a mixture of factor analysers.
    loadings: Option<FactorLoadings>,
}

impl Mixture {
    /// Checks and factors the parameters: `weights` is `(k,)`, `means` is `(k, d)`, `covariances` has the shape of its
    /// kind.
    ///
    /// Weights whose sum differs from 1 by at most 1e-6 (they often come from text) are divided by their sum; if the
    /// difference is within rounding, they are stored unchanged, to the bit.
    ///
    /// Cost: `k*d³/3` flops for full covariances.
    ///
    /// # Errors
    /// [`ModelError`] if shapes disagree, a value is not finite, a weight is negative, the weights do not sum to 1
    /// within 1e-6, or a covariance is not symmetric or not positive definite (with component and pivot).
    pub fn new(weights: Array1<f64>, means: Array2<f64>, covariances: Covariances) -> Result<Self, ModelError> {
        let (k, d) = means.dim();
        if k == 0 || d == 0 {
            return Err(ModelError::Shape { what: "means", found: vec![k, d], expected: vec![k.max(1), d.max(1)] });
        }
        expect_shape("weights", weights.shape(), &[k])?;
        check_weights(&weights)?;
        check_means(&means)?;
        check_symmetric(&covariances, k, d)?;
        Self::of_checked(normalise(weights.as_standard_layout().into_owned()), means, covariances)
    }

    /// Factors parameters that need no other check, such as those of a marginal mixture.
    ///
    /// # Errors
    /// [`ModelError`] if a shape disagrees, a variance is not positive, or a covariance is not positive definite.
    pub(crate) fn of_checked(
        weights: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
    ) -> Result<Self, ModelError> {
        let (k, d) = means.dim();
        let covariances = row_major(covariances);
        let factors = factor(&covariances, k, d)?;
        let log_normalizers = Array1::from_shape_fn(k, |c| -0.5 * d as f64 * LN_2PI - half_ln_det(&factors, c, d));
        let means = means.as_standard_layout().into_owned();
        Ok(Self { weights, means, covariances, factors, log_normalizers, loadings: None })
    }

    /// The mixture of factor analysers whose full covariances have these factors: see [`new`](Self::new).
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`with_loadings`](Self::with_loadings).
    pub fn of_loadings(weights: Array1<f64>, means: Array2<f64>, loadings: FactorLoadings) -> Result<Self, ModelError> {
        Self::new(weights, means, Covariances::Full(loadings.covariances()))?.with_loadings(loadings)
    }

    /// The same mixture, with these factors of its full covariances. Cost: `k*d²*h` flops.
    ///
    /// # Errors
    /// [`ModelError`] if a shape disagrees, the covariances are not full, a uniqueness is not positive, or
    /// `Λ Λᵀ + diag(ψ)` differs from a covariance by more than 1e-6 of the deviations of its columns.
    pub fn with_loadings(self, loadings: FactorLoadings) -> Result<Self, ModelError> {
        loadings.check(self.matrices("factors")?)?;
        Ok(Self { loadings: Some(loadings), ..self })
    }

    /// The mixture whose full covariances have `h` factors and are nearest to these: as the M-step makes them from
    /// components that have these covariances. Uniquenesses are at least `least`, `(d,)`.
    ///
    /// Cost: up to 8 eigendecompositions of `(d, d)` for each component.
    ///
    /// # Errors
    /// [`ModelError`] if the covariances are not full, or `h` is 0 or not below `d`.
    pub fn reduced_to_factors(&self, h: usize, least: ArrayView1<'_, f64>) -> Result<Self, ModelError> {
        check_number(h, self.n_features())?;
        expect_shape("smallest uniquenesses", least.shape(), &[self.n_features()])?;
        let loadings = FactorLoadings::nearest(self.matrices("factors")?, h, least);
        Self::of_loadings(self.weights.clone(), self.means.clone(), loadings)
    }

    /// The full covariances, `(k, d, d)`, for `what`.
    fn matrices(&self, what: &'static str) -> Result<ArrayView3<'_, f64>, ModelError> {
        match &self.covariances {
            Covariances::Full(all) => Ok(all.view()),
            other => {
                Err(ModelError::Range { what, value: other.kind().to_string(), must: "used with full covariances" })
            }
        }
    }

    /// A hash of covariance kind and all bits of the parameters (FNV-1a, 64 bit), never 0. Equal mixtures have equal
    /// ones.
    pub fn fingerprint(&self) -> u64 {
        let Self { weights, means, covariances, .. } = self;
        let numbers = weights.iter().chain(means).chain(covariances.values());
        let shape = [covariances.kind() as u8].into_iter().chain((means.ncols() as u64).to_le_bytes());
        fnv1a(shape.chain(numbers.flat_map(|v| v.to_le_bytes()))).max(1)
    }

    /// Number of components `k`.
    pub fn n_components(&self) -> usize {
        self.means.nrows()
    }

    /// Number of dimensions `d`.
    pub fn n_features(&self) -> usize {
        self.means.ncols()
    }

    /// The covariance kind.
    pub const fn covariance_type(&self) -> CovarianceType {
        self.covariances.kind()
    }

    /// The covariance kind, and the number of factors if there are some.
    pub fn covariance_model(&self) -> CovarianceModel {
        CovarianceModel { kind: self.covariance_type(), factors: self.loadings().map(FactorLoadings::n_factors) }
    }

    /// Component weights, `(k,)`; they sum to 1.
    pub fn weights(&self) -> ArrayView1<'_, f64> {
        self.weights.view()
    }

    /// Component means, `(k, d)`.
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// Component covariances in the shape of their kind.
    pub const fn covariances(&self) -> &Covariances {
        &self.covariances
    }

    /// Loadings and uniquenesses of a mixture of factor analysers; `None` for every other mixture.
    pub const fn loadings(&self) -> Option<&FactorLoadings> {
        self.loadings.as_ref()
    }

    /// Cholesky factors or standard deviations of the covariances.
    pub const fn factors(&self) -> &Factors {
        &self.factors
    }

    /// `−(d/2) ln 2π − ½ ln det Σ_c`, the log density of component `c` at its own mean.
    pub fn log_normalizer(&self, c: usize) -> f64 {
        self.log_normalizers[c]
    }

    /// `ln w_c`, which is −∞ for a weight of zero.
    pub fn log_weight(&self, c: usize) -> f64 {
        self.weights[c].ln()
    }

    /// Σ_c w_c μ_c, the mean of the mixture's density, `(d,)`.
    pub fn mean(&self) -> Array1<f64> {
        self.weights.dot(&self.means)
    }

    /// The mixture of component `c` only, with weight 1.
    ///
    /// # Errors
    /// [`ModelError::Range`] if `c` is `k` or more.
    pub fn component(&self, c: usize) -> Result<Self, ModelError> {
        self.selected(&[c], Array1::ones(1))
    }

    /// The same mixture with its components in another order: component `i` of the result is component `order[i]`.
    ///
    /// # Errors
    /// [`ModelError::Range`] if `order` is not a permutation of `0..k`.
    pub fn permuted(&self, order: &[usize]) -> Result<Self, ModelError> {
        let mut seen = vec![false; self.n_components()];
        let new = |&c: &usize| seen.get_mut(c).is_some_and(|s| !std::mem::replace(s, true));
        if order.len() != self.n_components() || !order.iter().all(new) {
            let must = "every component index once";
            return Err(ModelError::Range { what: "order", value: format!("{order:?}"), must });
        }
        self.selected(order, self.weights.select(Axis(0), order))
    }

    /// The same components with other weights, `(k,)`, which are not factored again. Cost: a copy.
    ///
    /// # Errors
    /// [`ModelError`] as for [`new`](Self::new).
    pub fn with_weights(&self, weights: Array1<f64>) -> Result<Self, ModelError> {
        expect_shape("weights", weights.shape(), &[self.n_components()])?;
        check_weights(&weights)?;
        Ok(Self { weights: normalise(weights), ..self.clone() })
    }

    /// The components of the given indices, in that order, with other weights, `(order.len(),)`. An index may occur several
    /// times.
    ///
    /// # Errors
    /// [`ModelError::Range`] if there is no such component; as for [`new`](Self::new) for the weights.
    pub fn selected(&self, order: &[usize], weights: Array1<f64>) -> Result<Self, ModelError> {
        if let Some(c) = order.iter().find(|&&c| c >= self.n_components()) {
            let must = "below the number of components";
            return Err(ModelError::Range { what: "component", value: c.to_string(), must });
        }
        let covariances = match &self.covariances {
            Covariances::Full(a) => Covariances::Full(a.select(Axis(0), order)),
            Covariances::Tied(a) => Covariances::Tied(a.clone()),
            Covariances::Diag(a) => Covariances::Diag(a.select(Axis(0), order)),
            Covariances::Spherical(a) => Covariances::Spherical(a.select(Axis(0), order)),
        };
        let mixture = Self::new(weights, self.means.select(Axis(0), order), covariances)?;
        Ok(Self { loadings: self.loadings.as_ref().map(|loadings| loadings.selected(order)), ..mixture })
    }

    /// Number of free parameters: covariances, `k*d` means and `k-1` weights.
    pub fn n_parameters(&self) -> usize {
        let (k, d) = self.means.dim();
        self.covariance_model().free_parameters(k, d) + k * d + k - 1
    }
}

pub(crate) fn check_weights(weights: &Array1<f64>) -> Result<(), ModelError> {
    for (component, &value) in weights.iter().enumerate() {
        if !value.is_finite() {
            return Err(ModelError::NotFinite { what: "weight", component, value });
        }
        if value < 0.0 {
            return Err(ModelError::NegativeWeight { component, value });
        }
    }
    let sum = weights.sum();
    if (sum - 1.0).abs() > WEIGHT_SUM_TOLERANCE {
        return Err(ModelError::WeightSum { sum });
    }
    Ok(())
}

pub(crate) fn check_means(means: &Array2<f64>) -> Result<(), ModelError> {
    // Rows of a standard-layout array are slices, which are faster to scan: evaluating a single row reads all means
    // here.
    for (component, mean) in means.outer_iter().enumerate() {
        if let Some(&value) = mean.iter().find(|v| !v.is_finite()) {
            return Err(ModelError::NotFinite { what: "mean", component, value });
        }
    }
    Ok(())
}

fn row_major(covariances: Covariances) -> Covariances {
    match covariances {
        Covariances::Full(a) if !a.is_standard_layout() => Covariances::Full(a.as_standard_layout().into_owned()),
        Covariances::Tied(a) if !a.is_standard_layout() => Covariances::Tied(a.as_standard_layout().into_owned()),
        Covariances::Diag(a) if !a.is_standard_layout() => Covariances::Diag(a.as_standard_layout().into_owned()),
        // One-dimensional arrays can have strides too.
        Covariances::Spherical(a) => Covariances::Spherical(a.as_standard_layout().into_owned()),
        contiguous => contiguous,
    }
}

/// Divides the weights by their sum, unless it is 1 within rounding: then they stay unchanged, so that a mixture
/// written and read back is the same to the bit.
pub(crate) fn normalise(weights: Array1<f64>) -> Array1<f64> {
    let (k, sum) = (weights.len(), weights.iter().sum::<f64>());
    // After a division by the computed sum the error is at most about 2 k eps.
    if (sum - 1.0).abs() <= 4.0 * k as f64 * f64::EPSILON { weights } else { weights / sum }
}

fn factor(covariances: &Covariances, k: usize, d: usize) -> Result<Factors, ModelError> {
    let kind = covariances.kind();
    let expected: &[usize] = match kind {
        CovarianceType::Full => &[k, d, d],
        CovarianceType::Tied => &[d, d],
        CovarianceType::Diag => &[k, d],
        CovarianceType::Spherical => &[k],
    };
    expect_shape("covariances", covariances.shape(), expected)?;
    match covariances {
        Covariances::Full(all) => Ok(Factors::Full(
            all.outer_iter().enumerate().map(|(c, a)| factor_one(a, c, kind)).collect::<Result<_, _>>()?,
        )),
        Covariances::Tied(a) => Ok(Factors::Tied(factor_one(a.view(), 0, kind)?)),
        Covariances::Diag(a) => {
            for ((component, column), &v) in a.indexed_iter() {
                check_variance(v, component, column, kind)?;
            }
            Ok(Factors::Diag(a.mapv(f64::sqrt)))
        }
        Covariances::Spherical(a) => {
            for (component, &v) in a.iter().enumerate() {
                check_variance(v, component, 0, kind)?;
            }
            Ok(Factors::Spherical(a.mapv(f64::sqrt)))
        }
    }
}

fn check_variance(value: f64, component: usize, column: usize, kind: CovarianceType) -> Result<(), ModelError> {
    if !value.is_finite() {
        return Err(ModelError::NotFinite { what: "covariance", component, value });
    }
    if value <= 0.0 {
        return Err(ModelError::NotPositiveDefinite { component, column, pivot: value, kind });
    }
    Ok(())
}

fn factor_one(a: ArrayView2<'_, f64>, component: usize, kind: CovarianceType) -> Result<Cholesky, ModelError> {
    Cholesky::new(a).map_err(|e| ModelError::NotPositiveDefinite { component, column: e.column, pivot: e.pivot, kind })
}

/// Checks the matrices of full and tied covariances; the others have variances, which [`factor`] checks.
fn check_symmetric(covariances: &Covariances, k: usize, d: usize) -> Result<(), ModelError> {
    match covariances {
        Covariances::Full(all) => {
            expect_shape("covariances", covariances.shape(), &[k, d, d])?;
            all.outer_iter().enumerate().try_for_each(|(c, a)| check_matrix(a, c))
        }
        Covariances::Tied(a) => {
            expect_shape("covariances", covariances.shape(), &[d, d])?;
            check_matrix(a.view(), 0)
        }
        Covariances::Diag(_) | Covariances::Spherical(_) => Ok(()),
    }
}

fn check_matrix(a: ArrayView2<'_, f64>, component: usize) -> Result<(), ModelError> {
    if let Some(&value) = a.iter().find(|v| !v.is_finite()) {
        return Err(ModelError::NotFinite { what: "covariance", component, value });
    }
    // Roots before the product: the product of two variances can overflow or underflow where the product of their roots
    // does not.
    let deviation: Vec<f64> = a.diag().iter().map(|v| v.abs().sqrt()).collect();
    let mut skew = None;
    below_diagonal(a.nrows(), |row, column| {
        let scale = deviation[row] * deviation[column];
        if (a[[row, column]] - a[[column, row]]).abs() > SYMMETRY_TOLERANCE * scale {
            skew = skew.or(Some((row, column)));
        }
    });
    match skew {
        Some((row, column)) => Err(ModelError::NotSymmetric { component, row, column }),
        None => Ok(()),
    }
}

fn half_ln_det(factors: &Factors, c: usize, d: usize) -> f64 {
    match factors {
        Factors::Full(all) => 0.5 * all[c].ln_det(),
        Factors::Tied(one) => 0.5 * one.ln_det(),
        Factors::Diag(sd) => sd.row(c).iter().map(|s| s.ln()).sum(),
        Factors::Spherical(sd) => d as f64 * sd[c].ln(),
    }
}

impl Factors {
    /// The factor of component `c` as a dense lower-triangular `(d, d)` matrix.
    pub fn dense(&self, c: usize, d: usize) -> Array2<f64> {
        let lower = |l: &Cholesky| Array2::from_shape_fn((d, d), |(i, j)| if j <= i { l.at(i, j) } else { 0.0 });
        match self {
            Self::Full(all) => lower(&all[c]),
            Self::Tied(one) => lower(one),
            Self::Diag(sd) => Array2::from_diag(&sd.row(c)),
            Self::Spherical(sd) => Array2::from_diag_elem(d, sd[c]),
        }
    }

    /// Solves `L y = z` in place with the factor of component `c`: `|y|²` is the squared Mahalanobis distance of `z`.
    pub(crate) fn solve_lower(&self, c: usize, z: &mut [f64]) {
        match self {
            Self::Full(all) => all[c].solve_lower(z),
            Self::Tied(one) => one.solve_lower(z),
            Self::Diag(sd) => z.iter_mut().zip(sd.row(c)).for_each(|(z, sd)| *z /= sd),
            Self::Spherical(sd) => z.iter_mut().for_each(|z| *z /= sd[c]),
        }
    }
}
