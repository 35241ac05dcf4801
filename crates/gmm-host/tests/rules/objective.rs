//! What EM under a rule maximises, its convergence, and its record.

use gmm_host::{CpuEngine, Error, FitOptions, FitRule, Init, Prior, Warning, fit, fit_online};
use gmm_model::{
    ConjugatePrior, CovarianceType, Criteria, Dataset, FixedParts, MStepRule, Precision, Starved, m_step_with,
    reference,
};
use ndarray::{Array1, Array2, Axis, array, concatenate};

use crate::{close, cpu, engines, floor, mixtures_close, prior, separated, with};

/// The prior that `Prior::Conjugate` stands for, from sums over rows.
fn default_prior(rows: &Array2<f64>, kind: CovarianceType, k: usize) -> ConjugatePrior {
    let mean = rows.mean_axis(Axis(0)).unwrap();
    let centred = rows - &mean;
    let covariance = centred.t().dot(&centred) / (rows.nrows() as f64 - 1.0);
    ConjugatePrior::default_for(kind, k, mean.view(), covariance.view())
}

#[test]
fn a_fit_with_a_prior_is_naive_em_to_the_posterior_mode() {
    let rows = separated(300, 3, 2);
    for kind in CovarianceType::ALL {
        let start = cpu(&rows, &FitOptions { max_iter: 1, ..with(FitRule::none(), 3, kind) }).mixture;
        let rule = MStepRule { prior: Some(default_prior(&rows, kind, 3)), ..MStepRule::default() };
        let (mut naive, mut trace) = (start.clone(), Vec::new());
        for _ in 0..10 {
            let statistics = reference::statistics(&naive, rows.view(), None);
            trace.push((statistics.log_likelihood + rule.log_prior(&naive)) / 300.0);
            naive = m_step_with(&rule, &statistics, 1e-6, Some(&naive)).unwrap().mixture;
        }
        for engine in engines() {
            for precision in [Precision::F32, Precision::F64] {
                let init = Init::Given(Box::new(start.clone()));
                let options =
                    FitOptions { init, precision: Some(precision), max_iter: 10, tol: 0.0, ..with(prior(), 3, kind) };
                let data = Dataset::new(rows.clone()).unwrap();
                let found = fit(engine.as_ref(), &data, &options).unwrap();
                let tolerance = if precision == Precision::F64 { 1e-10 } else { 1e-4 };
                mixtures_close(&found.mixture, &naive, tolerance);
                found.summary.trace.iter().zip(&trace).for_each(|(a, b)| close(*a, *b, tolerance));
                let likelihood = reference::log_densities(&naive, rows.view()).sum();
                close(found.summary.log_likelihood, likelihood, tolerance);
            }
        }
    }
}

#[test]
fn the_objective_does_not_fall_under_any_rule() {
    let mut rows = separated(200, 3, 3);
    // Duplicates, on which a component without a prior would collapse.
    for i in 0..12 {
        rows.row_mut(i).fill(7.0);
    }
    for kind in CovarianceType::ALL {
        let shared = if kind == CovarianceType::Tied { Vec::new() } else { vec![vec![0, 3]] };
        let rules = [
            prior(),
            floor(0.05, 0.0),
            floor(0.0, 0.1),
            FitRule { shared: shared.clone(), ..floor(1e-3, 0.0) },
            FitRule { shared, ..prior() },
            FitRule { prior: Prior::Conjugate, ..floor(0.0, 0.05) },
        ];
        for rule in rules {
            let options = FitOptions { reg_covar: 0.0, tol: 1e-9, max_iter: 300, ..with(rule, 5, kind) };
            let found = cpu(&rows, &options);
            let falls = &found.state.best.unwrap().run.falls;
            assert!(falls.is_empty(), "{kind}: {falls:?}");
            assert!(found.summary.iterations > 5, "{kind}");
        }
    }
}

#[test]
fn a_floor_bounds_every_variance() {
    let rows = separated(200, 2, 3);
    for kind in CovarianceType::ALL {
        let found = cpu(&rows, &with(floor(0.5, 0.0), 8, kind)).mixture;
        for c in 0..8 {
            let above = found.covariances().matrix(c, 3) - Array2::<f64>::eye(3) * (0.5 - 1e-9);
            gmm_model::Cholesky::new(above.view()).unwrap();
        }
        // Relative to the data: the same fit in other units.
        let units = array![1.0, 1e3, 1e-3];
        let scaled = &rows * &units;
        let options = |reg_covar| FitOptions { reg_covar, ..with(floor(0.0, 0.3), 2, kind) };
        let (here, there) = (cpu(&rows, &options(0.0)).mixture, cpu(&scaled, &options(0.0)).mixture);
        if kind == CovarianceType::Diag {
            close(here.covariances().matrix(0, 3)[[1, 1]] * 1e6, there.covariances().matrix(0, 3)[[1, 1]], 1e-6);
        }
    }
}

#[test]
fn fixed_parts_keep_their_bits_through_a_fit() {
    let rows = separated(300, 3, 2);
    for kind in CovarianceType::ALL {
        let start = cpu(&rows, &with(FitRule::none(), 3, kind)).mixture;
        let covariances = if kind == CovarianceType::Tied { vec![0, 1, 2] } else { vec![1] };
        let fixed = FixedParts { weights: vec![0, 1, 2], means: vec![0], covariances };
        let rule = FitRule { fixed, ..FitRule::none() };
        let init = Init::Given(Box::new(start.clone()));
        let moved = &rows + 0.25;
        let found = cpu(&moved, &FitOptions { init, ..with(rule, 3, kind) }).mixture;
        assert_eq!(found.weights(), start.weights(), "{kind}");
        assert_eq!(found.means().row(0), start.means().row(0), "{kind}");
        assert_eq!(found.covariances().matrix(1, 2), start.covariances().matrix(1, 2), "{kind}");
        assert_ne!(found.means().row(1), start.means().row(1), "{kind}");
    }
}

#[test]
fn starved_components_are_dropped_and_the_fit_goes_on() {
    let mut rows = separated(300, 3, 2);
    rows.row_mut(5).fill(300.0);
    for kind in CovarianceType::ALL {
        let rule = FitRule { starved: Some(Starved::default()), ..FitRule::none() };
        let found = cpu(&rows, &FitOptions { tol: 1e-6, max_iter: 500, ..with(rule, 4, kind) });
        let left = found.mixture.n_components();
        assert!(left < 4 && found.mixture.weights().iter().all(|w| w * 300.0 > 10.0), "{kind}: {left}");
        assert!(found.warnings.contains(&Warning::Dropped { dropped: 4 - left, left }), "{kind}");
        let run = &found.state.best.unwrap().run;
        assert!(run.converged && !run.drops.is_empty() && run.iterations > run.drops[0] + 1, "{kind}");
        assert!(run.falls.is_empty(), "{kind}: {:?}", run.falls);
    }
}

#[test]
fn the_record_says_what_the_fit_did_and_counts_its_free_parameters() {
    let rows = separated(300, 3, 2);
    let start = cpu(&rows, &with(FitRule::none(), 3, CovarianceType::Full)).mixture;
    let rule = FitRule {
        fixed: FixedParts { means: vec![0, 2], ..FixedParts::default() },
        shared: vec![vec![1, 2]],
        ..prior()
    };
    let init = Init::Given(Box::new(start));
    let summary = cpu(&rows, &FitOptions { init, ..with(rule, 3, CovarianceType::Full) }).summary;
    assert_eq!(
        summary.rules,
        [
            "conjugate prior (Fraley and Raftery 2007): shrinkage 0.01, degrees of freedom 4",
            "fixed means of components [0, 2]",
            "one covariance for components [1, 2]"
        ]
    );
    let expected = Criteria::new(2 * 3 + 2 + 2, summary.log_likelihood, 300.0, 0.0);
    close(summary.bic, expected.bic, 1e-14);
    assert!(cpu(&rows, &with(FitRule::none(), 3, CovarianceType::Full)).summary.rules.is_empty());
}

#[test]
fn rows_of_weight_zero_are_only_evaluated() {
    // Training on a subset: the other rows do not change the model.
    let rows = separated(200, 2, 2);
    let far = Array2::from_elem((50, 2), 1e3);
    let all = concatenate(Axis(0), &[rows.view(), far.view()]).unwrap();
    let weights = (0..250).map(|i| f64::from(i < 200)).collect();
    let data = Dataset::new(all).unwrap().with_weights(weights).unwrap();
    let engine = CpuEngine::new(1).unwrap();
    let options = with(prior(), 2, CovarianceType::Full);
    let subset = fit(&engine, &data, &options).unwrap();
    mixtures_close(&subset.mixture, &cpu(&rows, &options).mixture, 1e-12);
}

#[test]
fn bad_rules_are_errors_that_name_the_option() {
    let rows = separated(50, 2, 2);
    let data = Dataset::new(rows).unwrap();
    let engine = CpuEngine::new(1).unwrap();
    let fixed = FitRule { fixed: FixedParts { means: vec![0], ..FixedParts::default() }, ..FitRule::none() };
    let given = Prior::Given(Box::new(ConjugatePrior {
        mean: Array1::zeros(7),
        ..default_prior(&Array2::from_shape_fn((9, 2), |(i, j)| (i * i + 3 * j * i) as f64), CovarianceType::Full, 2)
    }));
    for (rule, word) in [
        (floor(-1.0, 0.0), "floor"),
        (floor(0.0, f64::NAN), "relative floor"),
        (fixed, "given start"),
        (FitRule { shared: vec![vec![0, 2]], ..FitRule::none() }, "shared covariance"),
        (FitRule { prior: given, ..FitRule::none() }, "mean of the prior"),
    ] {
        let error = fit(&engine, &data, &with(rule, 2, CovarianceType::Full)).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    let online = fit_online(
        &engine,
        &data,
        &with(prior(), 2, CovarianceType::Full),
        &gmm_host::EpochOptions::default(),
        &mut |_, _, _| std::ops::ControlFlow::Continue(()),
    );
    assert!(matches!(online, Err(Error::Option { option: "prior", .. })));
}
