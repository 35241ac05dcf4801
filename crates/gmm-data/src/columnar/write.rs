//! Writes Parquet and Arrow IPC files.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Schema};
use gmm_model::{Matrix, Precision};
use ndarray::{ArrayView1, ArrayView2, Axis, Slice};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::batch::schema;
use crate::chunks::rows_at_a_time;
use crate::{Column, Table};

/// The file format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Parquet,
    Arrow,
}

/// Writes a table; unnamed columns are called `0`, `1`, ..
pub(crate) fn write_table(out: &mut (impl Write + Send), table: &Table, kind: Kind) -> io::Result<()> {
    let (n, d) = table.matrix.dim();
    let rows = rows_at_a_time(d);
    let mut batches = Batches::new(out, table.names.as_deref(), d, table.matrix.precision(), kind)?;
    for start in (0..n).step_by(rows) {
        let rows = Slice::from(start..n.min(start + rows));
        match &table.matrix {
            Matrix::F32(a) => batches.push32(a.slice_axis(Axis(0), rows))?,
            Matrix::F64(a) => batches.push64(a.slice_axis(Axis(0), rows))?,
        }
    }
    batches.finish()
}

/// A file written batch by batch. Every batch except the last has [`rows_at_a_time`] rows, so that the file's bytes
/// depend only on the rows.
pub(crate) struct Batches<W: Write + Send> {
    schema: Arc<Schema>,
    writer: Writer<W>,
}

enum Writer<W: Write + Send> {
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<FileWriter<W>>),
}

impl<W: Write + Send> Batches<W> {
    /// Opens the writer; unnamed columns are called `0`, `1`, ..
    pub(crate) fn new(
        out: W,
        names: Option<&[String]>,
        d: usize,
        precision: Precision,
        kind: Kind,
    ) -> io::Result<Self> {
        let names = names.map_or_else(|| (0..d).map(|i| i.to_string()).collect(), <[String]>::to_vec);
        let data = match precision {
            Precision::F32 => DataType::Float32,
            Precision::F64 => DataType::Float64,
        };
        Self::open(out, schema(&names, &data), d, kind)
    }

    fn open(out: W, schema: Arc<Schema>, d: usize, kind: Kind) -> io::Result<Self> {
        let writer = match kind {
            Kind::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    // The writer buffers a row group until it is complete.
                    .set_max_row_group_row_count(Some(GROUP * rows_at_a_time(d)))
                    // A reader holds the dictionary of every column. Columns of few distinct numbers fit into this one;
                    // of others the default of 1 MiB holds only the first numbers, and shortens nothing.
                    .set_dictionary_page_size_limit(DICTIONARY)
                    .build();
                let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(io::Error::other)?;
                Writer::Parquet(Box::new(writer))
            }
            Kind::Arrow => Writer::Arrow(Box::new(FileWriter::try_new(out, &schema).map_err(io::Error::other)?)),
        };
        Ok(Self { schema, writer })
    }

    /// Writes the rows of a matrix, which must have the file's precision.
    pub(crate) fn push(&mut self, rows: &Matrix) -> io::Result<()> {
        match rows {
            Matrix::F32(a) => self.push32(a.view()),
            Matrix::F64(a) => self.push64(a.view()),
        }
    }

    fn push32(&mut self, rows: ArrayView2<'_, f32>) -> io::Result<()> {
        let column = |c: ArrayView1<'_, f32>| Arc::new(Float32Array::from_iter_values(c.iter().copied())) as ArrayRef;
        self.push_columns(rows.columns().into_iter().map(column).collect())
    }

    fn push64(&mut self, rows: ArrayView2<'_, f64>) -> io::Result<()> {
        let column = |c: ArrayView1<'_, f64>| Arc::new(Float64Array::from_iter_values(c.iter().copied())) as ArrayRef;
        self.push_columns(rows.columns().into_iter().map(column).collect())
    }

    fn push_columns(&mut self, columns: Vec<ArrayRef>) -> io::Result<()> {
        self.push_batch(&RecordBatch::try_new(self.schema.clone(), columns).map_err(io::Error::other)?)
    }

    fn push_batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(batch).map_err(io::Error::other),
            Writer::Arrow(writer) => writer.write(batch).map_err(io::Error::other),
        }
    }

    /// Writes the footer.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.writer {
            Writer::Parquet(writer) => writer.close().map(drop).map_err(io::Error::other),
            Writer::Arrow(mut writer) => writer.finish().map_err(io::Error::other),
        }
    }
}

/// Bytes after which a column's dictionary is given up.
const DICTIONARY: usize = 64 << 10;

/// Number of batches in a Parquet row group.
const GROUP: usize = 8;

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
        Column::Signed(labels) => {
            (Arc::new(Int64Array::from_iter_values(labels.iter().map(|&v| i64::from(v)))), DataType::Int64)
        }
        Column::Values(values) => (Arc::new(Float64Array::from_iter_values(values.iter().copied())), DataType::Float64),
    };
    let schema = schema(&[name.to_owned()], &data);
    write_batch(out, RecordBatch::try_new(schema, vec![array]).map_err(io::Error::other)?, kind)
}

/// Writes a single record batch as a whole file.
pub(crate) fn write_batch(out: &mut (impl Write + Send), batch: RecordBatch, kind: Kind) -> io::Result<()> {
    let mut batches = Batches::open(out, batch.schema(), batch.num_columns(), kind)?;
    batches.push_batch(&batch)?;
    batches.finish()
}
