//! Rows and columns as a file gave them, with the columns' names.

use gmm_model::{DataError, Dataset, Matrix};
use ndarray::Axis;

pub(crate) use crate::columns::find_columns;
use crate::{ColumnError, DataWarning};

/// An `(n, d)` matrix, where the file had them `d` column names, and what looked odd. Values may be NaN or infinite:
/// [`Dataset`] is the checked form.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The values, `(n, d)`.
    pub matrix: Matrix,
    /// Column names, `(d,)`.
    pub names: Option<Vec<String>>,
    /// What was read but may not be what was meant. Whoever shows the table to a person shows these too.
    pub warnings: Vec<DataWarning>,
}

impl Table {
    /// A table without column names.
    pub fn new(matrix: impl Into<Matrix>) -> Self {
        Self { matrix: matrix.into(), names: None, warnings: Vec::new() }
    }

    /// A table with column names; `names` must have as many as the matrix has columns.
    ///
    /// # Errors
    /// [`DataError::NameLength`].
    pub fn with_names(matrix: impl Into<Matrix>, names: Vec<String>) -> Result<Self, DataError> {
        let matrix = matrix.into();
        let d = matrix.dim().1;
        if names.len() != d {
            return Err(DataError::NameLength { found: names.len(), d });
        }
        Ok(Self { matrix, names: Some(names), warnings: Vec::new() })
    }

    /// Rows `n`.
    pub fn n_rows(&self) -> usize {
        self.matrix.dim().0
    }

    /// Columns `d`.
    pub fn n_columns(&self) -> usize {
        self.matrix.dim().1
    }

    /// Indices of the columns that `wanted` names, in its order: each a name, an index from 0, or another form that
    /// [`ReadOptions::columns`](crate::ReadOptions::columns) has.
    ///
    /// # Errors
    /// [`ColumnError`], which lists the names there are, for a column that is not there, is asked for twice, or whose
    /// name two columns have; and where nothing is asked for or left.
    pub fn indices<S: AsRef<str>>(&self, wanted: &[S]) -> Result<Vec<usize>, ColumnError> {
        find_columns(wanted, self.names.as_deref(), self.n_columns())
    }

    /// The chosen columns in the order given: each a name, or an index from 0.
    ///
    /// # Errors
    /// As [`indices`](Self::indices). Cost: one copy of what is chosen.
    pub fn select<S: AsRef<str>>(&self, wanted: &[S]) -> Result<Self, ColumnError> {
        Ok(self.keep(&self.indices(wanted)?))
    }

    /// Takes one column out, such as row weights, and leaves the others.
    ///
    /// # Errors
    /// As [`indices`](Self::indices); also where no column would be left. `self` is then unchanged.
    pub fn take_column(&mut self, wanted: &str) -> Result<Vec<f64>, ColumnError> {
        let index = self.indices(&[wanted])?[0];
        self.take(index)
    }

    /// Takes out the last column, where [`ReadOptions::last`](crate::ReadOptions::last) has put one.
    ///
    /// # Errors
    /// [`ColumnError::None`] where no column would be left. `self` is then unchanged.
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

    /// The checked form, with the names.
    ///
    /// # Errors
    /// [`DataError`] for no rows, no columns, NaN or infinity. Cost: one pass, no copy.
    pub fn into_dataset(self) -> Result<Dataset, DataError> {
        let data = Dataset::new(self.matrix)?;
        match self.names {
            Some(names) => data.with_names(names),
            None => Ok(data),
        }
    }

    /// This table with the file's name in its warnings.
    pub(crate) fn of(mut self, path: &str) -> Self {
        self.warnings.iter_mut().for_each(|warning| path.clone_into(&mut warning.path));
        self
    }

    pub(crate) fn keep(&self, indices: &[usize]) -> Self {
        let names = self.names.as_ref().map(|names| indices.iter().map(|&i| names[i].clone()).collect());
        Self { matrix: self.matrix.select_columns(indices), names, warnings: self.warnings.clone() }
    }
}
