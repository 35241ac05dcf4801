//! Splits of a cluster and merges of two, by Metropolis-Hastings.
//!
//! A move takes two rows, `i` at random and `j` at random either from the same cluster or from the others. Rows of one
//! cluster propose to split it, with `i` in the left part and `j` in the right; rows of two propose to merge them. The
//! split is drawn from the sub-clusters of a [`Launch`] of the rows of both. With `n_l` and `n_r` the sizes of the parts,
//! `m` marginal likelihoods and `q` the probability of the split given the launch state, a split is accepted with
//! probability `min(1, a)` and a merge with `min(1, 1/a)`,
//!
//! `a = α Γ(n_l) Γ(n_r) / Γ(n_l + n_r) · m_l m_r / m · (n_l + n_r − 1) / (n − n_l) / q`.
//!
//! The third factor is the ratio of the probabilities to choose `j` after and before.
//!
//! Source: Jain and Neal 2004, A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture model,
//! section 4.2, with all rows drawn at once from sub-clusters, as in Chang and Fisher 2013. Their sub-clusters persist
//! between moves. The density of persistent sub-clusters has a normalising constant that depends on the rows of the
//! cluster and is unknown, so that the ratios are exact only without it; here sub-clusters are made anew for each move.

use gmm_model::Draws;

use super::chain::{Chain, Cluster};
use super::launch::{Launch, added, by_task};
use super::moments::{Moments, Sums};
use crate::Error;

impl Chain<'_> {
    /// Makes the moves of a sweep.
    ///
    /// # Errors
    /// [`gmm_model::ModelError`] if a covariance is singular to rounding.
    pub(super) fn split_and_merge(&mut self) -> Result<(), Error> {
        let n = self.rows.n;
        if n < 2 {
            return Ok(());
        }
        let mut draws = self.draws("dp moves");
        for attempt in 0..self.options.moves {
            let i = draws.index(n);
            let splits = draws.uniform() < 0.5;
            let (at, ln_uniform) = (draws.uniform(), libm::log(1.0 - draws.uniform()));
            let Some(j) = self.partner(i, splits, at) else { continue };
            if splits {
                // A stream per move, whose draw r is that of row r of the cluster.
                let mut of_rows = self.draws("dp split");
                of_rows.seek(0);
                let of_rows = Draws::for_purpose("dp split rows", of_rows.bits(), attempt as u64);
                self.split([i, j], ln_uniform, &of_rows)?;
            } else {
                self.merge([i, j], ln_uniform)?;
            }
        }
        Ok(())
    }

    /// A row at random other than `i`, of its cluster or of all others; `None` if there is none.
    fn partner(&self, i: usize, same: bool, at: f64) -> Option<usize> {
        let own = self.labels[i];
        let size = self.clusters[own as usize].rows.n as usize;
        let count = if same { size - 1 } else { self.rows.n - size };
        // The index is below the count, since `at` is below 1 by more than rounding.
        let nth = ((at * count as f64) as usize).min(count.checked_sub(1)?);
        let fits = |&(row, &label): &(usize, &u32)| row != i && (label == own) == same;
        self.labels.iter().enumerate().filter(fits).nth(nth).map(|(row, _)| row)
    }

    fn split(&mut self, [i, j]: [usize; 2], ln_uniform: f64, draws: &Draws) -> Result<(), Error> {
        self.counts.splits[0] += 1;
        let own = self.labels[i];
        let members = self.members(|label| label == own);
        let whole = &self.clusters[own as usize];
        let launch = self.launch(&members, [i, j])?;
        let (right, log_proposal) = launch.draw(draws);
        let parts = self.parts(&members, &right, &launch);
        if ln_uniform >= self.log_ratio(&parts, whole) - log_proposal {
            return Ok(());
        }
        self.counts.splits[1] += 1;
        let new = self.clusters.len() as u32;
        members.iter().zip(right).filter(|(_, right)| *right).for_each(|(&row, _)| self.labels[row as usize] = new);
        let [left, right] = parts;
        self.clusters[own as usize] = left;
        self.clusters.push(right);
        Ok(())
    }

    fn merge(&mut self, [i, j]: [usize; 2], ln_uniform: f64) -> Result<(), Error> {
        self.counts.merges[0] += 1;
        let [a, b] = [self.labels[i], self.labels[j]];
        let parts = [&self.clusters[a as usize], &self.clusters[b as usize]];
        let members = self.members(|label| label == a || label == b);
        let whole = self.cluster(parts[0].rows.merged(&parts[1].rows));
        // The probability of the split is at most 1: most merges need no launch. The slack is far above rounding.
        let bound = -self.log_ratio(&[parts[0].clone(), parts[1].clone()], &whole);
        if ln_uniform >= bound + 1e-6 * (1.0 + bound.abs()) {
            return Ok(());
        }
        let launch = self.launch(&members, [i, j])?;
        let right: Vec<bool> = members.iter().map(|&row| self.labels[row as usize] == b).collect();
        let log_proposal = launch.log_probability(&right);
        if ln_uniform >= bound + log_proposal {
            return Ok(());
        }
        self.counts.merges[1] += 1;
        self.clusters[a as usize] = whole;
        members.iter().for_each(|&row| self.labels[row as usize] = a);
        self.remove(b as usize);
        Ok(())
    }

    /// `ln a` without `q`.
    fn log_ratio(&self, [left, right]: &[Cluster; 2], whole: &Cluster) -> f64 {
        let n = self.rows.n as f64;
        let prior = libm::log(self.concentration) + libm::lgamma(left.rows.n) + libm::lgamma(right.rows.n)
            - libm::lgamma(whole.rows.n);
        let likelihood = left.log_marginal + right.log_marginal - whole.log_marginal;
        prior + likelihood + libm::log((whole.rows.n - 1.0) / (n - left.rows.n))
    }

    /// The rows of some clusters, ascending.
    fn members(&self, fits: impl Fn(u32) -> bool) -> Vec<u32> {
        let rows = self.labels.iter().enumerate().filter(|(_, label)| fits(**label));
        rows.map(|(row, _)| row as u32).collect()
    }

    fn launch(&self, members: &[u32], seeds: [usize; 2]) -> Result<Launch, Error> {
        let place = |row: usize| members.binary_search(&(row as u32)).expect("a member");
        let (prior, rows) = (self.prior, self.rows);
        Ok(Launch::new(rows, members, seeds.map(place), (prior, self.concentration))?)
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
