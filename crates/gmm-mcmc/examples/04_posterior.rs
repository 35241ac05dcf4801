//! Draws weights, means and covariances from their posterior by NUTS, and prints a summary.
//!
//! ```sh
//! cargo run --release -p gmm-mcmc --example 04_posterior
//! ```

use std::ops::ControlFlow;

use gmm_data::{ReadOptions, read_table};
use gmm_host::{CpuEngine, FitOptions, Likelihood, fit};
use gmm_mcmc::{Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Target, starts};
use gmm_model::{CovarianceType, Precision};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = read_table(DATA, &ReadOptions::default())?.into_dataset()?;
    let engine = CpuEngine::new(0)?;
    let fitted = fit(&engine, &data, &FitOptions::new(2))?;
    let mut likelihood = Likelihood::new(&engine, &data, Precision::F64)?;

    // Missing parts of the prior have defaults that scale with the data's columns.
    let prior = Prior::new(&PriorOptions::default(), CovarianceType::Full, 2, &data)?;
    let target = Target::new(prior)?;

    // Four chains start near the fit, each at a different point.
    let options = Options { draws: 250, warmup: 250, ..Options::new(Sampler::Nuts) };
    let seed = 0;
    let near = |chain| starts::about(&fitted.mixture, &target, &mut likelihood, seed, chain);
    let points = (0..options.chains).map(near).collect::<Result<Vec<_>, _>>()?;
    let mut run = Run::new(options, points)?;
    run.go_on(&mut likelihood, &target, &mut |_, _| ControlFlow::Continue(()))?;

    // The order of components is arbitrary. `Pivot` reorders each draw to match the draw with the highest posterior
    // density.
    let posterior = Posterior::new(&run, &target, Relabel::Pivot)?;
    println!("{:<12} {:>8} {:>8} {:>8} {:>8} {:>6}", "", "mean", "sd", "5%", "95%", "r_hat");
    let summary = posterior.summary();
    for row in summary.iter().filter(|row| !row.name.starts_with("covariances")) {
        let gmm_mcmc::SummaryRow { name, mean, sd, q5, q95, r_hat, .. } = row;
        println!("{name:<12} {mean:>8.3} {sd:>8.3} {q5:>8.3} {q95:>8.3} {r_hat:>6.3}");
    }

    // The posterior means are within two posterior standard deviations of the maximum of the likelihood.
    let first = |name: &str| summary.iter().find(|row| row.name == name).expect("a parameter");
    for c in 0..2 {
        let row = first(&format!("means[{c},0]"));
        let nearest = fitted.mixture.means().column(0).iter().map(|m| (m - row.mean).abs()).fold(f64::MAX, f64::min);
        assert!(nearest < 2.0 * row.sd, "{} {nearest}", row.name);
    }
    Ok(())
}
