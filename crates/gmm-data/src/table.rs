//! A table as read from a file: rows, columns and column names.

use gmm_model::{DataError, Dataset, Matrix};
use ndarray::Axis;

pub(crate) use crate::columns::find_columns;
use crate::{ColumnError, DataWarning};

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
}

impl Table {
    /// A table without column names.
    pub fn new(matrix: impl Into<Matrix>) -> Self {
        Self { matrix: matrix.into(), names: None, warnings: Vec::new() }
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
        Ok(Self { matrix, names: Some(names), warnings: Vec::new() })
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
        Ok(self.keep(&self.indices(wanted)?))
    }

    /// Removes one column, such as row weights, and returns its values.
    ///
    /// # Errors
    /// As [`indices`](Self::indices); also if no column would be left. On error `self` is unchanged.
    pub fn take_column(&mut self, wanted: &str) -> Result<Vec<f64>, ColumnError> {
        let index = self.indices(&[wanted])?[0];
        self.take(index)
    }

    /// Removes the last column and returns its values; [`ReadOptions::last`](crate::ReadOptions::last) puts a column
    /// there.
    ///
    /// # Errors
    /// [`ColumnError::None`] if no column would be left. On error `self` is unchanged.
    pub fn take_last(&mut self) -> Result<Vec<f64>, ColumnError> {
        self.take(self.n_columns().saturating_sub(1))
    }

    fn take(&mut self, index: usize) -> Result<Vec<f64>, ColumnError> {
        let d = self.n_columns();
        if d < 2 {
            return Err(ColumnError::None { available: self.names.clone().unwrap_or_default(), d });
        }
        let column = match &self.matrix {
            Matrix::F32(a) => a.index_axis(Axis(1), index).iter().map(|&v| f64::from(v)).collect(),
            Matrix::F64(a) => a.index_axis(Axis(1), index).to_vec(),
        };
        let rest: Vec<usize> = (0..d).filter(|&i| i != index).collect();
        *self = self.keep(&rest);
        Ok(column)
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

    /// Sets the file's name in this table's warnings.
    pub(crate) fn of(mut self, path: &str) -> Self {
        self.warnings.iter_mut().for_each(|warning| path.clone_into(&mut warning.path));
        self
    }

    pub(crate) fn keep(&self, indices: &[usize]) -> Self {
        let names = self.names.as_ref().map(|names| indices.iter().map(|&i| names[i].clone()).collect());
        Self { matrix: self.matrix.select_columns(indices), names, warnings: self.warnings.clone() }
    }
}
