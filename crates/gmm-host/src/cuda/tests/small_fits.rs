//! Candidates of a selection, restarts and replicates of a bootstrap as small fits of one call.

use std::ops::ControlFlow;

use gmm_model::Criterion;

use super::*;
use crate::{
    Bootstrap, BootstrapOptions, Candidate, CpuEngine, Engine, Fit, FitState, Resampling, best, bootstrap,
    fit_observed, fit_resumed, select,
};

/// Rows of three clumps with weights.
fn weighted(n: usize, d: usize) -> Dataset {
    dataset(n, d).with_weights((0..n).map(|i| 0.5 * (1 + i % 3) as f64).collect()).unwrap()
}

/// The candidates, and their order as the observer saw it.
fn candidates(engine: &dyn Engine, data: &Dataset, options: &FitOptions, components: &[usize]) -> Vec<Candidate> {
    let mut order = Vec::new();
    let mut seen = |candidate: &Candidate| {
        order.push((candidate.k, candidate.kind.kind));
        ControlFlow::Continue(())
    };
    let all = CovarianceType::ALL;
    let found = select(engine, data, options, components, &all, &mut seen, &mut |_| ControlFlow::Continue(())).unwrap();
    let want: Vec<_> = all.iter().flat_map(|&kind| components.iter().map(move |&k| (k, kind))).collect();
    assert_eq!(order, want);
    found
}

fn value(fit: &Fit) -> [f64; 3] {
    [fit.summary.log_likelihood, fit.summary.bic, fit.summary.icl]
}

fn is_small(fit: &Fit) -> bool {
    fit.on_device.is_some_and(|on| on.path == "many")
}

/// More classes than launches at the same time, and more components than rows.
#[test]
fn candidates_are_the_cpus_and_an_error_is_one_candidates() {
    let cpu = CpuEngine::new(1).unwrap();
    for data in [dataset(90, 2), weighted(61, 3)] {
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        for n_init in [1, 3] {
            let before = fake.0.launches("many_fits");
            let options = FitOptions { n_init, max_iter: 9, ..FitOptions::new(1) };
            let [found, want] =
                [&engine as &dyn Engine, &cpu].map(|engine| candidates(engine, &data, &options, &[1, 100, 2, 3]));
            assert_eq!(fake.0.launches("many_fits") - before, 12);
            assert_eq!(best(&found, Criterion::Bic), best(&want, Criterion::Bic));
            for (found, want) in found.iter().zip(&want) {
                let what = format!("{} {}", found.kind, found.k);
                match (&found.outcome, &want.outcome) {
                    (Ok(found), Ok(want)) => {
                        assert!(is_small(found), "{what}");
                        close(&value(found), &value(want), 1e-9, &what);
                        assert_eq!(found.starts.len(), n_init, "{what}");
                    }
                    (found, want) => assert_eq!(
                        found.as_ref().map(|_| ()).map_err(ToString::to_string),
                        want.as_ref().map(|_| ()).map_err(ToString::to_string)
                    ),
                }
            }
            assert!(found[1].outcome.is_err() && found[2].outcome.is_ok());
        }
        drop(engine);
        fake.0.assert_clean("a selection");
    }
}

#[test]
fn candidates_too_large_for_a_block_are_those_of_a_fit_alone() {
    let data = dataset(300, 4);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let options = FitOptions { max_iter: 2, tol: 0.0, ..FitOptions::new(1) };
    let found = candidates(&engine, &data, &options, &[2, 60, 3]);
    let small: Vec<bool> = found.iter().map(|one| is_small(one.outcome.as_ref().unwrap())).collect();
    assert_eq!(small, [true, false, true].repeat(4));
    assert_eq!(fake.0.launches("many_fits"), 8);
    for one in found.iter().skip(1).step_by(3) {
        let options = FitOptions { n_components: one.k, ..options.clone() }.with_covariance(one.kind);
        let alone = fit(&engine, &data, &options).unwrap();
        assert_eq!(one.outcome.as_ref().unwrap().summary, alone.summary);
    }
}

#[test]
fn a_start_that_does_not_suit_is_an_error() {
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let start = |d| Init::Given(Box::new(mixture(CovarianceType::Full, 2, d, 0.0)));
    let run = |engine: &dyn Engine, d: usize| {
        let options = FitOptions { init: start(d), ..FitOptions::new(2) };
        let go_on = &mut |_: &Candidate| ControlFlow::Continue(());
        let kinds = [CovarianceType::Full];
        let found = select(engine, &dataset(40, 2), &options, &[2], &kinds, go_on, &mut |_| ControlFlow::Continue(()))?;
        found.into_iter().next().unwrap().outcome
    };
    let cpu = CpuEngine::new(1).unwrap();
    let [found, want] = [&engine as &dyn Engine, &cpu].map(|engine| run(engine, 2).unwrap());
    assert!(is_small(&found));
    close(&value(&found), &value(&want), 1e-9, "given");
    assert_eq!(text(run(&engine, 3)), text(run(&cpu, 3)));
}

#[test]
fn an_observer_ends_a_selection() {
    let data = dataset(50, 2);
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let options = FitOptions { max_iter: 4, tol: 0.0, ..FitOptions::new(1) };
    let run = |most_candidates: usize, most_steps: usize| {
        let (mut candidates, mut steps) = (0, Vec::new());
        let mut seen = |_: &Candidate| {
            candidates += 1;
            if candidates == most_candidates { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let result = select(&engine, &data, &options, &[1, 2, 3], &[CovarianceType::Full], &mut seen, &mut |step| {
            steps.push(step.iteration);
            if steps.len() == most_steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (text(result), candidates, steps)
    };
    let interrupted = |iterations| Error::Interrupted { iterations }.to_string();
    assert_eq!(run(2, 100), (interrupted(0), 2, vec![1, 2, 3, 4, 1, 2, 3, 4]));
    assert_eq!(run(100, 6), (interrupted(2), 1, vec![1, 2, 3, 4, 1, 2]));
}

#[test]
fn restarts_are_the_cpus() {
    let cpu = CpuEngine::new(1).unwrap();
    let absent = dataset(80, 2).with_weights((0..80).map(|i| f64::from(i % 4)).collect()).unwrap();
    for data in [dataset(80, 2), weighted(80, 2), absent] {
        for kind in CovarianceType::ALL {
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let options = FitOptions { covariance_type: kind, n_init: 4, ..FitOptions::new(3) };
            let (mut seen, mut state) = (Vec::new(), FitState::default());
            let found = fit_observed(&engine, &data, &options, &mut |step| {
                seen.push((step.restart, step.iteration, step.mean_log_likelihood));
                step.save(&mut state);
                ControlFlow::Continue(())
            });
            let found = found.unwrap();
            assert_eq!(fake.0.launches("many_fits"), 1);
            let want = fit(&cpu, &data, &options).unwrap();
            close(&value(&found), &value(&want), 1e-9, &format!("{kind}"));
            assert_eq!((found.summary.n_rows, found.summary.converged), (80, want.summary.converged));
            assert_eq!(found.warnings.len(), want.warnings.len());
            let best = found.state.best.clone().unwrap();
            let steps: Vec<_> = best.run.trace.iter().enumerate().map(|(i, &mean)| (best.index, i + 1, mean)).collect();
            assert_eq!(seen, steps);
            assert_eq!(found.starts.iter().map(|start| start.restart).collect::<Vec<_>>(), [0, 1, 2, 3]);
            let starts = |fit: &Fit| fit.starts.iter().map(|start| start.mean_log_likelihood).collect::<Vec<_>>();
            close(&starts(&found), &starts(&want), 1e-9, "starts");
            // A fit that has ended, or was saved at its last iteration, has nothing left to do.
            for state in [&found.state, &state] {
                assert_eq!(state.begun, 4);
                let go_on = &mut |_: &crate::Iteration<'_>| ControlFlow::Continue(());
                let again = fit_resumed(&engine, &data, &options, state.clone(), go_on).unwrap();
                assert_eq!((&again.mixture, again.state), (&found.mixture, found.state.clone()));
            }
        }
    }
}

#[test]
fn single_fits_and_watched_ones_are_made_one_by_one() {
    let data = dataset(60, 2);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let options = FitOptions { max_iter: 3, tol: 0.0, n_init: 2, ..FitOptions::new(2) };
    let given = Init::Given(Box::new(mixture(CovarianceType::Full, 2, 2, 0.0)));
    for alone in [
        FitOptions { n_init: 1, ..options.clone() },
        FitOptions { concurrent: false, ..options.clone() },
        FitOptions { init: Init::RandomRows, ..options.clone() },
        FitOptions { init: given, ..options.clone() },
        FitOptions { max_iter: 20_000, tol: 1e-2, ..options.clone() },
    ] {
        fit(&engine, &data, &alone).unwrap();
        assert_eq!(fake.0.launches("many_fits"), 0);
    }
    let mut last = 0;
    let stopped = fit_observed(&engine, &data, &options, &mut |step| {
        last = step.iteration;
        if last == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Interrupted { iterations: 2 })));
    assert_eq!((last, fake.0.launches("many_fits")), (2, 1));
}

fn replicates(engine: &dyn Engine, data: &Dataset, k: usize, how: &BootstrapOptions) -> Bootstrap {
    let options = FitOptions { max_iter: 6, ..FitOptions::new(k) };
    let start = mixture(CovarianceType::Full, k, 2, 0.0);
    bootstrap(engine, &start, data, &options, how, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn replicates_are_the_cpus_also_those_that_fail() {
    let cpu = CpuEngine::new(1).unwrap();
    let repeated = dataset(40, 2).with_weights((0..40).map(|i| f64::from(i % 4)).collect()).unwrap();
    // Of few rows, some replicates have fewer different ones than there are components.
    for (data, k) in [(dataset(40, 2), 2), (weighted(40, 2), 2), (repeated, 2), (dataset(5, 2), 3)] {
        for resampling in [Resampling::Nonparametric, Resampling::Weighted] {
            let how = BootstrapOptions { replicates: 12, resampling, seed: 3, rules: None };
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let [found, want] = [&engine as &dyn Engine, &cpu].map(|engine| replicates(engine, &data, k, &how));
            assert!(fake.0.launches("many_fits") > 0);
            assert_eq!((found.failed, found.not_converged), (want.failed, want.not_converged));
            assert_eq!(data.n_rows() == 5 && resampling == Resampling::Nonparametric, found.failed > 0);
            let flat = |one: &Bootstrap| -> Vec<f64> {
                let of = |m: &Mixture| [m.weights().to_vec(), m.means().iter().copied().collect()].concat();
                one.replicates.iter().flat_map(of).collect()
            };
            close(&flat(&found), &flat(&want), 1e-9, resampling.name());
            drop(engine);
            fake.0.assert_clean("a bootstrap");
        }
    }
}

#[test]
fn an_observer_ends_a_bootstrap() {
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (data, start) = (dataset(30, 2), mixture(CovarianceType::Diag, 2, 2, 0.0));
    let how = BootstrapOptions { replicates: 9, resampling: Resampling::Weighted, seed: 0, rules: None };
    let mut last = 0;
    let stopped = bootstrap(&engine, &start, &data, &FitOptions::new(2), &how, &mut |done| {
        last = done;
        if done == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Interrupted { .. })));
    assert_eq!(last, 4);
}
