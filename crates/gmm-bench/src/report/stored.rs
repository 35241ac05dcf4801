//! Reads a committed record back: facts, columns, rows.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// A CSV of `benches/record/MACHINE/`.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The file's name.
    pub(super) file: String,
    /// The name without date and number: `cpu`, `growth`; `gpu` if nothing is left.
    pub(super) kind: String,
    /// Date and number, which determine the newest record.
    order: (String, usize),
    /// Names and values of the head.
    pub(super) facts: Vec<(String, String)>,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Reads all records, grouped by machine and sorted by name.
///
/// # Errors
/// If a folder or file cannot be read, or a file is not a record.
pub(super) fn read_all(folder: &Path) -> Result<Vec<(String, Vec<Stored>)>> {
    let mut machines = BTreeMap::new();
    for machine in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let name = machine.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files = entries(&machine)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "csv"));
        let records: Vec<Stored> = files.map(|path| Stored::read(&path)).collect::<Result<_>>()?;
        if !records.is_empty() {
            machines.insert(name, records);
        }
    }
    Ok(machines.into_iter().collect())
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// The newest record of each kind, with the older ones, newest first.
pub(super) fn by_kind(all: &[Stored]) -> Vec<(&Stored, Vec<&Stored>)> {
    let mut kinds: BTreeMap<&str, Vec<&Stored>> = BTreeMap::new();
    for record in all {
        kinds.entry(&record.kind).or_default().push(record);
    }
    kinds.into_values().map(newest_first).collect()
}

fn newest_first(mut records: Vec<&Stored>) -> (&Stored, Vec<&Stored>) {
    records.sort_by(|a, b| b.order.cmp(&a.order));
    let older = records.split_off(1);
    (records[0], older)
}

impl Stored {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(&text, &stem, file).with_context(|| format!("in {}", path.display()))
    }

    pub(super) fn parse(text: &str, stem: &str, file: String) -> Result<Self> {
        let (kind, order) = kind_and_order(stem);
        let head = text.lines().take_while(|line| line.starts_with('#'));
        let fact = |line: &str| {
            line.trim_start_matches(['#', ' ']).split_once(": ").map(|(a, b)| (a.to_owned(), b.to_owned()))
        };
        let facts = head.filter_map(fact).collect();
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let split = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let columns = split(lines.next().context("it has no columns")?);
        let rows: Vec<Vec<String>> = lines.map(split).collect();
        ensure!(rows.iter().all(|row| row.len() == columns.len()), "a row has a wrong number of fields");
        Ok(Self { file, kind, order, facts, columns, rows })
    }

    /// The value of a fact in the head.
    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The record's description of what it measures.
    pub(super) fn title(&self) -> &str {
        let what = self.fact("what").unwrap_or("times");
        let what = what.strip_suffix("; see benches/README.md").unwrap_or(what);
        what.strip_prefix(&format!("{}: ", self.kind)).unwrap_or(what)
    }

    /// A field by its column's name; `None` if it is empty.
    pub(super) fn field<'a>(&self, row: &'a [String], column: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|name| name == column)?;
        row.get(at).map(String::as_str).filter(|text| !text.is_empty())
    }
}

/// Splits a file name into kind, date and number: `2026-11-21-cpu-5` is the fifth `cpu` of that date,
/// `growth-2026-11-22` the first `growth`.
fn kind_and_order(stem: &str) -> (String, (String, usize)) {
    let is_date = |text: &str| {
        text.len() == 10
            && text.char_indices().all(|(i, c)| if i == 4 || i == 7 { c == '-' } else { c.is_ascii_digit() })
    };
    let at = (0..stem.len()).find(|at| stem.get(*at..*at + 10).is_some_and(is_date));
    let (date, rest) = match at {
        Some(at) => (stem[at..at + 10].to_owned(), format!("{}-{}", &stem[..at], &stem[at + 10..])),
        None => (String::new(), stem.to_owned()),
    };
    let mut words: Vec<&str> = rest.split('-').filter(|word| !word.is_empty()).collect();
    let number = words.last().and_then(|word| word.parse().ok());
    if number.is_some() {
        words.pop();
    }
    let kind = if words.is_empty() { "gpu".to_owned() } else { words.join("-") };
    (kind, (date, number.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_kind_date_and_number() {
        let check = |stem: &str, kind: &str, number: usize| {
            let found = kind_and_order(stem);
            assert_eq!((found.0.as_str(), found.1), (kind, ("2026-11-21".to_owned(), number)), "{stem}");
        };
        check("2026-11-21-cpu-5", "cpu", 5);
        check("2026-11-21", "gpu", 1);
        check("2026-11-21-2", "gpu", 2);
        check("growth-2026-11-21", "growth", 1);
        check("2026-11-21-em-sweeps-2", "em-sweeps", 2);
    }

    #[test]
    fn a_row_of_too_few_fields_is_no_record() {
        assert!(Stored::parse("# what: x\na,b\n1,2\n", "s", "s.csv".to_owned()).is_ok());
        assert!(Stored::parse("# what: x\na,b\n1\n", "s", "s.csv".to_owned()).is_err());
    }
}
