//! Converts record batches into a row-major matrix, on all cores if the number of rows of each part is known.

use arrow_array::{Array, ArrayRef, RecordBatch};
use gmm_model::Matrix;

use super::batch::Plan;
use super::values::{Value, flatten};
use crate::error::Fault;
use crate::store::Store;
use crate::{Problem, Storage, Table, parallel};

/// The purpose of the memory, for error messages.
const TABLE: &str = "the table";

/// Number of rows transposed together. Each column in turn writes to all of these rows, so they should stay in the L2
/// cache: 512 rows of 100 columns of f64 take 400 KiB.
const PIECE: usize = 512;

/// Tables of fewer values are converted by one thread: that takes less time than starting another.
const SMALL: usize = 1 << 17;

/// Receives the record batches of a part in order.
pub(super) type Receive<'a> = dyn FnMut(&RecordBatch) -> Result<(), Fault> + 'a;

/// The numbers of one field in a batch, and how many there are per row.
type Numbers = (ArrayRef, usize);

impl Plan {
    /// Collects batches of the projected fields into a table; `n` is the number of rows that the file declares.
    pub(super) fn collect(
        &self,
        batches: impl Iterator<Item = Result<RecordBatch, Fault>>,
        n: usize,
    ) -> Result<Table, Fault> {
        let d: usize = self.widths.iter().map(|width| width.unwrap_or(1)).sum();
        // Refused before anything is decoded.
        let values = n.checked_mul(d).ok_or_else(|| Problem::Corrupt("too many values".to_owned()))?;
        if self.single {
            Store::<f32>::new(self.limit, TABLE).check(values)?;
        } else {
            Store::<f64>::new(self.limit, TABLE).check(values)?;
        }
        let table = self.gather(batches, n)?;
        if table.n_rows() != n {
            return Err(Problem::Corrupt(format!("the file declares {n} rows but has {}", table.n_rows())).into());
        }
        self.pick(table)
    }

    /// As [`collect`](Self::collect), for a stream, whose number of rows is unknown.
    pub(super) fn collect_stream(
        &self,
        batches: impl Iterator<Item = Result<RecordBatch, Fault>>,
    ) -> Result<Table, Fault> {
        self.pick(self.gather(batches, 0)?)
    }

    /// As [`collect`](Self::collect), for batches in memory.
    pub(super) fn collect_all(&self, batches: &[RecordBatch]) -> Result<Table, Fault> {
        let n = batches.iter().map(RecordBatch::num_rows).sum();
        self.collect(batches.iter().cloned().map(Ok), n)
    }

    /// Collects the parts of a file, each decoded by one thread into its own rows of the matrix. `rows` are the numbers
    /// of rows that the file declares for the parts, `part_bytes` the memory to decode the largest; `decode` passes on
    /// the batches of one part.
    ///
    /// `None` if that is not possible, does not pay, or fails for any reason. Then the file must be read with
    /// [`collect`](Self::collect), and the error is the one found there: the first in the order of the rows.
    pub(super) fn collect_parts(
        &self,
        rows: &[usize],
        part_bytes: u128,
        decode: impl Fn(usize, &mut Receive<'_>) -> Result<(), Fault> + Sync,
    ) -> Option<Table> {
        let d = self.widths.iter().copied().sum::<Option<usize>>().filter(|d| *d > 0)?;
        let n = rows.iter().try_fold(0usize, |n, rows| n.checked_add(*rows))?;
        // Each thread decodes a part of its own beside the matrix.
        let matrix_bytes = n as u128 * d as u128 * if self.single { 4 } else { 8 };
        let held = if matrix_bytes <= self.limit.fitting(0, matrix_bytes) { matrix_bytes } else { 0 };
        let free = self.limit.fitting(0, u128::MAX).saturating_sub(held).max(self.limit.beside().fitting(0, u128::MAX));
        let fitting = usize::try_from(free / part_bytes.max(1)).unwrap_or(usize::MAX);
        let threads = parallel::threads(rows.len()).min(fitting);
        if threads < 2 || n.checked_mul(d)? < SMALL {
            return None;
        }
        let matrix = if self.single {
            self.parts::<f32>(rows, (n, d), threads, decode)?.into_matrix((n, d))
        } else {
            self.parts::<f64>(rows, (n, d), threads, decode)?.into_matrix((n, d))
        };
        self.pick(self.named(matrix.ok()?, &self.widths)).ok()
    }

    fn parts<T: Value + Send>(
        &self,
        rows: &[usize],
        (n, d): (usize, usize),
        threads: usize,
        decode: impl Fn(usize, &mut Receive<'_>) -> Result<(), Fault> + Sync,
    ) -> Option<Store<T>> {
        let mut values = Store::<T>::zeros(n * d, self.limit, TABLE).ok()?;
        let mut rest = &mut values[..];
        let mut tasks = Vec::with_capacity(rows.len());
        for (part, rows) in rows.iter().enumerate() {
            let (out, others) = rest.split_at_mut(rows * d);
            tasks.push((part, out));
            rest = others;
        }
        let short = || Fault::from(Problem::Corrupt("another number of rows than declared".to_owned()));
        parallel::each(tasks, threads, |(part, out)| {
            let (mut filled, mut widths) = (0, self.widths.clone());
            decode(part, &mut |batch| {
                let arrays = self.numbers(batch, 0, &mut widths)?;
                let end = filled + batch.num_rows() * d;
                self.place(&arrays, 0, out.get_mut(filled..end).ok_or_else(short)?)?;
                filled = end;
                Ok(())
            })?;
            if filled == out.len() { Ok(()) } else { Err(short()) }
        })
        .ok()?;
        Some(values)
    }

    /// Gathers the rows of all batches; `expected` is the total number of rows expected.
    fn gather(
        &self,
        batches: impl Iterator<Item = Result<RecordBatch, Fault>>,
        expected: usize,
    ) -> Result<Table, Fault> {
        let mut widths = self.widths.clone();
        let matrix = if self.single {
            let (values, shape) = self.gather_as::<f32>(batches, expected, &mut widths)?;
            values.into_matrix(shape)?
        } else {
            let (values, shape) = self.gather_as::<f64>(batches, expected, &mut widths)?;
            values.into_matrix(shape)?
        };
        Ok(self.named(matrix, &widths))
    }

    fn gather_as<T: Value>(
        &self,
        batches: impl Iterator<Item = Result<RecordBatch, Fault>>,
        expected: usize,
        widths: &mut [Option<usize>],
    ) -> Result<(Store<T>, (usize, usize)), Fault> {
        let (mut values, mut n) = (Store::<T>::new(self.limit, TABLE), 0);
        for batch in batches {
            let batch = batch?;
            let rows = batch.num_rows();
            if rows == 0 {
                continue;
            }
            let arrays = self.numbers(&batch, n, widths)?;
            let d: usize = arrays.iter().map(|(_, width)| width).sum();
            let grown = rows.checked_mul(d).ok_or_else(|| Problem::Corrupt("too many values".to_owned()))?;
            // The first batch reserves memory for all rows.
            let room = if n == 0 { expected.max(rows).saturating_mul(d) } else { grown };
            values.reserve(room)?;
            let start = values.len();
            values.resize(start + grown)?;
            self.place(&arrays, n, &mut values[start..])?;
            n += rows;
        }
        Ok((values, (n, widths.iter().map(|width| width.unwrap_or(1)).sum())))
    }

    /// The numbers of each field in a batch, whose first row is the table's row `first`. Sets unknown widths.
    fn numbers(&self, batch: &RecordBatch, first: usize, widths: &mut [Option<usize>]) -> Result<Vec<Numbers>, Fault> {
        let mut arrays = Vec::with_capacity(widths.len());
        for (field, position) in self.positions().into_iter().enumerate() {
            if position >= batch.num_columns() {
                return Err(Problem::Corrupt("a record batch lacks columns of the schema".to_owned()).into());
            }
            let at = |(row, problem): (Option<usize>, _)| self.fault(field, row.map(|row| first + row), problem);
            let (array, width) = flatten(batch.column(position), widths[field], self.missing).map_err(at)?;
            widths[field] = Some(width);
            arrays.push((array, width));
        }
        Ok(arrays)
    }

    /// Converts the numbers of a batch, whose first row is the table's row `first`, to its rows in the matrix.
    fn place<T: Value>(&self, arrays: &[Numbers], first: usize, out: &mut [T]) -> Result<(), Fault> {
        let d: usize = arrays.iter().map(|(_, width)| width).sum();
        if d == 0 {
            return Ok(());
        }
        for (piece, out) in out.chunks_mut(PIECE * d).enumerate() {
            let (start, rows) = (piece * PIECE, out.len() / d);
            let mut column = 0;
            for (field, (array, width)) in arrays.iter().enumerate() {
                let at =
                    |(i, problem): (Option<usize>, _)| self.fault(field, i.map(|i| first + start + i / width), problem);
                let array = array.slice(start * width, rows * width);
                if *width == 1 {
                    T::fill(&array, out.iter_mut().skip(column).step_by(d)).map_err(at)?;
                } else {
                    let slots = out.chunks_exact_mut(d).flat_map(|row| &mut row[column..column + width]);
                    T::fill(&array, slots).map_err(at)?;
                }
                column += width;
            }
        }
        Ok(())
    }

    /// The table, with the names of its columns.
    fn named(&self, (matrix, storage): (Matrix, Storage), widths: &[Option<usize>]) -> Table {
        let names = self.names.iter().zip(widths).zip(&self.widths);
        let names: Vec<String> = names
            .flat_map(|((name, &width), &known)| match width {
                Some(1) if known == Some(1) => vec![name.clone()],
                width => (0..width.unwrap_or(1)).map(|i| format!("{name}[{i}]")).collect(),
            })
            .collect();
        Table { matrix, names: Some(names), warnings: self.warnings.clone(), storage }
    }
}
