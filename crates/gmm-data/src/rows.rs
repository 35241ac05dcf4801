//! Gathers rows that arrive in pieces into one matrix.

use gmm_model::{Matrix, RowArray};

use crate::memory::Limit;
use crate::store::{Cell, Store};
use crate::{Problem, Storage};

/// Rows that are appended one matrix after another, in memory or in a temporary file.
///
/// ```
/// use gmm_data::RowGatherer;
/// use ndarray::array;
///
/// let mut rows = RowGatherer::new(Some(1 << 30));
/// rows.push(array![[1.0, 2.0]].into())?;
/// rows.push(array![[3.0f32, 4.0], [5.0, 6.0]].into())?;
/// assert_eq!(rows.finish()?.dim(), (3, 2));
/// # Ok::<(), gmm_data::Problem>(())
/// ```
pub struct RowGatherer {
    values: Values,
    n: usize,
    d: usize,
    limit: Limit,
}

enum Values {
    F32(Store<f32>),
    F64(Store<f64>),
}

const WHAT: &str = "the table";

impl RowGatherer {
    /// No rows yet. `memory` limits the bytes that they may take in memory, as
    /// [`ReadOptions::memory`](crate::ReadOptions::memory) does.
    pub fn new(memory: Option<u64>) -> Self {
        let limit = Limit::of(memory);
        Self { values: Values::F32(Store::new(limit, WHAT)), n: 0, d: 0, limit }
    }

    /// Number of rows so far.
    pub const fn n_rows(&self) -> usize {
        self.n
    }

    /// Number of columns; 0 before the first rows.
    pub const fn n_columns(&self) -> usize {
        self.d
    }

    /// Bytes of the values so far.
    pub(crate) fn bytes(&self) -> u128 {
        let size = if matches!(self.values, Values::F32(_)) { 4 } else { 8 };
        self.n as u128 * self.d as u128 * size
    }

    /// Appends rows. The matrix becomes `f64` with the first rows that are. Cost: one copy; none for the first rows if
    /// they are in memory and belong to no one else.
    ///
    /// # Errors
    /// [`Problem::Text`] if the number of columns differs; [`Problem::Memory`] or [`Problem::Disk`] if there is no
    /// room.
    pub fn push(&mut self, rows: Matrix) -> Result<(), Problem> {
        self.push_columns(rows, None)
    }

    /// As [`push`](Self::push), with the columns of these indices in this order.
    pub(crate) fn push_columns(&mut self, rows: Matrix, columns: Option<&[usize]>) -> Result<(), Problem> {
        let (n, width) = rows.dim();
        let d = columns.map_or(width, <[usize]>::len);
        if self.n == 0 {
            self.d = d;
        } else if d != self.d {
            return Err(Problem::Text(format!("{d} columns, but the rows before have {}", self.d)));
        }
        match rows {
            Matrix::F32(rows) => match &mut self.values {
                Values::F32(_) if self.n == 0 && columns.is_none() && !rows.is_shared() => {
                    self.values = Values::F32(owned(rows, self.limit));
                }
                Values::F32(values) => append(values, &rows, columns, |v| v)?,
                Values::F64(values) => append(values, &rows, columns, f64::from)?,
            },
            Matrix::F64(rows) => {
                if self.n == 0 && columns.is_none() && !rows.is_shared() {
                    self.values = Values::F64(owned(rows, self.limit));
                } else {
                    append(self.as_f64()?, &rows, columns, |v| v)?;
                }
            }
        }
        self.n += n;
        Ok(())
    }

    /// The values as `f64`, converted if they are not.
    fn as_f64(&mut self) -> Result<&mut Store<f64>, Problem> {
        if let Values::F32(values) = &self.values {
            let mut wide = Store::zeros(values.len(), self.limit, WHAT)?;
            wide.iter_mut().zip(values.iter()).for_each(|(slot, &v)| *slot = f64::from(v));
            self.values = Values::F64(wide);
        }
        match &mut self.values {
            Values::F64(values) => Ok(values),
            Values::F32(_) => unreachable!("converted above"),
        }
    }

    /// The matrix of all rows.
    ///
    /// # Errors
    /// [`Problem::Io`] from the system.
    pub fn finish(self) -> Result<Matrix, Problem> {
        self.finish_with_storage().map(|(matrix, _)| matrix)
    }

    /// As [`finish`](Self::finish), and where the values are.
    pub(crate) fn finish_with_storage(self) -> Result<(Matrix, Storage), Problem> {
        let shape = (self.n, self.d);
        match self.values {
            Values::F32(values) => values.into_matrix(shape),
            Values::F64(values) => values.into_matrix(shape),
        }
    }
}

fn owned<T: Cell>(rows: RowArray<T>, limit: Limit) -> Store<T> {
    let len = rows.len();
    let (mut values, start) = rows.into_owned().into_raw_vec_and_offset();
    values.drain(..start.unwrap_or(0));
    values.truncate(len);
    Store::of_vec(values, limit, WHAT)
}

fn append<S: Copy, T: Cell>(
    values: &mut Store<T>,
    rows: &RowArray<S>,
    columns: Option<&[usize]>,
    to: impl Fn(S) -> T,
) -> Result<(), Problem> {
    let (start, (n, width)) = (values.len(), rows.dim());
    let d = columns.map_or(width, <[usize]>::len);
    values.resize(start + n * d)?;
    let from = rows.as_slice().expect("a Matrix is row-major");
    let out = &mut values[start..];
    match columns {
        None => out.iter_mut().zip(from).for_each(|(slot, &v)| *slot = to(v)),
        Some(columns) => {
            for (out, row) in out.chunks_exact_mut(d.max(1)).zip(from.chunks_exact(width.max(1))) {
                out.iter_mut().zip(columns).for_each(|(slot, &column)| *slot = to(row[column]));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    fn gathered(limit: u64, pieces: &[Matrix]) -> (Matrix, Storage) {
        let mut rows = RowGatherer::new(Some(limit));
        pieces.iter().for_each(|piece| rows.push(piece.clone()).unwrap());
        rows.finish_with_storage().unwrap()
    }

    #[test]
    fn pieces_of_both_precisions_give_the_same_matrix_in_memory_and_in_a_file() {
        let single = |from: usize| Array2::from_shape_fn((5, 3), |(i, j)| (from + 3 * i + j) as f32);
        let pieces = [Matrix::from(single(0)), single(15).into(), single(30).mapv(f64::from).into(), single(45).into()];
        let all = Array2::from_shape_fn((20, 3), |(i, j)| (3 * i + j) as f64);
        for (limit, storage) in [(0, Storage::TemporaryFile), (150, Storage::TemporaryFile), (480, Storage::Memory)] {
            assert_eq!(gathered(limit, &pieces), (Matrix::from(all.clone()), storage), "{limit}");
            let (two, _) = gathered(limit, &pieces[..2]);
            assert!(matches!(two, Matrix::F32(_)) && two.to_f64() == all.slice(ndarray::s![..10, ..]));
        }
    }

    #[test]
    fn rows_of_another_width_are_refused() {
        let mut rows = RowGatherer::new(None);
        rows.push(array![[1.0, 2.0]].into()).unwrap();
        let text = rows.push(array![[1.0], [2.0]].into()).unwrap_err().to_string();
        assert_eq!(text, "1 columns, but the rows before have 2");
    }
}
