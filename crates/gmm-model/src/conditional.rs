//! The mixture of some columns given others: Gaussian mixture regression.
//!
//! With the given columns `a` first and the targets `b` after them, let `Σ = L Lᵀ` be a component's covariance. Then
//! `b` given `a = x` is normal with mean `μ_b + B (x − μ_a)` and covariance `S = L_bb L_bbᵀ`, where `B = L_ba L_aa⁻¹`
//! are the coefficients of the regression of `b` on `a`: Bishop 2006, eqs. 2.81 and 2.82, without an inverse, and
//! without a difference that could lose positive definiteness. The components' weights are their posterior
//! probabilities given `x`: the responsibilities of the marginal mixture on `a` (Sung 2004, "Gaussian mixture regression
//! and classification", section 2.2).

use ndarray::{Array2, Array3, ArrayView1, ArrayView2, Axis, aview1};

use crate::cholesky::dot;
use crate::marginal::check_columns;
use crate::{Cholesky, Covariances, Draws, Factors, Mixture, ModelError, reference};

/// The mixture of `t` target columns given `g` other columns, for any values of those.
///
/// ```
/// use gmm_model::{Conditional, Covariances, Mixture};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[0.0, 3.0]], Covariances::Tied(array![[4.0, 2.0], [2.0, 5.0]]))?;
/// let second = Conditional::new(&mixture, &[0], &[1])?;
/// let (mut mean, mut variance) = ([0.0], [0.0]);
/// second.moments(&[2.0], &[1.0], &mut second.workspace(), &mut mean, &mut variance);
/// // The coefficient is 2/4, the residual variance 5 − 2²/4.
/// assert_eq!((mean, variance), ([4.0], [4.0]));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conditional {
    /// The mixture of the given columns, then the targets.
    joint: Mixture,
    /// The mixture of the given columns.
    marginal: Mixture,
    /// Means of the targets, `(k, t)`. This and the other arrays are plain slices in row-major order, since each row of
    /// data reads all of them.
    target_means: Vec<f64>,
    /// `B` of each component, `(k, t, g)`; of all, `(1, t, g)`, if their covariance is one. None if all are zero.
    coefficients: Option<Vec<f64>>,
    /// Factors of the covariances `S`, as for a mixture of `t` columns.
    factors: Factors,
    /// The diagonals of `S`, `(k, t)`.
    variances: Vec<f64>,
}

impl Conditional {
    /// The mixture of the columns `targets` given the columns `given` of `mixture`. Other columns do not count.
    ///
    /// Cost: `k*(d³/3 + t*g²)` flops for full covariances.
    ///
    /// # Errors
    /// [`ModelError::Column`] if a column does not exist or is in both lists or twice in one; [`ModelError::Range`] if a
    /// list is empty; [`ModelError::NotPositiveDefinite`] with the first column that is a combination of those before
    /// it, in the order given, targets.
    pub fn new(mixture: &Mixture, given: &[usize], targets: &[usize]) -> Result<Self, ModelError> {
        let d = mixture.n_features();
        check_columns(given, d)?;
        check_columns(targets, d)?;
        let order = [given, targets].concat();
        if let Some(&index) = targets.iter().find(|column| given.contains(column)) {
            return Err(ModelError::Column { index, why: "it is a given column and a target", d });
        }
        let of_the_mixture = |error| match error {
            ModelError::NotPositiveDefinite { component, column, pivot, kind } => {
                ModelError::NotPositiveDefinite { component, column: order[column], pivot, kind }
            }
            other => other,
        };
        let joint = mixture.marginal(&order).map_err(of_the_mixture)?;
        let marginal = mixture.marginal(given).map_err(of_the_mixture)?;
        let (k, g, t) = (mixture.n_components(), given.len(), targets.len());
        let (coefficients, factors) = match joint.factors() {
            Factors::Full(all) => {
                let coefficients = all.iter().flat_map(|l| coefficients(l, g)).collect();
                (Some(coefficients), Factors::Full(all.iter().map(|l| l.trailing(g)).collect()))
            }
            Factors::Tied(l) => (Some(coefficients(l, g)), Factors::Tied(l.trailing(g))),
            Factors::Diag(sd) => (None, Factors::Diag(sd.slice(ndarray::s![.., g..]).to_owned())),
            Factors::Spherical(sd) => (None, Factors::Spherical(sd.clone())),
        };
        let target_means = mixture.means().select(Axis(1), targets).into_iter().collect();
        let variances = (0..k * t).map(|i| variance(&factors, i / t, i % t)).collect();
        Ok(Self { joint, marginal, target_means, coefficients, factors, variances })
    }

    /// The mixture of the given columns followed by the targets, `g + t` columns.
    pub const fn joint(&self) -> &Mixture {
        &self.joint
    }

    /// The mixture of the given columns. Its responsibilities for a row are the weights of the components there.
    pub const fn marginal(&self) -> &Mixture {
        &self.marginal
    }

    /// Number of components, `k`.
    pub fn n_components(&self) -> usize {
        self.joint.n_components()
    }

    /// Number of given columns, `g`.
    pub fn n_given(&self) -> usize {
        self.marginal.n_features()
    }

    /// Number of targets, `t`.
    pub fn n_targets(&self) -> usize {
        self.joint.n_features() - self.n_given()
    }

    /// The coefficients of the regression of the targets on the given columns in component `c`, `(t, g)`. `None` for
    /// diagonal and spherical covariances, where all are zero.
    pub fn coefficients(&self, c: usize) -> Option<ArrayView2<'_, f64>> {
        let shape = (self.n_targets(), self.n_given());
        Some(ArrayView2::from_shape(shape, self.own_coefficients(c)?).expect("t*g of each component"))
    }

    fn own_coefficients(&self, c: usize) -> Option<&[f64]> {
        let (all, each) = (self.coefficients.as_ref()?, self.n_targets() * self.n_given());
        Some(if all.len() == each { all } else { &all[c * each..][..each] })
    }

    /// The covariance of the targets given the other columns in component `c`, `(t, t)`; the same for all values.
    pub fn covariance(&self, c: usize) -> Array2<f64> {
        let t = self.n_targets();
        let lower = self.factors.dense(c, t);
        lower.dot(&lower.t())
    }

    /// Writes the mean of the targets in component `c`, `(t,)`, where the given columns are `x`, `(g,)`. `difference`,
    /// `(g,)`, is workspace.
    ///
    /// # Panics
    /// If `x` or `difference` is shorter than `g`.
    pub fn component_mean(&self, c: usize, x: &[f64], difference: &mut [f64], mean: &mut [f64]) {
        let (g, t) = (self.n_given(), self.n_targets());
        mean.copy_from_slice(&self.target_means[c * t..][..t]);
        let Some(coefficients) = self.own_coefficients(c) else { return };
        let difference = &mut difference[..g];
        let means = self.marginal.means();
        let centre = &means.as_slice().expect("row-major")[c * g..][..g];
        difference.iter_mut().zip(x).zip(centre).for_each(|((difference, x), centre)| *difference = x - centre);
        for (mean, coefficients) in mean.iter_mut().zip(coefficients.chunks_exact(g)) {
            *mean += dot(coefficients, difference);
        }
    }

    /// Workspace of [`moments`](Self::moments): `k*t + g` numbers.
    pub fn workspace(&self) -> Vec<f64> {
        vec![0.0; self.n_components() * self.n_targets() + self.n_given()]
    }

    /// Writes the mean and the variance of each target, `(t,)` each, where the given columns are `x`, `(g,)`, and the
    /// components have these `responsibilities`, `(k,)`.
    ///
    /// The variance is that of the law of total variance, `Σ r_c (S_c + (m_c − m)²)`, a sum of positive numbers.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn moments(
        &self,
        x: &[f64],
        responsibilities: &[f64],
        workspace: &mut [f64],
        mean: &mut [f64],
        variance: &mut [f64],
    ) {
        let t = self.n_targets();
        let (difference, means) = workspace.split_at_mut(self.n_given());
        // A component of responsibility 0 does not count, even if its mean overflows.
        let counted = || responsibilities.iter().enumerate().filter(|(_, r)| **r > 0.0);
        mean.fill(0.0);
        for (c, &r) in counted() {
            let own = &mut means[c * t..][..t];
            self.component_mean(c, x, difference, own);
            mean.iter_mut().zip(own).for_each(|(mean, own)| *mean += r * *own);
        }
        variance.fill(0.0);
        for (c, &r) in counted() {
            let own = means[c * t..][..t].iter().zip(&self.variances[c * t..]);
            for ((variance, mean), (own, residual)) in variance.iter_mut().zip(&*mean).zip(own) {
                *variance += r * (residual + (own - mean).powi(2));
            }
        }
    }

    /// Draws the targets, `(t,)`, where the given columns are `x` and the components have these `cumulative`
    /// responsibilities, `(k,)`. Takes [`uniforms`](Self::uniforms) uniforms. `workspace` is that of
    /// [`moments`](Self::moments).
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn draw(&self, x: &[f64], cumulative: &[f64], draws: &mut Draws, workspace: &mut [f64], out: &mut [f64]) {
        let (difference, rest) = workspace.split_at_mut(self.n_given());
        let z = &mut rest[..out.len()];
        let c = draws.weighted_index(cumulative);
        draws.fill_normal(z);
        self.component_mean(c, x, difference, out);
        match &self.factors {
            Factors::Full(all) => all[c].add_product(z, out),
            Factors::Tied(one) => one.add_product(z, out),
            Factors::Diag(sd) => out.iter_mut().zip(z).zip(sd.row(c)).for_each(|((x, z), sd)| *x += sd * *z),
            Factors::Spherical(sd) => out.iter_mut().zip(z).for_each(|(x, z)| *x += sd[c] * *z),
        }
    }

    /// Number of uniforms that [`draw`](Self::draw) takes.
    pub fn uniforms(&self) -> usize {
        1 + Draws::normal_uniforms(self.n_targets())
    }

    /// The mixture of the targets where the given columns are `x`, `(g,)`. The covariance kind stays.
    ///
    /// The weights are normalised in log space, so they are accurate far out in the tails. If all densities underflow,
    /// they are the prior weights.
    ///
    /// # Errors
    /// [`ModelError::Range`] if a value is not finite; [`ModelError::Shape`] if their number is not `g`;
    /// [`ModelError::NotFinite`] if a mean overflows.
    pub fn at(&self, x: &[f64]) -> Result<Mixture, ModelError> {
        let (k, g, t) = (self.n_components(), self.n_given(), self.n_targets());
        if x.len() != g {
            let (found, expected) = (vec![x.len()], vec![g]);
            return Err(ModelError::Shape { what: "values of the given columns", found, expected });
        }
        if let Some(value) = x.iter().find(|v| !v.is_finite()) {
            return Err(ModelError::Range { what: "given value", value: value.to_string(), must: "finite" });
        }
        let weights = reference::posterior(&self.marginal, aview1(x)).1;
        let (mut means, mut difference) = (Array2::zeros((k, t)), vec![0.0; g]);
        for (c, mut mean) in means.outer_iter_mut().enumerate() {
            self.component_mean(c, x, &mut difference, mean.as_slice_mut().expect("row-major"));
        }
        Mixture::new(weights, means, self.covariances())
    }

    /// The log density of the targets `y`, `(t,)`, where the given columns are `x`, `(g,)`: naive, for rows whose
    /// density given columns underflows. −∞ if a mean overflows.
    pub fn log_density(&self, x: &[f64], y: ArrayView1<'_, f64>) -> f64 {
        self.at(x).map_or(f64::NEG_INFINITY, |mixture| reference::posterior(&mixture, y).0)
    }

    /// The covariances of the targets, in the shape of their kind.
    fn covariances(&self) -> Covariances {
        let (k, t) = (self.n_components(), self.n_targets());
        let of_component = |c: usize, i: usize| self.variances[c * t + i];
        match &self.factors {
            Factors::Full(_) => {
                let mut all = Array3::zeros((k, t, t));
                all.outer_iter_mut().enumerate().for_each(|(c, mut a)| a.assign(&self.covariance(c)));
                Covariances::Full(all)
            }
            Factors::Tied(_) => Covariances::Tied(self.covariance(0)),
            Factors::Diag(_) => Covariances::Diag(Array2::from_shape_fn((k, t), |(c, i)| of_component(c, i))),
            Factors::Spherical(_) => Covariances::Spherical((0..k).map(|c| of_component(c, 0)).collect()),
        }
    }
}

impl Mixture {
    /// The conditional mixture of all other columns, in their order, given that the columns `given` have the values
    /// `values`: [`Conditional`] for one row. Cost: `k*d³/3` flops (full).
    ///
    /// # Errors
    /// As for [`Conditional::new`] and [`Conditional::at`]; [`ModelError::Range`] if `given` is all columns.
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
        check_columns(given, self.n_features())?;
        let others: Vec<usize> = (0..self.n_features()).filter(|j| !given.contains(j)).collect();
        if others.is_empty() {
            let must = "fewer than all columns, so that some are left";
            return Err(ModelError::Range { what: "given columns", value: format!("{given:?}"), must });
        }
        Conditional::new(self, given, &others)?.at(values)
    }
}

/// `L_ba L_aa⁻¹` in row-major order, `(t, g)`, of a factor with the `g` given columns first: `L_aaᵀ b = l` for each row
/// `l` of `L_ba`.
fn coefficients(factor: &Cholesky, g: usize) -> Vec<f64> {
    let given = factor.leading(g);
    let mut out = Vec::with_capacity((factor.dim() - g) * g);
    for target in g..factor.dim() {
        let start = out.len();
        out.extend_from_slice(&factor.row(target)[..g]);
        given.solve_lower_transposed(&mut out[start..]);
    }
    out
}

/// Diagonal entry `i` of the covariance of component `c`.
fn variance(factors: &Factors, c: usize, i: usize) -> f64 {
    let squares = |l: &Cholesky| dot(l.row(i), l.row(i));
    match factors {
        Factors::Full(all) => squares(&all[c]),
        Factors::Tied(one) => squares(one),
        Factors::Diag(sd) => sd[[c, i]].powi(2),
        Factors::Spherical(sd) => sd[c].powi(2),
    }
}
