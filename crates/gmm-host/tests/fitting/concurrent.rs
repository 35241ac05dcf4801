//! Restarts and candidates that run at the same time give what they give one after another.

use gmm_host::{Candidate, Fit, Hooks, Wrapped, select};

use super::*;

/// Engines with one part, with fewer parts than jobs, and with more.
fn engines() -> [CpuEngine; 3] {
    [1, 2, 7].map(|threads| CpuEngine::new(threads).unwrap())
}

fn data(n: usize) -> Dataset {
    Dataset::new(separated(n, 4, 3, CovarianceType::Full).0).unwrap()
}

/// A fit with everything that its observer saw.
fn observed(engine: &dyn Engine, data: &Dataset, options: &FitOptions) -> (Fit, Vec<(usize, usize, u64)>) {
    let mut seen = Vec::new();
    let fit = fit_observed(engine, data, options, &mut |step| {
        seen.push((step.restart, step.iteration, step.mean_log_likelihood.to_bits()));
        ControlFlow::Continue(())
    });
    (fit.unwrap(), seen)
}

#[test]
fn restarts_have_the_bits_and_the_order_of_restarts_one_after_another() {
    for (n, init) in [(300, Init::RandomRows), (5000, Init::KMeans), (700, Init::Random)] {
        for engine in engines() {
            let options = FitOptions { n_init: 6, init: init.clone(), tol: 1e-5, ..FitOptions::new(4) };
            let (found, seen) = observed(&engine, &data(n), &options);
            let (expected, expected_seen) = observed(&engine, &data(n), &FitOptions { concurrent: false, ..options });
            assert_eq!((&found.mixture, &found.summary), (&expected.mixture, &expected.summary));
            assert_eq!((found.state, found.warnings), (expected.state, expected.warnings));
            assert_eq!(seen, expected_seen);
        }
    }
}

#[test]
fn candidates_have_the_bits_and_the_order_of_candidates_one_after_another() {
    let data = data(400);
    for engine in engines() {
        let run = |concurrent| {
            let options = FitOptions { n_init: 2, concurrent, ..FitOptions::new(1) };
            let (mut order, mut steps) = (Vec::new(), 0);
            let kinds = [CovarianceType::Diag, CovarianceType::Full];
            let found = select(
                &engine,
                &data,
                &options,
                &[1, 3, 500, 4],
                &kinds,
                &mut |candidate: &Candidate| {
                    order.push((candidate.k, candidate.kind));
                    ControlFlow::Continue(())
                },
                &mut |_| {
                    steps += 1;
                    ControlFlow::Continue(())
                },
            );
            let fits: Vec<_> = found
                .unwrap()
                .into_iter()
                .map(|c| c.outcome.map(|fit| (fit.mixture, fit.summary)).map_err(|error| error.to_string()))
                .collect();
            (fits, order, steps)
        };
        let found = run(true);
        assert!(found.0[2].as_ref().unwrap_err().contains("500 components for 400 rows"));
        assert_eq!(found, run(false));
    }
}

#[test]
fn a_break_ends_all_restarts_and_finishing_one_ends_the_fit_after_it() {
    let data = data(300);
    let engine = CpuEngine::new(2).unwrap();
    let options = FitOptions { n_init: 20, init: Init::RandomRows, tol: 0.0, max_iter: 50, ..FitOptions::new(4) };
    let mut last = (0, 0);
    let broken = fit_observed(&engine, &data, &options, &mut |step| {
        last = (step.restart, step.iteration);
        if last == (1, 3) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(broken, Err(Error::Interrupted { iterations: 3 })));
    assert_eq!(last, (1, 3));
    let mut restarts = std::collections::BTreeSet::new();
    let options = FitOptions { max_iter: 100_000, ..options };
    let found = fit_observed(&engine, &data, &options, &mut |step| {
        restarts.insert(step.restart);
        if step.restart == 2 {
            step.finish();
        }
        // The restarts before it have to end.
        if step.restart < 2 && step.iteration > 5 {
            step.finish();
        }
        ControlFlow::Continue(())
    });
    // The first restart that is finished ends the fit, as when they run one after another.
    assert_eq!(restarts.into_iter().collect::<Vec<_>>(), [0]);
    assert!(found.unwrap().summary.iterations < 100_000);
}

#[test]
fn a_restart_that_fails_does_not_end_the_others_and_an_engine_that_fails_does() {
    #[derive(Clone)]
    struct Failing(std::sync::Arc<std::sync::atomic::AtomicUsize>);

    impl Hooks for Failing {
        fn before(&mut self) -> Result<(), Error> {
            match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                40 => Err(Error::Device("lost".to_owned())),
                _ => Ok(()),
            }
        }
    }

    let cpu = CpuEngine::new(2).unwrap();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let failing = Wrapped::new(&cpu, || Failing(count.clone()));
    let options = FitOptions { n_init: 20, init: Init::RandomRows, ..FitOptions::new(4) };
    let error = fit(&failing, &data(300), &options).unwrap_err();
    assert!(error.to_string().contains("lost"), "{error}");

    // With seven rows and reg_covar 0, many starts of three components end in a component without variance.
    let rows = array![[0.0], [0.0], [1.0], [1.5], [9.0], [9.5], [20.0]];
    let options = FitOptions { n_init: 30, init: Init::RandomRows, reg_covar: 0.0, ..FitOptions::new(3) };
    let outcome = |concurrent| {
        let options = FitOptions { concurrent, ..options.clone() };
        let found = fit(&cpu, &Dataset::new(rows.clone()).unwrap(), &options);
        found.map(|fit| fit.mixture).map_err(|error| error.to_string())
    };
    assert_eq!(outcome(true), outcome(false));
}

#[test]
fn a_panic_in_a_restart_reaches_the_caller() {
    #[derive(Clone)]
    struct Panicking;

    impl Hooks for Panicking {
        fn before(&mut self) -> Result<(), Error> {
            // The caller's own rows are read on the thread of the test.
            let is_ours = std::thread::current().name().is_some_and(|name| name.starts_with("gmm-"));
            assert!(!is_ours, "a bug in an engine");
            Ok(())
        }
    }

    let cpu = CpuEngine::new(2).unwrap();
    let engine = Wrapped::new(&cpu, || Panicking);
    let options = FitOptions { n_init: 5, init: Init::RandomRows, ..FitOptions::new(4) };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fit(&engine, &data(300), &options)));
    assert!(caught.is_err());
    // The engine serves the next fit.
    fit(&cpu, &data(300), &options).unwrap();
}
