//! What the observed columns say about the missing ones, per component of a mixture.

use ndarray::{Array2, ArrayView2, Axis};

use crate::cholesky::dot;
use crate::marginal::check_columns;
use crate::{Covariances, Factors, Mixture, ModelError, Statistics, packed_index, packed_len};

/// A pattern of missing values under a mixture of `d` columns: `o` of them, at least one, are observed and `m` are missing.
///
/// ```
/// use gmm_model::missing::Completion;
/// use gmm_model::{Covariances, Mixture, Statistics, reference};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[0.0, 3.0]], Covariances::Tied(array![[4.0, 2.0], [2.0, 5.0]]))?;
/// let first = Completion::new(&mixture, &[0])?;
/// let observed = reference::statistics(first.marginal(), array![[2.0]].view(), None);
/// let mut all = Statistics::of_no_rows(&mixture);
/// first.add(&observed, &mut all);
/// // The second column, given that the first is 2, has the mean 3 + 1 and the variance 5 − 2²/4.
/// assert_eq!((all.first[[0, 1]], all.second[2]), (1.0, 1.0 + 4.0));
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Completion {
    /// Ascending.
    observed: Vec<usize>,
    /// Ascending.
    missing: Vec<usize>,
    marginal: Mixture,
    /// Means of the missing columns, `(k, m)`.
    means: Array2<f64>,
    given: Given,
}

/// The distribution of the missing columns given the observed ones.
#[derive(Clone, Debug)]
enum Given {
    /// Full and tied. `coefficients` are the `B` of each component, `(k, m, o)`, or of all, `(1, m, o)`; `residual` their `S`,
    /// `(k, m, m)` or `(1, m, m)`.
    Regression { coefficients: Vec<f64>, residual: Vec<f64> },
    /// Diagonal and spherical: the variances of the missing columns, `(k, m)`.
    Variances(Array2<f64>),
}

impl Completion {
    /// The pattern in which the columns `observed`, in ascending order, are observed and all others are missing.
    ///
    /// Cost: `k*(o³/3 + m*o² + m²*o)` flops for full covariances.
    ///
    /// # Errors
    /// [`ModelError::Column`] if a column does not exist or is given twice; [`ModelError::Range`] if no column is observed,
    /// or their order is not ascending; [`ModelError::NotPositiveDefinite`] if the marginal covariance of a component is so.
    pub fn new(mixture: &Mixture, observed: &[usize]) -> Result<Self, ModelError> {
        let d = mixture.n_features();
        check_columns(observed, d)?;
        if !observed.is_sorted() {
            let must = "in ascending order";
            return Err(ModelError::Range { what: "observed columns", value: format!("{observed:?}"), must });
        }
        let missing: Vec<usize> = (0..d).filter(|j| observed.binary_search(j).is_err()).collect();
        let marginal = if missing.is_empty() { mixture.clone() } else { mixture.marginal(observed)? };
        let given = match (mixture.covariances(), marginal.factors()) {
            (Covariances::Full(all), Factors::Full(factors)) => {
                regressions(factors.iter().zip(all.outer_iter()), observed, &missing)
            }
            (Covariances::Tied(a), Factors::Tied(factor)) => {
                regressions([(factor, a.view())].into_iter(), observed, &missing)
            }
            (Covariances::Diag(a), _) => Given::Variances(a.select(Axis(1), &missing)),
            (Covariances::Spherical(a), _) => {
                Given::Variances(Array2::from_shape_fn((a.len(), missing.len()), |(c, _)| a[c]))
            }
            _ => unreachable!("factors have the kind of their covariances"),
        };
        let means = mixture.means().select(Axis(1), &missing);
        Ok(Self { observed: observed.to_vec(), missing, marginal, means, given })
    }

    /// The mixture of the observed columns.
    pub const fn marginal(&self) -> &Mixture {
        &self.marginal
    }

    /// The observed columns, `(o,)`.
    pub fn observed(&self) -> &[usize] {
        &self.observed
    }

    /// The missing columns, `(m,)`.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// The coefficients `B` of the regression of the missing on the observed columns in component `c`, `(m, o)`. `None` for
    /// diagonal and spherical covariances, where all are zero.
    pub fn coefficients(&self, c: usize) -> Option<ArrayView2<'_, f64>> {
        let shape = (self.missing.len(), self.observed.len());
        self.regression(c).map(|(b, _)| ArrayView2::from_shape(shape, b).expect("m*o of each component"))
    }

    /// The variance of missing column number `i` in component `c` given the observed columns; the same for all values.
    pub fn variance(&self, c: usize, i: usize) -> f64 {
        match &self.given {
            Given::Regression { .. } => self.regression(c).expect("a regression").1[i * self.missing.len() + i],
            Given::Variances(all) => all[[c, i]],
        }
    }

    /// `B`, `(m, o)`, and `S`, `(m, m)`, of component `c`, in row-major order.
    fn regression(&self, c: usize) -> Option<(&[f64], &[f64])> {
        let (m, o) = (self.missing.len(), self.observed.len());
        let Given::Regression { coefficients, residual } = &self.given else { return None };
        let c = if coefficients.len() == m * o { 0 } else { c };
        Some((&coefficients[c * m * o..][..m * o], &residual[c * m * m..][..m * m]))
    }

    /// Writes the mean of the missing columns in component `c`, `(m,)`, where the observed columns are `x`, `(o,)`.
    ///
    /// # Panics
    /// If `x` or `mean` has another length.
    pub fn component_mean(&self, c: usize, x: &[f64], mean: &mut [f64]) {
        assert_eq!((x.len(), mean.len()), (self.observed.len(), self.missing.len()), "lengths of observed and missing");
        mean.iter_mut().zip(self.means.row(c)).for_each(|(slot, mean)| *slot = *mean);
        let Some((b, _)) = self.regression(c) else { return };
        let centre = self.marginal.means();
        for (slot, b) in mean.iter_mut().zip(b.chunks_exact(x.len())) {
            *slot += b.iter().zip(x).zip(centre.row(c)).map(|((b, x), centre)| b * (x - centre)).sum::<f64>();
        }
    }

    /// Adds to `total`, about the means of the mixture of all columns, the statistics that `observed`, those of a
    /// [pass](crate::reference::statistics) under the [`marginal`](Self::marginal) mixture about its means, imply for all
    /// columns. Log-likelihood, weights and number of rows are added as they are.
    ///
    /// Cost: `k*(m*o² + m²*o)` flops (full).
    ///
    /// # Panics
    /// If the shapes or kinds differ.
    pub fn add(&self, observed: &Statistics, total: &mut Statistics) {
        let (k, d) = total.dim();
        assert_eq!(
            (observed.kind, observed.dim()),
            (total.kind, (k, self.observed.len())),
            "statistics of the pattern"
        );
        assert_eq!(d, self.observed.len() + self.missing.len(), "columns");
        total.log_likelihood += observed.log_likelihood;
        total.total_weight += observed.total_weight;
        total.n_rows += observed.n_rows;
        total.weight.iter_mut().zip(&observed.weight).for_each(|(sum, r)| *sum += r);
        for (own, mut sums) in observed.first.outer_iter().zip(total.first.outer_iter_mut()) {
            self.observed.iter().zip(own).for_each(|(&j, v)| sums[j] += v);
        }
        match &self.given {
            Given::Regression { .. } => self.add_regression(observed, total),
            Given::Variances(all) => self.add_variances(all, observed, total),
        }
    }

    fn add_variances(&self, variances: &Array2<f64>, observed: &Statistics, total: &mut Statistics) {
        let (k, d) = total.dim();
        for c in 0..k {
            let r = observed.weight[c];
            if total.kind == crate::CovarianceType::Spherical {
                total.second[c] += observed.second[c] + r * variances.row(c).sum();
                continue;
            }
            let second = &mut total.second[c * d..][..d];
            let own = &observed.second[c * self.observed.len()..];
            self.observed.iter().zip(own).for_each(|(&j, v)| second[j] += v);
            self.missing.iter().zip(variances.row(c)).for_each(|(&j, v)| second[j] += r * v);
        }
    }

    fn add_regression(&self, observed: &Statistics, total: &mut Statistics) {
        let (k, o, m) = (observed.dim().0, self.observed.len(), self.missing.len());
        let d = o + m;
        for c in 0..k {
            let (b, _) = self.regression(c).expect("a regression");
            for (i, &row) in self.missing.iter().enumerate() {
                let sum: f64 = b[i * o..][..o].iter().zip(observed.first.row(c)).map(|(b, f)| b * f).sum();
                total.first[[c, row]] += sum;
            }
        }
        // Tied: the sums of all components, under the coefficients of all.
        let tied = total.kind == crate::CovarianceType::Tied;
        let mut work = Work { dense: vec![0.0; o * o], product: vec![0.0; m * o] };
        for c in 0..if tied { 1 } else { k } {
            let weight = if tied { observed.weight.iter().sum() } else { observed.weight[c] };
            let own = &observed.second[c * packed_len(o)..][..packed_len(o)];
            self.add_second(c, weight, own, &mut total.second[c * packed_len(d)..][..packed_len(d)], &mut work);
        }
    }

    /// Adds the second moments of one component; `own` are packed, `(o*(o+1)/2,)`, and so are the sums, `(d*(d+1)/2,)`.
    fn add_second(&self, c: usize, weight: f64, own: &[f64], sums: &mut [f64], work: &mut Work) {
        let (o, m) = (self.observed.len(), self.missing.len());
        let (b, residual) = self.regression(c).expect("a regression");
        for (i, &row) in self.observed.iter().enumerate() {
            let line = &own[packed_index(i, 0)..][..=i];
            for ((j, &column), v) in self.observed.iter().enumerate().zip(line) {
                sums[packed_index(row, column)] += v;
                work.dense[i * o + j] = *v;
                work.dense[j * o + i] = *v;
            }
        }
        for i in 0..m {
            let b = &b[i * o..][..o];
            for (j, &column) in self.observed.iter().enumerate() {
                let v = dot(b, &work.dense[j * o..][..o]);
                work.product[i * o + j] = v;
                sums[either(self.missing[i], column)] += v;
            }
        }
        for i in 0..m {
            for j in 0..=i {
                let explained = dot(&work.product[i * o..][..o], &b[j * o..][..o]);
                sums[packed_index(self.missing[i], self.missing[j])] += explained + weight * residual[i * m + j];
            }
        }
    }
}

/// Scratch of one pattern: the moments of the observed columns, `(o, o)`, and their products with `B`, `(m, o)`.
struct Work {
    dense: Vec<f64>,
    product: Vec<f64>,
}

/// Position of entry `(i, j)` or `(j, i)` in a packed lower triangle.
const fn either(i: usize, j: usize) -> usize {
    if i > j { packed_index(i, j) } else { packed_index(j, i) }
}

/// `B` and `S` of each component, from the factors `L` of `Σ_oo` and the covariances: `B = (L⁻ᵀ L⁻¹ Σ_om)ᵀ`, and
/// `S = Σ_mm − YᵀY` with `Y = L⁻¹ Σ_om`. The difference costs digits of `S` that its sum with the explained part does not
/// have either.
fn regressions<'a>(
    components: impl Iterator<Item = (&'a crate::Cholesky, ArrayView2<'a, f64>)>,
    observed: &[usize],
    missing: &[usize],
) -> Given {
    let (o, m) = (observed.len(), missing.len());
    let (mut coefficients, mut residual) = (Vec::new(), Vec::new());
    for (factor, a) in components {
        let start = coefficients.len();
        for &row in missing {
            let from = coefficients.len();
            let entries = a.row(row);
            let entries = entries.as_slice().expect("row-major");
            coefficients.extend(observed.iter().map(|&column| entries[column]));
            factor.solve_lower(&mut coefficients[from..]);
        }
        let y = &coefficients[start..];
        for (i, &row) in missing.iter().enumerate() {
            for (j, &column) in missing.iter().enumerate() {
                let rest = a[[row, column]] - dot(&y[i * o..][..o], &y[j * o..][..o]);
                residual.push(if i == j { rest.max(0.0) } else { rest });
            }
        }
        coefficients[start..].chunks_exact_mut(o).for_each(|row| factor.solve_lower_transposed(row));
        debug_assert_eq!(coefficients.len() - start, m * o);
    }
    Given::Regression { coefficients, residual }
}
