//! Evaluation and k-means over what is near each tile of rows: see [`crate::nearby`].

use std::ops::Range;

use gmm_model::CovarianceType;
use rayon::prelude::*;

use super::super::e_step::{Normalise, Responsibilities, RowOutputs};
use super::super::layout::{BLOCK, STRIDE};
use super::super::moments::{self, Accumulate, Sums, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::terms::Terms;
use super::super::tiles::Tiles;
use super::evaluate::EStepOutput;
use super::near::{Near, rounding};
use super::nearest::{assign, distances};
use super::{Passes, Share, Workspace, padded};
use crate::nearby::{Bounds, GROUP, RowBox, Selection};
use crate::{Error, EvaluateOptions, Evaluation, memory};

impl<T: Dispatch> Passes<T> {
    /// As [`evaluate`](Self::evaluate), for rows in tiles and without responsibilities.
    pub(crate) fn evaluate_near(
        &mut self,
        tiles: &Tiles<T>,
        terms: &Terms<T>,
        bounds: &Bounds,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.prepare(&tiles.layout, terms.kind, terms.k)?;
        let (machine, n) = (self.machine, tiles.layout.n);
        memory::check("outputs of reordered rows", 12 * n as u128)?;
        let mut log_densities = want.log_densities.as_ref().map(|_| vec![0.0; n]);
        let mut labels = want.labels.as_ref().map(|_| vec![0; n]);
        let mut left = EvaluateOptions {
            log_densities: log_densities.as_deref_mut(),
            labels: labels.as_deref_mut(),
            responsibilities: None,
        };
        let mut work = Vec::with_capacity(self.shares.len());
        for share in &mut self.shares {
            let rows = (share.blocks.end * BLOCK).min(n) - share.blocks.start * BLOCK;
            work.push((left.split(rows, terms.k), share));
        }
        let workspaces = &self.workspaces;
        let run = |(out, share): &mut (EvaluateOptions<'_>, &mut Share)| {
            workspaces.lend(|work| T::dispatch(machine, Evaluate { tiles, terms, bounds, out, share, work }));
        };
        match work.as_mut_slice() {
            [only] => run(only),
            all => self.pool.install(|| all.par_iter_mut().for_each(run)),
        }
        if let (Some(out), Some(found)) = (want.log_densities, log_densities) {
            tiles.order.iter().zip(found).for_each(|(&row, v)| out[row as usize] = v);
        }
        if let (Some(out), Some(found)) = (want.labels, labels) {
            tiles.order.iter().zip(found).for_each(|(&row, v)| out[row as usize] = v);
        }
        let total = |value: fn(&Sums) -> f64| self.shares.iter().map(|s| value(&s.sums)).sum();
        Ok(Evaluation {
            log_likelihood: total(|s| s.log_likelihood),
            entropy: total(|s| s.entropy),
            total_weight: tiles.layout.total_weight,
        })
    }

    /// As [`nearest`](Self::nearest), for rows in tiles.
    pub(crate) fn nearest_near(
        &mut self,
        tiles: &Tiles<T>,
        kind: CovarianceType,
        centres: &[T],
        bounds: &Bounds,
    ) -> Result<(), Error> {
        self.prepare_nearest(&tiles.layout, kind, bounds.components())?;
        let machine = self.machine;
        self.for_each(|share, work| T::dispatch(machine, Nearest { tiles, kind, centres, bounds, share, work }));
        Ok(())
    }
}

struct Evaluate<'a, 'b, T: Real> {
    tiles: &'a Tiles<T>,
    terms: &'a Terms<T>,
    bounds: &'a Bounds,
    /// Outputs of the share's rows, in the order of the tiles.
    out: &'a mut EvaluateOptions<'b>,
    share: &'a mut Share,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Evaluate<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { tiles, terms, bounds, out, share, work } = self;
        let Share { blocks, sums, .. } = share;
        let mut near = Near::new(tiles, terms, bounds, blocks.clone());
        let ones = [T::ONE; BLOCK];
        // The totals need no rows of weight 0.
        let is_per_row = out.log_densities.is_some() || out.labels.is_some();
        for block in blocks.clone() {
            let (x, weights, rows) =
                (tiles.layout.copied(block), tiles.layout.weights(block), tiles.layout.rows_in(block));
            let wide = padded::<T, W>(rows);
            let mut out = out.split(rows, terms.k);
            let is_list = near.find(w, block, |row| is_per_row || weights[row] > T::ZERO, work);
            let Workspace { joint, distances, scratch, top, rest, entropy, .. } = &mut *work;
            let mut outputs = RowOutputs { top, rest, entropy: Some(entropy) };
            let k = if is_list {
                let terms = &near.some;
                w.apart(Normalise { terms, rows: 0..wide, weights: &ones, joint, out: &mut outputs });
                if let Some(labels) = out.labels.take() {
                    label(joint, &near.chosen, labels);
                }
                terms.k
            } else {
                let rows = wide;
                w.apart(Responsibilities { terms, x, rows, weights: &ones, joint, distances, scratch, out: outputs });
                terms.k
            };
            let found = EStepOutput { joint: &work.joint, top: &work.top, rest: &work.rest, entropy: &work.entropy };
            let (log_likelihood, entropy) = found.deliver(k, &weights[..rows], out);
            sums.log_likelihood += log_likelihood;
            sums.entropy += entropy;
        }
    }
}

/// The listed component of largest responsibility of each row, the first among equals.
fn label<T: Real>(joint: &[T], components: &[u32], labels: &mut [u32]) {
    for (row, label) in labels.iter_mut().enumerate() {
        let mut best = (joint[row], components[0]);
        for (column, &c) in joint.chunks_exact(STRIDE).zip(components).skip(1) {
            if column[row] > best.0 || (column[row] == best.0 && c < best.1) {
                best = (column[row], c);
            }
        }
        *label = best.1;
    }
}

struct Nearest<'a, T: Real> {
    tiles: &'a Tiles<T>,
    kind: CovarianceType,
    /// `(k, d)`.
    centres: &'a [T],
    bounds: &'a Bounds,
    share: &'a mut Share,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Nearest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { tiles, kind, centres, bounds, share, work } = self;
        let Share { blocks, sums, .. } = share;
        let d = tiles.layout.d;
        let (mut selection, mut chosen) = (Selection::default(), Vec::new());
        let (mut low, mut high) = (vec![0.0; d], vec![0.0; d]);
        let mut some_sums = Sums::zero(kind, 0, d, false);
        let (mut some, mut floors) = (Vec::new(), Vec::new());
        let Range { start, end } = blocks.clone();
        for block in start..end {
            if (block - start).is_multiple_of(GROUP) {
                tiles.boxes.around(block..end.min(block + GROUP), &mut low, &mut high);
                selection.enter_group(bounds, RowBox { low: &low, high: &high });
            }
            let (x, weights, rows) =
                (tiles.layout.copied(block), tiles.layout.weights(block), tiles.layout.rows_in(block));
            let (wide, tile) = (padded::<T, W>(rows), tiles.boxes.of(block));
            let mut thresholds = selection.enter_tile(bounds, tile);
            chosen.clear();
            some.clear();
            loop {
                let (threshold, before) = (thresholds.next(), chosen.len());
                selection.above(bounds, tile, threshold, &mut chosen);
                chosen[before..].iter().for_each(|&c| some.extend_from_slice(&centres[c as usize * d..][..d]));
                let (labels, best) = (&mut work.labels[..rows], &mut work.top[..rows]);
                if before < chosen.len() {
                    let joint = &mut work.joint[before * STRIDE..];
                    distances(w, &some[before * d..], d, x, wide, joint);
                    assign(joint, &chosen[before..], before == 0, labels, best);
                }
                let worst = best.iter().fold(T::ZERO, |worst, &v| if v > worst { v } else { worst });
                let goal = -0.5 * worst.to_f64();
                if thresholds.is_last(threshold, Some(goal - rounding::<T>(d, goal))) {
                    break;
                }
            }
            let (labels, best) = (&work.labels[..rows], &work.top[..rows]);
            if kind == CovarianceType::Spherical {
                moments::scatter(centres, d, x, labels, best, &weights[..rows], sums);
                continue;
            }
            // Only the centres that have rows here.
            chosen.clear();
            chosen.extend_from_slice(labels);
            chosen.sort_unstable();
            chosen.dedup();
            some.clear();
            chosen.iter().for_each(|&c| some.extend_from_slice(&centres[c as usize * d..][..d]));
            let joint = &mut work.joint[..chosen.len() * STRIDE];
            joint.fill(T::ZERO);
            for (row, label) in labels.iter().enumerate() {
                let at = chosen.binary_search(label).expect("a label of the tile");
                joint[at * STRIDE + row] = weights[row];
            }
            some_sums.resize(kind, chosen.len(), d);
            // Every row that has any responsibility.
            floors.clear();
            floors.resize(chosen.len(), T::ZERO);
            w.apart(Accumulate {
                kind,
                centres: &some,
                tile: Tile { x, rows: wide, responsibilities: joint, distances: &[], floors: &floors },
                scratch: &mut work.scratch,
                dense: &mut work.dense,
                sums: &mut some_sums,
            });
            sums.add_some(kind, &some_sums, &chosen);
        }
    }
}
