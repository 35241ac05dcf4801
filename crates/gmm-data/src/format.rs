//! Which format a table is in: by the file's extension, or for a stream by its first bytes.

use std::path::Path;

use crate::compressed::Compression;
use crate::error::one_line;
use crate::{Problem, content};

/// The formats of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text with commas, or with what else its first lines have between numbers.
    Csv,
    /// Text with tabs.
    Tsv,
    /// The same, and in doubt with blanks.
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

/// The extensions that name a format, for messages.
pub(crate) const READABLE: &str = "csv, tsv, txt (each also as .gz or .zst), npy, npz, parquet, arrow, ipc or feather, or name the format by --format";
const WRITABLE: &str = "csv, tsv, npy, parquet, arrow, ipc or feather";

impl std::str::FromStr for Format {
    type Err = Problem;

    /// By its name, which is also an extension.
    fn from_str(name: &str) -> Result<Self, Problem> {
        Self::of_path(&Path::new("rows").with_extension(name))
    }
}

impl Format {
    /// The format that a file's name stands for.
    ///
    /// # Errors
    /// [`Problem::Extension`]; [`Problem::Text`] for an archive that must be unpacked first.
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
                    "by its name {what}; if it is a table all the same, name the format by --format"
                )),
                None => Problem::Extension { extension: one_line(other), choices: READABLE },
            }),
        }
    }

    /// Whether it is one of those for text.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Txt)
    }

    /// The format in which a file of this name is written.
    ///
    /// # Errors
    /// [`Problem::Extension`], also for formats that are only read.
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

    /// The format that a stream's first bytes stand for; text where they say nothing else.
    pub fn of_bytes(start: &[u8]) -> Self {
        const MAGICS: [(&[u8], Format); 7] = [
            (b"\x93NUMPY", Format::Npy),
            (b"PK\x03\x04", Format::Npz),
            (b"PK\x05\x06", Format::Npz),
            (b"PAR1", Format::Parquet),
            (b"ARROW1", Format::Arrow),
            // Feather version 1, which the reader of Arrow refuses by name.
            (b"FEA1", Format::Arrow),
            // The continuation marker before a stream's schema.
            (b"\xff\xff\xff\xff", Format::Arrow),
        ];
        MAGICS.into_iter().find(|(magic, _)| content::begins_with(start, magic)).map_or(Self::Csv, |(_, format)| format)
    }
}
