//! `gmm bootstrap`: standard errors and intervals of the parameters of a model.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use gmm_data::ModelFile;
use gmm_host::{
    Bootstrap, BootstrapOptions, FitOptions, FitRule, Init, NoiseOptions, NoiseStart, Resampling, Spread, bootstrap,
    flat_covariances,
};
use gmm_model::{CovarianceType, three_digits};
use serde_json::{Value, json};

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::fit::rule::ObjectiveArgs;
use crate::output::{self, Console};
use crate::table_args::InputArgs;
use crate::{input, interrupt, render};

const EXAMPLES: &str = "\
Fits the model anew to resampled rows, each time from its own parameters, and prints for every parameter its value, \
standard error and interval. INPUT are the rows that the model was fitted to. A prior or floor of its fit is given again. \
Noise starts from that of the model, and its volume stays. \
A model that was fitted in another way (limits, measurement errors, labels, fixed parts) is refused.

Examples:
  gmm bootstrap model.json data.csv
  gmm bootstrap model.json data.csv --resampling weighted --replicates 199 --json
  gmm bootstrap model.json data.csv --level 0.9 --seed 1";

/// Compute standard errors and intervals of a model's parameters by the bootstrap
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BootstrapArgs {
    /// Model file: json or safetensors; - is standard input
    model: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Number of replicates
    #[arg(long, value_name = "N", default_value_t = 999, value_parser = at_least_two, allow_negative_numbers = true)]
    replicates: usize,
    /// Weights of the rows in a replicate: nonparametric (rows drawn with replacement) or weighted (exponential weights,
    /// the weighted-likelihood bootstrap)
    #[arg(long, value_name = "HOW", default_value = "nonparametric",
          value_parser = args::words::<Resampling>(&Resampling::WORDS))]
    resampling: Resampling,
    /// Level of the percentile intervals
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = level, allow_negative_numbers = true)]
    level: f64,
    /// Convergence threshold of each fit
    #[arg(long, value_name = "T", default_value = "1e-6", allow_hyphen_values = true)]
    tol: f64,
    /// Maximum number of EM iterations of each fit
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = args::count, allow_negative_numbers = true)]
    max_iter: usize,
    /// Value added to the diagonal of the covariances [default: that of the model, or 1e-6]
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    reg_covar: Option<f64>,
    #[command(flatten)]
    objective: ObjectiveArgs,
    /// Random seed
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    engine: EngineArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

fn at_least_two(text: &str) -> Result<usize, String> {
    match args::count(text)? {
        0 | 1 => Err("it must be at least 2".to_owned()),
        many => Ok(many),
    }
}

/// A probability between 0 and 1.
pub(crate) fn level(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(level) if level > 0.0 && level < 1.0 => Ok(level),
        _ => Err("it must be a number between 0 and 1".to_owned()),
    }
}

pub(crate) fn run(args: &BootstrapArgs, console: &Console) -> anyhow::Result<()> {
    let (model, data, opened) = input::model_rows_and_engine(
        (&args.model, args.input.source()),
        args.weights.as_deref(),
        &args.engine,
        console,
    )?;
    let reg_covar = args.reg_covar.or(model.fit.as_ref().map(|fit| fit.reg_covar)).filter(|r| !r.is_nan());
    let noise =
        model.noise.clone().map(|noise| NoiseOptions { start: NoiseStart::Given(Box::new(noise)), log_volume: None });
    let options = FitOptions {
        rule: FitRule { noise, ..args.objective.rule() },
        tol: args.tol,
        max_iter: args.max_iter,
        reg_covar: reg_covar.unwrap_or(1e-6),
        precision: args.engine.precision(),
        init: Init::Given(Box::new(model.mixture.clone())),
        ..FitOptions::new(model.mixture.n_components())
    }
    .with_covariance(model.mixture.covariance_model());
    options.validate()?;
    let how = BootstrapOptions {
        replicates: args.replicates,
        resampling: args.resampling,
        seed: args.seed,
        rules: model.fit.as_ref().map(|fit| fit.rules.clone()),
    };
    let held = interrupt::hold();
    let mut done = 0;
    let found = bootstrap(opened.engine.as_ref(), &model.mixture, &data, &options, &how, &mut |replicates| {
        done = replicates;
        console.step_note(|| format!("{done} of {} replicates", args.replicates));
        if interrupt::received().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(|error| match error {
        gmm_host::Error::Interrupted { .. } => {
            Failure::Interrupted { iterations: 0, kept: format!("; {done} replicates are lost") }.into()
        }
        error => anyhow::Error::new(error),
    })
    .with_context(|| args.input.source().display())?;
    drop(held);
    warn(&found, args, console);
    if args.json {
        return Ok(output::print_json(&as_json(&found, args))?);
    }
    Ok(output::print(&table(&found, &model, args))?)
}

fn warn(found: &Bootstrap, args: &BootstrapArgs, console: &Console) {
    if found.failed > 0 {
        console.warn(&format!("{} replicates could not be fitted and were replaced by others", found.failed));
    }
    if found.not_converged > 0 {
        console.warn(&format!(
            "{} of {} replicates did not converge in {} iterations: raise --max-iter or --tol",
            found.not_converged, args.replicates, args.max_iter
        ));
    }
}

fn table(found: &Bootstrap, model: &ModelFile, args: &BootstrapArgs) -> String {
    let spreads = found.spreads(args.level);
    let (m, k, d) = (&found.fitted, found.fitted.n_components(), found.fitted.n_features());
    let names: Vec<String> = (0..d).map(|j| render::name(model, j)).collect();
    let percent = 100.0 * args.level;
    let mut out = format!(
        "{} bootstrap, {} replicates, {percent}% percentile intervals\n\n{:<10} {:<32}{:>14}{:>14}{:>14}{:>14}\n",
        args.resampling.name(),
        args.replicates,
        "component",
        "parameter",
        "value",
        "std. error",
        "lower",
        "upper"
    );
    let mut line = |component: Option<usize>, parameter: &str, value: f64, spread: &Spread, at: usize| {
        let [value, lower, upper] = [value, spread.lower[at], spread.upper[at]].map(render::short);
        // A standard error of a few hundred replicates has two or three digits.
        let error = three_digits(spread.standard_error[at]);
        let component = component.map_or_else(|| "all".to_owned(), |c| c.to_string());
        out += &format!("{component:<10} {parameter:<32}{value:>14}{error:>14}{lower:>14}{upper:>14}\n");
    };
    for c in 0..k {
        line(Some(c), "weight", m.weights()[c], &spreads.weights, c);
        for (j, name) in names.iter().enumerate() {
            line(Some(c), &format!("mean {name}"), m.means()[[c, j]], &spreads.means, c * d + j);
        }
        if m.covariance_type() != CovarianceType::Tied {
            covariances(
                &mut |parameter, value, at| line(Some(c), parameter, value, &spreads.covariances, at),
                found,
                c,
                &names,
            );
        }
    }
    if let Some(noise) = &found.noise {
        line(None, "weight of the noise", noise.weight, &spreads.noise, 0);
    }
    if m.covariance_type() == CovarianceType::Tied {
        covariances(
            &mut |parameter, value, at| line(None, parameter, value, &spreads.covariances, at),
            found,
            0,
            &names,
        );
    }
    out
}

/// Calls `line` for each covariance of component `c` with its name, value, and place among all.
fn covariances(line: &mut dyn FnMut(&str, f64, usize), found: &Bootstrap, c: usize, names: &[String]) {
    let d = names.len();
    let values = flat_covariances(found.fitted.covariances());
    match found.fitted.covariance_type() {
        CovarianceType::Full | CovarianceType::Tied => {
            for i in 0..d {
                for j in 0..=i {
                    let at = c * d * d + i * d + j;
                    let name = match i == j {
                        true => format!("variance {}", names[i]),
                        false => format!("covariance {}, {}", names[j], names[i]),
                    };
                    line(&name, values[at], at);
                }
            }
        }
        CovarianceType::Diag => {
            for (j, name) in names.iter().enumerate() {
                line(&format!("variance {name}"), values[c * d + j], c * d + j);
            }
        }
        CovarianceType::Spherical => line("variance", values[c], c),
    }
}

fn as_json(found: &Bootstrap, args: &BootstrapArgs) -> Value {
    let spreads = found.spreads(args.level);
    let m = &found.fitted;
    let (k, d) = (m.n_components(), m.n_features());
    let covariances: &[usize] = match m.covariance_type() {
        CovarianceType::Full => &[k, d, d],
        CovarianceType::Tied => &[d, d],
        CovarianceType::Diag => &[k, d],
        CovarianceType::Spherical => &[k],
    };
    let one = |values: Vec<f64>, spread: &Spread, shape: &[usize]| {
        json!({
            "shape": shape, "value": values, "standard_error": spread.standard_error,
            "lower": spread.lower, "upper": spread.upper,
        })
    };
    let mut all = json!({
        "resampling": args.resampling.name(),
        "replicates": args.replicates,
        "level": args.level,
        "seed": args.seed,
        "failed": found.failed,
        "not_converged": found.not_converged,
        "weights": one(m.weights().to_vec(), &spreads.weights, &[k]),
        "means": one(m.means().iter().copied().collect(), &spreads.means, &[k, d]),
        "covariances": one(flat_covariances(m.covariances()), &spreads.covariances, covariances),
    });
    if let Some(noise) = &found.noise {
        all["noise_weight"] = one(vec![noise.weight], &spreads.noise, &[]);
    }
    all
}
