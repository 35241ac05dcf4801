//! The sections of a report about rows: their groups, the rows of doubtful group, and the least likely rows.

use gmm_data::ModelFile;
use gmm_host::{Engine, noise, predictive_log_densities};
use gmm_model::{Dataset, Mixture, Precision, reference};
use ndarray::{Array1, Array2};

use super::html::Page;
use super::{count, percent};
use crate::predict::{self, AT_ONCE};
use crate::render::{decimals, fixed, short};

/// Rows that are listed by number.
const LISTED: usize = 12;
/// Columns of a listed row.
const COLUMNS: usize = 12;
/// A row whose largest responsibility is below this is of doubtful group.
const SURE: f64 = 0.8;

/// What a report says about rows.
pub(super) struct Findings {
    /// Log density of each row, ascending.
    densities: Vec<f64>,
    /// Rows of each group by largest responsibility: components or clusters, then noise if the model has some.
    rows: Vec<usize>,
    /// The sums of responsibilities of each group.
    sums: Vec<f64>,
    /// Number of rows of doubtful group.
    n_doubtful: usize,
    /// The rows of smallest largest responsibility, the least first.
    doubtful: Vec<Row>,
    /// The rows of smallest log density, the least first.
    unlikely: Vec<Row>,
}

/// A row that is listed.
struct Row {
    index: usize,
    /// What it is listed by.
    value: f64,
    log_density: f64,
    responsibilities: Vec<f64>,
}

impl Findings {
    /// Evaluates the rows, a part at a time: only log densities are kept of all of them.
    ///
    /// # Errors
    /// As for the evaluation of rows; and without memory for 8 bytes a row.
    pub(super) fn of(
        model: &ModelFile,
        data: &Dataset,
        (engine, precision, threads): (&dyn Engine, Precision, usize),
    ) -> anyhow::Result<Self> {
        let (n, k) = (data.n_rows(), model.mixture.n_components());
        // Of a posterior the responsibilities are those of its E-step, and the densities predictive.
        let expectation = model.posterior.as_ref().map(|posterior| posterior.expectation()).transpose()?;
        let mixture = expectation.as_ref().map_or(&model.mixture, |expectation| &expectation.mixture);
        let width = model.clusters.as_deref().map_or(k, predict::count) + usize::from(model.noise.is_some());
        let mut found = Self {
            densities: Vec::with_capacity(n),
            rows: vec![0; width],
            sums: vec![0.0; width],
            n_doubtful: 0,
            doubtful: Vec::new(),
            unlikely: Vec::new(),
        };
        let at_once = (AT_ONCE / k).max(1);
        for first in (0..n).step_by(at_once) {
            let chunk = data.part(first..n.min(first + at_once));
            let (mut densities, responsibilities) = evaluate(engine, (model, mixture), &chunk, precision)?;
            if let Some(posterior) = &model.posterior {
                densities = predictive_log_densities(posterior, &chunk, threads)?;
            }
            found.add(first, &densities, &responsibilities);
        }
        found.densities.sort_by(f64::total_cmp);
        Ok(found)
    }

    fn add(&mut self, first: usize, densities: &Array1<f64>, responsibilities: &Array2<f64>) {
        for (i, (&log_density, own)) in densities.iter().zip(responsibilities.outer_iter()).enumerate() {
            let best = reference::argmax(own);
            self.rows[best] += 1;
            self.sums.iter_mut().zip(own).for_each(|(sum, r)| *sum += r);
            self.densities.push(log_density);
            let row = |value| Row { index: first + i, value, log_density, responsibilities: own.to_vec() };
            if own[best] < SURE {
                self.n_doubtful += 1;
                keep(&mut self.doubtful, own[best], row);
            }
            keep(&mut self.unlikely, log_density, row);
        }
    }

    fn n(&self) -> usize {
        self.densities.len()
    }

    fn mean(&self) -> f64 {
        self.densities.iter().sum::<f64>() / self.n() as f64
    }

    /// Number of rows below the model's threshold, if it has one.
    fn n_outliers(&self, model: &ModelFile) -> Option<usize> {
        let threshold = model.outliers.as_ref()?;
        Some(self.densities.iter().filter(|v| threshold.is_outlier(**v)).count())
    }

    /// The rows in plain sentences.
    pub(super) fn summary(&self, model: &ModelFile, source: &str) -> Vec<String> {
        let n = self.n();
        let mut out = vec![match self.n_doubtful {
            0 => format!("Each of the {n} rows of {source} has a clear group."),
            doubtful => format!(
                "Of the {n} rows of {source}, {doubtful} ({}) have no clear group: no group has a probability of {} for them.",
                percent(doubtful as f64 / n as f64),
                percent(SURE)
            ),
        }];
        if let Some(outliers) = self.n_outliers(model) {
            out.push(format!("{outliers} of {n} rows are outliers by the threshold of the model."));
        }
        if let Some(least) = self.unlikely.first() {
            out.push(format!("The most unusual row is row {}, counted from 0.", least.index));
        }
        out
    }

    /// The sections about the rows.
    pub(super) fn sections(&self, page: &mut Page, model: &ModelFile, data: &Dataset, source: &str, names: &[String]) {
        let n = self.n();
        page.heading("Rows");
        let quantile = |share: f64| self.densities[((n - 1) as f64 * share).round() as usize];
        let mut values = vec![
            ("File", source.to_owned()),
            ("Rows", n.to_string()),
            ("Log-likelihood", fixed(self.mean() * n as f64)),
            ("Mean log density", short(self.mean())),
            ("Median", short(quantile(0.5))),
            ("Lowest 1 % below", short(quantile(0.01))),
        ];
        let exact_fit = model.fit.as_ref().filter(|fit| !fit.rules.iter().any(|rule| is_of_limits(rule)));
        if let Some(fit) = exact_fit {
            values.push(("Mean of the fit", short(fit.mean_log_likelihood)));
        }
        if let Some(outliers) = self.n_outliers(model) {
            values.push(("Outliers", format!("{outliers}, {}", percent(outliers as f64 / n as f64))));
        }
        page.values(&values);
        if exact_fit.is_none() && model.fit.is_some() {
            page.paragraph(
                "The model was fitted to rows known within limits. Here all values count as exact, so these numbers cannot be \
                 compared with those of the fit.",
            );
        }
        if exact_fit.is_some() {
            page.paragraph(
                "If the mean log density is much lower than that of the fit, these rows are unlike those that the model \
                 was fitted to.",
            );
        }
        let group = if model.clusters.is_some() { "cluster" } else { "component" };
        let head = [group, "rows", "share", "sum of responsibilities"].map(str::to_owned);
        let rows: Vec<Vec<String>> = (0..self.rows.len())
            .map(|c| {
                let share = self.rows[c] as f64 / n as f64;
                vec![self.name(model, c), self.rows[c].to_string(), percent(share), decimals(self.sums[c], 1)]
            })
            .collect();
        let (listed, rest) = rows.split_at(rows.len().min(100));
        page.table("Rows by their most likely group", &head, listed);
        if !rest.is_empty() {
            page.paragraph(&format!("{} more are left out.", count(rest.len(), "group")));
        }
        page.heading("Rows of doubtful group");
        if self.doubtful.is_empty() {
            page.paragraph(&format!("Each row has a group of a probability of at least {}.", percent(SURE)));
        } else {
            let caption = format!(
                "{}, the most doubtful first; rows count from 0",
                listing(self.doubtful.len(), self.n_doubtful)
            );
            self.list(page, &caption, &self.doubtful, model, data, names);
        }
        page.heading("Least likely rows");
        page.paragraph(
            "These rows are the most unusual under the model. They may be errors, or rows of a kind that the model does not \
             know.",
        );
        let caption = format!("{}, the least likely first; rows count from 0", listing(self.unlikely.len(), n));
        self.list(page, &caption, &self.unlikely, model, data, names);
    }

    /// The name of a group.
    fn name(&self, model: &ModelFile, group: usize) -> String {
        match model.noise {
            Some(_) if group + 1 == self.rows.len() => "noise".to_owned(),
            _ => group.to_string(),
        }
    }

    fn list(&self, page: &mut Page, caption: &str, rows: &[Row], model: &ModelFile, data: &Dataset, names: &[String]) {
        let shown = names.len().min(COLUMNS);
        let mut head = vec!["row".to_owned(), "log density".to_owned()];
        if model.outliers.is_some() {
            head.push("outlier".to_owned());
        }
        head.push("responsibilities".to_owned());
        head.extend_from_slice(&names[..shown]);
        let cells = |row: &Row| {
            let mut cells = vec![row.index.to_string(), short(row.log_density)];
            if let Some(threshold) = &model.outliers {
                cells.push(if threshold.is_outlier(row.log_density) { "yes" } else { "no" }.to_owned());
            }
            cells.push(self.responsibilities(model, &row.responsibilities));
            cells.extend((0..shown).map(|j| short_value(data.rows().at(row.index, j))));
            cells
        };
        page.table(caption, &head, &rows.iter().map(cells).collect::<Vec<_>>());
        if shown < names.len() {
            page.paragraph(&format!("The table has the first {shown} of {} columns.", names.len()));
        }
    }

    /// The largest three responsibilities, as `group: probability`.
    fn responsibilities(&self, model: &ModelFile, all: &[f64]) -> String {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&a, &b| all[b].total_cmp(&all[a]));
        let listed = order.iter().take(3).filter(|&&c| all[c] >= 5e-4 || c == order[0]);
        let words: Vec<String> = listed.map(|&c| format!("{}: {:.3}", self.name(model, c), all[c])).collect();
        words.join(", ")
    }
}

/// Whether a line of a fit's record is about limits, under which log densities have another meaning.
fn is_of_limits(rule: &str) -> bool {
    rule.ends_with("known within limits") || rule.starts_with("rows truncated")
}

/// Log densities, and the responsibilities of groups.
fn evaluate(
    engine: &dyn Engine,
    (model, mixture): (&ModelFile, &Mixture),
    data: &Dataset,
    precision: Precision,
) -> anyhow::Result<(Array1<f64>, Array2<f64>)> {
    let (densities, all) = match &model.noise {
        Some(noise) => {
            let (densities, all, _) = noise::evaluate(engine, mixture, noise, data, precision)?;
            (densities, all)
        }
        None => {
            let mut rows = gmm_host::evaluate::load(engine, mixture, data, precision)?;
            let (densities, _) = gmm_host::evaluate::log_densities_of(rows.as_mut(), mixture)?;
            (densities, gmm_host::evaluate::responsibilities_of(rows.as_mut(), mixture)?)
        }
    };
    let all = match &model.clusters {
        Some(clusters) => predict::summed(&all, clusters),
        None => all,
    };
    Ok((densities, all))
}

/// Keeps the [`LISTED`] rows of smallest value, the least first; of equal values those that came first.
fn keep(rows: &mut Vec<Row>, value: f64, row: impl FnOnce(f64) -> Row) {
    if rows.len() == LISTED && rows.last().is_some_and(|last| last.value <= value) {
        return;
    }
    let at = rows.partition_point(|other| other.value <= value);
    rows.insert(at, row(value));
    rows.truncate(LISTED);
}

fn listing(listed: usize, all: usize) -> String {
    if listed == all { count(all, "row") } else { format!("{listed} of {all} rows") }
}

/// A value of a row: all its digits if they are few.
fn short_value(value: f64) -> String {
    let text = gmm_model::number(value);
    if text.len() <= 9 { text } else { short(value) }
}

/// The first words of a list, and how many more there are.
pub(super) fn first(words: &[String], most: usize) -> String {
    match words.len() {
        n if n > most => format!("{}, .. and {} more", words[..most].join(", "), n - most),
        _ => words.join(", "),
    }
}
