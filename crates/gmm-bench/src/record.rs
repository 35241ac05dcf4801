//! A record: facts about a run and its rows, as CSV that grows row by row and JSON beside it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::hardware::Hardware;
use crate::machine;
use crate::row::{Row, Status};
use crate::run::Cast;
use crate::{Shape, table};

/// Facts of a run and the rows that came out.
pub struct Record {
    /// Name and value, in order.
    pub facts: Vec<(String, String)>,
    /// Rows so far.
    pub rows: Vec<Row>,
    /// The machine, as a folder.
    slug: String,
    file: Option<(PathBuf, File)>,
}

/// What a run is called, and where its program came from.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    /// The definition's name.
    pub name: &'a str,
    /// Its title.
    pub title: &'a str,
    /// The command as one would type it.
    pub command: &'a str,
    /// The commit or version of the program.
    pub commit: String,
}

impl Record {
    /// A record of what the cast is about to do, on this machine.
    pub fn new(origin: &Origin<'_>, cast: &Cast) -> Self {
        let Hardware { slug, facts: hardware } = cast.hardware();
        let mut facts: Vec<(String, String)> = [
            ("what", format!("{}: {}; see benches/README.md", origin.name, origin.title)),
            ("date", machine::today()),
            ("commit", origin.commit.clone()),
            ("command", origin.command.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        // Engines are told one by one, below.
        let hardware = hardware.into_iter().filter(|(name, _)| *name != "engine");
        facts.extend(hardware.map(|(name, value)| (name.to_owned(), value)));
        facts.extend(cast.facts.iter().cloned());
        facts.extend(cast.notes.iter().map(|note| ("note".to_owned(), note.clone())));
        // One fact is one line.
        facts.iter_mut().for_each(|(_, value)| *value = value.replace(['\n', '\r'], "; "));
        Self { facts, rows: Vec::new(), slug, file: None }
    }

    /// Opens the CSV and writes its head: `out` where it ends in `.csv`, else below it `MACHINE/DATE-NAME.csv`. What is
    /// measured is then in the file at once, so that a run which is cut short leaves it.
    ///
    /// # Errors
    /// Where it cannot be written, or is there already.
    pub fn keep(&mut self, out: &Path, name: &str) -> Result<PathBuf> {
        let path = new_path(out, &self.slug, &format!("{}-{name}", machine::today()))?;
        let mut file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut head: String = self.facts.iter().map(|(name, value)| format!("# {name}: {value}\n")).collect();
        head += &format!("{}\n", columns().join(","));
        file.write_all(head.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        self.file = Some((path.clone(), file));
        Ok(path)
    }

    /// Takes a row.
    ///
    /// # Errors
    /// Where the CSV cannot be written.
    pub fn push(&mut self, row: Row) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let values: Vec<String> = row.fields().into_iter().map(|(_, value)| value).collect();
            writeln!(file, "{}", values.join(",")).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Facts and rows as one JSON object.
    pub fn json(&self) -> Value {
        let mut facts: Map<String, Value> = Map::new();
        let mut notes: Vec<&str> = Vec::new();
        for (name, value) in &self.facts {
            match name.as_str() {
                "note" => notes.push(value),
                _ => drop(facts.insert(name.clone(), json!(value))),
            }
        }
        json!({"facts": facts, "notes": notes, "rows": self.rows})
    }

    /// Writes the JSON beside the CSV, if there is one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(&self) -> Result<()> {
        if let Some((path, _)) = &self.file {
            let text = format!("{:#}\n", self.json());
            gmm_data::atomic::write_bytes(&path.with_extension("json"), text.as_bytes())?;
        }
        Ok(())
    }

    /// Rows whose answers were wrong or did not come.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| row.failed()).count()
    }
}

/// The heading of the table on the terminal.
pub fn heading() -> String {
    table::heading()
}

/// A row of the table on the terminal.
pub fn line(row: &Row) -> String {
    table::line(row)
}

/// Names of the CSV's columns.
fn columns() -> Vec<String> {
    let row = Row { status: Status::Ok, ..Row::new("", "", "", Shape { n: 0, k: 0, d: 0 }) };
    row.fields().into_iter().map(|(name, _)| name).collect()
}

/// `out` where it ends in `.csv`, else `out/SLUG/STEM.csv`, or `STEM-2.csv` and so on: no record is ever overwritten. Makes the
/// folder.
///
/// # Errors
/// Where that cannot be made.
pub fn new_path(out: &Path, slug: &str, stem: &str) -> Result<PathBuf> {
    let path = if out.extension().is_some_and(|e| e == "csv") {
        out.to_owned()
    } else {
        let names = (1..).map(|i| if i == 1 { String::new() } else { format!("-{i}") });
        let mut paths = names.map(|suffix| out.join(slug).join(format!("{stem}{suffix}.csv")));
        paths.find(|path| !path.exists()).expect("names do not end")
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = || new_path(folder.path(), "machine", "today-em").unwrap();
        std::fs::write(path(), "first").unwrap();
        assert_eq!(path(), folder.path().join("machine/today-em-2.csv"));
        assert_eq!(new_path(&folder.path().join("a.csv"), "machine", "x").unwrap(), folder.path().join("a.csv"));
    }
}
