//! Errors of reading and writing files: the file, the place in it, the problem, and what to try.

use std::fmt;
use std::io;
use std::path::Path;

use gmm_model::{ModelError, shown};

/// A file that cannot be read or written. Its `Display` is one line: file, place, problem.
#[derive(Debug)]
pub struct FileError {
    /// The file as the user named it; `<stdin>` and `<stdout>` for the standard streams.
    pub path: String,
    /// The place in the file, as far as it is known.
    pub place: Box<Location>,
    /// What is wrong there.
    pub problem: Problem,
}

/// A place in a file. Empty if the problem concerns the whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Line of a text file, counted from 1.
    pub line: Option<u64>,
    /// Row of a table, counted from 0, not counting the header and blank lines.
    pub row: Option<u64>,
    /// Index of a parameter set, counted from 0, in a file that holds many.
    pub set: Option<u64>,
    /// Column of a table, counted from 0 (text files: the field's index in its line).
    pub column: Option<usize>,
    /// The column's name, if it has one.
    pub name: Option<String>,
    /// Byte offset from the beginning of the file (in an npz: of the array's own file inside it).
    pub offset: Option<u64>,
    /// Field of a model file, or array of an npz.
    pub field: Option<String>,
}

/// The kind of problem, with its details.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A file extension that names no known format.
    #[error("unknown file type '{}': use {choices}", one_line(extension))]
    Extension {
        /// The file's extension.
        extension: String,
        /// The extensions that are accepted.
        choices: &'static str,
    },
    /// A format that can be read but not written.
    #[error("tables are not written as '{}' files, only read: use {choices}{instead}", one_line(extension))]
    ReadOnly {
        /// The file's extension.
        extension: String,
        /// The extensions that are accepted.
        choices: &'static str,
        /// An alternative to suggest; may be empty.
        instead: &'static str,
    },
    /// Text in place of a number.
    #[error("'{}' is not a number; choose numeric columns, or remove the text", visible(text))]
    NotNumber {
        /// The field, truncated to 40 characters.
        text: String,
    },
    /// An integer that has no exact `f64` representation.
    #[error("{value} has no exact f64 value: leave the column out if it is an identifier, or save it as float64")]
    Inexact {
        /// The integer.
        value: String,
    },
    /// An empty field or a null.
    #[error("missing value; drop or fill such rows first")]
    Missing,
    /// A line whose number of fields differs from that of the lines before it.
    #[error("{found} fields, but the lines before have {expected}")]
    Ragged {
        /// Fields in this line.
        found: usize,
        /// Fields in the first line.
        expected: usize,
    },
    /// A table without data rows: empty, or only a header.
    #[error("no data rows")]
    NoRows,
    /// A one-dimensional array; two dimensions (rows and columns) are required.
    #[error(
        "one-dimensional array of shape ({n},): reshape it to (n, 1) if it is one column, or to (1, d) if it is one row \
         (NumPy: a.reshape(-1, 1) or a.reshape(1, -1))"
    )]
    OneDimensional {
        /// Its length.
        n: usize,
    },
    /// An array of zero dimensions, or of more than two.
    #[error("array of shape {shape:?} has {} dimensions: rows × columns are needed", shape.len())]
    Dimensions {
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Values of an unsupported type.
    #[error("type '{dtype}' is not supported: {why}")]
    Type {
        /// The type's name in the file.
        dtype: String,
        /// The reason, and what to do.
        why: String,
    },
    /// Bytes that violate the file format.
    #[error("truncated or corrupt: {0}")]
    Corrupt(String),
    /// Columns that cannot be selected.
    #[error("{0}")]
    Column(#[from] ColumnError),
    /// No array of that name, or several arrays of which none has a default name.
    #[error("no array '{wanted}' among {}; name one as FILE.npz:NAME", list(found))]
    Array {
        /// The name looked for.
        wanted: String,
        /// The names of the arrays in the file.
        found: Vec<String>,
    },
    /// A file of parameter sets that lacks one of the arrays.
    #[error("no array '{wanted}' among {}; sets of parameters are weights, means and covariances", list(found))]
    Sets {
        /// The name looked for.
        wanted: String,
        /// The names of the arrays in the file.
        found: Vec<String>,
    },
    /// A file that is not a model, or a model of a later version.
    #[error("not a model that this program reads: {0}")]
    Format(String),
    /// A file that is not a readable table; the text says why and what to try.
    #[error("{0}")]
    Text(String),
    /// A field of a model file that is missing or wrong.
    #[error("{0}")]
    Field(String),
    /// Parameters that do not form a valid mixture.
    #[error("{0}")]
    Model(#[from] ModelError),
    /// Not enough memory for the file's contents.
    #[error("{what} needs {wanted} bytes of memory, {free} are free: read fewer columns, or split the file")]
    Memory {
        /// What the memory is for.
        what: String,
        /// Bytes needed.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// Contents that exceed the memory that they may take, and for which there is no temporary file.
    #[error(
        "{what} needs {wanted} bytes, more than the memory that it may take, and cannot be in a temporary file in \
         '{}': {why}; set TMPDIR to a folder with more room, or read fewer columns", folder.display()
    )]
    Disk {
        /// What the file is for.
        what: String,
        /// Bytes needed.
        wanted: u128,
        /// The folder of temporary files.
        folder: Box<Path>,
        /// The reason: the bytes that are free there, or the system's error.
        why: Box<str>,
    },
}

/// Columns that cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// No column has that name or index.
    #[error("no column '{}': there are {}", shown(wanted), describe(available, *d))]
    Unknown {
        /// The requested column.
        wanted: String,
        /// All column names; empty if the columns have none.
        available: Vec<String>,
        /// Number of columns.
        d: usize,
    },
    /// A column was requested more than once.
    #[error("column '{}' is selected twice: there are {}", shown(wanted), describe(available, *d))]
    Twice {
        /// The requested column.
        wanted: String,
        /// All column names; empty if the columns have none.
        available: Vec<String>,
        /// Number of columns.
        d: usize,
    },
    /// Several columns have that name.
    #[error("several columns are called '{}': select by index, 0 to {}", shown(wanted), d.saturating_sub(1))]
    Ambiguous {
        /// The requested column.
        wanted: String,
        /// Number of columns.
        d: usize,
    },
    /// A range whose end comes before its start.
    #[error("the range of columns '{wanted}' runs backwards: write the column that comes first in the table first")]
    Backwards {
        /// The requested range.
        wanted: String,
    },
    /// The selection is empty.
    #[error("no columns are left: there are {}", describe(available, *d))]
    None {
        /// All column names; empty if the columns have none.
        available: Vec<String>,
        /// Number of columns.
        d: usize,
    },
}

fn describe(available: &[String], d: usize) -> String {
    match (available.is_empty(), d) {
        (false, _) => list(available),
        (true, 0) => "no columns".to_owned(),
        (true, _) => format!("{d} columns without names; select by index, 0 to {}", d - 1),
    }
}

/// Lists names for a message: the first 40, then the total, so that the message stays on one line.
fn list(names: &[String]) -> String {
    const MOST: usize = 40;
    // Quotes show where a name begins and ends if it is blank or has blanks around it.
    let shown = |name: &String| match name.trim() == name && !name.is_empty() {
        true => one_line(name),
        false => format!("\"{}\"", one_line(name)),
    };
    let mut text = names.iter().take(MOST).map(shown).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += &format!(", .. ({} in all)", names.len());
    }
    if names.is_empty() { "nothing".to_owned() } else { text }
}

/// A piece of a file for a message: at most 40 characters, escaped by [`shown`].
pub(crate) fn one_line(text: &str) -> String {
    let (cut, more) = text.char_indices().nth(40).map_or((text, ""), |(at, _)| (&text[..at], ".."));
    format!("{}{more}", shown(cut))
}

/// The first line of another library's error message, at most 200 characters: later lines dump the library's state.
pub(crate) fn first_line(e: impl fmt::Display) -> String {
    let text = e.to_string();
    let mut cut = text.lines().next().unwrap_or_default().chars();
    let line: String = cut.by_ref().take(200).collect();
    if cut.next().is_some() { line + ".." } else { line }
}

/// A field for a message, with zero-width characters and white space other than blanks escaped.
pub(crate) fn visible(text: &str) -> String {
    let hidden =
        |c: char| (c.is_whitespace() && c != ' ') || matches!(c, '\u{200c}' | '\u{200d}' | '\u{2800}' | '\u{3164}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(line) = self.line {
            parts.push(format!("line {line}"));
        }
        // The row is left out if the line is known, which says more.
        if let (Some(row), None) = (self.row, self.line) {
            parts.push(format!("row {row}"));
        }
        if let Some(set) = self.set {
            parts.push(format!("set {set}"));
        }
        match (self.column, &self.name) {
            (Some(column), Some(name)) => parts.push(format!("column {column} ('{}')", one_line(name))),
            (Some(column), None) => parts.push(format!("column {column}")),
            (None, Some(name)) => parts.push(format!("column '{}'", one_line(name))),
            (None, None) => {}
        }
        if let Some(field) = &self.field {
            parts.push(format!("'{}'", one_line(field)));
        }
        if let Some(offset) = self.offset {
            parts.push(format!("byte {offset}"));
        }
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", shown(&self.path))?;
        if *self.place != Location::default() {
            write!(f, "{}: ", self.place)?;
        }
        // Messages of other libraries may contain line breaks.
        let text = self.problem.to_string();
        f.write_str(&shown(&text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(e) => e.source(),
            other => std::error::Error::source(other),
        }
    }
}

impl FileError {
    /// Whether the file or stream itself failed (not found, disk full, closed pipe), as opposed to its contents.
    pub const fn is_io(&self) -> bool {
        matches!(self.problem, Problem::Io(_) | Problem::Disk { .. })
    }

    /// Whether the other end of a pipe was closed.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(&self.problem, Problem::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// A [`FileError`] without the file's name, for code that does not know the name.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) place: Box<Location>,
    pub(crate) problem: Problem,
}

impl Fault {
    pub(crate) fn corrupt(offset: u64, why: impl Into<String>) -> Self {
        Self::from(Problem::Corrupt(why.into())).offset(offset)
    }

    pub(crate) fn field(field: &str, problem: impl Into<Problem>) -> Self {
        let mut fault = Self::from(problem.into());
        fault.place.field = Some(field.to_owned());
        fault
    }

    pub(crate) fn offset(mut self, offset: u64) -> Self {
        self.place.offset = Some(offset);
        self
    }

    pub(crate) fn in_file(self, path: &Path) -> FileError {
        self.in_named(&path.display().to_string())
    }

    pub(crate) fn in_named(self, path: &str) -> FileError {
        FileError { path: path.to_owned(), place: self.place, problem: self.problem }
    }
}

impl<T: Into<Problem>> From<T> for Fault {
    fn from(problem: T) -> Self {
        Self { place: Box::default(), problem: problem.into() }
    }
}
