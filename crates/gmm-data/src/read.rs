//! Reading a table, whatever its format.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use crate::compressed::Compression;
use crate::error::Fault;
use crate::{Decimal, FileError, Format, Problem, Separator, Table, columnar, content, memory, npy, text};

/// How to read a table. The default reads all columns in the format that the file's name says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Columns to read, in this order. Each word is a name, an index from 0, or a range of either with both ends
    /// (`a..f`, `0..59`, `3..`); `!` before it leaves those columns out, of all where nothing else is chosen. A name in
    /// quotes is exactly that name; else blanks around a name may be left out. Other columns are not looked at, so that they may hold
    /// text or nulls. All columns where `None`.
    pub columns: Option<Vec<String>>,
    /// A column to read and to put last, by name or index, whether or not `columns` has it: such as row weights, which
    /// [`Table::take_last`] takes out.
    pub last: Option<String>,
    /// The array of an npz file. Where `None`: its only array, or else `x`, `X` or `data`.
    pub array: Option<String>,
    /// Whether a text table's first line names the columns. Where `None` it is found out: it does where it holds text
    /// in a column in which the second line holds a number. Lines above it that begin with `#` are comments; where the
    /// first line does not name the columns, the last comment does if it has as many names (NumPy's `savetxt`).
    pub header: Option<bool>,
    /// What stands between the fields of a text table. Where `None`: what its first lines have between numbers; a line
    /// `sep=;` above them, without quotes, says it too.
    pub separator: Option<Separator>,
    /// The decimal sign of a text table. Where `None`: a comma where the numbers have commas, no points, and something
    /// else between them.
    pub decimal: Option<Decimal>,
    /// The format. Where `None`: by extension, and for a stream by its first bytes.
    pub format: Option<Format>,
}

const STDIN: &str = "<stdin>";
const BUFFER: usize = 1 << 18;

/// Reads a table from a file, or from standard input where `path` is `-`. For an npz file, `FILE.npz:NAME` names the
/// array.
///
/// Columns of `f32` (and `f16`) only give `f32`, anything else `f64`. Values may be NaN or infinite, which
/// [`Table::into_dataset`] reports; missing values (empty fields, nulls) are an error here.
///
/// Parquet and Arrow: integers must be exact in `f64`, decimals become the nearest `f64`, dictionaries of numbers are looked
/// up, and lists of one length become columns `name[0]`, `name[1]`, ..; a pandas index is no column unless it is named.
///
/// # Errors
/// [`FileError`] with the place: line and column of text, byte offset of npy, row and column of parquet and Arrow.
///
/// Cost: one pass; memory for the matrix once, and a bounded buffer (text: see [`read_stream`]).
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

/// Reads a table from a stream, called `name` in errors; its format is `options.format`, or sniffed from its first
/// bytes. What gzip or zstd compressed is read as what it was.
///
/// # Errors
/// As [`read_table`].
///
/// Cost: as [`read_table`]; npz, parquet and Arrow files are held in memory beside the matrix, since they must be read
/// out of order; an npy in Fortran order and text are held up to twice.
pub fn read_stream(reader: impl Read, name: &str, options: &ReadOptions) -> Result<Table, FileError> {
    from_stream(reader, options.format, options).map(|table| table.of(name)).map_err(|fault| fault.in_named(name))
}

fn from_stream(mut reader: impl Read, format: Option<Format>, options: &ReadOptions) -> Result<Table, Fault> {
    let start = first_bytes(&mut reader)?;
    let compression = Compression::of_bytes(&start);
    let whole = Cursor::new(start).chain(reader);
    let Some(compression) = compression else { return from_plain(Box::new(whole), format, options) };
    let read = || {
        let mut inner = compression.reader(whole)?;
        let start = first_bytes(&mut inner)?;
        if Compression::of_bytes(&start).is_some() {
            return Err(compression.twice().into());
        }
        from_plain(Box::new(Cursor::new(start).chain(inner)), format, options)
    };
    read().map_err(|fault| compression.explained(fault))
}

/// The first bytes, as many as tell one format from another.
fn first_bytes(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    reader.take(content::START as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Reads what is not compressed; `whole` begins with a cursor of its first bytes.
fn from_plain(whole: Box<dyn Read + '_>, format: Option<Format>, options: &ReadOptions) -> Result<Table, Fault> {
    let mut whole = BufReader::with_capacity(BUFFER, whole);
    let start = whole.fill_buf()?;
    let format = format.unwrap_or_else(|| Format::of_bytes(start));
    let start = start[..start.len().min(content::START)].to_vec();
    let table = match format {
        Format::Csv | Format::Tsv | Format::Txt => text::read(whole, format, options),
        Format::Npy => npy::read_table(whole, None, options),
        Format::Npz => npy::npz::read_table(Cursor::new(memory::read_all(whole, 0, "the stream")?), options),
        Format::Parquet => columnar::read_parquet(memory::read_all(whole, 0, "the stream")?.into(), options),
        Format::Arrow => columnar::read_arrow(Cursor::new(memory::read_all(whole, 0, "the stream")?), options),
    };
    table.map_err(|fault| content::explained(fault, format, &start))
}

/// The file of a path that may name an array in it, `FILE.npz:NAME`.
pub fn file_of(path: &Path) -> PathBuf {
    split_array(path).0
}

/// The bytes of a file, or of standard input where `path` is `-`.
///
/// # Errors
/// [`FileError`], also where they are more than memory has room for.
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
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
    }
    let inner = Compression::inner_path(path);
    let format = match (options.format, &inner) {
        (Some(format), _) => Some(format),
        // `rows.csv.gz`; of `rows.gz` the content says what it is.
        (None, Some(inner)) => Format::of_path(inner).ok(),
        (None, None) => Some(Format::of_path(path)?),
    };
    let format = match format {
        Some(format) if inner.is_none() && !format.is_text() => format,
        // Text may be compressed whatever its name says.
        format => return from_stream(file, format, options),
    };
    // A pipe has no length; only a regular file's can be compared with what a header claims.
    let meta = file.metadata()?;
    let len = meta.is_file().then_some(meta.len());
    let table = match format {
        Format::Csv | Format::Tsv | Format::Txt => text::read(BufReader::with_capacity(BUFFER, file), format, options),
        Format::Npy => npy::read_table(BufReader::with_capacity(BUFFER, file), len, options),
        Format::Npz => npy::npz::read_table(BufReader::new(file), options),
        Format::Parquet => columnar::read_parquet(file.into(), options),
        Format::Arrow => columnar::read_arrow(BufReader::with_capacity(BUFFER, file), options),
    };
    table.map_err(|fault| {
        let mut start = Vec::new();
        // What a pipe began with is gone.
        let again = File::open(path).ok().filter(|_| len.is_some());
        let read = again.map(|file| file.take(content::START as u64).read_to_end(&mut start));
        if matches!(read, Some(Ok(_))) { content::explained(fault, format, &start) } else { fault }
    })
}

/// `FILE.npz:NAME` as a file and an array's name.
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
    /// These options with the columns to read.
    #[must_use]
    pub fn with_columns<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }
}

/// Selects columns of an array that was read whole.
pub(crate) fn select(table: Table, options: &ReadOptions) -> Result<Table, Fault> {
    if options.columns.is_none() && options.last.is_none() {
        return Ok(table);
    }
    let d = table.n_columns();
    let chosen = options.choose(table.names.as_deref(), d, (0..d).collect()).map_err(Problem::from)?;
    Ok(table.keep(&chosen))
}
