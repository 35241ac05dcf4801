//! The unconstrained parametrisation: round trips, its gradient, its Jacobian.

use gmm_host::{Error, Likelihood, ReferenceEngine, Unconstrained};
use gmm_model::{CovarianceType, Covariances, Mixture, ModelError, Precision};
use ndarray::{Array1, Array2, array};

use super::{close, common, every_case, on_cpu, slope};

fn moved(point: &[f64], at: usize, by: f64) -> Vec<f64> {
    let mut point = point.to_vec();
    point[at] += by;
    point
}

fn flat(covariances: &Covariances) -> Vec<f64> {
    match covariances {
        Covariances::Full(a) => a.iter().copied().collect(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
        Covariances::Spherical(a) => a.to_vec(),
    }
}

#[test]
fn a_mixture_comes_back_from_its_point() {
    every_case(|what, _, mixture| {
        let map = Unconstrained::like(&mixture);
        let point = map.from_mixture(&mixture).unwrap();
        assert_eq!((point.len(), map.dim()), (mixture.n_parameters(), mixture.n_parameters()), "{what}");
        let back = map.to_mixture(&point).unwrap();
        close(back.weights(), mixture.weights(), 1e-14, what);
        assert_eq!(back.means(), mixture.means(), "{what}");
        close(&flat(back.covariances()), &flat(mixture.covariances()), 1e-13, what);
        close(&map.from_mixture(&back).unwrap(), &point, 1e-13, what);
    });
}

#[test]
fn value_and_gradient_are_those_of_finite_differences() {
    every_case(|what, data, mixture| {
        let map = Unconstrained::like(&mixture);
        let point = map.from_mixture(&mixture).unwrap();
        let mut gradient = vec![f64::NAN; map.dim()];
        let value = on_cpu(&data).unconstrained(&map, &point, &mut gradient).unwrap();
        let mut slow = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap();
        let mut at = |point: &[f64]| slow.value(&map.to_mixture(point).unwrap()).unwrap();
        close([&value], [&at(&point)], 1e-9, what);
        let want: Vec<f64> = (0..map.dim()).map(|i| slope(|t| at(&moved(&point, i, t)))).collect();
        close(&gradient, &want, 1e-6, what);
    });
}

#[test]
fn the_gradient_of_the_log_jacobian_is_that_of_finite_differences() {
    every_case(|what, _, mixture| {
        let map = Unconstrained::like(&mixture);
        let point = map.from_mixture(&mixture).unwrap();
        let mut gradient = vec![100.0; map.dim()];
        map.add_log_jacobian_gradient(&point, &mut gradient).unwrap();
        let want = (0..map.dim()).map(|i| 100.0 + slope(|t| map.log_jacobian(&moved(&point, i, t)).unwrap()));
        close(&gradient, &want.collect::<Vec<_>>(), 1e-9, what);
    });
}

/// The image of a point: free weights, means, lower triangles or variances.
fn image(mixture: &Mixture) -> Vec<f64> {
    let (k, d) = mixture.means().dim();
    let mut out: Vec<f64> = mixture.weights().iter().take(k - 1).chain(&mixture.means()).copied().collect();
    let mut lower = |a: &Array2<f64>| (0..d).for_each(|i| out.extend((0..=i).map(|j| a[[i, j]])));
    match mixture.covariances() {
        Covariances::Full(a) => a.outer_iter().for_each(|a| lower(&a.to_owned())),
        Covariances::Tied(a) => lower(a),
        Covariances::Diag(a) => out.extend(a),
        Covariances::Spherical(a) => out.extend(a),
    }
    out
}

/// ln |det| by elimination with pivoting.
fn log_determinant(mut a: Vec<Vec<f64>>) -> f64 {
    let m = a.len();
    let mut sum = 0.0;
    for i in 0..m {
        let pivot = (i..m).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
        a.swap(i, pivot);
        sum += a[i][i].abs().ln();
        for row in i + 1..m {
            let factor = a[row][i] / a[i][i];
            for column in i..m {
                a[row][column] -= factor * a[i][column];
            }
        }
    }
    sum
}

#[test]
fn the_log_jacobian_is_the_log_determinant_of_the_derivatives() {
    for kind in CovarianceType::ALL {
        for (k, d) in [(1, 1), (1, 3), (3, 2), (2, 3)] {
            let mixture = common::mixture(kind, k, d, 0.0, 0.7, 3);
            let map = Unconstrained::like(&mixture);
            let point = map.from_mixture(&mixture).unwrap();
            let at = |i: usize, t: f64, row: usize| image(&map.to_mixture(&moved(&point, i, t)).unwrap())[row];
            let m = map.dim();
            let derivatives = (0..m).map(|i| (0..m).map(|row| slope(|t| at(i, t, row))).collect()).collect();
            let (got, want) = (map.log_jacobian(&point).unwrap(), log_determinant(derivatives));
            // Each of the m derivatives is accurate to about 1e-11.
            assert!((got - want).abs() < 1e-9 * m as f64, "{kind} k={k} d={d}: {got} and {want}");
        }
    }
}

#[test]
fn points_that_are_no_mixture_are_typed_errors() {
    let map = Unconstrained::new(CovarianceType::Full, 2, 2).unwrap();
    assert_eq!(map.dim(), 11);
    let model = |found: Result<Mixture, Error>| match found.unwrap_err() {
        Error::Model(error) => error,
        other => panic!("{other}"),
    };
    let good = vec![0.1; 11];
    map.to_mixture(&good).unwrap();
    assert!(matches!(model(map.to_mixture(&good[1..])), ModelError::Shape { .. }));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for at in 0..11 {
            let point = moved(&good, at, bad);
            assert!(matches!(model(map.to_mixture(&point)), ModelError::Range { .. }));
            assert!(map.log_jacobian(&point).is_err());
            assert!(map.add_log_jacobian_gradient(&point, &mut [0.0; 11]).is_err());
        }
    }
    // Entry 5 is ln L_00 of the first component.
    assert!(matches!(model(map.to_mixture(&moved(&good, 5, 1000.0))), ModelError::NotFinite { .. }));
    assert!(matches!(model(map.to_mixture(&moved(&good, 5, -1000.0))), ModelError::NotPositiveDefinite { .. }));
    // A weight may underflow to 0; the other is then 1.
    let far = map.to_mixture(&moved(&good, 0, 1e6)).unwrap();
    assert_eq!(far.weights(), array![1.0, 0.0]);
    let infinite = map.from_mixture(&far).unwrap_err();
    assert!(infinite.to_string().contains("weight of 0 is at infinity"), "{infinite}");
    assert!(Unconstrained::new(CovarianceType::Diag, 0, 2).is_err());
    let other = Mixture::new(Array1::ones(1), array![[0.0, 0.0]], Covariances::Spherical(array![1.0])).unwrap();
    assert!(map.from_mixture(&other).is_err());
    let mut likelihood = on_cpu(&gmm_model::Dataset::new(array![[0.0, 1.0]]).unwrap());
    assert!(likelihood.unconstrained(&map, &good, &mut [0.0; 3]).is_err());
}
