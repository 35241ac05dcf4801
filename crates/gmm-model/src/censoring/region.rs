//! The standard normal distribution on `l ≤ L z ≤ u`, `L` lower triangular: probability and moments.
//!
//! Each entry of `L z` depends on the entries of `z` up to its own, so the entries of `z` can be taken one after another: the
//! first has an interval, and given it the second has one, and so on (Genz 1992, "Numerical computation of multivariate normal
//! probabilities"). The last one is always a closed form. One entry is all closed form; so are any number of independent ones.
//! Two need an integral of one variable ([`plane`]); more are integrated over the points of a lattice, tilted
//! towards the region ([`tilted`]).

use super::interval::IntervalMoments;
use super::{plane, tilted};
use crate::packed_index;

/// The largest number of dependent entries whose region is integrated.
pub const MAX_DEPENDENT: usize = 6;

/// A region of `m` entries and the moments of a standard normal vector in it.
#[derive(Clone, Debug)]
pub struct Region {
    m: usize,
    /// Bounds of `L z`, `(m,)` each.
    pub lower: Vec<f64>,
    /// See `lower`.
    pub upper: Vec<f64>,
    /// Logarithm of the region's probability.
    pub log_probability: f64,
    /// Mean of `z` given the region, `(m,)`.
    pub mean: Vec<f64>,
    /// Packed mean of `z zᵀ` given the region, `(m*(m+1)/2,)`.
    pub square: Vec<f64>,
    work: tilted::Workspace,
}

impl Region {
    /// Room for a region of `m` entries.
    pub fn new(m: usize) -> Self {
        Self {
            m,
            lower: vec![0.0; m],
            upper: vec![0.0; m],
            log_probability: 0.0,
            mean: vec![0.0; m],
            square: vec![0.0; crate::packed_len(m)],
            work: tilted::Workspace::new(m),
        }
    }

    /// Computes probability and moments between the bounds under `factor`, the packed rows of `L`. `is_diagonal`: `L` is a
    /// diagonal matrix, and only its diagonal is read.
    ///
    /// Relative errors: a few eps for one entry or independent ones; 1e-10 of the probability and 1e-7 of moments for two;
    /// up to 2e-4 and 2e-3 for three to [`MAX_DEPENDENT`]. The points are the same in each call.
    ///
    /// # Panics
    /// If there are more than [`MAX_DEPENDENT`] dependent entries, or `factor` is shorter than `m*(m+1)/2`.
    pub fn compute(&mut self, factor: &[f64], is_diagonal: bool) {
        let m = self.m;
        if is_diagonal || m == 1 {
            self.log_probability = 0.0;
            for i in 0..m {
                let scale = factor[packed_index(i, i)];
                let of = IntervalMoments::new(self.lower[i] / scale, self.upper[i] / scale);
                self.log_probability += of.log_probability;
                self.mean[i] = of.mean;
                for j in 0..i {
                    self.square[packed_index(i, j)] = of.mean * self.mean[j];
                }
                self.square[packed_index(i, i)] = of.square;
            }
            return;
        }
        assert!(m <= MAX_DEPENDENT, "a region of at most {MAX_DEPENDENT} dependent entries");
        let bounds = (self.lower.as_slice(), self.upper.as_slice());
        self.log_probability = match m {
            0 => 0.0,
            2 => plane::moments(factor, bounds, &mut self.mean, &mut self.square),
            _ => tilted::moments(factor, bounds, &mut self.work, &mut self.mean, &mut self.square),
        };
    }
}
