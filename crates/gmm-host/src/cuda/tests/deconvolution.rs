//! Rows with measurement errors: passes, evaluations and fits against the naive reference.

use gmm_model::Statistics;
use gmm_model::deconvolution::MeasurementErrors;
use gmm_model::deconvolution::reference::{self, Measurement};
use gmm_model::missing::reference as missing;

use super::*;
use crate::deconvolution::MeasuredPasses;
use crate::{CpuEngine, Engine, shift, true_rows};

/// Standard deviations from 0 to 3, some of which are 0.
fn independent(n: usize, d: usize) -> MeasurementErrors {
    let deviations = Array2::from_shape_fn((n, d), |(i, j)| (3.0 * noise(9000 + i * d + j)).max(0.0));
    MeasurementErrors::from_deviations(deviations).unwrap()
}

/// Covariances of all ranks from 0 to `d`.
fn correlated(n: usize, d: usize) -> MeasurementErrors {
    let mut all = Array3::zeros((n, d, d));
    for (i, mut slot) in all.outer_iter_mut().enumerate() {
        let a = Array2::from_shape_fn((d, i % (d + 1)), |(j, l)| 0.9 * noise(7000 + (i * d + j) * d + l));
        slot.assign(&a.dot(&a.t()));
    }
    MeasurementErrors::from_covariances(&all).unwrap()
}

fn with_errors(data: &Dataset, errors: MeasurementErrors) -> Dataset {
    data.without_measurement_errors().with_measurement_errors(errors).unwrap()
}

fn weighted(data: &Dataset) -> Dataset {
    let weights = (0..data.n_rows()).map(|i| 0.5 * ((i + 1) % 4) as f64).collect();
    data.clone().with_weights(weights).unwrap()
}

/// A few rounding errors per term of the longest sum, times the growth of errors in the solutions.
fn tolerance(d: usize) -> f64 {
    64.0 * f64::EPSILON * (d as f64 + 4.0)
}

fn load(engine: &dyn Engine, data: &Dataset) -> Box<dyn Resident> {
    engine.load(data, data.rows().precision(), &shift::of_data(data)).unwrap()
}

fn same(got: &Statistics, want: &Statistics, tolerance: f64, what: &str) {
    close(&got.weight, &want.weight, tolerance, &format!("{what}: weight"));
    let flat = |a: &Array2<f64>| a.iter().copied().collect::<Vec<_>>();
    close(&flat(&got.first), &flat(&want.first), tolerance * scale(want), &format!("{what}: first"));
    close(&got.second, &want.second, tolerance, &format!("{what}: second"));
    let totals = |s: &Statistics| [s.log_likelihood, s.total_weight];
    close(&totals(got), &totals(want), tolerance, &format!("{what}: totals"));
    assert_eq!((got.n_rows, got.kind, &got.centres), (want.n_rows, want.kind, &want.centres), "{what}");
}

/// How much larger the terms of the first moments are than their sums, in which they may cancel.
fn scale(want: &Statistics) -> f64 {
    let of = |all: &mut dyn Iterator<Item = &f64>| all.fold(1e-300, |most: f64, v| most.max(v.abs()));
    let terms = (of(&mut want.second.iter()) * of(&mut want.weight.iter())).sqrt();
    (terms / of(&mut want.first.iter())).max(1.0)
}

/// Panics unless a pass and an evaluation on the device agree with the reference, with and without row weights.
fn check(engine: &dyn Engine, mixture: &Mixture, data: &Dataset, what: &str) {
    let (n, d) = data.rows().dim();
    let k = mixture.n_components();
    let what = &format!("{} {what} n={n} d={d} k={k}", mixture.covariance_type());
    let tolerance = tolerance(d);
    for data in [data.clone(), weighted(data)] {
        let mut resident = load(engine, &data);
        let got = resident.pass(mixture).unwrap();
        same(&got, &reference::statistics(mixture, &data), tolerance, what);
        assert_eq!(resident.pass(mixture).unwrap(), got, "{what}: the same bits");
        let (mut log_densities, mut responsibilities, mut labels) = (vec![0.0; n], vec![0.0; n * k], vec![0u32; n]);
        let want = EvaluateOptions {
            log_densities: Some(&mut log_densities),
            responsibilities: Some((&mut responsibilities).into()),
            labels: Some(&mut labels),
        };
        let totals = resident.evaluate(mixture, want).unwrap();
        let mut sum = Evaluation::NOTHING;
        for row in 0..n {
            let (log_density, r) = reference::posterior(mixture, &Measurement::of(&data, row));
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
fn passes_and_densities_are_those_of_the_reference_for_every_kind_of_covariance_and_error() {
    for kind in CovarianceType::ALL {
        on_a_device("passes", |engine, _| {
            for (n, d, k) in [(131, 1, 2), (40, 2, 3), (97, 3, 1), (65, 4, 3), (33, 5, 2), (70, 6, 2), (1, 7, 2)] {
                let data = dataset(n, d);
                let mixture = mixture(kind, k, d, 0.0);
                check(engine, &mixture, &with_errors(&data, independent(n, d)), "independent");
                check(engine, &mixture, &with_errors(&data, correlated(n, d)), "correlated");
            }
        });
    }
}

#[test]
fn every_form_of_the_kernels_runs() {
    for (kind, d, kernel) in [
        (CovarianceType::Full, 8, "deconvolution_small_8"),
        (CovarianceType::Tied, 9, "deconvolution_matrix"),
        (CovarianceType::Full, 16, "deconvolution_matrix"),
        (CovarianceType::Diag, 16, "deconvolution_columns"),
        (CovarianceType::Spherical, 19, "deconvolution_columns"),
        (CovarianceType::Tied, 6, "deconvolution_small_6"),
        (CovarianceType::Full, 4, "deconvolution_small_4"),
        (CovarianceType::Full, 3, "deconvolution_small_3"),
        (CovarianceType::Full, 1, "deconvolution_small_2"),
    ] {
        on_a_device(kernel, |engine, fake| {
            let data = with_errors(&dataset(45, d), independent(45, d));
            check(engine, &mixture(kind, 2, d, 0.0), &data, "independent");
            assert!(fake.launches(kernel) >= 6, "{kernel}");
            if d <= 16 {
                let before = fake.launches("deconvolution_matrix");
                check(engine, &mixture(kind, 2, d, 0.0), &with_errors(&data, correlated(45, d)), "correlated");
                assert!(fake.launches("deconvolution_matrix") >= before + 6);
            }
        });
    }
}

/// At an offset of which single precision keeps six bits behind the point, compared with the same rows about 0.
#[test]
fn rows_of_single_precision_and_an_offset_lose_nothing() {
    const OFFSET: f64 = 1e5;
    on_a_device("offset", |engine, _| {
        let values = rows(60, 3, OFFSET).mapv(|v| v as f32);
        let near = Dataset::new(values.mapv(|v| f64::from(v) - OFFSET)).unwrap();
        let data = Dataset::new(values).unwrap();
        for kind in CovarianceType::ALL {
            let far = mixture(kind, 3, 3, OFFSET);
            // Both differences are exact.
            let means = far.means().mapv(|v| v - OFFSET);
            let about_0 = Mixture::new(far.weights().to_owned(), means, far.covariances().clone()).unwrap();
            for errors in [independent(60, 3), correlated(60, 3)] {
                let got = load(engine, &with_errors(&data, errors.clone())).pass(&far).unwrap();
                let want = reference::statistics(&about_0, &with_errors(&near, errors));
                let got = Statistics { centres: want.centres.clone(), ..got };
                same(&got, &want, tolerance(3), &format!("{kind}: f32 at an offset"));
            }
        }
    });
}

#[test]
fn missing_values_and_errors_go_together() {
    for kind in CovarianceType::ALL {
        on_a_device("holes", |engine, _| {
            for (n, d) in [(75, 4), (40, 7), (33, 1)] {
                let mut values = rows(n, d, 0.0);
                values.indexed_iter_mut().filter(|((i, j), _)| noise(300 + i * d + j) < -0.3).for_each(|(_, v)| {
                    *v = f64::NAN;
                });
                let data = Dataset::with_holes(values.clone()).unwrap();
                let mixture = mixture(kind, 3, d, 0.0);
                check(engine, &mixture, &with_errors(&data, independent(n, d)), "holes");
                check(engine, &mixture, &with_errors(&data, correlated(n, d)), "correlated, holes");
                let exact = MeasurementErrors::from_deviations(Array2::zeros((n, d))).unwrap();
                let got = load(engine, &with_errors(&data, exact)).pass(&mixture).unwrap();
                same(&got, &missing::statistics(&mixture, values.view(), None), tolerance(d), "exact, with holes");
            }
        });
    }
}

#[test]
fn errors_of_0_give_the_sums_of_exact_rows() {
    on_a_device("exact", |engine, _| {
        for kind in CovarianceType::ALL {
            for d in [2, 6, 9] {
                let data = weighted(&dataset(90, d));
                let mixture = mixture(kind, 3, d, 0.0);
                let want = gmm_model::reference::statistics(&mixture, data.rows().to_f64().view(), data.weights());
                let zero = MeasurementErrors::from_deviations(Array2::zeros((90, d))).unwrap();
                let zeros = MeasurementErrors::from_covariances(&Array3::zeros((90, d, d))).unwrap();
                for errors in [zero, zeros] {
                    let got = load(engine, &with_errors(&data, errors)).pass(&mixture).unwrap();
                    same(&got, &want, tolerance(d), "errors of 0");
                }
            }
        }
    });
}

/// Errors far larger and far smaller than the components, where one of the two forms of every expectation cancels.
#[test]
fn large_and_small_errors_keep_their_digits() {
    on_a_device("large and small", |engine, _| {
        for kind in CovarianceType::ALL {
            for d in [3, 6, 9] {
                let data = dataset(64, d);
                let deviations = Array2::from_shape_fn((64, d), |(i, j)| 10f64.powi((5 * i + 3 * j) as i32 % 17 - 8));
                let errors = MeasurementErrors::from_deviations(deviations).unwrap();
                check(engine, &mixture(kind, 2, d, 0.0), &with_errors(&data, errors), "large and small");
            }
        }
    });
}

#[test]
fn many_components_and_components_without_rows_agree() {
    on_a_device("components", |engine, _| {
        for kind in CovarianceType::ALL {
            for (k, d) in [(1, 3), (33, 2), (70, 3)] {
                let data = with_errors(&dataset(50, d), independent(50, d));
                // Components at up to 100 from the rows: most of them have none.
                check(engine, &mixture(kind, k, d, 0.0), &data, "many components");
            }
        }
    });
}

/// Rows so far away that every density vanishes have the weights as responsibilities, and the log density −∞.
#[test]
fn rows_whose_densities_underflow_are_as_on_the_cpu() {
    on_a_device("underflow", |engine, _| {
        let mut values = rows(40, 2, 0.0);
        values.row_mut(7).fill(1e200);
        let data = Dataset::new(values).unwrap();
        for kind in CovarianceType::ALL {
            let mixture = mixture(kind, 3, 2, 0.0);
            for errors in [independent(40, 2), correlated(40, 2)] {
                let data = with_errors(&data, errors);
                let found = evaluate::responsibilities(engine, &mixture, &data, Precision::F64).unwrap();
                assert_eq!(found.row(7), mixture.weights());
                let (densities, totals) = evaluate::log_densities(engine, &mixture, &data, Precision::F64).unwrap();
                assert_eq!((densities[7], totals.log_likelihood), (f64::NEG_INFINITY, f64::NEG_INFINITY));
                let labels = evaluate::labels(engine, &mixture, &data, Precision::F64).unwrap();
                assert_eq!(labels[7], 2, "the largest weight");
                // The other rows are as without it.
                let cpu = CpuEngine::new(1).unwrap();
                let want = evaluate::log_densities(&cpu, &mixture, &data, Precision::F64).unwrap().0;
                let others = |all: &Array1<f64>| all.iter().copied().filter(|v| v.is_finite()).collect::<Vec<_>>();
                close(&others(&densities), &others(&want), tolerance(2), "the other rows");
            }
        }
    });
}

/// Errors that are semidefinite only up to the rounding of single precision, beside a far smaller covariance.
#[test]
fn an_indefinite_covariance_names_component_column_and_pivot_as_on_the_cpu() {
    let mut errors = Array3::zeros((40, 3, 3));
    for i in 0..3 {
        errors.slice_mut(ndarray::s![.., i, i]).fill(1.0);
    }
    for (i, j) in [(1, 2), (2, 1)] {
        errors.slice_mut(ndarray::s![.., i, j]).fill(1.0 + 3e-7);
    }
    let data = with_errors(&dataset(40, 3), MeasurementErrors::from_covariances(&errors).unwrap());
    let variances = ndarray::array![1.0, 1e-9];
    let means = Array2::from_shape_fn((2, 3), |(c, _)| c as f64);
    let mixture = Mixture::new(ndarray::array![0.5, 0.5], means, Covariances::Spherical(variances)).unwrap();
    let _fake = Fake::install(Machine::default());
    let on = |engine: &dyn Engine| {
        let of_pass = text(load(engine, &data).pass(&mixture));
        assert_eq!(of_pass, text(evaluate::score(engine, &mixture, &data, Precision::F64)));
        of_pass
    };
    let found = on(&CudaEngine::new(0).unwrap());
    assert_eq!(found, on(&CpuEngine::new(1).unwrap()));
    assert!(found.contains("component 1") && found.contains("column 2"), "{found}");
}

#[test]
fn fits_are_the_cpus() {
    for kind in CovarianceType::ALL {
        for errors in [independent(150, 2), correlated(150, 2)] {
            let data = with_errors(&weighted(&dataset(150, 2)), errors);
            let options = FitOptions { covariance_type: kind, max_iter: 8, n_init: 2, tol: 0.0, ..FitOptions::new(3) };
            let want = fit(&CpuEngine::new(1).unwrap(), &data, &options).unwrap();
            on_a_device("fit", |engine, _| {
                let got = fit(engine, &data, &options).unwrap();
                close(&got.summary.trace, &want.summary.trace, 1e-10, &format!("{kind}: trace"));
                let means = |fit: &crate::Fit| fit.mixture.means().iter().copied().collect::<Vec<_>>();
                close(&means(&got), &means(&want), 1e-8, &format!("{kind}: means"));
                assert_eq!(got.summary.rules, want.summary.rules);
                let moved = |engine: &dyn Engine| true_rows(engine, &got.mixture, &data, Precision::F64).unwrap().means;
                let (a, b) = (moved(engine), moved(&CpuEngine::new(1).unwrap()));
                close(a.as_slice().unwrap(), b.as_slice().unwrap(), 1e-12, &format!("{kind}: true rows"));
            });
        }
    }
}

#[test]
fn a_sample_of_the_rows_has_their_errors() {
    on_a_device("sample", |engine, _| {
        let data = with_errors(&dataset(200, 3), independent(200, 3));
        let mixture = mixture(CovarianceType::Full, 2, 3, 0.0);
        let some: Vec<usize> = (0..200).step_by(3).collect();
        let weights: Vec<f64> = some.iter().map(|i| (i % 2 + 1) as f64).collect();
        let got = load(engine, &data).sample(&some, Some(&weights)).unwrap().pass(&mixture).unwrap();
        let want = reference::statistics(&mixture, &data.select_rows(&some).with_weights(weights).unwrap());
        same(&got, &want, tolerance(3), "a sample");
    });
}

#[test]
fn several_devices_share_the_rows() {
    let fake = Fake::install(Machine { devices: 2, ..Machine::default() });
    let group = CudaGroup::open(&[0, 1]).unwrap();
    let data = with_errors(&dataset(300, 3), independent(300, 3));
    for kind in CovarianceType::ALL {
        check(&group, &mixture(kind, 2, 3, 0.0), &data, "two devices");
    }
    drop(group);
    fake.0.assert_clean("two devices");
}

#[test]
fn what_has_no_kernel_is_refused() {
    let _fake = Fake::install(Machine { devices: 2, ..Machine::default() });
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(CudaEngine::new(0).unwrap()), Box::new(CudaGroup::open(&[0, 1]).unwrap())];
    let zeros = |n: usize, d: usize| MeasurementErrors::from_covariances(&Array3::zeros((n, d, d))).unwrap();
    let wide = with_errors(&dataset(20, 17), zeros(20, 17));
    let independent = with_errors(&dataset(20, 17), independent(20, 17));
    let measured = rows(20, 2, 0.0);
    let projections = Array3::from_shape_fn((20, 2, 2), |(i, j, l)| noise(i * 4 + j * 2 + l));
    let views = Dataset::of_views(measured, projections, zeros(20, 2)).unwrap();
    let limited = Dataset::with_censoring(rows(20, 2, 0.0), rows(20, 2, 1.0)).unwrap();
    for engine in &engines {
        let options = FitOptions::new(2);
        let of_fit = |data: &Dataset| text(fit(engine.as_ref(), data, &options));
        for (error, what) in [
            (of_fit(&wide), "at most 16 columns"),
            (of_fit(&independent), "at most 16 columns"),
            (of_fit(&views), "linear views"),
            (of_fit(&limited), "within limits"),
        ] {
            assert!(error.contains(what) && error.contains("use") && error.contains("CPU"), "{error}");
        }
        let diag = FitOptions { covariance_type: CovarianceType::Diag, ..options.clone() };
        assert!(fit(engine.as_ref(), &independent, &diag).is_ok());
    }
}

/// Without the rows that a fit loads for its start, whose work nothing waits for.
#[test]
fn every_fault_is_an_error_and_leaks_nothing() {
    let data = with_errors(&weighted(&dataset(140, 2)), independent(140, 2));
    let mixture = mixture(CovarianceType::Full, 2, 2, 0.0);
    let run = || {
        let passes = CudaPasses::new(CudaEngine::new(0)?.gpu, &data)?;
        let mut densities = vec![0.0; 140];
        let found = passes.pass(&mixture)?;
        passes.evaluate(
            &mixture,
            EvaluateOptions { log_densities: Some(&mut densities), ..EvaluateOptions::default() },
        )?;
        Ok::<_, Error>((found, densities))
    };
    let fake = Fake::install(Machine::default());
    let whole = run().unwrap();
    let calls = fake.0.calls_of(Class::Any);
    fake.0.assert_clean("no fault");
    drop(fake);
    for (class, code) in
        [(Class::Any, code::UNKNOWN), (Class::Allocation, code::OUT_OF_MEMORY), (Class::Wait, code::ILLEGAL_ADDRESS)]
    {
        for at in 1..=calls {
            let what = format!("{class:?} {at}, code {code}");
            let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
            match run() {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                Ok(found) => {
                    let may = code == code::OUT_OF_MEMORY || may_fail(fake.0.failed());
                    assert!(may, "{what}: the passes went on after {:?}", fake.0.failed());
                    assert_eq!(found, whole, "{what}");
                }
            }
            fake.0.assert_clean(&what);
            if fake.0.failed().is_none() {
                break;
            }
        }
    }
}
