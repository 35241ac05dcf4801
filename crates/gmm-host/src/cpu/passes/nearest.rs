//! Distances to centres: hard assignment for k-means, and the running minimum that k-means++ samples by.

use gmm_model::CovarianceType;
use rayon::prelude::*;

use super::super::e_step::{SIDE_BY_SIDE, WIDE, squared_distances, store};
use super::super::layout::{BLOCK, Buffer, Layout, STRIDE};
use super::super::moments::{self, Accumulate, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::{Passes, Share, Workspace, padded};
use crate::Error;
use crate::engine::DISTANCE_ROWS;

impl<T: Dispatch> Passes<T> {
    /// Computes moments about `centres`, `(k, d)`, with each row in the cluster of its nearest centre.
    pub(crate) fn nearest(&mut self, layout: &Layout<T>, kind: CovarianceType, centres: &[T]) -> Result<(), Error> {
        let k = centres.len() / layout.d;
        self.prepare_nearest(layout, kind, k)?;
        let machine = self.machine;
        self.for_each(|share, work| T::dispatch(machine, Nearest { layout, kind, centres, k, share, work }));
        Ok(())
    }

    /// Sets `near[i] = min(near[i], |x_i − centre|²)`; returns `Σ w near` of each group of [`DISTANCE_ROWS`] rows.
    pub(crate) fn add_centre(&self, layout: &Layout<T>, centre: &[T], near: &mut [f64]) -> Vec<f64> {
        let machine = self.machine;
        let work = |(group, near): (usize, &mut [f64])| {
            let blocks = near.chunks_mut(BLOCK).zip(group * DISTANCE_ROWS / BLOCK..);
            let buffer = &mut layout.block_buffer();
            blocks.map(|(near, block)| T::dispatch(machine, Minimum { layout, block, buffer, centre, near })).sum()
        };
        if layout.n * layout.d < SMALL {
            near.chunks_mut(DISTANCE_ROWS).enumerate().map(|(i, near)| work((i, near))).collect()
        } else {
            self.pool.install(|| near.par_chunks_mut(DISTANCE_ROWS).enumerate().map(work).collect())
        }
    }

    /// Returns `Σ w min(near, |x − candidate|²)` for each of `candidates`, `(t, d)`.
    pub(crate) fn potentials(&self, layout: &Layout<T>, candidates: &[T], near: &[f64]) -> Vec<f64> {
        let machine = self.machine;
        let count = candidates.len() / layout.d;
        let work = |(group, near): (usize, &[f64])| {
            let mut out = vec![0.0; count];
            let buffer = &mut layout.block_buffer();
            for (near, block) in near.chunks(BLOCK).zip(group * DISTANCE_ROWS / BLOCK..) {
                T::dispatch(machine, CandidateCosts { layout, block, buffer, candidates, near, out: &mut out });
            }
            out
        };
        let parts: Vec<Vec<f64>> = if layout.n * layout.d * count < SMALL {
            near.chunks(DISTANCE_ROWS).enumerate().map(work).collect()
        } else {
            self.pool.install(|| near.par_chunks(DISTANCE_ROWS).enumerate().map(work).collect())
        };
        let mut out = vec![0.0; count];
        // In a fixed order, independent of the threads.
        for part in parts {
            out.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        out
    }
}

/// Below this many differences a pass runs on the calling thread.
const SMALL: usize = 50_000;

struct Nearest<'a, T: Real> {
    layout: &'a Layout<T>,
    kind: CovarianceType,
    centres: &'a [T],
    k: usize,
    share: &'a mut Share,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Nearest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, kind, centres, k, share, work } = self;
        let d = layout.d;
        // Include every row that has any responsibility.
        let floors = vec![T::ZERO; k];
        for block in share.blocks.clone() {
            let (x, weights, rows) =
                (layout.block(w, block, &mut work.block), layout.weights(block), layout.rows_in(block));
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

/// Lowers each row's `best` distance, and sets its label, if a listed centre is nearer; of equal distances the first
/// centre's label remains. `all`, `(centres.len(), STRIDE)`, holds the distances; `is_first` states that rows have no
/// label yet.
#[inline(always)]
pub(super) fn assign<T: Real>(all: &[T], centres: &[u32], is_first: bool, labels: &mut [u32], best: &mut [T]) {
    if is_first {
        labels.fill(centres[0]);
        best.copy_from_slice(&all[..best.len()]);
    }
    for (distances, &c) in all.chunks_exact(STRIDE).zip(centres) {
        for ((label, best), &distance) in labels.iter_mut().zip(best.iter_mut()).zip(distances) {
            let closer = distance < *best || (distance == *best && c < *label);
            *label = if closer { c } else { *label };
            *best = if closer { distance } else { *best };
        }
    }
}

/// Lowers the distances of a block's rows; returns their weighted sum.
struct Minimum<'a, T> {
    layout: &'a Layout<T>,
    block: usize,
    buffer: &'a mut Buffer<T>,
    centre: &'a [T],
    near: &'a mut [f64],
}

impl<T: Real> Kernel<T> for Minimum<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> f64 {
        let Self { layout, block, buffer, centre, near } = self;
        let mut found = [T::ZERO; STRIDE];
        distances(w, centre, layout.d, layout.block(w, block, buffer), padded::<T, W>(near.len()), &mut found);
        let mut sum = 0.0;
        for ((near, distance), &weight) in near.iter_mut().zip(found).zip(layout.weights(block)) {
            *near = near.min(distance.to_f64());
            sum += weighted(weight, *near);
        }
        sum
    }
}

/// Adds to `out` the weighted sum of distances that each candidate would leave in a block.
struct CandidateCosts<'a, T> {
    layout: &'a Layout<T>,
    block: usize,
    buffer: &'a mut Buffer<T>,
    candidates: &'a [T],
    near: &'a [f64],
    out: &'a mut [f64],
}

impl<T: Real> Kernel<T> for CandidateCosts<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, block, buffer, candidates, near, out } = self;
        let d = layout.d;
        let (x, weights, rows) = (layout.block(w, block, buffer), layout.weights(block), padded::<T, W>(near.len()));
        let mut found = [T::ZERO; SIDE_BY_SIDE * STRIDE];
        for (some, out) in candidates.chunks(SIDE_BY_SIDE * d).zip(out.chunks_mut(SIDE_BY_SIDE)) {
            distances(w, some, d, x, rows, &mut found);
            for (out, found) in out.iter_mut().zip(found.chunks_exact(STRIDE)) {
                for ((near, distance), &weight) in near.iter().zip(found).zip(weights) {
                    *out += weighted(weight, near.min(distance.to_f64()));
                }
            }
        }
    }
}

/// `weight value`, or 0 if the weight is 0, even for an infinite distance.
#[inline(always)]
pub(super) fn weighted<T: Real>(weight: T, value: f64) -> f64 {
    if weight > T::ZERO { weight.to_f64() * value } else { 0.0 }
}

/// Writes squared distances of `rows` rows to each of `centres`, `(k, d)`, into `out`, `(k, STRIDE)`.
#[inline(always)]
pub(super) fn distances<T: Real, W: Words<T>>(w: W, centres: &[T], d: usize, x: &[T], rows: usize, out: &mut [T]) {
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

/// Writes squared distances to the first `C` of `centres`.
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
