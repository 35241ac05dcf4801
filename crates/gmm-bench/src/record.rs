//! A record of a run: facts, then a table with named columns. It is written as CSV line by line, and as JSON at the
//! end.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::machine;
use crate::row::Row;

/// The head of a record: names and values in order, one line each.
#[derive(Clone, Debug, Default)]
pub struct Facts(Vec<(String, String)>);

impl Facts {
    /// The facts that begin every record: what is measured, the date, the program's commit, and the command as typed.
    pub fn new(what: &str, commit: String, command: &str) -> Self {
        let mut facts = Self::default();
        facts.add("what", format!("{what}; see benches/README.md"));
        facts.add("date", machine::today());
        facts.add("commit", commit);
        facts.add("command", command.trim_end());
        facts
    }

    /// Adds a fact.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into().replace(['\n', '\r'], "; ")));
    }

    /// Adds several.
    pub fn extend<N: Into<String>>(&mut self, facts: impl IntoIterator<Item = (N, String)>) {
        facts.into_iter().for_each(|(name, value)| self.add(name, value));
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "# {name}: {value}"))
    }
}

/// The CSV file of a record. Each line is written at once, so that an interrupted run leaves what it has measured.
pub struct Csv {
    path: PathBuf,
    file: File,
    columns: usize,
}

impl Csv {
    /// Creates `out` if it ends in `.csv`, else `out/SLUG/STEM.csv`, or `STEM-2.csv` and so on: a record is never
    /// overwritten. Writes the facts and the comma-separated column names.
    ///
    /// # Errors
    /// If it cannot be written, or `out` exists already.
    pub fn create(out: &Path, slug: &str, stem: &str, facts: &Facts, columns: &str) -> Result<Self> {
        let path = new_path(out, slug, stem)?;
        let file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut csv = Self { path, file, columns: columns.split(',').count() };
        csv.write(&format!("{facts}{columns}\n"))?;
        Ok(csv)
    }

    /// Adds a line of comma-separated fields, one for each column.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn push(&mut self, line: &str) -> Result<()> {
        debug_assert_eq!(line.split(',').count(), self.columns, "{line}");
        self.write(&format!("{line}\n"))
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The facts and rows of a definition's run, optionally written to a file.
pub struct Record {
    /// The head.
    pub facts: Facts,
    /// The rows so far.
    pub rows: Vec<Row>,
    /// The CSV file, if the record is written.
    pub csv: Option<Csv>,
}

impl Record {
    /// Adds a row.
    ///
    /// # Errors
    /// If the CSV cannot be written.
    pub(crate) fn push(&mut self, row: Row) -> Result<()> {
        if let Some(csv) = &mut self.csv {
            let values: Vec<String> = row.fields().into_iter().map(|(_, value)| value).collect();
            csv.push(&values.join(","))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Facts and rows as one JSON object.
    pub fn json(&self) -> Value {
        let mut facts: Map<String, Value> = Map::new();
        let mut notes: Vec<&str> = Vec::new();
        for (name, value) in &self.facts.0 {
            match name.as_str() {
                "note" => notes.push(value),
                _ => drop(facts.insert(name.clone(), json!(value))),
            }
        }
        json!({"facts": facts, "notes": notes, "rows": self.rows})
    }

    /// Writes the JSON file beside the CSV, if there is one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn finish(&self) -> Result<()> {
        if let Some(csv) = &self.csv {
            let text = format!("{:#}\n", self.json());
            gmm_data::atomic::write_bytes(&csv.path.with_extension("json"), text.as_bytes())?;
        }
        Ok(())
    }

    /// Number of rows with a wrong answer or none.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.failed()).count()
    }
}

/// The path of a new record, as documented at [`Csv::create`]. Creates its folder.
fn new_path(out: &Path, slug: &str, stem: &str) -> Result<PathBuf> {
    let path = if out.extension().is_some_and(|e| e == "csv") {
        out.to_owned()
    } else {
        let names = (1..).map(|i| if i == 1 { String::new() } else { format!("-{i}") });
        let mut paths = names.map(|suffix| out.join(slug).join(format!("{stem}{suffix}.csv")));
        paths.find(|path| !path.exists()).expect("names do not end")
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_facts_above_its_columns_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let mut facts = Facts::default();
        facts.add("gpu", "one\ntwo");
        let create = |out: &Path| Csv::create(out, "machine", "today-em", &facts, "a,b");
        let mut first = create(folder.path()).unwrap();
        first.push("1,2").unwrap();
        assert_eq!(std::fs::read_to_string(first.path()).unwrap(), "# gpu: one; two\na,b\n1,2\n");
        assert_eq!(create(folder.path()).unwrap().path(), folder.path().join("machine/today-em-2.csv"));
        let named = folder.path().join("a.csv");
        assert_eq!(create(&named).unwrap().path(), named);
        assert!(create(&named).is_err());
    }
}
