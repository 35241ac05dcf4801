//! When the EM loop on the device may fall back to the host: computes the losses of precision that its M-step measures,
//! here from the reference's mixtures.
//!
//! `gmm-kernels/src/em/m_step/` reports a loss of precision in three cases: cancelling terms in a component's log
//! density, a variance that is a small difference of large moments, and small pivots. Its numbers include its own
//! rounding errors. The ones here are those of exact arithmetic; [`MARGIN`] allows for the difference.

use gmm_model::{CovarianceType, Covariances, Mixture, Precision};

/// Above this fraction of a limit the device may fall back to the host; below, it must not. Its sums have an error of a
/// few hundred eps, which changes a measured loss near the limit by only a fraction of itself.
pub(crate) const MARGIN: f64 = 0.5;

/// Smallest pivot relative to the variance of its column, as in `em/m_step/expand.rs`.
const LEAST_PIVOT: f64 = 1e-9;

/// Largest assumed distance of a component's rows from its mean, in standard deviations, as in `em/m_step/expand.rs`.
const REACH: f64 = 4.0;

/// The largest allowed sum of a component's terms, and the smallest fraction of a second moment that may remain as
/// variance: the bounds of the last path before the host, in `cuda/em/error_bounds.rs`.
pub(crate) const fn limits(precision: Precision, kind: CovarianceType) -> (f64, f64) {
    match (precision, kind) {
        (Precision::F64, _) => (4e6, 2e-6),
        (Precision::F32, CovarianceType::Tied) => (4e9, 1e-3),
        (Precision::F32, _) => (4e9, 2e-8),
    }
}

/// The losses of precision of an iteration, each relative to its limit: above 1 the device falls back to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Losses {
    /// Terms of a component's log density at its rows, which cancel to the size of the log density.
    pub(crate) terms: f64,
    /// Second moment about the shift, relative to the variance that remains of it.
    pub(crate) rest: f64,
    /// Variance of a column, relative to its pivot: the variance given the columns before it.
    pub(crate) pivot: f64,
}

impl Losses {
    /// The largest losses of an iteration from `before` to `after.0`, whose components `after.1` are empty, with rows
    /// shifted by `at`, `(d,)`.
    pub(crate) fn of(
        before: &Mixture,
        after: (&Mixture, &[usize]),
        at: &[f64],
        reg_covar: f64,
        precision: Precision,
    ) -> Self {
        let (most_terms, least_left) = limits(precision, before.covariance_type());
        let (a, b) = (expansion(before, at), expansion(after.0, at));
        Self {
            terms: a.0.max(b.0) / most_terms,
            rest: least_left * rest(after, at, reg_covar),
            pivot: LEAST_PIVOT * a.1.max(b.1),
        }
    }

    /// Whether the device may fall back to the host for the iteration.
    pub(crate) fn may_hand_over(&self) -> bool {
        !(self.terms <= MARGIN && self.rest <= MARGIN && self.pivot <= MARGIN)
    }
}

/// Variance of column `j` of component `c`.
fn variance(mixture: &Mixture, c: usize, j: usize) -> f64 {
    match mixture.covariances() {
        Covariances::Full(all) => all[[c, j, j]],
        Covariances::Tied(one) => one[[j, j]],
        Covariances::Diag(all) => all[[c, j]],
        Covariances::Spherical(all) => all[c],
    }
}

/// The largest sum of a component's terms, and the largest ratio of a variance to its pivot.
fn expansion(mixture: &Mixture, at: &[f64]) -> (f64, f64) {
    let (k, d) = mixture.means().dim();
    let (mut most_terms, mut least_pivot) = (0.0_f64, 1.0_f64);
    for c in 0..k {
        let reach: Vec<f64> =
            (0..d).map(|j| (mixture.means()[[c, j]] - at[j]).abs() + REACH * variance(mixture, c, j).sqrt()).collect();
        let matrix = |a: ndarray::ArrayView2<'_, f64>| {
            let (inverse, pivots) = inverse(a.to_owned());
            let terms = inverse.indexed_iter().map(|((i, j), v)| v.abs() * reach[i] * reach[j]).sum();
            (terms, (0..d).map(|j| a[[j, j]] / pivots[j]).fold(1.0, f64::max))
        };
        let (terms, pivot) = match mixture.covariances() {
            Covariances::Full(all) => matrix(all.index_axis(ndarray::Axis(0), c)),
            Covariances::Tied(one) => matrix(one.view()),
            Covariances::Diag(_) | Covariances::Spherical(_) => {
                (reach.iter().enumerate().map(|(j, r)| r * r / variance(mixture, c, j)).sum(), 1.0)
            }
        };
        (most_terms, least_pivot) = (most_terms.max(terms), least_pivot.max(pivot));
    }
    (most_terms, least_pivot)
}

/// The largest ratio of a second moment about the shift to the variance that remains of it.
fn rest((mixture, empty): (&Mixture, &[usize]), at: &[f64], reg_covar: f64) -> f64 {
    let (k, d) = mixture.means().dim();
    let square = |c: usize, j: usize| (mixture.means()[[c, j]] - at[j]).powi(2);
    // Nothing cancels if the mean is at the shift, as in a constant column.
    let share = |left: f64, out: f64| if out == 0.0 { 1.0 } else { (left + out) / left.max(0.0) };
    let own = |c: usize, j: usize| variance(mixture, c, j) - reg_covar;
    let filled = (0..k).filter(|c| !empty.contains(c));
    match mixture.covariances() {
        Covariances::Tied(_) => (0..d)
            .map(|j| share(own(0, j), filled.clone().map(|c| mixture.weights()[c] * square(c, j)).sum()))
            .fold(1.0, f64::max),
        Covariances::Spherical(_) => {
            filled.map(|c| share(d as f64 * own(c, 0), (0..d).map(|j| square(c, j)).sum())).fold(1.0, f64::max)
        }
        Covariances::Full(_) | Covariances::Diag(_) => filled
            .flat_map(|c| (0..d).map(move |j| (c, j)))
            .map(|(c, j)| share(own(c, j), square(c, j)))
            .fold(1.0, f64::max),
    }
}

/// The inverse of a symmetric matrix, and its pivots, by Gauss-Jordan elimination.
fn inverse(mut a: ndarray::Array2<f64>) -> (ndarray::Array2<f64>, Vec<f64>) {
    let d = a.nrows();
    let mut pivots = Vec::with_capacity(d);
    for m in 0..d {
        let (pivot, column) = (a[[m, m]], a.column(m).to_owned());
        pivots.push(pivot);
        for ((i, j), v) in a.indexed_iter_mut() {
            *v = match (i == m, j == m) {
                (true, true) => -1.0 / pivot,
                (true, false) => column[j] / pivot,
                (false, true) => column[i] / pivot,
                (false, false) => *v - column[i] * column[j] / pivot,
            };
        }
    }
    (-a, pivots)
}
