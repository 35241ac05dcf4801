//! Splits of components that keep the moments.

use ndarray::{Array1, ArrayView1, Axis, concatenate};

use super::distance::check_component;
use super::merge::add_outer;
use crate::{Cholesky, CovarianceType, Covariances, Factors, Mixture, ModelError};

/// How a component is split into two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitOptions {
    /// Share of the weight that the first of the two keeps, between 0 and 1. Default ½.
    pub share: f64,
    /// Share of the standard deviation along the axis that becomes distance between the means, between 0 and 1. With
    /// equal weights the means move by that many standard deviations, to both sides. Default ½, the mean of Richardson
    /// and Green's proposal.
    pub distance: f64,
}

impl Default for SplitOptions {
    fn default() -> Self {
        Self { share: 0.5, distance: 0.5 }
    }
}

/// Splits component `c` in two along its principal axis: the first takes its place, the other is appended. The two have
/// equal covariances, and [merged](super::merge_pair) they are the component again.
///
/// With `δ` the standard deviation along the axis, `α` the share and `u` the distance: means `μ − u δ √((1−α)/α)` and
/// `μ + u δ √(α/(1−α))`, covariance `Σ − u² δδᵀ` (Richardson and Green 1997, with u₃ = ½; Zhang, Chen, Sun and
/// Chan 2003 in several dimensions). Mean and covariance of the whole are kept as in [`merge`](super::merge()): for tied
/// the shared covariance becomes narrower by the component's weight. The axis of diag is the column of largest variance,
/// that of spherical the first column.
///
/// # Errors
/// [`ModelError::Range`] if there is no such component, or an option is not between 0 and 1.
///
/// Cost: about `100 d²` for the axis, and the factors of the new mixture.
pub fn split(mixture: &Mixture, c: usize, options: &SplitOptions) -> Result<Mixture, ModelError> {
    check_component(mixture, c)?;
    let SplitOptions { share, distance } = *options;
    for (what, value) in [("share", share), ("distance", distance)] {
        if !(value > 0.0 && value < 1.0) {
            return Err(ModelError::Range { what, value: value.to_string(), must: "between 0 and 1" });
        }
    }
    let k = mixture.n_components();
    let order: Vec<usize> = (0..k).chain([c]).collect();
    let mut weights = mixture.weights().select(Axis(0), &order);
    weights[c] *= share;
    weights[k] -= weights[c];
    let (_, axis) = principal(mixture, c);
    let mut means = mixture.means().select(Axis(0), &order);
    means.row_mut(c).scaled_add(-distance * ((1.0 - share) / share).sqrt(), &axis);
    means.row_mut(k).scaled_add(distance * (share / (1.0 - share)).sqrt(), &axis);
    let squared = distance * distance;
    let covariances = match mixture.covariances() {
        Covariances::Full(all) => {
            let mut one = all.index_axis(Axis(0), c).to_owned();
            add_outer(&mut one, -squared, axis.view());
            let mut all = all.clone();
            all.index_axis_mut(Axis(0), c).assign(&one);
            let one = one.insert_axis(Axis(0));
            Covariances::Full(concatenate(Axis(0), &[all.view(), one.view()]).expect("equal shapes"))
        }
        Covariances::Tied(one) => {
            let mut one = one.clone();
            add_outer(&mut one, -squared * mixture.weights()[c], axis.view());
            Covariances::Tied(one)
        }
        Covariances::Diag(all) => {
            let mut all = all.clone();
            all.row_mut(c).zip_mut_with(&axis, |v, x| *v -= squared * x * x);
            Covariances::Diag(all.select(Axis(0), &order))
        }
        Covariances::Spherical(all) => {
            let mut all = all.clone();
            all[c] *= 1.0 - squared / mixture.n_features() as f64;
            Covariances::Spherical(all.select(Axis(0), &order))
        }
    };
    Mixture::new(weights, means, covariances)
}

/// Splits the [`widest`] component until there are `k`.
///
/// # Errors
/// As for [`split`]; [`ModelError::Range`] if the mixture has more than `k` components already.
pub fn split_to(mixture: &Mixture, k: usize, options: &SplitOptions) -> Result<Mixture, ModelError> {
    if k < mixture.n_components() {
        let must = "at least the number of components: a split adds one";
        return Err(ModelError::Range { what: "k", value: k.to_string(), must });
    }
    let mut now = mixture.clone();
    while now.n_components() < k {
        now = split(&now, widest(&now), options)?;
    }
    Ok(now)
}

/// The component of largest weight times variance along its principal axis: what a split of it moves most of the whole's
/// variance between means. For tied that is the heaviest. The first among equals.
///
/// Cost: about `100 k d²`.
pub fn widest(mixture: &Mixture) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (c, w) in mixture.weights().iter().enumerate() {
        // Tied components have the same variance.
        let size = if mixture.covariance_type() == CovarianceType::Tied { *w } else { w * principal(mixture, c).0 };
        if size > best.1 {
            best = (c, size);
        }
    }
    best.0
}

/// The largest variance of component `c` along a line, and the vector of the standard deviation there, `(d,)`.
fn principal(mixture: &Mixture, c: usize) -> (f64, Array1<f64>) {
    let d = mixture.n_features();
    let along = |column: usize, sd: f64| {
        let mut axis: Array1<f64> = Array1::zeros(d);
        axis[column] = sd;
        (sd * sd, axis)
    };
    match mixture.factors() {
        Factors::Full(all) => principal_of(&all[c], mixture.covariances().matrix(c, d).diag()),
        Factors::Tied(one) => principal_of(one, mixture.covariances().matrix(c, d).diag()),
        Factors::Spherical(sd) => along(0, sd[c]),
        Factors::Diag(sd) => {
            let row = sd.row(c);
            let column = (1..d).fold(0, |best, j| if row[j] > row[best] { j } else { best });
            along(column, row[column])
        }
    }
}

/// Power iteration with `L Lᵀ`.
///
/// The vector is `Σv / √(vᵀΣv) = L y` with `|y| = 1`, so `Σ − u² δδᵀ` is positive definite for every `v`, also where two
/// variances are so close that the iteration has not converged.
fn principal_of(factor: &Cholesky, variances: ArrayView1<'_, f64>) -> (f64, Array1<f64>) {
    /// Enough for the variance to a few digits unless two are within a percent; then either axis will do.
    const TURNS: usize = 50;
    let d = factor.dim();
    // The column of largest variance is never orthogonal to the principal axis unless it is alone.
    let start = (1..d).fold(0, |best, j| if variances[j] > variances[best] { j } else { best });
    let mut axis: Array1<f64> = Array1::zeros(d);
    axis[start] = 1.0;
    for _ in 0..TURNS {
        // y = Lᵀ v, normalised; then v = L y. The largest entry becomes 1 first, so that nothing underflows.
        let largest = axis.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        axis.mapv_inplace(|v| v / largest);
        let mut y = vec![0.0; d];
        for i in 0..d {
            factor.row(i).iter().zip(&mut y).for_each(|(l, y)| *y += l * axis[i]);
        }
        let length = y.iter().map(|v| v * v).sum::<f64>().sqrt();
        y.iter_mut().for_each(|v| *v /= length);
        factor.multiply_lower(&y, axis.as_slice_mut().expect("contiguous"));
    }
    (axis.dot(&axis), axis)
}
