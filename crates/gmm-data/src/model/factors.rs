//! The field `factors` of a model: loadings and uniquenesses of a mixture of factor analysers.

use gmm_model::{FactorLoadings, Mixture};
use ndarray::{Array2, Array3, Axis};
use serde::{Deserialize, Serialize};

use crate::Problem;
use crate::error::Fault;

/// The numbers of the field: the covariance of component `c` is `loadings[c] loadings[c]ᵀ + diag(uniquenesses[c])`.
#[derive(Serialize, Deserialize)]
pub(super) struct FactorsField {
    /// A row for each column of the data, of a number for each factor; for each component.
    loadings: Vec<Vec<Vec<f64>>>,
    /// A number for each column of the data; for each component.
    uniquenesses: Vec<Vec<f64>>,
}

impl FactorsField {
    pub(super) fn of(factors: &FactorLoadings) -> Self {
        let FactorLoadings { loadings, uniquenesses } = factors;
        let rows = |matrix: ndarray::ArrayView2<'_, f64>| matrix.outer_iter().map(|row| row.to_vec()).collect();
        Self { loadings: loadings.axis_iter(Axis(0)).map(rows).collect(), uniquenesses: rows(uniquenesses.view()) }
    }

    /// The mixture, whose covariances these are the factors of.
    pub(super) fn with(self, mixture: Mixture) -> Result<Mixture, Fault> {
        let bad = |problem| Fault::field("factors", problem);
        let (k, d) = mixture.means().dim();
        let h = self.loadings.first().and_then(|rows| rows.first()).map_or(0, Vec::len);
        let uneven =
            || bad(Problem::Field(format!("it must have {k} times {d} rows of loadings, and of {d} uniquenesses")));
        let even = self.loadings.iter().all(|rows| rows.len() == d && rows.iter().all(|row| row.len() == h));
        if !even || self.uniquenesses.iter().any(|row| row.len() != d) {
            return Err(uneven());
        }
        let (loadings, uniquenesses) = (self.loadings.concat().concat(), self.uniquenesses.concat());
        let factors = FactorLoadings {
            loadings: Array3::from_shape_vec((k, d, h), loadings).map_err(|_| uneven())?,
            uniquenesses: Array2::from_shape_vec((k, d), uniquenesses).map_err(|_| uneven())?,
        };
        mixture.with_loadings(factors).map_err(|error| bad(Problem::Model(error)))
    }
}
