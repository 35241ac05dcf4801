//! Variational Bayes against closed forms, enumeration, and its own bound.

use gmm_model::bayes::{BayesPrior, Posterior, PosteriorNumbers, WeightPosterior, WeightPrior};
use gmm_model::{CovarianceType, Covariances, Draws, Mixture, PriorScale, Statistics, reference};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array};

const WEIGHTS: [WeightPrior; 2] =
    [WeightPrior::Dirichlet { concentration: 0.4 }, WeightPrior::DirichletProcess { concentration: 1.3 }];

fn prior(kind: CovarianceType, d: usize, weights: WeightPrior) -> BayesPrior {
    let scale = match kind {
        CovarianceType::Full | CovarianceType::Tied => {
            PriorScale::Matrix(Array2::from_shape_fn((d, d), |(i, j)| if i == j { 1.5 + i as f64 } else { 0.3 }))
        }
        CovarianceType::Diag => PriorScale::Variances((0..d).map(|j| 0.5 + j as f64).collect()),
        CovarianceType::Spherical => PriorScale::Variance(0.7),
    };
    let mean = (0..d).map(|j| 0.2 * j as f64).collect();
    BayesPrior { weights, mean, mean_precision: 0.8, degrees_of_freedom: d as f64 + 0.5, scale }
}

/// Rows about two points.
fn rows(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let mut draws = Draws::new(seed, 0);
    Array2::from_shape_fn((n, d), |(i, j)| draws.normal() + if i % 3 == 0 { 4.0 } else { j as f64 })
}

/// The statistics of rows that belong to the nearest centre.
fn nearest(kind: CovarianceType, centres: ArrayView2<'_, f64>, x: ArrayView2<'_, f64>) -> Statistics {
    let (k, d) = centres.dim();
    let narrow = 1e-9;
    let covariances = match kind {
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { narrow } else { 0.0 }))
        }
        CovarianceType::Tied => Covariances::Tied(Array2::eye(d) * narrow),
        CovarianceType::Diag => Covariances::Diag(Array2::from_elem((k, d), narrow)),
        CovarianceType::Spherical => Covariances::Spherical(Array1::from_elem(k, narrow)),
    };
    let mixture = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), centres.to_owned(), covariances).unwrap();
    reference::statistics(&mixture, x, None)
}

/// The first posterior, from some responsibilities.
fn start(prior: &BayesPrior, kind: CovarianceType, x: ArrayView2<'_, f64>, k: usize) -> Posterior {
    let seeds = x.select(Axis(0), &(0..k).map(|c| c * (x.nrows() / k)).collect::<Vec<_>>());
    prior.update(&nearest(kind, seeds.view(), x), 0.0).unwrap()
}

/// The bound of a posterior, and the next posterior.
fn iterate(posterior: &Posterior, x: ArrayView2<'_, f64>, weights: Option<&[f64]>) -> (f64, Posterior) {
    let step = posterior.expectation().unwrap();
    let statistics = reference::statistics(&step.mixture, x, weights);
    let bound = statistics.log_likelihood + statistics.total_weight * step.log_scale - posterior.divergence();
    (bound, posterior.prior().update(&statistics, 0.0).unwrap())
}

#[test]
fn the_bound_never_falls() {
    for kind in CovarianceType::ALL {
        for weights in WEIGHTS {
            for (seed, (n, d, k)) in [(30, 2, 3), (50, 1, 4), (12, 4, 5), (60, 3, 2)].into_iter().enumerate() {
                let x = rows(n, d, seed as u64);
                let row_weights: Vec<f64> = (0..n).map(|i| 0.5 + (i % 4) as f64).collect();
                for w in [None, Some(row_weights.as_slice())] {
                    let mut posterior = start(&prior(kind, d, weights), kind, x.view(), k);
                    let mut last = f64::NEG_INFINITY;
                    for iteration in 0..60 {
                        let (bound, next) = iterate(&posterior, x.view(), w);
                        let rounding = 64.0 * f64::EPSILON * n as f64 * bound.abs();
                        assert!(bound >= last - rounding, "{kind} {weights:?} {n} {d} {k} {iteration}: {last} {bound}");
                        (last, posterior) = (bound, next);
                    }
                }
            }
        }
    }
}

/// The log evidence of a normal model of one component, by the chain rule: the rows' predictive densities, each given
/// the rows before it.
fn chained(prior: &BayesPrior, kind: CovarianceType, x: ArrayView2<'_, f64>) -> f64 {
    let d = x.ncols();
    let mut total = 0.0;
    for i in 0..x.nrows() {
        let numbers = PosteriorNumbers {
            weights: WeightPosterior::Dirichlet(array![1.0]),
            mean_precision: array![prior.mean_precision],
            degrees_of_freedom: array![prior.degrees_of_freedom],
        };
        let posterior = if i == 0 {
            // The prior as a posterior.
            let nu = prior.degrees_of_freedom;
            let covariances = match &prior.scale {
                PriorScale::Matrix(a) if kind == CovarianceType::Tied => Covariances::Tied(a / nu),
                PriorScale::Matrix(a) => Covariances::Full((a / nu).insert_axis(Axis(0))),
                PriorScale::Variances(v) => Covariances::Diag((v / nu).insert_axis(Axis(0))),
                PriorScale::Variance(v) => Covariances::Spherical(array![v / nu]),
            };
            let mixture = Mixture::new(array![1.0], prior.mean.clone().insert_axis(Axis(0)), covariances).unwrap();
            Posterior::new(prior.clone(), numbers, mixture).unwrap()
        } else {
            let centre = Array2::zeros((1, d));
            prior.update(&nearest(kind, centre.view(), x.slice(ndarray::s![..i, ..])), 0.0).unwrap()
        };
        total += posterior.predictive().log_density(x.row(i));
    }
    total
}

fn one_component(kind: CovarianceType, d: usize) -> BayesPrior {
    prior(kind, d, WeightPrior::Dirichlet { concentration: 0.4 })
}

#[test]
fn one_component_has_the_closed_form_of_the_evidence() {
    for kind in CovarianceType::ALL {
        for (n, d) in [(1, 1), (7, 2), (40, 3), (100, 5)] {
            let (x, prior) = (rows(n, d, 9), one_component(kind, d));
            let posterior = start(&prior, kind, x.view(), 1);
            let bound = iterate(&posterior, x.view(), None).0;
            let evidence = chained(&prior, kind, x.view());
            assert!((bound - evidence).abs() <= 1e-10 * evidence.abs(), "{kind} {n} {d}: {bound} {evidence}");
        }
    }
}

#[test]
fn the_bound_is_below_the_evidence_over_all_partitions() {
    let alpha = 0.4;
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let (n, d) = (8, 2);
        let (x, prior) = (rows(n, d, 4), one_component(kind, d));
        let mut logs = Vec::new();
        for code in 0..1usize << n {
            // Dirichlet-multinomial probability of the labels, times the evidence of each component's rows.
            let members = |c| (0..n).filter(|i| (code >> i) & 1 == c).collect::<Vec<_>>();
            let gamma = |v| libm::lgamma(v);
            let mut log = gamma(2.0 * alpha) - gamma(2.0 * alpha + n as f64);
            for c in [0, 1] {
                let of = members(c);
                log += gamma(alpha + of.len() as f64) - gamma(alpha);
                log += chained(&prior, kind, x.select(Axis(0), &of).view());
            }
            logs.push(log);
        }
        let evidence = reference::log_sum_exp(&logs);
        let mut posterior = start(&prior, kind, x.view(), 2);
        let mut bound = f64::NEG_INFINITY;
        for _ in 0..200 {
            (bound, posterior) = iterate(&posterior, x.view(), None);
        }
        // At most ln 2 is lost because the labels of the components can be exchanged; the rest is the factorisation.
        assert!(bound <= evidence && bound > evidence - 3.0, "{kind}: {bound} {evidence}");
    }
}

#[test]
fn the_predictive_density_is_the_average_over_draws() {
    for kind in CovarianceType::ALL {
        for weights in WEIGHTS {
            let x = rows(40, 2, 3);
            let mut posterior = start(&prior(kind, 2, weights), kind, x.view(), 3);
            for _ in 0..5 {
                posterior = iterate(&posterior, x.view(), None).1;
            }
            let at = array![[0.5, 0.5], [4.0, 3.0], [-6.0, 2.0]];
            let (mut draws, count) = (Draws::new(1, 0), 20_000);
            let (mut mean, mut squares) = (Array1::<f64>::zeros(3), Array1::<f64>::zeros(3));
            for _ in 0..count {
                let mixture = posterior.draw(&mut draws).unwrap();
                let densities = reference::log_densities(&mixture, at.view()).mapv(f64::exp);
                mean += &(&densities / f64::from(count));
                squares += &(&densities * &densities / f64::from(count));
            }
            for (i, row) in at.outer_iter().enumerate() {
                let density = posterior.predictive().log_density(row).exp();
                let standard_error = ((squares[i] - mean[i] * mean[i]) / f64::from(count)).sqrt();
                // Drawn sticks are divided by their sum; the mean weights only after averaging.
                let by_sum = if matches!(weights, WeightPrior::Dirichlet { .. }) { 0.0 } else { 0.03 * mean[i] };
                let error = (density - mean[i]).abs();
                assert!(error < 5.0 * standard_error + by_sum, "{kind} {weights:?} {row}: {density} {}", mean[i]);
            }
        }
    }
}

#[test]
fn a_component_without_rows_has_the_prior_as_posterior_and_is_pruned() {
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let x = rows(30, 2, 8);
        let centres = array![[1.0, 1.0], [1e3, 1e3]];
        let prior = prior(kind, 2, WEIGHTS[1]);
        let posterior = prior.update(&nearest(kind, centres.view(), x.view()), 0.0).unwrap();
        assert_eq!((posterior.counts()[1], posterior.mean_precision()[1]), (0.0, prior.mean_precision));
        assert!((&posterior.mixture().means().row(1) - &prior.mean).iter().all(|v| v.abs() < 1e-12));
        assert_eq!(posterior.degrees_of_freedom()[1], prior.degrees_of_freedom);
        assert_eq!((posterior.used(0.5), posterior.pruned(0.5).unwrap().n_components()), (vec![0], 1));
        assert!(posterior.effective_components() < 2.0);
    }
}

#[test]
fn an_update_from_a_mixture_is_that_of_its_rows() {
    for kind in CovarianceType::ALL {
        let x = rows(50, 3, 6);
        let statistics = nearest(kind, array![[0.0, 1.0, 2.0], [4.0, 4.0, 4.0]].view(), x.view());
        let mixture = gmm_model::m_step(&statistics, 0.0, None).unwrap().mixture;
        let prior = prior(kind, 3, WEIGHTS[0]);
        let (direct, by_mixture) =
            (prior.update(&statistics, 0.0).unwrap(), prior.update_from(&mixture, 50.0).unwrap());
        let pairs = direct.mixture().covariances().values().zip(by_mixture.mixture().covariances().values());
        for (a, b) in pairs.chain(direct.mixture().means().iter().zip(by_mixture.mixture().means())) {
            assert!((a - b).abs() <= 1e-13 * (1.0 + a.abs()), "{kind}: {a} {b}");
        }
    }
}

#[test]
fn a_posterior_from_counts_and_parameters_is_that_of_the_update() {
    let x = rows(40, 3, 9);
    for kind in CovarianceType::ALL {
        for weights in WEIGHTS {
            let prior = prior(kind, 3, weights);
            let statistics = nearest(kind, x.slice(ndarray::s![..2, ..]), x.view());
            let wanted = prior.update(&statistics, 0.1).unwrap();
            let (means, covariances) = (wanted.mixture().means().to_owned(), wanted.mixture().covariances().clone());
            let found = prior.posterior_of(&statistics.weight, means.clone(), covariances.clone()).unwrap();
            assert_eq!(found, wanted, "{kind}");
            for counts in [vec![1.0], vec![f64::NAN, 1.0], vec![-1.0, 1.0]] {
                assert!(prior.posterior_of(&counts, means.clone(), covariances.clone()).is_err(), "{kind} {counts:?}");
            }
        }
    }
}

#[test]
fn wrong_priors_are_refused() {
    let good = prior(CovarianceType::Full, 2, WEIGHTS[0]);
    let check = |wrong: BayesPrior| wrong.check(CovarianceType::Full, 2).unwrap_err().to_string();
    let cases = [
        (BayesPrior { weights: WeightPrior::Dirichlet { concentration: 0.0 }, ..good.clone() }, "concentration"),
        (BayesPrior { mean: array![1.0], ..good.clone() }, "mean prior"),
        (BayesPrior { mean_precision: -1.0, ..good.clone() }, "mean precision"),
        (BayesPrior { degrees_of_freedom: 1.0, ..good.clone() }, "degrees of freedom"),
        (BayesPrior { scale: PriorScale::Matrix(array![[1.0, 2.0], [2.0, 1.0]]), ..good.clone() }, "covariance prior"),
        (BayesPrior { scale: PriorScale::Variance(1.0), ..good.clone() }, "covariance prior"),
    ];
    for (wrong, what) in cases {
        assert!(check(wrong).contains(what), "{what}");
    }
    assert!(good.check(CovarianceType::Full, 2).is_ok());
}
