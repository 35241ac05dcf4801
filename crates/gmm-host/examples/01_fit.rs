//! Fits two components to the eruptions of Old Faithful, and computes the labels of its rows.
//!
//! ```sh
//! cargo run --release -p gmm-host --example 01_fit
//! ```

use gmm_data::{ReadOptions, read_table};
use gmm_host::{Device, FitOptions, evaluate, fit};
use gmm_model::Precision;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Checked rows, (272, 2): minutes that an eruption lasts, minutes until the next eruption.
    let data = read_table(DATA, &ReadOptions::default())?.into_dataset()?;

    // `auto` selects a GPU if there is one and this build has the feature `cuda`; otherwise the CPU. 0 means all cores.
    let opened = Device::Auto.open(0)?;
    let engine = opened.engine.as_ref();
    println!("engine {}: {}", engine.name(), opened.reason);

    // Full covariances, initialisation by k-means, tolerance 1e-3: the defaults of scikit-learn.
    let fitted = fit(engine, &data, &FitOptions::new(2))?;
    println!("weights {:.4}", fitted.mixture.weights());
    println!("means\n{:.3}", fitted.mixture.means());
    println!("log-likelihood {:.3}, BIC {:.3}", fitted.summary.log_likelihood, fitted.summary.bic);

    let labels = evaluate::labels(engine, &fitted.mixture, &data, Precision::F64)?;
    println!("components of the first rows: {:?}", &labels.as_slice().expect("contiguous")[..6]);

    assert!((fitted.summary.log_likelihood + 1130.264).abs() < 1e-3);
    assert_eq!(labels.as_slice().expect("contiguous")[..3], [1, 0, 1]);
    Ok(())
}
