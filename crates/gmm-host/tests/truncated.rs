//! Truncated EM: passes against those over all components, the bound, and the optima that fits reach.

use crate::common;
use gmm_host::{
    CpuEngine, Engine, Error, EvaluateOptions, Fit, FitOptions, FitRule, Init, Resident, Search, TruncatedOptions, fit,
    fit_resumed, shift,
};
use gmm_model::{CovarianceType, Covariances, Dataset, FactorLoadings, Mixture, Precision};
use ndarray::{Array1, Array2, Array3};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const KINDS: [CovarianceType; 3] = [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical];

/// All kinds, and numbers of factors of the full one.
const MODELS: [(CovarianceType, Option<usize>); 7] = [
    (CovarianceType::Full, None),
    (CovarianceType::Full, Some(1)),
    (CovarianceType::Full, Some(3)),
    (CovarianceType::Full, Some(5)),
    (CovarianceType::Full, Some(17)),
    (CovarianceType::Diag, None),
    (CovarianceType::Spherical, None),
];

/// Whether `d` columns can have that many factors.
fn can_have(d: usize, h: Option<usize>) -> bool {
    h.is_none_or(|h| h < d)
}

/// The mixture with factors, if there is a number of them.
fn of_factors(mixture: Mixture, h: Option<usize>) -> Mixture {
    match h {
        Some(h) => mixture.reduced_to_factors(h, Array1::zeros(mixture.n_features()).view()).unwrap(),
        None => mixture,
    }
}

fn load(threads: usize, data: &Dataset, precision: Precision) -> Box<dyn Resident> {
    CpuEngine::new(threads).unwrap().load(data, precision, &shift::of_data(data)).unwrap()
}

/// Rows of `k` clusters in the unit cube, and a start off the truth.
fn clusters(n: usize, d: usize, k: usize, kind: CovarianceType, seed: u64) -> (Dataset, Mixture) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let centres = Array2::from_shape_simple_fn((k, d), || common::uniform(rng));
    let sd = 0.15 * (k as f64).powf(-1.0 / d as f64);
    let rows = Array2::from_shape_fn((n, d), |(i, j)| centres[[i * 7 % k, j]] + sd * common::normal(rng));
    let means = centres.mapv(|c| c + 0.5 * sd * common::normal(rng));
    (
        Dataset::new(rows).unwrap(),
        Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, even(kind, k, d, 2.0 * sd * sd)).unwrap(),
    )
}

fn even(kind: CovarianceType, k: usize, d: usize, variance: f64) -> Covariances {
    match kind {
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { variance } else { 0.0 }))
        }
        CovarianceType::Diag => Covariances::Diag(Array2::from_elem((k, d), variance)),
        _ => Covariances::Spherical(Array1::from_elem(k, variance)),
    }
}

fn options(k: usize, g: usize, kind: CovarianceType, start: Mixture) -> FitOptions {
    let truncated = Some(TruncatedOptions { components: g });
    FitOptions {
        covariance_type: kind,
        init: Init::Given(Box::new(start)),
        tol: 0.0,
        max_iter: 30,
        rule: FitRule { truncated, ..FitRule::none() },
        ..FitOptions::new(k)
    }
}

#[test]
fn with_all_components_listed_a_pass_is_that_of_em() {
    for (kind, h) in MODELS {
        for (n, d, k) in [(1, 1, 1), (777, 3, 5), (5001, 17, 23), (300, 33, 2)] {
            if !can_have(d, h) {
                continue;
            }
            let start = of_factors(common::mixture(kind, k, d, 40.0, 1.0, 7), h);
            let weights: Vec<f64> = (0..n).map(|i| if i % 5 == 3 { 0.0 } else { 1.0 + (i % 3) as f64 }).collect();
            let plain = Dataset::new(common::rows(n, d, 40.0, 1.0, 3)).unwrap();
            let weighted = plain.clone().with_weights(weights).unwrap();
            for data in [plain, weighted] {
                for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 2e-6)] {
                    let mut rows = load(2, &data, precision);
                    let dense = load(2, &data, Precision::F64).pass(&start).unwrap();
                    for g in [k, k + 3] {
                        let first = rows.pass_truncated(&start, &Search::new(g, 0)).unwrap();
                        let found = rows.pass_truncated(&start, &first.search).unwrap();
                        common::check(
                            &found.statistics,
                            &dense,
                            tolerance,
                            &format!("{kind} {n}x{d} k={k} {precision}"),
                        );
                        let totals = rows.evaluate(&start, EvaluateOptions::default()).unwrap();
                        let error = (found.entropy - totals.entropy).abs();
                        assert!(error <= 10.0 * tolerance * n as f64, "{kind} {n}x{d}: entropy {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_bound_is_below_the_likelihood_and_never_falls() {
    for (kind, h) in MODELS {
        for (n, d, k, g) in [(4000, 5, 60, 3), (3000, 12, 200, 2), (2500, 2, 40, 1)] {
            if !can_have(d, h) {
                continue;
            }
            let (data, mixture) = clusters(n, d, k, kind, 11);
            let mixture = of_factors(mixture, h);
            let mut rows = load(2, &data, Precision::F64);
            let mut search = Search::new(g, 5);
            let mut last = f64::NEG_INFINITY;
            for pass in 0..6 {
                let found = rows.pass_truncated(&mixture, &search).unwrap();
                let bound = found.statistics.log_likelihood;
                let whole = rows.evaluate(&mixture, EvaluateOptions::default()).unwrap().log_likelihood;
                assert!(bound <= whole + 1e-12 * whole.abs(), "{kind} d={d}: {bound} over {whole}");
                assert!(bound >= last - 1e-12 * last.abs(), "{kind} d={d}: {bound} after {last}, pass {pass}");
                assert!(found.search.tried() < k as f64, "{} of {k} components tried", found.search.tried());
                (search, last) = (found.search, bound);
            }
            let mut options = options(k, g, kind, mixture);
            options.rule.factors = h;
            let trace = fit(&CpuEngine::new(2).unwrap(), &data, &options).unwrap().summary.trace;
            assert_eq!(trace.len(), 30);
            let falls = trace.windows(2).filter(|two| two[1] < two[0] - 1e-12 * two[0].abs()).count();
            assert_eq!(falls, 0, "{kind} d={d}: {trace:?}");
        }
    }
}

#[test]
fn fits_reach_the_optima_of_em() {
    for (kind, h) in MODELS {
        // Not so many parameters that an optimum is a matter of chance.
        let sizes: &[_] = match kind {
            CovarianceType::Full => &[(6000, 4, 50, 4), (4000, 8, 60, 3)],
            _ => &[(6000, 4, 50, 4), (9000, 16, 150, 3), (20_000, 24, 600, 3)],
        };
        for &(n, d, k, g) in sizes.iter().filter(|(_, d, ..)| can_have(*d, h)) {
            let (data, start) = clusters(n, d, k, kind, 3);
            let cpu = CpuEngine::new(2).unwrap();
            let mut given = options(k, g, kind, start);
            given.rule.factors = h;
            let whole = FitRule { truncated: None, ..given.rule.clone() };
            let whole = fit(&cpu, &data, &FitOptions { rule: whole, ..given.clone() }).unwrap();
            let found = fit(&cpu, &data, &given).unwrap();
            let under = |fit: &Fit| {
                let mut rows = load(2, &data, Precision::F64);
                rows.evaluate(&fit.mixture, EvaluateOptions::default()).unwrap().log_likelihood
            };
            // In natural units per row: a difference of 1 % of the likelihood means nothing where that is near 0.
            let gap = (under(&whole) - under(&found)) / n as f64;
            let bound = (under(&found) - found.summary.log_likelihood) / n as f64;
            println!("{kind} {h:?} {n}x{d} k={k}: {gap:.4} below EM, bound {bound:.4} below the likelihood");
            assert!(gap < 0.01, "{kind} d={d}: {gap} per row below EM");
            let rounding = 1e-12 * (under(&found) / n as f64).abs();
            assert!((-rounding..0.01).contains(&bound), "{kind} d={d}: {bound}");
            assert!(found.summary.rules.iter().any(|line| line.contains("lower bound")), "{:?}", found.summary.rules);
        }
    }
}

#[test]
fn bits_depend_on_no_threads_and_survive_a_pause() {
    for (kind, h) in [(CovarianceType::Diag, None), (CovarianceType::Full, Some(2))] {
        let (data, start) = clusters(9000, 6, 80, kind, 2);
        let mut given = options(80, 3, kind, start);
        given.rule.factors = h;
        same_bits(&data, &given);
    }
}

fn same_bits(data: &Dataset, given: &FitOptions) {
    let fits: Vec<Fit> = [1, 2, 5].map(|threads| fit(&CpuEngine::new(threads).unwrap(), data, given).unwrap()).into();
    for other in &fits[1..] {
        assert_eq!(other.mixture, fits[0].mixture);
        assert_eq!(other.summary.trace, fits[0].summary.trace);
        assert_eq!(other.summary.log_likelihood, fits[0].summary.log_likelihood);
    }
    let cpu = CpuEngine::new(2).unwrap();
    // Read from several files.
    let divided = fit(&cpu, &data.clone().with_parts(vec![100, 5000]), given).unwrap();
    assert_eq!(divided.mixture, fits[0].mixture);
    let paused = fit(&cpu, data, &FitOptions { max_iter: 11, ..given.clone() }).unwrap();
    let go_on = &mut |_: &gmm_host::Iteration<'_>| std::ops::ControlFlow::Continue(());
    let resumed = fit_resumed(&cpu, data, given, paused.state, go_on).unwrap();
    assert_eq!(resumed.mixture, fits[0].mixture);
}

#[test]
fn equal_rows_far_rows_and_empty_components_are_no_trouble() {
    KINDS.into_iter().for_each(|kind| troubles(kind, None));
    troubles(CovarianceType::Full, Some(1));
}

fn troubles(kind: CovarianceType, h: Option<usize>) {
    let k = 30;
    let start = |d: usize| {
        let means = Array2::from_shape_fn((k, d), |(c, j)| c as f64 + 0.1 * j as f64);
        of_factors(Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, even(kind, k, d, 1.0)).unwrap(), h)
    };
    let equal = Array2::from_elem((200, 3), 4.25);
    let mut far = common::rows(500, 3, 0.0, 1.0, 5);
    far[[17, 1]] = 1e160;
    far[[18, 2]] = -1e8;
    for rows in [equal, far] {
        let data = Dataset::new(rows).unwrap();
        let mut resident = load(2, &data, Precision::F64);
        let whole = resident.evaluate(&start(3), EvaluateOptions::default()).unwrap().log_likelihood;
        let found = resident.pass_truncated(&start(3), &Search::new(k, 1)).unwrap().statistics;
        assert!(found.log_likelihood == whole || (found.log_likelihood / whole - 1.0).abs() < 1e-12, "{whole}");
        let weight: f64 = found.weight.iter().sum();
        assert!((weight - data.n_rows() as f64).abs() < 1e-9, "{weight}");
        let few = resident.pass_truncated(&start(3), &Search::new(2, 1)).unwrap().statistics;
        assert!(few.log_likelihood <= whole || whole == f64::NEG_INFINITY);
        assert!((few.weight.iter().sum::<f64>() - weight).abs() < 1e-9);
    }
    // Components far from all rows, of weight 0.
    let mut weights = Array1::from_elem(k, 1.0 / 10.0);
    weights.iter_mut().skip(10).for_each(|w| *w = 0.0);
    let empty = Mixture::new(weights, start(2).means().to_owned(), even(kind, k, 2, 1.0)).unwrap();
    let data = Dataset::new(common::rows(400, 2, 3.0, 1.0, 9)).unwrap();
    let found = load(2, &data, Precision::F64).pass_truncated(&empty, &Search::new(3, 1)).unwrap();
    assert_eq!(found.statistics.weight[10..].iter().sum::<f64>(), 0.0);
}

/// In single precision the variances of such rows are 0, and their reciprocals infinite.
#[test]
fn rows_in_a_small_unit_fit_as_in_any_other() {
    for (kind, h) in MODELS.into_iter().filter(|(_, h)| can_have(5, *h)) {
        let (data, start) = clusters(3000, 5, 10, kind, 4);
        let unit = 2f64.powi(-70);
        let cells = data.rows().to_f64().into_owned();
        let fit_of = |unit: f64, g| {
            let scaled = Dataset::new(cells.mapv(|v| (v * unit) as f32)).unwrap();
            let covariances = even(kind, 10, 5, start.covariances().matrix(0, 5)[[0, 0]] * unit * unit);
            let start = Mixture::new(start.weights().to_owned(), &start.means() * unit, covariances).unwrap();
            let mut options = FitOptions { reg_covar: 0.0, ..options(10, g, kind, start) };
            options.rule.factors = h;
            fit(&CpuEngine::new(2).unwrap(), &scaled, &options).unwrap().summary.mean_log_likelihood
        };
        for g in [2, 10] {
            let (plain, scaled) = (fit_of(1.0, g), fit_of(unit, g) + 5.0 * unit.ln());
            assert!((plain - scaled).abs() < 1e-3, "{kind} {h:?} G = {g}: {plain} and {scaled}");
        }
    }
}

/// Loadings of a model file may have any angle; of these, `I + Λᵀ Ψ⁻¹ Λ` is singular to rounding.
#[test]
fn loadings_along_each_other_have_the_density_of_their_covariance() {
    for (psi, slant) in [(1e-17, 0.0), (1e-12, 1e-9), (0.5, 0.3)] {
        let loadings = Array3::from_shape_fn((2, 3, 2), |(c, i, e)| 1.0 + c as f64 + slant * (i * e) as f64);
        let uniquenesses = Array2::from_shape_fn((2, 3), |(_, i)| if i == 0 { psi } else { 1.0 });
        let means = Array2::from_shape_fn((2, 3), |(c, j)| c as f64 - j as f64);
        let loadings = FactorLoadings { loadings, uniquenesses };
        let mixture = Mixture::of_loadings(Array1::from_elem(2, 0.5), means, loadings).unwrap();
        let data = Dataset::new(common::rows(50, 3, 0.0, 1.0, 3)).unwrap();
        let mut rows = load(1, &data, Precision::F64);
        let want = rows.evaluate(&mixture, EvaluateOptions::default()).unwrap().log_likelihood;
        let found = rows.pass_truncated(&mixture, &Search::new(2, 0)).unwrap().statistics.log_likelihood;
        assert!((found - want).abs() < 1e-5 * want.abs(), "ψ = {psi}: {found}, want {want}");
    }
}

#[test]
fn what_cannot_be_truncated_is_refused() {
    let cpu = CpuEngine::new(1).unwrap();
    let (data, start) = clusters(100, 2, 4, CovarianceType::Diag, 1);
    let refused = |data: &Dataset, options: &FitOptions, what: &str| match fit(&cpu, data, options) {
        Err(Error::Option { option, value, .. }) => {
            assert!(option.contains(what) || value.contains(what), "{option} {value}")
        }
        other => panic!("{what}: {other:?}"),
    };
    let given = options(4, 2, CovarianceType::Diag, start);
    let zero = FitRule { truncated: Some(TruncatedOptions { components: 0 }), ..FitRule::none() };
    refused(&data, &FitOptions { rule: zero, ..given.clone() }, "truncated");
    let tied = FitOptions { covariance_type: CovarianceType::Tied, init: Init::KMeans, ..given.clone() };
    refused(&data, &tied, "covariance_type");
    let starved = FitRule { starved: Some(Default::default()), ..given.rule.clone() };
    refused(&data, &FitOptions { rule: starved, ..given.clone() }, "starved");
    let mut holes = data.rows().to_f64().into_owned();
    holes[[3, 1]] = f64::NAN;
    refused(&Dataset::with_holes(holes).unwrap(), &given, "missing");
}
