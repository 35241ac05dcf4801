//! One chain: a partition of the rows into clusters, and the sweeps that change it.

use gmm_host::{EvaluateOptions, Resident};
use gmm_model::{CovarianceType, Draws, Mixture, packed_index};

use super::conjugate::{Conjugate, Predictive};
use super::firsts::Firsts;
use super::launch::{added, by_task, fill_by_task};
use super::moments::{Moments, Sums};
use super::run::Record;
use super::{Concentration, DpOptions};
use crate::Error;

/// A set of rows that share parameters.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) rows: Moments,
    /// [`Conjugate::log_marginal`] of the rows.
    pub(super) log_marginal: f64,
}

/// The rows on the host, row-major `(n, d)`.
pub(super) struct Rows {
    pub(super) x: Vec<f64>,
    pub(super) n: usize,
    pub(super) d: usize,
}

impl Rows {
    pub(super) fn row(&self, i: usize) -> &[f64] {
        &self.x[i * self.d..][..self.d]
    }

    /// The moments of all rows.
    pub(super) fn moments(&self, kind: CovarianceType) -> Moments {
        let labels = vec![0; self.n];
        let about = |centre: Vec<f64>| {
            let centres = [centre];
            Moments::about(&centres[0], &self.sums(kind, &centres, &labels)[0])
        };
        // Sums about 0 may cancel; the second time they are about the mean.
        about(about(vec![0.0; self.d]).mean)
    }

    /// The sums of each cluster about given centres.
    fn sums(&self, kind: CovarianceType, centres: &[Vec<f64>], labels: &[u32]) -> Vec<Sums> {
        added(by_task(self.n, |rows| self.sums_from(rows.start, kind, centres, &labels[rows])))
    }

    /// As [`sums`](Self::sums), of the rows from `start` on that have these labels.
    fn sums_from(&self, start: usize, kind: CovarianceType, centres: &[Vec<f64>], labels: &[u32]) -> Vec<Sums> {
        let (mut sums, mut z) = (vec![Sums::zero(kind, self.d); centres.len()], vec![0.0; self.d]);
        for (i, &label) in (start..).zip(labels) {
            let c = label as usize;
            z.iter_mut().zip(self.row(i)).zip(&centres[c]).for_each(|((z, x), m)| *z = x - m);
            sums[c].add_row(&z);
        }
        sums
    }
}

/// Proposals and acceptances since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) splits: [u64; 2],
    pub(super) merges: [u64; 2],
}

impl Counts {
    pub(super) const fn of(&mut self, splits: bool) -> &mut [u64; 2] {
        if splits { &mut self.splits } else { &mut self.merges }
    }
}

pub(super) struct Chain<'a> {
    pub(super) rows: &'a Rows,
    pub(super) prior: &'a Conjugate,
    pub(super) options: &'a DpOptions,
    pub(super) chain: u64,
    pub(super) step: u64,
    pub(super) concentration: f64,
    /// The cluster of each row, `(n,)`.
    pub(super) labels: Vec<u32>,
    pub(super) clusters: Vec<Cluster>,
    pub(super) counts: Counts,
    /// How many moves to judge at the same time.
    pub(super) ahead: usize,
    responsibilities: Vec<f64>,
    keys: Vec<u64>,
}

impl<'a> Chain<'a> {
    /// A chain that has made no sweep; `all` are the moments of all rows.
    pub(super) fn new(rows: &'a Rows, all: &Moments, prior: &'a Conjugate, options: &'a DpOptions, chain: u64) -> Self {
        let labels = vec![0; rows.n];
        let mut out = Self::with(rows, prior, options, (chain, 0), options.concentration.start(), labels);
        out.clusters = vec![out.cluster(all.clone())];
        let k = options.start.min(rows.n);
        if k > 1 {
            out.start(k, all);
        }
        out
    }

    /// A chain that goes on.
    pub(super) fn restored(
        rows: &'a Rows,
        prior: &'a Conjugate,
        options: &'a DpOptions,
        chain: u64,
        from: &Record,
    ) -> Self {
        assert_eq!(from.labels.len(), rows.n, "the run's number of rows");
        let mut out = Self::with(rows, prior, options, (chain, from.step), from.alpha, from.labels.clone());
        out.clusters = from.moments.iter().map(|m| out.cluster(m.clone())).collect();
        out.counts = from.counts;
        out
    }

    fn with(
        rows: &'a Rows,
        prior: &'a Conjugate,
        options: &'a DpOptions,
        (chain, step): (u64, u64),
        concentration: f64,
        labels: Vec<u32>,
    ) -> Self {
        Self {
            rows,
            prior,
            options,
            chain,
            step,
            concentration,
            labels,
            clusters: Vec::new(),
            counts: Counts::default(),
            ahead: 0,
            responsibilities: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Starts from at most `k` clusters: each row joins the nearest of `k` rows, the first among equals.
    fn start(&mut self, k: usize, all: &Moments) {
        let (rows, kind, d) = (self.rows, self.prior.kind(), self.rows.d);
        let variance = |j: usize| match kind {
            CovarianceType::Full | CovarianceType::Tied => all.scatter[packed_index(j, j)],
            CovarianceType::Diag => all.scatter[j],
            CovarianceType::Spherical => all.scatter[0],
        };
        let weight: Vec<f64> = (0..d).map(|j| 1.0 / variance(j)).map(|w| if w.is_finite() { w } else { 0.0 }).collect();
        let centres: Vec<Vec<f64>> =
            self.draws("dp start").distinct_indices(rows.n, k).into_iter().map(|i| rows.row(i).to_vec()).collect();
        let mut labels = std::mem::take(&mut self.labels);
        fill_by_task(&mut labels, |first, labels| {
            for (i, label) in (first..).zip(labels) {
                let x = rows.row(i);
                let far = |centre: &Vec<f64>| {
                    x.iter().zip(centre).zip(&weight).map(|((x, c), w)| w * (x - c) * (x - c)).sum::<f64>()
                };
                let each = centres.iter().map(far).enumerate();
                *label = each.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(c, _)| c as u32);
            }
        });
        self.labels = labels;
        self.recount(&rows.sums(kind, &centres, &self.labels), &centres);
        // Equal rows leave clusters without rows.
        for c in (0..self.clusters.len()).rev().filter(|&c| self.clusters[c].rows.n == 0.0).collect::<Vec<_>>() {
            self.remove(c);
        }
    }

    /// The draws of this step for a purpose.
    pub(super) fn draws(&self, purpose: &str) -> Draws {
        Draws::for_purpose(purpose, self.options.seed, (self.chain << 40) | self.step)
    }

    pub(super) fn cluster(&self, rows: Moments) -> Cluster {
        let log_marginal = self.prior.log_marginal(&rows);
        Cluster { rows, log_marginal }
    }

    /// One sweep: labels given drawn parameters, splits and merges, some rows one by one, and the concentration.
    ///
    /// # Errors
    /// Any error of the engine; [`gmm_model::ModelError`] if a covariance is singular to rounding.
    pub(super) fn sweep(&mut self, resident: &mut dyn Resident) -> Result<(), Error> {
        self.draw_labels(resident)?;
        self.split_and_merge()?;
        self.draw_rows();
        if let Concentration::Gamma { shape, rate } = self.options.concentration {
            let mut draws = self.draws("dp concentration");
            self.concentration =
                escobar_west((shape, rate), self.concentration, (self.clusters.len(), self.rows.n), &mut draws);
        }
        self.step += 1;
        Ok(())
    }

    /// Draws the labels of all rows at once, given weights and parameters drawn from their posterior.
    ///
    /// The number of clusters is conditioned on: none may lose all rows, and none can appear. Rejecting a sweep that
    /// empties one would be exact but slow. Instead the rows get a random order, and the first row of each cluster in
    /// that order stays; another row may join any cluster whose first row precedes it. Given the order and the first
    /// rows, the labels are then independent, with their full conditional distributions.
    fn draw_labels(&mut self, resident: &mut dyn Resident) -> Result<(), Error> {
        let mixture = self.draw_mixture()?;
        let (n, k) = (self.rows.n, self.clusters.len());
        let mut r = std::mem::take(&mut self.responsibilities);
        if n * k > r.capacity() {
            gmm_host::memory::check("the responsibilities", 8 * n as u128 * k as u128)?;
        }
        r.resize(n * k, 0.0);
        let want = EvaluateOptions { responsibilities: Some((&mut r).into()), ..EvaluateOptions::default() };
        let order = self.draws("dp order");
        let mut keys = std::mem::take(&mut self.keys);
        keys.resize(n, 0);
        let firsts = || {
            let each = fill_by_task(&mut keys, |first, keys| {
                let mut order = order.clone();
                order.seek(first as u64);
                keys.iter_mut().for_each(|key| *key = order.bits());
                Firsts::new(first, keys, &self.labels[first..][..keys.len()], k)
            });
            each.into_iter().reduce(Firsts::or).expect("at least one row")
        };
        // The engine has its own threads.
        let (evaluated, firsts) = rayon::join(|| resident.evaluate(&mixture, want), firsts);
        evaluated?;
        let uniforms = self.draws("dp labels");
        let mut labels = std::mem::take(&mut self.labels);
        let centres: Vec<Vec<f64>> = mixture.means().outer_iter().map(|m| m.to_vec()).collect();
        let sums = fill_by_task(&mut labels, |first, labels| {
            let mut uniforms = uniforms.clone();
            uniforms.seek(first as u64);
            for (i, label) in (first..).zip(&mut *labels) {
                *label = firsts.draw(&r[i * k..][..k], (keys[i], i), *label, uniforms.uniform());
            }
            self.rows.sums_from(first, self.prior.kind(), &centres, labels)
        });
        self.recount(&added(sums), &centres);
        (self.labels, self.keys, self.responsibilities) = (labels, keys, r);
        Ok(())
    }

    /// Weights and parameters of the clusters, given their rows. The weights are `Dirichlet(n_1, .., n_K, α)`; that of
    /// new clusters, the last, does not matter to rows that join existing ones.
    fn draw_mixture(&self) -> Result<Mixture, Error> {
        let mut draws = self.draws("dp parameters");
        let logs: Vec<f64> = self.clusters.iter().map(|c| draws.ln_gamma(c.rows.n)).collect();
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|v| libm::exp(v - top)).collect();
        let sum: f64 = weights.iter().sum();
        let weights = weights.iter().map(|w| w / sum).collect();
        Ok(self.prior.draw(self.clusters.iter().map(|c| &c.rows), weights, &mut draws)?)
    }

    fn recount(&mut self, sums: &[Sums], centres: &[Vec<f64>]) {
        let of = |(sums, centre): (&Sums, &Vec<f64>)| self.cluster(Moments::about(centre, sums));
        self.clusters = sums.iter().zip(centres).map(of).collect();
    }

    /// Gibbs updates of a few rows, with all parameters integrated out. A row may leave all clusters for a new one, and
    /// clusters of one row may vanish.
    ///
    /// Source: Neal 2000, algorithm 3.
    fn draw_rows(&mut self) {
        let mut draws = self.draws("dp rows");
        let (rows, prior) = (self.rows, self.prior);
        let count = self.options.single_rows.min(rows.n);
        let empty = Moments::empty(prior.kind(), rows.d);
        let new = prior.predictive(&empty);
        let mut each: Vec<Predictive> = self.clusters.iter().map(|c| prior.predictive(&c.rows)).collect();
        let (mut logs, mut y) = (Vec::new(), vec![0.0; rows.d]);
        for i in draws.distinct_indices(rows.n, count) {
            let (x, old) = (rows.row(i), self.labels[i] as usize);
            let left = self.clusters[old].rows.without(x);
            let without = prior.predictive(&left);
            logs.clear();
            logs.extend(self.clusters.iter().zip(&each).enumerate().map(|(c, (cluster, density))| {
                let (n, density) = if c == old { (left.n, &without) } else { (cluster.rows.n, density) };
                // Of a cluster without other rows −∞.
                libm::log(n) + density.log_density(x, &mut y)
            }));
            logs.push(libm::log(self.concentration) + new.log_density(x, &mut y));
            let chosen = pick(&logs, draws.uniform());
            // A row that leaves its cluster of one row for a new one stays.
            if chosen == old || (left.n == 0.0 && chosen == self.clusters.len()) {
                continue;
            }
            let joined = self.clusters.get(chosen).map_or(&empty, |c| &c.rows).with(x);
            let with = prior.predictive(&joined);
            if chosen == self.clusters.len() {
                self.clusters.push(self.cluster(joined));
                each.push(with);
            } else {
                (self.clusters[chosen], each[chosen]) = (self.cluster(joined), with);
            }
            self.labels[i] = chosen as u32;
            (self.clusters[old], each[old]) = (self.cluster(left), without);
            if self.clusters[old].rows.n == 0.0 {
                self.remove(old);
                each.swap_remove(old);
            }
        }
    }

    /// Removes a cluster; the last takes its label.
    pub(super) fn remove(&mut self, c: usize) {
        self.clusters.swap_remove(c);
        let last = self.clusters.len() as u32;
        self.labels.iter_mut().filter(|label| **label == last).for_each(|label| *label = c as u32);
    }

    /// The log joint density of partition, rows and, if it is not fixed, concentration.
    pub(super) fn log_joint(&self) -> f64 {
        let (alpha, n) = (self.concentration, self.rows.n as f64);
        let of = |c: &Cluster| libm::log(alpha) + libm::lgamma(c.rows.n) + c.log_marginal;
        let clusters: f64 = self.clusters.iter().map(of).sum();
        clusters + libm::lgamma(alpha) - libm::lgamma(alpha + n) + self.options.concentration.log_density(alpha)
    }
}

/// Index `i` with probability in proportion to `exp(logs[i])`.
fn pick(logs: &[f64], uniform: f64) -> usize {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    let cumulative: Vec<f64> = logs
        .iter()
        .map(|v| {
            sum += libm::exp(v - top);
            sum
        })
        .collect();
    Draws::index_at(&cumulative, uniform)
}

/// A draw of α given `(K, n)` and the previous α, under a Gamma prior of the given shape and rate.
///
/// Source: Escobar and West 1995, section 6.
pub(super) fn escobar_west((shape, rate): (f64, f64), alpha: f64, (k, n): (usize, usize), draws: &mut Draws) -> f64 {
    let (k, n) = (k as f64, n as f64);
    // ln η, η ~ Beta(α + 1, n).
    let (a, b) = (draws.ln_gamma(alpha + 1.0), draws.ln_gamma(n));
    let ln_eta = -libm::log1p(libm::exp(b - a));
    let rate = rate - ln_eta;
    let odds = (shape + k - 1.0) / (n * rate);
    let more = draws.uniform() * (1.0 + odds) < odds;
    draws.gamma(shape + k - f64::from(u8::from(!more))) / rate
}
