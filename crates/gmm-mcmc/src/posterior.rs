//! The draws of a run as mixture parameters, in the layout of ArviZ.

use gmm_model::{CovarianceType, DrawStat, Mixture, ParameterDraws};

use crate::run::Stat;
use crate::{Error, Relabel, Run, Sampler, Target, diagnostics};

/// Draws of weights, means and covariances, with the statistics of the sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// The sampler that made the draws.
    pub sampler: Sampler,
    /// The parameters: `N` draws from each of `C` chains.
    pub draws: ParameterDraws,
    /// Statistics of each draw, `(C, N)`.
    pub stats: Vec<Stat>,
}

/// Summary statistics of one scalar parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// Name of the parameter: `weights[0]`, `means[0,1]`, `covariances[0,1,1]`, `lp`.
    pub name: String,
    /// Posterior mean.
    pub mean: f64,
    /// Posterior standard deviation.
    pub sd: f64,
    /// 5 % quantile.
    pub q5: f64,
    /// 95 % quantile.
    pub q95: f64,
    /// Effective sample size for the bulk.
    pub ess_bulk: f64,
    /// Effective sample size for the tails.
    pub ess_tail: f64,
    /// Split R-hat; NaN for a constant.
    pub r_hat: f64,
}

impl Posterior {
    /// The draws of a run, relabelled. All chains are truncated to the shortest. Cost: constructs a mixture per draw.
    ///
    /// # Errors
    /// As for [`Relabel::apply`].
    pub fn new(run: &Run, target: &Target, relabel: Relabel) -> Result<Self, Error> {
        let m = target.dim();
        let draws = run.chains.iter().map(|chain| chain.n_draws()).min().unwrap_or(0).min(run.options.draws);
        let shape = (run.chains.len(), draws);
        let empty = ParameterDraws::empty(target.prior().kind(), shape, target.prior().dim());
        let mut all = Self { sampler: run.options.sampler, draws: empty, stats: Vec::new() };
        let each = || run.chains.iter().flat_map(|c| c.points.chunks_exact(m).zip(&c.stats).take(draws));
        let Some(best) = each().reduce(|a, b| if b.1.lp > a.1.lp { b } else { a }) else { return Ok(all) };
        let of = |point: &[f64]| -> Result<Mixture, Error> { Ok(target.map().to_mixture(point)?) };
        let pivot = of(best.0)?;
        for (point, stat) in each() {
            all.draws.push(&relabel.apply(&of(point)?, &pivot)?);
            all.stats.push(*stat);
        }
        Ok(all)
    }

    /// Statistics of the sampler, `(C, N)` each, by their ArviZ names. For random-walk Metropolis only `lp` and
    /// `acceptance_rate`. `energy` is left out if some draw has none (see [`Stat::energy`]).
    pub fn sample_stats(&self) -> Vec<(String, DrawStat)> {
        let values = |f: &dyn Fn(&Stat) -> f64| DrawStat::Values(self.stats.iter().map(f).collect());
        let counts = |f: &dyn Fn(&Stat) -> u32| DrawStat::Counts(self.stats.iter().map(|s| f(s).into()).collect());
        let mut all = vec![("lp", values(&|s| s.lp)), ("acceptance_rate", values(&|s| s.acceptance_rate))];
        if self.sampler == Sampler::Nuts {
            all.push(("diverging", DrawStat::Flags(self.stats.iter().map(|s| s.diverging).collect())));
            all.push(("n_steps", counts(&|s| s.n_steps)));
            all.push(("step_size", values(&|s| s.step_size)));
            all.push(("tree_depth", counts(&|s| s.tree_depth)));
            if let Some(energies) = self.stats.iter().map(|s| s.energy).collect() {
                all.push(("energy", DrawStat::Values(energies)));
            }
        }
        all.into_iter().map(|(name, stat)| (name.to_owned(), stat)).collect()
    }

    /// A row for each scalar parameter and one for `lp`. Of a symmetric matrix only the lower triangle. Cost: a few
    /// sorts of all draws per row.
    pub fn summary(&self) -> Vec<SummaryRow> {
        if self.draws.draws == 0 {
            return Vec::new();
        }
        let lp = ("lp".to_owned(), self.stats.iter().map(|s| s.lp).collect());
        let scalars = self.draws.scalars().filter(|(name, _)| !self.is_upper(name));
        scalars.chain([lp]).map(|(name, values)| self.row(name, &values)).collect()
    }

    fn row(&self, name: String, values: &[f64]) -> SummaryRow {
        let chains: Vec<&[f64]> = values.chunks_exact(self.draws.draws).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let sd = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt();
        let sorted = diagnostics::sorted(values);
        let [q5, q95] = [0.05, 0.95].map(|p| diagnostics::quantile(&sorted, p));
        let (ess_bulk, ess_tail) = (diagnostics::ess_bulk(&chains), diagnostics::ess_tail(&chains));
        SummaryRow { name, mean, sd, q5, q95, ess_bulk, ess_tail, r_hat: diagnostics::r_hat(&chains) }
    }

    /// Whether a name is that of an entry above the diagonal of a symmetric matrix, which duplicates one below it.
    fn is_upper(&self, name: &str) -> bool {
        let Some(indices) = name.strip_prefix("covariances[").and_then(|rest| rest.strip_suffix(']')) else {
            return false;
        };
        let indices: Vec<usize> = indices.split(',').filter_map(|i| i.parse().ok()).collect();
        let matrices = matches!(self.draws.kind, CovarianceType::Full | CovarianceType::Tied);
        matrices && matches!(indices[..], [.., i, j] if i < j)
    }
}
