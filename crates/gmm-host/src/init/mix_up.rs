//! Mixing up: the number of components doubles until there are enough, with a few iterations of EM in between. The large
//! background models of speech are trained so, since every split starts from components that already have rows.

use gmm_model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, Axis};

use super::Start;
use crate::em::{check, singular};
use crate::{Error, Resident};

/// Standard deviations by which the means of the two halves move, in opposite directions: that of HTK's command `MU` (HTK
/// Book, "Mixture Incrementing").
const PERTURBATION: f64 = 0.2;

/// EM iterations between two splits. Recipes for HTK and Kaldi make four to eight.
const ITERATIONS: usize = 6;

/// Smallest variance of a component as a share of that of all rows in the column: the default of HTK's `HCompV -f`, and of
/// Reynolds and Rose 1995 for the same reason, that a component may otherwise settle on a few rows.
const FLOOR: f64 = 0.01;

/// The start with `k` components after the last split, and the number of its components without rows.
///
/// The heaviest component is split, as in Kaldi's `DiagGmm::Split`: each half has half the weight and the whole
/// covariance, and its mean is moved by [`PERTURBATION`] standard deviations in every column. For covariances with
/// correlations these are the rows' sums of the Cholesky factor, so that the halves differ by 0.2 in each whitened
/// coordinate.
///
/// # Errors
/// As for [`start`](super::start()).
///
/// Cost: [`ITERATIONS`] passes with 2, 4, .. components: about as many as with `k` components.
pub(super) fn mix_up(rows: &mut dyn Resident, start: Start<'_>) -> Result<(Mixture, usize), Error> {
    let Start { shift, kind, k, reg_covar, rule, .. } = start;
    let centre = Array2::from_shape_vec((1, shift.len()), shift.to_vec()).expect("d values");
    let statistics = rows.nearest(kind, centre.view())?;
    check(&statistics, 0)?;
    let mut now = rule.step_towards_start(&statistics, reg_covar, None).map_err(|e| singular(e, 0))?.mixture;
    let floor = now.covariances().matrix(0, shift.len()).diag().mapv(|v| FLOOR * v);
    let mut empty = 0;
    while now.n_components() < k {
        now = doubled(&now, k.min(2 * now.n_components()))?;
        if now.n_components() == k {
            break;
        }
        for _ in 0..ITERATIONS {
            let statistics = rows.pass(&now)?;
            check(&statistics, 0)?;
            let step = rule.step_towards_start(&statistics, reg_covar, Some(&now)).map_err(|e| singular(e, 0))?;
            (now, empty) = (floored(step.mixture, &floor)?, step.empty.len());
        }
    }
    debug_assert!(now.covariance_type() == kind);
    Ok((now, empty))
}

/// Splits the heaviest component until there are `k`. No half is split again before all whole components, if none is more
/// than twice as heavy as another.
fn doubled(mixture: &Mixture, k: usize) -> Result<Mixture, Error> {
    let mut order: Vec<usize> = (0..mixture.n_components()).collect();
    let mut weights: Vec<f64> = mixture.weights().to_vec();
    let mut means = mixture.means().to_owned();
    let steps: Vec<Array1<f64>> = order.iter().map(|&c| step(mixture, c)).collect();
    while order.len() < k {
        let c = (1..order.len()).fold(0, |best, c| if weights[c] > weights[best] { c } else { best });
        weights[c] *= 0.5;
        weights.push(weights[c]);
        let of = order[c];
        order.push(of);
        let (less, more) = (&means.row(c) - &steps[of], &means.row(c) + &steps[of]);
        means.row_mut(c).assign(&less);
        means.push_row(more.view()).expect("d columns");
    }
    let covariances = match mixture.covariances() {
        Covariances::Full(all) => Covariances::Full(all.select(Axis(0), &order)),
        Covariances::Tied(one) => Covariances::Tied(one.clone()),
        Covariances::Diag(all) => Covariances::Diag(all.select(Axis(0), &order)),
        Covariances::Spherical(all) => Covariances::Spherical(all.select(Axis(0), &order)),
    };
    Ok(Mixture::new(Array1::from_vec(weights), means, covariances)?)
}

/// The move of a half's mean: the factor of the covariance times [`PERTURBATION`] in each coordinate.
fn step(mixture: &Mixture, c: usize) -> Array1<f64> {
    mixture.factors().dense(c, mixture.n_features()).sum_axis(Axis(1)) * PERTURBATION
}

/// Raises variances to `floor`, `(d,)`, or for spherical to its mean; full and tied covariances stay.
fn floored(mixture: Mixture, floor: &Array1<f64>) -> Result<Mixture, Error> {
    let covariances = match (mixture.covariance_type(), mixture.covariances()) {
        (CovarianceType::Diag, Covariances::Diag(all)) => {
            let mut all = all.clone();
            all.outer_iter_mut().for_each(|mut row| row.zip_mut_with(floor, |v, least| *v = v.max(*least)));
            Covariances::Diag(all)
        }
        (CovarianceType::Spherical, Covariances::Spherical(all)) => {
            let least = floor.mean().unwrap_or(0.0);
            Covariances::Spherical(all.mapv(|v| v.max(least)))
        }
        _ => return Ok(mixture),
    };
    Ok(Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), covariances)?)
}
