//! Passes of fits whose M-step the host makes run the kernels of the loop's paths.

use super::halves::problem;
use super::*;
use crate::cuda::driver::fake::MOST_SHARED;
use crate::{BayesOptions, CpuEngine, EmOptions, FitRule, Passes, Prior, ReferenceEngine, WeightFamily, shift};

const HOPPER: Machine = Machine { shared: MOST_SHARED, ..Machine::ONE };

fn options(precision: Precision) -> EmOptions {
    EmOptions { tol: 0.0, max_iter: 9, reg_covar: 0.1, precision, autotune: false, fast: false }
}

fn pass(text: &str, data: &Dataset, start: &Mixture, precision: Precision) -> gmm_model::Statistics {
    let engine = CudaEngine::new(0).unwrap();
    let (at, forced) = (shift::of_data(data), plan::ForcedPlan::parse(text).unwrap());
    let twice = |rows: &mut dyn Passes| {
        let first = rows.pass_of_fit(start, &options(precision)).unwrap();
        assert_eq!(first == rows.pass(start).unwrap(), text.is_empty(), "{text}: the path runs, with its rounding");
        assert_eq!(first, rows.pass_of_fit(start, &options(precision)).unwrap(), "{text}: the same bits again");
        first
    };
    match precision {
        Precision::F32 => twice(
            &mut CudaResident::<f32>::load(engine.gpu.clone(), data, precision, &at, forced, LoadOptions::default())
                .unwrap(),
        ),
        Precision::F64 => twice(
            &mut CudaResident::<f64>::load(engine.gpu.clone(), data, precision, &at, forced, LoadOptions::default())
                .unwrap(),
        ),
    }
}

#[test]
fn every_path_has_the_statistics_of_a_pass() {
    type Case = (&'static str, Precision, &'static [CovarianceType], (usize, usize, usize), f64);
    let cases: [Case; 7] = [
        ("path=fused", Precision::F64, &CovarianceType::ALL, (300, 7, 3), 1e-11),
        ("path=fused", Precision::F32, &CovarianceType::ALL, (300, 7, 3), 2e-6),
        ("path=chunked-f64", Precision::F64, &CovarianceType::ALL, (260, 18, 10), 1e-11),
        ("path=chunked-f64,section=128", Precision::F32, &CovarianceType::ALL, (260, 18, 10), 2e-6),
        ("path=small-d", Precision::F32, &[CovarianceType::Full], (300, 2, 3), 2e-6),
        ("path=wgmma-split-fp16", Precision::F32, &[CovarianceType::Full], (300, 40, 3), 2e-4),
        ("path=chunked-split-fp16", Precision::F32, &[CovarianceType::Full, CovarianceType::Diag], (300, 40, 3), 2e-4),
    ];
    for (text, precision, kinds, shape, tolerance) in cases {
        for &kind in kinds {
            let what = format!("{kind} {precision} {text}");
            let (rows, start) = problem(kind, shape);
            let data = Dataset::new(rows).unwrap();
            let at = shift::of_data(&data);
            let want = ReferenceEngine.load(&data, Precision::F64, &at).unwrap().pass(&start).unwrap();
            let fake = Fake::install(HOPPER);
            let got = pass(text, &data, &start, precision);
            close(&got.weight, &want.weight, tolerance, &format!("{what}: weight"));
            close(
                got.first.as_slice().unwrap(),
                want.first.as_slice().unwrap(),
                4.0 * tolerance,
                &format!("{what}: first"),
            );
            close(&got.second, &want.second, 4.0 * tolerance, &format!("{what}: second"));
            close(&[got.log_likelihood], &[want.log_likelihood], tolerance, &format!("{what}: log-likelihood"));
            assert_eq!((got.n_rows, got.total_weight, &got.centres), (want.n_rows, want.total_weight, &want.centres));
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn far_components_fall_back_to_differences() {
    // Narrow and far from the shift: features about it lose the variances.
    let mut all = rows(200, 3, 0.0);
    all.mapv_inplace(|v| 1e-7 * v);
    all.outer_iter_mut().enumerate().for_each(|(i, mut row)| row += if i % 2 == 0 { 1e3 } else { -1e3 });
    let data = Dataset::new(all.clone()).unwrap();
    for kind in CovarianceType::ALL {
        let centres = all.select(ndarray::Axis(0), &[0, 1]);
        let at = shift::of_data(&data);
        let mut slow = ReferenceEngine.load(&data, Precision::F64, &at).unwrap();
        let near = slow.nearest(kind, centres.view()).unwrap();
        let start = gmm_model::m_step(&near, 1e-15, None).unwrap().mixture;
        let want = slow.pass(&start).unwrap();
        let fake = Fake::install(Machine::default());
        let got = pass("", &data, &start, Precision::F64);
        close(&got.second, &want.second, 1e-6, &format!("{kind}: second"));
        fake.0.assert_clean("far components");
    }
}

#[test]
fn fits_under_rules_are_the_cpu_engines() {
    let data = dataset(300, 4).with_weights((0..300).map(|i| 0.5 + (i % 3) as f64).collect()).unwrap();
    let bayes = |family| FitRule { bayes: Some(BayesOptions::new(family)), ..FitRule::none() };
    let rules = [
        FitRule { prior: Prior::Conjugate, ..FitRule::none() },
        bayes(WeightFamily::Dirichlet),
        bayes(WeightFamily::DirichletProcess),
        FitRule { factors: Some(1), ..FitRule::none() },
    ];
    for kind in CovarianceType::ALL {
        for rule in rules.iter().filter(|rule| rule.factors.is_none() || kind == CovarianceType::Full) {
            let base = FitOptions { covariance_type: kind, max_iter: 4, tol: 0.0, seed: 7, ..FitOptions::new(3) };
            let options = FitOptions { rule: rule.clone(), ..base };
            let fake = Fake::install(Machine::default());
            let got = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
            let want = fit(&crate::CpuEngine::new(1).unwrap(), &data, &options).unwrap();
            let numbers = |m: &Mixture| m.means().iter().chain(m.covariances().values()).copied().collect::<Vec<_>>();
            close(&numbers(&got.mixture), &numbers(&want.mixture), 1e-9, &format!("{kind} {rule:?}"));
            close(&got.summary.trace, &want.summary.trace, 1e-11, &format!("{kind}: trace"));
            fake.0.assert_clean("rules");
        }
    }
}

#[test]
fn parts_have_the_statistics_of_passes_over_each() {
    let parts = [0..1, 1..130, 130..258, 258..700, 700..701, 900..1000];
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        for (weighted, precision) in [(false, Precision::F64), (true, Precision::F64), (false, Precision::F32)] {
            let what = format!("{kind} {precision} weighted: {weighted}");
            let (rows, start) = problem(kind, (1000, 5, 9));
            let mut data = Dataset::new(rows).unwrap();
            if weighted {
                data = data.with_weights((0..1000).map(|i| (i % 4) as f64 + 0.5).collect()).unwrap();
            }
            let storage = gmm_model::RowStorage { precision, shift: shift::of_data(&data) };
            // The longest part leaves room for a second lane where there are eight multiprocessors.
            let multiprocessors = if weighted { 2 } else { 8 };
            let fake = Fake::install(Machine { multiprocessors, ..Machine::default() });
            let found = std::sync::Mutex::new(vec![None; parts.len()]);
            let keep = |i: usize, statistics: &mut Statistics| {
                assert!(found.lock().unwrap()[i].replace(statistics.clone()).is_none(), "{what}: once");
                Ok(())
            };
            let engine = CudaEngine::new(0).unwrap();
            assert!(engine.pass_of_parts(&data, &storage, &start, &parts, None, &keep).unwrap(), "{what}");
            drop(engine);
            let tolerance = if precision == Precision::F32 { 2e-5 } else { 1e-11 };
            for (part, got) in parts.iter().zip(found.into_inner().unwrap()) {
                let (got, rows) = (got.unwrap(), data.part(part.clone()));
                let want = ReferenceEngine.load(&rows, Precision::F64, &storage.shift).unwrap().pass(&start).unwrap();
                close(&got.weight, &want.weight, tolerance, &format!("{what} {part:?}: weight"));
                close(&got.second, &want.second, 4.0 * tolerance, &format!("{what} {part:?}: second"));
                close(&[got.log_likelihood], &[want.log_likelihood], tolerance, &format!("{what} {part:?}"));
                assert_eq!((got.n_rows, got.total_weight), (want.n_rows, want.total_weight), "{what} {part:?}");
            }
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn rows_of_parts_share_themselves_among_their_largest_components() {
    let parts = [0..1, 1..130, 130..400, 300..700];
    for kind in [CovarianceType::Diag, CovarianceType::Spherical] {
        for (top, precision) in [(1, Precision::F64), (3, Precision::F64), (5, Precision::F32), (9, Precision::F64)] {
            let what = format!("{kind} {precision} {top}");
            let (rows, start) = problem(kind, (700, 5, 9));
            let weights = (0..700).map(|i| (i % 3) as f64 + 0.5).collect();
            let data = Dataset::new(rows).unwrap().with_weights(weights).unwrap();
            let storage = gmm_model::RowStorage { precision, shift: shift::of_data(&data) };
            let of = |engine: &dyn Engine, storage: &gmm_model::RowStorage| {
                let found = std::sync::Mutex::new(vec![None; parts.len()]);
                let keep = |i: usize, statistics: &mut Statistics| {
                    found.lock().unwrap()[i] = Some(statistics.clone());
                    Ok(())
                };
                assert!(engine.pass_of_parts(&data, storage, &start, &parts, Some(top), &keep).unwrap(), "{what}");
                found.into_inner().unwrap()
            };
            let fake = Fake::install(Machine { multiprocessors: 8, ..Machine::default() });
            let engine = CudaEngine::new(0).unwrap();
            let found = of(&engine, &storage);
            drop(engine);
            let exact = gmm_model::RowStorage { precision: Precision::F64, ..storage };
            let tolerance = if precision == Precision::F32 { 2e-5 } else { 1e-11 };
            for (got, want) in found.into_iter().zip(of(&CpuEngine::new(1).unwrap(), &exact)) {
                let (got, want) = (got.unwrap(), want.unwrap());
                close(&got.weight, &want.weight, tolerance, &format!("{what}: weight"));
                close(got.first.as_slice().unwrap(), want.first.as_slice().unwrap(), 4.0 * tolerance, &what);
                close(&got.second, &want.second, 4.0 * tolerance, &format!("{what}: second"));
                close(&[got.log_likelihood], &[want.log_likelihood], tolerance, &what);
            }
            fake.0.assert_clean(&what);
        }
    }
}

#[test]
fn largest_components_run_on_the_cpu_where_f64_is_slow() {
    let (rows, start) = problem(CovarianceType::Diag, (300, 5, 9));
    let data = Dataset::new(rows.mapv(|v| v as f32)).unwrap();
    let parts = [0..100, 100..300];
    let utterances = crate::adapt::Utterances::new(&data, &parts);
    let of =
        |engine: &dyn Engine| crate::adapt::top_statistics(engine, &start, &utterances, 3, &|_, one| Ok(one)).unwrap();
    for (f32_to_f64, same) in [(64, true), (2, false)] {
        let fake = Fake::install(Machine { f32_to_f64, ..Machine::default() });
        let engine = CudaEngine::new(0).unwrap();
        let (found, on_cpu) = (of(&engine), of(&CpuEngine::new(0).unwrap()));
        assert_eq!(found == on_cpu, same, "the bits of the CPU, and those of the GPU's other order of sums");
        drop(engine);
        fake.0.assert_clean("largest components");
    }
}

#[test]
fn parts_are_left_to_others_where_they_do_not_fit_and_end_with_the_first_error() {
    let (rows, start) = problem(CovarianceType::Diag, (600, 3, 4));
    let data = Dataset::new(rows).unwrap();
    let storage = gmm_model::RowStorage { precision: Precision::F64, shift: shift::of_data(&data) };
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let refuse = |i: usize, _: &mut Statistics| if i == 1 { Err(Error::Interrupted { iterations: 0 }) } else { Ok(()) };
    let parts = [0..100, 100..200, 200..600];
    let failed = engine.pass_of_parts(&data, &storage, &start, &parts, None, &refuse);
    assert!(matches!(failed, Err(Error::Interrupted { .. })), "{failed:?}");
    let fine = |_, _: &mut Statistics| Ok(());
    assert!(!engine.pass_of_parts(&data, &storage, &start, &parts[..1], None, &fine).unwrap(), "a single part");
    let tied = problem(CovarianceType::Tied, (600, 3, 4)).1;
    assert!(!engine.pass_of_parts(&data, &storage, &tied, &parts, None, &fine).unwrap(), "tied");
    drop(engine);
    fake.0.assert_clean("parts");
}
