//! Agreement of two samplers that share only the density, and with a posterior known in closed form.

use gmm_mcmc::{CovariancesPrior, MeansPrior, PerColumn, PriorOptions, Sampler, SummaryRow};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, packed_index};
use ndarray::{Array3, array};

use crate::{Case, options};

/// Standard error of a posterior mean.
fn error(row: &SummaryRow) -> f64 {
    row.sd / row.ess_bulk.sqrt()
}

#[test]
fn both_samplers_agree_on_means_and_deviations() {
    // Overlapping components and few rows: the posterior is skewed, and far from the parameters that generated the
    // data.
    let covariances =
        Covariances::Full(Array3::from_shape_vec((2, 2, 2), vec![1.0, 0.5, 0.5, 1.0, 1.0, -0.5, -0.5, 2.0]).unwrap());
    let truth = Mixture::new(array![0.4, 0.6], array![[-1.5, 0.0], [1.5, 0.5]], covariances).unwrap();
    let mut case = Case::of(&truth, 90, &PriorOptions::default());
    let nuts = case.posterior(options(Sampler::Nuts, 2500, 500)).summary();
    let walk = case.posterior(options(Sampler::Rwm, 30_000, 4000)).summary();
    assert_eq!(nuts.len(), 2 + 4 + 6 + 1);
    for (a, b) in nuts.iter().zip(&walk) {
        assert_eq!(a.name, b.name);
        assert!(a.r_hat < 1.02 && b.r_hat < 1.02 && a.ess_bulk > 300.0 && b.ess_bulk > 300.0, "{a:?} {b:?}");
        // Five standard errors: with random seeds this would fail about once in 10⁵ runs for 13 parameters.
        let apart = (a.mean - b.mean).abs() / error(a).hypot(error(b));
        assert!(apart < 5.0, "{}: means {} and {}, {apart} standard errors", a.name, a.mean, b.mean);
        // The logarithm of a standard deviation has a standard error of about (ess (4 / (κ − 1)))^-1/2 for kurtosis κ,
        // here up to 12, so 1.7 / √ess.
        let apart = (a.sd / b.sd).ln().abs() / (1.7 * (1.0 / a.ess_tail + 1.0 / b.ess_tail).sqrt());
        assert!(apart < 5.0, "{}: deviations {} and {}, {apart} standard errors", a.name, a.sd, b.sd);
    }
}

#[test]
fn one_component_has_the_posterior_of_the_textbook() {
    // A flat prior for the mean and an inverse-Wishart for the covariance are conjugate: the posterior of the
    // covariance is inverse-Wishart with ν + n − 1 degrees of freedom and scale Ψ + S, that of the mean a Student t
    // about the mean of the rows.
    let rows = array![[0.3, 1.0], [1.8, 0.2], [-0.7, 0.4], [0.9, 2.2], [2.1, 1.1], [0.0, -0.8], [1.1, 1.9], [0.4, 0.1]];
    let (n, d, nu, psi) = (8.0, 2.0, 5.0, 0.5);
    let prior = PriorOptions {
        means: Some(MeansPrior::Flat),
        covariances: Some(CovariancesPrior::InverseWishart {
            degrees_of_freedom: Some(nu),
            scale: Some(PerColumn::All(psi)),
        }),
        weights: None,
    };
    let centre = rows.mean_axis(ndarray::Axis(0)).unwrap();
    let centred = &rows - &centre;
    let scale = centred.t().dot(&centred) + psi * ndarray::Array2::<f64>::eye(2);
    let df = nu + n - 1.0;
    let mean_covariance = &scale / (df - d - 1.0);
    for (sampler, draws) in [(Sampler::Nuts, 3000), (Sampler::Rwm, 20_000)] {
        let mut case = Case::on(Dataset::new(rows.clone()).unwrap(), CovarianceType::Full, 1, &prior);
        let summary = case.posterior(options(sampler, draws, 500)).summary();
        let close = |row: &SummaryRow, want: f64| {
            let apart = (row.mean - want).abs() / error(row);
            assert!(apart < 5.0, "{sampler:?}: {row:?}, want {want}: {apart} standard errors");
        };
        assert_eq!(summary[0].name, "weights[0]");
        assert_eq!((summary[0].mean, summary[0].sd), (1.0, 0.0));
        for j in 0..2 {
            close(&summary[1 + j], centre[j]);
            // Var(μ) = E[Σ] / n. The relative error of the standard deviation of the draws is below 2 / √ess.
            let want = (mean_covariance[[j, j]] / n).sqrt();
            let apart = (summary[1 + j].sd / want).ln().abs() * summary[1 + j].ess_tail.sqrt() / 2.0;
            assert!(apart < 5.0, "{sampler:?}: {:?}, want a deviation of {want}", summary[1 + j]);
            (0..=j).for_each(|i| close(&summary[3 + packed_index(j, i)], mean_covariance[[i, j]]));
        }
    }
}
