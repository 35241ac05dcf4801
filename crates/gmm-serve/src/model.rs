//! A model in memory: what it computes of rows, with the values of `gmm predict`, `gmm score`, `gmm outliers` and
//! `gmm impute`.

use std::sync::Arc;

use gmm_data::ModelFile;
use gmm_host::{Engine, ModelParts, Predictions, Predictor, impute};
use gmm_model::{Dataset, Precision, RowArray};

use crate::Refusal;
use crate::tensor::Elements;

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

/// What says what is computed of a row.
fn parts(file: &ModelFile) -> ModelParts {
    let ModelFile { mixture, noise, clusters, posterior, .. } = file.clone();
    ModelParts { mixture, noise, clusters, posterior }
}

/// A model and the engine that evaluates it.
pub(crate) struct Model {
    pub(crate) file: ModelFile,
    engine: Arc<dyn Engine>,
    precision: Precision,
    predictor: Predictor,
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
        let predictor = Predictor::new(engine.clone(), parts(&file), precision, threads)?;
        Ok(Self { file, engine, precision, predictor })
    }

    /// Number of columns, `d`.
    pub(crate) fn n_features(&self) -> usize {
        self.file.mixture.n_features()
    }

    /// Number of responsibilities of a row.
    pub(crate) fn width(&self) -> usize {
        self.predictor.width()
    }

    /// Whether the log density of a row that is not finite is not finite either. Noise has the same density everywhere within
    /// its bounds.
    pub(crate) const fn density_tells_finite(&self) -> bool {
        self.file.noise.is_none()
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

    /// Evaluates rows, `(n, d)`, which are finite, or NaN for missing values if `has_missing`.
    ///
    /// A row's results do not depend on other rows: any batch gives the same bits. Unless `on_all_threads`, the calling
    /// thread works by itself.
    ///
    /// # Errors
    /// Errors of the engine; values missing in a model with noise or a posterior.
    pub(crate) fn evaluate(
        &self,
        rows: Elements,
        has_missing: bool,
        outputs: Outputs,
        on_all_threads: bool,
    ) -> Result<Results, Refusal> {
        let (n, d) = (rows.len() / self.n_features(), self.n_features());
        let rows = RowArray::shared(Arc::new(rows), (n, d)).map_err(|e| Refusal::fault(e.to_string()))?;
        // They were looked at when they came, or will be if a density says so.
        let data = if has_missing { Dataset::with_holes(rows) } else { Dataset::unread(rows) }?;
        let mut results = Results::default();
        if outputs.conditional_means {
            let how = impute::Imputation::Mean;
            let filled = impute::impute(&*self.engine, &self.file.mixture, &data, self.precision, how)?;
            results.conditional_means = filled.into_raw_vec_and_offset().0;
        }
        let numbers = |wanted: bool, len: usize| vec![0.0; if wanted { len } else { 0 }];
        results.log_densities = numbers(outputs.log_densities, n);
        results.responsibilities = numbers(outputs.responsibilities, n * self.width());
        results.labels = vec![0; if outputs.labels { n } else { 0 }];
        let out = Predictions {
            log_densities: outputs.log_densities.then_some(&mut results.log_densities),
            labels: outputs.labels.then_some(&mut results.labels),
            responsibilities: outputs.responsibilities.then_some(&mut results.responsibilities),
        };
        if on_all_threads {
            self.predictor.evaluate(&data, out)?;
        } else {
            self.predictor.evaluate_here(&data, out)?;
        }
        Ok(results)
    }
}
