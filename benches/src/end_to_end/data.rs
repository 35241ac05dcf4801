//! The files that every program reads: one table in several formats.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use gmm_bench::Shape;
use gmm_bench::source::Source;
use gmm_model::{Matrix, Precision};
use ndarray::Array2;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::child;

/// A table on disk.
pub(crate) struct Table {
    /// Rows, components of the mixture they are drawn from, columns.
    pub(crate) shape: Shape,
    pub(crate) precision: Precision,
    /// Formats, by extension, and files.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
    sums: Sums,
}

/// Sum of all values; sum of all values times the number of their column, from 1; sum of all absolute values.
struct Sums {
    plain: f64,
    by_column: f64,
    size: f64,
}

/// Largest difference of a sum from ours, relative to the sum of absolute values. Some parsers of text are off by the
/// last bit, and sums of 1e7 `f64` by some 1e-13; a row left out of 1e8 changes them by 1e-8.
const TOLERANCE: f64 = 1e-11;

impl Table {
    /// Draws the rows, writes them as npy and npz, and has `program` convert that to the other formats.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn write(
        program: &Path,
        (shape, precision): (Shape, Precision),
        formats: &[&'static str],
        folder: &Path,
    ) -> Result<Self> {
        let data = Source::new(shape, SEED)?.rows(shape.n, precision)?;
        let path = |format: &str| folder.join(format!("rows-{}-{}-{precision}.{format}", shape.n, shape.d));
        let npy = path("npy");
        match data.rows() {
            Matrix::F32(rows) => ndarray_npy::write_npy(&npy, &**rows),
            Matrix::F64(rows) => ndarray_npy::write_npy(&npy, &**rows),
        }
        .with_context(|| format!("cannot write {}", npy.display()))?;
        let mut files = vec![("npy", npy.clone())];
        for &format in formats {
            let to = path(format);
            if format == "npz" {
                packed(&npy, &to).with_context(|| format!("cannot write {}", to.display()))?;
            } else {
                child::run(Command::new(program).args(["convert", "-q"]).args([&npy, &to]), false)?;
            }
            files.push((format, to));
        }
        Ok(Self { shape, precision, files, sums: Sums::of(&data.rows().to_f64()) })
    }

    /// Bytes of the matrix in memory.
    pub(crate) fn bytes(&self) -> f64 {
        (self.shape.n * self.shape.d) as f64 * if self.precision == Precision::F32 { 4.0 } else { 8.0 }
    }

    /// Whether the sums of values and of values times their column's number are this table's.
    pub(crate) fn has_sums(&self, [plain, by_column]: [f64; 2]) -> bool {
        let Sums { plain: p, by_column: c, size } = &self.sums;
        // False for NaN.
        (plain - p).abs() <= TOLERANCE * size && (by_column - c).abs() <= TOLERANCE * size * self.shape.d as f64
    }
}

/// Writes an npy file as the only member of an npz file, as `numpy.savez` does: not compressed.
fn packed(npy: &Path, to: &Path) -> Result<()> {
    let mut out = ZipWriter::new(File::create(to)?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    out.start_file("rows.npy", options)?;
    std::io::copy(&mut File::open(npy)?, &mut out)?;
    out.finish()?;
    Ok(())
}

impl Sums {
    fn of(rows: &Array2<f64>) -> Self {
        let columns = rows.sum_axis(ndarray::Axis(0));
        Self {
            plain: columns.sum(),
            by_column: columns.iter().zip(1_u32..).map(|(sum, j)| sum * f64::from(j)).sum(),
            size: rows.iter().map(|v| v.abs()).sum(),
        }
    }
}

const SEED: u64 = 5;
