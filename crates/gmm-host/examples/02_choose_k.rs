//! Chooses the number of components and the kind of covariance by BIC.
//!
//! ```sh
//! cargo run --release -p gmm-host --example 02_choose_k
//! ```

use std::ops::ControlFlow;

use gmm_data::{ReadOptions, read_table};
use gmm_host::{CpuEngine, FitOptions, best, select};
use gmm_model::{CovarianceType, Criterion};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = read_table(DATA, &ReadOptions::default())?.into_dataset()?;
    let engine = CpuEngine::new(0)?;

    // Each candidate is shown as soon as it is fitted; `Break` would stop the selection.
    let kinds = [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag, CovarianceType::Spherical];
    let mut show = |candidate: &gmm_host::Candidate| {
        println!("k = {}, {:<9} BIC {:.1}", candidate.k, candidate.kind, candidate.value(Criterion::Bic));
        ControlFlow::Continue(())
    };
    let options = FitOptions { n_init: 3, ..FitOptions::new(1) };
    // Called after each EM iteration.
    let every = &mut |_: &gmm_host::Iteration<'_>| ControlFlow::Continue(());
    let candidates = select(&engine, &data, &options, &[1, 2, 3, 4], &kinds, &mut show, every)?;

    // A candidate whose fit failed has an infinite value, so it is never the best.
    let chosen = &candidates[best(&candidates, Criterion::Bic).ok_or("no fit succeeded")?];
    println!("lowest BIC: k = {}, {}", chosen.k, chosen.kind);
    assert_eq!((chosen.k, chosen.kind), (3, CovarianceType::Tied.into()));
    Ok(())
}
