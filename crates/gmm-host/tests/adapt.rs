//! Many utterances, adaptation and log-likelihood ratios against the naive reference, in f64 and row by row.

use std::ops::Range;

use gmm_host::adapt::{
    RatioOptions, Speakers, Trial, Utterances, adapt_many, adapted_means_of_many, log_likelihood_ratios,
    top_statistics, utterance_statistics,
};
use gmm_host::{CpuEngine, Engine, FitOptions, Init, ReferenceEngine, fit, pass, storage};
use gmm_model::adapt::{AdaptOptions, AdaptRule, adapt, adapted_means};
use gmm_model::{
    CovarianceType, Covariances, Dataset, Mixture, Precision, Statistics, SyntheticOptions, reference, sample,
    synthetic,
};
use ndarray::{Array1, Array2, Array3, ArrayView1, Axis, s};

fn background(k: usize, d: usize, kind: CovarianceType) -> Mixture {
    synthetic(k, d, kind, 3, &SyntheticOptions::default()).unwrap()
}

fn rows(mixture: &Mixture, n: usize, seed: u64) -> Array2<f64> {
    sample(mixture, n, seed).unwrap().0 + 0.3
}

fn engine() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// The components of largest density of a row, the first among equals, and `ln Σ` over `of` for each mixture.
fn largest(mixture: &Mixture, x: ArrayView1<'_, f64>, count: usize) -> Vec<usize> {
    let joint: Vec<f64> = (0..mixture.n_components()).map(|c| reference::log_joint(mixture, c, x)).collect();
    let mut order: Vec<usize> = (0..joint.len()).collect();
    order.sort_by(|a, b| joint[*b].total_cmp(&joint[*a]).then(a.cmp(b)));
    order.truncate(count);
    order.sort_unstable();
    order
}

fn density(mixture: &Mixture, x: ArrayView1<'_, f64>, components: &[usize]) -> f64 {
    let joint: Vec<f64> = components.iter().map(|&c| reference::log_joint(mixture, c, x)).collect();
    reference::log_sum_exp(&joint)
}

/// Reynolds, Quatieri and Dunn 2000, section 3.4, row by row.
fn naive_ratio(background: &Mixture, speaker: &Mixture, data: &Dataset, rows: Range<usize>, count: usize) -> f64 {
    let x = data.rows().to_f64();
    let (mut sum, mut total) = (0.0, 0.0);
    for row in rows {
        let chosen = largest(background, x.row(row), count);
        let ratio = density(speaker, x.row(row), &chosen) - density(background, x.row(row), &chosen);
        sum += data.weight(row) * ratio;
        total += data.weight(row);
    }
    sum / total
}

/// Ratios of two adapted speakers on all utterances, as means and as mixtures, in both precisions.
fn check_ratios(background: &Mixture, data: &Dataset, utterances: &[Range<usize>], count: usize) {
    let of = |rows: Range<usize>| {
        let x = data.rows().to_f64().slice(s![rows, ..]).to_owned();
        adapt(background, &reference::statistics(background, x.view(), None), &AdaptOptions::default()).unwrap()
    };
    let speakers = [of(utterances[0].clone()), of(utterances[1].clone())];
    let mut means = Array3::zeros((2, background.n_components(), background.n_features()));
    means.outer_iter_mut().zip(&speakers).for_each(|(mut to, one)| to.assign(&one.means()));
    let trials: Vec<Trial> =
        (0..2).flat_map(|speaker| (0..utterances.len()).map(move |utterance| Trial { speaker, utterance })).collect();
    let want: Vec<f64> = trials
        .iter()
        .map(|t| naive_ratio(background, &speakers[t.speaker], data, utterances[t.utterance].clone(), count))
        .collect();
    for precision in [Precision::F32, Precision::F64] {
        let eps = if precision == Precision::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        // Distances of about d, and log densities of that size, are rounded; 64 covers sums of a few dozen terms.
        let bound = 64.0 * eps * (10.0 + background.n_features() as f64);
        for name in CpuEngine::instruction_sets() {
            let engine = CpuEngine::with_instructions(2, name).unwrap();
            let utterances = Utterances { data, rows: utterances, precision };
            let options = RatioOptions { top: count };
            for speakers in [Speakers::Means(means.view()), Speakers::Mixtures(&speakers)] {
                let got =
                    log_likelihood_ratios(&engine, background, &speakers, &utterances, &trials, &options).unwrap();
                for (got, want) in got.iter().zip(&want) {
                    assert!((got - want).abs() <= bound * (1.0 + want.abs()), "{name} {precision}: {got} {want}");
                }
            }
        }
    }
}

#[test]
fn ratios_are_those_of_the_largest_components_row_by_row() {
    for (k, d, kind) in [
        (70, 5, CovarianceType::Diag),
        (33, 17, CovarianceType::Diag),
        (9, 3, CovarianceType::Full),
        (9, 3, CovarianceType::Tied),
        (40, 1, CovarianceType::Spherical),
    ] {
        let ubm = background(k, d, kind);
        let data = Dataset::new(rows(&ubm, 331, 5)).unwrap();
        for count in [1, 5, k - 1, k, k + 7] {
            check_ratios(&ubm, &data, &[0..40, 40..41, 41..331, 10..300], count);
        }
    }
}

#[test]
fn long_utterances_are_divided_and_row_weights_count() {
    let ubm = background(20, 4, CovarianceType::Diag);
    let weights = (0..5000).map(|i| f64::from(i % 4)).collect();
    let data = Dataset::new(rows(&ubm, 5000, 6)).unwrap().with_weights(weights).unwrap();
    check_ratios(&ubm, &data, &[0..4700, 4700..5000], 5);
}

#[test]
fn ratios_with_all_components_are_differences_of_log_densities() {
    let ubm = background(12, 3, CovarianceType::Diag);
    let x = rows(&ubm, 100, 7);
    let data = Dataset::new(x.clone()).unwrap();
    let other = adapt(&ubm, &reference::statistics(&ubm, x.view(), None), &AdaptOptions::default()).unwrap();
    let mean = |m: &Mixture| reference::log_densities(m, x.view()).mean().unwrap();
    let all = 0..100;
    let one = std::slice::from_ref(&all);
    let trial = [Trial { speaker: 0, utterance: 0 }];
    let speakers = Speakers::Mixtures(std::slice::from_ref(&other));
    let utterances = Utterances::new(&data, one);
    let got =
        log_likelihood_ratios(&engine(), &ubm, &speakers, &utterances, &trial, &RatioOptions { top: 12 }).unwrap();
    assert!((got[0] - (mean(&other) - mean(&ubm))).abs() < 1e-12);
}

#[test]
fn rows_far_from_the_origin_keep_their_ratios() {
    let near = background(8, 3, CovarianceType::Diag);
    let offset = Array1::from_elem(3, 1e7);
    let far = Mixture::new(near.weights().to_owned(), &near.means() + &offset, near.covariances().clone()).unwrap();
    let data = Dataset::new(rows(&near, 60, 8) + &offset).unwrap();
    check_ratios(&far, &data, &[0..30, 30..60], 3);
}

#[test]
fn every_utterance_has_the_bits_of_its_own_pass() {
    for kind in CovarianceType::ALL {
        let ubm = background(6, 3, kind);
        let data = Dataset::new(rows(&ubm, 700, 9)).unwrap();
        let utterances = [0..300, 300..301, 301..700, 50..60];
        let many = Utterances::new(&data, &utterances);
        let found = utterance_statistics(&engine(), &ubm, &many, &|_, one| Ok(one)).unwrap();
        let single = CpuEngine::new(1).unwrap();
        for (rows, found) in utterances.iter().zip(found) {
            let storage = storage(&ubm, Precision::F64);
            assert_eq!(found, pass(&single, &ubm, &data.part(rows.clone()), &storage).unwrap());
            let want = reference::statistics(&ubm, data.rows().to_f64().slice(s![rows.clone(), ..]), None);
            all_close(found.first.iter(), want.first.iter(), 1e-9);
        }
    }
}

#[track_caller]
fn all_close<'a>(a: impl Iterator<Item = &'a f64>, b: impl Iterator<Item = &'a f64>, tolerance: f64) {
    for (a, b) in a.zip(b) {
        assert!((a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs())), "{a} {b}");
    }
}

#[test]
fn many_speakers_are_adapted_as_each_alone() {
    let ubm = background(6, 3, CovarianceType::Diag);
    let data = Dataset::new(rows(&ubm, 400, 10)).unwrap();
    let utterances: Vec<Range<usize>> = (0..20).map(|i| i * 20..(i + 1) * 20).collect();
    let many = Utterances::new(&data, &utterances);
    let options =
        AdaptOptions { means: Some(16.0), variances: Some(16.0), weights: Some(16.0), rule: AdaptRule::Reynolds };
    for engine in [&engine() as &dyn Engine, &ReferenceEngine] {
        let found = adapt_many(engine, &ubm, &many, &options).unwrap();
        let means = adapted_means_of_many(engine, &ubm, &many, 16.0).unwrap();
        for ((rows, found), means) in utterances.iter().zip(found).zip(means.outer_iter()) {
            let x = data.rows().to_f64();
            let statistics = reference::statistics(&ubm, x.slice(s![rows.clone(), ..]), None);
            let want = adapt(&ubm, &statistics, &options).unwrap();
            all_close(found.means().iter(), want.means().iter(), 1e-11);
            all_close(found.covariances().values(), want.covariances().values(), 1e-10);
            all_close(found.weights().iter(), want.weights().iter(), 1e-11);
            all_close(means.iter(), adapted_means(&ubm, &statistics, 16.0).unwrap().iter(), 1e-11);
        }
    }
}

/// Kaldi's `gmm-gselect` and accumulation: responsibilities among the selected components only.
#[test]
fn statistics_of_the_largest_components_are_those_of_the_reference() {
    for (kind, precision) in [
        (CovarianceType::Diag, Precision::F64),
        (CovarianceType::Diag, Precision::F32),
        (CovarianceType::Spherical, Precision::F64),
    ] {
        let ubm = background(30, 5, kind);
        let data = Dataset::new(rows(&ubm, 300, 11)).unwrap();
        let utterances = [0..120, 120..300];
        let many = Utterances { precision, ..Utterances::new(&data, &utterances) };
        let found = top_statistics(&engine(), &ubm, &many, 4, &|_, one| Ok(one)).unwrap();
        for (rows, found) in utterances.iter().zip(found) {
            let mut want = Statistics::of_no_rows(&ubm);
            for row in rows.clone() {
                let x = data.rows().to_f64();
                let x = x.row(row);
                let chosen = largest(&ubm, x, 4);
                let all = density(&ubm, x, &chosen);
                let mut r = Array1::zeros(30);
                chosen.iter().for_each(|&c| r[c] = (reference::log_joint(&ubm, c, x) - all).exp());
                reference::accumulate(&mut want, x, 1.0, r.view());
                want.log_likelihood += all;
            }
            let tolerance = if precision == Precision::F32 { 2e-4 } else { 1e-10 };
            all_close(found.weight.iter(), want.weight.iter(), tolerance);
            all_close(found.first.iter(), want.first.iter(), tolerance);
            all_close(found.second.iter(), want.second.iter(), tolerance);
            all_close([found.log_likelihood].iter(), [want.log_likelihood].iter(), tolerance);
            assert_eq!(found.n_rows, rows.len() as u64);
        }
    }
}

#[test]
fn of_equal_components_the_first_is_selected() {
    let one = background(100, 4, CovarianceType::Diag);
    let twice = |all: ndarray::ArrayView2<'_, f64>| ndarray::concatenate![Axis(0), all, all];
    let Covariances::Diag(variances) = one.covariances() else { panic!("diag") };
    let weights = ndarray::concatenate![Axis(0), one.weights(), one.weights()] / 2.0;
    let both = Mixture::new(weights, twice(one.means()), Covariances::Diag(twice(variances.view()))).unwrap();
    let data = Dataset::new(rows(&one, 50, 12)).unwrap();
    let all = vec![0..50; 1];
    let utterances = Utterances::new(&data, &all);
    let x = data.rows().to_f64();
    for name in CpuEngine::instruction_sets() {
        let engine = CpuEngine::with_instructions(1, name).unwrap();
        for top in [1, 2, 5, 60, 199] {
            let found = top_statistics(&engine, &both, &utterances, top, &|_, one| Ok(one)).unwrap().remove(0);
            let mut want = Array1::<f64>::zeros(200);
            for x in x.outer_iter() {
                let chosen = largest(&both, x, top);
                let total = density(&both, x, &chosen);
                chosen.iter().for_each(|&c| want[c] += (reference::log_joint(&both, c, x) - total).exp());
            }
            all_close(found.weight.iter(), want.iter(), 1e-10);
        }
    }
}

#[test]
fn statistics_of_long_utterances_do_not_depend_on_threads() {
    let ubm = background(70, 5, CovarianceType::Diag);
    let weights = (0..9000).map(|i| f64::from(i % 3)).collect();
    let data = Dataset::new(rows(&ubm, 9000, 13)).unwrap().with_weights(weights).unwrap();
    let utterances = [0..8500, 8500..9000];
    let run = |threads: usize| {
        let many = Utterances::new(&data, &utterances);
        top_statistics(&CpuEngine::new(threads).unwrap(), &ubm, &many, 70, &|_, one| Ok(one)).unwrap()
    };
    let (found, others) = (run(1), run(3));
    assert_eq!(found, others);
    // With all components they are those of a pass.
    for (rows, found) in utterances.iter().zip(&found) {
        let want = pass(&engine(), &ubm, &data.part(rows.clone()), &storage(&ubm, Precision::F64)).unwrap();
        assert_eq!(found.n_rows, want.n_rows);
        all_close(found.weight.iter(), want.weight.iter(), 1e-10);
        all_close(found.first.iter(), want.first.iter(), 1e-9);
        all_close(found.second.iter(), want.second.iter(), 1e-9);
    }
}

#[test]
fn bad_input_is_an_error_that_says_where() {
    let ubm = background(4, 3, CovarianceType::Full);
    let data = Dataset::new(rows(&ubm, 30, 1)).unwrap();
    let says = |found: Result<(), gmm_host::Error>, what: &str| {
        let why = found.unwrap_err().to_string();
        assert!(why.contains(what), "{why}");
    };
    let run = |utterances: &[Range<usize>]| {
        adapt_many(&engine(), &ubm, &Utterances::new(&data, utterances), &AdaptOptions::default()).map(|_| ())
    };
    says(run(&[0..3, 5..5]), "number 1, 5..5");
    says(run(&vec![20..31; 1]), "number 0, 20..31");
    let none = data.clone().with_weights((0..30).map(|i| f64::from(i / 10)).collect()).unwrap();
    let first = vec![0..10; 1];
    let of_none = Utterances::new(&none, &first);
    says(adapt_many(&engine(), &ubm, &of_none, &AdaptOptions::default()).map(|_| ()), "weight 0");
    let utterances = vec![0..30; 1];
    let many = Utterances::new(&data, &utterances);
    says(top_statistics(&engine(), &ubm, &many, 3, &|_, _| Ok(())).map(|_| ()), "kind is full");
    let trial = [Trial { speaker: 1, utterance: 0 }];
    let ratios = |speakers: &Speakers<'_>, trials: &[Trial], top: usize| {
        log_likelihood_ratios(&engine(), &ubm, speakers, &many, trials, &RatioOptions { top }).map(|_| ())
    };
    let same = [ubm.clone()];
    says(ratios(&Speakers::Mixtures(&same), &trial, 5), "speaker 1");
    says(ratios(&Speakers::Mixtures(&same), &[], 0), "top is 0");
    says(ratios(&Speakers::Means(Array3::zeros((1, 2, 3)).view()), &[], 5), "[1, 2, 3]");
    says(ratios(&Speakers::Means(Array3::from_elem((1, 4, 3), f64::NAN).view()), &[], 5), "not finite");
}

#[test]
fn mixing_up_reaches_the_likelihood_of_k_means_and_keeps_its_floor() {
    let truth = background(8, 4, CovarianceType::Diag);
    let data = Dataset::new(sample(&truth, 4000, 1).unwrap().0).unwrap();
    let run = |init: Init, k: usize, kind: CovarianceType| {
        let options = FitOptions { init, covariance_type: kind, tol: 1e-5, ..FitOptions::new(k) };
        fit(&engine(), &data, &options).unwrap()
    };
    for kind in CovarianceType::ALL {
        let (up, means) = (run(Init::MixUp, 8, kind), run(Init::KMeans, 8, kind));
        let (a, b) = (up.summary.mean_log_likelihood, means.summary.mean_log_likelihood);
        assert!(a > b - 0.2, "{kind}: {a} {b}");
        // Numbers that are no power of two, and one.
        assert_eq!(run(Init::MixUp, 5, kind).mixture.n_components(), 5);
        assert_eq!(run(Init::MixUp, 1, kind).mixture.n_components(), 1);
    }
    assert!(Init::MixUp.is_deterministic(1, 1, None));
    // A column that repeats one value has components without variance but for the floor.
    let lumps = Array2::from_shape_fn((400, 2), |(i, j)| if j == 0 { (i % 4) as f64 * 10.0 } else { (i / 4) as f64 });
    let data = Dataset::new(lumps).unwrap();
    let options = FitOptions {
        init: Init::MixUp,
        covariance_type: CovarianceType::Diag,
        max_iter: 0,
        reg_covar: 0.0,
        ..FitOptions::new(16)
    };
    let start = fit(&engine(), &data, &options).unwrap().mixture;
    let Covariances::Diag(variances) = start.covariances() else { panic!("diag") };
    let x = data.rows().to_f64();
    let floor = x.var_axis(Axis(0), 0.0) * 0.01;
    assert!(variances.outer_iter().all(|row| row.iter().zip(&floor).all(|(v, least)| *v >= *least * (1.0 - 1e-12))));
}
