//! Reads a text table into a matrix.

use std::io::BufRead;

use super::Decimal;
use super::advice::Sampled;
use super::block::Layout;
use super::blocks::{Blocks, End};
use super::dialect::Dialect;
use super::doubts::Reading;
use super::encoding::utf8;
use super::head::{Head, sample};
use super::lines::{Lines, is_comment};
use super::number::{Notation, number, plain, with_comma};
use super::thousands::{Commas, is_ambiguous};
use super::unread::Unread;
use crate::error::{Fault, visible};
use crate::store::Store;
use crate::{DataWarning, Format, Location, Problem, ReadOptions, Table, memory};

/// Reads a text table as an `(n, d)` matrix, always `f64`. `size` is the text's length in bytes, if it is known; it
/// need not be exact.
///
/// Lines are read and split by [`Lines`] and [`Rows::push`] as far as that is needed: for the first lines, and wherever
/// the text is not plain. Blocks of plain rows are parsed on several threads, with the same result.
///
/// Cost: one pass; 8 bytes per value, and a few blocks of text. Without `size`, up to an eighth more while the matrix
/// grows, and twice as much where the allocator has to move it.
pub(crate) fn read(
    reader: impl BufRead,
    size: Option<u64>,
    format: Format,
    options: &ReadOptions,
) -> Result<Table, Fault> {
    read_in(reader, size, format, options, |line| Some(Blocks::new(line)))
}

/// [`read`] with the given way to read blocks, made from the length of the longest sampled line; `None` reads all lines
/// one by one.
pub(super) fn read_in(
    reader: impl BufRead,
    size: Option<u64>,
    format: Format,
    options: &ReadOptions,
    blocks: impl FnOnce(usize) -> Option<Blocks>,
) -> Result<Table, Fault> {
    let (text, binary) = utf8(reader)?;
    let table = read_lines(Lines::new(Unread::new(text)), size, format, options, blocks);
    table.map_err(|fault| match (binary, &fault.problem) {
        (None, _) | (_, Problem::Io(_) | Problem::Memory { .. } | Problem::Disk { .. }) => fault,
        (Some(byte), _) => Problem::Text(format!(
            "not text, since it has bytes such as 0x{byte:02x}: save the table as csv, or give its format with --format"
        ))
        .into(),
    })
}

fn read_lines(
    mut lines: Lines<Unread<impl BufRead>>,
    size: Option<u64>,
    format: Format,
    options: &ReadOptions,
    blocks: impl FnOnce(usize) -> Option<Blocks>,
) -> Result<Table, Fault> {
    let (sample, excel) = sample(&mut lines)?;
    let Head { dialect, header, row_names, names, is_utf8 } =
        Head::of(&sample, excel, lines.comment(), format, options)?;
    let Some((_, first)) = sample.first() else { return Err(Problem::NoRows.into()) };
    let second = sample.get(1).map(|(_, bytes)| &bytes[..]);
    let guessed_row = options.header.is_none() && names.is_none();
    let sampled = Sampled::new(&sample[usize::from(header)..], dialect, options.decimal);
    let mut rows = Rows::new((names, dialect.fields(first).number(), row_names), dialect, sampled, options)?;
    // A comma below the header that cannot be a thousands separator shows that all commas are decimal signs. Columns
    // that are not read count too.
    let mut below = sample.iter().skip(usize::from(header)).flat_map(|(_, line)| dialect.fields(line));
    let decimal = below.any(|f| with_comma(f.value()).is_some() && !is_ambiguous(f.value()));
    rows.commas = Commas::new(decimal || options.decimal.is_some());
    if !is_utf8 {
        rows.warnings.push(DataWarning::new(
            "the column names are not UTF-8, and are read as Windows-1252 (Latin-1): save the file as UTF-8 if they look wrong",
        ));
    }
    if row_names
        && second.and_then(|line| dialect.fields(line).next()).is_some_and(|f| !f.quoted && plain(f.value()).is_some())
    {
        rows.warnings.push(DataWarning::new(
            "the first line has one name fewer than the rows have fields: the first field is taken as the row's name, as R's \
             write.table writes it, and left out",
        ));
    }
    for (i, (line, bytes)) in sample.iter().enumerate().skip(usize::from(header)) {
        let pushed = rows.push(*line, bytes);
        pushed.map_err(|fault| if i == 0 { neither_names_nor_data(fault, bytes, dialect, options) } else { fault })?;
    }
    let blocks = blocks(sample.iter().map(|(_, line)| line.len()).max().unwrap_or(0));
    drop(sample);
    rows.read(&mut lines, size, blocks)?;
    rows.finish(guessed_row, options)
}

/// Adds to the error about a first line with both numbers and text that it may be meant as column names.
fn neither_names_nor_data(fault: Fault, first: &[u8], dialect: Dialect, options: &ReadOptions) -> Fault {
    let Problem::NotNumber { text } = &fault.problem else { return fault };
    if options.header.is_some() || !dialect.has_number(first) {
        return fault;
    }
    let why = format!(
        "'{}' is not a number, but other fields of this first line are: correct it if the line is a row; use \
         --header yes if it holds column names",
        visible(text)
    );
    Fault { problem: Problem::Text(why), ..fault }
}

struct Rows {
    dialect: Dialect,
    sampled: Sampled,
    /// Names of the columns, without the column of row names.
    names: Option<Vec<String>>,
    /// Number of fields per line.
    fields: usize,
    /// Number of fields before the first column: 1 if the rows have names, else 0.
    skipped: usize,
    /// For each field, its column in the table if it is read; `None` if all fields are read, in order.
    slots: Option<Vec<Option<usize>>>,
    /// Indices of the columns that are read, in the table's order.
    chosen: Vec<usize>,
    /// Number of leading entries of `chosen` that an error may suggest excluding: all except [`ReadOptions::last`].
    optional: usize,
    /// The values of the rows so far, `n*d`, and room for more, which holds anything.
    values: Store<f64>,
    n: usize,
    /// Whether a missing value is read as NaN.
    missing: bool,
    commas: Commas,
    warnings: Vec<DataWarning>,
}

impl Rows {
    fn new(
        (names, columns, row_names): (Option<Vec<String>>, usize, bool),
        dialect: Dialect,
        sampled: Sampled,
        options: &ReadOptions,
    ) -> Result<Self, Fault> {
        // Five lists of 8 bytes per column are made.
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
        let optional = chosen.len() - usize::from(options.last.is_some());
        let values = Store::new(options.limit(), "the table");
        let (commas, warnings, missing) = (Commas::new(false), Vec::new(), options.missing);
        Ok(Self {
            dialect,
            sampled,
            names,
            fields,
            skipped,
            slots,
            chosen,
            optional,
            values,
            n: 0,
            missing,
            commas,
            warnings,
        })
    }

    /// Reads all other rows: in blocks where they are plain, else line by line.
    fn read(
        &mut self,
        lines: &mut Lines<Unread<impl BufRead>>,
        size: Option<u64>,
        mut blocks: Option<Blocks>,
    ) -> Result<(), Fault> {
        // Number of bytes to read line by line before a block is tried.
        let mut wait = blocks.as_ref().map_or(u64::MAX, |blocks| blocks.after);
        loop {
            let until = lines.reader().position().saturating_add(wait);
            while lines.reader().position() < until {
                let Some((line, bytes)) = lines.next()? else { return Ok(()) };
                self.push(line, bytes)?;
            }
            let Some(blocks) = &mut blocks else { continue };
            let position = lines.reader().position();
            let end = self.read_blocks(lines, size, blocks);
            let parsed = lines.reader().position() - position;
            wait = match end {
                Some(End::Text) => return Ok(()),
                Some(End::Room) if parsed > 0 => 0,
                // At least the block that is not plain. If most blocks are not, few are tried.
                _ => if parsed > wait { 0 } else { wait.saturating_mul(2) }.max(blocks.size as u64),
            };
        }
    }

    /// Reads blocks while they are plain and fit into memory; `None` if none can be read.
    fn read_blocks(
        &mut self,
        lines: &mut Lines<Unread<impl BufRead>>,
        size: Option<u64>,
        blocks: &mut Blocks,
    ) -> Option<End> {
        let (d, start) = (self.chosen.len(), self.n * self.chosen.len());
        let layout = Layout::new(self.dialect, self.fields, self.slots.as_deref(), d)?.with_missing(self.missing);
        let position = lines.reader().position();
        let left = size.and_then(|size| size.checked_sub(position)).filter(|&left| left > 0);
        // Values in the next bytes, if the rows there are about as long as those so far.
        let values = |bytes: u64| {
            let rows = bytes as f64 * self.n as f64 / position.max(1) as f64;
            ((rows * 1.03 + 8.0) as usize).saturating_mul(d)
        };
        let window = blocks.window();
        memory::check("blocks of text", window as u128).ok()?;
        let window = 2 * window as u64;
        let least = left.unwrap_or(window).min(window);
        let more = left.unwrap_or(position / 8).max(least);
        let (least, more) = (values(least), values(more));
        let room = self.values.make_room(start, least, more);
        room.or_else(|_| self.values.make_room(start, least, least)).ok()?;
        let filled = blocks.fill(lines.reader(), layout, &mut self.values[start..]);
        self.n += filled.rows;
        lines.count(filled.lines);
        Some(filled.end)
    }

    fn push(&mut self, line: u64, bytes: &[u8]) -> Result<(), Fault> {
        /// Number of values to reserve at a time if there is not enough memory to double the capacity.
        const STEP: usize = 1 << 16;
        let d = self.chosen.len();
        let start = self.n * d;
        if self.values.len() < start + d {
            if self.values.capacity() < start + d {
                self.values.truncate(start);
                let room = self.values.reserve(d.max(STEP));
                room.map_err(|problem| self.fault(line, None, problem, bytes))?;
            }
            let room = self.values.resize(start + d);
            room.map_err(|problem| self.fault(line, None, problem, bytes))?;
        }
        self.values[start..start + d].fill(0.0);
        let mut found = 0;
        for field in self.dialect.fields(bytes) {
            let slot = match &self.slots {
                Some(slots) => slots.get(found).copied().flatten(),
                None => (found < d).then_some(found),
            };
            if let Some(slot) = slot {
                let value = match number(field.value(), self.dialect.notation) {
                    Ok(value) => value,
                    Err(Problem::Missing) if self.missing => f64::NAN,
                    Err(problem) => match self.late_comma(field.value()) {
                        Some(value) => value,
                        None => return Err(self.fault(line, Some(found), problem, bytes)),
                    },
                };
                if self.dialect.notation == Notation::Known(Decimal::Comma) {
                    self.commas.see(line, field.value());
                }
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

    /// The values of all rows, and of the row being read; those that follow in that row are 0.
    fn so_far(&self) -> &[f64] {
        &self.values[..(self.n + 1) * self.chosen.len()]
    }

    /// Parses a number with a decimal comma, if all numbers so far are whole; the decimal sign is then a comma.
    fn late_comma(&mut self, field: &[u8]) -> Option<f64> {
        if self.dialect.notation != Notation::Open
            || !self.so_far().iter().all(|value| value.is_nan() || value.fract() == 0.0)
        {
            return None;
        }
        let value = with_comma(field)?;
        self.dialect.notation = Notation::Known(Decimal::Comma);
        Some(value)
    }

    fn fault(&self, line: u64, column: Option<usize>, problem: Problem, bytes: &[u8]) -> Fault {
        if is_comment(bytes) {
            let why = "a comment: lines that begin with # are skipped above the first row only; remove it";
            let place = Location { line: Some(line), row: Some(self.n as u64), ..Location::default() };
            return Fault { place: Box::new(place), problem: Problem::Text(why.to_owned()) };
        }
        let found = self.dialect.fields(bytes).number();
        // A line that lacks fields often fails at a wrong field because of that: the number of fields says more.
        let (column, problem) = match problem {
            Problem::Memory { .. } | Problem::Disk { .. } => (None, problem),
            problem if found == self.fields => (column, self.explained(column, problem)),
            _ => (None, self.sampled.ragged(found, self.fields, self.names.as_deref())),
        };
        let name = column.and_then(|c| c.checked_sub(self.skipped)).and_then(|c| Some(self.names.as_ref()?[c].clone()));
        let place = Location { line: Some(line), row: Some(self.n as u64), column, name, ..Location::default() };
        Fault { place: Box::new(place), problem }
    }

    /// Adds advice about a column without values, or a number in another notation.
    fn explained(&self, field: Option<usize>, problem: Problem) -> Problem {
        match (problem, field) {
            (Problem::Missing, Some(field)) => self.sampled.missing(
                field - self.skipped,
                self.skipped,
                &self.chosen[..self.optional],
                self.names.as_deref(),
            ),
            (Problem::NotNumber { text }, _) => {
                let decimals = self.so_far().iter().any(|value| value.is_finite() && value.fract() != 0.0);
                self.sampled.not_number(text, self.dialect.notation, decimals)
            }
            (problem, _) => problem,
        }
    }

    fn finish(mut self, guessed_row: bool, options: &ReadOptions) -> Result<Table, Fault> {
        if self.n == 0 {
            return Err(Problem::NoRows.into());
        }
        self.values.truncate(self.n * self.chosen.len());
        let (matrix, storage) = self.values.into_matrix((self.n, self.chosen.len()))?;
        // A selection of exclusions only does not name columns to read.
        let named = options.columns.iter().flatten().any(|word| !word.trim_start().starts_with('!'));
        let (names, chosen) = (self.names.as_deref(), &self.chosen[..]);
        self.warnings.extend(self.commas.warning());
        if self.skipped == 0 {
            self.warnings.extend(Reading { names, chosen, named, guessed_row }.warnings(&matrix));
        }
        let names = match (self.names, &self.slots) {
            (Some(names), Some(_)) => Some(self.chosen.iter().map(|&i| names[i].clone()).collect()),
            (names, _) => names,
        };
        Ok(Table { matrix, names, warnings: self.warnings, storage })
    }
}
