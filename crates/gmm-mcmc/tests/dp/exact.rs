//! Frequencies of partitions against their posterior, by enumeration of all partitions.

use std::collections::HashMap;

use gmm_mcmc::dp::{Concentration, DpOptions};
use gmm_model::bayes::{BayesPrior, Posterior, PosteriorNumbers, WeightPosterior, WeightPrior};
use gmm_model::{CovarianceType, Covariances, Dataset, Draws, Mixture, PriorScale, reference};
use ndarray::{Array2, ArrayView2, Axis, array};

use super::draws_on;

/// Batches of a chain, for the standard error of a frequency.
const BATCHES: usize = 50;

fn prior(kind: CovarianceType, d: usize) -> BayesPrior {
    let scale = match kind {
        CovarianceType::Diag => PriorScale::Variances((0..d).map(|j| 0.5 + j as f64).collect()),
        CovarianceType::Spherical => PriorScale::Variance(0.7),
        _ => PriorScale::Matrix(Array2::from_shape_fn((d, d), |(i, j)| if i == j { 1.0 + i as f64 } else { 0.3 })),
    };
    BayesPrior {
        weights: WeightPrior::DirichletProcess { concentration: 1.0 },
        mean: (0..d).map(|j| 0.2 * j as f64).collect(),
        mean_precision: 0.3,
        degrees_of_freedom: d as f64 + 0.5,
        scale,
    }
}

/// Rows about two points.
fn rows(n: usize, d: usize, seed: u64, apart: f64) -> Array2<f64> {
    let mut draws = Draws::new(seed, 0);
    Array2::from_shape_fn((n, d), |(i, _)| draws.normal() + if i % 3 == 0 { apart } else { 0.0 })
}

/// The log marginal likelihood of rows, by the chain rule: their predictive densities, each given the rows before it.
fn chained(prior: &BayesPrior, kind: CovarianceType, x: ArrayView2<'_, f64>) -> f64 {
    let weights = WeightPrior::Dirichlet { concentration: 1.0 };
    let prior = BayesPrior { weights, ..prior.clone() };
    let nu = prior.degrees_of_freedom;
    let covariances = match &prior.scale {
        PriorScale::Matrix(a) => Covariances::Full((a / nu).insert_axis(Axis(0))),
        PriorScale::Variances(v) => Covariances::Diag((v / nu).insert_axis(Axis(0))),
        PriorScale::Variance(v) => Covariances::Spherical(array![v / nu]),
    };
    let start = Mixture::new(array![1.0], prior.mean.clone().insert_axis(Axis(0)), covariances).unwrap();
    let numbers = PosteriorNumbers {
        weights: WeightPosterior::Dirichlet(array![1.0]),
        mean_precision: array![prior.mean_precision],
        degrees_of_freedom: array![nu],
    };
    let mut posterior = Posterior::new(prior.clone(), numbers, start.clone()).unwrap();
    let mut total = 0.0;
    for i in 0..x.nrows() {
        total += posterior.predictive().log_density(x.row(i));
        let before = reference::statistics(&start, x.slice(ndarray::s![..=i, ..]), None);
        assert_eq!(start.covariance_type(), kind);
        posterior = prior.update(&before, 0.0).unwrap();
    }
    total
}

/// All partitions of `n` rows, numbered by first row.
fn partitions(n: usize) -> Vec<Vec<u32>> {
    (0..n).fold(vec![vec![]], |all, _| {
        all.into_iter()
            .flat_map(|p: Vec<u32>| {
                let k = p.iter().max().map_or(0, |m| m + 1);
                (0..=k).map(move |c| [&p[..], &[c]].concat())
            })
            .collect()
    })
}

/// The posterior of each partition. With a Gamma prior, the concentration is integrated out numerically.
fn posterior(
    prior: &BayesPrior,
    kind: CovarianceType,
    x: ArrayView2<'_, f64>,
    concentration: Concentration,
) -> (HashMap<Vec<u32>, f64>, HashMap<Vec<u32>, f64>) {
    let n = x.nrows();
    let marginal: Vec<f64> = (0..1usize << n)
        .map(|code| {
            let members: Vec<usize> = (0..n).filter(|i| (code >> i) & 1 == 1).collect();
            if members.is_empty() { 0.0 } else { chained(prior, kind, x.select(Axis(0), &members).view()) }
        })
        .collect();
    let crp = |alpha: f64, k: f64| k * alpha.ln() + libm::lgamma(alpha) - libm::lgamma(alpha + n as f64);
    let of_k = |k: f64| match concentration {
        Concentration::Fixed(alpha) => crp(alpha, k),
        Concentration::Gamma { shape, rate } => {
            // In ln α, by the trapezoidal rule, which is exact to rounding for such integrands.
            let h: f64 = 0.05;
            let density = |u: f64| crp(u.exp(), k) + shape * (rate.ln() + u) - libm::lgamma(shape) - rate * u.exp();
            h.ln() + reference::log_sum_exp(&(-600..120).map(|i| density(f64::from(i) * h)).collect::<Vec<_>>())
        }
    };
    let all = partitions(n);
    let log = |p: &Vec<u32>| {
        let k = p.iter().max().unwrap() + 1;
        let sizes = (0..k).map(|c| {
            let code: usize = (0..n).filter(|&i| p[i] == c).map(|i| 1 << i).sum();
            libm::lgamma(f64::from(code.count_ones())) + marginal[code]
        });
        of_k(f64::from(k)) + sizes.sum::<f64>()
    };
    let logs: Vec<f64> = all.iter().map(log).collect();
    let total = reference::log_sum_exp(&logs);
    let exact = all.iter().cloned().zip(logs.iter().map(|v| (v - total).exp())).collect();
    (exact, all.into_iter().zip(logs).collect())
}

/// Checks that a long chain visits partitions, and numbers of clusters, as often as the posterior says.
fn check(kind: CovarianceType, (n, d): (usize, usize), apart: f64, seed: u64, options: &DpOptions) {
    let x = rows(n, d, seed, apart);
    let options = DpOptions { kind, prior: prior(kind, d), chains: 1, warmup: 100, seed, ..options.clone() };
    let (exact, logs) = posterior(&options.prior, kind, x.view(), options.concentration);
    let draws = draws_on(1, &Dataset::new(x).unwrap(), &options).unwrap();
    let visited: Vec<&[u32]> = (0..options.draws).map(|i| draws.partition(i)).collect();
    if matches!(options.concentration, Concentration::Fixed(_)) {
        for (i, partition) in visited.iter().enumerate().step_by(997) {
            let (found, wanted) = (draws.log_joint[i], logs[*partition]);
            assert!((found - wanted).abs() <= 1e-10 * (1.0 + wanted.abs()), "{partition:?}: {found} {wanted}");
        }
    }
    let name = format!(
        "{kind} n={n} d={d} apart={apart} {:?} moves={} rows={}",
        options.concentration, options.moves, options.single_rows
    );
    // Each partition of some probability, and each number of clusters, within its standard error by batch means.
    let mut chi_square = (0.0, 0usize);
    let mut check_event = |what: String, probability: f64, hits: Vec<bool>| {
        let size = hits.len() / BATCHES;
        let means: Vec<f64> =
            hits.chunks_exact(size).map(|b| b.iter().filter(|h| **h).count() as f64 / size as f64).collect();
        let mean = means.iter().sum::<f64>() / BATCHES as f64;
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (BATCHES * (BATCHES - 1)) as f64;
        // Not below that of independent draws.
        let independent = probability * (1.0 - probability) / hits.len() as f64;
        let z = (mean - probability) / variance.max(independent).sqrt();
        assert!(z.abs() < 4.5, "{name} {what}: {mean}, exactly {probability}, z = {z}");
        chi_square = (chi_square.0 + z * z, chi_square.1 + 1);
    };
    let mut likely: Vec<(&Vec<u32>, &f64)> = exact.iter().filter(|(_, p)| **p > 0.002).collect();
    likely.sort_by_key(|(partition, _)| *partition);
    for (partition, p) in likely {
        check_event(format!("{partition:?}"), *p, visited.iter().map(|v| *v == partition.as_slice()).collect());
    }
    for k in 1..=n as u32 {
        let p: f64 = exact.iter().filter(|(v, _)| *v.iter().max().unwrap() + 1 == k).map(|(_, p)| p).sum();
        if p > 0.001 {
            check_event(format!("K={k}"), p, draws.clusters.iter().map(|c| *c == k).collect());
        }
    }
    // The events are dependent, so this is wide; without error the mean is 1.
    let mean_square = chi_square.0 / chi_square.1 as f64;
    assert!(mean_square < 2.0, "{name}: mean square {mean_square} of {} events", chi_square.1);
    // Every partition counts here, also the unlikely ones.
    let mut counts: HashMap<&[u32], f64> = HashMap::new();
    visited.iter().for_each(|v| *counts.entry(v).or_default() += 1.0 / visited.len() as f64);
    let variation: f64 =
        exact.iter().map(|(v, p)| (counts.get(v.as_slice()).unwrap_or(&0.0) - p).abs()).sum::<f64>() / 2.0;
    // Independent draws have Σ E|p̂ − p| / 2 ≤ Σ √(p / 2πN); the chain's correlation at most trebles it.
    let independent: f64 = exact.values().map(|p| (p / (std::f64::consts::TAU * visited.len() as f64)).sqrt()).sum();
    assert!(variation < 3.0 * independent, "{name}: total variation {variation}, of independent draws {independent}");
    println!(
        "{name}: mean square {mean_square:.2} of {} events, total variation {variation:.4} ({independent:.4})",
        chi_square.1
    );
}

fn options(concentration: Concentration, moves: usize, single_rows: usize) -> DpOptions {
    let kind = CovarianceType::Full;
    DpOptions { concentration, moves, single_rows, draws: 40_000, ..DpOptions::new(kind, prior(kind, 1)) }
}

#[test]
fn all_moves_together_visit_partitions_as_often_as_the_posterior_says() {
    check(CovarianceType::Full, (8, 2), 3.0, 1, &options(Concentration::Fixed(1.0), 3, 2));
    check(CovarianceType::Full, (7, 1), 2.0, 2, &options(Concentration::Fixed(0.3), 2, 1));
    check(CovarianceType::Diag, (7, 2), 4.0, 3, &options(Concentration::Fixed(2.5), 2, 1));
    check(CovarianceType::Spherical, (6, 3), 3.0, 4, &options(Concentration::Fixed(1.0), 2, 1));
}

#[test]
fn splits_and_merges_dominate_and_the_frequencies_stay_exact() {
    // Many moves, and one row by itself per sweep.
    check(CovarianceType::Full, (6, 1), 3.0, 5, &options(Concentration::Fixed(1.0), 20, 1));
    check(CovarianceType::Diag, (6, 2), 1.0, 6, &options(Concentration::Fixed(5.0), 20, 1));
}

#[test]
fn without_splits_the_frequencies_are_exact_too() {
    check(CovarianceType::Full, (6, 2), 2.0, 7, &options(Concentration::Fixed(1.0), 0, 1));
}

#[test]
fn a_prior_of_the_concentration_is_integrated_out() {
    check(CovarianceType::Full, (6, 1), 3.0, 8, &options(Concentration::Gamma { shape: 2.0, rate: 1.5 }, 3, 2));
}
