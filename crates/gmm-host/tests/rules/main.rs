//! Fits under a rule: priors, floors, dropped, fixed and shared components, labels.

mod bayes;
mod factors;
mod labels;
mod nasty;
mod noise;
mod objective;
mod reported;
mod steps;

use gmm_host::{CpuEngine, Engine, Fit, FitOptions, FitRule, Floor, Prior, ReferenceEngine, fit};
use gmm_model::{CovarianceType, Dataset, Mixture, SyntheticOptions, sample, synthetic};
use ndarray::Array2;

fn engines() -> [Box<dyn Engine>; 2] {
    [Box::new(CpuEngine::new(2).unwrap()), Box::new(ReferenceEngine)]
}

fn cpu(rows: &Array2<f64>, options: &FitOptions) -> Fit {
    fit(&CpuEngine::new(1).unwrap(), &Dataset::new(rows.clone()).unwrap(), options).unwrap()
}

/// Rows of a mixture with well-separated components.
fn separated(n: usize, k: usize, d: usize) -> Array2<f64> {
    let options = SyntheticOptions { separation: 6.0, ..SyntheticOptions::default() };
    let truth = synthetic(k, d, CovarianceType::Full, 5, &options).unwrap();
    sample(&truth, n, 11).unwrap().0
}

fn with(rule: FitRule, k: usize, kind: CovarianceType) -> FitOptions {
    FitOptions { covariance_type: kind, rule, ..FitOptions::new(k) }
}

fn prior() -> FitRule {
    FitRule { prior: Prior::Conjugate, ..FitRule::none() }
}

fn floor(absolute: f64, relative: f64) -> FitRule {
    FitRule { floor: Floor { absolute, relative }, ..FitRule::none() }
}

#[track_caller]
fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0), "{a} and {b} differ by {:e}", (a - b).abs());
}

#[track_caller]
fn mixtures_close(a: &Mixture, b: &Mixture, tolerance: f64) {
    let (k, d) = a.means().dim();
    assert_eq!((k, d), b.means().dim());
    for c in 0..k {
        close(a.weights()[c], b.weights()[c], tolerance);
        let (left, right) = (a.covariances().matrix(c, d), b.covariances().matrix(c, d));
        a.means().row(c).iter().zip(b.means().row(c)).for_each(|(a, b)| close(*a, *b, tolerance));
        left.iter().zip(&right).for_each(|(a, b)| close(*a, *b, tolerance));
    }
}
