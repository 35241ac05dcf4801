//! Mixtures given by factors of their precisions: evaluated on the device, or on the host if there are few rows.

use gmm_model::{Numbers, PrecisionMixture};

use super::*;
use crate::{EvaluateOptions, Evaluation, ReferenceEngine};

/// Factors in the shape of the covariance type, upper or lower triangular.
fn factors(kind: CovarianceType, k: usize, d: usize, upper: bool) -> (Vec<f64>, Vec<usize>) {
    let entry = |c: usize, i: usize, j: usize| match (i == j, (i < j) == upper) {
        (true, _) => 1.0 + 0.3 * noise(c * d + i),
        (_, true) => 0.2 * noise((c * d + i) * d + j),
        _ => 0.0,
    };
    let matrices = |k: usize| (0..k * d * d).map(|at| entry(at / d / d, at / d % d, at % d)).collect();
    match kind {
        CovarianceType::Full => (matrices(k), vec![k, d, d]),
        CovarianceType::Tied => (matrices(1), vec![d, d]),
        CovarianceType::Diag => ((0..k * d).map(|i| entry(i / d, i % d, i % d)).collect(), vec![k, d]),
        CovarianceType::Spherical => ((0..k).map(|c| entry(c, 0, 0)).collect(), vec![k]),
    }
}

fn found(
    engine: &dyn Engine,
    given: &PrecisionMixture<'_>,
    data: &Dataset,
    precision: Precision,
) -> (Vec<f64>, Vec<f64>, Evaluation) {
    let (n, k) = (data.n_rows(), given.n_components());
    let (mut densities, mut r) = (vec![f64::NAN; n], vec![f64::NAN; n * k]);
    let want =
        EvaluateOptions { log_densities: Some(&mut densities), responsibilities: Some((&mut r).into()), labels: None };
    let totals = evaluate::precisions(engine, given, data, precision, want).unwrap();
    (densities, r, totals)
}

fn agrees(
    kind: CovarianceType,
    precision: Precision,
    (n, d, k): (usize, usize, usize),
    upper: bool,
    kernel: Option<&str>,
) {
    let what = format!("{kind} {precision} n={n} d={d} k={k} upper={upper}");
    let tolerance = if precision == Precision::F32 { 2e-5 } else { 1e-12 };
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (numbers, shape) = factors(kind, k, d, upper);
    let means = Array2::from_shape_fn((k, d), |(c, j)| 100.0 + c as f64 + noise(c * d + j));
    let weights = Array1::from_elem(k, 1.0 / k as f64);
    let given = PrecisionMixture::new(kind, weights, (means, Precision::F64), Numbers::F64(&numbers), &shape).unwrap();
    let data = Dataset::new(rows(n, d, 100.0)).unwrap();
    let want = found(&ReferenceEngine, &given, &data, Precision::F64);
    let launches = fake.0.calls_of(Class::Launch);
    let got = found(&engine, &given, &data, precision);
    close(&got.0, &want.0, tolerance, &format!("{what}: log densities"));
    close(&got.1, &want.1, 4.0 * tolerance * d as f64, &format!("{what}: responsibilities"));
    close(&[got.2.log_likelihood], &[want.2.log_likelihood], tolerance, &format!("{what}: log-likelihood"));
    if let Some(kernel) = kernel {
        assert_eq!(fake.0.launches(kernel), 1, "{what}: {kernel}");
    }
    assert_eq!(fake.0.calls_of(Class::Launch) > launches, n > 16, "{what}: a few rows need no device");
    drop(engine);
    fake.0.assert_clean(&what);
}

#[test]
fn factors_are_evaluated_where_they_are_and_agree_with_the_reference() {
    for (precision, suffix) in [(Precision::F32, "f32"), (Precision::F64, "f64")] {
        for (n, d, k) in [(17, 1_usize, 1), (300, 3, 4), (40, 21, 3), (40, 35, 3)] {
            for kind in CovarianceType::ALL {
                let name = match kind {
                    // The products of these 21 columns are so large that f64 would lose more than 8 bits when they cancel.
                    CovarianceType::Full | CovarianceType::Tied if d <= 32 && (d != 21 || suffix == "f32") => {
                        format!("e_step_whitened_{kind}_{}_{suffix}", d.div_ceil(8))
                    }
                    CovarianceType::Full => format!("e_step_precision_full_{suffix}"),
                    CovarianceType::Tied => format!("e_step_precision_tied_{suffix}"),
                    CovarianceType::Diag => format!("e_step_diag_{suffix}"),
                    CovarianceType::Spherical => format!("e_step_spherical_{suffix}"),
                };
                agrees(kind, precision, (n, d, k), true, Some(&name));
            }
        }
    }
}

#[test]
fn lower_factors_that_users_set_are_right_too() {
    agrees(CovarianceType::Full, Precision::F64, (50, 5, 3), false, Some("e_step_whitened_full_1_f64"));
    agrees(CovarianceType::Full, Precision::F64, (50, 35, 3), false, Some("e_step_full_f64"));
    agrees(CovarianceType::Tied, Precision::F64, (50, 35, 3), false, Some("e_step_tied_f64"));
}

#[test]
fn a_few_rows_stay_on_the_host() {
    for kind in CovarianceType::ALL {
        agrees(kind, Precision::F64, (3, 9, 2), true, None);
        agrees(kind, Precision::F32, (16, 9, 2), false, None);
    }
}
