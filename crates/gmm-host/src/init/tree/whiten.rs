//! Transforms rows so that no column decides the tree by its unit: mclust's `SVD` (Scrucca and Raftery 2015).

use ndarray::{Array1, Array2, ArrayView2, Axis};

/// Above this number of columns the rows are scaled but not rotated: the rotation costs `O(d³)`, and few clusters of a
/// sample have more rows than that.
pub(super) const ROTATED: usize = 128;

/// A direction whose share of the largest eigenvalue is below this is a combination of the others.
const COLLINEAR: f64 = 1e-14;

/// Sweeps of Jacobi's method; it converges quadratically, within about eight.
const SWEEPS: usize = 60;

/// Centres the columns of `rows`, `(m, d)`, scales them to unit variance, rotates them to the right singular vectors,
/// and divides each by the square root of its singular value. `weights`, `(m,)`, count as repetitions of the rows.
///
/// Returns `(m, p)`: constant columns and directions without variance are left out, so `p ≤ d`. Cost: `m d²` for the
/// correlations, `O(d³)` for the rotation.
pub(super) fn whitened(rows: ArrayView2<'_, f64>, weights: &[f64]) -> Array2<f64> {
    let total: f64 = weights.iter().sum();
    let mean = Array1::from_iter(
        rows.columns().into_iter().map(|column| column.iter().zip(weights).map(|(x, w)| w * x).sum::<f64>() / total),
    );
    let mut z = &rows - &mean;
    let mut varying = Vec::new();
    for (j, mut column) in z.columns_mut().into_iter().enumerate() {
        let sum: f64 = column.iter().zip(weights).map(|(x, w)| w * x * x).sum();
        let scale = (sum / (total - 1.0).max(1.0)).sqrt();
        if scale.is_normal() {
            column.mapv_inplace(|x| x / scale);
            varying.push(j);
        }
    }
    let mut z = z.select(Axis(1), &varying);
    if varying.len() <= ROTATED {
        let scaled = Array2::from_shape_fn(z.dim(), |(i, j)| weights[i].sqrt() * z[[i, j]]);
        // The eigenvalues of XᵀX are the squared singular values of X.
        let (values, vectors) = eigen(scaled.t().dot(&scaled));
        let most = values.iter().copied().fold(0.0, f64::max);
        let kept: Vec<usize> = (0..values.len()).filter(|&j| values[j] > COLLINEAR * most).collect();
        let mut turn = vectors.select(Axis(1), &kept);
        for (mut column, &j) in turn.columns_mut().into_iter().zip(&kept) {
            column.mapv_inplace(|v| v / values[j].powf(0.25));
        }
        z = z.dot(&turn);
    }
    z
}

/// The eigenvalues, `(d,)`, and in columns the eigenvectors, `(d, d)`, of a symmetric matrix: cyclic Jacobi rotations
/// (Golub and Van Loan 2013, section 8.5).
fn eigen(mut a: Array2<f64>) -> (Array1<f64>, Array2<f64>) {
    let d = a.nrows();
    let mut vectors = Array2::eye(d);
    for _ in 0..SWEEPS {
        let outside: f64 = (0..d).flat_map(|i| (0..i).map(move |j| (i, j))).map(|at| a[at] * a[at]).sum();
        let inside: f64 = a.diag().iter().map(|v| v * v).sum();
        if outside <= f64::EPSILON * f64::EPSILON * inside {
            break;
        }
        for p in 0..d {
            for q in p + 1..d {
                rotate(&mut a, &mut vectors, p, q);
            }
        }
    }
    (a.diag().to_owned(), vectors)
}

/// Makes `a[p, q]` zero.
fn rotate(a: &mut Array2<f64>, vectors: &mut Array2<f64>, p: usize, q: usize) {
    if a[[p, q]] == 0.0 {
        return;
    }
    let half = (a[[q, q]] - a[[p, p]]) / (2.0 * a[[p, q]]);
    let tangent = half.signum() / (half.abs() + half.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = tangent * cosine;
    for i in 0..a.nrows() {
        let (x, y) = (a[[i, p]], a[[i, q]]);
        (a[[i, p]], a[[i, q]]) = (cosine * x - sine * y, sine * x + cosine * y);
    }
    for i in 0..a.nrows() {
        let (x, y) = (a[[p, i]], a[[q, i]]);
        (a[[p, i]], a[[q, i]]) = (cosine * x - sine * y, sine * x + cosine * y);
        let (x, y) = (vectors[[i, p]], vectors[[i, q]]);
        (vectors[[i, p]], vectors[[i, q]]) = (cosine * x - sine * y, sine * x + cosine * y);
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn an_eigenvalue_times_its_vector_is_the_matrix_times_it() {
        let a = Array2::from_shape_fn((7, 7), |(i, j)| 1.0 / (i + j + 1) as f64);
        let (values, vectors) = eigen(a.clone());
        let difference = a.dot(&vectors) - &vectors * &values;
        assert!(difference.iter().all(|v| v.abs() < 7.0 * 4.0 * f64::EPSILON), "{difference}");
        let gram = vectors.t().dot(&vectors) - Array2::<f64>::eye(7);
        assert!(gram.iter().all(|v| v.abs() < 7.0 * 8.0 * f64::EPSILON), "{gram}");
    }

    #[test]
    fn whitened_columns_are_uncorrelated_and_their_squares_sum_to_the_singular_value() {
        let rows = array![[1.0, 20.0], [2.0, 10.0], [4.0, 35.0], [8.0, 30.0], [9.0, 80.0]];
        let z = whitened(rows.view(), &[1.0; 5]);
        let gram = z.t().dot(&z);
        assert!(gram[[0, 1]].abs() < 1e-14, "{gram}");
        // The correlation matrix times n − 1 has these eigenvalues.
        let correlation = {
            let centred = &rows - &rows.mean_axis(Axis(0)).unwrap();
            let cross = centred.t().dot(&centred);
            cross[[0, 1]] / (cross[[0, 0]] * cross[[1, 1]]).sqrt()
        };
        let mut squares = [gram[[0, 0]], gram[[1, 1]]];
        squares.sort_by(f64::total_cmp);
        for (found, value) in squares.iter().zip([1.0 - correlation, 1.0 + correlation]) {
            assert!((found - (4.0 * value).sqrt()).abs() < 1e-13, "{found} {value}");
        }
    }

    #[test]
    fn constant_and_collinear_columns_are_left_out_and_weights_repeat_rows() {
        let rows = array![[1.0, 5.0, 2.0], [2.0, 5.0, 4.0], [4.0, 5.0, 8.0], [8.0, 5.0, 16.0]];
        assert_eq!(whitened(rows.view(), &[1.0; 4]).ncols(), 1);
        let repeated = rows.select(Axis(0), &[0, 1, 1, 2, 3, 3, 3]);
        let (once, twice) = (whitened(rows.view(), &[1.0, 2.0, 1.0, 3.0]), whitened(repeated.view(), &[1.0; 7]));
        for (i, at) in [0, 1, 1, 2, 3, 3, 3].into_iter().enumerate() {
            assert!((once[[at, 0]] - twice[[i, 0]]).abs() < 1e-14);
        }
    }
}
