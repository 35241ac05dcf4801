//! `gmm select --by`: a choice for each group.

use std::ops::ControlFlow;
use std::path::PathBuf;

use gmm_data::{GroupLabel, GroupModels, ModelFile};
use gmm_host::{Candidate, Chosen, Engine, Error, Fit, FitOptions, TestOptions, Work, choose, select};
use gmm_model::Dataset;
use serde_json::{Value, json};

use super::{SelectArgs, as_json};
use crate::exit::{self, Failure};
use crate::output::{self, Console, is_stdio};
use crate::progress::Count;
use crate::{fit, groups, interrupt, opening};

/// The candidates of a group and the choice among them, or why there is none.
type Choice = Result<(Vec<Candidate>, Chosen), Error>;

pub(super) fn run(
    args: &SelectArgs,
    column: &str,
    (components, options): (&[usize], &FitOptions),
    console: &Console,
) -> anyhow::Result<()> {
    let source = args.input.source().with_missing(args.missing.missing);
    if let Some(path) = args.output.as_deref().filter(|path| !is_stdio(path)) {
        if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            let why = format!("-o {}: the models of all groups are one json file", path.display());
            return Err(Failure::Usage(why).into());
        }
        let files: Vec<PathBuf> = source.files()?;
        output::check_apart(path, &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let rows = groups::rows_by(source, column, (args.weights.as_deref(), None), console)?;
    let (shape, precision) = (rows.data.rows().dim(), rows.data.rows().precision());
    let work = Work::select(shape, precision, options, components, &args.covariance);
    let opened = opening::open(&args.engine, source.memory(), &work, console)?;
    let (labels, ranges) = rows.grouping.into_parts();
    let bar = Count::new(console, labels.len(), "fits");
    let mut choices: Vec<Choice> = Vec::with_capacity(labels.len());
    for range in ranges {
        bar.at(choices.len());
        let part = rows.data.part(range);
        match choice(args, &part, (components, options), opened.engine.as_ref()) {
            Err(error @ Error::Device(_)) => return Err(error.into()),
            Err(Error::Interrupted { iterations }) => {
                return Err(Failure::Interrupted { iterations, kept: String::new() }.into());
            }
            other => choices.push(other),
        }
    }
    bar.finish();
    if choices.iter().all(Result::is_err) {
        let first = choices.into_iter().find_map(Result::err).expect("a table has rows, so that there is a group");
        return Err(fit::named(first, &rows.data).context(format!("group {}", labels[0])));
    }
    for (label, choice) in labels.iter().zip(&choices) {
        match choice {
            Err(error) => console.warn(&format!("group {label}: {error}")),
            Ok((candidates, chosen)) => warn(label, &candidates[chosen.best], console),
        }
    }
    let object = args.json.then(|| json_of(args, column, &labels, &choices));
    let models = models(column, labels, choices, &rows.data);
    if let Some(path) = &args.output {
        groups::write(path, &models)?;
    }
    let text = object.map_or_else(|| groups::table(&models, console.colour), |object| format!("{object:#}\n"));
    match &args.output {
        Some(path) if is_stdio(path) => console.note(|| text),
        Some(_) if console.quiet && !args.json => {}
        _ => output::print(&text)?,
    }
    Ok(())
}

/// The choice for the rows of one group.
fn choice(
    args: &SelectArgs,
    data: &Dataset,
    (components, options): (&[usize], &FitOptions),
    engine: &dyn Engine,
) -> Choice {
    let go_on = || if interrupt::received().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let mut seen = |_: &Candidate| go_on();
    let candidates = select(engine, data, options, components, &args.covariance, &mut seen, &mut |_| go_on())?;
    let tests = TestOptions { replicates: args.replicates, level: args.level };
    match choose(engine, data, &candidates, args.criterion, options, &tests, &mut |_, _| go_on())? {
        Some(chosen) => Ok((candidates, chosen)),
        None => {
            Err(candidates.into_iter().find_map(|c| c.outcome.err()).expect("a candidate without a fit has an error"))
        }
    }
}

fn warn(label: &GroupLabel, Candidate { k, kind, outcome }: &Candidate, console: &Console) {
    if outcome.as_ref().is_ok_and(|fit| !fit.summary.converged) {
        console.warn(&format!(
            "group {label}: the best candidate, {k} components with {kind} covariances, did not converge"
        ));
    }
}

fn models(column: &str, labels: Vec<GroupLabel>, choices: Vec<Choice>, data: &Dataset) -> GroupModels {
    let feature_names = data.names().map(<[String]>::to_vec);
    let model = |choice: Choice| {
        let found = choice.and_then(|(mut candidates, chosen)| candidates.swap_remove(chosen.best).outcome);
        let Fit { mixture, summary, storage, noise, posterior, .. } =
            found.map_err(|error| exit::message(&fit::named(error, data)))?;
        let (fit, storage, feature_names) = (Some(summary), Some(storage), feature_names.clone());
        Ok(ModelFile { feature_names, fit, storage, noise, posterior, ..ModelFile::from(mixture) })
    };
    GroupModels {
        by: Some(column.to_owned()),
        groups: labels.into_iter().zip(choices.into_iter().map(model)).collect(),
    }
}

fn json_of(args: &SelectArgs, column: &str, labels: &[GroupLabel], choices: &[Choice]) -> Value {
    let one = |(label, choice): (&GroupLabel, &Choice)| match choice {
        Ok((candidates, chosen)) => {
            let mut value = as_json(candidates, chosen, args);
            value["group"] = json!(label);
            value
        }
        Err(error) => json!({"group": label, "error": error.to_string()}),
    };
    json!({"by": column, "groups": labels.iter().zip(choices).map(one).collect::<Vec<_>>()})
}
