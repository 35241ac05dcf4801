//! A benchmark record: facts as comments, then a table with named columns.

use crate::Error;

/// A record as `cargo xtask bench` writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    facts: Vec<(String, String)>,
    columns: Vec<String>,
    lines: Vec<Vec<String>>,
}

/// A line of a record's table.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    record: &'a Record,
    fields: &'a [String],
}

impl Record {
    /// Parses a record's text: lines `# name: fact`, a line of column names, and lines with a field for each column,
    /// separated by commas. No field contains a comma.
    ///
    /// # Errors
    /// [`Error::Record`] if a line has a wrong number of fields, with its number from 1, or if there is no line of
    /// names.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut record = Self { facts: Vec::new(), columns: Vec::new(), lines: Vec::new() };
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(fact) = line.strip_prefix('#') {
                let (name, value) = fact.split_once(':').unwrap_or((fact, ""));
                record.facts.push((name.trim().to_owned(), value.trim().to_owned()));
                continue;
            }
            if line.trim().is_empty() {
                continue;
            }
            let fields: Vec<String> = line.split(',').map(|field| field.trim().to_owned()).collect();
            if record.columns.is_empty() {
                if fields.len() < 2 {
                    let why = format!("line {number}: '{}' is not a line of column names", short(line));
                    return Err(Error::Record(why));
                }
                record.columns = fields;
            } else if fields.len() != record.columns.len() {
                let (found, wanted) = (fields.len(), record.columns.len());
                return Err(Error::Record(format!("line {number}: {found} fields for {wanted} columns")));
            } else {
                record.lines.push(fields);
            }
        }
        if record.columns.is_empty() {
            return Err(Error::Record("it has no line of column names".to_owned()));
        }
        Ok(record)
    }

    /// The value of the fact `# name: value`.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(of, _)| of == name).map(|(_, fact)| fact.as_str())
    }

    /// The column names.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The lines of the table.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().map(|fields| Line { record: self, fields })
    }

    /// Machine, date and commit of the measurement, on one line.
    pub(crate) fn source(&self) -> String {
        let gpu = self.fact("engine").map(|engine| engine.split(", module").next().unwrap_or(engine));
        // The GPU's name is the first part; its properties follow.
        let device = self.fact("gpu").map(|gpu| gpu.split([';', ',']).next().unwrap_or(gpu));
        let machine = gpu.or(device).or_else(|| self.fact("processor"));
        let parts = [machine, self.fact("date"), self.fact("commit")];
        let commit = |part: &str| match part {
            version if version.starts_with("gmm ") => version.to_owned(),
            part if Some(part) == self.fact("commit") => format!("commit {part}"),
            part => part.to_owned(),
        };
        parts.into_iter().flatten().map(commit).collect::<Vec<_>>().join(", ")
    }
}

impl<'a> Line<'a> {
    /// A field; `None` if there is no such column, or the field is empty.
    pub fn text(&self, column: &str) -> Option<&'a str> {
        let at = self.record.columns.iter().position(|name| name == column)?;
        Some(self.fields[at].as_str()).filter(|field| !field.is_empty())
    }

    /// A field as a finite number.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column)?.parse().ok().filter(|v: &f64| v.is_finite())
    }

    /// A field as a number above 0, for logarithmic axes.
    pub(crate) fn positive(&self, column: &str) -> Option<f64> {
        self.number(column).filter(|v| *v > 0.0)
    }
}

fn short(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_by_its_columns_names() {
        let record = Record::parse("# date: 2026-01-02\n# engine: cuda:0: X, module y\na,ms\nx,1.5\ny,\n").unwrap();
        let lines: Vec<_> = record.lines().map(|line| (line.text("a"), line.number("ms"), line.text("b"))).collect();
        assert_eq!(lines, [(Some("x"), Some(1.5), None), (Some("y"), None, None)]);
        assert_eq!(record.source(), "cuda:0: X, 2026-01-02");
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_line() {
        let why = |text: &str| Record::parse(text).unwrap_err().to_string();
        assert!(why("# date: now\n\na,b\n1,2,3\n").contains("line 4: 3 fields for 2"));
        assert!(why("").contains("no line of column names") && why("hello\n").contains("line 1: 'hello'"));
    }
}
