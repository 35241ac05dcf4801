//! A model in memory, and rows that belong to the caller.

use std::sync::{Arc, OnceLock};

use gmm_data::{ModelFile, read_model};
use gmm_host::{CpuEngine, MAX_THREADS, ModelParts, Predictions, Predictor};
use gmm_model::{Dataset, Matrix, Precision, RowArray};

use crate::failure::Failure;

/// A model that is ready to evaluate rows.
pub struct Model {
    double: Predictor,
    /// Made by the first call with rows of `f32`.
    single: OnceLock<Predictor>,
}

/// Where the result of an evaluation goes.
pub(crate) enum Output<'a> {
    /// `(n,)`.
    LogDensities(&'a mut [f64]),
    /// `(n,)`.
    Labels(&'a mut [i32]),
    /// `(n, width)` in row-major order.
    Responsibilities(&'a mut [f64]),
}

impl Model {
    /// Reads a model, and prepares evaluations by `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// Errors of the file; if there are too many threads, or they cannot be started.
    pub(crate) fn load(path: &str, threads: usize) -> Result<Self, Failure> {
        if threads > MAX_THREADS {
            return Err(Failure::argument(format!("threads is {threads}: it must be at most {MAX_THREADS}")));
        }
        let ModelFile { mixture, posterior, noise, clusters, .. } = read_model(path)?;
        let parts = ModelParts { mixture, noise, clusters, posterior };
        // 0 has the same meaning for the engine.
        let engine = Arc::new(CpuEngine::new(threads)?);
        let double = Predictor::new(engine, parts, Precision::F64, threads)?;
        Ok(Self { double, single: OnceLock::new() })
    }

    /// Number of components and of columns.
    pub(crate) fn dim(&self) -> (usize, usize) {
        (self.double.n_components(), self.double.n_features())
    }

    /// Number of responsibilities of a row.
    pub(crate) fn width(&self) -> usize {
        self.double.width()
    }

    fn predictor(&self, precision: Precision) -> Result<&Predictor, Failure> {
        match (precision, self.single.get()) {
            (Precision::F64, _) => Ok(&self.double),
            (Precision::F32, Some(single)) => Ok(single),
            (Precision::F32, None) => {
                let made = self.double.with_precision(precision)?;
                Ok(self.single.get_or_init(|| made))
            }
        }
    }

    /// Evaluates rows, in their precision.
    ///
    /// # Errors
    /// If there are no rows, or a value is not finite; errors of the engine.
    pub(crate) fn evaluate<T: Send + Sync + 'static>(&self, rows: Rows<T>, output: Output<'_>) -> Result<(), Failure>
    where
        Matrix: From<RowArray<T>>,
    {
        let data = Dataset::new(rows.into_array())?;
        let none = Predictions::default();
        let out = match output {
            Output::LogDensities(out) => Predictions { log_densities: Some(out), ..none },
            Output::Labels(out) => Predictions { labels: Some(out), ..none },
            Output::Responsibilities(out) => Predictions { responsibilities: Some(out), ..none },
        };
        Ok(self.predictor(data.rows().precision())?.evaluate(&data, out)?)
    }
}

/// Rows of the caller, `(n, d)` in row-major order, which are valid during one call.
pub(crate) struct Rows<T> {
    values: *const T,
    dim: (usize, usize),
}

impl<T: Send + Sync + 'static> Rows<T> {
    /// The rows as an array, without a copy.
    fn into_array(self) -> RowArray<T> {
        let dim = self.dim;
        RowArray::shared(Arc::new(self), dim).expect("n * d values")
    }
}

impl<T> AsRef<[T]> for Rows<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: by the contract of `input` the numbers are valid for reads until the call returns. The array of
        // `into_array` lives in `evaluate`, and the engine keeps no reference to it.
        unsafe { std::slice::from_raw_parts(self.values, self.dim.0 * self.dim.1) }
    }
}

// SAFETY: numbers that nobody writes may be read from any thread.
unsafe impl<T: Sync> Send for Rows<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Rows<T> {}

/// Checks the arguments of an evaluation.
///
/// # Errors
/// If a pointer is null, the number of columns is not the model's, or the size overflows.
///
/// # Safety
/// `model` is null or valid for reads. `values` is null, or valid for reads of `n * d` numbers until the `Rows` are
/// dropped.
pub(crate) unsafe fn input<'a, T>(
    model: *const Model,
    values: *const T,
    (n, d): (usize, usize),
) -> Result<(&'a Model, Rows<T>), Failure> {
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
        Some(len) if len <= isize::MAX as usize / size_of::<T>() => Ok((model, Rows { values, dim: (n, d) })),
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

/// Log densities, `(n,)`, of rows of either precision.
///
/// # Errors
/// As [`input`], [`output`] and [`Model::evaluate`].
///
/// # Safety
/// As for [`input`], and as for [`output`] of `n` numbers.
pub(crate) unsafe fn score_samples<T: Send + Sync + 'static>(
    model: *const Model,
    rows: *const T,
    dim: (usize, usize),
    out: *mut f64,
) -> Result<(), Failure>
where
    Matrix: From<RowArray<T>>,
{
    // SAFETY: by the contract of this function; `n` numbers fit in memory, since the rows do.
    let ((model, rows), out) = unsafe { (input(model, rows, dim)?, output(out, dim.0, "log_densities")?) };
    model.evaluate(rows, Output::LogDensities(out))
}

/// Labels, `(n,)`, of rows of either precision.
///
/// # Errors
/// As [`score_samples`].
///
/// # Safety
/// As for [`score_samples`].
pub(crate) unsafe fn predict<T: Send + Sync + 'static>(
    model: *const Model,
    rows: *const T,
    dim: (usize, usize),
    out: *mut i32,
) -> Result<(), Failure>
where
    Matrix: From<RowArray<T>>,
{
    // SAFETY: by the contract of this function.
    let ((model, rows), out) = unsafe { (input(model, rows, dim)?, output(out, dim.0, "labels")?) };
    model.evaluate(rows, Output::Labels(out))
}

/// Responsibilities, `(n, width)` in row-major order, of rows of either precision.
///
/// # Errors
/// As [`score_samples`].
///
/// # Safety
/// As for [`input`], and as for [`output`] of `n * width` numbers.
pub(crate) unsafe fn predict_proba<T: Send + Sync + 'static>(
    model: *const Model,
    rows: *const T,
    dim: (usize, usize),
    out: *mut f64,
) -> Result<(), Failure>
where
    Matrix: From<RowArray<T>>,
{
    // SAFETY: by the contract of this function.
    let (model, rows) = unsafe { input(model, rows, dim) }?;
    let len = dim.0.checked_mul(model.width()).ok_or(Failure::argument("n * gmm_n_responsibilities overflows"))?;
    // SAFETY: by the contract of this function.
    let out = unsafe { output(out, len, "responsibilities") }?;
    model.evaluate(rows, Output::Responsibilities(out))
}
