//! NumPy's array files (npy) and archives of them (npz).

mod header;
pub(crate) mod npz;
mod values;
mod write;

use std::io::Read;

use gmm_model::Matrix;
use ndarray::{Array2, ArrayD, IxDyn, ShapeBuilder};

pub(crate) use write::{write_column, write_header, write_matrix, write_matrix_header, write_rows};

use crate::error::Fault;
use crate::{Array, Problem, ReadOptions, Table, memory};
use header::Header;
use values::{Length, Source, Values};

/// Reads an `(n, d)` npy file. `len` is the file's length, if it is known; the header is checked against it before any
/// allocation.
pub(crate) fn read_table(reader: impl Read, len: Option<u64>, options: &ReadOptions) -> Result<Table, Fault> {
    let length = len.map_or(Length::Unknown, Length::Known);
    crate::read::select(Table::new(read_matrix(reader, length)?), options)
}

/// Reads a two-dimensional npy file into a row-major matrix.
fn read_matrix(mut reader: impl Read, length: Length) -> Result<Matrix, Fault> {
    let header = Header::read(&mut reader)?;
    let (n, d) = match header.shape[..] {
        [n] => return Err(Problem::OneDimensional { n }.into()),
        [n, d] => (n, d),
        _ => return Err(Problem::Dimensions { shape: header.shape }.into()),
    };
    let mut source = Source::new(reader, &header, length)?;
    // An array in Fortran order is transposed while it is read if its size is certain; else it is read as stored and
    // transposed in a copy.
    let scatter = header.fortran && matches!(length, Length::Known(_)) && n > 1 && d > 1;
    let values = if scatter { source.read_transposed(n, d)? } else { source.read()? };
    if header.fortran && !scatter {
        // The transposed copy needs this much again.
        memory::check("the array in row-major order", values.bytes())?;
    }
    let shape = (n, d).set_f(header.fortran && !scatter);
    let bad = |_| Fault::corrupt(header.offset, format!("shape {:?} is too large", header.shape));
    Ok(match values {
        Values::F32(v) => Matrix::from(Array2::from_shape_vec(shape, v).map_err(bad)?),
        Values::F64(v) => Matrix::from(Array2::from_shape_vec(shape, v).map_err(bad)?),
    })
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
        Values::F32(v) => Array::F32(standard(ArrayD::from_shape_vec(shape, v).map_err(bad)?)),
        Values::F64(v) => Array::F64(standard(ArrayD::from_shape_vec(shape, v).map_err(bad)?)),
    })
}

fn standard<T: Clone>(a: ArrayD<T>) -> ArrayD<T> {
    if a.is_standard_layout() { a } else { a.as_standard_layout().into_owned() }
}
