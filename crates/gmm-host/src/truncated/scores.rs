//! Log joint densities of one row under some components.

use gmm_model::{Cholesky, FactorLoadings, Factors, Mixture, inverse_transposed};
use ndarray::{Array2, ArrayView2, Axis};
use rayon::prelude::*;

use crate::cpu::simd::{Real, Words, prefetch};
use crate::{Error, memory};

/// Numbers of a vector of either precision, at most: rows and components have a multiple of it.
pub(super) const PAD: usize = 16;

/// Up to that many factors, those of a row need no memory of the heap.
const FEW: usize = 16;

/// The components, padded with columns that add nothing.
pub(crate) struct Terms<T> {
    /// Means less the shift, `(k, padded)`.
    means: Vec<T>,
    pub(crate) scales: Scales<T>,
    /// The log joint density at the mean.
    pub(crate) constants: Vec<f64>,
    /// π_c.
    pub(crate) weights: Vec<f64>,
    pub(crate) padded: usize,
}

/// What a distance is measured by. Deviations, not variances: in single precision the reciprocal of a variance of 1e-39 is
/// infinite.
pub(crate) enum Scales<T> {
    /// Reciprocals of the standard deviations, `(k, padded)`.
    Diag(Vec<T>),
    /// The same, `(k,)`.
    Spherical(Vec<T>),
    /// Rows of `L⁻¹`, with `L` the Cholesky factor of the covariance, `(k, lines, padded)`; rows of 0 make `lines` a multiple of 4.
    Full {
        rows: Vec<T>,
        lines: usize,
    },
    Factors(Factorial<T>),
}

/// Covariances `Λ Λᵀ + Ψ`. With the posterior mean `z = (I + Λᵀ Ψ⁻¹ Λ)⁻¹ Λᵀ Ψ⁻¹ r` of the factors, the distance of `r` is
/// `|Ψ^(-1/2) (r − Λ z)|² + |z|²`, two products with `h` vectors. `rᵀ Ψ⁻¹ r` less what the factors explain would need only
/// one, but cancels where the factors explain nearly all.
///
/// The loadings are turned so that `Λᵀ Ψ⁻¹ Λ` is diagonal, as those of fits are: nothing has to be solved then.
pub(crate) struct Factorial<T> {
    /// `Λᵀ`, `(k, h, padded)`.
    pub(crate) loadings: Vec<T>,
    /// `(I + Λᵀ Ψ⁻¹ Λ)⁻¹ Λᵀ Ψ⁻¹`, `(k, lines, padded)`, with lines of 0 as for full covariances.
    pub(crate) posteriors: Vec<T>,
    /// `1 / √ψ`, `(k, padded)`.
    pub(crate) scales: Vec<T>,
    pub(crate) h: usize,
    pub(crate) lines: usize,
}

impl<T: Real> Terms<T> {
    /// Of a mixture of any kind but tied.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn new(mixture: &Mixture, shift: &[f64]) -> Result<Self, Error> {
        let (k, d) = mixture.means().dim();
        let padded = d.next_multiple_of(PAD);
        let lines = match (mixture.factors(), mixture.loadings()) {
            (_, Some(loadings)) => 2 + loadings.n_factors() + loadings.n_factors().next_multiple_of(4),
            (Factors::Full(_), None) => 1 + d.next_multiple_of(4),
            _ => 2,
        };
        memory::check("the parameters for truncated EM", (size_of::<T>() * k * padded * lines) as u128)?;
        let mut means = vec![T::ZERO; k * padded];
        for (row, mean) in means.chunks_exact_mut(padded).zip(mixture.means().outer_iter()) {
            row.iter_mut().zip(mean.iter().zip(shift)).for_each(|(slot, (m, s))| *slot = T::of(m - s));
        }
        let scales = match (mixture.factors(), mixture.loadings()) {
            (_, Some(loadings)) => Scales::Factors(Factorial::new(loadings, padded)),
            (Factors::Full(all), None) => whitening(all, (d, padded)),
            (Factors::Diag(all), None) => Scales::Diag(reciprocals(all.view(), padded)),
            (Factors::Spherical(all), None) => Scales::Spherical(all.iter().map(|v| T::of(1.0 / v)).collect()),
            (Factors::Tied(_), None) => unreachable!("not for tied covariances: TruncatedOptions::validate"),
        };
        let constants = (0..k).map(|c| mixture.log_weight(c) + mixture.log_normalizer(c)).collect();
        Ok(Self { means, scales, constants, weights: mixture.weights().to_vec(), padded })
    }

    /// The means less the shift, `(k, padded)`.
    pub(crate) fn means(&self) -> &[T] {
        &self.means
    }

    /// Entry `c` of a `(k, lines, padded)` array.
    #[inline(always)]
    fn of<'a>(&self, all: &'a [T], c: usize, lines: usize) -> &'a [T] {
        &all[c * lines * self.padded..][..lines * self.padded]
    }

    /// Asks for the numbers of a component, for use soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, c: u32) {
        let c = c as usize;
        prefetch(self.of(&self.means, c, 1));
        // The first of many lines; the processor expects the others.
        match &self.scales {
            Scales::Diag(all) | Scales::Full { rows: all, .. } => prefetch(self.of(all, c, 1)),
            Scales::Factors(all) => prefetch(self.of(&all.posteriors, c, 1)),
            Scales::Spherical(_) => {}
        }
    }

    /// Writes the log joint density of the row `x`, `(padded,)`, with each of `components`.
    #[inline(always)]
    pub(super) fn log_joint<W: Words<T>>(&self, w: W, x: &[T], components: &[u32], out: &mut Vec<f64>) {
        out.clear();
        // Loops, not closures for `extend`: that would call them outside the code for this instruction set.
        match &self.scales {
            Scales::Full { rows, lines } => {
                for &c in components {
                    let c = c as usize;
                    let square = self.whitened(w, x, self.of(&self.means, c, 1), self.of(rows, c, *lines));
                    out.push(self.constants[c] - 0.5 * square);
                }
            }
            Scales::Factors(all) => {
                for &c in components {
                    let c = c as usize;
                    let square = self.unexplained(w, x, self.of(&self.means, c, 1), (all, c));
                    out.push(self.constants[c] - 0.5 * square);
                }
            }
            _ => self.log_joint_of_variances(w, x, components, out),
        }
    }

    /// As [`log_joint`](Self::log_joint), for diag and spherical covariances.
    #[inline(always)]
    fn log_joint_of_variances<W: Words<T>>(&self, w: W, x: &[T], components: &[u32], out: &mut Vec<f64>) {
        for four in components.chunks(4) {
            // The last are repeated, so that there are always four: one after another would wait for each sum.
            let at: [usize; 4] = std::array::from_fn(|i| four[i.min(four.len() - 1)] as usize);
            let means = at.map(|c| self.of(&self.means, c, 1));
            let squares = match &self.scales {
                Scales::Spherical(all) => self.squares(w, x, means, Err(at.map(|c| all[c]))),
                Scales::Diag(all) => self.squares(w, x, means, Ok(at.map(|c| self.of(all, c, 1)))),
                _ => unreachable!("other kinds are one component at a time"),
            };
            let joint = |i: usize| self.constants[at[i]] - 0.5 * squares[i].to_f64();
            out.extend((0..four.len()).map(joint));
        }
    }

    /// Squared distances of `x` to four points, in a unit for each column or, in `Err`, one for all.
    #[inline(always)]
    fn squares<W: Words<T>>(&self, w: W, x: &[T], means: [&[T]; 4], scales: Result<[&[T]; 4], [T; 4]>) -> [T; 4] {
        let len = self.padded;
        assert!(
            x.len() == len && len.is_multiple_of(W::LANES) && means.iter().all(|m| m.len() == len),
            "padded numbers"
        );
        assert!(scales.is_ok_and(|all| all.iter().all(|s| s.len() == len)) || scales.is_err(), "padded numbers");
        let mut sums = [w.splat(T::ZERO); 4];
        for j in (0..len).step_by(W::LANES) {
            // SAFETY: all have `len` numbers, a multiple of `LANES`, as asserted.
            let load = |from: &[T]| unsafe { w.load(from.as_ptr().add(j)) };
            let x = load(x);
            for i in 0..4 {
                let z = w.sub(x, load(means[i]));
                let scale = match scales {
                    Ok(all) => load(all[i]),
                    Err(all) => w.splat(all[i]),
                };
                let scaled = w.mul(z, scale);
                sums[i] = w.fma(scaled, scaled, sums[i]);
            }
        }
        w.sum4(sums)
    }

    /// Products of `x − mean` with the first four of some lines of `len` numbers, of which the first `end` count.
    #[inline(always)]
    fn products<W: Words<T>>(&self, w: W, x: &[T], mean: &[T], lines: &[T], end: usize) -> [T; 4] {
        let len = self.padded;
        assert!(x.len() == len && mean.len() == len && lines.len() >= 4 * len, "padded numbers");
        assert!(end <= len && len.is_multiple_of(W::LANES), "padded numbers");
        let mut sums = [w.splat(T::ZERO); 4];
        for j in (0..end).step_by(W::LANES) {
            // SAFETY: `j < len`, a multiple of `LANES`: vectors at `j` end within the row, the mean and each of the lines.
            let load = |from: &[T], line: usize| unsafe { w.load(from.as_ptr().add(line * len + j)) };
            let z = w.sub(load(x, 0), load(mean, 0));
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = w.fma(z, load(lines, i), *sum);
            }
        }
        w.sum4(sums)
    }

    /// The squared Mahalanobis distance by the rows of `L⁻¹`.
    #[inline(always)]
    fn whitened<W: Words<T>>(&self, w: W, x: &[T], mean: &[T], rows: &[T]) -> f64 {
        let mut square = 0.0;
        for (i, four) in rows.chunks_exact(4 * self.padded).enumerate() {
            // `L⁻¹` is lower triangular.
            let z = self.products(w, x, mean, four, (4 * i + 4).min(self.padded));
            z.iter().for_each(|z| square += z.to_f64() * z.to_f64());
        }
        square
    }

    /// The squared Mahalanobis distance of component `c`: see [`Factorial`].
    #[inline(always)]
    fn unexplained<W: Words<T>>(&self, w: W, x: &[T], mean: &[T], (all, c): (&Factorial<T>, usize)) -> f64 {
        let (len, h) = (self.padded, all.h);
        let (posteriors, loadings) = (self.of(&all.posteriors, c, all.lines), self.of(&all.loadings, c, h));
        let scales = self.of(&all.scales, c, 1);
        assert!(len.is_multiple_of(W::LANES) && x.len() == len && mean.len() == len, "padded numbers");
        let (mut square, mut sum) = (0.0, w.splat(T::ZERO));
        let (mut few, mut many) = ([T::ZERO; FEW], Vec::new());
        let z = if all.lines <= FEW {
            &mut few[..all.lines]
        } else {
            many.resize(all.lines, T::ZERO);
            &mut many[..]
        };
        for (found, four) in z.chunks_exact_mut(4).zip(posteriors.chunks_exact(4 * len)) {
            found.copy_from_slice(&self.products(w, x, mean, four, len));
            found.iter().for_each(|z| square += z.to_f64() * z.to_f64());
        }
        for j in (0..len).step_by(W::LANES) {
            // SAFETY: `j < len`, a multiple of `LANES`: vectors at `j` end within the row, the mean and each of the lines.
            let load = |from: &[T], line: usize| unsafe { w.load(from.as_ptr().add(line * len + j)) };
            let mut rest = w.sub(load(x, 0), load(mean, 0));
            for (e, z) in z[..h].iter().enumerate() {
                rest = w.neg_fma(w.splat(*z), load(loadings, e), rest);
            }
            let scaled = w.mul(rest, load(scales, 0));
            sum = w.fma(scaled, scaled, sum);
        }
        square + w.sum(sum).to_f64()
    }
}

/// `1 / v`, padded with 0.
fn reciprocals<T: Real>(all: ArrayView2<'_, f64>, padded: usize) -> Vec<T> {
    let mut out = vec![T::ZERO; all.nrows() * padded];
    for (line, all) in out.chunks_exact_mut(padded).zip(all.outer_iter()) {
        line.iter_mut().zip(all).for_each(|(slot, v)| *slot = T::of(1.0 / v));
    }
    out
}

fn whitening<T: Real>(all: &[Cholesky], (d, padded): (usize, usize)) -> Scales<T> {
    let lines = d.next_multiple_of(4);
    let mut rows = vec![T::ZERO; all.len() * lines * padded];
    rows.par_chunks_exact_mut(lines * padded).zip(all).for_each(|(rows, factor)| {
        let lower = |(i, j): (usize, usize)| if j <= i { factor.at(i, j) } else { 0.0 };
        let columns = inverse_transposed(ndarray::Array2::from_shape_fn((d, d), lower).view());
        for (j, column) in columns.outer_iter().enumerate() {
            column.iter().enumerate().for_each(|(i, v)| rows[i * padded + j] = T::of(*v));
        }
    });
    Scales::Full { rows, lines }
}

impl<T: Real> Factorial<T> {
    fn new(all: &FactorLoadings, padded: usize) -> Self {
        let (k, _, h) = all.loadings.dim();
        let lines = h.next_multiple_of(4);
        let mut loadings = vec![T::ZERO; k * h * padded];
        let mut posteriors = vec![T::ZERO; k * lines * padded];
        let each = loadings.par_chunks_exact_mut(h * padded).zip(posteriors.par_chunks_exact_mut(lines * padded));
        each.enumerate().for_each(|(c, (loadings, posteriors))| {
            let deviations = all.uniquenesses.row(c).mapv(f64::sqrt);
            let mut scaled = &all.loadings.index_axis(Axis(0), c).t() / &deviations;
            turn(&mut scaled);
            for (e, line) in scaled.outer_iter().enumerate() {
                let share = 1.0 + line.dot(&line);
                for (j, (v, deviation)) in line.iter().zip(&deviations).enumerate() {
                    loadings[e * padded + j] = T::of(v * deviation);
                    posteriors[e * padded + j] = T::of(v / share / deviation);
                }
            }
        });
        let scales = reciprocals(all.uniquenesses.mapv(f64::sqrt).view(), padded);
        Self { loadings, posteriors, scales, h, lines }
    }
}

/// Lines whose product is a smaller part than this of their lengths are at right angles.
const RIGHT: f64 = 1e-14;

/// Most rounds over all pairs of lines; three or four are enough.
const ROUNDS: usize = 30;

/// Turns the lines of `a`, `(h, d)`, in the planes of two of them until all are at right angles: `Aᵀ A` stays.
///
/// Source: Hestenes 1958, "Inversion of matrices by biorthogonalization and related results".
fn turn(a: &mut Array2<f64>) {
    let h = a.nrows();
    for _ in 0..ROUNDS {
        let mut has_turned = false;
        for q in 1..h {
            for p in 0..q {
                let (mut above, mut below) = a.view_mut().split_at(Axis(0), q);
                let (mut one, mut other) = (above.row_mut(p), below.row_mut(0));
                let (len, other_len, product) = (one.dot(&one), other.dot(&other), one.dot(&other));
                let is_right = product.abs() <= RIGHT * (len.sqrt() * other_len.sqrt());
                if is_right {
                    continue;
                }
                has_turned = true;
                let cotangent = (other_len - len) / (2.0 * product);
                let tangent = cotangent.signum() / (cotangent.abs() + cotangent.hypot(1.0));
                let cosine = tangent.hypot(1.0).recip();
                let sine = cosine * tangent;
                for (x, y) in one.iter_mut().zip(&mut other) {
                    (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
                }
            }
        }
        if !has_turned {
            break;
        }
    }
}
