//! Priors: densities integrate to 1, gradients agree with finite differences; defaults, and errors for invalid priors.

use gmm_host::Unconstrained;
use gmm_mcmc::{CovariancesPrior, MeansPrior, PerColumn, Prior, PriorOptions, WeightsPrior};
use gmm_model::{CovarianceType, Dataset, Draws, packed_len};
use ndarray::{Array2, array};

/// Rows whose columns have different scales.
fn data(n: usize, d: usize) -> Dataset {
    let mut draws = Draws::new(5, d as u64);
    Dataset::new(Array2::from_shape_simple_fn((n, d), || 3.0 + draws.normal() * 2.0)).unwrap()
}

fn options(covariances: CovariancesPrior) -> PriorOptions {
    let weights = Some(WeightsPrior::Dirichlet { concentration: Some(2.5) });
    PriorOptions { weights, means: None, covariances: Some(covariances) }
}

fn matrices() -> [CovariancesPrior; 2] {
    [
        CovariancesPrior::InverseWishart { degrees_of_freedom: Some(7.5), scale: None },
        CovariancesPrior::Lkj { eta: Some(3.0), scale: None },
    ]
}

fn variances() -> [CovariancesPrior; 2] {
    [
        CovariancesPrior::InverseGamma { shape: Some(2.5), scale: None },
        CovariancesPrior::HalfNormal { scale: Some(PerColumn::All(1.7)) },
    ]
}

fn every_prior(mut check: impl FnMut(&Prior, &str)) {
    use CovarianceType::{Diag, Full, Spherical, Tied};
    for (k, d) in [(1, 1), (2, 1), (3, 2), (2, 4)] {
        let data = data(40, d);
        for (kinds, priors) in [([Full, Tied], matrices()), ([Diag, Spherical], variances())] {
            for (kind, prior) in kinds.into_iter().flat_map(|kind| priors.iter().map(move |p| (kind, p))) {
                check(
                    &Prior::new(&options(prior.clone()), kind, k, &data).unwrap(),
                    &format!("{kind} {k} {d} {prior:?}"),
                );
            }
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_densities() {
    every_prior(|prior, what| {
        let (k, d) = prior.dim();
        let m = Unconstrained::new(prior.kind(), k, d).unwrap().dim();
        let mut draws = Draws::new(7, m as u64);
        let point: Vec<f64> = (0..m).map(|_| 0.7 * draws.normal()).collect();
        let mut gradient = vec![0.25; m];
        let value = prior.log_density(&point, Some(&mut gradient));
        assert_eq!(value, prior.log_density(&point, None), "{what}");
        for i in 0..m {
            let at = |h: f64| {
                let mut moved = point.clone();
                moved[i] += h;
                prior.log_density(&moved, None)
            };
            let h = 1e-3;
            let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
            // The gradient was added to 0.25. The error of the five-point formula is h⁴ times a fifth derivative, here
            // of an exponential whose exponent may be four times the coordinate.
            let (found, size) = (gradient[i] - 0.25, 1.0 + slope.abs());
            assert!((found - slope).abs() < 1e-8 * size.max(value.abs()), "{what} [{i}]: {found}, want {slope}");
        }
    });
}

/// The integral of a density, with the Jacobian of the map, over the last coordinates; the first ones are fixed at 0.
/// By the trapezoidal rule, which is accurate enough for functions that decay as fast as these. `grid` has the range
/// and the number of steps of each coordinate.
fn integral(prior: &Prior, grid: &[(f64, f64, usize)]) -> f64 {
    let (k, d) = prior.dim();
    let map = Unconstrained::new(prior.kind(), k, d).unwrap();
    let mut point = vec![0.0; map.dim()];
    let first = point.len() - grid.len();
    let mut sum = 0.0;
    for at in 0..grid.iter().map(|g| g.2).product::<usize>() {
        let mut rest = at;
        for (slot, (low, high, steps)) in point[first..].iter_mut().zip(grid) {
            *slot = low + (high - low) * (rest % steps) as f64 / *steps as f64;
            rest /= steps;
        }
        sum += (prior.log_density(&point, None) + map.log_jacobian(&point).unwrap()).exp();
    }
    sum * grid.iter().map(|(low, high, steps)| (high - low) / *steps as f64).product::<f64>()
}

#[test]
fn densities_integrate_to_one() {
    let check = |weights, means, covariances: CovariancesPrior, kind, k, d, grid: &[(f64, f64, usize)]| {
        let options = PriorOptions { weights, means: Some(means), covariances: Some(covariances.clone()) };
        let prior = Prior::new(&options, kind, k, &data(40, d)).unwrap();
        let found = integral(&prior, grid);
        assert!((found - 1.0).abs() < 1e-4, "{covariances:?} {kind} {k} {d}: {found}");
    };
    let one = Some(PerColumn::All(1.0));
    let wishart = |nu| CovariancesPrior::InverseWishart { degrees_of_freedom: Some(nu), scale: one.clone() };
    // A log ratio of weights, two means, the shared standard deviation.
    let weights = Some(WeightsPrior::Dirichlet { concentration: Some(3.0) });
    let means = MeansPrior::Normal { mean: Some(PerColumn::All(0.5)), sd: Some(PerColumn::All(2.0)) };
    let mean = (-11.5, 12.5, 30);
    let grid = [(-9.0, 9.0, 50), mean, mean, (-2.5, 3.5, 50)];
    check(weights, means, wishart(6.0), CovarianceType::Tied, 2, 1, &grid);
    // Only the scales: a flat prior for the mean does not depend on it.
    let scales = |covariances, kind, d, grid: &[(f64, f64, usize)]| {
        check(None, MeansPrior::Flat, covariances, kind, 1, d, grid);
    };
    let inverse_gamma = CovariancesPrior::InverseGamma { shape: Some(2.5), scale: one.clone() };
    scales(inverse_gamma, CovarianceType::Spherical, 1, &[(-4.0, 8.0, 400)]);
    let half_normal = CovariancesPrior::HalfNormal { scale: one.clone() };
    scales(half_normal.clone(), CovarianceType::Diag, 1, &[(-16.0, 4.0, 400)]);
    scales(half_normal, CovarianceType::Diag, 2, &[(-16.0, 4.0, 400), (-16.0, 4.0, 400)]);
    scales(wishart(9.0), CovarianceType::Full, 2, &[(-2.5, 3.0, 60), (-12.0, 12.0, 600), (-2.5, 2.5, 60)]);
}

#[test]
fn the_lkj_prior_of_two_columns_is_its_definition() {
    let (eta, scale) = (2.5, [1.3, 0.7]);
    let covariances = CovariancesPrior::Lkj { eta: Some(eta), scale: Some(PerColumn::Each(scale.to_vec())) };
    let options = PriorOptions { means: Some(MeansPrior::Flat), covariances: Some(covariances), weights: None };
    let prior = Prior::new(&options, CovarianceType::Full, 1, &data(40, 2)).unwrap();
    // ∫ (1 − r²)^1.5 dr from −1 to 1.
    let integral = 3.0 * std::f64::consts::PI / 8.0;
    for (deviations, r) in [([1.0, 1.0], 0.0), ([0.4, 2.0], -0.8), ([3.0, 0.1], 0.95)] {
        let half_normal = |t: f64, s: f64| (2.0 / std::f64::consts::PI).sqrt() / s * (-0.5 * (t / s).powi(2)).exp();
        let [t, u] = deviations;
        // The variances are t² and u², the covariance is r t u.
        let jacobian = 2.0 * t * 2.0 * u * t * u;
        let correlation = (1.0_f64 - r * r).powf(eta - 1.0) / integral;
        let want = (half_normal(t, scale[0]) * half_normal(u, scale[1]) * correlation / jacobian).ln();
        let point = [0.0, 0.0, t.ln(), r * u, (u * (1.0 - r * r).sqrt()).ln()];
        let found = prior.log_density(&point, None);
        assert!((found - want).abs() < 1e-12 * want.abs().max(10.0), "{deviations:?} {r}: {found}, want {want}");
    }
}

#[test]
fn the_lkj_prior_of_three_columns_has_its_constant() {
    // By a change of variables the integral of a power of the determinant is a product over partial correlations
    // (equation 11 of Lewandowski, Kurowicka and Joe): for d = 3, two of shape η + 1/2 and one of shape η.
    let data = data(40, 3);
    let at = |eta: f64| {
        let covariances = CovariancesPrior::Lkj { eta: Some(eta), scale: Some(PerColumn::All(1.0)) };
        let options = PriorOptions { covariances: Some(covariances), ..PriorOptions::default() };
        let prior = Prior::new(&options, CovarianceType::Full, 1, &data).unwrap();
        // At the identity ln |R| = 0, so every term except the constant is the same for all shapes.
        prior.log_density(&vec![0.0; 3 + packed_len(3)], None)
    };
    let ln_integral = |shape: f64| {
        let steps = 20_000;
        let value = |i: usize| (1.0 - (-1.0 + 2.0 * (i as f64 + 0.5) / steps as f64).powi(2)).powf(shape - 1.0);
        (2.0 / steps as f64 * (0..steps).map(value).sum::<f64>()).ln()
    };
    let constant = |eta: f64| 2.0 * ln_integral(eta + 0.5) + ln_integral(eta);
    let (found, want) = (at(4.0) - at(2.0), constant(2.0) - constant(4.0));
    assert!((found - want).abs() < 1e-6, "{found}, want {want}");
}

#[test]
fn defaults_follow_the_data() {
    // A change of units in a column changes the density only by its Jacobian: one factor for a mean, and d + 1 factors
    // for a full covariance in two columns.
    let data = data(60, 2);
    let factor = 1000.0;
    let mut rows = data.rows().to_f64();
    rows.column_mut(1).mapv_inplace(|v| factor * v);
    let scaled = Dataset::new(rows).unwrap();
    let new = |data: &Dataset| Prior::new(&PriorOptions::default(), CovarianceType::Full, 1, data).unwrap();
    let point = [2.0, 3.0, 0.3, 0.2, 0.1];
    let moved = [2.0, 3.0 * factor, 0.3, 0.2 * factor, 0.1 + factor.ln()];
    let (a, b) = (new(&data).log_density(&point, None), new(&scaled).log_density(&moved, None));
    assert!((a - b - 4.0 * factor.ln()).abs() < 1e-9, "{a} and {b}");
    // Rows in f32, which are read in blocks, give the same prior.
    let many = Array2::from_shape_fn((70_000, 2), |(i, j)| ((i * 7919 + j * 104_729) % 1013) as f32);
    let wide = Dataset::new(many.mapv(f64::from)).unwrap();
    assert_eq!(new(&Dataset::new(many).unwrap()), new(&wide));
    // A row of weight 2 counts as two equal rows.
    let rows = data.rows().to_f64();
    let twice = Dataset::new(ndarray::concatenate![ndarray::Axis(0), rows, rows]).unwrap();
    let weighted = data.clone().with_weights(vec![2.0; 60]).unwrap();
    assert_eq!(new(&weighted).log_density(&point, None), new(&data).log_density(&point, None));
    assert!((new(&twice).log_density(&point, None) - a).abs() < 1e-9);
}

#[test]
fn what_is_no_prior_is_refused_and_says_which_part() {
    let data = data(20, 2);
    let refused = |text: &str, kind, k, parts: &[&str]| {
        let made = PriorOptions::from_toml(text).and_then(|options| Prior::new(&options, kind, k, &data));
        let error = made.unwrap_err().to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "'{part}' is not in: {error}"));
    };
    use CovarianceType::{Diag, Full, Spherical};
    refused("[covariances]\nprior = 'flat'", Full, 2, &["covariances", "improper", "inverse-wishart or lkj"]);
    refused("[covariances]\nprior = 'flat'", Diag, 2, &["improper", "inverse-gamma or half-normal"]);
    refused("[means]\nprior = 'flat'", Full, 2, &["means", "improper", "normal"]);
    refused("[covariances]\nprior = 'lkj'", Spherical, 2, &["lkj", "spherical", "inverse-gamma"]);
    refused("[covariances]\nprior = 'half-normal'", Full, 2, &["half-normal", "full", "lkj"]);
    refused("[covariances]\nprior = 'inverse-wishart'\ndegrees_of_freedom = 1.0", Full, 2, &["1", "d - 1"]);
    refused("[weights]\nprior = 'dirichlet'\nconcentration = 0.0", Full, 2, &["concentration", "positive"]);
    refused("[means]\nprior = 'normal'\nsd = [1.0, 2.0, 3.0]", Full, 2, &["means: sd", "3 numbers", "2"]);
    refused("[means]\nprior = 'normal'\nsd = nan", Full, 2, &["means: sd", "NaN"]);
    refused("[means]\nprior = 'normal'\nsigma = 1.0", Full, 2, &["sigma"]);
    refused("[mean]\nprior = 'normal'", Full, 2, &["mean", "weights"]);
    refused("[means]\nprior = 'cauchy'", Full, 2, &["cauchy", "normal"]);
    refused("weights = ", Full, 2, &["line 1"]);
    let flat = PriorOptions::from_toml("[means]\nprior = 'flat'\n[weights]\nprior = 'flat'").unwrap();
    assert!(Prior::new(&flat, Full, 1, &data).is_ok(), "one component needs no prior of its mean");
    assert!(Prior::new(&PriorOptions::default(), Full, 0, &data).is_err());
    let constant = Dataset::new(array![[1.0, 2.0], [3.0, 2.0]]).unwrap();
    let error = Prior::new(&PriorOptions::default(), Full, 1, &constant).unwrap_err().to_string();
    assert!(error.contains("column 1"), "{error}");
}

#[test]
fn half_normals_are_improper_where_values_repeat() {
    let half_normal = options(CovariancesPrior::HalfNormal { scale: None });
    let lkj = options(CovariancesPrior::Lkj { eta: None, scale: None });
    let distinct = Dataset::new(array![[1.0, 2.0], [2.0, 3.0], [4.0, 1.0]]).unwrap();
    let in_a_column = Dataset::new(array![[1.0, 2.0], [2.0, 3.0], [4.0, 2.0]]).unwrap();
    let in_rows = Dataset::new(array![[1.0, 2.0], [2.0, 3.0], [1.0, 2.0]]).unwrap();
    let weighted = distinct.clone().with_weights(vec![1.0, 2.0, 0.5]).unwrap();
    let found = |options: &PriorOptions, kind, k, data: &Dataset| {
        Prior::new(options, kind, k, data).unwrap().improper_at(data).unwrap()
    };
    use CovarianceType::{Diag, Full, Spherical, Tied};
    for (options, kind) in [(&half_normal, Diag), (&half_normal, Spherical), (&lkj, Full)] {
        assert_eq!(found(options, kind, 2, &distinct), None);
        assert!(found(options, kind, 2, &in_rows).unwrap().contains("rows 0 and 2"));
        assert!(found(options, kind, 2, &weighted).unwrap().contains("row 1"));
        assert_eq!(found(options, kind, 1, &in_rows), None, "all rows belong to the only component");
    }
    assert!(found(&half_normal, Diag, 2, &in_a_column).unwrap().contains("column 1"));
    assert!(found(&lkj, Full, 2, &in_a_column).unwrap().contains("column 1"));
    assert_eq!(found(&half_normal, Spherical, 2, &in_a_column), None);
    assert_eq!(found(&lkj, Tied, 2, &in_rows), None);
    assert_eq!(found(&PriorOptions::default(), Full, 2, &in_rows), None);
}
