//! Uniform noise beside the Gaussian components, against EM over single rows, a simulation and mclust.

use std::sync::Arc;

use gmm_host::noise::{evaluate, labels, region, sample_rows};
use gmm_host::{CpuEngine, Engine, Error, Fit, FitOptions, FitRule, Init, NoiseOptions, NoiseStart, fit};
use gmm_model::{
    CovarianceType, Dataset, Draws, MStepRule, Mixture, Noise, NoiseRegion, Precision, Statistics, entropy,
    m_step_with, reference,
};
use ndarray::{Array1, Array2, array};

use crate::{close, cpu, engines, mixtures_close, separated, with};

fn noise(start: NoiseStart) -> FitRule {
    FitRule { noise: Some(NoiseOptions { start, log_volume: None }), ..FitRule::none() }
}

/// `separated` rows and as many over the box around them, to a third of the rows.
fn cluttered(n: usize, k: usize, d: usize, seed: u64) -> Array2<f64> {
    let clear = separated(n, k, d);
    let of = |j: usize, f: fn(f64, f64) -> f64, from: f64| clear.column(j).iter().fold(from, |a, &v| f(a, v));
    let mut draws = Draws::new(seed, 0);
    let clutter = Array2::from_shape_fn((n / 2, d), |(_, j)| {
        let (low, high) = (of(j, f64::min, f64::INFINITY), of(j, f64::max, f64::NEG_INFINITY));
        low + (high - low) * draws.uniform()
    });
    ndarray::concatenate(ndarray::Axis(0), &[clear.view(), clutter.view()]).unwrap()
}

/// One E-step over single rows: the statistics of the Gaussian components, and the count of the noise.
fn naive(
    m: &Mixture,
    noise: &Noise,
    rows: &Array2<f64>,
    weights: &[f64],
    labels: &[Option<usize>],
) -> (Statistics, f64) {
    let k = m.n_components();
    let mut out = Statistics::zero(m.covariance_type(), m.means().to_owned());
    let mut count = 0.0;
    for (i, x) in rows.outer_iter().enumerate() {
        let (log_density, r) = match labels[i] {
            None => noise.reference(m, x),
            Some(c) => {
                let r = (0..=k).map(|other| f64::from(other == c)).collect();
                (reference::log_joint(m, c, x) + (1.0 - noise.weight).ln(), r)
            }
        };
        out.log_likelihood += weights[i] * log_density;
        reference::accumulate(&mut out, x, weights[i], Array1::from(r[..k].to_vec()).view());
        count += weights[i] * r[k];
    }
    (out, count)
}

struct Expected {
    mixture: Mixture,
    noise: Noise,
    trace: Vec<f64>,
    log_likelihood: f64,
}

/// Ten iterations over single rows.
fn expected(start: &Mixture, noise: Noise, rows: &Array2<f64>, weights: &[f64], labels: &[Option<usize>]) -> Expected {
    let total: f64 = weights.iter().sum();
    let (mut mixture, mut noise, mut trace) = (start.clone(), noise, Vec::new());
    for _ in 0..10 {
        let (statistics, count) = naive(&mixture, &noise, rows, weights, labels);
        trace.push(statistics.log_likelihood / total);
        mixture = m_step_with(&MStepRule::default(), &statistics, 1e-6, Some(&mixture)).unwrap().mixture;
        noise.weight = count / total;
    }
    let log_likelihood = naive(&mixture, &noise, rows, weights, labels).0.log_likelihood;
    Expected { mixture, noise, trace, log_likelihood }
}

/// Fits of every engine and precision from `start`, compared with EM over single rows.
fn check(
    rows: &Array2<f64>,
    weights: &[f64],
    known: &[Option<usize>],
    parts: Option<Vec<usize>>,
    kind: CovarianceType,
) {
    let start = cpu(rows, &FitOptions { max_iter: 0, ..with(FitRule::none(), 3, kind) }).mixture;
    let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.to_vec()).unwrap();
    let data = parts.into_iter().fold(data, Dataset::with_parts);
    let region = region((&data).into()).unwrap();
    let of = expected(&start, Noise::new(0.3, region).unwrap(), rows, weights, known);
    for engine in engines() {
        for precision in [Precision::F32, Precision::F64] {
            let options = FitOptions {
                init: Init::Given(Box::new(start.clone())),
                max_iter: 10,
                tol: 0.0,
                precision: Some(precision),
                rule: FitRule {
                    labels: known.iter().any(Option::is_some).then(|| Arc::new(known.to_vec())),
                    ..noise(NoiseStart::Share(0.3))
                },
                ..with(FitRule::none(), 3, kind)
            };
            let found = fit(engine.as_ref(), &data, &options).unwrap();
            let tolerance = if precision == Precision::F64 { 1e-10 } else { 1e-4 };
            mixtures_close(&found.mixture, &of.mixture, tolerance);
            close(found.noise.as_ref().unwrap().weight, of.noise.weight, tolerance);
            found.summary.trace.iter().zip(&of.trace).for_each(|(a, b)| close(*a, *b, tolerance));
            close(found.summary.log_likelihood, of.log_likelihood, tolerance);
        }
    }
}

#[test]
fn a_fit_with_noise_is_naive_em_over_single_rows() {
    let rows = cluttered(180, 3, 3, 1);
    let weights: Vec<f64> = (0..rows.nrows()).map(|i| 0.5 + (i % 3) as f64).collect();
    for kind in CovarianceType::ALL {
        check(&rows, &vec![1.0; rows.nrows()], &vec![None; rows.nrows()], None, kind);
        check(&rows, &weights, &vec![None; rows.nrows()], None, kind);
        check(&rows, &weights, &vec![None; rows.nrows()], Some(vec![100, 101]), kind);
    }
}

#[test]
fn labelled_rows_are_no_noise() {
    let rows = cluttered(180, 3, 2, 2);
    let n = rows.nrows();
    let known: Vec<Option<usize>> = (0..n).map(|i| (i % 7 == 0).then_some(2 * (i % 2))).collect();
    for kind in CovarianceType::ALL {
        check(&rows, &vec![2.0; n], &known, None, kind);
    }
}

#[test]
fn pooled_moments_by_pairs_count_each_row_by_its_probability() {
    // Enough rows for the pairs of a tied covariance.
    let rows = cluttered(1200, 3, 2, 3);
    check(&rows, &vec![1.0; 1800], &vec![None; 1800], None, CovarianceType::Tied);
}

#[test]
fn the_likelihood_never_falls_and_the_criteria_are_those_of_its_definition() {
    for kind in CovarianceType::ALL {
        let rows = cluttered(300, 3, 2, 4);
        let options =
            FitOptions { tol: 0.0, max_iter: 60, reg_covar: 0.0, ..with(noise(NoiseStart::Cleaned), 3, kind) };
        let found = cpu(&rows, &options);
        let trace = &found.summary.trace;
        assert!(trace.windows(2).all(|pair| pair[1] >= pair[0] - 1e-13 * pair[0].abs()), "{kind}: {trace:?}");
        let (noise, k) = (found.noise.as_ref().unwrap(), 3);
        let (mut log_likelihood, mut uncertain) = (0.0, 0.0);
        for x in rows.outer_iter() {
            let (log_density, r) = noise.reference(&found.mixture, x);
            log_likelihood += log_density;
            uncertain += entropy(&r);
        }
        close(found.summary.log_likelihood, log_likelihood, 1e-12);
        // mclust's `nMclustParams`: two more, the weight and the volume.
        let p = (found.mixture.n_parameters() + 2) as f64;
        close(found.summary.bic, p * 450f64.ln() - 2.0 * log_likelihood, 1e-12);
        close(found.summary.icl, found.summary.bic + 2.0 * uncertain, 1e-10);
        assert_eq!(found.mixture.n_components(), k);
    }
}

#[test]
fn a_simulated_mixture_with_noise_is_found_again() {
    let truth = cpu(&separated(4000, 3, 2), &with(FitRule::none(), 3, CovarianceType::Full)).mixture;
    for (clutter, seed) in [(0.1, 1), (0.5, 2), (0.7, 3)] {
        let (lower, upper) = (vec![-30.0, -25.0], vec![30.0, 35.0]);
        let truly = Noise::new(clutter, NoiseRegion { lower, upper, rotation: None }).unwrap();
        let mut rows = vec![0.0; 8000];
        sample_rows(&truth, Some(&truly), seed, 0..4000, &mut rows).unwrap();
        let rows = Array2::from_shape_vec((4000, 2), rows).unwrap();
        for start in [NoiseStart::Cleaned, NoiseStart::Share(clutter)] {
            let options = FitOptions { tol: 1e-6, max_iter: 500, ..with(noise(start), 3, CovarianceType::Full) };
            let found = cpu(&rows, &options);
            let weight = found.noise.as_ref().unwrap().weight;
            // Three standard errors of a share of 4000 rows.
            assert!((weight - clutter).abs() < 0.024, "{weight} of {clutter}");
            for mean in truth.means().outer_iter() {
                let far = |other: ndarray::ArrayView1<'_, f64>| (&mean - &other).mapv(|v| v * v).sum().sqrt();
                let nearest = found.mixture.means().outer_iter().map(far).fold(f64::INFINITY, f64::min);
                assert!(nearest < 0.25, "{clutter}: {nearest}");
            }
        }
    }
}

#[test]
fn noise_that_is_thin_everywhere_leaves_the_plain_fit() {
    let rows = separated(300, 3, 3);
    for kind in CovarianceType::ALL {
        let plain = cpu(&rows, &FitOptions { tol: 0.0, max_iter: 30, ..with(FitRule::none(), 3, kind) });
        let thin = FitRule {
            noise: Some(NoiseOptions { start: NoiseStart::Rows(Arc::new(vec![false; 300])), log_volume: Some(500.0) }),
            ..FitRule::none()
        };
        let found = cpu(&rows, &FitOptions { tol: 0.0, max_iter: 30, ..with(thin, 3, kind) });
        mixtures_close(&found.mixture, &plain.mixture, 1e-11);
        assert!(found.noise.unwrap().weight < 1e-100);
        close(found.summary.log_likelihood, plain.summary.log_likelihood, 1e-12);
    }
}

#[test]
fn a_row_far_from_all_others_is_noise_and_moves_no_component() {
    let mut rows = separated(300, 2, 2);
    let clear = cpu(&rows, &with(FitRule::none(), 2, CovarianceType::Full)).mixture;
    rows[[7, 0]] = 1e4;
    rows[[8, 1]] = -1e4;
    let found = cpu(&rows, &FitOptions { tol: 1e-8, ..with(noise(NoiseStart::Cleaned), 2, CovarianceType::Full) });
    let share = found.noise.as_ref().unwrap();
    close(share.weight, 2.0 / 300.0, 1e-6);
    let data = Dataset::new(rows).unwrap();
    let found_labels = labels(&CpuEngine::new(1).unwrap(), &found.mixture, share, &data, Precision::F64).unwrap();
    assert_eq!((0..300).filter(|&i| found_labels[i] == -1).collect::<Vec<_>>(), [7, 8]);
    for mean in clear.means().outer_iter() {
        let far = |other: ndarray::ArrayView1<'_, f64>| (&mean - &other).mapv(f64::abs).sum();
        assert!(found.mixture.means().outer_iter().map(far).fold(f64::INFINITY, f64::min) < 0.1);
    }
}

#[test]
fn all_outputs_of_a_row_are_those_of_the_reference() {
    let rows = cluttered(200, 3, 3, 5);
    for kind in CovarianceType::ALL {
        let found = cpu(&rows, &with(noise(NoiseStart::Cleaned), 3, kind));
        let noise = found.noise.as_ref().unwrap();
        let data = Dataset::new(rows.clone()).unwrap();
        for engine in engines() {
            let (densities, r, totals) =
                evaluate(engine.as_ref(), &found.mixture, noise, &data, Precision::F64).unwrap();
            let labels = labels(engine.as_ref(), &found.mixture, noise, &data, Precision::F64).unwrap();
            let mut sum = 0.0;
            for (i, x) in rows.outer_iter().enumerate() {
                let (log_density, expected) = noise.reference(&found.mixture, x);
                close(densities[i], log_density, 1e-12);
                expected.iter().zip(r.row(i)).for_each(|(a, b)| close(*a, *b, 1e-11));
                close(r.row(i).sum(), 1.0, 1e-14);
                let best = (1..4).fold(0, |best, c| if expected[c] > expected[best] { c } else { best });
                assert_eq!(labels[i], if best == 3 { -1 } else { best as i32 });
                sum += log_density;
            }
            close(totals.log_likelihood, sum, 1e-12);
        }
    }
}

#[test]
fn given_rows_start_as_noise() {
    let rows = cluttered(300, 2, 2, 6);
    let flags: Vec<bool> = (0..450).map(|i| i >= 300).collect();
    let options = with(noise(NoiseStart::Rows(Arc::new(flags))), 2, CovarianceType::Full);
    let start = cpu(&rows, &FitOptions { max_iter: 0, ..options.clone() });
    let clear = cpu(
        &rows.slice(ndarray::s![..300, ..]).to_owned(),
        &FitOptions { max_iter: 0, ..with(FitRule::none(), 2, CovarianceType::Full) },
    );
    mixtures_close(&start.mixture, &clear.mixture, 1e-10);
    close(start.noise.unwrap().weight, 1.0 / 3.0, 1e-15);
}

#[test]
fn every_start_can_be_used_with_noise() {
    let rows = cluttered(300, 3, 2, 7);
    let best = cpu(&rows, &with(noise(NoiseStart::Cleaned), 3, CovarianceType::Full)).summary.log_likelihood;
    for word in Init::WORDS {
        let init: Init = word.parse().unwrap();
        let found = cpu(
            &rows,
            &FitOptions { init, n_init: 3, max_iter: 300, ..with(noise(NoiseStart::Cleaned), 3, CovarianceType::Full) },
        );
        // Mixing up draws nothing, and ends at a poor optimum of these rows.
        let is_near = word == "mix-up" || found.summary.log_likelihood > best - 60.0;
        assert!(found.noise.is_some() && is_near, "{word}: {best} {:?}", found.summary);
    }
}

#[test]
fn a_resumed_fit_has_the_bits_of_an_undisturbed_one() {
    let data = Dataset::new(cluttered(300, 3, 2, 8)).unwrap();
    let engine = CpuEngine::new(1).unwrap();
    let options = FitOptions { tol: 0.0, max_iter: 12, ..with(noise(NoiseStart::Cleaned), 3, CovarianceType::Diag) };
    let whole = fit(&engine, &data, &options).unwrap();
    let half = fit(&engine, &data, &FitOptions { max_iter: 5, ..options.clone() }).unwrap();
    let mut go_on = |_: &gmm_host::Iteration<'_>| std::ops::ControlFlow::Continue(());
    let rest = gmm_host::fit_resumed(&engine, &data, &options, half.state.clone(), &mut go_on).unwrap();
    assert_eq!((&rest.mixture, &rest.noise, &rest.summary), (&whole.mixture, &whole.noise, &whole.summary));
    let plain = FitOptions { rule: FitRule::none(), ..options };
    let error = gmm_host::fit_resumed(&engine, &data, &plain, half.state, &mut go_on).unwrap_err();
    assert!(error.to_string().contains("noise"), "{error}");
}

#[test]
fn restarts_at_the_same_time_change_no_bit() {
    let data = Dataset::new(cluttered(300, 3, 2, 9)).unwrap();
    let of = |concurrent: bool, threads: usize| -> Fit {
        let options = FitOptions {
            n_init: 4,
            init: Init::Random,
            concurrent,
            ..with(noise(NoiseStart::Cleaned), 3, CovarianceType::Full)
        };
        fit(&CpuEngine::new(threads).unwrap(), &data, &options).unwrap()
    };
    let (one, many) = (of(false, 2), of(true, 2));
    assert_eq!((&one.mixture, &one.noise), (&many.mixture, &many.noise));
}

#[test]
fn the_region_is_the_smaller_of_two_boxes() {
    let mut draws = Draws::new(3, 0);
    let square =
        Array2::from_shape_fn((2000, 2), |(_, j)| if j == 0 { 8.0 * draws.uniform() } else { draws.uniform() });
    let volume = |rows: &Array2<f64>| region((&Dataset::new(rows.clone()).unwrap()).into()).unwrap();
    let plain = volume(&square);
    assert!(plain.rotation.is_none());
    close(plain.log_volume(), 8f64.ln(), 2e-3);
    // Turned by 45 degrees, the box along the columns is (9/√2)² large.
    let s = 0.5f64.sqrt();
    let turned = square.dot(&array![[s, s], [-s, s]]) + 100.0;
    let found = volume(&turned);
    assert!(found.rotation.is_some());
    close(found.log_volume(), plain.log_volume(), 2e-2);
}

#[test]
fn rows_without_a_volume_are_an_error_that_names_the_column() {
    let refused = |rows: Array2<f64>| region((&Dataset::new(rows).unwrap()).into()).unwrap_err().to_string();
    let mut rows = separated(50, 2, 3);
    rows.column_mut(1).fill(4.0);
    assert!(refused(rows).contains("column 1 is constant"));
    let mut rows = separated(50, 2, 3);
    let sum = &rows.column(0) + &rows.column(1);
    rows.column_mut(2).assign(&sum);
    assert!(refused(rows).contains("linearly dependent"));
}

#[test]
fn draws_have_the_share_of_noise_and_lie_in_its_region() {
    let rows = cluttered(400, 2, 2, 10);
    let found = cpu(&rows, &with(noise(NoiseStart::Cleaned), 2, CovarianceType::Full));
    let noise = found.noise.unwrap();
    let (mut drawn, mut plain) = (vec![0.0; 20_000], vec![0.0; 20_000]);
    sample_rows(&found.mixture, Some(&noise), 5, 0..10_000, &mut drawn).unwrap();
    sample_rows(&found.mixture, None, 5, 0..10_000, &mut plain).unwrap();
    let changed: Vec<usize> = (0..10_000).filter(|&i| drawn[2 * i] != plain[2 * i]).collect();
    // Four standard errors.
    assert!((changed.len() as f64 / 1e4 - noise.weight).abs() < 0.02);
    let NoiseRegion { lower, upper, rotation } = noise.region.as_ref().unwrap();
    assert!(rotation.is_none());
    for i in changed {
        assert!((0..2).all(|j| (lower[j]..=upper[j]).contains(&drawn[2 * i + j])));
    }
    let mut part = vec![0.0; 40];
    sample_rows(&found.mixture, Some(&noise), 5, 990..1010, &mut part).unwrap();
    assert_eq!(part, drawn[1980..2020]);
}

#[test]
fn what_noise_cannot_be_is_an_error() {
    let rows = Dataset::new(separated(40, 2, 2)).unwrap();
    let refused = |start: NoiseStart, change: &dyn Fn(&mut FitOptions)| -> Error {
        let mut options = with(noise(start), 2, CovarianceType::Full);
        change(&mut options);
        fit(&CpuEngine::new(1).unwrap() as &dyn Engine, &rows, &options).unwrap_err()
    };
    for share in [0.0, 1.0, -0.5, f64::NAN] {
        assert!(refused(NoiseStart::Share(share), &|_| ()).to_string().contains("share of noise"));
    }
    assert!(refused(NoiseStart::Rows(Arc::new(vec![true; 3])), &|_| ()).to_string().contains("40, the number of rows"));
    assert!(refused(NoiseStart::Rows(Arc::new(vec![true; 40])), &|_| ()).to_string().contains("0 rows are left"));
    let given = Noise { weight: 0.1, log_volume: 0.0, region: None };
    assert!(refused(NoiseStart::Given(Box::new(given)), &|_| ()).to_string().contains("start of the noise"));
    // A volume so small that noise is denser than any row's density: all rows become noise.
    let dense = refused(NoiseStart::Share(0.5), &|o| o.rule.noise.as_mut().unwrap().log_volume = Some(-700.0));
    assert!(matches!(dense, Error::AllNoise { .. }), "{dense}");
}

fn table(name: &str) -> Dataset {
    let path = format!("{}/../../data/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    gmm_data::read_table(path, &gmm_data::ReadOptions::default()).unwrap().into_dataset().unwrap()
}

#[test]
fn the_region_has_mclusts_hypervolume() {
    // `log(hypvol(..))` of mclust 6.0.0; those of the geyser and the diabetes data are along the principal axes.
    for (name, log_volume, is_turned) in
        [("chevron", 9.68170601749, false), ("old_faithful", 4.88180749652, true), ("diabetes", 18.4253069416, true)]
    {
        let found = region((&table(name)).into()).unwrap();
        close(found.log_volume(), log_volume, 1e-11);
        assert_eq!(found.rotation.is_some(), is_turned, "{name}");
    }
}

#[test]
fn the_chevron_is_found_as_mclust_finds_it() {
    // mclust 6.0.0: `Mclust(X, G=2, modelNames="VVV", initialization=list(noise=..), control=emControl(tol=1e-12))`, from
    // random rows of noise.
    let data = table("chevron");
    let options = FitOptions {
        reg_covar: 0.0,
        tol: 1e-12,
        max_iter: 5000,
        ..with(noise(NoiseStart::Cleaned), 2, CovarianceType::Full)
    };
    let found = fit(&CpuEngine::new(1).unwrap(), &data, &options).unwrap();
    close(found.summary.log_likelihood, -10525.2112939, 1e-10);
    close(found.summary.bic, 21141.5096257, 1e-10);
    let noise = found.noise.as_ref().unwrap();
    close(noise.weight, 0.753906378768, 1e-5);
    let left = usize::from(found.mixture.means()[[0, 0]] > found.mixture.means()[[1, 0]]);
    let m = found.mixture.permuted(&[left, 1 - left]).unwrap();
    for (c, weight, mean, covariance) in [
        (0, 0.128361104372, [40.1057873426, 32.2131042468], [185.547523461, 179.416725406, 213.856152497]),
        (1, 0.117732516859, [72.0658588642, 35.6534345779], [192.941593572, -174.666272924, 192.032240607]),
    ] {
        // mclust's weights include that of the noise.
        close((1.0 - noise.weight) * m.weights()[c], weight, 1e-4);
        close(m.means()[[c, 0]], mean[0], 1e-4);
        close(m.means()[[c, 1]], mean[1], 1e-4);
        let of = m.covariances().matrix(c, 2);
        [of[[0, 0]], of[[0, 1]], of[[1, 1]]].iter().zip(covariance).for_each(|(a, b)| close(*a, b, 1e-3));
    }
}

#[test]
fn bic_chooses_the_two_arms_of_the_chevron_as_in_mclust() {
    let options = FitOptions {
        reg_covar: 0.0,
        tol: 1e-9,
        max_iter: 2000,
        n_init: 3,
        ..with(noise(NoiseStart::Cleaned), 1, CovarianceType::Full)
    };
    let engine = CpuEngine::new(2).unwrap();
    let kinds = CovarianceType::ALL;
    let mut go_on = |_: &gmm_host::Iteration<'_>| std::ops::ControlFlow::Continue(());
    let mut each = |_: &gmm_host::Candidate| std::ops::ControlFlow::Continue(());
    let all =
        gmm_host::select(&engine, &table("chevron"), &options, &[1, 2, 3, 4], &kinds, &mut each, &mut go_on).unwrap();
    let best = &all[gmm_host::best(&all, gmm_model::Criterion::Bic).unwrap()];
    assert_eq!((best.k, best.kind), (2, CovarianceType::Full.into()));
    // mclust 6.0.0, as above.
    let one = all.iter().find(|c| c.k == 1 && c.kind == CovarianceType::Full.into()).unwrap();
    close(one.value(gmm_model::Criterion::Bic), 21226.7175724, 1e-10);
}
