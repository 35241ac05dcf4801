//! Reads a table in any of the supported formats.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use crate::compressed::Compression;
use crate::error::Fault;
use crate::input::Input;
use crate::memory::Limit;
use crate::store::Store;
use crate::{Decimal, FileError, Format, Problem, Separator, Table, columnar, content, memory, npy, text};

/// How to read a table. The default reads all columns, in the format that the file's extension names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Columns to read, in this order; `None` reads all. Each entry is a name, an index from 0, or a range of either
    /// that includes both ends (`a..f`, `0..59`, `3..`). A leading `!` excludes those columns; if every entry does so,
    /// they are excluded from all columns. A name in quotes must match exactly; an unquoted one matches with or without
    /// the blanks around a name. Columns that are not selected are not parsed, so they may hold text or nulls.
    pub columns: Option<Vec<String>>,
    /// A column to read and to put last, by name or index, whether or not `columns` selects it. For row weights, for
    /// example, which [`Table::split_last`] then removes.
    pub last: Option<String>,
    /// The array to read from an npz file. `None` selects the only array, or else `x`, `X` or `data`.
    pub array: Option<String>,
    /// Whether the first line of a text table names the columns. `None` detects it: the line is a header if it holds
    /// text in a column where the second line holds a number. Lines above it that begin with `#` are comments. If the
    /// first line is not a header, the last comment is one if it has a name for each column (NumPy's `savetxt` writes
    /// this).
    pub header: Option<bool>,
    /// The field separator of a text table. `None` detects it from the first lines; an unquoted line `sep=;` above them
    /// also sets it.
    pub separator: Option<Separator>,
    /// The decimal sign of a text table. `None` detects it: a comma if the numbers contain commas and no points, and
    /// the field separator is not a comma.
    pub decimal: Option<Decimal>,
    /// The format. `None` detects it: by the extension, or for a stream by the first bytes.
    pub format: Option<Format>,
    /// Whether a missing value (an empty field, a marker such as `NA`, a null) is read as NaN, which
    /// [`Dataset::with_holes`](gmm_model::Dataset::with_holes) takes for one. Else it is an error. An empty line of text is
    /// no row.
    pub missing: bool,
    /// Bytes of memory that the matrix may take. A larger one is written to a temporary file without a name, which is
    /// mapped into memory, in the folder `TMPDIR` or the system's; its values have the same bits. `None` allows half of
    /// the free memory, and all of it if no temporary file can be written. See also
    /// [`memory_limit`](crate::memory_limit).
    pub memory: Option<u64>,
}

const STDIN: &str = "<stdin>";
const BUFFER: usize = 1 << 18;

/// Reads a table from a file, or from standard input if `path` is `-`. For an npz file, `FILE.npz:NAME` selects the
/// array.
///
/// The matrix is `f32` if all selected columns are `f32` or `f16`, else `f64`. Values may be NaN or infinite, which
/// [`Table::into_dataset`] rejects; missing values (empty fields, nulls) are an error here, unless
/// [`ReadOptions::missing`] is set.
///
/// Parquet and Arrow: integers must have an exact `f64` value, decimals are rounded to the nearest `f64`, dictionaries
/// of numbers are decoded, and lists of equal length become columns `name[0]`, `name[1]`, ... The columns of a pandas
/// index are left out unless `columns` selects them.
///
/// An npy file of native `f4` or `f8` in C order, of 1 MiB or more, is not read but mapped into memory if it is a
/// regular file and all columns are selected in their order. The matrix then keeps the file open, and takes no memory
/// of its own; renaming, replacing or deleting the file does not affect it. But until the matrix is dropped, a program
/// that writes into the same file changes its values (so that even a checked [`Dataset`](gmm_model::Dataset) may come
/// to hold NaN), and one that truncates it ends this process with SIGBUS at the next access. If the file may be written
/// to meanwhile, open it yourself and use [`read_stream`], which copies. Record batches of 16 MiB or more in an Arrow
/// file are mapped while they are decoded, to the same effect.
///
/// # Errors
/// [`FileError`] with the place: line and column of text, byte offset of npy, row and column of parquet and Arrow.
///
/// Cost: one pass, and for a mapped file none; memory for the selected columns once, and a bounded buffer (for text see
/// [`read_stream`]).
pub fn read_table(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Table, FileError> {
    let path = path.as_ref();
    if path.as_os_str() == "-" {
        return read_stream(io::stdin().lock(), STDIN, options);
    }
    let (file_path, array) = split_array(path);
    let mut options = options.clone();
    options.array = array.or(options.array);
    from_file(&file_path, &options)
        .map(|table| table.of(&file_path.display().to_string()))
        .map_err(|fault| fault.in_file(&file_path))
}

/// Reads a table from a stream, called `name` in errors. Its format is `options.format`, or is detected from the first
/// bytes. A stream compressed with gzip or zstd is decompressed.
///
/// # Errors
/// As [`read_table`].
///
/// Cost: as [`read_table`]. In addition, npz, parquet and Arrow's file form are buffered whole in memory beside the
/// matrix, because they must be read out of order, and of Arrow's stream form a record batch at a time; npy in Fortran
/// order is held twice. What is held beside the matrix goes to a temporary file if it exceeds an eighth of
/// [`ReadOptions::memory`], or 64 MiB if that is `None`. For text it peaks an eighth above the matrix, or at twice the
/// matrix where the allocator has to move it as it grows.
pub fn read_stream(reader: impl Read, name: &str, options: &ReadOptions) -> Result<Table, FileError> {
    from_stream(reader, None, options.format, options).map(|table| table.of(name)).map_err(|fault| fault.in_named(name))
}

/// Reads a stream of `size` bytes, if that is known.
fn from_stream(
    mut reader: impl Read,
    size: Option<u64>,
    format: Option<Format>,
    options: &ReadOptions,
) -> Result<Table, Fault> {
    let start = first_bytes(&mut reader)?;
    let compression = Compression::of_bytes(&start);
    let whole = Cursor::new(start).chain(reader);
    let Some(compression) = compression else { return from_plain(Box::new(whole), size, format, options) };
    let read = || {
        let mut inner = compression.reader(whole)?;
        let start = first_bytes(&mut inner)?;
        if Compression::of_bytes(&start).is_some() {
            return Err(compression.twice().into());
        }
        from_plain(Box::new(Cursor::new(start).chain(inner)), None, format, options)
    };
    read().map_err(|fault| compression.explained(fault))
}

/// Reads the first [`content::START`] bytes, which are enough to tell the formats apart.
fn first_bytes(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(content::START as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Reads an uncompressed stream; `whole` begins with a cursor over its first bytes.
fn from_plain(
    whole: Box<dyn Read + '_>,
    size: Option<u64>,
    format: Option<Format>,
    options: &ReadOptions,
) -> Result<Table, Fault> {
    let mut whole = BufReader::with_capacity(BUFFER, whole);
    let start = whole.fill_buf()?;
    let format = format.unwrap_or_else(|| Format::of_bytes(start));
    let start = start[..start.len().min(content::START)].to_vec();
    let table = match format {
        Format::Csv | Format::Tsv | Format::Txt => text::read(whole, size, format, options),
        Format::Npy => npy::read_stream(whole, options),
        Format::Npz => npy::npz::read_table(Cursor::new(read_whole(whole, options)?), options),
        Format::Parquet => columnar::read_parquet(&read_whole(whole, options)?.into(), options),
        Format::Arrow => columnar::read_arrow_stream(whole, options),
    };
    table.map_err(|fault| content::explained(fault, format, &start))
}

/// Reads a stream whole: to a temporary file, if it is large beside the matrix.
pub(crate) fn read_whole(mut reader: impl Read, options: &ReadOptions) -> Result<Store<u8>, Problem> {
    let mut bytes = Store::new(options.limit().beside(), "the stream");
    let mut block = vec![0; BUFFER];
    loop {
        match reader.read(&mut block) {
            Ok(0) => return Ok(bytes),
            Ok(len) => bytes.extend_from_slice(&block[..len])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns the file part of a path that may also name an array, `FILE.npz:NAME`.
pub fn file_of(path: &Path) -> PathBuf {
    split_array(path).0
}

/// Reads all bytes of a file, or of standard input if `path` is `-`.
///
/// # Errors
/// [`FileError`], also if they do not fit in memory.
pub fn read_bytes(path: impl AsRef<Path>) -> Result<Vec<u8>, FileError> {
    let path = path.as_ref();
    if path.as_os_str() == "-" {
        let bytes = memory::read_all(io::stdin().lock(), 0, "the stream");
        return bytes.map_err(|problem| Fault::from(problem).in_named(STDIN));
    }
    let read = || -> Result<_, Fault> {
        let file = File::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        Ok(memory::read_all(file, len, "the file")?)
    };
    read().map_err(|fault| fault.in_file(path))
}

fn from_file(path: &Path, options: &ReadOptions) -> Result<Table, Fault> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    // Only a regular file has a length to compare a header's claims with; a pipe has none.
    let len = meta.is_file().then_some(meta.len());
    let inner = Compression::inner_path(path);
    let format = match (options.format, &inner) {
        (Some(format), _) => Some(format),
        // `rows.csv.gz` is csv; the format of `rows.gz` is detected from the content.
        (None, Some(inner)) => Format::of_path(inner).ok(),
        (None, None) => match Format::of_path(path) {
            // A pipe need not have an extension.
            Err(_) if len.is_none() => None,
            format => Some(format?),
        },
    };
    let format = match format {
        // Only a regular file has a length, and can be read out of order; a pipe is a stream.
        Some(format) if inner.is_none() && !format.is_text() && len.is_some() => format,
        // Text may be compressed even if the name does not say so.
        format => return from_stream(file, len, format, options),
    };
    let table = match format {
        Format::Csv | Format::Tsv | Format::Txt => unreachable!("text was read as a stream"),
        Format::Npy => npy::read_file(file, options),
        Format::Npz => npy::npz::read_table_of_file(file, options),
        Format::Parquet => columnar::read_parquet(&Input::of_file(file)?, options),
        Format::Arrow => columnar::read_arrow(&Input::of_file(file)?, options),
    };
    table.map_err(|fault| {
        let mut start = Vec::new();
        let again = File::open(path).ok();
        let read = again.map(|file| file.take(content::START as u64).read_to_end(&mut start));
        if matches!(read, Some(Ok(_))) { content::explained(fault, format, &start) } else { fault }
    })
}

/// Splits `FILE.npz:NAME` into the file and the array's name.
fn split_array(path: &Path) -> (PathBuf, Option<String>) {
    if let Some((file, name)) = path.to_str().and_then(|text| text.rsplit_once(':'))
        && file.to_lowercase().ends_with(".npz")
        && !path.exists()
    {
        return (PathBuf::from(file), Some(name.to_owned()));
    }
    (path.to_owned(), None)
}

impl ReadOptions {
    /// Returns these options with `columns` set.
    #[must_use]
    pub fn with_columns<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::of(self.memory)
    }
}

/// The columns to read, of `d` columns without names; `None` for all of them in their order.
pub(crate) fn columns(d: usize, options: &ReadOptions) -> Result<Option<Vec<usize>>, Problem> {
    if options.columns.is_none() && options.last.is_none() {
        return Ok(None);
    }
    let chosen = options.choose(None, d, (0..d).collect())?;
    Ok(Some(chosen).filter(|chosen| !chosen.iter().copied().eq(0..d)))
}
