//! The fused E- and M-pass.

use super::super::e_step::{Responsibilities, RowOutputs};
use super::super::layout::Layout;
use super::super::moments::{self, Accumulate, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::terms::Terms;
use super::{Passes, Share, padded};
use crate::Error;

impl<T: Dispatch> Passes<T> {
    /// Responsibilities under `terms` and their moments about its means, into the shares' sums.
    pub(crate) fn expectation(&mut self, layout: &Layout<T>, terms: &Terms<T>) -> Result<(), Error> {
        self.prepare(layout, terms.kind, terms.k)?;
        let machine = self.machine;
        let floors = &moments::floors(&terms.weights, layout.total_weight / layout.n as f64);
        self.for_each(|share| T::dispatch(machine, Expectation { layout, terms, floors, share }));
        Ok(())
    }
}

struct Expectation<'a, T: Real> {
    layout: &'a Layout<T>,
    terms: &'a Terms<T>,
    floors: &'a [T],
    share: &'a mut Share<T>,
}

impl<T: Real> Kernel<T> for Expectation<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { layout, terms, floors, share } = self;
        let work = &mut share.workspace;
        for block in share.blocks.clone() {
            let (x, weights, rows) = (layout.block(block), layout.weights(block), layout.rows_in(block));
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
            share.sums.log_likelihood += log_likelihood(&work.top[..rows], &work.rest[..rows], weights);
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

/// Σ weight (top + rest) over rows of positive weight, in f64.
#[inline(always)]
pub(super) fn log_likelihood<T: Real>(top: &[T], rest: &[T], weights: &[T]) -> f64 {
    let rows = top.iter().zip(rest).zip(weights);
    rows.map(|((t, r), w)| if *w > T::ZERO { w.to_f64() * (t.to_f64() + r.to_f64()) } else { 0.0 }).sum()
}
