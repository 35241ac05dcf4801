//! Record batches into a row-major matrix.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use gmm_model::Matrix;
use ndarray::Array2;

use crate::error::Fault;
use crate::{Place, Problem, ReadOptions, Table};

/// The columns to read and the type to read them into, decided from the schema before any data are read.
pub(super) struct Plan {
    /// Index in the file's schema of each column of the table.
    pub(super) columns: Vec<usize>,
    names: Vec<String>,
    single: bool,
}

impl Plan {
    /// # Errors
    /// Where a column is not there, or one that is to be read does not hold numbers.
    pub(super) fn new(schema: &Schema, options: &ReadOptions) -> Result<Self, Fault> {
        let all: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        let columns = options.choose(Some(&all), all.len(), (0..all.len()).collect()).map_err(Problem::from)?;
        for &i in &columns {
            if !is_numeric(schema.field(i).data_type()) {
                let others: Vec<_> =
                    schema.fields().iter().filter(|f| is_numeric(f.data_type())).map(|f| f.name().clone()).collect();
                return Err(not_numeric(i, schema.field(i), &others));
            }
        }
        let single = |i: &usize| matches!(schema.field(*i).data_type(), DataType::Float16 | DataType::Float32);
        let single = !columns.is_empty() && columns.iter().all(single);
        let names = columns.iter().map(|&i| all[i].clone()).collect();
        Ok(Self { columns, names, single })
    }

    /// The same columns in the file's order, which is the order in which a projecting reader returns them.
    pub(super) fn projection(&self) -> Vec<usize> {
        let mut sorted = self.columns.clone();
        sorted.sort_unstable();
        sorted
    }

    /// Position of each column of the table in a projected batch.
    fn positions(&self) -> Vec<usize> {
        let projection = self.projection();
        self.columns.iter().map(|c| projection.binary_search(c).expect("the projection holds it")).collect()
    }

    /// Collects batches that hold the projected columns.
    pub(super) fn collect(&self, batches: impl Iterator<Item = Result<RecordBatch, Fault>>) -> Result<Table, Fault> {
        if self.single { self.gather::<f32>(batches, 0) } else { self.gather::<f64>(batches, 0) }
    }

    /// The same for batches in memory, a few rows at a time.
    pub(super) fn collect_all(&self, batches: &[RecordBatch]) -> Result<Table, Fault> {
        let n = batches.iter().map(RecordBatch::num_rows).sum();
        let pieces = pieces(batches).map(Ok);
        if self.single { self.gather::<f32>(pieces, n) } else { self.gather::<f64>(pieces, n) }
    }

    /// Rows of all batches, of which `expected` are known to come.
    fn gather<T: Value>(
        &self,
        batches: impl Iterator<Item = Result<RecordBatch, Fault>>,
        expected: usize,
    ) -> Result<Table, Fault>
    where
        Matrix: From<Array2<T>>,
    {
        let d = self.columns.len();
        let positions = self.positions();
        let (mut values, mut n) = (Vec::<T>::new(), 0);
        reserve(&mut values, expected, d)?;
        for batch in batches {
            let batch = batch?;
            let rows = batch.num_rows();
            let grown = reserve(&mut values, rows, d)?;
            let start = values.len();
            values.resize(start + grown, T::default());
            for (column, &position) in positions.iter().enumerate() {
                if position >= batch.num_columns() {
                    return Err(Problem::Corrupt("a record batch lacks columns of the schema".to_owned()).into());
                }
                let array = batch.column(position);
                let at = |problem| self.fault(column, None, problem);
                if array.null_count() > 0 {
                    let row = (0..rows).find(|&r| array.is_null(r)).unwrap_or(0);
                    return Err(self.fault(column, Some(n + row), Problem::Missing));
                }
                T::fill(array, values[start..].iter_mut().skip(column).step_by(d)).map_err(at)?;
            }
            n += rows;
        }
        values.shrink_to_fit();
        let matrix = Array2::from_shape_vec((n, d), values)
            .map_err(|e| Fault::from(Problem::Corrupt(format!("shape ({n}, {d}): {e}"))))?;
        Ok(Table { matrix: Matrix::from(matrix), names: Some(self.names.clone()), warnings: Vec::new() })
    }

    fn fault(&self, column: usize, row: Option<usize>, problem: Problem) -> Fault {
        let name = Some(self.names[column].clone());
        let place = Place { row: row.map(|r| r as u64), column: Some(self.columns[column]), name, ..Place::default() };
        Fault { place: Box::new(place), problem }
    }
}

/// Makes room for so many rows more, and returns how many values they are.
fn reserve<T>(values: &mut Vec<T>, rows: usize, d: usize) -> Result<usize, Fault> {
    let Some(grown) = rows.checked_mul(d) else {
        return Err(Problem::Corrupt(format!("a record batch claims {rows} rows of {d} columns")).into());
    };
    crate::memory::reserve(values, grown, "the table")?;
    Ok(grown)
}

fn is_numeric(kind: &DataType) -> bool {
    kind.is_integer() || kind.is_floating() || *kind == DataType::Boolean
}

fn not_numeric(column: usize, field: &Field, others: &[String]) -> Fault {
    let others = if others.is_empty() {
        "no column of the file holds numbers".to_owned()
    } else {
        let shown = others.iter().take(40).map(|n| crate::error::one_line(n)).collect::<Vec<_>>().join(",");
        format!("it does not hold numbers; select columns that do: {shown}")
    };
    let problem = Problem::Type { dtype: crate::error::one_line(&field.data_type().to_string()), why: others };
    let place = Place { column: Some(column), name: Some(field.name().clone()), ..Place::default() };
    Fault { place: Box::new(place), problem }
}

/// Rows that are turned from columns into rows together: with a hundred columns of f64 still less than a second-level
/// cache, so that a row which is written to by each column in turn does not leave it meanwhile.
const PIECE: usize = 512;

/// The same rows in batches of [`PIECE`] rows at most.
fn pieces(batches: &[RecordBatch]) -> impl Iterator<Item = RecordBatch> {
    batches.iter().flat_map(|batch| {
        let starts = (0..batch.num_rows()).step_by(PIECE);
        starts.map(|start| batch.slice(start, PIECE.min(batch.num_rows() - start)))
    })
}

/// What columns are converted to.
pub(super) trait Value: Copy + Default {
    fn fill<'a>(array: &ArrayRef, slots: impl Iterator<Item = &'a mut Self>) -> Result<(), Problem>
    where
        Self: 'a;
}

fn other(array: &ArrayRef) -> Problem {
    Problem::Corrupt(format!("a record batch holds {}, not what the schema says", array.data_type()))
}

/// Copies one array's values, converted by `$to`.
macro_rules! copy {
    ($array:ident, $slots:ident, $type:ty, $to:expr) => {{
        for (slot, &value) in $slots.zip($array.as_primitive::<$type>().values()) {
            *slot = $to(value);
        }
        Ok(())
    }};
}

impl Value for f32 {
    fn fill<'a>(array: &ArrayRef, slots: impl Iterator<Item = &'a mut Self>) -> Result<(), Problem> {
        match array.data_type() {
            DataType::Float16 => copy!(array, slots, Float16Type, Self::from),
            DataType::Float32 => copy!(array, slots, Float32Type, |v| v),
            _ => Err(other(array)),
        }
    }
}

impl Value for f64 {
    fn fill<'a>(array: &ArrayRef, slots: impl Iterator<Item = &'a mut Self>) -> Result<(), Problem> {
        match array.data_type() {
            DataType::Float16 => copy!(array, slots, Float16Type, Self::from),
            DataType::Float32 => copy!(array, slots, Float32Type, Self::from),
            DataType::Float64 => copy!(array, slots, Float64Type, |v| v),
            DataType::Int8 => copy!(array, slots, Int8Type, Self::from),
            DataType::Int16 => copy!(array, slots, Int16Type, Self::from),
            DataType::Int32 => copy!(array, slots, Int32Type, Self::from),
            DataType::Int64 => copy!(array, slots, Int64Type, |v| v as Self),
            DataType::UInt8 => copy!(array, slots, UInt8Type, Self::from),
            DataType::UInt16 => copy!(array, slots, UInt16Type, Self::from),
            DataType::UInt32 => copy!(array, slots, UInt32Type, Self::from),
            DataType::UInt64 => copy!(array, slots, UInt64Type, |v| v as Self),
            DataType::Boolean => {
                for (slot, value) in slots.zip(array.as_boolean().values()) {
                    *slot = Self::from(u8::from(value));
                }
                Ok(())
            }
            _ => Err(other(array)),
        }
    }
}

/// The schema of a table that is to be written.
pub(super) fn schema(names: &[String], kind: &DataType) -> Arc<Schema> {
    Arc::new(Schema::new(names.iter().map(|name| Field::new(name, kind.clone(), false)).collect::<Vec<_>>()))
}
