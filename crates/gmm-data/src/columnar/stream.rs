//! Record batches that another library holds in memory.

use arrow_array::{RecordBatch, RecordBatchReader};

use super::batch::Plan;
use crate::error::{Fault, first_line};
use crate::{FileError, Problem, ReadOptions, Table};

/// The rows of record batches in memory, as another library hands them over by Arrow's C interface.
///
/// Every column must hold numbers, booleans, or lists of them, as [`read_table`](crate::read_table) reads them, and none may
/// have nulls. The table is `f32` where all columns are `f16` or
/// `f32`, else `f64`. Cost: one copy of the values.
///
/// # Errors
/// [`FileError`] with `name` in the place of a file's, and the column, and the first row that has a null; whatever
/// the batches' owner says in giving them.
pub fn table_of_batches(batches: impl RecordBatchReader, name: &str) -> Result<Table, FileError> {
    gather(batches).map_err(|fault| fault.in_named(name))
}

fn gather(batches: impl RecordBatchReader) -> Result<Table, Fault> {
    let plan = Plan::new(&batches.schema(), &ReadOptions::default())?;
    let failed = |e: arrow_schema::ArrowError| Fault::from(Problem::Corrupt(first_line(e)));
    let batches: Vec<RecordBatch> = batches.collect::<Result<_, _>>().map_err(failed)?;
    plan.collect_all(&batches)
}
