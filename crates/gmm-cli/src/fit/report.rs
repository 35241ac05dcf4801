//! What a fit ends with: warnings, the model, a summary and a plot.

use gmm_data::ModelFile;
use gmm_host::{Device, Fit, FitOptions, Opened, Warning};
use gmm_model::Dataset;
use serde_json::Value;

use super::{FitArgs, tuned};
use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::{missing, opening, plot, render};

/// Warns, and writes model, summary and plot.
pub(super) fn report(
    args: &FitArgs,
    options: &FitOptions,
    (opened, device): (&Opened, Device),
    data: &Dataset,
    fit: Fit,
    console: &Console,
) -> anyhow::Result<()> {
    for warning in &fit.warnings {
        match warning {
            Warning::NotConverged { iterations } if args.online.online => {
                console.warn(&format!("not converged after {iterations} epochs: raise --epochs or --tol"));
            }
            warning => console.warn(&output::warning(warning, data.names())),
        }
    }
    if options.autotune {
        tuned(fit.tuning.as_ref(), opened.engine.as_ref(), console);
    }
    if args.require_convergence && !fit.summary.converged {
        let (unit, option) = if args.online.online { ("epochs", "--epochs") } else { ("iterations", "--max-iter") };
        return Err(Failure::NotConverged { iterations: fit.summary.iterations, unit, option }.into());
    }
    if let Some(on_device) = fit.on_device {
        console.note(|| on_device.to_string());
    }
    if let Some(near) = fit.near_components {
        let k = fit.mixture.n_components();
        console.note(|| format!("of {k} components {near:.1} were near a tile of rows: the others are below rounding"));
    }
    if options.fast {
        console.tell(&fast_cost(&fit));
    }
    let engine = opening::describe(opened, device, &fit.summary.precision);
    let feature_names = data.names().map(<[String]>::to_vec);
    let Fit { mixture, posterior, noise, summary, storage, elapsed, .. } = fit;
    let (fit, storage) = (Some(summary), Some(storage));
    let model = ModelFile { feature_names, fit, storage, posterior, noise, ..ModelFile::from(mixture) };
    if let Some(path) = &args.output {
        output::write_model(path, &model)?;
        console.note(|| format!("wrote {}", path.display()));
    }
    let summary = model.fit.as_ref().expect("a fit has a summary");
    if args.json {
        output::print_json(&json(summary, elapsed.as_secs_f64()))?;
    } else {
        let mut record = model.posterior.as_ref().map_or_else(String::new, render::posterior);
        record += &render::fit(summary, Some(&engine), Some(elapsed));
        match &args.output {
            None => output::print(&format!("{}\n{record}", render::mixture(&model, false, console.colour)))?,
            // Standard output is used by the model, so the summary goes to standard error.
            Some(path) if is_stdio(path) => console.note(|| record),
            Some(_) if console.quiet => {}
            Some(_) => output::print(&record)?,
        }
    }
    // Last: if the plot fails, the model has already been written.
    if let Some(path) = &args.plot {
        let names = model.feature_names.as_deref();
        let complete = missing::complete_rows(data)?;
        let data = complete.as_ref().unwrap_or(data);
        let source = args.input.source().caption();
        let what = plot::fit::What { names, columns: None, points: None, seed: options.seed, source };
        plot::write(path, &plot::fit::picture(&model, Some(data), &what, console)?, console)?;
    }
    Ok(())
}

/// Describes the loss of accuracy by `--precision fast`.
pub(crate) fn fast_cost(fit: &Fit) -> String {
    fit.fast.map_or_else(
        || "--precision fast had no effect: lower precision is not faster for this shape".to_owned(),
        |loss| format!("--precision fast ran in fp16; loss of accuracy, {loss}"),
    )
}

/// The `fit` object of a model file, with the duration of the fit in seconds.
pub(crate) fn json(summary: &gmm_model::FitSummary, elapsed: f64) -> Value {
    let mut value = serde_json::to_value(summary).expect("a plain structure");
    value["elapsed_s"] = elapsed.into();
    value
}
