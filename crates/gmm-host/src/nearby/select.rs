//! Finds the components whose bound in a tile is above a threshold, without a look at every component.

use std::cmp::Ordering;

use super::{Bounds, RowBox};

/// The thresholds of one tile: components are evaluated down to a threshold, which falls until it is at most the goal.
pub(crate) struct Thresholds {
    best: f64,
    /// How far the threshold is below the largest bound: four times as far each time.
    reach: f64,
    /// Components with a bound below it can be left out.
    goal: f64,
}

impl Thresholds {
    /// Components with at least this bound are evaluated next.
    pub(crate) fn next(&self) -> f64 {
        (self.best - self.reach).max(self.goal)
    }

    /// Sets the goal from the smallest density of the rows, if any row counts. Returns whether it is reached after the
    /// components down to `threshold` were evaluated.
    pub(crate) fn is_last(&mut self, threshold: f64, goal: Option<f64>) -> bool {
        self.goal = goal.unwrap_or(f64::INFINITY);
        let is_last = threshold <= self.goal || self.reach.is_infinite();
        self.reach = if self.reach > 0.0 { 4.0 * self.reach } else { f64::INFINITY };
        is_last
    }
}

/// A component with its bound.
#[derive(Clone, Copy, Default)]
struct Candidate {
    bound: f64,
    component: u32,
}

/// Components that are ranked at first; then twice as many, and so on.
const FIRST: usize = 256;

/// The components of a group of tiles, ranked by their bounds in the group's box, and the search in one tile.
#[derive(Default)]
pub(crate) struct Selection {
    /// `(k,)`, of which the first `sorted` are the largest, in descending order.
    ranked: Vec<Candidate>,
    sorted: usize,
    /// How many of `ranked` were considered in this tile.
    considered: usize,
    /// The considered ones that were below the threshold.
    below: Vec<Candidate>,
    /// The largest bound in this tile so far.
    best: f64,
    values: Vec<f64>,
}

impl Selection {
    /// Ranks the components in the box of a group of tiles. Cost: `k d`.
    pub(crate) fn enter_group(&mut self, bounds: &Bounds, group: RowBox<'_>) {
        self.values.resize(bounds.components(), 0.0);
        bounds.all(group, &mut self.values);
        self.ranked.clear();
        self.ranked.extend((0..).zip(&self.values).map(|(component, &bound)| Candidate { bound, component }));
        self.sorted = 0;
    }

    /// Begins the search in a tile of the group.
    pub(crate) fn enter_tile(&mut self, bounds: &Bounds, tile: RowBox<'_>) -> Thresholds {
        (self.considered, self.best) = (0, f64::NEG_INFINITY);
        self.below.clear();
        while self.next_bound() >= self.best && self.next_bound() > f64::NEG_INFINITY {
            self.consider(bounds, tile);
        }
        Thresholds { best: self.best, reach: bounds.reach(tile), goal: f64::NEG_INFINITY }
    }

    /// Appends to `chosen` all components with a bound of at least `threshold` in the tile that were not appended
    /// before.
    pub(crate) fn above(&mut self, bounds: &Bounds, tile: RowBox<'_>, threshold: f64, chosen: &mut Vec<u32>) {
        while self.considered < self.ranked.len() && self.next_bound() >= threshold {
            self.consider(bounds, tile);
        }
        let first = chosen.len();
        self.below.retain(|candidate| {
            let is_below = candidate.bound < threshold;
            if !is_below {
                chosen.push(candidate.component);
            }
            is_below
        });
        chosen[first..].sort_unstable();
    }

    /// The group's bound of the next component to consider; −∞ if there is none.
    fn next_bound(&mut self) -> f64 {
        if self.considered == self.sorted {
            self.sort_more();
        }
        self.ranked.get(self.considered).map_or(f64::NEG_INFINITY, |candidate| candidate.bound)
    }

    fn consider(&mut self, bounds: &Bounds, tile: RowBox<'_>) {
        let Candidate { bound, component } = self.ranked[self.considered];
        let bound = bounds.one(component as usize, tile).min(bound);
        self.below.push(Candidate { bound, component });
        self.best = self.best.max(bound);
        self.considered += 1;
    }

    fn sort_more(&mut self) {
        let end = (2 * self.sorted).max(FIRST).min(self.ranked.len());
        let descending = |a: &Candidate, b: &Candidate| -> Ordering {
            b.bound.total_cmp(&a.bound).then(a.component.cmp(&b.component))
        };
        let (rest, count) = (&mut self.ranked[self.sorted..], end - self.sorted);
        if count < rest.len() {
            rest.select_nth_unstable_by(count, descending);
        }
        rest[..count].sort_unstable_by(descending);
        self.sorted = end;
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::{Covariances, Draws, Mixture, reference};
    use ndarray::{Array1, Array2, Array3};

    use super::super::{Boxes, FLOOR_BITS, GROUP, order};
    use super::*;

    #[test]
    fn what_a_list_leaves_out_is_below_the_floor_and_lists_are_short() {
        let (n, k, d, tile_rows) = (3000, 200, 2, 64);
        let draws = &mut Draws::for_purpose("lists", 1, 0);
        let means = Array2::from_shape_simple_fn((k, d), || draws.uniform());
        let covariance = |i: usize, j: usize| 2e-5 * [[3.0, 1.0], [1.0, 0.5]][i][j];
        let covariances = Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| covariance(i, j)));
        let rows = Array2::from_shape_fn((n, d), |(i, j)| means[[i % k, j]] + 0.005 * draws.normal());
        let mixture = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).unwrap();
        let bounds = Bounds::of_mixture(&mixture, &[0.0; 2]);
        let order = order(n, d, tile_rows, |row, column| rows[[row, column]]);
        let tiles: Vec<&[u32]> = order.chunks(tile_rows).collect();
        let mut boxes = Boxes::none(tiles.len(), d);
        for (tile, of_tile) in tiles.iter().enumerate() {
            (0..d).for_each(|j| boxes.extend(tile, j, of_tile.iter().map(|&row| rows[[row as usize, j]])));
        }
        let joint = |row: u32, c: usize| reference::log_joint(&mixture, c, rows.row(row as usize));
        let (mut selection, mut evaluated) = (Selection::default(), 0);
        let (mut low, mut high) = (vec![0.0; d], vec![0.0; d]);
        for (tile, of_tile) in tiles.iter().enumerate() {
            if tile % GROUP == 0 {
                boxes.around(tile..tiles.len().min(tile + GROUP), &mut low, &mut high);
                selection.enter_group(&bounds, RowBox { low: &low, high: &high });
            }
            let (mut thresholds, mut chosen) = (selection.enter_tile(&bounds, boxes.of(tile)), Vec::new());
            loop {
                let threshold = thresholds.next();
                selection.above(&bounds, boxes.of(tile), threshold, &mut chosen);
                let top = |row: &u32| chosen.iter().map(|&c| joint(*row, c as usize)).fold(f64::NEG_INFINITY, f64::max);
                let lowest = of_tile.iter().map(top).reduce(f64::min);
                if thresholds.is_last(threshold, lowest.map(|v| v - bounds.floor())) {
                    break;
                }
            }
            evaluated += chosen.len();
            chosen.sort_unstable();
            assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]), "a component twice");
            for &row in *of_tile {
                let all: Vec<f64> = (0..k).map(|c| joint(row, c)).collect();
                let total = reference::log_sum_exp(&all);
                for c in (0..k).filter(|&c| chosen.binary_search(&(c as u32)).is_err()) {
                    let responsibility = (all[c] - total).exp();
                    assert!(responsibility < (-FLOOR_BITS).exp2() * mixture.weights()[c], "row {row} component {c}");
                }
            }
        }
        assert!(evaluated * 4 < k * tiles.len(), "{evaluated} of {}", k * tiles.len());
    }
}
