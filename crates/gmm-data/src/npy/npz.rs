//! NumPy's npz archives: zip files of npy files.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crc32fast::Hasher;
use ndarray::ArrayD;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::values::Length;
use crate::error::{Fault, one_line};
use crate::input::Input;
use crate::parallel;
use crate::{FileError, Problem, ReadOptions, Storage, Table};

/// An array of any number of dimensions, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Single precision: the file's type is `f2` or `f4`.
    F32(ArrayD<f32>),
    /// Double precision: the file has any other type.
    F64(ArrayD<f64>),
}

impl Array {
    /// The shape; empty for a single number.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F32(a) => a.shape(),
            Self::F64(a) => a.shape(),
        }
    }

    /// The values as `f64` (exact).
    pub fn to_f64(&self) -> ArrayD<f64> {
        match self {
            Self::F32(a) => a.mapv(f64::from),
            Self::F64(a) => a.clone(),
        }
    }
}

/// Array names tried in this order, if none is given and the archive has several arrays.
const USUAL: [&str; 3] = ["x", "X", "data"];

/// Reads all arrays of an npz file with their names, in the archive's order.
///
/// # Errors
/// [`FileError`] with the array's name and the byte offset inside it, also if an array is not numeric.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Vec<(String, Array)>, FileError> {
    let path = path.as_ref();
    let read = || -> Result<_, Fault> {
        let mut archive = open(BufReader::new(File::open(path)?))?;
        let names = names(&archive);
        names
            .into_iter()
            .map(|name| {
                Ok((name.clone(), member(&mut archive, &name, |reader, length| super::read_array(reader, length))?))
            })
            .collect()
    };
    read().map_err(|fault| fault.in_file(path))
}

/// Reads the array called `name` from an npz file.
///
/// # Errors
/// As [`read_npz`]; also if there is no array of that name.
pub fn read_npz_array(path: impl AsRef<Path>, name: &str) -> Result<Array, FileError> {
    let path = path.as_ref();
    let read = || -> Result<_, Fault> {
        let mut archive = open(BufReader::new(File::open(path)?))?;
        let found = names(&archive);
        if found.is_empty() {
            return Err(no_arrays(&archive).into());
        }
        if !found.iter().any(|n| n == name) {
            return Err(Problem::Array { wanted: name.to_owned(), found }.into());
        }
        member(&mut archive, name, |reader, length| super::read_array(reader, length))
    };
    read().map_err(|fault| fault.in_file(path))
}

/// Reads an npy file of any number of dimensions.
///
/// # Errors
/// [`FileError`] with the byte offset, also if the array is not numeric.
pub fn read_npy_array(path: impl AsRef<Path>) -> Result<Array, FileError> {
    let path = path.as_ref();
    let read = || -> Result<_, Fault> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        super::read_array(BufReader::new(file), Length::Promised { len: length, is_possible: true })
    };
    read().map_err(|fault| fault.in_file(path))
}

/// Reads the two-dimensional array that the options select.
pub(crate) fn read_table(reader: impl Read + Seek, options: &ReadOptions) -> Result<Table, Fault> {
    let mut archive = open(reader)?;
    let name = selected(&archive, options)?;
    member(&mut archive, &name, |reader, length| super::read_rows(reader, length, options))
}

/// As [`read_table`], from a file. A large array that is not compressed, as those of `numpy.savez` are, is read like an npy file:
/// on all cores, only the bytes of the selected columns, or mapped into memory. The checksum of a whole array that was read is
/// compared.
pub(crate) fn read_table_of_file(file: File, options: &ReadOptions) -> Result<Table, Fault> {
    let mut archive = open(BufReader::new(file.try_clone()?))?;
    let name = selected(&archive, options)?;
    let Some(stored) = Stored::of(&mut archive, &name) else {
        return member(&mut archive, &name, |reader, length| super::read_rows(reader, length, options));
    };
    let input = Input::of_file(file)?;
    let read = || {
        let table = super::read_part(&input, stored.bytes.clone(), options)?;
        if options.columns.is_none() && !matches!(table.storage, Storage::MappedFile) {
            stored.check(&input)?;
        }
        Ok(table)
    };
    read().map_err(|mut fault: Fault| {
        fault.place.field = Some(name);
        fault
    })
}

/// An array that is in the archive as it is.
struct Stored {
    /// Bytes of the archive.
    bytes: Range<u64>,
    checksum: u32,
}

/// Shorter arrays are read like compressed ones.
const SMALL: u64 = 1 << 20;

/// Bytes of which a thread takes the checksum at a time.
const PIECE: u64 = 1 << 20;

/// Bytes of it that are read at a time, to memory of each thread.
const AT_ONCE: usize = 1 << 15;

impl Stored {
    /// `None` if the array is compressed, encrypted, short or not all there.
    fn of<R: Read + Seek>(archive: &mut Archive<R>, name: &str) -> Option<Self> {
        let len = archive.len;
        let file = archive.zip.by_name(&format!("{name}.npy")).ok()?;
        let start = file.data_start()?;
        let end = start.checked_add(file.size())?;
        let is_plain = file.compression() == CompressionMethod::Stored && !file.encrypted();
        let is_there = file.size() == file.compressed_size() && end <= len;
        (is_plain && is_there && file.size() >= SMALL).then(|| Self { bytes: start..end, checksum: file.crc32() })
    }

    /// Compares the checksum with that of the bytes.
    fn check(&self, input: &Input) -> Result<(), Fault> {
        let Range { start, end } = self.bytes;
        let mut sums = vec![Hasher::new(); (end - start).div_ceil(PIECE) as usize];
        let tasks: Vec<_> = sums.iter_mut().enumerate().collect();
        let threads = parallel::threads(tasks.len());
        parallel::each(tasks, threads, |(i, sum)| {
            let mut at = start + i as u64 * PIECE;
            let end = end.min(at + PIECE);
            let mut bytes = [0; AT_ONCE];
            while at < end {
                let bytes = &mut bytes[..(end - at).min(AT_ONCE as u64) as usize];
                input.read_at(at, bytes)?;
                sum.update(bytes);
                at += bytes.len() as u64;
            }
            Ok::<_, Fault>(())
        })?;
        let mut all = Hasher::new();
        sums.iter().for_each(|sum| all.combine(sum));
        if all.finalize() == self.checksum {
            return Ok(());
        }
        Err(Fault::corrupt(end - start, "its checksum is not that in the archive"))
    }
}

/// The name of the array that the options select.
fn selected<R: Read + Seek>(archive: &Archive<R>, options: &ReadOptions) -> Result<String, Fault> {
    let found = names(archive);
    let name = match &options.array {
        Some(name) => found.iter().find(|n| *n == name),
        None if found.len() == 1 => found.first(),
        None => USUAL.iter().find_map(|usual| found.iter().find(|n| n == usual)),
    };
    if found.is_empty() {
        return Err(no_arrays(archive).into());
    }
    let Some(name) = name else {
        let wanted = options.array.clone().unwrap_or_else(|| USUAL.join("' or '"));
        return Err(Problem::Array { wanted, found }.into());
    };
    Ok(name.clone())
}

/// An archive and its length in bytes.
struct Archive<R> {
    zip: ZipArchive<R>,
    len: u64,
}

fn open<R: Read + Seek>(mut reader: R) -> Result<Archive<R>, Fault> {
    let len = reader.seek(SeekFrom::End(0))?;
    Ok(Archive { zip: ZipArchive::new(reader).map_err(fault)?, len })
}

fn names<R: Read + Seek>(archive: &Archive<R>) -> Vec<String> {
    archive.zip.file_names().filter_map(|name| name.strip_suffix(".npy")).map(str::to_owned).collect()
}

/// The problem of an archive without arrays, which is often an archive of another kind.
fn no_arrays<R: Read + Seek>(archive: &Archive<R>) -> Problem {
    if archive.zip.file_names().any(|name| name.starts_with("xl/")) {
        return Problem::Text("an Excel workbook: save the sheet as csv".to_owned());
    }
    Problem::Text(match archive.zip.file_names().next() {
        Some(first) => format!("it holds no arrays (npy), but '{}': unpack it first", one_line(first)),
        None => "it holds no arrays".to_owned(),
    })
}

/// Upper bound on the compression ratio of deflate: a symbol of 1 bit stands for 258 bytes at most, and needs another bit
/// for its distance.
const RATIO: u64 = 1032;

/// Reads one member. The length in the archive's directory may be wrong, so the values are counted while they are read.
fn member<R: Read + Seek, T>(
    archive: &mut Archive<R>,
    name: &str,
    read: impl FnOnce(&mut dyn Read, Length) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let in_array = |mut fault: Fault| {
        fault.place.field = Some(name.to_owned());
        fault
    };
    let file = archive.zip.by_name(&format!("{name}.npy")).map_err(|e| in_array(fault(e)))?;
    let is_possible =
        file.size() <= file.compressed_size().saturating_mul(RATIO) && file.compressed_size() <= archive.len;
    let promised = Length::Promised { len: file.size(), is_possible };
    let mut reader = CountingReader { inner: BufReader::with_capacity(1 << 16, file), read: 0 };
    let result = read(&mut reader, promised);
    result.map_err(|mut fault| {
        // The zip reader reports an invalid deflate stream or a wrong checksum as an I/O error.
        if let Problem::Io(e) = &fault.problem {
            fault = Fault::corrupt(reader.read, e.to_string());
        }
        in_array(fault)
    })
}

fn fault(e: ZipError) -> Fault {
    match e {
        ZipError::Io(e) if e.kind() != std::io::ErrorKind::UnexpectedEof && e.raw_os_error().is_some() => e.into(),
        e => Problem::Corrupt(format!("not a readable npz archive: {e}")).into(),
    }
}

struct CountingReader<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read += n as u64;
        Ok(n)
    }
}
