//! Faults in the middle of a fit, rows 67, 69 and 72 of the table of bad input: the fit ends with an error that says
//! what and where, and the results so far are intact.

use std::ops::ControlFlow;

use super::*;
use crate::{Fit, fit_observed};

/// Rows of three tiles, so that smaller chunks exist.
const N: usize = 300;
const ITERATIONS: usize = 4;
/// The iteration after which the fault is injected.
const UNTIL: usize = 2;

fn options(kind: CovarianceType, init: Init, max_iter: usize) -> FitOptions {
    FitOptions { covariance_type: kind, init, max_iter, tol: 0.0, ..FitOptions::new(2) }
}

fn start(kind: CovarianceType) -> Init {
    Init::Given(Box::new(mixture(kind, 2, 2, 0.0)))
}

/// A fit that is disturbed after [`UNTIL`] iterations: all mixtures that it reached, and how it ended.
fn disturbed(fake: &Fake, kind: CovarianceType, disturb: impl Fn(&Fake)) -> (Vec<Mixture>, Result<Fit, Error>) {
    disturbed_on(&CudaEngine::new(0).unwrap(), kind, || disturb(fake))
}

fn disturbed_on(engine: &CudaEngine, kind: CovarianceType, disturb: impl Fn()) -> (Vec<Mixture>, Result<Fit, Error>) {
    let mut reached = Vec::new();
    let end = fit_observed(engine, &dataset(N, 2), &options(kind, start(kind), ITERATIONS), &mut |step| {
        reached.extend(step.mixture.cloned());
        if step.iteration == UNTIL {
            disturb();
        }
        ControlFlow::Continue(())
    });
    (reached, end)
}

/// The undisturbed fit.
fn whole(kind: CovarianceType) -> (Vec<Mixture>, Fit) {
    let fake = Fake::install(Machine::default());
    let (reached, end) = disturbed(&fake.0, kind, |_| {});
    (reached, end.unwrap())
}

/// Continues from a mixture after [`UNTIL`] iterations on a new engine.
fn rest(from: &Mixture) -> Mixture {
    let kind = from.covariance_type();
    let init = Init::Given(Box::new(from.clone()));
    fit(&CudaEngine::new(0).unwrap(), &dataset(N, 2), &options(kind, init, ITERATIONS - UNTIL)).unwrap().mixture
}

#[test]
fn row_67_memory_that_lacks_in_mid_fit_is_found_by_smaller_chunks() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    for kind in CovarianceType::ALL {
        let (_, want) = whole(kind);
        let fake = Fake::install(Machine::default());
        let launches = std::cell::Cell::new(0);
        let (_, got) = disturbed(&fake.0, kind, |fake| {
            launches.set(fake.calls("cuLaunchKernel"));
            fake.fail(Fault::once(Class::Launch, 2, code::OUT_OF_MEMORY));
        });
        let got = got.unwrap();
        assert_eq!(fake.0.failed(), Some("cuLaunchKernel"), "{kind}");
        close(&got.summary.trace, &want.summary.trace, 1e-12, &format!("{kind} trace"));
        close(got.mixture.means().as_slice().unwrap(), want.mixture.means().as_slice().unwrap(), 1e-12, "means");
        // Four launches per chunk: two passes of two chunks each, an evaluation of one, and the two launches before.
        let after = fake.0.calls("cuLaunchKernel") - launches.get();
        assert!(after >= 2 * 2 * 4 + 2 + 2, "{kind}: {after} launches are no smaller chunks");
        fake.0.assert_clean("smaller chunks");
    }
}

#[test]
fn row_67_memory_that_never_comes_is_an_error_with_bytes_and_the_state_is_kept() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    let kind = CovarianceType::Full;
    let (all, want) = whole(kind);
    let fake = Fake::install(Machine::default());
    let (reached, end) = disturbed(&fake.0, kind, |f| f.fail(Fault::always(Class::Launch, code::OUT_OF_MEMORY)));
    let error = text(end);
    let numbers: Vec<u64> = error.split([' ', ',', ';', ':']).filter_map(|w| w.parse().ok()).collect();
    assert!(
        error.contains("launching kernel") && error.contains("are free") && error.contains("the pass needs"),
        "{error}"
    );
    // Device ordinal, the driver's error code, bytes needed, bytes free.
    assert!(numbers.iter().filter(|&&n| n > 1000).count() == 2, "{error}");
    assert_eq!(reached, all[..UNTIL], "what was reached is what an undisturbed fit reaches");
    fake.0.assert_clean("no memory");
    // The device is not lost, and the mixture is intact: with memory again, the fit ends like an undisturbed one.
    fake.0.recover();
    assert_eq!(rest(&reached[UNTIL - 1]), want.mixture);
    fake.0.assert_clean("memory again");
}

#[test]
fn row_67_a_fit_needs_no_memory_after_its_start_and_an_evaluation_of_more_rows_says_what_it_wants() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    let kind = CovarianceType::Diag;
    for kept in [KeepOriginal::Together, KeepOriginal::InPieces, KeepOriginal::No] {
        let _kept = original::force(kept);
        let (all, want) = whole(kind);
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        // Another program takes all free memory, and also what this one frees.
        let (reached, end) = disturbed_on(&engine, kind, || fake.0.set_memory(100));
        assert_eq!(reached, all, "the loop went on to its end");
        assert_eq!(end.unwrap().summary, want.summary, "the evaluation had what the loop left");
        let end = evaluate::score(&engine, &want.mixture, &dataset(3000, 2), Precision::F64);
        let Err(Error::Memory { wanted, free, .. }) = end else { panic!("{end:?}") };
        assert_eq!(wanted, (3072 * 2 * 8) as u128, "24 tiles of two columns");
        assert!(free < wanted, "{free}");
        drop(engine);
        fake.0.assert_clean("no memory for an evaluation");
    }
}

#[test]
fn row_67_rows_outlive_a_pass_that_found_no_memory() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut rows = engine.load(&dataset(N, 2), Precision::F64, &[0.0, 0.0]).unwrap();
    let (small, large) = (mixture(CovarianceType::Full, 2, 2, 0.0), mixture(CovarianceType::Full, 40, 2, 0.0));
    let before = rows.pass(&small).unwrap();
    fake.0.set_memory(fake.0.taken());
    let error = rows.pass(&large).unwrap_err();
    let Error::Memory { wanted, free, .. } = error else { panic!("{error}") };
    assert!(wanted > free && free > 0, "{wanted} bytes, of which {free} are free");
    assert_eq!(rows.pass(&small).unwrap(), before, "the smaller pass still fits");
    fake.0.set_memory(1 << 30);
    assert!(rows.pass(&large).unwrap().is_finite());
    assert_eq!(rows.pass(&small).unwrap(), before);
    drop((rows, engine));
    fake.0.assert_clean("a pass without memory");
}

#[test]
fn row_69_a_device_lost_in_mid_fit_is_an_error_of_the_device_and_what_was_reached_is_whole() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    let kind = CovarianceType::Full;
    let (all, want) = whole(kind);
    for (code, advice) in [
        (code::ECC_UNCORRECTABLE, "the device's memory failed"),
        (code::NVLINK_UNCORRECTABLE, "a link between devices failed"),
        (code::CONTAINED, "a hardware fault"),
        (code::CONTEXT_IS_DESTROYED, "lost or reset"),
        (code::UNKNOWN, "may have been lost"),
    ] {
        for class in [Class::Launch, Class::Wait, Class::Copy] {
            let fake = Fake::install(Machine::default());
            let launches = std::cell::Cell::new(0);
            let (reached, end) = disturbed(&fake.0, kind, |fake| {
                launches.set(fake.calls("cuLaunchKernel"));
                fake.fail(Fault::always(class, code));
            });
            let what = format!("{class:?} {code}");
            let error = end.unwrap_err();
            assert!(matches!(error, Error::Device(_)), "{what}: {error:?}");
            let error = error.to_string();
            assert!(error.starts_with("cuda:0: ") && error.contains(advice), "{what}: {error}");
            assert_eq!(reached, all[..UNTIL], "{what}");
            // At most the launches of one pass before its wait: nothing is retried.
            assert!(fake.0.calls("cuLaunchKernel") - launches.get() <= 4, "{what}");
            fake.0.assert_clean(&what);
            drop(fake);
            let _fake = Fake::install(Machine::default());
            assert_eq!(rest(&reached[UNTIL - 1]), want.mixture, "{what}: another device goes on from there");
        }
    }
}

#[test]
fn row_72_non_finite_statistics_stop_the_fit_and_name_iteration_and_component() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    for kind in CovarianceType::ALL {
        let (all, _) = whole(kind);
        // Layout: totals, then weights (2), first moments (2, 2), second moments.
        let totals = crate::cuda::launch::plan::TOTALS;
        let second = match kind {
            CovarianceType::Full => 3,
            CovarianceType::Diag => 2,
            CovarianceType::Tied | CovarianceType::Spherical => 1,
        };
        // Second moments of tied covariances belong to all components; the error names the first.
        let of_second = usize::from(kind != CovarianceType::Tied);
        for (word, component) in [(1, 1), (2 + 2, 1), (2 + 1, 0), (2 + 4 + second, of_second)] {
            let fake = Fake::install(Machine::default());
            let (reached, end) = disturbed(&fake.0, kind, |fake| fake.spoil(1, totals + word));
            let error = end.unwrap_err();
            let Error::NotFinite { iteration, component: named } = error else { panic!("{kind} {word}: {error}") };
            assert_eq!((iteration, named), (UNTIL + 1, component), "{kind} {word}");
            let error = error.to_string();
            assert!(error.contains(&format!("iteration {iteration}: the statistics of component {named}")), "{error}");
            assert_eq!(reached, all[..UNTIL], "{kind} {word}");
            fake.0.assert_clean("not finite");
        }
        let fake = Fake::install(Machine::default());
        let (_, end) = disturbed(&fake.0, kind, |fake| fake.spoil(1, 0));
        let Err(Error::Likelihood { iteration: 3, value }) = end else { panic!("{kind}: {end:?}") };
        assert!(value.is_nan());
        fake.0.assert_clean("no likelihood");
    }
}

#[test]
fn row_72_a_number_that_is_none_never_reaches_a_model_from_wherever_it_comes() {
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    for init in [start(CovarianceType::Full), Init::KMeans, Init::KMeansPlusPlus, Init::Random, Init::RandomRows] {
        let run = |copy: usize| {
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            fake.0.spoil(copy, 0);
            let end = fit(&engine, &dataset(9, 2), &options(CovarianceType::Full, init.clone(), 2));
            drop(engine);
            fake.0.assert_clean("spoilt copies");
            (end, fake.0.calls("cuMemcpyDtoHAsync"))
        };
        let (undisturbed, copies) = run(usize::MAX);
        undisturbed.unwrap();
        assert!(copies >= 3, "{init:?}: {copies} copies");
        for copy in 1..=copies {
            match run(copy).0 {
                Err(Error::NotFinite { .. } | Error::Likelihood { .. }) => {}
                Err(error) => panic!("{init:?}, copy {copy}: {error}"),
                // k-means++ ignores a distance that is NaN when it draws.
                Ok(fit) => {
                    assert!(matches!(init, Init::KMeans | Init::KMeansPlusPlus), "{init:?}, copy {copy}: no error");
                    assert!(fit.mixture.means().iter().all(|v| v.is_finite()), "{init:?}, copy {copy}");
                    assert!(fit.summary.trace.iter().all(|v| v.is_finite()), "{init:?}, copy {copy}");
                }
            }
        }
    }
}
