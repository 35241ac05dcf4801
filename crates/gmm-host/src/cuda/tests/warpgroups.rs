//! The wgmma paths as the host drives them, with fp16 and with split-fp16 operands.

use std::ops::ControlFlow;

use super::halves::{ALLOWED, ALLOWED_IN_HEADS, problem, reference_with, same};
use super::*;
use crate::cuda::driver::fake::MOST_SHARED;
use crate::em::run;
use crate::fast;
use crate::{EmOptions, EmRun, shift};

/// A Hopper GPU: its blocks have enough shared memory for the sums of many columns.
const HOPPER: Machine = Machine { shared: MOST_SHARED, ..Machine::ONE };

/// Shapes that are cheap in the emulator; selection would use other paths for them.
const SHAPES: [(CovarianceType, (usize, usize, usize)); 4] = [
    (CovarianceType::Full, (300, 40, 3)),
    (CovarianceType::Tied, (300, 20, 5)),
    (CovarianceType::Diag, (390, 33, 3)),
    (CovarianceType::Spherical, (260, 7, 66)),
];

fn options(max_iter: usize) -> EmOptions {
    EmOptions { tol: 0.0, max_iter, reg_covar: 0.1, precision: Precision::F32, autotune: false, fast: true }
}

fn loaded(plan: &str, data: &Dataset) -> Result<CudaResident<f32>, Error> {
    let engine = CudaEngine::new(0)?;
    let forced = plan::ForcedPlan::parse(plan).unwrap();
    CudaResident::<f32>::load(
        engine.gpu.clone(),
        data,
        Precision::F32,
        &shift::of_data(data),
        forced,
        LoadOptions::default(),
    )
}

fn em(plan: &str, data: &Dataset, start: &Mixture) -> Result<EmRun, Error> {
    run(&mut loaded(plan, data)?, start.clone(), &options(2), 0, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn rows_at_once_and_in_chunks_agree_with_the_reference_as_far_as_heads_go() {
    for (kind, shape) in SHAPES {
        let (rows, start) = problem(kind, shape);
        let data = Dataset::new(rows).unwrap();
        let want = reference_with(&data, &start, 2, 0.1);
        for plan in ["path=wgmma-fp16", "path=wgmma-fp16,chunk=128,splits=2", "path=wgmma-fp16,section=128"] {
            let what = format!("{kind} {plan}");
            let fake = Fake::install(HOPPER);
            let got = em(plan, &data, &start).unwrap();
            assert_eq!(got.on_device.map(|on| (on.path, on.iterations)), Some(("wgmma-fp16", 2)), "{what}");
            same(&got, &want, 2.0 * ALLOWED_IN_HEADS, &what);
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn two_halves_of_full_covariances_agree_with_the_reference() {
    let in_chunks = "path=wgmma-split-fp16,chunk=128,splits=2";
    let in_sections = "path=wgmma-split-fp16,section=128";
    for (shape, plan) in [
        ((300, 40, 3), "path=wgmma-split-fp16"),
        ((300, 40, 3), in_chunks),
        ((190, 130, 2), in_chunks),
        ((260, 40, 3), in_sections),
    ] {
        let what = format!("{shape:?} {plan}");
        let (rows, start) = problem(CovarianceType::Full, shape);
        let data = Dataset::new(rows).unwrap();
        let fake = Fake::install(HOPPER);
        let options = EmOptions { fast: false, ..options(2) };
        let mut rows = loaded(plan, &data).unwrap();
        let got = run(&mut rows, start.clone(), &options, 0, &mut |_| ControlFlow::Continue(())).unwrap();
        drop(rows);
        assert_eq!(got.on_device.map(|on| (on.path, on.iterations)), Some(("wgmma-split-fp16", 2)), "{what}");
        same(&got, &reference_with(&data, &start, 2, 0.1), ALLOWED, &what);
        fake.0.assert_clean(&what);
    }
}

#[test]
fn features_are_made_once_where_all_rows_go_together() {
    let (rows, start) = problem(CovarianceType::Diag, (390, 20, 3));
    let data = Dataset::new(rows).unwrap();
    for (plan, made) in [("path=wgmma-fp16", 1), ("path=wgmma-fp16,chunk=128", 2 * 4)] {
        let fake = Fake::install(HOPPER);
        em(plan, &data, &start).unwrap();
        assert_eq!(fake.0.launches("wgmma_features"), made, "{plan}");
    }
}

#[test]
fn what_it_costs_is_measured() {
    let (rows, start) = problem(CovarianceType::Diag, (390, 33, 3));
    let data = Dataset::new(rows).unwrap();
    let _fake = Fake::install(HOPPER);
    let mut rows = loaded("", &data).unwrap();
    // The path that selection chooses: with few components a path at the same speed without precision loss.
    let loss = fast::loss(&mut rows, &start, &options(1)).unwrap();
    assert_eq!(loss, None, "a single pass has all digits");
    let (rows, start) = problem(CovarianceType::Spherical, (300, 50, 64));
    let data = Dataset::new(rows).unwrap();
    let loss = fast::loss(&mut loaded("", &data).unwrap(), &start, &options(1)).unwrap().unwrap();
    assert!(loss.log_likelihood > 0.0 && loss.means > 0.0 && loss.means < ALLOWED_IN_HEADS, "{loss}");
}

#[test]
fn a_device_before_hopper_and_one_with_little_shared_memory_take_heads() {
    let (rows, start) = problem(CovarianceType::Full, (200, 48, 16));
    let data = Dataset::new(rows).unwrap();
    for machine in [Machine { capability: (8, 0), ..HOPPER }, Machine::ONE] {
        let _fake = Fake::install(machine);
        assert_eq!(em("", &data, &start).unwrap().on_device.unwrap().path, "chunked-fp16");
    }
}

#[test]
fn every_fault_is_an_error_or_leaves_the_right_mixture() {
    let (rows, start) = problem(CovarianceType::Tied, (70, 5, 2));
    let data = Dataset::new(rows).unwrap();
    let plan = "path=wgmma-fp16";
    let whole = {
        let _fake = Fake::install(HOPPER);
        em(plan, &data, &start).unwrap()
    };
    for (class, code) in [
        (Class::Launch, code::LAUNCH_OUT_OF_RESOURCES),
        (Class::Launch, code::OUT_OF_MEMORY),
        (Class::Allocation, code::OUT_OF_MEMORY),
        (Class::Copy, code::UNKNOWN),
        (Class::Wait, code::ILLEGAL_ADDRESS),
    ] {
        for at in 1.. {
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::with(HOPPER, Some(Fault::once(class, at, code)));
            let end = em(plan, &data, &start);
            let Some(_) = fake.0.failed() else {
                assert!(at > 1, "{what}: nothing to fail");
                break;
            };
            if let Ok(run) = end {
                // On the same path, or on one in full precision.
                same(&run, &whole, 2.0 * ALLOWED_IN_HEADS, &what);
            }
            fake.0.assert_clean(&what);
        }
    }
}
