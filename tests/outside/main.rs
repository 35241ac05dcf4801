//! A crate outside the workspace: fits two groups of rows, on a GPU if this build has that engine and a GPU is present.

use gmm_host::{Device, FitOptions, fit};
use gmm_model::{Dataset, Mixture};
use ndarray::array;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two groups: 60 % of the rows around (0, 0), 40 % around (8, 8).
    let truth = Mixture::new(
        array![0.6, 0.4],
        array![[0.0, 0.0], [8.0, 8.0]],
        gmm_model::Covariances::Spherical(array![1.0, 1.0]),
    )?;
    let (rows, _) = gmm_model::sample(&truth, 1000, 0)?;
    let opened = Device::Auto.open(1)?;
    println!("engine: {} ({})", opened.engine.name(), opened.reason);
    let fitted = fit(opened.engine.as_ref(), &Dataset::new(rows)?, &FitOptions::new(2))?;
    println!("weights: {:.2}", fitted.mixture.weights());
    println!("means: {:.1}", fitted.mixture.means());
    if let Err(why) = Device::Cuda(0).open(1) {
        println!("cuda: {why}");
    }
    Ok(())
}
