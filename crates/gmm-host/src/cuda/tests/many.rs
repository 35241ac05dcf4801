//! Many small fits in one launch agree with the CPU engine's, each for itself.

use std::ops::{ControlFlow, Range};

use gmm_model::deconvolution::MeasurementErrors;

use super::*;
use crate::many::{Groups, Job, fit_jobs, fit_many};
use crate::{CpuEngine, Engine, Fit};

fn ranges(sizes: &[usize]) -> Vec<Range<usize>> {
    let ends = sizes.iter().scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.zip(sizes).map(|(end, size)| end - size..end).collect()
}

/// Rows of three clumps in each group, far from 0 and with weights.
fn table(n: usize, d: usize, precision: Precision) -> Dataset {
    let values = rows(n, d, 100.0);
    let weights = (0..n).map(|i| 0.5 * (1 + i % 3) as f64).collect();
    let data = match precision {
        Precision::F32 => Dataset::new(values.mapv(|v| v as f32)),
        Precision::F64 => Dataset::new(values),
    };
    data.unwrap().with_weights(weights).unwrap()
}

fn agree(found: &Fit, want: &Fit, tolerance: f64, what: &str) {
    let flat = |m: &Mixture| -> [Vec<f64>; 3] {
        let covariances = match m.covariances() {
            Covariances::Full(a) => a.iter().copied().collect(),
            Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
            Covariances::Spherical(a) => a.to_vec(),
        };
        [m.weights().to_vec(), m.means().iter().copied().collect(), covariances]
    };
    let (a, b) = (flat(&found.mixture), flat(&want.mixture));
    for ((a, b), of) in a.iter().zip(&b).zip(["weights", "means", "covariances"]) {
        close(a, b, tolerance, &format!("{what}: {of}"));
    }
    let (a, b) = (&found.summary, &want.summary);
    assert_eq!((a.iterations, a.converged), (b.iterations, b.converged), "{what}");
    close(&a.trace, &b.trace, tolerance, &format!("{what}: trace"));
    close(&[a.log_likelihood, a.bic, a.icl], &[b.log_likelihood, b.bic, b.icl], tolerance, what);
    let best = |fit: &Fit| fit.state.best.as_ref().map(|best| best.index);
    assert_eq!(best(found), best(want), "{what}: the restart");
    assert_eq!(found.storage.precision, want.storage.precision, "{what}");
    let warnings = |fit: &Fit| fit.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(warnings(found), warnings(want), "{what}");
}

fn check(options: &FitOptions, (sizes, d): (&[usize], usize), precision: Precision) {
    let groups = ranges(sizes);
    let data = table(sizes.iter().sum(), d, precision);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let found = fit_many(&engine, &Groups::new(&data, &groups), options);
    assert!(fake.0.launches("many_fits") > 0);
    let cpu = CpuEngine::new(1).unwrap();
    for (found, rows) in found.iter().zip(&groups) {
        let what = format!("{} {precision} {rows:?} of {d} columns", options.covariance_type);
        // In f64 on the CPU too, so that only the order of operations differs.
        let oracle = FitOptions { precision: Some(Precision::F64), ..options.clone() };
        let want = fit(&cpu, &data.part(rows.clone()), &oracle).unwrap();
        let found = found.as_ref().unwrap().clone();
        if let (Init::Given(start), 0) = (&options.init, options.max_iter) {
            assert_eq!(&found.mixture, start.as_ref());
        }
        let mut double = found.clone();
        double.storage.precision = Precision::F64;
        agree(&double, &want, 1e-9, &what);
        // The bits do not depend on the other groups.
        let alone = fit_many(&engine, &Groups::new(&data, std::slice::from_ref(rows)), options).remove(0).unwrap();
        // But for the time.
        let content = |Fit { mixture, summary, storage, starts, .. }: &Fit| {
            format!("{mixture:?} {summary:?} {storage:?} {starts:?}")
        };
        assert_eq!(content(&alone), content(&found), "{what}");
    }
    drop(engine);
    fake.0.assert_clean("many fits");
}

#[test]
fn they_are_the_cpus() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            let options = FitOptions { covariance_type: kind, n_init: 2, max_iter: 12, ..FitOptions::new(3) };
            check(&options, (&[40, 3 * 11, 130, 70], 3), precision);
        }
        check(&FitOptions { covariance_type: kind, ..FitOptions::new(2) }, (&[25, 60], 1), Precision::F64);
        check(&FitOptions { covariance_type: kind, max_iter: 4, ..FitOptions::new(7) }, (&[800], 5), Precision::F64);
    }
}

#[test]
fn other_starts_and_single_components_are_too() {
    for kind in CovarianceType::ALL {
        let given = Init::Given(Box::new(mixture(kind, 2, 3, 100.0)));
        for init in [given, Init::KMeansPlusPlus] {
            for max_iter in [0, 5] {
                let options =
                    FitOptions { covariance_type: kind, init: init.clone(), max_iter, tol: 0.0, ..FitOptions::new(2) };
                check(&options, (&[50, 41], 3), Precision::F64);
            }
        }
        check(&FitOptions { covariance_type: kind, ..FitOptions::new(1) }, (&[30], 2), Precision::F64);
    }
}

#[test]
fn what_a_block_cannot_fit_is_left_to_the_ordinary_way() {
    let groups = ranges(&[60, 50, 2, 40, 1, 1100]);
    let mut values = rows(1253, 2, 0.0);
    values.slice_mut(ndarray::s![60..110, 1]).fill(2.0);
    values[[115, 0]] = 1e160;
    let data = Dataset::new(values).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let options = FitOptions::new(2);
    let found = fit_many(&engine, &Groups::new(&data, &groups), &options);
    for (found, rows) in found.iter().zip(&groups) {
        let alone = fit(&engine, &data.part(rows.clone()), &options);
        match (found, alone) {
            (Ok(found), Ok(alone)) => agree(found, &alone, 1e-9, &format!("{rows:?}")),
            (found, alone) => {
                assert_eq!(found.as_ref().map_err(ToString::to_string), alone.as_ref().map_err(ToString::to_string))
            }
        }
    }
    assert!(found[1].is_ok() && found[3].is_err() && found[4].is_err() && found[5].is_ok());
    let jobs: Vec<Job<'_>> = groups.iter().cloned().map(|rows| Job { rows, options: &options }).collect();
    // A constant column is no trouble; a value whose square overflows is, and a block has no room for many rows.
    let some: Vec<Job<'_>> = [0, 1, 3, 5].map(|i| jobs[i].clone()).into();
    let runs = engine.fit_small(&data, &some).unwrap().unwrap();
    assert_eq!(runs.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false]);
    let exact = FitOptions { reg_covar: 0.0, ..options.clone() };
    assert!(engine.fit_small(&data, &[Job { rows: 0..60, options: &exact }]).unwrap().unwrap()[0].is_none());
}

/// More components than distinct rows, and centres that lose their rows.
#[test]
fn rows_that_coincide_are_no_trouble() {
    let data = Dataset::new(Array2::from_shape_fn((40, 1), |(i, _)| [0.0, 0.0, 1.0, 5.0][i % 4])).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for k in 2..6 {
        for seed in 0..4 {
            let options = FitOptions { seed, ..FitOptions::new(k) };
            #[expect(clippy::single_range_in_vec_init, reason = "one group")]
            let found = fit_many(&engine, &Groups::new(&data, &[0..40]), &options).remove(0);
            let want = fit(&CpuEngine::new(1).unwrap(), &data, &options);
            match (found, want) {
                (Ok(found), Ok(want)) => agree(&found, &want, 1e-9, &format!("k={k} seed={seed}")),
                (found, want) => assert_eq!(text(found), text(want)),
            }
        }
    }
}

#[test]
fn every_fault_is_an_error_or_changes_nothing_and_leaks_nothing() {
    let data = table(50, 2, Precision::F64);
    // Two launches, which run at the same time.
    let options = [1, 2].map(|k| FitOptions { max_iter: 2, ..FitOptions::new(k) });
    let job = |rows: &Range<usize>, k: usize| Job { rows: rows.clone(), options: &options[k - 1] };
    let jobs = [job(&(0..20), 2), job(&(20..50), 2), job(&(0..50), 1)];
    let run = || -> Result<Vec<Result<Fit, Error>>, Error> {
        Ok(fit_jobs(&CudaEngine::new(0)?, &data, &jobs, &|_| ControlFlow::Continue(())))
    };
    let fake = Fake::install(Machine::default());
    let whole: Vec<Fit> = run().unwrap().into_iter().map(Result::unwrap).collect();
    let calls = fake.0.calls_of(Class::Any);
    drop(fake);
    for (class, code) in
        [(Class::Any, code::UNKNOWN), (Class::Allocation, code::OUT_OF_MEMORY), (Class::Wait, code::ILLEGAL_ADDRESS)]
    {
        for at in 1..=calls {
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
            for (found, want) in run().unwrap_or_default().iter().zip(&whole) {
                match found {
                    Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                    // In one launch or, after a fault, one by one.
                    Ok(found) => close(&found.summary.trace, &want.summary.trace, 1e-9, &what),
                }
            }
            fake.0.assert_clean(&what);
            if fake.0.failed().is_none() {
                break;
            }
        }
    }
}

/// Many small fits take exact rows: those with errors are fitted one by one, and nothing leaves the errors out.
#[test]
fn rows_with_measurement_errors_are_fitted_with_them() {
    let errors = MeasurementErrors::from_deviations(Array2::from_elem((30, 2), 0.5)).unwrap();
    let data = dataset(30, 2).with_measurement_errors(errors).unwrap();
    let fake = Fake::install(Machine { devices: 2, ..Machine::default() });
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(CudaEngine::new(0).unwrap()), Box::new(CudaGroup::open(&[0, 1]).unwrap())];
    for engine in engines {
        let options = FitOptions::new(2);
        #[expect(clippy::single_range_in_vec_init, reason = "one group")]
        let found = fit_many(engine.as_ref(), &Groups::new(&data, &[0..30]), &options).remove(0).unwrap();
        agree(&found, &fit(&CpuEngine::new(1).unwrap(), &data, &options).unwrap(), 1e-9, &engine.name());
        assert_eq!(fake.0.launches("many_fits"), 0);
    }
}
