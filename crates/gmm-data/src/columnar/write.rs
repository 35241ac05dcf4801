//! Writing Parquet and Arrow IPC files.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Schema};
use gmm_model::Matrix;
use ndarray::{Axis, Slice};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::batch::schema;
use crate::{Column, Table};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Parquet,
    Arrow,
}

/// Rows turned into columns at a time, so that the table is not held twice.
const ROWS: usize = 1 << 16;

/// Writes a table; columns without names are called `0`, `1`, ..
pub(crate) fn write_table(out: &mut (impl Write + Send), table: &Table, kind: Kind) -> io::Result<()> {
    let (n, d) = table.matrix.dim();
    let names = table.names.clone().unwrap_or_else(|| (0..d).map(|i| i.to_string()).collect());
    let schema = schema(
        &names,
        &match &table.matrix {
            Matrix::F32(_) => DataType::Float32,
            Matrix::F64(_) => DataType::Float64,
        },
    );
    let batches = (0..n).step_by(ROWS).map(|start| {
        let rows = Slice::from(start..n.min(start + ROWS));
        let columns: Vec<ArrayRef> = match &table.matrix {
            Matrix::F32(a) => a
                .slice_axis(Axis(0), rows)
                .columns()
                .into_iter()
                .map(|c| Arc::new(Float32Array::from_iter_values(c.iter().copied())) as ArrayRef)
                .collect(),
            Matrix::F64(a) => a
                .slice_axis(Axis(0), rows)
                .columns()
                .into_iter()
                .map(|c| Arc::new(Float64Array::from_iter_values(c.iter().copied())) as ArrayRef)
                .collect(),
        };
        RecordBatch::try_new(schema.clone(), columns).map_err(io::Error::other)
    });
    write(out, &schema, batches, kind)
}

/// Writes one column under its name.
pub(crate) fn write_column(
    out: &mut (impl Write + Send),
    name: &str,
    column: Column<'_>,
    kind: Kind,
) -> io::Result<()> {
    let (array, data): (ArrayRef, _) = match column {
        Column::Labels(labels) => {
            (Arc::new(Int64Array::from_iter_values(labels.iter().map(|&v| i64::from(v)))), DataType::Int64)
        }
        Column::Values(values) => (Arc::new(Float64Array::from_iter_values(values.iter().copied())), DataType::Float64),
    };
    let schema = schema(&[name.to_owned()], &data);
    let batch = RecordBatch::try_new(schema.clone(), vec![array]).map_err(io::Error::other);
    write(out, &schema, std::iter::once(batch), kind)
}

/// Writes columns that are there already.
pub(crate) fn write_batch(out: &mut (impl Write + Send), batch: RecordBatch, kind: Kind) -> io::Result<()> {
    let schema = batch.schema();
    write(out, &schema, std::iter::once(Ok(batch)), kind)
}

fn write(
    out: &mut (impl Write + Send),
    schema: &Arc<Schema>,
    batches: impl Iterator<Item = io::Result<RecordBatch>>,
    kind: Kind,
) -> io::Result<()> {
    match kind {
        Kind::Parquet => {
            let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(io::Error::other)?;
            for batch in batches {
                writer.write(&batch?).map_err(io::Error::other)?;
            }
            writer.close().map(|_| ()).map_err(io::Error::other)
        }
        Kind::Arrow => {
            let mut writer = FileWriter::try_new(out, schema).map_err(io::Error::other)?;
            for batch in batches {
                writer.write(&batch?).map_err(io::Error::other)?;
            }
            writer.finish().map_err(io::Error::other)
        }
    }
}
