//! Covariances of a few factors: loadings and uniquenesses, and the pair of greatest likelihood for a covariance.

use faer::{Mat, Side};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, ArrayView3, Axis};

use crate::error::expect_shape;
use crate::{Cholesky, ModelError};

/// The covariances of a mixture of factor analysers: component `c` has `Λ_c Λ_cᵀ + diag(ψ_c)`, with the loadings `Λ_c` of
/// `h` factors, `(d, h)`, and the uniquenesses `ψ_c`, `(d,)`.
///
/// A row of a component is `μ_c + Λ_c z + e`: `h` standard normal factors `z`, and independent normal errors `e` of
/// variances `ψ_c`. Loadings are known up to a rotation of the factors. Those of a fit have `Λᵀ diag(ψ)⁻¹ Λ` diagonal and
/// descending, and columns whose sum is not negative.
///
/// Source: Ghahramani and Hinton 1996, "The EM algorithm for mixtures of factor analyzers".
#[derive(Clone, Debug, PartialEq)]
pub struct FactorLoadings {
    /// `(k, d, h)`, in units of the data.
    pub loadings: Array3<f64>,
    /// `(k, d)`, positive, in squared units of the data.
    pub uniquenesses: Array2<f64>,
}

/// Largest difference of a covariance from `Λ Λᵀ + diag(ψ)`, relative to the deviations of its two columns: covariances and
/// loadings may come from text.
const AGREEMENT: f64 = 1e-6;

impl FactorLoadings {
    /// Number of factors `h`.
    pub fn n_factors(&self) -> usize {
        self.loadings.len_of(Axis(2))
    }

    /// `Λ_c Λ_cᵀ + diag(ψ_c)` for each component, `(k, d, d)`.
    pub fn covariances(&self) -> Array3<f64> {
        let (k, d, _) = self.loadings.dim();
        let mut all = Array3::zeros((k, d, d));
        for (c, mut slot) in all.outer_iter_mut().enumerate() {
            slot.assign(&covariance(self.loadings.index_axis(Axis(0), c), self.uniquenesses.row(c)));
        }
        all
    }

    /// Those of `h` factors that are nearest to the covariances `all`, `(k, d, d)`: see [`Analyser::of`].
    pub(crate) fn nearest(all: ArrayView3<'_, f64>, h: usize, least: ArrayView1<'_, f64>) -> Self {
        let each: Vec<_> = all.outer_iter().map(|a| Analyser::of(a, h, least, None)).collect();
        Self::of_each(&each)
    }

    /// Those of components with these factors, all of one shape.
    pub(crate) fn of_each<'a>(each: impl IntoIterator<Item = &'a Analyser>) -> Self {
        let (loadings, uniquenesses): (Vec<_>, Vec<_>) =
            each.into_iter().map(|one| (one.loadings.view(), one.uniquenesses.view())).unzip();
        Self {
            loadings: ndarray::stack(Axis(0), &loadings).expect("one shape"),
            uniquenesses: ndarray::stack(Axis(0), &uniquenesses).expect("one shape"),
        }
    }

    /// The loadings and uniquenesses of some components, in that order.
    pub(crate) fn selected(&self, order: &[usize]) -> Self {
        Self { loadings: self.loadings.select(Axis(0), order), uniquenesses: self.uniquenesses.select(Axis(0), order) }
    }

    /// Checks that these are factors of `all`, `(k, d, d)`.
    pub(crate) fn check(&self, all: ArrayView3<'_, f64>) -> Result<(), ModelError> {
        let (k, d, _) = all.dim();
        let h = self.n_factors();
        check_number(h, d)?;
        let range = |what, value: String, must| Err(ModelError::Range { what, value, must });
        expect_shape("loadings", self.loadings.shape(), &[k, d, h])?;
        expect_shape("uniquenesses", self.uniquenesses.shape(), &[k, d])?;
        for ((component, ..), &value) in self.loadings.indexed_iter() {
            if !value.is_finite() {
                return Err(ModelError::NotFinite { what: "loading", component, value });
            }
        }
        if let Some(v) = self.uniquenesses.iter().find(|v| !(v.is_finite() && **v > 0.0)) {
            return range("uniqueness", v.to_string(), "positive and finite");
        }
        let own = self.covariances();
        for ((c, i, j), v) in own.indexed_iter() {
            let scale = (all[[c, i, i]] * all[[c, j, j]]).sqrt();
            if (v - all[[c, i, j]]).abs() > AGREEMENT * scale {
                let value = format!("component {c}, row {i}, column {j}: {v} beside {}", all[[c, i, j]]);
                return range("loadings", value, "factors of the covariances");
            }
        }
        Ok(())
    }
}

/// Checks a number of factors for `d` columns; `d = 0`: not known yet.
pub(crate) fn check_number(h: usize, d: usize) -> Result<(), ModelError> {
    if h == 0 || (d > 0 && h >= d) {
        let must = "at least 1 and below the number of columns";
        return Err(ModelError::Range { what: "number of factors", value: h.to_string(), must });
    }
    Ok(())
}

/// The factors of one covariance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Analyser {
    /// `(d, h)`.
    loadings: Array2<f64>,
    /// `(d,)`.
    uniquenesses: Array1<f64>,
}

/// Most rounds of one M-step. A single one would do for EM to converge; but with 2 rounds fits of wine, iris and 20 components in
/// 64 columns took 1.5 to 5 times the iterations of 8, and with 16 as many as with 8 or a few less.
const ROUNDS: usize = 8;

/// A round that gains less than this ends the M-step: far below the tolerance of any fit, in nats per row.
const GAIN: f64 = 1e-10;

/// A round never loses anything but rounding. If a loss of that size undid it, results would depend on roundings.
const ROUNDING: f64 = 1e-12;

/// Smallest uniqueness as a share of its column's variance. Without a bound the likelihood of `h + 1` columns that depend on
/// each other is infinite.
const LEAST_SHARE: f64 = 1e-10;

impl Analyser {
    /// The factors of component `c`.
    pub(crate) fn of_component(all: &FactorLoadings, c: usize) -> Self {
        let FactorLoadings { loadings, uniquenesses } = all;
        Self { loadings: loadings.index_axis(Axis(0), c).to_owned(), uniquenesses: uniquenesses.row(c).to_owned() }
    }

    /// The pair that maximises `f = −ln det Σ − tr(Σ⁻¹ S)` for `Σ = Λ Λᵀ + diag(ψ)`, twice the mean log-likelihood of rows
    /// of covariance `S` up to a constant; or a pair on the way there. `f` is at least that of `previous`, to rounding.
    /// Uniquenesses are at least `least`, and at least 1e-10 of the variance of their column.
    ///
    /// Two steps in turns, each a maximum in closed form. For given uniquenesses the loadings are the eigenvectors of
    /// `diag(ψ)^(-1/2) S diag(ψ)^(-1/2)` with the largest eigenvalues. For given loadings one uniqueness after the other is
    /// set: with `P = Σ⁻¹`, its change `ω` maximises `−ln(1 + ω P_ii) + ω (P S P)_ii / (1 + ω P_ii)`, which has a single
    /// maximum, at `ω = ((P S P)_ii − P_ii) / P_ii²`.
    ///
    /// Source: Zhao, Yu and Jiang 2008, "ML estimation for factor analysis: EM or non-EM?".
    pub(crate) fn of(s: ArrayView2<'_, f64>, h: usize, least: ArrayView1<'_, f64>, previous: Option<&Self>) -> Self {
        let d = s.nrows();
        // In units of the columns' deviations, so that columns of any scale are alike. A column without variance has that of
        // its uniqueness.
        let variance = |j: usize| s[[j, j]].max(least[j]).max(f64::MIN_POSITIVE);
        let scale = Array1::from_shape_fn(d, |j| variance(j).sqrt());
        let s = Array2::from_shape_fn((d, d), |(i, j)| s[[i, j]] / scale[i] / scale[j]);
        let least = Array1::from_shape_fn(d, |j| (least[j] / scale[j] / scale[j]).max(LEAST_SHARE));
        let root = square_root(s.view());
        let mut psi = match previous {
            Some(previous) => Array1::from_shape_fn(d, |j| previous.uniquenesses[j] / scale[j] / scale[j]),
            None => first_uniquenesses(s.view(), h),
        };
        psi.zip_mut_with(&least, |v, &least| *v = v.max(least));
        let mut best = Spectrum::of(s.view(), &root, &psi, h);
        for _ in 1..ROUNDS {
            let mut next = psi.clone();
            update_uniquenesses(&mut next, best.precision(&psi), s.view(), &least);
            let found = Spectrum::of(s.view(), &root, &next, h);
            let gain = found.objective - best.objective;
            // Also if it is NaN.
            let is_kept = gain > -ROUNDING * best.objective.abs().max(1.0);
            if !is_kept {
                break;
            }
            (psi, best) = (next, found);
            if gain < GAIN {
                break;
            }
        }
        let mut loadings = best.loadings(&psi);
        loadings.outer_iter_mut().zip(&scale).for_each(|(mut row, scale)| row *= *scale);
        for mut column in loadings.columns_mut() {
            if column.sum() < 0.0 {
                column.mapv_inplace(|v| -v);
            }
        }
        Self { loadings, uniquenesses: psi * &scale * &scale }
    }
}

/// `Λ Λᵀ + diag(ψ)`, symmetric to the bit.
fn covariance(loadings: ArrayView2<'_, f64>, uniquenesses: ArrayView1<'_, f64>) -> Array2<f64> {
    let d = loadings.nrows();
    let mut a = Array2::zeros((d, d));
    for i in 0..d {
        for j in 0..=i {
            a[[i, j]] = loadings.row(i).dot(&loadings.row(j));
            a[[j, i]] = a[[i, j]];
        }
        a[[i, i]] += uniquenesses[i];
    }
    a
}

/// The first uniquenesses for correlations `s`: `(1 − h / 2d) / (S⁻¹)_jj`, or half of the variance where `S` has no inverse.
///
/// Source: Jöreskog 1967, "Some contributions to maximum likelihood factor analysis".
fn first_uniquenesses(s: ArrayView2<'_, f64>, h: usize) -> Array1<f64> {
    let d = s.nrows();
    let Ok(factor) = Cholesky::new(s) else { return Array1::from_elem(d, 0.5) };
    let share = 1.0 - h as f64 / (2 * d) as f64;
    Array1::from_shape_fn(d, |j| {
        // Column j of L⁻¹, whose squares add up to (S⁻¹)_jj.
        let mut column = vec![0.0; d];
        column[j] = 1.0;
        factor.solve_lower(&mut column);
        share / column.iter().map(|v| v * v).sum::<f64>()
    })
}

/// A `C` with `C Cᵀ = S` for a positive semidefinite `S`, both `(d, d)`.
fn square_root(s: ArrayView2<'_, f64>) -> Array2<f64> {
    let d = s.nrows();
    if let Ok(factor) = Cholesky::new(s) {
        return Array2::from_shape_fn((d, d), |(i, j)| if j <= i { factor.at(i, j) } else { 0.0 });
    }
    let Ok(eigen) = Mat::from_fn(d, d, |i, j| s[[i, j]]).self_adjoint_eigen(Side::Lower) else {
        return Array2::from_elem((d, d), f64::NAN);
    };
    let (values, u) = (eigen.S().column_vector(), eigen.U());
    Array2::from_shape_fn((d, d), |(i, j)| u[(i, j)] * values[j].max(0.0).sqrt())
}

/// The `h` largest eigenvalues above 1 of `diag(ψ)^(-1/2) S diag(ψ)^(-1/2)`, and their eigenvectors.
struct Spectrum {
    /// Descending, at most `h`.
    values: Vec<f64>,
    /// `(d, values.len())`.
    vectors: Array2<f64>,
    /// Number of factors.
    h: usize,
    /// `f` at ψ and the loadings that belong to it.
    objective: f64,
}

impl Spectrum {
    /// `root`: see [`square_root`]; `s` is its square.
    ///
    /// The trace of `Σ⁻¹ S` is a sum of squares, those of `C` scaled and shrunk along the factors. As the sum of the
    /// eigenvalues that are left it would be rounded to `ε / ψ`, 1e-6 where a uniqueness is at its bound, and rounds that
    /// gain less would look like the end.
    fn of(s: ArrayView2<'_, f64>, root: &Array2<f64>, psi: &Array1<f64>, h: usize) -> Self {
        let d = s.nrows();
        let deviation = psi.mapv(f64::sqrt);
        let scaled = Mat::from_fn(d, d, |i, j| s[[i, j]] / deviation[i] / deviation[j]);
        let Ok(eigen) = scaled.self_adjoint_eigen(Side::Lower) else {
            // It does not converge only for values that are not finite, which have no factors: the mixture is refused.
            return Self { values: Vec::new(), vectors: Array2::zeros((d, 0)), h, objective: f64::NAN };
        };
        let (all, u) = (eigen.S().column_vector(), eigen.U());
        let values: Vec<f64> = (0..h).map(|e| all[d - 1 - e]).take_while(|v| *v > 1.0).collect();
        let vectors = Array2::from_shape_fn((d, values.len()), |(i, e)| u[(i, d - 1 - e)]);
        let scaled = root / &deviation.insert_axis(Axis(1));
        let mut along = vectors.t().dot(&scaled);
        along.outer_iter_mut().zip(&values).for_each(|(mut row, v)| row *= 1.0 - v.sqrt().recip());
        let trace: f64 = (scaled - vectors.dot(&along)).iter().map(|v| v * v).sum();
        let log_det: f64 = psi.iter().chain(&values).map(|v| v.ln()).sum();
        Self { values, vectors, h, objective: -(log_det + trace) }
    }

    /// `Λ = diag(ψ)^(1/2) U diag(λ − 1)^(1/2)`, `(d, h)`; factors without an eigenvalue above 1 are 0.
    fn loadings(&self, psi: &Array1<f64>) -> Array2<f64> {
        let mut loadings = Array2::zeros((psi.len(), self.h));
        for (e, value) in self.values.iter().enumerate() {
            for (i, psi) in psi.iter().enumerate() {
                loadings[[i, e]] = psi.sqrt() * self.vectors[[i, e]] * (value - 1.0).sqrt();
            }
        }
        loadings
    }

    /// `(Λ Λᵀ + diag(ψ))⁻¹`, `(d, d)`: the eigenvalues of the scaled matrix are λ along the factors and 1 elsewhere.
    fn precision(&self, psi: &Array1<f64>) -> Array2<f64> {
        let root = psi.mapv(f64::sqrt);
        let mut shrunk = self.vectors.clone();
        shrunk.columns_mut().into_iter().zip(&self.values).for_each(|(mut u, v)| u *= 1.0 - v.recip());
        let mut p = -shrunk.dot(&self.vectors.t());
        p.diag_mut().mapv_inplace(|v| v + 1.0);
        p.indexed_iter_mut().for_each(|((i, j), v)| *v = *v / root[i] / root[j]);
        p
    }
}

/// Sets one uniqueness after the other to its maximum, for the loadings that belong to the precision `p`, `(d, d)`.
fn update_uniquenesses(psi: &mut Array1<f64>, mut p: Array2<f64>, s: ArrayView2<'_, f64>, least: &Array1<f64>) {
    for i in 0..psi.len() {
        let row = p.row(i).to_owned();
        let (own, other) = (row[i], row.dot(&s.dot(&row)));
        let change = ((other - own) / (own * own)).max(least[i] - psi[i]);
        psi[i] += change;
        let share = change / (1.0 + change * own);
        for (mut line, v) in p.outer_iter_mut().zip(&row) {
            line.scaled_add(-share * v, &row);
        }
    }
}
