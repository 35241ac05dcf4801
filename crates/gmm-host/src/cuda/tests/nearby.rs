//! Thousands of components, of which only those near a tile of rows are evaluated.

use std::ops::ControlFlow;

use gmm_model::{Numbers, PrecisionMixture, reference};

use super::halves::{around, reference_with, same};
use super::*;
use crate::em::{EmOptions, EmRun, run};
use crate::engine::Evaluate;
use crate::{EvaluateOptions, shift};

const REG: f64 = 1e-6;

fn on_device(data: &Dataset, start: &Mixture, precision: Precision, plan: &str, reg_covar: f64) -> EmRun {
    tried(data, start, precision, plan, reg_covar).unwrap()
}

fn tried(data: &Dataset, start: &Mixture, precision: Precision, plan: &str, reg_covar: f64) -> Result<EmRun, Error> {
    let forced = plan::ForcedPlan::parse(plan).unwrap();
    let engine = CudaEngine::new(0)?;
    let options = EmOptions { tol: 0.0, max_iter: 3, reg_covar, precision, autotune: false, fast: false };
    let em = |rows: &mut dyn Resident| run(rows, start.clone(), &options, 0, &mut |_| ControlFlow::Continue(()));
    let (gpu, at) = (engine.gpu.clone(), shift::of_data(data));
    match precision {
        Precision::F32 => {
            em(&mut CudaResident::<f32>::load(gpu, data, precision, &at, forced, LoadOptions::default())?)
        }
        Precision::F64 => {
            em(&mut CudaResident::<f64>::load(gpu, data, precision, &at, forced, LoadOptions::default())?)
        }
    }
}

/// Clusters on a grid, with neighbours that overlap, and a mixture close to them.
fn problem(kind: CovarianceType, (n, d, k): (usize, usize, usize), offset: f64) -> (Array2<f64>, Mixture) {
    let side = (1..).find(|&side: &usize| side.pow(d.min(3) as u32) >= k).unwrap();
    let corner = |c: usize, j: usize| offset + if j < 3 { (c / side.pow(j as u32) % side) as f64 * 3.0 } else { 0.0 };
    around(kind, (n, d, k), corner)
}

fn agrees(kind: CovarianceType, precision: Precision, size: (usize, usize, usize), weighted: bool) {
    let what = format!("{kind} {precision} {size:?} weighted={weighted}");
    let tolerance = if precision == Precision::F32 { 4e-6 } else { 1e-11 };
    let (rows, start) = problem(kind, size, 10.0);
    let mut data = Dataset::new(rows).unwrap();
    if weighted {
        data = data.with_weights((0..size.0).map(|i| 0.5 * (i % 3) as f64).collect()).unwrap();
    }
    let fake = Fake::install(Machine::default());
    let got = on_device(&data, &start, precision, "path=nearby", REG);
    assert_eq!(got.on_device.map(|on| (on.path, on.iterations)), Some(("nearby", 3)), "{what}");
    let near = got.near_components.expect("a path that leaves components out");
    assert!(near > 0.0 && near <= size.2 as f64, "{what}: {near}");
    same(&got, &reference_with(&data, &start, 3, REG), tolerance, &what);
    let again = on_device(&data, &start, precision, "path=nearby", REG);
    assert_eq!((&got.mixture, &got.trace), (&again.mixture, &again.trace), "{what}: the same bits");
    fake.0.assert_clean(&what);
}

#[test]
fn the_floor_is_that_of_the_cpu() {
    assert_eq!(gmm_kernels::em::nearby::FLOOR, crate::nearby::FLOOR);
}

#[test]
fn near_components_alone_give_the_sums_of_all() {
    for (kind, columns) in [
        (CovarianceType::Full, &[1, 2, 3, 4, 5, 6][..]),
        (CovarianceType::Tied, &[1, 2, 5, 6]),
        (CovarianceType::Diag, &[1, 3, 7, 12]),
        (CovarianceType::Spherical, &[2, 5, 9]),
    ] {
        for (i, &d) in columns.iter().enumerate() {
            let precision = if i % 2 == 0 { Precision::F64 } else { Precision::F32 };
            agrees(kind, precision, (2500 + 61 * i, d, 30 + i), i % 3 == 1);
        }
    }
}

#[test]
fn few_rows_and_more_components_than_a_block_has_threads_agree() {
    agrees(CovarianceType::Full, Precision::F64, (700, 2, 150), false);
    agrees(CovarianceType::Diag, Precision::F32, (1403, 3, 140), true);
    agrees(CovarianceType::Spherical, Precision::F64, (5, 2, 2), false);
}

#[test]
fn a_far_row_and_equal_rows_agree() {
    let kind = CovarianceType::Full;
    let (mut rows, start) = problem(kind, (600, 2, 20), 0.0);
    rows[[77, 0]] = 400.0;
    (300..600).for_each(|i| {
        let row = rows.row(0).to_owned();
        rows.row_mut(i).assign(&row);
    });
    let data = Dataset::new(rows).unwrap();
    let _fake = Fake::install(Machine::default());
    // Equal rows leave a component little variance beside its distance from the shift.
    let reg = 0.1;
    let got = on_device(&data, &start, Precision::F64, "path=nearby", reg);
    assert_eq!(got.on_device.map(|on| on.path), Some("nearby"));
    same(&got, &reference_with(&data, &start, 3, reg), 1e-11, "a far row");
}

#[test]
fn a_list_longer_than_a_block_holds_stays_that_of_the_group() {
    // More than 4096 components at one place.
    let (n, d, k) = (150, 1, 4200);
    let rows = Array2::from_shape_fn((n, d), |(i, _)| noise(i));
    let means = Array2::from_shape_fn((k, d), |(c, _)| 0.5 * noise(7000 + c));
    let start =
        Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, Covariances::Spherical(Array1::ones(k))).unwrap();
    let data = Dataset::new(rows).unwrap();
    let _fake = Fake::install(Machine::default());
    let got = on_device(&data, &start, Precision::F64, "path=nearby", REG);
    assert_eq!(got.on_device.map(|on| on.path), Some("nearby"));
    same(&got, &reference_with(&data, &start, 3, REG), 1e-11, "all near");
}

#[test]
fn shapes_without_kernels_run_on_another_path() {
    let fake = Fake::install(Machine::default());
    let (rows, start) = problem(CovarianceType::Tied, (300, 7, 4), 0.0);
    let data = Dataset::new(rows).unwrap();
    let got = on_device(&data, &start, Precision::F64, "", REG);
    assert_eq!(fake.0.launches("nearby_pass"), 0);
    same(&got, &reference_with(&data, &start, 3, REG), 1e-11, "tied");
}

/// Evaluates a mixture, and compares it with the reference.
fn evaluates(
    rows: &mut dyn Resident,
    (data, mixture): (&Dataset, &Mixture),
    of_rows: bool,
    tolerance: f64,
    what: &str,
) {
    let (n, k) = (data.n_rows(), mixture.n_components());
    let values = data.rows().to_f64();
    let (mut densities, mut labels) = (vec![f64::NAN; n], vec![u32::MAX; n]);
    let want = EvaluateOptions {
        log_densities: of_rows.then_some(&mut densities[..]),
        labels: of_rows.then_some(&mut labels[..]),
        ..EvaluateOptions::default()
    };
    let found = rows.evaluate(mixture, want).unwrap();
    let (mut likelihood, mut entropy) = (0.0, 0.0);
    let wanted: Vec<f64> = (0..n)
        .map(|i| {
            let (log, r) = reference::posterior(mixture, values.row(i));
            let weight = data.weights().map_or(1.0, |all| all[i]);
            likelihood += weight * log;
            entropy -= weight * r.iter().filter(|r| **r > 0.0).map(|r| r * r.ln()).sum::<f64>();
            if of_rows {
                // Two components may be as likely but for rounding.
                let label = labels[i] as usize;
                assert!(label < k && r[label] >= r[reference::argmax(r.view())] - 1e-6, "{what}: label of row {i}");
            }
            log
        })
        .collect();
    close(&[found.log_likelihood, found.total_weight], &[likelihood, data.total_weight()], tolerance, what);
    assert!((found.entropy - entropy).abs() <= tolerance * n as f64, "{what}: {} and {entropy}", found.entropy);
    if of_rows {
        close(&densities, &wanted, tolerance, what);
    }
}

#[test]
fn evaluations_over_near_components_are_those_over_all() {
    let cases = [
        (CovarianceType::Full, 3, Precision::F64),
        (CovarianceType::Tied, 2, Precision::F32),
        (CovarianceType::Diag, 7, Precision::F64),
        (CovarianceType::Spherical, 2, Precision::F32),
    ];
    for (i, (kind, d, precision)) in cases.into_iter().enumerate() {
        let weighted = i == 2;
        let what = format!("{kind} {precision}");
        let (values, start) = problem(kind, (1500 + 77 * i, d, 40), 10.0);
        let mut data = Dataset::new(values).unwrap();
        if weighted {
            let n = data.n_rows();
            data = data.with_weights((0..n).map(|i| 0.5 * (i % 3) as f64).collect()).unwrap();
        }
        let tolerance = if precision == Precision::F32 { 4e-6 } else { 1e-11 };
        let fake = Fake::install(Machine::default());
        let (gpu, at) = (CudaEngine::new(0).unwrap().gpu.clone(), shift::of_data(&data));
        let forced = plan::ForcedPlan::parse("path=nearby").unwrap();
        let _kept = original::force(KeepOriginal::Together);
        let (mut single, mut double);
        let rows: &mut dyn Resident = match precision {
            Precision::F32 => {
                single = CudaResident::<f32>::load(gpu, &data, precision, &at, forced, LoadOptions::default()).unwrap();
                &mut single
            }
            Precision::F64 => {
                double = CudaResident::<f64>::load(gpu, &data, precision, &at, forced, LoadOptions::default()).unwrap();
                &mut double
            }
        };
        let of_rows = !weighted;
        evaluates(rows, (&data, &start), of_rows, tolerance, &format!("{what}: before a loop"));
        let options = EmOptions { tol: 0.0, max_iter: 2, reg_covar: REG, precision, autotune: false, fast: false };
        let fitted = run(rows, start.clone(), &options, 0, &mut |_| ControlFlow::Continue(())).unwrap().mixture;
        let seeds = fake.0.launches("nearby_seed");
        evaluates(rows, (&data, &fitted), of_rows, tolerance, &format!("{what}: after a loop"));
        let moved: Vec<f64> = at.iter().map(|v| v + 0.25).collect();
        assert!(rows.hold_about(&moved).unwrap());
        evaluates(rows, (&data, &fitted), of_rows, tolerance, &format!("{what}: after a move"));
        let covariances = start.covariances().clone();
        let other = Mixture::new(start.weights().to_owned(), fitted.means().to_owned(), covariances).unwrap();
        evaluates(rows, (&data, &other), of_rows, tolerance, &format!("{what}: the same means alone"));
        assert_eq!(fake.0.launches("nearby_seed"), seeds, "{what}: the order of the loop is still there");
        evaluates(rows, (&data, &start), of_rows, tolerance, &format!("{what}: another mixture"));
        assert!(fake.0.launches("nearby_seed") > seeds, "{what}: another order");
        assert_eq!(fake.0.launches("e_step"), 0, "{what}");
    }
}

/// Variances are made of the factors of precisions; of full and tied covariances those are taken as they are.
#[test]
fn factors_of_precisions_are_evaluated_over_near_components_if_they_are_variances() {
    for (kind, near) in [(CovarianceType::Diag, true), (CovarianceType::Full, false)] {
        let (n, d, k) = (900, 3, 30);
        let (values, mixture) = problem(kind, (n, d, k), 10.0);
        let data = Dataset::new(values).unwrap();
        let factors: Vec<f64> = match mixture.covariances() {
            Covariances::Diag(all) => all.iter().map(|v| v.sqrt().recip()).collect(),
            // Of equal variances without correlations.
            _ => (0..k * d * d).map(|at| if at / d % d == at % d { 0.7 } else { 0.0 }).collect(),
        };
        let shape = if near { vec![k, d] } else { vec![k, d, d] };
        let (weights, means) = (mixture.weights().to_owned(), (mixture.means().to_owned(), Precision::F64));
        let of = PrecisionMixture::new(kind, weights, means, Numbers::F64(&factors), &shape).unwrap();
        let fake = Fake::install(Machine::default());
        let (gpu, at) = (CudaEngine::new(0).unwrap().gpu.clone(), shift::of_data(&data));
        let forced = plan::ForcedPlan::parse("path=nearby").unwrap();
        let load = CudaResident::<f64>::load(gpu, &data, Precision::F64, &at, forced, LoadOptions::default());
        let found = load.unwrap().evaluate_precisions(&of, EvaluateOptions::default()).unwrap();
        let of = of.to_mixture().unwrap();
        let want: f64 = reference::log_densities(&of, data.rows().to_f64().view()).sum();
        close(&[found.log_likelihood], &[want], 1e-11, &kind.to_string());
        assert_eq!(fake.0.launches("nearby_pass") > 0, near, "{kind}");
    }
}

/// Buffers that a failed call replaced hold no order.
#[test]
fn after_a_failed_evaluation_the_next_one_is_right() {
    let (values, start) = problem(CovarianceType::Full, (300, 2, 10), 0.0);
    let data = Dataset::new(values).unwrap();
    let wide = problem(CovarianceType::Full, (300, 2, 60), 0.0).1;
    for at in 1.. {
        let fake = Fake::with(Machine::default(), Some(Fault::once(Class::Allocation, at, code::OUT_OF_MEMORY)));
        let Ok(engine) = CudaEngine::new(0) else { continue };
        let (gpu, shift) = (engine.gpu.clone(), shift::of_data(&data));
        let forced = plan::ForcedPlan::parse("path=nearby").unwrap();
        let load = CudaResident::<f64>::load(gpu, &data, Precision::F64, &shift, forced, LoadOptions::default());
        let Ok(mut rows) = load else { continue };
        let one = EmOptions {
            tol: 0.0,
            max_iter: 1,
            reg_covar: REG,
            precision: Precision::F64,
            autotune: false,
            fast: false,
        };
        let Ok(fitted) = run(&mut rows, start.clone(), &one, 0, &mut |_| ControlFlow::Continue(())) else { continue };
        // The fault may be here: more components need more memory.
        let _ = rows.evaluate(&wide, EvaluateOptions::default());
        evaluates(&mut rows, (&data, &fitted.mixture), true, 1e-11, &format!("allocation {at}"));
        if fake.0.failed().is_none() {
            break;
        }
    }
}

#[test]
fn every_fault_is_an_error_and_leaks_nothing() {
    let (rows, start) = problem(CovarianceType::Full, (200, 2, 5), 0.0);
    let data = Dataset::new(rows).unwrap();
    let run = || tried(&data, &start, Precision::F64, "path=nearby", REG);
    let whole = {
        let _fake = Fake::install(Machine::default());
        run().unwrap()
    };
    for (class, code) in [(Class::Any, code::UNKNOWN), (Class::Wait, code::ILLEGAL_ADDRESS)] {
        for at in 1.. {
            let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
            let (end, failed) = (run(), fake.0.failed());
            let what = format!("{class:?} {at}, code {code}");
            match end {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                Ok(run) => assert!(run.mixture == whole.mixture && may_fail(failed), "{what}: after {failed:?}"),
            }
            fake.0.assert_clean(&what);
            if failed.is_none() {
                assert!(at > 3, "{what}");
                break;
            }
        }
    }
}
