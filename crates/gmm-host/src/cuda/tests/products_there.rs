//! Products whose factors are on the device already have the same bits as those with uploaded factors.

use cust::memory::{DeviceBuffer, DeviceCopy};
use gmm_kernels::products::Form;
use ndarray::s;

use super::foreign::{data, placed};
use super::products::{ForcedPlan, numbers};
use super::*;
use crate::products::{Operand, Scalar};
use crate::{CpuEngine, ResidentMatrix};

/// An array on the device, and the owner of its memory.
struct On<A: DeviceCopy> {
    data: DeviceData,
    _buffer: DeviceBuffer<A>,
}

fn on<T: Scalar + DeviceCopy>(engine: &CudaEngine, array: &Array2<T>) -> On<T> {
    let precision = if size_of::<T>() == 4 { Precision::F32 } else { Precision::F64 };
    let (buffer, rows) = placed(engine, array.as_slice().unwrap(), array.ncols(), precision);
    On { data: data(engine, &rows, None).unwrap(), _buffer: buffer }
}

/// Runs all queries of a matrix of `T` whose factors have type `S`, on the device and from the host.
fn check<T: Scalar + std::fmt::Debug, S: Scalar + DeviceCopy>(engine: &CudaEngine, d: usize, q: usize) {
    let (a, x) = (numbers::<S>(d, d, 1), numbers::<S>(q, d, 2));
    // Makes the matrix positive definite.
    let a = a.dot(&a.t()) + Array2::<S>::eye(d);
    let [here, questions] = [&a, &x].map(|array| array.mapv(|v| T::of(v.to_f64())));
    let host = ResidentMatrix::new(engine, here).unwrap();
    let (a, x, b) = (on(engine, &a), on(engine, &x), on(engine, &x.t().as_standard_layout().into_owned()));
    let there = ResidentMatrix::<T>::from_device(engine, a.data).unwrap();
    assert_eq!((there.dim(), there.on_host().unwrap()), (host.dim(), host.on_host().unwrap()));
    let view = questions.view();
    assert_eq!(there.inner(&x.data).unwrap(), host.inner(view).unwrap());
    assert_eq!(there.inner(view).unwrap(), host.inner(&x.data).unwrap());
    assert_eq!(there.matmul(&b.data).unwrap(), host.matmul(view.t()).unwrap());
    assert_eq!(there.quadratic_form(&x.data).unwrap(), host.quadratic_form(view).unwrap());
    assert_eq!(there.top_k(&x.data, 2).unwrap(), host.top_k(view, 2).unwrap());
    let mean = vec![0.5; d];
    let (one, other) = (there.factor().unwrap(), host.factor().unwrap());
    for mean in [None, Some(&mean[..])] {
        let found = one.mahalanobis(Operand::<T>::from(&x.data), mean).unwrap();
        assert_eq!(found, other.mahalanobis(view, mean).unwrap());
    }
    // Ranges of rows, and ranges of columns, which are not contiguous.
    let all = Operand::<T>::from(&x.data);
    assert_eq!(there.inner(all.rows(1..q)).unwrap(), host.inner(view.slice(s![1.., ..])).unwrap());
    let columns = Operand::<T>::from(&b.data);
    assert_eq!(there.matmul(columns.columns(1..q)).unwrap(), host.matmul(view.slice(s![1.., ..]).t()).unwrap());
    assert_eq!(there.matmul(columns.columns(1..2)).unwrap(), host.matmul(view.slice(s![1..2, ..]).t()).unwrap());
    assert!(text(there.inner(all.columns(1..d))).contains("the batch of questions"));
    assert!(there.inner(all.rows(1..1)).unwrap().is_empty());
}

#[test]
fn factors_on_the_device_give_the_bits_of_those_that_were_brought_there() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for (d, q) in [(2, 3), (5, 33)] {
        check::<f64, f64>(&engine, d, q);
        check::<f32, f64>(&engine, d, q);
        check::<f64, f32>(&engine, d, q);
        check::<f32, f32>(&engine, d, q);
    }
    // More rows than a block of operands.
    check::<f64, f32>(&engine, 130, 3);
    let _form = ForcedPlan::form(Form::HalfPrecision);
    check::<f32, f32>(&engine, 5, 33);
    drop(engine);
    fake.0.assert_clean("factors there");
}

#[test]
fn nothing_goes_to_the_device_that_is_there() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (a, x) = (on(&engine, &numbers::<f64>(20, 5, 1)), on(&engine, &numbers::<f64>(9, 5, 2)));
    let before = fake.0.calls("cuMemcpyHtoDAsync");
    let matrix = ResidentMatrix::<f64>::from_device(&engine, a.data).unwrap();
    matrix.inner(&x.data).unwrap();
    matrix.top_k(&x.data, 3).unwrap();
    assert_eq!(fake.0.calls("cuMemcpyHtoDAsync"), before);
    assert_eq!(matrix.device_times(&x.data, false, 2).unwrap().unwrap().len(), 2);
}

#[test]
fn questions_on_the_device_go_in_chunks_where_memory_is_short() {
    let (m, k, q) = (40, 30, 900);
    let (a, b) = (numbers::<f64>(m, k, 1), numbers::<f32>(k, q, 2));
    let found = |memory: usize| {
        let fake = Fake::install(Machine { memory, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let (there, questions) = (on(&engine, &a), on(&engine, &b));
        let matrix = ResidentMatrix::<f64>::from_device(&engine, there.data).unwrap();
        let product = matrix.matmul(&questions.data).unwrap();
        let (taken, launches) = (fake.0.taken(), fake.0.launches("pack_doubles"));
        assert!(taken <= memory);
        (product, taken, launches)
    };
    let (whole, taken, once) = found(1 << 30);
    let (chunks, _, more) = found(taken / 2);
    assert!(more > once, "{more} after {once}");
    assert_eq!(chunks, whole);
}

#[test]
fn questions_on_the_device_that_are_none_have_no_answer() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let a = ResidentMatrix::new(&engine, Array2::<f64>::eye(3) * 1e10).unwrap();
    let single = ResidentMatrix::new(&engine, Array2::<f32>::eye(3)).unwrap();
    let mut x = numbers::<f64>(6, 3, 2);
    (x[[1, 2]], x[[2, 0]], x[[4, 1]], x[[5, 1]]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e200);
    let there = on(&engine, &x);
    let of = |found: Vec<f64>| found.iter().map(|v| if v.is_nan() { 0 } else { v.to_bits() }).collect::<Vec<_>>();
    let forms = a.quadratic_form(&there.data).unwrap();
    assert!(forms[1].is_nan() && forms[2].is_nan() && forms[4].is_nan() && forms[5] == f64::INFINITY);
    assert_eq!(of(forms), of(a.quadratic_form(x.view()).unwrap()));
    let factor = a.factor().unwrap();
    let found = factor.mahalanobis(Operand::<f64>::from(&there.data), None).unwrap();
    assert_eq!(of(found), of(factor.mahalanobis(x.view(), None).unwrap()));
    // Rounded to f32, the last query is infinite too.
    assert!(single.quadratic_form(&there.data).unwrap()[5].is_nan());
    let found = factor.mahalanobis(Operand::<f32>::from(&there.data), None).unwrap();
    assert_eq!(of(found), of(factor.mahalanobis(x.mapv(|v| v as f32).view(), None).unwrap()));
    drop((there, factor, a, single, engine));
    fake.0.assert_clean("no questions");
}

#[test]
fn factors_that_lie_elsewhere_are_refused() {
    let fake = Fake::install(Machine { devices: 2, ..Machine::default() });
    let (engine, other) = (CudaEngine::new(0).unwrap(), CudaEngine::new(1).unwrap());
    let array = numbers::<f64>(4, 4, 1);
    let there = on(&engine, &array);
    let cpu = CpuEngine::new(1).unwrap();
    for wrong in [
        text(ResidentMatrix::new(&other, array.clone()).unwrap().inner(&there.data)),
        text(ResidentMatrix::<f64>::from_device(&other, on(&engine, &array).data)),
    ] {
        assert!(wrong.contains("cuda:0") && wrong.contains("on cuda:1"), "{wrong}");
    }
    for wrong in [
        text(ResidentMatrix::<f64>::from_device(&cpu, on(&engine, &array).data)),
        text(ResidentMatrix::new(&cpu, array.clone()).unwrap().inner(&there.data)),
        text(ResidentMatrix::new(&cpu, array.clone()).unwrap().quadratic_form(&there.data)),
        text(ResidentMatrix::new(&cpu, array.clone()).unwrap().top_k(&there.data, 1)),
    ] {
        assert!(wrong.contains("lies on a GPU"), "{wrong}");
    }
    drop((there, engine, other));
    fake.0.assert_clean("factors elsewhere");
}

#[test]
fn a_fault_of_a_question_with_factors_there_leaves_nothing_behind() {
    let rows = numbers::<f64>(5, 5, 1);
    let (a, x) = (rows.dot(&rows.t()), numbers::<f32>(7, 5, 2));
    for class in [Class::Allocation, Class::Copy, Class::Launch, Class::Wait] {
        for at in 1.. {
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let (On { data: a, _buffer: buffer }, x) = (on(&engine, &a), on(&engine, &x));
            let b = on(&engine, &numbers::<f32>(5, 7, 3));
            fake.0.fail(Fault::once(class, at, code::LAUNCH_FAILED));
            let asked = || -> Result<(), Error> {
                let matrix = ResidentMatrix::<f64>::from_device(&engine, a)?;
                matrix.inner(&x.data)?;
                matrix.matmul(Operand::<f64>::from(&b.data).columns(1..5))?;
                matrix.quadratic_form(&x.data)?;
                matrix.factor()?.mahalanobis(Operand::<f64>::from(&x.data), Some(&[0.5; 5]))?;
                Ok(())
            };
            let (result, failed) = (asked(), fake.0.failed().is_some());
            assert_eq!(result.is_err(), failed, "{class:?} {at}");
            drop((buffer, x, b, engine));
            fake.0.assert_clean(&format!("{class:?} {at}"));
            if !failed {
                assert!(at > 2, "{class:?}");
                break;
            }
        }
    }
}

#[test]
fn rows_of_one_matrix_are_questions_of_another_and_are_sent_once() {
    fn check<T: Scalar + std::fmt::Debug>(fake: &Fake, engine: &CudaEngine) {
        let (rows, a) = (numbers::<T>(33, 5, 1), numbers::<T>(5, 5, 2));
        let a = a.dot(&a.t()) + Array2::<T>::eye(5);
        let vectors = ResidentMatrix::new(engine, rows.clone()).unwrap();
        let form = |a: Array2<T>| ResidentMatrix::new(engine, a).unwrap();
        let expected = form(a.clone()).quadratic_form(rows.view()).unwrap();
        let sent = || fake.calls("cuMemcpyHtoDAsync");
        vectors.as_questions().unwrap();
        let before = sent();
        for _ in 0..2 {
            assert_eq!(form(a.clone()).quadratic_form(vectors.as_questions().unwrap()).unwrap(), expected);
        }
        assert_eq!(sent() - before, 2, "one copy of each matrix, and none of the rows");
        let factor = form(a.clone()).factor().unwrap();
        let found = factor.mahalanobis(vectors.as_questions().unwrap(), None).unwrap();
        assert_eq!(found, factor.mahalanobis(rows.view(), None).unwrap());
        // The matrix itself is sent ahead, and the question after it.
        let matrix = form(a);
        matrix.prepare().unwrap();
        let before = sent();
        matrix.top_k(rows.slice(s![..1, ..]), 2).unwrap();
        assert_eq!(sent() - before, 1);
    }
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    check::<f64>(&fake.0, &engine);
    check::<f32>(&fake.0, &engine);
    let none = ResidentMatrix::new(&engine, Array2::<f64>::zeros((0, 5))).unwrap();
    assert_eq!(none.as_questions().unwrap().dim(), (0, 5));
    drop(none);
    drop(engine);
    fake.0.assert_clean("rows as questions");
}

#[test]
fn pinned_questions_are_copied_from_where_they_are() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (a, x) = (numbers::<f64>(5, 5, 1), numbers::<f64>(33, 5, 2));
    let matrix = ResidentMatrix::new(&engine, a).unwrap();
    let expected = matrix.quadratic_form(x.view()).unwrap();
    let inner = matrix.inner(x.view()).unwrap();
    let multiplier = crate::Engine::multiplier(&engine).unwrap();
    // SAFETY: the rows outlive the pinned memory.
    let pinned = unsafe { multiplier.pin(x.as_ptr().cast_mut().cast(), 8 * x.len()) }.unwrap().unwrap();
    assert_eq!(fake.0.calls("cuMemHostRegister"), 1);
    let before = fake.0.calls("cuMemcpyHtoDAsync");
    assert_eq!(matrix.quadratic_form(x.view()).unwrap(), expected);
    assert_eq!(matrix.inner(x.view()).unwrap(), inner);
    assert_eq!(fake.0.calls("cuMemcpyHtoDAsync") - before, 2);
    // Not contiguous, so staged.
    assert_eq!(matrix.quadratic_form(x.slice(s![..;2, ..])).unwrap()[1], expected[2]);
    drop(pinned);
    assert_eq!(fake.0.calls("cuMemHostUnregister"), 1);
    assert_eq!(matrix.quadratic_form(x.view()).unwrap(), expected);
    drop((matrix, multiplier));
    drop(engine);
    fake.0.assert_clean("pinned questions");
    let cpu = crate::Engine::multiplier(&CpuEngine::new(1).unwrap()).unwrap();
    // SAFETY: as above.
    assert!(unsafe { cpu.pin(x.as_ptr().cast_mut().cast(), 8) }.unwrap().is_none());
}

#[test]
fn a_search_among_many_rows_takes_the_best_of_each_segment() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    // Four segments of 4096 rows, and five rows more, with many equal products.
    let (m, mut rows) = (4 * 4096 + 5, numbers::<f64>(4 * 4096 + 5, 1, 1));
    rows.mapv_inplace(|v| (4.0 * v).round());
    rows[[m - 1, 0]] = 1e3;
    rows[[5000, 0]] = f64::NAN;
    let questions = ndarray::array![[1.0], [-1.0]];
    let here = ResidentMatrix::new(&CpuEngine::new(1).unwrap(), rows.clone()).unwrap();
    let there = ResidentMatrix::new(&engine, rows).unwrap();
    for count in [1, 7, 60] {
        let found = there.top_k(questions.view(), count).unwrap();
        assert_eq!(found, here.top_k(questions.view(), count).unwrap(), "{count}");
    }
    drop(there);
    drop(engine);
    fake.0.assert_clean("a search in segments");
}
