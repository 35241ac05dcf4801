//! Samplers against what is known: truths, each other, themselves when they are stopped, and simulated posteriors.

mod agreement;
mod bad_input;
mod calibration;
mod recovery;
mod resume;

use std::ops::ControlFlow;

use gmm_host::{CpuEngine, FitOptions, Likelihood, fit};
use gmm_mcmc::{Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Target, starts};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, sample};

/// Rows on an engine, their posterior, and a mixture to start from.
struct Case {
    data: Dataset,
    likelihood: Likelihood,
    target: Target,
    fitted: Mixture,
}

impl Case {
    /// Rows drawn from a mixture, under a prior.
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

    /// A run that has not begun, all chains about the fit.
    fn run(&mut self, options: Options) -> Run {
        let (seed, chains) = (options.seed, options.chains);
        let start = |i| starts::about(&self.fitted, &self.target, &mut self.likelihood, seed, i).unwrap();
        let starts = (0..chains).map(start).collect();
        Run::new(options, starts).unwrap()
    }

    /// Goes on to the end.
    fn finish(&mut self, run: &mut Run) {
        run.go_on(&mut self.likelihood, &self.target, &mut |_, _| ControlFlow::Continue(())).unwrap();
    }

    /// All draws of a run from its beginning, components by ascending mean of the first column.
    fn posterior(&mut self, options: Options) -> Posterior {
        let mut run = self.run(options);
        self.finish(&mut run);
        Posterior::new(&run, &self.target, Relabel::Order { column: 0 }).unwrap()
    }
}

fn options(sampler: Sampler, draws: usize, warmup: usize) -> Options {
    Options { draws, warmup, chains: 2, ..Options::new(sampler) }
}
