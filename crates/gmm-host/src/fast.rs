//! Measures the loss of accuracy by iterating in lower precision ([`FitOptions::fast`](crate::FitOptions::fast)).

use std::fmt;
use std::ops::ControlFlow;

use gmm_model::{Covariances, Mixture};

use crate::em::{self, EmOptions};
use crate::{Error, Resident, path_names};

/// Whether the path of this name has lower precision than the rows: its operands are single fp16 numbers, not split
/// ones.
pub(crate) fn is_fast(path: &str) -> bool {
    [path_names::CHUNKED_FP16, path_names::WGMMA_FP16].contains(&path)
}

/// The difference between one iteration on an fp16 path and one in full precision, both from the fitted mixture and
/// over all rows. All fields are NaN if either iteration fails numerically, for instance with a singular covariance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastLoss {
    /// Absolute difference of the mean log-likelihoods at the E-step, in nats per row.
    pub log_likelihood: f64,
    /// Largest absolute difference of a weight.
    pub weights: f64,
    /// Root mean square difference of the means over components and columns, in standard deviations of each component's
    /// column.
    pub means: f64,
    /// Frobenius norm of the difference of the covariances, relative to their norm.
    pub covariances: f64,
}

impl fmt::Display for FastLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "measured on one iteration: log-likelihood {:.1e} a row, weights {:.1e}, means {:.1e} standard deviations, \
             covariances {:.1e} relative",
            self.log_likelihood, self.weights, self.means, self.covariances
        )
    }
}

/// Measures the loss of accuracy: runs one iteration from `fitted` with `fast` set and one without. `None` if no fp16
/// path ran. Only `reg_covar` and `precision` of `options` are used.
///
/// Cost: one iteration of each kind.
///
/// # Errors
/// Any error of the engine.
pub fn loss(rows: &mut dyn Resident, fitted: &Mixture, options: &EmOptions) -> Result<Option<FastLoss>, Error> {
    let mut one = |fast: bool| {
        let options = EmOptions { max_iter: 1, tol: 0.0, autotune: false, fast, ..*options };
        em::run(rows, fitted.clone(), &options, 0, &mut |_| ControlFlow::Continue(()))
    };
    let (fast, accurate) = match (one(true), one(false)) {
        (Ok(fast), Ok(accurate)) => (fast, accurate),
        // The fit itself succeeded: report NaN, not an error.
        (Err(error), _) | (_, Err(error)) if error.is_numerical() => {
            let none = f64::NAN;
            return Ok(Some(FastLoss { log_likelihood: none, weights: none, means: none, covariances: none }));
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    if fast.on_device.is_none_or(|on| !is_fast(on.path)) {
        return Ok(None);
    }
    let (a, b) = (&fast.mixture, &accurate.mixture);
    let (k, d) = b.means().dim();
    let weights = a.weights().iter().zip(b.weights()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (means_a, means_b, mut means) = (a.means(), b.means(), 0.0);
    for c in 0..k {
        let variances = b.covariances().matrix(c, d).into_diag();
        for j in 0..d {
            means += (means_a[[c, j]] - means_b[[c, j]]).powi(2) / variances[j];
        }
    }
    let (mut off, mut norm) = (0.0, 0.0);
    for (a, b) in values(a.covariances()).zip(values(b.covariances())) {
        off += (a - b).powi(2);
        norm += b * b;
    }
    Ok(Some(FastLoss {
        log_likelihood: (fast.trace[0] - accurate.trace[0]).abs(),
        weights,
        means: (means / (k * d) as f64).sqrt(),
        covariances: (off / norm).sqrt(),
    }))
}

fn values(covariances: &Covariances) -> Box<dyn Iterator<Item = f64> + '_> {
    match covariances {
        Covariances::Full(all) => Box::new(all.iter().copied()),
        Covariances::Tied(all) | Covariances::Diag(all) => Box::new(all.iter().copied()),
        Covariances::Spherical(all) => Box::new(all.iter().copied()),
    }
}
