//! Rows with missing values: passes, evaluations and fits against the naive reference.

use gmm_model::Statistics;
use gmm_model::missing::reference;

use super::*;
use crate::{CpuEngine, Engine, shift};

/// About a third of the values is missing, in as many patterns as there are rows if there are some columns; the second row has
/// no value, and the last three have all.
fn holed(n: usize, d: usize) -> Array2<f64> {
    let mut values = rows(n, d, 0.0);
    values.indexed_iter_mut().for_each(|((i, j), v)| {
        if i == 1 || (noise(300 + i * d + j) < -0.3 && i + 3 < n) {
            *v = f64::NAN;
        }
    });
    values
}

fn load(engine: &dyn Engine, data: &Dataset) -> Box<dyn Resident> {
    engine.load(data, data.rows().precision(), &shift::of_data(data)).unwrap()
}

/// A few rounding errors per term of the longest sum, times the growth of errors in the solutions.
fn tolerance(d: usize) -> f64 {
    64.0 * f64::EPSILON * (d as f64 + 4.0)
}

fn same(got: &Statistics, want: &Statistics, tolerance: f64, what: &str) {
    close(&got.weight, &want.weight, tolerance, &format!("{what}: weight"));
    let flat = |a: &Array2<f64>| a.iter().copied().collect::<Vec<_>>();
    let largest = |all: &[f64]| all.iter().fold(1e-300, |most: f64, v| most.max(v.abs()));
    // The terms of the first moments may cancel.
    let terms = (largest(&want.second) * largest(&want.weight)).sqrt();
    let cancel = (terms / largest(&flat(&want.first))).max(1.0);
    close(&flat(&got.first), &flat(&want.first), tolerance * cancel, &format!("{what}: first"));
    close(&got.second, &want.second, tolerance, &format!("{what}: second"));
    let totals = |s: &Statistics| [s.log_likelihood, s.total_weight];
    close(&totals(got), &totals(want), tolerance, &format!("{what}: totals"));
    assert_eq!((got.n_rows, got.kind, &got.centres), (want.n_rows, want.kind, &want.centres), "{what}");
}

/// Panics unless a pass and an evaluation on the device agree with the reference, with and without row weights.
fn check(engine: &dyn Engine, mixture: &Mixture, values: &Array2<f64>) {
    let ((n, d), k) = (values.dim(), mixture.n_components());
    let what = &format!("{} n={n} d={d} k={k}", mixture.covariance_type());
    let tolerance = tolerance(d);
    let plain = Dataset::with_holes(values.clone()).unwrap();
    let weighted = plain.clone().with_weights((0..n).map(|i| 0.5 * ((i + 1) % 4) as f64).collect()).unwrap();
    for data in [plain, weighted] {
        let mut resident = load(engine, &data);
        let got = resident.pass(mixture).unwrap();
        same(&got, &reference::statistics(mixture, values.view(), data.weights()), tolerance, what);
        assert_eq!(resident.pass(mixture).unwrap(), got, "{what}: the same bits");
        let (mut log_densities, mut responsibilities, mut labels) = (vec![0.0; n], vec![0.0; n * k], vec![0u32; n]);
        let want = EvaluateOptions {
            log_densities: Some(&mut log_densities),
            responsibilities: Some((&mut responsibilities).into()),
            labels: Some(&mut labels),
        };
        let totals = resident.evaluate(mixture, want).unwrap();
        let mut sum = Evaluation::NOTHING;
        for (row, x) in values.outer_iter().enumerate() {
            let (log_density, r) = reference::posterior(mixture, x);
            let bound = tolerance * (1.0 + log_density.abs());
            assert!((log_densities[row] - log_density).abs() <= bound, "{what}: row {row}: {}", log_densities[row]);
            for (got, want) in responsibilities[row * k..].iter().zip(&r) {
                assert!((got - want).abs() <= 4.0 * bound, "{what}: row {row}: responsibility {got}, want {want}");
            }
            let best = gmm_model::reference::argmax(r.view());
            assert!(r[labels[row] as usize] >= r[best] - 8.0 * bound, "{what}: row {row}: label {}", labels[row]);
            sum.add_row(data.weight(row), log_density, r.view());
        }
        let list = |e: Evaluation| [e.log_likelihood, e.entropy, e.total_weight];
        close(&list(totals), &list(sum), 4.0 * tolerance, what);
        let alone = resident.evaluate(mixture, EvaluateOptions::default()).unwrap();
        close(&list(alone), &list(totals), 4.0 * tolerance, &format!("{what}: the totals without outputs"));
    }
}

/// Runs `work` with an engine on a fake device.
fn on_a_device(what: &str, work: impl FnOnce(&CudaEngine, &Fake)) {
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    work(&engine, &fake.0);
    drop(engine);
    fake.0.assert_clean(what);
}

#[test]
fn passes_and_densities_over_any_patterns_are_those_of_the_reference() {
    for kind in CovarianceType::ALL {
        on_a_device("passes", |engine, fake| {
            for (n, d, k) in [(131, 1, 2), (40, 2, 3), (300, 3, 1), (65, 4, 3), (5, 6, 2), (97, 13, 8), (40, 33, 2)] {
                check(engine, &mixture(kind, k, d, 0.0), &holed(n, d));
            }
            let is_matrix = matches!(kind, CovarianceType::Full | CovarianceType::Tied);
            let kernel = if is_matrix { "deconvolution_patterns" } else { "deconvolution_columns" };
            assert!(fake.launches(kernel) > 0, "{kernel}");
        });
    }
}

#[test]
fn the_most_columns_of_a_mask_and_one_more() {
    for kind in [CovarianceType::Full, CovarianceType::Diag] {
        on_a_device("columns", |engine, fake| {
            check(engine, &mixture(kind, 1, 64, 0.0), &holed(7, 64));
            let before = fake.launches("deconvolution_patterns") + fake.launches("deconvolution_columns");
            check(engine, &mixture(kind, 1, 65, 0.0), &holed(7, 65));
            assert_eq!(fake.launches("deconvolution_patterns") + fake.launches("deconvolution_columns"), before);
        });
    }
}

/// With so little room for factors as here, the rows of a tile at a time.
#[test]
fn factors_that_have_no_room_together_are_made_one_after_another() {
    on_a_device("room", |engine, fake| {
        let (values, mixture) = (holed(500, 13), mixture(CovarianceType::Full, 3, 13, 0.0));
        let before = fake.launches("deconvolution_factors");
        check(engine, &mixture, &values);
        // Two data sets, two passes and two evaluations.
        assert_eq!(fake.launches("deconvolution_factors"), before + 8 * 4);
    });
}

#[test]
fn complete_rows_have_one_pattern_and_the_sums_of_exact_rows() {
    on_a_device("complete", |engine, _| {
        let data = dataset(90, 5);
        let passes = CudaPasses::new(engine.gpu.clone(), &data).unwrap();
        let mixture = mixture(CovarianceType::Full, 3, 5, 0.0);
        let want = gmm_model::reference::statistics(&mixture, data.rows().to_f64().view(), None);
        same(&crate::deconvolution::MeasuredPasses::pass(&passes, &mixture).unwrap(), &want, tolerance(5), "complete");
    });
}

/// A mixture with such a covariance is refused before; the kernel's rounding is another.
#[test]
fn a_covariance_that_is_not_positive_definite_names_its_column() {
    use gmm_kernels::deconvolution::{PatternFactors, deconvolution_factors, factors_len};
    use gmm_kernels::device::Buffer;
    // Log weight, mean, packed covariance of three columns; the first and the last are the same number.
    let records = Buffer::new(&[0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 1.0, 4.0, 0.0, 4.0]);
    // All columns; the first two; the last two.
    let masks = Buffer::new(&[0b111_u64, 0b011, 0b110]);
    let mut factors = Buffer::unwritten(3 * factors_len(3) as usize);
    let a = PatternFactors {
        k: 1,
        d: 3,
        first: 0,
        masks: masks.pointer(),
        records: records.pointer(),
        factors: factors.pointer_mut(),
    };
    // SAFETY: the buffers have the documented lengths.
    unsafe { deconvolution_factors().emulate((3, 1), a) };
    let found = factors.to_vec();
    let columns: Vec<f64> = found.chunks(factors_len(3) as usize).map(|of| of[1]).collect();
    assert_eq!(columns, [2.0, f64::from(u32::MAX), f64::from(u32::MAX)], "the column of each pattern's failure");
    assert_eq!(found[2], 0.0, "its pivot");
}

#[test]
fn samples_and_fits_are_those_of_the_cpu() {
    on_a_device("fits", |engine, _| {
        let data = Dataset::with_holes(holed(300, 3)).unwrap();
        for kind in CovarianceType::ALL {
            let mixture = mixture(kind, 2, 3, 0.0);
            let chosen: Vec<usize> = (0..120).map(|i| (7 * i) % 300).collect();
            let sampled =
                |engine: &dyn Engine| load(engine, &data).sample(&chosen, None).unwrap().pass(&mixture).unwrap();
            let cpu = CpuEngine::new(2).unwrap();
            same(&sampled(engine), &sampled(&cpu), tolerance(3), &format!("{kind}: a sample"));
            for init in [Init::KMeans, Init::Tree(None), Init::Best(None)] {
                let what = format!("{kind}, {}: means of a fit", init.name());
                // The best start runs on a sample of the rows.
                let init_rows = matches!(init, Init::Best(_)).then_some(120);
                let options = FitOptions { covariance_type: kind, max_iter: 5, tol: 0.0, ..FitOptions::new(2) };
                let options = FitOptions { init, init_rows, ..options };
                let of = |engine: &dyn Engine| fit(engine, &data, &options).unwrap().mixture.means().to_owned();
                let flat = |a: Array2<f64>| a.into_raw_vec_and_offset().0;
                close(&flat(of(engine)), &flat(of(&cpu)), 1e-10, &what);
            }
        }
    });
}

#[test]
fn rows_that_have_no_room_are_passed_over_pattern_by_pattern() {
    let fake = Fake::install(Machine { memory: 16 << 20, ..Machine::default() });
    let engine = CudaEngine::new(0).unwrap();
    let data = Dataset::with_holes(holed(500, 4)).unwrap();
    let mixture = mixture(CovarianceType::Full, 2, 4, 0.0);
    let got = load(&engine, &data).pass(&mixture).unwrap();
    same(&got, &load(&CpuEngine::new(2).unwrap(), &data).pass(&mixture).unwrap(), tolerance(4), "no room");
    assert_eq!(fake.0.launches("deconvolution_patterns"), 0);
    drop(engine);
    fake.0.assert_clean("no room");
}

#[test]
fn passes_that_find_no_memory_go_on_pattern_by_pattern() {
    let data = Dataset::with_holes(holed(140, 2)).unwrap();
    let mixture = mixture(CovarianceType::Full, 2, 2, 0.0);
    let chosen: Vec<usize> = (0..100).collect();
    let run = || {
        let engine = CudaEngine::new(0)?;
        let mut rows = engine.load(&data, Precision::F64, &shift::of_data(&data))?;
        let mut densities = vec![0.0; 140];
        let all = rows.pass(&mixture)?;
        let want = EvaluateOptions { log_densities: Some(&mut densities), ..EvaluateOptions::default() };
        rows.evaluate(&mixture, want)?;
        let some = rows.sample(&chosen, None)?.pass(&mixture)?;
        Ok::<_, Error>((all, some, densities))
    };
    let fake = Fake::install(Machine::default());
    let whole = run().unwrap();
    let calls = fake.0.calls_of(Class::Allocation);
    drop(fake);
    let mut by_pattern = 0;
    for at in 1..=calls {
        let what = format!("allocation {at}");
        let fake = Fake::with(Machine::default(), Some(Fault::once(Class::Allocation, at, code::OUT_OF_MEMORY)));
        // Without memory for an engine there are no rows.
        if let Ok((all, some, densities)) = run() {
            same(&all, &whole.0, tolerance(2), &what);
            same(&some, &whole.1, tolerance(2), &what);
            close(&densities, &whole.2, tolerance(2), &what);
            by_pattern += usize::from(fake.0.launches("deconvolution_patterns") < 3);
        }
        fake.0.assert_clean(&what);
    }
    assert!(by_pattern > 0);
}

#[test]
fn samples_of_weight_0_are_not_refused() {
    on_a_device("weights", |engine, _| {
        let data = Dataset::with_holes(holed(60, 3)).unwrap();
        let mut some = load(engine, &data).sample(&[0, 5, 9], Some(&[0.0; 3])).unwrap();
        assert_eq!(some.pass(&mixture(CovarianceType::Full, 2, 3, 0.0)).unwrap().total_weight, 0.0);
    });
}

#[test]
fn two_devices_have_the_sums_of_one() {
    let fake = Fake::install(Machine { devices: 2, ..Machine::ONE });
    let group = crate::CudaGroup::new(vec![CudaEngine::new(0).unwrap(), CudaEngine::new(1).unwrap()]).unwrap();
    // On the second device, rows of weight 0 and rows without values.
    let mut values = holed(300, 3);
    values.slice_mut(ndarray::s![256.., ..]).fill(f64::NAN);
    let weights = (0..300).map(|i| f64::from(u8::from(!(128..=280).contains(&i)))).collect();
    let data = Dataset::with_holes(values).unwrap().with_weights(weights).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 2, 3, 0.0);
        let want = load(&CpuEngine::new(2).unwrap(), &data).pass(&mixture).unwrap();
        same(&load(&group, &data).pass(&mixture).unwrap(), &want, tolerance(3), &format!("{kind}: two devices"));
    }
    drop(group);
    fake.0.assert_clean("two devices");
}

#[test]
fn every_fault_is_an_error_and_leaks_nothing() {
    let data = Dataset::with_holes(holed(140, 2)).unwrap();
    let mixture = mixture(CovarianceType::Full, 2, 2, 0.0);
    let run = || {
        let passes = CudaPasses::new(CudaEngine::new(0)?.gpu, &data)?;
        crate::deconvolution::MeasuredPasses::pass(&passes, &mixture)
    };
    let fake = Fake::install(Machine::default());
    let whole = run().unwrap();
    let calls = fake.0.calls_of(Class::Any);
    fake.0.assert_clean("no fault");
    drop(fake);
    for (class, code) in [(Class::Any, code::UNKNOWN), (Class::Allocation, code::OUT_OF_MEMORY)] {
        for at in 1..=calls {
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
            match run() {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                Ok(found) => {
                    let may = code == code::OUT_OF_MEMORY || may_fail(fake.0.failed());
                    assert!(may, "{what}: the pass went on after {:?}", fake.0.failed());
                    assert_eq!(found, whole, "{what}");
                }
            }
            fake.0.assert_clean(&what);
        }
    }
}
