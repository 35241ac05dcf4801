//! `gmm maximise`: the M-step from sums of `gmm pass`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use gmm_data::ModelFile;
use gmm_host::noise;
use gmm_model::{Noise, Statistics};
use serde_json::json;

use crate::exit::Failure;
use crate::fit::bayes::BayesArgs;
use crate::fit::rule::ObjectiveArgs;
use crate::output::{self, Console, is_stdio};
use crate::{input, render};

const EXAMPLES: &str = "\
The log-likelihood is that of the model given by --from; with --prior the logarithm of the prior density, over the \
number of rows, is added to its mean. Its change since the pass before is printed if that model \
records one, as models of gmm maximise do; a loop ends when it is less than --tol.

Examples:
  gmm maximise all.stats --from model.json -o model.json
  gmm maximise all.stats --from model.json -o model.json --json | grep '\"converged\": true'";

/// Compute the next model from the sums of passes under a model (for Kaldi users: est)
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MaximiseArgs {
    /// File of gmm pass or gmm add with the sums of all rows; - is standard input
    statistics: PathBuf,
    /// The model of the passes. Empty components keep their mean and covariance in it; column names, the rounding of
    /// rows and the volume of the noise are copied from it
    #[arg(long, value_name = "MODEL")]
    from: PathBuf,
    /// Value added to the diagonal of the covariances, in squared units of the data
    #[arg(long, value_name = "R", default_value = "1e-6", allow_hyphen_values = true)]
    reg_covar: f64,
    #[command(flatten)]
    objective: ObjectiveArgs,
    /// Report convergence if the mean log-likelihood changed by less than this
    #[arg(long, value_name = "T", default_value = "1e-3", allow_hyphen_values = true)]
    tol: f64,
    /// Write the model to a .json or .safetensors file, which may be that of --from; - is JSON on standard output
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,
    /// Print one JSON object instead of the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MaximiseArgs, console: &Console) -> anyhow::Result<()> {
    check(args)?;
    args.objective.prior_file(&BayesArgs::default())?;
    let previous = input::model(&args.from)?;
    let statistics = gmm_data::read_statistics(&args.statistics)?;
    let rule = args.objective.rule();
    let (step, log_prior) = gmm_host::maximise_with(&rule, &statistics, args.reg_covar, &previous.mixture)
        .with_context(|| format!("{} with --from {}", input::display(&args.statistics), input::display(&args.from)))?;
    // EM under a prior maximises this sum.
    let mean = statistics.mean_log_likelihood() + log_prior / statistics.total_weight;
    let change = previous.full_trace().last().map(|last| mean - last);
    if !step.empty.is_empty() {
        let empty = &step.empty;
        console
            .warn(&format!("components {empty:?} are empty: they keep their mean and covariance and have no weight"));
    }
    if !step.dropped.is_empty() {
        console.warn(&format!("components {:?} were dropped for lack of rows", step.dropped));
    }
    let trace = [previous.full_trace(), &[mean]].concat();
    let ModelFile { feature_names, storage, clusters, noise, .. } = previous;
    let noise = noise.map(|noise| Noise { weight: noise::weight_after(&statistics), ..noise });
    // Clusters are of the components before.
    let clusters = clusters.filter(|_| step.dropped.is_empty());
    let model = ModelFile { feature_names, storage, trace, clusters, noise, ..ModelFile::from(step.mixture) };
    output::write_model(&args.output, &model)?;
    let report = Report { statistics: &statistics, mean, change, iterations: model.trace.len(), empty: &step.empty };
    report.print(args, console)
}

fn check(args: &MaximiseArgs) -> anyhow::Result<()> {
    output::check_model_path(&args.output)?;
    output::check_apart(&args.output, &[&args.statistics])?;
    let usage = |why: String| Err(Failure::Usage(why).into());
    output::check_json_apart(args.json, &args.output)?;
    if is_stdio(&args.from) && is_stdio(&args.statistics) {
        return usage("model and statistics cannot both come from standard input".to_owned());
    }
    for (option, value) in [("--tol", args.tol), ("--reg-covar", args.reg_covar)] {
        if !(value >= 0.0 && value.is_finite()) {
            return usage(format!("{option} is {value}: it must be finite and not negative"));
        }
    }
    Ok(())
}

/// The result of an iteration.
struct Report<'a> {
    statistics: &'a Statistics,
    /// The mean log-likelihood; with a prior the logarithm of its density, over the total row weight, is added.
    mean: f64,
    /// Of the mean log-likelihood, since the pass before.
    change: Option<f64>,
    /// Passes so far.
    iterations: usize,
    empty: &'a [usize],
}

impl Report<'_> {
    fn print(&self, args: &MaximiseArgs, console: &Console) -> anyhow::Result<()> {
        let mean = self.mean;
        let converged = self.change.is_some_and(|change| change.abs() < args.tol);
        if args.json {
            return Ok(output::print_json(&json!({
                "iterations": self.iterations,
                "mean_log_likelihood": mean,
                "change": self.change,
                "converged": converged,
                "log_likelihood": self.statistics.log_likelihood,
                "total_weight": self.statistics.total_weight,
                "n_rows": self.statistics.n_rows,
                "empty_components": self.empty,
            }))?);
        }
        if console.quiet || is_stdio(&args.output) {
            return Ok(());
        }
        let change = self.change.map_or_else(|| "none yet".to_owned(), render::short);
        Ok(output::print(&format!(
            "iteration            {}\nmean log-likelihood  {}, before this M-step\nchange               {change}{}\nrows \
             \x20               {}\n",
            self.iterations,
            render::fixed(mean),
            if converged { ", converged" } else { "" },
            self.statistics.n_rows,
        ))?)
    }
}
