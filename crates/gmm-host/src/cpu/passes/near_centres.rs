//! Distances to the nearest of a growing number of centres, for rows in tiles: a centre whose distance to a tile's box is
//! no smaller than the largest distance of the tile's rows changes none of them. k-means++ with thousands of centres
//! then looks at a few tiles for each centre, with the same distances.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::layout::{BLOCK, Layout, STRIDE};
use super::super::simd::{Dispatch, Kernel, Real, Words};
use super::super::tiles::Tiles;
use super::near::rounding;
use super::nearest::{distances, weighted};
use super::{Passes, padded};
use crate::engine::DISTANCE_ROWS;

/// Squared distances to the nearest centre, by tile.
pub(crate) struct TiledDistances<T> {
    tiles: Arc<Tiles<T>>,
    /// `(n,)`, in the order of the tiles.
    near: Vec<f64>,
    /// The largest of each tile.
    most: Vec<f64>,
    /// `Σ w near` of each block of rows in the given order.
    sums: Vec<f64>,
}

impl<T: Dispatch> TiledDistances<T> {
    /// Continues from the distances of the rows in the given order, `(n,)`.
    pub(crate) fn new(tiles: Arc<Tiles<T>>, layout: &Layout<T>, given: &[f64]) -> Self {
        let near: Vec<f64> = tiles.order.iter().map(|&row| given[row as usize]).collect();
        let most = near.chunks(BLOCK).map(largest).collect();
        let sums = given.chunks(BLOCK).enumerate().map(|(block, near)| sum(layout, block, near)).collect();
        Self { tiles, near, most, sums }
    }

    /// As [`Passes::add_centre`], to the same bits; `given` are the distances in the order of `layout`.
    pub(crate) fn add_centre(
        &mut self,
        passes: &Passes<T>,
        layout: &Layout<T>,
        centre: &[T],
        given: &mut [f64],
    ) -> Vec<f64> {
        let Self { tiles, near, most, sums } = self;
        let tiles = &**tiles;
        let point = to_f64(centre);
        let lower = |(tile, (near, most)): (usize, (&mut [f64], &mut f64))| -> Option<usize> {
            can_lower(tiles, tile, &point, *most).then(|| {
                T::dispatch(passes.machine, Lower { tiles, tile, centre, near });
                *most = largest(near);
                tile
            })
        };
        let lowered: Vec<usize> = passes
            .pool
            .install(|| near.par_chunks_mut(BLOCK).zip(most.par_iter_mut()).enumerate().filter_map(lower).collect());
        let mut changed = vec![false; sums.len()];
        for tile in lowered {
            let rows = tile * BLOCK..near.len().min((tile + 1) * BLOCK);
            for (&row, &v) in tiles.order[rows.clone()].iter().zip(&near[rows]) {
                let (row, slot) = (row as usize, &mut given[row as usize]);
                changed[row / BLOCK] |= *slot != v;
                *slot = v;
            }
        }
        for (block, near) in given.chunks(BLOCK).enumerate().filter(|(block, _)| changed[*block]) {
            sums[block] = sum(layout, block, near);
        }
        sums.chunks(DISTANCE_ROWS / BLOCK).map(|of_group| of_group.iter().sum()).collect()
    }

    /// As [`Passes::potentials`].
    pub(crate) fn potentials(&self, passes: &Passes<T>, candidates: &[T]) -> Vec<f64> {
        let total: f64 = self.sums.iter().sum();
        let of = |candidate: &[T]| {
            let (point, tiles) = (to_f64(candidate), &*self.tiles);
            let near = self.near.chunks(BLOCK).zip(&self.most).enumerate();
            let gains = near
                .filter(|(tile, (_, most))| can_lower(tiles, *tile, &point, **most))
                .map(|(tile, (near, _))| T::dispatch(passes.machine, Gain { tiles, tile, centre: candidate, near }));
            total - gains.sum::<f64>()
        };
        passes.pool.install(|| candidates.par_chunks(self.tiles.layout.d).map(of).collect())
    }
}

fn to_f64<T: Real>(point: &[T]) -> Vec<f64> {
    point.iter().map(|v| v.to_f64()).collect()
}

fn largest(near: &[f64]) -> f64 {
    near.iter().fold(0.0, |most, &v| if v > most { v } else { most })
}

/// `Σ w near` of a block, in the order of [`Passes::add_centre`].
fn sum<T: Real>(layout: &Layout<T>, block: usize, near: &[f64]) -> f64 {
    let mut sum = 0.0;
    for (&near, &weight) in near.iter().zip(layout.weights(block)) {
        sum += weighted(weight, near);
    }
    sum
}

/// Whether a row of the tile can be nearer to the point than `most`.
fn can_lower<T: Real>(tiles: &Tiles<T>, tile: usize, point: &[f64], most: f64) -> bool {
    let distance = tiles.boxes.of(tile).distance(point);
    distance - rounding::<T>(point.len(), distance) < most
}

/// Lowers the distances of a tile's rows.
struct Lower<'a, T> {
    tiles: &'a Tiles<T>,
    tile: usize,
    centre: &'a [T],
    near: &'a mut [f64],
}

impl<T: Real> Kernel<T> for Lower<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { tiles, tile, centre, near } = self;
        let mut found = [T::ZERO; STRIDE];
        distances(w, centre, centre.len(), tiles.layout.copied(tile), padded::<T, W>(near.len()), &mut found);
        near.iter_mut().zip(found).for_each(|(near, distance)| *near = near.min(distance.to_f64()));
    }
}

/// Returns by how much a centre would lower the weighted sum of a tile's distances.
struct Gain<'a, T> {
    tiles: &'a Tiles<T>,
    tile: usize,
    centre: &'a [T],
    near: &'a [f64],
}

impl<T: Real> Kernel<T> for Gain<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> f64 {
        let Self { tiles, tile, centre, near } = self;
        let mut found = [T::ZERO; STRIDE];
        distances(w, centre, centre.len(), tiles.layout.copied(tile), padded::<T, W>(near.len()), &mut found);
        let mut gain = 0.0;
        for ((&near, distance), &weight) in near.iter().zip(found).zip(tiles.layout.weights(tile)) {
            let distance = distance.to_f64();
            gain += if distance < near { weighted(weight, near - distance) } else { 0.0 };
        }
        gain
    }
}
