//! NumPy's array files (npy) and archives of them (npz).

mod file;
mod grid;
mod header;
mod mapped;
pub(crate) mod npz;
mod number;
mod values;
mod write;

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;

use ndarray::{ArrayD, IxDyn, ShapeBuilder};

pub(crate) use write::{write_column, write_header, write_matrix, write_matrix_header, write_rows};

use crate::error::Fault;
use crate::input::Input;
use crate::{Array, ReadOptions, Storage, Table, memory};
use grid::Grid;
use header::Header;
use values::{Length, Source, Values};

/// Reads a regular `(n, d)` npy file, or maps it into memory if its bytes are the matrix. The header is checked against
/// the file's length before any allocation.
pub(crate) fn read_file(file: File, options: &ReadOptions) -> Result<Table, Fault> {
    let input = Input::of_file(file)?;
    let len = input.len();
    read_part(&input, 0..len, options)
}

/// As [`read_file`], for an npy file that is a part of another file.
fn read_part(input: &Input, part: Range<u64>, options: &ReadOptions) -> Result<Table, Fault> {
    let header = Header::read(&mut BufReader::new(From { input, at: part.start }))?;
    let (n, d) = header.shape_of_rows()?;
    header.check_length(part.end - part.start)?;
    let columns = crate::read::columns(d, options)?;
    let grid = header.grid((n, d), columns.as_deref());
    if columns.is_none()
        && !grid.fortran
        && let Some(matrix) = mapped::map(input, part.start, &header, (n, d))
    {
        return Ok(Table { storage: Storage::MappedFile, ..Table::new(matrix) });
    }
    matrix(&grid, file::read_rows(input, part.start, &header, &grid, options.limit())?)
}

/// The bytes of an input from one on.
struct From<'a> {
    input: &'a Input,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read_at(self.at, out)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads a stream that is an `(n, d)` npy file.
pub(crate) fn read_stream(reader: impl Read, options: &ReadOptions) -> Result<Table, Fault> {
    read_rows(reader, Length::Unknown, options)
}

fn read_rows(mut reader: impl Read, length: Length, options: &ReadOptions) -> Result<Table, Fault> {
    let header = Header::read(&mut reader)?;
    let (n, d) = header.shape_of_rows()?;
    let mut source = Source::new(reader, &header, length)?;
    let columns = crate::read::columns(d, options)?;
    let grid = header.grid((n, d), columns.as_deref());
    let values = source.read_rows(&grid, options.limit())?;
    matrix(&grid, values)
}

fn matrix(grid: &Grid<'_>, values: Values) -> Result<Table, Fault> {
    let shape = (grid.n, grid.width());
    let (matrix, storage) = match values {
        Values::F32(v) => v.into_matrix(shape)?,
        Values::F64(v) => v.into_matrix(shape)?,
    };
    Ok(Table { storage, ..Table::new(matrix) })
}

/// Reads an npy file of any number of dimensions, in row-major order.
fn read_array(mut reader: impl Read, length: Length) -> Result<Array, Fault> {
    let header = Header::read(&mut reader)?;
    let values = Source::new(reader, &header, length)?.read()?;
    if header.fortran {
        memory::check("the array in row-major order", values.bytes())?;
    }
    let shape = IxDyn(&header.shape).set_f(header.fortran);
    let bad = |_| Fault::corrupt(header.offset, format!("shape {:?} is too large", header.shape));
    Ok(match values {
        Values::F32(v) => Array::F32(standard(ArrayD::from_shape_vec(shape, v.into_vec()).map_err(bad)?)),
        Values::F64(v) => Array::F64(standard(ArrayD::from_shape_vec(shape, v.into_vec()).map_err(bad)?)),
    })
}

fn standard<T: Clone>(a: ArrayD<T>) -> ArrayD<T> {
    if a.is_standard_layout() { a } else { a.as_standard_layout().into_owned() }
}
