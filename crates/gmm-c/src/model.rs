//! A model in memory, and rows that belong to the caller.

use std::sync::Arc;

use gmm_data::{ModelFile, read_model};
use gmm_host::{CpuEngine, Engine, EvaluateOptions, MAX_THREADS, Scorer, evaluate};
use gmm_model::{Dataset, Mixture, Precision, RowArray};

use crate::GMM_BAD_DATA;
use crate::failure::Failure;

/// A model that is ready to evaluate rows.
pub struct Model {
    mixture: Mixture,
    engine: CpuEngine,
    scorer: Option<Box<dyn Scorer>>,
}

/// Where the result of an evaluation goes.
pub(crate) enum Output<'a> {
    /// `(n,)`.
    LogDensities(&'a mut [f64]),
    /// `(n,)`.
    Labels(&'a mut [u32]),
    /// `(n, k)` in row-major order.
    Responsibilities(&'a mut [f64]),
}

impl Model {
    /// Reads a model, and prepares evaluations by `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// Errors of the file; if the model is more than a mixture; if there are too many threads, or they cannot be
    /// started.
    pub(crate) fn load(path: &str, threads: usize) -> Result<Self, Failure> {
        if threads > MAX_THREADS {
            return Err(Failure::argument(format!("threads is {threads}: it must be at most {MAX_THREADS}")));
        }
        let ModelFile { mixture, posterior, noise, clusters, .. } = read_model(path)?;
        let fields = [("posterior", posterior.is_some()), ("noise", noise.is_some()), ("clusters", clusters.is_some())];
        if let Some((field, _)) = fields.into_iter().find(|(_, exists)| *exists) {
            let text =
                format!("{path}: '{field}': the C interface evaluates mixtures only: delete this field to use it");
            return Err(Failure { status: GMM_BAD_DATA, text });
        }
        // 0 has the same meaning for the engine.
        let engine = CpuEngine::new(threads)?;
        let scorer = engine.scorer(&mixture, Precision::F64);
        Ok(Self { mixture, engine, scorer })
    }

    /// Number of components and of columns.
    pub(crate) fn dim(&self) -> (usize, usize) {
        self.mixture.means().dim()
    }

    /// Evaluates rows.
    ///
    /// # Errors
    /// If there are no rows, or a value is not finite; errors of the engine.
    pub(crate) fn evaluate(&self, rows: Rows, output: Output<'_>) -> Result<(), Failure> {
        let data = Dataset::new(rows.into_array())?;
        let none = EvaluateOptions::default();
        let options = match output {
            Output::LogDensities(out) => EvaluateOptions { log_densities: Some(out), ..none },
            Output::Labels(out) => EvaluateOptions { labels: Some(out), ..none },
            Output::Responsibilities(out) => EvaluateOptions { responsibilities: Some(out.into()), ..none },
        };
        match &self.scorer {
            Some(scorer) => scorer.evaluate(&data, options)?,
            None => {
                evaluate::load(&self.engine, &self.mixture, &data, Precision::F64)?.evaluate(&self.mixture, options)?
            }
        };
        Ok(())
    }
}

/// Rows of the caller, `(n, d)` in row-major order, which are valid during one call.
pub(crate) struct Rows {
    values: *const f64,
    dim: (usize, usize),
}

impl Rows {
    /// The rows as an array, without a copy.
    fn into_array(self) -> RowArray<f64> {
        let dim = self.dim;
        RowArray::shared(Arc::new(self), dim).expect("n * d values")
    }
}

impl AsRef<[f64]> for Rows {
    fn as_ref(&self) -> &[f64] {
        // SAFETY: by the contract of `input` the numbers are valid for reads until the call returns. The array of
        // `into_array` lives in `evaluate`, and the engine keeps no reference to it.
        unsafe { std::slice::from_raw_parts(self.values, self.dim.0 * self.dim.1) }
    }
}

// SAFETY: numbers that nobody writes may be read from any thread.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

/// Checks the arguments of an evaluation.
///
/// # Errors
/// If a pointer is null, the number of columns is not the model's, or the size overflows.
///
/// # Safety
/// `model` is null or valid for reads. `values` is null, or valid for reads of `n * d` numbers until the `Rows` are
/// dropped.
pub(crate) unsafe fn input<'a>(
    model: *const Model,
    values: *const f64,
    (n, d): (usize, usize),
) -> Result<(&'a Model, Rows), Failure> {
    // SAFETY: by the contract of this function.
    let model = unsafe { model.as_ref() }.ok_or(Failure::null("model"))?;
    if values.is_null() {
        return Err(Failure::null("rows"));
    }
    let expected = model.dim().1;
    if d != expected {
        return Err(Failure::argument(format!("the rows have {d} columns, the model has {expected}")));
    }
    if n == 0 {
        return Err(Failure::argument("n is 0: there are no rows"));
    }
    // A slice has at most `isize::MAX` bytes.
    match n.checked_mul(d) {
        Some(len) if len <= isize::MAX as usize / size_of::<f64>() => Ok((model, Rows { values, dim: (n, d) })),
        _ => Err(Failure::argument("n * d overflows")),
    }
}

/// The caller's memory for a result.
///
/// # Errors
/// If the pointer is null, or the size overflows.
///
/// # Safety
/// `values` is null or valid for writes of `len` numbers while the slice lives, and nothing else reads or writes them.
pub(crate) unsafe fn output<'a, T>(values: *mut T, len: usize, what: &str) -> Result<&'a mut [T], Failure> {
    if values.is_null() {
        return Err(Failure::null(what));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::argument(format!("the length of {what} overflows")));
    }
    // SAFETY: by the contract of this function. A number of any bits is valid.
    Ok(unsafe { std::slice::from_raw_parts_mut(values, len) })
}
