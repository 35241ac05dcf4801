//! The groups of rows: labels that are numbers or text, and columns of text.

use std::cmp::Ordering;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::compressed::Compression;
use crate::error::Fault;
use crate::input::Input;
use crate::{FileError, Format, Problem, ReadOptions, columnar, text};

/// The label of a group of rows. Numbers come before text; each kind is in ascending order.
#[derive(Clone, Debug)]
pub enum GroupLabel {
    /// A finite number. 0 and -0 are one label.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl GroupLabel {
    /// The label of a number.
    pub fn number(value: f64) -> Self {
        Self::Number(value + 0.0)
    }
}

impl Ord for GroupLabel {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for GroupLabel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for GroupLabel {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for GroupLabel {}

impl fmt::Display for GroupLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => f.pad(&value.to_string()),
            Self::Text(text) => f.pad(&crate::error::one_line(text)),
        }
    }
}

/// A number or a string.
impl Serialize for GroupLabel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // 3, not 3.0: labels are mostly whole.
            Self::Number(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(53) => {
                serializer.serialize_i64(*value as i64)
            }
            Self::Number(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for GroupLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = || serde::de::Error::custom("a group must be a number or a string");
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Number(number) => number.as_f64().map(Self::number).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

/// A column of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// The text of each row, `(n,)`; none is empty.
    pub values: Vec<String>,
    /// The column's name, if the table has names.
    pub name: Option<String>,
    /// Its index in the first file.
    pub index: usize,
}

/// Reads a column of text from tables, one after another as by [`read_tables`](crate::read_tables). `None` if the first
/// of them has numbers there: in its first lines, or by its type. Then, and for standard input and pipes, which cannot be
/// read twice, the column is one of the table's.
///
/// # Errors
/// [`FileError`] for a field that is empty or missing, for a column that does not exist, and for text in an Arrow file,
/// which is not supported.
///
/// Cost: one pass over each file.
pub fn read_words<P: AsRef<Path>>(
    paths: &[P],
    column: &str,
    options: &ReadOptions,
) -> Result<Option<Words>, FileError> {
    let mut all: Option<Words> = None;
    for path in paths.iter().map(AsRef::as_ref) {
        if !path.is_file() {
            return Ok(None);
        }
        let read = words_of(path, column, options, all.is_some()).map_err(|fault| fault.in_file(path))?;
        match (read, &mut all) {
            (None, _) => return Ok(None),
            (Some(words), None) => all = Some(words),
            (Some(words), Some(all)) => all.values.extend(words.values),
        }
    }
    Ok(all)
}

fn words_of(path: &Path, column: &str, options: &ReadOptions, even_numbers: bool) -> Result<Option<Words>, Fault> {
    let inner = Compression::inner_path(path);
    let format = match options.format {
        Some(format) => format,
        None => Format::of_path(inner.as_deref().unwrap_or(path))?,
    };
    match format {
        Format::Csv | Format::Tsv | Format::Txt => {
            let mut file = File::open(path)?;
            let mut start = Vec::new();
            Read::by_ref(&mut file).take(crate::content::START as u64).read_to_end(&mut start)?;
            let compression = Compression::of_bytes(&start);
            let whole = Cursor::new(start).chain(file);
            match compression {
                Some(compression) => {
                    let plain = BufReader::new(compression.reader(whole)?);
                    text::read_words(plain, format, options, column, even_numbers)
                }
                None => text::read_words(BufReader::new(whole), format, options, column, even_numbers),
            }
        }
        Format::Parquet => columnar::parquet_words(&Input::of_file(File::open(path)?)?, column, even_numbers),
        Format::Npy | Format::Npz | Format::Arrow if even_numbers => {
            let why = format!("column '{column}' is text in another file; this format has numbers only");
            Err(Problem::Text(why).into())
        }
        Format::Npy | Format::Npz | Format::Arrow => Ok(None),
    }
}
