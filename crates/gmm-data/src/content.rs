//! Recognises files that are not readable tables, by their first bytes or extension, for error messages.

use crate::error::Fault;
use crate::{Format, Problem};

/// Number of leading bytes that are enough to tell the kinds of files apart.
pub(crate) const START: usize = 64;

const ZIP: &str =
    "a zip archive: --format npz reads NumPy's npz; save a sheet of Excel's xlsx as csv; unpack others first";
const XZ: &str = "an xz archive: unpack it first (xz -d); gzip and zstd are read as they are";
const BZIP2: &str = "a bzip2 archive: unpack it first (bzip2 -d); gzip and zstd are read as they are";
const HTML: &str = "an HTML page, perhaps an error message of the site that it came from: download the table itself";

/// Leading bytes, the format that they identify if it is a readable one, and a description for messages.
const KINDS: [(&[u8], Option<Format>, &str); 17] = [
    (b"PK\x03\x04", Some(Format::Npz), ZIP),
    (b"PK\x05\x06", Some(Format::Npz), ZIP),
    (b"\xd0\xcf\x11\xe0", None, "an old Excel or Word file: save the table as csv"),
    (b"\xfd7zXZ\0", None, XZ),
    (b"\x1f\x8b", None, "compressed by gzip: add .gz to the file's name"),
    (b"\x28\xb5\x2f\xfd", None, "compressed by zstd: add .zst to the file's name"),
    (b"\x89HDF", None, "an HDF5 file: write the array as npy, or the table as csv"),
    (b"\x93NUMPY", Some(Format::Npy), "a NumPy array: --format npy reads it"),
    (b"PAR1", Some(Format::Parquet), "a parquet file: --format parquet reads it"),
    (b"ARROW1", Some(Format::Arrow), "an Arrow file: --format arrow reads it"),
    (
        b"FEA1",
        Some(Format::Arrow),
        "a feather file of version 1: convert it with \
     pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new), or save it as parquet",
    ),
    (b"%PDF-", None, "a PDF file: save the table as csv"),
    (b"\xff\xd8\xff", None, "a JPEG picture"),
    (b"\x89PNG\r\n", None, "a PNG picture"),
    (b"SQLite format 3\0", None, "an SQLite database: export the table as csv"),
    (b"MATLAB 5.0 MAT-file", None, MATLAB),
    (b"MATLAB 7.3 MAT-file", None, MATLAB),
];

const MATLAB: &str = "a MATLAB file: save the matrix as csv with writematrix(x, 'x.csv')";
const PICKLE: &str =
    "a Python pickle, which is never loaded: save an array as npy (numpy.save), a frame as parquet (to_parquet)";

/// Byte range of a tar archive's magic word.
const TAR: std::ops::Range<usize> = 257..262;

/// Describes a file with this extension, if it is an archive that must be unpacked before it can be read.
pub(crate) fn of_extension(extension: &str) -> Option<&'static str> {
    match extension {
        "zip" => Some(ZIP),
        "xz" => Some(XZ),
        "bz2" => Some(BZIP2),
        _ => None,
    }
}

/// Whether a file begins with these bytes. A `magic` of letters and digits counts only if no text follows, because a
/// column may be named `PAR1`.
pub(crate) fn begins_with(start: &[u8], magic: &[u8]) -> bool {
    let text = |b: &u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    start.strip_prefix(magic).is_some_and(|rest| {
        let word = magic.iter().all(u8::is_ascii_alphanumeric);
        !word || !rest.first().is_some_and(text)
    })
}

/// Identifies a file by its first bytes: the format, if it is a readable one, and a description. `None` if it may be a
/// text table.
pub(crate) fn of_bytes(start: &[u8]) -> Option<(Option<Format>, &'static str)> {
    let kind = KINDS.iter().find(|(magic, ..)| begins_with(start, magic)).map(|&(_, format, what)| (format, what));
    let markup = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let begins = |tag: &[u8]| markup.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    kind.or_else(|| match () {
        // The opcode PROTO, then the pickle protocol's version.
        () if matches!(start, [0x80, 2..=5, ..]) => Some((None, PICKLE)),
        () if start.get(TAR) == Some(b"ustar") => Some((None, "a tar archive: unpack it first (tar -xf)")),
        // The magic word, the block size as a digit, then the first digits of pi.
        () if matches!(start, [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..]) => Some((None, BZIP2)),
        () if begins(b"<!doctype") || begins(b"<html") || begins(b"<head") => Some((None, HTML)),
        () if begins(b"<?xml") => Some((None, "an XML file: save the table as csv")),
        () => None,
    })
}

/// Names the detected type in the error of a file that is not in the expected format.
pub(crate) fn explained(fault: Fault, format: Format, start: &[u8]) -> Fault {
    if !matches!(fault.problem, Problem::Corrupt(_)) || format.is_text() {
        return fault;
    }
    // Fewer than 8 bytes are too few to call it text.
    let text = start.len() >= 8 && start.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    let what = match of_bytes(start) {
        Some((Some(other), _)) if other == format => return fault,
        Some((_, what)) => what,
        None if text => "text: --format csv reads it if it is a table",
        None => return fault,
    };
    let wanted = match format {
        Format::Npy => "a NumPy array",
        Format::Npz => "an npz archive",
        Format::Parquet => "a parquet file",
        _ => "an Arrow file",
    };
    Problem::Text(format!("not {wanted}, but {what}")).into()
}
