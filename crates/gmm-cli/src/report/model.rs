//! The sections of a report about the model: summary, card, fit, components.

use gmm_data::ModelFile;
use gmm_host::Warning;
use gmm_host::spikes::spikes;
use gmm_model::{Covariances, Mixture, three_digits};

use super::html::Page;
use super::{count, percent};
use crate::plot;
use crate::render::{self, decimals, entry, fixed, short};

/// Maximum number of components and columns in a table.
const COMPONENTS: usize = 40;
const COLUMNS: usize = 24;
/// Number of correlations that are listed.
const CORRELATIONS: usize = 12;
/// Columns named in a sentence.
const NAMED: usize = 3;

/// The model in plain sentences.
pub(super) fn summary(model: &ModelFile, names: &[String]) -> Vec<String> {
    let m = &model.mixture;
    let (k, d) = m.means().dim();
    let named = match d {
        1..=8 => format!(" ({})", names.join(", ")),
        _ => String::new(),
    };
    let mut out = vec![format!(
        "The model describes rows of {}{named} as {}, called components, each with its own centre and spread.",
        count(d, "column"),
        count(k, "group")
    )];
    if k > 1 {
        let largest = by_weight(m)[0];
        let columns = telling_columns(m, NAMED);
        let centre = columns.iter().map(|&j| format!("{} = {}", names[j], three_digits(m.means()[[largest, j]])));
        out.push(format!(
            "The largest is component {largest}, with {} of the rows, around {}.",
            percent(m.weights()[largest] * of_components(model)),
            centre.collect::<Vec<_>>().join(", ")
        ));
    }
    if let Some(clusters) = &model.clusters {
        let n = clusters.iter().max().map_or(0, |most| most + 1);
        out.push(format!("The components are combined into {}.", count(n, "cluster")));
    }
    if let Some(fit) = &model.fit {
        let rows = count(usize::try_from(fit.n_rows).unwrap_or(usize::MAX), "row");
        out.push(match fit.converged {
            true => format!("Its fit to {rows} converged after {}.", count(fit.iterations, "iteration")),
            false => format!(
                "Its fit to {rows} stopped after {} before it converged: a longer fit may change the model.",
                count(fit.iterations, "iteration")
            ),
        });
    }
    let warnings = warnings(model).len();
    if warnings > 0 {
        out.push(format!(
            "There {}: see the section on the fit.",
            match warnings {
                1 => "is 1 warning".to_owned(),
                n => format!("are {n} warnings"),
            }
        ));
    }
    out
}

/// What the model is.
pub(super) fn card(page: &mut Page, name: &str, model: &ModelFile, names: &[String]) {
    let m = &model.mixture;
    let columns = match names.len() {
        n if n > COLUMNS => format!("{n}: {}, .. and {} more", names[..COLUMNS].join(", "), n - COLUMNS),
        n => format!("{n}: {}", names.join(", ")),
    };
    let mut values = vec![
        ("File", name.to_owned()),
        ("Model", "Gaussian mixture".to_owned()),
        ("Components", m.n_components().to_string()),
        ("Columns", columns),
        ("Covariances", format!("{}: {}", m.covariance_model(), what_a_kind_is(m))),
        ("Parameters", m.n_parameters().to_string()),
        ("Fingerprint", format!("{:016x}, of all parameters", m.fingerprint())),
    ];
    if let Some(noise) = &model.noise {
        values.push(("Noise", format!("{} of the rows belong to no component", percent(noise.weight))));
    }
    if let Some(threshold) = &model.outliers {
        values.push(("Outliers", format!("rows of a log density below {}", short(threshold.log_density))));
    }
    if let Some(posterior) = &model.posterior {
        let used = posterior.used(1.0).len();
        values.push(("Posterior", format!("{used} of {} components have rows", m.n_components())));
    }
    if let Some(fit) = &model.fit {
        values.push(("Fitted to", count(usize::try_from(fit.n_rows).unwrap_or(usize::MAX), "row")));
        values.push(("Computed by", format!("{}, {}, seed {}", fit.engine, fit.precision, fit.seed)));
        values.extend(fit.rules.iter().map(|rule| ("Rule of the fit", rule.clone())));
    }
    values.push(("Report by", format!("gmm {}", env!("CARGO_PKG_VERSION"))));
    page.heading("Model");
    page.values(&values);
}

const fn what_a_kind_is(m: &Mixture) -> &'static str {
    match m.covariances() {
        _ if m.loadings().is_some() => "the columns of a component depend on each other by a few common factors",
        Covariances::Full(_) => "each component has its own spread in every direction",
        Covariances::Tied(_) => "all components have the same spread",
        Covariances::Diag(_) => "columns are independent within a component",
        Covariances::Spherical(_) => "a component has the same spread in all columns",
    }
}

/// How the fit went: criteria, warnings and trace.
pub(super) fn fit(page: &mut Page, model: &ModelFile) -> anyhow::Result<()> {
    page.heading("Fit");
    let Some(fit) = &model.fit else {
        page.paragraph("The model file has no record of a fit.");
        return warn(page, model);
    };
    let ended = if fit.converged { "converged" } else { "not converged" };
    let mut values = vec![
        ("Iterations", format!("{}, {ended} (tolerance {})", fit.iterations, gmm_model::number(fit.tol))),
        ("Log-likelihood", format!("{}, {} per row", fixed(fit.log_likelihood), short(fit.mean_log_likelihood))),
        ("BIC", fixed(fit.bic)),
        ("AIC", fixed(fit.aic)),
        ("ICL", fixed(fit.icl)),
    ];
    if let Some(bound) = fit.lower_bound {
        values.push(("Lower bound", format!("{} of the log evidence", fixed(bound))));
    }
    page.values(&values);
    page.paragraph(
        "The criteria BIC, AIC and ICL compare models of the same rows: the lowest is best. Their values alone say nothing.",
    );
    warn(page, model)?;
    if fit.trace.len() > 1 && fit.trace.iter().any(|v| v.is_finite()) {
        let picture = plot::trace::picture(&model.mixture, fit)?;
        let (first, last) = (fit.trace[0], fit.trace[fit.trace.len() - 1]);
        let name = format!("Log-likelihood per row, from {} to {}", short(first), short(last));
        let caption = "How well the model describes its rows after each iteration, and below it the change. A fit has \
                       converged when the change is below the tolerance.";
        page.figure(&picture, &name, caption);
    }
    Ok(())
}

fn warn(page: &mut Page, model: &ModelFile) -> anyhow::Result<()> {
    match &warnings(model)[..] {
        [] => page.paragraph("No warnings."),
        some => page.list(some),
    }
    Ok(())
}

/// What an analyst should know about the fit: the warnings of `gmm fit` that follow from the model.
fn warnings(model: &ModelFile) -> Vec<String> {
    let m = &model.mixture;
    let (k, d) = m.means().dim();
    let names = model.feature_names.as_deref();
    let empty: Vec<usize> = (0..k).filter(|&c| m.weights()[c] == 0.0).collect();
    let mut all = Vec::new();
    if let Some(fit) = &model.fit {
        if !fit.converged {
            all.push(Warning::NotConverged { iterations: fit.iterations });
        }
        let spikes = spikes(m, fit.reg_covar, &empty, &[]);
        if !spikes.is_empty() {
            all.push(Warning::Spikes { reg_covar: fit.reg_covar, spikes });
        }
    }
    if !empty.is_empty() {
        all.push(Warning::EmptyComponents { components: empty });
    }
    let mut out: Vec<String> = all.iter().map(|warning| crate::output::warning(warning, names)).collect();
    if let Some(fit) = &model.fit {
        let rows = |c: usize| m.weights()[c] * fit.n_rows as f64;
        let few: Vec<String> =
            (0..k).filter(|&c| rows(c) > 0.0 && rows(c) < (d + 1) as f64).map(|c| c.to_string()).collect();
        if !few.is_empty() {
            out.push(format!(
                "Components with fewer rows than columns: {}. Their shape is uncertain.",
                super::rows::first(&few, COLUMNS)
            ));
        }
    }
    out
}

/// Weights, means and standard deviations, and the strongest correlations.
pub(super) fn components(page: &mut Page, model: &ModelFile, names: &[String]) {
    let m = &model.mixture;
    let (k, d) = m.means().dim();
    let mut shown = by_weight(m);
    shown.truncate(COMPONENTS);
    shown.sort_unstable();
    let mut columns = telling_columns(m, COLUMNS);
    columns.sort_unstable();
    page.heading("Components");
    let mut cells: Vec<Vec<String>> =
        shown.iter().map(|&c| vec![c.to_string(), decimals(m.weights()[c] * of_components(model), 4)]).collect();
    let deviations: Vec<Vec<f64>> = shown.iter().map(|&c| render::deviations(m.covariances(), c, d)).collect();
    for &j in &columns {
        let pairs: Vec<(f64, f64)> = shown.iter().zip(&deviations).map(|(&c, sd)| (m.means()[[c, j]], sd[j])).collect();
        cells.iter_mut().zip(render::with_deviations(&pairs)).for_each(|(row, cell)| row.push(cell));
    }
    if let Some(clusters) = &model.clusters {
        cells.iter_mut().zip(&shown).for_each(|(row, &c)| row.push(clusters[c].to_string()));
    }
    let head = ["component", "weight"].map(str::to_owned).into_iter().chain(columns.iter().map(|&j| names[j].clone()));
    let head: Vec<String> = head.chain(model.clusters.iter().map(|_| "cluster".to_owned())).collect();
    page.table("Weight (share of the rows), and mean ± standard deviation of each column", &head, &cells);
    if shown.len() < k || columns.len() < d {
        page.paragraph(&format!(
            "The table has the {} of {k} components of largest weight, and the {} of {d} columns in which components differ \
             most. gmm show --all prints all.",
            shown.len(),
            columns.len()
        ));
    }
    if let Some(noise) = &model.noise {
        page.paragraph(&format!("Beside the components: {}.", render::noise(noise).trim_end()));
    }
    correlations(page, m, &shown, names);
}

/// The correlations of largest size, of all columns of the components shown.
fn correlations(page: &mut Page, m: &Mixture, shown: &[usize], names: &[String]) {
    let d = names.len();
    let components: &[usize] = match m.covariances() {
        Covariances::Full(_) => shown,
        // One covariance for all.
        Covariances::Tied(_) => &shown[..1],
        _ => return,
    };
    let mut strongest: Vec<(f64, [usize; 3])> = Vec::new();
    for &c in components {
        let sd = render::deviations(m.covariances(), c, d);
        for i in 0..d {
            for j in 0..i {
                strongest.push((entry(m.covariances(), c, i, j) / (sd[i] * sd[j]), [c, j, i]));
            }
        }
        strongest.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(&b.1)));
        strongest.truncate(CORRELATIONS);
    }
    if strongest.is_empty() {
        return;
    }
    let of = |c: usize| if components.len() < shown.len() { "all".to_owned() } else { c.to_string() };
    let row =
        |&(r, [c, i, j]): &(f64, [usize; 3])| vec![of(c), format!("{} and {}", names[i], names[j]), decimals(r, 3)];
    let rows: Vec<Vec<String>> = strongest.iter().map(row).collect();
    let head = ["component", "columns", "correlation"].map(str::to_owned);
    page.table("The strongest correlations within components, from −1 to 1", &head, &rows);
}

/// The share of the rows that are not noise.
fn of_components(model: &ModelFile) -> f64 {
    1.0 - model.noise.as_ref().map_or(0.0, |noise| noise.weight)
}

/// The components from the largest weight to the smallest.
fn by_weight(m: &Mixture) -> Vec<usize> {
    let mut order: Vec<usize> = (0..m.n_components()).collect();
    order.sort_by(|&a, &b| m.weights()[b].total_cmp(&m.weights()[a]));
    order
}

/// At most `most` columns in ascending order: those in which the components differ most, by the share of the variance that
/// lies between their means.
pub(super) fn telling_columns(m: &Mixture, most: usize) -> Vec<usize> {
    let (k, d) = m.means().dim();
    if d <= most {
        return (0..d).collect();
    }
    let mean = m.mean();
    let share = |j: usize| {
        let between = (0..k).map(|c| m.weights()[c] * (m.means()[[c, j]] - mean[j]).powi(2)).sum::<f64>();
        let within = (0..k).map(|c| m.weights()[c] * entry(m.covariances(), c, j, j)).sum::<f64>();
        between / (between + within)
    };
    let shares: Vec<f64> = (0..d).map(share).collect();
    let mut order: Vec<usize> = (0..d).collect();
    order.sort_by(|&i, &j| shares[j].total_cmp(&shares[i]));
    order.truncate(most);
    order.sort_unstable();
    order
}

/// The words of the report.
pub(super) fn words(page: &mut Page, has_rows: bool) {
    let mut words = vec![
        (
            "Component",
            "a group of rows that lie around a centre (the mean), with a spread (the standard deviations).".to_owned(),
        ),
        ("Weight", "the share of rows that a component has.".to_owned()),
        (
            "Correlation",
            "how two columns move together within a component: 1 together, −1 against each other.".to_owned(),
        ),
        ("Log-likelihood", "how well the model describes the rows: higher is better, for the same rows.".to_owned()),
    ];
    if has_rows {
        words.extend([
            ("Responsibility", "the probability that a row belongs to a component, given its values.".to_owned()),
            ("Log density", "how usual a row is under the model: the lower, the more unusual.".to_owned()),
        ]);
    }
    page.heading("Words");
    page.values(&words);
}
