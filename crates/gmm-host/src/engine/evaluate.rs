//! Densities, responsibilities and likelihoods of resident rows.

use std::ops::Add;

use gmm_model::reference::argmax;
use gmm_model::{Dataset, Mixture, PrecisionMixture};
use ndarray::ArrayView1;

use crate::{DeviceOutputs, Error};

/// Memory for numbers of either precision, to which results are written.
pub enum FloatsMut<'a> {
    /// Results are rounded to single precision.
    F32(&'a mut [f32]),
    /// In double precision.
    F64(&'a mut [f64]),
}

impl<'a> FloatsMut<'a> {
    /// Number of elements.
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(all) => all.len(),
            Self::F64(all) => all.len(),
        }
    }

    /// Whether there are no elements.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes an element.
    ///
    /// # Panics
    /// If there is none at this index.
    #[inline]
    pub fn set(&mut self, at: usize, value: f64) {
        match self {
            Self::F32(all) => all[at] = value as f32,
            Self::F64(all) => all[at] = value,
        }
    }

    /// Writes successive elements, from index `first` on.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn put(&mut self, first: usize, values: impl IntoIterator<Item = f64>) {
        values.into_iter().enumerate().for_each(|(i, value)| self.set(first + i, value));
    }

    /// Splits the first `len` elements off.
    ///
    /// # Panics
    /// If there are fewer.
    fn split(self, len: usize) -> (Self, Self) {
        match self {
            Self::F32(all) => {
                let (front, back) = all.split_at_mut(len);
                (Self::F32(front), Self::F32(back))
            }
            Self::F64(all) => {
                let (front, back) = all.split_at_mut(len);
                (Self::F64(front), Self::F64(back))
            }
        }
    }
}

impl<'a> From<&'a mut [f32]> for FloatsMut<'a> {
    fn from(all: &'a mut [f32]) -> Self {
        Self::F32(all)
    }
}

impl<'a> From<&'a mut [f64]> for FloatsMut<'a> {
    fn from(all: &'a mut [f64]) -> Self {
        Self::F64(all)
    }
}

impl<'a> From<&'a mut Vec<f32>> for FloatsMut<'a> {
    fn from(all: &'a mut Vec<f32>) -> Self {
        Self::F32(all)
    }
}

impl<'a> From<&'a mut Vec<f64>> for FloatsMut<'a> {
    fn from(all: &'a mut Vec<f64>) -> Self {
        Self::F64(all)
    }
}

/// The outputs per row that [`Evaluate::evaluate`] writes, besides the totals that it returns.
#[derive(Default)]
pub struct EvaluateOptions<'a> {
    /// Log densities, `(n,)`.
    pub log_densities: Option<&'a mut [f64]>,
    /// Responsibilities, `(n, k)` in row-major order.
    pub responsibilities: Option<FloatsMut<'a>>,
    /// The component of largest responsibility, `(n,)`; the first among equals.
    pub labels: Option<&'a mut [u32]>,
}

impl EvaluateOptions<'_> {
    /// The same outputs, for a call after which they may be written again.
    pub(crate) fn again(&mut self) -> EvaluateOptions<'_> {
        EvaluateOptions {
            log_densities: self.log_densities.as_deref_mut(),
            responsibilities: self.responsibilities.as_mut().map(|all| match all {
                FloatsMut::F32(all) => FloatsMut::F32(all),
                FloatsMut::F64(all) => FloatsMut::F64(all),
            }),
            labels: self.labels.as_deref_mut(),
        }
    }

    /// Writes the results of row `row`: its log density and responsibilities, `(k,)`, and the label that these give.
    pub(crate) fn put_row(&mut self, row: usize, log_density: f64, r: ArrayView1<'_, f64>) {
        if let Some(out) = &mut self.log_densities {
            out[row] = log_density;
        }
        if let Some(out) = &mut self.responsibilities {
            out.put(row * r.len(), r.iter().copied());
        }
        if let Some(out) = &mut self.labels {
            out[row] = argmax(r) as u32;
        }
    }
}

impl<'a> EvaluateOptions<'a> {
    /// Cuts the outputs of the first `rows` rows off, for a mixture of `k` components.
    ///
    /// # Panics
    /// If there are fewer rows.
    #[must_use]
    pub fn split(&mut self, rows: usize, k: usize) -> EvaluateOptions<'a> {
        fn front<'a, U>(all: &mut Option<&'a mut [U]>, len: usize) -> Option<&'a mut [U]> {
            let (head, tail) = all.take()?.split_at_mut(len);
            *all = Some(tail);
            Some(head)
        }
        EvaluateOptions {
            log_densities: front(&mut self.log_densities, rows),
            responsibilities: self.responsibilities.take().map(|all| {
                let (head, tail) = all.split(rows * k);
                self.responsibilities = Some(tail);
                head
            }),
            labels: front(&mut self.labels, rows),
        }
    }
}

/// Totals over all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Σ w ln p(x).
    pub log_likelihood: f64,
    /// −Σ w Σ_c r ln r, the entropy of the assignments.
    pub entropy: f64,
    /// Σ w.
    pub total_weight: f64,
}

impl Evaluation {
    /// The totals of no rows.
    pub(crate) const NOTHING: Self = Self { log_likelihood: 0.0, entropy: 0.0, total_weight: 0.0 };

    /// Adds a row of weight `w`, unless that is 0.
    pub(crate) fn add_row(&mut self, w: f64, log_density: f64, r: ArrayView1<'_, f64>) {
        if w > 0.0 {
            self.log_likelihood += w * log_density;
            self.entropy -= w * r.iter().filter(|r| **r > 0.0).map(|r| r * r.ln()).sum::<f64>();
            self.total_weight += w;
        }
    }
}

/// The totals over the rows of both.
impl Add for Evaluation {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            log_likelihood: self.log_likelihood + other.log_likelihood,
            entropy: self.entropy + other.entropy,
            total_weight: self.total_weight + other.total_weight,
        }
    }
}

/// Evaluates mixtures on resident rows.
pub trait Evaluate: Send {
    /// Evaluates `mixture` on every row, writes the outputs in `want` and returns the totals. A row's values do not
    /// depend on other rows.
    ///
    /// If all densities of a row underflow, its log density is −∞ and its responsibilities are the component weights.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error>;

    /// [`evaluate`](Self::evaluate) of a mixture given by factors of its precisions. Engines may use the factors
    /// directly; the default converts them to covariances.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass), and [`Error::Model`] if a factor is not finite or singular.
    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.evaluate(&mixture.to_mixture()?, want)
    }

    /// [`evaluate_precisions`](Self::evaluate_precisions), with results that stay in the memory of the engine's device.
    /// Only GPU engines implement this.
    ///
    /// # Safety
    /// The addresses of `out` are those of arrays of the stated lengths on this engine's device, which nothing else
    /// reads or writes until this returns.
    ///
    /// # Errors
    /// As for [`evaluate_precisions`](Self::evaluate_precisions); [`Error::Device`] if the engine has no device.
    unsafe fn evaluate_there(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        out: &DeviceOutputs,
    ) -> Result<Evaluation, Error> {
        let _ = (mixture, out);
        Err(Error::Device("this engine has no device memory for results".to_owned()))
    }

    /// Σ w ln p(x) over all rows under each mixture, `(mixtures.len(),)`: the log-likelihood of
    /// [`evaluate`](Self::evaluate). Engines may compute many mixtures at once, or at a lower cost than an evaluation.
    /// A mixture's value does not depend on the others.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        mixtures.iter().map(|m| Ok(self.evaluate(m, EvaluateOptions::default())?.log_likelihood)).collect()
    }
}

/// A mixture that an engine has prepared, for evaluations on small sets of rows from any thread; see
/// [`Engine::scorer`](crate::Engine::scorer).
///
/// ```
/// use gmm_host::{CpuEngine, Engine, EvaluateOptions, evaluate};
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![4.0]))?;
/// let cpu = CpuEngine::new(1)?;
/// let scorer = cpu.scorer(&mixture, Precision::F64).expect("the CPU engine has one");
/// let (rows, mut densities) = (Dataset::new(array![[1.0], [2.0]])?, [0.0; 2]);
/// scorer.evaluate(&rows, EvaluateOptions { log_densities: Some(&mut densities), ..EvaluateOptions::default() })?;
/// let loaded = evaluate::log_densities(&cpu, &mixture, &rows, Precision::F64)?.0;
/// assert_eq!(loaded.as_slice(), Some(densities.as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Scorer: Send + Sync {
    /// Evaluates the mixture on every row: the outputs and the totals have the bits of rows that
    /// [`evaluate::load`](crate::evaluate::load) loads. Several threads may call at a time: the first uses the threads of the
    /// engine, and the others their own.
    ///
    /// # Errors
    /// [`Error::Features`] if the number of columns differs; [`Error::Missing`] if values are missing, [`Error::MeasurementErrors`] if they have
    /// such errors; [`Error::Memory`].
    fn evaluate(&self, data: &Dataset, want: EvaluateOptions<'_>) -> Result<Evaluation, Error>;

    /// As [`evaluate`](Self::evaluate), to the same bits, on the calling thread alone: for callers that keep the cores busy
    /// with other work.
    ///
    /// # Errors
    /// As for [`evaluate`](Self::evaluate).
    fn evaluate_here(&self, data: &Dataset, want: EvaluateOptions<'_>) -> Result<Evaluation, Error>;
}
