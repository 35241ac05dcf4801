//! Writes posterior draws of mixture parameters, in the layout that ArviZ reads.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use gmm_model::{DrawStat, ParameterDraws};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::columnar::{Kind, write_batch};
use crate::error::Fault;
use crate::latched::Latched;
use crate::{FileError, Format, Problem, atomic, npy};

/// The formats in which draws can be written.
const WRITABLE: &str = "npz, parquet, arrow, ipc or feather";

/// Draws of mixture parameters, with the sampler's statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawsFile {
    /// The draws: `C` chains of `N` draws each.
    pub parameters: ParameterDraws,
    /// The sampler's statistics with their names, each `(C, N)`.
    pub stats: Vec<(String, DrawStat)>,
}

/// Checks that draws can be written in the format that the path's extension names.
///
/// # Errors
/// [`FileError`] if they cannot; it lists the formats that can be written.
pub fn check_draws_path(path: impl AsRef<Path>) -> Result<(), FileError> {
    format(path.as_ref()).map(drop)
}

fn format(path: &Path) -> Result<Format, FileError> {
    match Format::of_path(path) {
        Ok(format @ (Format::Npz | Format::Parquet | Format::Arrow)) => Ok(format),
        Err(problem) if !matches!(problem, Problem::Extension { .. }) => Err(Fault::from(problem).in_file(path)),
        _ => {
            let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            Err(Fault::from(Problem::Extension { extension, choices: WRITABLE }).in_file(path))
        }
    }
}

/// Writes draws in the format that the extension names.
///
/// An npz file contains the arrays `weights`, `means`, `covariances` and those of [`DrawsFile::stats`], each with
/// leading dimensions `(C, N)`, and `covariance_type`, the kind's name as ASCII codes. A parquet or Arrow file has one
/// row for each draw and the columns `chain`, `draw`, `weights[0]`, .., `means[0,0]`, .., `covariances[0,0,0]`, .., and
/// the statistics. [`read_mixtures`](crate::read_mixtures) reads both.
///
/// # Errors
/// [`FileError`] for any other extension, or from the system; the file appears whole or not at all.
///
/// # Panics
/// If an array's length does not match its shape.
pub fn write_draws(path: impl AsRef<Path>, draws: &DrawsFile) -> Result<(), FileError> {
    let path = path.as_ref();
    let format = format(path)?;
    draws.check();
    atomic::write(path, |out| {
        let written = match format {
            Format::Npz => draws.npz(out),
            Format::Parquet => draws.columns().and_then(|batch| write_batch(out, batch, Kind::Parquet)),
            _ => draws.columns().and_then(|batch| write_batch(out, batch, Kind::Arrow)),
        };
        written.map_err(|e| Fault::from(e).in_file(path))
    })
}

impl DrawsFile {
    fn check(&self) {
        assert!(self.parameters.is_whole(), "arrays of draws are as long as their shapes say");
        let total = self.parameters.chains * self.parameters.draws;
        self.stats.iter().for_each(|(name, stat)| assert_eq!(stat.len(), total, "{name}"));
    }

    fn npz(&self, out: &mut BufWriter<File>) -> io::Result<()> {
        let mut out = Latched::new(out);
        let mut archive = ZipWriter::new(&mut out);
        let mut array = |name: &str, descr: &str, shape: &[usize], values: &mut dyn Iterator<Item = Bytes>| {
            // Stored uncompressed, as NumPy's savez does: random draws hardly compress. Sizes beyond 32 bits need the
            // longer zip64 header.
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
            archive.start_file(format!("{name}.npy"), options).map_err(io::Error::other)?;
            let mut out = BufWriter::new(&mut archive);
            let shape: String = shape.iter().map(|len| format!("{len},")).collect();
            npy::write_header(&mut out, descr, &format!("({shape})"))?;
            for Bytes { bytes, len } in values {
                out.write_all(&bytes[..len])?;
            }
            out.flush()
        };
        let each = [self.parameters.chains, self.parameters.draws];
        for (name, shape, values) in self.parameters.parameters() {
            array(name, "<f8", &[&each[..], &shape].concat(), &mut values.iter().map(|v| v.to_le_bytes().into()))?;
        }
        for (name, stat) in &self.stats {
            match stat {
                DrawStat::Values(v) => array(name, "<f8", &each, &mut v.iter().map(|v| v.to_le_bytes().into()))?,
                DrawStat::Counts(v) => array(name, "<i8", &each, &mut v.iter().map(|v| v.to_le_bytes().into()))?,
                DrawStat::Flags(v) => array(name, "|b1", &each, &mut v.iter().map(|&v| u8::from(v).into()))?,
            }
        }
        let word = self.parameters.kind.name().as_bytes();
        array("covariance_type", "|u1", &[word.len()], &mut word.iter().map(|&letter| letter.into()))?;
        archive.finish().map_err(io::Error::other)?;
        out.finish()
    }

    fn columns(&self) -> io::Result<RecordBatch> {
        let (mut fields, mut columns): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        let mut push = |name: String, kind: DataType, column: ArrayRef| {
            fields.push(Field::new(name, kind, false));
            columns.push(column);
        };
        let whole = |values: &mut dyn Iterator<Item = usize>| {
            Arc::new(Int64Array::from_iter_values(values.map(|v| v as i64))) as ArrayRef
        };
        let ParameterDraws { chains, draws, .. } = self.parameters;
        let total = chains * draws;
        push("chain".to_owned(), DataType::Int64, whole(&mut (0..total).map(|i| i / draws)));
        push("draw".to_owned(), DataType::Int64, whole(&mut (0..total).map(|i| i % draws)));
        for (name, values) in self.parameters.scalars() {
            push(name, DataType::Float64, Arc::new(Float64Array::from(values)));
        }
        for (name, stat) in &self.stats {
            let (kind, column): (_, ArrayRef) = match stat {
                DrawStat::Values(v) => (DataType::Float64, Arc::new(Float64Array::from_iter_values(v.iter().copied()))),
                DrawStat::Counts(v) => (DataType::Int64, Arc::new(Int64Array::from_iter_values(v.iter().copied()))),
                DrawStat::Flags(v) => (DataType::Boolean, Arc::new(BooleanArray::from(v.clone()))),
            };
            push(name.clone(), kind, column);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(io::Error::other)
    }
}

/// The bytes of one value: the first `len` of `bytes`.
struct Bytes {
    bytes: [u8; 8],
    len: usize,
}

impl From<[u8; 8]> for Bytes {
    fn from(bytes: [u8; 8]) -> Self {
        Self { bytes, len: 8 }
    }
}

impl From<u8> for Bytes {
    fn from(byte: u8) -> Self {
        Self { bytes: [byte; 8], len: 1 }
    }
}
