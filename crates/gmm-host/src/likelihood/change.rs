//! Changes of one component: the new parameters, and which components differ.

use gmm_model::{CovarianceType, Covariances, Mixture, ModelError};
use ndarray::{Array1, Axis, aview1};

use super::check_len;

/// The parameters that a step changes; `None` leaves a parameter unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComponentChange<'a> {
    /// All component weights, `(k,)`, since one weight cannot change without the others.
    pub weights: Option<&'a [f64]>,
    /// The component's mean, `(d,)`.
    pub mean: Option<&'a [f64]>,
    /// The component's covariance: full `(d, d)` in row-major order, diag `(d,)` variances, spherical one variance.
    /// Tied: the covariance of all components, `(d, d)`.
    pub covariance: Option<&'a [f64]>,
}

/// Whether component `c` differs in mean or covariance between two mixtures of the same kind and shape.
pub(super) fn differs(a: &Mixture, b: &Mixture, c: usize) -> bool {
    let covariances = match (a.covariances(), b.covariances()) {
        (Covariances::Full(a), Covariances::Full(b)) => a.index_axis(Axis(0), c) != b.index_axis(Axis(0), c),
        (Covariances::Tied(a), Covariances::Tied(b)) => a != b,
        (Covariances::Diag(a), Covariances::Diag(b)) => a.row(c) != b.row(c),
        (Covariances::Spherical(a), Covariances::Spherical(b)) => a[c] != b[c],
        _ => true,
    };
    covariances || a.means().row(c) != b.means().row(c)
}

/// The mixture with one component changed.
pub(super) fn changed(mixture: &Mixture, c: usize, change: ComponentChange<'_>) -> Result<Mixture, ModelError> {
    let (k, d) = mixture.means().dim();
    if c >= k {
        let must = "below the number of components";
        return Err(ModelError::Range { what: "component", value: c.to_string(), must });
    }
    let weights = change.weights.map_or_else(|| mixture.weights().to_owned(), |w| Array1::from(w.to_vec()));
    let mut means = mixture.means().to_owned();
    if let Some(mean) = change.mean {
        check_len("the component's mean", mean.len(), d)?;
        means.row_mut(c).assign(&aview1(mean));
    }
    let mut covariances = mixture.covariances().clone();
    if let Some(values) = change.covariance {
        let expected = match mixture.covariance_type() {
            CovarianceType::Full | CovarianceType::Tied => d * d,
            CovarianceType::Diag => d,
            CovarianceType::Spherical => 1,
        };
        check_len("the component's covariance", values.len(), expected)?;
        match &mut covariances {
            Covariances::Full(a) => a.index_axis_mut(Axis(0), c).iter_mut().zip(values).for_each(|(s, v)| *s = *v),
            Covariances::Tied(a) => a.iter_mut().zip(values).for_each(|(s, v)| *s = *v),
            Covariances::Diag(a) => a.row_mut(c).assign(&aview1(values)),
            Covariances::Spherical(a) => a[c] = values[0],
        }
    }
    Mixture::new(weights, means, covariances)
}
