//! Published results of mclust 6.1.3 (Scrucca, Fop, Murphy and Raftery 2016): those of its vignette "A quick tour of
//! mclust", on the data sets `diabetes` (Reaven and Miller 1979) and `faithful`. mclust's BIC and ICL have the opposite
//! sign.

use gmm_host::{
    BlrtFit, BlrtOptions, Bootstrap, BootstrapOptions, Candidate, Choice, Fit, Resampling, TestOptions, blrt,
    bootstrap, choose, labels_icl, select,
};

use gmm_model::CovarianceModel;

use super::*;

fn table(name: &str) -> Dataset {
    let path = format!("{}/../../data/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    gmm_data::read_table(path, &gmm_data::ReadOptions::default()).unwrap().into_dataset().unwrap()
}

/// As mclust fits: from a tree, without regularisation.
fn options(k: usize, kind: CovarianceType) -> FitOptions {
    FitOptions {
        covariance_type: kind,
        init: Init::Tree(None),
        reg_covar: 0.0,
        tol: 1e-8,
        max_iter: 5000,
        ..FitOptions::new(k)
    }
}

fn fitted(data: &Dataset, k: usize, kind: CovarianceType) -> Fit {
    fit(&cpu(), data, &options(k, kind)).unwrap()
}

/// As mclust stops: at a change of the log-likelihood of 1e-5 relative to its size.
fn as_mclust(data: &Dataset, k: usize, kind: CovarianceType, log_likelihood: f64) -> Fit {
    let tol = 1e-5 * (1.0 + log_likelihood.abs()) / data.n_rows() as f64;
    fit(&cpu(), data, &FitOptions { tol, ..options(k, kind) }).unwrap()
}

fn go_on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn the_tree_leads_to_mclusts_optima() {
    for (name, k, kind, log_likelihood, bic) in [
        ("diabetes", 3, CovarianceType::Full, -2295.118, 4734.561),
        ("old_faithful", 3, CovarianceType::Tied, -1126.326, 2314.316),
    ] {
        let found = as_mclust(&table(name), k, kind, log_likelihood).summary;
        // The last change is below 0.023.
        assert!((found.log_likelihood - log_likelihood).abs() < 0.023, "{name}: {}", found.log_likelihood);
        assert!((found.bic - bic).abs() < 0.046, "{name}: {}", found.bic);
    }
}

#[test]
fn the_icl_by_labels_is_mclusts() {
    let icl = |data: &Dataset, fit: Fit| labels_icl(&cpu(), &fit.mixture, data, Precision::F64).unwrap();
    let data = table("diabetes");
    let found = icl(&data, as_mclust(&data, 3, CovarianceType::Full, -2295.118));
    assert!((found - 4749.16).abs() < 0.3, "{found}");
    // mclust stops 0.01 below this optimum. Two components overlap, and on the way there the criterion changes by more
    // than 1 where the likelihood changes by 0.01. The form with the entropy is 2399.8.
    let data = table("old_faithful");
    let found = icl(&data, fitted(&data, 3, CovarianceType::Tied));
    assert!((found - 2357.824).abs() < 1.0, "{found}");
}

#[test]
fn the_icl_by_labels_is_that_of_the_definition() {
    let rows = common::rows(150, 3, 0.0, 1.0, 4);
    let weights: Vec<f64> = (0..150).map(|i| (i % 4) as f64).collect();
    let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = common::mixture(kind, 3, 3, 0.0, 1.0, 9);
        let r = gmm_model::reference::responsibilities(&mixture, rows.view());
        let largest = |i: usize| r.row(i).iter().copied().fold(0.0, f64::max);
        let sum: f64 = (0..150).map(|i| weights[i] * largest(i).ln()).sum();
        let want = gmm_model::criteria(&mixture, rows.view(), Some(&weights)).bic - 2.0 * sum;
        for engine in [&cpu() as &dyn Engine, &ReferenceEngine] {
            let found = labels_icl(engine, &mixture, &data, Precision::F64).unwrap();
            assert!((found - want).abs() < 1e-11 * want.abs(), "{kind}: {found} {want}");
        }
    }
}

#[test]
fn the_likelihood_ratio_tests_of_diabetes_are_mclusts() {
    let data = table("diabetes");
    let components = [1, 2, 3, 4];
    let options = options(1, CovarianceType::Full);
    let kinds = [CovarianceType::Full];
    let candidates =
        select(&cpu(), &data, &options, &components, &kinds, &mut |_| ControlFlow::Continue(()), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
    let tests = TestOptions { replicates: 19, level: 0.05 };
    let mut seen = 0;
    let mut observer = |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    };
    let chosen = choose(&cpu(), &data, &candidates, Choice::Blrt, &options, &tests, &mut observer).unwrap().unwrap();
    // 1 against 2 and 2 against 3 are significant with p = 0.001 of 999; 3 against 4 has p = 0.283.
    for (test, statistic) in chosen.tests.iter().zip([369.98537, 121.10652]) {
        // mclust stops a little earlier, in both fits.
        assert!((test.statistic - statistic).abs() < 0.1, "{test:?}");
        assert_eq!(test.p_value, 0.05, "{test:?}");
    }
    assert_eq!(chosen.tests.iter().map(|test| test.k).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(chosen.tests[2].p_value > 0.05, "{:?}", chosen.tests[2]);
    assert_eq!((chosen.best, seen), (2, 57));
}

#[test]
fn rows_of_one_gaussian_are_seldom_called_two() {
    // 20 data sets of one component, tested at 0.2: the number of rejections is binomial.
    let truth = synthetic(1, 2, CovarianceType::Full, 1, &SyntheticOptions::default()).unwrap();
    let rejected = (0..20)
        .filter(|&seed| {
            let data = Dataset::new(sample(&truth, 60, seed).unwrap().0).unwrap();
            let options = FitOptions { seed, ..options(1, CovarianceType::Tied) };
            let [one, two] =
                [1, 2].map(|k| fit(&cpu(), &data, &FitOptions { n_components: k, ..options.clone() }).unwrap());
            let how = BlrtOptions { replicates: 19, rows: 60, seed };
            blrt(&cpu(), of(&one), of(&two), &options, &how, &mut go_on).unwrap().p_value <= 0.2
        })
        .count();
    // P(more than 10 of 20 at 0.2) is 0.0006.
    assert!(rejected <= 10, "{rejected}");
}

#[test]
fn tests_need_one_kind_and_ascending_numbers() {
    let data = table("old_faithful");
    let both = [CovarianceType::Full, CovarianceType::Diag].map(CovarianceModel::from);
    for (components, kinds) in [(&[1, 2][..], &both[..]), (&[2, 1], &both[..1])] {
        assert!(matches!(Choice::Blrt.check(components, kinds), Err(Error::Option { .. })));
        assert!(Choice::LabelsIcl.check(components, kinds).is_ok());
    }
    let none: &[Candidate] = &[];
    let tests = TestOptions { level: 1.0, ..TestOptions::DEFAULT };
    let options = options(1, CovarianceType::Full);
    let go_on = &mut |_, _| ControlFlow::Continue(());
    let criterion = Choice::Criterion(gmm_model::Criterion::Bic);
    assert_eq!(choose(&cpu(), &data, none, criterion, &options, &tests, go_on).unwrap(), None);
}

fn of(fit: &Fit) -> BlrtFit<'_> {
    BlrtFit { mixture: &fit.mixture, log_likelihood: fit.summary.log_likelihood }
}

fn diabetes(resampling: Resampling, replicates: usize) -> Bootstrap {
    let data = table("diabetes");
    let found = fitted(&data, 3, CovarianceType::Full).mixture;
    // In the order of mclust: the components of normal, chemically and overtly diabetic adults.
    let mut order = [0, 1, 2];
    order.sort_by(|&a, &b| found.means()[[a, 0]].total_cmp(&found.means()[[b, 0]]));
    let found = found.permuted(&order).unwrap();
    let how = BootstrapOptions { replicates, resampling, seed: 5, rules: None };
    bootstrap(&cpu(), &found, &data, &options(3, CovarianceType::Full), &how, &mut go_on).unwrap()
}

#[test]
fn bootstrap_standard_errors_are_mclusts() {
    let found = diabetes(Resampling::Nonparametric, 300).spreads(0.95);
    // Component after component, of 999 replicates.
    let weights = [0.04962408, 0.04679956, 0.03568767];
    let means = [1.029210, 7.348229, 6.890494, 3.431536, 23.102112, 32.494958, 16.45148, 63.57099, 10.35781];
    // The relative error of a standard deviation of B normal values is 1/sqrt(2 B): 0.04 of 300, 0.02 of 999. Three and a
    // half times both, with room for tails heavier than normal ones.
    for (found, want) in found.weights.standard_error.iter().zip(weights) {
        assert!((found / want - 1.0).abs() < 0.16, "{found} {want}");
    }
    for (found, want) in found.means.standard_error.iter().zip(means) {
        assert!((found / want - 1.0).abs() < 0.16, "{found} {want}");
    }
    // Intervals of the weights and of the first component's means: the ends vary by about 0.1 standard errors.
    let lower = [0.4609834, 0.1469903, 0.1311157];
    let upper = [0.6607129, 0.3354713, 0.2701468];
    for c in 0..3 {
        assert!((found.weights.lower[c] - lower[c]).abs() < 0.5 * weights[c], "{:?}", found.weights);
        assert!((found.weights.upper[c] - upper[c]).abs() < 0.5 * weights[c], "{:?}", found.weights);
    }
}

#[test]
fn both_kinds_of_resampling_agree_on_the_standard_errors() {
    let [rows, weights] =
        [Resampling::Nonparametric, Resampling::Weighted].map(|kind| diabetes(kind, 150).spreads(0.95).means);
    for (a, b) in rows.standard_error.iter().zip(&weights.standard_error) {
        assert!((a / b - 1.0).abs() < 0.35, "{a} {b}");
    }
}

#[test]
fn whole_weights_are_resampled_as_repeated_rows() {
    // One component: the standard error of the mean is that of the repeated rows, s / sqrt(Σw).
    let rows = common::rows(40, 1, 0.0, 1.0, 3);
    let weights: Vec<f64> = (0..40).map(|i| (i % 5) as f64).collect();
    let data = Dataset::new(rows).unwrap().with_weights(weights).unwrap();
    let one = fitted(&data, 1, CovarianceType::Diag).mixture;
    let how = BootstrapOptions { replicates: 800, resampling: Resampling::Nonparametric, seed: 1, rules: None };
    let found = bootstrap(&cpu(), &one, &data, &options(1, CovarianceType::Diag), &how, &mut go_on).unwrap();
    let want = (one.covariances().matrix(0, 1)[[0, 0]] / 80.0).sqrt();
    let error = found.spreads(0.9).means.standard_error[0];
    // Four times 1/sqrt(2 * 800).
    assert!((error / want - 1.0).abs() < 0.1, "{error} {want}");
    assert_eq!((found.replicates.len(), found.failed), (800, 0));
}

#[test]
fn every_start_of_a_fit_is_reported() {
    let data = table("old_faithful");
    let options = FitOptions { init: Init::Best(None), n_init: 2, reg_covar: 1e-6, ..options(3, CovarianceType::Tied) };
    let found = fit(&cpu(), &data, &options).unwrap();
    let names: Vec<&str> = found.starts.iter().map(|start| start.start).collect();
    let one = [&["tree", "kmeans"][..], &["random-rows"; 8], &["best"]].concat();
    assert_eq!(names, [one.clone(), one].concat());
    for (i, start) in found.starts.iter().enumerate() {
        assert_eq!((start.restart, start.short), (i / 11, i % 11 < 10));
        let last = &found.starts[i / 11 * 11 + 10];
        assert!(start.mean_log_likelihood <= last.mean_log_likelihood + 1e-12, "{start:?} {last:?}");
    }
    let best = found.starts.iter().map(|start| start.mean_log_likelihood).fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(Some(&best), found.summary.trace.last());
}

#[test]
fn a_selection_has_one_tree_and_the_candidates_are_those_of_single_fits() {
    let data = table("diabetes");
    for init in [Init::Tree(None), Init::Best(None)] {
        let options = FitOptions { init, max_iter: 20, reg_covar: 1e-6, ..options(1, CovarianceType::Full) };
        let (components, kinds) = ([1, 3, 5], [CovarianceType::Full, CovarianceType::Diag]);
        let go_on = &mut |_: &Candidate| ControlFlow::Continue(());
        let all =
            select(&cpu(), &data, &options, &components, &kinds, go_on, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(all.len(), 6);
        for candidate in all {
            let alone =
                FitOptions { n_components: candidate.k, covariance_type: candidate.kind.kind, ..options.clone() };
            assert_eq!(candidate.outcome.unwrap().mixture, fit(&cpu(), &data, &alone).unwrap().mixture);
        }
    }
}
