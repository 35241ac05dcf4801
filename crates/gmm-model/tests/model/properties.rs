//! Properties of all mixtures and rows.

use gmm_model::{CovarianceType, Covariances, Mixture, Statistics, m_step, reference};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use proptest::prelude::*;

use crate::{all_close, em_step, flat, mixture, mixtures_close, rows};

fn kind() -> impl Strategy<Value = CovarianceType> {
    prop::sample::select(CovarianceType::ALL.to_vec())
}

/// A mixture, and rows from another one of the same shape, so that the fit changes it.
fn fit() -> impl Strategy<Value = (Mixture, Array2<f64>)> {
    (kind(), 1..5_usize, 1..6_usize, any::<u64>(), 40..120_usize)
        .prop_map(|(kind, k, d, seed, n)| (mixture(k, d, kind, seed), rows(&mixture(k, d, kind, seed ^ 1), n, seed)))
}

fn joined(parts: &[Statistics]) -> Statistics {
    let mut sum = parts[0].clone();
    parts[1..].iter().for_each(|part| sum.add(part).expect("the same centres"));
    sum
}

fn statistics_close(a: &Statistics, b: &Statistics) {
    all_close(&a.weight, &b.weight, 1e-12);
    all_close(&a.first, &b.first, 1e-11);
    all_close(&a.second, &b.second, 1e-11);
    all_close([&a.log_likelihood, &a.total_weight], [&b.log_likelihood, &b.total_weight], 1e-12);
    assert_eq!(a.n_rows, b.n_rows);
}

/// The covariance of every component under `x -> scale * x` (columnwise), in the same kind.
fn scaled(m: &Mixture, scale: &Array1<f64>, shift: &Array1<f64>) -> Mixture {
    let outer = |a: ArrayView2<'_, f64>| Array2::from_shape_fn(a.dim(), |(i, j)| a[[i, j]] * scale[i] * scale[j]);
    let covariances = match m.covariances() {
        Covariances::Full(a) => {
            let mut all = a.clone();
            all.outer_iter_mut().zip(a.outer_iter()).for_each(|(mut slot, a)| slot.assign(&outer(a)));
            Covariances::Full(all)
        }
        Covariances::Tied(a) => Covariances::Tied(outer(a.view())),
        Covariances::Diag(a) => Covariances::Diag(a * &(scale * scale)),
        Covariances::Spherical(a) => Covariances::Spherical(a * (scale[0] * scale[0])),
    };
    Mixture::new(m.weights().to_owned(), &m.means() * scale + shift, covariances).expect("positive scales")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn statistics_add_in_any_split_and_order((m, x) in fit(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 3), reverse: bool) {
        let whole = reference::statistics(&m, x.view(), None);
        let mut ends: Vec<usize> = cuts.iter().map(|c| c.index(x.nrows() + 1)).chain([0, x.nrows()]).collect();
        ends.sort_unstable();
        let mut parts: Vec<_> =
            ends.windows(2).map(|w| reference::statistics(&m, x.slice(s![w[0]..w[1], ..]), None)).collect();
        if reverse {
            parts.reverse();
        }
        statistics_close(&joined(&parts), &whole);
    }

    #[test]
    fn the_byte_form_keeps_every_bit((m, x) in fit()) {
        let statistics = reference::statistics(&m, x.view(), None);
        let bytes = statistics.to_bytes();
        let (k, d) = statistics.dim();
        prop_assert_eq!(bytes.len(), 66 + 8 * (2 * k * d + k + statistics.kind.second_len(k, d)));
        let back = Statistics::from_bytes(&bytes).expect("whole");
        prop_assert_eq!(&back, &statistics);
        prop_assert_eq!(back.to_bytes(), bytes);
    }

    #[test]
    fn damaged_bytes_are_an_error(seed: u64, kind in kind(), bit: prop::sample::Index, more in prop::collection::vec(any::<u8>(), 1..20)) {
        let m = mixture(2, 2, kind, seed);
        let bytes = reference::statistics(&m, rows(&m, 5, seed).view(), None).to_bytes();
        let mut flipped = bytes.clone();
        let bit = bit.index(bytes.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Statistics::from_bytes(&flipped).is_err());
        for len in 0..bytes.len() {
            prop_assert!(Statistics::from_bytes(&bytes[..len]).is_err());
        }
        prop_assert!(Statistics::from_bytes(&[bytes, more].concat()).is_err());
    }

    #[test]
    fn arbitrary_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Statistics::from_bytes(&bytes);
        let headed = [b"GMMSTAT\x02".as_slice(), &bytes].concat();
        prop_assert!(Statistics::from_bytes(&headed).is_err());
    }

    #[test]
    fn responsibilities_sum_to_one_however_far_the_row((m, x) in fit(), power in -10..160_i32) {
        let far = x * 10_f64.powi(power);
        for r in reference::responsibilities(&m, far.view()).outer_iter() {
            prop_assert!((r.sum() - 1.0).abs() <= 4.0 * f64::EPSILON && r.iter().all(|v| (0.0..=1.0).contains(v)));
        }
    }

    #[test]
    fn permuting_components_changes_nothing_but_their_order((m, x) in fit(), by in 0..5_usize) {
        let k = m.n_components();
        let order: Vec<usize> = (0..k).map(|c| (c + by) % k).rev().collect();
        let p = m.permuted(&order).expect("a permutation");
        all_close(&reference::log_densities(&m, x.view()), &reference::log_densities(&p, x.view()), 1e-13);
        let (a, b) = (em_step(&m, x.view(), None, 1e-6).mixture, em_step(&p, x.view(), None, 1e-6).mixture);
        mixtures_close(&a.permuted(&order).expect("a permutation"), &b, 1e-11);
    }

    #[test]
    fn permuting_rows_changes_nothing((m, x) in fit()) {
        let order: Vec<usize> = (0..x.nrows()).rev().collect();
        let turned = x.select(Axis(0), &order);
        let step = |x: &Array2<f64>| em_step(&m, x.view(), None, 1e-6).mixture;
        mixtures_close(&step(&x), &step(&turned), 1e-11);
    }

    #[test]
    fn em_never_lowers_the_likelihood((start, x) in fit()) {
        let mut m = start;
        let mut last = f64::NEG_INFINITY;
        for _ in 0..15 {
            let statistics = reference::statistics(&m, x.view(), None);
            let now = statistics.mean_log_likelihood();
            prop_assert!(now >= last - 1e-12 * now.abs().max(1.0), "{now} after {last}");
            last = now;
            // Without reg_covar each M-step maximises exactly, but a component may collapse onto too few rows.
            match m_step(&statistics, 0.0, Some(&m)) {
                Ok(next) => m = next.mixture,
                Err(_) => break,
            }
        }
    }

    #[test]
    fn scaling_and_moving_columns_maps_the_model((m, x) in fit(), powers in prop::collection::vec(-3.0..3.0_f64, 6), moved in -5.0..5.0_f64) {
        let d = m.n_features();
        let spherical = m.covariance_type() == CovarianceType::Spherical;
        // A spherical covariance stays spherical only if all columns have the same scale.
        let scale = Array1::from_shape_fn(d, |j| powers[if spherical { 0 } else { j }].exp2());
        let shift = Array1::from_shape_fn(d, |j| moved * scale[j]);
        let mapped = &x * &scale + &shift;
        let image = scaled(&m, &scale, &shift);
        let jacobian: f64 = scale.iter().map(|s| s.ln()).sum();
        let before = reference::log_densities(&m, x.view()).mapv(|v| v - jacobian);
        all_close(&before, &reference::log_densities(&image, mapped.view()), 1e-10);
        let expected = scaled(&em_step(&m, x.view(), None, 0.0).mixture, &scale, &shift);
        mixtures_close(&em_step(&image, mapped.view(), None, 0.0).mixture, &expected, 1e-9);
    }

    #[test]
    fn any_linear_map_maps_a_full_model(seed: u64, d in 1..5_usize, k in 1..4_usize) {
        let kinds = [CovarianceType::Full, CovarianceType::Tied];
        for kind in kinds {
            let (m, x) = (mixture(k, d, kind, seed), rows(&mixture(k, d, kind, seed ^ 1), 60, seed));
            // A unit lower triangular matrix, which is never singular.
            let map = Array2::from_shape_fn((d, d), |(i, j)| match i.cmp(&j) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => 0.5,
            });
            let image = |m: &Mixture| {
                let covariances = match m.covariances() {
                    Covariances::Full(a) => {
                        let mut all = a.clone();
                        let mapped = a.outer_iter().map(|a| symmetric(map.dot(&a).dot(&map.t())));
                        all.outer_iter_mut().zip(mapped).for_each(|(mut slot, a)| slot.assign(&a));
                        Covariances::Full(all)
                    }
                    Covariances::Tied(a) => Covariances::Tied(symmetric(map.dot(a).dot(&map.t()))),
                    _ => unreachable!("full and tied only"),
                };
                Mixture::new(m.weights().to_owned(), m.means().dot(&map.t()), covariances).expect("not singular")
            };
            let found = em_step(&image(&m), x.dot(&map.t()).view(), None, 0.0).mixture;
            let expected = image(&em_step(&m, x.view(), None, 0.0).mixture);
            all_close(found.means(), expected.means(), 1e-9);
            all_close(&flat(found.covariances()), &flat(expected.covariances()), 1e-9);
        }
    }

    #[test]
    fn a_mixture_rebuilt_from_its_own_arrays_is_the_same_to_the_bit((m, x) in fit()) {
        let step = em_step(&m, x.view(), None, 1e-6).mixture;
        for m in [m, step] {
            let again = Mixture::new(m.weights().to_owned(), m.means().to_owned(), m.covariances().clone());
            prop_assert_eq!(again.expect("valid"), m);
        }
    }
}

fn symmetric(a: Array2<f64>) -> Array2<f64> {
    (&a + &a.t()) / 2.0
}
