//! Ten clusters of 10,000 rows, and the same bits for any number of threads.

use std::ops::ControlFlow;
use std::time::Instant;

use gmm_host::CpuEngine;
use gmm_mcmc::Basis;
use gmm_mcmc::dp::{Concentration, DpDraws, DpOptions, DpRun, default_prior, vi_estimate};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision, sample};
use ndarray::{Array1, Array2, Array3};

use super::draws_on;

/// `n` rows of ten clusters at the points of a pentagram, which overlap little, and the cluster of each row.
fn ten_clusters(n: usize) -> (Dataset, Vec<u32>) {
    let means = Array2::from_shape_fn((10, 2), |(c, j)| {
        let angle = c as f64 * std::f64::consts::TAU / 10.0;
        (if c % 2 == 0 { 9.0 } else { 16.0 }) * if j == 0 { angle.cos() } else { angle.sin() }
    });
    let covariances = Array3::from_shape_fn((10, 2, 2), |(c, i, j)| if i == j { 1.0 } else { 0.15 * c as f64 - 0.7 });
    let mixture = Mixture::new(Array1::from_elem(10, 0.1), means, Covariances::Full(covariances)).unwrap();
    let (x, labels) = sample(&mixture, n, 3).unwrap();
    (Dataset::new(x).unwrap(), labels.iter().map(|&l| l as u32).collect())
}

/// Normalised mutual information, `I / ((H + H') / 2)`.
fn nmi(a: &[u32], b: &[u32]) -> f64 {
    let n = a.len() as f64;
    let entropy = |keys: Vec<(u32, u32)>| {
        let mut counts = std::collections::HashMap::new();
        keys.into_iter().for_each(|key| *counts.entry(key).or_insert(0.0) += 1.0);
        counts.values().map(|c: &f64| -c / n * (c / n).ln()).sum::<f64>()
    };
    let of_a = entropy(a.iter().map(|&v| (v, 0)).collect());
    let of_b = entropy(b.iter().map(|&v| (v, 0)).collect());
    let both = entropy(a.iter().copied().zip(b.iter().copied()).collect());
    (of_a + of_b - both) / (0.5 * (of_a + of_b))
}

fn short(data: &Dataset, kind: CovarianceType, sweeps: usize, seed: u64) -> DpOptions {
    let prior = default_prior(data, kind).unwrap();
    DpOptions { chains: 1, warmup: sweeps - 1, draws: 1, seed, ..DpOptions::new(kind, prior) }
}

#[test]
fn ten_clusters_are_found_within_100_sweeps() {
    let (data, truth) = ten_clusters(10_000);
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        for seed in 0..3 {
            let started = Instant::now();
            let draws = draws_on(2, &data, &short(&data, kind, 100, seed)).unwrap();
            let elapsed = started.elapsed();
            let (found, k) = (nmi(draws.partition(0), &truth), draws.clusters[0]);
            println!("{kind} seed {seed}: K = {k}, NMI {found:.4}, splits {:?}, {elapsed:.2?}", draws.splits);
            // Correlated clusters are several spherical ones each.
            let least = if kind == CovarianceType::Full { 0.96 } else { 0.8 };
            assert!(found >= least, "{kind} seed {seed}: {found}, K = {k}");
        }
    }
}

#[test]
fn draws_have_the_same_bits_on_any_number_of_threads() {
    // Several tasks of rows.
    let (data, _) = ten_clusters(9_000);
    let options = DpOptions { chains: 2, draws: 3, ..short(&data, CovarianceType::Full, 20, 5) };
    let of = |threads| draws_on(threads, &data, &options).unwrap();
    let one: DpDraws = of(1);
    assert!(one == of(2) && one == of(3));
    assert!(one.partition(0) != one.partition(3), "chains differ");
    let (estimate, expected) = vi_estimate(&one);
    assert!(estimate < 6 && (0.0..3.0).contains(&expected));
}

#[test]
fn a_run_that_stops_and_goes_on_elsewhere_makes_the_same_draws() {
    let (data, _) = ten_clusters(1000);
    let options = DpOptions { chains: 2, draws: 4, thin: 2, start: 5, ..short(&data, CovarianceType::Full, 12, 7) };
    let options = DpOptions { concentration: Concentration::Gamma { shape: 1.0, rate: 1.0 }, ..options };
    let whole = draws_on(2, &data, &options).unwrap();
    let engine = CpuEngine::new(2).unwrap();
    let basis = Basis::new(&engine, &data, Precision::F64).unwrap();
    // With fewer draws at first; it stops after every third sweep.
    let mut run = DpRun::new(DpOptions { draws: 2, ..options.clone() }).unwrap();
    for stop in (3..).step_by(3) {
        let observer = &mut |now| if now == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let ended = run.go_on(&engine, &data, Precision::F64, observer).is_ok();
        let wanted = if stop < 15 { run.options().clone() } else { options.clone() };
        let (again, moved) = DpRun::from_bytes(&run.to_bytes(&basis), wanted, &basis).unwrap();
        assert!(moved.is_none());
        run = again;
        if ended {
            break;
        }
    }
    assert!(run.n_sweeps() == 2 * (11 + 8) && run.into_draws() == whole);
}

#[test]
fn a_checkpoint_of_other_inputs_or_damaged_bytes_is_refused() {
    let (data, _) = ten_clusters(200);
    let options = DpOptions { draws: 3, ..short(&data, CovarianceType::Diag, 4, 7) };
    let engine = CpuEngine::new(1).unwrap();
    let basis = Basis::new(&engine, &data, Precision::F64).unwrap();
    let mut run = DpRun::new(options.clone()).unwrap();
    run.go_on(&engine, &data, Precision::F64, &mut |_| ControlFlow::Continue(())).unwrap();
    let bytes = run.to_bytes(&basis);
    let refuses = |bytes: &[u8], options: &DpOptions, basis: &Basis, word: &str| {
        let error = DpRun::from_bytes(bytes, options.clone(), basis).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refuses(&bytes, &DpOptions { seed: 8, ..options.clone() }, &basis, "seed 7, not 8");
    refuses(&bytes, &DpOptions { draws: 2, ..options.clone() }, &basis, "never discarded");
    let mut prior = options.prior.clone();
    prior.mean_precision = 2.0;
    refuses(&bytes, &DpOptions { prior, ..options.clone() }, &basis, "another prior");
    refuses(&bytes, &options, &Basis { fingerprint: 1, ..basis.clone() }, "other rows");
    refuses(&bytes[..bytes.len() - 9], &options, &basis, "truncated");
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    refuses(&damaged, &options, &basis, "disagree");
    let (_, moved) = DpRun::from_bytes(&bytes, options, &Basis { engine: "other".to_owned(), ..basis }).unwrap();
    assert!(moved.unwrap().contains("engine cpu"));
}

#[test]
fn chains_that_start_from_many_clusters_merge_them() {
    let (data, truth) = ten_clusters(2000);
    let options = DpOptions { start: 40, ..short(&data, CovarianceType::Full, 100, 1) };
    let draws = draws_on(2, &data, &options).unwrap();
    let found = nmi(draws.partition(0), &truth);
    println!("from 40 clusters: K = {}, NMI {found:.4}, merges {:?}", draws.clusters[0], draws.merges);
    assert!(found >= 0.96, "{found}, K = {}", draws.clusters[0]);
}
