//! Rows with measurement errors on the reference engine.

use gmm_model::deconvolution::reference::{self, Measurement};
use gmm_model::{Dataset, Mixture, Statistics};

use super::MeasuredPasses;
use crate::{Error, EvaluateOptions, Evaluation};

/// Passes by the naive reference.
pub(crate) struct NaivePasses(Dataset);

impl NaivePasses {
    pub(crate) const fn new(data: Dataset) -> Self {
        Self(data)
    }
}

impl MeasuredPasses for NaivePasses {
    fn pass(&self, mixture: &Mixture) -> Result<Statistics, Error> {
        Ok(reference::statistics(mixture, &self.0))
    }

    fn evaluate(&self, mixture: &Mixture, mut want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        let mut out = Evaluation::NOTHING;
        for row in 0..self.0.n_rows() {
            let (log_density, r) = reference::posterior(mixture, &Measurement::of(&self.0, row));
            out.add_row(self.0.weight(row), log_density, r.view());
            want.put_row(row, log_density, r.view());
        }
        Ok(out)
    }

    fn of_rows(&self, data: Dataset) -> Result<Box<dyn MeasuredPasses>, Error> {
        Ok(Box::new(Self(data)))
    }
}
