//! Checks an engine's answer against the naive reference before it is timed, with as many rows as will be timed.
//!
//! These rows repeat a few distinct ones. The reference gets each distinct row once, weighted by its number of
//! repetitions. The engine thus takes the same code path as when it is timed, and the reference does not take hours.

use std::cell::OnceCell;
use std::path::Path;

use anyhow::Result;
use gmm_host::{Engine, Fit, FitOptions, Init, Likelihood, ReferenceEngine, fit};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, reference};

use crate::Shape;
use crate::difference::{largest_of, relative};
use crate::parameters::Parameters;
use crate::peer::Peer;
use crate::source::Source;

/// `reg_covar`, added to the covariances' diagonals, of timed fits (ours and the peers'): scikit-learn's default.
pub const REG_COVAR: f64 = 1e-6;

/// Iterations after which mixtures are compared. The second starts from the first's result.
const ITERATIONS: usize = 2;
/// `reg_covar` of the check: with few distinct rows and many components, covariances would otherwise be singular.
const FEW_ROWS_REG_COVAR: f64 = 1.0;

/// Number of distinct rows: as many as the reference handles in some tenths of a second. It is not a multiple of a
/// tile's size, so that a tile left out or counted twice changes the result.
pub(crate) fn different_rows(Shape { n, k, d }: Shape) -> usize {
    let each = (k * d * d) as f64;
    [997, 499, 251, 127].into_iter().find(|rows| *rows as f64 * each <= 5e8).unwrap_or(53).max(2 * k + 1).min(n)
}

/// The data of fits and likelihoods of one size: rows to time, rows that repeat a few for the check, and those few with
/// weights for the reference.
pub(crate) struct Mixed {
    /// The timed rows, all distinct.
    pub(crate) data: Dataset,
    /// The parameters to start from.
    pub(crate) start: Mixture,
    /// The type of the rows.
    pub(crate) precision: Precision,
    repeated: Dataset,
    few: Dataset,
    /// The reference's fit, computed once for all engines.
    fitted: OnceCell<Fit>,
}

/// The file from which peers read the rows.
const ROWS: &str = "rows.npy";

impl Mixed {
    /// Draws the data for a covariance kind and a precision.
    ///
    /// # Errors
    /// Any error of drawing them.
    pub(crate) fn new(source: &Source, kind: CovarianceType, precision: Precision) -> Result<Self> {
        let n = source.shape.n;
        let different = different_rows(source.shape);
        let (distinct, repeated) = source.repeated(different, n, precision, false)?;
        let times = |i: usize| (n / different + usize::from(i < n % different)) as f64;
        let weights = (0..different).map(times).collect();
        let few = Dataset::new(distinct)?.with_weights(weights)?;
        let (data, start) = (source.rows(n, precision)?, source.start(kind, false)?);
        Ok(Self { data, start, precision, repeated, few, fitted: OnceCell::new() })
    }

    /// The error of an engine's fit against the reference, after [`ITERATIONS`]: the larger of the parameters' largest
    /// difference, relative to the largest entry of the same array, and the largest relative difference of the
    /// iterations' log-likelihoods.
    ///
    /// # Errors
    /// Any error of the engine.
    pub(crate) fn em(&self, engine: &dyn Engine) -> Result<f64> {
        let options = FitOptions {
            covariance_type: self.start.covariance_type(),
            init: Init::Given(Box::new(self.start.clone())),
            tol: 0.0,
            max_iter: ITERATIONS,
            reg_covar: FEW_ROWS_REG_COVAR,
            precision: Some(self.precision),
            ..FitOptions::new(self.start.n_components())
        };
        // The reference may be given fewer rows than a real fit would need; that is intended here.
        let truth = match self.fitted.get() {
            Some(truth) => truth,
            None => {
                let truth = fit(&ReferenceEngine, &self.few, &options)?;
                self.fitted.get_or_init(|| truth)
            }
        };
        let found = fit(engine, &self.repeated, &options)?;
        let parameters = Parameters::of(&found.mixture).error(&Parameters::of(&truth.mixture));
        Ok(parameters.max(largest_of(&found.summary.trace, &truth.summary.trace, relative)))
    }

    /// The relative difference of an engine's log-likelihood from the naive sum.
    ///
    /// # Errors
    /// Any error of the engine.
    pub(crate) fn likelihood(&self, engine: &dyn Engine) -> Result<f64> {
        let each = reference::log_densities(&self.start, self.few.rows().to_f64().view());
        let weights = self.few.weights().unwrap_or_default();
        let truth: f64 = each.iter().zip(weights).map(|(value, weight)| weight * value).sum();
        Ok(relative(Likelihood::new(engine, &self.repeated, self.precision)?.value(&self.start)?, truth))
    }

    /// Writes the timed rows to a file for the peers.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn hand_out(&self, folder: &Path) -> Result<()> {
        Ok(gmm_data::write_table(folder.join(ROWS), &gmm_data::Table::new(self.data.rows().clone()))?)
    }

    /// Makes a peer read the rows and the start parameters.
    ///
    /// # Errors
    /// Any error of the peer.
    pub(crate) fn load_peer(&self, peer: &mut Peer, folder: &Path) -> Result<()> {
        peer.load(&folder.join(ROWS), self.precision)?;
        peer.start_from(&self.start, REG_COVAR)
    }
}

#[cfg(test)]
mod tests {
    use gmm_host::CpuEngine;

    use super::*;

    #[test]
    fn an_engine_that_is_right_passes_and_one_that_loses_rows_does_not() {
        let shape = Shape { n: 2500, k: 3, d: 2 };
        assert_eq!(different_rows(shape), 997);
        let source = Source::new(shape, 1).unwrap();
        let engine = CpuEngine::new(1).unwrap();
        for kind in CovarianceType::ALL {
            let mut mixed = Mixed::new(&source, kind, Precision::F64).unwrap();
            assert!(mixed.em(&engine).unwrap() < 1e-12, "{kind}");
            assert!(mixed.likelihood(&engine).unwrap() < 1e-13, "{kind}");
            // The engine gets 100 rows fewer, which simulates an engine that leaves rows out.
            let fewer = Source::new(Shape { n: 2400, ..shape }, 1).unwrap();
            mixed.repeated = Mixed::new(&fewer, kind, Precision::F64).unwrap().repeated;
            assert!(mixed.em(&engine).unwrap() > 1e-6, "{kind}");
            assert!(mixed.likelihood(&engine).unwrap() > 1e-3, "{kind}");
        }
    }
}
