//! A Gaussian mixture that cannot be wrong: checked once, then immutable.

use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis};

use crate::{Cholesky, CovarianceType, Covariances, ModelError};

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// Component weights may miss 1 by this much (as in scikit-learn), since they often come from text.
const WEIGHT_SUM_TOLERANCE: f64 = 1e-6;

/// Two triangles of a covariance may differ by this much, relative to the geometric mean of the two variances.
const SYMMETRY_TOLERANCE: f64 = 1e-9;

/// What the covariances are evaluated through: lower factors, or standard deviations.
#[derive(Clone, Debug, PartialEq)]
pub enum Factors {
    /// One factor per component.
    Full(Vec<Cholesky>),
    /// One factor for all.
    Tied(Cholesky),
    /// Standard deviations, `(k, d)`.
    Diag(Array2<f64>),
    /// Standard deviations, `(k,)`.
    Spherical(Array1<f64>),
}

/// Weights, means and covariances of a Gaussian mixture with `k` components in `d` dimensions, checked and factored.
///
/// Always `f64`. A component may have weight zero: its density then counts for nothing, as a log-weight of −∞.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    weights: Array1<f64>,
    means: Array2<f64>,
    covariances: Covariances,
    factors: Factors,
    log_normalizers: Array1<f64>,
}

impl Mixture {
    /// Checks and factors: `weights` is `(k,)`, `means` is `(k, d)`, `covariances` has its kind's shape.
    ///
    /// # Errors
    /// [`ModelError`] for shapes that disagree, values that are not finite, weights that are negative or do not sum
    /// to 1 within 1e-6, covariances that are not symmetric or not positive definite (naming component and pivot).
    ///
    /// Cost `k*d³/3` flops for full covariances.
    pub fn new(weights: Array1<f64>, means: Array2<f64>, covariances: Covariances) -> Result<Self, ModelError> {
        let (k, d) = means.dim();
        if k == 0 || d == 0 {
            return Err(ModelError::Shape { what: "means", found: vec![k, d], expected: vec![k.max(1), d.max(1)] });
        }
        expect_shape("weights", weights.shape(), &[k])?;
        check_weights(&weights)?;
        check_finite("mean", k, means.outer_iter().map(|row| row.to_owned()))?;
        let factors = factor(&covariances, k, d)?;
        let log_normalizers = Array1::from_shape_fn(k, |c| -0.5 * d as f64 * LN_2PI - half_ln_det(&factors, c, d));
        Ok(Self {
            weights: weights.as_standard_layout().into_owned(),
            means: means.as_standard_layout().into_owned(),
            covariances,
            factors,
            log_normalizers,
        })
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

    /// Component weights, `(k,)`; they sum to 1.
    pub fn weights(&self) -> ArrayView1<'_, f64> {
        self.weights.view()
    }

    /// Component means, `(k, d)`.
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// Component covariances in their kind's shape.
    pub const fn covariances(&self) -> &Covariances {
        &self.covariances
    }

    /// Cholesky factors or standard deviations.
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

    /// Number of free parameters: covariances, `k*d` means and `k-1` weights.
    pub fn n_parameters(&self) -> usize {
        let (k, d) = self.means.dim();
        self.covariance_type().free_parameters(k, d) + k * d + k - 1
    }
}

fn expect_shape(what: &'static str, found: &[usize], expected: &[usize]) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Shape { what, found: found.to_vec(), expected: expected.to_vec() })
}

fn check_weights(weights: &Array1<f64>) -> Result<(), ModelError> {
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

fn check_finite(what: &'static str, k: usize, rows: impl Iterator<Item = Array1<f64>>) -> Result<(), ModelError> {
    for (component, row) in rows.enumerate().take(k) {
        if let Some(&value) = row.iter().find(|v| !v.is_finite()) {
            return Err(ModelError::NotFinite { what, component, value });
        }
    }
    Ok(())
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
    if let Some(&value) = a.iter().find(|v| !v.is_finite()) {
        return Err(ModelError::NotFinite { what: "covariance", component, value });
    }
    for row in 0..a.nrows() {
        for column in 0..row {
            let scale = (a[[row, row]] * a[[column, column]]).abs().sqrt();
            if (a[[row, column]] - a[[column, row]]).abs() > SYMMETRY_TOLERANCE * scale {
                return Err(ModelError::NotSymmetric { component, row, column });
            }
        }
    }
    Cholesky::new(a).map_err(|e| ModelError::NotPositiveDefinite { component, column: e.column, pivot: e.pivot, kind })
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
    /// The factor of component `c` written out as a dense lower-triangular `(d, d)` matrix.
    pub fn dense(&self, c: usize, d: usize) -> Array2<f64> {
        let lower = |l: &Cholesky| Array2::from_shape_fn((d, d), |(i, j)| if j <= i { l.at(i, j) } else { 0.0 });
        match self {
            Self::Full(all) => lower(&all[c]),
            Self::Tied(one) => lower(one),
            Self::Diag(sd) => Array2::from_diag(&sd.row(c)),
            Self::Spherical(sd) => Array2::from_diag_elem(d, sd[c]),
        }
    }
}

/// Writes a packed symmetric matrix, `d*(d+1)/2` entries, out as `(d, d)`.
pub(crate) fn unpack(packed: &[f64], d: usize) -> Array2<f64> {
    Array2::from_shape_fn((d, d), |(i, j)| packed[crate::packed_index(i.max(j), i.min(j))])
}

/// Stacks `(d, d)` matrices into `(k, d, d)`.
pub(crate) fn stack(matrices: &[Array2<f64>], d: usize) -> Array3<f64> {
    let mut out = Array3::zeros((matrices.len(), d, d));
    for (mut slot, m) in out.axis_iter_mut(Axis(0)).zip(matrices) {
        slot.assign(m);
    }
    out
}
