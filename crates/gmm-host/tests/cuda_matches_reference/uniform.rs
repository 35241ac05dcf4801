//! Fits with uniform noise: the engine has no pass for it, so every E-step is an evaluation and a pass over copies.

use gmm_host::{FitOptions, FitRule, Init, NoiseOptions, NoiseStart, fit};
use gmm_model::{CovarianceType, Precision};

use crate::compare::{Tally, allowed};
use crate::{Bench, common, data};

/// Ten iterations from the same start, in f64 on the CPU.
pub(crate) fn noise(bench: &Bench, tally: &mut Tally) {
    let sizes = if bench.quick { vec![(501, 3, 2)] } else { vec![(501, 3, 2), (100_000, 13, 8), (400_000, 40, 5)] };
    for (n, d, k) in sizes {
        let plain = data::dataset(n, d, 13);
        let data = if n % 2 == 1 { plain.with_weights(data::weights(n)).expect("weights") } else { plain };
        for kind in CovarianceType::ALL {
            let options = |precision| FitOptions {
                covariance_type: kind,
                init: Init::Given(Box::new(common::mixture(kind, k, d, 0.0, 1.0, 5))),
                max_iter: 10,
                tol: 0.0,
                precision: Some(precision),
                rule: FitRule {
                    noise: Some(NoiseOptions { start: NoiseStart::Share(0.2), log_volume: None }),
                    ..FitRule::none()
                },
                ..FitOptions::new(k)
            };
            let want = fit(&bench.cpu, &data, &options(Precision::F64)).expect("a fit on the CPU");
            for precision in [Precision::F32, Precision::F64] {
                tally.cases += 1;
                let what = format!("{kind} {precision} n={n} d={d} k={k}");
                let got = fit(&bench.gpu, &data, &options(precision)).expect("a fit on the GPU");
                // Rounding grows over the iterations.
                let tolerance = 10.0 * allowed(precision);
                let weight = |fit: &gmm_host::Fit| fit.noise.as_ref().expect("noise").weight;
                tally.close(&[weight(&got)], &[weight(&want)], tolerance, 1.0, &format!("{what}: noise"));
                let means = |fit: &gmm_host::Fit| fit.mixture.means().iter().copied().collect::<Vec<f64>>();
                tally.close(&means(&got), &means(&want), tolerance, 2.0, &format!("{what}: means"));
                let (a, b) = (&got.summary, &want.summary);
                tally.close(&a.trace, &b.trace, tolerance, b.trace[0].abs(), &format!("{what}: trace"));
                tally.close(&[a.log_likelihood], &[b.log_likelihood], tolerance, b.log_likelihood.abs(), &what);
            }
        }
    }
}
