//! When the loop on the device falls back to the host, compared with what the tests on a GPU expect: the criterion of
//! `tests/cuda_matches_reference`, checked here against the kernels in the emulator.

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/cuda_matches_reference/hand_over.rs"]
#[allow(dead_code, reason = "its margin is for other rounding than this")]
mod criterion;
#[path = "../../../tests/cuda_matches_reference/data.rs"]
#[allow(dead_code, reason = "some of it is for sizes that want a GPU")]
mod data;

use std::ops::ControlFlow;

use super::*;
use crate::cuda::em::error_bounds::{self, ErrorBounds};
use crate::em::run;
use crate::{CpuEngine, EmOptions, EmRun, shift};
use criterion::Losses;
use data::LoopCase;

const fn case(kind: CovarianceType, precision: Precision, (n, d, k): (usize, usize, usize)) -> LoopCase {
    LoopCase { kind, precision, n, d, k, offset: 0.0 }
}

/// One iteration of `start` on an engine, and the precision that a loop on the device would lose in it.
fn iteration(engine: &dyn Engine, case: &LoopCase, data: &Dataset, start: &Mixture) -> (EmRun, Losses) {
    let at = shift::of_data(data);
    let options =
        EmOptions { tol: 0.0, max_iter: 1, reg_covar: 1e-6, precision: case.precision, autotune: false, fast: false };
    let mut rows = engine.load(data, case.precision, &at).unwrap();
    let run = run(rows.as_mut(), start.clone(), &options, 0, &mut |_| ControlFlow::Continue(())).unwrap();
    let losses = Losses::of(start, (&run.mixture, &run.empty), &at, options.reg_covar, case.precision);
    (run, losses)
}

/// Whether the kernels fell back to the host in the same iteration.
fn handed_over(case: &LoopCase, data: &Dataset, start: &Mixture) -> bool {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let (run, _) = iteration(&engine, case, data, start);
    drop(engine);
    fake.0.assert_clean("an iteration");
    run.on_device.is_none()
}

#[test]
fn the_criterion_has_the_limits_of_the_last_way_before_the_host() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            let (most_terms, least_left) = criterion::limits(precision, kind);
            let bounds = error_bounds::of_features(precision, kind);
            assert_eq!(bounds, ErrorBounds { most_terms, least_left }, "{kind} {precision}");
        }
    }
}

/// An iteration on the CPU engine: its losses, and the number of rows of the smallest component.
fn on_the_cpu(case: &LoopCase) -> (Losses, f64) {
    let data = case.data();
    let (run, losses) = iteration(&CpuEngine::new(1).unwrap(), case, &data, &case.start());
    let fewest = run.mixture.weights().iter().fold(1.0, |m: f64, w| m.min(*w));
    (losses, fewest * data.total_weight())
}

#[test]
fn components_with_fewer_rows_than_columns_are_the_hosts() {
    // Observed on an H200: a full covariance of so few rows is singular except for `reg_covar`.
    for size in [(347, 19, 3), (6501, 33, 40), (20_001, 65, 64)] {
        let (losses, fewest) = on_the_cpu(&case(CovarianceType::Full, Precision::F64, size));
        assert!(losses.may_hand_over() && fewest < size.1 as f64, "{size:?}: {losses:?}, {fewest} rows");
    }
}

#[test]
fn of_what_is_looped_over_on_a_gpu_no_other_is_the_hosts() {
    let by_columns = (1..=34).chain([47, 63, 65]).map(|d| (100 + 13 * d, d, 3));
    let by_components = (1..=34).chain([63, 65]).map(|k| (100 + 37 * k, 4, k));
    let mut hosts = Vec::new();
    for size in by_columns.chain(by_components).chain([(401, 5, 3), (1002, 17, 4), (900, 33, 5)]) {
        for kind in CovarianceType::ALL {
            for precision in [Precision::F32, Precision::F64] {
                let (losses, _) = on_the_cpu(&case(kind, precision, size));
                hosts.extend(losses.may_hand_over().then_some((kind, precision, size)));
            }
        }
    }
    assert_eq!(hosts, [(CovarianceType::Full, Precision::F64, (347, 19, 3))]);
}

/// Compares the kernels' decision with the losses, unless these are within a factor of two of the limit.
fn agrees(case: &LoopCase, data: &Dataset, start: &Mixture, what: &str) -> Option<bool> {
    let (_, losses) = iteration(&CpuEngine::new(1).unwrap(), case, data, start);
    let worst = losses.terms.max(losses.rest).max(losses.pivot);
    let expected = (worst <= criterion::MARGIN || worst >= 1.0 / criterion::MARGIN).then_some(worst > 1.0)?;
    assert_eq!(handed_over(case, data, start), expected, "{what}: {losses:?}");
    Some(expected)
}

#[test]
fn the_kernels_hand_over_where_components_have_too_few_rows() {
    let found: Vec<_> = [31, 46, 61, 76, 91, 181]
        .into_iter()
        .filter_map(|n| {
            let case = case(CovarianceType::Full, Precision::F64, (n, 13, 3));
            agrees(&case, &case.data(), &case.start(), &format!("{n} rows"))
        })
        .collect();
    assert!(found.contains(&true) && found.contains(&false), "{found:?}");
}

#[test]
fn the_kernels_hand_over_where_a_component_is_narrow_far_from_the_shift() {
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let found = [1e-1, 1e-2, 6e-3, 8e-4, 3e-4].into_iter().filter_map(|width| {
            // The first component is at the shift, and the second at a distance of 1 from it.
            let rows = Array2::from_shape_fn((300, 2), |(i, j)| match i % 3 {
                0 => 1.0 + width * noise(2 * i + j),
                _ => 0.3 * noise(2 * i + j),
            });
            let data = Dataset::new(rows).unwrap();
            let case = case(kind, Precision::F64, (300, 2, 2));
            let like = mixture(kind, 2, 2, 0.0);
            let means = Array2::from_shape_fn((2, 2), |(c, _)| c as f64);
            let wide = Mixture::new(like.weights().to_owned(), means, like.covariances().clone()).unwrap();
            // Wide components share all rows; after some steps each has separate rows.
            let cpu = CpuEngine::new(1).unwrap();
            let start = (0..12).fold(wide, |start, _| iteration(&cpu, &case, &data, &start).0.mixture);
            agrees(&case, &data, &start, &format!("{kind}, a width of {width}"))
        });
        let found: Vec<_> = found.collect();
        assert!(found.contains(&true) && found.contains(&false), "{kind}: {found:?}");
    }
}
