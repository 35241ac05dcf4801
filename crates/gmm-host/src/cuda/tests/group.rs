//! Several devices as one engine.

use std::ops::ControlFlow;

use super::super::rows::sections::FORCED;
use super::*;
use crate::em::run;
use crate::{CudaGroup, EmOptions, EmRun, EvaluateOptions, FitOptions, Init};

const TWO: Machine = Machine { devices: 2, ..Machine::ONE };

fn weighted(n: usize, d: usize) -> Dataset {
    dataset(n, d).with_weights((0..n).map(|i| 0.5 + (i % 3) as f64).collect()).unwrap()
}

fn em_options(max_iter: usize, precision: Precision) -> EmOptions {
    EmOptions { tol: 0.0, max_iter, reg_covar: 1e-6, precision, autotune: false, fast: false }
}

/// Iterations of EM on an engine; the device's time is left out.
fn iterated(engine: &dyn Engine, data: &Dataset, start: &Mixture, precision: Precision) -> EmRun {
    let at = crate::shift::of_data(data);
    let mut rows = engine.load(data, precision, &at).unwrap();
    let options = em_options(3, precision);
    let mut run = run(rows.as_mut(), start.clone(), &options, 0, &mut |_| ControlFlow::Continue(())).unwrap();
    if let Some(on) = &mut run.on_device {
        on.time = std::time::Duration::ZERO;
    }
    run
}

#[test]
fn two_devices_iterate_to_what_one_finds_and_to_the_same_bits_again() {
    for kind in CovarianceType::ALL {
        for (precision, d, is_weighted) in [(Precision::F64, 3, true), (Precision::F32, 9, false)] {
            let what = format!("{kind} {precision}");
            let data = if is_weighted { weighted(700, d) } else { dataset(700, d) };
            let start = mixture(kind, 3, d, 0.0);
            let fake = Fake::install(TWO);
            let one = iterated(&CudaEngine::new(0).unwrap(), &data, &start, precision);
            let group = CudaGroup::open(&[]).unwrap();
            assert_eq!(group.name(), "cuda:0,1");
            let two = iterated(&group, &data, &start, precision);
            assert_eq!(two, iterated(&group, &data, &start, precision), "{what}: the same bits");
            let tolerance = if precision == Precision::F32 { 1e-5 } else { 1e-10 };
            assert_eq!(one.on_device, two.on_device, "{what}");
            assert!(two.on_device.is_some_and(|on| on.iterations == 3), "{what}");
            close(&two.trace, &one.trace, tolerance, &what);
            let means = |run: &EmRun| run.mixture.means().iter().copied().collect::<Vec<_>>();
            close(&means(&two), &means(&one), tolerance, &what);
            drop(group);
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn every_pass_of_two_devices_agrees_with_that_of_one() {
    let (n, d, k) = (500, 4, 3);
    for (kind, precision) in [(CovarianceType::Full, Precision::F64), (CovarianceType::Diag, Precision::F32)] {
        let (data, mixture) = (weighted(n, d), mixture(kind, k, d, 0.0));
        let at = crate::shift::of_data(&data);
        let fake = Fake::install(TWO);
        let passes = |engine: &dyn Engine| {
            let mut rows = engine.load_to_move(&data, precision, &at).unwrap();
            let statistics = [
                rows.pass(&mixture).unwrap(),
                rows.expectation(&mixture).unwrap(),
                rows.nearest(kind, mixture.means()).unwrap(),
                rows.given(kind, mixture.means(), &|start, out| {
                    out.iter_mut().enumerate().for_each(|(i, r)| *r = 0.5 + 0.5 * noise(start * k + i));
                })
                .unwrap(),
            ];
            let (mut densities, mut r, mut labels) = (vec![f64::NAN; n], vec![f64::NAN; n * k], vec![u32::MAX; n]);
            let want = EvaluateOptions {
                log_densities: Some(&mut densities),
                responsibilities: Some((&mut r).into()),
                labels: Some(&mut labels),
            };
            let totals = rows.evaluate(&mixture, want).unwrap();
            let likelihoods = rows.log_likelihoods(&[mixture.clone(), mixture.clone()]).unwrap();
            let near: Vec<f64> =
                mixture.means().outer_iter().flat_map(|c| rows.add_centre(&c.to_vec()).unwrap()).collect();
            let mut some = rows.sample(&[5, 400, 499], Some(&[1.0, 2.0, 3.0])).unwrap();
            let of_some = some.pass(&mixture).unwrap();
            drop(some);
            let mut numbers: Vec<f64> = vec![totals.log_likelihood, totals.entropy, totals.total_weight];
            for s in statistics.iter().chain([&of_some]) {
                numbers.extend(s.weight.iter().chain(&s.first).chain(&s.second).copied().chain([s.log_likelihood]));
            }
            (numbers, densities, r, labels, likelihoods, near)
        };
        let one = passes(&CudaEngine::new(0).unwrap());
        let group = CudaGroup::open(&[1, 0]).unwrap();
        let two = passes(&group);
        drop(group);
        fake.0.assert_clean("passes");
        let tolerance = if precision == Precision::F32 { 1e-5 } else { 1e-11 };
        assert_eq!(one.3, two.3);
        for (a, b) in [(&two.0, &one.0), (&two.1, &one.1), (&two.2, &one.2), (&two.4, &one.4), (&two.5, &one.5)] {
            close(a, b, tolerance, &format!("{kind} {precision}"));
        }
    }
}

#[test]
fn a_fit_on_two_devices_whose_rows_pass_through_them_has_the_bits_of_one_whose_rows_stay() {
    let data = weighted(2600, 5);
    let options = FitOptions { max_iter: 2, tol: 0.0, init: Init::Stride, ..FitOptions::new(2) };
    FORCED.set(Some((128, 1 << 20)));
    let fitted = |memory: usize| {
        let fake = Fake::install(Machine { memory, ..TWO });
        let group = CudaGroup::open(&[0, 1]).unwrap();
        let found = fit(&group, &data, &options).unwrap();
        drop(group);
        fake.0.assert_clean("a fit");
        ((found.mixture, found.summary), fake.0.launches("tile_from"))
    };
    // The fake's memory is that of both devices together.
    let (whole, passing) = (fitted(1 << 30), fitted((1 << 20) + 55_000));
    FORCED.set(None);
    assert!(whole.1 <= 4 && passing.1 > 20, "{} and {} conversions of rows", whole.1, passing.1);
    assert_eq!(whole.0, passing.0);
}

#[test]
fn restarts_of_few_rows_run_on_a_device_each_with_the_bits_of_one_device() {
    let data = weighted(300, 2);
    let options = FitOptions { n_init: 3, init: Init::RandomRows, max_iter: 3, tol: 0.0, ..FitOptions::new(2) };
    let fitted = |engine: &dyn Fn() -> Box<dyn Engine>| {
        let fake = Fake::install(TWO);
        let found = fit(engine().as_ref(), &data, &options).unwrap();
        fake.0.assert_clean("restarts");
        (found.mixture, found.summary.trace)
    };
    let one = fitted(&|| Box::new(CudaEngine::new(0).unwrap()));
    assert_eq!(fitted(&|| Box::new(CudaGroup::open(&[0, 1]).unwrap())), one);
}

#[test]
fn devices_are_named_once() {
    let fake = Fake::install(TWO);
    assert!(text(CudaGroup::open(&[1, 1])).contains("each once"));
    assert!(text(CudaGroup::open(&[0, 2])).contains("no such device"));
    fake.0.assert_clean("devices");
}

#[test]
fn every_fault_of_either_device_is_an_error_or_leaves_the_right_mixture() {
    let (data, start) = (dataset(300, 2), mixture(CovarianceType::Full, 2, 2, 0.0));
    let at = crate::shift::of_data(&data);
    let attempt = || -> Result<EmRun, Error> {
        let group = CudaGroup::open(&[])?;
        let mut rows = group.load(&data, Precision::F64, &at)?;
        run(rows.as_mut(), start.clone(), &em_options(2, Precision::F64), 0, &mut |_| ControlFlow::Continue(()))
    };
    let want = {
        let fake = Fake::install(TWO);
        let run = attempt().unwrap();
        fake.0.assert_clean("no fault");
        run
    };
    for (code, least) in [(code::OUT_OF_MEMORY, 60), (code::ILLEGAL_ADDRESS, 60)] {
        let mut at = 1;
        loop {
            let fake = Fake::with(TWO, Some(Fault::once(Class::Any, at, code)));
            let found = attempt();
            let failed = fake.0.failed();
            match &found {
                Ok(found) => {
                    let means = |run: &EmRun| run.mixture.means().iter().copied().collect::<Vec<_>>();
                    close(&means(found), &means(&want), 1e-10, &format!("call {at}, {failed:?}"));
                }
                Err(error) => assert!(failed.is_some(), "call {at}: {error}"),
            }
            if code != code::ILLEGAL_ADDRESS {
                fake.0.assert_clean(&format!("call {at}, {failed:?}"));
            }
            if failed.is_none() {
                break;
            }
            at += 1;
        }
        assert!(at > least, "{at} calls");
    }
}
