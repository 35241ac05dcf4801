//! A table as read from a file: rows, columns and column names.

use gmm_model::{DataError, Dataset, Matrix, RowArray};
use ndarray::Axis;

pub(crate) use crate::columns::find_columns;
use crate::memory::Limit;
use crate::store::{Cell, Store};
use crate::{ColumnError, DataWarning, Problem};

/// An `(n, d)` matrix, its `d` column names if the file has them, and the reader's warnings. Values may be NaN or
/// infinite: [`Dataset`] is the checked form.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The values, `(n, d)`.
    pub matrix: Matrix,
    /// Column names, `(d,)`.
    pub names: Option<Vec<String>>,
    /// Warnings that something may not have been read as intended. Programs that show the table to a user must show
    /// these too.
    pub warnings: Vec<DataWarning>,
    /// Where the values are.
    pub storage: Storage,
}

/// Where the values of a table are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    #[default]
    Memory,
    /// In the file itself, mapped into memory.
    MappedFile,
    /// In a temporary file, mapped into memory.
    TemporaryFile,
}

impl Table {
    /// A table without column names.
    pub fn new(matrix: impl Into<Matrix>) -> Self {
        Self { matrix: matrix.into(), names: None, warnings: Vec::new(), storage: Storage::Memory }
    }

    /// A table with column names.
    ///
    /// # Errors
    /// [`DataError::NameLength`] if the number of names differs from the number of columns.
    pub fn with_names(matrix: impl Into<Matrix>, names: Vec<String>) -> Result<Self, DataError> {
        let matrix = matrix.into();
        let d = matrix.dim().1;
        if names.len() != d {
            return Err(DataError::NameLength { found: names.len(), d });
        }
        Ok(Self { names: Some(names), ..Self::new(matrix) })
    }

    /// Number of rows, `n`.
    pub fn n_rows(&self) -> usize {
        self.matrix.dim().0
    }

    /// Number of columns, `d`.
    pub fn n_columns(&self) -> usize {
        self.matrix.dim().1
    }

    /// Returns the indices of the columns in `wanted`, in its order. Each entry is a name, an index from 0, or another
    /// form that [`ReadOptions::columns`](crate::ReadOptions::columns) accepts.
    ///
    /// # Errors
    /// [`ColumnError`] if a column does not exist, is requested twice, or has a name that two columns share; and if the
    /// selection is empty. The error lists the available names.
    pub fn indices<S: AsRef<str>>(&self, wanted: &[S]) -> Result<Vec<usize>, ColumnError> {
        find_columns(wanted, self.names.as_deref(), self.n_columns())
    }

    /// Returns a table of the columns in `wanted`, in its order; the entries are those of [`indices`](Self::indices).
    ///
    /// # Errors
    /// As [`indices`](Self::indices). Cost: one copy of the selected columns.
    pub fn select<S: AsRef<str>>(&self, wanted: &[S]) -> Result<Self, ColumnError> {
        let indices = self.indices(wanted)?;
        let matrix = self.matrix.select_columns(&indices);
        Ok(Self { matrix, names: self.names_of(&indices), warnings: self.warnings.clone(), storage: Storage::Memory })
    }

    /// As [`select`](Self::select), where `memory` limits the copy as
    /// [`ReadOptions::memory`](crate::ReadOptions::memory) does. If all columns are selected in their order, nothing is
    /// copied.
    ///
    /// # Errors
    /// As [`select`](Self::select); [`Problem::Memory`] or [`Problem::Disk`] if there is no room for the copy.
    pub fn select_within<S: AsRef<str>>(self, wanted: &[S], memory: Option<u64>) -> Result<Self, Problem> {
        let indices = self.indices(wanted)?;
        self.keep(&indices, Limit::of(memory))
    }

    /// Removes one column, such as row weights, and returns its values.
    ///
    /// # Errors
    /// As [`indices`](Self::indices); also if no column would be left. On error `self` is unchanged.
    pub fn take_column(&mut self, wanted: &str) -> Result<Vec<f64>, ColumnError> {
        Ok(self.take_columns(&[wanted])?.swap_remove(0))
    }

    /// Removes columns, and returns their values in the order of `wanted`, whose entries are those of
    /// [`indices`](Self::indices).
    ///
    /// # Errors
    /// As [`take_column`](Self::take_column).
    pub fn take_columns<S: AsRef<str>>(&mut self, wanted: &[S]) -> Result<Vec<Vec<f64>>, ColumnError> {
        let indices = self.indices(wanted)?;
        if self.n_columns() <= indices.len() {
            return Err(ColumnError::None { available: self.names.clone().unwrap_or_default(), d: self.n_columns() });
        }
        let columns = indices.iter().map(|&index| self.column(index)).collect();
        let rest: Vec<usize> = (0..self.n_columns()).filter(|i| !indices.contains(i)).collect();
        *self = Self {
            matrix: self.matrix.select_columns(&rest),
            names: self.names_of(&rest),
            warnings: std::mem::take(&mut self.warnings),
            storage: Storage::Memory,
        };
        Ok(columns)
    }

    /// Removes the last column, where [`ReadOptions::last`](crate::ReadOptions::last) puts it, and returns the others
    /// and its values. Values in memory are moved in place; others are copied, within `memory` as
    /// [`ReadOptions::memory`](crate::ReadOptions::memory) defines it.
    ///
    /// # Errors
    /// [`ColumnError::None`] if no column would be left; [`Problem::Memory`] or [`Problem::Disk`] if there is no room
    /// for the copy.
    pub fn split_last(self, memory: Option<u64>) -> Result<(Self, Vec<f64>), Problem> {
        self.check_others()?;
        let last = self.n_columns() - 1;
        let column = self.column(last);
        let rest: Vec<usize> = (0..last).collect();
        Ok((self.keep(&rest, Limit::of(memory))?, column))
    }

    fn check_others(&self) -> Result<(), ColumnError> {
        match self.n_columns() {
            d @ ..2 => Err(ColumnError::None { available: self.names.clone().unwrap_or_default(), d }),
            _ => Ok(()),
        }
    }

    fn column(&self, index: usize) -> Vec<f64> {
        match &self.matrix {
            Matrix::F32(a) => a.index_axis(Axis(1), index).iter().map(|&v| f64::from(v)).collect(),
            Matrix::F64(a) => a.index_axis(Axis(1), index).to_vec(),
        }
    }

    /// Converts the table to the checked form, with the names.
    ///
    /// # Errors
    /// [`DataError`] if there are no rows or no columns, or if a value is NaN or infinite. Cost: one pass, no copy.
    pub fn into_dataset(self) -> Result<Dataset, DataError> {
        let data = Dataset::new(self.matrix)?;
        match self.names {
            Some(names) => data.with_names(names),
            None => Ok(data),
        }
    }

    /// As [`into_dataset`](Self::into_dataset), where NaN is a missing value:
    /// [`Dataset::with_holes`](gmm_model::Dataset::with_holes).
    ///
    /// # Errors
    /// [`DataError`] if there are no rows or no columns, or if a value is infinite. Cost: one pass, no copy.
    pub fn into_dataset_with_holes(self) -> Result<Dataset, DataError> {
        let data = Dataset::with_holes(self.matrix)?;
        match self.names {
            Some(names) => data.with_names(names),
            None => Ok(data),
        }
    }

    /// Sets the file's name in this table's warnings.
    pub(crate) fn of(mut self, path: &str) -> Self {
        self.warnings.iter_mut().for_each(|warning| path.clone_into(&mut warning.path));
        self
    }

    /// The columns of these indices, in that order.
    pub(crate) fn keep(mut self, indices: &[usize], limit: Limit) -> Result<Self, Problem> {
        if !indices.iter().copied().eq(0..self.n_columns()) {
            self.names = self.names_of(indices);
            (self.matrix, self.storage) = match self.matrix {
                Matrix::F32(rows) => kept(rows, indices, limit)?,
                Matrix::F64(rows) => kept(rows, indices, limit)?,
            };
        }
        Ok(self)
    }

    fn names_of(&self, indices: &[usize]) -> Option<Vec<String>> {
        self.names.as_ref().map(|names| indices.iter().map(|&i| names[i].clone()).collect())
    }
}

/// The columns of these indices. An array in memory that belongs to no one else is reused.
fn kept<T: Cell>(rows: RowArray<T>, indices: &[usize], limit: Limit) -> Result<(Matrix, Storage), Problem>
where
    Matrix: From<RowArray<T>>,
{
    const WHAT: &str = "the table";
    let ((n, d), width) = (rows.dim(), indices.len());
    let rises = indices.is_sorted();
    if rises && !rows.is_shared() {
        let (mut values, start) = rows.into_owned().into_raw_vec_and_offset();
        let start = start.unwrap_or(0);
        for row in 0..n {
            // No value moves to a place from which one is still to be read, since the indices rise.
            for (slot, &column) in indices.iter().enumerate() {
                values[row * width + slot] = values[start + row * d + column];
            }
        }
        values.truncate(n * width);
        return Store::of_vec(values, limit, WHAT).into_matrix((n, width));
    }
    let mut store = Store::zeros(n * width, limit, WHAT)?;
    for (row, out) in rows.outer_iter().zip(store.chunks_exact_mut(width.max(1))) {
        for (slot, &column) in out.iter_mut().zip(indices) {
            *slot = row[column];
        }
    }
    store.into_matrix((n, width))
}
