//! Splits of a cluster and merges of two, by Metropolis-Hastings.
//!
//! A move takes two rows, `i` at random and `j` at random either from the same cluster, with probability `s`, or from the
//! others. Rows of one cluster propose to split it, with `i` in the left part and `j` in the right; rows of two propose to
//! merge them. The split is drawn from the sub-clusters of a [`Launch`] of the rows of both. With `n_l` and `n_r` the sizes
//! of the parts, `m` marginal likelihoods and `q` the probability of the split given the launch state, a split is accepted
//! with probability `min(1, a)` and a merge with `min(1, 1/a)`,
//!
//! `a = α Γ(n_l) Γ(n_r) / Γ(n_l + n_r) · m_l m_r / m · (1 − s)/s · (n_l + n_r − 1) / (n − n_l) / q`.
//!
//! The last factors but `q` are the ratio of the probabilities to choose `j` after and before.
//!
//! Source: Jain and Neal 2004, A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture model,
//! section 4.2, with all rows drawn at once from sub-clusters, as in Chang and Fisher 2013. Their sub-clusters persist
//! between moves. The density of persistent sub-clusters has a normalising constant that depends on the rows of the
//! cluster and is unknown, so that the ratios are exact only without it; here sub-clusters are made anew for each move.

use gmm_model::Draws;
use rayon::prelude::*;

use super::chain::{Chain, Cluster};
use super::launch::{Launch, added, by_task};
use super::moments::{Moments, Sums};
use crate::Error;

/// The share of splits among proposals, `s`. Most merges are rejected at the cost of one determinant, splits at that of a
/// launch, so there are more merges.
const SPLITS: f64 = 0.2;

/// A proposal: a row, what is proposed, and the logarithm of a uniform that decides.
struct Move {
    i: usize,
    splits: bool,
    ln_uniform: f64,
    /// The random numbers of the partner, and of the rows of a split.
    draws: Draws,
}

/// A move that was accepted: the new clusters, and the rows whose label changes.
enum Accepted {
    /// `rows` leave cluster `of`.
    Split { of: usize, parts: Box<[Cluster; 2]>, rows: Vec<u32> },
    /// `rows` of the second cluster join the first.
    Merge { clusters: [usize; 2], whole: Box<Cluster>, rows: Vec<u32> },
}

impl Chain<'_> {
    /// Makes the moves of a sweep.
    ///
    /// Most moves are rejected, and do not change what the next one sees. So several are judged at the same time, and
    /// those after the first accepted one again. The result is that of one after another. Their number doubles until one
    /// is accepted: soon all moves of a sweep go to the threads at once.
    ///
    /// # Errors
    /// [`gmm_model::ModelError`] if a covariance is singular to rounding.
    pub(super) fn split_and_merge(&mut self) -> Result<(), Error> {
        let n = self.rows.n;
        if n < 2 {
            return Ok(());
        }
        let mut draws = self.draws("dp moves");
        let key = draws.bits();
        let moves: Vec<Move> = (0..self.options.moves)
            .map(|attempt| Move {
                i: draws.index(n),
                splits: draws.uniform() < SPLITS,
                ln_uniform: libm::log(1.0 - draws.uniform()),
                draws: Draws::for_purpose("dp move", key, attempt as u64),
            })
            .collect();
        let (mut next, threads) = (0, rayon::current_num_threads());
        while next < moves.len() {
            let ahead = if threads == 1 { 1 } else { self.ahead.max(threads) };
            let batch = &moves[next..moves.len().min(next + ahead)];
            let judged: Vec<Option<Accepted>> = if ahead == 1 {
                batch.iter().map(|m| self.judge(m)).collect::<Result<_, _>>()?
            } else {
                batch.par_iter().map(|m| self.judge(m)).collect::<Result<_, _>>()?
            };
            let first = judged.iter().position(Option::is_some);
            let seen = first.map_or(batch.len(), |first| first + 1);
            batch[..seen].iter().for_each(|m| self.counts.of(m.splits)[0] += 1);
            if let Some(accepted) = judged.into_iter().flatten().next() {
                self.counts.of(batch[seen - 1].splits)[1] += 1;
                self.apply(accepted);
                self.ahead = 0;
            } else {
                self.ahead = ahead.saturating_mul(2);
            }
            next += seen;
        }
        Ok(())
    }

    /// What a move does, if it is accepted.
    fn judge(&self, m: &Move) -> Result<Option<Accepted>, Error> {
        if m.splits { self.split(m) } else { self.merge(m) }
    }

    fn apply(&mut self, accepted: Accepted) {
        match accepted {
            Accepted::Split { of, parts, rows } => {
                let new = self.clusters.len() as u32;
                rows.iter().for_each(|&row| self.labels[row as usize] = new);
                let [left, right] = *parts;
                self.clusters[of] = left;
                self.clusters.push(right);
            }
            Accepted::Merge { clusters: [a, b], whole, rows } => {
                rows.iter().for_each(|&row| self.labels[row as usize] = a as u32);
                self.clusters[a] = *whole;
                self.remove(b);
            }
        }
    }

    fn split(&self, m: &Move) -> Result<Option<Accepted>, Error> {
        let (i, mut draws) = (m.i, m.draws.clone());
        let own = self.labels[i];
        let whole = &self.clusters[own as usize];
        if whole.rows.n < 2.0 {
            return Ok(None);
        }
        let members = self.members(|label| label == own);
        let at = place(&members, i);
        // Another row of the cluster.
        let other = draws.index(members.len() - 1);
        let seeds = [at, other + usize::from(other >= at)];
        let launch = self.launch(&members, &whole.rows, seeds)?;
        let (right, log_proposal) = launch.draw(&Draws::for_purpose("dp split", draws.bits(), 0));
        let parts = self.parts(&members, &right, &launch);
        // A ratio that is NaN is no reason to accept, here and below.
        let is_accepted = m.ln_uniform < self.log_ratio([&parts[0], &parts[1]], whole) - log_proposal;
        if !is_accepted {
            return Ok(None);
        }
        let rows = members.iter().zip(right).filter(|(_, right)| *right).map(|(row, _)| *row).collect();
        Ok(Some(Accepted::Split { of: own as usize, parts: Box::new(parts), rows }))
    }

    fn merge(&self, m: &Move) -> Result<Option<Accepted>, Error> {
        let Some(j) = self.partner(m.i, &mut m.draws.clone()) else { return Ok(None) };
        let [a, b] = [self.labels[m.i], self.labels[j]];
        let parts = [&self.clusters[a as usize], &self.clusters[b as usize]];
        let whole = self.cluster(parts[0].rows.merged(&parts[1].rows));
        // The probability of the split is at most 1: most merges need no launch. The slack is far above rounding.
        let bound = -self.log_ratio(parts, &whole);
        let may_be_accepted = m.ln_uniform < bound + 1e-6 * (1.0 + bound.abs());
        if !may_be_accepted {
            return Ok(None);
        }
        let members = self.members(|label| label == a || label == b);
        let launch = self.launch(&members, &whole.rows, [m.i, j].map(|row| place(&members, row)))?;
        let right: Vec<bool> = members.iter().map(|&row| self.labels[row as usize] == b).collect();
        let is_accepted = m.ln_uniform < bound + launch.log_probability(&right);
        if !is_accepted {
            return Ok(None);
        }
        let rows = members.iter().zip(right).filter(|(_, right)| *right).map(|(row, _)| *row).collect();
        Ok(Some(Accepted::Merge { clusters: [a as usize, b as usize], whole: Box::new(whole), rows }))
    }

    /// A row at random of the other clusters; `None` if there is none.
    fn partner(&self, i: usize, draws: &mut Draws) -> Option<usize> {
        let own = self.labels[i];
        if self.clusters.len() == 1 {
            return None;
        }
        // A few attempts, which are cheap; then a search. Both choose each row with the same probability.
        for _ in 0..8 {
            let j = draws.index(self.rows.n);
            if self.labels[j] != own {
                return Some(j);
            }
        }
        let others = self.members(|label| label != own);
        Some(others[draws.index(others.len())] as usize)
    }

    /// `ln a` without `q`.
    fn log_ratio(&self, [left, right]: [&Cluster; 2], whole: &Cluster) -> f64 {
        let n = self.rows.n as f64;
        let prior = libm::log(self.concentration) + libm::lgamma(left.rows.n) + libm::lgamma(right.rows.n)
            - libm::lgamma(whole.rows.n);
        let likelihood = left.log_marginal + right.log_marginal - whole.log_marginal;
        let choice = (1.0 - SPLITS) / SPLITS * (whole.rows.n - 1.0) / (n - left.rows.n);
        prior + likelihood + libm::log(choice)
    }

    /// The rows of some clusters, ascending.
    fn members(&self, fits: impl Fn(u32) -> bool) -> Vec<u32> {
        // Each row is written, and the next one over it unless it fits: a branch would often be mispredicted.
        let (mut out, mut some) = (Vec::new(), [0; 256]);
        for (labels, first) in self.labels.chunks(some.len()).zip((0..).step_by(some.len())) {
            let mut count = 0;
            for (row, &label) in (first..).zip(labels) {
                some[count] = row;
                count += usize::from(fits(label));
            }
            out.extend_from_slice(&some[..count]);
        }
        out
    }

    fn launch(&self, members: &[u32], whole: &Moments, seeds: [usize; 2]) -> Result<Launch, Error> {
        Ok(Launch::new(self.rows, (members, whole), seeds, (self.prior, self.concentration))?)
    }

    /// The two parts of a split.
    fn parts(&self, members: &[u32], right: &[bool], launch: &Launch) -> [Cluster; 2] {
        let (kind, d) = (self.prior.kind(), self.rows.d);
        let each = by_task(members.len(), |range| {
            let (mut sums, mut z) = ([Sums::zero(kind, d), Sums::zero(kind, d)], vec![0.0; d]);
            for (&row, &right) in members[range.clone()].iter().zip(&right[range]) {
                let side = usize::from(right);
                let pair = self.rows.row(row as usize).iter().zip(&launch.means[side]);
                z.iter_mut().zip(pair).for_each(|(z, (x, m))| *z = x - m);
                sums[side].add_row(&z);
            }
            sums
        });
        let total = added(each);
        [0, 1].map(|side| self.cluster(Moments::about(&launch.means[side], &total[side])))
    }
}

/// The position of a row among ascending rows that contain it.
fn place(members: &[u32], row: usize) -> usize {
    members.binary_search(&(row as u32)).expect("a member")
}
