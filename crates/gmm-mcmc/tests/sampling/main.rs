//! Samplers against known results: true parameters, each other, their own runs when stopped and resumed, and simulated
//! posteriors.

mod agreement;
mod bad_input;
mod calibration;
mod recovery;
mod resume;

use std::ops::ControlFlow;

use gmm_host::{CpuEngine, FitOptions, Likelihood, fit};
use gmm_mcmc::{Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Target, starts};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, sample};

/// Rows on an engine, their posterior, and a fitted mixture to start from.
struct Case {
    data: Dataset,
    likelihood: Likelihood,
    target: Target,
    fitted: Mixture,
}

impl Case {
    /// A case with `n` rows drawn from `truth`, and a prior.
    fn of(truth: &Mixture, n: usize, prior: &PriorOptions) -> Self {
        let data = Dataset::new(sample(truth, n, 1).unwrap().0).unwrap();
        Self::on(data, truth.covariance_type(), truth.n_components(), prior)
    }

    fn on(data: Dataset, kind: CovarianceType, k: usize, prior: &PriorOptions) -> Self {
        let engine = CpuEngine::new(2).unwrap();
        let options = FitOptions { covariance_type: kind, ..FitOptions::new(k) };
        let fitted = fit(&engine, &data, &options).unwrap().mixture;
        let likelihood = Likelihood::new(&engine, &data, Precision::F64).unwrap();
        let target = Target::new(Prior::new(prior, kind, k, &data).unwrap()).unwrap();
        Self { data, likelihood, target, fitted }
    }

    /// A run without draws, whose chains start around the fit.
    fn run(&mut self, options: Options) -> Run {
        let (seed, chains) = (options.seed, options.chains);
        let start = |i| starts::about(&self.fitted, &self.target, &mut self.likelihood, seed, i).unwrap();
        let starts = (0..chains).map(start).collect();
        Run::new(options, starts).unwrap()
    }

    /// Continues a run until it is complete.
    fn finish(&mut self, run: &mut Run) {
        run.go_on(&mut self.likelihood, &self.target, &mut |_, _| ControlFlow::Continue(())).unwrap();
    }

    /// The draws of a complete new run, with components ordered by ascending mean in the first column.
    fn posterior(&mut self, options: Options) -> Posterior {
        let mut run = self.run(options);
        self.finish(&mut run);
        Posterior::new(&run, &self.target, Relabel::Order { column: 0 }).unwrap()
    }
}

fn options(sampler: Sampler, draws: usize, warmup: usize) -> Options {
    Options { draws, warmup, chains: 2, ..Options::new(sampler) }
}
