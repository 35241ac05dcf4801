//! A mixture given by factors of its precisions, as in scikit-learn's estimators: borrowed, and evaluated without
//! conversion.

use std::ops::Range;

use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2};

use crate::error::expect_shape;
use crate::mixture::{LN_2PI, check_means, check_weights, normalise};
use crate::precision_factor::{covariance, ln_abs_determinant};
use crate::{CovarianceType, Covariances, Mixture, ModelError, Precision};

/// A borrowed slice of numbers of either precision, in row-major order.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

impl<'a> Numbers<'a> {
    /// Number of values.
    pub const fn len(self) -> usize {
        match self {
            Self::F32(all) => all.len(),
            Self::F64(all) => all.len(),
        }
    }

    /// Whether there are no values.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Value `i` as `f64` (exact).
    pub fn at(self, i: usize) -> f64 {
        match self {
            Self::F32(all) => f64::from(all[i]),
            Self::F64(all) => all[i],
        }
    }

    /// The values in a range of indices.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(all) => Self::F32(&all[range]),
            Self::F64(all) => Self::F64(&all[range]),
        }
    }

    /// All values as `f64` (exact).
    pub fn to_f64(self) -> Vec<f64> {
        match self {
            Self::F32(all) => all.iter().map(|v| f64::from(*v)).collect(),
            Self::F64(all) => all.to_vec(),
        }
    }

    fn precision(self) -> Precision {
        match self {
            Self::F32(_) => Precision::F32,
            Self::F64(_) => Precision::F64,
        }
    }

    /// Whether any value of a range differs from 0. Reads the whole range, without early exit, so that the loop
    /// vectorises.
    fn any(self, range: Range<usize>) -> bool {
        match self {
            Self::F32(all) => all[range].iter().fold(0, |seen, v| seen | v.to_bits() << 1) != 0,
            Self::F64(all) => all[range].iter().fold(0, |seen, v| seen | v.to_bits() << 1) != 0,
        }
    }
}

/// Position of the nonzero entries of a factor `U`, `(d, d)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactorShape {
    /// On and above the diagonal, as after a fit.
    Upper,
    /// On and below the diagonal: a lower Cholesky factor set by the user.
    Lower,
    /// On both sides: any other square root of the precision.
    General,
}

impl FactorShape {
    /// The rows in which columns `first..end` of a factor can have nonzero entries.
    pub const fn rows(self, first: usize, end: usize, d: usize) -> Range<usize> {
        match self {
            Self::Upper => 0..end,
            Self::Lower => first..d,
            Self::General => 0..d,
        }
    }
}

/// Weights, means and factors `U` of the precisions, `U Uᵀ = Σ⁻¹`, of a mixture with `k` components in `d` dimensions.
///
/// The density of a row is `|det U| (2π)^(−d/2) exp(−½ |Uᵀ(x − μ)|²)`: nothing is inverted or factored. Checked as
/// [`Mixture`] is, except for the off-diagonal entries of the factors, because reading all of them takes as long as
/// evaluating a row. Evaluators must call [`check_factors`](Self::check_factors) if a distance is not finite.
#[derive(Clone, Debug)]
pub struct PrecisionMixture<'a> {
    kind: CovarianceType,
    weights: Array1<f64>,
    means: Array2<f64>,
    factors: Numbers<'a>,
    /// `ln |det U|` of each factor if it is triangular.
    ln_determinants: Vec<f64>,
    precision: Precision,
}

impl<'a> PrecisionMixture<'a> {
    /// Checks the parameters. `weights` is `(k,)`, `means` `(k, d)`, and `shape` the shape of `factors`: `(k, d, d)`,
    /// `(d, d)`, `(k, d)` or `(k,)` for full, tied, diag and spherical; the last two are reciprocal standard
    /// deviations. `means_precision` is the precision in which the means were given.
    ///
    /// # Errors
    /// As for [`Mixture::new`]; [`ModelError::NotFinite`] or [`ModelError::NotPositiveDefinite`] if a diagonal entry of
    /// a factor is invalid.
    ///
    /// # Panics
    /// If the length of `factors` is not the product of `shape`.
    pub fn new(
        kind: CovarianceType,
        weights: Array1<f64>,
        (means, means_precision): (Array2<f64>, Precision),
        factors: Numbers<'a>,
        shape: &[usize],
    ) -> Result<Self, ModelError> {
        let (k, d) = means.dim();
        if k == 0 || d == 0 {
            return Err(ModelError::Shape { what: "means_", found: vec![k, d], expected: vec![k.max(1), d.max(1)] });
        }
        expect_shape("weights_", weights.shape(), &[k])?;
        check_weights(&weights)?;
        check_means(&means)?;
        let expected: &[usize] = match kind {
            CovarianceType::Full => &[k, d, d],
            CovarianceType::Tied => &[d, d],
            CovarianceType::Diag => &[k, d],
            CovarianceType::Spherical => &[k],
        };
        expect_shape("precisions_cholesky_", shape, expected)?;
        assert_eq!(factors.len(), shape.iter().product::<usize>(), "numbers of the factors");
        let precision = match (means_precision, factors.precision()) {
            (Precision::F32, Precision::F32) => Precision::F32,
            _ => Precision::F64,
        };
        let means = means.as_standard_layout().into_owned();
        let weights = normalise(weights.as_standard_layout().into_owned());
        let mut made = Self { kind, weights, means, factors, ln_determinants: Vec::new(), precision };
        made.ln_determinants = (0..made.n_factors()).map(|c| made.check_diagonal(c)).collect::<Result<_, _>>()?;
        Ok(made)
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
        self.kind
    }

    /// Component weights, `(k,)`; they sum to 1.
    pub fn weights(&self) -> ArrayView1<'_, f64> {
        self.weights.view()
    }

    /// Component means, `(k, d)`.
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// The lowest precision that represents means and factors exactly.
    pub const fn precision(&self) -> Precision {
        self.precision
    }

    /// All factors in the shape of their kind.
    pub const fn factors(&self) -> Numbers<'a> {
        self.factors
    }

    /// Number of factors: one for tied, else `k`.
    pub fn n_factors(&self) -> usize {
        if self.kind == CovarianceType::Tied { 1 } else { self.means.nrows() }
    }

    /// The factor of component `c`: `(d, d)` for full and tied, `(d,)` for diag, one number for spherical.
    pub fn factor(&self, c: usize) -> Numbers<'a> {
        let each = self.factors.len() / self.n_factors();
        let c = if self.kind == CovarianceType::Tied { 0 } else { c };
        self.factors.slice(c * each..(c + 1) * each)
    }

    /// The position of the nonzero entries in the factor of component `c`, for full and tied. Cost: one read of the
    /// factor.
    pub fn factor_shape(&self, c: usize) -> FactorShape {
        let (u, d) = (self.factor(c), self.n_features());
        if !(1..d).any(|i| u.any(i * d..i * d + i)) {
            return FactorShape::Upper;
        }
        let above = (0..d).any(|i| u.any(i * d + i + 1..(i + 1) * d));
        if above { FactorShape::General } else { FactorShape::Lower }
    }

    /// `ln w_c`, which is −∞ for a weight of zero.
    pub fn log_weight(&self, c: usize) -> f64 {
        self.weights[c].ln()
    }

    /// `ln |det U_c| − (d/2) ln 2π`, the log density of component `c` at its own mean. `shape` is the shape of the
    /// factor; diag and spherical ignore it. Cost: `2d³/3` flops for a general factor, else nothing.
    ///
    /// # Errors
    /// [`ModelError::NotPositiveDefinite`] if a general factor is singular; [`ModelError::NotFinite`].
    pub fn log_normalizer(&self, c: usize, shape: FactorShape) -> Result<f64, ModelError> {
        let ln_determinant = match shape {
            FactorShape::General => self.general_determinant(c)?,
            _ => self.ln_determinants[c.min(self.n_factors() - 1)],
        };
        Ok(ln_determinant - 0.5 * self.n_features() as f64 * LN_2PI)
    }

    /// Checks that every entry of the factors is finite.
    ///
    /// # Errors
    /// [`ModelError::NotFinite`] with the component.
    pub fn check_factors(&self) -> Result<(), ModelError> {
        (0..self.n_factors()).try_for_each(|c| {
            let u = self.factor(c);
            match (0..u.len()).map(|i| u.at(i)).find(|v| !v.is_finite()) {
                Some(value) => Err(not_finite(c, value)),
                None => Ok(()),
            }
        })
    }

    /// The same mixture with covariances. Cost: `k d³` flops for full.
    ///
    /// # Errors
    /// [`ModelError`], as for [`Mixture::new`].
    pub fn to_mixture(&self) -> Result<Mixture, ModelError> {
        self.check_factors()?;
        let (k, d) = self.means.dim();
        let one = |c: usize| {
            let u = Array2::from_shape_vec((d, d), self.factor(c).to_f64()).expect("(d, d)");
            covariance(u.view(), self.factor_shape(c)).map_err(|(column, pivot)| self.indefinite(c, column, pivot))
        };
        let variances = || (0..self.factors.len()).map(|i| self.factors.at(i)).map(|u| 1.0 / (u * u)).collect();
        let covariances = match self.kind {
            CovarianceType::Full => {
                let mut all = Array3::zeros((k, d, d));
                for (c, mut slot) in all.outer_iter_mut().enumerate() {
                    slot.assign(&one(c)?);
                }
                Covariances::Full(all)
            }
            CovarianceType::Tied => Covariances::Tied(one(0)?),
            CovarianceType::Diag => Covariances::Diag(Array2::from_shape_vec((k, d), variances()).expect("(k, d)")),
            CovarianceType::Spherical => Covariances::Spherical(Array1::from_vec(variances())),
        };
        Mixture::new(self.weights.clone(), self.means.clone(), covariances)
    }

    /// Checks the diagonal of a factor and returns `ln |det U_c|` if `U_c` is triangular.
    fn check_diagonal(&self, c: usize) -> Result<f64, ModelError> {
        let (u, d) = (self.factor(c), self.n_features());
        let (count, step) = match self.kind {
            CovarianceType::Full | CovarianceType::Tied => (d, d + 1),
            CovarianceType::Diag => (d, 1),
            CovarianceType::Spherical => (1, 1),
        };
        let mut product = Product::ONE;
        for first in (0..count).step_by(AT_ONCE) {
            let mut some = [1.0; AT_ONCE];
            let some = &mut some[..AT_ONCE.min(count - first)];
            for (i, value) in some.iter_mut().enumerate() {
                *value = u.at((first + i) * step).abs();
            }
            if some.iter().all(|value| value.is_normal()) {
                product.times_normal(some);
                continue;
            }
            for i in first..first + some.len() {
                let value = u.at(i * step);
                if !value.is_finite() {
                    return Err(not_finite(c, value));
                }
                if value == 0.0 {
                    // A general square root may have zeros on its diagonal.
                    let is_general = step > 1 && self.factor_shape(c) == FactorShape::General;
                    return if is_general { Ok(f64::NAN) } else { Err(self.indefinite(c, i, 0.0)) };
                }
                product.times(value.abs());
            }
        }
        let times = if self.kind == CovarianceType::Spherical { d } else { 1 };
        Ok(product.ln() * times as f64)
    }

    fn general_determinant(&self, c: usize) -> Result<f64, ModelError> {
        let d = self.n_features();
        let u = Array2::from_shape_vec((d, d), self.factor(c).to_f64()).expect("(d, d)");
        if let Some(&value) = u.iter().find(|v| !v.is_finite()) {
            return Err(not_finite(c, value));
        }
        ln_abs_determinant(u).map_err(|(column, pivot)| self.indefinite(c, column, pivot))
    }

    const fn indefinite(&self, component: usize, column: usize, pivot: f64) -> ModelError {
        ModelError::NotPositiveDefinite { component, column, pivot, kind: self.kind }
    }
}

const fn not_finite(component: usize, value: f64) -> ModelError {
    ModelError::NotFinite { what: "precisions_cholesky_", component, value }
}

/// Largest number of factors that [`Product::times_normal`] multiplies at once.
const AT_ONCE: usize = 512;

/// 2¹⁰⁰⁰: when a fraction reaches this, it is normalised to [1, 2).
const LARGE: f64 = f64::from_bits((1023 + 1000) << 52);

/// A product of positive numbers as `fraction * 2^exponent`, so that its logarithm needs one `ln` and has an error that
/// does not grow with the size of the factors' logarithms.
pub(crate) struct Product {
    /// At least 1, and less than twice [`LARGE`].
    fraction: f64,
    exponent: i64,
}

impl Product {
    pub(crate) const ONE: Self = Self { fraction: 1.0, exponent: 0 };

    /// Multiplies by a finite positive number.
    pub(crate) fn times(&mut self, value: f64) {
        // Subnormal numbers are scaled first, exactly.
        let (value, scaled) = if value < f64::MIN_POSITIVE { (value * 2f64.powi(64), -64) } else { (value, 0) };
        let (fraction, exponent) = parts(value);
        self.fraction *= fraction;
        self.exponent += exponent + scaled;
        // Rarely true. The branch is the only operation that waits for the product.
        if self.fraction >= LARGE {
            self.normalise();
        }
    }

    /// Multiplies by at most [`AT_ONCE`] normal positive numbers, in four independent products.
    pub(crate) fn times_normal(&mut self, values: &[f64]) {
        assert!(values.len() <= AT_ONCE, "more factors than a fraction has room for");
        let (mut fractions, mut exponents) = ([1.0; 4], [0; 4]);
        let (fours, rest) = values.as_chunks::<4>();
        for four in fours {
            for lane in 0..4 {
                let (fraction, exponent) = parts(four[lane]);
                fractions[lane] *= fraction;
                exponents[lane] += exponent;
            }
        }
        // Each is less than 2^(AT_ONCE/4).
        for (fraction, exponent) in fractions.into_iter().zip(exponents) {
            self.times(fraction);
            self.exponent += exponent;
        }
        rest.iter().for_each(|value| self.times(*value));
    }

    fn normalise(&mut self) {
        let (fraction, exponent) = parts(self.fraction);
        self.fraction = fraction;
        self.exponent += exponent;
    }

    pub(crate) fn ln(mut self) -> f64 {
        self.normalise();
        // ln 2 as a sum of two numbers, as in fdlibm: products of the first with exponents below 2^20 are exact.
        const HIGH: f64 = 6.931_471_803_691_238e-1;
        const LOW: f64 = 1.908_214_929_270_587_7e-10;
        let exponent = self.exponent as f64;
        exponent * HIGH + (self.fraction.ln() + exponent * LOW)
    }
}

/// Splits a positive normal number into a significand in [1, 2) and an exponent.
fn parts(value: f64) -> (f64, i64) {
    let bits = value.to_bits();
    let significand = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    (significand, (bits >> 52) as i64 - 1023)
}
