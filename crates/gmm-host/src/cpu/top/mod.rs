//! Rows with their components of largest density: selected once under one mixture, and then evaluated under that one or
//! others at those components alone.
//!
//! The selection evaluates every component. The rest costs `C` of `k` components, and reads rows and parameters row by
//! row.

mod engine;
mod score;
mod select;

use gmm_model::{Cholesky, CovarianceType, Factors, Mixture, Statistics};
use ndarray::ArrayView2;

use super::layout::{BLOCK, Buffer, Layout, STRIDE};
use super::simd::{Dispatch, Machine, Real};
use super::terms::Terms;
pub(crate) use engine::{TopPass, is_felt};
use score::{Moments, Score};
use select::Select;

/// Rows are padded with zeros to a multiple of this: the largest vector length of any instruction set.
const LANES: usize = 16;

/// Some rows and the `count` components of each that have the largest densities under a mixture, in ascending order.
pub(crate) struct TopRows<T> {
    count: usize,
    d: usize,
    /// `(n, width)`, less the shift.
    rows: Buffer<T>,
    /// `(n, count)`.
    components: Vec<u32>,
    /// Row weights, `(n,)`.
    weights: Vec<f64>,
    shift: Vec<f64>,
}

/// Length of a padded row.
const fn width(d: usize) -> usize {
    d.next_multiple_of(LANES)
}

impl<T: Dispatch> TopRows<T> {
    /// Evaluates all `k` components of every row, and selects `count`, at most `k`. Of equal densities the first component
    /// counts as larger.
    pub(crate) fn new(machine: Machine, layout: &Layout<T>, terms: &Terms<T>, count: usize) -> Self {
        let (n, d, k) = (layout.n, layout.d, terms.k);
        let mut joint = Buffer::zeroed(k * STRIDE);
        let spherical = terms.kind == CovarianceType::Spherical;
        let mut distances = Buffer::zeroed(if spherical { k * STRIDE } else { 0 });
        let mut scratch = Buffer::zeroed(2 * d * STRIDE);
        let mut buffer = layout.block_buffer();
        let mut rows = Buffer::zeroed(n * width(d));
        let mut components = Vec::with_capacity(n * count);
        let mut weights = Vec::with_capacity(n);
        for block in 0..layout.blocks() {
            let (x, here) = (layout.block(block, &mut buffer), layout.rows_in(block));
            T::dispatch(
                machine,
                Select {
                    terms,
                    x,
                    rows: here,
                    count,
                    joint: &mut joint,
                    distances: &mut distances,
                    scratch: &mut scratch,
                    out: &mut components,
                },
            );
            for (row, slots) in rows[block * BLOCK * width(d)..].chunks_exact_mut(width(d)).take(here).enumerate() {
                slots.iter_mut().zip(x[row..].iter().step_by(STRIDE)).take(d).for_each(|(slot, v)| *slot = *v);
            }
            weights.extend(layout.weights(block)[..here].iter().map(|w| w.to_f64()));
        }
        Self { count, d, rows, components, weights, shift: layout.shift.clone() }
    }

    /// Each row with its components and its weight.
    fn each(&self) -> impl Iterator<Item = (&[T], &[u32], f64)> {
        let components = self.components.chunks_exact(self.count);
        let rows = self.rows.chunks_exact(width(self.d)).zip(components);
        rows.zip(&self.weights).map(|((row, components), weight)| (row, components, *weight))
    }

    /// Σ w ln Σ_c w_c N(x | c) over the selected components, under `parameters`.
    pub(crate) fn log_likelihood(&self, machine: Machine, parameters: &TopParameters<'_, T>) -> f64 {
        let mut joint = [vec![T::ZERO; self.count.next_multiple_of(LANES)]];
        T::dispatch(machine, Score { rows: self, parameters, joint: &mut joint[0] })
    }

    /// Σ w.
    pub(crate) fn total_weight(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Adds the statistics of the rows, with responsibilities among the selected components, to those about the means of
    /// the mixture of `parameters`, of kind diag or spherical.
    pub(crate) fn add_to(&self, machine: Machine, parameters: &TopParameters<'_, T>, statistics: &mut Statistics) {
        let (k, d) = statistics.dim();
        let mut joint = vec![T::ZERO; self.count.next_multiple_of(LANES)];
        let mut sums = Sums {
            centres: statistics.centres.iter().zip(self.shift.iter().cycle()).map(|(m, s)| m - s).collect(),
            weight: vec![0.0; k],
            first: vec![0.0; k * d],
            second: vec![0.0; k * d],
        };
        let log_likelihood =
            T::dispatch(machine, Moments { rows: self, parameters, joint: &mut joint, sums: &mut sums });
        let add = |to: &mut f64, v: &f64| *to += v;
        statistics.weight.iter_mut().zip(&sums.weight).for_each(|(to, v)| add(to, v));
        statistics.first.iter_mut().zip(&sums.first).for_each(|(to, v)| add(to, v));
        if statistics.kind == CovarianceType::Diag {
            statistics.second.iter_mut().zip(&sums.second).for_each(|(to, v)| add(to, v));
        } else {
            let traces = sums.second.chunks_exact(d).map(|row| row.iter().sum::<f64>());
            statistics.second.iter_mut().zip(traces).for_each(|(to, v)| *to += v);
        }
        statistics.log_likelihood += log_likelihood;
        statistics.total_weight += self.total_weight();
        statistics.n_rows += self.weights.len() as u64;
    }
}

/// Sums of responsibilities and moments about `centres`, all `(k, d)` but `weight`, `(k,)`.
struct Sums {
    /// Less the shift.
    centres: Vec<f64>,
    weight: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

/// A mixture's parameters for rows that are read one by one.
pub(crate) struct TopParameters<'a, T> {
    /// Less the shift, `(k, width)`.
    means: Vec<T>,
    scales: TopScales<'a, T>,
    /// `ln w_c + log normaliser`, `(k,)`.
    constants: Vec<T>,
}

enum TopScales<'a, T> {
    /// Reciprocal standard deviations, `(k, width)`; 0 in the padding.
    Deviations(Vec<T>),
    /// A Cholesky factor for each component, or one for all.
    Factors(&'a [Cholesky]),
}

impl<'a, T: Real> TopParameters<'a, T> {
    /// The parameters of `mixture`.
    pub(crate) fn new(mixture: &'a Mixture, shift: &[f64]) -> Self {
        let (k, d) = mixture.means().dim();
        let scales = match mixture.factors() {
            Factors::Full(all) => TopScales::Factors(all),
            Factors::Tied(one) => TopScales::Factors(std::slice::from_ref(one)),
            Factors::Diag(sd) => TopScales::Deviations(padded(d, sd.iter().map(|v| 1.0 / v))),
            Factors::Spherical(sd) => {
                let all = sd.iter().flat_map(|v| std::iter::repeat_n(1.0 / v, d));
                TopScales::Deviations(padded(d, all))
            }
        };
        let constants = (0..k).map(|c| T::of(mixture.log_weight(c) + mixture.log_normalizer(c))).collect();
        Self { means: relative(mixture.means(), shift), scales, constants }
    }

    /// Replaces the means, `(k, d)`.
    pub(crate) fn move_to(&mut self, means: ArrayView2<'_, f64>, shift: &[f64]) {
        let d = shift.len();
        for (slots, mean) in self.means.chunks_exact_mut(width(d)).zip(means.outer_iter()) {
            slots.iter_mut().zip(mean.iter().zip(shift)).for_each(|(slot, (m, s))| *slot = T::of(m - s));
        }
    }
}

impl<T: Clone> Clone for TopParameters<'_, T> {
    fn clone(&self) -> Self {
        let scales = match &self.scales {
            TopScales::Deviations(all) => TopScales::Deviations(all.clone()),
            TopScales::Factors(all) => TopScales::Factors(all),
        };
        Self { means: self.means.clone(), scales, constants: self.constants.clone() }
    }
}

fn relative<T: Real>(means: ArrayView2<'_, f64>, shift: &[f64]) -> Vec<T> {
    padded(shift.len(), means.iter().zip(shift.iter().cycle()).map(|(m, s)| m - s))
}

/// Rows of `d` numbers, padded with zeros.
fn padded<T: Real>(d: usize, all: impl Iterator<Item = f64>) -> Vec<T> {
    let mut out = Vec::new();
    for (i, v) in all.enumerate() {
        out.push(T::of(v));
        if (i + 1) % d == 0 {
            out.resize(out.len() + width(d) - d, T::ZERO);
        }
    }
    out
}
