//! Rows that another library put on the device.

use cust::memory::{AsyncCopyDestination, DeviceBuffer, DeviceCopy};
use gmm_model::DataError;

use super::driver::queue::Queue;
use super::*;
use crate::data::DeviceRows;
use crate::{EvaluateOptions, FitOptions, Init, fit_observed};

/// Rows in device memory that the engine does not own, and their description.
pub(super) fn placed<A: DeviceCopy>(
    engine: &CudaEngine,
    rows: &[A],
    d: usize,
    precision: Precision,
) -> (DeviceBuffer<A>, DeviceRows) {
    engine.gpu.enter().unwrap();
    let queue = Queue::new(&engine.gpu).unwrap();
    // SAFETY: the copy writes the whole buffer before anything reads it, and the source lives until the wait below.
    let buffer = unsafe {
        let mut buffer = DeviceBuffer::uninitialized(rows.len()).unwrap();
        buffer.async_copy_from(rows, &queue.stream).unwrap();
        buffer
    };
    queue.wait(&engine.gpu).unwrap();
    let (address, n) = (buffer.as_device_ptr().as_raw(), rows.len() / d);
    (buffer, DeviceRows { address, n, d, precision, stream: None })
}

fn loaded(
    engine: &CudaEngine,
    rows: &DeviceRows,
    precision: Precision,
    shift: &[f64],
) -> Result<Box<dyn Resident>, Error> {
    engine.load_there(&data(engine, rows, None)?, precision, shift, None)
}

pub(super) fn data(engine: &CudaEngine, rows: &DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
    // SAFETY: the tests' buffers outlive every call, and `rows` describes their contents.
    unsafe { engine.device_data(*rows, weights) }
}

fn densities(rows: &mut dyn Resident, mixture: &Mixture) -> (Vec<f64>, crate::Evaluation) {
    let mut out = vec![f64::NAN; rows.dim().0];
    let totals = rows
        .evaluate(mixture, EvaluateOptions { log_densities: Some(&mut out), ..EvaluateOptions::default() })
        .unwrap();
    (out, totals)
}

#[test]
fn rows_on_the_device_have_the_bits_of_rows_that_were_brought_there() {
    // An odd number of f32, and more rows than one sum of distances covers.
    for (n, d) in [(300, 3), (1029, 5)] {
        let values = rows(n, d, 10.0);
        let single = values.mapv(|v| v as f32);
        let mixture = mixture(CovarianceType::Full, 3, d, 10.0);
        let shift = crate::shift::of_mixture(&mixture);
        for precision in [Precision::F32, Precision::F64] {
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let (double_buffer, double_rows) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
            let (single_buffer, single_rows) = placed(&engine, single.as_slice().unwrap(), d, Precision::F32);
            for (host, there) in
                [(Dataset::new(values.clone()), double_rows), (Dataset::new(single.clone()), single_rows)]
            {
                let host = host.unwrap();
                let mut brought = engine.load(&host, precision, &shift).unwrap();
                let before = fake.0.calls("cuMemcpyHtoDAsync");
                let mut held = loaded(&engine, &there, precision, &shift).unwrap();
                // Only the shift and the point from which distances are measured are copied, but no rows.
                assert_eq!(fake.0.calls("cuMemcpyHtoDAsync"), before + 2);
                assert_eq!(
                    densities(held.as_mut(), &mixture),
                    densities(brought.as_mut(), &mixture),
                    "{precision} {there:?}"
                );
                let statistics = held.pass(&mixture).unwrap();
                assert_eq!(statistics, brought.pass(&mixture).unwrap());
                assert_eq!(&data(&engine, &there, None).unwrap().fetch().unwrap(), host.rows());
            }
            drop((double_buffer, single_buffer, engine));
            fake.0.assert_clean("foreign rows");
        }
    }
}

/// A fit with its observed iterations, or its error.
fn fitted<'a>(
    engine: &CudaEngine,
    data: impl Into<crate::Data<'a>>,
    options: &FitOptions,
) -> Result<crate::Fit, String> {
    let found = fit_observed(engine, data, options, &mut |_| std::ops::ControlFlow::Continue(()));
    found.map(|fit| crate::Fit { elapsed: std::time::Duration::ZERO, ..fit }).map_err(|error| error.to_string())
}

#[test]
fn a_fit_of_rows_on_the_device_is_that_of_rows_that_were_brought_there() {
    let (n, d, k) = (1100, 2, 3);
    let values = rows(n, d, 10.0);
    let single = values.mapv(|v| v as f32);
    let some = |row: usize| if row.is_multiple_of(7) { 0.0 } else { 1.0 + (row % 3) as f64 };
    let given = Init::Given(Box::new(mixture(CovarianceType::Full, k, d, 10.0)));
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (double_buffer, double_rows) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
    let (single_buffer, single_rows) = placed(&engine, single.as_slice().unwrap(), d, Precision::F32);
    for (host, there) in [(Dataset::new(values.clone()), double_rows), (Dataset::new(single.clone()), single_rows)] {
        for weights in [None, Some(vec![2.0; n]), Some((0..n).map(some).collect::<Vec<_>>())] {
            let host = host.clone().unwrap();
            let host = weights.clone().map_or(host.clone(), |weights| host.with_weights(weights).unwrap());
            let data = data(&engine, &there, weights.clone()).unwrap();
            for init in [Init::KMeans, Init::RandomRows, Init::Stride, Init::Random, given.clone()] {
                let options = FitOptions { init, max_iter: 2, tol: 0.0, seed: 3, ..FitOptions::new(k) };
                let want = fitted(&engine, &host, &options).unwrap();
                let got = fitted(&engine, &data, &options).unwrap();
                assert_eq!(got, want, "{:?} {there:?} {}", options.init, weights.is_some());
            }
            let shift = crate::shift::of_data(&host);
            let sampled = crate::shift::Sample::of((&data).into()).unwrap();
            assert_eq!(sampled.shift(), shift);
        }
    }
    drop((double_buffer, single_buffer, engine));
    fake.0.assert_clean("a fit of rows there");
}

/// Weights that are 0 for every seventh row and for the first 20.
fn with_absent(n: usize) -> Vec<f64> {
    (0..n).map(|row| if row.is_multiple_of(7) || row < 20 { 0.0 } else { 1.0 + (row % 3) as f64 }).collect()
}

#[test]
fn rows_of_weight_0_are_left_out_on_the_device() {
    let (n, d, k) = (5000, 2, 3);
    let mut values = rows(n, d, 10.0);
    // Far beyond the limit, in a row of weight 0.
    values[[14, 1]] = 1e200;
    let weights = with_absent(n);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let host = Dataset::new(values.clone()).unwrap().with_weights(weights.clone()).unwrap();
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
    let data = data(&engine, &there, Some(weights)).unwrap();
    for (init, precision) in [(Init::KMeans, None), (Init::Random, Some(Precision::F32)), (Init::Stride, None)] {
        let options = FitOptions { init, precision, max_iter: 2, tol: 0.0, n_init: 2, ..FitOptions::new(k) };
        let want = fitted(&engine, &host, &options).unwrap();
        let before = fake.0.launches("pick");
        let got = fitted(&engine, &data, &options).unwrap();
        assert_eq!(got, want, "{:?} {precision:?}", options.init);
        // One launch for the fit, and one for its score.
        assert_eq!(fake.0.launches("pick"), before + 2);
    }
    let present = data.without_absent_rows().unwrap();
    let count = host.without_absent_rows().unwrap();
    assert_eq!(&present.fetch().unwrap(), count.rows());
    assert_eq!(present.fetch_present().unwrap().as_ref(), Some(&count));
    assert_eq!((present.dim(), present.weights()), (count.rows().dim(), count.weights()));
    for some in [vec![0, 1, 7], vec![count.n_rows() - 1]] {
        assert_eq!(present.pick(&some).unwrap(), crate::Data::from(&count).pick(&some).unwrap());
    }
    drop((present, data, buffer, engine));
    fake.0.assert_clean("rows of weight 0");
}

#[test]
fn rows_of_weight_0_come_to_the_host_where_the_device_has_no_room_to_leave_them_out() {
    let (n, d) = (40_000, 2);
    let values = rows(n, d, 0.0);
    let bytes = 8 * n * d;
    let weights: Vec<f64> = (0..n).map(|row| (row % 2) as f64).collect();
    // Too little memory to gather the rows of positive weight while all rows are held, but enough for these and passes.
    let fake = Fake::install(Machine { memory: 3 * bytes, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
    let options = FitOptions { max_iter: 1, tol: 0.0, init: Init::Stride, ..FitOptions::new(2) };
    let data = data(&engine, &there, Some(weights.clone())).unwrap();
    let got = fitted(&engine, &data, &options).unwrap();
    assert_eq!(fake.0.launches("pick"), 0);
    let host = Dataset::new(values).unwrap().with_weights(weights).unwrap();
    assert_eq!(got, fitted(&engine, &host, &options).unwrap());
    drop((data, buffer, engine));
    fake.0.assert_clean("no room for both");
}

#[test]
fn rows_of_weight_0_are_checked_as_those_from_the_host_are() {
    let (n, d) = (2500, 2);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let options = FitOptions { init: Init::Stride, max_iter: 1, ..FitOptions::new(2) };
    let weights = with_absent(n);
    // NaN and infinity are errors in every row, values that are too large only in rows of positive weight.
    for (row, value) in [(14, f64::NAN), (15, f64::INFINITY), (2100, f64::NAN), (14, 1e200), (2101, 1e200)] {
        let mut values = rows(n, d, 0.0);
        values[[row, 1]] = value;
        let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
        let there = data(&engine, &there, Some(weights.clone())).unwrap();
        let got = fitted(&engine, &there, &options);
        let host = Dataset::new(values).map(|host| host.with_weights(weights.clone()).unwrap());
        let want = host.map_err(|error| error.to_string()).and_then(|host| fitted(&engine, &host, &options));
        assert_eq!(want.is_ok(), (row, value) == (14, 1e200), "{row} {value}: {want:?}");
        assert_eq!(got, want, "{row} {value}");
        drop((there, buffer));
    }
    // Fewer rows than components, and fewer than two.
    let (buffer, there) = placed(&engine, rows(n, d, 0.0).as_slice().unwrap(), d, Precision::F64);
    for (present, k, word) in [(3, 4, "4"), (1, 1, "rows")] {
        let some = (0..n).map(|row| f64::from(u8::from(row < present))).collect();
        let there = data(&engine, &there, Some(some)).unwrap();
        let error = fitted(&engine, &there, &FitOptions { n_components: k, ..options.clone() }).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    drop((buffer, engine));
    fake.0.assert_clean("refused rows of weight 0");
}

#[test]
fn rows_on_the_device_are_walked_through_in_their_order() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    // More rows than one piece.
    let (n, d) = (1_100_000, 2);
    let mut values = Array2::from_shape_fn((n, d), |(i, j)| (i * d + j) as f32);
    let walked = |data: &DeviceData| -> Result<usize, Error> {
        let mut next = 0;
        crate::Data::from(data).walk(&mut |first, rows| {
            assert_eq!(first, next);
            assert!(rows.indexed_iter().all(|((i, j), &v)| v == ((first + i) * d + j) as f32 as f64));
            next += rows.nrows();
        })?;
        Ok(next)
    };
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F32);
    assert_eq!(walked(&data(&engine, &there, None).unwrap()).unwrap(), n);
    drop(buffer);
    values[[n - 1, 1]] = f32::NAN;
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F32);
    let error = text(walked(&data(&engine, &there, None).unwrap()));
    assert!(error.contains("row 1099999, column 1 is NaN"), "{error}");
    drop((buffer, engine));
    fake.0.assert_clean("a walk");
}

#[test]
fn a_fit_of_rows_on_the_device_refuses_what_one_of_brought_rows_does() {
    let (n, d) = (2500, 2);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let options = FitOptions { init: Init::Stride, max_iter: 1, ..FitOptions::new(2) };
    for (value, precision) in [(1e200, None), (1e20, Some(Precision::F32)), (-3e153, None), (1e150, None)] {
        let mut values = rows(n, d, 0.0);
        (values[[1, 1]], values[[2400, 1]], values[[1500, 0]]) = (0.5 * value, value, 0.75 * value);
        let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
        let options = FitOptions { precision, ..options.clone() };
        let want = fitted(&engine, &Dataset::new(values).unwrap(), &options);
        assert_eq!(fitted(&engine, &data(&engine, &there, None).unwrap(), &options), want);
        // Only the f32 squares of 1e20 overflow: such rows are stored as f64.
        assert_eq!(
            want.as_ref().err().is_some_and(|e| e.starts_with("column 0 reaches")),
            value.abs() > 1e152,
            "{want:?}"
        );
        drop(buffer);
    }
    let mut values = rows(n, d, 0.0);
    (values[[3, 1]], values[[2100, 0]]) = (1e200, f64::NAN);
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
    let error = fitted(&engine, &data(&engine, &there, None).unwrap(), &options).unwrap_err();
    assert!(error.contains("row 2100, column 0 is NaN"), "{error}");
    let wrong = |weights: Vec<f64>| text(data(&engine, &there, Some(weights)));
    assert!(
        wrong(vec![1.0; 3]).contains('3')
            && wrong(vec![-1.0; n]).contains("row 0")
            && wrong(vec![0.0; n]).contains("sum")
    );
    let error = text(crate::data::load_there(
        &crate::CpuEngine::new(1).unwrap(),
        &data(&engine, &there, None).unwrap(),
        Precision::F64,
        &[0.0, 0.0],
        None,
    ));
    assert_eq!(error, "the rows lie on a GPU, and the engine is 'cpu'");
    drop((buffer, engine));
    fake.0.assert_clean("refused rows there");
}

#[test]
fn a_likelihood_of_rows_on_the_device_is_that_of_rows_that_were_brought_there() {
    let (n, d, k) = (1100, 2, 3);
    let values = rows(n, d, 10.0);
    let mixture = mixture(CovarianceType::Full, k, d, 10.0);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
    let weights: Vec<f64> = (0..n).map(|row| (row % 5) as f64).collect();
    let host = Dataset::new(values).unwrap().with_weights(weights.clone()).unwrap();
    let there = data(&engine, &there, Some(weights)).unwrap();
    let mut got = crate::Likelihood::new(&engine, &there, Precision::F64).unwrap();
    let mut want = crate::Likelihood::new(&engine, &host, Precision::F64).unwrap();
    assert_eq!(got.value_and_gradient(&mixture).unwrap(), want.value_and_gradient(&mixture).unwrap());
    assert_eq!(got.total_weight(), want.total_weight());
    drop((got, want, there, buffer, engine));
    fake.0.assert_clean("a likelihood of rows there");
}

#[test]
fn the_first_number_that_is_none_is_named_and_numbers_that_are_large_are_not() {
    let (n, d) = (2500, 2);
    let shift = [0.0, 0.0];
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut values = rows(n, d, 0.0);
    // Its square is infinite in both precisions.
    values[[7, 0]] = 1e200;
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
    assert!(loaded(&engine, &there, Precision::F64, &shift).is_ok());
    drop(buffer);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        (values[[2100, 1]], values[[2101, 0]]) = (bad, bad);
        let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
        for precision in [Precision::F32, Precision::F64] {
            let error = loaded(&engine, &there, precision, &shift).err().expect("a row that is not finite");
            assert!(matches!(error, Error::Data(DataError::NotFinite { row: 2100, column: 1, .. })), "{error}");
        }
        drop(buffer);
    }
    drop(engine);
    fake.0.assert_clean("rows that are not finite");
}

#[test]
fn rows_that_lie_elsewhere_or_nowhere_are_refused() {
    let fake = Fake::install(Machine { devices: 2, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let (buffer, there) = placed(&engine, &[1.0, 2.0, 3.0, 4.0], 2, Precision::F64);
    let refused = |rows: DeviceRows| text(loaded(&engine, &rows, Precision::F64, &[0.0, 0.0]));
    assert!(refused(DeviceRows { address: 4096, ..there }).contains("memory that the driver does not know"));
    assert!(refused(DeviceRows { address: there.address + 4, ..there }).contains("a multiple of 8 bytes"));
    assert!(
        refused(DeviceRows { n: 0, ..there }).contains("(0, 2)") || refused(DeviceRows { n: 0, ..there }).contains('0')
    );
    let other = CudaEngine::new(1).unwrap();
    let error = text(loaded(&other, &there, Precision::F64, &[0.0, 0.0]));
    assert!(error.contains("cuda:0") && error.contains("on cuda:1"), "{error}");
    assert!(text(loaded(&engine, &there, Precision::F64, &[0.0])).contains("columns"));
    drop((buffer, engine, other));
    fake.0.assert_clean("rows elsewhere");
}

#[test]
fn the_stream_that_writes_the_rows_is_waited_for() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (buffer, there) = placed(&engine, &[1.0, 2.0, 3.0, 4.0], 2, Precision::F64);
    let queue = Queue::new(&engine.gpu).unwrap();
    let waits = |rows: DeviceRows| {
        let before = fake.0.calls("cuStreamSynchronize");
        loaded(&engine, &rows, Precision::F64, &[0.0, 0.0]).unwrap();
        fake.0.calls("cuStreamSynchronize") - before
    };
    let alone = waits(there);
    assert_eq!(waits(DeviceRows { stream: Some(queue.stream.as_inner() as u64), ..there }), alone + 1);
    drop((queue, buffer, engine));
    fake.0.assert_clean("a stream");
}

#[test]
fn a_failure_on_the_way_leaves_nothing_behind() {
    for of in [Class::Allocation, Class::Copy, Class::Launch, Class::Wait] {
        for at in 1..12 {
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let (buffer, there) = placed(&engine, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, Precision::F64);
            fake.0.fail(Fault::once(of, at, code::LAUNCH_FAILED));
            let result = data(&engine, &there, Some(vec![1.0, 2.0, 3.0])).and_then(|data| {
                crate::shift::Sample::of((&data).into())?;
                engine.load_there(&data, Precision::F64, &[0.0, 0.0], Some(10.0)).map(drop)
            });
            assert_eq!(result.is_err(), fake.0.failed().is_some(), "{of:?} {at}");
            drop((buffer, engine));
            fake.0.assert_clean(&format!("{of:?} {at}"));
        }
    }
}
