//! The likelihood of resident rows: values, batches, gradients, components, as the CPU engine gives them.

use super::*;
use crate::{ComponentCache, ComponentChange, CpuEngine, Likelihood, ReferenceEngine};

#[test]
fn values_batches_gradients_and_components_are_those_of_the_reference() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            let (n, d, k) = (300, 3, 4);
            let tolerance = if precision == Precision::F32 { 2e-5 } else { 1e-10 };
            let mut all = rows(n, d, 10.0);
            if precision == Precision::F32 {
                all.mapv_inplace(|v| f64::from(v as f32));
            }
            let weights = (0..n).map(|i| 0.5 * (i % 3) as f64).collect();
            let data = Dataset::new(all).unwrap().with_weights(weights).unwrap();
            let sets =
                [mixture(kind, k, d, 10.0), mixture(CovarianceType::Diag, 2, d, 10.0), mixture(kind, k, d, 10.5)];
            let what = format!("{kind} {precision}");

            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let mut fast = Likelihood::new(&engine, &data, precision).unwrap();
            let mut slow = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap();
            let batch = fast.batch(&sets).unwrap();
            close(&batch, &slow.batch(&sets).unwrap(), tolerance, &what);
            let (mut a, mut b) = (vec![f64::NAN; n], vec![f64::NAN; n]);
            for (mixture, value) in sets.iter().zip(batch) {
                assert_eq!(fast.value(mixture).unwrap(), value, "{what}: alone and in a batch");
                assert_eq!(fast.per_row(mixture, &mut a).unwrap(), value, "{what}: with its rows");
                slow.per_row(mixture, &mut b).unwrap();
                close(&a, &b, tolerance, &what);
                let (_, got) = fast.value_and_gradient(mixture).unwrap();
                let (_, want) = slow.value_and_gradient(mixture).unwrap();
                close(got.log_weights.as_slice().unwrap(), want.log_weights.as_slice().unwrap(), tolerance, &what);
                close(got.means.as_slice().unwrap(), want.means.as_slice().unwrap(), tolerance, &what);
                close(&got.scales, &want.scales, tolerance, &what);
            }

            let mut cache = ComponentCache::new(&mut fast, sets[0].clone()).unwrap();
            let step = ComponentChange { mean: Some(&[11.0, 10.0, 12.0]), ..ComponentChange::default() };
            let value = cache.update_component(&mut fast, 2, step).unwrap();
            let fresh = ComponentCache::new(&mut fast, cache.mixture().clone()).unwrap();
            assert_eq!(value, fresh.value(), "{what}: a step and a new cache");
            let mut cpu = Likelihood::new(&CpuEngine::new(1).unwrap(), &data, precision).unwrap();
            close(&[value], &[cpu.value(cache.mixture()).unwrap()], tolerance, &what);
            drop((fast, engine));
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn a_row_without_density_makes_the_value_minus_infinity_and_takes_the_gradient_away() {
    let mut all = rows(300, 2, 0.0);
    all[[200, 1]] = 1e200;
    let data = Dataset::new(all).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 3, 2, 0.0);
        for precision in [Precision::F32, Precision::F64] {
            let mut likelihood = Likelihood::new(&engine, &data, precision).unwrap();
            assert_eq!(likelihood.batch(&[mixture.clone(), mixture.clone()]).unwrap(), [f64::NEG_INFINITY; 2]);
            let gradient = likelihood.value_and_gradient(&mixture);
            assert!(matches!(gradient, Err(Error::Undefined { .. })), "{kind} {precision}");
            assert_eq!(ComponentCache::new(&mut likelihood, mixture.clone()).unwrap().value(), f64::NEG_INFINITY);
        }
    }
}
