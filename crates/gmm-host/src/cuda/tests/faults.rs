//! Driver faults in the middle of a fit cause an error, never a panic, a leak or a wrong model.

use ndarray::array;

use super::*;
use crate::cuda::driver::table::Code;
use crate::{BayesOptions, Fit, FitRule, WeightFamily};

/// Two clumps, so that Lloyd converges in its second pass; one row more than a tile, so that smaller chunks exist.
const N: usize = 129;

/// A start and a rule.
type How = (Init, FitRule);

fn by(init: Init) -> How {
    (init, FitRule::none())
}

/// A fit that is small enough to repeat for every fault, and uses every part of the engine.
fn small_fit(how: &How) -> Result<Fit, Error> {
    fit_on(&CudaEngine::new(0)?, how)
}

fn fit_on(engine: &CudaEngine, (init, rule): &How) -> Result<Fit, Error> {
    let (init, rule) = (init.clone(), rule.clone());
    let options = FitOptions { init, rule, max_iter: 2, tol: 0.0, n_init: 1, ..FitOptions::new(2) };
    let rows = Array2::from_shape_fn((N, 1), |(i, _)| (i % 2) as f64 * 9.0 + noise(i));
    let data = Dataset::new(rows).unwrap().with_weights(vec![1.0; N]).unwrap();
    fit(engine, &data, &options)
}

/// Starting parameters.
fn given() -> How {
    let start = Mixture::new(array![0.5, 0.5], array![[0.0], [8.0]], Covariances::Full(Array3::ones((2, 1, 1))));
    by(Init::Given(Box::new(start.unwrap())))
}

/// Injects a fault at the n-th call of a class, for every n of a fit. The fit must return an error, leak nothing and
/// not panic.
fn every_fault(how: &How, class: Class, code: Code) {
    let fake = Fake::install(Machine::default());
    let whole = small_fit(how).unwrap();
    let calls = fake.0.calls_of(class);
    fake.0.assert_clean("no fault");
    drop(fake);
    // EM and the evaluation after it copy, launch and wait at least once each.
    assert!(calls >= 2, "{class:?}: {calls}");
    for at in 1..=calls {
        let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
        let what = format!("{class:?} {at} of {calls}, code {code}");
        let end = small_fit(how);
        let failed = fake.0.failed();
        assert!(failed.is_some(), "{what}: its turn never came");
        match end {
            // Refused launches and lack of memory are errors of the device or of memory.
            Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
            // After an out-of-memory error a fit may succeed with smaller chunks; its result must then be right.
            Ok(fitted) if code == code::OUT_OF_MEMORY => {
                close(&fitted.summary.trace, &whole.summary.trace, 1e-12, &what);
            }
            Ok(fitted) if may_fail(failed) => assert_eq!(fitted.mixture, whole.mixture),
            Ok(_) => panic!("{what}: the fit went on after {failed:?}"),
        }
        fake.0.assert_clean(&what);
    }
}

/// The same for an engine's second fit, which reuses everything that the first released. A third fit must be right
/// unless the device was lost, and the engine must free everything.
fn every_fault_of_a_warm_fit(how: &How, class: Class, code: Code) {
    let whole = {
        let _fake = Fake::install(Machine::default());
        small_fit(how).unwrap()
    };
    for at in 1.. {
        let what = format!("{class:?} {at}, code {code}");
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        assert_eq!(fit_on(&engine, how).unwrap().mixture, whole.mixture, "{what}");
        fake.0.fail(Fault::once(class, at, code));
        let end = fit_on(&engine, how);
        let failed = fake.0.failed();
        match end {
            Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
            Ok(fitted) if code == code::OUT_OF_MEMORY => {
                close(&fitted.summary.trace, &whole.summary.trace, 1e-12, &what);
            }
            Ok(fitted) => {
                assert_eq!(fitted.mixture, whole.mixture, "{what}");
                assert!(may_fail(failed), "{what}: the fit went on after {failed:?}");
            }
        }
        fake.0.recover();
        if !fault::is_fatal(code) {
            assert_eq!(fit_on(&engine, how).unwrap().mixture, whole.mixture, "{what}: a third fit");
        }
        drop(engine);
        fake.0.assert_clean(&what);
        if failed.is_none() {
            assert!(at > 2, "{what}");
            break;
        }
    }
}

#[test]
fn every_fault_of_a_fit_that_takes_what_another_left_is_an_error_and_leaks_nothing() {
    for (class, code) in [
        (Class::Any, code::UNKNOWN),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::ILLEGAL_ADDRESS),
        (Class::Wait, code::UNKNOWN),
    ] {
        every_fault_of_a_warm_fit(&given(), class, code);
    }
    every_fault_of_a_warm_fit(&by(Init::KMeans), Class::Any, code::UNKNOWN);
}

/// Injects a fault at every call of every class, with the codes that these calls return; `Any` includes other calls,
/// such as those that open the device.
fn every_kind_of_fault(how: &How) {
    for (class, code) in [
        (Class::Any, code::UNKNOWN),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Copy, code::ECC_UNCORRECTABLE),
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::ILLEGAL_ADDRESS),
    ] {
        every_fault(how, class, code);
    }
}

#[test]
fn every_fault_of_a_fit_from_given_parameters_is_an_error_and_leaks_nothing() {
    every_kind_of_fault(&given());
}

#[test]
fn every_fault_of_a_fit_by_variational_bayes_is_an_error_and_leaks_nothing() {
    let bayes = BayesOptions::new(WeightFamily::DirichletProcess);
    let how = (given().0, FitRule { bayes: Some(bayes), ..FitRule::none() });
    {
        let _fake = Fake::install(Machine::default());
        assert!(small_fit(&how).unwrap().on_device.is_some_and(|on| on.iterations == 2));
    }
    every_kind_of_fault(&how);
    every_fault_of_a_warm_fit(&how, Class::Any, code::UNKNOWN);
}

#[test]
fn every_fault_of_a_fit_whose_rows_are_kept_in_pieces_is_an_error_and_leaks_nothing() {
    let _kept = original::force(KeepOriginal::InPieces);
    every_kind_of_fault(&given());
}

#[test]
fn every_fault_of_a_fit_from_k_means_is_an_error_and_leaks_nothing() {
    every_kind_of_fault(&by(Init::KMeans));
}

#[test]
fn every_fault_of_a_fit_from_random_responsibilities_is_an_error_and_leaks_nothing() {
    every_kind_of_fault(&by(Init::Random));
}

#[test]
fn every_fault_of_a_pass_over_parts_is_an_error_and_leaks_nothing() {
    let (data, mixture, parts) =
        (dataset(300, 1), mixture(CovarianceType::Diag, 2, 1, 0.0), [0..100, 100..101, 101..300]);
    let storage = gmm_model::RowStorage { precision: Precision::F64, shift: vec![0.0] };
    every_fault_of_parts(&|engine| {
        let weights = std::sync::Mutex::new(vec![Vec::new(); parts.len()]);
        let keep = |i: usize, statistics: &mut Statistics| {
            weights.lock().unwrap()[i] = statistics.weight.clone();
            Ok(())
        };
        let done = engine.pass_of_parts(&data, &storage, &mixture, &parts, None, &keep)?;
        Ok(done.then(|| weights.into_inner().unwrap().concat()))
    });
    let trials = [(0, 0), (1, 2), (0, 2)].map(|(speaker, utterance)| crate::adapt::Trial { speaker, utterance });
    let speakers = [mixture.clone(), self::mixture(CovarianceType::Diag, 2, 1, 0.5)];
    every_fault_of_parts(&|engine| {
        let speakers = crate::adapt::Speakers::Mixtures(&speakers);
        let asked = Ratios { background: &mixture, speakers, utterances: &parts, trials: &trials, top: 1 };
        engine.ratios(&data, &storage, &asked)
    });
}

type Work<'a> = dyn Fn(&CudaEngine) -> Result<Option<Vec<f64>>, Error> + 'a;

/// `work` gives no numbers where it leaves parts to others.
fn every_fault_of_parts(work: &Work<'_>) {
    let machine = || Machine { multiprocessors: 8, ..Machine::default() };
    let run = || work(&CudaEngine::new(0)?);
    let whole = {
        let _fake = Fake::install(machine());
        run().unwrap().expect("numbers")
    };
    assert!(!whole.is_empty());
    for (class, code) in [
        (Class::Any, code::UNKNOWN),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::ILLEGAL_ADDRESS),
    ] {
        for at in 1.. {
            let fake = Fake::with(machine(), Some(Fault::once(class, at, code)));
            let what = format!("{class:?} {at}, code {code}");
            let end = run();
            let failed = fake.0.failed();
            match end {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                // Left to passes over one part after another, or to the CPU.
                Ok(None) => assert_eq!(code, code::OUT_OF_MEMORY, "{what}"),
                Ok(Some(numbers)) => assert_eq!(numbers, whole, "{what}"),
            }
            fake.0.assert_clean(&what);
            if failed.is_none() {
                assert!(at > 2, "{what}");
                break;
            }
        }
    }
}

#[test]
fn row_70_a_failed_launch_names_the_kernel() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(10, 2), Precision::F32, &[0.0, 0.0]).unwrap();
    let mixture = mixture(CovarianceType::Diag, 2, 2, 0.0);
    fake.0.fail(Fault::once(Class::Launch, 1, code::LAUNCH_OUT_OF_RESOURCES));
    let error = text(rows.pass(&mixture));
    assert!(error.contains("cuda:0: launching kernel e_step_diag_f32"), "{error}");
    // The device was not lost: the next pass is right.
    assert!(rows.pass(&mixture).unwrap().is_finite());
    fake.0.fail(Fault::once(Class::Wait, 1, code::LAUNCH_TIMEOUT));
    let error = text(rows.pass(&mixture));
    assert!(error.contains("kernel reduce_partials") && error.contains("display"), "{error}");
}

#[test]
fn row_68_after_an_illegal_address_nothing_is_tried_again() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let data = dataset(10, 2);
    let mixture = mixture(CovarianceType::Diag, 2, 2, 0.0);
    let mut rows = engine.load(&data, Precision::F32, &[0.0, 0.0]).unwrap();
    fake.0.fail(Fault::once(Class::Wait, 1, code::ILLEGAL_ADDRESS));
    assert!(text(rows.pass(&mixture)).contains("bug in a kernel of this program"));
    let launches = fake.0.calls("cuLaunchKernel");
    assert!(text(rows.pass(&mixture)).contains("lost in an earlier failure"));
    assert!(text(engine.load(&data, Precision::F32, &[0.0, 0.0])).contains("lost"));
    assert_eq!(fake.0.calls("cuLaunchKernel"), launches);
    drop((rows, engine));
    fake.0.assert_clean("after an illegal address");
}
