//! Products with a resident matrix on the fake driver: agreement with naive loops, chunks, memory and faults.

use gmm_kernels::products::Form;
use ndarray::{ArrayView2, array, s};

use super::*;
use crate::cuda::products::FORM;
use crate::products::{Scalar, TopK};
use crate::{ReferenceEngine, ResidentMatrix};

/// Guard that resets the forced form of products when dropped.
pub(super) struct ForcedPlan;

impl ForcedPlan {
    pub(super) fn form(form: Form) -> Self {
        FORM.set(Some(form));
        Self
    }
}

impl Drop for ForcedPlan {
    fn drop(&mut self) {
        FORM.set(None);
    }
}

pub(super) fn numbers<T: Scalar>(rows: usize, columns: usize, seed: usize) -> Array2<T> {
    Array2::from_shape_fn((rows, columns), |(i, j)| T::of(noise(seed * 1_000_003 + i * columns + j)))
}

fn on<T: Scalar>(engine: &dyn Engine, matrix: &Array2<T>) -> ResidentMatrix<T> {
    ResidentMatrix::new(engine, matrix.clone()).unwrap()
}

/// Σ a b and Σ |a||b|.
fn naive<T: Scalar>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> (Array2<f64>, Array2<f64>) {
    let (a, b) = (a.mapv(T::to_f64), b.mapv(T::to_f64));
    (a.dot(&b), a.mapv(f64::abs).dot(&b.mapv(f64::abs)))
}

fn exact<T: Scalar>(found: ArrayView2<'_, T>, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) {
    let (want, size) = naive(a, b);
    assert_eq!(found.dim(), want.dim());
    for ((at, found), want) in found.indexed_iter().zip(&want) {
        let limit = 0.5 * T::EPSILON * want.abs() + 2.0 * a.ncols() as f64 * f64::EPSILON * size[at];
        assert!((found.to_f64() - want).abs() <= limit, "{at:?}: {} is not {want}", found.to_f64());
    }
}

fn products<T: Scalar + std::fmt::Debug>(engine: &dyn Engine) {
    for (m, k, n) in [(1, 1, 1), (130, 9, 3), (3, 70, 129), (20, 300, 7)] {
        let (a, b) = (numbers::<T>(m, k, 1), numbers::<T>(k, n, 2));
        let matrix = on(engine, &a);
        let found = matrix.matmul(b.view()).unwrap();
        exact(found.view(), a.view(), b.view());
        assert_eq!(found, matrix.matmul(b.view()).unwrap(), "the same bits again");
        let questions = b.t().as_standard_layout().into_owned();
        exact(matrix.inner(questions.view()).unwrap().t(), a.view(), b.view());
        // Any strides are allowed.
        let wide = numbers::<T>(2 * k, 2 * n + 3, 3);
        let odd = wide.slice(s![..;-2, 3..;2]);
        let mut out = Array2::<T>::zeros((2 * odd.ncols(), m));
        let mut view = out.slice_mut(s![..;2, ..]);
        matrix.matmul_into(odd, view.view_mut().reversed_axes()).unwrap();
        exact(out.slice(s![..;2, ..]).t(), a.view(), odd);
        assert!(out.slice(s![1..;2, ..]).iter().all(|v| v.to_f64() == 0.0));
    }
}

#[test]
fn products_are_those_of_naive_sums_on_every_module() {
    let fake = Fake::install(Machine::default());
    for module in ["sm_75", "sm_80", "sm_90a"] {
        let engine = CudaEngine::with_module(0, module).unwrap();
        products::<f32>(&engine);
        products::<f64>(&engine);
    }
    fake.0.assert_clean("products");
}

#[test]
fn halves_keep_the_digits_of_f32() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (a, b) = (numbers::<f32>(130, 200, 1), numbers::<f32>(200, 140, 2));
    let (want, _) = naive(a.view(), b.view());
    for (form, limit, start) in
        [(Form::HalfPrecision, 2f64.powi(-21), "multiply_halves"), (Form::Heads, 2f64.powi(-10), "multiply_heads")]
    {
        let _form = ForcedPlan::form(form);
        let before = fake.0.launches(start);
        let matrix = on(&engine, &a);
        let found = matrix.matmul(b.view()).unwrap();
        assert!(fake.0.launches(start) > before);
        let norm = |v: ndarray::ArrayView1<'_, f32>| v.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        for (((i, j), found), want) in found.indexed_iter().zip(&want) {
            let error = (f64::from(*found) - want).abs() / (norm(a.row(i)) * norm(b.column(j)));
            assert!(error <= limit, "({i}, {j}): {error:e}");
        }
        assert_eq!(found, matrix.matmul(b.view()).unwrap(), "the same bits again");
        // A search ranks by the values of the product.
        let best = matrix.top_k(b.t(), 5).unwrap();
        for (question, (rows, values)) in best.indices.rows().into_iter().zip(best.values.rows()).enumerate() {
            rows.iter().zip(values).for_each(|(&row, value)| assert_eq!(found[[row, question]], *value));
        }
    }
    drop(engine);
    fake.0.assert_clean("halves");
}

#[test]
fn what_halves_cannot_hold_goes_by_f64() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let _form = ForcedPlan::form(Form::HalfPrecision);
    let (a, b) = (numbers::<f32>(40, 70, 1), numbers::<f32>(70, 30, 2));
    for in_matrix in [true, false] {
        for strange in [1e12, f32::NAN, f32::INFINITY] {
            let (mut a, mut b) = (a.clone(), b.clone());
            *(if in_matrix { &mut a[[3, 2]] } else { &mut b[[5, 1]] }) = strange;
            let before = fake.0.launches("multiply_doubles");
            let found = on(&engine, &a).matmul(b.view()).unwrap();
            assert!(fake.0.launches("multiply_doubles") > before);
            if strange.is_finite() {
                exact(found.view(), a.view(), b.view());
                continue;
            }
            for ((i, j), value) in found.indexed_iter() {
                let touched = if in_matrix { i == 3 } else { j == 1 };
                assert_eq!(!value.is_finite(), touched, "({i}, {j})");
                assert_eq!(value.is_nan(), touched && strange.is_nan(), "({i}, {j})");
            }
        }
    }
    drop(engine);
    fake.0.assert_clean("by f64");
}

#[test]
fn small_products_are_exact_whatever_is_asked() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (a, b) = (numbers::<f32>(30, 100, 1), numbers::<f32>(100, 70, 2));
    exact(on(&engine, &a).fast().matmul(b.view()).unwrap().view(), a.view(), b.view());
    assert_eq!(fake.0.launches("multiply_h"), 0);
}

fn forms_and_distances<T: Scalar>(engine: &dyn Engine) {
    for (d, q) in [(1, 1), (5, 33), (140, 7)] {
        let (a, x) = (numbers::<T>(d, d, 1), numbers::<T>(q, d, 2));
        let (found, want) =
            (on(engine, &a).quadratic_form(x.view()), on(&ReferenceEngine, &a).quadratic_form(x.view()));
        let abs = |m: &Array2<T>| m.mapv(|v| T::of(v.to_f64().abs()));
        let size = on(&ReferenceEngine, &abs(&a)).quadratic_form(abs(&x).view()).unwrap();
        for ((found, want), size) in found.unwrap().iter().zip(want.unwrap()).zip(size) {
            let limit = (0.5 * T::EPSILON + 4.0 * d as f64 * f64::EPSILON) * size;
            assert!((found - want).abs() <= limit, "d = {d}: {found} is not {want}");
        }
        let rows = numbers::<f64>(2 * d, d, 3);
        let covariance = rows.t().dot(&rows);
        let mean: Vec<f64> = (0..d).map(|j| 0.1 * j as f64).collect();
        let distances = |engine: &dyn Engine, mean: Option<&[f64]>| {
            on(engine, &covariance).factor().unwrap().mahalanobis(x.view(), mean).unwrap()
        };
        for mean in [None, Some(&mean[..])] {
            let limit = 1e3 * d as f64 * f64::EPSILON;
            for (found, want) in distances(engine, mean).iter().zip(distances(&ReferenceEngine, mean)) {
                assert!((found - want).abs() <= limit * want, "d = {d}: {found} is not {want}");
            }
        }
    }
}

#[test]
fn forms_and_distances_are_those_of_the_reference() {
    let fake = Fake::install(Machine::default());
    for module in ["sm_75", "sm_90a"] {
        let engine = CudaEngine::with_module(0, module).unwrap();
        forms_and_distances::<f32>(&engine);
        forms_and_distances::<f64>(&engine);
    }
    let engine = CudaEngine::new(0).unwrap();
    let x = array![[1.0, f64::INFINITY], [f64::NAN, 0.0], [1.0, 1.0]];
    let matrix = on(&engine, &array![[2.0, 0.0], [0.0, 2.0]]);
    let (forms, distances) =
        (matrix.quadratic_form(x.view()).unwrap(), matrix.factor().unwrap().mahalanobis(x.view(), None).unwrap());
    assert!(forms[..2].iter().chain(&distances[..2]).all(|v| v.is_nan()));
    assert!(forms[2] == 4.0 && (distances[2] - 1.0).abs() < 1e-15);
    drop((matrix, engine));
    fake.0.assert_clean("forms");
}

#[test]
fn the_best_rows_are_those_of_the_reference() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    // Few distinct values, so that ties are frequent.
    let a = numbers::<f32>(300, 6, 1).mapv(|v| (2.0 * v).round());
    let x = numbers::<f32>(40, 6, 2).mapv(|v| (2.0 * v).round());
    for count in [0, 1, 10, 300] {
        let find = |engine: &dyn Engine| -> TopK<f32> { on(engine, &a).top_k(x.view(), count).unwrap() };
        assert_eq!(find(&engine), find(&ReferenceEngine));
    }
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let strange = array![[nan], [-inf], [1.0], [inf], [-0.0], [0.0], [1.0], [nan]];
    let best = on(&engine, &strange).top_k(array![[1.0]].view(), 8).unwrap();
    assert_eq!(best.indices.row(0).to_vec(), [3, 2, 6, 4, 5, 1, 0, 7]);
    drop(engine);
    fake.0.assert_clean("searches");
}

#[test]
fn sides_of_zero_are_sizes_like_others() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let none = |m, k| on::<f64>(&engine, &Array2::zeros((m, k)));
    assert_eq!(none(2, 0).matmul(Array2::zeros((0, 3)).view()).unwrap(), Array2::<f64>::zeros((2, 3)));
    assert_eq!(none(0, 4).matmul(Array2::zeros((4, 3)).view()).unwrap().dim(), (0, 3));
    assert_eq!(none(3, 4).inner(Array2::zeros((0, 4)).view()).unwrap().dim(), (0, 3));
    assert_eq!(none(0, 0).quadratic_form(Array2::zeros((2, 0)).view()).unwrap(), [0.0; 2]);
    assert_eq!(none(3, 3).quadratic_form(Array2::zeros((0, 3)).view()).unwrap().len(), 0);
    assert_eq!(none(0, 0).factor().unwrap().mahalanobis(Array2::<f64>::zeros((2, 0)).view(), None).unwrap(), [0.0; 2]);
    assert_eq!(none(0, 2).top_k(Array2::zeros((2, 2)).view(), 0).unwrap().indices.dim(), (2, 0));
    assert_eq!(none(3, 0).top_k(Array2::zeros((1, 0)).view(), 2).unwrap().indices, array![[0, 1]]);
    assert_eq!(fake.0.launches("m"), 0);
}

#[test]
fn chunks_change_no_bit_and_too_little_memory_is_said_before_it_is_taken() {
    let (a, b) = (numbers::<f32>(40, 70, 1), numbers::<f32>(900, 70, 2));
    for form in [Form::Double, Form::HalfPrecision] {
        let _form = ForcedPlan::form(form);
        let run = |memory: usize| {
            let fake = Fake::install(Machine { memory, ..Machine::default() });
            let engine = CudaEngine::new(0).unwrap();
            let matrix = on(&engine, &a);
            let product = matrix.inner(b.view());
            let search = product.is_ok().then(|| matrix.top_k(b.view(), 3).unwrap());
            let (taken, launches) = (fake.0.taken(), fake.0.launches("multiply"));
            drop((matrix, engine));
            fake.0.assert_clean("memory");
            (product, search, taken, launches)
        };
        let (whole, best, taken, launches) = run(1 << 30);
        let whole = whole.unwrap();
        let (found, again, less, more) = run(taken / 2);
        assert!(less <= taken / 2 && more > launches, "{less} of {taken}, {more} launches after {launches}");
        assert_eq!(found.unwrap(), whole);
        assert_eq!(again, best);
        let error = run(100_000).0.unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
    }
}

#[test]
fn numbers_beyond_the_range_are_infinite() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let matrix = on(&engine, &array![[f32::MAX]]);
    assert_eq!(matrix.matmul(array![[2.0]].view()).unwrap(), array![[f32::INFINITY]]);
    assert_eq!(matrix.quadratic_form(array![[2.0]].view()).unwrap(), [4.0 * f64::from(f32::MAX)]);
    drop((matrix, engine));
    fake.0.assert_clean("range");
}

#[test]
fn times_are_the_devices() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (a, x) = (numbers::<f32>(20, 20, 1), numbers::<f32>(30, 20, 2));
    for forms in [false, true] {
        let times = on(&engine, &a).device_times(x.view(), forms, 3).unwrap().unwrap();
        assert_eq!(times.len(), 3);
        assert!(times.iter().all(|t| t.total.as_millis() == 1 && t.multiplying.as_millis() == 1));
    }
    assert_eq!(fake.0.launches("multiply_doubles"), 6);
    assert!(on(&ReferenceEngine, &a).device_times(x.view(), false, 3).unwrap().is_none());
    drop(engine);
    fake.0.assert_clean("times");
}

type Answers<T> = (Array2<T>, Vec<f64>, Vec<f64>, TopK<T>);

/// Runs every kind of query on a matrix.
fn all_questions<T: Scalar>(engine: &CudaEngine) -> Result<Answers<T>, Error> {
    let _form = ForcedPlan::form(Form::HalfPrecision);
    let rows = numbers::<T>(9, 5, 1);
    let square = rows.t().dot(&rows);
    let x = numbers::<T>(4, 5, 2);
    let matrix = ResidentMatrix::new(engine, square)?;
    let product = matrix.inner(x.view())?;
    let forms = matrix.quadratic_form(x.view())?;
    let distances = matrix.factor()?.mahalanobis(x.view(), Some(&[0.5; 5]))?;
    Ok((product, forms, distances, matrix.top_k(x.view(), 2)?))
}

#[test]
fn every_fault_of_a_question_is_an_error_leaks_nothing_and_spoils_no_later_one() {
    every_fault_of_questions::<f32>(false);
    every_fault_of_questions::<f64>(true);
}

/// Injects faults into queries. A `warm` engine has answered the same queries before, and reuses their memory.
fn every_fault_of_questions<T: Scalar + std::fmt::Debug>(warm: bool) {
    let want = {
        let _fake = Fake::install(Machine::default());
        all_questions::<T>(&CudaEngine::new(0).unwrap()).unwrap()
    };
    let all = [
        (Class::Any, code::UNKNOWN),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::ILLEGAL_ADDRESS),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Copy, code::ECC_UNCORRECTABLE),
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES),
    ];
    // The remaining entries are the same calls with other codes.
    for &(class, code) in if warm { &all[..3] } else { &all[..] } {
        for at in 1.. {
            let what = format!("{class:?} {at}, code {code}, {} bytes, warm: {warm}", size_of::<T>());
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            if warm {
                all_questions::<T>(&engine).unwrap();
            }
            fake.0.fail(Fault::once(class, at, code));
            let end = all_questions::<T>(&engine);
            let failed = fake.0.failed();
            match end {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                Ok(found) => {
                    assert_eq!(found, want, "{what}");
                    // Destructors ignore the former, and after the latter the pool frees memory.
                    let harmless = may_fail(failed) || code == code::OUT_OF_MEMORY;
                    assert!(harmless, "{what}: it went on after {failed:?}");
                }
            }
            fake.0.recover();
            if !fault::is_fatal(code) {
                let x = numbers::<f64>(4, 5, 2);
                exact(on(&engine, &x).inner(x.view()).unwrap().view(), x.view(), x.t());
            }
            drop(engine);
            fake.0.assert_clean(&what);
            if failed.is_none() {
                assert!(at > 2, "{what}");
                break;
            }
        }
    }
}
