//! Rows and columns as a file gave them, with the columns' names.

use gmm_model::{DataError, Dataset, Matrix};
use ndarray::Axis;

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

    /// Indices of the columns that `wanted` names, in its order: each a name, or an index from 0.
    ///
    /// # Errors
    /// [`ColumnError`], which lists the names there are, for a column that is not there, is asked for twice, or whose
    /// name two columns have; and where nothing is asked for.
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
        let d = self.n_columns();
        if d == 1 {
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

    fn keep(&self, indices: &[usize]) -> Self {
        let names = self.names.as_ref().map(|names| indices.iter().map(|&i| names[i].clone()).collect());
        Self { matrix: self.matrix.select_columns(indices), names, warnings: self.warnings.clone() }
    }
}

/// Finds columns by name, else by index from 0, among `d` columns.
pub(crate) fn find_columns<S: AsRef<str>>(
    wanted: &[S],
    names: Option<&[String]>,
    d: usize,
) -> Result<Vec<usize>, ColumnError> {
    let available = || names.map(<[String]>::to_vec).unwrap_or_default();
    if wanted.is_empty() {
        return Err(ColumnError::None { available: available(), d });
    }
    let mut found = Vec::with_capacity(wanted.len());
    let mut taken = vec![false; d];
    for column in wanted.iter().map(AsRef::as_ref) {
        let mut named =
            names.unwrap_or_default().iter().enumerate().filter(|(_, name)| *name == column).map(|(i, _)| i);
        let index = match (named.next(), named.next()) {
            (Some(_), Some(_)) => return Err(ColumnError::Ambiguous { wanted: column.to_owned(), d }),
            (Some(i), None) => Some(i),
            // `parse` also takes "+1", which is nobody's index.
            _ => column.parse::<usize>().ok().filter(|&i| i < d && !column.starts_with('+')),
        };
        let Some(index) = index else {
            return Err(ColumnError::Unknown { wanted: column.to_owned(), available: available(), d });
        };
        if std::mem::replace(&mut taken[index], true) {
            return Err(ColumnError::Twice { wanted: column.to_owned(), available: available(), d });
        }
        found.push(index);
    }
    Ok(found)
}
