//! Whole fits, and repeated passes.

use gmm_host::{CudaEngine, Engine, Fit, FitOptions, Init, fit};
use gmm_model::{CovarianceType, Dataset, Precision};

use crate::compare::{Tally, size};
use crate::{Bench, common, data, sentinels};

/// The same rows and parameters give the same bits: in a repeated pass, after loading the rows again, and on a new
/// engine.
pub(crate) fn same_bits(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick { vec![(1000, 5, 3)] } else { vec![(1000, 5, 3), (300_000, 13, 8), (50_000, 64, 30)] };
    let again = CudaEngine::new(0).expect("the device again");
    for (n, d, k) in sizes {
        let data = data::dataset(n, d, 11);
        for kind in CovarianceType::ALL {
            for precision in [Precision::F32, Precision::F64] {
                let mixture = common::mixture(kind, k, d, 0.0, 1.0, 2);
                let at = vec![0.1; d];
                let mut rows = bench.gpu.load(&data, precision, &at).expect("room on the device");
                let first = rows.pass(&mixture).expect("a pass");
                let what = format!("{kind} {precision} n={n} d={d} k={k}");
                for _ in 0..5 {
                    tally.cases += 1;
                    tally.expect(rows.pass(&mixture).expect("a pass") == first, || format!("{what}: a repeat differs"));
                }
                // A pass of another shape in between changes nothing.
                rows.nearest(kind, mixture.means().slice(ndarray::s![..1, ..])).expect("a pass");
                tally.expect(rows.pass(&mixture).expect("a pass") == first, || format!("{what}: after another pass"));
                let mut rows = again.load(&data, precision, &at).expect("room on the device");
                tally.expect(rows.pass(&mixture).expect("a pass") == first, || format!("{what}: loaded again"));
            }
        }
    }
}

/// Rows with sentinels such as -9999 or 1e20, against the reference.
pub(crate) fn sentinels(bench: &Bench, tally: &mut Tally) {
    sentinels::check(&bench.gpu, |what, error, allowed| {
        tally.cases += 1;
        // Written so that a NaN fails.
        tally.expect(error <= allowed, || format!("{what}: off by {error:e}, {allowed:e} allowed"));
    });
}

/// Fits from the same start give the same mixture after the same number of iterations.
pub(crate) fn as_on_the_cpu(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick {
        vec![(500, 3, 2)]
    } else {
        vec![(272, 2, 2), (10_000, 4, 3), (100_000, 13, 8), (30_000, 30, 10), (1_000_000, 13, 8)]
    };
    for (n, d, k) in sizes {
        let data = clumps(n, d, k);
        for kind in CovarianceType::ALL {
            for precision in [Precision::F32, Precision::F64] {
                let start = common::mixture(kind, k, d, 0.0, 2.0, 4);
                let options = FitOptions {
                    covariance_type: kind,
                    init: Init::Given(Box::new(start)),
                    max_iter: 20,
                    tol: 0.0,
                    precision: Some(precision),
                    ..FitOptions::new(k)
                };
                compare(bench, tally, &data, &options, &format!("{kind} {precision} n={n} d={d} k={k}"));
            }
        }
    }
}

/// The same, with the initialisation included; in f64, so that rounding does not change a random draw.
pub(crate) fn from_k_means(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick { vec![(500, 3, 2)] } else { vec![(272, 2, 2), (10_000, 4, 3), (200_000, 8, 12)] };
    for (n, d, k) in sizes {
        let data = clumps(n, d, k);
        for init in [Init::KMeans, Init::KMeansPlusPlus, Init::Random, Init::RandomRows] {
            let what = format!("{init:?} n={n} d={d} k={k}");
            let precision = Some(Precision::F64);
            let options = FitOptions { init, max_iter: 10, tol: 0.0, precision, seed: 3, ..FitOptions::new(k) };
            compare(bench, tally, &data, &options, &what);
        }
    }
}

/// Lloyd's passes from the same centres, as many as the device makes in one call; a repeat gives the same bits.
pub(crate) fn lloyd(bench: &Bench, tally: &mut Tally) {
    let mut sizes = vec![(1, 1, 1), (130, 3, 2), (1001, 13, 8), (517, 33, 40), (300, 140, 5)];
    if !bench.quick {
        sizes.extend([(100_003, 13, 8), (300_000, 16, 16), (60_001, 32, 64), (40_000, 30, 30), (1_000_000, 13, 8)]);
        // Coefficients that do not fit in shared memory; centres processed in ranges.
        sizes.extend([(20_001, 128, 300), (50_000, 2, 700), (5001, 300, 9)]);
        sizes.extend((1..=70).map(|k| (40 * k + 100, 5, k)));
        sizes.extend((1..=70).map(|d| (777, d, 5)));
    }
    for (n, d, k) in sizes {
        let mut data = clumps(n, d, k);
        if n % 2 == 1 {
            data = data.with_weights(data::weights(n)).expect("weights");
        }
        let at = gmm_host::shift::of_data(&data);
        let start = ndarray::Array2::from_shape_fn((k, d), |(c, j)| data.rows().at(c * (n / k), j));
        for precision in [Precision::F32, Precision::F64] {
            tally.cases += 1;
            let what = format!("{precision} n={n} d={d} k={k}");
            let mut fast = bench.gpu.load(&data, precision, &at).expect("room on the device");
            let mut slow = bench.cpu.load(&data, Precision::F64, &at).expect("room on the host");
            let (mut a, mut b) = (start.clone(), start.clone());
            let got = fast.lloyd(&mut a, 6, 0.0).expect("passes on the GPU");
            let passes = (0..got.passes).map(|_| slow.lloyd(&mut b, 1, 0.0).expect("a pass on the CPU"));
            let want = passes.last().expect("at least one");
            // A row midway between two centres may be assigned to either by rounding.
            let tolerance = if precision == Precision::F32 { 1e-4 } else { 1e-9 };
            let (a, b) = (a.into_raw_vec_and_offset().0, b.into_raw_vec_and_offset().0);
            tally.close(&a, &b, tolerance, size(&b).max(1.0), &format!("{what}: centres"));
            let scale = want.inertia.max(1.0);
            tally.close(&[got.inertia], &[want.inertia], tolerance, scale, &format!("{what}: inertia"));
            tally.expect(got.empty == want.empty, || format!("{what}: empty {:?}, want {:?}", got.empty, want.empty));
            let mut again = start.clone();
            let repeat = fast.lloyd(&mut again, 6, 0.0).expect("passes on the GPU");
            let same = repeat == got && again.iter().zip(&a).all(|(x, y)| x == y);
            tally.expect(same || repeat.passes != got.passes, || format!("{what}: a repeat differs"));
        }
    }
}

pub(crate) fn compare(bench: &Bench, tally: &mut Tally, data: &Dataset, options: &FitOptions, what: &str) {
    let got = fit(&bench.gpu, data, options).expect("a fit on the GPU");
    let oracle = FitOptions { precision: Some(Precision::F64), ..options.clone() };
    let want = fit(&bench.cpu, data, &oracle).expect("a fit on the CPU");
    agree(tally, &got, &want, options.precision.unwrap_or(Precision::F64), what);
}

/// Compares a fit on the GPU, in a precision, with one on the CPU in f64.
pub(crate) fn agree(tally: &mut Tally, got: &Fit, want: &Fit, precision: Precision, what: &str) {
    tally.cases += 1;
    // EM amplifies rounding errors of the parameters from step to step; the likelihood, which it maximises, stays
    // accurate.
    let (trace, parameters) = match precision {
        Precision::F32 => (2e-5, 2e-2),
        Precision::F64 => (1e-9, 1e-6),
    };
    let ll = size(&want.summary.trace).max(1.0);
    tally.close(&got.summary.trace, &want.summary.trace, trace, ll, &format!("{what}: trace"));
    let means = |f: &Fit| f.mixture.means().iter().copied().collect::<Vec<_>>();
    let (a, b) = (means(got), means(want));
    tally.close(&a, &b, parameters, size(&b), &format!("{what}: means"));
    let (a, b) = (got.mixture.weights().to_vec(), want.mixture.weights().to_vec());
    tally.close(&a, &b, parameters, 1.0, &format!("{what}: weights"));
    tally.expect(got.summary.iterations == want.summary.iterations, || format!("{what}: iterations"));
    tally.expect(got.summary.engine == "cuda:0", || format!("{what}: engine {}", got.summary.engine));
}

/// Rows around `k` corners, far enough apart that rounding does not change the course of EM.
pub(crate) fn clumps(n: usize, d: usize, k: usize) -> Dataset {
    let mut rows = data::rows_f32(n, d, 21);
    for (i, mut row) in rows.outer_iter_mut().enumerate() {
        let c = (i * 7 + i / 3) % k;
        row.iter_mut().enumerate().for_each(|(j, v)| *v = 0.5 * *v + 4.0 * data::noise((c * d + j) as u64) as f32);
    }
    Dataset::new(rows).expect("finite rows")
}
