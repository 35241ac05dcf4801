//! A mixture's parameters as the kernels read them: minus the rows' shift, in the engine's precision.

use cust::memory::bytemuck::cast_slice_mut;
use gmm_kernels::layout::{PANEL, panel_index, panel_len};
use gmm_model::{Cholesky, CovarianceType, Factors, Mixture, Numbers, PrecisionMixture, inverse_transposed};
use ndarray::{ArrayView1, ArrayView2};
use rayon::prelude::*;

use crate::cuda::number::Number;
use crate::cuda::rows::whitening;
use crate::cuda::rows::workspace::Parameters;

/// Writes `centre − shift`, computed in f64 like the rows, as the sum of two numbers of `T`; both `(k, d)`. The f64
/// subtraction rounds as it does for rows, so a component of identical rows has its mean exactly at them.
pub(crate) fn centres<T: Number>(centres: ArrayView2<'_, f64>, shift: &[f64], high: &mut [T], low: &mut [T]) {
    let values = centres.iter().zip(shift.iter().cycle());
    for ((m, s), (high, low)) in values.zip(high.iter_mut().zip(low)) {
        (*high, *low) = split::<T>(*m, *s);
    }
}

/// `m − s`, rounded to f64, as the sum `high + low`.
fn split<T: Number>(m: f64, s: f64) -> (T, T) {
    let difference = m - s;
    let high = T::from_f64(difference);
    (high, T::from_f64(difference - high.to_f64()))
}

/// Writes means, `ln w_c` plus the log normalisers, and weights.
fn heads<T: Number>(
    means: ArrayView2<'_, f64>,
    scales: impl Iterator<Item = f64>,
    weights: ArrayView1<'_, f64>,
    shift: &[f64],
    at: &Parameters,
    out: &mut [T],
) {
    let (high, low) = out.split_at_mut(at.mean_low);
    centres(means, shift, &mut high[at.mean_high..], low);
    for (c, (w, scale)) in weights.iter().zip(scales).enumerate() {
        let high = T::from_f64(scale);
        // A weight of 0 has log scale −∞, without a rounding error.
        let low = if scale.is_finite() { scale - high.to_f64() } else { 0.0 };
        (out[at.log_scale + c], out[at.log_scale_low + c]) = (high, T::from_f64(low));
        out[at.weights + c] = T::from_f64(*w);
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Numbers from the start of the buffer.
    pub(crate) written: usize,
    /// Whether the [`whitening`] is among them, and loses nothing that matters.
    pub(crate) is_whitened: bool,
}

impl Filled {
    /// All parameters, the whitening by `entry`: see [`whitening::factors`].
    fn of<T: Number>(
        (means, scales, shift): (ArrayView2<'_, f64>, impl Iterator<Item = f64>, &[f64]),
        entry: impl Fn(usize, usize, usize) -> f64 + Sync,
        at: &Parameters,
        out: &mut [T],
    ) -> Self {
        let Some((start, layout)) = at.whitening else { return Self { written: at.len, is_whitened: false } };
        let len = layout.count() as usize * 8 / size_of::<T>();
        let doubles = cast_slice_mut::<T, f64>(&mut out[start..start + len]);
        whitening::factors(layout, shift.len(), entry, doubles);
        let is_whitened = whitening::offsets::<T>(layout, means, scales, shift, doubles);
        Self { written: at.len, is_whitened }
    }
}

/// Like [`fill`], with factors of precisions; matrices are upper triangular.
pub(crate) fn fill_precisions<T: Number>(
    mixture: &PrecisionMixture<'_>,
    scales: &[f64],
    shift: &[f64],
    at: &Parameters,
    out: &mut [T],
) -> Filled {
    heads(mixture.means(), scales.iter().copied(), mixture.weights(), shift, at, out);
    let factor = &mut out[at.factor..];
    match mixture.covariance_type() {
        CovarianceType::Full | CovarianceType::Tied => {
            let each = panel_len(shift.len() as u32) as usize;
            let slots = factor[..each * mixture.n_factors()].par_chunks_exact_mut(each);
            let fill = |(c, slot)| precision_panels(mixture.factor(c), shift.len(), slot);
            slots.enumerate().with_min_len((1 << 14) / each + 1).for_each(fill);
        }
        CovarianceType::Diag | CovarianceType::Spherical => {
            let all = mixture.factors();
            factor.iter_mut().zip(0..all.len()).for_each(|(slot, i)| *slot = T::from_f64(all.at(i)));
        }
    }
    let d = shift.len();
    // Padding has factors of zeros.
    let entry = |c, i, j| if c < mixture.n_factors() { mixture.factor(c).at(j * d + i) } else { 0.0 };
    Filled::of((mixture.means(), scales.iter().copied(), shift), entry, at, out)
}

/// Writes `Uᵀ` of an upper factor, `(d, d)`, in panels, with zeros past `d`.
fn precision_panels<T: Number>(u: Numbers<'_>, d: usize, out: &mut [T]) {
    let side = PANEL as usize;
    for i in 0..d.next_multiple_of(side) {
        for j in 0..i / side * side + side {
            let value = if i < d && j <= i { u.at(j * d + i) } else { 0.0 };
            out[panel_index(i as u32, j as u32) as usize] = T::from_f64(value);
        }
    }
}

/// Writes all parameters. Returns their number.
pub(crate) fn fill<T: Number>(mixture: &Mixture, shift: &[f64], at: &Parameters, out: &mut [T]) -> Filled {
    let scales = (0..mixture.n_components()).map(|c| mixture.log_weight(c) + mixture.log_normalizer(c));
    heads(mixture.means(), scales.clone(), mixture.weights(), shift, at, out);
    let d = shift.len();
    let factor = &mut out[at.factor..];
    match mixture.factors() {
        Factors::Full(all) => {
            let each = panel_len(d as u32) as usize;
            let slots = factor[..each * all.len()].par_chunks_exact_mut(each);
            // Small factors are grouped: filling one takes less time than waking another thread.
            slots.zip(all).with_min_len((1 << 14) / each + 1).for_each(|(slot, l)| panels(l, slot));
        }
        Factors::Tied(one) => panels(one, &mut factor[..panel_len(d as u32) as usize]),
        Factors::Diag(sd) => reciprocals(sd.iter(), factor),
        Factors::Spherical(sd) => reciprocals(sd.iter(), factor),
    }
    let k = mixture.n_components();
    let count = at.whitening.map_or(0, |(_, layout)| if layout.is_tied() { 1 } else { k });
    let transposed = |c| inverse_transposed(mixture.factors().dense(c, d).view());
    let inverses: Vec<_> = (0..count).into_par_iter().with_min_len(64).map(transposed).collect();
    // Padding has factors of zeros.
    let entry = |c: usize, i: usize, j: usize| inverses.get(c).map_or(0.0, |inverse| inverse[[j, i]]);
    Filled::of((mixture.means(), scales, shift), entry, at, out)
}

fn reciprocals<'a, T: Number>(sd: impl Iterator<Item = &'a f64>, out: &mut [T]) {
    for (slot, v) in out.iter_mut().zip(sd) {
        *slot = T::from_f64(1.0 / v);
    }
}

/// Writes a factor in panels: reciprocals on the diagonal, the identity past `d`.
fn panels<T: Number>(l: &Cholesky, out: &mut [T]) {
    let d = l.dim();
    let side = PANEL as usize;
    for i in 0..d.next_multiple_of(side) {
        for j in 0..i / side * side + side {
            let value = match (i < d && j < d, i == j) {
                (true, true) => 1.0 / l.at(i, i),
                (true, false) if j < i => l.at(i, j),
                (false, true) => 1.0,
                _ => 0.0,
            };
            out[panel_index(i as u32, j as u32) as usize] = T::from_f64(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_hold_what_one_cannot() {
        for (m, s) in [(1e4 + 0.1, 1e4), (0.1, 1e8), (3.0, 3.0), (-1.0 / 3.0, 1e-9)] {
            let (high, low) = split::<f32>(m, s);
            let error = f64::from(high) + f64::from(low) - (m - s);
            assert!(error.abs() <= (m - s).abs() * 2f64.powi(-44), "{m} {s}: {error}");
            assert_eq!(split::<f64>(m, s), (m - s, 0.0));
        }
        // A row at 1e16 rounds in the same way.
        assert_eq!(split::<f64>(1e16, -1.0), (1e16, 0.0));
    }

    #[test]
    fn panels_hold_reciprocals_and_end_in_the_identity() {
        let d = 11;
        let l = ndarray::Array2::from_shape_fn((d, d), |(i, j)| match i.cmp(&j) {
            std::cmp::Ordering::Equal => 2.0,
            std::cmp::Ordering::Greater => 0.25,
            std::cmp::Ordering::Less => 0.0,
        });
        let l = Cholesky::new(l.dot(&l.t()).view()).unwrap();
        let mut out = vec![f64::NAN; panel_len(d as u32) as usize];
        panels(&l, &mut out);
        let at = |i: u32, j: u32| out[panel_index(i, j) as usize];
        assert_eq!((at(0, 0), at(10, 10), at(10, 3), at(3, 6)), (0.5, 0.5, 0.25, 0.0));
        assert_eq!((at(15, 15), at(15, 2), at(12, 13)), (1.0, 0.0, 0.0));
        assert!(out.iter().all(|v| v.is_finite()));
    }
}
