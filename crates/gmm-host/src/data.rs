//! What a fit or a likelihood reads: rows on the host, or rows that lie on a GPU already.

use gmm_model::{Dataset, Matrix, Precision};
use ndarray::{Array2, ArrayView2, Axis};

use crate::{DeviceData, Engine, Error, Resident};

/// A checked data set, wherever it lies. Whoever takes one takes `&Dataset` and `&DeviceData`.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// On the host.
    Host(&'a Dataset),
    /// In a GPU's memory, from where the rows do not come to the host: only those do that are asked for one by one. A fit with
    /// row weights of 0 gathers the other rows there, and holds all beside them until it has, which takes `n*d` numbers of its
    /// precision more and up to 16 bytes a row: where the device has no room for that, they come by the host after all.
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

    /// The precision in which the numbers came.
    pub fn precision(self) -> Precision {
        match self {
            Self::Host(data) => data.rows().precision(),
            Self::Device(data) => data.precision(),
        }
    }

    /// Row weights, if any.
    pub fn weights(self) -> Option<&'a [f64]> {
        match self {
            Self::Host(data) => data.weights(),
            Self::Device(data) => data.weights(),
        }
    }

    /// Sum of the row weights; `n` where none were given.
    pub fn total_weight(self) -> f64 {
        self.weights().map_or(self.dim().0 as f64, |weights| weights.iter().sum())
    }

    /// Some rows, `(rows.len(), d)`, exactly.
    ///
    /// # Errors
    /// [`Error::Device`] where they cannot be brought.
    pub(crate) fn pick(self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        match self {
            Self::Host(data) => Ok(match data.rows() {
                Matrix::F32(a) => picked(a.as_slice().expect("row-major"), data.n_features(), rows),
                Matrix::F64(a) => picked(a.as_slice().expect("row-major"), data.n_features(), rows),
            }),
            Self::Device(data) => data.pick(rows),
        }
    }

    /// Shows all rows to `see` in their order, some at a time: the number of the first, and the rows, `(.., d)`, exactly. For
    /// what no engine computes. Rows on a GPU come in pieces of some 16 MiB, and none is kept.
    ///
    /// # Errors
    /// None for rows on the host. [`Error::Data`] with the first row and column that is NaN or infinite; [`Error::Memory`];
    /// [`Error::Device`].
    pub fn walk(self, see: &mut dyn FnMut(usize, ArrayView2<'_, f64>)) -> Result<(), Error> {
        /// Numbers that are widened at a time.
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

    /// The rows of positive weight alone, where some have none; those on a GPU stay there.
    pub(crate) fn without_absent_rows(self) -> Option<Present> {
        match self {
            Self::Host(data) => data.without_absent_rows().map(Present::Host),
            Self::Device(data) => data.without_absent_rows().map(Present::Device),
        }
    }

    /// The rows on an engine. Where there is a `limit`, none of those on a GPU may be farther from the shift than that in any
    /// column; whether they are finite is seen only now.
    ///
    /// # Errors
    /// As for [`Engine::load`]; of rows on a GPU [`Error::Data`] and [`Error::Scale`].
    pub(crate) fn load(
        self,
        engine: &dyn Engine,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        match self {
            Self::Host(data) => engine.load(data, precision, shift),
            Self::Device(data) => match load_there(engine, data, precision, shift, limit) {
                // On the device all rows and those of positive weight lie side by side for a moment: these alone may fit.
                Err(full @ Error::Memory { .. }) => match data.fetch_present()? {
                    Some(present) => {
                        tracing::warn!(%full, "rows of weight 0 are left out on the host, and the others sent again");
                        Data::Host(&present).load(engine, precision, shift, limit)
                    }
                    None => Err(full),
                },
                loaded => loaded,
            },
        }
    }
}

/// Rows that lie on a device already, on an engine that has it.
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

/// Rows of positive weight, of others.
pub(crate) enum Present {
    /// A copy of them.
    Host(Dataset),
    /// The same memory, and which they are. Not to outlive what it was made from.
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

/// Rows, `(n, d)` in row-major order and one behind the other, in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRows {
    /// Where the first number is.
    pub address: u64,
    /// Rows.
    pub n: usize,
    /// Columns.
    pub d: usize,
    /// Precision of the values.
    pub precision: Precision,
    /// The stream on which they are written, where that is known: work that is on it is waited for.
    pub stream: Option<u64>,
}
