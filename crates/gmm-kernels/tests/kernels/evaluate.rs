//! Log densities, responsibilities, labels, totals.

use crate::compare::{close, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{How, KINDS, PLAIN, evaluate, evaluate_precisions, tiled, untiled};
use gmm_kernels::Real;
use gmm_model::{CovarianceType, Covariances, Mixture, Numbers, Precision, PrecisionMixture, reference};
use ndarray::{Array1, Array2, array};

fn check<T: Real>(mixture: &Mixture, rows: &Array2<f64>, weights: Option<&[f64]>) {
    check_shifted::<T>(mixture, rows, weights, &column_means(rows));
}

fn check_shifted<T: Real>(mixture: &Mixture, rows: &Array2<f64>, weights: Option<&[f64]>, shift: &[f64]) {
    check_how::<T>(mixture, rows, weights, shift, PLAIN);
    let is_whitened = matches!(mixture.covariance_type(), CovarianceType::Full | CovarianceType::Tied);
    if is_whitened && rows.ncols() <= 32 {
        check_how::<T>(mixture, rows, weights, shift, How { whitened: true, ..PLAIN });
    }
}

fn check_how<T: Real>(mixture: &Mixture, rows: &Array2<f64>, weights: Option<&[f64]>, shift: &[f64], how: How) {
    let (n, d) = rows.dim();
    let k = mixture.n_components();
    let what = format!("{} {} n={n} d={d} k={k} {}", T::NAME, mixture.covariance_type(), how.whitened);
    let x = tiled::<T>(rows, Some(shift), None);
    let got = evaluate::<T>(mixture, &x, n, shift, weights, how);
    let tolerance = tolerance::<T>();
    let responsibilities = untiled(&got.responsibilities, n, k);
    let (mut log_likelihood, mut entropy, mut total) = (0.0, 0.0, 0.0);
    for (i, row) in rows.outer_iter().enumerate() {
        let (density, r) = reference::posterior(mixture, row);
        close(got.log_densities[i], density, 1.0 + density.abs(), tolerance, &format!("{what}: density of {i}"));
        for c in 0..k {
            close(responsibilities[[i, c]], r[c], 1.0, tolerance, &format!("{what}: responsibility {i} {c}"));
        }
        let label = reference::argmax(responsibilities.row(i));
        assert_eq!(got.labels[i] as usize, label, "{what}: label of {i}");
        let weight = weights.map_or(1.0, |w| w[i]);
        if weight > 0.0 {
            log_likelihood += weight * density;
            entropy -= weight * r.iter().filter(|r| **r > 0.0).map(|r| r * r.ln()).sum::<f64>();
            total += weight;
        }
    }
    close(got.totals[0], log_likelihood, total + log_likelihood.abs(), tolerance, &format!("{what}: log-likelihood"));
    close(got.totals[1], entropy, total * (1.0 + (k as f64).ln()), tolerance, &format!("{what}: entropy"));
    close(got.totals[2], total, total, 1e-14, &format!("{what}: weight"));
}

#[test]
fn all_kinds_in_both_precisions() {
    for (n, d, k) in [(1, 1, 1), (130, 3, 4), (140, 13, 5), (90, 20, 7), (50, 32, 3), (33, 65, 2)] {
        for (kind, _) in KINDS {
            let random = &mut Random(n as u64);
            let mixture = mixture(kind, k, d, 10.0, random);
            let weights: Vec<f64> = (0..n).map(|i| (i % 3) as f64 + 0.5).collect();
            let narrow = rows::<f32>(&mixture, n, random);
            check::<f32>(&mixture, &narrow, None);
            check::<f64>(&mixture, &narrow, Some(&weights));
        }
    }
}

#[test]
fn a_row_beyond_all_densities_gets_the_weights() {
    for (kind, _) in KINDS {
        let mixture = mixture(kind, 3, 2, 0.0, &mut Random(3));
        // The squares of these overflow.
        let wide = array![[0.5, 0.25], [1e200, -1e200], [-1e160, 1e170]];
        check_shifted::<f64>(&mixture, &wide, None, &[0.0, 0.0]);
        check_shifted::<f64>(&mixture, &wide, Some(&[1.0, 0.0, 0.0]), &[0.0, 0.0]);
        let narrow = array![[0.5, 0.25], [1e30, -1e30], [-1e30, 1e28]];
        let shift = [0.0, 0.0];
        let x = tiled::<f32>(&narrow, Some(&shift), None);
        let whitened = matches!(kind, CovarianceType::Full | CovarianceType::Tied);
        for whitened in [false, true].into_iter().take(1 + usize::from(whitened)) {
            let got = evaluate::<f32>(&mixture, &x, 3, &shift, None, How { whitened, ..PLAIN });
            assert!(got.log_densities[0].is_finite() && got.totals[0] == f64::NEG_INFINITY);
            let r = untiled(&got.responsibilities, 3, 3);
            for i in 1..3 {
                assert_eq!(got.log_densities[i], f64::NEG_INFINITY);
                for c in 0..3 {
                    close(r[[i, c]], mixture.weights()[c], 1.0, 1e-6, "weight of a lost row");
                }
            }
        }
    }
}

#[test]
fn a_component_of_weight_zero_counts_for_nothing() {
    let covariances = Covariances::Spherical(array![1.0, 1.0, 2.0]);
    let mixture = Mixture::new(array![0.5, 0.0, 0.5], array![[0.0], [1.0], [2.0]], covariances).unwrap();
    let rows = array![[0.0], [1.0], [0.9], [3.0]];
    check::<f32>(&mixture, &rows, None);
    check::<f64>(&mixture, &rows, None);
}

#[test]
fn equal_components_share_a_row_and_the_first_has_its_label() {
    let covariances = Covariances::Diag(array![[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]);
    let mean = [[3.0, 1.0]; 4];
    let mixture = Mixture::new(array![0.25, 0.25, 0.25, 0.25], Array2::from(mean.to_vec()), covariances).unwrap();
    let rows = Array2::from_shape_fn((40, 2), |(i, j)| (i + j) as f64 * 0.25);
    let x = tiled::<f32>(&rows, None, None);
    let got = evaluate::<f32>(&mixture, &x, 40, &[0.0, 0.0], None, PLAIN);
    assert_eq!(got.labels, vec![0; 40]);
    assert!(untiled(&got.responsibilities, 40, 4).iter().all(|r| *r == 0.25));
    assert_eq!(mixture.covariance_type(), CovarianceType::Diag);
}

#[test]
fn f32_densities_are_exact_about_far_means() {
    // Two overlapping components at 0 and two at 20,000, where `f32` represents a mean to 1e-3 of a standard deviation,
    // so that its low part matters. Rows and shift are multiples of 1/256, so `x − shift` is exact in `f32`.
    for (kind, _) in KINDS {
        let random = &mut Random(13);
        let near = mixture(kind, 4, 6, 0.0, random);
        let mut means = near.means().to_owned();
        means.outer_iter_mut().skip(2).for_each(|mut row| row += 20_000.0);
        let far = Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap();
        let coarse = |v: f64| (v * 256.0).round() / 256.0;
        let rows = rows::<f64>(&far, 200, random).mapv(coarse);
        let shift: Vec<f64> = column_means(&rows).into_iter().map(coarse).collect();
        check_shifted::<f32>(&far, &rows, None, &shift);
    }
}

#[test]
fn many_components_of_equal_densities_share_rows_on_the_tensor_cores() {
    // More components than fit into shared memory, in pairs that are equal: the first of a pair has the label.
    let (k, d, n) = (131, 3, 300);
    let random = &mut Random(5);
    let near = mixture(CovarianceType::Full, k, d, 0.0, random);
    let means = Array2::from_shape_fn((k, d), |(c, j)| near.means()[[c / 2 * 2, j]]);
    let Covariances::Full(all) = near.covariances() else { unreachable!("of that kind") };
    let covariances = Covariances::Full(ndarray::Array3::from_shape_fn((k, d, d), |(c, i, j)| all[[c / 2 * 2, i, j]]));
    let weights = Array1::from_elem(k, 1.0 / k as f64);
    let equal = Mixture::new(weights, means, covariances).unwrap();
    let rows = rows::<f32>(&equal, n, random);
    check::<f32>(&equal, &rows, None);
    check::<f64>(&equal, &rows, None);
    let x = tiled::<f32>(&rows, None, None);
    let got = evaluate::<f32>(&equal, &x, n, &[0.0; 3], None, How { whitened: true, ..PLAIN });
    assert!(got.labels.iter().all(|label| label % 2 == 0), "{:?}", got.labels);
}

fn check_precisions<T: Real>(kind: CovarianceType, n: usize, d: usize, k: usize, offset: f64, how: How) {
    let random = &mut Random((n + d) as u64);
    let full = mixture(CovarianceType::Full, k, d, offset, random);
    let factors = if kind == CovarianceType::Tied { 1 } else { k };
    let mut u = vec![0.0; factors * d * d];
    for (c, u) in u.chunks_exact_mut(d * d).enumerate() {
        // Any upper triangular matrix is a valid factor. The transposed covariance factor has entries of a realistic
        // size.
        let lower = full.factors().dense(c, d);
        (0..d).for_each(|j| (j..d).for_each(|i| u[j * d + i] = T::from_f64(lower[[i, j]]).to_f64()));
    }
    let means = full.means().mapv(|v| T::from_f64(v).to_f64());
    let shape: &[usize] = if kind == CovarianceType::Tied { &[d, d] } else { &[k, d, d] };
    let weights = Array1::from_elem(k, 1.0 / k as f64);
    let given = PrecisionMixture::new(kind, weights, (means, Precision::F64), Numbers::F64(&u), shape).unwrap();
    let rows = rows::<T>(&full, n, random);
    let shift = vec![0.0; d];
    let got = evaluate_precisions::<T>(&given, &tiled::<T>(&rows, None, None), n, &shift, how);
    let responsibilities = untiled(&got.responsibilities, n, k);
    let mut log_likelihood = 0.0;
    for (i, row) in rows.outer_iter().enumerate() {
        let what = format!("{} {kind} n={n} d={d} k={k}: row {i}", T::NAME);
        let (density, r) = reference::precision_posterior(&given, row).unwrap();
        close(got.log_densities[i], density, 1.0 + density.abs(), tolerance::<T>(), &what);
        for c in 0..k {
            close(responsibilities[[i, c]], r[c], 1.0, tolerance::<T>(), &what);
        }
        log_likelihood += density;
    }
    close(got.totals[0], log_likelihood, n as f64 + log_likelihood.abs(), tolerance::<T>(), "log-likelihood");
}

#[test]
fn factors_of_precisions_give_the_densities_of_the_reference() {
    for (n, d, k) in [(1, 1, 1), (130, 3, 4), (70, 8, 3), (90, 20, 7), (33, 65, 2)] {
        for kind in [CovarianceType::Full, CovarianceType::Tied] {
            for offset in [0.0, 1024.0] {
                check_precisions::<f32>(kind, n, d, k, offset, PLAIN);
                check_precisions::<f64>(kind, n, d, k, offset, PLAIN);
                if d <= 32 {
                    let how = How { whitened: true, ..PLAIN };
                    check_precisions::<f32>(kind, n, d, k, offset, how);
                    check_precisions::<f64>(kind, n, d, k, offset, how);
                }
            }
        }
    }
}

#[test]
fn factors_of_precisions_serve_several_rows_of_a_thread() {
    let how = How { several: true, ..PLAIN };
    for (n, d, k) in [(600, 11, 3), (1024, 8, 2)] {
        for kind in [CovarianceType::Full, CovarianceType::Tied] {
            check_precisions::<f32>(kind, n, d, k, 0.0, how);
            check_precisions::<f64>(kind, n, d, k, 0.0, how);
        }
    }
}
