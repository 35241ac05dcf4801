//! Truncated EM: passes against those of the CPU engine.

use gmm_model::Statistics;

use super::*;
use crate::{CpuEngine, Engine, Resident, Search, TruncatedPass, shift};

/// Clusters in the unit cube, and a mixture close to them, with that many factors if there are some.
fn problem(kind: CovarianceType, factors: Option<usize>, (n, d, k): (usize, usize, usize)) -> (Array2<f64>, Mixture) {
    let centre = |c: usize, j: usize| 20.0 + noise(c * d + j);
    let sd = 0.2 * (k as f64).powf(-1.0 / d as f64);
    let rows = Array2::from_shape_fn((n, d), |(i, j)| centre(i * 7 % k, j) + 2.0 * sd * noise(90_000 + i * d + j));
    let means = Array2::from_shape_fn((k, d), |(c, j)| centre(c, j) + 0.5 * sd * noise(40_000 + c * d + j));
    let variance = |c: usize, j: usize| sd * sd * (1.5 + 0.5 * noise(70_000 + c * d + j));
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| {
            let common = 0.3 * sd * sd;
            if i == j { variance(c, i) + common } else { common * if (i + j) % 2 == 0 { 1.0 } else { -1.0 } }
        })),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| variance(c, j))),
        _ => Covariances::Spherical((0..k).map(|c| variance(c, 0)).collect()),
    };
    let weights: Array1<f64> = (0..k).map(|c| 1.0 + (c % 4) as f64).collect();
    let mixture = Mixture::new(&weights / weights.sum(), means, covariances).unwrap();
    let mixture = match factors {
        Some(h) => mixture.reduced_to_factors(h, Array1::zeros(d).view()).unwrap(),
        None => mixture,
    };
    (rows, mixture)
}

fn sums_agree(got: &Statistics, want: &Statistics, tolerance: f64, what: &str) {
    close(&got.weight.to_vec(), &want.weight.to_vec(), tolerance, &format!("{what}: Σ r"));
    let first = |s: &Statistics| s.first.iter().copied().collect::<Vec<_>>();
    close(&first(got), &first(want), tolerance, &format!("{what}: first sums"));
    close(&got.second.to_vec(), &want.second.to_vec(), tolerance, &format!("{what}: second sums"));
    let totals = |s: &Statistics| [s.log_likelihood, s.total_weight];
    close(&totals(got), &totals(want), tolerance, &format!("{what}: totals"));
}

fn resident(data: &Dataset, precision: Precision) -> (Box<dyn Resident>, Box<dyn Resident>) {
    let at = shift::of_data(data);
    let device = CudaEngine::new(0).unwrap().load(data, precision, &at).unwrap();
    (device, CpuEngine::new(1).unwrap().load(data, Precision::F64, &at).unwrap())
}

const CASES: [(CovarianceType, Option<usize>, usize); 7] = [
    (CovarianceType::Diag, None, 3),
    (CovarianceType::Spherical, None, 5),
    (CovarianceType::Full, None, 4),
    (CovarianceType::Full, Some(2), 6),
    (CovarianceType::Diag, None, 37),
    (CovarianceType::Full, Some(5), 33),
    (CovarianceType::Full, None, 65),
];

fn weighted(data: Dataset) -> Dataset {
    let n = data.n_rows();
    data.with_weights((0..n).map(|i| if i % 5 == 3 { 0.0 } else { 1.0 + (i % 3) as f64 }).collect()).unwrap()
}

#[test]
fn with_all_components_listed_the_sums_are_those_of_em() {
    for (i, (kind, factors, d)) in CASES.into_iter().enumerate() {
        let precision = if i % 2 == 0 { Precision::F64 } else { Precision::F32 };
        let (n, k) = (150 + 13 * i, 5);
        let what = format!("{kind} {factors:?} {n}x{d} {precision}");
        let (rows, mixture) = problem(kind, factors, (n, d, k));
        let data = Dataset::new(rows).unwrap();
        let data = if i % 3 == 0 { weighted(data) } else { data };
        let fake = Fake::install(Machine::default());
        let (mut device, mut host) = resident(&data, precision);
        let tolerance = if precision == Precision::F32 { 4e-6 } else { 1e-11 };
        let want = host.pass(&mixture).unwrap();
        let TruncatedPass { statistics, search, .. } = device.pass_truncated(&mixture, &Search::new(k, 0)).unwrap();
        sums_agree(&statistics, &want, tolerance, &what);
        // Rows in the order of their best components.
        let next = device.pass_truncated(&mixture, &search).unwrap().statistics;
        sums_agree(&next, &want, tolerance, &what);
        let again = device.pass_truncated(&mixture, &Search::new(k, 0)).unwrap();
        assert_eq!(again.statistics, statistics, "{what}: the same bits");
        drop((device, host));
        fake.0.assert_clean(&what);
    }
}

/// Components have fewer rows than those from which a device finds their neighbours: all that follows is the same.
#[test]
fn lists_and_sums_are_those_of_the_cpu() {
    for (i, (kind, factors, d)) in CASES.into_iter().enumerate() {
        let (n, k, g) = (257 + 31 * i, 40, 3);
        let what = format!("{kind} {factors:?} {n}x{d}");
        let (rows, mixture) = problem(kind, factors, (n, d, k));
        let data = Dataset::new(rows).unwrap();
        let data = if i % 2 == 0 { weighted(data) } else { data };
        let fake = Fake::install(Machine::default());
        let (mut device, mut host) = resident(&data, Precision::F64);
        let (mut got, mut want) = (Search::new(g, 5), Search::new(g, 5));
        let mut last = f64::NEG_INFINITY;
        for turn in 0..3 {
            let of_device = device.pass_truncated(&mixture, &got).unwrap();
            let of_host = host.pass_truncated(&mixture, &want).unwrap();
            sums_agree(&of_device.statistics, &of_host.statistics, 1e-11, &format!("{what} turn {turn}"));
            assert!((of_device.entropy - of_host.entropy).abs() <= 1e-10 * n as f64, "{what}: entropy");
            assert!(of_device.statistics.log_likelihood >= last, "{what}: the bound fell");
            last = of_device.statistics.log_likelihood;
            (got, want) = (of_device.search, of_host.search);
            assert_eq!(got.tried(), want.tried(), "{what}: components tried");
        }
        assert_eq!(got, want, "{what}: lists");
        drop((device, host));
        fake.0.assert_clean(&what);
    }
}

/// More rows of a component than those from which its neighbours follow, in several warps; and more than 256 components.
#[test]
fn the_bound_does_not_fall_and_is_near_that_of_the_cpu() {
    for (n, d, k, g) in [(1500, 2, 12, 2), (1200, 5, 300, 4)] {
        let (rows, mixture) = problem(CovarianceType::Diag, None, (n, d, k));
        let data = Dataset::new(rows).unwrap();
        let _fake = Fake::install(Machine::default());
        let (mut device, mut host) = resident(&data, Precision::F64);
        let (mut search, mut bounds) = (Search::new(g, 1), Vec::new());
        for _ in 0..3 {
            let pass = device.pass_truncated(&mixture, &search).unwrap();
            bounds.push(pass.statistics.log_likelihood);
            search = pass.search;
        }
        assert!(bounds.windows(2).all(|two| two[1] >= two[0] - 1e-9 * two[0].abs()), "{bounds:?}");
        let all = host.pass(&mixture).unwrap().log_likelihood;
        let of_host = host.pass_truncated(&mixture, &Search::new(g, 1)).unwrap().statistics.log_likelihood;
        assert!(bounds[2] <= all + 1e-9 * all.abs(), "{} above {all}", bounds[2]);
        assert!(bounds[2] >= of_host - 0.02 * n as f64, "{} far below {of_host}", bounds[2]);
    }
}

#[test]
fn what_has_no_kernels_says_so() {
    let (rows, mixture) = problem(CovarianceType::Diag, None, (60, 2, 40));
    let data = Dataset::new(rows).unwrap();
    let _fake = Fake::install(Machine::default());
    let (mut device, _) = resident(&data, Precision::F64);
    let long = text(device.pass_truncated(&mixture, &Search::new(14, 0)));
    assert!(long.contains("at most 13 components") && long.contains("--device cpu"), "{long}");
    let tied = Covariances::Tied(Array2::eye(2));
    let tied = Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), tied).unwrap();
    assert!(text(device.pass_truncated(&tied, &Search::new(3, 0))).contains("tied"));
}

/// Lists of components that this mixture does not have would be read past the end of its parameters.
#[test]
fn a_search_of_another_mixture_begins_anew() {
    let (rows, many) = problem(CovarianceType::Diag, None, (200, 2, 40));
    let few = problem(CovarianceType::Diag, None, (200, 2, 20)).1;
    let data = Dataset::new(rows).unwrap();
    let _fake = Fake::install(Machine::default());
    let (device, host) = resident(&data, Precision::F64);
    for mut engine in [device, host] {
        for (first, second) in [(&many, &few), (&few, &many)] {
            let search = engine.pass_truncated(first, &Search::new(3, 2)).unwrap().search;
            let found = engine.pass_truncated(second, &search).unwrap().statistics;
            assert!(found.log_likelihood.is_finite() && found.weight.len() == second.n_components());
        }
    }
}

#[test]
fn every_fault_is_an_error_and_leaks_nothing() {
    let (rows, mixture) = problem(CovarianceType::Full, None, (90, 2, 20));
    let data = Dataset::new(rows).unwrap();
    let run = || -> Result<Statistics, Error> {
        let mut rows = CudaEngine::new(0)?.load(&data, Precision::F64, &shift::of_data(&data))?;
        Ok(rows.pass_truncated(&mixture, &Search::new(2, 0))?.statistics)
    };
    let whole = {
        let _fake = Fake::install(Machine::default());
        run().unwrap()
    };
    for (class, code) in [(Class::Any, code::UNKNOWN), (Class::Allocation, code::OUT_OF_MEMORY)] {
        for at in (1..).step_by(3) {
            let fake = Fake::with(Machine::default(), Some(Fault::once(class, at, code)));
            let (end, failed) = (run(), fake.0.failed());
            let what = format!("{class:?} {at}, code {code}");
            match end {
                Err(error) => assert!(matches!(error, Error::Device(_) | Error::Memory { .. }), "{what}: {error}"),
                Ok(found) => assert!(found == whole, "{what}: after {failed:?}"),
            }
            fake.0.assert_clean(&what);
            if failed.is_none() {
                break;
            }
        }
    }
}
