//! An operand of a product, in host or GPU memory.

use std::ops::Range;

use gmm_model::RowArray;
use ndarray::{ArrayView2, CowArray, Ix2};

use super::{Scalar, bytes};
use crate::cuda::products::DeviceOperand;
use crate::{DeviceData, Error, memory};

/// A matrix to multiply by or a batch of questions, `(rows, columns)`: an `ArrayView2` of any strides on the host, or
/// [`DeviceData`] of either precision on the GPU that multiplies. Values on a GPU are converted there to the type of
/// the resident matrix, exactly or with one rounding; row weights are ignored, and NaN and infinity are allowed.
///
/// ```
/// use gmm_host::products::Operand;
/// use ndarray::array;
///
/// let x = array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]];
/// let operand = Operand::from(x.view());
/// assert_eq!(operand.dim(), (3, 2));
/// assert_eq!(operand.rows(1..3).columns(0..1).dim(), (2, 1));
/// ```
#[derive(Clone)]
pub struct Operand<'a, T>(pub(crate) OperandData<'a, T>);

/// The location of an [`Operand`].
#[derive(Clone)]
pub(crate) enum OperandData<'a, T> {
    Host(ArrayView2<'a, T>),
    Device(DeviceOperand<'a>),
}

impl<'a, T> From<ArrayView2<'a, T>> for Operand<'a, T> {
    fn from(view: ArrayView2<'a, T>) -> Self {
        Self(OperandData::Host(view))
    }
}

impl<'a, T> From<&'a DeviceData> for Operand<'a, T> {
    fn from(data: &'a DeviceData) -> Self {
        Self(OperandData::Device(DeviceOperand::new(data)))
    }
}

impl<'a, T> Operand<'a, T> {
    /// `(rows, columns)`.
    pub fn dim(&self) -> (usize, usize) {
        match &self.0 {
            OperandData::Host(view) => view.dim(),
            OperandData::Device(there) => there.dim(),
        }
    }

    /// The rows in the range `some`.
    ///
    /// # Panics
    /// If the range ends beyond the rows.
    pub fn rows(&self, some: Range<usize>) -> Operand<'_, T> {
        Operand(match &self.0 {
            OperandData::Host(view) => OperandData::Host(view.slice(ndarray::s![some, ..])),
            OperandData::Device(there) => OperandData::Device(there.rows(some)),
        })
    }

    /// The columns in the range `some`.
    ///
    /// # Panics
    /// If the range ends beyond the columns.
    pub fn columns(&self, some: Range<usize>) -> Operand<'_, T> {
        Operand(match &self.0 {
            OperandData::Host(view) => OperandData::Host(view.slice(ndarray::s![.., some])),
            OperandData::Device(there) => OperandData::Device(there.exchanged().rows(some).exchanged()),
        })
    }

    /// The transpose.
    pub(crate) fn reversed_axes(self) -> Self {
        Self(match self.0 {
            OperandData::Host(view) => OperandData::Host(view.reversed_axes()),
            OperandData::Device(there) => OperandData::Device(there.exchanged()),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        let (rows, columns) = self.dim();
        rows == 0 || columns == 0
    }
}

impl<'a, T: Scalar> Operand<'a, T> {
    /// The array in host memory.
    ///
    /// # Errors
    /// [`Error::Device`] if the operand is in GPU memory, which only a GPU engine can read.
    pub(super) fn here(&self) -> Result<ArrayView2<'_, T>, Error> {
        match &self.0 {
            OperandData::Host(view) => Ok(view.view()),
            OperandData::Device(_) => Err(elsewhere()),
        }
    }

    /// The same operand with the number type of the device code.
    pub(super) fn on_device(&self) -> Operand<'_, T::Number> {
        Operand(match &self.0 {
            OperandData::Host(view) => OperandData::Host(T::on_device(view.view())),
            OperandData::Device(there) => OperandData::Device(there.clone()),
        })
    }

    /// Sets the results that a GPU has computed of questions with a NaN or infinite value to NaN. Only the questions with
    /// infinite results are checked: the others have a NaN result already, or no such value.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy of those questions from the GPU fails.
    pub(super) fn undefined(&self, out: &mut [f64]) -> Result<(), Error> {
        let there = match &self.0 {
            OperandData::Host(view) => {
                for (out, x) in out.iter_mut().zip(view.rows()).filter(|(out, _)| out.is_infinite()) {
                    super::quadratic::undefined(x.insert_axis(ndarray::Axis(0)), std::slice::from_mut(out));
                }
                return Ok(());
            }
            OperandData::Device(there) => there,
        };
        let doubtful: Vec<usize> = (0..out.len()).filter(|&i| out[i].is_infinite()).collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        // In chunks: these may be all questions, for which the host may lack memory.
        for some in doubtful.chunks(AT_ONCE) {
            for (&i, x) in some.iter().zip(there.pick(some)?.outer_iter()) {
                if x.iter().any(|&x| !T::of(x).to_f64().is_finite()) {
                    out[i] = f64::NAN;
                }
            }
        }
        Ok(())
    }
}

/// Number of questions copied from a GPU at once.
const AT_ONCE: usize = 1024;

pub(super) fn elsewhere() -> Error {
    Error::Device(
        "an operand of the product lies on a GPU, but the engine is not a GPU: copy it to the host or use that GPU"
            .to_owned(),
    )
}

/// The resident matrix, in host or GPU memory.
pub(super) enum MatrixData<T: Scalar> {
    Host(RowArray<T>),
    Device(DeviceData),
}

impl<T: Scalar> MatrixData<T> {
    pub(super) fn dim(&self) -> (usize, usize) {
        match self {
            Self::Host(matrix) => matrix.dim(),
            Self::Device(data) => data.dim(),
        }
    }

    pub(super) fn operand(&self) -> Operand<'_, T> {
        match self {
            Self::Host(matrix) => matrix.view().into(),
            Self::Device(data) => data.into(),
        }
    }

    /// The matrix in host memory, copied there if it is on a GPU.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(super) fn on_host(&self) -> Result<CowArray<'_, T, Ix2>, Error> {
        match self {
            Self::Host(matrix) => Ok(matrix.view().into()),
            Self::Device(data) => {
                memory::check("the matrix from the GPU", bytes::<T>(data.dim()))?;
                Ok(T::from_matrix(data.fetch()?).into())
            }
        }
    }
}
