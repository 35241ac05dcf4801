//! How rows are stored for passes of EM.

use serde::{Deserialize, Serialize};

use crate::Precision;

/// How an engine stores rows: as `x − shift`, computed in `f64` and rounded once to `precision`. Passes with the same
/// storage of the same rows round alike, whichever process runs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowStorage {
    /// The precision after the rounding.
    pub precision: Precision,
    /// The shift, `(d,)`.
    pub shift: Vec<f64>,
}
