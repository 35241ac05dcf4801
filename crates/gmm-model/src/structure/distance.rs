//! Distances between Gaussian components, from Cholesky factors.

use ndarray::{Array1, Array2};

use super::PairDistance;
use crate::{Cholesky, Covariances, Factors, Mixture, ModelError};

/// Kullback-Leibler divergence `KL(f_i ‖ g_j)` of component `i` of `f` from component `j` of `g`, in nats.
///
/// `½ [ln det Σ_g − ln det Σ_f − d + ‖L_g⁻¹ L_f‖² + ‖L_g⁻¹ (μ_f − μ_g)‖²]`, which is 0 only for equal Gaussians
/// (Kullback 1959, ch. 9). The weights do not matter.
///
/// # Errors
/// [`ModelError::Shape`] if the dimensions differ; [`ModelError::Range`] if there is no such component.
///
/// Cost: `d³/2` multiplications, or `d` if both covariances are diagonal.
///
/// ```
/// use gmm_model::structure::kl;
/// use gmm_model::{Covariances, Mixture};
/// use ndarray::array;
///
/// let m = Mixture::new(array![0.5, 0.5], array![[0.0], [3.0]], Covariances::Spherical(array![1.0, 1.0]))?;
/// assert_eq!(kl(&m, 0, &m, 1)?, 4.5);
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
pub fn kl(f: &Mixture, i: usize, g: &Mixture, j: usize) -> Result<f64, ModelError> {
    check_pair(f, i, g, j)?;
    Ok(kl_of(f, i, g, j))
}

/// Jeffreys' divergence `KL(f_i ‖ g_j) + KL(g_j ‖ f_i)`, which is symmetric.
///
/// # Errors
/// As for [`kl`].
pub fn symmetric_kl(f: &Mixture, i: usize, g: &Mixture, j: usize) -> Result<f64, ModelError> {
    check_pair(f, i, g, j)?;
    // The determinants cancel.
    Ok(0.5 * (spread(f, i, g, j) + spread(g, j, f, i)) - f.n_features() as f64)
}

/// Bhattacharyya's distance `⅛ δᵀ Σ⁻¹ δ + ½ ln (det Σ / √(det Σ_f det Σ_g))` with `Σ = ½ (Σ_f + Σ_g)`, `δ = μ_f − μ_g`
/// (Fukunaga 1990, eq. 3.152). Its `exp(−D)` is the overlap `∫ √(f g)`, and at equal weights half of that bounds
/// Bayes' error.
///
/// # Errors
/// As for [`kl`]; [`ModelError::NotPositiveDefinite`] if the averaged covariance is singular within rounding.
pub fn bhattacharyya(f: &Mixture, i: usize, g: &Mixture, j: usize) -> Result<f64, ModelError> {
    check_pair(f, i, g, j)?;
    let mut delta = difference(f, i, g, j);
    if let (Some(a), Some(b)) = (deviations(f, i), deviations(g, j)) {
        let terms = a.iter().zip(&b).zip(&delta).map(|((a, b), delta)| {
            let variance = 0.5 * (a * a + b * b);
            0.125 * delta * delta / variance + 0.5 * (variance / (a * b)).ln()
        });
        return Ok(terms.sum());
    }
    let d = f.n_features();
    let average = 0.5 * (f.covariances().matrix(i, d) + g.covariances().matrix(j, d));
    let factor = Cholesky::new(average.view()).map_err(|e| ModelError::NotPositiveDefinite {
        component: i,
        column: e.column,
        pivot: e.pivot,
        kind: f.covariance_type(),
    })?;
    factor.solve_lower(&mut delta);
    let dets = 0.5 * factor.ln_det() - 0.5 * (half_ln_det(f, i) + half_ln_det(g, j));
    Ok(0.125 * delta.iter().map(|v| v * v).sum::<f64>() + dets)
}

/// Runnalls' bound of merging components `i` and `j` of a mixture: no less than the divergence `KL(f ‖ g)` of the
/// mixture `f` from the mixture `g` in which the two are [merged](super::merge_pair).
///
/// `½ [(w_i + w_j) ln det Σ_ij − w_i ln det Σ_i − w_j ln det Σ_j]` (Runnalls 2007), with the merged covariance
/// of the mixture's kind. A merge changes the tied covariance of all components; the bound is then
/// `½ ln (1 + w_i w_j / (w_i + w_j) ‖L⁻¹ δ‖²)`, by the same argument.
///
/// # Errors
/// As for [`kl`]; [`ModelError::NotPositiveDefinite`] if the merged covariance is singular within rounding.
pub fn runnalls(mixture: &Mixture, i: usize, j: usize) -> Result<f64, ModelError> {
    check_pair(mixture, i, mixture, j)?;
    let (wi, wj) = (mixture.weights()[i], mixture.weights()[j]);
    let both = wi + wj;
    // A component compared with itself, or two without weight, change nothing.
    if i == j || both == 0.0 {
        return Ok(0.0);
    }
    let (a, b) = (wi / both, wj / both);
    let mut delta = difference(mixture, i, mixture, j);
    let d = mixture.n_features();
    let bound = match mixture.covariances() {
        Covariances::Tied(_) => {
            solve(mixture, i, &mut delta);
            return Ok(0.5 * (both * a * b * delta.iter().map(|v| v * v).sum::<f64>()).ln_1p());
        }
        Covariances::Spherical(v) => {
            let between = a * b * delta.iter().map(|v| v * v).sum::<f64>() / d as f64;
            let merged = a * v[i] + b * v[j] + between;
            d as f64 * (a * (merged / v[i]).ln() + b * (merged / v[j]).ln())
        }
        Covariances::Diag(v) => {
            let columns = (0..d).map(|c| {
                let merged = a * v[[i, c]] + b * v[[j, c]] + a * b * delta[c] * delta[c];
                a * (merged / v[[i, c]]).ln() + b * (merged / v[[j, c]]).ln()
            });
            columns.sum()
        }
        Covariances::Full(_) => {
            let (left, right) = (mixture.covariances().matrix(i, d), mixture.covariances().matrix(j, d));
            let merged = Array2::from_shape_fn((d, d), |(r, c)| {
                a * left[[r, c]] + b * right[[r, c]] + a * b * delta[r] * delta[c]
            });
            let factor = Cholesky::new(merged.view()).map_err(|e| ModelError::NotPositiveDefinite {
                component: i,
                column: e.column,
                pivot: e.pivot,
                kind: mixture.covariance_type(),
            })?;
            factor.ln_det() - 2.0 * (a * half_ln_det(mixture, i) + b * half_ln_det(mixture, j))
        }
    };
    // ln det is concave, so the bound is not negative except for rounding.
    Ok((0.5 * both * bound).max(0.0))
}

/// The distance of every two components, `(k, k)`: symmetric, with zeros on the diagonal.
///
/// # Errors
/// As for [`bhattacharyya`] and [`runnalls`].
///
/// Cost: `k²/2` distances.
pub fn distances(mixture: &Mixture, by: PairDistance) -> Result<Array2<f64>, ModelError> {
    let k = mixture.n_components();
    let mut all = Array2::zeros((k, k));
    for i in 0..k {
        for j in 0..i {
            let value = by.between(mixture, i, j)?;
            all[[i, j]] = value;
            all[[j, i]] = value;
        }
    }
    Ok(all)
}

/// [`kl`] of components that exist.
pub(super) fn kl_of(f: &Mixture, i: usize, g: &Mixture, j: usize) -> f64 {
    let d = f.n_features() as f64;
    let dets = half_ln_det(g, j) - half_ln_det(f, i);
    // Rounding can give a tiny negative number for equal Gaussians.
    (dets + 0.5 * (spread(f, i, g, j) - d)).max(0.0)
}

/// `tr(Σ_g⁻¹ Σ_f) + ‖L_g⁻¹ (μ_f − μ_g)‖²`.
fn spread(f: &Mixture, i: usize, g: &Mixture, j: usize) -> f64 {
    let mut delta = difference(f, i, g, j);
    solve(g, j, &mut delta);
    let between: f64 = delta.iter().map(|v| v * v).sum();
    if let (Some(a), Some(b)) = (deviations(f, i), deviations(g, j)) {
        return between + a.iter().zip(&b).map(|(a, b)| (a / b) * (a / b)).sum::<f64>();
    }
    let d = f.n_features();
    let columns = (0..d).map(|column| {
        let mut x = vec![0.0; d];
        match factor(f, i) {
            Some(l) => (column..d).for_each(|row| x[row] = l.at(row, column)),
            None => x[column] = deviation(f, i, column),
        }
        solve(g, j, &mut x);
        x.iter().map(|v| v * v).sum::<f64>()
    });
    between + columns.sum::<f64>()
}

/// `L⁻¹ x` in place, with the factor of component `c`.
fn solve(mixture: &Mixture, c: usize, x: &mut [f64]) {
    match factor(mixture, c) {
        Some(l) => l.solve_lower(x),
        None => x.iter_mut().enumerate().for_each(|(column, v)| *v /= deviation(mixture, c, column)),
    }
}

fn factor(mixture: &Mixture, c: usize) -> Option<&Cholesky> {
    match mixture.factors() {
        Factors::Full(all) => Some(&all[c]),
        Factors::Tied(one) => Some(one),
        Factors::Diag(_) | Factors::Spherical(_) => None,
    }
}

/// Standard deviations of a diagonal covariance, `(d,)`.
fn deviations(mixture: &Mixture, c: usize) -> Option<Array1<f64>> {
    match mixture.factors() {
        Factors::Full(_) | Factors::Tied(_) => None,
        Factors::Diag(sd) => Some(sd.row(c).to_owned()),
        Factors::Spherical(sd) => Some(Array1::from_elem(mixture.n_features(), sd[c])),
    }
}

/// Standard deviation of a column; 0 for a covariance that is not diagonal, which has a factor.
fn deviation(mixture: &Mixture, c: usize, column: usize) -> f64 {
    match mixture.factors() {
        Factors::Full(_) | Factors::Tied(_) => 0.0,
        Factors::Diag(sd) => sd[[c, column]],
        Factors::Spherical(sd) => sd[c],
    }
}

/// `½ ln det Σ_c`.
fn half_ln_det(mixture: &Mixture, c: usize) -> f64 {
    -mixture.log_normalizer(c) - 0.5 * mixture.n_features() as f64 * crate::mixture::LN_2PI
}

fn difference(f: &Mixture, i: usize, g: &Mixture, j: usize) -> Vec<f64> {
    f.means().row(i).iter().zip(g.means().row(j)).map(|(a, b)| a - b).collect()
}

pub(super) fn check_dims(f: &Mixture, g: &Mixture) -> Result<(), ModelError> {
    let (found, expected) = (g.means().dim(), f.n_features());
    if found.1 == expected {
        return Ok(());
    }
    let found = vec![found.0, found.1];
    Err(ModelError::Shape { what: "means of the second mixture", expected: vec![found[0], expected], found })
}

pub(super) fn check_component(mixture: &Mixture, c: usize) -> Result<(), ModelError> {
    if c < mixture.n_components() {
        return Ok(());
    }
    Err(ModelError::Range { what: "component", value: c.to_string(), must: "below the number of components" })
}

fn check_pair(f: &Mixture, i: usize, g: &Mixture, j: usize) -> Result<(), ModelError> {
    check_dims(f, g)?;
    check_component(f, i)?;
    check_component(g, j)
}
