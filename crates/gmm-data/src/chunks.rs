//! Writes tables chunk by chunk, without holding all rows in memory.

use std::io;
use std::path::Path;

use gmm_model::{Matrix, Precision};

use crate::columnar::{Batches, Kind};
use crate::write::{Sink, check_columns, write};
use crate::{FileError, Format, Table, atomic, npy, text};

/// The shape, type and column names of a table whose rows follow later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableHead {
    /// Number of rows.
    pub n: usize,
    /// Number of columns.
    pub d: usize,
    /// The type of the values.
    pub precision: Precision,
    /// Column names, `(d,)`.
    pub names: Option<Vec<String>>,
}

/// Values in a chunk, 8 MiB of `f64`: enough to make the cost of a system call or a batch negligible.
const VALUES: usize = 1 << 20;
/// Maximum rows in a chunk, however few columns there are.
const MOST_ROWS: usize = 1 << 16;

/// Number of rows in a chunk of a table with `d` columns, at least 1. It depends only on `d`, so that no buffer grows
/// with `n`.
pub fn rows_at_a_time(d: usize) -> usize {
    (VALUES / d.max(1)).clamp(1, MOST_ROWS)
}

impl TableHead {
    /// Lower bound on the file's size in bytes. Random `f64` values compress to no less than 6 bytes each, and text
    /// needs a digit and a separator for each.
    fn least_bytes(&self, format: Format) -> u128 {
        let values = self.n as u128 * self.d as u128;
        let each = match (format, self.precision) {
            (Format::Csv | Format::Tsv | Format::Txt, _) => 2,
            (Format::Parquet, Precision::F64) => 6,
            (Format::Parquet, Precision::F32) => 3,
            (_, Precision::F64) => 8,
            (_, Precision::F32) => 4,
        };
        values * each
    }
}

/// Writes a table chunk by chunk. `next(first, rows)` returns rows `first..first + rows` as a `(rows, d)` matrix of the
/// head's precision; `rows` is [`rows_at_a_time`], and fewer in the last chunk. The file is identical, byte for byte,
/// to that of [`write_table`](crate::write_table); `-` writes csv to standard output.
///
/// Memory: one chunk; for parquet a row group of 8 chunks. Free disk space is checked first.
///
/// # Errors
/// Any error of `next`; [`FileError`] as from [`write_table`](crate::write_table), and if the disk has less free space
/// than the rows need at least. The file appears whole or not at all.
///
/// # Panics
/// If `next` returns a different number of rows or columns, or a different precision.
pub fn write_table_chunks<E: From<FileError>>(
    path: impl AsRef<Path>,
    head: &TableHead,
    mut next: impl FnMut(usize, usize) -> Result<Matrix, E>,
) -> Result<(), E> {
    let path = path.as_ref();
    check_columns(path, head.d)?;
    if let (Ok(format), true) = (Format::of_output(path), path.as_os_str() != "-") {
        atomic::check_room(path, head.least_bytes(format))?;
    }
    let mut failure = None;
    let mut rows = |first: usize, rows: usize| -> io::Result<Matrix> {
        let matrix = next(first, rows).map_err(|why| {
            failure = Some(why);
            io::Error::other("the rows ended early")
        })?;
        let like_head = matrix.dim() == (rows, head.d) && matrix.precision() == head.precision;
        assert!(like_head, "expected {rows} rows of {:?}, got {:?}", head, matrix.dim());
        Ok(matrix)
    };
    let written = write(path, |out, format| fill(out, format, head, &mut rows));
    match failure {
        Some(why) => Err(why),
        None => Ok(written?),
    }
}

fn fill(
    out: &mut Sink<'_>,
    format: Format,
    head: &TableHead,
    next: &mut dyn FnMut(usize, usize) -> io::Result<Matrix>,
) -> io::Result<()> {
    let TableHead { n, d, precision, names } = head;
    let step = rows_at_a_time(*d);
    let mut pieces = (0..*n).step_by(step).map(|first| next(first, step.min(n - first)));
    let text = |out: &mut Sink<'_>, pieces: &mut dyn Iterator<Item = io::Result<Matrix>>, separator| {
        // Only the first chunk writes the header.
        let mut names = names.clone();
        for matrix in pieces {
            text::write_table(out, &Table { names: names.take(), ..Table::new(matrix?) }, separator)?;
        }
        Ok(())
    };
    match format {
        Format::Csv => text(out, &mut pieces, ','),
        Format::Tsv | Format::Txt => text(out, &mut pieces, '\t'),
        Format::Npy | Format::Npz => {
            npy::write_matrix_header(out, (*n, *d), *precision)?;
            pieces.try_for_each(|matrix| npy::write_rows(out, &matrix?))
        }
        Format::Parquet | Format::Arrow => {
            let kind = if format == Format::Parquet { Kind::Parquet } else { Kind::Arrow };
            let mut batches = Batches::new(out, names.as_deref(), *d, *precision, kind)?;
            pieces.try_for_each(|matrix| batches.push(&matrix?))?;
            batches.finish()
        }
    }
}
