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
