//! Evaluations of rows that another library put on the device.

use cust::memory::{AsyncCopyDestination, DeviceBuffer, DeviceCopy};
use gmm_model::{DataError, Numbers, PrecisionMixture};

use super::driver::queue::Queue;
use super::foreign::{data, placed};
use super::rows::sections;
use super::*;
use crate::{DeviceOutputs, EvaluateOptions};

/// The content of a buffer of the device.
fn content<A: DeviceCopy + Default>(engine: &CudaEngine, buffer: &DeviceBuffer<A>) -> Vec<A> {
    let queue = Queue::new(&engine.gpu).unwrap();
    let mut out = vec![A::default(); buffer.len()];
    // SAFETY: `out` lives until the wait below.
    unsafe { buffer.async_copy_to(&mut out, &queue.stream).unwrap() };
    queue.wait(&engine.gpu).unwrap();
    out
}

#[test]
fn results_that_stay_on_the_device_have_the_bits_of_those_on_the_host() {
    let (n, d, k) = (1029, 3, 3);
    let values = rows(n, d, 10.0);
    let mixture = mixture(CovarianceType::Full, k, d, 10.0);
    // Upper triangular factors, which the kernels read, and lower ones, for which covariances are made first.
    for lower in [false, true] {
        let inside = |i: usize, j: usize| if lower { i >= j } else { i <= j };
        let entry = |at: usize| (at / d % d, at % d);
        let factors: Vec<f64> =
            (0..k * d * d).map(entry).map(|(i, j)| f64::from(u8::from(inside(i, j))) / (1 + i + j) as f64).collect();
        let (weights, means) = (mixture.weights().to_owned(), (mixture.means().to_owned(), Precision::F64));
        let of = PrecisionMixture::new(CovarianceType::Full, weights, means, Numbers::F64(&factors), &[k, d, d]);
        let of = of.unwrap();
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F64);
        let data = data(&engine, &there, None).unwrap();
        let mut wanted = (vec![0.0; n], vec![0.0; n * k], vec![0_u32; n]);
        let want = EvaluateOptions {
            log_densities: Some(&mut wanted.0),
            responsibilities: Some((&mut wanted.1).into()),
            labels: Some(&mut wanted.2),
        };
        let totals = crate::evaluate::precisions(&engine, &of, &data, Precision::F64, want).unwrap();
        // SAFETY: any bits are valid numbers, and the evaluation writes all of them.
        let (densities, responsibilities, labels) = unsafe {
            (
                DeviceBuffer::<f64>::uninitialized(n).unwrap(),
                DeviceBuffer::<f64>::uninitialized(n * k).unwrap(),
                DeviceBuffer::<u32>::uninitialized(n).unwrap(),
            )
        };
        let out = DeviceOutputs {
            log_densities: Some(densities.as_device_ptr().as_raw()),
            responsibilities: Some(responsibilities.as_device_ptr().as_raw()),
            labels: Some(labels.as_device_ptr().as_raw()),
        };
        // SAFETY: the buffers have the lengths of the outputs, and live until the end of this block.
        let found = unsafe { crate::evaluate::precisions_there(&engine, &of, &data, Precision::F64, &out) };
        assert_eq!(found.unwrap(), totals);
        assert_eq!(content(&engine, &densities), wanted.0);
        assert_eq!(content(&engine, &responsibilities), wanted.1);
        assert_eq!(content(&engine, &labels), wanted.2);
        drop((densities, responsibilities, labels, data, buffer, engine));
        fake.0.assert_clean("results on the device");
    }
}

#[test]
fn an_evaluation_of_rows_on_the_device_has_the_bits_of_one_of_brought_rows() {
    let (n, d) = (1029, 3);
    let mut values = rows(n, d, 10.0).mapv(|v| v as f32);
    let mixture = mixture(CovarianceType::Full, 3, d, 10.0);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    // Several chunks, the last of them with an odd number of rows.
    sections::FORCED.set(Some((256, 0)));
    for far in [false, true] {
        if far {
            // Its squares overflow in f32.
            values[[700, 1]] = 1e30;
        }
        for weights in [None, Some((0..n).map(|row| 1.0 + (row % 3) as f64).collect::<Vec<_>>())] {
            let host = Dataset::new(values.clone()).unwrap();
            let host = weights.clone().map_or(host.clone(), |weights| host.with_weights(weights).unwrap());
            let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F32);
            let there = data(&engine, &there, weights).unwrap();
            let score =
                |data: crate::Data<'_>| crate::evaluate::score(&engine, &mixture, data, Precision::F32).unwrap();
            let (got, want) = (score((&there).into()), score((&host).into()));
            assert_eq!(got, want);
            assert_eq!(got.log_likelihood.is_finite(), !far);
            drop((there, buffer));
        }
    }
    values[[801, 2]] = f32::NAN;
    let (buffer, there) = placed(&engine, values.as_slice().unwrap(), d, Precision::F32);
    let error = crate::evaluate::score(&engine, &mixture, &data(&engine, &there, None).unwrap(), Precision::F32);
    assert!(matches!(error, Err(Error::Data(DataError::NotFinite { row: 801, column: 2, .. }))), "{error:?}");
    sections::FORCED.set(None);
    drop((buffer, engine));
    fake.0.assert_clean("an evaluation of foreign rows");
}

#[test]
fn full_and_tied_mixtures_are_evaluated_on_tensor_cores_where_that_is_exact_and_fast() {
    let slow = Machine { f32_to_f64: 64, ..Machine::default() };
    for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag] {
        let near = mixture(kind, 3, 4, 0.0);
        // Means that are hundreds of standard deviations apart lose more precision in f64 than f32 rows have.
        let means = Array2::from_shape_fn((3, 4), |(c, j)| 400.0 * c as f64 + near.means()[[c, j]]);
        let wide = Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap();
        let cases = [
            (Machine::default(), &near, Precision::F64, true),
            (Machine::default(), &wide, Precision::F32, true),
            (Machine::default(), &wide, Precision::F64, false),
            (slow.clone(), &near, Precision::F32, false),
        ];
        for (machine, mixture, precision, is_whitened) in cases {
            let fake = Fake::install(machine);
            let engine = CudaEngine::new(0).unwrap();
            let all = Array2::from_shape_fn((300, 4), |(i, j)| mixture.means()[[i % 3, j]] + noise(4 * i + j));
            let data = Dataset::new(all).unwrap();
            let score = |engine: &dyn Engine| crate::evaluate::score(engine, mixture, &data, precision).unwrap();
            let (got, want) = (score(&engine).log_likelihood, score(&crate::CpuEngine::new(1).unwrap()).log_likelihood);
            let allowed = if precision == Precision::F32 { 2e-5 } else { 1e-10 };
            assert!((got - want).abs() < allowed * want.abs(), "{kind} {precision}: {got} is not {want}");
            let wanted = is_whitened && kind != CovarianceType::Diag;
            assert_eq!(fake.0.launches("e_step_whitened") > 0, wanted, "{kind} {precision}");
        }
    }
}
