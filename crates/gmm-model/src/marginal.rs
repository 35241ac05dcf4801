//! Marginal mixtures on chosen columns.

use ndarray::{Array2, Array3, Axis};

use crate::{Covariances, Mixture, ModelError};

impl Mixture {
    /// The marginal mixture on the given `columns`, in the order given; covariance kind and weights stay.
    ///
    /// The marginal of a Gaussian is the Gaussian of the chosen entries (Bishop 2006, eq. 2.98).
    ///
    /// # Errors
    /// [`ModelError::Column`] if a column does not exist or is given twice; [`ModelError::Range`] if `columns` is
    /// empty.
    ///
    /// ```
    /// use gmm_model::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[1.0, 2.0]], Covariances::Diag(array![[3.0, 4.0]]))?;
    /// let second = mixture.marginal(&[1])?;
    /// assert_eq!((second.means()[[0, 0]], second.covariances()), (2.0, &Covariances::Diag(array![[4.0]])));
    /// # Ok::<(), gmm_model::ModelError>(())
    /// ```
    pub fn marginal(&self, columns: &[usize]) -> Result<Self, ModelError> {
        check_columns(columns, self.n_features())?;
        let (k, d, o) = (self.n_components(), self.n_features(), columns.len());
        let covariances = match self.covariances() {
            Covariances::Full(a) => {
                let all = chosen(a.as_slice().expect("row-major"), d, columns);
                Covariances::Full(Array3::from_shape_vec((k, o, o), all).expect("o*o of each component"))
            }
            Covariances::Tied(a) => {
                let all = chosen(a.as_slice().expect("row-major"), d, columns);
                Covariances::Tied(Array2::from_shape_vec((o, o), all).expect("o*o values"))
            }
            Covariances::Diag(a) => Covariances::Diag(a.select(Axis(1), columns)),
            Covariances::Spherical(a) => Covariances::Spherical(a.clone()),
        };
        Self::of_checked(self.weights().to_owned(), self.means().select(Axis(1), columns), covariances)
    }
}

/// The given rows and columns of `(d, d)` matrices, one after another. Plain loops: passes over rows with missing values do
/// this for each pattern in each iteration.
fn chosen(matrices: &[f64], d: usize, columns: &[usize]) -> Vec<f64> {
    let mut out = Vec::with_capacity(matrices.len() / (d * d) * columns.len() * columns.len());
    for matrix in matrices.chunks_exact(d * d) {
        for &i in columns {
            let row = &matrix[i * d..][..d];
            out.extend(columns.iter().map(|&j| row[j]));
        }
    }
    out
}

/// Checks that `columns` are some of `d` columns, each at most once.
pub(crate) fn check_columns(columns: &[usize], d: usize) -> Result<(), ModelError> {
    if columns.is_empty() {
        return Err(ModelError::Range { what: "columns", value: "[]".to_owned(), must: "at least one" });
    }
    let mut seen = vec![false; d];
    for &index in columns {
        match seen.get_mut(index) {
            None => return Err(ModelError::Column { index, why: "there is no such column", d }),
            Some(true) => return Err(ModelError::Column { index, why: "it is given twice", d }),
            Some(seen) => *seen = true,
        }
    }
    Ok(())
}
