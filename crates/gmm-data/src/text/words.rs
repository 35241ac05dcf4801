//! Reads one column of a text table as text, such as the names of groups.

use std::io::BufRead;

use super::encoding::{utf8, windows_1252};
use super::head::{Head, sample};
use super::lines::Lines;
use super::number::number;
use super::unread::Unread;
use crate::error::Fault;
use crate::labels::Words;
use crate::table::find_columns;
use crate::{Format, Location, Problem, ReadOptions};

/// Reads the column, with rows and names as [`read`](super::read::read) finds them. `None` if its first fields are
/// numbers, unless `even_numbers` is set.
///
/// Cost: one pass, line by line, and the memory of the words.
pub(crate) fn read_words(
    reader: impl BufRead,
    format: Format,
    options: &ReadOptions,
    column: &str,
    even_numbers: bool,
) -> Result<Option<Words>, Fault> {
    let (text, _) = utf8(reader)?;
    let mut lines = Lines::new(Unread::new(text));
    let (sample, excel) = sample(&mut lines)?;
    let Head { dialect, header, row_names, names, .. } = Head::of(&sample, excel, lines.comment(), format, options)?;
    let (skipped, first) = (usize::from(row_names), &sample[0].1);
    let columns = names.as_ref().map_or_else(|| dialect.fields(first).number(), Vec::len);
    let index = find_columns(&[column], names.as_deref(), columns).map_err(Problem::from)?[0];
    let field_of = |bytes: &[u8]| dialect.fields(bytes).nth(index + skipped).map(|field| text_of(field.value()));
    let body = &sample[usize::from(header)..];
    let is_number = |bytes: &[u8]| {
        let field = dialect.fields(bytes).nth(index + skipped);
        field.is_some_and(|field| number(field.value(), dialect.notation).is_ok())
    };
    if !even_numbers && body.iter().all(|(_, bytes)| is_number(bytes)) {
        return Ok(None);
    }
    let mut values = Vec::new();
    let mut add = |line: u64, bytes: &[u8]| {
        let row = values.len();
        let fault = |problem| {
            let name = names.as_ref().map(|names| names[index].clone());
            let place =
                Location { line: Some(line), row: Some(row as u64), column: Some(index), name, ..Location::default() };
            Fault { place: Box::new(place), problem }
        };
        match field_of(bytes) {
            Some(word) if !word.is_empty() => {
                values.push(word);
                Ok(())
            }
            _ => Err(fault(Problem::Missing)),
        }
    };
    for (line, bytes) in body {
        add(*line, bytes)?;
    }
    while let Some((line, bytes)) = lines.next()? {
        add(line, bytes)?;
    }
    let name = names.map(|names| names[index].clone());
    Ok(Some(Words { values, name, index }))
}

fn text_of(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| windows_1252(bytes), str::to_owned)
}
