//! What a fit or a likelihood reads: rows on the host, or rows that lie on a GPU already.

use gmm_model::{Dataset, Matrix, Precision};
use ndarray::Array2;

use crate::{DeviceData, Engine, Error, Resident};

/// A checked data set, wherever it lies. Whoever takes one takes `&Dataset` and `&DeviceData`.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// On the host.
    Host(&'a Dataset),
    /// In a GPU's memory, from where the rows do not come to the host: only those do that are asked for one by one.
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

    /// The rows of positive weight alone, where some have none; from a GPU they come to the host for that.
    ///
    /// # Errors
    /// Whatever the device says; [`Error::Data`] for numbers that are none.
    pub(crate) fn without_absent_rows(self) -> Result<Option<Dataset>, Error> {
        match self {
            Self::Host(data) => Ok(data.without_absent_rows()),
            Self::Device(data) => match data.weights().filter(|weights| weights.contains(&0.0)) {
                None => Ok(None),
                Some(weights) => Ok(Dataset::new(data.fetch()?)?.with_weights(weights.to_vec())?.without_absent_rows()),
            },
        }
    }

    /// The rows on an engine: [`Engine::load`]. Those on a GPU are looked at only now: whether all are finite and, where
    /// there is a `limit`, whether any is farther from the shift than that in any column.
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
            Self::Host(data) => {
                if let Some(limit) = limit {
                    crate::shift::check_largest(data, shift, precision, limit)?;
                }
                engine.load(data, precision, shift)
            }
            Self::Device(data) => engine.load_there(data, precision, shift, limit),
        }
    }
}

fn picked<T: Copy + Into<f64>>(numbers: &[T], d: usize, rows: &[usize]) -> Array2<f64> {
    let mut out = Vec::with_capacity(rows.len() * d);
    rows.iter().for_each(|&row| out.extend(numbers[row * d..][..d].iter().map(|&v| v.into())));
    Array2::from_shape_vec((rows.len(), d), out).expect("d numbers of each row")
}
