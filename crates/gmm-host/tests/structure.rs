//! Combination, merges by likelihood, and split-and-merge EM on engines.

use std::ops::ControlFlow;

use gmm_host::structure::{SplitMergeOptions, along, combine, merge_by_likelihood, split_merge};
use gmm_host::{CpuEngine, Engine, Error, Fit, FitOptions, Init, ReferenceEngine, fit};
use gmm_model::structure::{CombineBy, Combining, PairDistance, agglomerate, merge, merge_pair};
use gmm_model::{
    CovarianceType, Covariances, Dataset, Mixture, Precision, SyntheticOptions, criteria, reference, sample, synthetic,
};
use ndarray::{Array2, array};

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// Overlapping components, and rows from them.
fn overlapping(k: usize, n: usize, kind: CovarianceType) -> (Mixture, Array2<f64>) {
    let options = SyntheticOptions { separation: 0.8, ..SyntheticOptions::default() };
    let mixture = synthetic(k, 2, kind, 7, &options).unwrap();
    let rows = sample(&mixture, n, 3).unwrap().0;
    (mixture, rows)
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0), "{a} {b}");
    }
}

#[test]
fn a_combination_on_an_engine_is_that_of_the_reference() {
    let (mixture, rows) = overlapping(5, 400, CovarianceType::Full);
    let weights: Vec<f64> = (0..400).map(|i| f64::from(i % 3)).collect();
    let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
    let r = reference::responsibilities(&mixture, rows.view());
    for by in [CombineBy::Entropy, CombineBy::Demp] {
        let mut combining = Combining::new(5, by);
        while !combining.is_done() {
            combining.add(r.view(), Some(&weights)).unwrap();
            combining.end_pass().unwrap();
        }
        let expected = combining.finish();
        for engine in [&cpu() as &dyn Engine, &ReferenceEngine] {
            let found = combine(engine, &mixture, &data, Precision::F64, by).unwrap();
            close(&found.entropy, &expected.entropy, 1e-11);
            close(&found.joined_weight, &expected.joined_weight, 1e-11);
            for count in 1..=5 {
                assert_eq!(found.tree.clusters(count), expected.tree.clusters(count), "{by} {count}");
            }
        }
    }
}

#[test]
fn a_merge_by_likelihood_takes_the_best_of_all_pairs() {
    for kind in CovarianceType::ALL {
        let (mixture, rows) = overlapping(5, 300, kind);
        let data = Dataset::new(rows.clone()).unwrap();
        let (tree, found) = merge_by_likelihood(&cpu(), &mixture, &data, Precision::F64).unwrap();
        let mut now = mixture.clone();
        for (step, join) in tree.joins().iter().enumerate() {
            let before = criteria(&now, rows.view(), None).bic;
            close(&[found.bic[step]], &[before], 1e-11);
            let k = now.n_components();
            let pairs = (0..k).flat_map(|j| (0..j).map(move |i| (i, j)));
            let merged = pairs.map(|(i, j)| merge_pair(&now, i, j).unwrap());
            let best =
                merged.min_by(|a, b| criteria(a, rows.view(), None).bic.total_cmp(&criteria(b, rows.view(), None).bic));
            now = best.unwrap();
            close(&[join.value], &[criteria(&now, rows.view(), None).bic - before], 1e-8);
        }
        // The same criteria along the finished tree.
        let again = along(&cpu(), &mixture, &tree, &data, Precision::F64).unwrap();
        close(&again.bic, &found.bic, 1e-11);
        close(&again.description_length, &found.description_length, 1e-11);
    }
}

#[test]
fn components_split_from_one_are_merged_again_by_bic() {
    let truth = synthetic(3, 2, CovarianceType::Full, 1, &SyntheticOptions { separation: 6.0, ..Default::default() });
    let truth = truth.unwrap();
    let data = Dataset::new(sample(&truth, 2000, 2).unwrap().0).unwrap();
    let six = gmm_model::structure::split_to(&truth, 6, &Default::default()).unwrap();
    let (tree, found) = merge_by_likelihood(&cpu(), &six, &data, Precision::F64).unwrap();
    assert_eq!(found.best(), 3);
    let merged = merge(&six, &tree.clusters(3).unwrap()).unwrap();
    for c in 0..3 {
        let nearest = |m: f64, o: usize| {
            let delta = &merged.means().row(c) - &truth.means().row(o);
            m.min(delta.dot(&delta))
        };
        assert!((0..3).fold(f64::INFINITY, nearest) < 1e-20);
    }
}

/// Three clusters on a line, and a fit that is stuck: two components share the first, one covers the others.
fn stuck(kind: CovarianceType) -> (Dataset, FitOptions, Fit) {
    let truth = Mixture::new(
        array![0.4, 0.3, 0.3],
        array![[-30.0, 0.0], [20.0, 0.0], [30.0, 0.0]],
        Covariances::Spherical(array![1.0, 1.0, 1.0]),
    )
    .unwrap();
    let data = Dataset::new(sample(&truth, 1500, 4).unwrap().0).unwrap();
    let means = array![[-31.0, 0.0], [-29.0, 0.0], [25.0, 0.0]];
    let covariances = match kind {
        CovarianceType::Full => {
            Covariances::Full(array![[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], [[26.0, 0.0], [0.0, 1.0]]])
        }
        CovarianceType::Tied => Covariances::Tied(array![[16.0, 0.0], [0.0, 1.0]]),
        CovarianceType::Diag => Covariances::Diag(array![[1.0, 1.0], [1.0, 1.0], [26.0, 1.0]]),
        CovarianceType::Spherical => Covariances::Spherical(array![1.0, 1.0, 13.0]),
    };
    let start = Mixture::new(array![0.2, 0.2, 0.6], means, covariances).unwrap();
    let init = Init::Given(Box::new(start));
    let options = FitOptions { init, covariance_type: kind, max_iter: 300, ..FitOptions::new(3) };
    let fitted = fit(&cpu(), &data, &options).unwrap();
    (data, options, fitted)
}

fn improved(data: &Dataset, fitted: Fit, options: &FitOptions) -> Fit {
    let mut observer = |_: &gmm_host::Iteration<'_>| ControlFlow::Continue(());
    split_merge(&cpu(), data, fitted, options, &SplitMergeOptions::default(), &mut observer).unwrap()
}

#[test]
fn split_and_merge_leaves_a_local_maximum() {
    for kind in CovarianceType::ALL {
        let (data, options, fitted) = stuck(kind);
        let better = improved(&data, fitted.clone(), &options);
        assert!(better.summary.mean_log_likelihood > fitted.summary.mean_log_likelihood + 0.1, "{kind}");
        let mut means: Vec<f64> = better.mixture.means().column(0).to_vec();
        means.sort_by(f64::total_cmp);
        close(&means, &[-30.0, 20.0, 30.0], 0.02);
        // The record is that of the mixture.
        let score = criteria(&better.mixture, data.rows().to_f64().view(), None);
        close(&[better.summary.bic], &[score.bic], 1e-11);
    }
}

#[test]
fn split_and_merge_never_lowers_the_likelihood() {
    for seed in 0..6 {
        let (_, rows) = overlapping(6, 400, CovarianceType::Full);
        let data = Dataset::new(rows).unwrap();
        let options = FitOptions { seed, init: Init::RandomRows, ..FitOptions::new(5) };
        let fitted = fit(&cpu(), &data, &options).unwrap();
        let better = improved(&data, fitted.clone(), &options);
        assert!(better.summary.log_likelihood >= fitted.summary.log_likelihood, "{seed}");
        assert_eq!(better.mixture.n_components(), 5);
    }
    // Two components have no third to split.
    let (data, ..) = stuck(CovarianceType::Full);
    let options = FitOptions::new(2);
    let fitted = fit(&cpu(), &data, &options).unwrap();
    assert_eq!(improved(&data, fitted.clone(), &options), fitted);
}

#[test]
fn an_interrupted_search_is_an_error() {
    let (data, options, fitted) = stuck(CovarianceType::Full);
    let mut observer = |_: &gmm_host::Iteration<'_>| ControlFlow::Break(());
    let outcome = split_merge(&cpu(), &data, fitted, &options, &SplitMergeOptions::default(), &mut observer);
    assert!(matches!(outcome, Err(Error::Interrupted { .. })));
}

#[test]
fn rows_of_another_width_are_refused() {
    let (mixture, rows) = overlapping(3, 20, CovarianceType::Full);
    let narrow = Dataset::new(rows.slice(ndarray::s![.., ..1]).to_owned()).unwrap();
    let outcome = combine(&cpu(), &mixture, &narrow, Precision::F64, CombineBy::Entropy);
    assert!(matches!(outcome, Err(Error::Features { found: 1, expected: 2 })));
    assert!(merge_by_likelihood(&cpu(), &mixture, &narrow, Precision::F64).is_err());
    let tree = agglomerate(&mixture, PairDistance::Kl).unwrap();
    assert!(along(&cpu(), &mixture, &tree, &narrow, Precision::F64).is_err());
}

#[test]
fn the_number_of_threads_changes_no_bit_of_a_combination() {
    let (mixture, rows) = overlapping(5, 9000, CovarianceType::Diag);
    let data = Dataset::new(rows.clone()).unwrap();
    let r = reference::responsibilities(&mixture, rows.view());
    for by in [CombineBy::Entropy, CombineBy::Demp] {
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| combine(&CpuEngine::new(1).unwrap(), &mixture, &data, Precision::F64, by).unwrap())
        };
        let one = of(1);
        assert!([2, 3, 7].into_iter().all(|threads| of(threads) == one), "{by}");
        let mut whole = Combining::new(5, by);
        while !whole.is_done() {
            whole.add(r.view(), None).unwrap();
            whole.end_pass().unwrap();
        }
        let whole = whole.finish();
        close(&one.entropy, &whole.entropy, 1e-11);
        assert_eq!(one.tree.clusters(2).unwrap(), whole.tree.clusters(2).unwrap());
    }
}
