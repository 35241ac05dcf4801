//! Detects a table's format: from the file's extension, or for a stream from its first bytes.

use std::path::Path;

use crate::compressed::Compression;
use crate::error::one_line;
use crate::{Problem, content};

/// A table's file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text separated by commas, or by another separator detected from the first lines.
    Csv,
    /// Text separated by tabs.
    Tsv,
    /// Text whose separator is detected as for `Csv`; blanks if that finds none. Written with tabs.
    Txt,
    /// NumPy's array file.
    Npy,
    /// NumPy's archive of array files.
    Npz,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow IPC, file or stream form (feather version 2 is the file form).
    Arrow,
}

/// The extensions that can be read, for messages.
pub(crate) const READABLE: &str = "csv, tsv, txt (each also as .gz or .zst), npy, npz, parquet, arrow, ipc or feather, or give the format with --format";
const WRITABLE: &str = "csv, tsv, npy, parquet, arrow, ipc or feather";

impl std::str::FromStr for Format {
    type Err = Problem;

    /// Parses a format's name, which is one of its extensions.
    fn from_str(name: &str) -> Result<Self, Problem> {
        Self::of_path(&Path::new("rows").with_extension(name))
    }
}

impl Format {
    /// Returns the format that a path's extension names.
    ///
    /// # Errors
    /// [`Problem::Extension`] if it is unknown; [`Problem::Text`] if it names an archive that must be unpacked first.
    pub fn of_path(path: &Path) -> Result<Self, Problem> {
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        match extension.as_str() {
            "csv" => Ok(Self::Csv),
            "tsv" | "tab" => Ok(Self::Tsv),
            "txt" | "dat" => Ok(Self::Txt),
            "npy" => Ok(Self::Npy),
            "npz" => Ok(Self::Npz),
            "parquet" | "pq" => Ok(Self::Parquet),
            "arrow" | "ipc" | "feather" | "arrows" => Ok(Self::Arrow),
            other => Err(match content::of_extension(other) {
                Some(what) => Problem::Text(format!(
                    "by its name {what}; if it is a table nevertheless, give the format with --format"
                )),
                None => Problem::Extension { extension: one_line(other), choices: READABLE },
            }),
        }
    }

    /// Whether this is a text format.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Txt)
    }

    /// Returns the format in which a file of this name is written.
    ///
    /// # Errors
    /// [`Problem::Extension`] if the extension is unknown; [`Problem::ReadOnly`] if its format is only read.
    pub fn of_output(path: &Path) -> Result<Self, Problem> {
        match Self::of_path(path) {
            Ok(format) if !matches!(format, Self::Npz | Self::Txt) => Ok(format),
            read_only => {
                let extension = one_line(&path.extension().unwrap_or_default().to_string_lossy());
                Err(match (read_only, Compression::inner_path(path)) {
                    (_, Some(inner)) => Problem::ReadOnly {
                        extension,
                        choices: WRITABLE,
                        instead: match Self::of_output(&inner) {
                            Ok(Self::Csv) => ", or write csv to - and pipe it through gzip or zstd",
                            _ => ", and compress that",
                        },
                    },
                    (Ok(_), None) => Problem::ReadOnly { extension, choices: WRITABLE, instead: "" },
                    (Err(_), None) => Problem::Extension { extension, choices: WRITABLE },
                })
            }
        }
    }

    /// Returns the format that a stream's first bytes identify, or [`Format::Csv`] if they identify none.
    pub fn of_bytes(start: &[u8]) -> Self {
        const MAGICS: [(&[u8], Format); 7] = [
            (b"\x93NUMPY", Format::Npy),
            (b"PK\x03\x04", Format::Npz),
            (b"PK\x05\x06", Format::Npz),
            (b"PAR1", Format::Parquet),
            (b"ARROW1", Format::Arrow),
            // Feather version 1: the Arrow reader rejects it with an error that names it.
            (b"FEA1", Format::Arrow),
            // The continuation marker before a stream's schema.
            (b"\xff\xff\xff\xff", Format::Arrow),
        ];
        MAGICS.into_iter().find(|(magic, _)| content::begins_with(start, magic)).map_or(Self::Csv, |(_, format)| format)
    }
}
