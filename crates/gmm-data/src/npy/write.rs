//! Writes npy files: version 1, little-endian, row-major.

use std::io::{self, Write};

use gmm_model::{Matrix, Precision};

use crate::Column;

/// Writes an `(n, d)` array of the matrix's own type.
pub(crate) fn write_matrix(out: &mut impl Write, matrix: &Matrix) -> io::Result<()> {
    write_matrix_header(out, matrix.dim(), matrix.precision())?;
    write_rows(out, matrix)
}

/// Writes the header of an `(n, d)` array; [`write_rows`] writes its rows.
pub(crate) fn write_matrix_header(
    out: &mut impl Write,
    (n, d): (usize, usize),
    precision: Precision,
) -> io::Result<()> {
    let descr = match precision {
        Precision::F32 => "<f4",
        Precision::F64 => "<f8",
    };
    write_header(out, descr, &format!("({n}, {d})"))
}

/// Writes the values of some rows, which must have the type in the header.
pub(crate) fn write_rows(out: &mut impl Write, rows: &Matrix) -> io::Result<()> {
    match rows {
        Matrix::F32(a) => a.iter().try_for_each(|v| out.write_all(&v.to_le_bytes())),
        Matrix::F64(a) => a.iter().try_for_each(|v| out.write_all(&v.to_le_bytes())),
    }
}

/// Writes an `(n,)` array: labels as `i8` (NumPy's int64), values as `f8`.
pub(crate) fn write_column(out: &mut impl Write, column: Column<'_>) -> io::Result<()> {
    match column {
        Column::Labels(labels) => {
            write_header(out, "<i8", &format!("({},)", labels.len()))?;
            labels.iter().try_for_each(|&v| out.write_all(&i64::from(v).to_le_bytes()))
        }
        Column::Signed(labels) => {
            write_header(out, "<i8", &format!("({},)", labels.len()))?;
            labels.iter().try_for_each(|&v| out.write_all(&i64::from(v).to_le_bytes()))
        }
        Column::Values(values) => {
            write_header(out, "<f8", &format!("({},)", values.len()))?;
            values.iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))
        }
    }
}

/// Writes the header of an array of type `descr`; `shape` is a Python tuple such as `(3, 4)`.
pub(crate) fn write_header(out: &mut impl Write, descr: &str, shape: &str) -> io::Result<()> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version and length are 10 bytes. The values start at a multiple of 64, so that they can be memory-mapped.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&u16::try_from(padded).expect("a short header").to_le_bytes())?;
    writeln!(out, "{text:<width$}", width = padded - 1)
}
