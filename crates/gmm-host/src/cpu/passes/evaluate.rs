//! Log densities, responsibilities and labels of each row, and their totals.

use super::super::e_step::{Responsibilities, RowOutputs};
use super::super::layout::{BLOCK, Layout, STRIDE};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::terms::Terms;
use super::expectation::log_likelihood;
use super::{Passes, Workspace, padded};
use crate::{Error, EvaluateOptions, Evaluation};
use rayon::prelude::*;

impl<T: Dispatch> Passes<T> {
    /// Evaluates every row and writes the requested outputs.
    pub(crate) fn evaluate(
        &mut self,
        layout: &Layout<T>,
        terms: &Terms<T>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.evaluate_on(layout, terms, want, true)
    }

    /// As [`evaluate`](Self::evaluate), on the calling thread unless `on_all_threads`, to the same bits.
    pub(crate) fn evaluate_on(
        &mut self,
        layout: &Layout<T>,
        terms: &Terms<T>,
        want: EvaluateOptions<'_>,
        on_all_threads: bool,
    ) -> Result<Evaluation, Error> {
        self.prepare(layout, terms.kind, terms.k)?;
        let machine = self.machine;
        let mut rest = want;
        let mut work: Vec<_> = Vec::with_capacity(self.shares.len());
        for share in &mut self.shares {
            let rows = share.blocks.len() * BLOCK;
            let rows = rows.min(layout.n - share.blocks.start * BLOCK);
            work.push((rest.split(rows, terms.k), share));
        }
        let workspaces = &self.workspaces;
        let run = |(out, share): &mut (EvaluateOptions<'_>, &mut super::Share)| {
            workspaces.lend(|work| {
                for block in share.blocks.clone() {
                    let out = out.split(layout.rows_in(block), terms.k);
                    let (ll, entropy) = T::dispatch(machine, Evaluate { layout, terms, block, out, work: &mut *work });
                    share.sums.log_likelihood += ll;
                    share.sums.entropy += entropy;
                }
            });
        };
        match work.as_mut_slice() {
            [only] => run(only),
            all if !on_all_threads => all.iter_mut().for_each(run),
            all => self.pool.install(|| all.par_iter_mut().for_each(run)),
        }
        let total = |value: fn(&super::Sums) -> f64| self.shares.iter().map(|s| value(&s.sums)).sum();
        Ok(Evaluation {
            log_likelihood: total(|s| s.log_likelihood),
            entropy: total(|s| s.entropy),
            total_weight: layout.total_weight,
        })
    }
}

struct Evaluate<'a, T: Real> {
    layout: &'a Layout<T>,
    terms: &'a Terms<T>,
    block: usize,
    out: EvaluateOptions<'a>,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Evaluate<'_, T> {
    /// Log-likelihood and entropy of the block.
    type Output = (f64, f64);

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> (f64, f64) {
        let Self { layout, terms, block, out, work } = self;
        let (x, weights, rows) =
            (layout.block(w, block, &mut work.block), layout.weights(block), layout.rows_in(block));
        let wide = padded::<T, W>(rows);
        // Responsibilities do not include the row weights; those of rows past the data are computed and ignored.
        let ones = [T::ONE; BLOCK];
        w.apart(Responsibilities {
            terms,
            x,
            rows: wide,
            weights: &ones,
            joint: &mut work.joint,
            distances: &mut work.distances,
            scratch: &mut work.scratch,
            out: RowOutputs { top: &mut work.top, rest: &mut work.rest, entropy: Some(&mut work.entropy) },
        });
        let found = EStepOutput { joint: &work.joint, top: &work.top, rest: &work.rest, entropy: &work.entropy };
        found.deliver(terms.k, &weights[..rows], out)
    }
}

/// Results of an E-step for some rows.
pub(crate) struct EStepOutput<'a, T> {
    /// `(k, STRIDE)` responsibilities.
    pub(crate) joint: &'a [T],
    pub(crate) top: &'a [T],
    pub(crate) rest: &'a [T],
    pub(crate) entropy: &'a [T],
}

impl<T: Real> EStepOutput<'_, T> {
    /// Writes the requested outputs of the first `weights.len()` rows; returns log-likelihood and entropy.
    ///
    /// Inlined, for the instructions of its caller.
    #[inline(always)]
    pub(crate) fn deliver(&self, k: usize, weights: &[T], out: EvaluateOptions<'_>) -> (f64, f64) {
        let rows = weights.len();
        if let Some(slots) = out.log_densities {
            for (row, slot) in slots.iter_mut().enumerate() {
                *slot = self.top[row].to_f64() + self.rest[row].to_f64();
            }
        }
        if let Some(mut slots) = out.responsibilities {
            // In single precision the sum is 1 only within eps of `f32`; callers get f64. Components outside and rows
            // inside, so that a vector holds several rows.
            let (mut sums, mut shares) = ([0.0; BLOCK], [0.0; BLOCK]);
            let of = |c: usize| &self.joint[c * STRIDE..][..rows];
            for c in 0..k {
                sums.iter_mut().zip(of(c)).for_each(|(sum, r)| *sum += r.to_f64());
            }
            for c in 0..k {
                shares.iter_mut().zip(of(c)).zip(&sums).for_each(|((share, r), sum)| *share = r.to_f64() / sum);
                shares[..rows].iter().enumerate().for_each(|(row, share)| slots.set(row * k + c, *share));
            }
        }
        if let Some(labels) = out.labels {
            let labels = &mut labels[..rows];
            labels.fill(0);
            let mut best = [T::ZERO; BLOCK];
            best[..rows].copy_from_slice(&self.joint[..rows]);
            // Components outside and rows inside, so that a vector holds several rows.
            for c in 1..k {
                let joint = &self.joint[c * STRIDE..][..rows];
                for ((label, best), &r) in labels.iter_mut().zip(&mut best[..rows]).zip(joint) {
                    let is_better = r > *best;
                    *label = if is_better { c as u32 } else { *label };
                    *best = if is_better { r } else { *best };
                }
            }
        }
        let weighted = self.entropy[..rows].iter().zip(weights).map(|(e, w)| e.to_f64() * w.to_f64());
        (log_likelihood(&self.top[..rows], &self.rest[..rows], weights), weighted.sum())
    }
}
