//! The answer before the time: an engine's against the naive reference's, on as many rows as are timed.
//!
//! The rows repeat some different ones, which the reference gets once each, with their number as weight. So the engine takes
//! the way that is timed, and the reference does not take hours.

use anyhow::Result;
use gmm_host::{Engine, Fit, FitOptions, Init, Likelihood, ReferenceEngine, fit};
use gmm_model::{Dataset, Mixture, Precision, reference};

use crate::Shape;
use crate::parameters::Parameters;
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

/// Rows of a size, and the same in few rows with weights.
pub(crate) struct Repeated {
    rows: Dataset,
    different: Dataset,
    start: Mixture,
}

impl Repeated {
    /// For a kind and precision.
    ///
    /// # Errors
    /// What drawing says.
    pub(crate) fn new(source: &Source, start: &Mixture, precision: Precision) -> Result<Self> {
        let n = source.shape.n;
        let different = different_rows(source.shape);
        let (distinct, rows) = source.repeated(different, n, precision, false)?;
        let times = |i: usize| (n / different + usize::from(i < n % different)) as f64;
        let weights = (0..different).map(times).collect();
        let different = Dataset::new(distinct)?.with_weights(weights)?;
        Ok(Self { rows, different, start: start.clone() })
    }

    /// Largest difference of the parameters after [`ITERATIONS`] from the reference's, relative to the largest entry of the
    /// same array, or that of the log-likelihoods on the way, relative; whichever is more.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn em(&self, engine: &dyn Engine, precision: Precision) -> Result<f64> {
        let options = FitOptions {
            covariance_type: self.start.covariance_type(),
            init: Init::Given(Box::new(self.start.clone())),
            tol: 0.0,
            max_iter: ITERATIONS,
            reg_covar: REG_COVAR,
            precision: Some(precision),
            ..FitOptions::new(self.start.n_components())
        };
        // Few rows and many components: that is how they are meant here.
        let truth: Fit = fit(&ReferenceEngine, &self.different, &options)?;
        let found = fit(engine, &self.rows, &options)?;
        let parameters = Parameters::of(&found.mixture).error(&Parameters::of(&truth.mixture));
        let traces = found.summary.trace.iter().zip(&truth.summary.trace).map(|(a, b)| relative(*a, *b));
        let same_length = found.summary.trace.len() == truth.summary.trace.len();
        Ok(traces.fold(if same_length { parameters } else { f64::INFINITY }, f64::max))
    }

    /// Difference of the log-likelihood from the naive sum, relative.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn likelihood(&self, engine: &dyn Engine, precision: Precision) -> Result<f64> {
        let each = reference::log_densities(&self.start, self.different.rows().to_f64().view());
        let weights = self.different.weights().unwrap_or_default();
        let truth: f64 = each.iter().zip(weights).map(|(value, weight)| weight * value).sum();
        Ok(relative(Likelihood::new(engine, &self.rows, precision)?.value(&self.start)?, truth))
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
    use gmm_model::CovarianceType;

    use super::*;

    #[test]
    fn an_engine_that_is_right_passes_and_one_that_loses_rows_does_not() {
        let shape = Shape { n: 2500, k: 3, d: 2 };
        assert_eq!(different_rows(shape), 997);
        let source = Source::new(shape, 1).unwrap();
        let engine = CpuEngine::new(1).unwrap();
        for kind in CovarianceType::ALL {
            let start = source.start(kind, false).unwrap();
            let right = Repeated::new(&source, &start, Precision::F64).unwrap();
            assert!(right.em(&engine, Precision::F64).unwrap() < 1e-12, "{kind}");
            assert!(right.likelihood(&engine, Precision::F64).unwrap() < 1e-13, "{kind}");
            // The engine is given the rows of a smaller size: what an engine that leaves some out would make of these.
            let fewer = Source::new(Shape { n: 2400, ..shape }, 1).unwrap();
            let few = Repeated::new(&fewer, &start, Precision::F64).unwrap();
            let wrong = Repeated { rows: few.rows, different: right.different, start };
            assert!(wrong.em(&engine, Precision::F64).unwrap() > 1e-6, "{kind}");
            assert!(wrong.likelihood(&engine, Precision::F64).unwrap() > 1e-3, "{kind}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_wrong() {
        assert_eq!(relative(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(relative(99.0, 100.0), 0.01);
    }
}
