//! Floors of covariances: the nearest matrix that is at least a diagonal one, and a matrix that Cholesky accepts.

use faer::{Mat, Side};
use ndarray::{Array1, Array2};

use crate::Cholesky;

/// Raises `a`, `(d, d)`, to at least `diag(floor)` in the order of positive definite matrices; an `a` that is above it
/// already keeps its bits.
///
/// With `B = D^(-1/2) A D^(-1/2)` for `D = diag(floor)`, eigenvalues of `B` below 1 become 1. Among all matrices
/// `Σ ≥ D` the result maximises `−ln det Σ − tr(Σ⁻¹ A)`, the expected log-likelihood.
///
/// Source: Kaldi's `SpMatrix::ApplyFloor`.
pub(super) fn raise(a: &mut Array2<f64>, floor: &Array1<f64>) {
    let root = floor.mapv(f64::sqrt);
    let d = a.nrows();
    let scaled = Array2::from_shape_fn((d, d), |(i, j)| a[[i, j]] / root[i] / root[j]);
    if Cholesky::new((&scaled - &Array2::<f64>::eye(d)).view()).is_ok() {
        return;
    }
    // An eigenvalue is accurate to a few eps of the largest: beside a variance far above its floor the small ones would be
    // noise. Directions that lack variance then rise to 1e-12 of it.
    let root = Array1::from_shape_fn(d, |i| root[i].max(1e-6 * a[[i, i]].max(0.0).sqrt()));
    let scaled = Array2::from_shape_fn((d, d), |(i, j)| a[[i, j]] / root[i] / root[j]);
    lift(a, &scaled, &root, 1.0);
}

/// Raises `a` to at least `diag(least)`, and further until its Cholesky factorisation succeeds.
///
/// A matrix whose columns differ much in variance may have lost its smaller eigenvalues to rounding: then those of its
/// correlations are raised, a few eps at first.
pub(super) fn rescue(a: &mut Array2<f64>, least: &Array1<f64>) {
    raise(a, least);
    let d = a.nrows();
    let mut correlation = 64.0 * (d + 1) as f64 * f64::EPSILON;
    while correlation < 1.0 && Cholesky::new(a.view()).is_err() {
        let root = Array1::from_shape_fn(d, |i| a[[i, i]].max(least[i]).sqrt());
        let scaled = Array2::from_shape_fn((d, d), |(i, j)| a[[i, j]] / root[i] / root[j]);
        lift(a, &scaled, &root, correlation);
        correlation *= 16.0;
    }
    if Cholesky::new(a.view()).is_err() {
        // Correlations are lost altogether.
        *a = Array2::from_diag(&Array1::from_shape_fn(d, |i| a[[i, i]].max(least[i])));
    }
}

/// Adds to `a = R scaled R`, with `R = diag(root)`, what `scaled` lacks to eigenvalues of `least`.
fn lift(a: &mut Array2<f64>, scaled: &Array2<f64>, root: &Array1<f64>, least: f64) {
    let d = a.nrows();
    let Ok(eigen) = Mat::from_fn(d, d, |i, j| scaled[[i, j]]).self_adjoint_eigen(Side::Lower) else {
        // It does not converge only for values that are not finite.
        return;
    };
    let (vectors, values) = (eigen.U(), eigen.S().column_vector());
    for e in (0..d).filter(|&e| values[e] < least) {
        let lack = least - values[e];
        for i in 0..d {
            let left = lack * (root[i] * vectors[(i, e)]);
            for j in 0..=i {
                a[[i, j]] += left * (root[j] * vectors[(j, e)]);
            }
        }
    }
    for i in 0..d {
        for j in 0..i {
            a[[j, i]] = a[[i, j]];
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    /// `Q diag(values) Qᵀ` with the columns of Q along (1, 2, 2)/3, (2, 1, −2)/3, (2, −2, 1)/3.
    fn along(values: [f64; 3]) -> Array2<f64> {
        let q = array![[1.0, 2.0, 2.0], [2.0, 1.0, -2.0], [2.0, -2.0, 1.0]] / 3.0;
        q.dot(&Array2::from_diag(&Array1::from_vec(values.to_vec()))).dot(&q.t())
    }

    #[test]
    fn eigenvalues_below_the_floor_rise_to_it_and_the_others_stay() {
        let mut a = along([1e-9, 0.3, 4.0]);
        raise(&mut a, &array![0.5, 0.5, 0.5]);
        let wanted = along([0.5, 0.5, 4.0]);
        assert!((&a - &wanted).iter().all(|v| v.abs() < 1e-14), "{a}");
        let above = along([0.6, 0.7, 4.0]);
        let mut same = above.clone();
        raise(&mut same, &array![0.5, 0.5, 0.5]);
        assert_eq!(same, above);
    }

    #[test]
    fn a_singular_matrix_of_any_scale_gets_a_factor() {
        for scale in [1e-280, 1e-100, 1.0, 1e100, 1e280] {
            for values in [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [-1e-17, 1e-20, 1.0]] {
                let mut a = along(values) * scale;
                rescue(&mut a, &Array1::from_elem(3, 1e-12 * scale));
                Cholesky::new(a.view()).unwrap();
            }
        }
        // The columns' scales differ by more than the digits of f64.
        let mut a = array![[1e200, 1e50, 0.0], [1e50, 1e-100, 0.0], [0.0, 0.0, 0.0]];
        rescue(&mut a, &array![1e-12, 1e-112, 1e-12]);
        Cholesky::new(a.view()).unwrap();
    }
}
