//! The answer before the time: an engine's against the naive reference's, on as many rows as are timed.
//!
//! The rows repeat some different ones, which the reference gets once each, with their number as weight. So the engine takes
//! the way that is timed, and the reference does not take hours.

use std::cell::OnceCell;
use std::path::Path;

use anyhow::Result;
use gmm_host::{Engine, Fit, FitOptions, Init, Likelihood, ReferenceEngine, fit};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, reference};

use crate::Shape;
use crate::parameters::Parameters;
use crate::peer::Peer;
use crate::source::Source;

/// Iterations after which mixtures are compared: the second begins from the first's.
const ITERATIONS: usize = 2;
/// Added to the diagonals meanwhile: few different rows for many components leave singular covariances.
const REG_COVAR: f64 = 1.0;

/// Different rows, as many as the reference takes some tenths of a second for; they are no multiple of a tile, so that one
/// left out or counted twice shows.
pub(crate) fn different_rows(Shape { n, k, d }: Shape) -> usize {
    let each = (k * d * d) as f64;
    [997, 499, 251, 127].into_iter().find(|rows| *rows as f64 * each <= 5e8).unwrap_or(53).max(2 * k + 1).min(n)
}

/// What fits and likelihoods of a size are about: rows that are timed, rows that repeat a few for the check, and those few
/// with weights for the reference.
pub(crate) struct Mixed {
    /// Rows that are all different: what is timed.
    pub(crate) data: Dataset,
    /// The parameters to start from.
    pub(crate) start: Mixture,
    /// In which rows are held.
    pub(crate) precision: Precision,
    repeated: Dataset,
    few: Dataset,
    /// The reference's answers are found once for all engines.
    fitted: OnceCell<Fit>,
}

/// The file of the rows that peers read.
const ROWS: &str = "rows.npy";

impl Mixed {
    /// For a kind and precision.
    ///
    /// # Errors
    /// What drawing says.
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

    /// Largest difference of the parameters after [`ITERATIONS`] from the reference's, relative to the largest entry of the
    /// same array, or that of the log-likelihoods on the way, relative; whichever is more.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn em(&self, engine: &dyn Engine) -> Result<f64> {
        let options = FitOptions {
            covariance_type: self.start.covariance_type(),
            init: Init::Given(Box::new(self.start.clone())),
            tol: 0.0,
            max_iter: ITERATIONS,
            reg_covar: REG_COVAR,
            precision: Some(self.precision),
            ..FitOptions::new(self.start.n_components())
        };
        // Few rows and many components: that is how they are meant here.
        let truth = match self.fitted.get() {
            Some(truth) => truth,
            None => {
                let truth = fit(&ReferenceEngine, &self.few, &options)?;
                self.fitted.get_or_init(|| truth)
            }
        };
        let found = fit(engine, &self.repeated, &options)?;
        let parameters = Parameters::of(&found.mixture).error(&Parameters::of(&truth.mixture));
        let traces = found.summary.trace.iter().zip(&truth.summary.trace).map(|(a, b)| relative(*a, *b));
        let same_length = found.summary.trace.len() == truth.summary.trace.len();
        Ok(traces.fold(if same_length { parameters } else { f64::INFINITY }, f64::max))
    }

    /// Difference of the log-likelihood from the naive sum, relative.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn likelihood(&self, engine: &dyn Engine) -> Result<f64> {
        let each = reference::log_densities(&self.start, self.few.rows().to_f64().view());
        let weights = self.few.weights().unwrap_or_default();
        let truth: f64 = each.iter().zip(weights).map(|(value, weight)| weight * value).sum();
        Ok(relative(Likelihood::new(engine, &self.repeated, self.precision)?.value(&self.start)?, truth))
    }

    /// Writes the timed rows for peers.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub(crate) fn hand_out(&self, folder: &Path) -> Result<()> {
        Ok(gmm_data::write_table(folder.join(ROWS), &gmm_data::Table::new(self.data.rows().clone()))?)
    }

    /// Has a peer read the rows and take the start.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn load_peer(&self, peer: &mut Peer, folder: &Path) -> Result<()> {
        peer.load(&folder.join(ROWS), self.precision)?;
        peer.start_from(&self.start, crate::em::REG_COVAR)
    }
}

/// `|a − b| / |b|`; infinite for what is not a number.
pub(crate) fn relative(a: f64, b: f64) -> f64 {
    let error = (a - b).abs() / b.abs().max(f64::MIN_POSITIVE);
    if error.is_finite() { error } else { f64::INFINITY }
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
            // The engine is given the rows of a smaller size: what an engine that leaves some out would make of these.
            let fewer = Source::new(Shape { n: 2400, ..shape }, 1).unwrap();
            mixed.repeated = Mixed::new(&fewer, kind, Precision::F64).unwrap().repeated;
            assert!(mixed.em(&engine).unwrap() > 1e-6, "{kind}");
            assert!(mixed.likelihood(&engine).unwrap() > 1e-3, "{kind}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_wrong() {
        assert_eq!(relative(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(relative(99.0, 100.0), 0.01);
    }
}
