//! The few rows of a rare pattern under full or tied covariances, for all components at once.
//!
//! With thousands of patterns the factors cost more than the rows. Small triangular systems are slow one by one; here entry
//! `(i, j)` of all `k` components is contiguous, so that every operation is a loop over components. With `Σ_oo = L Lᵀ` and
//! `Y = L⁻¹ Σ_om`, the missing part of a row is `Yᵀ (L⁻¹ z_o)` and its covariance `Σ_mm − Yᵀ Y`: nothing is solved twice.

use gmm_model::reference::log_sum_exp;
use gmm_model::{CovarianceType, Mixture, ModelError, Statistics, packed_index, packed_len};
use ndarray::ArrayView1;

use super::few::FewRows;
use crate::{EvaluateOptions, Evaluation};

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// Parameters of a mixture with matrices, component by component in the last index.
pub(super) struct Lanes {
    k: usize,
    d: usize,
    kind: CovarianceType,
    /// `(d, d, k)`.
    covariances: Vec<f64>,
    /// `(d, k)`.
    means: Vec<f64>,
    /// `(k,)`.
    log_weights: Vec<f64>,
    /// `(k,)`.
    weights: Vec<f64>,
}

/// Sums over rows, with the component in the last index.
pub(super) struct LaneSums {
    /// `(k,)`.
    weight: Vec<f64>,
    /// `(d, k)`.
    first: Vec<f64>,
    /// `(d*(d+1)/2, k)`.
    second: Vec<f64>,
    log_likelihood: f64,
    total_weight: f64,
    n_rows: u64,
}

/// The factors of a pattern, and scratch for one row.
#[derive(Default)]
pub(super) struct Workspace {
    /// Packed `L`, with the reciprocals of its diagonal, `(o*(o+1)/2, k)`.
    lower: Vec<f64>,
    /// `Y` by missing column, `(m, o, k)`.
    solved: Vec<f64>,
    /// Log weight and log normaliser, `(k,)`.
    constants: Vec<f64>,
    /// Product of diagonal entries whose logarithm is still to be taken, `(k,)`.
    product: Vec<f64>,
    /// The completed row less the means, `(d, k)`.
    z: Vec<f64>,
    /// `L⁻¹ z_o`, `(o, k)`.
    y: Vec<f64>,
    /// Log joint densities, then responsibilities, `(k,)`.
    r: Vec<f64>,
    /// Scratch, `(k,)`.
    t: Vec<f64>,
    /// Sum of the weighted responsibilities of the pattern, `(k,)`.
    sum: Vec<f64>,
}

/// `a −= b c`, element by element.
fn subtract_product(a: &mut [f64], b: &[f64], c: &[f64]) {
    a.iter_mut().zip(b.iter().zip(c)).for_each(|(a, (b, c))| *a -= b * c);
}

/// `a += b c`, element by element.
fn add_product(a: &mut [f64], b: &[f64], c: &[f64]) {
    a.iter_mut().zip(b.iter().zip(c)).for_each(|(a, (b, c))| *a += b * c);
}

/// `a *= b`, element by element.
fn scale(a: &mut [f64], b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a *= b);
}

impl Lanes {
    /// `None` if the covariances are no matrices.
    pub(super) fn new(mixture: &Mixture) -> Option<Self> {
        let kind = mixture.covariance_type();
        if !matches!(kind, CovarianceType::Full | CovarianceType::Tied) {
            return None;
        }
        let (k, d) = mixture.means().dim();
        let mut covariances = vec![0.0; d * d * k];
        for c in 0..k {
            for (at, v) in mixture.covariances().matrix(c, d).iter().enumerate() {
                covariances[at * k + c] = *v;
            }
        }
        let means = mixture.means().t().iter().copied().collect();
        let log_weights = (0..k).map(|c| mixture.log_weight(c)).collect();
        Some(Self { k, d, kind, covariances, means, log_weights, weights: mixture.weights().to_vec() })
    }

    pub(super) fn zero(&self) -> LaneSums {
        let Self { k, d, .. } = *self;
        LaneSums {
            weight: vec![0.0; k],
            first: vec![0.0; d * k],
            second: vec![0.0; packed_len(d) * k],
            log_likelihood: 0.0,
            total_weight: 0.0,
            n_rows: 0,
        }
    }

    fn entry(&self, i: usize, j: usize) -> &[f64] {
        &self.covariances[(i * self.d + j) * self.k..][..self.k]
    }

    /// Factors the covariances of the observed columns.
    ///
    /// # Errors
    /// [`ModelError::NotPositiveDefinite`] with component and column.
    fn factor(&self, observed: &[usize], work: &mut Workspace) -> Result<(), ModelError> {
        let (k, o) = (self.k, observed.len());
        let Workspace { lower, constants, product, .. } = work;
        lower.resize(packed_len(o) * k, 0.0);
        constants.clear();
        constants.extend(self.log_weights.iter().map(|w| w - 0.5 * o as f64 * LN_2PI));
        product.clear();
        product.resize(k, 1.0);
        for (i, &column) in observed.iter().enumerate() {
            let (above, rest) = lower.split_at_mut(packed_index(i, 0) * k);
            for j in 0..=i {
                let (done, at) = rest.split_at_mut(j * k);
                let at = &mut at[..k];
                at.copy_from_slice(self.entry(column, observed[j]));
                if j == i {
                    done.chunks_exact(k).for_each(|l| subtract_product(at, l, l));
                    break;
                }
                let other = &above[packed_index(j, 0) * k..][..(j + 1) * k];
                for (a, b) in done.chunks_exact(k).zip(other.chunks_exact(k)) {
                    subtract_product(at, a, b);
                }
                scale(at, &other[j * k..]);
            }
            let pivots = &mut rest[i * k..][..k];
            for (c, (pivot, diagonal)) in pivots.iter_mut().zip(self.entry(column, column)).enumerate() {
                // As in `Cholesky::new`; also for NaN.
                if !(*pivot > (o + 1) as f64 * f64::EPSILON * diagonal && pivot.is_finite()) {
                    let (component, pivot, kind) = (c, *pivot, self.kind);
                    return Err(ModelError::NotPositiveDefinite { component, column, pivot, kind });
                }
                let root = pivot.sqrt();
                *pivot = 1.0 / root;
                product[c] *= root;
                // Neither the product nor its next factor leaves the range.
                if !(1e-150..1e150).contains(&product[c]) {
                    constants[c] -= product[c].ln();
                    product[c] = 1.0;
                }
            }
        }
        constants.iter_mut().zip(product).for_each(|(constant, product)| *constant -= product.ln());
        Ok(())
    }

    /// Solves for `Y`, and clears the sum of the responsibilities.
    fn solve(&self, observed: &[usize], missing: &[usize], work: &mut Workspace) {
        let (k, o) = (self.k, observed.len());
        work.sum.clear();
        work.sum.resize(k, 0.0);
        work.solved.resize(missing.len() * o * k, 0.0);
        for (&row, solved) in missing.iter().zip(work.solved.chunks_exact_mut(o * k)) {
            for (l, &column) in observed.iter().enumerate() {
                let (done, at) = solved.split_at_mut(l * k);
                let at = &mut at[..k];
                at.copy_from_slice(self.entry(row, column));
                substitute(&work.lower[packed_index(l, 0) * k..][..(l + 1) * k], done, at);
            }
        }
    }

    /// Computes the responsibilities of a row, and returns its log density. As in the reference, they are the weights if all
    /// densities underflow.
    fn posterior(&self, observed: &[usize], x: ArrayView1<'_, f64>, work: &mut Workspace) -> f64 {
        let k = self.k;
        work.z.resize(self.d * k, 0.0);
        work.y.resize(observed.len() * k, 0.0);
        work.t.clear();
        work.t.resize(k, 0.0);
        for (l, (&column, x)) in observed.iter().zip(x).enumerate() {
            let z = &mut work.z[column * k..][..k];
            z.iter_mut().zip(&self.means[column * k..]).for_each(|(z, mean)| *z = x - mean);
            let (done, at) = work.y.split_at_mut(l * k);
            let at = &mut at[..k];
            at.copy_from_slice(z);
            substitute(&work.lower[packed_index(l, 0) * k..][..(l + 1) * k], done, at);
            add_product(&mut work.t, at, at);
        }
        for (c, distance) in work.t.iter_mut().enumerate().filter(|(_, q)| !q.is_finite()) {
            // The squared distance overflows: the density is 0, and the row has no part in the sums.
            *distance = f64::INFINITY;
            work.z.iter_mut().skip(c).step_by(k).for_each(|v| *v = 0.0);
            work.y.iter_mut().skip(c).step_by(k).for_each(|v| *v = 0.0);
        }
        work.r.clear();
        work.r.extend(work.constants.iter().zip(&work.t).map(|(constant, distance)| constant - 0.5 * distance));
        let log_density = log_sum_exp(&work.r);
        if log_density == f64::NEG_INFINITY {
            work.r.copy_from_slice(&self.weights);
            return log_density;
        }
        let top = work.r.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        work.r.iter_mut().for_each(|r| *r = (*r - top).exp());
        let sum: f64 = work.r.iter().sum();
        work.r.iter_mut().for_each(|r| *r /= sum);
        log_density
    }

    /// Adds the expected statistics of the rows of a pattern, about the means.
    ///
    /// # Errors
    /// [`ModelError::NotPositiveDefinite`] if the marginal covariance of a component is so.
    pub(super) fn add(
        &self,
        (observed, missing): (&[usize], &[usize]),
        rows: &FewRows,
        sums: &mut LaneSums,
        work: &mut Workspace,
    ) -> Result<(), ModelError> {
        self.factor(observed, work)?;
        self.solve(observed, missing, work);
        for (i, x) in rows.rows().outer_iter().enumerate() {
            let w = rows.weight(i);
            if w > 0.0 {
                sums.log_likelihood += w * self.posterior(observed, x, work);
                sums.total_weight += w;
                self.add_row(w, missing, sums, work);
            }
        }
        sums.n_rows += rows.rows().nrows() as u64;
        self.add_residuals(missing, sums, work);
        Ok(())
    }

    /// Completes the row, and adds its moments.
    fn add_row(&self, w: f64, missing: &[usize], sums: &mut LaneSums, work: &mut Workspace) {
        let k = self.k;
        work.r.iter_mut().for_each(|r| *r *= w);
        for (&column, solved) in missing.iter().zip(work.solved.chunks_exact(work.y.len())) {
            let z = &mut work.z[column * k..][..k];
            z.fill(0.0);
            for (solved, y) in solved.chunks_exact(k).zip(work.y.chunks_exact(k)) {
                add_product(z, solved, y);
            }
        }
        work.sum.iter_mut().zip(&work.r).for_each(|(sum, r)| *sum += r);
        sums.weight.iter_mut().zip(&work.r).for_each(|(sum, r)| *sum += r);
        let mut second = sums.second.chunks_exact_mut(k);
        for (i, (z, first)) in work.z.chunks_exact(k).zip(sums.first.chunks_exact_mut(k)).enumerate() {
            work.t.copy_from_slice(z);
            scale(&mut work.t, &work.r);
            first.iter_mut().zip(&work.t).for_each(|(sum, t)| *sum += t);
            for (z, sum) in work.z.chunks_exact(k).take(i + 1).zip(second.by_ref()) {
                add_product(sum, &work.t, z);
            }
        }
    }

    /// Adds the conditional covariances of the missing columns.
    fn add_residuals(&self, missing: &[usize], sums: &mut LaneSums, work: &mut Workspace) {
        let (k, pitch) = (self.k, work.solved.len() / missing.len().max(1));
        for (i, &row) in missing.iter().enumerate() {
            let own = &work.solved[i * pitch..][..pitch];
            for (j, &column) in missing[..=i].iter().enumerate() {
                work.t.clear();
                work.t.extend_from_slice(self.entry(row, column));
                let other = &work.solved[j * pitch..][..pitch];
                for (a, b) in own.chunks_exact(k).zip(other.chunks_exact(k)) {
                    subtract_product(&mut work.t, a, b);
                }
                if i == j {
                    work.t.iter_mut().for_each(|v| *v = v.max(0.0));
                }
                add_product(&mut sums.second[packed_index(row, column) * k..][..k], &work.sum, &work.t);
            }
        }
    }

    /// As [`Evaluate::evaluate`](crate::Evaluate::evaluate), of the rows of a pattern.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub(super) fn evaluate(
        &self,
        observed: &[usize],
        rows: &FewRows,
        mut want: EvaluateOptions<'_>,
        work: &mut Workspace,
    ) -> Result<Evaluation, ModelError> {
        self.factor(observed, work)?;
        let mut out = Evaluation::NOTHING;
        for (i, x) in rows.rows().outer_iter().enumerate() {
            let (w, log_density) = (rows.weight(i), self.posterior(observed, x, work));
            out.add_row(w, log_density, ArrayView1::from(&work.r));
            want.put_row(i, log_density, ArrayView1::from(&work.r));
        }
        Ok(out)
    }

    /// Adds the sums to statistics about the means of the mixture.
    pub(super) fn add_to(&self, sums: &LaneSums, out: &mut Statistics) {
        let (k, p) = (self.k, packed_len(self.d));
        out.log_likelihood += sums.log_likelihood;
        out.total_weight += sums.total_weight;
        out.n_rows += sums.n_rows;
        for c in 0..k {
            out.weight[c] += sums.weight[c];
            (0..self.d).for_each(|j| out.first[[c, j]] += sums.first[j * k + c]);
            let start = if self.kind == CovarianceType::Full { c * p } else { 0 };
            let second = &mut out.second[start..][..p];
            second.iter_mut().enumerate().for_each(|(at, v)| *v += sums.second[at * k + c]);
        }
    }
}

/// The step of forward substitution for one entry: `at = (at − Σ l done) / diagonal`, where `row` ends with the reciprocal of
/// the diagonal.
fn substitute(row: &[f64], done: &[f64], at: &mut [f64]) {
    let k = at.len();
    for (l, y) in row.chunks_exact(k).zip(done.chunks_exact(k)) {
        subtract_product(at, l, y);
    }
    scale(at, &row[row.len() - k..]);
}
