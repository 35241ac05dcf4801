//! What was drawn, as parameters of mixtures, in the layout that ArviZ reads.

use gmm_model::{CovarianceType, Covariances, Mixture};

use crate::run::Stat;
use crate::{Error, Relabel, Run, Sampler, Target, diagnostics};

/// Draws of weights, means and covariances, with what the sampler had to say: arrays with the dimensions (chain, draw)
/// in front of their own, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// Which sampler made them.
    pub sampler: Sampler,
    /// The covariance kind.
    pub kind: CovarianceType,
    /// Chains `C`.
    pub chains: usize,
    /// Draws of each chain, `N`.
    pub draws: usize,
    /// Components.
    pub k: usize,
    /// Dimensions.
    pub d: usize,
    /// `(C, N, k)`.
    pub weights: Vec<f64>,
    /// `(C, N, k, d)`.
    pub means: Vec<f64>,
    /// `(C, N)` and the kind's shape: full `(k, d, d)`, tied `(d, d)`, diag `(k, d)`, spherical `(k,)`.
    pub covariances: Vec<f64>,
    /// `(C, N)`.
    pub stats: Vec<Stat>,
}

/// A line about one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// Its name: `weights[0]`, `means[0,1]`, `covariances[0,1,1]`, `lp`.
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
    /// The draws of a run: as many of each chain as the shortest has. Cost: a mixture for each.
    ///
    /// # Errors
    /// As for [`Relabel::apply`].
    pub fn new(run: &Run, target: &Target, relabel: Relabel) -> Result<Self, Error> {
        let (k, d) = target.prior().dim();
        let m = target.dim();
        let draws = run.chains.iter().map(|chain| chain.n_draws()).min().unwrap_or(0).min(run.options.draws);
        let (sampler, kind, chains) = (run.options.sampler, target.prior().kind(), run.chains.len());
        let (weights, means, covariances, stats) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut all = Self { sampler, kind, chains, draws, k, d, weights, means, covariances, stats };
        let each = || run.chains.iter().flat_map(|c| c.points.chunks_exact(m).zip(&c.stats).take(draws));
        let Some(best) = each().reduce(|a, b| if b.1.lp > a.1.lp { b } else { a }) else { return Ok(all) };
        let of = |point: &[f64]| -> Result<Mixture, Error> { Ok(target.map().to_mixture(point)?) };
        let pivot = of(best.0)?;
        for (point, stat) in each() {
            all.push(&relabel.apply(&of(point)?, &pivot)?);
            all.stats.push(*stat);
        }
        Ok(all)
    }

    fn push(&mut self, mixture: &Mixture) {
        self.weights.extend(mixture.weights());
        self.means.extend(mixture.means());
        match mixture.covariances() {
            Covariances::Full(a) => self.covariances.extend(a),
            Covariances::Tied(a) | Covariances::Diag(a) => self.covariances.extend(a),
            Covariances::Spherical(a) => self.covariances.extend(a),
        }
    }

    /// The shape of one draw's covariances.
    pub fn covariance_shape(&self) -> Vec<usize> {
        let (k, d) = (self.k, self.d);
        match self.kind {
            CovarianceType::Full => vec![k, d, d],
            CovarianceType::Tied => vec![d, d],
            CovarianceType::Diag => vec![k, d],
            CovarianceType::Spherical => vec![k],
        }
    }

    /// The three parameters: name, shape of one draw, values with (chain, draw) in front.
    pub fn parameters(&self) -> [(&'static str, Vec<usize>, &[f64]); 3] {
        [
            ("weights", vec![self.k], &self.weights),
            ("means", vec![self.k, self.d], &self.means),
            ("covariances", self.covariance_shape(), &self.covariances),
        ]
    }

    /// What the sampler had to say, `(C, N)` each, by ArviZ's names. Of random-walk Metropolis: `lp` and
    /// `acceptance_rate` alone.
    pub fn sample_stats(&self) -> Vec<(&'static str, Vec<f64>)> {
        let of = |f: &dyn Fn(&Stat) -> f64| self.stats.iter().map(f).collect();
        let mut all = vec![("lp", of(&|s| s.lp)), ("acceptance_rate", of(&|s| s.acceptance_rate))];
        if self.sampler == Sampler::Nuts {
            all.push(("diverging", of(&|s| f64::from(u8::from(s.diverging)))));
            all.push(("n_steps", of(&|s| f64::from(s.n_steps))));
            all.push(("step_size", of(&|s| s.step_size)));
            all.push(("tree_depth", of(&|s| f64::from(s.tree_depth))));
        }
        all
    }

    /// The name of each scalar, `weights[0]`, .., and its draws, `(C, N)`.
    pub fn scalars(&self) -> Vec<(String, Vec<f64>)> {
        let of = |(name, shape, values): (&str, Vec<usize>, &[f64])| {
            let size: usize = shape.iter().product();
            let column = |at: usize| values.iter().skip(at).step_by(size).copied().collect();
            (0..size).map(|at| (format!("{name}[{}]", index(at, &shape)), column(at))).collect::<Vec<_>>()
        };
        self.parameters().into_iter().flat_map(of).collect()
    }

    /// A line for each parameter, and one for `lp`. Of a matrix that is symmetric, the lower triangle. Cost: a few
    /// sorts of all draws for each.
    pub fn summary(&self) -> Vec<SummaryRow> {
        if self.draws == 0 {
            return Vec::new();
        }
        let lp = ("lp".to_owned(), self.stats.iter().map(|s| s.lp).collect());
        let scalars = self.scalars().into_iter().filter(|(name, _)| !self.is_upper(name));
        scalars.chain([lp]).map(|(name, values)| self.row(name, &values)).collect()
    }

    fn row(&self, name: String, values: &[f64]) -> SummaryRow {
        let chains: Vec<&[f64]> = values.chunks_exact(self.draws).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let sd = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt();
        let sorted = diagnostics::sorted(values);
        let [q5, q95] = [0.05, 0.95].map(|p| diagnostics::quantile(&sorted, p));
        let (ess_bulk, ess_tail) = (diagnostics::ess_bulk(&chains), diagnostics::ess_tail(&chains));
        SummaryRow { name, mean, sd, q5, q95, ess_bulk, ess_tail, r_hat: diagnostics::r_hat(&chains) }
    }

    /// Whether a name is that of an entry above a matrix's diagonal, which stands below it too.
    fn is_upper(&self, name: &str) -> bool {
        let Some(indices) = name.strip_prefix("covariances[").and_then(|rest| rest.strip_suffix(']')) else {
            return false;
        };
        let indices: Vec<usize> = indices.split(',').filter_map(|i| i.parse().ok()).collect();
        let matrices = matches!(self.kind, CovarianceType::Full | CovarianceType::Tied);
        matrices && matches!(indices[..], [.., i, j] if i < j)
    }
}

/// A row-major position as indices with commas.
fn index(mut at: usize, shape: &[usize]) -> String {
    let mut indices = Vec::with_capacity(shape.len());
    for len in shape.iter().rev() {
        indices.push((at % len).to_string());
        at /= len;
    }
    indices.reverse();
    indices.join(",")
}
