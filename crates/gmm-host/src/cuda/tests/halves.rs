//! EM on the half-precision paths, as the host drives it: agreement with the reference, the fallback after lost
//! precision, and forced paths.

use std::ops::ControlFlow;

use super::*;
use crate::em::run;
use crate::{EmOptions, EmRun, ReferenceEngine, shift};

/// The allowed error in `f32`, relative to the magnitude of the values: a split-fp16 product has an error of 2⁻²², and
/// further losses stay within the bounds of `cuda/em/error_bounds.rs`.
pub(super) const ALLOWED: f64 = 2e-5;

/// A GPU whose blocks have little shared memory, so that few shapes fit the fused path.
const LITTLE: Machine = Machine { shared: 52 << 10, ..Machine::ONE };

/// `f32` rows around `k` corners, and a mixture with its means near them.
pub(super) fn problem(kind: CovarianceType, (n, d, k): (usize, usize, usize)) -> (Array2<f64>, Mixture) {
    around(kind, (n, d, k), |c, j| 3.0 * noise(77 + c * d + j))
}

/// As [`problem`], around given corners.
pub(super) fn around(
    kind: CovarianceType,
    (n, d, k): (usize, usize, usize),
    corner: impl Fn(usize, usize) -> f64,
) -> (Array2<f64>, Mixture) {
    let rows = Array2::from_shape_fn((n, d), |(i, j)| {
        let v = corner(i * 7 % k, j) + noise(i * d + j) + noise(90_000 + i * d + j);
        f64::from(v as f32)
    });
    let like = mixture(kind, k, d, 0.0);
    let means = Array2::from_shape_fn((k, d), |(c, j)| corner(c, j) + 0.2 * noise(991 + c * d + j));
    (rows, Mixture::new(like.weights().to_owned(), means, like.covariances().clone()).unwrap())
}

fn em(rows: &mut dyn Resident, start: &Mixture, max_iter: usize) -> EmRun {
    let options =
        EmOptions { tol: 0.0, max_iter, reg_covar: 1e-6, precision: Precision::F32, autotune: false, fast: false };
    run(rows, start.clone(), &options, 0, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Runs EM with the engine's choice of path, or with `plan` as in `GMM_PLAN`.
fn on_device(fake: &Fake, plan: &str, data: &Dataset, start: &Mixture, max_iter: usize) -> EmRun {
    let engine = CudaEngine::new(0).unwrap();
    let forced = plan::ForcedPlan::parse(plan).unwrap();
    let at = shift::of_data(data);
    let mut rows =
        CudaResident::<f32>::load(engine.gpu.clone(), data, Precision::F32, &at, forced, LoadOptions::default())
            .unwrap();
    let run = em(&mut rows, start, max_iter);
    drop((rows, engine));
    fake.assert_clean("a loop");
    run
}

/// The same by the reference, with `reg_covar` added to the diagonals.
pub(super) fn reference_with(data: &Dataset, start: &Mixture, max_iter: usize, reg_covar: f64) -> EmRun {
    let mut rows = ReferenceEngine.load(data, Precision::F64, &[]).unwrap();
    let options = EmOptions { tol: 0.0, max_iter, reg_covar, precision: Precision::F64, autotune: false, fast: false };
    run(rows.as_mut(), start.clone(), &options, 0, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn reference(data: &Dataset, start: &Mixture, max_iter: usize) -> EmRun {
    em(ReferenceEngine.load(data, Precision::F64, &[]).unwrap().as_mut(), start, max_iter)
}

pub(super) fn same(got: &EmRun, want: &EmRun, tolerance: f64, what: &str) {
    let covariances = |run: &EmRun| match run.mixture.covariances() {
        Covariances::Full(all) => all.iter().copied().collect::<Vec<_>>(),
        Covariances::Tied(one) => one.iter().copied().collect(),
        Covariances::Diag(all) => all.iter().copied().collect(),
        Covariances::Spherical(all) => all.to_vec(),
    };
    let (a, b) = (&got.mixture, &want.mixture);
    close(&got.trace, &want.trace, tolerance, &format!("{what}: trace"));
    close(&a.weights().to_vec(), &b.weights().to_vec(), tolerance, &format!("{what}: weights"));
    close(a.means().as_slice().unwrap(), b.means().as_slice().unwrap(), tolerance, &format!("{what}: means"));
    close(&covariances(got), &covariances(want), tolerance, &format!("{what}: covariances"));
    assert_eq!(got.empty, want.empty, "{what}");
}

/// The path that ran; panics unless all iterations ran on the device.
fn way(run: &EmRun, what: &str) -> &'static str {
    let on = run.on_device.unwrap_or_else(|| panic!("{what}: the host had to do it"));
    assert_eq!(on.iterations, run.iterations, "{what}: the host went on");
    on.path
}

#[test]
fn shapes_that_no_single_pass_takes_run_in_halves_and_agree_with_the_reference() {
    let shapes = [
        (CovarianceType::Full, (270, 33, 3)),
        (CovarianceType::Full, (500, 9, 30)),
        (CovarianceType::Full, (140, 40, 2)),
        (CovarianceType::Diag, (300, 33, 3)),
        (CovarianceType::Diag, (600, 4, 33)),
        (CovarianceType::Tied, (300, 33, 3)),
        (CovarianceType::Tied, (600, 5, 107)),
        (CovarianceType::Spherical, (300, 33, 3)),
        (CovarianceType::Spherical, (600, 17, 30)),
    ];
    for (kind, size) in shapes {
        let what = format!("{kind} {size:?}");
        let (rows, start) = problem(kind, size);
        let data = Dataset::new(rows).unwrap();
        let fake = Fake::install(LITTLE);
        let got = on_device(&fake.0, "", &data, &start, 2);
        assert_eq!(way(&got, &what), "chunked-split-fp16", "{what}");
        same(&got, &reference(&data, &start, 2), ALLOWED, &what);
    }
}

#[test]
fn matrices_that_shared_memory_does_not_hold_lie_in_device_memory() {
    let (rows, start) = problem(CovarianceType::Full, (420, 110, 2));
    let data = Dataset::new(rows).unwrap();
    let fake = Fake::install(LITTLE);
    let got = on_device(&fake.0, "", &data, &start, 2);
    assert_eq!(way(&got, "many columns"), "chunked-f64");
    assert!(fake.0.launches("update_wide") > 2);
    same(&got, &reference(&data, &start, 2), ALLOWED, "many columns");
}

#[test]
fn a_fit_says_by_which_way_it_ran() {
    let (rows, start) = problem(CovarianceType::Diag, (200, 33, 2));
    let data = Dataset::new(rows.mapv(|v| v as f32)).unwrap();
    let init = Init::Given(Box::new(start));
    let options =
        FitOptions { covariance_type: CovarianceType::Diag, init, max_iter: 2, tol: 0.0, ..FitOptions::new(2) };
    let _fake = Fake::install(LITTLE);
    let fit = fit(&CudaEngine::new(0).unwrap(), &data, &options).unwrap();
    // The fake driver reports a millisecond for every batch.
    assert_eq!(fit.on_device.unwrap().to_string(), "2 iterations on the device, path chunked-split-fp16, 1.0 ms");
}

#[test]
fn rows_with_weights_do_not_run_in_halves() {
    let (rows, start) = problem(CovarianceType::Diag, (200, 33, 2));
    let data = Dataset::new(rows).unwrap().with_weights((0..200).map(|i| 0.5 + (i % 2) as f64).collect()).unwrap();
    let fake = Fake::install(LITTLE);
    let got = on_device(&fake.0, "", &data, &start, 2);
    assert_eq!(way(&got, "weights"), "chunked-f64");
    assert_eq!(fake.0.launches("chunked_split_fp16"), 0);
    same(&got, &reference(&data, &start, 2), ALLOWED, "weights");
}

#[test]
fn a_column_with_a_far_outlier_is_not_for_halves_and_the_others_start_anew() {
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let what = format!("{kind} with an outlier");
        let (mut rows, start) = problem(kind, (200, 33, 3));
        // So large that columns scaled by it leave too few bits for a standard deviation of 1.
        rows[[7, 2]] = 2e4;
        let data = Dataset::new(rows).unwrap();
        let fake = Fake::install(LITTLE);
        let got = on_device(&fake.0, "", &data, &start, 2);
        assert_eq!((fake.0.launches("chunked_half_scales"), way(&got, &what)), (1, "chunked-f64"), "{what}");
        same(&got, &reference(&data, &start, 2), ALLOWED, &what);
    }
}

#[test]
fn a_far_outlier_costs_a_tied_covariance_that_stays_in_halves_no_digits() {
    let d = 33;
    // Components that share every row, so that responsibilities depend on the densities' precision.
    let mut rows = Array2::from_shape_fn((200, d), |(i, j)| f64::from((1.7 * noise(i * d + j)) as f32));
    rows[[7, 2]] = 2e4;
    let data = Dataset::new(rows).unwrap();
    let means = Array2::from_shape_fn((3, d), |(c, j)| 0.3 * noise(991 + c * d + j));
    let like = mixture(CovarianceType::Tied, 3, d, 0.0);
    let start = Mixture::new(like.weights().to_owned(), means, like.covariances().clone()).unwrap();
    let fake = Fake::install(LITTLE);
    let got = on_device(&fake.0, "", &data, &start, 2);
    assert_eq!(way(&got, "tied"), "chunked-split-fp16");
    let want = reference(&data, &start, 2);
    same(&got, &want, ALLOWED, "tied");
}

#[test]
fn where_a_component_grows_too_narrow_for_halves_the_others_go_on_from_the_last_look() {
    let d = 33;
    // A third of the rows are nearly one point, onto which the second component shrinks.
    let rows = Array2::from_shape_fn((300, d), |(i, j)| {
        let width = if i % 3 == 0 { 1e-3 } else { 8.0 };
        f64::from((width * noise(i * d + j)) as f32)
    });
    let data = Dataset::new(rows).unwrap();
    let covariances = Covariances::Diag(Array2::from_shape_fn((2, d), |(c, _)| if c == 0 { 21.0 } else { 6.4 }));
    let start = Mixture::new(Array1::from_vec(vec![0.5, 0.5]), Array2::zeros((2, d)), covariances).unwrap();
    crate::cuda::em::POLL_AFTER.set(1);
    let fake = Fake::install(LITTLE);
    let got = on_device(&fake.0, "", &data, &start, 4);
    let passes = |kernels: &str| fake.0.launches(kernels);
    assert_eq!(way(&got, "narrow"), "chunked-f64");
    let (halves, large) = (passes("chunked_split_fp16_moments"), passes("chunked_f64_moments_linear"));
    assert!(halves >= 2 && large == 4 - (halves - 1), "{halves} passes in halves, the last in vain, then {large}");
    same(&got, &reference(&data, &start, 4), ALLOWED, "narrow");
}

#[test]
fn every_way_that_is_asked_for_gives_the_same_answer() {
    for kind in CovarianceType::ALL {
        let (rows, start) = problem(kind, (300, 13, 3));
        let data = Dataset::new(rows).unwrap();
        let want = reference(&data, &start, 2);
        for asked in ["fused", "chunked-split-fp16", "chunked-f64"] {
            let what = format!("{kind} {asked}");
            let fake = Fake::install(Machine::default());
            for plan in ["", ",section=128"] {
                let got = on_device(&fake.0, &format!("path={asked}{plan}"), &data, &start, 2);
                assert_eq!(way(&got, &what), asked, "{what}{plan}");
                same(&got, &want, ALLOWED, &format!("{what}{plan}"));
            }
        }
        let fake = Fake::install(Machine::default());
        let got = on_device(&fake.0, "loop=host", &data, &start, 2);
        assert_eq!(got.on_device, None, "{kind}");
        same(&got, &want, ALLOWED, &format!("{kind} by the host"));
    }
}

/// Eight times the rounding error of an fp16 number.
pub(super) const ALLOWED_IN_HEADS: f64 = 8.0 / 2048.0;

#[test]
fn where_speed_counts_more_than_digits_heads_run_and_a_fit_says_what_they_cost() {
    let _fake = Fake::install(LITTLE);
    for (kind, shape) in [(CovarianceType::Full, (500, 33, 9)), (CovarianceType::Diag, (500, 33, 9))] {
        let (rows, start) = problem(kind, shape);
        let data = Dataset::new(rows.mapv(|v| v as f32)).unwrap();
        let engine = CudaEngine::new(0).unwrap();
        let options = FitOptions {
            covariance_type: kind,
            init: Init::Given(Box::new(start.clone())),
            tol: 0.0,
            max_iter: 2,
            reg_covar: 0.1,
            ..FitOptions::new(shape.2)
        };
        let accurate = fit(&engine, &data, &options).unwrap();
        assert_eq!((accurate.on_device.unwrap().path, accurate.fast), ("chunked-split-fp16", None), "{kind}");
        let fast = fit(&engine, &data, &FitOptions { fast: true, ..options }).unwrap();
        assert_eq!(fast.on_device.unwrap().path, "chunked-fp16", "{kind}");
        let loss = fast.fast.unwrap();
        for (what, loss) in [
            ("log-likelihood", loss.log_likelihood / accurate.summary.mean_log_likelihood.abs()),
            ("means", loss.means),
            ("covariances", loss.covariances),
        ] {
            // The loss is small but not zero: two different paths are compared.
            assert!(loss > 1e-9 && loss < ALLOWED_IN_HEADS, "{kind}: {what} {loss:e}");
        }
        // Rows with a certain component have the same weight on both paths.
        assert!(loss.weights < ALLOWED_IN_HEADS, "{kind}: {:e}", loss.weights);
        let (a, b) = (fast.mixture.means(), accurate.mixture.means());
        close(a.as_slice().unwrap(), b.as_slice().unwrap(), 2.0 * ALLOWED_IN_HEADS, "means");
    }
}

#[test]
fn a_shape_that_no_heads_take_runs_as_ever_and_gives_no_digit_away() {
    let _fake = Fake::install(Machine::default());
    let (rows, start) = problem(CovarianceType::Full, (200, 3, 4));
    let data = Dataset::new(rows.mapv(|v| v as f32)).unwrap();
    let options = FitOptions { init: Init::Given(Box::new(start)), max_iter: 3, ..FitOptions::new(4) };
    let engine = CudaEngine::new(0).unwrap();
    let accurate = fit(&engine, &data, &options).unwrap();
    let fast = fit(&engine, &data, &FitOptions { fast: true, ..options }).unwrap();
    assert_eq!(fast.fast, None);
    assert_eq!(fast.mixture, accurate.mixture);
}
