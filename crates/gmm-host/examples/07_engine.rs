//! An engine of one's own: the passes of EM as plain loops over rows, the rest taken from the reference engine.
//!
//! `fit`, `evaluate` and `select` take `&dyn Engine`, so whatever implements the two traits can be handed to them.
//!
//! ```sh
//! cargo run --release -p gmm-host --example 07_engine
//! ```

use std::ops::Range;

use gmm_data::{ReadOptions, read_table};
use gmm_host::init::{RowDraw, WeighedRows};
use gmm_host::{
    CpuEngine, Engine, Error, Evaluation, FillResponsibilities, FitOptions, ReferenceEngine, Resident, Wanted, fit,
};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, Statistics, reference};
use ndarray::{Array2, ArrayView2};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");

struct Loops;

impl Engine for Loops {
    fn name(&self) -> String {
        "loops".to_owned()
    }

    fn description(&self) -> String {
        "plain loops, one thread".to_owned()
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let rest = ReferenceEngine.load(data, precision, shift)?;
        let weights = (0..data.n_rows()).map(|row| data.weight(row)).collect();
        Ok(Box::new(Rows { rows: data.rows().to_f64(), weights, rest }))
    }
}

struct Rows {
    /// `(n, d)`.
    rows: Array2<f64>,
    /// `(n,)`.
    weights: Vec<f64>,
    /// Starts and evaluation.
    rest: Box<dyn Resident>,
}

impl Resident for Rows {
    fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    /// The pass that EM calls once an iteration: responsibilities, and their moments about the means.
    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let mut total = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
        for (x, &weight) in self.rows.outer_iter().zip(&self.weights) {
            let (log_density, responsibilities) = reference::posterior(mixture, x);
            reference::accumulate(&mut total, x, weight, responsibilities.view());
            total.log_likelihood += weight * log_density;
        }
        Ok(total)
    }

    // What follows is another engine's. An engine of one's own may replace one after the other.
    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        self.rest.sample(rows, weights)
    }

    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.rest.nearest(kind, centres)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.rest.given(kind, centres, fill)
    }

    fn forget_centres(&mut self) {
        self.rest.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.rest.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.rest.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.rest.add_drawn(which)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.rest.near(ranges)
    }

    fn evaluate(&mut self, mixture: &Mixture, want: Wanted<'_>) -> Result<Evaluation, Error> {
        self.rest.evaluate(mixture, want)
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
    // Sums are taken in another order: the same up to rounding.
    let (a, b) = (ours.summary.log_likelihood, cpu.summary.log_likelihood);
    assert!((a - b).abs() < 1e-9 * b.abs(), "{a} {b}");
    Ok(())
}
