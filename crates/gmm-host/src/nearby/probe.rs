//! Whether reordered rows would pay, from a sample: before anything is paid for them.

use super::{Bounds, Boxes, RowBox, Selection, order};

/// One row in this many is in the sample, and its tiles have that many times fewer rows.
const SHARE: usize = 16;

/// Tiles that are looked at.
const TILES: usize = 8;

/// Some rows of some small tiles, with the tiles' boxes.
pub(crate) struct Probe {
    d: usize,
    boxes: Boxes,
    /// Rows of each tile, row by row, less the shift.
    rows: Vec<Vec<f64>>,
}

impl Probe {
    /// Orders every sixteenth row in tiles of `tile / 16` rows, and copies a few of these tiles.
    pub(crate) fn new<F: Fn(usize, usize) -> f64 + Sync>(n: usize, d: usize, tile: usize, value: F) -> Self {
        let (count, tile) = (n.div_ceil(SHARE), tile / SHARE);
        let order = order(count, d, tile, |row, column| value(row * SHARE, column));
        let all: Vec<&[u32]> = order.chunks(tile).collect();
        let some = TILES.min(all.len());
        let mut boxes = Boxes::none(some, d);
        let mut rows = Vec::with_capacity(some);
        for at in 0..some {
            let of_tile = all[at * all.len() / some];
            let cell = |row: u32, column: usize| value(row as usize * SHARE, column);
            (0..d).for_each(|j| boxes.extend(at, j, of_tile.iter().map(|&row| cell(row, j))));
            rows.push(of_tile.iter().flat_map(|&row| (0..d).map(move |j| cell(row, j))).collect());
        }
        Self { d, boxes, rows }
    }

    /// Whether the mean share of components near a sampled tile is at most [`Bounds::most_near`], and that share, or one that it is
    /// known to exceed. A component
    /// is near a tile if its bound is at least the smallest log density of the tile's rows, less the floor. `log_weight(c)` is
    /// added to the log densities.
    pub(crate) fn near(&self, bounds: &Bounds, log_weight: impl Fn(usize) -> f64) -> (bool, f64) {
        let (mut selection, mut found) = (Selection::default(), 0);
        let share = |found: usize| found as f64 / (self.rows.len() * bounds.components()) as f64;
        for (at, rows) in self.rows.iter().enumerate() {
            let tile = self.boxes.of(at);
            selection.enter_group(bounds, tile);
            let mut thresholds = selection.enter_tile(bounds, tile);
            let (mut chosen, mut top) = (Vec::new(), vec![f64::NEG_INFINITY; rows.len() / self.d]);
            loop {
                let (threshold, before) = (thresholds.next(), chosen.len());
                selection.above(bounds, tile, threshold, &mut chosen);
                if 2 * chosen.len() > bounds.components() {
                    chosen.resize(bounds.components(), 0);
                    break;
                }
                for (top, row) in top.iter_mut().zip(rows.chunks_exact(self.d)) {
                    let row = RowBox { low: row, high: row };
                    for &c in &chosen[before..] {
                        *top = top.max(log_weight(c as usize) + bounds.one(c as usize, row));
                    }
                }
                if thresholds.is_last(threshold, top.iter().copied().reduce(f64::min).map(|low| low - bounds.floor())) {
                    break;
                }
            }
            found += chosen.len();
            // The share over all tiles is at least this: where all components are near, most of the work is left out.
            if share(found) > bounds.most_near() {
                break;
            }
        }
        (share(found) <= bounds.most_near(), share(found))
    }
}
