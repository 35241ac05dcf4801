//! Scatter of components about new means, from moments about centres.

use ndarray::{Array1, Array2};

use crate::covariance::below_diagonal;
use crate::{CovarianceType, Statistics, packed_index, packed_len};

/// The new means of an M-step, and what the scatter about them needs.
pub(super) struct Means<'a> {
    pub(super) statistics: &'a Statistics,
    /// The weighted mean of a component's rows minus its centre, `(k, d)`; 0 for empty components.
    pub(super) sample: Array2<f64>,
    /// New mean minus centre, `(k, d)`.
    pub(super) shift: Array2<f64>,
    /// `(k, d)`.
    pub(super) means: Array2<f64>,
    pub(super) empty: Vec<bool>,
    /// The fraction of a moment that may be rounding error.
    pub(super) share: f64,
}

impl Means<'_> {
    /// `Σ r (x − μ)(x − μ)ᵀ` of the components of a group about their new means, `(d, d)`.
    pub(super) fn matrix(&self, group: &[usize]) -> Array2<f64> {
        let d = self.statistics.dim().1;
        let mut out = Array2::zeros((d, d));
        if self.statistics.kind == CovarianceType::Tied {
            self.add_central(&mut out, &self.statistics.second, group);
        } else {
            for &c in group {
                self.add_central(&mut out, &self.statistics.second[c * packed_len(d)..][..packed_len(d)], &[c]);
            }
        }
        for &c in group {
            let (weight, step) = (self.statistics.weight[c], self.step(c));
            for i in 0..d {
                (0..=i).for_each(|j| out[[i, j]] += weight * step[i] * step[j]);
            }
        }
        below_diagonal(d, |i, j| out[[j, i]] = out[[i, j]]);
        out
    }

    /// Adds the lower triangle of the scatter about the components' own means, whose moments about their centres are
    /// summed in `second`.
    fn add_central(&self, out: &mut Array2<f64>, second: &[f64], of: &[usize]) {
        let d = self.statistics.dim().1;
        let live: Vec<usize> = of.iter().copied().filter(|&c| !self.empty[c]).collect();
        let weight: f64 = live.iter().map(|&c| self.statistics.weight[c]).sum();
        if live.is_empty() {
            return;
        }
        let moved = |i: usize, j: usize| -> f64 {
            live.iter().map(|&c| self.statistics.weight[c] * self.sample[[c, i]] * self.sample[[c, j]]).sum()
        };
        let variance = |i: usize| {
            let nearest = live.iter().fold(f64::INFINITY, |m: f64, &c| m.min(self.sample_mean(c, i).abs()));
            weight * self.variance(second[packed_index(i, i)] / weight, moved(i, i) / weight, nearest)
        };
        let diagonal: Vec<f64> = (0..d).map(variance).collect();
        for i in 0..d {
            for j in 0..i {
                // Of a column without variance the covariances are only rounding error.
                if diagonal[i] != 0.0 && diagonal[j] != 0.0 {
                    out[[i, j]] += second[packed_index(i, j)] - moved(i, j);
                }
            }
            out[[i, i]] += diagonal[i];
        }
    }

    /// The diagonal of [`matrix`](Self::matrix), `(d,)`, from the moments of diag.
    pub(super) fn diagonal(&self, group: &[usize]) -> Array1<f64> {
        let d = self.statistics.dim().1;
        let mut out = Array1::zeros(d);
        for &c in group {
            let (weight, step) = (self.statistics.weight[c], self.step(c));
            for j in 0..d {
                if !self.empty[c] {
                    let sample = self.sample[[c, j]];
                    let about_centre = self.statistics.second[c * d + j] / weight;
                    out[j] += weight * self.variance(about_centre, sample * sample, self.sample_mean(c, j));
                }
                out[j] += weight * step[j] * step[j];
            }
        }
        out
    }

    /// The trace of [`matrix`](Self::matrix), from the moments of spherical.
    pub(super) fn trace(&self, group: &[usize]) -> f64 {
        let d = self.statistics.dim().1;
        let mut out = 0.0;
        for &c in group {
            let (weight, step) = (self.statistics.weight[c], self.step(c));
            if !self.empty[c] {
                let sample = self.sample.row(c);
                let farthest = (0..d).fold(0.0, |m: f64, j| m.max(self.sample_mean(c, j).abs()));
                let about_centre = self.statistics.second[c] / weight;
                out += weight * self.variance(about_centre, sample.dot(&sample), farthest);
            }
            out += weight * step.dot(&step);
        }
        out
    }

    /// New mean minus the mean of the rows; 0 for empty components, which have no rows.
    fn step(&self, c: usize) -> Array1<f64> {
        if self.empty[c] { Array1::zeros(self.shift.ncols()) } else { &self.shift.row(c) - &self.sample.row(c) }
    }

    fn sample_mean(&self, c: usize, j: usize) -> f64 {
        self.statistics.centres[[c, j]] + self.sample[[c, j]]
    }

    fn variance(&self, about_centre: f64, moved: f64, mean: f64) -> f64 {
        crate::m_step::variance(about_centre, moved, mean, self.share)
    }
}
