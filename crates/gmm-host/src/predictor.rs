//! What a whole model computes of rows: a mixture, with noise, clusters or a posterior beside it.

use std::sync::Arc;

use gmm_model::bayes::Posterior;
use gmm_model::{Dataset, Mixture, ModelError, Noise, Precision};

use crate::{Data, Engine, Error, EvaluateOptions, Scorer, evaluate, memory, predictive_log_densities};

/// The parts of a model that say what is computed of a row.
#[derive(Clone, Debug)]
pub struct ModelParts {
    /// The mixture: `k` components in `d` dimensions.
    pub mixture: Mixture,
    /// Uniform noise beside it.
    pub noise: Option<Noise>,
    /// The cluster of each component, `(k,)`: the numbers from 0 on, without a gap.
    pub clusters: Option<Vec<usize>>,
    /// The posterior, if the model was fitted by variational Bayes.
    pub posterior: Option<Posterior>,
}

impl From<Mixture> for ModelParts {
    fn from(mixture: Mixture) -> Self {
        Self { mixture, noise: None, clusters: None, posterior: None }
    }
}

/// The outputs of [`Predictor::evaluate`] for `n` rows.
#[derive(Debug, Default)]
pub struct Predictions<'a> {
    /// Natural logarithms of the densities, `(n,)`; posterior predictive ones if the model has a posterior.
    pub log_densities: Option<&'a mut [f64]>,
    /// The component, or cluster, of largest responsibility, `(n,)`, the first among equals; −1 for noise.
    pub labels: Option<&'a mut [i32]>,
    /// Responsibilities, `(n, width)` in row-major order, of [`Predictor::width`] numbers a row.
    pub responsibilities: Option<&'a mut [f64]>,
}

/// A model and the engine that evaluates it, with the values of `gmm predict` and `gmm score`.
///
/// ```
/// use std::sync::Arc;
///
/// use gmm_host::{CpuEngine, Predictions, Predictor};
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![0.5, 0.5], array![[0.0], [4.0]], Covariances::Spherical(array![1.0, 1.0]))?;
/// let predictor = Predictor::new(Arc::new(CpuEngine::new(1)?), mixture.into(), Precision::F64, 1)?;
/// let mut labels = [0; 2];
/// let rows = Dataset::new(array![[3.5], [-1.0]])?;
/// predictor.evaluate(&rows, Predictions { labels: Some(&mut labels), ..Predictions::default() })?;
/// assert_eq!(labels, [1, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Predictor {
    parts: ModelParts,
    /// The mixture of labels and responsibilities if the model has a posterior: that of its E-step.
    expectation: Option<Mixture>,
    engine: Arc<dyn Engine>,
    precision: Precision,
    threads: usize,
    /// Evaluates rows without preparing the mixture anew, if the engine has one.
    scorer: Option<Box<dyn Scorer>>,
}

impl Predictor {
    /// Prepares a model. Posterior predictive densities are computed by `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// Errors if the posterior of the model has no expectation, or the noise does not belong to the mixture.
    pub fn new(
        engine: Arc<dyn Engine>,
        parts: ModelParts,
        precision: Precision,
        threads: usize,
    ) -> Result<Self, ModelError> {
        let expectation = parts.posterior.as_ref().map(|posterior| posterior.expectation()).transpose()?;
        let expectation = expectation.map(|found| found.mixture);
        if let Some(noise) = &parts.noise {
            noise.check(parts.mixture.n_features())?;
        }
        let scorer = engine.scorer(expectation.as_ref().unwrap_or(&parts.mixture), precision);
        Ok(Self { parts, expectation, engine, precision, threads, scorer })
    }

    /// The same model for evaluations in another precision.
    ///
    /// # Errors
    /// None for a model that has been prepared before.
    pub fn with_precision(&self, precision: Precision) -> Result<Self, ModelError> {
        Self::new(self.engine.clone(), self.parts.clone(), precision, self.threads)
    }

    /// Number of columns, `d`.
    pub fn n_features(&self) -> usize {
        self.parts.mixture.n_features()
    }

    /// Number of components, `k`.
    pub fn n_components(&self) -> usize {
        self.parts.mixture.n_components()
    }

    /// Number of responsibilities of a row: those of the components, or of the clusters if the model has some, and of the
    /// noise, the last, if it has some.
    pub fn width(&self) -> usize {
        let own = match &self.parts.clusters {
            Some(clusters) => clusters.iter().max().map_or(0, |most| most + 1),
            None => self.n_components(),
        };
        own + usize::from(self.parts.noise.is_some())
    }

    /// Evaluates rows, `(n, d)`.
    ///
    /// A row's results do not depend on other rows: any batch gives the same bits. Several threads may call at a time.
    ///
    /// Memory: `n*k` numbers if the model has noise or clusters and labels or responsibilities are asked for.
    ///
    /// # Errors
    /// Errors of the engine; [`Error::Missing`] for values missing in a model with noise, or for densities of a posterior.
    ///
    /// # Panics
    /// If the length of an output is not the stated one.
    pub fn evaluate(&self, data: &Dataset, out: Predictions<'_>) -> Result<(), Error> {
        self.evaluate_on(data, out, true)
    }

    /// As [`evaluate`](Self::evaluate), to the same bits, on the calling thread alone where the engine can: for callers that
    /// keep the cores busy with other work.
    ///
    /// # Errors
    /// As for [`evaluate`](Self::evaluate).
    ///
    /// # Panics
    /// As for [`evaluate`](Self::evaluate).
    pub fn evaluate_here(&self, data: &Dataset, out: Predictions<'_>) -> Result<(), Error> {
        self.evaluate_on(data, out, false)
    }

    fn evaluate_on(&self, data: &Dataset, out: Predictions<'_>, on_all_threads: bool) -> Result<(), Error> {
        let Predictions { mut log_densities, labels, responsibilities } = out;
        if let (Some(posterior), Some(slots)) = (&self.parts.posterior, &mut log_densities) {
            if data.has_missing() {
                return Err(Error::Missing { what: "a posterior predictive density" });
            }
            let found = predictive_log_densities(posterior, data, self.threads)?;
            slots.copy_from_slice(found.as_slice().expect("contiguous"));
            log_densities = None;
        }
        let out = Predictions { log_densities, labels, responsibilities };
        let ModelParts { noise, clusters, .. } = &self.parts;
        let is_plain = clusters.is_none() || (out.labels.is_none() && out.responsibilities.is_none());
        if noise.is_none() && is_plain {
            let Predictions { log_densities, labels, responsibilities } = out;
            if log_densities.is_none() && labels.is_none() && responsibilities.is_none() {
                return Ok(());
            }
            let labels = labels.map(bytemuck::cast_slice_mut);
            let responsibilities = responsibilities.map(Into::into);
            let want = EvaluateOptions { log_densities, responsibilities, labels };
            return self.of_mixture(data, want, on_all_threads);
        }
        self.with_sums(data, out, on_all_threads)
    }

    /// Evaluates the mixture of labels and responsibilities.
    fn of_mixture(&self, data: &Dataset, want: EvaluateOptions<'_>, on_all_threads: bool) -> Result<(), Error> {
        let mixture = self.expectation.as_ref().unwrap_or(&self.parts.mixture);
        match &self.scorer {
            Some(scorer) if !data.has_missing() && on_all_threads => scorer.evaluate(data, want)?,
            Some(scorer) if !data.has_missing() => scorer.evaluate_here(data, want)?,
            _ => evaluate::load(&*self.engine, mixture, data, self.precision)?.evaluate(mixture, want)?,
        };
        Ok(())
    }

    /// Outputs of a model with noise or clusters, from the responsibilities of the components.
    fn with_sums(&self, data: &Dataset, mut out: Predictions<'_>, on_all_threads: bool) -> Result<(), Error> {
        let ModelParts { noise, clusters, .. } = &self.parts;
        let (n, k, width) = (data.n_rows(), self.n_components(), self.width());
        if noise.is_some() {
            Data::from(data).require_exact("uniform noise")?;
        }
        let needs_all = out.labels.is_some() || out.responsibilities.is_some();
        memory::check("the responsibilities", 8 * n as u128 * (k as u128 + 1))?;
        let (mut densities, mut all) = (vec![0.0; n], vec![0.0; if needs_all { n * k } else { 0 }]);
        let want = EvaluateOptions {
            log_densities: Some(&mut densities),
            responsibilities: needs_all.then(|| (&mut all).into()),
            labels: None,
        };
        self.of_mixture(data, want, on_all_threads)?;
        let terms = noise.as_ref().map(Noise::terms);
        let mut sums = vec![0.0; width];
        for (i, &density) in densities.iter().enumerate() {
            let (log_density, of_noise, rest) = terms.map_or((density, 0.0, 1.0), |terms| terms.posterior(density));
            if let Some(slots) = &mut out.log_densities {
                slots[i] = log_density;
            }
            if !needs_all {
                continue;
            }
            sums.fill(0.0);
            for (c, r) in all[i * k..][..k].iter().enumerate() {
                sums[clusters.as_ref().map_or(c, |clusters| clusters[c])] += r * rest;
            }
            // Rounding may make a sum larger than 1; `min` would hide a NaN.
            sums.iter_mut().filter(|sum| **sum > 1.0).for_each(|sum| *sum = 1.0);
            if noise.is_some() {
                sums[width - 1] = of_noise;
            }
            if let Some(slots) = &mut out.labels {
                let best = (1..width).fold(0, |best, c| if sums[c] > sums[best] { c } else { best });
                slots[i] = if noise.is_some() && best == width - 1 { -1 } else { best as i32 };
            }
            if let Some(slots) = &mut out.responsibilities {
                slots[i * width..][..width].copy_from_slice(&sums);
            }
        }
        Ok(())
    }
}
