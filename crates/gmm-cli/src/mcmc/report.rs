//! The summary of the draws as a table and as JSON, and warnings about their quality.

use std::time::Duration;

use gmm_mcmc::{Basis, Concern, Posterior, Relabel, Sampler, SummaryRow, concerns, r_hat_text};
use gmm_model::ParameterDraws;
use serde_json::{Value, json};

use crate::output::paint;
use crate::render;

/// Most lines of the table; `--json` prints all parameters.
const LINES: usize = 40;

/// The summary: one line per parameter, and a last line about the run.
pub(crate) fn table(posterior: &Posterior, summary: &[SummaryRow], elapsed: Duration, colour: bool) -> String {
    let heading = ["", "mean", "sd", "5%", "95%", "ess_bulk", "ess_tail", "r_hat"].map(str::to_owned);
    let line = |row: &SummaryRow| {
        let or_dash = |v: f64, text: String| if v.is_nan() { "–".to_owned() } else { text };
        let number = |v: f64| or_dash(v, decimals(v, row.sd));
        [
            row.name.clone(),
            number(row.mean),
            number(row.sd),
            number(row.q5),
            number(row.q95),
            or_dash(row.ess_bulk, format!("{:.0}", row.ess_bulk)),
            or_dash(row.ess_tail, format!("{:.0}", row.ess_tail)),
            or_dash(row.r_hat, r_hat_text(row.r_hat)),
        ]
    };
    // The last row, the log density, is always shown.
    let hidden = summary.len().saturating_sub(LINES);
    let shown = summary.iter().enumerate().filter(|(i, _)| *i < LINES - 1 || *i + 1 == summary.len() || hidden == 0);
    let rows: Vec<_> = [heading].into_iter().chain(shown.map(|(_, row)| line(row))).collect();
    let length = |text: &str| text.chars().count();
    let width = |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut out = String::new();
    for (i, row) in rows.iter().enumerate() {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line += &format!("  {}{cell}", " ".repeat(width - length(cell)));
        }
        out += &paint(colour && i == 0, "1", &line);
        out.push('\n');
    }
    if hidden > 0 {
        out += &format!(".. and {hidden} more: see --json\n");
    }
    let ParameterDraws { chains, draws, .. } = posterior.draws;
    let acceptance = mean(posterior.stats.iter().map(|s| s.acceptance_rate));
    out + &format!("\n{chains} chains of {draws} draws, acceptance {acceptance:.2}, in {elapsed:.3?}\n")
}

/// Warnings about the quality of the draws, each with advice.
pub(crate) fn warnings(posterior: &Posterior, summary: &[SummaryRow], relabel: Relabel) -> Vec<String> {
    let may_change_places = posterior.draws.k > 1 && relabel != Relabel::Pivot;
    let diverging = posterior.stats.iter().filter(|s| s.diverging).count();
    let advised = |concern: Concern| {
        let advice = match concern {
            Concern::Apart { .. } if may_change_places => {
                "raise --warmup and --draws, or use --relabel pivot if components switched labels"
            }
            Concern::Apart { .. } => "raise --warmup and --draws",
            Concern::Unjudged { .. } | Concern::Few { .. } => "raise --draws",
            Concern::Diverging { .. } => "raise --target-accept, or use a more informative prior",
        };
        format!("{concern}; {advice}")
    };
    concerns(posterior, summary, diverging).into_iter().map(advised).collect()
}

/// The summary and statistics of the run; NaN and infinities are null.
pub(crate) fn json(posterior: &Posterior, summary: &[SummaryRow], basis: &Basis, elapsed: Duration) -> Value {
    let line = |row: &SummaryRow| {
        json!({
            "name": row.name, "mean": row.mean, "sd": row.sd, "q5": row.q5, "q95": row.q95,
            "ess_bulk": row.ess_bulk, "ess_tail": row.ess_tail, "r_hat": row.r_hat,
        })
    };
    let stats = &posterior.stats;
    let mut value = json!({
        "sampler": posterior.sampler.name(),
        "covariance_type": posterior.draws.kind.name(),
        "chains": posterior.draws.chains,
        "draws": posterior.draws.draws,
        "acceptance_rate": mean(stats.iter().map(|s| s.acceptance_rate)),
        "engine": basis.engine,
        "precision": basis.precision.name(),
        "elapsed_s": elapsed.as_secs_f64(),
        "parameters": summary.iter().map(line).collect::<Vec<_>>(),
    });
    if posterior.sampler == Sampler::Nuts {
        value["divergences"] = stats.iter().filter(|s| s.diverging).count().into();
        value["gradients"] = stats.iter().map(|s| u64::from(s.n_steps)).sum::<u64>().into();
    }
    value
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// Formats `value` with the number of decimals at which `sd` has three significant digits.
fn decimals(value: f64, sd: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // A constant has standard deviation 0: use its own magnitude.
    let size = if sd > 0.0 { sd } else { value.abs() };
    let decimals = 2.0 - size.log10().floor();
    if value.abs() >= 1e9 || !(0.0..=9.0).contains(&decimals) {
        return if decimals < 0.0 && value.abs() < 1e9 { format!("{value:.0}") } else { render::short(value) };
    }
    format!("{value:.*}", decimals as usize)
}
