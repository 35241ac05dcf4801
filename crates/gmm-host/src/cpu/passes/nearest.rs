//! Distances to centres: hard assignment for k-means, and the running minimum that k-means++ draws by.

use gmm_model::CovarianceType;
use rayon::prelude::*;

use super::super::e_step::{SIDE_BY_SIDE, WIDE, squared_distances, store};
use super::super::layout::{BLOCK, Layout, STRIDE};
use super::super::moments::{self, Accumulate, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::{Passes, Share, padded};
use crate::Error;

impl<T: Dispatch> Passes<T> {
    /// Moments about `centres`, `(k, d)`, with each row in the cluster of its nearest centre.
    pub(crate) fn nearest(&mut self, layout: &Layout<T>, kind: CovarianceType, centres: &[T]) -> Result<(), Error> {
        let k = centres.len() / layout.d;
        self.prepare(layout, kind, k)?;
        let machine = self.machine;
        self.for_each(|share| T::dispatch(machine, Nearest { layout, kind, centres, k, share }));
        Ok(())
    }

    /// `out[i] = min(out[i], |x_i − centre|²)`.
    pub(crate) fn squared_distances(&self, layout: &Layout<T>, centre: &[T], out: &mut [f64]) {
        let machine = self.machine;
        let work = |(block, out): (usize, &mut [f64])| {
            T::dispatch(machine, Minimum { x: layout.block(block), centre, out });
        };
        if layout.n * layout.d < 50_000 {
            out.chunks_mut(BLOCK).enumerate().for_each(work);
        } else {
            self.pool.install(|| out.par_chunks_mut(BLOCK).enumerate().for_each(work));
        }
    }
}

struct Nearest<'a, T: Real> {
    layout: &'a Layout<T>,
    kind: CovarianceType,
    centres: &'a [T],
    k: usize,
    share: &'a mut Share<T>,
}

impl<T: Real> Kernel<T> for Nearest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, kind, centres, k, share } = self;
        let d = layout.d;
        let work = &mut share.workspace;
        // Every row that has any responsibility counts.
        let floors = vec![T::ZERO; k];
        for block in share.blocks.clone() {
            let (x, weights, rows) = (layout.block(block), layout.weights(block), layout.rows_in(block));
            let wide = padded::<T, W>(rows);
            distances(w, centres, d, x, wide, &mut work.joint);
            let (labels, best) = (&mut work.labels[..rows], &mut work.top[..rows]);
            labels.fill(0);
            best.copy_from_slice(&work.joint[..rows]);
            for (c, distances) in work.joint.chunks_exact(STRIDE).enumerate().skip(1) {
                for ((label, best), &distance) in labels.iter_mut().zip(best.iter_mut()).zip(distances) {
                    let closer = distance < *best;
                    *label = if closer { c as u32 } else { *label };
                    *best = if closer { distance } else { *best };
                }
            }
            if kind == CovarianceType::Spherical {
                moments::scatter(centres, d, x, labels, best, &weights[..rows], &mut share.sums);
                continue;
            }
            work.joint.fill(T::ZERO);
            for (row, &label) in labels.iter().enumerate() {
                work.joint[label as usize * STRIDE + row] = weights[row];
            }
            let tile = Tile { x, rows: wide, responsibilities: &work.joint, distances: &[], floors: &floors };
            w.apart(Accumulate {
                kind,
                centres,
                tile,
                scratch: &mut work.scratch,
                dense: &mut work.dense,
                sums: &mut share.sums,
            });
        }
    }
}

struct Minimum<'a, T> {
    x: &'a [T],
    centre: &'a [T],
    out: &'a mut [f64],
}

impl<T: Real> Kernel<T> for Minimum<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let mut out = [T::ZERO; STRIDE];
        distances(w, self.centre, self.centre.len(), self.x, padded::<T, W>(self.out.len()), &mut out);
        for (out, distance) in self.out.iter_mut().zip(out) {
            *out = out.min(distance.to_f64());
        }
    }
}

/// Squared distances of `rows` rows to each of `centres`, `(k, d)`, into `out`, `(k, STRIDE)`.
#[inline(always)]
fn distances<T: Real, W: Words<T>>(w: W, centres: &[T], d: usize, x: &[T], rows: usize, out: &mut [T]) {
    let k = centres.len() / d;
    for c in (0..k).step_by(SIDE_BY_SIDE) {
        let (centres, out) = (&centres[c * d..], &mut out[c * STRIDE..]);
        if k - c >= SIDE_BY_SIDE {
            distances_to::<T, W, SIDE_BY_SIDE>(w, centres, d, x, rows, out);
        } else {
            distances_to::<T, W, 1>(w, centres, d, x, rows, out);
        }
    }
}

/// Squared distances to the first `C` of `centres`.
#[inline(always)]
fn distances_to<T: Real, W: Words<T>, const C: usize>(
    w: W,
    centres: &[T],
    d: usize,
    x: &[T],
    rows: usize,
    out: &mut [T],
) {
    for row in (0..rows).step_by(WIDE * W::LANES) {
        let found = squared_distances::<T, W, C>(w, centres, d, &x[row..]);
        for (i, distance) in found.into_iter().enumerate() {
            store(w, distance, &mut out[i * STRIDE + row..]);
        }
    }
}
