//! A full or tied mixture as the kernels on the tensor cores read it: `y = M (x − μ)` as `M x − M μ`, where `M` is the inverse of
//! the factor. See [`gmm_kernels::em::simple::e_step::whitened`].

use gmm_kernels::em::simple::e_step::whitened::{MOST_COLUMNS, Whitening};
use gmm_model::CovarianceType;
use ndarray::ArrayView2;
use rayon::prelude::*;

use crate::cuda::driver::device::Limits;
use crate::cuda::number::Number;
use crate::cuda::shape::Shape;
use crate::hold::larger;

/// The largest `Σ |M| |μ|` of an entry, with means less the shift. The products that cancel in `M x − M μ` are of this size, in
/// units of a standard deviation, so in `f64` they lose some 1e-16 of it. Rows of `f32` are rounded to much less.
const MOST_F32: f64 = 1e7;
const MOST_F64: f64 = 256.0;

/// The layout for a shape, if there are kernels for it.
pub(crate) fn layout(shape: &Shape) -> Option<Whitening> {
    match shape.kind {
        CovarianceType::Full | CovarianceType::Tied if shape.d <= MOST_COLUMNS => {
            Some(Whitening::of(shape.k, shape.d, shape.kind == CovarianceType::Tied))
        }
        _ => None,
    }
}

/// Whether the kernels are faster than those without tensor cores: `f64` is slow on other than data-centre GPUs.
pub(crate) const fn is_fast(limits: &Limits) -> bool {
    limits.f32_to_f64 <= 2
}

/// Writes the factors' inverses, with `entry(c, i, j)` an entry of that of factor `c`.
pub(crate) fn factors(layout: Whitening, d: usize, entry: impl Fn(usize, usize, usize) -> f64 + Sync, out: &mut [f64]) {
    out.fill(0.0);
    let each = layout.stride() as usize;
    let all = out[..layout.offset(0, 0) as usize].par_chunks_exact_mut(each);
    all.enumerate().with_min_len((1 << 14) / each + 1).for_each(|(c, out)| {
        for i in 0..d {
            (0..=i).for_each(|j| out[layout.entry(0, i as u32, j as u32) as usize] = entry(c, i, j));
        }
    });
}

/// Writes `−M μ` and the log scales after the [`factors`]. Returns whether rows of `T` lose nothing that matters.
pub(crate) fn offsets<T: Number>(
    layout: Whitening,
    means: ArrayView2<'_, f64>,
    scales: impl Iterator<Item = f64>,
    shift: &[f64],
    out: &mut [f64],
) -> bool {
    (0..layout.padded()).for_each(|c| out[layout.scale(c) as usize] = f64::NEG_INFINITY);
    let mut largest = 0.0_f64;
    for (c, (mean, scale)) in means.outer_iter().zip(scales).enumerate() {
        let c = c as u32;
        out[layout.scale(c) as usize] = scale;
        let factor = if layout.is_tied() { 0 } else { c };
        for i in 0..shift.len() as u32 {
            let (mut sum, mut size) = (0.0, 0.0);
            for (j, (m, s)) in (0..=i).zip(mean.iter().zip(shift)) {
                let product = out[layout.entry(factor, i, j) as usize] * (m - s);
                (sum, size) = (sum - product, size + product.abs());
            }
            out[layout.offset(c, i) as usize] = sum;
            largest = larger(largest, size);
        }
    }
    largest <= if size_of::<T>() == 4 { MOST_F32 } else { MOST_F64 }
}
