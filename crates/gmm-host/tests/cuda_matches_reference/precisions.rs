//! Densities from factors of the precisions, as used by the Python estimator.

use gmm_host::{CpuEngine, Engine, EvaluateOptions, Evaluation, ReferenceEngine, evaluate};
use gmm_model::{CovarianceType, Dataset, Numbers, Precision, PrecisionMixture};
use ndarray::{Array1, Array2};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::compare::Tally;
use crate::{Bench, common};

/// Every kind at sizes around multiples of eight, against the reference, or with many rows against the CPU engine.
pub(crate) fn factors(bench: &Bench, tally: &mut Tally) {
    for (n, d, k) in [(17, 1, 1), (300, 3, 4), (1000, 7, 2), (1000, 8, 3), (1000, 9, 3), (500, 40, 5), (300, 129, 3)] {
        compare(bench, &ReferenceEngine, tally, (n, d, k));
    }
    if !bench.quick {
        for size in [(300_000, 13, 8), (20_000, 64, 30), (3000, 500, 4)] {
            compare(bench, &CpuEngine::new(0).expect("threads"), tally, size);
        }
    }
}

fn compare(bench: &Bench, other: &dyn Engine, tally: &mut Tally, (n, d, k): (usize, usize, usize)) {
    let rng = &mut ChaCha8Rng::seed_from_u64((n + d + k) as u64);
    for kind in CovarianceType::ALL {
        let (len, shape) = match kind {
            CovarianceType::Full => (k * d * d, vec![k, d, d]),
            CovarianceType::Tied => (d * d, vec![d, d]),
            CovarianceType::Diag => (k * d, vec![k, d]),
            CovarianceType::Spherical => (k, vec![k]),
        };
        let mut factors: Vec<f64> = (0..len).map(|_| 1.0 + 0.3 * common::normal(rng)).map(f64::abs).collect();
        if matches!(kind, CovarianceType::Full | CovarianceType::Tied) {
            for (at, v) in factors.iter_mut().enumerate() {
                let (i, j) = (at / d % d, at % d);
                *v = if i == j {
                    0.5 + *v
                } else if i < j {
                    0.3 * (*v - 1.0) / (d as f64).sqrt()
                } else {
                    0.0
                };
            }
        }
        let means = Array2::from_shape_fn((k, d), |_| 100.0 + common::normal(rng));
        let weights = Array1::from_elem(k, 1.0 / k as f64);
        let numbers = Numbers::F64(&factors);
        let given = PrecisionMixture::new(kind, weights, (means, Precision::F64), numbers, &shape).expect("a mixture");
        let rows = common::rows(n, d, 100.0, 1.0, 5).mapv(|v| f64::from(v as f32));
        let data = Dataset::new(rows).expect("finite rows");
        let want = found(other, &given, &data, Precision::F64);
        for (precision, tolerance) in [(Precision::F32, 2e-5), (Precision::F64, 1e-12)] {
            let what = format!("{kind} {precision} n={n} d={d} k={k}");
            tally.cases += 1;
            let got = found(&bench.gpu, &given, &data, precision);
            let scale = want.0.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
            tally.close(&got.0, &want.0, tolerance, scale, &format!("{what}: log densities"));
            // The error of a responsibility is that of a difference of log densities.
            tally.close(&got.1, &want.1, 4.0 * tolerance * d as f64, 1.0, &format!("{what}: responsibilities"));
            let (got, want) = (got.2.log_likelihood, want.2.log_likelihood);
            tally.close(&[got], &[want], tolerance, want.abs(), &format!("{what}: log-likelihood"));
        }
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
    let totals = evaluate::precisions(engine, given, data, precision, want).expect("an evaluation");
    (densities, r, totals)
}
