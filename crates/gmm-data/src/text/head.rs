//! The first lines of a text table, which say how the others are read.

use std::io::BufRead;

use super::dialect::{Dialect, Line, excel_separator};
use super::encoding::windows_1252;
use super::lines::{Fields, Lines};
use crate::error::Fault;
use crate::{Format, Problem, ReadOptions, memory};

/// What the first lines of a text say about the others.
pub(super) struct Head {
    pub(super) dialect: Dialect,
    /// Whether the first line is one of names.
    pub(super) header: bool,
    /// Whether the first field of each row is its name.
    pub(super) row_names: bool,
    /// Names of the columns, without that of row names.
    pub(super) names: Option<Vec<String>>,
    /// Whether the names are UTF-8.
    pub(super) is_utf8: bool,
}

impl Head {
    /// # Errors
    /// [`Problem::NoRows`] without lines; errors of the dialect.
    pub(super) fn of(
        sample: &[Line],
        excel: Option<super::Separator>,
        comment: Option<&[u8]>,
        format: Format,
        options: &ReadOptions,
    ) -> Result<Self, Fault> {
        let Some((_, first)) = sample.first() else { return Err(Problem::NoRows.into()) };
        let second = sample.get(1).map(|(_, bytes)| &bytes[..]);
        let dialect = Dialect::of(sample, format, options.separator.or(excel), options)?;
        let header = options.header.unwrap_or_else(|| dialect.is_header(first, second));
        let row_names = header && dialect.has_row_names(sample);
        let comment = comment.filter(|comment| options.header.is_none() && dialect.comment_names(comment, first));
        let named = if header { Some(&first[..]) } else { comment };
        let is_utf8 = named.is_none_or(|line| std::str::from_utf8(line).is_ok());
        let names = named.map(|line| names(dialect.fields(line), is_utf8)).transpose()?;
        Ok(Self { dialect, header, row_names, names, is_utf8 })
    }
}

/// Reads the first lines, from which the dialect is detected, and the separator that a `sep=` line above them declares.
pub(super) fn sample(lines: &mut Lines<impl BufRead>) -> Result<(Vec<Line>, Option<super::Separator>), Fault> {
    /// Maximum number of lines, and of bytes; at least two lines are read even if they have more bytes.
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

/// Decodes fields as names, in UTF-8 or else in Windows-1252. The names are copied several times before they end up in
/// a model; the memory for the copies is checked here.
fn names(fields: Fields<'_>, is_utf8: bool) -> Result<Vec<String>, Fault> {
    let (count, bytes) = fields.clone().fold((0usize, 0u128), |(n, bytes), f| (n + 1, bytes + f.name().len() as u128));
    // 56 bytes for each `String` and its heap allocation's overhead, three copies of each.
    memory::check("the list of column names", 3 * (bytes + 56 * count as u128))?;
    let text = |bytes: &[u8]| match is_utf8 {
        true => String::from_utf8_lossy(bytes).into_owned(),
        false => windows_1252(bytes),
    };
    Ok(fields.map(|f| text(f.name())).collect())
}
