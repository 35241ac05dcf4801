//! A custom engine: the EM pass and evaluation are plain loops over rows; everything else is inherited.
//!
//! `fit`, `evaluate` and `select` take `&dyn Engine`, so any type that implements `Engine` can be used.
//!
//! ```sh
//! cargo run --release -p gmm-host --example 07_engine
//! ```

use gmm_data::{ReadOptions, read_table};
use gmm_host::{CpuEngine, Engine, Error, EvaluateOptions, Evaluation, FitOptions, Inherit, OwnPasses, Resident, fit};
use gmm_model::{Dataset, Mixture, Precision, Statistics, reference};
use ndarray::Array2;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");

struct Loops;

impl Engine for Loops {
    fn name(&self) -> String {
        "loops".to_owned()
    }

    fn description(&self) -> String {
        "plain loops, one thread".to_owned()
    }

    fn load(&self, data: &Dataset, _: Precision, _: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let weights = (0..data.n_rows()).map(|row| data.weight(row)).collect();
        let own = Rows { rows: data.rows().to_f64(), weights };
        Ok(Box::new(Inherit::new(own, data)))
    }
}

struct Rows {
    /// `(n, d)`.
    rows: Array2<f64>,
    /// `(n,)`.
    weights: Vec<f64>,
}

impl OwnPasses for Rows {
    /// The pass that EM makes once per iteration: responsibilities, and their moments about the means.
    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let mut total = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
        for (x, &weight) in self.rows.outer_iter().zip(&self.weights) {
            let (log_density, responsibilities) = reference::posterior(mixture, x);
            reference::accumulate(&mut total, x, weight, responsibilities.view());
            total.log_likelihood += weight * log_density;
        }
        Ok(total)
    }

    /// Writes the requested outputs per row (log density, responsibilities, label), and returns totals over all rows.
    fn evaluate(&mut self, mixture: &Mixture, mut want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        let k = mixture.n_components();
        let mut total = Evaluation { log_likelihood: 0.0, entropy: 0.0, total_weight: 0.0 };
        for (i, (x, &weight)) in self.rows.outer_iter().zip(&self.weights).enumerate() {
            let (log_density, r) = reference::posterior(mixture, x);
            total.log_likelihood += weight * log_density;
            total.entropy -= weight * r.iter().filter(|r| **r > 0.0).map(|r| r * r.ln()).sum::<f64>();
            total.total_weight += weight;
            if let Some(out) = &mut want.log_densities {
                out[i] = log_density;
            }
            if let Some(out) = &mut want.responsibilities {
                out.put(i * k, r.iter().copied());
            }
            if let Some(out) = &mut want.labels {
                out[i] = reference::argmax(r.view()) as u32;
            }
        }
        Ok(total)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = read_table(DATA, &ReadOptions::default())?.into_dataset()?;
    let ours = fit(&Loops, &data, &FitOptions::new(2))?;
    let cpu = fit(&CpuEngine::new(0)?, &data, &FitOptions::new(2))?;
    for (name, fitted) in [("loops", &ours), ("cpu", &cpu)] {
        println!(
            "{name:<6} log-likelihood {:.6}, {} iterations",
            fitted.summary.log_likelihood, fitted.summary.iterations
        );
    }
    // The order of summation differs, so the results agree only up to rounding.
    let (a, b) = (ours.summary.log_likelihood, cpu.summary.log_likelihood);
    assert!((a - b).abs() < 1e-9 * b.abs(), "{a} {b}");
    Ok(())
}
