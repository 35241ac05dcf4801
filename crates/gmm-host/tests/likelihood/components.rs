//! The cache of log densities by component: its bits, its undo, what it evaluates, and its errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gmm_host::{ComponentCache, ComponentChange, Error, Hooks, Likelihood, Wrapped};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, ModelError, Precision};
use ndarray::Axis;

use super::{case, cpu, every_case, naive, on_cpu};

/// The entries of a component's covariance.
fn covariance(mixture: &Mixture, c: usize) -> Vec<f64> {
    match mixture.covariances() {
        Covariances::Full(a) => a.index_axis(Axis(0), c).iter().copied().collect(),
        Covariances::Tied(a) => a.iter().copied().collect(),
        Covariances::Diag(a) => a.row(c).to_vec(),
        Covariances::Spherical(a) => vec![a[c]],
    }
}

#[test]
fn a_walk_by_components_has_the_bits_of_a_full_evaluation_at_each_step() {
    for precision in [Precision::F32, Precision::F64] {
        for kind in CovarianceType::ALL {
            let (data, start) = case(kind, 5000, 3, 4, 0.0, true);
            let mut likelihood = Likelihood::new(&cpu(), &data, precision).unwrap();
            let mut cache = ComponentCache::new(&mut likelihood, start).unwrap();
            for step in 0..12 {
                let (c, before) = (step * 7 % 4, cache.value());
                let mean = &cache.mixture().means().row(c) + 0.05 * (step as f64 - 4.5);
                let wide: Vec<f64> = covariance(cache.mixture(), c).iter().map(|v| v * 1.1).collect();
                let mut weights = cache.mixture().weights().to_vec();
                weights.rotate_left(1);
                let mean = mean.as_slice().unwrap();
                let all = ComponentChange { weights: Some(&weights), mean: Some(mean), covariance: Some(&wide) };
                let none = ComponentChange::default();
                let change = match step % 4 {
                    0 => ComponentChange { mean: Some(mean), ..none },
                    1 => ComponentChange { covariance: Some(&wide), ..none },
                    2 => all,
                    _ => ComponentChange { weights: Some(&weights), ..none },
                };
                let mixture = cache.mixture().clone();
                let value = cache.update_component(&mut likelihood, c, change).unwrap();
                let what = format!("{kind} {precision} step {step}");
                let fresh = ComponentCache::new(&mut likelihood, cache.mixture().clone()).unwrap();
                assert_eq!((value, cache.value()), (fresh.value(), fresh.value()), "{what}");
                assert_ne!(value, before, "{what}");
                if step % 3 == 1 {
                    assert!(cache.undo(), "{what}");
                    assert!(!cache.undo(), "{what}");
                    assert_eq!((cache.value(), cache.mixture()), (before, &mixture), "{what}");
                    let again = ComponentCache::new(&mut likelihood, mixture).unwrap();
                    let (mut a, mut b) = (vec![0.0; 5000], vec![1.0; 5000]);
                    cache.per_row(&mut likelihood, &mut a).unwrap();
                    again.per_row(&mut likelihood, &mut b).unwrap();
                    assert_eq!(a, b, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_cache_gives_the_naive_sum() {
    every_case(|what, data, mixture| {
        let want = naive::value(&mixture, &data);
        let mut likelihood = on_cpu(&data);
        let cache = ComponentCache::new(&mut likelihood, mixture).unwrap();
        assert!((cache.value() - want).abs() <= 1e-9 * want.abs().max(1.0), "{what}: {} and {want}", cache.value());
        let mut each = vec![0.0; data.n_rows()];
        cache.per_row(&mut likelihood, &mut each).unwrap();
        let sum: f64 = each.iter().enumerate().map(|(i, v)| data.weight(i) * v).sum();
        assert!((sum - want).abs() <= 1e-9 * want.abs().max(1.0), "{what}: rows sum to {sum}");
        assert!(cache.per_row(&mut likelihood, &mut each[1..]).is_err());
    });
}

/// Counts the passes over the rows.
#[derive(Clone)]
struct Counting(Arc<AtomicUsize>);

impl Hooks for Counting {
    fn before(&mut self) -> Result<(), Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn only_what_changes_is_evaluated() {
    for kind in CovarianceType::ALL {
        let (data, start) = case(kind, 300, 3, 5, 0.0, false);
        let count = Arc::new(AtomicUsize::new(0));
        let cpu = cpu();
        let counting = Wrapped::new(&cpu, || Counting(count.clone()));
        let mut likelihood = Likelihood::new(&counting, &data, Precision::F64).unwrap();
        let since = || count.swap(0, Ordering::Relaxed);
        let mut cache = ComponentCache::new(&mut likelihood, start.clone()).unwrap();
        assert_eq!(since(), 5, "{kind}");
        let none = ComponentChange::default();
        let mean = ComponentChange { mean: Some(&[0.1, 0.2, 0.3]), ..none };
        cache.update_component(&mut likelihood, 3, mean).unwrap();
        assert_eq!(since(), 1, "{kind}: a mean");
        cache.update_component(&mut likelihood, 3, mean).unwrap();
        assert_eq!(since(), 0, "{kind}: the same once more");
        let wide: Vec<f64> = covariance(&start, 1).iter().map(|v| v * 2.0).collect();
        cache.update_component(&mut likelihood, 1, ComponentChange { covariance: Some(&wide), ..none }).unwrap();
        assert_eq!(since(), if kind == CovarianceType::Tied { 5 } else { 1 }, "{kind}: a covariance");
        cache.update_weights(&mut likelihood, &[0.1, 0.2, 0.3, 0.2, 0.2]).unwrap();
        cache.undo();
        assert_eq!(since(), 0, "{kind}: weights, and a step back");
        cache.update(&mut likelihood, start).unwrap();
        assert_eq!(since(), if kind == CovarianceType::Tied { 5 } else { 2 }, "{kind}: back to the start");
    }
}

#[test]
fn what_cannot_be_is_refused_and_leaves_the_cache_as_it_was() {
    let (data, start) = case(CovarianceType::Diag, 300, 2, 3, 0.0, false);
    let mut likelihood = on_cpu(&data);
    let mut cache = ComponentCache::new(&mut likelihood, start.clone()).unwrap();
    let value = cache.value();
    let none = ComponentChange::default();
    let mut refused = |c: usize, change: ComponentChange<'_>| {
        let error = match cache.update_component(&mut likelihood, c, change).unwrap_err() {
            Error::Model(error) => error,
            other => panic!("{other}"),
        };
        assert_eq!((cache.value(), cache.mixture()), (value, &start));
        error
    };
    let error = refused(3, none);
    assert!(matches!(error, ModelError::Range { what: "component", .. }), "{error}");
    let error = refused(0, ComponentChange { mean: Some(&[0.0]), ..none });
    assert!(matches!(error, ModelError::Shape { .. }), "{error}");
    let error = refused(0, ComponentChange { mean: Some(&[0.0, f64::NAN]), ..none });
    assert!(matches!(error, ModelError::NotFinite { .. }), "{error}");
    let error = refused(1, ComponentChange { covariance: Some(&[1.0, 0.0]), ..none });
    assert!(matches!(error, ModelError::NotPositiveDefinite { component: 1, column: 1, .. }), "{error}");
    let error = refused(0, ComponentChange { weights: Some(&[0.5, 0.5, 0.5]), ..none });
    assert!(matches!(error, ModelError::WeightSum { .. }), "{error}");
    assert!(cache.update_weights(&mut likelihood, &[0.5, 0.5]).is_err());
    assert_eq!(cache.value(), value);

    let (_, other_kind) = case(CovarianceType::Full, 300, 2, 3, 0.0, false);
    assert!(matches!(cache.update(&mut likelihood, other_kind), Err(Error::Option { .. })));
    let (_, fewer) = case(CovarianceType::Diag, 300, 2, 2, 0.0, false);
    assert!(matches!(cache.update(&mut likelihood, fewer), Err(Error::Model(ModelError::Shape { .. }))));
    let another = cache.update(&mut on_cpu(&data), start);
    assert!(matches!(another, Err(Error::Option { option: "the likelihood", .. })), "{another:?}");
    assert_eq!(cache.value(), value);
}

#[test]
fn a_row_without_density_makes_the_value_minus_infinity_until_it_has_one() {
    let mut rows = super::common::rows(300, 1, 0.0, 1.0, 1);
    rows[[200, 0]] = 1e200;
    let (_, start) = case(CovarianceType::Spherical, 300, 1, 2, 0.0, false);
    let mut likelihood = on_cpu(&Dataset::new(rows).unwrap());
    let mut cache = ComponentCache::new(&mut likelihood, start).unwrap();
    assert_eq!(cache.value(), f64::NEG_INFINITY);
    let wide = ComponentChange { covariance: Some(&[1e300]), mean: Some(&[1e200]), weights: None };
    assert!(cache.update_component(&mut likelihood, 1, wide).unwrap().is_finite());
    cache.undo();
    assert_eq!(cache.value(), f64::NEG_INFINITY);
}
