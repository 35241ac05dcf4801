//! The M-step under a rule, against formulas over single rows, and against other parameters: none gives a larger
//! objective.

use gmm_model::{
    ConjugatePrior, CovarianceType, Covariances, Draws, FixedParts, MStep, MStepRule, Mixture, PriorScale, Starved,
    Statistics, m_step, m_step_with, reference,
};
use ndarray::{Array1, Array2, Array3, Axis, array};

use crate::{flat, mixture, mixtures_close, rows, unit};

const K: usize = 3;
const D: usize = 3;

/// A prior of the kind that differs in every number from the default.
fn prior(kind: CovarianceType) -> ConjugatePrior {
    let scale = match kind {
        CovarianceType::Full | CovarianceType::Tied => {
            PriorScale::Matrix(array![[2.0, 0.3, -0.1], [0.3, 1.5, 0.2], [-0.1, 0.2, 0.7]])
        }
        CovarianceType::Diag => PriorScale::Variances(array![2.0, 1.5, 0.7]),
        CovarianceType::Spherical => PriorScale::Variance(1.3),
    };
    ConjugatePrior { mean: array![0.5, -1.0, 2.0], shrinkage: 1.7, degrees_of_freedom: 6.5, scale, concentration: 1.4 }
}

fn step(rule: &MStepRule, m: &Mixture, x: &Array2<f64>) -> MStep {
    m_step_with(rule, &reference::statistics(m, x.view(), None), 0.0, Some(m)).expect("valid")
}

/// `(n_c, x̄_c, W_c)` from responsibilities, `(n, k)`.
fn moments(x: &Array2<f64>, r: &Array2<f64>, c: usize) -> (f64, Array1<f64>, Array2<f64>) {
    let n = r.column(c).sum();
    let mean = x.t().dot(&r.column(c)) / n;
    let mut scatter = Array2::zeros((D, D));
    for (x, r) in x.outer_iter().zip(r.column(c)) {
        let z = (&x - &mean).insert_axis(Axis(1));
        scatter = scatter + z.dot(&z.t()) * *r;
    }
    (n, mean, scatter)
}

/// The table of Fraley and Raftery (2007), over single rows.
fn table_2(p: &ConjugatePrior, m: &Mixture, x: &Array2<f64>) -> (Array2<f64>, Covariances) {
    let r = reference::responsibilities(m, x.view());
    let (n, d, k, nu, kappa) = (x.nrows() as f64, D as f64, K as f64, p.degrees_of_freedom, p.shrinkage);
    let mut means = Array2::zeros((K, D));
    let v: Vec<(f64, Array2<f64>)> = (0..K)
        .map(|c| {
            let (n, mean, scatter) = moments(x, &r, c);
            means.row_mut(c).assign(&((&mean * n + &p.mean * kappa) / (n + kappa)));
            let away = (&mean - &p.mean).insert_axis(Axis(1));
            (n, scatter + away.dot(&away.t()) * (kappa * n / (kappa + n)))
        })
        .collect();
    let covariances = match &p.scale {
        PriorScale::Matrix(scale) if m.covariance_type() == CovarianceType::Tied => {
            let sum = v.iter().fold(scale.clone(), |sum, (_, v)| sum + v);
            Covariances::Tied(sum / (nu + n + k + d + 1.0))
        }
        PriorScale::Matrix(scale) => {
            let mut all = Array3::zeros((K, D, D));
            for (mut slot, (n, v)) in all.outer_iter_mut().zip(&v) {
                slot.assign(&((scale + v) / (nu + n + d + 2.0)));
            }
            Covariances::Full(all)
        }
        PriorScale::Variances(scale) => {
            let mut all = Array2::zeros((K, D));
            for (mut slot, (n, v)) in all.outer_iter_mut().zip(&v) {
                slot.assign(&((scale + &v.diag()) / (nu + n + 3.0)));
            }
            Covariances::Diag(all)
        }
        PriorScale::Variance(scale) => Covariances::Spherical(
            v.iter().map(|(n, v)| (scale + v.diag().sum()) / (nu + (n + 1.0) * d + 2.0)).collect(),
        ),
    };
    (means, covariances)
}

#[test]
fn the_posterior_mode_is_that_of_table_2_of_fraley_and_raftery() {
    for kind in CovarianceType::ALL {
        let (m, p) = (mixture(K, D, kind, 3), prior(kind));
        let x = rows(&m, 60, 4);
        let found = step(&MStepRule { prior: Some(p.clone()), ..MStepRule::default() }, &m, &x).mixture;
        let (means, covariances) = table_2(&p, &m, &x);
        let r = reference::responsibilities(&m, x.view());
        let weights = (r.sum_axis(Axis(0)) + 0.4) / (60.0 + 3.0 * 0.4);
        mixtures_close(&found, &Mixture::new(weights, means, covariances).expect("valid"), 1e-12);
    }
}

/// The expected complete-data log-likelihood under the responsibilities of `m`, plus the logarithm of the prior density.
fn objective(rule: &MStepRule, m: &Mixture, x: &Array2<f64>, at: &Mixture) -> f64 {
    let r = reference::responsibilities(m, x.view());
    let row = |(x, r): (ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| -> f64 {
        (0..at.n_components()).map(|c| r[c] * reference::log_joint(at, c, x)).sum()
    };
    x.outer_iter().zip(r.outer_iter()).map(row).sum::<f64>() + rule.log_prior(at)
}

/// Another mixture near `m` that obeys the rule.
fn nearby(rule: &MStepRule, m: &Mixture, size: f64, seed: usize, draws: &mut Draws) -> Option<Mixture> {
    let mut change = || size * (draws.uniform() - 0.5);
    let mut weights = m.weights().to_owned();
    let FixedParts { weights: w, means: mu, covariances: fixed } = &rule.fixed;
    (0..K).filter(|c| !w.contains(c)).for_each(|c| weights[c] *= 1.0 + change());
    let left = 1.0 - w.iter().map(|&c| weights[c]).sum::<f64>();
    let free: f64 = (0..K).filter(|c| !w.contains(c)).map(|c| weights[c]).sum();
    (0..K).filter(|c| !w.contains(c)).for_each(|c| weights[c] *= left / free);
    let mut means = m.means().to_owned();
    (0..K).filter(|c| !mu.contains(c)).for_each(|c| means.row_mut(c).mapv_inplace(|v| v + change()));
    let leader = |c: usize| rule.shared.iter().find(|g| g.contains(&c)).map_or(c, |g| g[0]);
    let noise = match &rule.floor {
        // On the way to a random matrix above the floor.
        Some(floor) => Array3::from_shape_fn((K, D, D), |(c, i, j)| {
            let root = Array2::from_shape_fn((D, D), |(i, j)| ((c * 9 + i * 3 + j + seed) % 7) as f64 / 3.0 - 1.0);
            let above = root.dot(&root.t()) + Array2::from_diag(&lowest(m.covariance_type(), floor));
            size * (above[[i, j]] - m.covariances().matrix(c, D)[[i, j]])
        }),
        None => Array3::from_shape_fn((K, D, D), |_| change()),
    };
    let noise = Array3::from_shape_fn((K, D, D), |(c, i, j)| match (fixed.contains(&c), leader(c)) {
        (true, _) => 0.0,
        (false, c) => noise[[c, i.max(j), i.min(j)]],
    });
    let covariances = match m.covariances() {
        Covariances::Full(a) => Covariances::Full(a + &noise),
        Covariances::Tied(a) => Covariances::Tied(a + &noise.index_axis(Axis(0), 0)),
        Covariances::Diag(a) => Covariances::Diag(a + &Array2::from_shape_fn((K, D), |(c, j)| noise[[c, j, j]])),
        Covariances::Spherical(a) => Covariances::Spherical(a + &noise.slice(ndarray::s![.., 0, 0])),
    };
    let other = Mixture::new(weights, means, covariances).ok()?;
    is_above(rule, &other).then_some(other)
}

/// The floor of the kind, per column.
fn lowest(kind: CovarianceType, floor: &Array1<f64>) -> Array1<f64> {
    match kind {
        CovarianceType::Spherical => Array1::from_elem(D, floor.mean().expect("d is not 0")),
        _ => floor.clone(),
    }
}

/// Whether the covariances are at least the floor of the rule.
fn is_above(rule: &MStepRule, m: &Mixture) -> bool {
    let Some(floor) = &rule.floor else { return true };
    let floor = lowest(m.covariance_type(), floor);
    (0..K).filter(|c| !rule.fixed.covariances.contains(c)).all(|c| {
        let above = m.covariances().matrix(c, D) - Array2::from_diag(&floor) + Array2::<f64>::eye(D) * 1e-13;
        gmm_model::Cholesky::new(above.view()).is_ok()
    })
}

#[track_caller]
fn nothing_nearby_is_better(rule: &MStepRule, kind: CovarianceType) {
    let m = mixture(K, D, kind, 3);
    // A group shares its covariance from the start, so that the mixture obeys the rule.
    let x = rows(&m, 60, 4);
    let found = step(rule, &m, &x).mixture;
    assert!(is_above(rule, &found), "{kind}");
    let best = objective(rule, &m, &x, &found);
    let mut draws = Draws::for_purpose("test", 1, 0);
    let mut compared = 0;
    for i in 0..400 {
        let size = [1.0, 0.1, 0.01, 1e-3][i % 4];
        if let Some(other) = nearby(rule, &found, size, i, &mut draws) {
            let value = objective(rule, &m, &x, &other);
            assert!(value <= best + 1e-10 * best.abs(), "{kind} {rule:?}: {value} above {best}");
            compared += 1;
        }
    }
    assert!(compared > 20, "{kind}: {compared}");
}

#[test]
fn no_other_parameters_that_obey_the_rule_have_a_larger_objective() {
    for kind in CovarianceType::ALL {
        let matrices = kind == CovarianceType::Tied;
        let shared = if matrices { Vec::new() } else { vec![vec![0, 2]] };
        let some = |means: &[usize], covariances: &[usize], weights: &[usize]| FixedParts {
            weights: weights.to_vec(),
            means: means.to_vec(),
            covariances: if matrices { Vec::new() } else { covariances.to_vec() },
        };
        let base = MStepRule::default;
        let rules = [
            MStepRule { prior: Some(prior(kind)), ..base() },
            MStepRule { prior: Some(ConjugatePrior { shrinkage: 0.0, ..prior(kind) }), ..base() },
            MStepRule { floor: Some(array![0.9, 0.2, 1.4]), ..base() },
            MStepRule { floor: Some(array![0.3, 0.2, 0.4]), prior: Some(prior(kind)), ..base() },
            MStepRule { fixed: some(&[1], &[], &[]), ..base() },
            MStepRule { fixed: some(&[0, 1], &[1], &[2]), ..base() },
            MStepRule { fixed: some(&[0], &[], &[]), prior: Some(prior(kind)), ..base() },
            MStepRule { shared: shared.clone(), ..base() },
            MStepRule { shared: shared.clone(), prior: Some(prior(kind)), ..base() },
            MStepRule { shared, fixed: some(&[2], &[1], &[]), floor: Some(array![0.9, 0.9, 0.9]), ..base() },
        ];
        for rule in rules {
            nothing_nearby_is_better(&rule, kind);
        }
    }
}

#[test]
fn a_plain_rule_and_a_rule_without_effect_give_the_plain_m_step() {
    for kind in CovarianceType::ALL {
        let m = mixture(K, D, kind, 3);
        let x = rows(&m, 60, 4);
        let statistics = reference::statistics(&m, x.view(), None);
        let plain = m_step(&statistics, 1e-6, Some(&m)).expect("valid");
        assert_eq!(m_step_with(&MStepRule::default(), &statistics, 1e-6, Some(&m)).expect("valid"), plain);
        let low = Array1::from_elem(D, 1e-9);
        let idle = MStepRule {
            floor: Some(low.clone()),
            rescue: Some(low),
            starved: Some(Starved { min_count: 0.0, min_weight: 0.0 }),
            ..MStepRule::default()
        };
        let found = m_step_with(&idle, &statistics, 1e-6, Some(&m)).expect("valid");
        mixtures_close(&found.mixture, &plain.mixture, 1e-13);
        assert!(found.dropped.is_empty());
    }
}

#[test]
fn fixed_numbers_keep_their_bits() {
    for kind in CovarianceType::ALL {
        let m = mixture(K, D, kind, 3);
        let x = rows(&m, 60, 4);
        let all = vec![0, 1, 2];
        let covariances = if kind == CovarianceType::Tied { all.clone() } else { vec![2] };
        let rule = MStepRule {
            fixed: FixedParts { weights: vec![0, 2], means: vec![0, 1], covariances: covariances.clone() },
            floor: Some(Array1::from_elem(D, 1e6)),
            ..MStepRule::default()
        };
        let mut now = m.clone();
        for _ in 0..5 {
            now = step(&rule, &now, &x).mixture;
        }
        for c in [0, 2] {
            assert_eq!(now.weights()[c].to_bits(), m.weights()[c].to_bits(), "{kind}");
        }
        for c in [0, 1] {
            assert_eq!(now.means().row(c), m.means().row(c), "{kind}");
        }
        assert_ne!(now.means().row(2), m.means().row(2), "{kind}");
        for &c in &covariances {
            assert_eq!(now.covariances().matrix(c, D), m.covariances().matrix(c, D), "{kind}");
        }
        let frozen = FixedParts { weights: all.clone(), means: all.clone(), covariances: all };
        let same = step(&MStepRule { fixed: frozen, ..MStepRule::default() }, &m, &x).mixture;
        assert_eq!(same, m, "{kind}");
    }
}

#[test]
fn only_chosen_components_are_updated() {
    let m = mixture(K, D, CovarianceType::Full, 3);
    let x = rows(&m, 60, 4);
    let rule = MStepRule { fixed: FixedParts::all_but(&[1], K), ..MStepRule::default() };
    let found = step(&rule, &m, &x).mixture;
    for c in 0..K {
        let same = found.means().row(c) == m.means().row(c)
            && found.covariances().matrix(c, D) == m.covariances().matrix(c, D);
        assert_eq!(same, c != 1, "{c}");
    }
    // The weight of a single free component is what the others leave.
    assert!((found.weights()[1] - m.weights()[1]).abs() < 1e-15);
}

#[test]
fn components_of_a_group_share_the_pooled_covariance() {
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let m = mixture(K, D, kind, 3);
        let x = rows(&m, 60, 4);
        let plain = step(&MStepRule::default(), &m, &x).mixture;
        let rule = MStepRule { shared: vec![vec![2, 0]], ..MStepRule::default() };
        let found = step(&rule, &m, &x).mixture;
        let (w, own) = (plain.weights(), |c| plain.covariances().matrix(c, D));
        let pooled = (own(0) * w[0] + own(2) * w[2]) / (w[0] + w[2]);
        let shown = found.covariances();
        assert_eq!(shown.matrix(0, D), shown.matrix(2, D), "{kind}");
        crate::all_close(&shown.matrix(0, D), &pooled, 1e-12);
        crate::all_close(&shown.matrix(1, D), &own(1), 1e-12);
        // All in one group: the tied covariance, from the statistics of the full kind.
        if kind == CovarianceType::Full {
            let all = step(&MStepRule { shared: vec![vec![0, 1, 2]], ..MStepRule::default() }, &m, &x).mixture;
            let expected = (0..K).fold(Array2::zeros((D, D)), |sum: Array2<f64>, c| sum + own(c) * w[c]);
            crate::all_close(&all.covariances().matrix(1, D), &expected, 1e-12);
        }
    }
}

#[test]
fn free_parameters_are_counted_without_fixed_and_shared_ones() {
    let m = mixture(K, D, CovarianceType::Full, 3);
    let count = |rule: &MStepRule| rule.n_parameters(&m);
    assert_eq!(count(&MStepRule::default()), m.n_parameters());
    assert_eq!(m.n_parameters(), 3 * 6 + 9 + 2);
    let shared = MStepRule { shared: vec![vec![0, 1]], ..MStepRule::default() };
    assert_eq!(count(&shared), 2 * 6 + 9 + 2);
    let fixed = FixedParts { weights: vec![0, 1, 2], means: vec![1], covariances: vec![0, 1] };
    assert_eq!(count(&MStepRule { fixed, ..MStepRule::default() }), 6 + 6);
}

#[test]
fn starved_components_are_dropped_by_the_limits_of_kaldi() {
    for kind in CovarianceType::ALL {
        // The middle component is far from all rows but two.
        let m = unit(kind, array![[0.0, 0.0], [40.0, 0.0], [9.0, 9.0]]);
        let mut x = rows(&unit(kind, array![[0.0, 0.0], [9.0, 9.0]]), 200, 5);
        x.row_mut(0).assign(&array![40.0, 1.0]);
        x.row_mut(1).assign(&array![41.0, -1.0]);
        let statistics = reference::statistics(&m, x.view(), None);
        let of = |min_count, min_weight| {
            let rule = MStepRule { starved: Some(Starved { min_count, min_weight }), ..MStepRule::default() };
            m_step_with(&rule, &statistics, 1e-6, Some(&m)).expect("valid")
        };
        assert!(of(1.5, 0.0).dropped.is_empty(), "{kind}");
        // Exactly at a limit is dropped, as in Kaldi.
        assert_eq!(of(statistics.weight[1], 0.0).dropped, [1], "{kind}");
        let step = of(10.0, 1e-5);
        assert_eq!((step.dropped.as_slice(), step.mixture.n_components()), (&[1][..], 2), "{kind}");
        assert!((step.mixture.weights().sum() - 1.0).abs() < 1e-12);
        assert_eq!(of(0.0, 0.4).dropped, [1], "{kind}");
        // The last one stays.
        assert_eq!(of(1e9, 0.0).mixture.n_components(), 1, "{kind}");
        let plain = m_step(&statistics, 1e-6, Some(&m)).expect("valid").mixture;
        mixtures_close(&step.mixture.component(1).expect("two"), &plain.component(2).expect("three"), 1e-12);
    }
}

#[test]
fn an_empty_component_takes_the_mode_of_its_prior() {
    for kind in CovarianceType::ALL {
        let p = prior(kind);
        let far = array![[0.0, 0.0, 0.0], [1e6, 1e6, 1e6]];
        let (m, x) = (unit(kind, far), rows(&unit(kind, Array2::zeros((1, 3))), 50, 1));
        let found = step(&MStepRule { prior: Some(p.clone()), ..MStepRule::default() }, &m, &x);
        assert_eq!(found.empty, [1], "{kind}");
        crate::all_close(found.mixture.means().row(1), &p.mean, 1e-15);
        let expected: Option<Vec<f64>> = match &p.scale {
            PriorScale::Matrix(_) if kind == CovarianceType::Tied => None,
            PriorScale::Matrix(a) => Some((a / (6.5 + 3.0 + 2.0)).into_iter().collect()),
            PriorScale::Variances(a) => Some((a / (6.5 + 3.0)).to_vec()),
            PriorScale::Variance(a) => Some(vec![a / (6.5 + 3.0 + 2.0)]),
        };
        let all = flat(found.mixture.covariances());
        if let Some(expected) = expected {
            crate::all_close(&all[all.len() / 2..], &expected, 1e-13);
        }
    }
}

#[test]
fn a_rescue_changes_only_what_would_be_an_error() {
    let least = MStepRule { rescue: Some(array![1e-6, 1e-6]), ..MStepRule::default() };
    for kind in CovarianceType::ALL {
        let m = unit(kind, array![[0.0, 0.0]]);
        // A constant column, collinear columns, a single point.
        for x in [
            array![[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]],
            array![[1.0, 2.0], [2.0, 4.0], [5.0, 10.0]],
            array![[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]],
        ] {
            let statistics = reference::statistics(&m, x.view(), None);
            let found = m_step_with(&least, &statistics, 0.0, Some(&m)).expect("rescued").mixture;
            if let Ok(plain) = m_step(&statistics, 0.0, Some(&m)) {
                mixtures_close(&found, &plain.mixture, 1e-14);
            }
        }
    }
}

#[test]
fn bad_rules_are_errors() {
    let m = mixture(K, D, CovarianceType::Full, 3);
    let x = rows(&m, 60, 4);
    let statistics: Statistics = reference::statistics(&m, x.view(), None);
    let base = MStepRule::default;
    let fixed = |means: Vec<usize>| FixedParts { means, ..FixedParts::default() };
    let p = prior(CovarianceType::Full);
    let bad = [
        MStepRule { fixed: fixed(vec![3]), ..base() },
        MStepRule { shared: vec![vec![0, 1], vec![1, 2]], ..base() },
        MStepRule { shared: vec![vec![0, 5]], ..base() },
        MStepRule { shared: vec![vec![0, 0]], ..base() },
        MStepRule {
            shared: vec![vec![0, 1]],
            fixed: FixedParts { covariances: vec![1], ..FixedParts::default() },
            ..base()
        },
        MStepRule { floor: Some(array![1.0, 0.0, 1.0]), ..base() },
        MStepRule { floor: Some(array![1.0]), ..base() },
        MStepRule { rescue: Some(array![1.0, f64::NAN, 1.0]), ..base() },
        MStepRule { starved: Some(Starved { min_count: -1.0, min_weight: 0.0 }), ..base() },
        MStepRule { starved: Some(Starved { min_count: 1.0, min_weight: 1.0 }), ..base() },
        MStepRule { starved: Some(Starved::default()), fixed: fixed(vec![0]), ..base() },
        MStepRule { prior: Some(prior(CovarianceType::Diag)), ..base() },
        MStepRule { prior: Some(ConjugatePrior { shrinkage: -1.0, ..p.clone() }), ..base() },
        MStepRule { prior: Some(ConjugatePrior { degrees_of_freedom: 2.0, ..p.clone() }), ..base() },
        MStepRule { prior: Some(ConjugatePrior { concentration: 0.5, ..p.clone() }), ..base() },
        MStepRule { prior: Some(ConjugatePrior { mean: array![0.0], ..p.clone() }), ..base() },
        MStepRule { prior: Some(ConjugatePrior { scale: PriorScale::Matrix(Array2::zeros((3, 3))), ..p }), ..base() },
    ];
    for rule in bad {
        assert!(m_step_with(&rule, &statistics, 1e-6, Some(&m)).is_err(), "{rule:?}");
    }
    let without = m_step_with(&MStepRule { fixed: fixed(vec![0]), ..base() }, &statistics, 1e-6, None);
    assert!(without.unwrap_err().to_string().contains("previous"));
}
