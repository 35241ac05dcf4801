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
    let header = Header::read(&mut BufReader::new(&file))?;
    let (n, d) = header.shape_of_rows()?;
    let input = Input::of_file(file)?;
    header.check_length(input.len())?;
    let columns = crate::read::columns(d, options)?;
    let grid = header.grid((n, d), columns.as_deref());
    if columns.is_none()
        && !grid.fortran
        && let Some(matrix) = mapped::map(&input, &header, (n, d))
    {
        return Ok(Table { storage: Storage::MappedFile, ..Table::new(matrix) });
    }
    matrix(&grid, file::read_rows(&input, &header, &grid, options.limit())?)
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
