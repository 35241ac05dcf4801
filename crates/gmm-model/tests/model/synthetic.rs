//! Synthetic mixtures: the same on every machine, separated, and correlated.

use gmm_model::{Cholesky, CovarianceType, Covariances, Draws, ModelError, SyntheticOptions, synthetic, wishart};
use ndarray::{Array2, array};

#[test]
fn wishart_draws_have_the_mean_and_variance_of_a_wishart() {
    let sigma = array![[2.0, 0.9, -0.4], [0.9, 1.0, 0.2], [-0.4, 0.2, 3.0]];
    let factor = Cholesky::new(sigma.view()).expect("positive definite");
    let mut draws = Draws::new(3, 0);
    let (n, nu) = (40_000, 7.0);
    let (mut sum, mut squares) = (Array2::<f64>::zeros((3, 3)), Array2::<f64>::zeros((3, 3)));
    for _ in 0..n {
        let w = wishart(&mut draws, &factor, nu);
        sum += &w;
        squares += &w.mapv(|v| v * v);
    }
    let (mean, n) = (sum / n as f64, n as f64);
    for i in 0..3 {
        for j in 0..3 {
            let expected = nu * sigma[[i, j]];
            // Var W_ij = nu (Σ_ij² + Σ_ii Σ_jj); see Muirhead 1982, chapter 3.
            let variance = nu * (sigma[[i, j]].powi(2) + sigma[[i, i]] * sigma[[j, j]]);
            assert!((mean[[i, j]] - expected).abs() < 4.0 * (variance / n).sqrt(), "mean of ({i}, {j})");
            let found = squares[[i, j]] / n - mean[[i, j]].powi(2);
            // A Wishart has heavier tails than a normal: allows four times the spread of a normal's sample variance.
            assert!((found / variance - 1.0).abs() < 4.0 * 2.0 * (2.0 / n).sqrt(), "variance of ({i}, {j})");
        }
    }
}

#[test]
fn correlations_of_the_draws_are_those_of_the_scale() {
    let sigma = array![[1.0, 0.8], [0.8, 1.0]];
    let factor = Cholesky::new(sigma.view()).expect("positive definite");
    let mut draws = Draws::new(4, 0);
    let (n, nu) = (4000, 200.0);
    let mean: f64 = (0..n)
        .map(|_| {
            let w = wishart(&mut draws, &factor, nu);
            w[[0, 1]] / (w[[0, 0]] * w[[1, 1]]).sqrt()
        })
        .sum::<f64>()
        / n as f64;
    // E r ≈ ρ (1 − (1 − ρ²)/(2 ν)), with a spread of (1 − ρ²)/√ν for one draw.
    let expected = 0.8 * (1.0 - 0.36 / (2.0 * nu));
    assert!((mean - expected).abs() < 4.0 * 0.36 / (nu * n as f64).sqrt(), "{mean}");
}

#[test]
fn full_and_tied_covariances_are_correlated() {
    for kind in [CovarianceType::Full, CovarianceType::Tied] {
        let m = crate::mixture(20, 5, kind, 1);
        let a = m.covariances().matrix(0, 5);
        let correlations = (0..5).flat_map(|i| (0..i).map(move |j| (i, j)));
        let largest = correlations.map(|(i, j)| (a[[i, j]] / (a[[i, i]] * a[[j, j]]).sqrt()).abs()).fold(0.0, f64::max);
        assert!(largest > 0.2, "{largest}");
    }
}

#[test]
fn variances_average_to_the_square_of_the_scale() {
    let options = SyntheticOptions { scale: 3.0, ..SyntheticOptions::default() };
    for kind in CovarianceType::ALL {
        let (k, d) = (300, 4);
        let m = synthetic(k, d, kind, 8, &options).expect("in range");
        if kind != CovarianceType::Tied {
            let mean: f64 = (0..k).map(|c| m.covariances().matrix(c, d).diag().sum()).sum::<f64>() / (k * d) as f64;
            assert!((mean / 9.0 - 1.0).abs() < 0.15, "{kind}: {mean}");
        }
    }
}

#[test]
fn means_keep_the_stated_separation() {
    for (k, d) in [(1, 1), (40, 1), (30, 2), (50, 10), (200, 64)] {
        for kind in [CovarianceType::Diag, CovarianceType::Spherical] {
            let options = SyntheticOptions { separation: 2.0, ..SyntheticOptions::default() };
            let m = synthetic(k, d, kind, 5, &options).expect("in range");
            let trace = (0..k).map(|c| m.covariances().matrix(c, d).diag().sum()).fold(0.0, f64::max);
            for a in 0..k {
                for b in 0..a {
                    let apart = &m.means().row(a) - &m.means().row(b);
                    assert!(apart.dot(&apart) >= 4.0 * trace * (1.0 - 1e-12), "{k} {d}: {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn the_same_arguments_give_the_same_bits_on_any_machine() {
    let m = synthetic(2, 2, CovarianceType::Full, 1, &SyntheticOptions::default()).expect("in range");
    let Covariances::Full(a) = m.covariances() else { panic!("full") };
    let found = [m.weights()[0].to_bits(), m.means()[[1, 1]].to_bits(), a[[0, 0, 1]].to_bits(), a[[1, 1, 1]].to_bits()];
    let expected = [0x3fda_91a4_6ddc_9431, 0xbfd9_d0b9_ad8e_05d8, 0x3fbe_2613_c6d0_2e0d, 0x3ff0_1663_6b45_92de];
    assert_eq!(found, expected, "{found:#x?}");
}

#[test]
fn options_out_of_range_are_errors_that_name_them() {
    let good = SyntheticOptions::default();
    let cases = [
        ("concentration", SyntheticOptions { concentration: 0.0, ..good }),
        ("separation", SyntheticOptions { separation: -1.0, ..good }),
        ("degrees_of_freedom", SyntheticOptions { degrees_of_freedom: Some(2.0), ..good }),
        ("scale", SyntheticOptions { scale: f64::NAN, ..good }),
    ];
    for (name, options) in cases {
        let found = synthetic(2, 3, CovarianceType::Full, 0, &options);
        assert!(matches!(&found, Err(ModelError::Range { what, .. }) if *what == name), "{name}: {found:?}");
    }
    let shape = |k, d| synthetic(k, d, CovarianceType::Diag, 0, &good);
    assert!(matches!(shape(0, 1), Err(ModelError::Range { what: "n_components", .. })));
    assert!(matches!(shape(1, 0), Err(ModelError::Range { what: "n_features", .. })));
}
