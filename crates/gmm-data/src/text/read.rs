//! A text table into a matrix.

use std::io::BufRead;

use gmm_model::Matrix;
use ndarray::Array2;

use super::Decimal;
use super::dialect::{Dialect, Line, excel_separator};
use super::doubts::Reading;
use super::encoding::utf8;
use super::lines::{Fields, Lines, is_comment};
use super::number::{Notation, cut, number, plain, with_comma};
use crate::error::Fault;
use crate::{DataWarning, Format, Place, Problem, ReadOptions, Table, memory};

/// Reads a text table: `(n, d)`, always `f64`.
///
/// Cost: one pass; 8 bytes per value, and at times as much again while the vector grows.
pub(crate) fn read(reader: impl BufRead, format: Format, options: &ReadOptions) -> Result<Table, Fault> {
    let mut lines = Lines::new(utf8(reader)?);
    let (sample, excel) = sample(&mut lines)?;
    let Some((_, first)) = sample.first() else { return Err(Problem::NoRows.into()) };
    let second = sample.get(1).map(|(_, bytes)| &bytes[..]);
    let dialect = Dialect::of(&sample, format, options.separator.or(excel), options)?;
    let header = options.header.unwrap_or_else(|| dialect.is_header(first, second));
    let row_names = header && dialect.has_row_names(&sample);
    let comment = lines.comment().filter(|comment| options.header.is_none() && dialect.comment_names(comment, first));
    let names = match (header, comment) {
        (true, _) => Some(names(dialect.fields(first))?),
        (false, Some(comment)) => Some(names(dialect.fields(comment))?),
        (false, None) => None,
    };
    let guessed_row = options.header.is_none() && names.is_none();
    let mut rows = Rows::new(names, dialect.fields(first).number(), row_names, dialect, options)?;
    if row_names
        && second.and_then(|line| dialect.fields(line).next()).is_some_and(|f| !f.quoted && plain(&f.bytes).is_some())
    {
        rows.warnings.push(DataWarning::new(
            "the first line has one name less than the rows have fields: the first field is taken as the row's name, as R's \
             write.table writes it, and left out",
        ));
    }
    for (i, (line, bytes)) in sample.iter().enumerate().skip(usize::from(header)) {
        let pushed = rows.push(*line, bytes);
        pushed.map_err(|fault| if i == 0 { neither_names_nor_data(fault, bytes, dialect, options) } else { fault })?;
    }
    drop(sample);
    while let Some((line, bytes)) = lines.next()? {
        rows.push(line, bytes)?;
    }
    rows.finish(guessed_row, options)
}

/// The first lines, by which the dialect is judged, and the separator that a line above them names.
fn sample(lines: &mut Lines<impl BufRead>) -> Result<(Vec<Line>, Option<super::Separator>), Fault> {
    /// Lines, and bytes of them, where there are two lines at least.
    const MOST: (usize, usize) = (32, 1 << 18);
    let (mut sample, mut bytes, mut separator) = (Vec::new(), 0, None);
    while sample.len() < MOST.0 && (sample.len() < 2 || bytes < MOST.1) {
        let Some(line) = lines.next_owned()? else { break };
        if sample.is_empty() && separator.is_none() {
            separator = excel_separator(&line.1);
            if separator.is_some() {
                continue;
            }
        }
        bytes += line.1.len();
        sample.push(line);
    }
    Ok((sample, separator))
}

/// Fields as names. They are copied some times until they are a model's: the memory for that is asked for here.
fn names(fields: Fields<'_>) -> Result<Vec<String>, Fault> {
    let (count, bytes) = fields.clone().fold((0usize, 0u128), |(n, bytes), f| (n + 1, bytes + f.bytes.len() as u128));
    // A string and its piece of the heap.
    memory::check("the list of column names", 3 * (bytes + 56 * count as u128))?;
    Ok(fields.map(|f| f.text()).collect())
}

/// Says of a first line with numbers and text that it may have been meant as names.
fn neither_names_nor_data(fault: Fault, first: &[u8], dialect: Dialect, options: &ReadOptions) -> Fault {
    let Problem::NotNumber { text } = &fault.problem else { return fault };
    if options.header.is_some() || !dialect.has_number(first) {
        return fault;
    }
    let why = format!(
        "'{text}' is not a number, but other fields of this first line are: correct it if the line is a row; use \
         --header yes if it holds column names"
    );
    Fault { problem: Problem::Text(why), ..fault }
}

struct Rows {
    dialect: Dialect,
    /// Names of the columns, without that of row names.
    names: Option<Vec<String>>,
    /// Fields per line.
    fields: usize,
    /// Fields before the first column: 1 where rows have names.
    skipped: usize,
    /// For each field the column of the table that it is, if it is one; `None` where all are, in order.
    slots: Option<Vec<Option<usize>>>,
    chosen: Vec<usize>,
    values: Vec<f64>,
    n: usize,
    warnings: Vec<DataWarning>,
}

impl Rows {
    fn new(
        names: Option<Vec<String>>,
        columns: usize,
        row_names: bool,
        dialect: Dialect,
        options: &ReadOptions,
    ) -> Result<Self, Fault> {
        // Five lists of them are made.
        memory::check("the list of columns", 40 * columns as u128)?;
        let skipped = usize::from(row_names);
        let chosen = options.choose(names.as_deref(), columns, (0..columns).collect()).map_err(Problem::from)?;
        let fields = columns + skipped;
        let all = skipped == 0 && chosen.len() == columns && chosen.iter().enumerate().all(|(i, &field)| i == field);
        let slots = (!all).then(|| {
            let mut slots = vec![None; fields];
            for (slot, &column) in chosen.iter().enumerate() {
                slots[column + skipped] = Some(slot);
            }
            slots
        });
        Ok(Self { dialect, names, fields, skipped, slots, chosen, values: Vec::new(), n: 0, warnings: Vec::new() })
    }

    fn push(&mut self, line: u64, bytes: &[u8]) -> Result<(), Fault> {
        /// Values for which memory is asked at a time where there is none left to double.
        const STEP: usize = 1 << 16;
        let d = self.chosen.len();
        if self.values.capacity() - self.values.len() < d {
            let room = memory::reserve(&mut self.values, d.max(STEP), "the table");
            room.map_err(|problem| self.fault(line, None, problem, bytes))?;
        }
        let start = self.values.len();
        let mut found = 0;
        if self.slots.is_some() {
            self.values.resize(start + d, 0.0);
        }
        for field in self.dialect.fields(bytes) {
            let slot = match &self.slots {
                Some(slots) => slots.get(found).copied().flatten(),
                None => (found < d).then_some(found),
            };
            if let Some(slot) = slot {
                let value = match number(&field.bytes, self.dialect.notation) {
                    Ok(value) => value,
                    Err(problem) => match self.late_comma(&field.bytes) {
                        Some(value) => value,
                        None => return Err(self.fault(line, Some(found), problem, bytes)),
                    },
                };
                if self.slots.is_some() {
                    self.values[start + slot] = value;
                } else {
                    self.values.push(value);
                }
            }
            found += 1;
        }
        if found != self.fields {
            return Err(self.fault(line, None, Problem::Ragged { found, expected: self.fields }, bytes));
        }
        self.n += 1;
        Ok(())
    }

    /// A number with a decimal comma, where all numbers until here are whole: then this is the decimal sign.
    fn late_comma(&mut self, field: &[u8]) -> Option<f64> {
        if self.dialect.notation != Notation::Open || !self.values.iter().all(|value| value.fract() == 0.0) {
            return None;
        }
        let value = with_comma(field)?;
        self.dialect.notation = Notation::Known(Decimal::Comma);
        Some(value)
    }

    fn fault(&self, line: u64, column: Option<usize>, problem: Problem, bytes: &[u8]) -> Fault {
        if is_comment(bytes) {
            let why = "a comment: lines that begin with # are read over above the first row only; remove it";
            let place = Place { line: Some(line), row: Some(self.n as u64), ..Place::default() };
            return Fault { place: Box::new(place), problem: Problem::Text(why.to_owned()) };
        }
        let found = self.dialect.fields(bytes).number();
        // A line that lacks fields often has a wrong one for that reason: the number of fields says more.
        let (column, problem) = match problem {
            Problem::Memory { .. } => (None, problem),
            problem if found == self.fields => (column, self.explained(problem)),
            _ => (None, Problem::Ragged { found, expected: self.fields }),
        };
        let name = column.and_then(|c| c.checked_sub(self.skipped)).and_then(|c| Some(self.names.as_ref()?[c].clone()));
        let place = Place { line: Some(line), row: Some(self.n as u64), column, name, ..Place::default() };
        Fault { place: Box::new(place), problem }
    }

    /// Says of a number with the other decimal sign that it is one.
    fn explained(&self, problem: Problem) -> Problem {
        let Problem::NotNumber { text } = &problem else { return problem };
        let (decimal, other) = match self.dialect.notation {
            Notation::Known(Decimal::Comma) => (',', '.'),
            _ => ('.', ','),
        };
        let plain: String = text.chars().map(|c| if c == other { decimal } else { c }).collect();
        if !text.contains(other) || number(plain.as_bytes(), self.dialect.notation).is_err() {
            return problem;
        }
        Problem::Text(format!(
            "'{}' is not a number with the decimal sign '{decimal}': write --decimal '{other}' if all numbers have \
             '{other}', and take out signs between thousands",
            cut(text.as_bytes())
        ))
    }

    fn finish(mut self, guessed_row: bool, options: &ReadOptions) -> Result<Table, Fault> {
        if self.n == 0 {
            return Err(Problem::NoRows.into());
        }
        // Growth by doubling can leave half of the memory unused.
        self.values.shrink_to_fit();
        let matrix = Array2::from_shape_vec((self.n, self.chosen.len()), self.values).expect("n rows of d values");
        let matrix = Matrix::from(matrix);
        // What is only left out names no column.
        let named = options.columns.iter().flatten().any(|word| !word.trim_start().starts_with('!'));
        let (names, chosen) = (self.names.as_deref(), &self.chosen[..]);
        if self.skipped == 0 {
            self.warnings.extend(Reading { names, chosen, named, guessed_row }.warnings(&matrix));
        }
        let names = match (self.names, &self.slots) {
            (Some(names), Some(_)) => Some(self.chosen.iter().map(|&i| names[i].clone()).collect()),
            (names, _) => names,
        };
        Ok(Table { matrix, names, warnings: self.warnings })
    }
}
