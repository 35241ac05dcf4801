//! Arrays that share the memory of an owner, and the check of all values.

use std::sync::Arc;

use gmm_model::{DataError, Dataset, Matrix, RowArray};
use ndarray::{Array2, ShapeBuilder, array};
use proptest::prelude::*;

#[test]
fn an_array_and_its_clones_keep_the_owner_alive() {
    let owner = Arc::new(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let watch = Arc::downgrade(&owner);
    let rows = RowArray::shared(owner, (3, 2)).unwrap();
    assert!(rows.is_shared());
    assert_eq!(rows, RowArray::from(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]));
    let Matrix::F32(clone) = Matrix::from(rows).clone() else { panic!("f32 in") };
    assert_eq!(clone.row(2).to_vec(), [5.0, 6.0]);
    let data = Dataset::new(Matrix::from(clone.clone())).unwrap();
    drop(clone);
    assert!(watch.upgrade().is_some());
    assert_eq!(data.rows().at(1, 1), 4.0);
    let copy = data.rows().to_f64();
    drop(data);
    assert!(watch.upgrade().is_none());
    assert_eq!(copy[[0, 1]], 2.0);
}

#[test]
fn a_shape_that_the_values_do_not_fill_is_refused() {
    for shape in [(3, 3), (2, 2), (0, 6), (usize::MAX, 2)] {
        assert!(RowArray::shared(Arc::new(vec![0.0; 6]), shape).is_err(), "{shape:?}");
    }
    assert!(RowArray::shared(Arc::new(Vec::<f64>::new()), (0, 6)).is_ok());
}

#[test]
fn an_array_in_another_order_becomes_row_major() {
    let columns = Array2::from_shape_vec((2, 3).f(), vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]).unwrap();
    let rows = RowArray::from(columns);
    assert_eq!(rows.as_slice(), Some(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
}

proptest! {
    #[test]
    fn the_first_value_that_is_not_finite_is_found_wherever_it_is(
        (n, d) in (1..60usize, 1..9usize),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        bad in prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
    ) {
        let mut rows = Array2::from_shape_fn((n, d), |(i, j)| (i * d + j) as f64);
        let at: Vec<usize> = at.iter().map(|index| index.index(n * d)).collect();
        at.iter().for_each(|&at| rows[[at / d, at % d]] = bad);
        let expected = at.iter().min().map(|&at| (at / d, at % d));
        let found = |rows: Matrix| match Dataset::new(rows) {
            Ok(_) => None,
            Err(DataError::NotFinite { row, column, .. }) => Some((row, column)),
            Err(other) => panic!("{other}"),
        };
        prop_assert_eq!(found(rows.mapv(|v| v as f32).into()), expected);
        prop_assert_eq!(found(rows.into()), expected);
    }
}
