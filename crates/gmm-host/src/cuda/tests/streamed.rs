//! Rows that do not fit into device memory: the bits are those of rows that do.

use std::ops::ControlFlow;

use gmm_model::Matrix;

use super::super::rows::sections::FORCED;
use super::*;
use crate::init::RowDraw;
use crate::{DISTANCE_ROWS, EvaluateOptions, FitOptions, fit_observed};

/// Bytes for passes.
const SPARE: usize = 1 << 20;

/// Sections of `rows` rows on a test's own thread until dropped.
struct SectionsOf;

impl SectionsOf {
    fn new(rows: usize) -> Self {
        FORCED.set(Some((rows, SPARE as u128)));
        Self
    }
}

impl Drop for SectionsOf {
    fn drop(&mut self) {
        FORCED.set(None);
    }
}

/// The free memory in which `held` sections of these rows stay on the device.
fn memory_for(data: &Dataset, precision: Precision, section: usize, held: usize) -> usize {
    let (n, d) = data.rows().dim();
    let bytes = if precision == Precision::F32 { 4 } else { 8 };
    let of_section = section * d * bytes;
    let source = if data.rows().precision() == Precision::F32 { 4 } else { 8 };
    let pieces = 4 * section.min(n).next_multiple_of(128) * d * source;
    let weights = if data.weights().is_some() { 8 * n } else { 0 };
    // The window too; blocks are rounded up by at most an eighth.
    SPARE + weights + pieces + pieces / 8 + of_section * (1 + held) + of_section * 3 / 4
}

fn data(n: usize, d: usize, precision: Precision, weighted: bool) -> Dataset {
    let all = rows(n, d, 3.0);
    let all = if precision == Precision::F32 { Matrix::from(all.mapv(|v| v as f32)) } else { Matrix::from(all) };
    let data = Dataset::new(all).unwrap();
    if weighted { data.with_weights((0..n).map(|i| 0.5 + (i % 3) as f64).collect()).unwrap() } else { data }
}

/// Everything that a fit finds, with the paths that ran.
fn fitted(data: &Dataset, options: &FitOptions, memory: usize, what: &str) -> (crate::Fit, Vec<usize>) {
    let fake = Fake::install(Machine { memory, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let mut seen = Vec::new();
    let found = fit_observed(&engine, data, options, &mut |iteration| {
        seen.push(iteration.iteration);
        ControlFlow::Continue(())
    });
    let mut found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    found.elapsed = std::time::Duration::ZERO;
    if let Some(on) = &mut found.on_device {
        on.time = std::time::Duration::ZERO;
    }
    drop(engine);
    fake.0.assert_clean(what);
    (found, seen)
}

const AMPLE: usize = 1 << 30;

#[test]
fn a_streamed_fit_has_the_bits_of_a_resident_one() {
    let _sections = SectionsOf::new(128);
    for kind in CovarianceType::ALL {
        for (precision, d, weighted) in [
            (Precision::F32, 3, false),
            (Precision::F64, 3, true),
            (Precision::F32, 18, true),
            (Precision::F64, 17, false),
        ] {
            let what = format!("{kind} {precision} d={d} weighted={weighted}");
            let data = data(1100, d, precision, weighted);
            let start = FitOptions { init_rows: Some(100), ..FitOptions::new(3) };
            let options = FitOptions { covariance_type: kind, max_iter: 2, tol: 0.0, ..start };
            let whole = fitted(&data, &options, AMPLE, &what);
            for held in [0, 2] {
                let memory = memory_for(&data, precision, 128, held);
                assert!(memory < AMPLE / 100);
                let passing = fitted(&data, &options, memory, &what);
                let path = |found: &(crate::Fit, Vec<usize>)| (found.0.on_device, found.0.summary.trace.clone());
                assert_eq!(path(&whole), path(&passing), "{what}, {held} sections held");
                assert_eq!(whole, passing, "{what}, {held} sections held");
            }
        }
    }
}

/// Whether the rows of a load are streamed.
fn is_streamed(data: &Dataset, precision: Precision, memory: usize) -> bool {
    let fake = Fake::install(Machine { memory, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let at = crate::shift::of_data(data);
    let found = match precision {
        Precision::F32 => streamed::<f32>(&engine, data, precision, &at),
        Precision::F64 => streamed::<f64>(&engine, data, precision, &at),
    };
    drop(engine);
    fake.0.assert_clean("a load");
    found
}

fn streamed<T: Number>(engine: &CudaEngine, data: &Dataset, precision: Precision, at: &[f64]) -> bool {
    let forced = ForcedPlan::default();
    CudaResident::<T>::load(
        engine.gpu.clone(),
        data,
        precision,
        at,
        forced,
        LoadOptions { to_move: true, ..LoadOptions::default() },
    )
    .unwrap()
    .rows
    .streamed
    .is_some()
}

/// One iteration by a path, as loaded with so much memory.
fn iterated(data: &Dataset, plan: &str, memory: usize) -> crate::EmRun {
    let machine = Machine { memory, shared: crate::cuda::driver::fake::MOST_SHARED, ..Machine::ONE };
    let fake = Fake::install(machine);
    let engine = CudaEngine::new(0).unwrap();
    let (at, forced) = (crate::shift::of_data(data), ForcedPlan::parse(plan).unwrap());
    let mut rows =
        CudaResident::<f32>::load(engine.gpu.clone(), data, Precision::F32, &at, forced, LoadOptions::default())
            .unwrap();
    assert_eq!(rows.rows.streamed.is_some(), memory < AMPLE, "{plan}");
    let kind = if plan.contains("split") { CovarianceType::Full } else { CovarianceType::Spherical };
    let options = crate::EmOptions {
        tol: 0.0,
        max_iter: 1,
        reg_covar: 1e-6,
        precision: Precision::F32,
        autotune: false,
        fast: true,
    };
    let start = mixture(kind, 2, data.n_features(), 3.0);
    let mut run = crate::em::run(&mut rows, start, &options, 0, &mut |_| ControlFlow::Continue(())).unwrap();
    drop(rows);
    drop(engine);
    fake.0.assert_clean(plan);
    let on = run.on_device.as_mut().expect("the loop ran on the device");
    assert!(plan.contains(on.path), "{plan}: {}", on.path);
    on.time = std::time::Duration::ZERO;
    run
}

#[test]
fn half_precision_paths_have_the_same_bits_over_streamed_rows() {
    let _sections = SectionsOf::new(128);
    // With norms, with features and with scales, which are those of all sections.
    for plan in ["path=chunked-fp16", "path=wgmma-fp16", "path=chunked-split-fp16"] {
        let data = data(1100, 9, Precision::F32, false);
        let memory = memory_for(&data, Precision::F32, 128, 1);
        assert_eq!(iterated(&data, plan, AMPLE), iterated(&data, plan, memory), "{plan}");
    }
}

#[test]
fn rows_are_streamed_only_where_they_do_not_fit() {
    let _sections = SectionsOf::new(128);
    for precision in [Precision::F32, Precision::F64] {
        let data = data(1500, 17, precision, false);
        assert!(!is_streamed(&data, precision, AMPLE));
        for held in [0, 1, 2] {
            assert!(is_streamed(&data, precision, memory_for(&data, precision, 128, held)));
        }
    }
}

#[test]
fn every_pass_over_streamed_rows_agrees_with_one_over_resident_rows() {
    let (n, d, k) = (1300, 5, 3);
    for (precision, weighted, kind) in [
        (Precision::F32, true, CovarianceType::Full),
        (Precision::F64, false, CovarianceType::Tied),
        (Precision::F64, true, CovarianceType::Diag),
        (Precision::F32, false, CovarianceType::Spherical),
    ] {
        let _sections = SectionsOf::new(128);
        let what = format!("{kind} {precision}");
        let data = data(n, d, precision, weighted);
        let mixture = mixture(kind, k, d, 3.0);
        let at = crate::shift::of_data(&data);
        let run = |memory: usize| {
            let fake = Fake::install(Machine { memory, ..Machine::default() });
            let engine = CudaEngine::new(0).unwrap();
            let mut rows = engine.load_to_move(&data, precision, &at).unwrap();
            let statistics = [
                rows.pass(&mixture).unwrap(),
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
            let mut some = rows.sample(&[5, 400, 899], weighted.then_some(&[1.0, 2.0, 3.0][..])).unwrap();
            let of_some = some.pass(&mixture).unwrap();
            drop(some);
            let moved = rows.hold_about(&vec![1.0; d]).unwrap().then(|| rows.pass(&mixture).unwrap());
            let likelihoods = rows.log_likelihoods(std::slice::from_ref(&mixture)).unwrap();
            let sums: Vec<f64> =
                mixture.means().outer_iter().flat_map(|c| rows.add_centre(&c.to_vec()).unwrap()).collect();
            let draws = [0.3, 0.85].map(|uniform| RowDraw { group: n / 2 / DISTANCE_ROWS, uniform });
            let weighed = rows.weigh_draws(&draws, data.weights()).unwrap();
            rows.forget_centres();
            drop(rows);
            drop(engine);
            fake.0.assert_clean(&what);
            ((statistics, totals, densities, r, labels, of_some, moved), likelihoods, sums, weighed)
        };
        let (whole, passing) = (run(AMPLE), run(memory_for(&data, precision, 128, 1)));
        assert_eq!(whole.0, passing.0, "{what}");
        let tolerance = if precision == Precision::F32 { 1e-5 } else { 1e-11 };
        close(&passing.1, &whole.1, tolerance, &what);
        close(&passing.2, &whole.2, tolerance, &what);
        assert_eq!(passing.3.rows, whole.3.rows, "{what}");
        close(&passing.3.left, &whole.3.left, tolerance, &what);
    }
}
