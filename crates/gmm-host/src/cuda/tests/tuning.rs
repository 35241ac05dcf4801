//! Autotune: the fastest path is used, stored and found again, and nothing else about a fit changes.

use std::fs;
use std::path::Path;

use super::*;
use crate::{Fit, ReferenceEngine, TuningSource};

/// Rows of nine columns.
fn data(n: usize) -> Dataset {
    Dataset::new(rows(n, 9, 0.0).mapv(|v| v as f32)).unwrap()
}

/// Fits two iterations on a new engine, as a new process would.
fn fitted(data: &Dataset, kind: CovarianceType, autotune: bool) -> Result<Fit, Error> {
    fit_on(&CudaEngine::new(0)?, data, kind, autotune)
}

fn fit_on(engine: &CudaEngine, data: &Dataset, kind: CovarianceType, autotune: bool) -> Result<Fit, Error> {
    let init = Init::Given(Box::new(mixture(kind, 3, 9, 0.0)));
    let options = FitOptions { covariance_type: kind, init, max_iter: 2, tol: 0.0, autotune, ..FitOptions::new(3) };
    fit(engine, data, &options)
}

fn cache_in(folder: &Path) {
    crate::cache_folder::FOLDER.set(Some(folder.to_owned()));
}

/// The fit on the path that `plan` forces, as in `GMM_PLAN`, regardless of timings.
fn forced(data: &Dataset, kind: CovarianceType, plan: &str) -> Mixture {
    let engine = CudaEngine::new(0).unwrap();
    let (at, forced) = (crate::shift::of_data(data), ForcedPlan::parse(plan).unwrap());
    let mut rows =
        CudaResident::<f32>::load(engine.gpu.clone(), data, Precision::F32, &at, forced, LoadOptions::default())
            .unwrap();
    let options = crate::EmOptions {
        tol: 0.0,
        max_iter: 2,
        reg_covar: 1e-6,
        precision: Precision::F32,
        autotune: true,
        fast: false,
    };
    let go_on = &mut |_: &crate::Iteration<'_>| std::ops::ControlFlow::Continue(());
    let run = crate::run_em(&mut rows, mixture(kind, 3, 9, 0.0), &options, 0, go_on).unwrap();
    assert_eq!(run.tuning.unwrap().source, TuningSource::Forced, "GMM_PLAN comes before any timing");
    run.mixture
}

#[test]
fn the_fastest_way_is_taken_and_gives_the_bits_that_it_gives_alone() {
    let data = data(130);
    for kind in CovarianceType::ALL {
        let folder = tempfile::tempdir().unwrap();
        cache_in(folder.path());
        let fake = Fake::install(Machine::default());
        // The path that selection prefers is slow on this machine.
        fake.0.slow("fused_", 500.0);
        let engine = CudaEngine::new(0).unwrap();
        let tuned = fit_on(&engine, &data, kind, true).unwrap();
        let tuning = tuned.tuning.unwrap();
        assert_eq!(tuning.source, TuningSource::Timed, "{kind}");
        assert_ne!(tuning.path, "fused", "{kind}: {tuning}");
        assert!(tuning.seconds.iter().any(|(way, seconds)| *way == "fused" && *seconds > 0.01), "{kind}: {tuning}");
        assert!(tuning.seconds.is_sorted_by(|a, b| a.1 <= b.1) && tuning.seconds[0].0 == tuning.path, "{tuning}");
        assert_eq!(tuned.on_device.unwrap().path, tuning.path, "{kind}");
        assert_eq!(tuned.mixture, forced(&data, kind, &format!("path={}", tuning.path)), "{kind}: {tuning}");
        drop(engine);
        fake.0.assert_clean("timed ways");
    }
}

#[test]
fn a_plan_that_is_fastest_gives_the_bits_of_a_fit_that_timed_nothing() {
    let data = data(130);
    let folder = tempfile::tempdir().unwrap();
    cache_in(folder.path());
    let fake = Fake::install(Machine::default());
    fake.0.slow("moments", 500.0);
    let plain = fitted(&data, CovarianceType::Diag, false).unwrap();
    assert_eq!(plain.tuning, None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is kept where nothing was asked");
    let tuned = fitted(&data, CovarianceType::Diag, true).unwrap();
    assert_eq!((tuned.mixture, tuned.summary), (plain.mixture, plain.summary));
    assert_eq!(tuned.on_device.unwrap().path, plain.on_device.unwrap().path);
}

#[test]
fn ways_are_timed_once_for_all_fits_of_a_decade_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("not/yet/there");
    cache_in(&inner);
    let fake = Fake::install(Machine::default());
    fake.0.slow("fused_", 500.0);
    let passes = |autotune, n| {
        let before = fake.0.launches("");
        let fit = fitted(&data(n), CovarianceType::Diag, autotune).unwrap();
        (fit.tuning, fake.0.launches("") - before)
    };
    let (first, with_trials) = passes(true, 200);
    let (second, launches) = passes(true, 300);
    let (first, second) = (first.unwrap(), second.unwrap());
    let file = inner.join("autotune.json");
    assert_eq!((first.source, second.source), (TuningSource::Timed, TuningSource::File(file)));
    assert_eq!((first.path, second.warnings), (second.path, Vec::new()));
    assert!(launches < 20 && with_trials > launches + 40, "{launches} launches, {with_trials} where ways are timed");
    // Everything that was written is read again, except for the last bit of a time.
    assert_eq!(first.seconds.len(), second.seconds.len());
    assert_eq!(passes(true, 1000).0.unwrap().source, TuningSource::Timed, "another decade");
    let engine = CudaEngine::new(0).unwrap();
    let d = data(1).n_features();
    let kept = |n, kind| engine.kept_tuning(kind, Precision::F32, (n, d, 3)).unwrap().map(|tuning| tuning.path);
    assert_eq!(kept(999, CovarianceType::Diag), Some(first.path), "as a fit of that decade begins");
    assert_eq!((kept(99, CovarianceType::Diag), kept(999, CovarianceType::Full)), (None, None), "what was not timed");
    let again = |file: bool| {
        if !file {
            fs::remove_dir_all(&inner).unwrap();
        }
        let before = fake.0.launches("");
        let tuning = fit_on(&engine, &data(200), CovarianceType::Diag, true).unwrap().tuning.unwrap();
        (tuning.path, fake.0.launches("") - before)
    };
    assert_eq!(again(true), again(false), "an engine needs its file once");
}

#[test]
fn a_file_that_cannot_be_used_is_a_warning_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("autotune.json");
    cache_in(folder.path());
    let fake = Fake::install(Machine::default());
    fake.0.slow(SLOW.0, SLOW.1);
    let data = data(40);
    let check = |says: &str, left: bool| {
        let fit = fitted(&data, CovarianceType::Diag, true).unwrap();
        let tuning = fit.tuning.unwrap();
        assert_eq!((&tuning.source, tuning.warnings.len()), (&TuningSource::Timed, 1), "{says}: {:?}", tuning.warnings);
        assert!(tuning.warnings[0].contains(says), "{says}: {:?}", tuning.warnings);
        let next = fitted(&data, CovarianceType::Diag, true).unwrap().tuning.unwrap();
        assert_eq!(matches!(next.source, TuningSource::File(_)), left, "{says}: whether the next fit finds it");
    };
    for damaged in ["", "{\"format\": 1, \"ways\": {\"a", "[]", "\u{0}\u{1}", "{\"format\": 1}"] {
        fs::write(&file, damaged).unwrap();
        check("damaged", true);
    }
    fs::write(&file, "{\"format\": 3, \"paths\": {}}").unwrap();
    check("format 3", true);
    fs::remove_file(&file).unwrap();
    // A folder in place of the file can be neither read nor replaced, whatever the user's permissions.
    fs::create_dir(&file).unwrap();
    check("cannot be read", false);
    cache_in(&file.join("autotune.json"));
    fs::write(file.join("autotune.json"), "a file where a folder should be").unwrap();
    check("cannot be", false);
    crate::cache_folder::FOLDER.set(None);
    check("GMM_CACHE_DIR", false);
    drop(fake);
}

/// An iteration of every path takes long enough for a measurement, so that few are run.
const SLOW: (&str, f32) = ("", 20.0);

#[test]
fn every_fault_while_ways_are_timed_is_an_error_or_the_right_model() {
    let data = Dataset::new(rows(40, 2, 0.0).mapv(|v| v as f32)).unwrap();
    let kind = CovarianceType::Diag;
    let fitted = |autotune| {
        let init = Init::Given(Box::new(mixture(kind, 2, 2, 0.0)));
        let options = FitOptions { covariance_type: kind, init, max_iter: 1, autotune, ..FitOptions::new(2) };
        fit(&CudaEngine::new(0)?, &data, &options)
    };
    let whole = {
        let _fake = Fake::install(Machine::default());
        fitted(false).unwrap()
    };
    // Of the many calls other than launches, every fifth suffices: the tests of a fit's faults cover all.
    for (class, code, step) in [
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES, 1),
        (Class::Launch, code::OUT_OF_MEMORY, 3),
        (Class::Allocation, code::OUT_OF_MEMORY, 1),
        (Class::Wait, code::ILLEGAL_ADDRESS, 1),
        (Class::Any, code::UNKNOWN, 5),
    ] {
        for at in (1..).step_by(step) {
            let folder = tempfile::tempdir().unwrap();
            cache_in(folder.path());
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
            fake.0.slow(SLOW.0, SLOW.1);
            let end = fitted(true);
            let failed = fake.0.failed();
            match end {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                // Whichever path it took in the end.
                Ok(fit) => close(&fit.summary.trace, &whole.summary.trace, 2e-5, &what),
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
fn every_way_that_is_timed_gives_the_same_answer() {
    // Few columns and few components, so that paths that selection considers slower are included.
    for (kind, (n, d, k)) in [
        (CovarianceType::Full, (140, 3, 5)),
        (CovarianceType::Full, (140, 6, 20)),
        (CovarianceType::Full, (140, 12, 4)),
        (CovarianceType::Diag, (140, 5, 7)),
        (CovarianceType::Tied, (260, 6, 3)),
        (CovarianceType::Spherical, (260, 4, 9)),
    ] {
        let what = format!("{kind} {n} {d} {k}");
        let data = Dataset::new(rows(n, d, 0.0).mapv(|v| f64::from(v as f32))).unwrap();
        let start = mixture(kind, k, d, 0.0);
        let options = |autotune| FitOptions {
            covariance_type: kind,
            init: Init::Given(Box::new(start.clone())),
            max_iter: 3,
            tol: 0.0,
            // With many components for few rows, covariances would become too narrow for some paths.
            reg_covar: 0.5,
            precision: Some(Precision::F32),
            autotune,
            ..FitOptions::new(k)
        };
        let want = fit(&ReferenceEngine, &data, &options(false)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        cache_in(folder.path());
        let file = folder.path().join("autotune.json");
        let fake = Fake::install(Machine::default());
        fake.0.slow(SLOW.0, SLOW.1);
        let timed = fit(&CudaEngine::new(0).unwrap(), &data, &options(true)).unwrap().tuning.unwrap();
        assert!(timed.seconds.len() >= 3, "{what}: {timed}");
        let kept = fs::read_to_string(&file).unwrap();
        for (way, _) in &timed.seconds {
            // Edits the file as if this path had been the fastest, so that the fit starts with it.
            let was = format!("\"path\": \"{}\"", timed.path);
            assert_eq!(kept.matches(&was).count(), 1, "{kept}");
            fs::write(&file, kept.replace(&was, &format!("\"path\": \"{way}\""))).unwrap();
            let got = fit(&CudaEngine::new(0).unwrap(), &data, &options(true)).unwrap();
            let ran = got.on_device.map_or("host", |on| on.path);
            assert_eq!((ran, got.tuning.unwrap().path), (*way, *way), "{what}");
            close(&got.summary.trace, &want.summary.trace, 2e-5, &format!("{what} {way}: trace"));
            let means = |fit: &Mixture| fit.means().iter().copied().collect::<Vec<_>>();
            close(&means(&got.mixture), &means(&want.mixture), 2e-4, &format!("{what} {way}: means"));
        }
    }
}
