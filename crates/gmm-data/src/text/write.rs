//! Writes a matrix or one column as text, with numbers in the shortest form that reads back as the same bits.

use std::borrow::Cow;
use std::io::{self, Write};

use gmm_model::Matrix;

use super::number::is_missing;
use crate::compressed::Compression;
use crate::{Column, Table, content};

/// Writes a header, if the table has names, and one line per row.
pub(crate) fn write_table(out: &mut impl Write, table: &Table, separator: char) -> io::Result<()> {
    if let Some(names) = &table.names {
        write_header(out, names, separator)?;
    }
    // `{:?}` is the shortest form, keeps `-0.0`, and, unlike `{}`, writes 1e300 in five characters.
    match &table.matrix {
        Matrix::F32(a) => a.outer_iter().try_for_each(|row| write_row(out, row.iter(), separator)),
        Matrix::F64(a) => a.outer_iter().try_for_each(|row| write_row(out, row.iter(), separator)),
    }
}

/// Writes one column under its name.
pub(crate) fn write_column(out: &mut impl Write, name: &str, column: Column<'_>) -> io::Result<()> {
    write_header(out, &[name.to_owned()], ',')?;
    match column {
        Column::Labels(labels) => labels.iter().try_for_each(|v| writeln!(out, "{v}")),
        Column::Values(values) => values.iter().try_for_each(|v| writeln!(out, "{v:?}")),
    }
}

fn write_row<'a, T: std::fmt::Debug + 'a>(
    out: &mut impl Write,
    row: impl Iterator<Item = &'a T>,
    separator: char,
) -> io::Result<()> {
    for (i, value) in row.enumerate() {
        if i > 0 {
            write!(out, "{separator}")?;
        }
        write!(out, "{value:?}")?;
    }
    out.write_all(b"\n")
}

fn write_header(out: &mut impl Write, names: &[String], separator: char) -> io::Result<()> {
    if names.iter().any(|name| name.contains('\0')) {
        // A UTF-8 byte order mark, because letters between NUL bytes would be read as UTF-16.
        out.write_all("\u{feff}".as_bytes())?;
    }
    // If any name looks like a number, all are quoted: that tells the reader that the line is not a row.
    let number = |name: &String| name.trim().parse::<f64>().is_ok();
    let all = names.iter().any(number) || names.iter().all(|name| name.trim().is_empty());
    for (i, name) in names.iter().enumerate() {
        if i > 0 {
            write!(out, "{separator}")?;
        }
        out.write_all(quote(name, separator, all).as_bytes())?;
    }
    out.write_all(b"\n")
}

fn quote(name: &str, separator: char, always: bool) -> Cow<'_, str> {
    // Quoted because at the start of a file a byte order mark would be read as the file's, # as a comment, and sep= as
    // Excel's separator line. The same goes for names that begin with another format's magic bytes.
    let start = name.trim_start().as_bytes();
    let other = content::of_bytes(start).is_some() || Compression::of_bytes(start).is_some();
    let separator_line = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("sep="));
    let marked = other || separator_line || is_missing(name.as_bytes()) || name.starts_with(['\u{feff}', '#']);
    if always || marked || name.contains([separator, '"', '\n', '\r', ';', '\t', ',', '|', '\0']) || name.trim() != name
    {
        return Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")));
    }
    Cow::Borrowed(name)
}
