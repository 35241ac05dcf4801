//! Steps of one component: its log densities stay on the device and are mixed there.

use super::*;
use crate::{ComponentCache, ComponentChange, CpuEngine, Likelihood};

/// Rows with weights, some of which are 0.
fn weighted(n: usize, d: usize, offset: f64, precision: Precision) -> Dataset {
    let mut all = rows(n, d, offset);
    if precision == Precision::F32 {
        all.mapv_inplace(|v| f64::from(v as f32));
    }
    let weights = (0..n).map(|i| 0.5 * (i % 3) as f64).collect();
    Dataset::new(all).unwrap().with_weights(weights).unwrap()
}

fn moved(mean: &[f64]) -> ComponentChange<'_> {
    ComponentChange { mean: Some(mean), ..ComponentChange::default() }
}

#[test]
fn steps_have_the_bits_of_a_new_cache_and_the_values_of_the_cpu_engine() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            let (n, d, k) = (300, 3, 10);
            let (what, tolerance) =
                (format!("{kind} {precision}"), if precision == Precision::F32 { 2e-5 } else { 1e-11 });
            let data = weighted(n, d, 10.0, precision);
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let mut there = Likelihood::new(&engine, &data, precision).unwrap();
            let mut here = Likelihood::new(&CpuEngine::new(1).unwrap(), &data, precision).unwrap();
            let start = mixture(kind, k, d, 10.0);
            let mut cache = ComponentCache::new(&mut there, start.clone()).unwrap();
            let (first, mut last) = (cache.value(), cache.value());
            let mut same = |cache: &ComponentCache, there: &mut Likelihood| {
                let fresh = ComponentCache::new(there, cache.mixture().clone()).unwrap();
                assert_eq!(cache.value(), fresh.value(), "{what}: a step and a new cache");
                let (mut a, mut b, mut c) = (vec![f64::NAN; n], vec![f64::NAN; n], vec![f64::NAN; n]);
                cache.per_row(there, &mut a).unwrap();
                fresh.per_row(there, &mut b).unwrap();
                assert_eq!(a, b, "{what}: rows");
                let value = here.per_row(cache.mixture(), &mut c).unwrap();
                close(&a, &c, tolerance, &what);
                close(&[cache.value()], &[value], tolerance, &what);
                assert!(cache.value() != std::mem::replace(&mut last, cache.value()), "{what}: it moved");
            };
            cache.update_component(&mut there, 9, moved(&[11.0, 10.0, 12.0])).unwrap();
            same(&cache, &mut there);
            let weights: Vec<f64> = (0..k).map(|c| if c == 4 { 0.0 } else { 1.0 / 9.0 }).collect();
            cache.update_weights(&mut there, &weights).unwrap();
            same(&cache, &mut there);
            let before = cache.value();
            cache.update(&mut there, mixture(kind, k, d, 10.4)).unwrap();
            same(&cache, &mut there);
            assert!(cache.undo() && !cache.undo());
            assert_eq!(cache.value(), before, "{what}: taken back");
            same(&cache, &mut there);
            cache.update(&mut there, start).unwrap();
            assert_eq!(cache.value(), first, "{what}: back at the start");
            drop((cache, there, engine));
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn a_step_takes_four_launches_and_one_wait_and_no_memory_and_nothing_of_its_rows_comes_to_the_host() {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let mut likelihood = Likelihood::new(&engine, &dataset(3000, 3), Precision::F32).unwrap();
        let mut cache = ComponentCache::new(&mut likelihood, mixture(kind, 4, 3, 0.0)).unwrap();
        cache.update_component(&mut likelihood, 2, moved(&[1.0, 2.0, 3.0])).unwrap();
        let copies = fake.0.calls_of(Class::Copy);
        let (count, _) =
            calls(&fake.0, || cache.update_component(&mut likelihood, 1, moved(&[1.5, 2.0, 3.0])).unwrap());
        // Launches: the component's E-step, its totals, the mixing, and the sum over blocks.
        assert_eq!(count, [4, 0, 1], "{kind}");
        let (count, _) = calls(&fake.0, || cache.update_weights(&mut likelihood, &[0.25; 4]).unwrap());
        assert_eq!(count, [2, 0, 1], "{kind}: weights");
        assert_eq!(fake.0.calls_of(Class::Copy) - copies, 3, "{kind}: parameters, and twice where columns lie");
        let (count, _) = calls(&fake.0, || cache.undo());
        assert_eq!(count, [0, 0, 0], "{kind}: a step back");
    }
}

#[test]
fn a_row_without_density_makes_the_value_minus_infinity_until_it_has_one() {
    let mut all = rows(300, 2, 0.0);
    all[[200, 1]] = 1e200;
    let data = Dataset::new(all).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut likelihood = Likelihood::new(&engine, &data, Precision::F64).unwrap();
    let start = mixture(CovarianceType::Spherical, 3, 2, 0.0);
    let mut cache = ComponentCache::new(&mut likelihood, start).unwrap();
    assert_eq!(cache.value(), f64::NEG_INFINITY);
    let wide = ComponentChange { covariance: Some(&[1e300]), mean: Some(&[0.0, 1e200]), weights: None };
    assert!(cache.update_component(&mut likelihood, 1, wide).unwrap().is_finite());
    cache.undo();
    assert_eq!(cache.value(), f64::NEG_INFINITY);
}

/// Values of a cache, after a step of one component, of the rows, and after a step of all components.
fn steps(likelihood: &mut Likelihood, kind: CovarianceType, k: usize) -> Result<Vec<f64>, Error> {
    let mut cache = ComponentCache::new(likelihood, mixture(kind, k, 2, 0.0))?;
    let mut out = vec![cache.value()];
    let mut goes_on = |cache: &mut ComponentCache, likelihood: &mut Likelihood, end: Result<f64, Error>, was: f64| {
        match end {
            Ok(value) => out.push(value),
            Err(error) => {
                assert_eq!(cache.value(), was, "as it was");
                assert!(!cache.undo());
                // A failed step of all components leaves the memory that a step of one needs.
                let weights = vec![1.0 / k as f64; k];
                if matches!(error, Error::Memory { .. }) {
                    let there = cache.update_weights(likelihood, &weights).unwrap();
                    assert!(there.is_finite() && cache.undo() && cache.value() == was);
                }
                return Err(error);
            }
        }
        Ok(())
    };
    let was = cache.value();
    let end = cache.update_component(likelihood, 1, moved(&[1.0, 2.0]));
    goes_on(&mut cache, likelihood, end, was)?;
    let was = cache.value();
    let end = cache.update(likelihood, mixture(kind, k, 2, 0.3));
    goes_on(&mut cache, likelihood, end, was)?;
    let mut rows = vec![f64::NAN; likelihood.dim().0];
    cache.per_row(likelihood, &mut rows)?;
    out.extend(rows);
    Ok(out)
}

#[test]
fn where_the_device_lacks_the_memory_the_host_keeps_them() {
    let (n, k, kind) = (20_000, 8, CovarianceType::Diag);
    let data = dataset(n, 2);
    let column = 8 * n;
    let run = |memory: usize| {
        let fake = Fake::install(Machine { memory, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let mut likelihood = Likelihood::new(&engine, &data, Precision::F64).unwrap();
        let end = steps(&mut likelihood, kind, k);
        drop((likelihood, engine));
        fake.0.assert_clean(&format!("{memory} bytes"));
        end
    };
    let want = run(1 << 30).unwrap();
    let mut ends = Vec::new();
    // Memory for the rows, and for the columns of none, some or all components, and of all twice.
    for room in [4, 7, 10, 13, 16, 19, 22] {
        let end = run((2 + room) * column + (1 << 18));
        match &end {
            Ok(got) => close(got, &want, 1e-12, &format!("room for {room} columns")),
            // There was memory for steps of one component.
            Err(error) => assert!(matches!(error, Error::Memory { .. }), "room for {room} columns: {error}"),
        }
        ends.push(end.is_ok());
    }
    // On the host; on the device without memory for a step of all components; on the device.
    assert!(ends[0] && ends[ends.len() - 1] && ends.contains(&false), "{ends:?}");
}

#[test]
fn a_tied_covariance_finds_room_for_its_steps_at_the_start() {
    let (n, k) = (3000, 4);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut likelihood = Likelihood::new(&engine, &dataset(n, 2), Precision::F64).unwrap();
    let mut cache = ComponentCache::new(&mut likelihood, mixture(CovarianceType::Tied, k, 2, 0.0)).unwrap();
    let next = mixture(CovarianceType::Tied, k, 2, 0.3);
    let (count, _) = calls(&fake.0, || cache.update(&mut likelihood, next).unwrap());
    assert_eq!(count[1], 0);
}

#[test]
#[should_panic(expected = "columns of these rows")]
fn columns_of_other_rows_are_refused_before_they_are_read() {
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let load = |n: usize| engine.load(&dataset(n, 2), Precision::F64, &[0.0; 2]).unwrap();
    let column = load(300).column().unwrap().unwrap();
    let _ = load(200).mix_columns(&mut [column], &[0.0], &[]);
}

#[test]
fn every_fault_of_a_step_is_an_error_and_leaves_the_cache_as_it_was() {
    let data = dataset(130, 2);
    let start = mixture(CovarianceType::Full, 3, 2, 0.0);
    let step = moved(&[1.0, 0.5]);
    let want = {
        let _fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let mut likelihood = Likelihood::new(&engine, &data, Precision::F32).unwrap();
        ComponentCache::new(&mut likelihood, start.clone()).unwrap().update_component(&mut likelihood, 1, step).unwrap()
    };
    for (class, code) in [
        (Class::Any, code::UNKNOWN),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Copy, code::ECC_UNCORRECTABLE),
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Wait, code::ILLEGAL_ADDRESS),
    ] {
        for at in 1.. {
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            let mut likelihood = Likelihood::new(&engine, &data, Precision::F32).unwrap();
            let mut cache = ComponentCache::new(&mut likelihood, start.clone()).unwrap();
            let before = cache.value();
            fake.0.fail(Fault::once(class, at, code));
            let end = cache.update_component(&mut likelihood, 1, step);
            let failed = fake.0.failed();
            fake.0.recover();
            match end {
                Ok(value) => {
                    assert_eq!(value, want, "{what}");
                    // After an out-of-memory error a launch is tried again.
                    let harmless = may_fail(failed) || code == code::OUT_OF_MEMORY;
                    assert!(harmless, "{what}: went on after {failed:?}");
                }
                Err(error) => {
                    assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}");
                    assert_eq!((cache.value(), cache.mixture()), (before, &start), "{what}");
                    assert!(!cache.undo(), "{what}");
                    if !fault::is_fatal(code) {
                        let again = cache.update_component(&mut likelihood, 1, step).unwrap();
                        assert_eq!(again, want, "{what}: once more");
                        assert!(cache.undo());
                    }
                }
            }
            drop((cache, likelihood, engine));
            fake.0.assert_clean(&what);
            if failed.is_none() {
                // A step allocates no memory after the first one.
                assert!(at > 1 || class == Class::Allocation, "{what}");
                break;
            }
        }
    }
}

#[test]
fn every_fault_from_the_making_on_is_an_error_or_leaves_the_right_answer_and_leaks_nothing() {
    let data = dataset(130, 2);
    for kind in [CovarianceType::Tied, CovarianceType::Spherical] {
        let want = {
            let _fake = Fake::install(Machine::default());
            let engine = CudaEngine::new(0).unwrap();
            steps(&mut Likelihood::new(&engine, &data, Precision::F64).unwrap(), kind, 3).unwrap()
        };
        for (class, code) in [
            (Class::Any, code::UNKNOWN),
            (Class::Allocation, code::OUT_OF_MEMORY),
            (Class::Copy, code::ECC_UNCORRECTABLE),
            (Class::Launch, code::OUT_OF_MEMORY),
            (Class::Wait, code::ILLEGAL_ADDRESS),
        ] {
            for at in 1.. {
                let what = format!("{kind}: {class:?} {at}, code {code}");
                let fake = Fake::install(Machine::default());
                let engine = CudaEngine::new(0).unwrap();
                let mut likelihood = Likelihood::new(&engine, &data, Precision::F64).unwrap();
                fake.0.fail(Fault::once(class, at, code));
                let end = steps(&mut likelihood, kind, 3);
                let failed = fake.0.failed();
                fake.0.recover();
                match end {
                    // Out of memory, so the host computes it, with different bits.
                    Ok(got) => close(&got, &want, 1e-12, &what),
                    Err(error) => {
                        assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}");
                        if !fault::is_fatal(code) {
                            close(
                                &steps(&mut likelihood, kind, 3).unwrap(),
                                &want,
                                1e-12,
                                &format!("{what}: once more"),
                            );
                        }
                    }
                }
                drop((likelihood, engine));
                fake.0.assert_clean(&what);
                if failed.is_none() {
                    assert!(at > 4, "{what}");
                    break;
                }
            }
        }
    }
}
