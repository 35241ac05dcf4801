//! A pass: the candidates of each row, their densities, the best of them, and the sums.

use std::sync::Arc;

use gmm_model::{Mixture, Statistics};
use rayon::prelude::*;

use super::join::{Found, Tried, write_neighbours};
use super::scores::{PAD, Terms};
use super::search::{Lists, Search};
use super::trees::Trees;
use super::{TruncatedPass, first, sums};
use crate::Error;
use crate::cpu::simd::{Dispatch, Kernel, Machine, Words, prefetch};

/// The rows lie anywhere in memory: that many rows before it is used, one is asked for.
pub(super) const AHEAD: usize = 8;

/// Rows of a task. Sums are added per task in order, so that the bits do not depend on the number of threads.
pub(super) const TASK: usize = 2048;

/// The purpose of the draws of a pass's tree.
pub(crate) const TREE_OF_PASS: &str = "truncated tree";

/// Passes without an M-step with which a search begins, at most.
const MOST_FIRST: usize = 40;

/// The search has begun when a pass adds less than this, in natural units per row.
const FIRST_GAIN: f64 = 0.01;

/// Rows one after another, `(n, padded)`, less the shift, with their weights.
pub(crate) struct Rows<T> {
    pub(super) cells: Vec<T>,
    pub(super) weights: Option<Vec<f64>>,
    pub(super) n: usize,
    pub(super) padded: usize,
    pub(super) shift: Vec<f64>,
}

impl<T: Dispatch> Rows<T> {
    /// Of `n` rows of `shift.len()` columns; `fill(i, row)` writes row `i`, less the shift. `weights` are those of the rows.
    pub(crate) fn new(
        n: usize,
        shift: &[f64],
        weights: Option<Vec<f64>>,
        fill: impl Fn(usize, &mut [T]) + Sync,
    ) -> Result<Self, Error> {
        let padded = shift.len().next_multiple_of(PAD);
        crate::memory::check("the rows of truncated EM", (size_of::<T>() * padded * n) as u128)?;
        let mut cells = vec![T::ZERO; n * padded];
        cells.par_chunks_mut(padded).enumerate().for_each(|(i, row)| fill(i, &mut row[..shift.len()]));
        Ok(Self { cells, weights, n, padded, shift: shift.to_vec() })
    }

    pub(super) fn row(&self, i: usize) -> &[T] {
        &self.cells[i * self.padded..][..self.padded]
    }

    pub(super) fn weight(&self, i: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |all| all[i])
    }
}

/// What a step over all rows adds up to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) free_energy: f64,
    pub(crate) entropy: f64,
    pub(crate) total_weight: f64,
    /// Components tried.
    pub(crate) tried: f64,
}

/// The steps of passes under one mixture, over all rows of an engine.
pub(crate) trait Steps {
    /// Number of rows.
    fn n(&self) -> usize;

    /// The first lists of a search.
    ///
    /// # Errors
    /// As for [`Search::sizes`]; any error of the engine.
    fn first(&mut self, search: &Search) -> Result<Lists, Error>;

    /// An E-step, which goes on from lists in the order of their rows' best components.
    ///
    /// # Errors
    /// Any error of the engine.
    fn step(&mut self, before: Lists, search: &Search) -> Result<Totals, Error>;

    /// The sums under the responsibilities of the last step, about the means.
    ///
    /// # Errors
    /// As for a step.
    fn sums(&mut self) -> Result<Statistics, Error>;

    /// The lists of the last step, in the order of the rows before.
    ///
    /// # Errors
    /// As for a step.
    fn lists(&mut self) -> Result<Lists, Error>;
}

/// A pass under a mixture of `k` components.
///
/// # Errors
/// As for [`Steps`].
pub(crate) fn pass(steps: &mut impl Steps, k: usize, from: &Search) -> Result<TruncatedPass, Error> {
    let mut search = from.clone();
    let (g, h) = search.sizes(steps.n(), k)?;
    // Those of other rows, or of another number of components, are of no use.
    let suit =
        |lists: &Lists| (lists.g, lists.h, lists.order.len(), lists.neighbours.len()) == (g, h, steps.n(), k * h);
    let begun = match search.lists.take().filter(suit) {
        Some(lists) => lists,
        None => begin(steps, k, &mut search)?,
    };
    let totals = steps.step(begun, &search)?;
    search.passes += 1;
    search.tried = totals.tried / steps.n() as f64;
    let mut statistics = steps.sums()?;
    statistics.log_likelihood = totals.free_energy;
    statistics.total_weight = totals.total_weight;
    statistics.n_rows = steps.n() as u64;
    search.lists = Some(steps.lists()?.sorted(k));
    Ok(TruncatedPass { statistics, entropy: totals.entropy, search })
}

/// The first lists, made better by passes under the same mixture.
fn begin(steps: &mut impl Steps, k: usize, search: &mut Search) -> Result<Lists, Error> {
    let mut lists = steps.first(search)?.sorted(k);
    let mut last = f64::NEG_INFINITY;
    for _ in 0..if lists.g == k { 0 } else { MOST_FIRST } {
        let Totals { free_energy, total_weight, .. } = steps.step(lists, search)?;
        search.passes += 1;
        lists = steps.lists()?.sorted(k);
        let gains = free_energy - last > FIRST_GAIN * total_weight;
        last = free_energy;
        if !gains && last > f64::NEG_INFINITY {
            break;
        }
    }
    Ok(lists)
}

/// The steps on the threads of the current pool.
pub(crate) struct OnThreads<'a, T> {
    machine: Machine,
    rows: &'a Rows<T>,
    mixture: &'a Mixture,
    terms: Terms<T>,
    last: Option<Step>,
}

impl<'a, T: Dispatch> OnThreads<'a, T> {
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn new(machine: Machine, rows: &'a Rows<T>, mixture: &'a Mixture) -> Result<Self, Error> {
        Ok(Self { machine, rows, mixture, terms: Terms::new(mixture, &rows.shift)?, last: None })
    }

    fn last(&self) -> &Step {
        self.last.as_ref().expect("a step was made")
    }
}

impl<T: Dispatch> Steps for OnThreads<'_, T> {
    fn n(&self) -> usize {
        self.rows.n
    }

    fn first(&mut self, search: &Search) -> Result<Lists, Error> {
        first::lists(self.machine, self.rows, self.mixture, &self.terms, search)
    }

    fn step(&mut self, before: Lists, search: &Search) -> Result<Totals, Error> {
        let step = step(self.machine, self.rows, (self.mixture, &self.terms), before, search);
        Ok(self.last.insert(step).totals)
    }

    fn sums(&mut self) -> Result<Statistics, Error> {
        sums::of_lists(self.machine, self.rows, self.mixture, self.last())
    }

    fn lists(&mut self) -> Result<Lists, Error> {
        Ok(self.last.take().expect("a step was made").lists)
    }
}

/// New lists, and what follows from them.
pub(super) struct Step {
    /// In the order of the rows before.
    pub(super) lists: Lists,
    /// Responsibilities of the listed components, `(n, g)`.
    pub(super) responsibilities: Vec<f64>,
    totals: Totals,
}

/// What a thread needs for its rows.
struct Workspace {
    /// The row, counted from 1, that tried a component last, `(k,)`.
    stamps: Vec<u32>,
    stamp: u32,
    candidates: Vec<u32>,
    joint: Vec<f64>,
    /// The components that rows of the same best component tried: a place in `tried` for each, `(k,)`.
    places: Vec<u32>,
    tried: Vec<Tried>,
}

impl Workspace {
    fn new(k: usize) -> Self {
        let (candidates, joint, tried) = (Vec::new(), Vec::new(), Vec::new());
        Self { stamps: vec![0; k], stamp: 0, candidates, joint, places: vec![u32::MAX; k], tried }
    }

    /// Starts the candidates of another row.
    #[inline(always)]
    fn next_row(&mut self) {
        self.candidates.clear();
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.stamps.fill(0);
            self.stamp = 1;
        }
    }

    /// Adds a candidate, once.
    #[inline(always)]
    fn try_component(&mut self, c: u32) {
        let stamp = &mut self.stamps[c as usize];
        if *stamp != self.stamp {
            *stamp = self.stamp;
            self.candidates.push(c);
        }
    }

    /// Adds the candidates' log joint densities over that of the row's best component so far, the first candidate.
    #[inline(always)]
    fn note(&mut self) {
        let own = self.joint[0];
        for (&c, joint) in self.candidates.iter().zip(&self.joint) {
            // Both may be −∞.
            let over = if joint - own > -1e30 { joint - own } else { -1e30 };
            let place = &mut self.places[c as usize];
            if *place == u32::MAX {
                *place = self.tried.len() as u32;
                self.tried.push((c, over, 1));
            } else {
                let one = &mut self.tried[*place as usize];
                one.1 += over;
                one.2 += 1;
            }
        }
    }

    /// Takes what the rows of a component tried.
    fn take(&mut self, of: u32) -> Found {
        self.tried.iter().for_each(|one| self.places[one.0 as usize] = u32::MAX);
        Found { of, tried: std::mem::take(&mut self.tried) }
    }
}

/// The rows of a task.
struct Task<'a, T> {
    rows: &'a Rows<T>,
    terms: &'a Terms<T>,
    before: &'a Lists,
    /// The first position.
    first: usize,
    /// Of this pass.
    tree: &'a Trees<T>,
    space: &'a mut Workspace,
    /// Of these rows.
    components: &'a mut [u32],
    responsibilities: &'a mut [f64],
}

/// What a task found.
#[derive(Default)]
struct Ended {
    free_energy: f64,
    entropy: f64,
    total_weight: f64,
    tried: usize,
    found: Vec<Found>,
}

impl<T: Dispatch> Kernel<T> for Task<'_, T> {
    type Output = Ended;

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> Ended {
        let Self { rows, terms, before, first, tree, space, components, responsibilities } = self;
        let g = before.g;
        let explores = g < terms.weights.len();
        let mut out = Ended::default();
        let mut group = None;
        let each = components.chunks_exact_mut(g).zip(responsibilities.chunks_exact_mut(g));
        for (position, (listed, r)) in (first..).zip(each) {
            let row = before.order[position] as usize;
            if let Some(&later) = before.order.get(position + AHEAD) {
                prefetch(rows.row(later as usize));
            }
            let old = &before.components[position * g..][..g];
            if explores && group.is_some_and(|of| of != old[0]) {
                out.found.extend(group.map(|of| space.take(of)));
            }
            group = Some(old[0]);
            space.next_row();
            if explores {
                old.iter().for_each(|&c| space.try_component(c));
                old.iter().flat_map(|&c| before.of_component(c)).for_each(|&c| space.try_component(c));
                tree.near(w, rows.row(row), |c| space.try_component(c));
            } else {
                space.candidates.extend_from_slice(old);
            }
            space.candidates.iter().for_each(|&c| terms.prefetch(c));
            terms.log_joint(w, rows.row(row), &space.candidates, &mut space.joint);
            out.tried += space.candidates.len();
            if explores {
                space.note();
            }
            best(&space.candidates, &space.joint, listed, r);
            let log_density = normalise(listed, r, &terms.weights);
            let weight = rows.weight(row);
            out.free_energy += weight * log_density;
            out.entropy -= weight * r.iter().filter(|r| **r > 0.0).map(|r| r * libm::log(*r)).sum::<f64>();
            out.total_weight += weight;
        }
        if explores {
            out.found.extend(group.map(|of| space.take(of)));
        }
        out
    }
}

/// Writes the candidates of the largest log joint densities, in descending order, the lower index first among equals; and the
/// densities.
#[inline(always)]
pub(super) fn best(candidates: &[u32], joint: &[f64], listed: &mut [u32], tops: &mut [f64]) {
    let g = listed.len();
    let mut len = 0;
    for (&c, &value) in candidates.iter().zip(joint) {
        // A NaN, of a row at infinite distance of components with infinite precision, counts as −∞.
        let value = if value.is_nan() { f64::NEG_INFINITY } else { value };
        let goes_before = |i: usize| value > tops[i] || (value == tops[i] && c < listed[i]);
        if len == g && !goes_before(g - 1) {
            continue;
        }
        let mut at = if len < g { len } else { g - 1 };
        while at > 0 && goes_before(at - 1) {
            at -= 1;
        }
        let end = if len < g { len } else { g - 1 };
        tops.copy_within(at..end, at + 1);
        listed.copy_within(at..end, at + 1);
        (tops[at], listed[at]) = (value, c);
        len = end + 1;
    }
    debug_assert_eq!(len, g, "as many candidates as components of a row");
}

/// Turns log joint densities, the largest first, into responsibilities; returns the logarithm of their sum. If all underflow,
/// the responsibilities are the weights, as in EM.
#[inline(always)]
fn normalise(listed: &[u32], r: &mut [f64], weights: &[f64]) -> f64 {
    let top = r[0];
    if top < f64::MIN {
        let sum: f64 = listed.iter().map(|&c| weights[c as usize]).sum();
        let even = 1.0 / listed.len() as f64;
        let share = |c: u32| if sum > 0.0 { weights[c as usize] / sum } else { even };
        r.iter_mut().zip(listed).for_each(|(r, &c)| *r = share(c));
        return f64::NEG_INFINITY;
    }
    let mut sum = 0.0;
    for value in &mut *r {
        *value = libm::exp(*value - top);
        sum += *value;
    }
    r.iter_mut().for_each(|value| *value /= sum);
    top + libm::log(sum)
}

/// The E-step for all rows.
fn step<T: Dispatch>(
    machine: Machine,
    rows: &Rows<T>,
    (mixture, terms): (&Mixture, &Terms<T>),
    before: Lists,
    search: &Search,
) -> Step {
    let (n, g, k) = (rows.n, before.g, mixture.n_components());
    let mut components = vec![0; n * g];
    let mut responsibilities = vec![0.0; n * g];
    let trees = if g < k { 1 } else { 0 };
    let tree = &Trees::new(mixture, &rows.shift, (trees, rows.padded), &mut search.draws(TREE_OF_PASS));
    let tasks = components.par_chunks_mut(TASK * g).zip(responsibilities.par_chunks_mut(TASK * g)).enumerate();
    let ended: Vec<Ended> = tasks
        .map_init(
            || Workspace::new(k),
            |space, (task, (components, responsibilities))| {
                let (before, first) = (&before, task * TASK);
                T::dispatch(machine, Task { rows, terms, before, first, tree, space, components, responsibilities })
            },
        )
        .collect();
    let Lists { order, mut neighbours, h, .. } = before;
    let (mut totals, mut found) = (Totals::default(), Vec::new());
    for mut task in ended {
        totals.free_energy += task.free_energy;
        totals.entropy += task.entropy;
        totals.total_weight += task.total_weight;
        totals.tried += task.tried as f64;
        found.append(&mut task.found);
    }
    let written: &mut Vec<u32> = Arc::make_mut(&mut neighbours);
    write_neighbours(found.into_iter(), h, written);
    let lists = Lists { order, components: components.into(), neighbours, g, h };
    Step { lists, responsibilities, totals }
}
