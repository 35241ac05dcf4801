//! The rows of the table of bad input that this crate handles, by number: shapes, types and parameters. Rows 21 to 38,
//! degenerate numbers, are in `bad_numbers.rs`.

use gmm_model::{CovarianceType, Covariances, DataError, Dataset, Matrix, Mixture, ModelError};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array};

use crate::{not_positive_definite, try_step, unit};

#[test]
fn rows_1_and_2_no_rows_or_no_columns_are_errors_with_the_shape() {
    assert_eq!(Dataset::new(Array2::<f64>::zeros((0, 3))), Err(DataError::Empty { n: 0, d: 3 }));
    assert_eq!(Dataset::new(Array2::<f32>::zeros((4, 0))), Err(DataError::Empty { n: 4, d: 0 }));
}

#[test]
fn rows_9_and_10_nan_and_infinity_are_errors_with_the_first_row_and_column() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut x = Array2::zeros((5, 3));
        (x[[3, 1]], x[[4, 0]]) = (value, f64::NAN);
        for found in [Dataset::new(x.clone()), Dataset::new(x.mapv(|v| v as f32)), Dataset::new(fortran(&x))] {
            assert!(matches!(found, Err(DataError::NotFinite { row: 3, column: 1, .. })), "{found:?}");
        }
    }
}

fn fortran(x: &Array2<f64>) -> Array2<f64> {
    x.t().as_standard_layout().into_owned().reversed_axes()
}

#[test]
fn row_16_column_order_is_the_same_data() {
    let x = Array2::from_shape_fn((4, 3), |(i, j)| (i * 10 + j) as f64);
    assert_eq!(Dataset::new(fortran(&x)), Dataset::new(x));
}

#[test]
fn rows_of_another_are_used_where_they_lie_if_their_order_allows() {
    static ROWS: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let view = ArrayView2::from_shape((2, 3), &ROWS).expect("six numbers");
    let data = Dataset::new(view).expect("rows");
    let Matrix::F64(found) = data.rows() else { panic!("f64 in") };
    assert_eq!(found.as_ptr(), ROWS.as_ptr());
    let turned = Dataset::new(view.reversed_axes()).expect("rows");
    assert_eq!(turned, Dataset::new(view.reversed_axes().to_owned()).expect("rows"));
    assert_ne!(data, turned);
}

#[test]
fn row_43_a_reg_covar_that_is_negative_or_nan_is_an_error() {
    let m = unit(CovarianceType::Diag, array![[0.0]]);
    for reg_covar in [-1e-6, f64::NAN, f64::INFINITY] {
        let found = try_step(&m, &array![[0.0], [1.0]], reg_covar);
        assert!(matches!(found, Err(ModelError::Range { what: "reg_covar", .. })));
    }
}

#[test]
fn row_44_an_unknown_word_is_an_error_that_lists_the_choices() {
    let error = "fulll".parse::<CovarianceType>().expect_err("no such kind").to_string();
    assert_eq!(error, "unknown covariance type 'fulll': choose one of full, tied, diag, spherical");
    assert!("f16".parse::<gmm_model::Precision>().is_err());
}

#[test]
fn row_45_weights_that_are_no_distribution_are_an_error() {
    let with =
        |weights: Array1<f64>| Mixture::new(weights, array![[0.0], [1.0]], Covariances::Spherical(array![1.0, 1.0]));
    assert!(matches!(with(array![0.5, 0.6]), Err(ModelError::WeightSum { .. })));
    assert!(matches!(with(array![0.0, 0.0]), Err(ModelError::WeightSum { .. })));
    assert!(matches!(with(array![1.5, -0.5]), Err(ModelError::NegativeWeight { component: 1, .. })));
    assert!(matches!(with(array![f64::NAN, 1.0]), Err(ModelError::NotFinite { what: "weight", component: 0, .. })));
    assert!(matches!(with(array![1.0]), Err(ModelError::Shape { what: "weights", .. })));
}

#[test]
fn row_46_means_of_the_wrong_shape_or_nan_are_an_error() {
    let with = |means: Array2<f64>| Mixture::new(array![1.0], means, Covariances::Spherical(array![1.0]));
    assert!(matches!(with(Array2::zeros((0, 2))), Err(ModelError::Shape { what: "means", .. })));
    assert!(matches!(with(Array2::zeros((1, 0))), Err(ModelError::Shape { what: "means", .. })));
    assert!(matches!(with(Array2::zeros((2, 2))), Err(ModelError::Shape { .. })));
    assert!(matches!(with(array![[0.0, f64::NAN]]), Err(ModelError::NotFinite { what: "mean", component: 0, .. })));
}

#[test]
fn row_47_covariances_that_cannot_be_are_errors_that_name_component_and_pivot() {
    let with = |covariances| Mixture::new(array![0.5, 0.5], array![[0.0, 0.0], [1.0, 1.0]], covariances);
    let full = |second: Array2<f64>| {
        let mut all = Array3::from_shape_fn((2, 2, 2), |(_, i, j)| f64::from(i == j));
        all.index_axis_mut(Axis(0), 1).assign(&second);
        with(Covariances::Full(all))
    };
    let skew = full(array![[1.0, 0.5], [0.4, 1.0]]);
    assert_eq!(skew, Err(ModelError::NotSymmetric { component: 1, row: 1, column: 0 }));
    let indefinite = full(array![[1.0, 2.0], [2.0, 1.0]]);
    let kind = CovarianceType::Full;
    assert_eq!(indefinite, Err(ModelError::NotPositiveDefinite { component: 1, column: 1, pivot: -3.0, kind }));
    assert_eq!(not_positive_definite(full(array![[0.0, 0.0], [0.0, 1.0]])), (1, 0));
    assert!(matches!(full(array![[1.0, f64::NAN], [0.0, 1.0]]), Err(ModelError::NotFinite { component: 1, .. })));
    assert_eq!(not_positive_definite(with(Covariances::Tied(array![[1.0, 1.0], [1.0, 1.0]]))), (0, 1));
    assert_eq!(not_positive_definite(with(Covariances::Diag(array![[1.0, 1.0], [1.0, 0.0]]))), (1, 1));
    assert_eq!(not_positive_definite(with(Covariances::Spherical(array![1.0, -1.0]))), (1, 0));
    assert!(matches!(with(Covariances::Spherical(array![1.0])), Err(ModelError::Shape { what: "covariances", .. })));
}

#[test]
fn row_49_row_weights_that_cannot_be_are_errors() {
    let with = |weights: Vec<f64>| Dataset::new(Array2::<f64>::zeros((3, 1))).expect("rows").with_weights(weights);
    assert_eq!(with(vec![1.0; 2]), Err(DataError::WeightLength { found: 2, n: 3 }));
    assert_eq!(with(vec![1.0, -1.0, 1.0]), Err(DataError::Weight { row: 1, value: -1.0 }));
    assert!(matches!(with(vec![1.0, 1.0, f64::NAN]), Err(DataError::Weight { row: 2, .. })));
    assert_eq!(with(vec![0.0; 3]), Err(DataError::WeightSum { sum: 0.0 }));
    assert!(matches!(with(vec![f64::MAX; 3]), Err(DataError::WeightSum { .. })));
    let weighted = with(vec![0.0, 1.5, 2.0]).expect("valid");
    assert_eq!((weighted.total_weight(), weighted.weight(1)), (3.5, 1.5));
}
