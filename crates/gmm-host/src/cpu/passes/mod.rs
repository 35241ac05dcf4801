//! Passes over all rows: how blocks are assigned to threads, their workspace, and how the shares' sums are added up.

mod evaluate;
mod expectation;
mod given;
mod likelihood;
mod near;
mod near_centres;
mod near_rows;
mod nearest;
mod workspace;

pub(crate) use evaluate::EStepOutput;
pub(crate) use near::NearPass;
pub(crate) use near_centres::TiledDistances;

use std::ops::Range;
use std::sync::Arc;

use gmm_model::{CovarianceType, Statistics, packed_index, packed_len};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use super::e_step::WIDE;
use super::layout::{self, Layout};
use super::moments::{self, SCRATCH, Sums};
use super::simd::{Dispatch, Machine, Real, Words};
use crate::nearby::Skip;
use crate::{Error, memory};
use workspace::{Workspace, Workspaces};

/// Shares per thread: 4, so that a thread delayed by the system delays the others by a quarter at most.
const SHARES_PER_THREAD: usize = 4;

/// Above this many bytes of sums, more shares cost more than an uneven finish.
const LARGE_SUMS: u128 = 1 << 20;

/// Below this many floating-point operations, a pass runs on the calling thread: waking others takes about 10 µs.
const SMALL_PASS: u128 = 200_000;

/// The workspace of all passes; it grows when a pass needs more.
pub(crate) struct Passes<T> {
    machine: Machine,
    pool: Arc<rayon::ThreadPool>,
    shares: Vec<Share>,
    /// Shares that the last pass did not need: parts of a data set differ in length, and share one workspace.
    spare: Vec<Share>,
    /// Shares that span all blocks, one per mixture, for several mixtures at once; empty until a pass has several.
    alone: Vec<Share>,
    workspaces: Workspaces<T>,
    shape: Option<Shape>,
    /// Number of rows that the shares divide.
    rows: usize,
    pub(crate) skip: Skip,
}

/// The parameters that determine the size of the workspace.
#[derive(Clone, Copy, PartialEq)]
struct Shape {
    kind: CovarianceType,
    k: usize,
    d: usize,
}

impl Shape {
    /// Approximate floating-point operations of a pass over `n` rows.
    const fn work(self, n: usize) -> u128 {
        let Self { kind, k, d } = self;
        let per_component = if matches!(kind, CovarianceType::Full) { d * (d + 1) } else { 4 * d };
        2 * n as u128 * k as u128 * per_component as u128
    }
}

/// One share of the blocks, with its sums.
struct Share {
    blocks: Range<usize>,
    sums: Sums,
    /// One log-likelihood for each of several mixtures; empty until a pass has several.
    likelihoods: Vec<f64>,
}

impl Share {
    fn new(blocks: Range<usize>, Shape { kind, k, d }: Shape, pairs: bool) -> Self {
        Self { blocks, sums: Sums::zero(kind, k, d, pairs), likelihoods: Vec::new() }
    }
}

impl<T: Dispatch> Passes<T> {
    pub(crate) const fn new(machine: Machine, pool: Arc<rayon::ThreadPool>, skip: Skip) -> Self {
        let workspaces = Workspaces::new(Shape { kind: CovarianceType::Full, k: 0, d: 0 });
        Self {
            machine,
            pool,
            shares: Vec::new(),
            spare: Vec::new(),
            alone: Vec::new(),
            workspaces,
            shape: None,
            rows: 0,
            skip,
        }
    }

    /// The instruction set of the passes.
    pub(crate) const fn machine(&self) -> Machine {
        self.machine
    }

    /// Runs `work` on the threads of the passes.
    pub(crate) fn install<A: Send>(&self, work: impl FnOnce() -> A + Send) -> A {
        self.pool.install(work)
    }

    /// Creates passes for other rows, on the same threads.
    pub(crate) fn anew<S: Dispatch>(&self) -> Passes<S> {
        Passes::new(self.machine, self.pool.clone(), self.skip)
    }

    /// Makes a layout of rows of this shape, as [`layout::make`].
    pub(crate) fn make_layout<A: Send>(&self, shape: (usize, usize), make: impl FnOnce() -> A + Send) -> A {
        layout::make(&self.pool, shape, make)
    }

    /// Sizes the workspace and clears the sums.
    fn prepare(&mut self, layout: &Layout<T>, kind: CovarianceType, k: usize) -> Result<(), Error> {
        self.prepare_with(layout, (kind, k), SCRATCH)
    }

    /// As [`prepare`](Self::prepare), for passes that find the nearest centres: spherical moments of the rows of each need no
    /// scratch.
    fn prepare_nearest(&mut self, layout: &Layout<T>, kind: CovarianceType, k: usize) -> Result<(), Error> {
        self.prepare_with(layout, (kind, k), if kind == CovarianceType::Spherical { 0 } else { SCRATCH })
    }

    /// With `scratch` columns of scratch per dimension.
    fn prepare_with(
        &mut self,
        layout: &Layout<T>,
        (kind, k): (CovarianceType, usize),
        scratch: usize,
    ) -> Result<(), Error> {
        let shape = Shape { kind, k, d: layout.d };
        let at_once = |count: usize| count.min(self.pool.current_num_threads());
        // The same rows may be in a layout with copies and in one without.
        let is_served = self.workspaces.serve(shape, scratch, layout.block_len());
        if (self.shape, self.rows) == (Some(shape), layout.n) {
            if !is_served {
                let count = at_once(self.shares.len());
                memory::check(
                    "the workspace of a pass",
                    self.workspaces.missing(count) as u128 * Workspace::<T>::bytes(shape),
                )?;
                self.workspaces.reserve(count);
            }
            self.shares.iter_mut().for_each(|share| share.sums.clear());
            return Ok(());
        }
        let pairs = kind == CovarianceType::Tied && moments::pairs_pay(layout.n, k, layout.d);
        let sums = Sums::bytes(kind, k, layout.d, pairs);
        let count = self.count(layout, shape, sums);
        let is_alike = |share: &Share| self.shape == Some(shape) && share.sums.pairs.is_empty() != pairs;
        if !self.shares.first().is_some_and(is_alike) {
            (self.shares, self.spare, self.alone) = (Vec::new(), Vec::new(), Vec::new());
        }
        self.spare.append(&mut self.shares);
        self.alone.iter_mut().for_each(|share| share.blocks = 0..layout.blocks());
        self.shape = None;
        let (missing, at_once) = (count.saturating_sub(self.spare.len()), at_once(count));
        let workspaces = self.workspaces.missing(at_once) as u128 * Workspace::<T>::bytes(shape);
        memory::check("the workspace of a pass", missing as u128 * sums + workspaces)?;
        self.workspaces.reserve(at_once);
        self.spare.extend((0..missing).map(|_| Share::new(0..0, shape, pairs)));
        self.shares = self.spare.split_off(self.spare.len() - count);
        let blocks = layout.blocks();
        for (i, share) in self.shares.iter_mut().enumerate() {
            share.blocks = i * blocks / count..(i + 1) * blocks / count;
            share.sums.clear();
        }
        self.rows = layout.n;
        self.shape = Some(shape);
        Ok(())
    }

    /// Number of shares. It depends only on the shape and the thread count, since it determines the order of additions.
    fn count(&self, layout: &Layout<T>, shape: Shape, sums: u128) -> usize {
        if shape.work(layout.n) < SMALL_PASS {
            return 1;
        }
        let threads = self.pool.current_num_threads();
        let each = if sums > LARGE_SUMS { 1 } else { SHARES_PER_THREAD };
        (threads * each).min(layout.blocks())
    }

    /// Runs `work` on every share; on all threads if there is more than one share.
    fn for_each(&mut self, work: impl Fn(&mut Share, &mut Workspace<T>) + Send + Sync) {
        let run = |share: &mut Share| self.workspaces.lend(|workspace| work(share, workspace));
        match self.shares.as_mut_slice() {
            [only] => run(only),
            all => self.pool.install(|| all.par_iter_mut().for_each(run)),
        }
    }

    /// Adds up the shares in order, and moves the moments from `points` (the centres as the kernels used them: relative
    /// to the shift and rounded to `T`) to `centres`.
    pub(crate) fn statistics(
        &mut self,
        layout: &Layout<T>,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        points: &[T],
    ) -> Statistics {
        collect(&mut self.shares, layout, kind, centres, points)
    }
}

/// [`Passes::statistics`] for the given shares.
fn collect<T: Real>(
    shares: &mut [Share],
    layout: &Layout<T>,
    kind: CovarianceType,
    centres: ArrayView2<'_, f64>,
    points: &[T],
) -> Statistics {
    let (first, others) = shares.split_first_mut().expect("at least one share");
    for share in others {
        first.sums.add(&share.sums);
    }
    let sums = &mut first.sums;
    if !sums.pairs.is_empty() {
        moments::finish_tied(points, layout.d, &sums.pairs, &mut sums.second);
    }
    let mut out = Statistics::zero(kind, centres.to_owned());
    out.weight.copy_from_slice(&sums.weight);
    out.first = Array2::from_shape_vec(centres.dim(), sums.first.clone()).expect("k*d sums");
    out.second.copy_from_slice(&sums.second);
    out.log_likelihood = sums.log_likelihood;
    out.total_weight = layout.total_weight;
    out.n_rows = layout.n as u64;
    for (c, (centre, point)) in centres.outer_iter().zip(points.chunks_exact(layout.d)).enumerate() {
        let rounding = centre.iter().zip(&layout.shift).zip(point).map(|((m, s), p)| p.to_f64() - (m - s));
        let delta: Vec<f64> = rounding.collect();
        if delta.iter().any(|v| *v != 0.0) {
            translate(&mut out, c, &delta);
        }
    }
    out
}

/// Moves the moments of component `c` to the centre less `delta`: `z` becomes `z + delta`.
fn translate(statistics: &mut Statistics, c: usize, delta: &[f64]) {
    let d = delta.len();
    let weight = statistics.weight[c];
    let first = statistics.first.row(c).to_vec();
    let moved = |i: usize, j: usize| first[i] * delta[j] + delta[i] * first[j] + weight * delta[i] * delta[j];
    let second = &mut statistics.second;
    for i in 0..d {
        match statistics.kind {
            CovarianceType::Full => (0..=i).for_each(|j| second[c * packed_len(d) + packed_index(i, j)] += moved(i, j)),
            CovarianceType::Tied => (0..=i).for_each(|j| second[packed_index(i, j)] += moved(i, j)),
            CovarianceType::Diag => second[c * d + i] += moved(i, i),
            CovarianceType::Spherical => second[c] += moved(i, i),
        }
        statistics.first[[c, i]] += weight * delta[i];
    }
}

/// Rows of a block, rounded up to the kernels' step; rows past the data have weight 0.
#[inline(always)]
pub(crate) fn padded<T: Real, W: Words<T>>(rows: usize) -> usize {
    rows.next_multiple_of(WIDE * W::LANES)
}
