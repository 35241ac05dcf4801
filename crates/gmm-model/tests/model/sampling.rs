//! Sampling of ranges of rows, and the information criteria.

use gmm_model::{
    CovarianceType, Covariances, Criteria, Criterion, Mixture, ModelError, criteria, entropy, sample, sample_range,
};
use ndarray::{Axis, array};

use crate::{close, mixture};

#[test]
fn rows_do_not_depend_on_how_they_are_cut() {
    for kind in CovarianceType::ALL {
        for d in [1, 2, 3] {
            let m = mixture(3, d, kind, 1);
            let (whole, labels) = sample(&m, 20, 5).expect("20 rows");
            for cut in [0, 1, 7, 20] {
                let (mut rows, mut found) = (vec![0.0; 20 * d], vec![0; 20]);
                let (left, right) = rows.split_at_mut(cut * d);
                let (first, second) = found.split_at_mut(cut);
                sample_range(&m, 5, cut as u64..20, right, second).expect("lengths");
                sample_range(&m, 5, 0..cut as u64, left, first).expect("lengths");
                assert_eq!((rows, found), (whole.iter().copied().collect(), labels.to_vec()));
            }
        }
    }
}

#[test]
fn sampled_rows_have_the_same_bits_on_any_machine() {
    let m = Mixture::new(
        array![0.5, 0.5],
        array![[0.0, 1.0], [10.0, -10.0]],
        Covariances::Full(array![[[2.0, 1.0], [1.0, 3.0]], [[1.0, -0.5], [-0.5, 1.0]]]),
    )
    .expect("valid");
    let (rows, labels) = sample(&m, 2, 9).expect("2 rows");
    let found: Vec<u64> = rows.iter().map(|v| v.to_bits()).collect();
    let expected = [0x4024_190d_73d2_63d8, 0xc022_fba0_7756_e452, 0x4021_e36a_a60e_395f, 0xc022_a63c_8a61_c5c0];
    assert_eq!(found, expected, "{found:#x?} {labels}");
}

#[test]
fn the_sample_has_the_mixtures_weights_means_and_covariances() {
    for kind in CovarianceType::ALL {
        let (k, d, n) = (3, 3, 60_000);
        let m = mixture(k, d, kind, 2);
        let (rows, labels) = sample(&m, n, 11).expect("rows");
        for c in 0..k {
            let mine: Vec<usize> = (0..n).filter(|&i| labels[i] == c).collect();
            let count = mine.len() as f64;
            let w = m.weights()[c];
            assert!((count / n as f64 - w).abs() < 4.0 * (w / n as f64).sqrt());
            let chosen = rows.select(Axis(0), &mine);
            let mean = chosen.mean_axis(Axis(0)).expect("rows");
            let truth = m.covariances().matrix(c, d);
            let z = &chosen - &mean;
            let found = z.t().dot(&z) / count;
            for i in 0..d {
                assert!((mean[i] - m.means()[[c, i]]).abs() < 4.5 * (truth[[i, i]] / count).sqrt());
                for j in 0..d {
                    let spread = ((truth[[i, j]].powi(2) + truth[[i, i]] * truth[[j, j]]) / count).sqrt();
                    assert!((found[[i, j]] - truth[[i, j]]).abs() < 4.5 * spread, "{kind} {c} {i} {j}");
                }
            }
        }
    }
}

#[test]
fn a_component_of_weight_zero_is_never_sampled() {
    let m = Mixture::new(array![0.0, 1.0, 0.0], array![[0.0], [1.0], [2.0]], Covariances::Tied(array![[1.0]]));
    let (_, labels) = sample(&m.expect("valid"), 1000, 0).expect("rows");
    assert!(labels.iter().all(|&label| label == 1));
}

#[test]
fn row_48_a_sample_of_no_rows_is_an_error_that_names_the_parameter() {
    let m = mixture(1, 1, CovarianceType::Diag, 0);
    assert!(matches!(sample(&m, 0, 0), Err(ModelError::Range { what: "n_samples", .. })));
    assert!(matches!(sample(&m, usize::MAX, 0), Err(ModelError::Memory { what: "the sample", .. })));
}

#[test]
fn a_buffer_of_the_wrong_length_is_an_error() {
    let m = mixture(1, 2, CovarianceType::Diag, 0);
    let wrong = |rows: usize, labels: usize| sample_range(&m, 0, 0..3, &mut vec![0.0; rows], &mut vec![0; labels]);
    assert!(matches!(wrong(6, 2), Err(ModelError::Shape { what: "labels", .. })));
    assert!(matches!(wrong(5, 3), Err(ModelError::Shape { what: "rows", .. })));
    assert_eq!(wrong(6, 3), Ok(()));
}

#[test]
fn criteria_follow_their_formulas() {
    let c = Criteria::new(5, -123.0, 50.0, 2.5);
    close(c.aic, 10.0 + 246.0, 1e-15);
    close(c.bic, 5.0 * 50.0_f64.ln() + 246.0, 1e-15);
    close(c.icl, c.bic + 5.0, 1e-15);
    assert_eq!([Criterion::Aic, Criterion::Bic, Criterion::Icl].map(|which| c.get(which)), [c.aic, c.bic, c.icl]);
}

#[test]
fn entropy_is_zero_for_certainty_and_ln_k_for_ignorance() {
    assert_eq!(entropy(&[1.0, 0.0]), 0.0);
    close(entropy(&[0.25; 4]), 4.0_f64.ln(), 1e-15);
}

#[test]
fn icl_of_well_separated_components_is_bic() {
    let m = Mixture::new(array![0.5, 0.5], array![[-50.0], [50.0]], Covariances::Tied(array![[1.0]])).expect("valid");
    let rows = crate::rows(&m, 100, 0);
    let found = criteria(&m, rows.view(), None);
    close(found.icl, found.bic, 1e-15);
}

#[test]
fn criteria_count_a_row_of_weight_two_twice() {
    let m = mixture(2, 2, CovarianceType::Full, 3);
    let rows = crate::rows(&m, 10, 0);
    let twice = rows.select(Axis(0), &(0..20).map(|i| i / 2).collect::<Vec<_>>());
    let (a, b) = (criteria(&m, rows.view(), Some(&[2.0; 10])), criteria(&m, twice.view(), None));
    close(a.aic, b.aic, 1e-13);
    close(a.bic, b.bic, 1e-13);
    close(a.icl, b.icl, 1e-13);
}

#[test]
fn criteria_have_names() {
    assert_eq!("icl".parse(), Ok(Criterion::Icl));
    assert_eq!(format!("{}", Criterion::Aic), "aic");
    assert!(matches!("hqc".parse::<Criterion>(), Err(ModelError::UnknownWord { choices: "aic, bic, icl", .. })));
}
