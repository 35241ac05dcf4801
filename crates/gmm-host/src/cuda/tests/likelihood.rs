//! The likelihood of resident rows: values, batches, gradients.

use super::*;
use crate::{ComponentCache, Likelihood, ReferenceEngine};

#[test]
fn values_batches_and_gradients_are_those_of_the_reference() {
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
                close(&[fast.per_row(mixture, &mut a).unwrap()], &[value], tolerance, &what);
                slow.per_row(mixture, &mut b).unwrap();
                close(&a, &b, tolerance, &what);
                let (_, got) = fast.value_and_gradient(mixture).unwrap();
                let (_, want) = slow.value_and_gradient(mixture).unwrap();
                close(got.log_weights.as_slice().unwrap(), want.log_weights.as_slice().unwrap(), tolerance, &what);
                close(got.means.as_slice().unwrap(), want.means.as_slice().unwrap(), tolerance, &what);
                close(&got.scales, &want.scales, tolerance, &what);
            }
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

#[test]
fn a_batch_takes_a_few_launches_and_one_wait_and_a_value_none() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            let what = format!("{kind} {precision}");
            let mut likelihood = Likelihood::new(&engine, &dataset(200, 3), precision).unwrap();
            let sets: Vec<Mixture> = (0..21).map(|i| mixture(kind, 4, 3, 0.01 * f64::from(i))).collect();
            likelihood.batch(&sets).unwrap();
            likelihood.value_and_gradient(&sets[0]).unwrap();
            let f32s = precision == Precision::F32 && [CovarianceType::Diag, CovarianceType::Spherical].contains(&kind);
            // Launches: units of eight mixtures, one and then two, of which one is not full, and a reduction; in fixed
            // point one unit of eight and one of sixteen.
            let (count, all) = calls(&fake.0, || likelihood.batch(&sets).unwrap());
            assert_eq!(count, if f32s { [2, 0, 1] } else { [3, 0, 1] }, "{what}: 21 sets");
            // The host polls the values in the memory to which the kernels write.
            let (count, one) = calls(&fake.0, || likelihood.value(&sets[20]).unwrap());
            assert_eq!(count, if f32s { [1, 0, 0] } else { [2, 0, 0] }, "{what}: one set");
            close(&[one], &all[20..], if f32s { 1e-6 } else { 0.0 }, &what);
            let (count, three) = calls(&fake.0, || likelihood.batch(&sets[18..]).unwrap());
            assert_eq!(count, if f32s { [3, 0, 0] } else { [2, 0, 0] }, "{what}: three sets");
            close(&three, &all[18..], if f32s { 1e-6 } else { 0.0 }, &what);
            assert_eq!(three[2], one, "{what}: alone and as one of three");
            let (count, (value, _)) = calls(&fake.0, || likelihood.value_and_gradient(&sets[20]).unwrap());
            assert_eq!(count, [2, 0, 1], "{what}: a gradient");
            close(&[value], &[one], 1e-6, &what);
            // Chains that ask together wait once; a mixture of another shape takes a separate call.
            let mut chains = sets[..5].to_vec();
            chains.push(mixture(kind, 3, 3, 0.1));
            likelihood.values_and_gradients(&chains).unwrap();
            let (count, together) = calls(&fake.0, || likelihood.values_and_gradients(&chains).unwrap());
            assert_eq!(count, [12, 0, 2], "{what}: gradients of several");
            for (mixture, together) in chains.iter().zip(together) {
                assert_eq!(likelihood.value_and_gradient(mixture).unwrap(), together.unwrap(), "{what}: alone");
            }
        }
    }
}

#[test]
fn mixtures_that_would_lose_digits_take_the_accurate_way_and_no_others_do() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        // Two narrow clumps, 1e5 of their widths apart; the shift is in one of them.
        let all = Array2::from_shape_fn((256, 2), |(i, j)| (i % 2) as f64 + 1e-5 * noise(2 * i + j));
        let data = Dataset::new(all).unwrap();
        let narrow = |sd: f64| {
            let means = ndarray::array![[0.0, 0.0], [1.0, 1.0]];
            let unit = mixture(kind, 2, 2, 0.0);
            let covariances = match unit.covariances() {
                Covariances::Full(a) => Covariances::Full(a * (sd * sd)),
                Covariances::Tied(a) => Covariances::Tied(a * (sd * sd)),
                Covariances::Diag(a) => Covariances::Diag(a * (sd * sd)),
                Covariances::Spherical(a) => Covariances::Spherical(a * (sd * sd)),
            };
            Mixture::new(ndarray::array![0.5, 0.5], means, covariances).unwrap()
        };
        let sets = [narrow(0.5), narrow(1e-5), narrow(0.4)];
        let mut fast = Likelihood::new(&engine, &data, Precision::F64).unwrap();
        let mut slow = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap();
        let want = slow.batch(&sets).unwrap();
        fast.batch(&sets).unwrap();
        let (count, got) = calls(&fake.0, || fast.batch(&sets).unwrap());
        close(&got, &want, 1e-13, kind.name());
        // Two launches for all three, without a wait, and two for the evaluation of the second.
        assert_eq!((count[0], count[2]), (4, 1), "{kind}");
        let (got, want) = (fast.values_and_gradients(&sets).unwrap(), slow.values_and_gradients(&sets).unwrap());
        for (got, want) in got.into_iter().zip(want) {
            let ((value, got), (wanted, want)) = (got.unwrap(), want.unwrap());
            close(&[value], &[wanted], 1e-13, kind.name());
            close(&got.scales, &want.scales, 1e-10, kind.name());
        }
    }
}

#[test]
fn a_shape_without_a_kernel_and_a_device_without_tensor_cores_take_the_other_way() {
    let sets = |d: usize| [mixture(CovarianceType::Full, 2, d, 0.0), mixture(CovarianceType::Full, 2, d, 0.1)];
    for (d, capability) in [(17, (9, 0)), (3, (7, 5))] {
        let _fake = Fake::install(Machine { capability, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let data = dataset(150, d);
        let got = Likelihood::new(&engine, &data, Precision::F64).unwrap().batch(&sets(d)).unwrap();
        let want = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap().batch(&sets(d)).unwrap();
        close(&got, &want, 1e-12, "another way");
    }
}

#[test]
fn every_fault_of_a_batch_is_an_error_or_leaves_the_right_answer_and_leaks_nothing() {
    // The values of a few are polled, those of more are waited for; the third batch needs more memory than the first.
    faults_of_batches(CovarianceType::Tied, [2, 10, 3], 3..6);
    // One to three mixtures by the single-mixture kernel, more in fixed point; their only fallback is the one tested
    // above.
    for kind in [CovarianceType::Diag, CovarianceType::Spherical] {
        faults_of_batches(kind, [1, 5, 3], 0..0);
    }
}

/// Injects every fault into batches of the given sizes, one after another, and into the gradients of some mixtures.
fn faults_of_batches(kind: CovarianceType, batches: [usize; 3], gradients: std::ops::Range<usize>) {
    let data = dataset(130, 2);
    let sets: Vec<Mixture> = (0..10).map(|i| mixture(kind, 3, 2, 0.1 * f64::from(i))).collect();
    let work = |likelihood: &mut Likelihood| {
        let mut values = Vec::new();
        for count in batches {
            values.extend(likelihood.batch(&sets[..count])?);
        }
        let gradients = likelihood.values_and_gradients(&sets[gradients.clone()])?;
        Ok::<_, Error>((values, gradients.into_iter().map(|one| one.map(|(value, _)| value)).collect::<Vec<_>>()))
    };
    let whole = {
        let _fake = Fake::install(Machine::default());
        work(&mut Likelihood::new(&CudaEngine::new(0).unwrap(), &data, Precision::F32).unwrap()).unwrap()
    };
    for (class, code) in [
        (Class::Any, code::UNKNOWN),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Copy, code::ECC_UNCORRECTABLE),
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::ILLEGAL_ADDRESS),
    ] {
        for warm in [false, true] {
            for at in 1.. {
                let what = format!("{kind}: {class:?} {at}, code {code}, warm: {warm}");
                let fake = Fake::install(Machine::default());
                let engine = CudaEngine::new(0).unwrap();
                let mut likelihood = Likelihood::new(&engine, &data, Precision::F32).unwrap();
                if warm {
                    work(&mut likelihood).unwrap();
                }
                fake.0.fail(Fault::once(class, at, code));
                let end = work(&mut likelihood);
                let failed = fake.0.failed();
                match end {
                    Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                    // After an out-of-memory error another kernel may succeed; its result must then be right.
                    Ok((values, _)) if code == code::OUT_OF_MEMORY => close(&values, &whole.0, 1e-6, &what),
                    Ok(got) => {
                        assert_eq!(got, whole, "{what}");
                        assert!(may_fail(failed), "{what}: went on after {failed:?}");
                    }
                }
                fake.0.recover();
                if !fault::is_fatal(code) {
                    close(&work(&mut likelihood).unwrap().0, &whole.0, 1e-6, &format!("{what}: once more"));
                }
                drop((likelihood, engine));
                fake.0.assert_clean(&what);
                if failed.is_none() {
                    // A warm engine allocates nothing, and does not wait for values that it can poll.
                    let none = warm && [Class::Allocation, Class::Wait].contains(&class);
                    assert!(at > 1 || none, "{what}");
                    break;
                }
            }
        }
    }
}

#[test]
fn mixtures_that_f32_lacks_the_digits_for_go_another_way_and_no_others_do() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let data = dataset(300, 3);
    for kind in [CovarianceType::Diag, CovarianceType::Spherical] {
        let of = |i: usize, by: f64| {
            let wide = mixture(kind, 4, 3, 0.01 * i as f64);
            let covariances = match wide.covariances() {
                Covariances::Diag(all) => Covariances::Diag(all * by),
                Covariances::Spherical(all) => Covariances::Spherical(all * by),
                _ => unreachable!("diagonal or spherical"),
            };
            Mixture::new(wide.weights().to_owned(), wide.means().to_owned(), covariances).unwrap()
        };
        let narrow = [2, 4, 5, 8];
        let sets: Vec<Mixture> = (0..9).map(|i| of(i, if narrow.contains(&i) { 1e-6 } else { 1.0 })).collect();
        let mut fast = Likelihood::new(&engine, &data, Precision::F32).unwrap();
        let mut slow = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap();
        let (got, want) = (fast.batch(&sets).unwrap(), slow.batch(&sets).unwrap());
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            close(&[*got], &[*want], 2e-6, &format!("{kind}: set {i}"));
        }
        // One launch for those that the kernel accepts, and two for each run of others: one mixture, two, and the last.
        let (count, again) = calls(&fake.0, || fast.batch(&sets).unwrap());
        assert_eq!((count[0], again), (1 + 3 * 2, got), "{kind}");
        let few: Vec<Mixture> = (0..4).map(|i| of(i, 1e-6)).collect();
        let (count, _) = calls(&fake.0, || fast.batch(&few).unwrap());
        assert_eq!(count[0], 2, "{kind}: none is taken");
        // The same for one to three mixtures: a launch for each that the kernel accepts.
        for (which, launches) in [(1..2, 1), (2..3, 2), (3..6, 1 + 2), (4..6, 2)] {
            fast.batch(&sets[which.clone()]).unwrap();
            let (count, got) = calls(&fake.0, || fast.batch(&sets[which.clone()]).unwrap());
            assert_eq!(count[0], launches, "{kind}: {which:?}");
            for (got, i) in got.iter().zip(which) {
                close(&[*got], &want[i..=i], 2e-6, &format!("{kind}: set {i} of few"));
            }
        }
    }
}

#[test]
fn components_of_weight_0_count_nothing_where_all_others_are_far() {
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut all = rows(200, 2, 0.0);
    all[[77, 1]] = 1e17;
    let data = Dataset::new(all).unwrap();
    let means = ndarray::array![[0.0, 0.0], [1.0, 1.0]];
    for kind in [CovarianceType::Diag, CovarianceType::Spherical] {
        let covariances = mixture(kind, 2, 2, 0.0).covariances().clone();
        let one = Mixture::new(ndarray::array![0.0, 1.0], means.clone(), covariances).unwrap();
        let want = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap().value(&one).unwrap();
        let mut fast = Likelihood::new(&engine, &data, Precision::F32).unwrap();
        for count in [1, 3, 5] {
            close(&fast.batch(&vec![one.clone(); count]).unwrap(), &vec![want; count], 1e-6, kind.name());
        }
    }
}

#[test]
fn components_far_less_dense_than_others_go_another_way() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let data = dataset(300, 3);
    for (sd, launches) in [(1e20, 1), (1e30, 2)] {
        let sds = Array2::from_shape_fn((2, 3), |(c, _)| if c == 0 { 1.0 } else { sd });
        let means = Array2::zeros((2, 3));
        let one = Mixture::new(ndarray::array![0.5, 0.5], means, Covariances::Diag(&sds * &sds)).unwrap();
        let mut fast = Likelihood::new(&engine, &data, Precision::F32).unwrap();
        fast.value(&one).unwrap();
        let (count, got) = calls(&fake.0, || fast.value(&one).unwrap());
        let want = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap().value(&one).unwrap();
        close(&[got], &[want], 2e-6, "far less dense");
        assert_eq!(count[0], launches, "{sd}");
    }
}

#[test]
fn columns_beyond_the_range_of_f32_s_squares_go_another_way() {
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut all = rows(200, 2, 0.0);
    all.column_mut(1).mapv_inplace(|v| 1e22 * v);
    let data = Dataset::new(all).unwrap();
    let sets: Vec<Mixture> = (0..5)
        .map(|i| {
            let means = ndarray::array![[0.1 * f64::from(i), 1e22]];
            Mixture::new(ndarray::array![1.0], means, Covariances::Diag(ndarray::array![[1.0, 1e44]])).unwrap()
        })
        .collect();
    let mut fast = Likelihood::new(&engine, &data, Precision::F32).unwrap();
    let want = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap().batch(&sets).unwrap();
    close(&fast.batch(&sets).unwrap(), &want, 1e-6, "large columns");
    close(&[fast.value(&sets[1]).unwrap()], &want[1..2], 1e-6, "large columns, one set");
}
