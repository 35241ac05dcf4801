//! Our side of a comparison: rows resident in an engine, iterated with the library's M-step.

use anyhow::Result;
use gmm_bench::timing::Limits;
use gmm_host::{Engine, Resident};
use gmm_model::{Dataset, Matrix, Mixture, Precision, m_step};

use crate::workload::Workload;

/// Resident rows and the current mixture.
pub(crate) struct Ours {
    rows: Box<dyn Resident>,
    mixture: Mixture,
    reg_covar: f64,
}

impl Ours {
    /// Loads the rows, and sets the mixture from which iterations start.
    ///
    /// # Errors
    /// Any error of loading them.
    pub(crate) fn start(
        engine: &dyn Engine,
        workload: &Workload,
        precision: Precision,
        mixture: Mixture,
        reg_covar: f64,
    ) -> Result<Self> {
        let rows = engine.load(&dataset(workload, precision)?, precision, &workload.shift())?;
        Ok(Self { rows, mixture, reg_covar })
    }

    /// Iterates for one turn; returns mean seconds per iteration.
    pub(crate) fn iterate(&mut self, limits: Limits) -> Result<f64> {
        limits.mean(|| {
            let statistics = self.rows.pass(&self.mixture)?;
            self.mixture = m_step(&statistics, self.reg_covar, Some(&self.mixture))?.mixture;
            Ok(())
        })
    }

    /// The current mixture.
    pub(crate) const fn mixture(&self) -> &Mixture {
        &self.mixture
    }
}

/// The rows in a precision, rounded as the peer rounds them.
pub(crate) fn dataset(workload: &Workload, precision: Precision) -> Result<Dataset> {
    let rows: Matrix = match precision {
        Precision::F64 => workload.rows.clone().into(),
        Precision::F32 => workload.rows.mapv(|v| v as f32).into(),
    };
    Ok(Dataset::new(rows)?)
}
