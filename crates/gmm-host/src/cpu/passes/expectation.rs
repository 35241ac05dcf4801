//! The fused E-step and M-step sums.

use super::super::e_step::{Responsibilities, RowOutputs};
use super::super::layout::{BLOCK, Layout, STRIDE};
use super::super::moments::{self, Accumulate, Sums, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::terms::Terms;
use super::{Passes, SMALL_PASS, Shape, Share, Workspace, collect, padded};
use crate::{Error, memory};
use gmm_model::{CovarianceType, NoiseTerms, Statistics};
use ndarray::ArrayView2;
use rayon::prelude::*;

impl<T: Dispatch> Passes<T> {
    /// Adds the moments of the responsibilities under `terms`, about its means, to the shares' sums.
    ///
    /// Beside noise, each row counts with the probability that it is not noise; returns the count of the noise.
    pub(crate) fn expectation(
        &mut self,
        layout: &Layout<T>,
        terms: &Terms<T>,
        noise: Option<NoiseTerms>,
    ) -> Result<f64, Error> {
        self.prepare(layout, terms.kind, terms.k)?;
        let machine = self.machine;
        // Of the components' weights only this much is not noise.
        let share = noise.map_or(1.0, NoiseTerms::rest);
        let floors = &moments::floors(&terms.weights, share * layout.total_weight / layout.n as f64);
        self.for_each(|share, work| T::dispatch(machine, Expectation { layout, terms, noise, floors, share, work }));
        Ok(self.shares.iter().map(|share| share.sums.noise).sum())
    }

    /// Whether to distribute `sets` mixtures of a shape over the threads rather than the rows: if a pass has a single
    /// share, and all mixtures together are more work than waking another thread.
    pub(crate) fn shares_sets(
        &mut self,
        layout: &Layout<T>,
        kind: CovarianceType,
        k: usize,
        sets: usize,
    ) -> Result<bool, Error> {
        self.prepare(layout, kind, k)?;
        let shape = Shape { kind, k, d: layout.d };
        Ok(self.shares.len() == 1 && sets > 1 && sets as u128 * shape.work(layout.n) > 2 * SMALL_PASS)
    }

    /// Statistics under each of `sets` (terms and means), for which [`shares_sets`](Self::shares_sets) must have
    /// returned true. The bits are those of [`expectation`](Self::expectation) and [`statistics`](Self::statistics) for
    /// each one.
    pub(crate) fn expectations(
        &mut self,
        layout: &Layout<T>,
        sets: &[(Terms<T>, ArrayView2<'_, f64>)],
    ) -> Result<Vec<Statistics>, Error> {
        let Some((first, _)) = sets.first() else { return Ok(Vec::new()) };
        let shape = Shape { kind: first.kind, k: first.k, d: layout.d };
        debug_assert!(self.shape == Some(shape) && sets.iter().all(|(s, _)| (s.kind, s.k) == (shape.kind, shape.k)));
        let pairs = !self.shares[0].sums.pairs.is_empty();
        let missing = sets.len().saturating_sub(self.alone.len());
        let at_once = sets.len().min(self.pool.current_num_threads());
        let workspaces = self.workspaces.missing(at_once) as u128 * Workspace::<T>::bytes(shape);
        let sums = missing as u128 * Sums::bytes(shape.kind, shape.k, shape.d, pairs);
        memory::check("the workspace of several passes", sums + workspaces)?;
        self.workspaces.reserve(at_once);
        self.alone.extend((0..missing).map(|_| Share::new(0..layout.blocks(), shape, pairs)));
        let machine = self.machine;
        let weight = layout.total_weight / layout.n as f64;
        let workspaces = &self.workspaces;
        let run = |(share, (terms, centres)): (&mut Share, &(Terms<T>, ArrayView2<'_, f64>))| {
            share.sums.clear();
            let floors = &moments::floors(&terms.weights, weight);
            workspaces.lend(|work| {
                T::dispatch(machine, Expectation { layout, terms, noise: None, floors, share: &mut *share, work });
            });
            collect(std::slice::from_mut(share), layout, terms.kind, *centres, &terms.means)
        };
        let alone = &mut self.alone[..sets.len()];
        Ok(self.pool.install(|| alone.par_iter_mut().zip(sets).map(run).collect()))
    }
}

struct Expectation<'a, T: Real> {
    layout: &'a Layout<T>,
    terms: &'a Terms<T>,
    noise: Option<NoiseTerms>,
    floors: &'a [T],
    share: &'a mut Share,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Expectation<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, terms, noise, floors, share, work } = self;
        for block in share.blocks.clone() {
            let (x, weights, rows) =
                (layout.block(w, block, &mut work.block), layout.weights(block), layout.rows_in(block));
            let wide = padded::<T, W>(rows);
            w.apart(Responsibilities {
                terms,
                x,
                rows: wide,
                weights,
                joint: &mut work.joint,
                distances: &mut work.distances,
                scratch: &mut work.scratch,
                out: RowOutputs { top: &mut work.top, rest: &mut work.rest, entropy: None },
            });
            let rows = (&work.top[..rows], &work.rest[..rows]);
            add_log_likelihood(noise, rows, weights, &mut work.joint, &mut share.sums);
            let tile = Tile { x, rows: wide, responsibilities: &work.joint, distances: &work.distances, floors };
            w.apart(Accumulate {
                kind: terms.kind,
                centres: &terms.means,
                tile,
                scratch: &mut work.scratch,
                dense: &mut work.dense,
                sums: &mut share.sums,
            });
        }
    }
}

/// Adds the log-likelihood of a tile's rows, (`top`, `rest`), and beside noise its count; `joint`, the responsibilities
/// of `(k, STRIDE)`, are then multiplied by the probability that the row is not noise.
#[inline(always)]
pub(super) fn add_log_likelihood<T: Real>(
    noise: Option<NoiseTerms>,
    (top, rest): (&[T], &[T]),
    weights: &[T],
    joint: &mut [T],
    sums: &mut Sums,
) {
    sums.log_likelihood += match noise {
        None => log_likelihood(top, rest, weights),
        Some(noise) => {
            let (log_likelihood, count) = beside(noise, (top, rest), weights, joint);
            sums.noise += count;
            log_likelihood
        }
    };
}

/// Multiplies the responsibilities of a tile, `(k, STRIDE)`, by the probability that the row is not noise. Returns the
/// log-likelihood of the rows and the count of the noise.
fn beside<T: Real>(noise: NoiseTerms, (top, rest): (&[T], &[T]), weights: &[T], joint: &mut [T]) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    let mut left = [T::ZERO; BLOCK];
    for (row, left) in left[..top.len()].iter_mut().enumerate() {
        let w = weights[row].to_f64();
        if w > 0.0 {
            let (log_density, t, rest) = noise.posterior(top[row].to_f64() + rest[row].to_f64());
            sums = (sums.0 + w * log_density, sums.1 + w * t);
            *left = T::of(rest);
        }
    }
    for column in joint.chunks_mut(STRIDE) {
        column.iter_mut().zip(&left).for_each(|(r, left)| *r = T::of(r.to_f64() * left.to_f64()));
    }
    sums
}

/// Σ weight (top + rest) over rows of positive weight, in f64.
#[inline(always)]
pub(super) fn log_likelihood<T: Real>(top: &[T], rest: &[T], weights: &[T]) -> f64 {
    let rows = top.iter().zip(rest).zip(weights);
    rows.map(|((t, r), w)| if *w > T::ZERO { w.to_f64() * (t.to_f64() + r.to_f64()) } else { 0.0 }).sum()
}
