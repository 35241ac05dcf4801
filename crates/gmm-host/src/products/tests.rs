//! Products against naive sums in f64, at sizes that are not multiples of any block size.

use gmm_model::ModelError;
use ndarray::{Array2, ArrayView2, array, s};

use super::{ResidentMatrix, Scalar};
use crate::{CpuEngine, Engine, Error, ReferenceEngine};

/// Pseudo-random numbers in [-1, 1), the same on every machine.
fn numbers<T: Scalar>(rows: usize, columns: usize, seed: u64) -> Array2<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::of((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    })
}

fn cpu(threads: usize) -> CpuEngine {
    CpuEngine::new(threads).unwrap()
}

fn on<T: Scalar>(engine: &dyn Engine, matrix: &Array2<T>) -> ResidentMatrix<T> {
    ResidentMatrix::new(engine, matrix.clone()).unwrap()
}

/// Σ a b and Σ |a||b| in f64.
fn naive<T: Scalar>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> (Array2<f64>, Array2<f64>) {
    let (a, b) = (a.mapv(T::to_f64), b.mapv(T::to_f64));
    (naive_sums(&a, &b), naive_sums(&a.mapv(f64::abs), &b.mapv(f64::abs)))
}

fn naive_sums(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((a.nrows(), b.ncols()), |(i, j)| (0..a.ncols()).map(|l| a[[i, l]] * b[[l, j]]).sum())
}

/// Asserts that every entry is within half an `eps` of its type (so f32 results are rounded once) plus the error bound
/// of `k` additions in f64.
fn check<T: Scalar>(found: ArrayView2<'_, T>, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) {
    let (want, size) = naive(a, b);
    let k = a.ncols() as f64;
    for ((at, found), want) in found.indexed_iter().zip(&want) {
        let limit = 0.5 * T::EPSILON * want.abs() + k * f64::EPSILON * size[at];
        assert!((found.to_f64() - want).abs() <= limit, "{at:?}: {} is not {want}", found.to_f64());
    }
}

fn products_at_odd_sizes<T: Scalar>() {
    let shapes =
        [(1, 1, 1), (3, 5, 2), (257, 300, 65), (64, 513, 1), (5, 1000, 3), (300, 7, 259), (2, 3, 520), (70, 31, 63)];
    for (m, k, n) in shapes {
        let (a, b) = (numbers::<T>(m, k, 1), numbers::<T>(k, n, 2));
        for threads in [1, 3] {
            let matrix = on(&cpu(threads), &a);
            check(matrix.matmul(b.view()).unwrap().view(), a.view(), b.view());
            let questions = b.t().as_standard_layout().into_owned();
            check(matrix.inner(questions.view()).unwrap().t(), a.view(), b.view());
        }
    }
}

#[test]
fn products_are_those_of_naive_sums_at_odd_sizes() {
    products_at_odd_sizes::<f32>();
    products_at_odd_sizes::<f64>();
}

#[test]
fn a_sum_of_40000_f32_terms_loses_no_digit_of_f32() {
    // All of one sign: sums in f32 would be off by thousands of units in the last place.
    let (a, b) = (numbers::<f32>(3, 40_000, 1).mapv(f32::abs), numbers::<f32>(40_000, 70, 2).mapv(f32::abs));
    let matrix = on(&cpu(1), &a);
    check(matrix.matmul(b.view()).unwrap().view(), a.view(), b.view());
    check(matrix.inner(b.slice(s![.., ..2]).t()).unwrap().t(), a.view(), b.slice(s![.., ..2]));
}

#[test]
fn fast_sums_of_f32_keep_their_bound_whatever_their_length() {
    for k in [40, 256, 1000, 40_000] {
        let (a, b) = (numbers::<f32>(3, k, 1).mapv(f32::abs), numbers::<f32>(k, 70, 2).mapv(f32::abs));
        let found = on(&cpu(1), &a).fast().matmul(b.view()).unwrap();
        let (want, _) = naive(a.view(), b.view());
        let errors: Vec<f64> = found.iter().zip(&want).map(|(f, w)| (f64::from(*f) / w - 1.0).abs()).collect();
        let (worst, square) = (errors.iter().copied().fold(0.0, f64::max), errors.iter().map(|e| e * e).sum::<f64>());
        assert!(worst < 2f64.powi(-16), "{k}: {worst:e}");
        // The typical error; and worse than the exact path's half unit in the last place, so the fast path did run.
        assert!((square / errors.len() as f64).sqrt() < 2f64.powi(-21), "{k}: {square:e}");
        assert!(worst > 2f64.powi(-24), "{k}: {worst:e}");
        // Batches of few questions stay exact.
        let few = b.slice(s![.., ..9]);
        check(on(&cpu(1), &a).fast().matmul(few).unwrap().view(), a.view(), few);
    }
    let same = numbers::<f64>(9, 70, 1);
    let product = |matrix: ResidentMatrix<f64>| matrix.inner(same.view()).unwrap();
    assert_eq!(product(on(&cpu(1), &same).fast()), product(on(&cpu(1), &same)));
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    let (a, b) = (numbers::<f64>(600, 331, 1), numbers::<f64>(331, 300, 2));
    let of = |threads: usize| {
        let matrix = on(&cpu(threads), &a);
        let square = on(&cpu(threads), &numbers::<f64>(331, 331, 5));
        let best = matrix.top_k(b.t(), 17).unwrap();
        (matrix.matmul(b.view()).unwrap(), square.quadratic_form(b.t()).unwrap(), best)
    };
    assert_eq!(of(1), of(3));
}

#[test]
fn strides_are_free_in_questions_and_answers() {
    let (a, b) = (numbers::<f32>(40, 30, 1), numbers::<f32>(60, 140, 2));
    let matrix = ResidentMatrix::new(&cpu(2), a.t().as_standard_layout().into_owned().reversed_axes()).unwrap();
    let odd = b.slice(s![..;-2, 3..;2]);
    let mut out = Array2::<f32>::zeros((2 * odd.ncols(), 40));
    let mut view = out.slice_mut(s![..;2, ..]);
    matrix.matmul_into(odd, view.view_mut().reversed_axes()).unwrap();
    check(out.slice(s![..;2, ..]).t(), a.view(), odd);
    assert!(out.slice(s![1..;2, ..]).iter().all(|v| *v == 0.0));
}

fn forms<T: Scalar>() {
    for (d, q) in [(1, 1), (5, 3), (300, 2), (513, 70), (31, 600)] {
        let (a, x) = (numbers::<T>(d, d, 1), numbers::<T>(q, d, 2));
        let mut want = vec![0.0; q];
        super::reference::forms(a.view(), x.view(), &mut want);
        let mut size = vec![0.0; q];
        let abs = |m: &Array2<T>| m.mapv(|v| T::of(v.to_f64().abs()));
        super::reference::forms(abs(&a).view(), abs(&x).view(), &mut size);
        let found = on(&cpu(2), &a).quadratic_form(x.view()).unwrap();
        for ((found, want), size) in found.iter().zip(&want).zip(&size) {
            // The fold is rounded to T; sums are f64.
            let limit = (0.5 * T::EPSILON + 3.0 * d as f64 * f64::EPSILON) * size;
            assert!((found - want).abs() <= limit, "d = {d}: {found} is not {want}");
        }
    }
}

#[test]
fn forms_of_matrices_that_are_not_symmetric_are_those_of_naive_sums() {
    forms::<f32>();
    forms::<f64>();
}

#[test]
fn distances_are_those_of_naive_substitution() {
    // The last size is large enough for several threads.
    for (d, q) in [(1, 1), (2, 5), (33, 300), (100, 7), (200, 130), (260, 300)] {
        let rows = numbers::<f64>(2 * d, d, 1);
        let a = rows.t().dot(&rows);
        let mean: Vec<f64> = (0..d).map(|j| j as f64 * 0.1).collect();
        let x = numbers::<f32>(q, d, 2);
        let factor = on(&cpu(3), &a).factor().unwrap();
        let found = factor.mahalanobis(x.view(), Some(&mean)).unwrap();
        let want = on(&ReferenceEngine, &a).factor().unwrap().mahalanobis(x.view(), Some(&mean)).unwrap();
        let limit = 1e3 * d as f64 * f64::EPSILON;
        found.iter().zip(&want).for_each(|(f, w)| assert!((f - w).abs() <= limit * w, "d = {d}: {f} is not {w}"));
        // Checks the factor itself: L Lᵀ is A, and ln det A follows from its diagonal.
        let (l, ln_det) = (factor.lower(), factor.ln_det());
        assert!((l.dot(&l.t()) - &a).iter().all(|v| v.abs() <= limit * d as f64));
        assert!((ln_det - 2.0 * l.diag().iter().map(|v| v.ln()).sum::<f64>()).abs() < limit);
    }
}

#[test]
fn what_has_no_factor_is_named() {
    let factor = |matrix: Array2<f64>| on(&cpu(1), &matrix).factor().err().unwrap();
    assert!(matches!(factor(array![[1.0, 2.0], [2.0, 1.0]]), Error::NotPositiveDefinite { column: 1, .. }));
    assert!(matches!(factor(array![[1.0, 0.5], [0.0, 1.0]]), Error::NotSymmetric { row: 1, column: 0 }));
    assert!(matches!(factor(array![[1.0, 0.0]]), Error::Model(ModelError::Shape { .. })));
    assert!(matches!(factor(array![[f64::NAN]]), Error::NotPositiveDefinite { column: 0, .. }));
}

#[test]
fn the_best_rows_are_those_of_all_inner_products_sorted() {
    // Few distinct values, so that there are many ties; enough rows for several threads.
    let a = numbers::<f32>(4000, 6, 1).mapv(|v| (2.0 * v).round());
    let x = numbers::<f32>(300, 6, 2).mapv(|v| (2.0 * v).round());
    for count in [0, 1, 10, 1000] {
        let want = on(&ReferenceEngine, &a).top_k(x.view(), count).unwrap();
        for threads in [1, 3] {
            assert_eq!(on(&cpu(threads), &a).top_k(x.view(), count).unwrap(), want);
        }
    }
}

#[test]
fn the_best_rows_have_the_values_of_inner_products_to_the_bit() {
    for (m, q) in [(100, 150), (300, 40), (1200, 300), (5000, 300)] {
        let (a, x) = (numbers::<f32>(m, 700, 1), numbers::<f32>(q, 700, 2));
        values_of_inner(&on(&cpu(2), &a), &x);
        values_of_inner(&on(&cpu(2), &a).fast(), &x);
        values_of_inner(&on(&cpu(2), &numbers::<f64>(m, 700, 1)), &numbers::<f64>(q, 700, 2));
    }
}

fn values_of_inner<T: Scalar + std::fmt::Debug>(matrix: &ResidentMatrix<T>, x: &Array2<T>) {
    let (best, inner) = (matrix.top_k(x.view(), 5).unwrap(), matrix.inner(x.view()).unwrap());
    for ((question, rank), &row) in best.indices.indexed_iter() {
        assert_eq!(best.values[[question, rank]], inner[[question, row]], "{question} {row}");
    }
}

#[test]
fn bits_do_not_depend_on_how_matrices_lie() {
    fn turned<T: Scalar>(a: &Array2<T>) -> Array2<T> {
        a.t().as_standard_layout().into_owned().reversed_axes()
    }
    for (m, k, n) in [(1, 700, 80), (3, 700, 80), (4, 1300, 64), (130, 700, 70), (257, 700, 65)] {
        let (a, b) = (numbers::<f64>(m, k, 1), numbers::<f64>(k, n, 2));
        let want = on(&cpu(1), &a).matmul(b.view()).unwrap();
        for (a, b) in [(&a, &turned(&b)), (&turned(&a), &b), (&turned(&a), &turned(&b))] {
            let matrix = ResidentMatrix::new(&cpu(1), a.clone()).unwrap();
            assert_eq!(matrix.matmul(b.view()).unwrap(), want, "{m} {k} {n}");
            let mut out = Array2::zeros((n, m)).reversed_axes();
            matrix.matmul_into(b.view(), out.view_mut()).unwrap();
            assert_eq!(out, want, "{m} {k} {n}, by columns");
        }
    }
}

#[test]
fn the_best_rows_have_nan_last_and_equals_in_order() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let a = array![[nan], [-inf], [1.0], [inf], [-0.0], [0.0], [1.0], [nan]];
    let best = on(&cpu(1), &a).top_k(array![[1.0]].view(), 8).unwrap();
    assert_eq!(best.indices.row(0).to_vec(), [3, 2, 6, 4, 5, 1, 0, 7]);
    assert!(best.values[[0, 7]].is_nan());
    let too_many = on(&cpu(1), &a).top_k(array![[1.0]].view(), 9).unwrap_err();
    assert_eq!(too_many.to_string(), "count is 9: it must be at most 8, the rows of the matrix");
}

#[test]
fn numbers_that_are_none_touch_the_sums_they_are_in() {
    for (m, n) in [(70, 80), (70, 2)] {
        let (mut a, mut b) = (numbers::<f32>(m, 9, 1), numbers::<f32>(9, n, 2));
        (a[[3, 2]], b[[5, 1]]) = (f32::NAN, f32::INFINITY);
        for matrix in [on(&cpu(1), &a), on(&cpu(1), &a).fast()] {
            let found = matrix.matmul(b.view()).unwrap();
            for ((i, j), value) in found.indexed_iter() {
                assert_eq!((value.is_nan(), value.is_infinite()), (i == 3, i != 3 && j == 1), "({i}, {j})");
            }
        }
    }
    let x = array![[1.0, f64::INFINITY], [f64::NAN, 0.0], [1.0, 1.0]];
    let matrix = on(&cpu(1), &array![[2.0, 0.0], [0.0, 2.0]]);
    let (forms, distances) =
        (matrix.quadratic_form(x.view()).unwrap(), matrix.factor().unwrap().mahalanobis(x.view(), None).unwrap());
    assert!(forms[..2].iter().chain(&distances[..2]).all(|v| v.is_nan()));
    assert!(forms[2] == 4.0 && (distances[2] - 1.0).abs() < 1e-15);
}

#[test]
fn f32_results_beyond_the_range_are_infinite_and_forms_are_not() {
    let matrix = on(&cpu(1), &array![[f32::MAX]]);
    assert_eq!(matrix.matmul(array![[2.0]].view()).unwrap(), array![[f32::INFINITY]]);
    assert_eq!(matrix.quadratic_form(array![[2.0]].view()).unwrap(), [4.0 * f64::from(f32::MAX)]);
}

#[test]
fn sides_of_zero_are_sizes_like_others() {
    let none = |m, k| on::<f64>(&cpu(1), &Array2::zeros((m, k)));
    assert_eq!(none(2, 0).matmul(Array2::zeros((0, 3)).view()).unwrap(), Array2::<f64>::zeros((2, 3)));
    assert_eq!(none(0, 4).matmul(Array2::zeros((4, 3)).view()).unwrap().dim(), (0, 3));
    assert_eq!(none(3, 4).inner(Array2::zeros((0, 4)).view()).unwrap().dim(), (0, 3));
    assert_eq!(none(0, 0).quadratic_form(Array2::zeros((2, 0)).view()).unwrap(), [0.0; 2]);
    assert_eq!(none(3, 3).quadratic_form(Array2::zeros((0, 3)).view()).unwrap().len(), 0);
    assert_eq!(none(0, 0).factor().unwrap().mahalanobis(Array2::<f64>::zeros((2, 0)).view(), None).unwrap(), [0.0; 2]);
    assert_eq!(none(0, 2).top_k(Array2::zeros((2, 2)).view(), 0).unwrap().indices.dim(), (2, 0));
}

#[test]
fn shapes_that_do_not_fit_are_told() {
    let matrix = on(&cpu(1), &numbers::<f64>(3, 4, 1));
    let wrong = matrix.matmul(Array2::zeros((5, 2)).view()).unwrap_err();
    assert_eq!(wrong.to_string(), "the right factor has shape [5, 2], expected [4, 2]");
    let wrong = matrix.inner(Array2::zeros((5, 2)).view()).unwrap_err();
    assert_eq!(wrong.to_string(), "the batch of questions has shape [5, 2], expected [5, 4]");
    assert!(matrix.matmul_into(Array2::zeros((4, 2)).view(), Array2::zeros((2, 3)).view_mut()).is_err());
    assert!(matrix.quadratic_form(Array2::zeros((1, 4)).view()).is_err());
    let square = on(&cpu(1), &Array2::<f64>::eye(2));
    assert!(square.quadratic_form_into(Array2::zeros((3, 2)).view(), &mut [0.0; 2]).is_err());
    let factor = square.factor().unwrap();
    assert!(factor.mahalanobis(Array2::<f64>::zeros((3, 2)).view(), Some(&[0.0; 3])).is_err());
    assert!(factor.mahalanobis(Array2::<f32>::zeros((3, 1)).view(), None).is_err());
}

#[test]
fn a_result_that_no_memory_holds_is_refused_before_anything_is_computed() {
    // One number, broadcast to a billion questions.
    let one = array![[1.0]];
    let huge = one.broadcast((1 << 30, 1)).unwrap();
    let wide = ResidentMatrix::new(&cpu(1), Array2::<f64>::zeros((1 << 20, 1))).unwrap();
    let refused = wide.inner(huge).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::Memory { wanted, .. } if wanted == 8 << 50), "{refused}");
}
