//! Rows with sentinel values such as -9999 or 1e20 among them: how the kernels treat them, in the emulator.

use super::*;
use crate::{Engine, ReferenceEngine};

/// 60 rows about 0, 90 about 5 and 6 sentinels, in two columns.
fn rows(sentinel: f64, offset: f64) -> Array2<f64> {
    Array2::from_shape_fn((156, 2), |(i, j)| match i {
        0..60 => offset + noise(2 * i + j),
        60..150 => offset + 5.0 + 2.0 * noise(2 * i + j),
        _ => sentinel,
    })
}

#[test]
fn sentinels_far_from_the_other_rows_fit_as_the_reference_fits_them() {
    for (precision, eps, offset) in
        [(Precision::F32, f64::from(f32::EPSILON), 1e4), (Precision::F64, f64::EPSILON, 1e8)]
    {
        for (sentinel, offset) in [
            (-999.0, 0.0),
            (-9999.0, 0.0),
            (1e5, 0.0),
            (1e7, 0.0),
            (1e10, 0.0),
            (1e14, 0.0),
            (1e20, 0.0),
            (-9999.0, offset),
        ] {
            let rows = rows(sentinel, offset);
            let data = match precision {
                Precision::F32 => Dataset::new(rows.mapv(|v| v as f32)),
                Precision::F64 => Dataset::new(rows),
            };
            let data = data.unwrap();
            for kind in CovarianceType::ALL {
                let what = format!("{kind} {precision} {sentinel:e} {offset:e}");
                let options = FitOptions { covariance_type: kind, ..FitOptions::new(3) };
                let want = fit(&ReferenceEngine, &data, &options).unwrap().summary.log_likelihood;
                let fake = Fake::install(Machine::default());
                let engine = CudaEngine::new(0).unwrap();
                let found = fit(&engine, &data, &options).unwrap();
                let got = found.summary.log_likelihood;
                // Rounding of each row's term, amplified by the iterations.
                let allowed = 64.0 * eps * (want.abs() + 156.0);
                assert!((got - want).abs() <= allowed, "{what}: {got}, want {want}");
                let score = |engine: &dyn Engine| {
                    evaluate::score(engine, &found.mixture, &data, precision).unwrap().log_likelihood
                };
                assert_eq!(score(&engine), got, "{what}");
                let reference = score(&ReferenceEngine);
                assert!((reference - got).abs() <= allowed, "{what}: {got}, the reference says {reference}");
                let mut likelihood = crate::Likelihood::new(&engine, &data, precision).unwrap();
                let value = likelihood.value(&found.mixture).unwrap();
                // Cancelling terms may cause an error of 1e-9 in a density of f64 rows: see `em/error_bounds.rs`.
                let allowed = allowed + 1e-9 * 156.0;
                assert!((value - got).abs() <= allowed, "{what}: {got}, a likelihood of {value}");
                drop(likelihood);
                drop(engine);
                fake.0.assert_clean(&what);
            }
        }
    }
}
