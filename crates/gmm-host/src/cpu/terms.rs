//! A mixture's parameters as the kernels read them: relative to the data's shift, in the engine's precision.

use std::borrow::Cow;

use gmm_model::{Cholesky, CovarianceType, FactorShape, Factors, Mixture, ModelError, Numbers, PrecisionMixture};
use ndarray::ArrayView2;

use super::few::shared;
use super::simd::{Dispatch, Machine, Real};
use crate::shift;

/// Rows of a factor that are solved together; see [`Triangle`].
pub(crate) const TILE: usize = 3;

/// Parameters of one pass.
pub(crate) struct Terms<T> {
    pub(crate) k: usize,
    pub(crate) d: usize,
    pub(crate) kind: CovarianceType,
    /// `mean − shift`, `(k, d)`.
    pub(crate) means: Vec<T>,
    /// `ln w_c + log normaliser`, `(k,)`.
    pub(crate) constants: Vec<T>,
    /// Component weights, `(k,)`: the responsibilities of a row whose every density underflows.
    pub(crate) weights: Vec<T>,
    pub(crate) scales: Scales<T>,
}

/// Scales of the distances, per covariance kind.
pub(crate) enum Scales<T> {
    /// One factor per component, also for a tied covariance if its solved means would cancel; only the first `k` count.
    Full(Vec<Triangle<T>>),
    /// One factor, and the means solved with it, `(k, d)`.
    Tied(Triangle<T>, Vec<T>),
    /// Reciprocal standard deviations and the negated means in units of them, both `(k, d)`. The means are absent if
    /// one overflows `T` or if they would cancel.
    Diag(Vec<T>, Option<Vec<T>>),
    /// Reciprocal standard deviations, `(k,)`.
    Spherical(Vec<T>),
    /// Factors of the precisions: one per component, or a single one if its products with the means would cancel.
    Precisions(Vec<Columns<T>>),
    /// One factor of the precisions and its products with the means, `(k, d)`.
    Shared(Columns<T>, Vec<T>),
}

impl<T: Real> Terms<T> {
    pub(crate) fn new(mixture: &Mixture, shift: &[f64]) -> Self {
        let (k, d) = mixture.means().dim();
        let means = relative(mixture.means(), shift);
        // Scaling rows and means before subtracting them leaves an absolute error of eps times their size.
        let cancels = shift::is_felt(mixture, shift, T::PRECISION);
        let scales = match mixture.factors() {
            Factors::Full(all) => {
                let factors = all.iter().zip(means.chunks_exact(d)).map(|(l, mean)| Triangle::new(l, mean));
                Scales::Full(factors.collect())
            }
            Factors::Tied(one) if cancels => {
                Scales::Full(means.chunks_exact(d).map(|mean| Triangle::new(one, mean)).collect())
            }
            Factors::Tied(one) => {
                Scales::Tied(Triangle::new(one, &vec![T::ZERO; d]), solved_means(mixture, one, shift))
            }
            Factors::Diag(sd) => {
                let scales: Vec<T> = sd.iter().map(|v| T::of(1.0 / v)).collect();
                let offsets = if cancels { None } else { offsets(mixture, shift, &scales) };
                Scales::Diag(scales, offsets)
            }
            Factors::Spherical(sd) => Scales::Spherical(sd.iter().map(|v| T::of(1.0 / v)).collect()),
        };
        let constants = (0..k).map(|c| T::of(mixture.log_weight(c) + mixture.log_normalizer(c))).collect();
        let weights = mixture.weights().iter().map(|w| T::of(*w)).collect();
        Self { k, d, kind: mixture.covariance_type(), means, constants, weights, scales }
    }
}

impl<T: Real> Terms<T> {
    /// Terms with no component yet, for a [`push`](Self::push) of some of these.
    pub(crate) fn subset(&self) -> Self {
        let scales = match &self.scales {
            Scales::Full(_) => Scales::Full(Vec::new()),
            Scales::Tied(factor, _) => Scales::Tied(factor.clone(), Vec::new()),
            Scales::Diag(_, offsets) => Scales::Diag(Vec::new(), offsets.as_ref().map(|_| Vec::new())),
            Scales::Spherical(_) => Scales::Spherical(Vec::new()),
            Scales::Precisions(_) | Scales::Shared(..) => panic!("a subset of factors of precisions"),
        };
        let Self { d, kind, .. } = *self;
        Self { k: 0, d, kind, means: Vec::new(), constants: Vec::new(), weights: Vec::new(), scales }
    }

    /// Removes all components of a [`subset`](Self::subset); its memory is used again.
    pub(crate) fn clear(&mut self) {
        self.k = 0;
        self.means.clear();
        self.constants.clear();
        self.weights.clear();
        match &mut self.scales {
            Scales::Tied(_, means) => means.clear(),
            Scales::Diag(scales, offsets) => {
                scales.clear();
                offsets.iter_mut().for_each(Vec::clear);
            }
            Scales::Spherical(scales) => scales.clear(),
            Scales::Full(_) | Scales::Precisions(_) | Scales::Shared(..) => {}
        }
    }

    /// Adds component `c` of `all` to a [`subset`](Self::subset) of it. Cost: a copy of its parameters.
    pub(crate) fn push(&mut self, all: &Self, c: usize) {
        let of_component = c * self.d..(c + 1) * self.d;
        match (&mut self.scales, &all.scales) {
            // Factors past `k` are left from earlier subsets.
            (Scales::Full(some), Scales::Full(all)) => match some.get_mut(self.k) {
                Some(slot) => slot.cells.copy_from_slice(&all[c].cells),
                None => some.push(all[c].clone()),
            },
            (Scales::Tied(_, some), Scales::Tied(_, all)) => some.extend_from_slice(&all[of_component.clone()]),
            (Scales::Diag(some, offsets), Scales::Diag(all, all_offsets)) => {
                some.extend_from_slice(&all[of_component.clone()]);
                if let (Some(some), Some(all)) = (offsets, all_offsets) {
                    some.extend_from_slice(&all[of_component.clone()]);
                }
            }
            (Scales::Spherical(some), Scales::Spherical(all)) => some.push(all[c]),
            _ => panic!("a subset of other terms"),
        }
        self.k += 1;
        self.means.extend_from_slice(&all.means[of_component]);
        self.constants.push(all.constants[c]);
        self.weights.push(all.weights[c]);
    }
}

impl<T: Real> Terms<T> {
    /// Terms of a mixture that is given by factors of its precisions.
    ///
    /// # Errors
    /// [`ModelError`] if a factor is singular or not finite.
    pub(crate) fn of_precisions(
        machine: Machine,
        mixture: &PrecisionMixture<'_>,
        shift: &[f64],
    ) -> Result<Self, ModelError>
    where
        T: Dispatch,
    {
        let d = mixture.n_features();
        mixture.check_factors()?;
        let one = |c: usize| Columns::new(&converted(mixture.factor(c)), d, mixture.factor_shape(c));
        let scales = match mixture.covariance_type() {
            CovarianceType::Full => Scales::Precisions((0..mixture.n_factors()).map(one).collect()),
            CovarianceType::Tied => {
                match shared::means(machine, &converted::<T>(mixture.factors()), mixture.means(), shift) {
                    Some(means) => Scales::Shared(one(0), means),
                    None => Scales::Precisions(vec![one(0)]),
                }
            }
            CovarianceType::Diag | CovarianceType::Spherical => {
                Scales::Diag(reciprocal_deviations(mixture).into_owned(), None)
            }
        };
        let shapes = |c: usize| match &scales {
            Scales::Precisions(all) => all[c.min(all.len() - 1)].shape,
            Scales::Shared(one, _) => one.shape,
            _ => FactorShape::Upper,
        };
        let shapes: Vec<FactorShape> = (0..mixture.n_components()).map(shapes).collect();
        let means = relative(mixture.means(), shift);
        Self::without_scales(mixture, means, &shapes).map(|terms| Self { scales, ..terms })
    }

    /// Terms without the scales, for factors of these shapes; `means` are relative to the shift, `(k, d)`.
    ///
    /// # Errors
    /// [`ModelError`] if a factor is singular.
    pub(crate) fn without_scales(
        mixture: &PrecisionMixture<'_>,
        means: Vec<T>,
        shapes: &[FactorShape],
    ) -> Result<Self, ModelError> {
        let (k, d) = mixture.means().dim();
        let constant = |c: usize| Ok(T::of(mixture.log_weight(c) + mixture.log_normalizer(c, shapes[c])?));
        Ok(Self {
            k,
            d,
            // Decides only the cost estimate: factors of either shape cost as much as the full kind, deviations as much
            // as diag.
            kind: match mixture.covariance_type() {
                CovarianceType::Full | CovarianceType::Tied => CovarianceType::Full,
                CovarianceType::Diag | CovarianceType::Spherical => CovarianceType::Diag,
            },
            means,
            constants: (0..k).map(constant).collect::<Result<_, ModelError>>()?,
            weights: mixture.weights().iter().map(|w| T::of(*w)).collect(),
            scales: Scales::Precisions(Vec::new()),
        })
    }
}

/// Returns the numbers in `T`, borrowed if they already are in `T`.
pub(crate) fn converted<T: Real>(numbers: Numbers<'_>) -> Cow<'_, [T]> {
    match numbers {
        Numbers::F32(all) => T::all_of_f32(all),
        Numbers::F64(all) => T::all_of_f64(all),
    }
}

/// Reciprocal standard deviations of each component and column, `(k, d)`; the kind must be diag or spherical.
///
/// Borrowed if they already exist in `T`: a prediction for one row reads them only once.
pub(crate) fn reciprocal_deviations<'a, T: Real>(mixture: &PrecisionMixture<'a>) -> Cow<'a, [T]> {
    let all = converted::<T>(mixture.factors());
    match mixture.covariance_type() {
        CovarianceType::Spherical => {
            let columns = mixture.n_features();
            all.iter().flat_map(|scale| std::iter::repeat_n(*scale, columns)).collect()
        }
        _ => all,
    }
}

/// `centre − shift` in `T`, `(k, d)`.
pub(crate) fn relative<T: Real>(centres: ArrayView2<'_, f64>, shift: &[f64]) -> Vec<T> {
    let centres = centres.as_standard_layout();
    let mut out = Vec::with_capacity(centres.len());
    for centre in centres.as_slice().expect("a standard layout").chunks_exact(shift.len()) {
        out.extend(centre.iter().zip(shift).map(|(m, s)| T::of(m - s)));
    }
    out
}

/// `−(mean − shift) scale`, `(k, d)`, so that a distance needs one multiplication and addition.
///
/// The result is rounded once and uses the scales as rounded to `T`. The error is that of a mean rounded in its last
/// place, and `means` are rounded like that too.
///
/// Returns `None` if one overflows, as in f32 with a standard deviation of 1e-20 at a distance of 1e20 from the shift:
/// a row there would yield a difference of infinities, although the difference itself is finite.
fn offsets<T: Real>(mixture: &Mixture, shift: &[f64], scales: &[T]) -> Option<Vec<T>> {
    let means = mixture.means();
    let all = means.iter().zip(shift.iter().cycle()).zip(scales);
    let offset = |((m, s), scale): ((&f64, &f64), &T)| T::of((s - m) * scale.to_f64());
    all.map(offset).map(|v| v.to_f64().is_finite().then_some(v)).collect()
}

fn solved_means<T: Real>(mixture: &Mixture, factor: &Cholesky, shift: &[f64]) -> Vec<T> {
    let mut out = Vec::with_capacity(mixture.means().len());
    for mean in mixture.means().outer_iter() {
        let mut y: Vec<f64> = mean.iter().zip(shift).map(|(m, s)| m - s).collect();
        factor.solve_lower(&mut y);
        out.extend(y.into_iter().map(T::of));
    }
    out
}

/// A Cholesky factor and a mean, laid out for forward substitution by tiles of [`TILE`] rows. If [`TILE`] does not
/// divide `d`, the first tile has the `d % TILE` remaining rows.
///
/// With `M[i,j] = L[i,j] / L[i,i]`, the solution of `L y = x − mean` is `y[i] = (x[i] − mean[i])/L[i,i] − Σ_{j<i}
/// M[i,j] y[j]`, so that the dependency chain contains no division. `cells` holds the operands in the order in which
/// they are used. For each tile of rows: their means, their `1 / L[i,i]`, the `M` of all columns before the tile column
/// by column, then the `M` within the tile, row by row below the diagonal. This is `d*(d+3)/2` values in all.
#[derive(Clone)]
pub(crate) struct Triangle<T> {
    pub(crate) d: usize,
    pub(crate) cells: Vec<T>,
}

impl<T: Real> Triangle<T> {
    /// `mean`, `(d,)`, is subtracted from each row.
    fn new(l: &Cholesky, mean: &[T]) -> Self {
        let d = l.dim();
        let m = |i: usize, j: usize| T::of(l.at(i, j) / l.at(i, i));
        let mut cells = Vec::with_capacity(Self::len(d));
        // The first tile has the `d % TILE` rows that do not fill a tile; it is empty if there are none.
        let odd = d % TILE;
        for end in (odd..=d).step_by(TILE) {
            let top = end.saturating_sub(TILE);
            let rows = top..end;
            cells.extend_from_slice(&mean[rows.clone()]);
            cells.extend(rows.clone().map(|i| T::of(1.0 / l.at(i, i))));
            for j in 0..top {
                cells.extend(rows.clone().map(|i| m(i, j)));
            }
            for i in rows {
                cells.extend((top..i).map(|j| m(i, j)));
            }
        }
        Self { d, cells }
    }

    /// Length of `cells`.
    pub(crate) const fn len(d: usize) -> usize {
        2 * d + d * (d - 1) / 2
    }
}

/// A factor `U` of a precision, laid out for `y = Uᵀz` by tiles of [`TILE`] entries of `y`. If [`TILE`] does not divide
/// `d`, the first tile has the `d % TILE` remaining entries. Each tile stores its columns of `U`, row by row, for the
/// rows that can be nonzero there.
pub(crate) struct Columns<T> {
    pub(crate) d: usize,
    pub(crate) shape: FactorShape,
    pub(crate) cells: Vec<T>,
}

impl<T: Real> Columns<T> {
    /// `u` is `(d, d)`.
    fn new(u: &[T], d: usize, shape: FactorShape) -> Self {
        let mut made = Self { d, shape, cells: Vec::new() };
        let len = made.tiles().map(|(first, end)| shape.rows(first, end, d).len() * (end - first)).sum();
        made.cells.reserve_exact(len);
        for (first, end) in made.tiles() {
            for j in shape.rows(first, end, d) {
                made.cells.extend_from_slice(&u[j * d..][first..end]);
            }
        }
        made
    }

    /// First entry of `y`, and one past the last, of each tile.
    #[inline(always)]
    pub(crate) fn tiles(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let odd = self.d % TILE;
        let first = if odd == 0 { TILE } else { odd };
        (first..=self.d).step_by(TILE).map(|end| (end.saturating_sub(TILE), end))
    }
}
