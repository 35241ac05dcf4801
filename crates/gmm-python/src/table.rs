//! Conversion of tables from Arrow's C stream interface (polars, pyarrow, DuckDB, ..) to NumPy arrays of rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{DataType, Schema};
use arrow_select::concat::concat_batches;
use gmm_data::{table_of_batches, table_of_batches_with_nulls};
use gmm_model::Matrix;
use ndarray::ArrayView2;
use numpy::{Element, PyArray2};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::with_class;

/// The rows, `(n, d)`, of a stream from `__arrow_c_stream__`, and the names of their columns. The rows are float32 if
/// all columns fit that type, else float64. Columns of lists have no names.
///
/// If `columns` is given, and the table has each of them exactly once and also other columns, they are selected in that
/// order. A table with a single contiguous column of floats, or of fixed-size lists of floats, is not copied: the array
/// is a read-only view. Other tables are copied once.
///
/// # Errors
/// `DataError` if a column is not numeric; and for a null, with its row and column, unless `nulls` are read as NaN.
#[pyfunction]
#[pyo3(signature = (stream, columns=None, nulls=false))]
pub(crate) fn table<'py>(
    py: Python<'py>,
    stream: &Bound<'py, PyCapsule>,
    columns: Option<Vec<String>>,
    nulls: bool,
) -> PyResult<(Bound<'py, PyAny>, Option<Vec<String>>)> {
    let refused = |message: String| with_class(py, "DataError", message);
    let raw = stream.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of that name contains an `FFI_ArrowArrayStream` (Arrow's PyCapsule interface). `from_raw` moves
    // it out and leaves a released stream in the capsule.
    let reader = unsafe { RecordBatchStreamReader::from_raw(raw.as_ptr()) };
    let reader = reader.map_err(|error| refused(format!("X: {error}")))?;
    let mut schema = reader.schema();
    // Without the GIL: the producer of the batches may need it, and may take long.
    let batches: Result<Vec<RecordBatch>, _> = py.detach(|| reader.collect());
    let mut batches = batches.map_err(|error| refused(format!("X: {error}")))?;
    if let Some(chosen) = columns.and_then(|columns| some_of(&schema, &columns)) {
        let project = |batch: &RecordBatch| batch.project(&chosen);
        let projected: Result<_, _> = batches.iter().map(project).collect();
        batches = projected.map_err(|error| refused(format!("X: {error}")))?;
        schema = Arc::new(schema.project(&chosen).map_err(|error| refused(format!("X: {error}")))?);
    }
    if let [field] = schema.fields().as_ref() {
        let is_list = matches!(field.data_type(), DataType::FixedSizeList(..));
        if is_list && batches.len() > 1 {
            let whole = concat_batches(&schema, &batches).map_err(|error| refused(format!("X: {error}")))?;
            batches = vec![whole];
        }
        if let [batch] = batches.as_slice()
            && let Some(array) = in_place(py, batch.column(0))?
        {
            return Ok((array, (!is_list).then(|| vec![field.name().clone()])));
        }
        if is_list {
            let what = format!("X: column 0 ('{}') holds {}", field.name(), field.data_type());
            return Err(refused(what + ": only lists of float32 or float64 without missing values are supported"));
        }
    }
    let batches = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    let read = || match nulls {
        true => table_of_batches_with_nulls(batches, "X"),
        false => table_of_batches(batches, "X"),
    };
    let table = py.detach(read).map_err(|error| refused(error.to_string()))?;
    let array = match table.matrix {
        Matrix::F32(rows) => PyArray2::from_owned_array(py, rows.into_owned()).into_any(),
        Matrix::F64(rows) => PyArray2::from_owned_array(py, rows.into_owned()).into_any(),
    };
    Ok((array, table.names))
}

/// Indices of `columns` if the table has each of them exactly once, and also other columns.
fn some_of(schema: &Schema, columns: &[String]) -> Option<Vec<usize>> {
    let the_one = |name: &String| {
        let mut found = (0..schema.fields().len()).filter(|&i| schema.field(i).name() == name);
        found.next().filter(|_| found.next().is_none())
    };
    let chosen: Option<Vec<usize>> = columns.iter().map(the_one).collect();
    chosen.filter(|chosen| chosen.len() < schema.fields().len())
}

/// Owner of a column whose memory a NumPy array views.
#[pyclass(frozen)]
struct Keeper {
    _column: ArrayRef,
}

/// A view of a single column of floats or of lists of floats as rows, if it needs no copy.
fn in_place<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (values, d) = match column.data_type() {
        DataType::FixedSizeList(_, d) => {
            let (list, d) = (column.as_fixed_size_list(), *d as usize);
            (list.values().slice(0, list.len() * d), d)
        }
        _ => (column.clone(), 1),
    };
    if column.null_count() > 0 || values.null_count() > 0 || values.is_empty() {
        return Ok(None);
    }
    match values.data_type() {
        DataType::Float32 => shown::<Float32Type>(py, &values, d).map(Some),
        DataType::Float64 => shown::<Float64Type>(py, &values, d).map(Some),
        _ => Ok(None),
    }
}

/// A read-only view of the values as rows of `d`.
fn shown<'py, T>(py: Python<'py>, values: &ArrayRef, d: usize) -> PyResult<Bound<'py, PyAny>>
where
    T: ArrowPrimitiveType,
    T::Native: Element,
{
    let keeper = Bound::new(py, Keeper { _column: values.clone() })?.into_any();
    let values = values.as_primitive::<T>().values();
    let rows = ArrayView2::from_shape((values.len() / d, d), values).expect("whole rows");
    // SAFETY: `keeper`, which becomes the array's base object, shares ownership of the buffer that `rows` views; Arrow
    // buffers are never moved or written to.
    let array = unsafe { PyArray2::borrow_from_array(&rows, keeper) }.into_any();
    array.call_method1("setflags", (false,))?;
    Ok(array)
}
