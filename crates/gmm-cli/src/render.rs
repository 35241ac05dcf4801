//! A mixture and its fit as short aligned text, with column names.

use gmm_data::ModelFile;
use gmm_model::bayes::Posterior;
use gmm_model::{
    CovarianceType, Covariances, FactorLoadings, FitSummary, Noise, NoiseRegion, number, shown, three_digits,
};

use crate::output::paint;

/// Maximum number of components and columns printed without `--all`.
const COMPONENTS: usize = 12;
const COLUMNS: usize = 24;
/// Correlations are printed up to this many columns: 6 pairs.
const CORRELATED: usize = 4;
/// Width of a table line in characters.
const WIDTH: usize = 100;
/// Width of the sparkline in characters.
const SPARKS: usize = 32;

/// A heading and a table of weights, means and standard deviations with one column per component; also correlations if
/// there are few columns.
pub(crate) fn mixture(model: &ModelFile, all: bool, colour: bool) -> String {
    let m = &model.mixture;
    let (k, d) = (m.n_components(), m.n_features());
    let (shown_k, shown_d) = if all { (k, d) } else { (k.min(COMPONENTS), d.min(COLUMNS)) };
    let plural = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
    let heading = format!(
        "Gaussian mixture: {}, {}, {}",
        plural(k, "component"),
        plural(d, "column"),
        match m.covariance_model().factors {
            Some(h) => format!("covariances of {}", plural(h, "factor")),
            None => format!("{} covariances", m.covariance_type()),
        }
    );
    let names: Vec<String> = (0..d).map(|j| name(model, j)).collect();
    let deviations: Vec<Vec<f64>> = (0..shown_k).map(|c| deviations(m.covariances(), c, d)).collect();

    let mut rows = vec![("component".to_owned(), (0..shown_k).map(|c| c.to_string()).collect::<Vec<_>>())];
    rows.push(("weight".to_owned(), (0..shown_k).map(|c| decimals(m.weights()[c], 4)).collect()));
    for j in 0..shown_d {
        let pairs: Vec<(f64, f64)> = (0..shown_k).map(|c| (m.means()[[c, j]], deviations[c][j])).collect();
        rows.push((names[j].clone(), with_deviations(&pairs)));
    }
    if (2..=if all { d } else { CORRELATED }).contains(&d)
        && matches!(m.covariance_type(), CovarianceType::Full | CovarianceType::Tied)
    {
        for i in 0..d {
            for j in 0..i {
                let cells = (0..shown_k).map(|c| {
                    let covariance = entry(m.covariances(), c, i, j);
                    decimals(covariance / (deviations[c][i] * deviations[c][j]), 3)
                });
                rows.push((format!("r({}, {})", names[j], names[i]), cells.collect()));
            }
        }
    }
    let mut out = format!("{}\n\n{}", paint(colour, "1", &heading), table(&rows, colour));
    if let Some(noise) = &model.noise {
        out += &format!("\n{}", self::noise(noise));
    }
    let mut hidden = Vec::new();
    if shown_k < k {
        hidden.push(plural(k - shown_k, "more component"));
    }
    if shown_d < d {
        hidden.push(plural(d - shown_d, "more column"));
    }
    if !hidden.is_empty() {
        out += &format!("\n.. and {}: see gmm show --all\n", hidden.join(", "));
    }
    out
}

/// A table of the factors of each component: loadings in standard deviations of their column, which are the correlations of
/// column and factor, and uniquenesses as shares of the variances. Empty without factors.
pub(crate) fn factors(model: &ModelFile, all: bool, colour: bool) -> String {
    let m = &model.mixture;
    let Some(FactorLoadings { loadings, uniquenesses }) = m.loadings() else { return String::new() };
    let (k, d, h) = loadings.dim();
    let (k, d) = if all { (k, d) } else { (k.min(COMPONENTS), d.min(COLUMNS)) };
    let mut rows = vec![("component".to_owned(), (0..k).map(|c| c.to_string()).collect::<Vec<_>>())];
    for e in 0..h {
        for j in 0..d {
            let cell = |c: usize| decimals(loadings[[c, j, e]] / entry(m.covariances(), c, j, j).sqrt(), 3);
            rows.push((format!("factor {e}: {}", name(model, j)), (0..k).map(cell).collect()));
        }
    }
    for j in 0..d {
        let cell = |c: usize| decimals(uniquenesses[[c, j]] / entry(m.covariances(), c, j, j), 3);
        rows.push((format!("uniqueness: {}", name(model, j)), (0..k).map(cell).collect()));
    }
    table(&rows, colour)
}

/// The weight and volume of noise. The weights of the components are those of a row that is not noise.
pub(crate) fn noise(noise: &Noise) -> String {
    let region = match &noise.region {
        None => "a given volume",
        Some(NoiseRegion { rotation: None, .. }) => "a box along the columns",
        Some(_) => "a box along the principal axes",
    };
    format!(
        "noise: weight {}, uniform over {region}, log volume {}\n",
        decimals(noise.weight, 4),
        short(noise.log_volume)
    )
}

/// The components of each cluster, a line per cluster.
pub(crate) fn clusters(clusters: &[usize]) -> String {
    let count = clusters.iter().max().map_or(0, |most| most + 1);
    let lines = (0..count).map(|cluster| {
        let members = clusters.iter().enumerate().filter(|(_, of)| **of == cluster).map(|(c, _)| c.to_string());
        format!("cluster {cluster}: components {}\n", members.collect::<Vec<_>>().join(", "))
    });
    lines.collect()
}

/// The components that a posterior uses, with their rows.
pub(crate) fn posterior(posterior: &Posterior) -> String {
    let (used, counts) = (posterior.used(1.0), posterior.counts());
    let each: Vec<String> = used.iter().map(|&c| format!("{c}: {}", three_digits(counts[c]))).collect();
    let (k, effective) = (counts.len(), posterior.effective_components());
    format!("posterior       {} of {k} components have rows, as many as {effective:.2} of equal weight\n", used.len())
        + &format!("rows            {}\n", each.join(", "))
}

/// The summary of a fit. `engine`, if given, replaces the shorter description of the engine in the summary.
pub(crate) fn fit(summary: &FitSummary, engine: Option<&str>, elapsed: Option<std::time::Duration>) -> String {
    let s = summary;
    let ended = if s.converged {
        format!("converged (change below {})", number(s.tol))
    } else {
        format!("not converged (tol {})", number(s.tol))
    };
    let engine = engine.map_or_else(|| shown(&format!("{}, {}", s.engine, s.precision)).into_owned(), str::to_owned);
    let mut lines = vec![
        (
            "log-likelihood",
            format!("{} ({} per row, {} rows)", fixed(s.log_likelihood), short(s.mean_log_likelihood), s.n_rows),
        ),
        ("criteria", format!("BIC {}, AIC {}, ICL {}", fixed(s.bic), fixed(s.aic), fixed(s.icl))),
        ("iterations", format!("{}, {ended}", s.iterations)),
    ];
    if let [first, .., last] = s.trace[..] {
        lines.push(("trace", format!("{} {} → {}", sparkline(&s.trace), short(first), short(last))));
    }
    if let Some(bound) = s.lower_bound {
        lines.push(("lower bound", format!("{} of the log evidence", fixed(bound))));
    }
    // From a file, perhaps: control characters are not printed.
    lines.extend(s.rules.iter().map(|rule| ("rule", shown(rule).into_owned())));
    lines.push(("engine", engine));
    if let Some(elapsed) = elapsed {
        lines.push(("time", format!("{elapsed:.3?}")));
    }
    lines.iter().map(|(label, text)| format!("{label:<16}{text}\n")).collect()
}

/// The name of column `j`, or its index.
pub(crate) fn name(model: &ModelFile, j: usize) -> String {
    model.feature_names.as_ref().map_or_else(|| format!("column {j}"), |names| shown(&names[j]).into_owned())
}

/// Formats a log-likelihood or criterion with three decimals; from 1e12 in scientific notation, since an `f64` has no
/// more digits.
pub(crate) fn fixed(value: f64) -> String {
    if value.abs() < 1e12 { decimals(value, 3) } else { format!("{value:.9e}") }
}

/// A number with `n` decimals, or with three significant digits if it would be rounded to 0.
pub(crate) fn decimals(value: f64, n: usize) -> String {
    if value.abs() < 0.5 * 0.1f64.powi(n as i32) { three_digits(value) } else { format!("{value:.n$}") }
}

/// A number to about seven digits.
pub(crate) fn short(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return number(value);
    }
    let magnitude = value.abs().log10().floor() as i32;
    match magnitude {
        -4..=8 => format!("{value:.*}", usize::try_from(6 - magnitude).unwrap_or(0)),
        _ => format!("{value:.6e}"),
    }
}

/// A trace as a row of block characters, scaled from its lowest to its highest value.
pub(crate) fn sparkline(trace: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let finite = || trace.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    let points = trace.len().min(SPARKS);
    (0..points)
        .map(|i| {
            // The first and the last value are always shown.
            let at = if points > 1 { i * (trace.len() - 1) / (points - 1) } else { 0 };
            let height = (trace[at] - low) / (high - low);
            BLOCKS[if height.is_finite() { (height * 7.0).round() as usize } else { 0 }.min(7)]
        })
        .collect()
}

/// The standard deviations of component `c`, `(d,)`.
pub(crate) fn deviations(covariances: &Covariances, c: usize, d: usize) -> Vec<f64> {
    (0..d).map(|j| entry(covariances, c, j, j).sqrt()).collect()
}

/// Entry `(i, j)` of the covariance of component `c`.
pub(crate) fn entry(covariances: &Covariances, c: usize, i: usize, j: usize) -> f64 {
    match covariances {
        Covariances::Full(a) => a[[c, i, j]],
        Covariances::Tied(a) => a[[i, j]],
        Covariances::Diag(a) if i == j => a[[c, i]],
        Covariances::Spherical(a) if i == j => a[c],
        _ => 0.0,
    }
}

/// `mean ± deviation` for one column, with the number of decimals at which the smallest deviation has three significant
/// digits.
pub(crate) fn with_deviations(pairs: &[(f64, f64)]) -> Vec<String> {
    let smallest = pairs.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let largest = pairs.iter().map(|p| p.0.abs().max(p.1)).fold(0.0, f64::max);
    let decimals = 2.0 - smallest.log10().floor();
    if largest >= 1e9 || decimals > 8.0 || decimals.is_nan() {
        let mean = |v: f64| if v == 0.0 { number(v) } else { format!("{v:.8e}") };
        return pairs.iter().map(|&(m, sd)| format!("{} ± {sd:.2e}", mean(m))).collect();
    }
    let decimals = decimals.max(0.0) as usize;
    let width = pairs.iter().map(|(_, sd)| format!("{sd:.decimals$}").len()).max().unwrap_or(0);
    pairs.iter().map(|(mean, sd)| format!("{mean:.decimals$} ± {sd:width$.decimals$}")).collect()
}

/// A table with a bold first row and right-aligned cells; columns beyond [`WIDTH`] continue in further blocks.
fn table(rows: &[(String, Vec<String>)], colour: bool) -> String {
    let length = |text: &str| text.chars().count();
    let label = rows.iter().map(|(label, _)| length(label)).max().unwrap_or(0);
    let columns = rows[0].1.len();
    let widths: Vec<usize> =
        (0..columns).map(|c| rows.iter().map(|(_, cells)| length(&cells[c])).max().unwrap_or(0)).collect();
    let mut out = String::new();
    let mut first = 0;
    while first < columns {
        let mut last = first;
        let mut used = label;
        while last < columns && (last == first || used + 3 + widths[last] <= WIDTH) {
            used += 3 + widths[last];
            last += 1;
        }
        if first > 0 {
            out.push('\n');
        }
        for (i, (name, cells)) in rows.iter().enumerate() {
            let pad = " ".repeat(label - length(name));
            let mut line = format!("{name}{pad}");
            for c in first..last {
                line += &format!("   {}{}", " ".repeat(widths[c] - length(&cells[c])), cells[c]);
            }
            out += &paint(colour && i == 0, "1", &line);
            out.push('\n');
        }
        first = last;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_first_and_the_last_value() {
        let line: Vec<char> = sparkline(&(0..1000).map(f64::from).collect::<Vec<_>>()).chars().collect();
        assert_eq!((line.len(), line[0], line[31]), (SPARKS, '▁', '█'));
        assert_eq!(sparkline(&[1.0, 1.0]), "▁▁");
        assert_eq!(sparkline(&[f64::NEG_INFINITY, 0.0, 1.0]).chars().count(), 3);
    }

    #[test]
    fn a_mean_has_the_decimals_that_its_deviation_asks_for() {
        assert_eq!(with_deviations(&[(4.28966, 0.41236), (2.03639, 0.26283)]), ["4.290 ± 0.412", "2.036 ± 0.263"]);
        assert_eq!(with_deviations(&[(79.968, 5.999), (54.478, 15.82)]), ["79.97 ±  6.00", "54.48 ± 15.82"]);
        assert_eq!(with_deviations(&[(1e8, 1.0)]), ["100000000.00 ± 1.00"]);
        assert_eq!(with_deviations(&[(1e-200, 1e-3)]), ["0.00000 ± 0.00100"]);
        assert_eq!(with_deviations(&[(1e200, 1e199)]), ["1.00000000e200 ± 1.00e199"]);
    }

    #[test]
    fn short_numbers_have_seven_digits() {
        assert_eq!(short(-4.155_381_9), "-4.155382");
        assert_eq!(short(0.000_123_456_789), "0.0001234568");
        assert_eq!(short(1e20), "1.000000e20");
        assert_eq!(short(f64::NEG_INFINITY), "-inf");
    }
}
