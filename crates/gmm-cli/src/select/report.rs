//! What `gmm select` prints: a table, what decided, and JSON.

use gmm_host::init::StartReached;
use gmm_host::{Candidate, Choice, Chosen};
use serde_json::{Value, json};

use super::SelectArgs;
use crate::output::{Console, paint};
use crate::{fit, render};

pub(super) fn table(candidates: &[Candidate], best: usize, console: &Console) -> String {
    let heading = format!(
        "  {:>5}  {:<10}{:>16}{:>16}{:>16}{:>16}{:>12}{:>12}",
        "k", "covariance", "log-likelihood", "BIC", "AIC", "ICL", "iterations", "time"
    );
    let mut out = format!("{}\n", paint(console.colour, "1", &heading));
    for (i, candidate) in candidates.iter().enumerate() {
        let text = line(candidate, if i == best { "*" } else { " " }, true);
        out += &format!("{}\n", paint(console.colour && i == best, "1;32", &text));
    }
    if candidates.iter().any(|c| c.outcome.as_ref().is_ok_and(|fit| !fit.summary.converged)) {
        out += "(!) not converged within --max-iter iterations\n";
    }
    out
}

pub(super) fn line(candidate: &Candidate, mark: &str, wide: bool) -> String {
    let Candidate { k, kind, outcome } = candidate;
    match outcome {
        Err(error) => format!("{mark} {k:>5}  {kind:<10}  {error}"),
        Ok(fit) if wide => {
            let s = &fit.summary;
            let [ll, bic, aic, icl] = [s.log_likelihood, s.bic, s.aic, s.icl].map(render::fixed);
            let iterations = format!("{}{}", s.iterations, if s.converged { "" } else { " (!)" });
            let time = format!("{:.2?}", fit.elapsed);
            format!("{mark} {k:>5}  {kind:<10}{ll:>16}{bic:>16}{aic:>16}{icl:>16}{iterations:>12}{time:>12}")
        }
        Ok(fit) => format!("{k} {kind}: log-likelihood {}", render::fixed(fit.summary.log_likelihood)),
    }
}

/// What each start of a candidate reached, if there are several.
pub(super) fn starts(candidate: &Candidate) -> String {
    let Some(found) = candidate.outcome.as_ref().ok().filter(|found| found.starts.len() > 1) else {
        return String::new();
    };
    let one = |start: &StartReached| {
        let short = if start.short { format!(" after {} iterations", start.iterations) } else { String::new() };
        format!("{} {}{short}", start.start, render::short(start.mean_log_likelihood))
    };
    format!("; per row: {}", found.starts.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// The values and tests that decided, if they are not columns of the table.
pub(super) fn decision(candidates: &[Candidate], chosen: &Chosen) -> String {
    let values = chosen.labels_icl.iter().zip(candidates).map(|(value, Candidate { k, kind, .. })| {
        format!("ICL by labels  {k:>5}  {kind:<10}{:>16}\n", render::fixed(*value))
    });
    let bound = |Candidate { k, kind, outcome }: &Candidate| {
        let bound = outcome.as_ref().ok()?.summary.lower_bound?;
        Some(format!("lower bound    {k:>5}  {kind:<10}{:>16}\n", render::fixed(bound)))
    };
    let bounds = candidates.iter().filter_map(bound);
    let tests = chosen.tests.iter().zip(candidates.windows(2)).map(|(test, two)| {
        let (statistic, drawn) = (render::fixed(test.statistic), test.replicates.len());
        format!(
            "{} against {}: 2 ln LR {statistic}, p-value {:.4} of {drawn} data sets\n",
            test.k, two[1].k, test.p_value
        )
    });
    values.chain(bounds).chain(tests).collect()
}

pub(super) fn as_json(candidates: &[Candidate], chosen: &Chosen, args: &SelectArgs) -> Value {
    let best = chosen.best;
    let each: Vec<Value> = candidates
        .iter()
        .enumerate()
        .map(|(i, Candidate { k, kind, outcome })| {
            let mut value = match outcome {
                Ok(found) => {
                    let mut value = fit::json(&found.summary, found.elapsed.as_secs_f64());
                    value["starts"] = found.starts.iter().map(start_json).collect();
                    value
                }
                Err(error) => json!({ "error": error.to_string() }),
            };
            if let Some(labels_icl) = chosen.labels_icl.get(i) {
                value["icl_labels"] = (*labels_icl).into();
            }
            value["n_components"] = (*k).into();
            value["covariance_type"] = kind.to_string().into();
            value
        })
        .collect();
    let tests: Vec<Value> = chosen
        .tests
        .iter()
        .zip(candidates.windows(2))
        .map(|(test, two)| {
            json!({
                "null": test.k, "alternative": two[1].k, "statistic": test.statistic, "p_value": test.p_value,
                "replicates": test.replicates, "failed": test.failed,
            })
        })
        .collect();
    let mut object = json!({
        "criterion": args.criterion.name(),
        "best": { "n_components": candidates[best].k, "covariance_type": candidates[best].kind.to_string() },
        "candidates": each,
    });
    if args.criterion == Choice::Blrt {
        object["tests"] = tests.into();
    }
    object
}

fn start_json(start: &StartReached) -> Value {
    json!({
        "restart": start.restart, "start": start.start, "mean_log_likelihood": start.mean_log_likelihood,
        "iterations": start.iterations, "converged": start.converged, "short": start.short,
    })
}
