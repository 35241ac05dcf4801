//! When the loop on the device may leave an iteration to the host: the losses of digits that its M-step measures, measured
//! here from the reference's mixtures.
//!
//! `gmm-kernels/src/fused/update/` reports trouble in three cases: terms of a component's densities that cancel, what a
//! variance is the rest of, and pivots. Its own numbers carry its rounding; these do not, so they are what it would find in
//! exact arithmetic, and [`MARGIN`] is what rounding may move.

use gmm_model::{CovarianceType, Covariances, Mixture, Precision};

/// Above this share of a limit the device may hand over, and below it must not: its sums have an error of a few hundred
/// eps, and a loss moves by no more than a part of itself where that is left of the digits.
pub(crate) const MARGIN: f64 = 0.5;

/// The least that a pivot may be of the variance before columns are taken out, as `update/expand.rs` has it.
const LEAST_PIVOT: f64 = 1e-9;

/// A standard deviation or four from the mean is where rows of a component are, as `update/expand.rs` has it.
const REACH: f64 = 4.0;

/// The most that a component's terms may add up to, and the least share of a moment that may be left without the mean's
/// square: those of the last way before the host, in `cuda/digits.rs`.
pub(crate) const fn limits(precision: Precision, kind: CovarianceType) -> (f64, f64) {
    match (precision, kind) {
        (Precision::F64, _) => (4e6, 2e-6),
        (Precision::F32, CovarianceType::Tied) => (4e9, 1e-3),
        (Precision::F32, _) => (4e9, 2e-8),
    }
}

/// What an iteration loses, each as a share of what the device takes: above 1 it hands over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Losses {
    /// Terms of a component's density at its rows, which cancel down to the density's own size.
    pub(crate) terms: f64,
    /// Squares about the shift that a variance is the rest of.
    pub(crate) rest: f64,
    /// Variance of a column against what the columns before it leave of it.
    pub(crate) pivot: f64,
}

impl Losses {
    /// The worst of an iteration from `before` to `after`, `after.1` of whose components are empty, of rows held about
    /// `at`, `(d,)`.
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

    /// Whether the device may leave the iteration to the host.
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

/// The largest sum of a component's terms, and the largest share of a variance to its pivot.
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

/// The largest share of the squares about the shift to the variance that is left of them.
fn rest((mixture, empty): (&Mixture, &[usize]), at: &[f64], reg_covar: f64) -> f64 {
    let (k, d) = mixture.means().dim();
    let square = |c: usize, j: usize| (mixture.means()[[c, j]] - at[j]).powi(2);
    // Nothing is taken out where nothing was: a column that is constant lies at the shift.
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

/// The inverse of a symmetric matrix, and its pivots, by Gauss and Jordan's sweeps.
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
