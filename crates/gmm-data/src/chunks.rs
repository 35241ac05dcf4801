//! Tables written piece by piece, from rows that were never all in memory.

use std::io;
use std::path::Path;

use gmm_model::{Matrix, Precision};

use crate::columnar::{Batches, Kind};
use crate::write::{Sink, check_columns, write};
use crate::{FileError, Format, Table, atomic, npy, text};

/// What a table is like whose rows are still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableHead {
    /// Rows.
    pub n: usize,
    /// Columns.
    pub d: usize,
    /// The type of the values.
    pub precision: Precision,
    /// Column names, `(d,)`.
    pub names: Option<Vec<String>>,
}

/// Values of a piece, 8 MiB of `f64`: enough that a system call or a batch costs nothing against them.
const VALUES: usize = 1 << 20;
/// Rows of a piece at most, however few columns there are.
const MOST_ROWS: usize = 1 << 16;

/// Rows in a piece of a table with `d` columns, at least 1: a function of `d` alone, so that no buffer grows with the rows.
pub fn rows_at_a_time(d: usize) -> usize {
    (VALUES / d.max(1)).clamp(1, MOST_ROWS)
}

impl TableHead {
    /// Bytes that the file has at least: numbers that are drawn do not compress to less than six bytes, and text has a digit
    /// and a separator for each.
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

/// Writes a table whose rows come piece by piece: `next(first, rows)` gives rows `first..first + rows`, `(rows, d)`, of the
/// head's precision, [`rows_at_a_time`] each but for the last. The file is, byte for byte, that of
/// [`write_table`](crate::write_table); `-` is csv on standard output.
///
/// Memory: one piece, and for parquet a group of 8. The disk's room is asked for first.
///
/// # Errors
/// What `next` says; [`FileError`] as from [`write_table`](crate::write_table), and where the disk has not as many bytes as
/// the rows have at least. The file appears whole or not at all.
///
/// # Panics
/// Where `next` gives another number of rows or columns, or another precision.
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
        assert!(like_head, "{rows} rows of {:?} were asked for: {:?}", head, matrix.dim());
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
        // The header comes once.
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
