//! Detects separator, decimal sign and header of a text table from its first lines, unless they are given.

use super::lines::{Field, Fields};
use super::number::{Kind, Notation, kind, plain, with_comma};
use super::{Decimal, Separator};
use crate::{Format, Problem, ReadOptions};

/// A line and its number, counted from 1.
pub(super) type Line = (u64, Vec<u8>);

/// How the rows of a table are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dialect {
    pub(super) separator: Separator,
    pub(super) notation: Notation,
}

/// The separator that a first line `sep=;` declares, which Excel reads and other programs write. A quoted `"sep=;"` is
/// a column name.
pub(super) fn excel_separator(line: &[u8]) -> Option<Separator> {
    match line.trim_ascii_start() {
        // If `--separator` would reject the character, the line is a column name: a digit, for one, would split
        // numbers.
        [s, e, p, b'=', separator] if [*s, *e, *p].eq_ignore_ascii_case(b"sep") => {
            std::str::from_utf8(&[*separator]).ok()?.parse().ok()
        }
        _ => None,
    }
}

impl Dialect {
    /// Detects the dialect of a table from its first lines.
    ///
    /// # Errors
    /// If separator and decimal sign are both given as a comma.
    pub(super) fn of(
        lines: &[Line],
        format: Format,
        given: Option<Separator>,
        options: &ReadOptions,
    ) -> Result<Self, Problem> {
        let comma = Separator::Byte(b',');
        let no_comma = options.decimal == Some(Decimal::Comma) && !has_quoted_comma(lines);
        if given == Some(comma) && no_comma {
            let why = "separator and decimal sign are both ',': with a decimal comma, quote the fields, or separate them by ; or tabs";
            return Err(Problem::Text(why.to_owned()));
        }
        let separator = given.unwrap_or_else(|| separator(lines, format, no_comma));
        let notation = match options.decimal {
            Some(decimal) => Notation::Known(decimal),
            None if separator == comma => Notation::Known(Decimal::Point),
            None => notation(lines, separator),
        };
        Ok(Self { separator, notation })
    }

    pub(super) fn fields(self, line: &[u8]) -> Fields<'_> {
        Fields::new(line, self.separator)
    }

    fn kinds(self, line: &[u8]) -> impl Iterator<Item = Kind> {
        self.fields(line).map(move |field| kind(field.value(), self.notation))
    }

    pub(super) fn has_number(self, line: &[u8]) -> bool {
        self.kinds(line).any(|kind| kind == Kind::Number)
    }

    /// Whether the first line names the columns. It does in three cases:
    ///
    /// - it holds text and no number, and is all text or differs in kind from the second line. (A number beside text is
    ///   more likely a wrong field than a name, and no row may be lost);
    /// - all its fields are quoted and none of the second line's are, as our writer does for names that look like
    ///   numbers;
    /// - only its first field is empty and the others count up, as pandas writes an index beside unnamed columns.
    pub(super) fn is_header(self, first: &[u8], second: Option<&[u8]>) -> bool {
        let mut all_text = true;
        let (mut text, mut number) = (false, false);
        for kind in self.kinds(first) {
            all_text &= kind == Kind::Text;
            text |= kind == Kind::Text;
            number |= kind == Kind::Number;
        }
        if text && !number {
            return all_text || second.is_none_or(|second| !self.kinds(second).eq(self.kinds(first)));
        }
        second.is_some_and(|second| {
            let quoted = self.fields(first).all(|f| f.quoted) && !self.fields(second).any(|f| f.quoted);
            quoted || self.is_index_header(first, second)
        })
    }

    /// Whether the first line is like `,0,1,2`, and the second does not begin with a gap: numbers, if any, are whole
    /// and increase.
    fn is_index_header(self, first: &[u8], second: &[u8]) -> bool {
        let mut fields = self.fields(first);
        if !fields.next().is_some_and(|f| f.value().is_empty()) || self.kinds(second).next() == Some(Kind::Missing) {
            return false;
        }
        let (mut last, mut any) = (-1.0, false);
        fields.all(|field| {
            any = true;
            match plain(field.value()) {
                Some(value) => {
                    let counts = value.fract() == 0.0 && value > last;
                    last = value;
                    counts
                }
                None => !field.value().is_empty(),
            }
        }) && any
    }

    /// Whether the rows have names: the first line has one name fewer than the rows have fields, as R's `write.table`
    /// writes, so that the first field of each row is its name. Unquoted numbers must be whole and increase to count as
    /// row names, since otherwise the first line may simply lack a name. Rows must not end in an empty field, which
    /// would be a trailing separator.
    pub(super) fn has_row_names(self, lines: &[Line]) -> bool {
        let [(_, first), others @ ..] = lines else { return false };
        if others.is_empty() || (self.has_number(first) && !self.fields(first).all(|f| f.quoted)) {
            return false;
        }
        let names = self.fields(first).number();
        if !others.iter().all(|(_, line)| self.fields(line).number() == names + 1) {
            return false;
        }
        if others.iter().any(|(_, line)| self.fields(line).last().is_none_or(|f| f.value().is_empty())) {
            return false;
        }
        let quoted = |field: &Field<'_>| field.quoted || kind(field.value(), self.notation) == Kind::Text;
        let mut labels = others.iter().filter_map(|(_, line)| self.fields(line).next());
        if labels.clone().all(|field| quoted(&field)) {
            return true;
        }
        let mut last = f64::NEG_INFINITY;
        names > 1
            && others.len() > 1
            && labels.all(|field| {
                let value = plain(field.value()).filter(|value| value.fract() == 0.0 && *value > last);
                last = value.unwrap_or(f64::INFINITY);
                value.is_some()
            })
    }

    /// Whether the comment above the first row names the columns: it has a word for each column, and none is a number
    /// (a row that was commented out has numbers). For a single column it must be one word, since otherwise any remark
    /// would count.
    pub(super) fn comment_names(self, comment: &[u8], first: &[u8]) -> bool {
        let count = self.fields(comment).number();
        let one_word = count > 1 || !comment.trim_ascii().iter().any(u8::is_ascii_whitespace);
        count == self.fields(first).number() && one_word && self.kinds(comment).all(|kind| kind == Kind::Text)
    }
}

/// Maximum number of fields examined in a line: a table may be very wide.
const MOST_FIELDS: usize = 1000;

/// The result of splitting the lines at one separator.
struct Trial {
    separator: Separator,
    /// Number of fields in the first line.
    first: usize,
    /// Number of fields in the second line, or in the only one.
    fields: usize,
    /// Whether all lines have the same number of fields; the first may have one fewer if the rows have names.
    even: bool,
    /// Fraction of the fields below the first line that are numbers or missing values.
    numbers: f64,
}

impl Trial {
    fn new(lines: &[Line], separator: Separator) -> Self {
        let count = |line: &Line| Fields::new(&line.1, separator).number();
        let (head, below) = lines.split_at(usize::from(lines.len() > 1));
        let (first, fields) = (count(&lines[0]), count(&below[0]));
        let even = below.iter().all(|line| count(line) == fields);
        // A comma can be a decimal sign only if it is not the separator.
        let notation = [Notation::Open, Notation::Known(Decimal::Comma)];
        let notation = if separator == Separator::Byte(b',') { &notation[..1] } else { &notation[..] };
        let (mut numbers, mut all) = (0, 0);
        for field in below.iter().flat_map(|(_, line)| Fields::new(line, separator).take(MOST_FIELDS)) {
            all += 1;
            numbers += usize::from(notation.iter().any(|&n| kind(field.value(), n) != Kind::Text));
        }
        let row_names = || Dialect { separator, notation: Notation::Open }.has_row_names(lines);
        let even = even && (head.is_empty() || first == fields || row_names());
        Self { separator, first, fields, even, numbers: f64::from(numbers as u32) / f64::from(all.max(1) as u32) }
    }
}

/// Chooses the separator that splits all lines into the same number of fields with the highest fraction of numbers.
/// Ties go to the candidate that is rarest inside numbers and names.
fn separator(lines: &[Line], format: Format, no_comma: bool) -> Separator {
    if format == Format::Tsv {
        return Separator::Byte(b'\t');
    }
    let mut candidates = vec![Separator::Byte(b';'), Separator::Byte(b'\t'), Separator::Byte(b',')];
    candidates.extend([Separator::Byte(b'|'), Separator::Blanks]);
    candidates.retain(|&s| s != Separator::Byte(b',') || !no_comma);
    let trials: Vec<Trial> = candidates.into_iter().map(|separator| Trial::new(lines, separator)).collect();
    let best = |fits: &dyn Fn(&Trial) -> bool| {
        let fitting = trials.iter().filter(|t| fits(t));
        fitting.reduce(|best, t| if t.numbers > best.numbers { t } else { best }).map(|t| t.separator)
    };
    let blanks = |t: &Trial| t.separator == Separator::Blanks;
    // Blanks also occur in names and text, so they count as a separator only if some fields are numbers.
    let one = trials.iter().all(|t| t.first == 1 || blanks(t));
    best(&|t| t.even && t.fields > 1 && (!blanks(t) || t.numbers > 0.0))
        // One column, perhaps of numbers with decimal commas.
        .or_else(|| best(&|t| one && t.even && t.fields == 1 && t.numbers == 1.0 && !blanks(t)))
        // Lines with different numbers of fields will be an error; the first line decides which separator was meant.
        .or_else(|| best(&|t| t.first > 1 && (!blanks(t) || format == Format::Txt)))
        .unwrap_or(if format == Format::Txt { Separator::Blanks } else { Separator::Byte(b',') })
}

/// Whether some quoted field, with the comma as separator, is a number with a decimal comma.
fn has_quoted_comma(lines: &[Line]) -> bool {
    let mut fields = lines.iter().flat_map(|(_, line)| Fields::new(line, Separator::Byte(b',')).take(MOST_FIELDS));
    fields.any(|field| field.quoted && with_comma(field.value()).is_some())
}

/// Detects the decimal sign from the first lines: a comma if some number has one and none has a point.
fn notation(lines: &[Line], separator: Separator) -> Notation {
    let (mut comma, mut point) = (false, false);
    for field in lines.iter().flat_map(|(_, line)| Fields::new(line, separator).take(MOST_FIELDS)) {
        comma |= with_comma(field.value()).is_some();
        point |= field.value().contains(&b'.') && plain(field.value()).is_some();
    }
    match (comma, point) {
        (true, false) => Notation::Known(Decimal::Comma),
        (false, false) => Notation::Open,
        _ => Notation::Known(Decimal::Point),
    }
}
