//! Ten clusters of 10,000 rows, and the same bits for any number of threads.

use std::time::Instant;

use gmm_mcmc::dp::{DpDraws, DpOptions, default_prior, vi_estimate};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, sample};
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
