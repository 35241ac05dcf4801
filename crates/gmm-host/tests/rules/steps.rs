//! M-steps from statistics under a rule, against fits in one process.

use gmm_host::{CpuEngine, FitOptions, FitRule, Floor, Init, Prior, PriorParts, fit, maximise_with, pass};
use gmm_model::{CovarianceType, Dataset, Starved};
use ndarray::array;

use crate::{close, cpu, floor, mixtures_close, prior, separated, with};

/// Ten iterations in steps over two parts of the rows, and those of a fit.
fn check(rule: &FitRule, kind: CovarianceType) {
    let rows = separated(200, 3, 3);
    let start = cpu(&rows, &FitOptions { max_iter: 1, init: Init::Random, ..with(FitRule::none(), 3, kind) }).mixture;
    let all = Dataset::new(rows.clone()).unwrap().with_parts(vec![77]);
    let engine = CpuEngine::new(1).unwrap();
    let options = FitOptions {
        init: Init::Given(Box::new(start.clone())),
        max_iter: 10,
        tol: 0.0,
        reg_covar: 0.0,
        ..with(rule.clone(), 3, kind)
    };
    let whole = fit(&engine, &all, &options).unwrap();
    let (mut mixture, mut trace) = (start, Vec::new());
    for _ in 0..10 {
        let mut sum = pass(&engine, &mixture, &all.part(0..77), &whole.storage).unwrap();
        sum.add(&pass(&engine, &mixture, &all.part(77..200), &whole.storage).unwrap()).unwrap();
        let (step, log_prior) = maximise_with(rule, &sum, 0.0, &mixture).unwrap();
        trace.push(sum.mean_log_likelihood() + log_prior / 200.0);
        mixture = step.mixture;
    }
    mixtures_close(&mixture, &whole.mixture, 1e-9);
    trace.iter().zip(&whole.summary.trace).for_each(|(a, b)| close(*a, *b, 1e-10));
}

#[test]
fn steps_under_a_prior_or_a_floor_are_those_of_a_fit() {
    for kind in CovarianceType::ALL {
        check(&prior(), kind);
        check(&floor(0.7, 0.0), kind);
        let parts = PriorParts { shrinkage: Some(3.0), concentration: Some(20.0), ..PriorParts::default() };
        check(&FitRule { prior: Prior::Parts(Box::new(parts)), ..FitRule::none() }, kind);
        if kind != CovarianceType::Spherical {
            check(&FitRule { floor: Floor { absolute: 0.0, relative: 0.2 }, ..FitRule::none() }, kind);
        }
    }
    check(&FitRule { shared: vec![vec![0, 2]], ..FitRule::none() }, CovarianceType::Full);
}

#[test]
fn a_step_drops_starved_components() {
    let rows = separated(100, 2, 2);
    let start = cpu(&rows, &with(FitRule::none(), 4, CovarianceType::Diag)).mixture;
    let engine = CpuEngine::new(1).unwrap();
    let data = Dataset::new(rows).unwrap();
    let storage = gmm_host::storage(&start, gmm_model::Precision::F64);
    let sum = pass(&engine, &start, &data, &storage).unwrap();
    let rule = FitRule { starved: Some(Starved { min_count: 40.0, min_weight: 0.0 }), ..FitRule::none() };
    let step = maximise_with(&rule, &sum, 1e-6, &start).unwrap().0;
    assert_eq!(step.dropped.len() + step.mixture.n_components(), 4);
    assert!(!step.dropped.is_empty());
}

#[test]
fn what_needs_the_rows_is_refused() {
    let rows = separated(50, 2, 2);
    let start = cpu(&rows, &with(FitRule::none(), 2, CovarianceType::Full)).mixture;
    let data = Dataset::new(rows).unwrap();
    let storage = gmm_host::storage(&start, gmm_model::Precision::F64);
    let sum = pass(&CpuEngine::new(1).unwrap(), &start, &data, &storage).unwrap();
    let refused = |rule: FitRule| maximise_with(&rule, &sum, 0.0, &start).unwrap_err().to_string();
    let labels = FitRule { labels: Some(std::sync::Arc::new(vec![None; 50])), ..FitRule::none() };
    assert!(refused(labels).contains("lack the rows"));
    assert!(refused(FitRule { noise: Some(Default::default()), ..FitRule::none() }).contains("lack the rows"));
    let parts = PriorParts { mean: Some(array![0.0]), ..PriorParts::default() };
    assert!(refused(FitRule { prior: Prior::Parts(Box::new(parts)), ..FitRule::none() }).contains("mean of the prior"));
}
