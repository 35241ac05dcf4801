//! Dirichlet process mixtures against the exact posterior over all partitions, and at larger sizes.

mod exact;
mod large;

use std::ops::ControlFlow;

use gmm_host::CpuEngine;
use gmm_mcmc::Error;
use gmm_mcmc::dp::{DpDraws, DpOptions, sample};
use gmm_model::{Dataset, Precision};

fn draws_on(threads: usize, data: &Dataset, options: &DpOptions) -> Result<DpDraws, Error> {
    let engine = CpuEngine::new(threads).unwrap();
    let work = || sample(&engine, data, Precision::F64, options, &mut |_| ControlFlow::Continue(()));
    gmm_host::on_threads(threads, work).unwrap()
}
