//! The reference against closed forms.

use gmm_model::{CovarianceType, Covariances, Mixture, Statistics, m_step, reference};
use ndarray::{Array1, Array2, Axis, array};

use crate::{all_close, close, em_step, flat, mixture, mixtures_close, rows};

#[test]
fn one_component_is_the_sample_mean_and_covariance() {
    let x = rows(&mixture(3, 4, CovarianceType::Full, 1), 200, 2);
    let mean = x.mean_axis(Axis(0)).expect("rows");
    let z = &x - &mean;
    let full = z.t().dot(&z) / 200.0;
    for kind in CovarianceType::ALL {
        let new = em_step(&mixture(1, 4, kind, 3), x.view(), None, 0.0).mixture;
        let expected = match kind {
            CovarianceType::Full => Covariances::Full(full.clone().insert_axis(Axis(0))),
            CovarianceType::Tied => Covariances::Tied(full.clone()),
            CovarianceType::Diag => Covariances::Diag(full.diag().to_owned().insert_axis(Axis(0))),
            CovarianceType::Spherical => Covariances::Spherical(array![full.diag().mean().expect("columns")]),
        };
        assert_eq!(new.weights(), array![1.0]);
        all_close(new.means(), &mean, 1e-13);
        all_close(&flat(new.covariances()), &flat(&expected), 1e-12);
    }
}

#[test]
fn one_dimension_is_the_univariate_density() {
    let (w, mean, variance) = ([0.3_f64, 0.7], [-1.0_f64, 2.5], [0.5_f64, 4.0]);
    let kinds = [
        Covariances::Full(array![[[0.5]], [[4.0]]]),
        Covariances::Diag(array![[0.5], [4.0]]),
        Covariances::Spherical(array![0.5, 4.0]),
    ];
    for covariances in kinds {
        let m = Mixture::new(array![0.3, 0.7], array![[-1.0], [2.5]], covariances).expect("valid");
        for x in [-7.0, -1.0, 0.0, 0.1, 3.0, 20.0] {
            let density = |c: usize| {
                let z = (x - mean[c]).powi(2) / variance[c];
                w[c] * (-0.5 * z).exp() / (2.0 * std::f64::consts::PI * variance[c]).sqrt()
            };
            let (found, r) = reference::posterior(&m, array![x].view());
            close(found, (density(0) + density(1)).ln(), 1e-13);
            close(r[1], density(1) / (density(0) + density(1)), 1e-13);
        }
    }
}

#[test]
fn every_kind_is_full_with_its_matrix_written_out() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 4, kind, 5);
        let mut all = ndarray::Array3::zeros((3, 4, 4));
        for (c, mut a) in all.outer_iter_mut().enumerate() {
            a.assign(&m.covariances().matrix(c, 4));
        }
        let full = Mixture::new(m.weights().to_owned(), m.means().to_owned(), Covariances::Full(all)).expect("valid");
        let x = rows(&m, 30, 0);
        let densities = |m: &Mixture| reference::log_densities(m, x.view());
        all_close(&densities(&m), &densities(&full), 1e-13);
    }
}

#[test]
fn well_separated_components_get_their_own_rows() {
    let m = Mixture::new(
        array![0.5, 0.5],
        array![[-100.0, 0.0], [100.0, 0.0]],
        Covariances::Full(array![[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.0], [0.0, 1.0]]]),
    )
    .expect("valid");
    let (x, labels) = gmm_model::sample(&m, 300, 1).expect("rows");
    let new = em_step(&m, x.view(), None, 0.0).mixture;
    for c in 0..2 {
        let mine = x.select(Axis(0), &(0..300).filter(|&i| labels[i] == c).collect::<Vec<_>>());
        let (count, mean) = (mine.nrows() as f64, mine.mean_axis(Axis(0)).expect("rows"));
        let z = &mine - &mean;
        close(new.weights()[c], count / 300.0, 1e-14);
        all_close(new.means().row(c), &mean, 1e-13);
        all_close(&new.covariances().matrix(c, 2), &(z.t().dot(&z) / count), 1e-12);
    }
    let r = reference::responsibilities(&m, x.view());
    assert!(labels.iter().enumerate().all(|(i, &label)| r[[i, label]] == 1.0));
}

#[test]
fn log_likelihood_is_the_weighted_sum_of_log_densities() {
    let m = mixture(3, 2, CovarianceType::Tied, 7);
    let x = rows(&m, 50, 3);
    let w: Vec<f64> = (0..50).map(|i| (i % 4) as f64 * 0.5).collect();
    let found = reference::statistics(&m, x.view(), Some(&w));
    let expected: f64 = reference::log_densities(&m, x.view()).iter().zip(&w).map(|(v, w)| v * w).sum();
    close(found.log_likelihood, expected, 1e-13);
    close(found.total_weight, w.iter().sum(), 1e-15);
    close(found.mean_log_likelihood(), expected / w.iter().sum::<f64>(), 1e-13);
    assert_eq!(found.n_rows, 50);
}

#[test]
fn row_39_duplicated_rows_are_rows_of_weight_two() {
    for kind in CovarianceType::ALL {
        let m = mixture(2, 3, kind, 9);
        let x = rows(&m, 40, 4);
        let twice = x.select(Axis(0), &(0..80).map(|i| i / 2).collect::<Vec<_>>());
        let a = em_step(&m, x.view(), Some(&[2.0; 40]), 1e-6).mixture;
        mixtures_close(&a, &em_step(&m, twice.view(), None, 1e-6).mixture, 1e-12);
    }
}

#[test]
fn a_row_of_weight_zero_is_not_there() {
    let m = mixture(2, 3, CovarianceType::Full, 9);
    let x = rows(&m, 40, 4);
    let mut weights = [1.0; 40];
    weights[39] = 0.0;
    let (a, b) = (reference::statistics(&m, x.view(), Some(&weights)), {
        reference::statistics(&m, x.slice(ndarray::s![..39, ..]), None)
    });
    assert_eq!(Statistics { n_rows: 39, ..a }, b);
}

#[test]
fn moments_about_any_centre_give_the_same_mixture() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 3, kind, 2);
        let x = rows(&m, 100, 6);
        let mut moved = Statistics::zero(kind, &m.means() + &Array2::from_elem((3, 3), 1.5));
        for x in x.outer_iter() {
            reference::accumulate(&mut moved, x, 1.0, reference::posterior(&m, x).1.view());
        }
        let here = em_step(&m, x.view(), None, 1e-6).mixture;
        mixtures_close(&here, &m_step(&moved, 1e-6, None).expect("valid").mixture, 1e-11);
    }
}

#[test]
fn free_parameters_are_counted() {
    let counts = CovarianceType::ALL.map(|kind| mixture(3, 4, kind, 0).n_parameters());
    assert_eq!(counts, [3 * 10 + 12 + 2, 10 + 12 + 2, 12 + 12 + 2, 3 + 12 + 2]);
}

#[test]
fn the_mixtures_mean_is_the_weighted_mean_of_means() {
    let m = mixture(3, 2, CovarianceType::Diag, 0);
    let expected: Array1<f64> = (0..2).map(|j| (0..3).map(|c| m.weights()[c] * m.means()[[c, j]]).sum()).collect();
    all_close(&m.mean(), &expected, 1e-15);
}
