//! Statistics about other centres.

use gmm_model::{CovarianceType, Mixture, Statistics, m_step, reference};
use ndarray::{Array2, ArrayView2};
use proptest::prelude::*;

use crate::{mixture, mixtures_close, rows};

/// Statistics about given centres under the responsibilities of a mixture, summed naively.
fn about(m: &Mixture, x: ArrayView2<'_, f64>, centres: Array2<f64>) -> Statistics {
    let mut out = Statistics::zero(m.covariance_type(), centres);
    for x in x.outer_iter() {
        let (log_density, r) = reference::posterior(m, x);
        out.log_likelihood += log_density;
        reference::accumulate(&mut out, x, 1.0, r.view());
    }
    out
}

/// The largest `Σ r |z|²` of a component.
fn size(s: &Statistics) -> f64 {
    let (k, d) = s.dim();
    let per = s.second.len() / if s.kind == CovarianceType::Tied { 1 } else { k };
    let trace = |second: &[f64]| match s.kind {
        CovarianceType::Full | CovarianceType::Tied => (0..d).map(|i| second[gmm_model::packed_index(i, i)]).sum(),
        _ => second.iter().sum::<f64>(),
    };
    s.second.chunks(per).map(trace).fold(0.0, f64::max)
}

fn case() -> impl Strategy<Value = (Mixture, Array2<f64>, Array2<f64>)> {
    let kind = prop::sample::select(CovarianceType::ALL.to_vec());
    (kind, 1..5_usize, 1..6_usize, any::<u64>(), -2..7_i32).prop_map(|(kind, k, d, seed, power)| {
        let m = mixture(k, d, kind, seed);
        let x = rows(&mixture(k, d, kind, seed ^ 1), 80, seed);
        let moves = rows(&mixture(1, d, CovarianceType::Diag, seed ^ 2), k, seed) * 10f64.powi(power);
        let centres = &m.means() + &moves;
        (m, x, centres)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn recentring_is_exact_to_rounding((m, x, centres) in case()) {
        let here = reference::statistics(&m, x.view(), None);
        let there = about(&m, x.view(), centres.clone());
        // Both ways: to distant centres, and back from them.
        for (from, to) in [(&here, &there), (&there, &here)] {
            let found = from.clone().recentred(to.centres.clone()).unwrap();
            prop_assert_eq!(&found.centres, &to.centres);
            prop_assert_eq!(&found.weight, &to.weight);
            let squares = size(from).max(size(to));
            // The sums of 80 rows, and a difference of three terms.
            let tolerance = 200.0 * f64::EPSILON * squares;
            for (a, b) in found.second.iter().zip(&to.second) {
                prop_assert!((a - b).abs() <= tolerance, "{a} and {b}, of {squares}");
            }
            let tolerance = 200.0 * f64::EPSILON * (squares * to.total_weight.max(80.0)).sqrt();
            for (a, b) in found.first.iter().zip(&to.first) {
                prop_assert!((a - b).abs() <= tolerance, "{a} and {b}");
            }
        }
    }

    #[test]
    fn the_m_step_does_not_depend_on_centres_or_scale((m, x, _) in case(), factor in 1e-6..1e6_f64) {
        let here = reference::statistics(&m, x.view(), None);
        let expected = m_step(&here, 1e-6, Some(&m)).unwrap().mixture;
        let moved = here.recentred(expected.means().to_owned()).unwrap().scaled(factor);
        mixtures_close(&m_step(&moved, 1e-6, Some(&m)).unwrap().mixture, &expected, 1e-9);
    }

    #[test]
    fn the_m_step_of_expected_statistics_is_the_mixture((m, _, _) in case(), share in 0.0..0.9_f64) {
        let least = (0..m.n_components()).flat_map(|c| m.covariances().matrix(c, m.n_features()).into_diag());
        let reg_covar = share * least.fold(f64::INFINITY, f64::min);
        let found = m_step(&Statistics::expected(&m, reg_covar), reg_covar, None).unwrap().mixture;
        mixtures_close(&found, &m, 1e-12);
    }
}

#[test]
fn centres_of_another_shape_are_an_error() {
    let m = mixture(2, 3, CovarianceType::Full, 1);
    let statistics = Statistics::zero(m.covariance_type(), m.means().to_owned());
    let error = statistics.recentred(Array2::zeros((3, 2))).unwrap_err();
    assert!(error.to_string().contains("k=2 d=3") && error.to_string().contains("k=3 d=2"), "{error}");
}
