//! The array of a [`Matrix`](crate::Matrix): owned, borrowed, or a view of memory that another value owns.

use std::fmt;
use std::ops::{Deref, Range};
use std::slice;
use std::sync::Arc;

use ndarray::{Array2, ArrayRef, ArrayView2, Axis, CowArray, ErrorKind, Ix2, ShapeError};

/// An `(n, d)` array in row-major order.
///
/// The values are owned, or borrowed for `'static`, or belong to a shared owner (see [`shared`](Self::shared)), for
/// example a file mapped into memory, which lives as long as this array and its clones. A clone copies owned values
/// only. All of ndarray's read-only methods are available.
///
/// ```
/// use std::sync::Arc;
///
/// use gmm_model::{Matrix, RowArray};
///
/// let owner = Arc::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let rows = RowArray::shared(owner, (3, 2))?;
/// assert_eq!(rows.row(1).to_vec(), [3.0, 4.0]);
/// assert_eq!(Matrix::from(rows).dim(), (3, 2));
/// # Ok::<(), ndarray::ShapeError>(())
/// ```
pub struct RowArray<T: 'static> {
    /// Never leaves this type with its lifetime: a view may be valid only as long as `owner`.
    values: CowArray<'static, T, Ix2>,
    owner: Option<Owner>,
}

type Owner = Arc<dyn Send + Sync>;

/// An array in row-major order as an owner. Its values may be a part of its memory.
struct Owned<T>(Array2<T>);

impl<T> AsRef<[T]> for Owned<T> {
    fn as_ref(&self) -> &[T] {
        self.0.as_slice().expect("row-major")
    }
}

impl<T: 'static> RowArray<T> {
    /// A view of the values of `owner`, `(n * d,)` in row-major order. The array shares ownership, and makes no copy.
    ///
    /// # Errors
    /// [`ShapeError`] if the number of values is not `n * d`.
    pub fn shared<O>(owner: Arc<O>, (n, d): (usize, usize)) -> Result<Self, ShapeError>
    where
        O: AsRef<[T]> + Send + Sync + 'static,
    {
        let values: &[T] = (*owner).as_ref();
        // SAFETY: the values are borrowed from `*owner`. That value neither moves nor is dropped or borrowed mutably
        // while this array or a clone holds a reference to it, and `values` is only lent for as long as `self`.
        let values: &'static [T] = unsafe { slice::from_raw_parts(values.as_ptr(), values.len()) };
        if n.checked_mul(d) != Some(values.len()) {
            return Err(ShapeError::from_kind(ErrorKind::IncompatibleShape));
        }
        Ok(Self { values: ArrayView2::from_shape((n, d), values)?.into(), owner: Some(owner) })
    }

    /// Whether the values belong to a shared owner.
    pub const fn is_shared(&self) -> bool {
        self.owner.is_some()
    }
}

impl<T: Clone + 'static> RowArray<T> {
    fn standard(values: CowArray<'static, T, Ix2>) -> Self {
        let is_standard = values.is_standard_layout();
        let values = if is_standard { values } else { values.as_standard_layout().into_owned().into() };
        Self { values, owner: None }
    }

    /// Moves owned values to a shared owner, so that clones are cheap. No values are copied.
    #[must_use]
    pub fn into_shared(self) -> Self
    where
        T: Send + Sync,
    {
        if self.values.is_view() {
            return self;
        }
        let dim = self.values.dim();
        Self::shared(Arc::new(Owned(self.values.into_owned())), dim).expect("n*d values")
    }

    /// A clone that copies no values; `None` if the values are owned.
    pub fn cheap_clone(&self) -> Option<Self> {
        self.values.is_view().then(|| self.clone())
    }

    /// The rows of a range, `(rows.len(), d)`. Copies values only if they are owned.
    ///
    /// # Panics
    /// If the range ends beyond `n`.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        match self.cheap_clone() {
            Some(mut part) => {
                part.values.slice_axis_inplace(Axis(0), rows.into());
                part
            }
            None => Self::from(self.values.slice_axis(Axis(0), rows.into()).to_owned()),
        }
    }

    /// The values as an array of their own; a copy unless they are owned.
    pub fn into_owned(self) -> Array2<T> {
        self.values.into_owned()
    }
}

impl<T: 'static> Deref for RowArray<T> {
    type Target = ArrayRef<T, Ix2>;

    fn deref(&self) -> &Self::Target {
        &self.values
    }
}

impl<T: Clone + 'static> Clone for RowArray<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), owner: self.owner.clone() }
    }
}

impl<T: fmt::Debug + 'static> fmt::Debug for RowArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl<T: PartialEq + 'static> PartialEq for RowArray<T> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

/// Makes no copy if the array is in row-major order.
impl<T: Clone + 'static> From<Array2<T>> for RowArray<T> {
    fn from(values: Array2<T>) -> Self {
        Self::standard(values.into())
    }
}

/// Makes no copy if the array is in row-major order.
impl<T: Clone + 'static> From<ArrayView2<'static, T>> for RowArray<T> {
    fn from(values: ArrayView2<'static, T>) -> Self {
        Self::standard(values.into())
    }
}

/// Makes no copy if the array is in row-major order.
impl<T: Clone + 'static> From<CowArray<'static, T, Ix2>> for RowArray<T> {
    fn from(values: CowArray<'static, T, Ix2>) -> Self {
        Self::standard(values)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::s;

    use super::*;

    #[test]
    fn an_array_that_does_not_fill_its_vector_can_be_shared() {
        let all = Array2::from_shape_fn((5, 2), |(i, j)| (10 * i + j) as f64);
        let mut shorter = all.clone();
        shorter.remove_index(Axis(0), 1);
        let tail = all.clone().slice_move(s![2.., ..]);
        for part in [all, tail, shorter] {
            let shared = RowArray::from(part.clone()).into_shared();
            assert!(shared.is_shared() && *shared == *part);
            let clone = shared.cheap_clone().unwrap();
            drop(shared);
            assert_eq!(clone.into_owned(), part);
        }
    }

    #[test]
    fn a_part_is_a_view_of_the_same_values_if_they_are_shared() {
        let all = Array2::from_shape_fn((5, 2), |(i, j)| (10 * i + j) as f64);
        let owned = RowArray::from(all.clone());
        assert_eq!(*owned.part(1..3), all.slice(s![1..3, ..]));
        let shared = owned.into_shared();
        let (part, empty) = (shared.part(1..5), shared.part(5..5));
        assert_eq!((*part).as_slice().unwrap().as_ptr(), shared.row(1).as_ptr());
        assert_eq!(empty.dim(), (0, 2));
        drop(shared);
        assert_eq!(*part, all.slice(s![1.., ..]));
    }

    #[test]
    fn an_owned_array_has_no_cheap_clone() {
        assert!(RowArray::from(Array2::<f32>::zeros((2, 2))).cheap_clone().is_none());
    }
}
