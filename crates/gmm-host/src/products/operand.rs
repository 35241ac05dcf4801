//! A factor of a product, wherever it lies.

use std::ops::Range;

use ndarray::{ArrayView2, CowArray, Ix2};

use super::{Scalar, bytes};
use crate::cuda::products::DeviceOperand;
use crate::{DeviceData, Error, memory};

/// A matrix to multiply by or a batch of questions, `(rows, columns)`: an `ArrayView2` of any strides on the host, or
/// [`DeviceData`] on the device that multiplies, of either precision. The latter's numbers become those of the matrix that is
/// asked there, rounded once or exactly; row weights do not matter, and numbers that are none go the way of all others.
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

/// Where.
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
    /// Rows and columns.
    pub fn dim(&self) -> (usize, usize) {
        match &self.0 {
            OperandData::Host(view) => view.dim(),
            OperandData::Device(there) => there.dim(),
        }
    }

    /// Some of the rows.
    ///
    /// # Panics
    /// Where it has not as many.
    pub fn rows(&self, some: Range<usize>) -> Operand<'_, T> {
        Operand(match &self.0 {
            OperandData::Host(view) => OperandData::Host(view.slice(ndarray::s![some, ..])),
            OperandData::Device(there) => OperandData::Device(there.rows(some)),
        })
    }

    /// Some of the columns.
    ///
    /// # Panics
    /// Where it has not as many.
    pub fn columns(&self, some: Range<usize>) -> Operand<'_, T> {
        Operand(match &self.0 {
            OperandData::Host(view) => OperandData::Host(view.slice(ndarray::s![.., some])),
            OperandData::Device(there) => OperandData::Device(there.exchanged().rows(some).exchanged()),
        })
    }

    /// Rows as columns.
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
    /// The array on the host.
    ///
    /// # Errors
    /// [`Error::Device`] for one on a GPU, where no GPU multiplies.
    pub(super) fn here(&self) -> Result<ArrayView2<'_, T>, Error> {
        match &self.0 {
            OperandData::Host(view) => Ok(view.view()),
            OperandData::Device(_) => Err(elsewhere()),
        }
    }

    /// The same, in the type as a device knows it.
    pub(super) fn on_device(&self) -> Operand<'_, T::Number> {
        Operand(match &self.0 {
            OperandData::Host(view) => OperandData::Host(T::on_device(view.view())),
            OperandData::Device(there) => OperandData::Device(there.clone()),
        })
    }

    /// NaN for questions with a number that is none, also on a GPU: none of these has a finite answer by itself.
    ///
    /// # Errors
    /// [`Error::Device`], as rows come from a GPU whose answers are infinite.
    pub(super) fn undefined(&self, out: &mut [f64]) -> Result<(), Error> {
        let there = match &self.0 {
            OperandData::Host(view) => {
                super::quadratic::undefined(view.view(), out);
                return Ok(());
            }
            OperandData::Device(there) => there,
        };
        let doubtful: Vec<usize> = (0..out.len()).filter(|&i| out[i].is_infinite()).collect();
        if doubtful.is_empty() {
            return Ok(());
        }
        // Some at a time: they may be all, which the host need not have room for.
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

/// Rows that come from a GPU together to be looked at.
const AT_ONCE: usize = 1024;

pub(super) fn elsewhere() -> Error {
    Error::Device("a factor of the product lies on a GPU, and what multiplies is none".to_owned())
}

/// The matrix that stays.
pub(super) enum MatrixData<T: Scalar> {
    Host(CowArray<'static, T, Ix2>),
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

    /// The matrix on the host, where it is brought if it is not there.
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
