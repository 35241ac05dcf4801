//! Writes a matrix or one column as text, with numbers in the shortest form that reads back as the same bits.

use std::borrow::Cow;
use std::fmt::Debug;
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
    let mut line = Vec::new();
    match &table.matrix {
        Matrix::F32(a) => a.outer_iter().try_for_each(|row| write_row(out, &mut line, row.iter().copied(), separator)),
        Matrix::F64(a) => a.outer_iter().try_for_each(|row| write_row(out, &mut line, row.iter().copied(), separator)),
    }
}

/// Writes one column under its name.
pub(crate) fn write_column(out: &mut impl Write, name: &str, column: Column<'_>) -> io::Result<()> {
    write_header(out, &[name.to_owned()], ',')?;
    let mut line = Vec::new();
    match column {
        Column::Labels(labels) => labels.iter().try_for_each(|v| writeln!(out, "{v}")),
        Column::Signed(labels) => labels.iter().try_for_each(|v| writeln!(out, "{v}")),
        Column::Values(values) => values.iter().try_for_each(|v| write_row(out, &mut line, [*v], ',')),
    }
}

/// Writes one row; `line` is a buffer.
fn write_row<T: Number>(
    out: &mut impl Write,
    line: &mut Vec<u8>,
    row: impl IntoIterator<Item = T>,
    separator: char,
) -> io::Result<()> {
    line.clear();
    for (i, value) in row.into_iter().enumerate() {
        if i > 0 {
            line.extend_from_slice(separator.encode_utf8(&mut [0; 4]).as_bytes());
        }
        write_number(line, value)?;
    }
    line.push(b'\n');
    out.write_all(line)
}

/// A floating-point number of a matrix.
trait Number: zmij::Float + Debug + Copy + Into<f64> {
    /// Number of significant decimal digits that every decimal number keeps when it is read and written again.
    const DIGITS: usize;
}

impl Number for f32 {
    const DIGITS: usize = f32::DIGITS as usize;
}

impl Number for f64 {
    const DIGITS: usize = f64::DIGITS as usize;
}

/// Writes what `{:?}` writes: the shortest form, which keeps `-0.0`, and, unlike `{}`, writes 1e300 in five characters.
fn write_number<T: Number>(line: &mut Vec<u8>, value: T) -> io::Result<()> {
    let size = value.into().abs();
    // zmij takes half the time, and its text is the same here; beyond these bounds its exponents are written differently.
    if size == 0.0 || (1e-4..1e12).contains(&size) {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(value);
        // The last digit may differ if the number lies halfway between two shortest forms. These have at least `DIGITS`
        // digits and at most 17; such a number has one digit more, so at most 21 after the point (3 leading zeros).
        if text.len() <= T::DIGITS || (size * f64::from(1 << 22)).fract() != 0.0 {
            line.extend_from_slice(text.as_bytes());
            return Ok(());
        }
    }
    write!(line, "{value:?}")
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(value: impl Number) {
        let mut line = Vec::new();
        write_number(&mut line, value).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), format!("{value:?}"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn numbers_are_written_as_the_standard_library_writes_them(
            bits in any::<u64>(),
            scale in -30..40i32,
            digits in 0..20u32,
        ) {
            let whole = bits as f64 / 2f64.powi(64);
            for value in [f64::from_bits(bits), whole * 10f64.powi(scale), (whole * 10f64.powi(digits as i32)).round() * 10f64.powi(scale)] {
                check(value);
                check(-value);
                check(value as f32);
            }
            check(f32::from_bits(bits as u32));
        }
    }

    #[test]
    fn numbers_halfway_between_two_shortest_forms_are_written_as_the_standard_library_writes_them() {
        check(-1498027.0f32 - 0.25);
        check(2f64.powi(50) + 0.25);
        for i in 0..1 << 16 {
            let fraction = f64::from(i) / f64::from(1 << 16);
            for whole in [0.0, 1.0, 9e3, 123e4, 7e9, 1e11] {
                check(whole + fraction);
                check((whole + fraction) as f32);
                check((whole + fraction) / 1024.0);
            }
        }
    }

    #[test]
    fn powers_and_their_neighbours_are_written_as_the_standard_library_writes_them() {
        for exponent in -330..310 {
            let power: f64 = format!("1e{exponent}").parse().unwrap();
            [power.next_down(), power, power.next_up()].into_iter().for_each(check);
            [(power as f32).next_down(), power as f32, (power as f32).next_up()].into_iter().for_each(check);
        }
        for exponent in -1074..1024 {
            let power = 2f64.powi(exponent);
            [power.next_down(), power, power.next_up(), power * 5.0].into_iter().for_each(check);
        }
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().for_each(check);
    }
}
