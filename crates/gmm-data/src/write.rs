//! Writes tables and single columns.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::columnar::Kind;
use crate::error::Fault;
use crate::{FileError, Format, Problem, Table, atomic, columnar, memory, npy, text};

/// One column of `n` values, such as the rows' labels or log densities.
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// Integers, such as component indices.
    Labels(&'a [u32]),
    /// Integers that may be negative, such as component indices with -1 for noise.
    Signed(&'a [i32]),
    /// Floating-point values.
    Values(&'a [f64]),
}

const STDOUT: &str = "<stdout>";

/// Writes a table in the format that the extension names (csv, tsv, npy, parquet, arrow); `-` writes csv to standard
/// output. Values keep their precision; text uses the shortest decimal form that reads back as the same bits. npy
/// stores no column names.
///
/// # Errors
/// [`FileError`]. The file appears whole or not at all; on failure an older file is left intact. See
/// [`atomic::write()`].
pub fn write_table(path: impl AsRef<Path>, table: &Table) -> Result<(), FileError> {
    check_columns(path.as_ref(), table.n_columns())?;
    write(path.as_ref(), |out, format| match format {
        Format::Csv => text::write_table(out, table, ','),
        Format::Tsv | Format::Txt => text::write_table(out, table, '\t'),
        Format::Npy | Format::Npz => npy::write_matrix(out, &table.matrix),
        Format::Parquet => columnar::write_table(out, table, Kind::Parquet),
        Format::Arrow => columnar::write_table(out, table, Kind::Arrow),
    })
}

/// Writes one column named `name`, in the format that the extension names; `-` writes csv to standard output. In npy
/// the array is one-dimensional. Binary formats store labels as int64.
///
/// # Errors
/// As [`write_table`].
pub fn write_column(path: impl AsRef<Path>, name: &str, column: Column<'_>) -> Result<(), FileError> {
    write(path.as_ref(), |out, format| match format {
        Format::Csv | Format::Tsv | Format::Txt => text::write_column(out, name, column),
        Format::Npy | Format::Npz => npy::write_column(out, column),
        Format::Parquet => columnar::write_column(out, name, column, Kind::Parquet),
        Format::Arrow => columnar::write_column(out, name, column, Kind::Arrow),
    })
}

/// Writes a table as csv to any stream. The stream should be buffered; it is not flushed here.
///
/// # Errors
/// Any error of the stream.
pub fn write_csv(out: &mut impl Write, table: &Table) -> io::Result<()> {
    text::write_table(out, table, ',')
}

/// Writes one column as csv to any stream, as [`write_csv`] does for a table.
///
/// # Errors
/// Any error of the stream.
pub fn write_csv_column(out: &mut impl Write, name: &str, column: Column<'_>) -> io::Result<()> {
    text::write_column(out, name, column)
}

/// Checks that the Parquet and Arrow writers have enough memory for `d` columns. Both allocate some for each column,
/// and abort the program if they cannot get it.
///
/// # Errors
/// [`Problem::Memory`] if they have not, before any file is opened.
pub(crate) fn check_columns(path: &Path, d: usize) -> Result<(), FileError> {
    // Bytes per column, above those measured on tables of 10,000 and 40,000 columns: 24 kB for Parquet, 1 kB for Arrow
    // with the list of names.
    let (each, name) = match Format::of_output(path) {
        Ok(Format::Parquet) => (28_000, "Parquet"),
        Ok(Format::Arrow) => (2_000, "Arrow"),
        _ => return Ok(()),
    };
    let what = format!("a table of {d} columns in {name}'s form");
    memory::check(&what, each * d as u128).map_err(|problem| Fault::from(problem).in_file(path))
}

/// Standard output or a file, as one type, so that the writers are compiled once.
pub(crate) enum Sink<'a> {
    Stdout(BufWriter<io::Stdout>),
    File(&'a mut BufWriter<File>),
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(out) => out.flush(),
        }
    }
}

pub(crate) fn write(path: &Path, fill: impl FnOnce(&mut Sink<'_>, Format) -> io::Result<()>) -> Result<(), FileError> {
    if path.as_os_str() == "-" {
        let mut out = Sink::Stdout(BufWriter::with_capacity(1 << 16, io::stdout()));
        let written = fill(&mut out, Format::Csv).and_then(|()| out.flush());
        return written.map_err(|e| {
            // After a failed write, discard the buffer: dropping the writer would try to flush it again.
            if let Sink::Stdout(out) = out {
                let _ = out.into_parts();
            }
            Fault::from(e).in_named(STDOUT)
        });
    }
    let in_file = |problem: Problem| Fault::from(problem).in_file(path);
    let format = Format::of_output(path).map_err(in_file)?;
    atomic::write(path, |out| fill(&mut Sink::File(out), format).map_err(|e| in_file(e.into())))
}
