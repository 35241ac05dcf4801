//! Covariances of a few factors: published factor analyses, and the properties of their M-step.

use gmm_model::{
    Cholesky, CovarianceModel, CovarianceType, Covariances, Draws, FactorLoadings, FixedParts, MStepRule, Mixture,
    ModelError, Statistics, m_step_with, packed_index, reference,
};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array};

use crate::{all_close, close, mixture, rows};

/// The statistics of `n` rows of mean 0 and covariance `s`, `(d, d)`, in one component.
fn of_covariance(s: &Array2<f64>, n: f64) -> Statistics {
    let d = s.nrows();
    let mut all = Statistics::zero(CovarianceType::Full, Array2::zeros((1, d)));
    all.weight = vec![n];
    all.total_weight = n;
    all.n_rows = n as u64;
    for i in 0..d {
        (0..=i).for_each(|j| all.second[packed_index(i, j)] = n * s[[i, j]]);
    }
    all
}

fn rule(h: usize) -> MStepRule {
    MStepRule { factors: Some(h), ..MStepRule::default() }
}

/// `−ln det Σ − tr(Σ⁻¹ S)`, from a factorisation of `Σ`.
fn fitness(sigma: ArrayView2<'_, f64>, s: ArrayView2<'_, f64>) -> f64 {
    let factor = Cholesky::new(sigma).expect("positive definite");
    let trace: f64 = (0..s.nrows())
        .map(|j| {
            let mut column = s.column(j).to_vec();
            factor.solve_lower(&mut column);
            factor.solve_lower_transposed(&mut column);
            column[j]
        })
        .sum();
    -factor.ln_det() - trace
}

/// M-steps from the same statistics until nothing changes: the fit of the factors to `s`.
fn fitted(s: &Array2<f64>, h: usize) -> Mixture {
    let statistics = of_covariance(s, 1000.0);
    let mut found = m_step_with(&rule(h), &statistics, 0.0, None).expect("valid").mixture;
    for _ in 0..2000 {
        let next = m_step_with(&rule(h), &statistics, 0.0, Some(&found)).expect("valid").mixture;
        if next == found {
            break;
        }
        found = next;
    }
    found
}

fn matrix(m: &Mixture, c: usize) -> Array2<f64> {
    m.covariances().matrix(c, m.n_features())
}

/// The covariances of six tests of ability of 112 persons: `ability.cov` of R's package datasets.
fn ability() -> Array2<f64> {
    array![
        [24.641, 5.991, 33.520, 6.023, 20.755, 29.701],
        [5.991, 6.700, 18.137, 1.782, 4.936, 7.204],
        [33.520, 18.137, 149.831, 19.424, 31.430, 50.753],
        [6.023, 1.782, 19.424, 12.711, 4.757, 9.075],
        [20.755, 4.936, 31.430, 4.757, 52.604, 66.762],
        [29.701, 7.204, 50.753, 9.075, 66.762, 135.292],
    ]
}

/// Source: the output of R's `factanal(factors = 1 or 2, covmat = ability.cov)`, the example of its documentation, with
/// three digits. The uniquenesses there are shares of the variances. The statistic is Bartlett's.
#[test]
fn ability_tests_have_the_published_uniquenesses() {
    let s = ability();
    let published =
        [(1, [0.535, 0.853, 0.748, 0.910, 0.232, 0.280], 75.18), (2, [0.455, 0.589, 0.218, 0.769, 0.052, 0.334], 6.11)];
    for (h, uniquenesses, statistic) in published {
        let m = fitted(&s, h);
        let found = &m.loadings().expect("factors").uniquenesses;
        for j in 0..6 {
            let share = found[[0, j]] / s[[j, j]];
            assert!((share - uniquenesses[j]).abs() < 6e-4, "{h} factors, column {j}: {share}");
        }
        let (n, p, q) = (112.0, 6.0, h as f64);
        let lack = fitness(s.view(), s.view()) - fitness(matrix(&m, 0).view(), s.view());
        let bartlett = (n - 1.0 - (2.0 * p + 5.0) / 6.0 - 2.0 * q / 3.0) * lack;
        assert!((bartlett - statistic).abs() < 6e-3, "{h} factors: {bartlett}");
    }
}

/// A covariance of `h` factors, and its loadings.
fn of_factors(d: usize, h: usize, seed: u64) -> (Array2<f64>, FactorLoadings) {
    let mut draws = Draws::for_purpose("test", seed, 0);
    let loadings = Array3::from_shape_fn((1, d, h), |_| draws.normal());
    let uniquenesses = Array2::from_shape_fn((1, d), |_| 0.2 + draws.uniform());
    let factors = FactorLoadings { loadings, uniquenesses };
    (factors.covariances().index_axis(Axis(0), 0).to_owned(), factors)
}

#[test]
fn a_covariance_of_factors_is_found_again() {
    for (d, h, seed) in [(4, 1, 1), (6, 2, 2), (9, 3, 3), (20, 5, 4)] {
        let (s, wanted) = of_factors(d, h, seed);
        let m = fitted(&s, h);
        all_close(&matrix(&m, 0), &s, 1e-5);
        all_close(&m.loadings().expect("factors").uniquenesses, &wanted.uniquenesses, 1e-3);
    }
}

/// The correlations of the iris flowers' four columns. With two factors two uniquenesses go to their bound; on the way one
/// is there while a round gains no more than 1e-5.
#[test]
fn slow_rounds_beside_a_uniqueness_at_its_bound_are_not_the_end() {
    let (a, b, c, d, e, f) = (-0.11756978, 0.87175378, 0.81794113, -0.4284401, -0.36612593, 0.96286543);
    let iris = array![[1.0, a, b, c], [a, 1.0, d, e], [b, d, 1.0, f], [c, e, f, 1.0]];
    let mut draws = Draws::for_purpose("test", 1, 0);
    for _ in 0..100 {
        // Other roundings: the same rows about another origin have such differences.
        let mut s = iris.clone();
        (0..4).for_each(|i| (0..=i).for_each(|j| s[[i, j]] *= 1.0 + 1e-15 * draws.normal()));
        (0..4).for_each(|i| (0..i).for_each(|j| s[[j, i]] = s[[i, j]]));
        let m = fitted(&s, 2);
        let uniquenesses = m.loadings().expect("factors").uniquenesses.row(0);
        for (found, expected) in uniquenesses.iter().zip([0.1598, 0.0, 0.0, 0.07025]) {
            assert!((found - expected).abs() < 1e-4, "{uniquenesses}");
        }
    }
}

#[test]
fn loadings_are_canonical() {
    let (s, _) = of_factors(7, 3, 5);
    let m = fitted(&s, 3);
    let FactorLoadings { loadings, uniquenesses } = m.loadings().expect("factors");
    let (l, psi) = (loadings.index_axis(Axis(0), 0), uniquenesses.row(0));
    let scaled = Array2::from_shape_fn(l.dim(), |(i, e)| l[[i, e]] / psi[i]);
    let product = l.t().dot(&scaled);
    for a in 0..3 {
        assert!(l.column(a).sum() >= 0.0);
        for b in 0..a {
            assert!(product[[a, b]].abs() < 1e-9 * product[[b, b]], "{product}");
            assert!(product[[a, a]] <= product[[b, b]], "{product}");
        }
    }
}

#[test]
fn the_m_step_never_lowers_its_objective_and_ends_at_a_maximum() {
    for (seed, h) in [(1, 1), (2, 2), (3, 3), (4, 1), (5, 2)] {
        let m = mixture(1, 5, CovarianceType::Full, seed);
        // Few rows, so that bounds of uniquenesses are reached too.
        let x = rows(&m, if seed == 3 { 5 } else { 40 }, seed + 10);
        let statistics = reference::statistics(&m, x.view(), None);
        let bounds = MStepRule { floor: Some(Array1::from_elem(5, 1e-3)), ..rule(h) };
        let step = |before: Option<&Mixture>| m_step_with(&bounds, &statistics, 1e-4, before).expect("valid").mixture;
        let centred = &x - &x.mean_axis(Axis(0)).expect("rows");
        let s = centred.t().dot(&centred) / x.nrows() as f64;
        let mut found = step(None);
        let mut last = fitness(matrix(&found, 0).view(), s.view());
        for _ in 0..500 {
            found = step(Some(&found));
            let now = fitness(matrix(&found, 0).view(), s.view());
            assert!(now >= last - 1e-11 * last.abs(), "{now} after {last}");
            last = now;
        }
        let mut draws = Draws::for_purpose("test", seed, 1);
        let best = found.loadings().expect("factors");
        for i in 0..300 {
            let size = [0.1, 0.01, 1e-3][i % 3];
            let mut near = best.clone();
            near.loadings.mapv_inplace(|v| v + size * draws.normal());
            near.uniquenesses.mapv_inplace(|v| (v + size * draws.normal()).max(1e-3));
            let other = fitness(near.covariances().index_axis(Axis(0), 0), s.view());
            assert!(other <= last + 1e-6 * last.abs(), "seed {seed}: {other} above {last}");
        }
        assert!(best.uniquenesses.iter().all(|v| *v >= 1e-3), "{:?}", best.uniquenesses);
    }
}

#[test]
fn scaled_columns_give_scaled_factors() {
    let s = ability();
    let scale = array![1.0, 1024.0, 2f64.powi(-300), 2f64.powi(200), 4.0, 0.25];
    let scaled = Array2::from_shape_fn((6, 6), |(i, j)| s[[i, j]] * scale[i] * scale[j]);
    let step = |s| m_step_with(&rule(2), &of_covariance(s, 100.0), 0.0, None).expect("valid").mixture;
    let (plain, other) = (step(&s), step(&scaled));
    let (plain, other) = (plain.loadings().expect("factors"), other.loadings().expect("factors"));
    // The signs of loadings are those of their sum, which another column decides.
    let expected = Array2::from_shape_fn((6, 2), |(i, e)| (plain.loadings[[0, i, e]] * scale[i]).abs());
    all_close(&other.loadings.index_axis(Axis(0), 0).mapv(f64::abs), &expected, 1e-12);
    for j in 0..6 {
        close(other.uniquenesses[[0, j]] / scale[j] / scale[j], plain.uniquenesses[[0, j]], 1e-12);
    }
}

#[test]
fn groups_share_their_factors_and_empty_components_keep_theirs() {
    let m = mixture(3, 4, CovarianceType::Full, 6);
    let x = rows(&m, 90, 7);
    let statistics = reference::statistics(&m, x.view(), None);
    let shared = MStepRule { shared: vec![vec![0, 2]], ..rule(1) };
    let found = m_step_with(&shared, &statistics, 1e-6, Some(&m)).expect("valid").mixture;
    assert_eq!(matrix(&found, 0), matrix(&found, 2));
    assert_ne!(matrix(&found, 0), matrix(&found, 1));
    // 1 factor of 4 columns has 4 loadings and 4 uniquenesses.
    assert_eq!(shared.n_parameters(&found), 2 * 8 + 3 * 4 + 2);
    assert_eq!(found.n_parameters(), 3 * 8 + 3 * 4 + 2);

    let mut without = statistics.clone();
    without.weight[1] = 0.0;
    without.first.row_mut(1).fill(0.0);
    without.second[10..20].fill(0.0);
    let next = m_step_with(&rule(1), &without, 1e-6, Some(&found)).expect("valid");
    assert_eq!(next.empty, [1]);
    assert_eq!(matrix(&next.mixture, 1), matrix(&found, 1));
    let alone = m_step_with(&rule(1), &without, 1e-6, None).expect("valid").mixture;
    assert_eq!(alone.loadings().expect("factors").n_factors(), 1);
}

#[test]
fn more_factors_than_a_covariance_has_parameters_count_no_more_than_it() {
    for (h, d, expected) in [(2, 6, 6 + 12 - 1), (5, 6, 21), (1, 2, 3)] {
        let model: CovarianceModel = format!("factors:{h}").parse().expect("a kind");
        assert_eq!((model.factors, model.free_parameters(1, d)), (Some(h), expected));
        assert_eq!(model.to_string(), format!("factors:{h}"));
    }
    for bad in ["factors", "factors:", "factors:0", "factors:-1", "factors:two", "fuller"] {
        assert!(bad.parse::<CovarianceModel>().unwrap_err().to_string().contains("factors:H"), "{bad}");
    }
    assert_eq!("tied".parse::<CovarianceModel>().expect("a kind"), CovarianceType::Tied.into());
}

#[test]
fn what_cannot_have_factors_is_refused() {
    let m = mixture(2, 4, CovarianceType::Full, 6);
    let statistics = reference::statistics(&m, rows(&m, 50, 1).view(), None);
    let refused = |rule: &MStepRule, statistics: &Statistics| m_step_with(rule, statistics, 1e-6, None).unwrap_err();
    for h in [0, 4, 9] {
        let text = refused(&rule(h), &statistics).to_string();
        assert!(text.contains("number of factors") && text.contains(&h.to_string()), "{text}");
    }
    for kind in [CovarianceType::Tied, CovarianceType::Diag, CovarianceType::Spherical] {
        let m = mixture(2, 4, kind, 6);
        let text = refused(&rule(1), &reference::statistics(&m, rows(&m, 50, 1).view(), None)).to_string();
        assert!(text.contains("full"), "{text}");
    }
    let fixed = FixedParts { covariances: vec![0], ..FixedParts::default() };
    assert!(refused(&MStepRule { fixed, ..rule(1) }, &statistics).to_string().contains("fixed covariances"));

    let reduced = m.reduced_to_factors(2, Array1::zeros(4).view()).expect("valid");
    let factors = reduced.loadings().expect("factors").clone();
    assert!(m.clone().with_loadings(factors.clone()).unwrap_err().to_string().contains("factors of the covariances"));
    let with = |change: fn(&mut FactorLoadings)| {
        let mut other = factors.clone();
        change(&mut other);
        reduced.clone().with_loadings(other).unwrap_err()
    };
    assert!(matches!(with(|f| f.uniquenesses[[1, 2]] = 0.0), ModelError::Range { .. }));
    assert!(matches!(with(|f| f.uniquenesses = Array2::zeros((2, 3))), ModelError::Shape { .. }));
    assert!(matches!(with(|f| f.loadings[[1, 0, 0]] = f64::NAN), ModelError::NotFinite { .. }));
    assert!(mixture(2, 4, CovarianceType::Diag, 1).reduced_to_factors(1, Array1::zeros(4).view()).is_err());
    // Selecting components selects their factors; other covariances have none.
    let second = reduced.component(1).expect("a component");
    assert_eq!(second.loadings().expect("factors").uniquenesses.row(0), factors.uniquenesses.row(1));
    let Covariances::Full(all) = reduced.covariances() else { panic!("full") };
    let plain = Mixture::new(reduced.weights().to_owned(), reduced.means().to_owned(), Covariances::Full(all.clone()));
    assert!(plain.expect("valid").loadings().is_none());
}
