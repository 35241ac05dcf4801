//! Fits that stop at some iteration and go on from their state.

use gmm_host::{Fit, FitState, Observer, fit_resumed};

use super::*;

fn data() -> Dataset {
    Dataset::new(common::rows(400, 3, 0.0, 1.0, 7)).unwrap()
}

/// The state after each iteration, and the fit.
fn states(engine: &dyn Engine, data: &Dataset, options: &FitOptions) -> (Vec<FitState>, Fit) {
    let (mut all, mut state) = (Vec::new(), FitState::default());
    let mut observer = |step: &gmm_host::Iteration<'_>| {
        step.save(&mut state);
        all.push(state.clone());
        ControlFlow::Continue(())
    };
    let found = fit_observed(engine, data, options, &mut observer).unwrap();
    (all, found)
}

fn go_on(engine: &dyn Engine, data: &Dataset, options: &FitOptions, state: FitState) -> Fit {
    let observer: &mut Observer<'_> = &mut |_| ControlFlow::Continue(());
    fit_resumed(engine, data, options, state, observer).unwrap()
}

/// Asserts that two fits agree in all but their times.
#[track_caller]
fn same(a: &Fit, b: &Fit, what: &str) {
    assert_eq!(
        (&a.mixture, &a.summary, &a.warnings, &a.state),
        (&b.mixture, &b.summary, &b.warnings, &b.state),
        "{what}"
    );
}

#[test]
fn a_fit_resumed_after_any_iteration_has_the_bits_of_an_undisturbed_one() {
    let weighted = data().with_weights((0..400).map(|i| f64::from(i % 4)).collect()).unwrap();
    for kind in CovarianceType::ALL {
        for (init, precision) in inits().into_iter().zip([Precision::F64, Precision::F32].into_iter().cycle()) {
            for data in [&data(), &weighted] {
                let precision = Some(precision);
                let init = init.clone();
                let base = FitOptions { covariance_type: kind, init, precision, n_init: 3, ..FitOptions::new(4) };
                let options = FitOptions { max_iter: 7, tol: 1e-3, seed: 2, ..base };
                let (states, whole) = states(&cpu(), data, &options);
                for (at, state) in states.into_iter().enumerate() {
                    let part = go_on(&cpu(), data, &options, state);
                    same(&part, &whole, &format!("{kind} {:?} at {at}", options.init));
                }
                same(&go_on(&cpu(), data, &options, whole.state.clone()), &whole, "a finished fit");
            }
        }
    }
}

#[test]
fn a_state_saved_only_now_and_then_is_the_state_saved_each_time() {
    let options = FitOptions { n_init: 3, max_iter: 9, tol: 0.0, ..FitOptions::new(4) };
    let (states, _) = states(&cpu(), &data(), &options);
    let (mut rarely, mut seen) = (FitState::default(), 0);
    let mut observer = |step: &gmm_host::Iteration<'_>| {
        if seen % 5 == 4 {
            step.save(&mut rarely);
            assert_eq!(rarely, states[seen]);
        }
        seen += 1;
        ControlFlow::Continue(())
    };
    fit_observed(&cpu(), &data(), &options, &mut observer).unwrap();
}

#[test]
fn more_iterations_a_smaller_tol_and_more_restarts_extend_a_finished_fit() {
    let short = FitOptions { max_iter: 4, tol: 0.0, ..FitOptions::new(3) };
    let long = FitOptions { max_iter: 40, ..short.clone() };
    let state = fit(&cpu(), &data(), &short).unwrap().state;
    same(&go_on(&cpu(), &data(), &long, state), &fit(&cpu(), &data(), &long).unwrap(), "max_iter");

    let loose = FitOptions { tol: 1e-2, ..FitOptions::new(3) };
    let strict = FitOptions { tol: 1e-5, ..loose.clone() };
    let state = fit(&cpu(), &data(), &loose).unwrap().state;
    same(&go_on(&cpu(), &data(), &strict, state), &fit(&cpu(), &data(), &strict).unwrap(), "tol");

    let few = FitOptions { n_init: 2, init: Init::RandomRows, ..FitOptions::new(3) };
    let more = FitOptions { n_init: 6, ..few.clone() };
    let state = fit(&cpu(), &data(), &few).unwrap().state;
    same(&go_on(&cpu(), &data(), &more, state), &fit(&cpu(), &data(), &more).unwrap(), "n_init");
}

#[test]
fn lower_limits_undo_nothing() {
    let options = FitOptions { max_iter: 20, tol: 0.0, ..FitOptions::new(3) };
    let (states, _) = states(&cpu(), &data(), &options);
    let part = go_on(&cpu(), &data(), &FitOptions { max_iter: 5, ..options }, states[11].clone());
    assert_eq!((part.summary.iterations, &part.mixture), (12, &states[11].running.as_ref().unwrap().run.mixture));
}

#[test]
fn a_state_of_another_shape_is_refused() {
    let options = FitOptions { n_init: 3, max_iter: 3, tol: 0.0, ..FitOptions::new(3) };
    let state = fit(&cpu(), &data(), &options).unwrap().state;
    let refused = |options: &FitOptions, data: &Dataset, part: &str| {
        let observer: &mut Observer<'_> = &mut |_| ControlFlow::Continue(());
        let error = fit_resumed(&cpu(), data, options, state.clone(), observer).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(&FitOptions { n_init: 2, ..options.clone() }, &data(), "n_init is 2: it must be at least 3");
    refused(&FitOptions { n_components: 4, ..options.clone() }, &data(), "n_components is 4: it must be 3");
    let diag = FitOptions { covariance_type: CovarianceType::Diag, ..options.clone() };
    refused(&diag, &data(), "covariance_type is diag: it must be full");
    let narrow = Dataset::new(common::rows(400, 2, 0.0, 1.0, 7)).unwrap();
    refused(&options, &narrow, "the data have 2 columns, the mixture has 3");
}
