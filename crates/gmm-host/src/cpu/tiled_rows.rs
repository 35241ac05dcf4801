//! Rows in tiles beside the rows as given, created when a mixture or k-means has many components: see [`crate::nearby`].

use std::sync::Arc;

use gmm_model::Mixture;

use super::layout::{BLOCK, Layout};
use super::passes::{Passes, TiledDistances};
use super::simd::Dispatch;
use super::tiles::Tiles;
use crate::nearby::{Bounds, Probe, choice};

/// What the passes with many components use, all of it made when first needed.
pub(super) struct TiledRows<T> {
    /// `Some(None)` if there is no memory for the reordered copy.
    tiles: Option<Option<Arc<Tiles<T>>>>,
    probe: Option<Probe>,
    /// Number of centres added so far.
    centres: usize,
    /// Distances to the nearest of many centres.
    pub(super) distances: Option<TiledDistances<T>>,
    /// See [`crate::Passes::near_components`].
    pub(super) near_components: Option<f64>,
}

impl<T: Dispatch> TiledRows<T> {
    /// Nothing yet.
    pub(super) const NONE: Self = Self { tiles: None, probe: None, centres: 0, distances: None, near_components: None };

    /// Starts k-means++ anew.
    pub(super) fn forget_centres(&mut self) {
        (self.centres, self.distances) = (0, None);
    }

    /// The reordered rows and the bounds of a mixture's components, if a pass leaves out those that are far from a tile.
    pub(super) fn of_mixture(
        &mut self,
        layout: &Layout<T>,
        passes: &Passes<T>,
        mixture: &Mixture,
    ) -> Option<(Arc<Tiles<T>>, Bounds)> {
        let bounds = |shift: &[f64]| Bounds::of_mixture(mixture, shift);
        self.reordered(layout, passes, mixture.n_components(), bounds, |c| mixture.log_weight(c))
    }

    /// The reordered rows and the bounds of distances to centres, `(k, d)`, as [`of_mixture`](Self::of_mixture).
    pub(super) fn of_centres(
        &mut self,
        layout: &Layout<T>,
        passes: &Passes<T>,
        points: &[T],
    ) -> Option<(Arc<Tiles<T>>, Bounds)> {
        let (k, d) = (points.len() / layout.d, layout.d);
        let bounds = |_: &[f64]| Bounds::of_centres((k, d), |c, j| points[c * d + j].to_f64());
        self.reordered(layout, passes, k, bounds, |_| 0.0)
    }

    fn reordered(
        &mut self,
        layout: &Layout<T>,
        passes: &Passes<T>,
        k: usize,
        bounds: impl Fn(&[f64]) -> Bounds,
        log_weight: impl Fn(usize) -> f64,
    ) -> Option<(Arc<Tiles<T>>, Bounds)> {
        let (mut made, mut near) = (None, f64::NAN);
        let choice = choice(passes.skip, (layout.n, k, layout.d), || {
            let at = |row, column| layout.at(row, column).to_f64();
            let probe = self.probe.get_or_insert_with(|| Probe::new(layout.n, layout.d, BLOCK, at));
            let (are_few, part) = probe.near(made.insert(bounds(&layout.shift)), log_weight);
            near = part;
            are_few
        });
        if !near.is_nan() {
            tracing::debug!(n = layout.n, k, d = layout.d, near, ?choice, "components near a tile of rows");
        }
        choice.ok()?;
        let bounds = made.unwrap_or_else(|| bounds(&layout.shift));
        Some((self.tiles(layout, passes)?, bounds))
    }

    /// The reordered rows, unless there is no memory for them.
    fn tiles(&mut self, layout: &Layout<T>, passes: &Passes<T>) -> Option<Arc<Tiles<T>>> {
        let make = || {
            let found = passes.make_layout((layout.n, layout.d), || Tiles::new(layout));
            let refused = |error| tracing::info!(%error, "rows are not reordered: all components are evaluated");
            found.map_err(refused).ok().map(Arc::new)
        };
        self.tiles.get_or_insert_with(make).clone()
    }

    /// Lowers `given`, the distances of the rows to their nearest centre, by one more centre.
    pub(super) fn add_centre(
        &mut self,
        layout: &Layout<T>,
        passes: &Passes<T>,
        point: &[T],
        given: &mut [f64],
    ) -> Vec<f64> {
        self.centres += 1;
        if self.distances.is_none()
            && choice(passes.skip, (layout.n, self.centres, layout.d), || true).is_ok()
            && let Some(tiles) = self.tiles(layout, passes)
        {
            self.distances = Some(TiledDistances::new(tiles, layout, given));
        }
        match &mut self.distances {
            Some(distances) => distances.add_centre(passes, layout, point, given),
            None => passes.add_centre(layout, point, given),
        }
    }
}
