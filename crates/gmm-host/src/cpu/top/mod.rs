//! Rows with their components of largest density: selected once under one mixture, and then evaluated under that one or
//! others at those components alone.
//!
//! The selection evaluates every component, which takes most of the time: 2 d operations for each, of which there are
//! thirty times more than are selected. The rest costs `count` of `k` components, and reads rows and parameters row by row.

mod columns;
mod densities;
mod engine;
mod moments;
mod score;
mod select;

use gmm_model::{Cholesky, Dataset, Factors, Matrix, Mixture, Statistics};
use ndarray::ArrayView2;

use super::layout::Buffer;
use super::simd::{Dispatch, Machine, Real};
use super::terms::Terms;
use crate::Error;
use columns::Columns;
use densities::{Densities, Panels, ROWS, pitch};
pub(crate) use engine::{TopPass, is_felt};
use moments::{Moments, Sums};
use score::Score;
use select::{Largest, Scratch};

/// Rows are padded with zeros to a multiple of this: the largest vector length of any instruction set.
const LANES: usize = 16;

/// Most bytes of the densities of a block of rows, which stay in the L2 cache until components are selected.
const MOST_BYTES: usize = 256 << 10;
/// Most rows of such a block, so that those of some dozens of columns stay in the L1 cache.
const MOST_IN_BLOCK: usize = 64;

/// Length of a padded row.
const fn width(d: usize) -> usize {
    d.next_multiple_of(LANES)
}

/// The mixture that selects.
pub(crate) struct TopBackground<T> {
    terms: Terms<T>,
    /// For the kinds diag and spherical.
    panels: Option<Panels<T>>,
    /// Less the shift, `(k, width)`.
    means: Vec<T>,
    shift: Vec<f64>,
}

impl<T: Real> TopBackground<T> {
    pub(crate) fn new(mixture: &Mixture, shift: &[f64]) -> Self {
        let terms = Terms::new(mixture, shift);
        let panels = Panels::new(&terms);
        Self { terms, panels, means: relative(mixture.means(), shift), shift: shift.to_vec() }
    }
}

/// Some rows and the `count` components of each that have the largest densities under a mixture, in ascending order.
pub(crate) struct TopRows<T> {
    count: usize,
    d: usize,
    /// `(n, width)`, less the shift; more rows of zeros follow.
    rows: Buffer<T>,
    /// `(n, count)`.
    components: Vec<u32>,
    /// Log joint densities of the components under the mixture, padded with −∞ to a multiple of `LANES`.
    values: Vec<T>,
    /// Row weights, `(n,)`.
    weights: Vec<f64>,
}

impl<T: Dispatch> TopRows<T> {
    /// Evaluates all `k` components of every row, and selects `count`, at most `k`. Of equal densities the first component
    /// counts as larger.
    pub(crate) fn new(
        machine: Machine,
        data: &Dataset,
        background: &TopBackground<T>,
        count: usize,
    ) -> Result<Self, Error> {
        let (n, d, k) = (data.n_rows(), data.n_features(), background.terms.k);
        let (width, pitch) = (width(d), pitch(k));
        let most = (MOST_BYTES / (pitch * size_of::<T>()) / ROWS * ROWS).clamp(ROWS, MOST_IN_BLOCK);
        let mut joint = Buffer::zeroed(most * pitch);
        let mut scratch = Scratch::new(pitch, count);
        let rows = padded_rows(data, &background.shift);
        let mut components = Vec::with_capacity(n * count);
        let mut values = Vec::with_capacity(n * count.next_multiple_of(LANES));
        let mut columns = match background.panels {
            Some(_) => None,
            None => Some(Columns::new(machine, data, background)?),
        };
        for first in (0..n).step_by(most) {
            let here = most.min(n - first);
            if let Some(panels) = &background.panels {
                let x = &rows[first * width..];
                T::dispatch(machine, Densities { panels, x, rows: here.next_multiple_of(ROWS), joint: &mut joint });
            } else if let Some(columns) = &mut columns {
                columns.copy(machine, &background.terms, first..first + here, &mut joint);
            }
            let (joint, scratch) = (&joint[..here * pitch], &mut scratch);
            let (components, values) = (&mut components, &mut values);
            T::dispatch(machine, Largest { k, count, joint, pitch, scratch, components, values });
        }
        let weights = (0..n).map(|row| data.weight(row)).collect();
        Ok(Self { count, d, rows, components, values, weights })
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
    /// the mixture that selected them, of kind diag or spherical.
    pub(crate) fn add_to(mut self, machine: Machine, background: &TopBackground<T>, statistics: &mut Statistics) {
        statistics.total_weight += self.total_weight();
        statistics.n_rows += self.weights.iter().filter(|w| **w > 0.0).count() as u64;
        let sums = Sums {
            weight: &mut statistics.weight,
            first: statistics.first.as_slice_mut().expect("row-major"),
            second: &mut statistics.second,
        };
        let moments = Moments { rows: &mut self, centres: &background.means, sums };
        statistics.log_likelihood += T::dispatch(machine, moments);
    }
}

/// Rows less the shift, `(n, width)`, and some of zeros; the difference is computed in f64 and rounded once.
fn padded_rows<T: Real>(data: &Dataset, shift: &[f64]) -> Buffer<T> {
    fn fill<S: Copy + Into<f64>, T: Real>(out: &mut [T], rows: &[S], shift: &[f64]) {
        for (out, row) in out.chunks_exact_mut(width(shift.len())).zip(rows.chunks_exact(shift.len())) {
            out.iter_mut().zip(row.iter().zip(shift)).for_each(|(slot, (&v, s))| *slot = T::of(v.into() - s));
        }
    }
    let mut out = Buffer::zeroed(data.n_rows().next_multiple_of(ROWS) * width(shift.len()));
    match data.rows() {
        Matrix::F32(a) => fill(&mut out, a.as_slice().expect("row-major"), shift),
        Matrix::F64(a) => fill(&mut out, a.as_slice().expect("row-major"), shift),
    }
    out
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
