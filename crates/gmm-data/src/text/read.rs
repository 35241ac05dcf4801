//! A text table into a matrix.

use std::io::BufRead;

use gmm_model::Matrix;
use ndarray::Array2;

use super::lines::{Field, Fields, Lines, Separator};
use crate::error::{Fault, one_line};
use crate::{Format, Place, Problem, ReadOptions, Table};

/// Reads a text table: `(n, d)`, always `f64`.
///
/// Cost: one pass; 8 bytes per value, and at times as much again while the vector grows.
pub(crate) fn read(reader: impl BufRead, format: Format, options: &ReadOptions) -> Result<Table, Fault> {
    let mut lines = Lines::new(reader);
    let Some((first_line, first)) = lines.next()? else { return Err(Problem::NoRows.into()) };
    let first = first.to_vec();
    let separator = separator(&first, format);
    let second = lines.next()?.map(|(line, bytes)| (line, bytes.to_vec()));
    let header =
        options.header.unwrap_or_else(|| is_header(&first, second.as_ref().map(|(_, bytes)| &bytes[..]), separator));
    let names = match header {
        true => Some(Fields::new(&first, separator).map(|f| f.text()).collect::<Vec<_>>()),
        false if options.header.is_some() => None,
        false => lines.comment().and_then(|comment| names_of_comment(comment, &first, separator)),
    };
    let mut rows = Rows::new(names, Fields::new(&first, separator).count(), separator, options)?;
    if !header {
        rows.push(first_line, &first).map_err(|fault| neither_names_nor_data(fault, &first, separator, options))?;
    }
    if let Some((line, bytes)) = second {
        rows.push(line, &bytes)?;
    }
    while let Some((line, bytes)) = lines.next()? {
        rows.push(line, bytes)?;
    }
    rows.finish()
}

/// The separator of a format, or the likeliest one by the first line.
fn separator(first: &[u8], format: Format) -> Separator {
    let has = |b: u8| first.contains(&b);
    match format {
        Format::Tsv => Separator::Byte(b'\t'),
        _ if has(b',') => Separator::Byte(b','),
        _ if has(b';') => Separator::Byte(b';'),
        _ if has(b'\t') => Separator::Byte(b'\t'),
        Format::Txt => Separator::Blanks,
        _ => Separator::Byte(b','),
    }
}

/// Whether the first line names the columns: it holds text and no number (a number beside text is more likely a wrong
/// field than a name, and a row must not vanish), unless the second line holds text in the same places; or all of it is
/// quoted over a line that is not, as our writer writes names that look like numbers.
fn is_header(first: &[u8], second: Option<&[u8]>, separator: Separator) -> bool {
    let texts = kinds(first, separator);
    if texts.contains(&Kind::Text) && !texts.contains(&Kind::Number) {
        let all = texts.iter().all(|&kind| kind == Kind::Text);
        return all || second.is_none_or(|second| kinds(second, separator) != texts);
    }
    second.is_some_and(|second| {
        Fields::new(first, separator).all(|f| f.quoted) && !Fields::new(second, separator).any(|f| f.quoted)
    })
}

/// The names in the comment above the first row, where it has one for each column and none that could be a number: a
/// row that was commented out has no names. A single column's name is one word, since any remark would else be one.
fn names_of_comment(comment: &[u8], first: &[u8], separator: Separator) -> Option<Vec<String>> {
    let names: Vec<String> = Fields::new(comment, separator).map(|f| f.text()).collect();
    let one_word = names.len() > 1 || !names.iter().any(|name| name.contains(char::is_whitespace));
    let fits = names.len() == Fields::new(first, separator).count() && one_word;
    (fits && kinds(comment, separator).iter().all(|&kind| kind == Kind::Text)).then_some(names)
}

/// What a field holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Missing,
    Text,
}

fn kinds(line: &[u8], separator: Separator) -> Vec<Kind> {
    let kind = |f: Field<'_>| match number(&f.bytes) {
        Ok(_) => Kind::Number,
        Err(Problem::Missing) => Kind::Missing,
        Err(_) => Kind::Text,
    };
    Fields::new(line, separator).map(kind).collect()
}

/// Says of a first line with numbers and text that it may have been meant as names.
fn neither_names_nor_data(fault: Fault, first: &[u8], separator: Separator, options: &ReadOptions) -> Fault {
    let Problem::NotNumber { text } = &fault.problem else { return fault };
    if options.header.is_some() || !kinds(first, separator).contains(&Kind::Number) {
        return fault;
    }
    let why = format!(
        "'{text}' is not a number, but other fields of this first line are: mend it, or put all names in quotes"
    );
    Fault { problem: Problem::Text(why), ..fault }
}

/// A finite number, NaN or an infinity (which the data set reports later, with row and column).
fn number(field: &[u8]) -> Result<f64, Problem> {
    let text = std::str::from_utf8(field).unwrap_or("\u{fffd}");
    if let Ok(value) = text.parse() {
        return Ok(value);
    }
    // R, pandas and SQL's words for nothing.
    if matches!(text, "" | "NA" | "N/A" | "n/a" | "NULL" | "null" | "None" | "<NA>" | "?") {
        return Err(Problem::Missing);
    }
    Err(Problem::NotNumber { text: one_line(&String::from_utf8_lossy(field)) })
}

struct Rows {
    separator: Separator,
    names: Option<Vec<String>>,
    /// Fields per line.
    fields: usize,
    /// Columns kept: for each field its column, if it has one.
    slots: Vec<Option<usize>>,
    chosen: Vec<usize>,
    values: Vec<f64>,
    n: usize,
}

impl Rows {
    fn new(
        names: Option<Vec<String>>,
        fields: usize,
        separator: Separator,
        options: &ReadOptions,
    ) -> Result<Self, Fault> {
        let chosen = options.choose(names.as_deref(), fields, (0..fields).collect()).map_err(Problem::from)?;
        let mut slots = vec![None; fields];
        for (slot, &field) in chosen.iter().enumerate() {
            slots[field] = Some(slot);
        }
        Ok(Self { separator, names, fields, slots, chosen, values: Vec::new(), n: 0 })
    }

    fn push(&mut self, line: u64, bytes: &[u8]) -> Result<(), Fault> {
        let start = self.values.len();
        self.values.resize(start + self.chosen.len(), 0.0);
        let mut found = 0;
        for field in Fields::new(bytes, self.separator) {
            if let Some(Some(slot)) = self.slots.get(found) {
                let value = number(&field.bytes).map_err(|problem| self.fault(line, Some(found), problem, bytes))?;
                self.values[start + slot] = value;
            }
            found += 1;
        }
        if found != self.fields {
            return Err(self.fault(line, None, Problem::Ragged { found, expected: self.fields }, bytes));
        }
        self.n += 1;
        Ok(())
    }

    fn fault(&self, line: u64, column: Option<usize>, problem: Problem, bytes: &[u8]) -> Fault {
        if bytes.starts_with(b"#") {
            let why = "a comment: lines that begin with # are read over above the first row only; remove it";
            let place = Place { line: Some(line), row: Some(self.n as u64), ..Place::default() };
            return Fault { place: Box::new(place), problem: Problem::Text(why.to_owned()) };
        }
        let found = Fields::new(bytes, self.separator).count();
        // A line that lacks fields often has a wrong one for that reason: the number of fields says more.
        let (column, problem) = if found == self.fields {
            (column, problem)
        } else {
            (None, Problem::Ragged { found, expected: self.fields })
        };
        let name = column.and_then(|c| self.names.as_ref().map(|names| names[c].clone()));
        let place = Place { line: Some(line), row: Some(self.n as u64), column, name, ..Place::default() };
        Fault { place: Box::new(place), problem }
    }

    fn finish(mut self) -> Result<Table, Fault> {
        if self.n == 0 {
            return Err(Problem::NoRows.into());
        }
        // Growth by doubling can leave half of the memory unused.
        self.values.shrink_to_fit();
        let matrix = Array2::from_shape_vec((self.n, self.chosen.len()), self.values).expect("n rows of d values");
        let names = self.names.map(|names| self.chosen.iter().map(|&i| names[i].clone()).collect());
        Ok(Table { matrix: Matrix::from(matrix), names, warnings: Vec::new() })
    }
}
