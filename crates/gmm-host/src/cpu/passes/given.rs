//! Moments under responsibilities given by the caller.

use gmm_model::CovarianceType;

use super::super::layout::{BLOCK, Layout, STRIDE};
use super::super::moments::{Accumulate, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::{Passes, Share, Workspace, padded};
use crate::{Error, FillResponsibilities};

impl<T: Dispatch> Passes<T> {
    /// Computes moments about `centres`, `(k, d)`, under the responsibilities that `fill` writes.
    pub(crate) fn given(
        &mut self,
        layout: &Layout<T>,
        kind: CovarianceType,
        centres: &[T],
        fill: &FillResponsibilities<'_>,
    ) -> Result<(), Error> {
        let k = centres.len() / layout.d;
        self.prepare(layout, kind, k)?;
        let machine = self.machine;
        self.for_each(|share, work| {
            work.given.resize(BLOCK * k, 0.0);
            T::dispatch(machine, Given { layout, kind, centres, k, fill, share, work });
        });
        Ok(())
    }
}

struct Given<'a, T: Real> {
    layout: &'a Layout<T>,
    kind: CovarianceType,
    centres: &'a [T],
    k: usize,
    fill: &'a FillResponsibilities<'a>,
    share: &'a mut Share,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Given<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, kind, centres, k, fill, share, work } = self;
        // Include every row that has any responsibility.
        let floors = vec![T::ZERO; k];
        for block in share.blocks.clone() {
            let (x, weights, rows) =
                (layout.block(w, block, &mut work.block), layout.weights(block), layout.rows_in(block));
            let given = &mut work.given[..rows * k];
            fill(block * BLOCK, given);
            work.joint.fill(T::ZERO);
            for (row, r) in given.chunks_exact(k).enumerate() {
                for (c, &r) in r.iter().enumerate() {
                    work.joint[c * STRIDE + row] = T::of(r * weights[row].to_f64());
                }
            }
            let wide = padded::<T, W>(rows);
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
