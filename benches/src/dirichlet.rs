//! `dirichlet-process`: sweeps of the sampler of Dirichlet process mixtures, on the CPU and on a GPU in turns.
//!
//! The data: ten clusters of two columns at the points of a pentagram, with correlations from −0.7 to 0.65; they overlap
//! little. A chain begins with one cluster. Everything follows from the seed.

use std::f64::consts::TAU;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Result, ensure};
use gmm_host::{CpuEngine, CudaEngine, Engine};
use gmm_mcmc::dp::{DpOptions, DpRun, default_prior, variation_of_information};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision, sample};
use ndarray::{Array1, Array2, Array3};

use crate::turns::TurnOptions;

/// Rows and clusters, as in the publication's comparison.
const SIZE: (usize, usize) = (10_000, 10);

/// Rows of a quick run.
const QUICK: usize = 1_000;

/// Sweeps of a chain, the first of which moves all rows from one cluster.
const SWEEPS: usize = 100;

/// Normalised mutual information that the last partition must have with the true one.
const LEAST: f64 = 0.96;

const COLUMNS: &str = "n,d,clusters,sweeps,engine,turn,ms,nmi,found";

/// Time sweeps of the sampler of Dirichlet process mixtures.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: TurnOptions,
    /// Use a GPU too.
    #[arg(long)]
    cuda: bool,
}

/// Measures a chain per turn, with a seed of its own, and writes the record.
///
/// # Errors
/// If a file cannot be written, or a chain did not find the clusters.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let TurnOptions { quick, turns, threads, seed, .. } = &arguments.common;
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(CpuEngine::new(*threads)?)];
    if arguments.cuda {
        engines.push(Box::new(CudaEngine::new(0)?));
    }
    let command = if arguments.cuda { "dirichlet-process --cuda" } else { "dirichlet-process" };
    let title = "milliseconds of 100 sweeps of a Dirichlet process mixture, without the opening of the engine";
    let mut record = arguments.common.record(&**engines.last().expect("one engine"), command, title, COLUMNS)?;

    let (n, clusters) = (if *quick { QUICK } else { SIZE.0 }, SIZE.1);
    let (data, truth) = problem(n, clusters, *seed)?;
    let mut wrong = 0;
    for turn in 0..*turns {
        for engine in &engines {
            let prior = default_prior(&data, CovarianceType::Full)?;
            let options = DpOptions {
                chains: 1,
                warmup: SWEEPS - 1,
                draws: 1,
                seed: seed + turn as u64,
                ..DpOptions::new(CovarianceType::Full, prior)
            };
            let mut chain = DpRun::new(options)?;
            let began = Instant::now();
            chain.go_on(&**engine, &data, Precision::F64, &mut |_| ControlFlow::Continue(()))?;
            let ms = 1e3 * began.elapsed().as_secs_f64();
            let draws = chain.into_draws();
            let (nmi, found) = (mutual_information(draws.partition(0), &truth), draws.clusters[0]);
            wrong += usize::from(nmi < LEAST);
            let name = engine.name();
            let name = name.split(':').next().unwrap_or(&name).split(',').next().unwrap_or(&name);
            let line = format!("{n},2,{clusters},{SWEEPS},{name},{turn},{ms:.2},{nmi:.4},{found}");
            println!("{line}");
            record.push(&line)?;
        }
    }
    ensure!(wrong == 0, "{wrong} chains did not find the clusters");
    println!("{}", record.path().display());
    Ok(())
}

/// Rows, and the cluster of each.
fn problem(n: usize, clusters: usize, seed: u64) -> Result<(Dataset, Vec<u32>)> {
    let means = Array2::from_shape_fn((clusters, 2), |(c, j)| {
        let (radius, angle) = (if c % 2 == 0 { 9.0 } else { 16.0 }, c as f64 * TAU / clusters as f64);
        radius * if j == 0 { angle.cos() } else { angle.sin() }
    });
    let covariances =
        Array3::from_shape_fn((clusters, 2, 2), |(c, i, j)| if i == j { 1.0 } else { 0.15 * c as f64 - 0.7 });
    let weights = Array1::from_elem(clusters, 1.0 / clusters as f64);
    let (x, labels) = sample(&Mixture::new(weights, means, Covariances::Full(covariances))?, n, seed)?;
    Ok((Dataset::new(x)?, labels.iter().map(|&label| label as u32).collect()))
}

/// Mutual information of two partitions over the mean of their entropies. An entropy is the distance from one cluster.
fn mutual_information(a: &[u32], b: &[u32]) -> f64 {
    let one = vec![0; a.len()];
    let entropies = variation_of_information(a, &one) + variation_of_information(b, &one);
    1.0 - variation_of_information(a, b) / entropies
}
