//! The whole engine over a driver of the tests' own, whose launches run in the emulator: no GPU is needed.

use std::sync::Arc;

use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision};
use ndarray::{Array1, Array2, Array3};

use super::driver::{Code, INSTEAD, code};
use super::fake::{Class, Fake, Fault, Machine, UNKNOWN};
use super::*;
use crate::{Device, FitOptions, Init, ReferenceEngine, Wanted, evaluate, fit, shift};

/// Between −1 and 1, the same for the same index.
fn noise(i: usize) -> f64 {
    let mut x = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x >> 11) as f64 / (1u64 << 52) as f64) - 1.0
}

/// Rows of three clumps.
fn rows(n: usize, d: usize, offset: f64) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| offset + (i % 3) as f64 * 2.5 + noise(i * d + j))
}

fn dataset(n: usize, d: usize) -> Dataset {
    Dataset::new(rows(n, d, 0.0)).unwrap()
}

fn mixture(kind: CovarianceType, k: usize, d: usize, offset: f64) -> Mixture {
    let means = Array2::from_shape_fn((k, d), |(c, j)| offset + c as f64 * 1.5 + 0.3 * noise(1000 + c * d + j));
    let matrix = |c: usize| {
        let a = Array2::from_shape_fn((d, d), |(i, j)| 0.4 * noise(5000 + (c * d + i) * d + j));
        a.dot(&a.t()) / d as f64 + Array2::<f64>::eye(d)
    };
    let covariances = match kind {
        CovarianceType::Full => {
            let mut all = Array3::zeros((k, d, d));
            all.outer_iter_mut().enumerate().for_each(|(c, mut slot)| slot.assign(&matrix(c)));
            Covariances::Full(all)
        }
        CovarianceType::Tied => Covariances::Tied(matrix(0)),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| 1.0 + 0.2 * (c + j) as f64)),
        CovarianceType::Spherical => Covariances::Spherical((0..k).map(|c| 1.0 + 0.2 * c as f64).collect()),
    };
    let weights: Array1<f64> = (0..k).map(|c| 1.0 + c as f64).collect();
    Mixture::new(&weights / weights.sum(), means, covariances).unwrap()
}

fn close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-300, |m: f64, v| m.max(v.abs()));
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{what}[{i}]: {a:e}, want {b:e}, of {scale:e}");
    }
}

fn text<A>(result: Result<A, Error>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

// What can be missing.

#[test]
fn without_a_driver_cuda_is_an_error_and_auto_takes_the_cpu() {
    INSTEAD.set(Some(None));
    let error = text(Device::Cuda(0).open(1));
    assert!(error.contains("no NVIDIA driver") && error.contains("install"), "{error}");
    let opened = Device::Auto.open(1).unwrap();
    assert_eq!(opened.engine.name(), "cpu");
    assert!(opened.reason.contains("no NVIDIA driver"), "{}", opened.reason);
    let report = cuda_report();
    assert!(report.driver.is_none() && report.to_string().contains("missing: no NVIDIA driver"), "{report}");
    INSTEAD.set(None);
}

fn refused(machine: Machine, ordinal: usize, words: &[&str]) {
    let fake = Fake::install(machine);
    let error = text(CudaEngine::new(ordinal));
    for word in words.iter().chain(&[format!("cuda:{ordinal}").as_str()]) {
        assert!(error.contains(word), "'{word}' in: {error}");
    }
    let opened = Device::Auto.open(1).unwrap();
    assert!(ordinal > 0 || opened.engine.name() == "cpu");
    drop(opened);
    fake.0.assert_clean(&error);
}

#[test]
fn the_toolkits_stub_is_recognised() {
    refused(Machine { init: code::STUB_LIBRARY, ..Machine::default() }, 0, &["stub", "LD_LIBRARY_PATH"]);
}

#[test]
fn an_old_driver_is_told_from_what_is_needed() {
    refused(Machine { version: 10_020, ..Machine::default() }, 0, &["too old", "CUDA 10.2", "update"]);
}

#[test]
fn no_device_says_where_to_look() {
    refused(Machine { init: code::NO_DEVICE, ..Machine::default() }, 0, &["CUDA_VISIBLE_DEVICES", "nvidia-smi"]);
    refused(Machine { devices: 0, ..Machine::default() }, 0, &["no CUDA device is visible", "CUDA_VISIBLE_DEVICES"]);
}

#[test]
fn an_ordinal_that_is_not_there_says_which_are() {
    refused(Machine::default(), 3, &["no such device", "cuda:0 is there"]);
    refused(Machine { devices: 2, ..Machine::default() }, 2, &["cuda:0 to cuda:1 are there"]);
}

#[test]
fn a_device_before_turing_is_refused() {
    refused(Machine { capability: (6, 1), ..Machine::default() }, 0, &["6.1 is too low", "7.5"]);
}

#[test]
fn a_module_that_the_driver_does_not_read_asks_for_a_newer_driver() {
    let machine = Machine { load: code::UNSUPPORTED_PTX_VERSION, ..Machine::default() };
    refused(machine, 0, &["loading module sm_90a", "update the NVIDIA driver"]);
    refused(Machine { load: code::INVALID_PTX, ..Machine::default() }, 0, &["update the NVIDIA driver"]);
}

#[test]
fn the_report_lists_devices_and_modules() {
    let fake = Fake::install(Machine { capability: (8, 6), ..Machine::default() });
    let report = cuda_report();
    assert_eq!(report.problem, None);
    let device = &report.devices[0];
    assert_eq!((device.module.as_deref(), device.memory_free), (Some("sm_80"), Some(1 << 30)));
    let text = report.to_string();
    assert!(text.contains("cuda:0: Made-up GPU, compute capability 8.6, 1.0 GiB"), "{text}");
    fake.0.assert_clean("report");
    drop(fake);
    let fake = Fake::install(Machine { capability: (5, 2), ..Machine::default() });
    assert!(cuda_report().problem.unwrap().contains("no device that"));
    fake.0.assert_clean("report");
}

#[test]
fn a_module_can_be_asked_for() {
    let _fake = Fake::install(Machine::default());
    assert!(CudaEngine::with_module(0, "sm_75").unwrap().description().contains("module sm_75 (asked for)"));
    assert!(text(CudaEngine::with_module(0, "sm_100")).contains("no module sm_100"));
}

#[test]
fn an_engine_says_what_it_is() {
    let _fake = Fake::install(Machine::default());
    let opened = Device::Auto.open(1).unwrap();
    assert_eq!((opened.engine.name().as_str(), opened.reason.as_str()), ("cuda:0", "it is the first GPU"));
    let text = opened.engine.description();
    assert!(text.contains("Made-up GPU, module sm_90a (compute capability 9.0), driver for CUDA 13.0"), "{text}");
}

// The same as the reference.

fn agrees(kind: CovarianceType, precision: Precision, n: usize, d: usize, k: usize, weighted: bool) {
    let what = format!("{kind} {precision} n={n} d={d} k={k}");
    let tolerance = if precision == Precision::F32 { 2e-5 } else { 1e-10 };
    let offset = if precision == Precision::F32 { 1e4 } else { 1e8 };
    let mut all = rows(n, d, offset);
    if precision == Precision::F32 {
        all.mapv_inplace(|v| f64::from(v as f32));
    }
    let mut data = Dataset::new(all).unwrap();
    if weighted {
        data = data.with_weights((0..n).map(|i| 0.5 * ((i % 3) + usize::from(n < 3)) as f64).collect()).unwrap();
    }
    let mixture = mixture(kind, k, d, offset);
    let at = shift::of_data(&data);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut fast = engine.load(&data, precision, &at).unwrap();
    let mut slow = ReferenceEngine.load(&data, Precision::F64, &at).unwrap();
    let same = |got: gmm_model::Statistics, want: gmm_model::Statistics, what: &str| {
        close(&got.weight, &want.weight, tolerance, &format!("{what}: weight"));
        close(got.first.as_slice().unwrap(), want.first.as_slice().unwrap(), tolerance, &format!("{what}: first"));
        close(&got.second, &want.second, tolerance, &format!("{what}: second"));
        close(&[got.log_likelihood], &[want.log_likelihood], tolerance, &format!("{what}: log-likelihood"));
        assert_eq!((got.n_rows, got.total_weight, &got.centres), (want.n_rows, want.total_weight, &want.centres));
    };
    let first = fast.pass(&mixture).unwrap();
    assert_eq!(first, fast.pass(&mixture).unwrap(), "{what}: the same bits again");
    same(first, slow.pass(&mixture).unwrap(), &what);
    let centres = mixture.means();
    same(fast.nearest(kind, centres).unwrap(), slow.nearest(kind, centres).unwrap(), &format!("{what} nearest"));
    let fill = |start: usize, out: &mut [f64]| {
        for (i, r) in out.iter_mut().enumerate() {
            *r = 0.5 + 0.5 * noise(start * k + i);
        }
    };
    let given = fast.given(kind, centres, &fill).unwrap();
    same(given, slow.given(kind, centres, &fill).unwrap(), &format!("{what} given"));
    let (mut a, mut b) = (vec![f64::INFINITY; n], vec![f64::INFINITY; n]);
    b[0] = 0.0;
    a[0] = 0.0;
    let centre = mixture.means().row(0).to_vec();
    fast.squared_distances(&centre, &mut a).unwrap();
    slow.squared_distances(&centre, &mut b).unwrap();
    close(&a, &b, tolerance, &format!("{what}: squared distances"));
    let run = |rows: &mut dyn Resident| {
        let (mut densities, mut r, mut labels) = (vec![f64::NAN; n], vec![f64::NAN; n * k], vec![u32::MAX; n]);
        let want =
            Wanted { log_densities: Some(&mut densities), responsibilities: Some(&mut r), labels: Some(&mut labels) };
        let totals = rows.evaluate(&mixture, want).unwrap();
        assert_eq!(totals, rows.evaluate(&mixture, Wanted::default()).unwrap(), "totals do not depend on the outputs");
        (vec![totals.log_likelihood, totals.entropy, totals.total_weight], densities, r, labels)
    };
    let (got, want) = (run(fast.as_mut()), run(slow.as_mut()));
    close(&got.0[..1], &want.0[..1], tolerance, &format!("{what}: log-likelihood"));
    close(&got.0[1..], &want.0[1..], tolerance, &format!("{what}: entropy and weight"));
    close(&got.1, &want.1, tolerance, &format!("{what}: log densities"));
    close(&got.2, &want.2, 4.0 * tolerance, &format!("{what}: responsibilities"));
    for (i, (a, b)) in got.3.iter().zip(&want.3).enumerate() {
        let r = |c: &u32| want.2[i * k + *c as usize];
        assert!(r(a) >= r(b) - tolerance, "{what}: label of row {i}");
    }
    drop(fast);
    drop(engine);
    fake.0.assert_clean(&what);
}

#[test]
fn agrees_with_the_reference_at_odd_sizes() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            for (n, d, k) in [(1, 1, 1), (2, 3, 2), (127, 2, 3), (129, 9, 2), (300, 17, 5), (513, 1, 18)] {
                agrees(kind, precision, n, d, k, n % 2 == 1);
            }
        }
    }
}

#[test]
fn agrees_where_solved_columns_do_not_fit_in_shared_memory() {
    for kind in [CovarianceType::Full, CovarianceType::Tied] {
        agrees(kind, Precision::F64, 140, 65, 2, true);
    }
}

#[test]
fn every_forced_plan_gives_the_same_answer() {
    let data = dataset(700, 18).with_weights((0..700).map(|i| 1.0 + (i % 2) as f64).collect()).unwrap();
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 3, 18, 0.0);
        let pass = |text: &str| {
            let forced = plan::Forced::parse(text).unwrap();
            let rows = CudaRows::<f64>::load(engine.gpu.clone(), &data, Precision::F64, &[0.5; 18], forced);
            rows.unwrap().pass(&mixture).unwrap()
        };
        let want = pass("");
        for text in
            ["solved=shared", "solved=scratch", "chunk=128", "chunk=256,splits=2", "blocks=1,splits=1", "splits=5"]
        {
            let (got, what) = (pass(text), format!("{kind} {text}"));
            close(&got.weight, &want.weight, 1e-13, &what);
            close(got.first.as_slice().unwrap(), want.first.as_slice().unwrap(), 1e-12, &what);
            close(&got.second, &want.second, 1e-13, &what);
            close(&[got.log_likelihood], &[want.log_likelihood], 1e-13, &what);
        }
    }
    drop(engine);
    fake.0.assert_clean("forced plans");
}

#[test]
fn a_fit_is_the_cpu_engines() {
    let data = dataset(400, 3);
    for kind in CovarianceType::ALL {
        for init in [Init::KMeans, Init::Random] {
            let options = FitOptions { covariance_type: kind, init, max_iter: 5, seed: 7, ..FitOptions::new(3) };
            let fake = Fake::install(Machine::default());
            let got = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
            let want = fit(&crate::CpuEngine::new(1).unwrap(), &data, &options).unwrap();
            assert_eq!(got.summary.engine, "cuda:0");
            assert_eq!(got.summary.iterations, want.summary.iterations);
            close(got.mixture.means().as_slice().unwrap(), want.mixture.means().as_slice().unwrap(), 1e-9, "means");
            close(&got.summary.trace, &want.summary.trace, 1e-11, "trace");
            fake.0.assert_clean("fit");
        }
    }
}

#[test]
fn evaluation_goes_through_the_same_functions() {
    let (data, mixture) = (dataset(200, 2), mixture(CovarianceType::Full, 3, 2, 0.0));
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let got = evaluate::labels(&engine, &mixture, &data, Precision::F64).unwrap();
    assert_eq!(got, evaluate::labels(&ReferenceEngine, &mixture, &data, Precision::F64).unwrap());
}

#[test]
fn a_value_beyond_the_range_of_squares_scores_minus_infinity() {
    let mut all = rows(300, 2, 0.0);
    all[[200, 1]] = 1e200;
    let data = Dataset::new(all).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 3, 2, 0.0);
        for precision in [Precision::F32, Precision::F64] {
            let (densities, totals) = evaluate::log_densities(&engine, &mixture, &data, precision).unwrap();
            assert_eq!((densities[200], totals.log_likelihood), (f64::NEG_INFINITY, f64::NEG_INFINITY));
            assert!(densities.iter().enumerate().all(|(i, v)| i == 200 || v.is_finite()));
            let r = evaluate::responsibilities(&engine, &mixture, &data, precision).unwrap();
            close(&r.row(200).to_vec(), &mixture.weights().to_vec(), 1e-6, "responsibilities are the weights");
            assert!(evaluate::labels(&engine, &mixture, &data, precision).unwrap()[200] == 2, "the heaviest");
        }
    }
}

// Faults.

/// A fit small enough to run at every fault; everything that a fit does is in it.
fn small_fit(init: &Init) -> Result<crate::Fit, Error> {
    let options = FitOptions {
        covariance_type: CovarianceType::Full,
        init: init.clone(),
        max_iter: 2,
        n_init: 1,
        ..FitOptions::new(2)
    };
    let data = dataset(150, 2).with_weights(vec![1.0; 150]).unwrap();
    fit(&CudaEngine::new(0)?, &data, &options)
}

/// At every call of a class the fit fails with a message, leaves nothing behind, and panics nowhere.
fn every_fault(init: &Init, class: Class, code: Code, step: usize) {
    let fake = Fake::install(Machine::default());
    let whole = small_fit(init).unwrap();
    let calls = fake.0.calls_of(class);
    fake.0.assert_clean("no fault");
    drop(fake);
    assert!(calls > 3, "{class:?}: {calls}");
    for at in (1..=calls).step_by(step) {
        let fake = Fake::with(Machine::default(), Some(Fault { at, of: class, code }));
        let what = format!("{class:?} {at} of {calls}, code {code}");
        match small_fit(init) {
            Err(error) => assert!(!error.to_string().is_empty()),
            // For want of memory, a smaller chunk may do; and then it has done it right.
            Ok(fitted) if code == super::driver::code::OUT_OF_MEMORY => {
                close(&fitted.summary.trace, &whole.summary.trace, 1e-12, &what);
            }
            // cust passes over this answer when it opens a context, and destructors do; both times it is current anyway.
            Ok(fitted) if fake.0.failed() == Some("cuCtxSetCurrent") => assert_eq!(fitted.mixture, whole.mixture),
            Ok(_) => panic!("{what}: the fit went on after {:?}", fake.0.failed()),
        }
        fake.0.assert_clean(&what);
    }
}

fn given() -> Init {
    Init::Given(Box::new(mixture(CovarianceType::Full, 2, 2, 0.0)))
}

#[test]
fn every_failing_call_of_a_fit_is_an_error_and_leaks_nothing() {
    every_fault(&given(), Class::Any, UNKNOWN, 1);
}

#[test]
fn every_failing_call_with_k_means_is_an_error_and_leaks_nothing() {
    every_fault(&Init::KMeans, Class::Any, UNKNOWN, 5);
}

#[test]
fn every_allocation_may_lack_memory() {
    every_fault(&given(), Class::Allocation, code::OUT_OF_MEMORY, 1);
    every_fault(&Init::KMeans, Class::Allocation, code::OUT_OF_MEMORY, 1);
}

#[test]
fn every_launch_may_fail() {
    every_fault(&given(), Class::Launch, 701, 1);
    every_fault(&Init::Random, Class::Launch, code::LAUNCH_FAILED, 2);
}

#[test]
fn every_wait_may_tell_of_an_illegal_address() {
    every_fault(&given(), Class::Wait, code::ILLEGAL_ADDRESS, 1);
}

#[test]
fn a_failed_launch_names_the_kernel() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(10, 2), Precision::F32, &[0.0, 0.0]).unwrap();
    let mixture = mixture(CovarianceType::Diag, 2, 2, 0.0);
    fake.0.fail(Fault { at: 1, of: Class::Launch, code: 701 });
    let error = text(rows.pass(&mixture));
    assert!(error.contains("cuda:0: launching kernel e_step_diag_f32"), "{error}");
    // Nothing was lost: the next pass is right.
    assert!(rows.pass(&mixture).unwrap().is_finite());
    fake.0.fail(Fault { at: 1, of: Class::Wait, code: code::LAUNCH_TIMEOUT });
    let error = text(rows.pass(&mixture));
    assert!(error.contains("kernel reduce_partials") && error.contains("display"), "{error}");
}

#[test]
fn after_an_illegal_address_nothing_is_tried_again() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let data = dataset(10, 2);
    let mixture = mixture(CovarianceType::Diag, 2, 2, 0.0);
    let mut rows = engine.load(&data, Precision::F32, &[0.0, 0.0]).unwrap();
    fake.0.fail(Fault { at: 1, of: Class::Wait, code: code::ILLEGAL_ADDRESS });
    assert!(text(rows.pass(&mixture)).contains("defect of a kernel"));
    let launches = fake.0.calls("cuLaunchKernel");
    assert!(text(rows.pass(&mixture)).contains("lost in an earlier failure"));
    assert!(text(engine.load(&data, Precision::F32, &[0.0, 0.0])).contains("lost"));
    assert_eq!(fake.0.calls("cuLaunchKernel"), launches);
    drop((rows, engine));
    fake.0.assert_clean("after an illegal address");
}

#[test]
fn too_little_memory_for_the_rows_is_said_before_any_is_taken() {
    let fake = Fake::install(Machine { memory: 1000, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let error = text(engine.load(&dataset(300, 2), Precision::F64, &[0.0, 0.0]));
    assert!(error.contains("needs 6144 bytes") && error.contains("1000 are free"), "{error}");
    assert_eq!((fake.0.calls("cuMemAlloc"), fake.0.calls("cuMemAllocHost")), (0, 0));
}

#[test]
fn too_little_memory_for_a_pass_gives_smaller_chunks_and_then_an_error() {
    let (n, d, k) = (4000, 2, 40);
    let mixture = mixture(CovarianceType::Spherical, k, d, 0.0);
    let data = dataset(n, d);
    let pass = |memory: usize| {
        let fake = Fake::install(Machine { memory, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let mut rows = engine.load(&data, Precision::F64, &[0.0, 0.0]).unwrap();
        let statistics = rows.pass(&mixture);
        let (taken, launches) = (fake.0.taken(), fake.0.calls("cuLaunchKernel"));
        assert!(taken <= memory);
        (statistics, taken, launches)
    };
    let (whole, taken, launches) = pass(1 << 30);
    let whole = whole.unwrap();
    let (fewer, less, more) = pass(taken / 3);
    assert!(less < taken / 3 && more > launches, "{less} of {taken}, {more} launches after {launches}");
    close(&fewer.unwrap().second, &whole.second, 1e-13, "smaller chunks");
    let error = text(pass(n * d * 8 + 10_000).0);
    assert!(error.contains("a pass on the GPU needs"), "{error}");
}

#[test]
fn the_em_loop_takes_no_memory() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(500, 3), Precision::F64, &[0.0; 3]).unwrap();
    let mixture = mixture(CovarianceType::Full, 4, 3, 0.0);
    rows.pass(&mixture).unwrap();
    let before = fake.0.calls_of(Class::Allocation);
    for _ in 0..3 {
        rows.pass(&mixture).unwrap();
    }
    assert_eq!(fake.0.calls_of(Class::Allocation), before);
}

#[test]
fn pinned_chunks_are_taken_once() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for _ in 0..3 {
        engine.load(&dataset(500, 3), Precision::F64, &[0.0; 3]).unwrap();
    }
    assert_eq!(fake.0.calls("cuMemAllocHost"), 2);
}

#[test]
fn rows_can_move_to_another_thread_and_be_dropped_there() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(50, 2), Precision::F64, &[0.0, 0.0]).unwrap();
    drop(engine);
    let driver = Arc::clone(&fake.0);
    std::thread::spawn(move || {
        let _here = driver.enter();
        rows.pass(&mixture(CovarianceType::Tied, 2, 2, 0.0)).unwrap();
        drop(rows);
    })
    .join()
    .unwrap();
    fake.0.assert_clean("another thread");
}

#[test]
fn a_data_set_beyond_one_pinned_chunk_arrives_whole() {
    // 5 million f32 are 20 MB, more than a chunk of 16 MiB.
    let (n, d) = (1_250_000, 4);
    let data = Dataset::new(Array2::from_shape_fn((n, d), |(i, j)| (i * d + j) as f32 % 1000.0)).unwrap();
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    drop(engine.load(&data, Precision::F32, &[0.0; 4]).unwrap());
    assert_eq!(fake.0.calls("cuMemcpyHtoDAsync"), 2);
    drop(engine);
    fake.0.assert_clean("upload");
}
