//! Partial labels, against EM over single rows.

use std::sync::Arc;

use gmm_host::{CpuEngine, Error, Fit, FitOptions, FitRule, Init, Prior, fit};
use gmm_model::{CovarianceType, Dataset, MStepRule, Mixture, Precision, Statistics, m_step_with, reference};
use ndarray::{Array1, Array2, Axis};

use crate::{close, cpu, engines, mixtures_close, separated, with};

/// Every seventh row is labelled with one of two of three components.
fn labels(n: usize) -> Vec<Option<usize>> {
    (0..n).map(|i| (i % 7 == 0).then_some(2 * (i % 2))).collect()
}

fn rule(labels: Vec<Option<usize>>) -> FitRule {
    FitRule { labels: Some(Arc::new(labels)), ..FitRule::none() }
}

/// One E-step in which labelled rows have responsibility 1 for their component.
fn naive(m: &Mixture, rows: &Array2<f64>, labels: &[Option<usize>], weights: &[f64]) -> Statistics {
    let mut out = Statistics::zero(m.covariance_type(), m.means().to_owned());
    for (i, x) in rows.outer_iter().enumerate() {
        let (log_density, r) = match labels[i] {
            None => reference::posterior(m, x),
            Some(c) => (reference::log_joint(m, c, x), Array1::from_shape_fn(m.n_components(), |o| f64::from(o == c))),
        };
        out.log_likelihood += weights[i] * log_density;
        reference::accumulate(&mut out, x, weights[i], r.view());
    }
    out
}

#[test]
fn a_labelled_fit_is_naive_em_with_known_responsibilities() {
    let rows = separated(210, 3, 3);
    let labels = labels(210);
    let weights: Vec<f64> = (0..210).map(|i| 0.5 + (i % 3) as f64).collect();
    for kind in CovarianceType::ALL {
        let start = cpu(&rows, &FitOptions { max_iter: 0, ..with(FitRule::none(), 3, kind) }).mixture;
        let (mut expected, mut trace) = (start.clone(), Vec::new());
        for _ in 0..8 {
            let statistics = naive(&expected, &rows, &labels, &weights);
            trace.push(statistics.mean_log_likelihood());
            expected = m_step_with(&MStepRule::default(), &statistics, 1e-6, Some(&expected)).unwrap().mixture;
        }
        let last = naive(&expected, &rows, &labels, &weights);
        for engine in engines() {
            for precision in [Precision::F32, Precision::F64] {
                let init = Init::Given(Box::new(start.clone()));
                let options = FitOptions {
                    init,
                    max_iter: 8,
                    tol: 0.0,
                    precision: Some(precision),
                    ..with(rule(labels.clone()), 3, kind)
                };
                let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
                let found = fit(engine.as_ref(), &data, &options).unwrap();
                let tolerance = if precision == Precision::F64 { 1e-10 } else { 1e-4 };
                mixtures_close(&found.mixture, &expected, tolerance);
                found.summary.trace.iter().zip(&trace).for_each(|(a, b)| close(*a, *b, tolerance));
                close(found.summary.log_likelihood, last.log_likelihood, tolerance);
                close(found.summary.mean_log_likelihood, last.mean_log_likelihood(), tolerance);
                assert_eq!(found.summary.n_rows, 210);
            }
        }
    }
}

#[test]
fn components_are_those_of_their_labels() {
    // Two clusters, one of which is labelled by a single row: the labels decide which is which.
    let rows = separated(200, 2, 2);
    let truth = cpu(&rows, &with(FitRule::none(), 2, CovarianceType::Full)).mixture;
    let nearest = |c: usize| -> usize {
        let far = |i: usize| (&rows.row(i) - &truth.means().row(c)).mapv(|v| v * v).sum();
        (1..200).fold(0, |best, i| if far(i) < far(best) { i } else { best })
    };
    for init in [Init::KMeans, Init::KMeansPlusPlus] {
        for (first, second) in [(0, 1), (1, 0)] {
            let mut labels = vec![None; 200];
            labels[nearest(first)] = Some(0);
            labels[nearest(second)] = Some(1);
            for kind in CovarianceType::ALL {
                let found = cpu(&rows, &FitOptions { init: init.clone(), ..with(rule(labels.clone()), 2, kind) });
                let distance = (&found.mixture.means().row(0) - &truth.means().row(first)).mapv(f64::abs).sum();
                assert!(distance < 0.5, "{kind} {init:?} {first}: {distance}");
            }
            // Only one component has a label: the other is found among the rest.
            labels[nearest(second)] = None;
            let found = cpu(&rows, &with(rule(labels), 2, CovarianceType::Full));
            let distance = (&found.mixture.means().row(1) - &truth.means().row(second)).mapv(f64::abs).sum();
            assert!(distance < 0.5, "{init:?} {first}: {distance}");
        }
    }
}

#[test]
fn a_distant_labelled_group_costs_no_digits() {
    // The group is 1e8 from the others: moments about a common point would lose its variance.
    let mut rows = separated(120, 2, 2);
    let mut labels = vec![None; 120];
    for i in 0..30 {
        labels[i] = Some(1);
        rows.row_mut(i).mapv_inplace(|v| v + 1e8);
    }
    let group = rows.slice(ndarray::s![..30, ..]);
    let mean = group.mean_axis(Axis(0)).unwrap();
    let centred = &group - &mean;
    let covariance = centred.t().dot(&centred) / 30.0;
    let found = cpu(&rows, &FitOptions { reg_covar: 0.0, ..with(rule(labels), 2, CovarianceType::Full) }).mixture;
    let shown = found.covariances().matrix(1, 2);
    shown.iter().zip(&covariance).for_each(|(a, b)| close(*a, *b, 1e-7));
}

fn refused(labels: Vec<Option<usize>>, change: impl Fn(&mut FitOptions)) -> Error {
    let data = Dataset::new(separated(20, 2, 2)).unwrap();
    let mut options = with(rule(labels), 2, CovarianceType::Full);
    change(&mut options);
    fit(&CpuEngine::new(1).unwrap(), &data, &options).unwrap_err()
}

#[test]
fn wrong_labels_are_errors() {
    assert!(refused(vec![None; 3], |_| ()).to_string().contains("20, the number of rows"));
    let mut labels = vec![None; 20];
    labels[4] = Some(2);
    assert!(refused(labels, |_| ()).to_string().contains("2 in row 4"));
    let some = (0..20).map(|i| (i == 3).then_some(1)).collect::<Vec<_>>();
    assert!(refused(some.clone(), |o| o.init = Init::Random).to_string().contains("init"));
    assert!(refused(some, |o| o.rule.starved = Some(Default::default())).to_string().contains("starved"));
}

#[test]
fn labels_of_absent_rows_do_not_count() {
    let rows = separated(60, 2, 2);
    let mut labels: Vec<Option<usize>> = (0..60).map(|i| (i < 6).then_some(i % 2)).collect();
    let weights: Vec<f64> = (0..60).map(|i| f64::from(i >= 2)).collect();
    let of = |labels: &[Option<usize>], weights: Vec<f64>, rows: Array2<f64>| -> Fit {
        let data = Dataset::new(rows).unwrap().with_weights(weights).unwrap();
        let rule = FitRule { prior: Prior::Conjugate, ..rule(labels.to_vec()) };
        fit(&CpuEngine::new(1).unwrap(), &data, &with(rule, 2, CovarianceType::Diag)).unwrap()
    };
    let all = of(&labels, weights, rows.clone());
    labels.drain(..2);
    let present = of(&labels, vec![1.0; 58], rows.slice(ndarray::s![2.., ..]).to_owned());
    mixtures_close(&all.mixture, &present.mixture, 1e-12);
}

#[test]
fn a_fit_of_labelled_rows_only_has_the_moments_of_each_group() {
    let rows = separated(120, 3, 3);
    let labels: Vec<Option<usize>> = (0..120).map(|i| Some(i % 3)).collect();
    let weights: Vec<f64> = (0..120).map(|i| f64::from(i % 4 != 0) * (1.0 + (i % 2) as f64)).collect();
    for kind in CovarianceType::ALL {
        let start = cpu(&rows, &FitOptions { max_iter: 0, ..with(FitRule::none(), 3, kind) }).mixture;
        let statistics = naive(&start, &rows, &labels, &weights);
        let expected = m_step_with(&MStepRule::default(), &statistics, 0.0, Some(&start)).unwrap().mixture;
        let last = naive(&expected, &rows, &labels, &weights);
        let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
        for engine in engines() {
            for init in [Init::KMeans, Init::Given(Box::new(start.clone()))] {
                let options = FitOptions { init, reg_covar: 0.0, ..with(rule(labels.clone()), 3, kind) };
                let found = fit(engine.as_ref(), &data, &options).unwrap();
                mixtures_close(&found.mixture, &expected, 1e-11);
                close(found.summary.log_likelihood, last.log_likelihood, 1e-11);
                assert!(found.summary.converged && found.summary.iterations <= 3, "{:?}", found.summary);
            }
        }
    }
    // With a prior too, whose moments count each row once.
    let prior = FitRule { prior: Prior::Conjugate, ..rule(labels) };
    let one = FitRule { labels: Some(Arc::new(vec![Some(0); 120])), ..prior.clone() };
    let unlabelled = FitRule { labels: None, ..prior };
    let of = |rule: FitRule| cpu(&rows, &with(rule, 1, CovarianceType::Full)).mixture;
    mixtures_close(&of(one), &of(unlabelled), 1e-11);
}

#[test]
fn a_resumed_labelled_fit_has_the_bits_of_an_undisturbed_one() {
    let data = Dataset::new(separated(210, 3, 3)).unwrap();
    let engine = CpuEngine::new(1).unwrap();
    let options = FitOptions { tol: 0.0, max_iter: 9, ..with(rule(labels(210)), 3, CovarianceType::Full) };
    let whole = fit(&engine, &data, &options).unwrap();
    let half = fit(&engine, &data, &FitOptions { max_iter: 4, ..options.clone() }).unwrap();
    let mut go_on = |_: &gmm_host::Iteration<'_>| std::ops::ControlFlow::Continue(());
    let rest = gmm_host::fit_resumed(&engine, &data, &options, half.state, &mut go_on).unwrap();
    assert_eq!((rest.mixture, rest.summary), (whole.mixture, whole.summary));
}
