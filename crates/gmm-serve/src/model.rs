//! A model in memory: what it computes of rows, with the values of `gmm predict`, `gmm score`, `gmm outliers` and
//! `gmm impute`.

use std::sync::Arc;

use gmm_data::ModelFile;
use gmm_host::{Engine, EvaluateOptions, Scorer, impute, noise, predictive_log_densities};
use gmm_model::{Dataset, Mixture, Precision};
use ndarray::Array2;

use crate::Refusal;

/// What a request asks for, row by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outputs {
    pub(crate) labels: bool,
    pub(crate) responsibilities: bool,
    pub(crate) log_densities: bool,
    /// The rows with their missing values replaced by conditional means.
    pub(crate) conditional_means: bool,
}

impl Outputs {
    /// What either asks for.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self {
            labels: self.labels || other.labels,
            responsibilities: self.responsibilities || other.responsibilities,
            log_densities: self.log_densities || other.log_densities,
            conditional_means: self.conditional_means || other.conditional_means,
        }
    }
}

/// The results of `n` rows; an array that nobody asked for is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// `(n,)`; −1 is noise.
    pub(crate) labels: Vec<i32>,
    /// `(n, width)` in row-major order, of [`Model::width`] numbers a row.
    pub(crate) responsibilities: Vec<f64>,
    /// `(n,)`.
    pub(crate) log_densities: Vec<f64>,
    /// `(n, d)`.
    pub(crate) conditional_means: Vec<f64>,
}

/// A model and the engine that evaluates it.
pub(crate) struct Model {
    pub(crate) file: ModelFile,
    engine: Arc<dyn Engine>,
    precision: Precision,
    threads: usize,
    /// The mixture of labels and responsibilities if the model has a posterior: that of its E-step.
    expectation: Option<Mixture>,
    /// Evaluates rows without preparing the mixture anew; absent if the model has noise.
    scorer: Option<Box<dyn Scorer>>,
}

impl Model {
    /// # Errors
    /// Errors if the posterior of the model has no expectation.
    pub(crate) fn new(
        file: ModelFile,
        engine: Arc<dyn Engine>,
        precision: Precision,
        threads: usize,
    ) -> Result<Self, gmm_model::ModelError> {
        let expectation = file.posterior.as_ref().map(|posterior| posterior.expectation()).transpose()?;
        let expectation = expectation.map(|found| found.mixture);
        let scorer = match &file.noise {
            Some(_) => None,
            None => engine.scorer(expectation.as_ref().unwrap_or(&file.mixture), precision),
        };
        Ok(Self { file, engine, precision, threads, expectation, scorer })
    }

    /// Number of columns, `d`.
    pub(crate) fn n_features(&self) -> usize {
        self.file.mixture.n_features()
    }

    /// Number of responsibilities of a row: those of the components, or of the clusters if the model has some, and of the
    /// noise if it has some.
    pub(crate) fn width(&self) -> usize {
        let own = match &self.file.clusters {
            Some(clusters) => clusters.iter().max().map_or(0, |most| most + 1),
            None => self.file.mixture.n_components(),
        };
        own + usize::from(self.file.noise.is_some())
    }

    /// Approximate floating-point operations for one row.
    pub(crate) fn work_of_a_row(&self) -> usize {
        let (k, d) = (self.file.mixture.n_components(), self.n_features());
        let of_component = match self.file.mixture.covariances() {
            gmm_model::Covariances::Full(_) | gmm_model::Covariances::Tied(_) => d * (d + 1),
            gmm_model::Covariances::Diag(_) | gmm_model::Covariances::Spherical(_) => 4 * d,
        };
        k * (of_component + 40)
    }

    /// Evaluates rows, `(n, d)`; missing values are NaN.
    ///
    /// A row's results do not depend on other rows: any batch gives the same bits.
    ///
    /// # Errors
    /// Errors of the engine; values missing in a model with noise or a posterior.
    pub(crate) fn evaluate(&self, rows: Vec<f64>, outputs: Outputs) -> Result<Results, Refusal> {
        let (n, d) = (rows.len() / self.n_features(), self.n_features());
        let rows = Array2::from_shape_vec((n, d), rows).map_err(|e| Refusal::fault(e.to_string()))?;
        let data = Dataset::with_holes(rows)?;
        let mut results = Results::default();
        if outputs.conditional_means {
            let how = impute::Imputation::Mean;
            let filled = impute::impute(&*self.engine, &self.file.mixture, &data, self.precision, how)?;
            results.conditional_means = filled.into_raw_vec_and_offset().0;
        }
        if outputs.log_densities
            && let Some(posterior) = &self.file.posterior
        {
            if data.has_missing() {
                return Err(gmm_host::Error::Missing { what: "a posterior predictive density" }.into());
            }
            results.log_densities =
                predictive_log_densities(posterior, &data, self.threads)?.into_raw_vec_and_offset().0;
        }
        self.passes(&data, outputs, &mut results)?;
        Ok(results)
    }

    /// Writes labels, responsibilities and, unless they are there, log densities.
    fn passes(&self, data: &Dataset, outputs: Outputs, results: &mut Results) -> Result<(), Refusal> {
        let mixture = self.expectation.as_ref().unwrap_or(&self.file.mixture);
        let wants_densities = outputs.log_densities && self.file.posterior.is_none();
        if !(wants_densities || outputs.labels || outputs.responsibilities) {
            return Ok(());
        }
        let (n, k) = (data.n_rows(), mixture.n_components());
        if let Some(noise) = &self.file.noise {
            let (densities, all, _) = noise::evaluate(&*self.engine, mixture, noise, data, self.precision)?;
            if wants_densities {
                results.log_densities = densities.into_raw_vec_and_offset().0;
            }
            self.deliver(all.into_raw_vec_and_offset().0, k + 1, outputs, results);
            return Ok(());
        }
        let needs_all = outputs.responsibilities || (outputs.labels && self.file.clusters.is_some());
        let mut densities = vec![0.0; if wants_densities { n } else { 0 }];
        let mut all = vec![0.0; if needs_all { n * k } else { 0 }];
        let mut labels = vec![0; if outputs.labels && self.file.clusters.is_none() { n } else { 0 }];
        let want = EvaluateOptions {
            log_densities: wants_densities.then_some(&mut densities),
            responsibilities: needs_all.then(|| (&mut all).into()),
            labels: (!labels.is_empty()).then_some(&mut labels),
        };
        match &self.scorer {
            Some(scorer) if !data.has_missing() => scorer.evaluate(data, want)?,
            _ => gmm_host::evaluate::load(&*self.engine, mixture, data, self.precision)?.evaluate(mixture, want)?,
        };
        if wants_densities {
            results.log_densities = densities;
        }
        if self.file.clusters.is_some() {
            self.deliver(all, k, outputs, results);
        } else {
            results.labels = labels.into_iter().map(|label| label as i32).collect();
            results.responsibilities = all;
        }
        Ok(())
    }

    /// Responsibilities and labels of clusters, if the model has some, from those of components, `(n, columns)`; the last of
    /// more than `k` columns is the noise.
    fn deliver(&self, all: Vec<f64>, columns: usize, outputs: Outputs, results: &mut Results) {
        let (width, has_noise) = (self.width(), self.file.noise.is_some());
        let sums = match &self.file.clusters {
            None => all,
            Some(clusters) => {
                let mut sums = vec![0.0; all.len() / columns * width];
                for (sums, row) in sums.chunks_exact_mut(width).zip(all.chunks_exact(columns)) {
                    row.iter().zip(clusters).for_each(|(r, &cluster)| sums[cluster] += r);
                    if has_noise {
                        sums[width - 1] = row[columns - 1];
                    }
                }
                sums
            }
        };
        if outputs.labels {
            let label = |row: &[f64]| {
                let best = (1..width).fold(0, |best, c| if row[c] > row[best] { c } else { best });
                if has_noise && best == width - 1 { -1 } else { best as i32 }
            };
            results.labels = sums.chunks_exact(width).map(label).collect();
        }
        if outputs.responsibilities {
            results.responsibilities = sums;
        }
    }
}
