//! Reading `benches/definitions/cpu.toml`.

use std::path::Path;

use anyhow::{Context, Result};
pub(crate) use gmm_bench::Shape;
use gmm_bench::definition::Tolerance;
use gmm_model::{CovarianceType, Precision};
use serde::{Deserialize, Deserializer};

/// A whole definition.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    /// Kinds to be run for every shape.
    pub(crate) covariances: Vec<CovarianceType>,
    /// Precisions to be run for every shape and kind.
    #[serde(deserialize_with = "precisions")]
    pub(crate) precisions: Vec<Precision>,
    /// Seed of the data.
    pub(crate) seed: u64,
    /// What every program adds to the diagonal.
    pub(crate) reg_covar: f64,
    /// How far an answer may be from the reference.
    pub(crate) tolerance: Tolerance,
    /// What a record is made from.
    pub(crate) record: Plan,
    /// What is run with `--quick`.
    pub(crate) quick: Plan,
}

/// Shapes, and how often each is timed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// Turns of each program.
    pub(crate) pairs: usize,
    /// Shapes in the order in which they are run.
    pub(crate) shapes: Vec<Shape>,
}

/// Reads a definition.
///
/// # Errors
/// Where the file cannot be read, or has a field too few, too many or of another type.
pub(crate) fn read(path: &Path) -> Result<Definition> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("in {}", path.display()))
}

fn precisions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Precision>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    words.iter().map(|word| word.parse().map_err(serde::de::Error::custom)).collect()
}
