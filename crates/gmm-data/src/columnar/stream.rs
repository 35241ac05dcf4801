//! Reads record batches that another library holds in memory.

use arrow_array::{RecordBatch, RecordBatchReader};

use super::batch::Plan;
use crate::error::{Fault, first_line};
use crate::{FileError, Problem, ReadOptions, Table};

/// Copies record batches in memory into a table, such as those passed through Arrow's C interface by another library.
///
/// Every column must hold numbers, booleans, or lists of these, as for [`read_table`](crate::read_table), without
/// nulls. The table is `f32` if all columns are `f16` or `f32`, else `f64`. Cost: one copy of the values.
///
/// # Errors
/// [`FileError`], with `name` in place of a file name, if a column has another type or a null (with the first such
/// row), or if the reader of the batches fails.
pub fn table_of_batches(batches: impl RecordBatchReader, name: &str) -> Result<Table, FileError> {
    gather(batches, &ReadOptions::default()).map_err(|fault| fault.in_named(name))
}

/// As [`table_of_batches`], where a null is read as NaN.
///
/// # Errors
/// As there, without nulls of numbers.
pub fn table_of_batches_with_nulls(batches: impl RecordBatchReader, name: &str) -> Result<Table, FileError> {
    gather(batches, &ReadOptions { missing: true, ..ReadOptions::default() }).map_err(|fault| fault.in_named(name))
}

fn gather(batches: impl RecordBatchReader, options: &ReadOptions) -> Result<Table, Fault> {
    let plan = Plan::new(&batches.schema(), options)?;
    let failed = |e: arrow_schema::ArrowError| Fault::from(Problem::Corrupt(first_line(e)));
    let batches: Vec<RecordBatch> = batches.collect::<Result<_, _>>().map_err(failed)?;
    plan.collect_all(&batches)
}
