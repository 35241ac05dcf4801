//! The E-step and M-step sums over the components near each tile of rows: see [`crate::nearby`].
//!
//! The parameters of a tile's components are copied side by side, so that the kernels of dense passes run on them.

use std::ops::Range;

use gmm_model::{NoiseTerms, Precision};
use rayon::prelude::*;

use super::super::e_step::{Normalise, Responsibilities, RowOutputs, log_joint_of_rows};
use super::super::layout::STRIDE;
use super::super::moments::{self, Accumulate, Sums, Tile};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::terms::Terms;
use super::super::tiles::{Tiles, raise};
use super::expectation::add_log_likelihood;
use super::{Passes, Share, Workspace, padded};
use crate::Error;
use crate::nearby::{Bounds, GROUP, RowBox, Selection};

/// Maximum number of tiles evaluated densely after a tile whose list was too long. The number doubles each time, so that the
/// search costs little where it is useless.
const MOST_DENSE: usize = 255;

/// What a pass needs beside the rows.
#[derive(Clone, Copy)]
pub(crate) struct NearPass<'a, T> {
    pub(crate) terms: &'a Terms<T>,
    pub(crate) bounds: &'a Bounds,
    pub(crate) noise: Option<NoiseTerms>,
}

impl<T: Dispatch> Passes<T> {
    /// As [`expectation`](Self::expectation), for rows in tiles. Returns also the mean number of components that were
    /// evaluated for a tile.
    pub(crate) fn expectation_near(&mut self, tiles: &Tiles<T>, pass: &NearPass<'_, T>) -> Result<(f64, f64), Error> {
        let NearPass { terms, noise, .. } = *pass;
        self.prepare(&tiles.layout, terms.kind, terms.k)?;
        let machine = self.machine;
        let rest = noise.map_or(1.0, NoiseTerms::rest);
        let floors = &moments::floors(&terms.weights, rest * tiles.layout.total_weight / tiles.layout.n as f64);
        let workspaces = &self.workspaces;
        let run = |share: &mut Share| {
            workspaces.lend(|work| T::dispatch(machine, Expectation { tiles, pass: *pass, floors, share, work }))
        };
        let evaluated: usize = match self.shares.as_mut_slice() {
            [only] => run(only),
            all => self.pool.install(|| all.par_iter_mut().map(run).sum()),
        };
        let mean = evaluated as f64 / tiles.layout.blocks() as f64;
        Ok((self.shares.iter().map(|share| share.sums.noise).sum(), mean))
    }
}

struct Expectation<'a, T: Real> {
    tiles: &'a Tiles<T>,
    pass: NearPass<'a, T>,
    floors: &'a [T],
    share: &'a mut Share,
    work: &'a mut Workspace<T>,
}

impl<T: Real> Kernel<T> for Expectation<'_, T> {
    /// Components that were evaluated, summed over the tiles.
    type Output = usize;

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> usize {
        let Self { tiles, pass: NearPass { terms: all, bounds, noise }, floors: all_floors, share, work } = self;
        let Share { blocks, sums, .. } = share;
        let mut near = Near::new(tiles, all, bounds, blocks.clone());
        let mut some_sums = Sums::zero(all.kind, 0, all.d, false);
        let mut some_floors = Vec::new();
        let mut evaluated = 0;
        for block in blocks.clone() {
            let (x, weights, rows) =
                (tiles.layout.copied(block), tiles.layout.weights(block), tiles.layout.rows_in(block));
            let wide = padded::<T, W>(rows);
            let is_list = near.find(w, block, |row| weights[row] > T::ZERO, work);
            let mut out = RowOutputs { top: &mut work.top, rest: &mut work.rest, entropy: None };
            let (terms, floors) = if is_list {
                w.apart(Normalise { terms: &near.some, rows: 0..wide, weights, joint: &mut work.joint, out: &mut out });
                some_floors.clear();
                some_floors.extend(near.chosen.iter().map(|&c| all_floors[c as usize]));
                (&near.some, some_floors.as_slice())
            } else {
                w.apart(Responsibilities {
                    terms: all,
                    x,
                    rows: wide,
                    weights,
                    joint: &mut work.joint,
                    distances: &mut work.distances,
                    scratch: &mut work.scratch,
                    out,
                });
                (all, all_floors)
            };
            evaluated += terms.k;
            let joint = &mut work.joint[..terms.k * STRIDE];
            add_log_likelihood(noise, (&work.top[..rows], &work.rest[..rows]), weights, joint, sums);
            if is_list {
                some_sums.resize(all.kind, terms.k, all.d);
            }
            w.apart(Accumulate {
                kind: all.kind,
                centres: &terms.means,
                tile: Tile { x, rows: wide, responsibilities: joint, distances: &work.distances, floors },
                scratch: &mut work.scratch,
                dense: &mut work.dense,
                sums: if is_list { &mut some_sums } else { sums },
            });
            if is_list {
                sums.add_some(all.kind, &some_sums, &near.chosen);
            }
        }
        evaluated
    }
}

/// Finds the components near one tile after another.
pub(super) struct Near<'a, T: Real> {
    tiles: &'a Tiles<T>,
    terms: &'a Terms<T>,
    bounds: &'a Bounds,
    selection: Selection,
    /// First tile after those of the current group, and the last group's end.
    group_end: usize,
    end: usize,
    /// The group's box.
    low: Vec<f64>,
    high: Vec<f64>,
    /// The components near the current tile, and their parameters.
    pub(super) chosen: Vec<u32>,
    pub(super) some: Terms<T>,
    /// The search resumes at this tile.
    dense_until: usize,
    /// Number of tiles to skip after the next failed search.
    pause: usize,
}

impl<'a, T: Real> Near<'a, T> {
    pub(super) fn new(tiles: &'a Tiles<T>, terms: &'a Terms<T>, bounds: &'a Bounds, blocks: Range<usize>) -> Self {
        Self {
            tiles,
            terms,
            bounds,
            selection: Selection::default(),
            group_end: blocks.start,
            end: blocks.end,
            low: vec![0.0; terms.d],
            high: vec![0.0; terms.d],
            chosen: Vec::new(),
            some: terms.subset(),
            dense_until: blocks.start,
            pause: 0,
        }
    }

    /// Lists the components near a tile in `chosen`, with their parameters in `some` and their log joint densities in
    /// the workspace. Returns false if most components are near, or if every density of a row underflows: the tile is
    /// then dense. Rows of weight 0 are ignored.
    #[inline(always)]
    pub(super) fn find<W: Words<T>>(
        &mut self,
        w: W,
        block: usize,
        counts: impl Fn(usize) -> bool,
        work: &mut Workspace<T>,
    ) -> bool {
        if block < self.dense_until {
            return false;
        }
        if block >= self.group_end {
            self.group_end = self.end.min(block + GROUP);
            self.tiles.boxes.around(block..self.group_end, &mut self.low, &mut self.high);
            self.selection.enter_group(self.bounds, RowBox { low: &self.low, high: &self.high });
        }
        let found = self.list(w, block, counts, work);
        if found {
            self.pause = 0;
        } else {
            self.dense_until = block + 1 + self.pause;
            self.pause = (2 * self.pause + 1).min(MOST_DENSE);
        }
        found
    }

    #[inline(always)]
    fn list<W: Words<T>>(
        &mut self,
        w: W,
        block: usize,
        counts: impl Fn(usize) -> bool,
        work: &mut Workspace<T>,
    ) -> bool {
        let Self { tiles, terms, bounds, selection, chosen, some, .. } = self;
        let (x, rows, tile) = (tiles.layout.copied(block), tiles.layout.rows_in(block), tiles.boxes.of(block));
        let wide = padded::<T, W>(rows);
        let lowest = T::of(-T::MAX.to_f64());
        let mut thresholds = selection.enter_tile(bounds, tile);
        chosen.clear();
        some.clear();
        work.top[..wide].fill(lowest);
        loop {
            let (threshold, before) = (thresholds.next(), chosen.len());
            selection.above(bounds, tile, threshold, chosen);
            if 2 * chosen.len() > terms.k {
                return false;
            }
            if before < chosen.len() {
                chosen[before..].iter().for_each(|&c| some.push(terms, c as usize));
                let Workspace { joint, distances, scratch, top, .. } = &mut *work;
                log_joint_of_rows(w, some, before..some.k, x, wide, joint, distances, scratch);
                raise(w, &joint[before * STRIDE..], some.k - before, wide, top);
            }
            let low = lowest_of(&work.top[..rows], &counts);
            if thresholds.is_last(threshold, low.map(|low| low - bounds.floor() - rounding::<T>(terms.d, low))) {
                break;
            }
        }
        (0..rows).all(|row| work.top[row] > lowest || !counts(row))
    }
}

/// The smallest value of the rows that count.
#[inline(always)]
fn lowest_of<T: Real>(top: &[T], counts: &impl Fn(usize) -> bool) -> Option<f64> {
    let mut low = None;
    for (row, value) in top.iter().enumerate() {
        if counts(row) && low.is_none_or(|low| *value < low) {
            low = Some(*value);
        }
    }
    low.map(T::to_f64)
}

/// A bound of the rounding error of a log density.
pub(super) fn rounding<T: Real>(d: usize, value: f64) -> f64 {
    let eps = if T::PRECISION == Precision::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    8.0 * (d + 2) as f64 * eps * value.abs()
}
