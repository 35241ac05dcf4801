//! Steps of one component: what may change, and what did.

use gmm_model::{CovarianceType, Covariances, Mixture, ModelError};
use ndarray::{Array1, Axis, aview1};

use super::check_len;

/// What changes in a step; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComponentChange<'a> {
    /// All component weights, `(k,)`: one cannot change alone.
    pub weights: Option<&'a [f64]>,
    /// The component's mean, `(d,)`.
    pub mean: Option<&'a [f64]>,
    /// The component's covariance: full `(d, d)` row by row, diag `(d,)` variances, spherical one variance. Tied: the
    /// covariance of all components, `(d, d)`.
    pub covariance: Option<&'a [f64]>,
}

/// Whether a component has another mean or covariance in the two mixtures, which are of one kind and shape.
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
