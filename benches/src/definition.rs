//! Reads `benches/definitions/cpu.toml`.

use std::path::Path;

use anyhow::{Context, Result};
pub(crate) use gmm_bench::Shape;
use gmm_bench::definition::{Tolerance, precisions};
use gmm_model::{CovarianceType, Precision};
use serde::Deserialize;

/// The definition of the CPU benchmarks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// Covariance kinds, run for every shape.
    pub(crate) covariances: Vec<CovarianceType>,
    /// Precisions, run for every shape and kind.
    #[serde(deserialize_with = "precisions")]
    pub(crate) precisions: Vec<Precision>,
    /// Seed of the data.
    pub(crate) seed: u64,
    /// Added to the covariances' diagonals by every program.
    pub(crate) reg_covar: f64,
    /// Maximum error of an answer against the reference.
    pub(crate) tolerance: Tolerance,
    /// The plan for a record.
    pub(crate) record: Plan,
    /// The plan for `--quick`.
    pub(crate) quick: Plan,
}

impl Definition {
    /// The plan to run.
    pub(crate) const fn plan(&self, quick: bool) -> &Plan {
        if quick { &self.quick } else { &self.record }
    }
}

/// Shapes, and the number of measurements of each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// Number of turns of each program.
    pub(crate) pairs: usize,
    /// Shapes in the order in which they are run.
    pub(crate) shapes: Vec<Shape>,
}

/// Reads a definition.
///
/// # Errors
/// If the file cannot be read, or a field is missing, unknown or of the wrong type.
pub(crate) fn read(path: &Path) -> Result<Definition> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("in {}", path.display()))
}
