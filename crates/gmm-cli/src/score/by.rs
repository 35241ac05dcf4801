//! `gmm score --by`: each row under the model of its group.

use gmm_data::{Column, GroupLabel};
use gmm_host::many::{Groups, map_groups};
use gmm_host::{Error, Evaluation, Work, noise, predictive_log_densities};
use gmm_model::shown;
use serde_json::{Value, json};

use super::{ScoreArgs, as_json, totals};
use crate::output::{self, Console, is_stdio};
use crate::{groups, opening, render};

pub(super) fn run(args: &ScoreArgs, column: &str, to_stdout: bool, console: &Console) -> anyhow::Result<()> {
    let source = args.input.source().with_missing(args.missing.missing);
    let models = groups::models(&args.model, source)?;
    let rows = groups::rows_by(source, column, (args.weights.as_deref(), groups::columns(&models)), console)?;
    let of = groups::models_of(&models, &args.model, &rows)?;
    let shape = of.first().map(|model| &model.mixture).expect("a table has rows, so that there is a group");
    let (n, precision) = (rows.data.rows().dim(), rows.data.rows().precision());
    let work = Work::passes(n, precision, shape.covariance_type(), shape.n_components(), 1.0);
    let opened = opening::open(&args.engine, source.memory(), &work, console)?;
    let precision = args.engine.precision().unwrap_or(precision);
    let all = Groups::new(&rows.data, rows.grouping.rows());
    let found = map_groups(opened.engine.as_ref(), &all, &|part, i, data| {
        let model = of[i];
        Ok(match &model.posterior {
            Some(posterior) => {
                let densities = predictive_log_densities(posterior, data, 1)?;
                let totals = totals(&densities, data);
                (densities.to_vec(), totals)
            }
            None if args.per_row => {
                let (mixture, noise) = (&model.mixture, model.noise.as_ref());
                let (densities, totals) = noise::log_densities(part, mixture, noise, data, precision)?;
                (densities.to_vec(), totals)
            }
            None => (Vec::new(), noise::score(part, &model.mixture, model.noise.as_ref(), data, precision)?),
        })
    });
    let found: Vec<(Vec<f64>, Evaluation)> = found.into_iter().collect::<Result<_, Error>>()?;
    if args.per_row {
        let mut sorted = vec![0.0; rows.data.n_rows()];
        for (range, (densities, _)) in rows.grouping.rows().iter().zip(&found) {
            sorted[range.clone()].copy_from_slice(densities);
        }
        let path = args.output.clone().unwrap_or_else(|| "-".into());
        let _whole = output::hold(&path);
        gmm_data::write_column(path, "log_density", Column::Values(&rows.grouping.in_table_order(sorted)))?;
    }
    let sizes = rows.grouping.rows().iter().map(ExactSizeIterator::len);
    let each: Vec<(&GroupLabel, usize, Evaluation)> = rows
        .grouping
        .labels()
        .iter()
        .zip(sizes)
        .zip(found)
        .map(|((label, n), (_, totals))| (label, n, totals))
        .collect();
    if to_stdout {
        return Ok(());
    }
    report(args, column, &each, console)
}

/// Prints the totals of each group, and of all.
fn report(
    args: &ScoreArgs,
    column: &str,
    each: &[(&GroupLabel, usize, Evaluation)],
    console: &Console,
) -> anyhow::Result<()> {
    let mut all = Evaluation { log_likelihood: 0.0, entropy: f64::NAN, total_weight: 0.0 };
    for (_, _, totals) in each {
        all.log_likelihood += totals.log_likelihood;
        all.total_weight += totals.total_weight;
    }
    let n = each.iter().map(|(_, n, _)| n).sum();
    if args.json {
        let group = |(label, n, totals): &(&GroupLabel, usize, Evaluation)| {
            let mut value = as_json(totals, *n);
            value["group"] = serde_json::to_value(label).expect("a number or text");
            value
        };
        let mut object = as_json(&all, n);
        object["by"] = column.into();
        object["groups"] = each.iter().map(group).collect::<Vec<Value>>().into();
        return Ok(output::print_json(&json!(object))?);
    }
    if args.output.as_deref().is_some_and(|path| !is_stdio(path)) && console.quiet {
        return Ok(());
    }
    let labels: Vec<String> = each.iter().map(|(label, ..)| label.to_string()).chain(["all".to_owned()]).collect();
    let width = labels.iter().map(|label| label.chars().count()).chain([shown(column).chars().count()]).max();
    let width = width.unwrap_or(0);
    let mut out = format!("{:<width$}{:>10}{:>18}{:>14}\n", shown(column), "rows", "log-likelihood", "per row");
    let lines = each.iter().map(|(_, n, totals)| (*n, totals)).chain([(n, &all)]);
    for (label, (n, Evaluation { log_likelihood, total_weight, .. })) in labels.iter().zip(lines) {
        let (total, mean) = (render::fixed(*log_likelihood), render::short(log_likelihood / total_weight));
        out += &format!("{label:<width$}{n:>10}{total:>18}{mean:>14}\n");
    }
    Ok(output::print(&out)?)
}
