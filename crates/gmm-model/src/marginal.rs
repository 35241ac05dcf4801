//! Marginal and conditional mixtures on chosen columns.

use ndarray::{Array2, Array3, Axis, s};

use crate::{Cholesky, Covariances, Mixture, ModelError, reference};

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
        let covariances = match self.covariances() {
            Covariances::Full(a) => Covariances::Full(a.select(Axis(1), columns).select(Axis(2), columns)),
            Covariances::Tied(a) => Covariances::Tied(a.select(Axis(0), columns).select(Axis(1), columns)),
            Covariances::Diag(a) => Covariances::Diag(a.select(Axis(1), columns)),
            Covariances::Spherical(a) => Covariances::Spherical(a.clone()),
        };
        Self::new(self.weights().to_owned(), self.means().select(Axis(1), columns), covariances)
    }

    /// The conditional mixture of all other columns, in their order, given that the columns `given` have the values
    /// `values`.
    ///
    /// The weights are those of the posterior, proportional to `w_c N(values | μ_c, Σ_c)` on the given columns. They
    /// are normalised in log space, so they are accurate far out in the tails. If all densities underflow, they are the
    /// prior weights. The covariance kind stays.
    ///
    /// With the given columns first, `Σ = L Lᵀ` and `L₁₁ y = values − μ₁`, the conditional mean is `μ₂ + L₂₁ y` and the
    /// conditional covariance `L₂₂ L₂₂ᵀ`: Bishop 2006, eqs. 2.81 and 2.82, without an inverse and without a difference
    /// that could lose positive definiteness. Cost: `k*d³/3` flops (full).
    ///
    /// # Errors
    /// [`ModelError::Column`] if a column does not exist or is given twice; [`ModelError::Range`] if `given` is empty
    /// or all columns, or a value is not finite; [`ModelError::Shape`] if `values` and `given` differ in length.
    ///
    /// ```
    /// use gmm_model::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[4.0, 2.0], [2.0, 5.0]]))?;
    /// let second = mixture.conditional(&[0], &[2.0])?;
    /// assert_eq!((second.means()[[0, 0]], second.covariances()), (1.0, &Covariances::Tied(array![[4.0]])));
    /// # Ok::<(), gmm_model::ModelError>(())
    /// ```
    pub fn conditional(&self, given: &[usize], values: &[f64]) -> Result<Self, ModelError> {
        let (k, d) = self.means().dim();
        check_columns(given, d)?;
        if values.len() != given.len() {
            let (found, expected) = (vec![values.len()], vec![given.len()]);
            return Err(ModelError::Shape { what: "values of the given columns", found, expected });
        }
        if let Some(value) = values.iter().find(|v| !v.is_finite()) {
            return Err(ModelError::Range { what: "given value", value: value.to_string(), must: "finite" });
        }
        let others: Vec<usize> = (0..d).filter(|j| !given.contains(j)).collect();
        if others.is_empty() {
            let must = "fewer than all columns, so that some are left";
            return Err(ModelError::Range { what: "given columns", value: format!("{given:?}"), must });
        }
        let marginal = self.marginal(given)?;
        let weights = reference::posterior(&marginal, ndarray::aview1(values)).1;
        let mut means = self.means().select(Axis(1), &others).as_standard_layout().into_owned();
        let order = [given, &others].concat();
        let split = |c| Split::new(self, c, &order, given.len());
        let covariances = match self.covariances() {
            Covariances::Diag(a) => Covariances::Diag(a.select(Axis(1), &others)),
            Covariances::Spherical(a) => Covariances::Spherical(a.clone()),
            Covariances::Full(_) => {
                let mut all = Array3::zeros((k, others.len(), others.len()));
                for c in 0..k {
                    let split = split(c)?;
                    split.shift(values, marginal.means().row(c).as_slice(), means.row_mut(c).as_slice_mut());
                    all.slice_mut(s![c, .., ..]).assign(&split.covariance());
                }
                Covariances::Full(all)
            }
            Covariances::Tied(_) => {
                let split = split(0)?;
                for c in 0..k {
                    split.shift(values, marginal.means().row(c).as_slice(), means.row_mut(c).as_slice_mut());
                }
                Covariances::Tied(split.covariance())
            }
        };
        Self::new(weights, means, covariances)
    }
}

/// The Cholesky factor of one covariance, with the given columns first.
struct Split {
    factor: Cholesky,
    /// Number of given columns.
    given: usize,
}

impl Split {
    fn new(mixture: &Mixture, c: usize, order: &[usize], given: usize) -> Result<Self, ModelError> {
        let a = mixture.covariances().matrix(c, order.len());
        let a = a.select(Axis(0), order).select(Axis(1), order);
        let factor = Cholesky::new(a.view()).map_err(|e| ModelError::NotPositiveDefinite {
            component: c,
            column: order[e.column],
            pivot: e.pivot,
            kind: mixture.covariance_type(),
        })?;
        Ok(Self { factor, given })
    }

    /// Adds `L₂₁ y` to the mean of the other columns, where `L₁₁ y = values − mean of the given columns`.
    fn shift(&self, values: &[f64], given_mean: Option<&[f64]>, mean: Option<&mut [f64]>) {
        let (given_mean, mean) = (given_mean.expect("row-major"), mean.expect("row-major"));
        let mut y: Vec<f64> = Vec::with_capacity(self.given);
        for i in 0..self.given {
            let row = self.factor.row(i);
            let dot: f64 = row.iter().zip(&y).map(|(l, y)| l * y).sum();
            y.push((values[i] - given_mean[i] - dot) / row[i]);
        }
        for (i, m) in mean.iter_mut().enumerate() {
            *m += self.factor.row(self.given + i).iter().zip(&y).map(|(l, y)| l * y).sum::<f64>();
        }
    }

    /// `L₂₂ L₂₂ᵀ`.
    fn covariance(&self) -> Array2<f64> {
        let row = |i: usize| &self.factor.row(self.given + i)[self.given..];
        let left = self.factor.dim() - self.given;
        Array2::from_shape_fn((left, left), |(i, j)| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum())
    }
}

fn check_columns(columns: &[usize], d: usize) -> Result<(), ModelError> {
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
