//! Passes over rows within limits.

use std::ops::Range;

use gmm_model::censoring::{Limits, Region};
use gmm_model::{CovarianceType, Dataset, Mixture, Statistics, packed_index, packed_len};
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;

use super::patterns::{Ordered, Patterns};
use crate::{Error, EvaluateOptions, Evaluation};

/// Shares of the rows per thread, so that one with expensive regions does not delay the others by much. The number of shares
/// depends only on the shape and the thread count, since it determines the order of additions.
const SHARES_PER_THREAD: usize = 8;

/// The mixture in the order of each pattern.
struct Parameters<'a> {
    mixture: &'a Mixture,
    limits: &'a Limits,
    patterns: &'a Patterns,
    ordered: Vec<Ordered<'a>>,
}

impl<'a> Parameters<'a> {
    fn new(data: &'a Dataset, patterns: &'a Patterns, mixture: &'a Mixture) -> Result<Self, Error> {
        let ordered = patterns.all.iter().map(|pattern| Ordered::new(mixture, pattern)).collect::<Result<_, _>>()?;
        Ok(Self { mixture, limits: data.limits().expect("rows with limits"), patterns, ordered })
    }
}

/// Workspace for one row.
struct Work {
    /// Log joint densities, then responsibilities, `(k,)`.
    r: Vec<f64>,
    /// The region of each component; a set for each number of limited columns.
    regions: Vec<Vec<Region>>,
    /// `z` of the exact columns and its mean elsewhere, `(k, d)`.
    z: Vec<f64>,
}

impl Work {
    fn new(k: usize, d: usize) -> Self {
        Self { r: vec![0.0; k], regions: vec![Vec::new(); d + 1], z: vec![0.0; k * d] }
    }

    /// Computes the responsibilities of a box, and the moments of `z` in each component; returns the log density.
    fn row(
        &mut self,
        of: &Ordered<'_>,
        lower: ArrayView1<'_, f64>,
        upper: ArrayView1<'_, f64>,
        weights: &[f64],
    ) -> f64 {
        let d = of.pattern.order.len();
        let (exact, limited) = (of.pattern.exact, of.pattern.limited);
        if self.regions[limited].is_empty() {
            self.regions[limited] = vec![Region::new(limited); weights.len()];
        }
        for (c, z) in self.z.chunks_exact_mut(d).enumerate() {
            let (factor, means) = (of.factor(c), &of.means[c * d..][..d]);
            let across = |i: usize, z: &[f64]| -> f64 {
                if of.is_diagonal {
                    return 0.0;
                }
                factor[packed_index(i, 0)..].iter().zip(&z[..i.min(exact)]).map(|(l, z)| l * z).sum()
            };
            let mut log_density = of.constants[c];
            for i in 0..exact {
                let rest = lower[of.pattern.order[i]] - means[i] - across(i, z);
                z[i] = rest / factor[packed_index(i, i)];
                log_density -= 0.5 * z[i] * z[i];
            }
            let region = &mut self.regions[limited][c];
            for i in 0..limited {
                let at = exact + i;
                let centre = means[at] + across(at, z);
                region.lower[i] = lower[of.pattern.order[at]] - centre;
                region.upper[i] = upper[of.pattern.order[at]] - centre;
            }
            region.compute(of.limited_factor(c), of.is_diagonal);
            z[exact..exact + limited].copy_from_slice(&region.mean);
            z[exact + limited..].fill(0.0);
            self.r[c] = log_density + region.log_probability;
        }
        normalise(weights, &mut self.r)
    }
}

/// Turns log joint densities into responsibilities, and returns the log density. If all densities underflow, they are the
/// weights.
fn normalise(weights: &[f64], r: &mut [f64]) -> f64 {
    let top = r.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        r.copy_from_slice(weights);
        return top;
    }
    r.iter_mut().for_each(|v| *v = libm::exp(*v - top));
    let sum: f64 = r.iter().sum();
    r.iter_mut().for_each(|v| *v /= sum);
    top + libm::log(sum)
}

/// Sums over rows of one pattern, in terms of `z`.
struct Sums {
    weight: Vec<f64>,
    /// `(k, d)`.
    first: Vec<f64>,
    /// Packed, `(k, d*(d+1)/2)`. Of the free columns only the share of their expectation about 0: see [`flush`](Self::flush).
    second: Vec<f64>,
}

impl Sums {
    fn new(k: usize, d: usize) -> Self {
        Self { weight: vec![0.0; k], first: vec![0.0; k * d], second: vec![0.0; k * packed_len(d)] }
    }

    /// Adds a row of weight `w`, for which `work` was computed.
    fn add(&mut self, of: &Ordered<'_>, work: &Work, w: f64) {
        let d = of.pattern.order.len();
        let (exact, limited) = (of.pattern.exact, of.pattern.limited);
        let inexact = exact..exact + limited;
        for (c, z) in work.z.chunks_exact(d).enumerate().filter(|(c, _)| work.r[*c] * w > 0.0) {
            let r = work.r[c] * w;
            let square = &work.regions[limited][c].square;
            let (first, second) = (&mut self.first[c * d..], &mut self.second[c * packed_len(d)..]);
            self.weight[c] += r;
            for i in 0..exact + limited {
                first[i] += r * z[i];
                let row = &mut second[packed_index(i, 0)..];
                for j in if of.is_diagonal { i } else { 0 }..=i {
                    let product = if inexact.contains(&i) && inexact.contains(&j) {
                        square[packed_index(i - exact, j - exact)]
                    } else {
                        z[i] * z[j]
                    };
                    row[j] += r * product;
                }
            }
        }
    }

    /// Adds `times` rows of component `c`, less the share `exp(log_excess)` times the region's probability, which have its
    /// moments. `work` has the region's moments.
    fn add_outside(&mut self, of: &Ordered<'_>, work: &Work, c: usize, times: f64, log_excess: f64) {
        let (d, limited) = (of.pattern.order.len(), of.pattern.limited);
        let region = &work.regions[limited][c];
        let log_inside = region.log_probability + log_excess;
        let p = libm::exp(log_inside);
        self.weight[c] += times * -libm::expm1(log_inside);
        for i in 0..limited {
            self.first[c * d + i] -= times * p * region.mean[i];
            for j in if of.is_diagonal { i } else { 0 }..=i {
                let all = if i == j { 1.0 } else { 0.0 };
                let at = packed_index(i, j);
                self.second[c * packed_len(d) + at] += times * (all - p * region.square[at]);
            }
        }
    }

    /// Adds the sums to statistics about the means, and empties them.
    fn flush(&mut self, of: &Ordered<'_>, out: &mut Statistics) {
        let d = of.pattern.order.len();
        let order = &of.pattern.order;
        for c in (0..self.weight.len()).filter(|&c| self.weight[c] != 0.0) {
            let (first, second) = (&self.first[c * d..][..d], &self.second[c * packed_len(d)..][..packed_len(d)]);
            let weight = self.weight[c];
            out.weight[c] += weight;
            let entry = |i: usize, j: usize| {
                let free = if i == j && i >= of.pattern.exact + of.pattern.limited { weight } else { 0.0 };
                second[packed_index(i.max(j), i.min(j))] + free
            };
            let factor = of.factor(c);
            if of.is_diagonal {
                for i in 0..d {
                    let scale = factor[packed_index(i, i)];
                    out.first[[c, order[i]]] += scale * first[i];
                    let at = if out.kind == CovarianceType::Diag { c * d + order[i] } else { c };
                    out.second[at] += scale * scale * entry(i, i);
                }
                continue;
            }
            let lower = Array2::from_shape_fn((d, d), |(i, j)| if j <= i { factor[packed_index(i, j)] } else { 0.0 });
            let products = lower.dot(&Array2::from_shape_fn((d, d), |(i, j)| entry(i, j))).dot(&lower.t());
            let moved = lower.dot(&ArrayView1::from(first));
            let start = if out.kind == CovarianceType::Full { c * packed_len(d) } else { 0 };
            for i in 0..d {
                out.first[[c, order[i]]] += moved[i];
                for j in 0..=i {
                    let (a, b) = (order[i].max(order[j]), order[i].min(order[j]));
                    out.second[start + packed_index(a, b)] += products[[i, j]];
                }
            }
        }
        self.weight.fill(0.0);
        self.first.fill(0.0);
        self.second.fill(0.0);
    }
}

/// The rows of each share.
fn shares(pool: &rayon::ThreadPool, n: usize) -> Vec<Range<usize>> {
    let count = (pool.current_num_threads() * SHARES_PER_THREAD).min(n);
    (0..count).map(|i| i * n / count..(i + 1) * n / count).collect()
}

/// The expected statistics of the rows behind the limits, about the means.
///
/// # Errors
/// [`Error::Limits`]; a covariance that is not positive definite.
pub(super) fn statistics(
    pool: &rayon::ThreadPool,
    data: &Dataset,
    patterns: &Patterns,
    mixture: &Mixture,
) -> Result<Statistics, Error> {
    let (n, d) = data.rows().dim();
    let (k, weights) = (mixture.n_components(), mixture.weights().to_vec());
    let of = Parameters::new(data, patterns, mixture)?;
    let zero = || Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    let one = |share: Range<usize>| {
        let (mut out, mut sums, mut work) = (zero(), Sums::new(k, d), Work::new(k, d));
        let mut last = None;
        for &row in &patterns.sorted[share] {
            let w = data.weight(row);
            if w == 0.0 {
                continue;
            }
            let pattern = patterns.of_row[row];
            if let Some(before) = last.filter(|before| *before != pattern) {
                sums.flush(&of.ordered[before], &mut out);
            }
            last = Some(pattern);
            let ordered = &of.ordered[pattern];
            let (lower, upper) = of.limits.row(row);
            out.log_likelihood += w * work.row(ordered, lower, upper, &weights);
            out.total_weight += w;
            sums.add(ordered, &work, w);
        }
        if let Some(last) = last {
            sums.flush(&of.ordered[last], &mut out);
        }
        out
    };
    let parts: Vec<Statistics> = pool.install(|| shares(pool, n).into_par_iter().map(one).collect());
    let mut out = zero();
    for part in &parts {
        out.weight.iter_mut().zip(&part.weight).for_each(|(total, v)| *total += v);
        out.first += &part.first;
        out.second.iter_mut().zip(&part.second).for_each(|(total, v)| *total += v);
        out.log_likelihood += part.log_likelihood;
        out.total_weight += part.total_weight;
    }
    out.n_rows = n as u64;
    add_unrecorded(&of, &mut out)?;
    Ok(out)
}

/// Adds the rows that truncation is expected to have kept from being recorded, and conditions the likelihood on it.
///
/// For each of the recorded rows, `1/P(T)` are expected in all. That is a number without bound, and more than convergence needs:
/// with `m` of them, and as many fewer in the region as make the difference, the gradient of the likelihood and so the fixed points
/// are the same, and the steps of EM are longer. See [`TruncationTerms::sufficient`].
fn add_unrecorded(of: &Parameters<'_>, out: &mut Statistics) -> Result<(), Error> {
    let Some(terms) = TruncationTerms::new(of)? else { return Ok(()) };
    let TruncationTerms { ordered, work, log_probability } = &terms;
    let (k, d) = of.mixture.means().dim();
    let mut sums = Sums::new(k, d);
    let log_times = (-log_probability).min(libm::log(terms.sufficient(of.mixture)));
    let log_excess = -log_probability - log_times;
    for (c, weight) in of.mixture.weights().iter().enumerate() {
        sums.add_outside(ordered, work, c, out.total_weight * weight * libm::exp(log_times), log_excess);
    }
    sums.flush(ordered, out);
    out.log_likelihood -= out.total_weight * log_probability;
    Ok(())
}

/// The box of truncation under a mixture.
struct TruncationTerms<'a> {
    /// The mixture with its columns in the box's order.
    ordered: Ordered<'a>,
    /// The box's moments and log probability in each component.
    work: Work,
    /// The log probability of the box in the whole mixture.
    log_probability: f64,
}

impl<'a> TruncationTerms<'a> {
    /// `None` without truncation.
    fn new(of: &Parameters<'a>) -> Result<Option<Self>, Error> {
        let (Some(pattern), Some((lower, upper))) = (&of.patterns.truncation, of.limits.truncation()) else {
            return Ok(None);
        };
        let (k, d) = of.mixture.means().dim();
        let (ordered, mut work) = (Ordered::new(of.mixture, pattern)?, Work::new(k, d));
        let weights = of.mixture.weights().to_vec();
        let log_probability = work.row(&ordered, ArrayView1::from(lower), ArrayView1::from(upper), &weights);
        Ok(Some(Self { ordered, work, log_probability }))
    }

    /// A number of rows for each recorded one with which a step of EM does not lower the likelihood.
    ///
    /// A component and its normal vector are an exponential family. With `m` rows a step of EM is one of mirror descent on
    /// `ln P(T)`, which does not fall short of its promise while `m` times the covariance of the sufficient statistics `s`
    /// exceeds that in the box (relative smoothness). The largest ratio of `Var(v·s | T)` to `Var(v·s)` is
    ///
    /// ```text
    /// at most Σ_c P_c/P (v_c + 2 (1 − r_c) (1 + d/2 + 3/2 q_c²)),  q_c = E_c(|z|² | T),  r_c = π_c P_c / P
    /// ```
    ///
    /// The first term is the variance within a component: by Poincaré's inequality, whose constant for a normal distribution in a convex
    /// set is at most 1, `v_c = max(2, 4 q_c)`, and 4 for one column. The second is that between components, bounded by the
    /// squares of polynomials of degree 2 and variance 1, with a normal vector's `E|z|⁴ ≤ 3 (E|z|²)²`. Twice this bound leaves room for
    /// the change of the parameters in a step.
    fn sufficient(&self, mixture: &Mixture) -> f64 {
        let (d, limited) = (mixture.n_features(), self.ordered.pattern.limited);
        let free = (d - limited) as f64;
        let of = |(c, weight): (usize, &f64)| {
            let square = &self.work.regions[limited][c].square;
            let q = free + (0..limited).map(|i| square[packed_index(i, i)]).sum::<f64>();
            let within = if d == 1 { 4.0 } else { (4.0 * q).max(2.0) };
            let r = self.work.r[c];
            let between = 2.0 * (1.0 - r) * (1.0 + 0.5 * d as f64 + 1.5 * q * q);
            if r > 0.0 { r / weight * (within + between) } else { 0.0 }
        };
        2.0 * mixture.weights().iter().enumerate().map(of).sum::<f64>()
    }
}

/// As [`Evaluate::evaluate`](crate::Evaluate::evaluate).
///
/// # Errors
/// As for [`statistics`].
pub(super) fn evaluate(
    pool: &rayon::ThreadPool,
    data: &Dataset,
    patterns: &Patterns,
    mixture: &Mixture,
    mut want: EvaluateOptions<'_>,
) -> Result<Evaluation, Error> {
    let (n, d) = data.rows().dim();
    let (k, weights) = (mixture.n_components(), mixture.weights().to_vec());
    let of = Parameters::new(data, patterns, mixture)?;
    let recorded = TruncationTerms::new(&of)?.map_or(0.0, |terms| terms.log_probability);
    let work: Vec<_> = shares(pool, n).into_iter().map(|share| (share.clone(), want.split(share.len(), k))).collect();
    let one = |(share, mut want): (Range<usize>, EvaluateOptions<'_>)| {
        let (mut out, mut work) = (Evaluation::NOTHING, Work::new(k, d));
        for row in share.clone() {
            let (lower, upper) = of.limits.row(row);
            let log_density = work.row(&of.ordered[patterns.of_row[row]], lower, upper, &weights) - recorded;
            let r = ArrayView1::from(&work.r);
            out.add_row(data.weight(row), log_density, r);
            want.put_row(row - share.start, log_density, r);
        }
        out
    };
    let parts: Vec<Evaluation> = pool.install(|| work.into_par_iter().map(one).collect());
    Ok(parts.into_iter().fold(Evaluation::NOTHING, |sum, part| sum + part))
}
