//! Variational Bayes in the loop on the device, against the host's iterations.

use std::ops::ControlFlow;

use gmm_model::bayes::{BayesPrior, Posterior, WeightPrior};

use super::halves::problem;
use super::*;
use crate::cuda::driver::fake::MOST_SHARED;
use crate::em::{EmOptions, EmRun};
use crate::{
    BayesOptions, CudaGroup, Fit, FitRule, FitState, Passes, ReferenceEngine, Warning, WeightFamily, fit_observed,
    fit_resumed, shift,
};

const HOPPER: Machine = Machine { shared: MOST_SHARED, ..Machine::ONE };
const FAMILIES: [WeightFamily; 2] = [WeightFamily::Dirichlet, WeightFamily::DirichletProcess];

fn options(kind: CovarianceType, family: WeightFamily, k: usize) -> FitOptions {
    let rule = FitRule { bayes: Some(BayesOptions::new(family)), ..FitRule::none() };
    FitOptions { covariance_type: kind, max_iter: 6, tol: 0.0, seed: 7, rule, ..FitOptions::new(k) }
}

fn numbers(posterior: &Posterior) -> Vec<f64> {
    let mixture = posterior.mixture();
    mixture.means().iter().chain(mixture.covariances().values()).copied().collect()
}

/// Compares fits, of which the first ran on the device.
fn same<'a>(got: &'a Fit, want: &'a Fit, tolerance: f64, what: &str) {
    let (a, b) = (got.posterior.as_ref().unwrap(), want.posterior.as_ref().unwrap());
    close(&got.summary.trace, &want.summary.trace, tolerance, &format!("{what}: bounds"));
    close(&numbers(a), &numbers(b), 100.0 * tolerance, &format!("{what}: means and covariances"));
    close(&a.counts().to_vec(), &b.counts().to_vec(), 100.0 * tolerance, &format!("{what}: counts"));
    close(a.mean_precision().as_slice().unwrap(), b.mean_precision().as_slice().unwrap(), 100.0 * tolerance, what);
    let nu = |of: &Posterior| of.degrees_of_freedom().to_vec();
    close(&nu(a), &nu(b), 100.0 * tolerance, &format!("{what}: degrees of freedom"));
    close(&[got.summary.lower_bound.unwrap()], &[want.summary.lower_bound.unwrap()], tolerance, what);
    assert_eq!(a.mixture(), &got.mixture, "{what}");
    assert_eq!((got.summary.iterations, got.summary.converged), (want.summary.iterations, want.summary.converged));
    // Falls of the bound, which `reg_covar` causes, are reported above the rounding of a precision.
    let is_fall = |of: &&Warning| matches!(of, Warning::LikelihoodFell { .. });
    let warnings = |of: &'a Fit| of.warnings.iter().filter(|of| !is_fall(of)).collect::<Vec<_>>();
    assert_eq!(warnings(got), warnings(want), "{what}");
}

#[test]
fn the_whole_loop_is_that_of_the_host() {
    let weights: Vec<f64> = (0..300).map(|i| 0.5 + (i % 3) as f64).collect();
    for kind in CovarianceType::ALL {
        for family in FAMILIES {
            for (precision, tolerance) in [(Precision::F64, 1e-11), (Precision::F32, 2e-6)] {
                for weighted in [false, true] {
                    let data = dataset(300, 4);
                    let data = if weighted { data.with_weights(weights.clone()).unwrap() } else { data };
                    let options = FitOptions { precision: Some(precision), ..options(kind, family, 3) };
                    let fake = Fake::install(Machine::default());
                    let got = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
                    let want = FitOptions { precision: Some(Precision::F64), ..options };
                    let want = fit(&ReferenceEngine, &data, &want).unwrap();
                    let what = format!("{kind} {family:?} {precision} weighted: {weighted}");
                    assert!(got.on_device.is_some_and(|on| on.iterations == 6), "{what}: {:?}", got.on_device);
                    same(&got, &want, tolerance, &what);
                    fake.0.assert_clean(&what);
                }
            }
        }
    }
}

fn prior_of(kind: CovarianceType, weights: WeightPrior, rows: &Array2<f64>) -> BayesPrior {
    let mean = rows.mean_axis(ndarray::Axis(0)).unwrap();
    let away = rows - &mean;
    let covariance = away.t().dot(&away) / (rows.nrows() - 1) as f64;
    BayesPrior::default_for(kind, weights, mean.view(), covariance.view())
}

fn em(max_iter: usize, precision: Precision) -> EmOptions {
    EmOptions { tol: 0.0, max_iter, reg_covar: 0.1, precision, autotune: false, fast: false }
}

/// The iterations of the host from reference passes.
fn expected(data: &Dataset, begun: &Posterior, max_iter: usize) -> (Posterior, Vec<f64>) {
    let mut rows = ReferenceEngine.load(data, Precision::F64, &shift::of_data(data)).unwrap();
    let (mut posterior, mut trace) = (begun.clone(), Vec::new());
    for _ in 0..max_iter {
        let step = posterior.expectation().unwrap();
        let statistics = rows.pass(&step.mixture).unwrap();
        let total = statistics.total_weight;
        trace.push((statistics.log_likelihood - posterior.divergence()) / total + step.log_scale);
        posterior = posterior.prior().update(&statistics, 0.1).unwrap();
    }
    (posterior, trace)
}

fn iterated<T: super::super::number::Number>(
    text: &str,
    data: &Dataset,
    begun: &Posterior,
    precision: Precision,
) -> EmRun {
    let engine = CudaEngine::new(0).unwrap();
    let (at, forced) = (shift::of_data(data), plan::ForcedPlan::parse(text).unwrap());
    let mut rows =
        CudaResident::<T>::load(engine.gpu.clone(), data, precision, &at, forced, LoadOptions::default()).unwrap();
    let mut run = || {
        let mut run = EmRun { posterior: Some(begun.clone()), ..EmRun::new(begun.mixture().clone()) };
        rows.iterate(&mut run, &em(2, precision), &mut |_, _| Ok(())).unwrap();
        run
    };
    let first = run();
    let again = run();
    assert_eq!((&again.posterior, &again.trace), (&first.posterior, &first.trace), "{text}: the same bits again");
    first
}

#[test]
fn every_path_gives_the_posterior() {
    type Case = (&'static str, Precision, &'static [CovarianceType], (usize, usize, usize), f64);
    let cases: [Case; 6] = [
        ("fused", Precision::F64, &CovarianceType::ALL, (300, 7, 3), 1e-11),
        ("chunked-f64", Precision::F64, &CovarianceType::ALL, (260, 18, 10), 1e-11),
        ("chunked-f64", Precision::F32, &[CovarianceType::Full], (130, 58, 2), 2e-6),
        ("small-d", Precision::F32, &[CovarianceType::Full], (300, 2, 3), 2e-6),
        ("wgmma-split-fp16", Precision::F32, &[CovarianceType::Full], (300, 40, 3), 2e-4),
        ("chunked-split-fp16", Precision::F32, &[CovarianceType::Full, CovarianceType::Diag], (300, 40, 3), 2e-4),
    ];
    for (path, precision, kinds, shape, tolerance) in cases {
        for &kind in kinds {
            for section in ["", ",section=128"] {
                let what = format!("{kind} {precision} {path}{section}");
                let (rows, start) = problem(kind, shape);
                let prior = prior_of(kind, WeightPrior::DirichletProcess { concentration: 0.7 }, &rows);
                let begun = prior.update_from(&start, shape.0 as f64).unwrap();
                let data = Dataset::new(rows).unwrap();
                let (posterior, trace) = expected(&data, &begun, 2);
                let fake = Fake::install(HOPPER);
                let text = format!("path={path}{section}");
                let got = match precision {
                    Precision::F32 => iterated::<f32>(&text, &data, &begun, precision),
                    Precision::F64 => iterated::<f64>(&text, &data, &begun, precision),
                };
                assert_eq!(got.on_device.map(|on| (on.path, on.iterations)), Some((path, 2)), "{what}");
                close(&got.trace, &trace, tolerance, &format!("{what}: bounds"));
                let found = got.posterior.unwrap();
                close(&numbers(&found), &numbers(&posterior), 10.0 * tolerance, &format!("{what}: parameters"));
                close(&found.counts().to_vec(), &posterior.counts().to_vec(), 10.0 * tolerance, &what);
                fake.0.assert_clean(&what);
            }
        }
    }
}

#[test]
fn the_bound_never_falls() {
    for kind in CovarianceType::ALL {
        for family in FAMILIES {
            for (k, n, d) in [(4, 120, 3), (8, 60, 1), (3, 40, 5)] {
                let base = options(kind, family, k);
                let options = FitOptions { reg_covar: 0.0, tol: 1e-9, max_iter: 60, ..base };
                let _fake = Fake::install(Machine::default());
                let found = fit(&CudaEngine::new(0).unwrap(), &dataset(n, d), &options).unwrap();
                let (trace, what) = (&found.summary.trace, format!("{kind} {family:?} {k} {n} {d}"));
                assert!(found.on_device.is_some_and(|on| on.iterations == trace.len()), "{what}");
                let rounding = 1e-12 * trace[0].abs();
                assert!(trace.windows(2).all(|two| two[1] >= two[0] - rounding), "{what}: {trace:?}");
                // The last iteration's M-step raised it once more.
                let (last, bound) = (trace[trace.len() - 1], found.summary.lower_bound.unwrap() / n as f64);
                assert!(bound >= last - rounding, "{what}: {bound} after {last}");
            }
        }
    }
}

#[test]
fn a_fit_stops_where_the_bound_converges_and_is_resumed_from_what_was_saved() {
    for kind in CovarianceType::ALL {
        let (data, base) = (dataset(200, 3), options(kind, WeightFamily::Dirichlet, 6));
        let whole = FitOptions { tol: 1e-7, max_iter: 200, ..base };
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let want = fit(&engine, &data, &whole).unwrap();
        assert!(want.summary.converged && want.summary.iterations > 6, "{kind}: {}", want.summary.iterations);
        assert!(want.on_device.is_some_and(|on| on.iterations == want.summary.iterations));
        crate::cuda::em::POLL_AFTER.set(2);
        let (mut state, mut bounds) = (FitState::default(), Vec::new());
        let end = fit_observed(&engine, &data, &whole, &mut |step| {
            step.save(&mut state);
            bounds.push(step.mean_log_likelihood);
            if step.iteration == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(end, Err(Error::Interrupted { iterations: 4 })), "{kind}: {end:?}");
        assert_eq!(bounds, want.summary.trace[..4], "{kind}");
        let rest = fit_resumed(&engine, &data, &whole, state, &mut |_| ControlFlow::Continue(())).unwrap();
        crate::cuda::em::POLL_AFTER.set(u32::MAX);
        assert!(rest.on_device.is_some_and(|on| on.iterations == rest.summary.iterations), "{kind}");
        assert_eq!(rest.summary.iterations, want.summary.iterations, "{kind}");
        close(&rest.summary.trace, &want.summary.trace, 1e-11, &format!("{kind}: bounds"));
        let of = |fit: &Fit| numbers(fit.posterior.as_ref().unwrap());
        close(&of(&rest), &of(&want), 1e-9, &format!("{kind}: parameters"));
        drop(engine);
        fake.0.assert_clean("resumed");
    }
}

#[test]
fn where_precision_is_lost_the_host_goes_on_from_the_last_poll() {
    // Narrow and far from the shift: features about it lose the variances.
    let mut all = rows(200, 3, 0.0);
    all.mapv_inplace(|v| 1e-7 * v);
    all.outer_iter_mut().enumerate().for_each(|(i, mut row)| row += if i % 2 == 0 { 1e3 } else { -1e3 });
    let data = Dataset::new(all).unwrap();
    for kind in CovarianceType::ALL {
        let base = options(kind, WeightFamily::DirichletProcess, 2);
        // A prior as narrow as the components.
        let scale = match kind {
            CovarianceType::Full | CovarianceType::Tied => gmm_model::PriorScale::Matrix(1e-14 * Array2::eye(3)),
            CovarianceType::Diag => gmm_model::PriorScale::Variances(Array1::from_elem(3, 1e-14)),
            CovarianceType::Spherical => gmm_model::PriorScale::Variance(1e-14),
        };
        // A prior of the means that is worth so little that it does not widen the components.
        let narrow = BayesOptions {
            scale: Some(scale),
            mean_precision: Some(1e-22),
            ..BayesOptions::new(WeightFamily::DirichletProcess)
        };
        let rule = FitRule { bayes: Some(narrow), ..FitRule::none() };
        let options = FitOptions { rule, reg_covar: 0.0, max_iter: 3, ..base };
        let fake = Fake::install(Machine::default());
        let got = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
        let want = fit(&ReferenceEngine, &data, &options).unwrap();
        assert_eq!(got.on_device, None, "{kind}");
        close(&got.summary.trace, &want.summary.trace, 1e-7, &format!("{kind}: bounds"));
        fake.0.assert_clean("precision");
    }
}

#[test]
fn labels_and_a_forced_host_loop_leave_the_iterations_to_the_host() {
    let data = dataset(100, 2);
    let base = options(CovarianceType::Diag, WeightFamily::Dirichlet, 3);
    let labels = (0..100).map(|i| (i < 9).then_some(i % 3)).collect::<Vec<_>>();
    let rule = FitRule { labels: Some(std::sync::Arc::new(labels)), ..base.rule.clone() };
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let got = fit(&engine, &data, &FitOptions { rule, ..base.clone() }).unwrap();
    assert!(got.on_device.is_none() && got.posterior.is_some());
    crate::cuda::launch::plan::HOST_LOOP.set(true);
    let by_host = fit(&engine, &data, &base).unwrap();
    crate::cuda::launch::plan::HOST_LOOP.set(false);
    let got = fit(&engine, &data, &base).unwrap();
    assert!(by_host.on_device.is_none() && got.on_device.is_some());
    close(&got.summary.trace, &by_host.summary.trace, 1e-12, "bounds");
}

#[test]
fn two_devices_make_the_posterior_of_one() {
    for kind in CovarianceType::ALL {
        let (data, options) = (dataset(700, 3), options(kind, WeightFamily::DirichletProcess, 4));
        let fake = Fake::install(Machine { devices: 2, ..Machine::ONE });
        let one = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
        let group = CudaGroup::open(&[]).unwrap();
        let two = fit(&group, &data, &options).unwrap();
        assert!(two.on_device.is_some_and(|on| on.iterations == 6), "{kind}");
        same(&two, &one, 1e-11, &format!("{kind}: two devices"));
        drop(group);
        fake.0.assert_clean("two devices");
    }
}
