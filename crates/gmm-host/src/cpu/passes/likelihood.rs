//! Log-likelihoods of many mixtures and nothing else: all mixtures are evaluated on one block of rows before the next
//! block.

use super::super::e_step::LogDensities;
use super::super::layout::Layout;
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::terms::Terms;
use super::expectation::log_likelihood;
use super::{Passes, SMALL_PASS, Shape, Share, Workspace, padded};
use crate::{Error, memory};
use rayon::prelude::*;
use std::ops::Range;

impl<T: Dispatch> Passes<T> {
    /// Writes Σ w ln p(x) under each of `sets`, which must have the same kind and number of components, into `out`.
    ///
    /// Blocks are distributed over the threads in the same shares as in every other pass. The bits are therefore those
    /// of [`expectation`](Self::expectation), whatever else is in the batch. If there are too few rows to distribute,
    /// the sets are distributed instead.
    pub(crate) fn log_likelihoods(
        &mut self,
        layout: &Layout<T>,
        sets: &[Terms<T>],
        out: &mut [f64],
    ) -> Result<(), Error> {
        let Some(first) = sets.first() else { return Ok(()) };
        let shape = Shape { kind: first.kind, k: first.k, d: layout.d };
        debug_assert!(sets.iter().all(|s| (s.kind, s.k) == (shape.kind, shape.k)) && sets.len() == out.len());
        self.prepare(layout, shape.kind, shape.k)?;
        let machine = self.machine;
        if self.shares.len() == 1 && sets.len() as u128 * shape.work(layout.n) > 2 * SMALL_PASS {
            let each = sets.len().div_ceil(self.pool.current_num_threads());
            let threads = sets.len().div_ceil(each);
            let missing = self.workspaces.missing(threads);
            memory::check("the workspace of a batch", missing as u128 * Workspace::<T>::bytes(shape))?;
            self.workspaces.reserve(threads);
            let (blocks, workspaces) = (0..layout.blocks(), &self.workspaces);
            self.pool.install(|| {
                sets.par_chunks(each).zip(out.par_chunks_mut(each)).for_each(|(sets, out)| {
                    out.fill(0.0);
                    workspaces.lend(|work| {
                        T::dispatch(machine, Likelihoods { layout, sets, blocks: blocks.clone(), out, work });
                    });
                });
            });
            return Ok(());
        }
        self.for_each(|Share { blocks, likelihoods, .. }, work| {
            likelihoods.clear();
            likelihoods.resize(sets.len(), 0.0);
            T::dispatch(machine, Likelihoods { layout, sets, blocks: blocks.clone(), out: likelihoods, work });
        });
        for (i, slot) in out.iter_mut().enumerate() {
            *slot = self.shares.iter().map(|share| share.likelihoods[i]).sum();
        }
        Ok(())
    }
}

/// Adds the log-likelihoods of some blocks under each set to `out`.
struct Likelihoods<'a, T: Real> {
    layout: &'a Layout<T>,
    sets: &'a [Terms<T>],
    blocks: Range<usize>,
    /// A sum for each set.
    out: &'a mut [f64],
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Likelihoods<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, sets, blocks, out, work } = self;
        for block in blocks {
            let (x, weights, rows) =
                (layout.block(w, block, &mut work.block), layout.weights(block), layout.rows_in(block));
            let wide = padded::<T, W>(rows);
            // The block stays in the L2 cache while the sets are evaluated.
            for (terms, sum) in sets.iter().zip(&mut *out) {
                w.apart(LogDensities {
                    terms,
                    x,
                    rows: wide,
                    joint: &mut work.joint,
                    distances: &mut work.distances,
                    scratch: &mut work.scratch,
                    top: &mut work.top,
                    rest: &mut work.rest,
                });
                *sum += log_likelihood(&work.top[..rows], &work.rest[..rows], weights);
            }
        }
    }
}
