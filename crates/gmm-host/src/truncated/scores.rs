//! Log joint densities of one row under some components.

use gmm_model::{Covariances, Mixture};

use crate::cpu::simd::{Real, Words, prefetch};

/// Numbers of a vector of either precision, at most: rows and components have a multiple of it.
pub(super) const PAD: usize = 16;

/// The components, padded with columns that add nothing.
pub(super) struct Terms<T> {
    /// Means less the shift, `(k, padded)`.
    means: Vec<T>,
    /// Reciprocals of the variances, `(k, padded)`; `(k,)` for spherical ones.
    precisions: Vec<T>,
    is_spherical: bool,
    /// The log joint density at the mean.
    constants: Vec<f64>,
    /// π_c.
    pub(super) weights: Vec<f64>,
    padded: usize,
}

impl<T: Real> Terms<T> {
    /// Of a diag or spherical mixture.
    pub(super) fn new(mixture: &Mixture, shift: &[f64]) -> Self {
        let (k, d) = mixture.means().dim();
        let padded = d.next_multiple_of(PAD);
        let mut means = vec![T::ZERO; k * padded];
        for (row, mean) in means.chunks_exact_mut(padded).zip(mixture.means().outer_iter()) {
            row.iter_mut().zip(mean.iter().zip(shift)).for_each(|(slot, (m, s))| *slot = T::of(m - s));
        }
        let precisions: Vec<T> = match mixture.covariances() {
            Covariances::Diag(all) => {
                let mut precisions = vec![T::ZERO; k * padded];
                for (row, variances) in precisions.chunks_exact_mut(padded).zip(all.outer_iter()) {
                    row.iter_mut().zip(variances).for_each(|(slot, v)| *slot = T::of(1.0 / v));
                }
                precisions
            }
            Covariances::Spherical(all) => all.iter().map(|v| T::of(1.0 / v)).collect(),
            _ => unreachable!("truncated EM is for diag and spherical: TruncatedOptions::validate"),
        };
        let constants = (0..k).map(|c| mixture.log_weight(c) + mixture.log_normalizer(c)).collect();
        let is_spherical = matches!(mixture.covariances(), Covariances::Spherical(_));
        Self { means, precisions, is_spherical, constants, weights: mixture.weights().to_vec(), padded }
    }

    /// The means less the shift, `(k, padded)`.
    pub(super) fn means(&self) -> &[T] {
        &self.means
    }

    /// Asks for the numbers of a component, for use soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, c: u32) {
        let own = c as usize * self.padded..(c as usize + 1) * self.padded;
        prefetch(&self.means[own.clone()]);
        if !self.is_spherical {
            prefetch(&self.precisions[own]);
        }
    }

    /// Writes the log joint density of the row `x`, `(padded,)`, with each of `components`.
    #[inline(always)]
    pub(super) fn log_joint<W: Words<T>>(&self, w: W, x: &[T], components: &[u32], out: &mut Vec<f64>) {
        out.clear();
        for four in components.chunks(4) {
            // The last are repeated, so that there are always four: one after another would wait for each sum.
            let at: [usize; 4] = std::array::from_fn(|i| four[i.min(four.len() - 1)] as usize);
            let squares = if self.is_spherical {
                let scale = at.map(|c| self.precisions[c]);
                let sums = self.squares(w, x, at.map(|c| &self.means[c * self.padded..][..self.padded]), None);
                std::array::from_fn(|i| sums[i].to_f64() * scale[i].to_f64())
            } else {
                let means = at.map(|c| &self.means[c * self.padded..][..self.padded]);
                let precisions = at.map(|c| &self.precisions[c * self.padded..][..self.padded]);
                self.squares(w, x, means, Some(precisions)).map(Real::to_f64)
            };
            let joint = |i: usize| self.constants[at[i]] - 0.5 * squares[i];
            out.extend((0..four.len()).map(joint));
        }
    }

    /// Squared distances of `x` to four points, with a weight for each column if there are some.
    #[inline(always)]
    fn squares<W: Words<T>>(&self, w: W, x: &[T], means: [&[T]; 4], precisions: Option<[&[T]; 4]>) -> [T; 4] {
        let len = self.padded;
        assert!(
            x.len() == len && len.is_multiple_of(W::LANES) && means.iter().all(|m| m.len() == len),
            "padded numbers"
        );
        assert!(precisions.is_none_or(|all| all.iter().all(|p| p.len() == len)), "padded numbers");
        let mut sums = [w.splat(T::ZERO); 4];
        for j in (0..len).step_by(W::LANES) {
            // SAFETY: all have `len` numbers, a multiple of `LANES`, as asserted.
            let load = |from: &[T]| unsafe { w.load(from.as_ptr().add(j)) };
            let x = load(x);
            for i in 0..4 {
                let z = w.sub(x, load(means[i]));
                let scaled = match precisions {
                    Some(all) => w.mul(z, load(all[i])),
                    None => z,
                };
                sums[i] = w.fma(scaled, z, sums[i]);
            }
        }
        w.sum4(sums)
    }
}
