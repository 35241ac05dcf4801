//! The launch state of a split or merge: two sub-clusters of a set of rows, started from two of its rows.
//!
//! A few iterations of EM for two components, in the rows of the set only, all rows at once. The result depends on the
//! set and on the two rows, not on how the set is split at present. So a split and the merge that undoes it have the
//! same launch state, and the probability of the split given it is a product over the rows.

use std::ops::Range;

use gmm_host::{Loops, exp_in_place, vectorised};
use gmm_model::{CovarianceType, Draws, ModelError};
use rayon::prelude::*;

use super::chain::Rows;
use super::conjugate::{Conjugate, Factor, Normal};
use super::moments::{Moments, Sums};

/// Iterations of EM: more of few rows, for which they take little time. Where clusters overlap, EM needs many, and a better
/// proposal is accepted more often; the target does not depend on it.
const fn iterations(n: usize) -> usize {
    let wanted = 4096 / n;
    if wanted < 4 {
        4
    } else if wanted > MOST {
        MOST
    } else {
        wanted
    }
}

const MOST: usize = 20;
/// Rows per task. Sums are added per task in order, so the bits do not depend on the number of threads.
const TASK: usize = 2048;
/// Rows per block of columns: two blocks of 16 columns fit in the L1 cache.
const BLOCK: usize = 128;

/// Calls `work` for ranges of [`TASK`] rows, on the threads of the current pool; the results are in order.
pub(super) fn by_task<T: Send>(n: usize, work: impl Fn(Range<usize>) -> T + Send + Sync) -> Vec<T> {
    let ranges = (0..n).step_by(TASK).map(|first| first..n.min(first + TASK));
    if n <= TASK {
        return ranges.map(work).collect();
    }
    ranges.collect::<Vec<_>>().into_par_iter().map(work).collect()
}

/// Calls `work(first, values)` for parts of [`TASK`] values, on the threads of the current pool; the results are in
/// order.
pub(super) fn fill_by_task<T: Send, R: Send>(
    values: &mut [T],
    work: impl Fn(usize, &mut [T]) -> R + Send + Sync,
) -> Vec<R> {
    if values.len() <= TASK {
        return vec![work(0, values)];
    }
    values.par_chunks_mut(TASK).enumerate().map(|(i, values)| work(i * TASK, values)).collect()
}

/// The sums of all tasks, in their order.
pub(super) fn added<S: AsMut<[Sums]>>(each: Vec<S>) -> S {
    let add = |mut total: S, mut sums: S| {
        total.as_mut().iter_mut().zip(sums.as_mut()).for_each(|(a, b)| a.add(b));
        total
    };
    each.into_iter().reduce(add).expect("at least one row")
}

/// Two sub-clusters of a set of rows.
pub(super) struct Launch {
    /// Of each row of the set, the log odds of the right sub-cluster. Of the two first rows they do not count.
    log_odds: Vec<f64>,
    /// `exp(−|log odds|)`: the odds of the less probable sub-cluster.
    lesser: Vec<f64>,
    /// Positions in the set of the rows that stay in the left and the right sub-cluster.
    seeds: [usize; 2],
    /// Points in the middle of the sub-clusters, each `(d,)`.
    pub(super) means: [Vec<f64>; 2],
}

/// A set of rows in columns, `(d, n)`.
struct Set {
    columns: Vec<f64>,
    n: usize,
    d: usize,
}

impl Launch {
    /// Of the rows `members`, in ascending order, whose moments are `whole`; `seeds` are positions in `members`.
    ///
    /// Cost: `O(n d²)` per iteration.
    ///
    /// # Errors
    /// [`ModelError`] if a covariance is singular to rounding.
    pub(super) fn new(
        x: &Rows,
        (members, whole): (&[u32], &Moments),
        seeds: [usize; 2],
        (prior, concentration): (&Conjugate, f64),
    ) -> Result<Self, ModelError> {
        let (n, d) = (members.len(), x.d);
        let mut columns = vec![0.0; n * d];
        for (i, &row) in members.iter().enumerate() {
            x.row(row as usize).iter().enumerate().for_each(|(j, v)| columns[j * n + i] = *v);
        }
        let set = Set { columns, n, d };
        // At first each row goes to the nearer seed, in units of the whole set.
        let at = seeds.map(|seed| (0..d).map(|j| set.columns[j * n + seed]).collect::<Vec<f64>>());
        let whole = prior.expected(whole)?;
        let mut pair = at.map(|mean| Normal { mean, ..whole.clone() });
        let mut shift = 0.0;
        for iteration in 0..iterations(n) {
            let moments = set.iterate(&pair, shift, seeds, (iteration == 0, prior));
            // The mean of the weights under a symmetric prior of the same total concentration.
            let weight = |m: &Moments| m.n + 0.5 * concentration;
            shift = libm::log(weight(&moments[1])) - libm::log(weight(&moments[0]));
            pair = [prior.expected(&moments[0])?, prior.expected(&moments[1])?];
        }
        let each = by_task(n, |rows| vectorised(Odds { set: &set, pair: &pair, shift, rows }));
        let (log_odds, lesser): (Vec<_>, Vec<_>) = each.into_iter().unzip();
        Ok(Self { log_odds: log_odds.concat(), lesser: lesser.concat(), seeds, means: pair.map(|normal| normal.mean) })
    }

    /// Draws the sub-cluster of each row (true is the right one), and the log probability of that.
    pub(super) fn draw(&self, draws: &Draws) -> (Vec<bool>, f64) {
        let parts = by_task(self.log_odds.len(), |rows| {
            let mut draws = draws.clone();
            draws.seek(rows.start as u64);
            let right = |i: usize| {
                let odds = if self.log_odds[i] > 0.0 { 1.0 } else { self.lesser[i] };
                draws.uniform() * (1.0 + self.lesser[i]) < odds
            };
            rows.map(right).collect::<Vec<_>>()
        });
        let mut right = parts.concat();
        [false, true].into_iter().zip(self.seeds).for_each(|(side, seed)| right[seed] = side);
        let log = self.log_probability(&right);
        (right, log)
    }

    /// The log probability of drawing these sub-clusters.
    pub(super) fn log_probability(&self, right: &[bool]) -> f64 {
        // A product of 512 factors between 1 and 2 does not overflow, so one logarithm serves for all.
        let of_block = |rows: Range<usize>| {
            let (mut log, mut product) = (0.0, 1.0);
            for i in rows.filter(|i| !self.seeds.contains(i)) {
                product *= 1.0 + self.lesser[i];
                log -= if right[i] == (self.log_odds[i] > 0.0) { 0.0 } else { self.log_odds[i].abs() };
            }
            log - libm::log(product)
        };
        let blocks = |rows: Range<usize>| rows.clone().step_by(512).map(move |i| i..rows.end.min(i + 512));
        by_task(right.len(), |rows| blocks(rows).map(of_block).sum::<f64>()).iter().sum()
    }
}

impl Set {
    /// One iteration of EM: the moments of both sub-clusters, given their parameters.
    fn iterate(
        &self,
        pair: &[Normal; 2],
        shift: f64,
        seeds: [usize; 2],
        (hard, prior): (bool, &Conjugate),
    ) -> [Moments; 2] {
        let each = by_task(self.n, |rows| {
            let odds = Odds { set: self, pair, shift, rows };
            vectorised(PartSums { odds, seeds, hard, kind: prior.kind() })
        });
        let [left, right] = added(each);
        [Moments::about(&pair[0].mean, &left), Moments::about(&pair[1].mean, &right)]
    }

    /// The differences of a block of rows from a point, in columns.
    #[inline(always)]
    fn differences(&self, point: &[f64], block: Range<usize>, z: &mut [f64]) {
        let m = block.len();
        for (j, p) in point.iter().enumerate() {
            let column = &self.columns[j * self.n..][block.clone()];
            z[j * m..][..m].iter_mut().zip(column).for_each(|(z, x)| *z = x - p);
        }
    }
}

/// The log odds of the second of two normals, whose log weight is larger by `shift`, of a range of rows.
struct Odds<'a> {
    set: &'a Set,
    pair: &'a [Normal; 2],
    shift: f64,
    rows: Range<usize>,
}

/// Results and scratch of a block of rows.
struct Block {
    log_odds: [f64; BLOCK],
    /// `exp(−|log odds|)`
    lesser: [f64; BLOCK],
    squares: [[f64; BLOCK]; 2],
    /// Differences from both means, in columns.
    z: [Vec<f64>; 2],
    y: Vec<f64>,
}

impl Block {
    fn new(d: usize) -> Self {
        let room = || vec![0.0; d * BLOCK];
        let zeros = [0.0; BLOCK];
        Self { log_odds: zeros, lesser: zeros, squares: [zeros; 2], z: [room(), room()], y: room() }
    }
}

impl Odds<'_> {
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let end = self.rows.end;
        self.rows.clone().step_by(BLOCK).map(move |first| first..end.min(first + BLOCK))
    }

    #[inline(always)]
    fn of_block(&self, block: Range<usize>, out: &mut Block) {
        let (m, d) = (block.len(), self.set.d);
        for (side, normal) in self.pair.iter().enumerate() {
            let (z, squares) = (&mut out.z[side][..d * m], &mut out.squares[side][..m]);
            self.set.differences(&normal.mean, block.clone(), z);
            squares.fill(0.0);
            normal.factor.squares(z, &mut out.y, squares);
        }
        let constant = self.shift + self.pair[1].log_normalizer - self.pair[0].log_normalizer;
        let (left, right) = (&out.squares[0][..m], &out.squares[1][..m]);
        for (i, (odds, lesser)) in out.log_odds.iter_mut().zip(&mut out.lesser[..m]).enumerate() {
            *odds = constant + 0.5 * (left[i] - right[i]);
            *lesser = -odds.abs();
        }
        exp_in_place(&mut out.lesser[..m]);
    }
}

impl Loops for Odds<'_> {
    /// The log odds, and `exp(−|log odds|)`.
    type Output = (Vec<f64>, Vec<f64>);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let (mut log_odds, mut lesser) = (Vec::with_capacity(self.rows.len()), Vec::with_capacity(self.rows.len()));
        let mut out = Block::new(self.set.d);
        for block in self.blocks() {
            let m = block.len();
            self.of_block(block, &mut out);
            log_odds.extend_from_slice(&out.log_odds[..m]);
            lesser.extend_from_slice(&out.lesser[..m]);
        }
        (log_odds, lesser)
    }
}

/// The sums of both sub-clusters over a range of rows, about the means.
struct PartSums<'a> {
    odds: Odds<'a>,
    /// Rows that belong to the left and the right one.
    seeds: [usize; 2],
    /// Whether each row counts for its more probable sub-cluster only.
    hard: bool,
    kind: CovarianceType,
}

impl Loops for PartSums<'_> {
    type Output = [Sums; 2];

    #[inline(always)]
    fn run(self) -> [Sums; 2] {
        let d = self.odds.set.d;
        let mut sums = [Sums::zero(self.kind, d), Sums::zero(self.kind, d)];
        let (mut r, mut scratch) = ([[0.0; BLOCK]; 2], [0.0; BLOCK]);
        let mut out = Block::new(d);
        for block in self.odds.blocks() {
            let m = block.len();
            self.odds.of_block(block.clone(), &mut out);
            let [left, right] = &mut r;
            let odds = out.log_odds[..m].iter().zip(&out.lesser);
            for ((left, right), (odds, lesser)) in left.iter_mut().zip(right).zip(odds) {
                let lesser = if self.hard { 0.0 } else { *lesser };
                let greater = 1.0 / (1.0 + lesser);
                (*left, *right) = if *odds > 0.0 { (lesser * greater, greater) } else { (greater, lesser * greater) };
            }
            for (side, seed) in self.seeds.into_iter().enumerate().filter(|(_, seed)| block.contains(seed)) {
                r[side][seed - block.start] = 1.0;
                r[1 - side][seed - block.start] = 0.0;
            }
            for side in 0..2 {
                sums[side].add_block(&out.z[side][..d * m], &r[side][..m], &mut scratch[..m]);
            }
        }
        sums
    }
}

impl Factor {
    /// Adds to `squares`, `(m,)`, the squared Mahalanobis distances of differences `z`, `(d, m)` in columns.
    #[inline(always)]
    fn squares(&self, z: &[f64], y: &mut [f64], squares: &mut [f64]) {
        let m = squares.len();
        match self {
            Self::Diag(sd) => {
                for (z, sd) in z.chunks_exact(m).zip(sd) {
                    squares.iter_mut().zip(z).for_each(|(s, z)| *s += (z / sd) * (z / sd));
                }
            }
            Self::Full(factor) => {
                for i in 0..factor.dim() {
                    let (known, rest) = y.split_at_mut(i * m);
                    let at = &mut rest[..m];
                    at.copy_from_slice(&z[i * m..][..m]);
                    for (j, known) in known.chunks_exact(m).enumerate() {
                        let l = factor.at(i, j);
                        at.iter_mut().zip(known).for_each(|(y, known)| *y -= l * known);
                    }
                    let scale = 1.0 / factor.at(i, i);
                    at.iter_mut().zip(&mut *squares).for_each(|(y, s)| {
                        *y *= scale;
                        *s += *y * *y;
                    });
                }
            }
        }
    }
}
