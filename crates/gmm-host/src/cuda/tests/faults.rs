//! Faults of the driver in the middle of the work: an error, never a panic, a leak or a wrong model.

use super::super::driver::Code;
use super::super::fake::UNKNOWN;
use super::*;

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
            Ok(fitted) if code == code::OUT_OF_MEMORY => {
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
