//! What can be wrong with a file: which file, where in it, what, and what to try.

use std::fmt;
use std::io;
use std::path::Path;

use gmm_model::{ModelError, shown};

/// A file that cannot be read or written. Its `Display` is one line: file, place, problem.
#[derive(Debug)]
pub struct FileError {
    /// The file as the user named it; `<stdin>` and `<stdout>` for the standard streams.
    pub path: String,
    /// Where in the file, as far as it is known.
    pub place: Box<Place>,
    /// What is wrong there.
    pub problem: Problem,
}

/// A place in a file. Empty where the problem is the file as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line of a text file, from 1.
    pub line: Option<u64>,
    /// Row of a table, from 0, without header and blank lines.
    pub row: Option<u64>,
    /// One of many sets of parameters, from 0.
    pub set: Option<u64>,
    /// Column of a table, from 0 (text files: the field's number in its line, from 0).
    pub column: Option<usize>,
    /// The column's name, where it has one.
    pub name: Option<String>,
    /// Byte offset from the beginning of the file (in an npz: of the array's own file inside it).
    pub offset: Option<u64>,
    /// Field of a model file, or array of an npz.
    pub field: Option<String>,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system said so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// An extension that names no format.
    #[error("unknown file type '{}': use {choices}", one_line(extension))]
    Extension {
        /// What the name ends in.
        extension: String,
        /// What it may end in.
        choices: &'static str,
    },
    /// An extension whose files are read, but not written.
    #[error("tables are not written as '{}' files, only read: use {choices}{instead}", one_line(extension))]
    ReadOnly {
        /// What the name ends in.
        extension: String,
        /// What it may end in.
        choices: &'static str,
        /// What else to do; may be empty.
        instead: &'static str,
    },
    /// Text where a number belongs.
    #[error("'{}' is not a number; choose numeric columns, or remove the text", visible(text))]
    NotNumber {
        /// The field, cut to 40 characters.
        text: String,
    },
    /// An integer that no `f64` equals.
    #[error("{value} cannot be an f64 exactly: leave the column out if it is an identifier, or save it as float64")]
    Inexact {
        /// The integer.
        value: String,
    },
    /// An empty field or a null.
    #[error("missing value; drop or fill such rows first")]
    Missing,
    /// A line with another number of fields than the lines before it.
    #[error("{found} fields, where the lines before have {expected}")]
    Ragged {
        /// Fields in this line.
        found: usize,
        /// Fields in the first line.
        expected: usize,
    },
    /// A table with a header at most.
    #[error("no data rows")]
    NoRows,
    /// One dimension, where rows and columns belong.
    #[error(
        "one-dimensional array of shape ({n},): reshape it to (n, 1) if it is one column, or to (1, d) if it is one row \
         (NumPy: a.reshape(-1, 1) or a.reshape(1, -1))"
    )]
    OneDimensional {
        /// Its length.
        n: usize,
    },
    /// Zero dimensions, or more than two.
    #[error("array of shape {shape:?} has {} dimensions: rows × columns are needed", shape.len())]
    Dimensions {
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Numbers of a type that is not read.
    #[error("type '{dtype}' is not read: {why}")]
    Type {
        /// The type as the file names it.
        dtype: String,
        /// Why not, and what to do.
        why: String,
    },
    /// Bytes that are not what the format says.
    #[error("truncated or corrupt: {0}")]
    Corrupt(String),
    /// A column that is not there, or is asked for twice.
    #[error("{0}")]
    Column(#[from] ColumnError),
    /// Several arrays, and no way to tell which is meant; or none of that name.
    #[error("no array '{wanted}' among {}; name one as FILE.npz:NAME", list(found))]
    Array {
        /// The name looked for.
        wanted: String,
        /// The names there are.
        found: Vec<String>,
    },
    /// An array that many sets of parameters lack.
    #[error("no array '{wanted}' among {}; sets of parameters are weights, means and covariances", list(found))]
    Sets {
        /// The name looked for.
        wanted: String,
        /// The names there are.
        found: Vec<String>,
    },
    /// A model file of another kind or of a later version.
    #[error("not a model that this program reads: {0}")]
    Format(String),
    /// Text that is no table.
    #[error("{0}")]
    Text(String),
    /// A field of a model file that is missing or wrong.
    #[error("{0}")]
    Field(String),
    /// Parameters that are no mixture.
    #[error("{0}")]
    Model(#[from] ModelError),
    /// Not enough memory for what the file holds.
    #[error("{what} needs {wanted} bytes of memory, {free} are free: read fewer columns, or split the file")]
    Memory {
        /// What it is for.
        what: String,
        /// Bytes wanted.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
}

/// Columns that cannot be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// No column of that name or index.
    #[error("no column '{}': there are {}", shown(wanted), describe(available, *d))]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The names there are; empty where columns have none.
        available: Vec<String>,
        /// How many columns there are.
        d: usize,
    },
    /// Asked for more than once.
    #[error("column '{}' is asked for twice: there are {}", shown(wanted), describe(available, *d))]
    Twice {
        /// What was asked for.
        wanted: String,
        /// The names there are; empty where columns have none.
        available: Vec<String>,
        /// How many columns there are.
        d: usize,
    },
    /// Two columns have that name.
    #[error("several columns are called '{}': select by index, 0 to {}", shown(wanted), d.saturating_sub(1))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// How many columns there are.
        d: usize,
    },
    /// A range whose end comes before its start.
    #[error("the range of columns '{wanted}' runs backwards: write the column that comes first in the table first")]
    Backwards {
        /// What was asked for.
        wanted: String,
    },
    /// Nothing was asked for, or nothing is left.
    #[error("no columns are left: there are {}", describe(available, *d))]
    None {
        /// The names there are; empty where columns have none.
        available: Vec<String>,
        /// How many columns there are.
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

/// Names for a message: all where they are few, since a line must stay a line.
fn list(names: &[String]) -> String {
    const MOST: usize = 40;
    // Of a name that is blank, or has blanks around it, quotes show where it begins and ends.
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

/// A piece of a file for a message: at most 40 characters, as they may be [`shown`].
pub(crate) fn one_line(text: &str) -> String {
    let (cut, more) = text.char_indices().nth(40).map_or((text, ""), |(at, _)| (&text[..at], ".."));
    format!("{}{more}", shown(cut))
}

/// What a library says of a broken file: its first line, since more is a dump of its own state.
pub(crate) fn first_line(e: impl fmt::Display) -> String {
    let text = e.to_string();
    let mut cut = text.lines().next().unwrap_or_default().chars();
    let line: String = cut.by_ref().take(200).collect();
    if cut.next().is_some() { line + ".." } else { line }
}

/// A field for a message, in which white space other than a blank, and what has no width, are escapes.
pub(crate) fn visible(text: &str) -> String {
    let hidden =
        |c: char| (c.is_whitespace() && c != ' ') || matches!(c, '\u{200c}' | '\u{200d}' | '\u{2800}' | '\u{3164}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(line) = self.line {
            parts.push(format!("line {line}"));
        }
        // The line says more than the row where both are known.
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
        if *self.place != Place::default() {
            write!(f, "{}: ", self.place)?;
        }
        // Messages of other libraries may hold line breaks.
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
    /// Whether the file or stream failed (not found, disk full, closed pipe), rather than what is in it.
    pub const fn is_io(&self) -> bool {
        matches!(self.problem, Problem::Io(_))
    }

    /// Whether the other end of a pipe was closed.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(&self.problem, Problem::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// A problem in a file whose name the code at hand need not know.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) place: Box<Place>,
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
