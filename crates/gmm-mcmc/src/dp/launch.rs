//! The launch state of a split or merge: two sub-clusters of a set of rows, started from two of its rows.
//!
//! A few iterations of EM for two components, in the rows of the set only, all rows at once. The result depends on the
//! set and on the two rows, not on how the set is split at present. So a split and the merge that undoes it have the
//! same launch state, and the probability of the split given it is a product over the rows.

use std::ops::Range;

use gmm_host::exp_in_place;
use gmm_model::{Draws, ModelError};
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

/// Calls `work(first, values)` for parts of [`TASK`] values, on the threads of the current pool.
pub(super) fn fill_by_task<T: Send>(values: &mut [T], work: impl Fn(usize, &mut [T]) + Send + Sync) {
    if values.len() <= TASK {
        return work(0, values);
    }
    values.par_chunks_mut(TASK).enumerate().for_each(|(i, values)| work(i * TASK, values));
}

/// The sums of all tasks, in their order.
pub(super) fn added<const N: usize>(each: Vec<[Sums; N]>) -> [Sums; N] {
    let mut each = each.into_iter();
    let mut total = each.next().expect("at least one row");
    each.for_each(|sums| total.iter_mut().zip(&sums).for_each(|(a, b)| a.add(b)));
    total
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
        let each = by_task(n, |rows| set.log_odds(&pair, shift, rows, |_, _, _, _| {}));
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
            let zero = || Sums::zero(prior.kind(), self.d);
            let mut sums = [zero(), zero()];
            let mut r = [[0.0; BLOCK]; 2];
            let mut scratch = [0.0; BLOCK];
            self.log_odds(pair, shift, rows, |block, log_odds, lesser, z| {
                let m = block.len();
                for (i, (odds, lesser)) in log_odds.iter().zip(lesser).enumerate() {
                    let lesser = if hard { 0.0 } else { *lesser };
                    let greater = 1.0 / (1.0 + lesser);
                    let (left, right) = if *odds > 0.0 { (lesser, 1.0) } else { (1.0, lesser) };
                    (r[0][i], r[1][i]) = (left * greater, right * greater);
                }
                for (side, seed) in seeds.into_iter().enumerate().filter(|(_, seed)| block.contains(seed)) {
                    r[side][seed - block.start] = 1.0;
                    r[1 - side][seed - block.start] = 0.0;
                }
                (0..2).for_each(|side| sums[side].add_block(z[side], &r[side][..m], &mut scratch[..m]));
            });
            sums
        });
        let [left, right] = added(each);
        [Moments::about(&pair[0].mean, &left), Moments::about(&pair[1].mean, &right)]
    }

    /// The differences of a block of rows from a point, in columns.
    fn differences(&self, point: &[f64], block: Range<usize>, z: &mut [f64]) {
        let m = block.len();
        for (j, p) in point.iter().enumerate() {
            let column = &self.columns[j * self.n..][block.clone()];
            z[j * m..][..m].iter_mut().zip(column).for_each(|(z, x)| *z = x - p);
        }
    }

    /// The log odds of the second of two normals, whose log weight is larger by `shift`, of a range of rows, and
    /// `exp(−|log odds|)`. Calls `see(block, log_odds, lesser, z)` for each block of rows, with their differences from
    /// both means in columns.
    fn log_odds(
        &self,
        pair: &[Normal; 2],
        shift: f64,
        rows: Range<usize>,
        mut see: impl FnMut(Range<usize>, &[f64], &[f64], [&[f64]; 2]),
    ) -> (Vec<f64>, Vec<f64>) {
        let (mut out, mut lesser) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
        let room = || vec![0.0; self.d * BLOCK];
        let (mut z, mut y) = ([room(), room()], room());
        let constant = shift + pair[1].log_normalizer - pair[0].log_normalizer;
        let blocks = rows.clone().step_by(BLOCK).map(|first| first..rows.end.min(first + BLOCK));
        for (block, (out, lesser)) in blocks.zip(out.chunks_mut(BLOCK).zip(lesser.chunks_mut(BLOCK))) {
            let m = block.len();
            let mut squares = [[0.0; BLOCK]; 2];
            for side in 0..2 {
                self.differences(&pair[side].mean, block.clone(), &mut z[side]);
                pair[side].factor.squares(&z[side][..self.d * m], &mut y, &mut squares[side][..m]);
            }
            for (i, (odds, lesser)) in out.iter_mut().zip(&mut *lesser).enumerate() {
                *odds = constant + 0.5 * (squares[0][i] - squares[1][i]);
                *lesser = -odds.abs();
            }
            exp_in_place(lesser);
            see(block, out, lesser, [&z[0][..self.d * m], &z[1][..self.d * m]]);
        }
        (out, lesser)
    }
}

impl Factor {
    /// Adds to `squares`, `(m,)`, the squared Mahalanobis distances of differences `z`, `(d, m)` in columns.
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
