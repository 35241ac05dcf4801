//! Results agree with those of the reference engine and the CPU engine.

use super::*;
use crate::Passes;
use crate::init::RowDraw;
use crate::{DISTANCE_ROWS, EvaluateOptions, ReferenceEngine, shift};

fn agrees(kind: CovarianceType, precision: Precision, n: usize, d: usize, k: usize, weighted: bool) {
    let what = format!("{kind} {precision} n={n} d={d} k={k}");
    let tolerance = if precision == Precision::F32 { 2e-5 } else { 1e-10 };
    let offset = if precision == Precision::F32 { 1e4 } else { 1e8 };
    let mut all = rows(n, d, offset);
    if precision == Precision::F32 {
        all.mapv_inplace(|v| f64::from(v as f32));
    }
    let mut data = Dataset::new(all).unwrap();
    if weighted {
        data = data.with_weights((0..n).map(|i| 0.5 * ((i % 3) + usize::from(n < 3)) as f64).collect()).unwrap();
    }
    let mixture = mixture(kind, k, d, offset);
    let at = shift::of_data(&data);
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let mut fast = engine.load(&data, precision, &at).unwrap();
    let mut slow = ReferenceEngine.load(&data, Precision::F64, &at).unwrap();
    let same = |got: gmm_model::Statistics, want: gmm_model::Statistics, what: &str| {
        close(&got.weight, &want.weight, tolerance, &format!("{what}: weight"));
        close(got.first.as_slice().unwrap(), want.first.as_slice().unwrap(), tolerance, &format!("{what}: first"));
        close(&got.second, &want.second, tolerance, &format!("{what}: second"));
        close(&[got.log_likelihood], &[want.log_likelihood], tolerance, &format!("{what}: log-likelihood"));
        assert_eq!((got.n_rows, got.total_weight, &got.centres), (want.n_rows, want.total_weight, &want.centres));
    };
    let first = fast.pass(&mixture).unwrap();
    assert_eq!(first, fast.pass(&mixture).unwrap(), "{what}: the same bits again");
    same(first, slow.pass(&mixture).unwrap(), &what);
    let centres = mixture.means();
    same(fast.nearest(kind, centres).unwrap(), slow.nearest(kind, centres).unwrap(), &format!("{what} nearest"));
    let fill = |start: usize, out: &mut [f64]| {
        for (i, r) in out.iter_mut().enumerate() {
            *r = 0.5 + 0.5 * noise(start * k + i);
        }
    };
    let given = fast.given(kind, centres, &fill).unwrap();
    same(given, slow.given(kind, centres, &fill).unwrap(), &format!("{what} given"));
    let near = |rows: &mut dyn Resident| {
        let sums: Vec<f64> = centres.outer_iter().take(2).flat_map(|c| rows.add_centre(&c.to_vec()).unwrap()).collect();
        let ranges = [n / 2..n, 0..n.min(2)];
        let draws = [0.3, 0.85].map(|uniform| RowDraw { group: n / 2 / DISTANCE_ROWS, uniform });
        let weighed = rows.weigh_draws(&draws, data.weights()).unwrap();
        (sums, weighed.left, rows.near(&ranges).unwrap(), weighed.rows)
    };
    let (a, b) = (near(fast.as_mut()), near(slow.as_mut()));
    fast.forget_centres();
    close(&a.0, &b.0, tolerance, &format!("{what}: sums of squared distances"));
    assert_eq!(a.3, b.3, "{what}: rows that are drawn");
    close(&a.1, &b.1, tolerance, &format!("{what}: what they would leave"));
    close(&a.2, &b.2, tolerance, &format!("{what}: squared distances"));
    let run = |rows: &mut dyn Resident| {
        let (mut densities, mut r, mut labels) = (vec![f64::NAN; n], vec![f64::NAN; n * k], vec![u32::MAX; n]);
        let want = EvaluateOptions {
            log_densities: Some(&mut densities),
            responsibilities: Some((&mut r).into()),
            labels: Some(&mut labels),
        };
        let totals = rows.evaluate(&mixture, want).unwrap();
        assert_eq!(
            totals,
            rows.evaluate(&mixture, EvaluateOptions::default()).unwrap(),
            "totals do not depend on the outputs"
        );
        (vec![totals.log_likelihood, totals.entropy, totals.total_weight], densities, r, labels)
    };
    let (got, want) = (run(fast.as_mut()), run(slow.as_mut()));
    close(&got.0[..1], &want.0[..1], tolerance, &format!("{what}: log-likelihood"));
    close(&got.0[1..], &want.0[1..], tolerance, &format!("{what}: entropy and weight"));
    close(&got.1, &want.1, tolerance, &format!("{what}: log densities"));
    close(&got.2, &want.2, 4.0 * tolerance, &format!("{what}: responsibilities"));
    for (i, (a, b)) in got.3.iter().zip(&want.3).enumerate() {
        let r = |c: &u32| want.2[i * k + *c as usize];
        assert!(r(a) >= r(b) - tolerance, "{what}: label of row {i}");
    }
    drop(fast);
    drop(engine);
    fake.0.assert_clean(&what);
}

#[test]
fn agrees_with_the_reference_at_odd_sizes() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            for (n, d, k) in [(1, 1, 1), (2, 3, 2), (127, 2, 3), (129, 9, 2), (300, 17, 5), (513, 1, 18)] {
                agrees(kind, precision, n, d, k, n % 2 == 1);
            }
        }
    }
}

#[test]
fn agrees_where_solved_columns_do_not_fit_in_shared_memory() {
    for kind in [CovarianceType::Full, CovarianceType::Tied] {
        agrees(kind, Precision::F64, 140, 65, 2, true);
    }
}

#[test]
fn every_forced_plan_gives_the_same_answer() {
    let data = dataset(700, 18).with_weights((0..700).map(|i| 1.0 + (i % 2) as f64).collect()).unwrap();
    let fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 3, 18, 0.0);
        let pass = |text: &str| {
            let forced = plan::ForcedPlan::parse(text).unwrap();
            let rows = CudaResident::<f64>::load(
                engine.gpu.clone(),
                &data,
                Precision::F64,
                &[0.5; 18],
                forced,
                LoadOptions::default(),
            );
            rows.unwrap().pass(&mixture).unwrap()
        };
        let want = pass("");
        for text in [
            "solved=shared",
            "solved=scratch",
            "chunk=128",
            "chunk=256,splits=2",
            "blocks=1,splits=1",
            "splits=5",
            "rows=4",
        ] {
            let (got, what) = (pass(text), format!("{kind} {text}"));
            close(&got.weight, &want.weight, 1e-13, &what);
            close(got.first.as_slice().unwrap(), want.first.as_slice().unwrap(), 1e-12, &what);
            close(&got.second, &want.second, 1e-13, &what);
            close(&[got.log_likelihood], &[want.log_likelihood], 1e-13, &what);
        }
    }
    drop(engine);
    fake.0.assert_clean("forced plans");
}

#[test]
fn a_fit_is_the_cpu_engines() {
    let data = dataset(400, 3);
    for kind in CovarianceType::ALL {
        for init in [Init::KMeans, Init::Random] {
            let options = FitOptions { covariance_type: kind, init, max_iter: 5, seed: 7, ..FitOptions::new(3) };
            let fake = Fake::install(Machine::default());
            let got = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
            let want = fit(&crate::CpuEngine::new(1).unwrap(), &data, &options).unwrap();
            assert_eq!(got.summary.engine, "cuda:0");
            assert_eq!(got.summary.iterations, want.summary.iterations);
            close(got.mixture.means().as_slice().unwrap(), want.mixture.means().as_slice().unwrap(), 1e-9, "means");
            close(&got.summary.trace, &want.summary.trace, 1e-11, "trace");
            fake.0.assert_clean("fit");
        }
    }
}

#[test]
fn evaluation_goes_through_the_same_functions() {
    let (data, mixture) = (dataset(200, 2), mixture(CovarianceType::Full, 3, 2, 0.0));
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    let got = evaluate::labels(&engine, &mixture, &data, Precision::F64).unwrap();
    assert_eq!(got, evaluate::labels(&ReferenceEngine, &mixture, &data, Precision::F64).unwrap());
}

#[test]
fn a_value_beyond_the_range_of_squares_scores_minus_infinity() {
    let mut all = rows(300, 2, 0.0);
    all[[200, 1]] = 1e200;
    let data = Dataset::new(all).unwrap();
    let _fake = Fake::install(Machine::default());
    let engine = CudaEngine::new(0).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 3, 2, 0.0);
        for precision in [Precision::F32, Precision::F64] {
            let (densities, totals) = evaluate::log_densities(&engine, &mixture, &data, precision).unwrap();
            assert_eq!((densities[200], totals.log_likelihood), (f64::NEG_INFINITY, f64::NEG_INFINITY));
            assert!(densities.iter().enumerate().all(|(i, v)| i == 200 || v.is_finite()));
            let r = evaluate::responsibilities(&engine, &mixture, &data, precision).unwrap();
            close(&r.row(200).to_vec(), &mixture.weights().to_vec(), 1e-6, "responsibilities are the weights");
            assert!(evaluate::labels(&engine, &mixture, &data, precision).unwrap()[200] == 2, "the heaviest");
        }
    }
}

#[test]
fn hundreds_of_columns_cost_the_likelihood_no_digits() {
    // The constants are some hundred: rounding them, or sums of squares, to `f32` would cause errors of a few 1e-5.
    let cases = [
        (CovarianceType::Full, 300, 1.0),
        (CovarianceType::Tied, 257, 1.0),
        (CovarianceType::Diag, 512, 1.0),
        // The last component has shrunk onto a few rows, so its constant is several thousand.
        (CovarianceType::Diag, 512, 1e-3),
        (CovarianceType::Spherical, 500, 1.0),
    ];
    for (kind, d, last) in cases {
        let (n, k) = (96, 3);
        let mixture = mixture(kind, k, d, 0.0);
        let covariances = match mixture.covariances() {
            Covariances::Diag(all) => {
                let mut all = all.clone();
                all.row_mut(k - 1).mapv_inplace(|v| v * last * last);
                Covariances::Diag(all)
            }
            others => others.clone(),
        };
        let mixture = Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), covariances).unwrap();
        let sd = |c: usize, j: usize| match mixture.covariances() {
            Covariances::Diag(all) => all[[c, j]].sqrt(),
            _ => 1.0,
        };
        // If the last component has shrunk, rows come only from the others.
        let of = |i: usize| if last < 1.0 { i % (k - 1) } else { i % k };
        let all = Array2::from_shape_fn((n, d), |(i, j)| {
            let z = 1.25 * noise(3 * i * d + j) + 1.25 * noise(5 * i * d + j + 7);
            f64::from((mixture.means()[[of(i), j]] + sd(of(i), j) * z) as f32)
        });
        let data = Dataset::new(all).unwrap();
        let _fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let (got, totals) = evaluate::log_densities(&engine, &mixture, &data, Precision::F32).unwrap();
        let (want, truth) = evaluate::log_densities(&ReferenceEngine, &mixture, &data, Precision::F64).unwrap();
        let mean = (totals.log_likelihood - truth.log_likelihood).abs() / n as f64;
        let most = got.iter().zip(&want).fold(0.0_f64, |most, (got, want)| most.max((got - want).abs()));
        // Sums of 32 squares have a random error of about 5e-6 per row, and forward substitution several times that;
        // 1/σ of spherical components has the same error in all columns.
        let allowed = match kind {
            CovarianceType::Diag => (3e-6, 2e-5),
            CovarianceType::Spherical => (8e-6, 3e-5),
            _ => (3e-6, 4e-5),
        };
        assert!(
            mean < allowed.0 && most < allowed.1,
            "{kind}: {mean:e} a row, at most {most:e}, of some {:.0}",
            want[0]
        );
    }
}
