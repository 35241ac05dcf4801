//! The input of a fit or a likelihood: rows in host memory, or rows already in GPU memory.

use gmm_model::censoring::Limits;
use gmm_model::deconvolution::MeasurementErrors;
use gmm_model::{Dataset, Matrix, Precision};
use ndarray::{Array2, ArrayView2, Axis};

use crate::{DeviceData, Engine, Error, Evaluate, Evaluation, Resident};

/// A checked data set, in host or GPU memory. Functions that accept `impl Into<Data>` accept `&Dataset` and
/// `&DeviceData`.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// In host memory.
    Host(&'a Dataset),
    /// In GPU memory. The rows are not copied to the host, except for a few that are read one by one. If some row
    /// weights are 0, a fit gathers the other rows on the device, which for a moment needs memory for all `n*d` numbers
    /// in the precision of the fit and up to 16 bytes per row on top of the gathered rows. If the device lacks that
    /// memory, the rows are gathered on the host and uploaded again.
    Device(&'a DeviceData),
}

impl<'a> From<&'a Dataset> for Data<'a> {
    fn from(data: &'a Dataset) -> Self {
        Self::Host(data)
    }
}

impl<'a> From<&'a DeviceData> for Data<'a> {
    fn from(data: &'a DeviceData) -> Self {
        Self::Device(data)
    }
}

impl<'a> Data<'a> {
    /// `(n, d)`.
    pub fn dim(self) -> (usize, usize) {
        match self {
            Self::Host(data) => data.rows().dim(),
            Self::Device(data) => data.dim(),
        }
    }

    /// The precision of the input values.
    pub fn precision(self) -> Precision {
        match self {
            Self::Host(data) => data.rows().precision(),
            Self::Device(data) => data.precision(),
        }
    }

    /// Row weights, `(n,)`, if any.
    pub fn weights(self) -> Option<&'a [f64]> {
        match self {
            Self::Host(data) => data.weights(),
            Self::Device(data) => data.weights(),
        }
    }

    /// Sum of the row weights; `n` if there are none.
    pub fn total_weight(self) -> f64 {
        self.weights().map_or(self.dim().0 as f64, |weights| weights.iter().sum())
    }

    /// The rows of the given indices, `(rows.len(), d)`, converted exactly.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy from the GPU fails.
    pub(crate) fn pick(self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        match self {
            Self::Host(data) => Ok(match data.rows() {
                Matrix::F32(a) => picked(a.as_slice().expect("row-major"), data.n_features(), rows),
                Matrix::F64(a) => picked(a.as_slice().expect("row-major"), data.n_features(), rows),
            }),
            Self::Device(data) => data.pick(rows),
        }
    }

    /// Whether some value may be missing.
    pub fn has_missing(self) -> bool {
        matches!(self, Self::Host(data) if data.has_missing())
    }

    /// Errors if some value is missing, has a measurement error or limits, for something that needs complete and exact rows.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Error::MeasurementErrors`]; [`Error::Limited`].
    pub(crate) fn require_exact(self, what: &'static str) -> Result<(), Error> {
        self.refuse_indirect(what)?;
        if self.has_missing() { Err(Error::Missing { what }) } else { Ok(()) }
    }

    /// The measurement errors of the rows, if any.
    pub fn measurement_errors(self) -> Option<&'a MeasurementErrors> {
        match self {
            Self::Host(data) => data.measurement_errors(),
            Self::Device(_) => None,
        }
    }

    /// The limits of the rows' values, if any.
    pub fn limits(self) -> Option<&'a Limits> {
        match self {
            Self::Host(data) => data.limits(),
            Self::Device(_) => None,
        }
    }

    /// A column's name as printed in messages, `'x'`, or its index if the columns have no names.
    pub(crate) fn column_name(self, column: usize) -> String {
        let names = match self {
            Self::Host(data) => data.names(),
            Self::Device(_) => None,
        };
        names.map_or_else(|| column.to_string(), |names| format!("'{}'", gmm_model::shown(&names[column])))
    }

    /// Whether the rows are known only with measurement errors or within limits.
    pub fn is_indirect(self) -> bool {
        self.limits().is_some() || self.measurement_errors().is_some()
    }

    /// Errors if the rows are known only with measurement errors or within limits, for something that needs exact rows.
    ///
    /// # Errors
    /// [`Error::MeasurementErrors`]; [`Error::Limited`].
    pub fn refuse_indirect(self, what: &'static str) -> Result<(), Error> {
        if self.limits().is_some() {
            return Err(Error::Limited { what });
        }
        if self.measurement_errors().is_some() { Err(Error::MeasurementErrors { what }) } else { Ok(()) }
    }

    /// Calls `see` on all rows in order, a block at a time, with the index of the block's first row and the block,
    /// `(.., d)`, converted exactly. For computations that no engine offers. Rows on a GPU are copied in blocks of
    /// about 16 MiB.
    ///
    /// # Errors
    /// [`Error::Missing`] if values are missing; [`Error::MeasurementErrors`]; [`Error::Limited`]. None else for rows on the
    /// host. [`Error::Data`] with the first row and column that is NaN or infinite;
    /// [`Error::Memory`]; [`Error::Device`].
    pub fn walk(self, see: &mut dyn FnMut(usize, ArrayView2<'_, f64>)) -> Result<(), Error> {
        self.require_exact("this computation")?;
        self.walk_with_holes(see)
    }

    /// As [`walk`](Self::walk); missing values are NaN.
    ///
    /// # Errors
    /// As there.
    pub fn walk_with_holes(self, see: &mut dyn FnMut(usize, ArrayView2<'_, f64>)) -> Result<(), Error> {
        /// Number of values converted to f64 at a time.
        const PIECE: usize = 1 << 16;
        match self {
            Self::Host(data) => match data.rows() {
                Matrix::F64(a) => see(0, a.view()),
                Matrix::F32(a) => {
                    let piece = (PIECE / data.n_features()).max(1);
                    for (i, rows) in a.axis_chunks_iter(Axis(0), piece).enumerate() {
                        see(i * piece, rows.mapv(f64::from).view());
                    }
                }
            },
            Self::Device(data) => return data.walk(see),
        }
        Ok(())
    }

    /// The data with weight 0 for rows that have no observed value, and the number of such rows that had another
    /// weight; `None` if there are none. They have no part in the likelihood, and so neither in the row counts of the
    /// information criteria.
    ///
    /// # Errors
    /// [`DataError::WeightSum`](gmm_model::DataError::WeightSum) if no row is left.
    pub(crate) fn without_unobserved(self) -> Result<Option<(Dataset, usize)>, Error> {
        let Self::Host(data) = self else { return Ok(None) };
        let Some(observed) = data.rows_observed() else { return Ok(None) };
        let left_out = (0..observed.len()).filter(|&row| !observed[row] && data.weight(row) > 0.0).count();
        if left_out == 0 {
            return Ok(None);
        }
        let weights = (0..observed.len()).map(|row| if observed[row] { data.weight(row) } else { 0.0 }).collect();
        Ok(Some((data.clone().with_weights(weights)?, left_out)))
    }

    /// Only the rows of positive weight, if some row has weight 0; rows on a GPU stay there.
    pub(crate) fn without_absent_rows(self) -> Option<Present> {
        match self {
            Self::Host(data) => data.without_absent_rows().map(|data| Present::Host(Box::new(data))),
            Self::Device(data) => data.without_absent_rows().map(Present::Device),
        }
    }

    /// Evaluates the rows once, about `shift`.
    ///
    /// # Errors
    /// As for [`load`](Self::load); those of `work`. What `work` has written by then has no meaning.
    pub(crate) fn evaluate(
        self,
        engine: &dyn Engine,
        precision: Precision,
        shift: &[f64],
        work: &mut dyn FnMut(&mut dyn Evaluate) -> Result<Evaluation, Error>,
    ) -> Result<Evaluation, Error> {
        let (Self::Device(data), Some(input)) = (self, engine.device_input()) else {
            return work(self.load(engine, precision, shift, None)?.as_mut());
        };
        let found = input.evaluate_in_place(data, precision, shift, work)?;
        if !found.log_likelihood.is_finite() {
            // Far rows, or rows that are not finite: loading them tells.
            drop(self.load(engine, precision, shift, None)?);
        }
        Ok(found)
    }

    /// Loads the rows on an engine. For rows on a GPU this also checks that all are finite and, given a `limit`, that
    /// no row is farther than that from the shift in any column.
    ///
    /// # Errors
    /// As for [`Engine::load`]; for rows on a GPU also [`Error::Data`] and [`Error::Scale`].
    pub(crate) fn load(
        self,
        engine: &dyn Engine,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        match self {
            Self::Host(data) if data.is_indirect() => engine.load_measured(data, precision, shift),
            Self::Host(data) if data.has_missing() => engine.load_incomplete(data, precision, shift),
            Self::Host(data) => engine.load(data, precision, shift),
            Self::Device(data) => match load_there(engine, data, precision, shift, limit) {
                // On the device, all rows and those of positive weight coexist for a moment. The latter may still fit.
                Err(full @ Error::Memory { .. }) => match data.fetch_present()? {
                    Some(present) => {
                        tracing::warn!(%full, "rows of weight 0 are dropped on the host, and the others uploaded again");
                        Data::Host(&present).load(engine, precision, shift, limit)
                    }
                    None => Err(full),
                },
                loaded => loaded,
            },
        }
    }
}

/// Loads rows that are already in the memory of the engine's device.
///
/// # Errors
/// [`Error::Device`] if the engine has no device; as for [`DeviceInput::load_there`](crate::DeviceInput::load_there).
pub(crate) fn load_there(
    engine: &dyn Engine,
    data: &DeviceData,
    precision: Precision,
    shift: &[f64],
    limit: Option<f64>,
) -> Result<Box<dyn Resident>, Error> {
    let Some(input) = engine.device_input() else {
        return Err(Error::Device(format!("the rows lie on a GPU, and the engine is '{}'", engine.name())));
    };
    input.load_there(data, precision, shift, limit)
}

/// The rows of positive weight of a data set.
pub(crate) enum Present {
    /// A copy of the rows.
    Host(Box<Dataset>),
    /// The same memory with the indices of the rows. Must not outlive the data that it was made from.
    Device(DeviceData),
}

impl<'a> From<&'a Present> for Data<'a> {
    fn from(present: &'a Present) -> Self {
        match present {
            Present::Host(data) => Self::Host(data),
            Present::Device(data) => Self::Device(data),
        }
    }
}

fn picked<T: Copy + Into<f64>>(numbers: &[T], d: usize, rows: &[usize]) -> Array2<f64> {
    let mut out = Vec::with_capacity(rows.len() * d);
    rows.iter().for_each(|&row| out.extend(numbers[row * d..][..d].iter().map(|&v| v.into())));
    Array2::from_shape_vec((rows.len(), d), out).expect("d numbers of each row")
}

/// Arrays of another library in the memory of an engine's device, to which an evaluation writes. Each is an address,
/// aligned to its numbers, or `None` if it is not wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOutputs {
    /// Log densities, `(n,)` of f64.
    pub log_densities: Option<u64>,
    /// Responsibilities, `(n, k)` of f64 in row-major order.
    pub responsibilities: Option<u64>,
    /// The component of largest responsibility, `(n,)` of u32.
    pub labels: Option<u64>,
}

/// A contiguous row-major array of rows, `(n, d)`, in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRows {
    /// Device address of the first value.
    pub address: u64,
    /// Number of rows.
    pub n: usize,
    /// Number of columns.
    pub d: usize,
    /// Precision of the values.
    pub precision: Precision,
    /// The CUDA stream on which the rows are written, if known. Work queued on it is waited for.
    pub stream: Option<u64>,
}
